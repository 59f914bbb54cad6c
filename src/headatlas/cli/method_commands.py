"""Make the command of a method from its record: with the options of the method, and those of all methods."""

import inspect
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from headatlas.cli.app import (
    Address,
    Device,
    Dtype,
    Engine,
    GpusPerJob,
    Json,
    Preset,
    Workers,
    check_model,
    import_torch,
    print_tables,
    resumable,
)
from headatlas.cli.display import Display
from headatlas.cli.options import Data, check_functions, option_parser
from headatlas.cli.plug_ins import as_command
from headatlas.errors import BadArgument
from headatlas.methods.method import PRESETS, Method, Option
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.progress import default_progress

# Options that take arrays.
PYTHON_ONLY = ("maps",)
INDEX = "atlas.json"

Model = Annotated[
    str | None,
    typer.Argument(
        callback=check_model,
        help="A Hugging Face id, a model folder, a .gguf file, or a name from `headatlas models`."
        f" Default: the model of the atlas in --out, or {DEFAULT_MODEL} if there is none.",
    ),
]


DEFAULT_FOLDER = Path("atlas")
Out = Annotated[
    Path | None,
    typer.Option(
        help=f"Folder for the result, from which interrupted work resumes.  [default: {DEFAULT_FOLDER}]",
        show_default=False,
    ),
]


Tests = Annotated[
    bool | None,
    typer.Option(
        "--tests/--no-tests",
        help="Test the top heads of the maps by removing them (docs/concepts/evidence.md)."
        "  [default: yes if --out is given]",
        show_default=False,
    ),
]


def make_command(method: Method) -> Any:
    """Make the command `headatlas NAME [MODEL]`."""
    method_options = {name: option for name, option in method.options.items() if name not in (*PYTHON_ONLY, *COMMON)}
    parameters = [_keyword("model", Model, None)]
    for name, option in method_options.items():
        parameters.append(_option_keyword(method, option))
        # Files with tasks have a separate option, which may be repeated.
        if name == "tasks":
            parameters.append(_keyword("data", Data, None))
    parameters += COMMON.values()

    def command(model: str | None, **values: Any) -> None:
        options = {name: values.pop(name) for name in method_options}
        if files := values.pop("data", None):
            options["tasks"] = [*(options["tasks"] or ()), *files]
        options = {name: value for name, value in options.items() if value is not None}
        _check_required(method, options, values["preset"])
        check_functions(method, options, values["preset"])
        run_method(method, model, options, **values)

    vars(command).update(__signature__=inspect.Signature(parameters), __annotations__={})
    return as_command(method.name.replace("_", "-"), command, _help(method))


def run_method(
    method: Method,
    model: str | None,
    options: Mapping[str, Any],
    *,
    preset: Preset = "quick",
    out: Out = None,
    tests: Tests = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    engine: Engine = "local",
    address: Address = None,
    gpus_per_job: GpusPerJob = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Compute a method, print its tables and its warnings."""
    import_torch()
    from headatlas.comparison.repeats import reliability_warnings
    from headatlas.results.method_tables import method_tables
    from headatlas.results.tables import warnings
    from headatlas.runs import run as runs

    folder = out or DEFAULT_FOLDER
    display = Display(folder, shows_plan=not as_json)
    default_progress.set(display)
    with resumable(folder):
        result = runs.compute(
            method,
            model or _model_of(folder) or DEFAULT_MODEL,
            options,
            preset=preset,
            out=folder,
            tests=out is not None if tests is None else tests,
            command=shlex.join(["headatlas", *sys.argv[1:]]),
            progress=display,
            watch=display,
            device=device,
            dtype=dtype,
            engine=engine,
            address=address,
            gpus_per_job=gpus_per_job,
            workers=workers,
        )
    results = {method.name: result}
    sentences = [*warnings(results), *reliability_warnings(results)]
    print_tables(method_tables(result), as_json, folder / f"{method.name}.nc", sentences)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# The options that all methods have are the keywords of `run_method`.
COMMON = {
    name: parameter
    for name, parameter in inspect.signature(run_method).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}


def _model_of(folder: Path) -> str | None:
    """Read the name of the model of the atlas in a folder, if there is one."""
    try:
        return str(json.loads((folder / INDEX).read_text(encoding="utf-8"))["model"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _help(method: Method) -> str:
    """Compose the help: the first line of the docstring, what the maps show, and the file."""
    lines = [(inspect.getdoc(method.function) or method.title).partition("\n")[0]]
    if method.finds:
        lines.append(f"It finds {method.finds}" + f"; not {method.misses}" * bool(method.misses) + ".")
    return "\n\n".join([*lines, f"Writes {method.name}.nc, which `headatlas figures DIR` draws."])


def _option_keyword(method: Method, option: Option) -> inspect.Parameter:
    """Make an option of the command from an option of the method. None leaves the value to the method or its preset."""
    parser = option_parser(method, option)

    def callback(param: typer.CallbackParam, value: Any) -> Any:
        return value if value is None or parser.parse is None else parser.parse(param.opts[0], value)

    default = _default(method, option)
    text = f"{option.help[:1].upper()}{option.help[1:]}." if option.help else ""
    if default:
        text += f"  [default: {default}]"
    elif option.default is inspect.Parameter.empty:
        text += "  [required]"
    flag = option.name.replace("_", "-")
    # Given explicitly, because some versions of typer would name the flag after the metavar.
    flags = f"--{flag}/--no-{flag}" if parser.kind is bool else f"--{flag}"
    info = typer.Option(flags, metavar=parser.metavar, callback=callback, help=text, show_default=False)
    return _keyword(option.name, Annotated[parser.kind | None, info], None)


def _check_required(method: Method, options: Mapping[str, Any], preset: str) -> None:
    """Check that options without a default have a value, from the user or the preset."""
    for name, option in method.options.items():
        if option.default is inspect.Parameter.empty and name not in {*options, *method.presets.get(preset, {})}:
            raise BadArgument(f"Missing option '--{name.replace('_', '-')}'.")


def _default(method: Method, option: Option) -> str:
    """Put the default into words; that of each preset, if they differ."""
    in_preset = {p: _in_words(method.presets.get(p, {}).get(option.name, option.default)) for p in PRESETS}
    if len(set(in_preset.values())) == 1:
        return in_preset[PRESETS[0]]
    return ", ".join(f"{words} in {preset}" for preset, words in in_preset.items() if words)


def _in_words(value: Any) -> str:
    """Write a value as a user would type it; empty if there is none."""
    if value is None or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

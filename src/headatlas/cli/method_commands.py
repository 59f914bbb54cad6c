"""A method's command, made from its record: its options, and those that all methods have."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
import typer.main

from headatlas.cli.app import (
    Address,
    Device,
    Engine,
    Json,
    Preset,
    Workers,
    import_torch,
    listed,
    model_there,
    show_parts,
)
from headatlas.errors import BadArgument, check_choice, check_names, check_there, did_you_mean
from headatlas.methods._seeds import seed_numbers
from headatlas.methods.method import PRESETS, Method, Option, kinds_of
from headatlas.models.default import DEFAULT_MODEL
from headatlas.tasks.names import FUNCTIONS, check_task, relation_names
from headatlas.terminal import bar

PYTHON_ONLY = ("maps", "preset")  # arrays; and what is an option of all methods
INDEX = "atlas.json"
LISTS = (list, tuple, Sequence)

Model = Annotated[
    str | None,
    typer.Argument(
        callback=model_there,
        help="A hub id, a model folder, a .gguf file, or a name from `headatlas models`."
        f" Without it, the model of the atlas in --out; if there is none, {DEFAULT_MODEL}.",
    ),
]


def _files(param: typer.CallbackParam, value: list[Path] | None) -> list[Path] | None:
    for path in value or ():
        check_there(param.opts[0], path, "file")
    return value


Data = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        callback=_files,
        help="A task: JSON Lines or CSV with prompt and target. May be given more than once.",
    ),
]
Out = Annotated[Path, typer.Option(help="Folder for the result; interrupted work goes on there.")]


@dataclass(frozen=True)
class Reading:
    """How an option is read: as which type, what stands for its value in the help, and check(option, value), which gives the value
    as the method takes it, once it is known to be right. Nothing heavy is imported for that. help: where Python takes more than
    the command does."""

    kind: Any
    metavar: str | None = None
    check: Callable[[str, Any], Any] | None = None
    help: str = ""


def make_command(method: Method) -> Any:
    """The command `headatlas NAME [MODEL]`."""
    own = {name: option for name, option in method.options.items() if name not in (*PYTHON_ONLY, *COMMON)}
    parameters = [_parameter("model", Model, None)]
    for name, option in own.items():
        parameters += [_as_parameter(method, option), *([_parameter("data", Data, None)] if name == "tasks" else [])]
    parameters += COMMON.values()

    def command(model: str | None, **values: Any) -> None:
        options = {name: values.pop(name) for name in own}
        if files := values.pop("data", None):
            options["tasks"] = [*(options["tasks"] or ()), *files]
        options = {name: value for name, value in options.items() if value is not None}
        _check_functions(method, options, values["preset"])
        run_method(method, model, options, **values)

    vars(command).update(__signature__=inspect.Signature(parameters), __annotations__={})
    frame = typer.Typer(add_completion=False, rich_markup_mode=None)
    frame.command(method.name.replace("_", "-"), help=_help(method))(command)
    return typer.main.get_command(frame)


def run_method(
    method: Method,
    model: str | None,
    options: Mapping[str, Any],
    *,
    preset: Preset = "quick",
    out: Out = Path("atlas"),
    device: Device = "auto",
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Compute a method, print its tables and what must be known beside them."""
    import_torch()
    from headatlas.methods._tables import generic_tables
    from headatlas.results.tables import warnings
    from headatlas.runs.call import compute

    result = compute(
        method,
        model or _model_of(out) or DEFAULT_MODEL,
        options,
        preset=preset,
        out=out,
        device=device,
        engine=engine,
        address=address,
        workers=workers,
        progress=bar,
    )
    tables = method.tables(result) if method.tables else generic_tables(method, result)
    sentences = [*(method.sentences(result) if method.sentences else ()), *warnings({method.name: result})]
    show_parts(tables, as_json, out / f"{method.name}.nc", dict.fromkeys(sentences))


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


COMMON = {
    name: parameter
    for name, parameter in inspect.signature(run_method).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}


def _model_of(folder: Path) -> str | None:
    """The model of the atlas in a folder, if there is one."""
    try:
        return str(json.loads((folder / INDEX).read_text(encoding="utf-8"))["model"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _help(method: Method) -> str:
    lines = [(inspect.getdoc(method.function) or method.title).partition("\n")[0]]
    if method.tells:
        lines.append(f"It tells {method.tells}" + f"; not {method.does_not_tell}" * bool(method.does_not_tell) + ".")
    return "\n\n".join([*lines, f"Writes {method.name}.nc, which `headatlas figures DIR` draws."])


def _as_parameter(method: Method, option: Option) -> inspect.Parameter:
    """An option of a method as one of its command. Without a value it is None, and the method's or the preset's default holds."""
    reading = _reading(method, option)

    def callback(param: typer.CallbackParam, value: Any) -> Any:
        return value if value is None or reading.check is None else reading.check(param.opts[0], value)

    text, default = reading.help or option.help, _default(method, option)
    text = f"{text[:1].upper()}{text[1:]}." * bool(text) + f"  [default: {default}]" * bool(default)
    info = typer.Option(metavar=reading.metavar, callback=callback, help=text, show_default=False)
    if option.default is inspect.Parameter.empty:
        return _parameter(option.name, Annotated[reading.kind, info], inspect.Parameter.empty)
    return _parameter(option.name, Annotated[reading.kind | None, info], None)


def _default(method: Method, option: Option) -> str:
    """In words; of each preset, if they differ."""
    in_preset = {p: _in_words(method.presets.get(p, {}).get(option.name, option.default)) for p in PRESETS}
    if len(set(in_preset.values())) == 1:
        return in_preset[PRESETS[0]]
    return ", ".join(f"{words} in {preset}" for preset, words in in_preset.items() if words)


def _in_words(value: Any) -> str:
    if value is None or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _reading(method: Method, option: Option) -> Reading:
    """How an option is read, by its type; the arguments that say what is asked, by their name."""
    kinds = [kind for kind in kinds_of(option.kind) if kind is not NoneType]
    choices = [str(choice) for kind in kinds for choice in _choices(kind)]
    if choices and all(get_origin(kind) is Literal for kind in kinds):
        return Reading(str, f"[{'|'.join(choices)}]", partial(_choice, choices))
    if option.name in BY_NAME:
        return BY_NAME[option.name](method, choices)
    if len(kinds) == 1 and kinds[0] in (bool, Path):
        return Reading(kinds[0])
    if several := [kind for kind in kinds if get_origin(kind) in LISTS]:
        return Reading(str, "NAMES", partial(_several, get_args(several[0])[:1], choices))
    number = ["N"] if int in kinds else ["X"] if float in kinds else []
    return Reading(str, "|".join([*number, *choices]) or "TEXT", partial(_one, kinds, choices))


def _choices(kind: Any) -> Sequence[Any]:
    """Of a Literal, or of a list of such."""
    if get_origin(kind) in LISTS:
        return [choice for item in get_args(kind) for choice in _choices(item)]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _choice(choices: Sequence[str], name: str, value: str) -> str:
    check_choice(name, value, choices)
    return value


def _one(kinds: Sequence[Any], choices: Sequence[str], name: str, value: str) -> Any:
    """A value of a union: one of its choices, a number, or, if it may be, any text."""
    if value in choices:
        return value
    for kind in (int, float):
        if kind in kinds:
            with suppress(ValueError):
                return kind(value)
    if any(kind not in (int, float) and get_origin(kind) is not Literal for kind in kinds):
        return value
    expected = [words for kind, words in ((int, "a whole number"), (float, "a number")) if kind in kinds]
    raise BadArgument(
        f"{name} is {value!r}, expected {' or '.join([*expected, *choices])}.{did_you_mean(value, choices)}"
    )


def _several(kinds: Sequence[Any], choices: Sequence[str], name: str, value: str) -> list[Any] | None:
    """The same with commas between."""
    names = listed(value)
    if names and choices:
        check_names(name, names, choices)
    return names and [_one(kinds, choices, name, text) for text in names]


def _names(choices: Sequence[str], name: str, value: str) -> list[str] | str | None:
    """Names with commas between; 'all' for all there are."""
    return "all" if value.strip() == "all" else _several((str,), choices, name, value)


def _tasks(relations: Sequence[str]) -> Reading:
    """relations: where functions are told apart, each of them may be one."""

    def check(name: str, value: str) -> list[str] | None:
        for task in listed(value) or ():
            check_task(task, relations)
        return listed(value)

    return Reading(str, "NAMES", check, TASKS.replace("tasks`)", "tasks`), relations") if relations else TASKS)


def _file(text: str) -> Reading:
    return Reading(Path, "FILE", partial(_path, "file"), text)


def _task(name: str, value: str) -> str:
    check_task(value)
    return value


def _path(kind: str, name: str, value: Path) -> Path:
    check_there(name, value, kind)
    return value


def _seeds(name: str, value: str) -> int | list[int]:
    """A number of seeds, or which ones."""
    try:
        numbers = [int(number) for number in value.split(",")]
    except ValueError:
        raise BadArgument(f"{name} is {value!r}, expected a number, or several with commas between") from None
    seeds = numbers if "," in value else numbers[0]
    seed_numbers(seeds)
    return seeds


TASKS = "Built-in tasks (`headatlas tasks`), hf: addresses or files with prompt and target, with commas between"
LAYOUT = "in the CogQA layout (JSON, or CSV)"
BY_NAME: Mapping[str, Callable[[Method, Sequence[str]], Reading]] = {  # what a method asks, the same for all
    "tasks": lambda method, _: _tasks(relation_names() if "functions" in method.options else []),
    "keep": lambda *_: Reading(str, "TASK", _task),
    "lose": lambda *_: Reading(str, "TASK", _task),
    "questions": lambda *_: _file(f"questions {LAYOUT}; without them, our own"),
    "test": lambda *_: _file(f"test questions {LAYOUT}; without them, a fifth of the data"),
    "relations": lambda *_: Reading(
        Path,
        "PATH",
        partial(_path, "file or folder"),
        "a folder of NAME.json files, one such file, or a CSV file; without it, the built-in relations",
    ),
    "functions": lambda _, choices: Reading(str, "NAMES", partial(_names, choices)),
    "methods": lambda _, choices: Reading(str, "NAMES", partial(_names, choices)),
    "seeds": lambda *_: Reading(str, "N or N,N", _seeds),
}


def _check_functions(method: Method, options: Mapping[str, Any], preset: str) -> None:
    """Of our own questions the functions are known; those of other data are told once it is read."""
    data = {*options, *(name for name, value in method.presets.get(preset, {}).items() if value is not None)}
    if not data & {"tasks", "questions"} and options.get("functions", "all") != "all":
        check_names("--functions", options["functions"], FUNCTIONS)

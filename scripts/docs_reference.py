"""Write docs/reference: methods.md from the declarations of methods, commands.md from the help of commands.

python scripts/docs_reference.py
"""

import inspect
import re
import types
from pathlib import Path
from textwrap import dedent, fill
from typing import Any, Literal, get_args, get_origin

import click
import typer.main

from headatlas.methods import methods
from headatlas.methods.method import PRESETS, Method, Option, kinds_of

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
METHODS = """# Methods: every option

Written by `make docs` from what each method declares. `ha.NAME(model, …)` in Python and `headatlas NAME [MODEL]` on the
command line take the options below. `model` is an LM, or anything `ha.load` takes; by default it is smollm2. The result
is an `xarray.Dataset` over layers and heads ([every variable](files.md)).

All methods also take:

| option | default | means |
| --- | --- | --- |
| `preset` | quick | quick (minutes on a laptop) or full (as published; needs a GPU) |
| `out` | | a folder for the result, from which interrupted work resumes and a finished result is read |
| `device` | auto | auto, cpu, cuda or cuda:N |
| `dtype` | auto | auto (that of the checkpoint on a GPU, float32 on a CPU), float32, bfloat16, float16 or float64 |
| `engine` | local | local (this machine, one process per GPU) or ray ([a cluster](../how-to/cluster.md)) |
| `address` | | HOST:PORT of a Ray cluster, or auto |
| `gpus_per_job` | | number of GPUs over which each worker spreads the model |
| `workers` | | maximum number of workers |
| `progress` | silent | Python only: a `Progress` that shows how far the work is |

On the command line, `--json` prints JSON instead of tables.
"""
COMMANDS = """# Commands: every option

Written by `make docs` from each command's own `--help`.

Errors are one line; add `--debug` for the traceback ([exit codes](errors.md)).
"""
HELP_WIDTH = 100


def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    ours = [method for method in methods().values() if method.source == "headatlas"]
    return {
        "methods.md": "\n".join([METHODS, *map(method_section, ours)]),
        "commands.md": "\n".join([COMMANDS, *(help_block(name, command) for name, command in commands().items())]),
    }


def method_section(method: Method) -> str:
    page = method.name.replace("_", "-")
    lines = [
        f"## {method.name} {{#headatlas.{method.name}}}",
        "",
        f"**{method.title}** ([its page](../methods/{page}.md))",
    ]
    lines += ["", prose(inspect.getdoc(method.function) or ""), ""]
    if method.finds:
        lines += [fill(f"Finds {method.finds}. Does not find {method.misses}.", 120), ""]
    if method.measures:
        lines += ["| measure | over | means |", "| --- | --- | --- |"]
        lines += [f"| `{m.name}` | {m.over}, layer, head | {m.meaning} |" for m in method.measures] + [""]
    if method.options:
        lines += ["| option | type | default | means |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{o.name}` | {kind_in_words(o.kind)} | {default_in_words(method, o)} | {o.help} |"
            for o in method.options.values()
        ] + [""]
    lines += [f"In `run`: {', '.join(method.run_presets) or 'only by name'}.", ""]
    if method.cites:
        lines += [fill(f"After {'; '.join(method.cites)}.", 120), ""]
    return "\n".join(lines)


def prose(text: str) -> str:
    """Turn a docstring into Markdown: examples become code, lines are wrapped."""
    parts = []
    for paragraph in re.sub(r" \(docs/[\w/-]+\.md\)", "", text).split("\n\n"):
        title, _, body = paragraph.partition("\n")
        if title == "Example:":
            parts.append(f"```python\n{dedent(body)}\n```")
        elif title == "Returns:":
            parts.append(fill(f"**Returns** {' '.join(body.split())}", 120))
        else:
            # The first part is text; every other part is one argument.
            arguments = re.split(r"^(?=\w+: )", paragraph, flags=re.MULTILINE)
            parts += [fill(re.sub(r"^Returns\b", "**Returns**", " ".join(arguments[0].split())), 120)] * bool(
                arguments[0]
            )
            items = (re.sub(r"^(\w+):", r"- `\1`:", " ".join(item.split())) for item in arguments[1:])
            parts += ["\n".join(fill(item, 120, subsequent_indent="  ") for item in items)] * bool(arguments[1:])
    return "\n\n".join(parts)


def commands() -> dict[str, Any]:
    """Return all commands by name, without those of methods from plug-ins."""
    from headatlas.cli.app import app

    group: Any = typer.main.get_command(app)
    plug_in_names = {name.replace("_", "-") for name, method in methods().items() if method.source != "headatlas"}
    return {name: group.get_command(None, name) for name in group.list_commands(None) if name not in plug_in_names}


def help_block(name: str, command: Any) -> str:
    context = click.Context(
        command, info_name=f"headatlas {name}", terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH
    )
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    return "\n".join([f"## {name}", "", "```text", *lines, "```", ""])


def kind_in_words(kind: Any) -> str:
    parts = []
    for part_kind in kinds_of(kind):
        if get_origin(part_kind) is Literal:
            parts += [f"`{choice}`" for choice in get_args(part_kind)]
        elif part_kind is not types.NoneType:
            parts.append(getattr(part_kind, "__name__", "") if part_kind is not Any else "")
    return " or ".join(p for p in parts if p)


def default_in_words(method: Method, option: Option) -> str:
    """Format an option's default; if presets differ, the default of each."""
    defaults = {p: _in_words(method.presets.get(p, {}).get(option.name, option.default)) for p in PRESETS}
    if len(set(defaults.values())) == 1:
        return defaults[PRESETS[0]]
    return "; ".join(f"{words} in {preset}" for preset, words in defaults.items() if words)


def _in_words(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "must be given"
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return "" if default is None else str(default)


if __name__ == "__main__":
    for file, text in pages().items():
        (FOLDER / file).write_text(text)

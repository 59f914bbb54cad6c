"""docs/reference.md from what every method declares: python scripts/docs_reference.py"""

import inspect
import types
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, get_args, get_origin

from headatlas.methods import methods
from headatlas.methods.method import Method, kinds_of

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
HEAD = """# Methods: reference

Written by `make docs` from what each method declares. `ha.NAME(model, …)` and `headatlas NAME [MODEL]` take the options
below, and all of them `preset`, `out`, `device`, `engine`, `address`, `workers` (Python: `progress` too; the command:
`--json`). `model` is an LM, or anything `ha.load` takes; by default smollm2. Results are datasets over layers and heads
([the atlas](atlas.md)).
"""


def page() -> str:
    ours = [method for method in methods().values() if method.source == "headatlas"]
    return "\n".join([HEAD, *map(section, ours)])


def section(method: Method) -> str:
    lines = [f"## {method.name}", "", f"**{method.title}.** {inspect.getdoc(method.function)}", ""]
    if method.tells:
        lines += [fill(f"Tells {method.tells}. Does not tell {method.does_not_tell}.", 120), ""]
    if method.measures:
        lines += ["| measure | over | means |", "| --- | --- | --- |"]
        lines += [f"| `{m.name}` | {m.over}, layer, head | {m.meaning} |" for m in method.measures] + [""]
    if method.options:
        lines += ["| option | type | default | |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{o.name}` | {kind_in_words(o.kind)} | {default_in_words(o.default)} | {o.help} |"
            for o in method.options.values()
        ] + [""]
    presets = [f"{name}{_options(options)}" for name, options in method.presets.items()]
    lines += [f"In `run`: {'; '.join(presets) or 'only if asked for by name'}.", ""]
    if method.cites:
        lines += [fill(f"After {'; '.join(method.cites)}.", 120), ""]
    return "\n".join(lines)


def _options(options: Any) -> str:
    return f" ({', '.join(f'{k} {v}' for k, v in options.items())})" if options else ""


def kind_in_words(kind: Any) -> str:
    parts = []
    for one in kinds_of(kind):
        if get_origin(one) is Literal:
            parts += [f"`{choice}`" for choice in get_args(one)]
        elif one is not types.NoneType:
            parts.append(getattr(one, "__name__", "") if one is not Any else "")
    return " or ".join(p for p in parts if p)


def default_in_words(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "must be given"
    if isinstance(default, tuple):
        return ", ".join(map(str, default))
    return "" if default is None else str(default)


if __name__ == "__main__":
    PAGE.write_text(page())

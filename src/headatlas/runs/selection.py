"""Which methods a run does, and in which order: the quickest first. Names are checked before anything is loaded."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from headatlas.errors import BadArgument, check_choice, check_names
from headatlas.methods import get_method, method_names, preset_methods
from headatlas.methods import methods as registered_methods
from headatlas.methods.method import PRESETS, Method
from headatlas.tasks.built_in import FUNCTIONS


def select_methods(
    preset: str, methods: Sequence[str] | str | None = None, functions: Sequence[str] | str | None = None
) -> list[tuple[Method, dict[str, Any]]]:
    """Return the methods of a run, the quickest first, with the options of each.

    Args:
        methods: names, in any order (default: those of the preset).
        functions: cognitive functions, for the methods that have this option (default: those of the preset).
    """
    check_choice("preset", preset, PRESETS)
    names = preset_methods(preset) if methods is None else check_names("methods", methods, method_names())
    function_names = None if functions is None else check_names("functions", functions, FUNCTIONS)
    records = [method for name, method in registered_methods().items() if name in names]
    if function_names and not any("functions" in m.options for m in records):
        valid = [name for name in preset_methods("full") if "functions" in get_method(name).options]
        raise BadArgument(
            f"functions is given, but the methods are {', '.join(names)}: only {' and '.join(valid)} take functions"
        )
    selected = []
    for method in records:
        given_options = {"functions": function_names} if function_names and "functions" in method.options else {}
        options = method.in_preset(preset, given_options)
        _check_required(method, options)
        selected.append((method, options))
    return selected


def _check_required(method: Method, options: Mapping[str, Any]) -> None:
    """Check that options without a default have a value; `run` has no arguments for options of single methods."""
    required = [o.name for o in method.options.values() if o.default is inspect.Parameter.empty]
    missing = [name for name in required if name not in options]
    if missing:
        command = method.name.replace("_", "-")
        raise BadArgument(
            f"methods: {method.name!r} needs {' and '.join(missing)}, which run does not take:"
            f" use ha.{method.name} or headatlas {command}"
        )

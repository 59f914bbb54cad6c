"""Parse and check the options of a method from the command line, before slow imports."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from headatlas.cli.app import split_names
from headatlas.errors import BadArgument, check_choice, check_exists, check_names, did_you_mean
from headatlas.methods._seeds import seed_numbers
from headatlas.methods.method import Method, Option, kinds_of
from headatlas.tasks.built_in import FUNCTIONS, built_in_questions, check_questions, check_task, relation_names

LIST_TYPES = (list, tuple, Sequence)
NAMES_METAVAR = "NAME,NAME"
LIST_METAVARS = {int: "N,N", float: "X,X"}


def _check_files(param: typer.CallbackParam, value: list[Path] | None) -> list[Path] | None:
    for path in value or ():
        check_exists(param.opts[0], path, "file")
    return value


Data = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        callback=_check_files,
        help="File with a task: JSON Lines or CSV with prompt and target. May be given more than once.",
    ),
]


@dataclass(frozen=True)
class OptionParser:
    """How an option is parsed.

    Attributes:
        kind: type of the option for typer.
        metavar: placeholder of the value in the help.
        parse: checks and converts a value; takes the name of the option and the value.
    """

    kind: Any
    metavar: str | None = None
    parse: Callable[[str, Any], Any] | None = None


def option_parser(method: Method, option: Option) -> OptionParser:
    """Choose how to parse an option: by its name if it takes data, else by its type."""
    kinds = [kind for kind in kinds_of(option.kind) if kind is not NoneType]
    choices = [str(choice) for kind in kinds for choice in _choices(kind)]
    if choices and all(get_origin(kind) is Literal for kind in kinds):
        return OptionParser(str, f"[{'|'.join(choices)}]", partial(_parse_choice, choices))
    if by_name := _by_name(option.name, method, choices):
        return by_name
    if len(kinds) == 1 and kinds[0] in (bool, Path):
        return OptionParser(kinds[0])
    if list_kinds := [kind for kind in kinds if get_origin(kind) in LIST_TYPES]:
        items = get_args(list_kinds[0])[:1]
        metavar = LIST_METAVARS.get(items[0], NAMES_METAVAR) if items else NAMES_METAVAR
        if items and items[0] in kinds:
            return OptionParser(str, f"{metavar[0]} or {metavar}", partial(_parse_one_or_several, items, choices))
        return OptionParser(str, metavar, partial(_parse_several, items, choices))
    number = ["N"] if int in kinds else ["X"] if float in kinds else []
    return OptionParser(str, "|".join([*number, *choices]) or "TEXT", partial(_parse_one, kinds, choices))


def _by_name(name: str, method: Method, choices: Sequence[str]) -> OptionParser | None:
    """Choose the parser of an option for data: these mean the same in all methods."""
    match name:
        case "tasks":
            # A method with functions takes each relation as a function.
            relations = relation_names() if "functions" in method.options else []
            return OptionParser(str, NAMES_METAVAR, partial(_parse_tasks, relations))
        case "keep" | "lose":
            return OptionParser(str, "TASK", _parse_task)
        case "questions":
            return OptionParser(str, "NAME or FILE", _parse_questions)
        case "test":
            return OptionParser(Path, "FILE", _parse_file)
        case "relations":
            return OptionParser(str, "PATH", _parse_relations)
        case "functions" | "methods":
            return OptionParser(str, NAMES_METAVAR, partial(_parse_names, choices))
        case "seeds":
            return OptionParser(str, "N or N,N", _parse_seeds)
    return None


def _choices(kind: Any) -> Sequence[Any]:
    """Return the values of a Literal, or of a list of Literals."""
    if get_origin(kind) in LIST_TYPES:
        return [choice for item in get_args(kind) for choice in _choices(item)]
    return get_args(kind) if get_origin(kind) is Literal else ()


def _parse_choice(choices: Sequence[str], name: str, value: str) -> str:
    check_choice(name, value, choices)
    return value


def _parse_one(kinds: Sequence[Any], choices: Sequence[str], name: str, value: str) -> Any:
    """Parse a value of a union: one of its choices, a number, or any text if the union allows that."""
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


def _parse_several(kinds: Sequence[Any], choices: Sequence[str], name: str, value: str) -> list[Any] | None:
    """Parse comma-separated values."""
    names = split_names(value)
    if names and choices:
        check_names(name, names, choices)
    return names and [_parse_one(kinds, choices, name, text) for text in names]


def _parse_one_or_several(kinds: Sequence[Any], choices: Sequence[str], name: str, value: str) -> Any:
    """Parse one value, or several comma-separated ones."""
    return (_parse_several if "," in value else _parse_one)(kinds, choices, name, value)


def _parse_names(choices: Sequence[str], name: str, value: str) -> list[str] | str | None:
    """Parse comma-separated names, or 'all'."""
    return "all" if value.strip() == "all" else _parse_several((str,), choices, name, value)


def _parse_tasks(relations: Sequence[str], name: str, value: str) -> list[str] | None:
    tasks = split_names(value)
    for task in tasks or ():
        check_task(task, relations)
    return tasks


def _parse_task(name: str, value: str) -> str:
    check_task(value)
    return value


def _parse_questions(name: str, value: str) -> str | Path:
    """Parse the name of built-in questions, or a file."""
    check_questions(name, value)
    return value if built_in_questions(value) else Path(value)


def _parse_file(name: str, value: Path) -> Path:
    check_exists(name, value, "file")
    return value


def _parse_relations(name: str, value: str) -> list[str] | Path:
    """Parse the names of built-in relations, or a path."""
    names = split_names(value) or []
    if names and set(names) <= set(relation_names()):
        return names
    check_exists(name, value)
    return Path(value)


def _parse_seeds(name: str, value: str) -> int | list[int]:
    """Parse a number of seeds, or comma-separated seeds."""
    try:
        numbers = [int(number) for number in value.split(",")]
    except ValueError:
        raise BadArgument(f"{name} is {value!r}, expected a number, or comma-separated numbers") from None
    seeds = numbers if "," in value else numbers[0]
    seed_numbers(seeds)
    return seeds


def check_functions(method: Method, options: Mapping[str, Any], preset: str) -> None:
    """Check the option --functions for the built-in questions; for other data, it is checked when that is read."""
    in_preset = {name: value for name, value in method.presets.get(preset, {}).items() if value is not None}
    values = in_preset | dict(options)
    uses_built_in = "tasks" not in values and built_in_questions(values.get("questions"))
    if uses_built_in and options.get("functions", "all") != "all":
        check_names("--functions", options["functions"], FUNCTIONS)

"""How the options of a method are read from the command line: at once, without slow imports."""

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

LISTS = (list, tuple, Sequence)
NAMES = "NAME,NAME"
LIST_METAVARS = {int: "N,N", float: "X,X"}


def _files(param: typer.CallbackParam, value: list[Path] | None) -> list[Path] | None:
    for path in value or ():
        check_exists(param.opts[0], path, "file")
    return value


Data = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        callback=_files,
        help="A task: JSON Lines or CSV with prompt and target. May be given more than once.",
    ),
]


@dataclass(frozen=True)
class Reading:
    """How an option is read: its type, and its placeholder in the help. check(option, value): check and convert it."""

    kind: Any
    metavar: str | None = None
    check: Callable[[str, Any], Any] | None = None


def reading(method: Method, option: Option) -> Reading:
    """How an option is read: by its name, if it names data, else by its type."""
    kinds = [kind for kind in kinds_of(option.kind) if kind is not NoneType]
    choices = [str(choice) for kind in kinds for choice in _choices(kind)]
    if choices and all(get_origin(kind) is Literal for kind in kinds):
        return Reading(str, f"[{'|'.join(choices)}]", partial(_choice, choices))
    if by_name := _by_name(option.name, method, choices):
        return by_name
    if len(kinds) == 1 and kinds[0] in (bool, Path):
        return Reading(kinds[0])
    if several := [kind for kind in kinds if get_origin(kind) in LISTS]:
        items = get_args(several[0])[:1]
        metavar = LIST_METAVARS.get(items[0], NAMES) if items else NAMES
        if items and items[0] in kinds:
            return Reading(str, f"{metavar[0]} or {metavar}", partial(_one_or_several, items, choices))
        return Reading(str, metavar, partial(_several, items, choices))
    number = ["N"] if int in kinds else ["X"] if float in kinds else []
    return Reading(str, "|".join([*number, *choices]) or "TEXT", partial(_one, kinds, choices))


def _by_name(name: str, method: Method, choices: Sequence[str]) -> Reading | None:
    """The arguments for data mean the same in all methods."""
    match name:
        case "tasks":
            relations = relation_names() if "functions" in method.options else []  # each is a function
            return Reading(str, NAMES, partial(_tasks, relations))
        case "keep" | "lose":
            return Reading(str, "TASK", _task)
        case "questions":
            return Reading(str, "NAME or FILE", _questions)
        case "test":
            return Reading(Path, "FILE", _file)
        case "relations":
            return Reading(str, "PATH", _relations)
        case "functions" | "methods":
            return Reading(str, NAMES, partial(_names, choices))
        case "seeds":
            return Reading(str, "N or N,N", _seeds)
    return None


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
    names = split_names(value)
    if names and choices:
        check_names(name, names, choices)
    return names and [_one(kinds, choices, name, text) for text in names]


def _one_or_several(kinds: Sequence[Any], choices: Sequence[str], name: str, value: str) -> Any:
    """Read one value, or several with commas between."""
    return (_several if "," in value else _one)(kinds, choices, name, value)


def _names(choices: Sequence[str], name: str, value: str) -> list[str] | str | None:
    """Names with commas between, or 'all'."""
    return "all" if value.strip() == "all" else _several((str,), choices, name, value)


def _tasks(relations: Sequence[str], name: str, value: str) -> list[str] | None:
    tasks = split_names(value)
    for task in tasks or ():
        check_task(task, relations)
    return tasks


def _task(name: str, value: str) -> str:
    check_task(value)
    return value


def _questions(name: str, value: str) -> str | Path:
    """Built-in ones by name, or a file."""
    check_questions(name, value)
    return value if built_in_questions(value) else Path(value)


def _file(name: str, value: Path) -> Path:
    check_exists(name, value, "file")
    return value


def _relations(name: str, value: str) -> list[str] | Path:
    """Built-in ones by name, or a path."""
    names = split_names(value) or []
    if names and set(names) <= set(relation_names()):
        return names
    check_exists(name, value)
    return Path(value)


def _seeds(name: str, value: str) -> int | list[int]:
    """A number of seeds, or which ones."""
    try:
        numbers = [int(number) for number in value.split(",")]
    except ValueError:
        raise BadArgument(f"{name} is {value!r}, expected a number, or several with commas between") from None
    seeds = numbers if "," in value else numbers[0]
    seed_numbers(seeds)
    return seeds


def check_functions(method: Method, options: Mapping[str, Any], preset: str) -> None:
    """The functions of the built-in questions are known; those of other data are checked once it is read."""
    data = {name: value for name, value in method.presets.get(preset, {}).items() if value is not None} | dict(options)
    built_in = "tasks" not in data and built_in_questions(data.get("questions"))
    if built_in and options.get("functions", "all") != "all":
        check_names("--functions", options["functions"], FUNCTIONS)

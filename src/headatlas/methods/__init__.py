"""The registry of methods: each a file or folder of this package, or an entry point of another package in our group."""

import logging
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import TYPE_CHECKING

from headatlas.errors import BadArgument, HeadAtlasError, check_choice, one_line
from headatlas.methods.method import PRESETS, Measure, Method, TokenLists, record_of

if TYPE_CHECKING:
    import xarray as xr

GROUP = "headatlas.methods"
COMMANDS = """
    benchmark compare edit evaluate export figures head heads import import_scores load methods models open plant
    report run tasks view
"""
"""Names that no method may have: commands and public calls."""
TABLE = Measure(
    "score",
    over="table",
    meaning="Scores as they stand in a table; what they mean, its authors say.",
    low="low",
    high="high",
)
"""What a result of no method here is read as: an imported table, or a method of a package that is not installed."""
log = logging.getLogger(__name__)


def method_names() -> list[str]:
    """Names of all methods, without importing any."""
    return [*_built_in(), *(e.name for e in _plug_ins() if e.name not in _built_in())]


def get_method(name: str) -> Method:
    """One method. One of ours is imported alone; for one of another package, all are."""
    if name in _built_in():
        return record_of(getattr(import_module(f"{__name__}.{name}"), name))
    check_choice("method", name, methods())
    return methods()[name]


def importing_methods() -> dict[str, str]:
    """The method whose result published scores are read as, by the kind of scores."""
    return {record.imports: name for name, record in methods().items() if record.imports}


@cache
def methods() -> Mapping[str, Method]:
    """All methods by name, in the order of a run. One that cannot be used is told in a line and left out."""
    known = {name: get_method(name) for name in _built_in()}
    for entry in _plug_ins():
        try:
            if entry.name in known:
                raise BadArgument(f"the name is taken by the method of {known[entry.name].source}")
            if entry.name in COMMANDS.split():
                raise BadArgument("the name is taken by a command")
            known[entry.name] = _loaded(entry)
        except Exception as e:  # noqa: BLE001  # whatever is wrong with it, the others work
            reason = str(e) if isinstance(e, HeadAtlasError) else f"{type(e).__name__}: {one_line(e)}"
            log.warning("method %s of %s is left out: %s", entry.name, _package(entry), reason)
    return MappingProxyType(dict(sorted(known.items(), key=lambda item: item[1].seconds)))


def preset_methods(preset: str) -> list[str]:
    """The methods of a preset of `run`."""
    check_choice("preset", preset, PRESETS)
    return [name for name, method in methods().items() if preset in method.run_presets]


def measures_of(method: str) -> tuple[Measure, ...]:
    """What a method says of heads, the most telling first; of a name that is no method here, what tables say."""
    known = methods().get(method)
    return known.measures if known is not None else (TABLE,) if method else ()


def lists_of(result: "xr.Dataset") -> TokenLists | None:
    """Return the token lists that the method of a result declares, if all are in the result."""
    known = methods().get(str(result.attrs.get("method", "")))
    lists = None if known is None else known.lists
    return lists if lists is not None and set(vars(lists).values()) <= set(result) else None


def shown(method: str, form: str) -> tuple[str, ...]:
    """Return the variables that a method declares to be shown in this form (`shows` in its declaration)."""
    known = methods().get(method)
    return () if known is None else tuple(known.shows.get(form, ()))


def title_of(method: str) -> str:
    """A method's name for people."""
    known = methods().get(method)
    return method if known is None else known.title


@cache
def _built_in() -> tuple[str, ...]:
    return tuple(m.name for m in iter_modules(__path__) if m.name != "method" and not m.name.startswith("_"))


@cache  # every installed package is asked for its entry points
def _plug_ins() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda e: e.name))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _loaded(entry: EntryPoint) -> Method:
    method = record_of(entry.load(), _package(entry))
    if method.name != entry.name:
        raise BadArgument(f"its function is called {method.name!r}, expected the name of the entry point")
    return method

"""The registry of methods: files and folders of this package, and entry points of installed packages."""

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
RESERVED_NAMES = """
    benchmark compare edit evaluate export figures head heads import import_scores load methods models open plant
    report run tasks view
"""
"""Names of commands and public calls, which no method may have."""
TABLE = Measure(
    "score",
    over="table",
    meaning="Scores as an imported table lists them; see its authors for what they mean.",
    low="low",
    high="high",
    repeats=("scores", "repeat"),
)
"""The measure of results without a known method: an imported table, or a method whose package is not installed."""
log = logging.getLogger(__name__)


def method_names() -> list[str]:
    """Return the names of all methods, without importing any."""
    return [*_built_in(), *(e.name for e in _plug_ins() if e.name not in _built_in())]


def get_method(name: str) -> Method:
    """Return a method by its name."""
    # a built-in method is imported alone, which keeps its command quick to start
    if name in _built_in():
        return record_of(getattr(import_module(f"{__name__}.{name}"), name))
    check_choice("method", name, methods())
    return methods()[name]


def importing_methods() -> dict[str, str]:
    """Map each kind of published scores to the method whose result they are read as."""
    return {record.imports: name for name, record in methods().items() if record.imports}


@cache
def methods() -> Mapping[str, Method]:
    """Return all methods by name, the quickest first. An unusable one is left out with a warning."""
    registry = {name: get_method(name) for name in _built_in()}
    for entry in _plug_ins():
        try:
            if entry.name in registry:
                raise BadArgument(f"the name is taken by the method of {registry[entry.name].source}")
            if entry.name in RESERVED_NAMES.split():
                raise BadArgument("the name is taken by a command")
            registry[entry.name] = _load_plug_in(entry)
        except Exception as e:  # noqa: BLE001  # a broken plug-in must not break the other methods
            reason = str(e) if isinstance(e, HeadAtlasError) else f"{type(e).__name__}: {one_line(e)}"
            log.warning("method %s of %s is left out: %s", entry.name, _package(entry), reason)
    return MappingProxyType(dict(sorted(registry.items(), key=lambda item: item[1].seconds)))


def preset_methods(preset: str) -> list[str]:
    """Return the names of the methods in a preset of `run`."""
    check_choice("preset", preset, PRESETS)
    return [name for name, method in methods().items() if preset in method.run_presets]


def measures_of(method: str) -> tuple[Measure, ...]:
    """Return the measures of a method, the most informative first; for an unknown name, that of imported tables."""
    record = methods().get(method)
    if record is not None:
        return record.measures
    return (TABLE,) if method else ()


def lists_of(result: "xr.Dataset") -> TokenLists | None:
    """Return the token lists that the method of a result declares, if all are in the result."""
    record = methods().get(str(result.attrs.get("method", "")))
    lists = None if record is None else record.lists
    return lists if lists is not None and set(vars(lists).values()) <= set(result) else None


def variables_shown_as(form: str, method: str) -> tuple[str, ...]:
    """Return the variables that a method declares to be shown in this form (`shows` in its declaration)."""
    record = methods().get(method)
    return () if record is None else tuple(record.shows.get(form, ()))


def title_of(method: str) -> str:
    """Return the title of a method; of an unknown one, its name."""
    record = methods().get(method)
    return method if record is None else record.title


@cache
def _built_in() -> tuple[str, ...]:
    return tuple(m.name for m in iter_modules(__path__) if m.name != "method" and not m.name.startswith("_"))


# cached, because this reads the metadata of every installed package
@cache
def _plug_ins() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda e: e.name))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def _load_plug_in(entry: EntryPoint) -> Method:
    method = record_of(entry.load(), _package(entry))
    if method.name != entry.name:
        raise BadArgument(f"its function is called {method.name!r}, expected the name of the entry point")
    return method

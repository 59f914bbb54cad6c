"""The declaration of a method: what it measures and, if its work can be split, its parts.

The public call, the command, its place in `run`, figures, cards, the page and the benchmark follow from the
declaration; no code outside its file or folder refers to a method by name (docs/how-to/adding-a-method.md). A method's
file is imported whenever the `headatlas` command starts, so built-in methods import torch and xarray inside functions
only, and refer to functions of other modules with `lazily`.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headatlas.errors import BadArgument

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.models.tokens import TokenExample
    from headatlas.tasks.used import Used

PRESETS = ("quick", "full")
Tables = dict[str, list[dict[str, Any]]]
"""Rows of plain values by the title of their table."""
F = TypeVar("F", bound=Callable[..., Any])


def lazily(address: str) -> Callable[..., Any]:
    """Return a function that imports the one at 'module:name' when it is called."""
    return partial(_call, address)


def _call(address: str, *arguments: Any, **options: Any) -> Any:
    return resolve_name(address)(*arguments, **options)


@dataclass(frozen=True)
class Measure:
    """A variable of a method's result that scores every head, over (`over`, …, layer, head).

    Args:
        name: name of the variable.
        over: dimension of the subjects: function, relation, task, …
        meaning: what a score means, and what it does not; printed in figures and on the page.
        label: label of the colour bar (default: the name).
        units: units of the scores; empty for shares and scores without a unit.
        chance: variable with the highest score that chance explains.
        above: Boolean variable with the heads, or the whole maps, that are above chance or supported.
        at_least: lowest score that counts, if the method has neither `chance` nor `above`.
        low, high: variables with the ends of an interval.
        repeats: (variable with repeats of the map, their dimension: example, seed, …), from which its reliability is
            computed; or a sentence that says why there are none. Compulsory. The variable is over (subject, repeat,
            layer, head), or over (repeat, layer, head) with the coordinate `repeat_of`, the subject of every repeat.
            Repeats over seeds stay in the file.
        examples: (variable or attribute with the number of examples, option that raises it).
        shared: whether the heads of a key-value group share one value, so that maps by group do not sum it.
        aliases: (other name, name) of subjects with several names.
        by_removal: whether a head's score was measured with that head alone removed, which cards mention.
        claim: what the top heads are tested for: that the subject needs them ('needed'), or that they harm it
            ('harmful'); empty if they are not tested.
    """

    name: str
    over: str
    meaning: str = ""
    label: str = ""
    chance: str = ""
    above: str = ""
    at_least: float | None = None
    low: str = ""
    high: str = ""
    repeats: tuple[str, str] | str = ""
    examples: tuple[str, str] | None = None
    shared: bool = False
    aliases: tuple[tuple[str, str], ...] = ()
    by_removal: bool = False
    units: str = ""
    claim: str = ""


@dataclass(frozen=True)
class Variable:
    """A description of a result's variable: its name in tables and figures, its units, and a sentence about it."""

    long_name: str
    units: str
    description: str


@dataclass(frozen=True)
class TokenLists:
    """Names of the variables that list tokens for every head.

    Args:
        tokens: tokens of a head [layer, head, rank].
        value: number that orders them [layer, head, rank]; NaN marks a missing head.
        written: tokens that the head promotes most for each of them [layer, head, rank, output].
        demoted: tokens that the head suppresses most for each of them [layer, head, rank, output].
    """

    tokens: str
    value: str
    written: str
    demoted: str


@dataclass(frozen=True)
class Truth:
    """How the benchmark runs a method on models with planted heads.

    Args:
        kind: what is planted: functions, interference, relations, suppression or copying.
        measure: variable that should rank the planted heads first.
        options: options of the call. The benchmark adds the data under its argument's name (tasks, texts, questions,
            relations, needles or text), and seed or seeds.
        sign: 1 if the highest scores rank first, −1 if the lowest do.
        subject: subject of the measure to use, if it is not named like what is planted.
    """

    kind: str
    measure: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sign: int = 1
    subject: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a method's work that any worker can do independently.

    Args:
        name: name of the part in the folder, in plans and in errors.
        do: a module-level function `do(model, **arguments, done=…, progress=…)` with plain arguments. It reads its
            `inputs` from `done`, and stores its `outputs` there. Its return value is ignored.
        outputs: names of the arrays that it computes (default: the name of the part).
        inputs: names of the arrays of other parts that it reads.
    """

    name: str
    do: Callable[..., object]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.outputs:
            object.__setattr__(self, "outputs", (self.name,))


@dataclass(frozen=True, kw_only=True)
class Work:
    """A method's planned work: its arguments are checked and its data is read, but nothing is computed yet.

    Args:
        summary: a few words for the plan.
        combine: a module-level function `combine(model, **arguments, done=…, progress=…)` that makes the result from
            the arrays of the parts.
        arguments: the arguments of `combine`.
        parts: the parts, in an order in which they can be done.
        data: a hash of the data.
        settings: settings that the parts depend on.
        result_settings: settings that only the result depends on.
        needs_model: whether the model must be loaded; otherwise its parameters are read from disk.
        used: the rows that the map is made from (`headatlas.tasks.used`). None if they are not recorded: its heads
            cannot be tested on other rows then.
        subjects: what each subject of the maps is, for their tests: a task, a relation or questions, by name.
    """

    summary: str
    combine: Callable[..., xr.Dataset]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[Part] = ()
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    result_settings: Mapping[str, Any] = field(default_factory=dict)
    needs_model: bool = True
    used: Used | None = None
    subjects: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """An argument of a method's function.

    Args:
        name: name of the argument.
        kind: its type, without the help.
        default: its default, or `inspect.Parameter.empty` if it is required.
        help: its help text.
    """

    name: str
    kind: Any
    default: Any
    help: str


@dataclass(frozen=True)
class Method:
    """A method, as its file declares it.

    Args:
        name: its name.
        function: the function that it was declared on.
        source: the package that it comes from.

    The other attributes are the arguments of `@method`: title, measures, presets, finds, misses, cites, sentences,
    ask, truths, seconds, exports, variables, lists, shows, needs_model, in_parts, in_run and imports.
    """

    name: str
    function: Callable[..., Any]
    title: str
    measures: tuple[Measure, ...]
    presets: Mapping[str, Mapping[str, Any]]
    finds: str
    misses: str
    cites: tuple[str, ...]
    sentences: Callable[[xr.Dataset], list[str]] | None
    ask: Callable[..., list[TokenExample]] | None
    truths: Mapping[str, Truth]
    seconds: float
    exports: tuple[str, ...] = ()
    variables: Mapping[str, Variable] = field(default_factory=dict)
    lists: TokenLists | None = None
    shows: Mapping[str, Sequence[str]] = field(default_factory=dict)
    needs_model: bool = True
    in_parts: bool = False
    in_run: bool = True
    imports: str = ""
    source: str = "headatlas"

    @property
    def options(self) -> dict[str, Option]:
        """The arguments of its function by name, without the model and `progress`, which the caller supplies."""
        return {o.name: o for o in _options(self.function) if o.name != "progress"}

    @property
    def run_presets(self) -> list[str]:
        """The presets of `run` that include it."""
        return list(self.presets) if self.in_run else []

    def in_preset(self, preset: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the preset, updated with these."""
        if preset not in PRESETS:
            raise BadArgument(f"preset is {preset!r}, expected one of {', '.join(PRESETS)}")
        return dict(self.presets.get(preset, {})) | dict(options)


def method(
    *,
    title: str,
    measures: Sequence[Measure] = (),
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    finds: str = "",
    misses: str = "",
    cites: Sequence[str] = (),
    sentences: Callable[[xr.Dataset], list[str]] | None = None,
    ask: Callable[..., list[TokenExample]] | None = None,
    truths: Mapping[str, Truth] | None = None,
    seconds: float = 60,
    exports: Sequence[str] = (),
    variables: Mapping[str, Variable] | None = None,
    lists: TokenLists | None = None,
    shows: Mapping[str, Sequence[str]] | None = None,
    needs_model: bool = True,
    in_parts: bool = False,
    in_run: bool = True,
    imports: str = "",
) -> Callable[[F], F]:
    """Declare a function f(lm, *, options) to be a method. It returns a Dataset over layers and heads, or `Work`.

    Args:
        title: title of the method in figures, cards and the page.
        measures: its measures of heads, the most informative first.
        variables: the other variables of its result, by name. Those of `headatlas.results.variables.COMMON` need no
            description.
        lists: its token lists, if each head has such lists instead of scores.
        shows: by form, the variables that figures, cards and the page show in a special form.
            'roles': three measures over seeds, whose sizes are shown as mixed colours.
            'categories': bool [category, layer, head], with the coordinate `category_name`, shown as classes of heads.
            'changes': the change of every subject [subject, subject whose heads were removed, measure], and the number
            of removed heads, shown as a matrix.
        presets: by preset, the options that differ from the defaults. `run` includes the method in these presets.
        finds: what its maps find, as "which heads …".
        misses: what its maps do not find, in the same form.
        cites: publications to cite.
        sentences: `sentences(result)` returns sentences to print below its tables.
        ask: `ask(lm, subject)` returns the questions that heads of real models are tested on, by removing and patching
            them.
        truths: by their names in the benchmark, the models with planted heads that it can be tested on.
        seconds: typical time with the quick preset, on the default model and two cores. A run starts with the quickest.
        exports: formats of other tools that suit its maps, the best first; `headatlas export` writes them from its map
            unless another is chosen.
        imports: kind of published scores that `headatlas import --as` reads as its result.
        needs_model: whether its function takes an LM; otherwise it takes `Parameters`, and the model is loaded only if
            its `Work` needs it.
        in_parts: whether it returns `Work`, whose parts are done one by one.
        in_run: whether the presets of `run` include it; otherwise `run` must be given its name.
    """

    def declare(function: F) -> F:
        vars(function)["method"] = Method(
            name=function.__name__,
            function=function,
            title=title,
            measures=tuple(measures),
            presets=presets or {},
            finds=finds,
            misses=misses,
            cites=tuple(cites),
            sentences=sentences,
            ask=ask,
            truths=truths or {},
            seconds=seconds,
            exports=tuple(exports),
            imports=imports,
            variables=variables or {},
            lists=lists,
            shows=shows or {},
            needs_model=needs_model,
            in_parts=in_parts,
            in_run=in_run,
        )
        return function

    return declare


def record_of(function: Any, source: str = "headatlas") -> Method:
    """Return the declaration that `@method` attached to a function."""
    record = getattr(function, "method", None)
    if not isinstance(record, Method):
        raise BadArgument(f"{function!r} is not declared with @headatlas.method")
    return replace(record, source=source)


class _Unknown:
    """Stand-in for a type that is imported for type checkers only; supports every operation of annotations."""

    def __getattr__(self, name: str) -> _Unknown:
        return self

    def __getitem__(self, item: Any) -> _Unknown:
        return self

    def __or__(self, other: Any) -> _Unknown:
        return self

    __ror__ = __or__

    def __call__(self) -> None: ...


class _Names(dict[str, Any]):
    """The names of a module; a name that is imported for type checkers only is `_Unknown`."""

    def __missing__(self, key: str) -> Any:
        return getattr(builtins, key, _Unknown())


def _options(function: Callable[..., Any]) -> list[Option]:
    # without the first, which is the model
    parameters = list(inspect.signature(function).parameters.values())[1:]
    annotated = types.SimpleNamespace(
        __annotations__={p.name: p.annotation for p in parameters if p.annotation is not inspect.Parameter.empty}
    )
    hints = get_type_hints(annotated, {}, _Names(function.__globals__), include_extras=True)
    options = []
    for parameter in parameters:
        kind = hints.get(parameter.name, Any)
        text = ""
        if get_origin(kind) is Annotated:
            kind, text = get_args(kind)[:2]
        options.append(Option(parameter.name, kind, parameter.default, str(text)))
    return options


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; of any other type, the type alone."""
    return get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)

"""What a method declares: a record that says what it measures, and, where its work can be cut, its parts.

The public call, the command, its place in `run`, figures, cards, the page and the benchmark follow from the record;
nothing outside its own file or folder knows a method by name (docs/how-to/adding-a-method.md). A method's file is read
whenever the `headatlas` command starts, so our own import torch and xarray inside functions only, and name functions of
other modules with `lazily`.
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
    """The function at 'module:name', which is imported when it is first called."""
    return partial(_call, address)


def _call(address: str, *arguments: Any, **options: Any) -> Any:
    return resolve_name(address)(*arguments, **options)


@dataclass(frozen=True)
class Measure:
    """A variable of a method's result over (`over`, …, layer, head): what it says about every head.

    Args:
        name: the variable.
        over: the dimension that names what it is about: function, relation, task, …
        meaning: what a number means, and what it does not; figures and the page print it.
        label: what is written at the colours, if not the name.
        units: of its values; empty for a share or a score.
        chance: the variable with the highest score that chance explains.
        above: the variable that says which heads, or which maps as a whole, are above chance or supported.
        unproven: what the others are called.
        at_least: the score from which a head counts as found, where neither of these says it.
        low, high: the variables with an interval.
        repeats: a variable, and the dimension over which it shows how stable the map is.
        examples: the variable or attribute with the number of examples, and the option that raises it.
        shared: heads of a key-value group share one value, which is the group's too, instead of their sum.
        aliases: other names of subjects, each with the subject's own.
        by_removal: whether a score was measured with that head alone removed; cards list it as such.
    """

    name: str
    over: str
    meaning: str = ""
    label: str = ""
    chance: str = ""
    above: str = ""
    unproven: str = "at chance"
    at_least: float | None = None
    low: str = ""
    high: str = ""
    repeats: tuple[str, str] | None = None
    examples: tuple[str, str] | None = None
    shared: bool = False
    aliases: tuple[tuple[str, str], ...] = ()
    by_removal: bool = False
    units: str = ""


@dataclass(frozen=True)
class Variable:
    """What a variable of a result is: its name in tables and figures, its units, and a sentence about it."""

    long_name: str
    units: str
    description: str


@dataclass(frozen=True)
class TokenLists:
    """Lists of tokens that a method gives for every head: the names of variables of its result.

    Args:
        tokens: the tokens of a head, over (layer, head, rank).
        value: the number that orders them, over the same dimensions; NaN marks a missing head.
        written: the tokens that the head writes most for each, over (layer, head, rank, output).
        demoted: the tokens that the head pushes down most for each, over the same dimensions.
    """

    tokens: str
    value: str
    written: str
    demoted: str


@dataclass(frozen=True)
class Truth:
    """How the benchmark asks a method about models whose heads are known.

    kind: which truth it answers: functions, interference, relations, suppression or copying. measure: the variable that
    is to rank the planted heads first; sign −1 if the lowest come first. options: of the call; the data is filled in by
    its argument's name (tasks, texts, questions, relations, needles or text), and seed or seeds. subject: of the
    measure, the one that is meant, where it is not named as what is planted.
    """

    kind: str
    measure: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sign: int = 1
    subject: str = ""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a method's work that any worker can do by itself.

    Args:
        name: what it is called in the folder, in plans and in errors.
        do: a module-level function `do(model, **arguments, done=…, progress=…)` with plain arguments. It finds the
            arrays in `inputs` in `done`, and puts those in `outputs` there. What it returns is not used.
        outputs: names of the arrays it computes; without any, its own name.
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
    """What a method would do, as data: its arguments are checked and its data is read, but nothing is computed yet.

    Args:
        summary: what will be done, in a few words, for the plan.
        combine: a module-level function `combine(model, **arguments, done=…, progress=…)` that makes the result from
            the arrays of the parts.
        data: a hash of the data. settings: what the parts depend on. result_settings: what only the result depends on.
        needs_model: whether the model must be loaded; otherwise its parameters are read from disk.
        used: the rows that the map is made from (`headatlas.tasks.used`); None: not recorded, so that its heads cannot
            be tested on other rows.
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


@dataclass(frozen=True)
class Option:
    """An argument of a method's function."""

    name: str
    kind: Any  # its type, without the help
    default: Any  # inspect.Parameter.empty where it must be given
    help: str


@dataclass(frozen=True)
class Method:
    """A method, as its file declares it.

    name, function, source: its name, the function it was declared on, and the package it comes from. The rest are the
    arguments of `@method`, described there: title, measures, presets, tells, does_not_tell, cites, sentences,
    ask, truths, seconds, exports, imports, variables, lists, shows, needs_model, in_parts and in_run.
    """

    name: str
    function: Callable[..., Any]
    title: str
    measures: tuple[Measure, ...]
    presets: Mapping[str, Mapping[str, Any]]
    tells: str
    does_not_tell: str
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
    source: str = "headatlas"  # the package it comes from

    @property
    def options(self) -> dict[str, Option]:
        """The arguments of its function but the model, by name; without `progress`, which whoever runs it gives."""
        return {o.name: o for o in _options(self.function) if o.name != "progress"}

    @property
    def run_presets(self) -> list[str]:
        """The presets of `run` that include it."""
        return list(self.presets) if self.in_run else []

    def in_preset(self, preset: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """These options, and those of the preset where they say nothing."""
        if preset not in PRESETS:
            raise BadArgument(f"preset is {preset!r}, expected one of {', '.join(PRESETS)}")
        return dict(self.presets.get(preset, {})) | dict(options)


def method(
    *,
    title: str,
    measures: Sequence[Measure] = (),
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    tells: str = "",
    does_not_tell: str = "",
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
        title: its name for people.
        measures: what it says about heads, the most telling first.
        variables: the other variables of its result, by name; those of `headatlas.results.variables.COMMON` are known.
        lists: its lists of tokens, if each head has such lists instead of scores.
        shows: variables that figures, cards and the page show in a form of their own, by that form.
            'roles': three measures over seeds, shares of one whole: as mixed colours.
            'categories': bool [category, layer, head], with the coordinate `category_name`: as classes of heads.
            'changes': the change of every subject [subject, subject whose heads were removed, measure], and the number
            of removed heads: as a matrix.
        presets: by preset, the options in which it differs from the signature. `run` includes the method in these.
        tells, does_not_tell, cites: what a reader of its maps must know.
        sentences: `sentences(result)`: what a reader of its tables must know.
        ask: `ask(lm, subject)`: questions that heads are removed on, and moved between, where no truth is known.
        truths: by their names in the benchmark, the truths that it answers.
        seconds: what it usually takes: with the quick preset, on the default model and two cores. Methods of a run
            are done from the quickest.
        exports: formats of other tools that its maps suit, the best first; `headatlas export` writes them from its map
            unless another is chosen.
        imports: the kind of published scores that `headatlas import --as` reads as its result.
        needs_model: whether it takes an LM; otherwise it takes `Parameters`, and no model is loaded unless its `Work`
            needs one.
        in_parts: it returns `Work`, whose parts are done one by one.
        in_run: whether the presets of `run` include it; otherwise it must be named there.
    """

    def declare(function: F) -> F:
        vars(function)["method"] = Method(
            name=function.__name__,
            function=function,
            title=title,
            measures=tuple(measures),
            presets=presets or {},
            tells=tells,
            does_not_tell=does_not_tell,
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
    """The record that `@method` left."""
    record = getattr(function, "method", None)
    if not isinstance(record, Method):
        raise BadArgument(f"{function!r} is not declared with @headatlas.method")
    return replace(record, source=source)


class _Unknown:
    """A type that is imported for type checkers only, whatever is done with it."""

    def __getattr__(self, name: str) -> _Unknown:
        return self

    def __getitem__(self, item: Any) -> _Unknown:
        return self

    def __or__(self, other: Any) -> _Unknown:
        return self

    __ror__ = __or__

    def __call__(self) -> None: ...


class _Names(dict[str, Any]):
    """A module's names, and what type checkers alone know."""

    def __missing__(self, key: str) -> Any:
        return getattr(builtins, key, _Unknown())


def _options(function: Callable[..., Any]) -> list[Option]:
    parameters = list(inspect.signature(function).parameters.values())[1:]
    annotated = types.SimpleNamespace(
        __annotations__={p.name: p.annotation for p in parameters if p.annotation is not inspect.Parameter.empty}
    )
    hints = get_type_hints(annotated, {}, _Names(function.__globals__), include_extras=True)
    options = []
    for parameter in parameters:
        kind, text = hints.get(parameter.name, Any), ""
        if get_origin(kind) is Annotated:
            kind, text = get_args(kind)[0], str(get_args(kind)[1])
        options.append(Option(parameter.name, kind, parameter.default, text))
    return options


def kinds_of(kind: Any) -> tuple[Any, ...]:
    """What a type is a union of; itself, if it is none."""
    return get_args(kind) if get_origin(kind) in (types.UnionType, Union) else (kind,)

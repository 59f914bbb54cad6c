"""The public call of every method: `ha.gate(model, …)`, made from its record."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, brief, check_choice, did_you_mean
from headatlas.methods.method import PRESETS, Method, kinds_of
from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.runs.run import compute
from headatlas.runs.where import Where


def public_call(method: Method) -> Callable[..., xr.Dataset]:
    """A method as users call it: its options, and those that all methods have."""
    own = list(inspect.signature(method.function).parameters.values())[1:]
    first = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=DEFAULT_MODEL)
    common = {name: p for name, p in _common_options().items() if name not in {p.name for p in own}}
    options = [p.replace(annotation=method.options[p.name].kind) for p in own if p.name != "progress"]
    signature = inspect.Signature(
        [first, *options, *common.values(), *(p for p in own if p.name == "progress")], return_annotation=xr.Dataset
    )

    @functools.wraps(method.function)
    def call(*args: Any, **kwargs: Any) -> xr.Dataset:
        _check_names(method.name, signature, args, kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        for name, option in method.options.items():
            if name in arguments:
                check_type(name, arguments[name], option.kind)
        rest = {n: v for n, v in arguments.items() if n in common or n in ("model", "progress")}
        if "preset" in arguments:
            check_type("preset", arguments["preset"], Literal[PRESETS])
        chosen = {n: list(v) if isinstance(v, Iterator) else v for n, v in arguments.items() if n in method.options}
        return compute(method, options=chosen, **rest)

    vars(call).update(__signature__=signature, method=method)
    return call


def _check_names(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that every argument is one of the call's. As Python does for any call, but with the method's name."""
    parameters = signature.parameters
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) > len(positional):
        extra = brief(args[len(positional)])
        raise TypeError(f"{name}() takes {', '.join(positional)} by position: give {extra} by its argument's name")
    for unknown in kwargs.keys() - parameters.keys():
        raise TypeError(f"{name}() has no argument {unknown!r}.{did_you_mean(unknown, parameters)}")


def _common_options() -> dict[str, inspect.Parameter]:
    """The options of every method: what `compute` takes, and where it is done."""
    taken = inspect.signature(compute).parameters
    where = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in fields(Where)
    ]
    return {p.name: p for p in (taken["preset"], taken["out"], *where, taken["progress"])}


TYPES: Mapping[Any, tuple[tuple[type, ...], str]] = {  # what may be given for a type, and what it is called
    bool: ((bool, np.bool_), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str,), "a name"),
    Path: ((Path,), "a path"),
    type(None): ((type(None),), "None"),
}


def check_type(argument: str, value: Any, kind: Any) -> None:
    """That a value is of a plain type it is annotated with; other annotations are checked where the value is used."""
    kinds = kinds_of(kind)
    if any(k not in TYPES and get_origin(k) is not Literal for k in kinds):
        return
    named = [choice for k in kinds if get_origin(k) is Literal for choice in get_args(k)]
    plain = [TYPES[k] for k in kinds if k in TYPES]
    flag = isinstance(value, bool | np.bool_) and bool not in kinds  # which would pass for a number
    right = isinstance(value, tuple(t for types, _ in plain for t in types))
    if flag or not (right or (isinstance(value, str) and value in named)):
        if named and not plain:
            check_choice(argument, value, named)
        expected = " or ".join([*(words for _, words in plain), *map(repr, named)])
        raise BadArgument(f"{argument} is {brief(value)}, expected {expected}")

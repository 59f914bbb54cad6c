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
    """Return the function with which users call a method: with its options, and those that all methods share."""
    parameters = list(inspect.signature(method.function).parameters.values())[1:]
    model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=DEFAULT_MODEL)
    options = [p.replace(annotation=method.options[p.name].kind) for p in parameters if p.name != "progress"]
    common = {name: p for name, p in _common_options().items() if name not in {p.name for p in parameters}}
    progress = [p for p in parameters if p.name == "progress"]
    signature = inspect.Signature([model, *options, *common.values(), *progress], return_annotation=xr.Dataset)

    @functools.wraps(method.function)
    def call(*args: Any, **kwargs: Any) -> xr.Dataset:
        _check_names(method.name, signature, args, kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        for name, option in method.options.items():
            if name in arguments:
                check_type(name, arguments[name], option.kind)
        common_arguments = {n: v for n, v in arguments.items() if n in common or n in ("model", "progress")}
        if "preset" in arguments:
            check_type("preset", arguments["preset"], Literal[PRESETS])
        # an iterator can be read only once, but options are read when planning, hashing and working
        values = {n: list(v) if isinstance(v, Iterator) else v for n, v in arguments.items() if n in method.options}
        return compute(method, options=values, **common_arguments)

    vars(call).update(__signature__=signature, method=method)
    return call


def _check_names(name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check that the call takes every argument. Python would check this too, but would call the function `call`."""
    parameters = signature.parameters
    positional = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(args) > len(positional):
        extra = brief(args[len(positional)])
        raise TypeError(f"{name}() takes {', '.join(positional)} by position: give {extra} by its argument's name")
    for unknown in kwargs.keys() - parameters.keys():
        raise TypeError(f"{name}() has no argument {unknown!r}.{did_you_mean(unknown, parameters)}")


def _common_options() -> dict[str, inspect.Parameter]:
    """Return the options that all methods share: of `compute`, and where the work runs."""
    parameters = inspect.signature(compute).parameters
    where = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
        for f in fields(Where)
    ]
    return {p.name: p for p in (parameters["preset"], parameters["out"], *where, parameters["progress"])}


# annotation: (accepted types, name in errors)
TYPES: Mapping[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool, np.bool_), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str,), "a name"),
    Path: ((Path,), "a path"),
    type(None): ((type(None),), "None"),
}


def check_type(argument: str, value: Any, kind: Any) -> None:
    """Check that a value fits its annotation, if that consists of plain types and choices.

    Values with other annotations are checked where they are used.
    """
    kinds = kinds_of(kind)
    if any(k not in TYPES and get_origin(k) is not Literal for k in kinds):
        return
    choices = [choice for k in kinds if get_origin(k) is Literal for choice in get_args(k)]
    plain_types = [TYPES[k] for k in kinds if k in TYPES]
    has_type = isinstance(value, tuple(t for types, _ in plain_types for t in types))
    # True is an int in Python, but no user means the number 1 by it
    is_misplaced_flag = isinstance(value, bool | np.bool_) and bool not in kinds
    is_choice = isinstance(value, str) and value in choices
    if is_misplaced_flag or not (has_type or is_choice):
        if choices and not plain_types:
            check_choice(argument, value, choices)
        expected = " or ".join([*(name for _, name in plain_types), *map(repr, choices)])
        raise BadArgument(f"{argument} is {brief(value)}, expected {expected}")

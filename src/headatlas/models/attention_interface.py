"""A model's attention called through a function of ours, by transformers' attention interface, while a block runs.

What is changed for it is the name of the attention function in the model's configurations. It is changed under the
model's lock and restored. transformers itself gets new names for functions, and keeps every function it had.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import unwrap
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headatlas.models.lm import LM

MASKED = ("sdpa", "eager")  # attention functions that take a mask of any shape
PREFIX = "headatlas_"

Attend = Callable[..., tuple[Tensor, Any]]
"""Called as attend(kernel, module, query, key, value, mask, **options); kernel takes the arguments after it."""

_in_force: WeakKeyDictionary[nn.Module, Attend] = WeakKeyDictionary()


@contextmanager
def attention_through(lm: LM, functions: Mapping[nn.Module, Attend]) -> Iterator[None]:
    """Call these functions in place of the attention kernels of these modules while the block runs.

    The kernel is the model's own if that takes any mask, else PyTorch's. Other modules' attention stays as it is.
    """
    own = lm.model.config.get_text_config()._attn_implementation.removeprefix(PREFIX)
    own = own if own in MASKED else "sdpa" if lm.model._supports_sdpa else "eager"
    name = PREFIX + own
    AttentionInterface.register(name, partial(_attention, own))
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[own])
    with attention_implementation_kept(lm):
        before = {module: _in_force.get(module) for module in functions}
        try:
            _in_force.update(functions)
            for config in _configs(lm):
                config._attn_implementation = name
            yield
        finally:
            for module, function in before.items():
                if function is None:
                    _in_force.pop(module, None)
                else:
                    _in_force[module] = function


@contextmanager
def attention_implementation_kept(lm: LM) -> Iterator[None]:
    """Restore the name of the attention function in all of the model's configurations when the block ends."""
    with lm.state.lock:
        every = [m.config for m in lm.model.modules() if hasattr(m, "config")]
        nested = [getattr(c, key, None) for c in every for key in getattr(c, "sub_configs", ())]
        configs = [c for c in (*every, *nested) if hasattr(c, "_attn_implementation_internal")]
        before = {id(c): (c, c._attn_implementation_internal) for c in configs}
        try:
            yield
        finally:
            for config, name in before.values():
                config._attn_implementation_internal = name


def plain_attention(module: nn.Module) -> Callable[..., Any] | None:
    """What a model's own file computes attention with, where no kernel is asked for; None, if it does it otherwise."""
    function: Callable[..., Any] | None = unwrap(type(module).forward).__globals__.get("eager_attention_forward")
    return function


def _attention(own: str, module: nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Any]:
    """transformers' signature: query [row, head, token, d], mask [row, 1, token, token] → [row, token, head, d]."""
    kernel = _own_function(own, module)
    attend = _in_force.get(module)
    return kernel(module, *args, **options) if attend is None else attend(kernel, module, *args, **options)


def _own_function(own: str, module: nn.Module) -> Callable[..., tuple[Tensor, Any]]:
    """The model's own attention function: its modeling file has an eager one, and may have others."""
    file = sys.modules[type(module).__module__]
    functions = getattr(file, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
    return functions.get_interface(own, getattr(file, "eager_attention_forward", None))


def attention_modules(lm: LM) -> dict[int, nn.Module]:
    """The attention module of every layer with heads."""
    return {layer: lm.model.get_submodule(site.attention) for layer, site in lm.anatomy.attentions}


def _configs(lm: LM) -> list[Any]:
    """The configurations that masks and attention modules of the decoder read; mostly one object."""
    modules = [lm.model.get_submodule(lm.anatomy.decoder), *attention_modules(lm).values()]
    configs = [lm.model.config.get_text_config(), *(m.config for m in modules if hasattr(m, "config"))]
    return list({id(config): config for config in configs}.values())

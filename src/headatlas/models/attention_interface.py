"""Replace a model's attention functions through transformers' attention interface, while a block runs.

For this, the name of the attention function in the model's configurations is changed, under the model's lock, and
restored. New names are registered in transformers; the functions that it had are not changed.
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

# The function that replaces the attention of each module. Kept here and not on the module, which is the user's.
_replacements: WeakKeyDictionary[nn.Module, Attend] = WeakKeyDictionary()


@contextmanager
def attention_through(lm: LM, functions: Mapping[nn.Module, Attend]) -> Iterator[None]:
    """Call these functions in place of the attention kernels of these modules while the block runs.

    The kernel is the model's own if that takes any mask, else PyTorch's. Other modules' attention stays as it is.
    """
    # without our prefix: the model's attention may be replaced already
    kernel_name = lm.model.config.get_text_config()._attn_implementation.removeprefix(PREFIX)
    if kernel_name not in MASKED:
        kernel_name = "sdpa" if lm.model._supports_sdpa else "eager"
    name = PREFIX + kernel_name
    AttentionInterface.register(name, partial(_attention, kernel_name))
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[kernel_name])
    with restore_attention_implementation(lm):
        before = {module: _replacements.get(module) for module in functions}
        try:
            _replacements.update(functions)
            for config in _configs(lm):
                config._attn_implementation = name
            yield
        finally:
            for module, function in before.items():
                if function is None:
                    _replacements.pop(module, None)
                else:
                    _replacements[module] = function


@contextmanager
def restore_attention_implementation(lm: LM) -> Iterator[None]:
    """Restore the name of the attention function in all of the model's configurations when the block ends."""
    with lm.state.lock:
        outer = [m.config for m in lm.model.modules() if hasattr(m, "config")]
        nested = [getattr(c, key, None) for c in outer for key in getattr(c, "sub_configs", ())]
        configs = [c for c in (*outer, *nested) if hasattr(c, "_attn_implementation_internal")]
        # by id, because configurations cannot be hashed and may be shared
        before = {id(c): (c, c._attn_implementation_internal) for c in configs}
        try:
            yield
        finally:
            for config, name in before.values():
                config._attn_implementation_internal = name


def plain_attention(module: nn.Module) -> Callable[..., Any] | None:
    """Return the plain attention function in the file that defines a module's class; None if it has none."""
    function: Callable[..., Any] | None = unwrap(type(module).forward).__globals__.get("eager_attention_forward")
    return function


def _attention(kernel_name: str, module: nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Any]:
    """Run a module's replacement, or else its kernel.

    The signature is transformers': query [row, head, token, d], mask [row, 1, token, token] → [row, token, head, d].
    """
    kernel = _kernel(kernel_name, module)
    attend = _replacements.get(module)
    return kernel(module, *args, **options) if attend is None else attend(kernel, module, *args, **options)


def _kernel(name: str, module: nn.Module) -> Callable[..., tuple[Tensor, Any]]:
    """Return the model's attention function of this name: its modeling file has an eager one, and may have others."""
    file = sys.modules[type(module).__module__]
    functions = getattr(file, "ALL_ATTENTION_FUNCTIONS", ALL_ATTENTION_FUNCTIONS)
    return functions.get_interface(name, getattr(file, "eager_attention_forward", None))


def attention_modules(lm: LM) -> dict[int, nn.Module]:
    """Return the attention module of every layer with heads."""
    return {layer: lm.model.get_submodule(site.attention) for layer, site in lm.anatomy.attentions}


def _configs(lm: LM) -> list[Any]:
    """Return the configurations that the decoder's masks and attention modules read; mostly one object."""
    modules = [lm.model.get_submodule(lm.anatomy.decoder), *attention_modules(lm).values()]
    configs = [lm.model.config.get_text_config(), *(m.config for m in modules if hasattr(m, "config"))]
    return list({id(config): config for config in configs}.values())

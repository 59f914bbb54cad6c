"""Drop key-value groups from a checkpoint: their queries, keys, values and part of the output projection.

A configuration has a single head count for all layers, so every layer must lose the same number of groups. The smaller
model is built without weights and compared tensor by tensor to find what must be cut. Models in which this would change
the remaining heads, such as by a norm over all heads, are refused.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headatlas.edits.change import HeadEdit
from headatlas.edits.fold import Rewrite, Source
from headatlas.errors import CannotDo, HeadAtlasError, UnsupportedModel, one_line
from headatlas.models.families import Site, find_anatomy
from headatlas.models.memory import skeleton

ALTERNATIVE = "; without prune, the heads' weights are set to zero instead"


@dataclass(frozen=True)
class Saved:
    """What pruning saved.

    groups: groups dropped from each layer. n_heads, n_kv_heads: sizes of each layer after pruning.
    parameters, cache: parameters, and bytes of keys and values per token, that were saved; all_…: those before.
    """

    groups: int
    n_heads: int
    n_kv_heads: int
    parameters: int
    all_parameters: int
    cache: int
    all_cache: int


def prune(source: Source, edit: HeadEdit) -> tuple[Source, Saved]:
    """Drop removed groups from the source, the same number from every layer. Other removed heads stay, as zeros.

    Call it after `fold`, on its result.
    """
    dropped = groups_to_drop(source, edit)
    n = len(next(iter(dropped.values())))
    config, bare = _smaller(source, n)
    new = {name: tuple(tensor.shape) for name, tensor in bare.state_dict().items()}
    old = {name: tuple(tensor.shape) for name, tensor in source.bare.state_dict().items()}
    if set(new) != set(old):
        raise _unsupported(source, f"{min(set(new) ^ set(old))} exists for some numbers of heads only")
    rewrites = dict(source.rewrites)
    for name in (name for name, shape in old.items() if new[name] != shape):
        layer, site = next(((i, s) for i, s in source.sites() if name.startswith(f"{s.attention}.")), (-1, None))
        if site is None:
            raise _unsupported(source, f"{name} depends on the number of heads")
        axis, indices = _remaining(source, name, site, dropped[layer], old[name], new[name])
        stored = source.stored(name)
        before = rewrites.get(stored)
        dtype = source.dtype(stored) if before is None else before.dtype
        make = partial(source.checkpoint.read, stored) if before is None else before.make
        rewrites[stored] = Rewrite(new[name], dtype, partial(_cut, make, axis, torch.tensor(indices)))
    anatomy = find_anatomy(bare)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (source.bare, bare)]
    outs = [source.stored(f"{site.out}.weight") for _, site in source.sites()]
    # Keys and values of one token, in all layers.
    cache_per_group = 2 * anatomy.d_head * source.precision(outs[0]).itemsize * len(outs)
    saved = Saved(
        groups=n,
        n_heads=anatomy.n_heads,
        n_kv_heads=anatomy.n_kv_heads,
        parameters=sizes[0] - sizes[1],
        all_parameters=sizes[0],
        cache=cache_per_group * n,
        all_cache=cache_per_group * source.anatomy.n_kv_heads,
    )
    smaller = replace(source, config=config, bare=bare, anatomy=anatomy, rewrites=rewrites, reconfigured=True)
    return smaller, saved


def groups_to_drop(source: Source, edit: HeadEdit) -> dict[int, list[int]]:
    """Select the groups to drop in each layer: the first of those whose heads are all removed, equally many."""
    anatomy = source.anatomy
    if not anatomy.tested:
        reason = "other tensors may depend on the number of heads"
        raise _unsupported(source, f"model_type {anatomy.family!r} is not a tested family, so {reason}")
    if any(site.layout == "latent" for _, site in source.sites()):
        raise _unsupported(source, "its heads have no separate keys and values, but share a latent vector")
    all_removed = (edit.gate == 0).unflatten(1, (anatomy.n_kv_heads, -1)).all(2)  # [layer, group]
    removed_groups = {layer: all_removed[layer].nonzero().flatten().tolist() for layer, _ in source.sites()}
    fewest = min(removed_groups, key=lambda layer: len(removed_groups[layer]))
    n = len(removed_groups[fewest])
    if n == 0:
        size = _group_size(source)
        meaning = f" ({size} heads that share keys and values)" if size > 1 else ""
        raise _unsupported(source, f"every layer must lose a whole group{meaning}, but layer {fewest} loses none")
    if n == anatomy.n_kv_heads:
        raise _unsupported(source, "every layer would lose all of its heads")
    return {layer: groups[:n] for layer, groups in removed_groups.items()}


def _smaller(source: Source, n: int) -> tuple[PretrainedConfig, PreTrainedModel]:
    """Return a configuration with n groups fewer, and its model without weights."""
    anatomy = source.anatomy
    try:
        config = _with_groups(source, anatomy.n_kv_heads - n)
        bare = skeleton(config)
        smaller = find_anatomy(bare)
    except HeadAtlasError as e:
        raise _unsupported(source, str(e)) from e
    except Exception as e:  # configurations raise errors of any type
        others = ", ".join(str(m) for m in range(1, anatomy.n_kv_heads) if _is_valid(source, anatomy.n_kv_heads - m))
        alternative = f"; {others} groups of every layer could be dropped" if others else ""
        raise _unsupported(source, f"its configuration does not allow it ({one_line(e)}){alternative}") from e
    groups = anatomy.n_kv_heads - n
    if (smaller.n_heads, smaller.n_kv_heads, smaller.d_head) != (groups * _group_size(source), groups, anatomy.d_head):
        raise _unsupported(source, "its configuration has no size of heads, only their number")
    return config, bare


def _group_size(source: Source) -> int:
    """Return the number of heads per key-value group."""
    return source.anatomy.n_heads // source.anatomy.n_kv_heads


def _with_groups(source: Source, groups: int) -> PretrainedConfig:
    """Return the configuration with another number of groups of the same size; raises if it is invalid."""
    config = copy.deepcopy(source.config)
    text = config.get_text_config()
    text.num_attention_heads = groups * _group_size(source)
    if getattr(text, "num_key_value_heads", None) is not None:
        text.num_key_value_heads = groups
    text.head_dim = source.anatomy.d_head
    # Configurations validate themselves when they are read.
    type(config).from_dict(config.to_dict())
    return config


def _is_valid(source: Source, groups: int) -> bool:
    try:
        _with_groups(source, groups)
    except Exception:  # noqa: BLE001  # of any type, as in `_smaller`
        return False
    return True


def _remaining(
    source: Source, name: str, site: Site, dropped: list[int], old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, list[int]]:
    """Return the axis on which a tensor becomes smaller, and the indices that remain."""
    axes = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    path = name.rpartition(".")[0]
    module = source.bare.get_submodule(path)
    is_linear = isinstance(module, nn.Linear | Conv1D)
    if len(axes) != 1 or not (is_linear or len(old) > 1 or old[0] == site.n_heads):
        raise _unsupported(source, f"{name} joins all heads of a layer")
    size = old[axes[0]]
    if path == site.value and site.layout == "blocks":
        # One matrix holds queries, keys and values, one after the other.
        queries = site.n_heads * site.d_head
        parts = [(0, queries), (queries, (size - queries) // 2), ((size + queries) // 2, (size - queries) // 2)]
    else:
        parts = [(0, size)]
    indices = []
    for start, length in parts:
        block, rest = divmod(length, site.n_kv_heads)
        if rest:
            raise _unsupported(source, f"{name} cannot be cut into {site.n_kv_heads} groups")
        groups = (g for g in range(site.n_kv_heads) if g not in dropped)
        indices += [start + g * block + i for g in groups for i in range(block)]
    if len(indices) != new[axes[0]]:
        raise _unsupported(source, f"{name} would be {new[axes[0]]} wide, not {len(indices)}")
    return axes[0], indices


def _cut(make: Callable[[], Tensor], axis: int, indices: Tensor) -> Tensor:
    return make().index_select(axis, indices)


def _unsupported(source: Source, why: str) -> CannotDo:
    return UnsupportedModel(f"cannot prune {type(source.bare).__name__}: {why}{ALTERNATIVE}")

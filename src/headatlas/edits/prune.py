"""Dropping key-value groups from a checkpoint: their queries, keys, values and part of the output projection.

A configuration says how many heads all layers have, so every layer must lose equally many groups. Whether it can say so
is found by building the smaller model without weights and comparing it, tensor by tensor. What would change the heads
that stay, such as a norm over all of them, is refused.
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

INSTEAD = "; without prune, the heads' weights are set to zero instead"


@dataclass(frozen=True)
class Saved:
    """What pruning saved. cache: bytes of keys and values for each token of a text."""

    groups: int  # of each layer
    n_heads: int  # that each layer has now
    n_kv_heads: int
    parameters: int
    all_parameters: int
    cache: int
    all_cache: int


def prune(source: Source, edit: HeadEdit) -> tuple[Source, Saved]:
    """The source without as many of the removed groups as every layer has. The other removed heads are left as they
    are: zero. Call it last."""
    dropped = groups_to_drop(source, edit)
    n = len(next(iter(dropped.values())))
    config, bare = _smaller(source, n)
    new = {name: tuple(tensor.shape) for name, tensor in bare.state_dict().items()}
    old = {name: tuple(tensor.shape) for name, tensor in source.bare.state_dict().items()}
    if set(new) != set(old):
        raise _refused(source, f"{min(set(new) ^ set(old))} is there for some numbers of heads only")
    rewrites = dict(source.rewrites)
    for name in (name for name, shape in old.items() if new[name] != shape):
        layer, site = next(((i, s) for i, s in source.sites() if name.startswith(f"{s.attention}.")), (-1, None))
        if site is None:
            raise _refused(source, f"{name} depends on the number of heads")
        axis, kept = _kept(source, name, site, dropped[layer], old[name], new[name])
        stored = source.stored(name)
        before = rewrites.get(stored)
        dtype = source.dtype(stored) if before is None else before.dtype
        make = partial(source.checkpoint.read, stored) if before is None else before.make
        rewrites[stored] = Rewrite(new[name], dtype, partial(_cut, make, axis, torch.tensor(kept)))
    anatomy = find_anatomy(bare)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (source.bare, bare)]
    outs = [source.stored(f"{site.out}.weight") for _, site in source.sites()]
    group = 2 * anatomy.d_head * source.precision(outs[0]).itemsize * len(outs)
    saved = Saved(
        n,
        anatomy.n_heads,
        anatomy.n_kv_heads,
        sizes[0] - sizes[1],
        sizes[0],
        group * n,
        group * source.anatomy.n_kv_heads,
    )
    smaller = replace(source, config=config, bare=bare, anatomy=anatomy, rewrites=rewrites, reconfigured=True)
    return smaller, saved


def groups_to_drop(source: Source, edit: HeadEdit) -> dict[int, list[int]]:
    """The groups that go, by layer: of those whose heads are all removed, the first, equally many in every layer."""
    anatomy = source.anatomy
    if not anatomy.tested:
        raise _refused(source, f"what depends on the number of heads is not known for model_type {anatomy.family!r}")
    if any(site.layout == "latent" for _, site in source.sites()):
        raise _refused(source, "its heads have no keys and values of their own, but share a latent vector")
    gone = (edit.gate == 0).unflatten(1, (anatomy.n_kv_heads, -1)).all(2)  # [layer, group]
    whole = {layer: gone[layer].nonzero().flatten().tolist() for layer, _ in source.sites()}
    fewest = min(whole, key=lambda layer: len(whole[layer]))
    n = len(whole[fewest])
    if n == 0:
        of = f" ({_size(source)} heads that share keys and values)" if _size(source) > 1 else ""
        raise _refused(source, f"every layer must lose a whole group{of}, but layer {fewest} loses none")
    if n == anatomy.n_kv_heads:
        raise _refused(source, "every layer would lose all of its heads")
    return {layer: groups[:n] for layer, groups in whole.items()}


def _smaller(source: Source, n: int) -> tuple[PretrainedConfig, PreTrainedModel]:
    """A configuration with n groups fewer, and its model without weights."""
    anatomy = source.anatomy
    try:
        config = _with_groups(source, anatomy.n_kv_heads - n)
        bare = skeleton(config)
        found = find_anatomy(bare)
    except HeadAtlasError as e:
        raise _refused(source, str(e)) from e
    except Exception as e:  # configurations check themselves in as many ways as there are
        others = ", ".join(str(m) for m in range(1, anatomy.n_kv_heads) if _is_valid(source, anatomy.n_kv_heads - m))
        instead = f"; {others} groups of every layer could go" if others else ""
        raise _refused(source, f"its configuration cannot say so ({one_line(e)}){instead}") from e
    groups = anatomy.n_kv_heads - n
    if (found.n_heads, found.n_kv_heads, found.d_head) != (groups * _size(source), groups, anatomy.d_head):
        raise _refused(source, "its configuration cannot say how large a head is, only how many there are")
    return config, bare


def _size(source: Source) -> int:
    """Heads of a group."""
    return source.anatomy.n_heads // source.anatomy.n_kv_heads


def _with_groups(source: Source, groups: int) -> PretrainedConfig:
    """The configuration with so many groups of the same size, once it has checked itself."""
    config = copy.deepcopy(source.config)
    text = config.get_text_config()
    text.num_attention_heads = groups * _size(source)
    if getattr(text, "num_key_value_heads", None) is not None:
        text.num_key_value_heads = groups
    text.head_dim = source.anatomy.d_head
    type(config).from_dict(config.to_dict())  # as it will be read
    return config


def _is_valid(source: Source, groups: int) -> bool:
    try:
        _with_groups(source, groups)
    except Exception:  # noqa: BLE001  # as above
        return False
    return True


def _kept(
    source: Source, name: str, site: Site, dropped: list[int], old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, list[int]]:
    """The axis on which a tensor becomes smaller, and what stays of it."""
    axes = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    path = name.rpartition(".")[0]
    module = source.bare.get_submodule(path)
    is_linear = isinstance(module, nn.Linear | Conv1D)
    if len(axes) != 1 or not (is_linear or len(old) > 1 or old[0] == site.n_heads):
        raise _refused(source, f"{name} joins all heads of a layer")
    size = old[axes[0]]
    if path == site.value and site.layout == "blocks":
        queries = site.n_heads * site.d_head
        parts = [(0, queries), (queries, (size - queries) // 2), ((size + queries) // 2, (size - queries) // 2)]
    else:
        parts = [(0, size)]
    kept = []
    for start, length in parts:
        block, rest = divmod(length, site.n_kv_heads)
        if rest:
            raise _refused(source, f"{name} cannot be cut into {site.n_kv_heads} groups")
        groups = (g for g in range(site.n_kv_heads) if g not in dropped)
        kept += [start + g * block + i for g in groups for i in range(block)]
    if len(kept) != new[axes[0]]:
        raise _refused(source, f"{name} would be {new[axes[0]]} wide, not {len(kept)}")
    return axes[0], kept


def _cut(make: Callable[[], Tensor], axis: int, kept: Tensor) -> Tensor:
    return make().index_select(axis, kept)


def _refused(source: Source, why: str) -> CannotDo:
    return UnsupportedModel(f"cannot prune {type(source.bare).__name__}: {why}{INSTEAD}")

"""From changes to heads to changes of weights.

A layer's heads write W_O · (g · z + v) + b. So g goes into the columns of W_O that belong to the head, W_O · v into the
bias b. Biases of values are part of z, and scaled with it; b itself is not.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from headatlas.edits.change import HeadEdit
from headatlas.errors import BadFile, CannotDo, UnsupportedModel
from headatlas.models.checkpoint_reader import Checkpoint
from headatlas.models.families import Anatomy, Site, find_anatomy
from headatlas.models.lm import LM
from headatlas.models.memory import skeleton
from headatlas.models.offloaded import read_config


@dataclass(frozen=True)
class Rewrite:
    """A tensor of the new checkpoint that is not copied: its shape and type, and how it is made."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]


@dataclass(frozen=True)
class Source:
    """A checkpoint that is to be edited, and what is already decided of the new one.

    config, bare: the new checkpoint's configuration, and a model of it without weights.
    rewrites: its tensors that are not copied, by their name in the files. reconfigured: whether config is another one
    than that of the folder.
    """

    folder: Path
    checkpoint: Checkpoint
    config: PretrainedConfig
    bare: PreTrainedModel
    anatomy: Anatomy
    rewrites: Mapping[str, Rewrite]
    reconfigured: bool = False

    def stored(self, name: str) -> str:
        """What a tensor of the model is called in the files. A bias is found beside its weight: one that is to be added
        must not be taken for that of another tower."""
        found = self._find(name)
        if name.endswith(".bias") and (weight := self._find(f"{name.removesuffix('.bias')}.weight")):
            beside = f"{weight.removesuffix('.weight')}.bias"
            found = beside if beside in self.rewrites or beside in self.checkpoint.files else found
        if found is None:
            packed = getattr(self.config, "quantization_config", None)
            why = "it is quantised: dequantise it first" if packed else "it is incomplete or of another architecture"
            raise BadFile(f"{self.folder} has no tensor {name}: {why}")
        return found

    def _find(self, name: str) -> str | None:
        return self.checkpoint.find(name, self.bare.base_model_prefix, self.anatomy.blocks)

    def dtype(self, stored: str) -> torch.dtype:
        """The type a tensor is stored in."""
        dtype = self.checkpoint.dtype(stored)
        if dtype is None:
            raise BadFile(f"{stored} in {self.folder} is quantised: dequantise the checkpoint first")
        return dtype

    def precision(self, stored: str) -> torch.dtype:
        """The type for a tensor that is computed: what the model is run in, where that is more than it is stored in."""
        own = self.dtype(stored)
        runs = getattr(self.config.get_text_config(), "dtype", None)
        return torch.promote_types(own, runs) if isinstance(runs, torch.dtype) else own

    def sites(self) -> Iterator[tuple[int, Site]]:
        yield from self.anatomy.attentions


def open_source(folder: Path) -> Source:
    """A checkpoint folder, of which nothing is loaded."""
    checkpoint, config = Checkpoint(folder), read_config(folder)
    bare = skeleton(config)
    return Source(folder, checkpoint, config, bare, find_anatomy(bare), {})


# --- into the files of a checkpoint


def fold(source: Source, edit: HeadEdit) -> Source:
    """The source with every tensor that the edit changes."""
    if edit.biased:
        source = _with_biases(source, edit)
    rewrites = dict(source.rewrites)
    for layer, site in source.sites():
        factors = edit.gate[layer]
        scaled = bool((factors != 1).any())
        if not scaled and layer not in edit.biased:
            continue
        name = source.stored(f"{site.out}.weight")
        if scaled:
            shape = tuple(source.bare.get_submodule(site.out).weight.shape)
            dtype = source.dtype(name) if all(map(_is_exact, factors.tolist())) else source.precision(name)
            rewrites[name] = Rewrite(shape, dtype, partial(_read_scaled, source.checkpoint, name, site, factors, dtype))
        if layer in edit.biased:
            bias = f"{name.removesuffix('.weight')}.bias"
            dtype = source.precision(name)
            make = partial(_read_bias, source.checkpoint, name, bias, site, layer, edit, dtype)
            rewrites[bias] = Rewrite((source.anatomy.d_model,), dtype, make)
    return replace(source, rewrites=rewrites)


def _is_exact(factor: float) -> bool:
    """Whether a product with it has no rounding: 0, 1, a half, a quarter, …"""
    return factor == 0 or (math.frexp(abs(factor))[0] == 0.5 and 1 / 16 <= abs(factor) <= 16)


def _read_scaled(checkpoint: Checkpoint, name: str, site: Site, factors: Tensor, dtype: torch.dtype) -> Tensor:
    return scale_heads(checkpoint.read(name), site, factors, dtype)


def _read_bias(
    checkpoint: Checkpoint, name: str, bias: str, site: Site, layer: int, edit: HeadEdit, dtype: torch.dtype
) -> Tensor:
    before = checkpoint.read(bias) if bias in checkpoint.files else None
    return add_constants(checkpoint.read(name), before, site, layer, edit).to(dtype)


def scale_heads(weight: Tensor, site: Site, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """An output projection's matrix with every head's part times its factor."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    each = factors.to(wide).repeat_interleave(site.d_head)  # [in]
    return (wide * (each[:, None] if site.transposed else each)).to(dtype)


def add_constants(weight: Tensor, bias: Tensor | None, site: Site, layer: int, edit: HeadEdit) -> Tensor:
    """A layer's bias with what the edit adds, in float64: [d_model]. weight: before the edit."""
    matrix = (weight if site.transposed else weight.T).unflatten(0, (site.n_heads, site.d_head))  # [head, d_head, d]
    total = torch.zeros(matrix.shape[-1], dtype=torch.float64) if bias is None else bias.cpu().double()
    for (at, head), vector in edit.steer.items():
        if at == layer:
            total = total + vector @ matrix[head].cpu().double()
    return total + edit.push[layer] if layer in edit.push else total


def _with_biases(source: Source, edit: HeadEdit) -> Source:
    """The source with a configuration under which the layers that need it have a bias behind their heads.

    Biases that come with the same switch, such as those of queries and keys, are zeros.
    """
    lacking = [source.anatomy.sites[layer] for layer in sorted(edit.biased)]
    if all(_has_bias(source.bare, site) for site in lacking):
        return source
    config, bare = _switched_on(source, lacking)
    before, after = set(source.bare.state_dict()), bare.state_dict()
    rewrites = dict(source.rewrites)
    for name in set(after) - before:
        weight = source.stored(f"{name.removesuffix('.bias')}.weight")
        dtype, shape = source.dtype(weight), tuple(after[name].shape)
        zeros = partial(torch.zeros, shape, dtype=dtype)
        rewrites[f"{weight.removesuffix('.weight')}.bias"] = Rewrite(shape, dtype, zeros)
    return replace(source, config=config, bare=bare, rewrites=rewrites, reconfigured=True)


def _has_bias(model: PreTrainedModel, site: Site | None) -> bool:
    assert site is not None
    return getattr(model.get_submodule(site.out), "bias", None) is not None


def _switched_on(source: Source, sites: list[Site | None]) -> tuple[PretrainedConfig, PreTrainedModel]:
    """A configuration with one switch on that gives these layers a bias, and changes nothing but adding biases."""
    switches = [
        key for key, value in vars(source.config.get_text_config()).items() if isinstance(value, bool) and "bias" in key
    ]
    shapes = {name: tensor.shape for name, tensor in source.bare.state_dict().items()}
    for key in switches:
        config = copy.deepcopy(source.config)
        text = config.get_text_config()
        setattr(text, key, not getattr(text, key))
        try:
            bare = skeleton(config)
        except Exception:  # noqa: BLE001  # configurations check themselves in as many ways as there are
            continue
        new = {name: tensor.shape for name, tensor in bare.state_dict().items()}
        added = set(new) - set(shapes)
        linear = all(isinstance(bare.get_submodule(name.rpartition(".")[0]), nn.Linear) for name in added)
        same = all(new.get(name) == shape for name, shape in shapes.items())
        if same and linear and all(_has_bias(bare, site) for site in sites):
            return config, bare
    tried = f"none of {', '.join(switches)}" if switches else "nothing"
    raise UnsupportedModel(
        f"cannot steer {type(source.bare).__name__} in a checkpoint: its output projections have no bias, and {tried}"
        " in its configuration gives them one; headatlas.edit in Python steers a model in memory"
    )


# --- into a model in memory


@torch.no_grad()
def folded_copy(lm: LM, edit: HeadEdit) -> LM:
    """A model with the edit in its weights. Whatever the edit leaves alone is shared with the original."""
    sites = dict(lm.anatomy.attentions)
    changed = {i: site for i, site in sites.items() if i in edit.biased or bool((edit.gate[i] != 1).any())}
    own = {id(p) for site in changed.values() for p in lm.model.get_submodule(site.out).parameters()}
    if any(p.is_meta for site in changed.values() for p in lm.model.get_submodule(site.out).parameters()):
        raise CannotDo(f"model {lm.name!r} is partly offloaded: give out=…, a folder, to edit its checkpoint instead")
    shared = {id(t): t for t in (*lm.model.parameters(), *lm.model.buffers()) if id(t) not in own}
    model: PreTrainedModel = copy.deepcopy(lm.model, dict(shared))
    for site in sites.values():  # gates and patches that are in force on the original
        model.get_submodule(site.out)._forward_pre_hooks.clear()
    for layer, site in changed.items():
        module = model.get_submodule(site.out)
        weight: Tensor = module.weight
        if layer in edit.biased:
            bias = add_constants(weight, module.bias, site, layer, edit)
            module.bias = nn.Parameter(bias.to(weight), requires_grad=False)
        module.weight = nn.Parameter(scale_heads(weight, site, edit.gate[layer], weight.dtype), requires_grad=False)
    return LM(model, lm._tokenizer, f"{lm.name}, edited")

"""Turn edits of heads into edits of weights.

A layer's heads write W_O · (g · z + v) + b. So g scales the head's columns of W_O, and W_O · v is added to the bias b.
Biases of values are part of z and are scaled with it; b itself is not.
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
    """A tensor of the new checkpoint that is not copied: its shape, its type and the function that makes it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]


@dataclass(frozen=True)
class Source:
    """A checkpoint to edit, and the changes collected so far.

    config, bare: configuration of the new checkpoint, and its model without weights.
    rewrites: tensors that are not copied, by their name in the files. reconfigured: whether config differs from that of
    the folder.
    """

    folder: Path
    checkpoint: Checkpoint
    config: PretrainedConfig
    bare: PreTrainedModel
    anatomy: Anatomy
    rewrites: Mapping[str, Rewrite]
    reconfigured: bool = False

    def stored(self, name: str) -> str:
        """Return the name that a tensor of the model has in the files."""
        stored = self._find(name)
        if name.endswith(".bias") and (weight := self._find(f"{name.removesuffix('.bias')}.weight")):
            # A bias belongs to its weight: a new one must not be mistaken for the bias of another tower.
            bias = f"{weight.removesuffix('.weight')}.bias"
            stored = bias if bias in self.rewrites or bias in self.checkpoint.files else stored
        if stored is None:
            packed = getattr(self.config, "quantization_config", None)
            why = "it is quantised: dequantise it first" if packed else "it is incomplete or of another architecture"
            raise BadFile(f"{self.folder} has no tensor {name}: {why}")
        return stored

    def _find(self, name: str) -> str | None:
        return self.checkpoint.find(name, self.bare.base_model_prefix, self.anatomy.blocks)

    def dtype(self, stored: str) -> torch.dtype:
        """Return the type that a tensor is stored in."""
        dtype = self.checkpoint.dtype(stored)
        if dtype is None:
            raise BadFile(f"{stored} in {self.folder} is quantised: dequantise the checkpoint first")
        return dtype

    def precision(self, stored: str) -> torch.dtype:
        """Return the type for a computed tensor: the wider of its stored type and the type that the model runs in."""
        stored_dtype = self.dtype(stored)
        run_dtype = getattr(self.config.get_text_config(), "dtype", None)
        return torch.promote_types(stored_dtype, run_dtype) if isinstance(run_dtype, torch.dtype) else stored_dtype

    def sites(self) -> Iterator[tuple[int, Site]]:
        """Yield the number and the attention of every layer with heads."""
        yield from self.anatomy.attentions


def open_source(folder: Path) -> Source:
    """Open a checkpoint folder without loading weights."""
    checkpoint = Checkpoint(folder)
    config = read_config(folder)
    bare = skeleton(config)
    return Source(folder, checkpoint, config, bare, find_anatomy(bare), {})


# --- into the files of a checkpoint


def fold(source: Source, edit: HeadEdit) -> Source:
    """Add the tensors that the edit changes to the source."""
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
            # Exact products lose nothing in the stored type; others are kept as precise as the model runs.
            dtype = source.dtype(name) if all(map(_is_exact, factors.tolist())) else source.precision(name)
            rewrites[name] = Rewrite(shape, dtype, partial(_read_scaled, source.checkpoint, name, site, factors, dtype))
        if layer in edit.biased:
            bias = f"{name.removesuffix('.weight')}.bias"
            dtype = source.precision(name)
            make = partial(_read_bias, source.checkpoint, name, bias, site, layer, edit, dtype)
            rewrites[bias] = Rewrite((source.anatomy.d_model,), dtype, make)
    return replace(source, rewrites=rewrites)


def _is_exact(factor: float) -> bool:
    """Return whether multiplying by the factor never rounds: 0, 1, a half, a quarter, …"""
    return factor == 0 or (math.frexp(abs(factor))[0] == 0.5 and 1 / 16 <= abs(factor) <= 16)


def _read_scaled(checkpoint: Checkpoint, name: str, site: Site, factors: Tensor, dtype: torch.dtype) -> Tensor:
    return scale_heads(checkpoint.read(name), site, factors, dtype)


def _read_bias(
    checkpoint: Checkpoint, name: str, bias: str, site: Site, layer: int, edit: HeadEdit, dtype: torch.dtype
) -> Tensor:
    before = checkpoint.read(bias) if bias in checkpoint.files else None
    return add_constants(checkpoint.read(name), before, site, layer, edit).to(dtype)


def scale_heads(weight: Tensor, site: Site, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Scale each head's part of an output projection's matrix by its factor."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    columns = factors.to(wide).repeat_interleave(site.d_head)  # [in]
    return (wide * (columns[:, None] if site.transposed else columns)).to(dtype)


def add_constants(weight: Tensor, bias: Tensor | None, site: Site, layer: int, edit: HeadEdit) -> Tensor:
    """Return a layer's bias plus what the edit adds, in float64: [d_model]. weight: W_O before the edit."""
    matrix = (weight if site.transposed else weight.T).unflatten(0, (site.n_heads, site.d_head))  # [head, d_head, d]
    total = torch.zeros(matrix.shape[-1], dtype=torch.float64) if bias is None else bias.cpu().double()
    for (i, head), vector in edit.steer.items():
        if i == layer:
            total = total + vector @ matrix[head].cpu().double()
    return total + edit.push[layer] if layer in edit.push else total


def _with_biases(source: Source, edit: HeadEdit) -> Source:
    """Switch the configuration to one in which the output projections of steered layers have a bias.

    Other biases that come with the same switch, such as those of queries and keys, are zeros.
    """
    steered_sites = [source.anatomy.sites[layer] for layer in sorted(edit.biased)]
    if all(_has_bias(source.bare, site) for site in steered_sites):
        return source
    config, bare = _switch_biases_on(source, steered_sites)
    before = set(source.bare.state_dict())
    after = bare.state_dict()
    rewrites = dict(source.rewrites)
    for name in set(after) - before:
        weight = source.stored(f"{name.removesuffix('.bias')}.weight")
        dtype = source.dtype(weight)
        shape = tuple(after[name].shape)
        zeros = partial(torch.zeros, shape, dtype=dtype)
        rewrites[f"{weight.removesuffix('.weight')}.bias"] = Rewrite(shape, dtype, zeros)
    return replace(source, config=config, bare=bare, rewrites=rewrites, reconfigured=True)


def _has_bias(model: PreTrainedModel, site: Site | None) -> bool:
    assert site is not None
    return getattr(model.get_submodule(site.out), "bias", None) is not None


def _switch_biases_on(source: Source, sites: list[Site | None]) -> tuple[PretrainedConfig, PreTrainedModel]:
    """Find a boolean option of the configuration that gives these layers a bias and changes nothing else."""
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
        except Exception:  # noqa: BLE001  # configurations raise errors of any type
            continue
        new = {name: tensor.shape for name, tensor in bare.state_dict().items()}
        added = set(new) - set(shapes)
        linear = all(isinstance(bare.get_submodule(name.rpartition(".")[0]), nn.Linear) for name in added)
        same = all(new.get(name) == shape for name, shape in shapes.items())
        if same and linear and all(_has_bias(bare, site) for site in sites):
            return config, bare
    tried = f"none of {', '.join(switches)}" if switches else "no option"
    raise UnsupportedModel(
        f"cannot steer {type(source.bare).__name__} in a checkpoint: its output projections have no bias, and {tried}"
        " in its configuration adds one; headatlas.edit in Python can steer the model in memory"
    )


# --- into a model in memory


@torch.no_grad()
def folded_copy(lm: LM, edit: HeadEdit) -> LM:
    """Return a model with the edit in its weights. Unchanged weights are shared with the original."""
    sites = dict(lm.anatomy.attentions)
    changed = {i: site for i, site in sites.items() if i in edit.biased or bool((edit.gate[i] != 1).any())}
    changed_parameters = [p for site in changed.values() for p in lm.model.get_submodule(site.out).parameters()]
    if any(p.is_meta for p in changed_parameters):
        raise CannotDo(f"model {lm.name!r} is partly offloaded: edit its checkpoint instead, with out=FOLDER")
    changed_ids = {id(p) for p in changed_parameters}
    shared = {id(t): t for t in (*lm.model.parameters(), *lm.model.buffers()) if id(t) not in changed_ids}
    model: PreTrainedModel = copy.deepcopy(lm.model, dict(shared))
    # Gates and patches that are active on the original must not act on the copy.
    for site in sites.values():
        model.get_submodule(site.out)._forward_pre_hooks.clear()
    for layer, site in changed.items():
        module = model.get_submodule(site.out)
        weight: Tensor = module.weight
        if layer in edit.biased:
            bias = add_constants(weight, module.bias, site, layer, edit)
            module.bias = nn.Parameter(bias.to(weight), requires_grad=False)
        module.weight = nn.Parameter(scale_heads(weight, site, edit.gate[layer], weight.dtype), requires_grad=False)
    return LM(model, lm._tokenizer, f"{lm.name}, edited")

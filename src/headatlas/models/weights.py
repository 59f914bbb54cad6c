"""Every head's own matrices, from a model in memory or from a checkpoint on disk that is never loaded.

Both ways share one description of where things are (`families`): for disk it is found in a skeleton without weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PretrainedConfig, PreTrainedModel

from headatlas.errors import BadArgument, BadFile, UnsupportedModel
from headatlas.models import families
from headatlas.models.checkpoint_reader import Checkpoint
from headatlas.models.families import Anatomy, Site, parameter
from headatlas.models.fingerprint import fingerprint_model, fingerprint_values
from headatlas.models.hooks import reading_inputs
from headatlas.models.memory import skeleton
from headatlas.models.offloaded import load_front, load_in_blocks, read_config


class Weights:
    """Matrices act on row vectors: a head maps x to x @ W_V @ W_O. K: number of KV heads, D: head size, d: d_model.

    Attributes:
        anatomy: where heads, projections and embeddings are.
        config: the model's configuration.
        source: 'memory' or 'disk'.
    """

    def __init__(
        self,
        anatomy: Anatomy,
        get: Callable[[str, str], Tensor | None],
        front: Callable[[], PreTrainedModel],
        runner: Callable[[torch.device | str], PreTrainedModel],
        fingerprint: Callable[[], str],
        config: PretrainedConfig,
        source: str,
    ) -> None:
        self.anatomy = anatomy
        self.config = config
        self.source = source
        self._get = get  # (module path, "weight" or "bias") → tensor
        self._front = front  # a model with at least the embeddings and block 0
        self._runner = runner  # a model that runs, from disk block by block
        self._fingerprint = fingerprint
        self._known: str | None = None
        self._runs: PreTrainedModel | None = None

    @classmethod
    def from_model(cls, model: PreTrainedModel, anatomy: Anatomy) -> "Weights":
        """Read a model that is in memory."""

        def get(path: str, kind: str) -> Tensor | None:
            module = model.get_submodule(path)
            return None if getattr(module, kind, None) is None else families.parameter(module, kind)

        def itself(device: torch.device | str = "") -> PreTrainedModel:
            return model

        return cls(anatomy, get, itself, itself, lambda: fingerprint_model(model), model.config, "memory")

    @classmethod
    def from_disk(cls, folder: str | Path) -> "Weights":
        """Read a checkpoint folder lazily: one tensor at a time, so that it may be far larger than memory."""
        folder = Path(folder)
        checkpoint = Checkpoint(folder)
        config = read_config(folder)
        bare = skeleton(config)
        anatomy = families.find_anatomy(bare)

        def get(path: str, kind: str) -> Tensor | None:
            expected = getattr(bare.get_submodule(path), kind, None)
            if expected is None:
                return None
            name = checkpoint.find(f"{path}.{kind}", bare.base_model_prefix, anatomy.blocks)
            if name is None:
                raise BadFile(
                    f"{folder} has no tensor for {path}.{kind}: the checkpoint is incomplete or of another architecture"
                )
            tensor = checkpoint.read(name)
            if tensor.shape != expected.shape:
                raise BadFile(
                    f"{folder}: {name} is {tuple(tensor.shape)}, but config.json makes it {tuple(expected.shape)}"
                )
            return tensor

        def front() -> PreTrainedModel:
            """With E and U as stored, where that is narrower than what the model is run in, to save memory."""
            ends = bare.get_input_embeddings()
            name = next(f"{path}.weight" for path, module in bare.named_modules() if module is ends)
            stored = checkpoint.dtype(name) if name in checkpoint.files else None
            runs = config.get_text_config().dtype
            narrow = stored is not None and runs is not None and stored.itemsize < runs.itemsize
            model = load_front(folder, config, stored if narrow else "auto")
            if model.dtype.itemsize < 4:  # in place: no second copy of the block is made when it is run in float32
                block = model.get_submodule(f"{anatomy.blocks}.0").float()
                for path, p in block.named_parameters(prefix=f"{anatomy.blocks}.0"):
                    if narrow and p.ndim == 1 and path in checkpoint.files:  # norms and biases may be stored wider
                        p.data = checkpoint.read(path).to(p.dtype)
            return model

        def runner(device: torch.device | str) -> PreTrainedModel:
            return load_in_blocks(folder, config, bare, anatomy, device)

        return cls(anatomy, get, front, runner, checkpoint.fingerprint, config, "disk")

    def fingerprint(self) -> str:
        """A short hash of all weights, in their precision."""
        return self._known or self._fingerprint()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Inside, weights are assumed not to change, and are read once for their fingerprint."""
        before, self._known = self._known, self.fingerprint()
        try:
            yield
        finally:
            self._known = before

    def values_hash(self) -> str:
        """A short hash of a few weights as bfloat16: the same on disk and in memory, in any precision."""
        layers = self.anatomy.layers_with_heads
        # as stored: OPT-350m's embedding is a product, which is rounded differently in every precision and on every CPU
        stored = families.parameter(self._model.get_input_embeddings(), "weight")[:256]
        return fingerprint_values([*(self.output(i) for i in {layers[0], layers[-1]}), stored])

    @cached_property
    def _model(self) -> PreTrainedModel:
        return self._front()

    def _site(self, layer: int) -> Site:
        if not 0 <= layer < self.anatomy.n_layers:
            raise BadArgument(f"layer is {layer}, expected 0 to {self.anatomy.n_layers - 1}")
        site = self.anatomy.sites[layer]
        if site is None:
            raise BadArgument(f"layer {layer} has no attention heads")
        return site

    def _value_site(self, layer: int) -> Site:
        site = self._site(layer)
        if site.layout is None:
            raise UnsupportedModel(
                f"no W_V for {site.attention}: HeadAtlas does not know how this architecture makes its values"
                " (docs/how-to/adding-a-family.md); reading and scaling its heads works"
            )
        return site

    def _matrix(self, path: str, site: Site) -> Tensor:
        """A projection as [out, in], however it is stored."""
        weight = self._get(path, "weight")
        assert weight is not None
        return weight.T if site.transposed else weight

    # --- a layer at a time

    def value(self, layer: int) -> Tensor:
        """W_V of all KV heads of a layer: [K, d, D]. Query head h uses KV head h // (H / K).

        Under latent attention (MLA) values pass a norm, so x @ W_V is the value up to a positive factor per x; `values`
        includes it.
        """
        site = self._value_site(layer)
        rows = families.cut_values(self._matrix(site.value, site), site)  # [K, D, in]
        if site.layout == "latent":
            rows = rows @ (self._latent_norm(site)[:, None] * self._latent(site))
        return rows.transpose(1, 2)

    def value_bias(self, layer: int) -> Tensor | None:
        """[K, D], or None."""
        site = self._value_site(layer)
        bias = self._get(site.value, "bias")
        return None if bias is None else families.cut_values(bias, site)

    def output(self, layer: int) -> Tensor:
        """W_O of all heads of a layer: [H, D, d]."""
        site = self._site(layer)
        return self._matrix(site.out, site).T.unflatten(0, (site.n_heads, site.d_head))

    def output_bias(self, layer: int) -> Tensor | None:
        """[d], or None. It belongs to the layer, not to a head."""
        return self._get(self._site(layer).out, "bias")

    def values(self, layer: int, x: Tensor) -> Tensor:
        """The values a layer makes of its attention's inputs x [n, d]: [n, K, D], with biases, norms and clipping."""
        site = self._value_site(layer)
        if site.layout == "latent":
            latent, bias = x @ self._latent(site).to(x).T, self._get(site.latent, "bias")
            latent = latent if bias is None else latent + bias[: latent.shape[-1]].to(x)
            latent = latent * torch.rsqrt(latent.pow(2).mean(dim=-1, keepdim=True) + site.latent_eps)
            rows = families.cut_values(self._matrix(site.value, site), site).to(x)
            return torch.einsum("nr,kdr->nkd", latent * self._latent_norm(site).to(x), rows)
        v = torch.einsum("nm,kmd->nkd", x, self.value(layer).to(x))
        bias = self.value_bias(layer)
        v = v if bias is None else v + bias.to(x)
        return v if site.clip is None else v.clamp(-site.clip, site.clip)

    def _latent(self, site: Site) -> Tensor:
        """[rank, d]: the projection into the latent vector, without the rows that make the rotary keys."""
        return self._matrix(site.latent, site)[: len(self._latent_norm(site))]

    def _latent_norm(self, site: Site) -> Tensor:
        weight = self._get(site.latent_norm, "weight")
        assert weight is not None
        return weight

    # --- a head at a time

    def W_V(self, layer: int, head: int) -> Tensor:
        """[d, D] of the value head that query head `head` reads."""
        return self.value(layer)[self._head(head) * self.anatomy.n_kv_heads // self.anatomy.n_heads]

    def W_O(self, layer: int, head: int) -> Tensor:
        """[D, d]."""
        return self.output(layer)[self._head(head)]

    def _head(self, head: int) -> int:
        if not 0 <= head < self.anatomy.n_heads:
            raise BadArgument(f"head is {head}, expected 0 to {self.anatomy.n_heads - 1}")
        return head

    # --- the ends of the model

    def embedding(self) -> Tensor:
        """E: [vocabulary, d]."""
        return families.embedding(self._model, self.anatomy).detach()

    def unembedding(self) -> Tensor:
        """U: [d, vocabulary]."""
        return families.unembedding(self._model, self.anatomy).detach()

    @torch.no_grad()
    def first_mlp(self, x: Tensor) -> Tensor:
        """Block 0's MLP on its own input norm, without the residual: [n, d] → [n, d]."""
        return families.first_mlp(self._model, self.anatomy, x)

    # --- the model itself, run

    @torch.no_grad()
    def run(self, texts: Tensor, on_x: Callable[[int, Tensor], None], device: torch.device | str = "cpu") -> None:
        """Run token ids [text, token] and call on_x(layer, x [text, d]) with what enters each layer's attention at the
        last token.

        From disk, one block is in memory at a time, in float32 (or float64), on `device`.
        """
        model = self._running(device)
        embedding = model.get_input_embeddings()
        if self.source == "disk":
            used, texts = texts.unique(return_inverse=True)  # rows of E for these tokens alone
            stored = families.parameter(self._model.get_input_embeddings(), "weight")
            embedding.padding_idx = None  # it counts all rows
            precision = torch.promote_types(stored.dtype, torch.float32)
            embedding.weight = nn.Parameter(stored[used].to(device, precision), False)
        with reading_inputs(model, self.anatomy, lambda layer, x: on_x(layer, x[:, -1])):
            model.base_model(input_ids=texts.to(families.parameter(embedding, "weight").device), use_cache=False)

    def through_norms(self, layer: int, written: Tensor) -> Tensor:
        """What a layer's heads write [..., d], scaled by the norms between them and U, up to one positive factor.

        through_norms(layer, z @ W_O) @ U is what a head adds to the logits directly.
        """
        for norm in families.norms_behind(self._running(written.device), self.anatomy, layer):
            written = through_norm(norm, written)
        return written

    def _running(self, device: torch.device | str) -> PreTrainedModel:
        if self._runs is None:
            self._runs = self._runner(device)
        return self._runs


@torch.no_grad()
def through_norm(norm: nn.Module, y: Tensor) -> Tensor:
    """What a part y [..., d_model] of a norm's input adds to its output, up to one positive factor: centred if the norm
    centres, times the norm's scale.

    The scale is found by running the norm: what its weight means differs (Gemma's scale is 1 + weight).
    """
    ones = y.new_ones(y.shape[-1])
    signs = ones.clone()
    signs[1::2] = -1
    scaled = _without_bias(norm, signs)
    if _without_bias(norm, ones).abs().max() < 1e-3 * scaled.abs().max():  # centring leaves nothing of a constant
        return (y - y.mean(-1, keepdim=True)) * scaled / (signs - signs.mean())
    return y * scaled / signs


@torch.no_grad()
def norm_factor(norm: nn.Module, x: Tensor) -> Tensor:
    """The factor that `through_norm` leaves open, for the norm's whole input x [d_model]: a part y of x adds
    norm_factor(norm, x) * through_norm(norm, y) to the norm's output."""
    scaled = through_norm(norm, x)
    return (_without_bias(norm, x) * scaled).sum() / (scaled * scaled).sum()


def _without_bias(norm: nn.Module, x: Tensor) -> Tensor:
    weights = {name: parameter(norm, name).to(x) for name, _ in norm.named_parameters()}
    return (functional_call(norm, weights, (x[None],)) - functional_call(norm, weights, (-x[None],)))[0] / 2

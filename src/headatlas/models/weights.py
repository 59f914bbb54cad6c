"""The matrices of every head, from a model in memory, or from a checkpoint on disk that is never loaded.

Both use the same description of where the matrices are (`families`); for a checkpoint on disk, it is made from a
skeleton without weights.
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
    """The weights of a model, by layer and head.

    Matrices act on row vectors: a head maps x to x @ W_V @ W_O. In shapes, H is the number of heads, K that of KV
    heads, D the head size, and d is d_model.

    Attributes:
        anatomy: where heads, projections and embeddings are.
        config: the model's configuration.
        source: 'memory' or 'disk'.
    """

    def __init__(
        self,
        anatomy: Anatomy,
        get: Callable[[str, str], Tensor | None],
        load_first_layers: Callable[[], PreTrainedModel],
        runner: Callable[[torch.device | str], PreTrainedModel],
        fingerprint: Callable[[], str],
        config: PretrainedConfig,
        source: str,
    ) -> None:
        self.anatomy = anatomy
        self.config = config
        self.source = source
        # (module path, "weight" or "bias") → tensor
        self._get = get
        # makes a model with at least the embeddings and block 0
        self._load_first_layers = load_first_layers
        # makes a model that can run, reading blocks from disk one by one
        self._runner = runner
        self._fingerprint = fingerprint
        self._cached_fingerprint: str | None = None
        self._running_model: PreTrainedModel | None = None

    @classmethod
    def from_model(cls, model: PreTrainedModel, anatomy: Anatomy) -> "Weights":
        """Read a model that is in memory."""

        def get(path: str, kind: str) -> Tensor | None:
            module = model.get_submodule(path)
            return None if getattr(module, kind, None) is None else families.parameter(module, kind)

        def same_model(device: torch.device | str = "") -> PreTrainedModel:
            return model

        return cls(anatomy, get, same_model, same_model, lambda: fingerprint_model(model), model.config, "memory")

    @classmethod
    def from_disk(cls, folder: str | Path) -> "Weights":
        """Read a checkpoint folder lazily: one tensor at a time, so that it may be far larger than memory."""
        folder = Path(folder)
        checkpoint = Checkpoint(folder)
        config = read_config(folder)
        unloaded = skeleton(config)
        anatomy = families.find_anatomy(unloaded)

        def get(path: str, kind: str) -> Tensor | None:
            expected = getattr(unloaded.get_submodule(path), kind, None)
            if expected is None:
                return None
            name = checkpoint.find(f"{path}.{kind}", unloaded.base_model_prefix, anatomy.blocks)
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

        def load_first_layers() -> PreTrainedModel:
            # E and U as stored, if that is narrower than the type in which the model runs, to save memory
            embedding = unloaded.get_input_embeddings()
            name = next(f"{path}.weight" for path, module in unloaded.named_modules() if module is embedding)
            stored_dtype = checkpoint.dtype(name) if name in checkpoint.files else None
            run_dtype = config.get_text_config().dtype
            is_narrower = (
                stored_dtype is not None and run_dtype is not None and stored_dtype.itemsize < run_dtype.itemsize
            )
            model = load_front(folder, config, stored_dtype if is_narrower else "auto")
            if model.dtype.itemsize < 4:
                # in place, so that no second copy of the block is made when it runs in float32
                block = model.get_submodule(f"{anatomy.blocks}.0").float()
                for path, p in block.named_parameters(prefix=f"{anatomy.blocks}.0"):
                    # norms and biases may be stored in a wider type than E
                    if is_narrower and p.ndim == 1 and path in checkpoint.files:
                        p.data = checkpoint.read(path).to(p.dtype)
            return model

        def runner(device: torch.device | str) -> PreTrainedModel:
            return load_in_blocks(folder, config, unloaded, anatomy, device)

        return cls(anatomy, get, load_first_layers, runner, checkpoint.fingerprint, config, "disk")

    def fingerprint(self) -> str:
        """Return a short hash of all weights, in their precision."""
        return self._cached_fingerprint or self._fingerprint()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Assume that the weights do not change in the block, and read them once for their fingerprint."""
        before = self._cached_fingerprint
        self._cached_fingerprint = self.fingerprint()
        try:
            yield
        finally:
            self._cached_fingerprint = before

    def values_hash(self) -> str:
        """Return a short hash of a few weights as bfloat16: equal on disk and in memory, in any precision."""
        layers = self.anatomy.layers_with_heads
        # as stored: OPT-350m's embedding is a product, which is rounded differently in every precision and on every CPU
        stored = families.parameter(self._front_model.get_input_embeddings(), "weight")[:256]
        return fingerprint_values([*(self.output(i) for i in {layers[0], layers[-1]}), stored])

    @cached_property
    def _front_model(self) -> PreTrainedModel:
        return self._load_first_layers()

    def _site(self, layer: int) -> Site:
        """Return where a layer's heads are."""
        if not 0 <= layer < self.anatomy.n_layers:
            raise BadArgument(f"layer is {layer}, expected 0 to {self.anatomy.n_layers - 1}")
        site = self.anatomy.sites[layer]
        if site is None:
            raise BadArgument(f"layer {layer} has no attention heads")
        return site

    def _value_site(self, layer: int) -> Site:
        """Return where a layer's heads are, if it is known how their values are made."""
        site = self._site(layer)
        if site.layout is None:
            raise UnsupportedModel(
                f"no W_V for {site.attention}: HeadAtlas does not know how this architecture makes its values"
                " (docs/how-to/adding-a-family.md); reading and scaling its heads works"
            )
        return site

    def _matrix(self, path: str, site: Site) -> Tensor:
        """Return a projection as [out, in], however it is stored."""
        weight = self._get(path, "weight")
        assert weight is not None
        return weight.T if site.transposed else weight

    # --- a layer at a time

    def value(self, layer: int) -> Tensor:
        """Return W_V of all KV heads of a layer: [K, d, D]. Query head h uses KV head h // (H / K).

        In latent attention (MLA), values pass a norm, so x @ W_V is the value up to a positive factor for each x;
        `values` includes this factor.
        """
        site = self._value_site(layer)
        rows = families.cut_values(self._matrix(site.value, site), site)  # [K, D, in]
        if site.layout == "latent":
            rows = rows @ (self._latent_norm(site)[:, None] * self._latent(site))
        return rows.transpose(1, 2)

    def value_bias(self, layer: int) -> Tensor | None:
        """Return the bias of a layer's values [K, D], or None."""
        site = self._value_site(layer)
        bias = self._get(site.value, "bias")
        return None if bias is None else families.cut_values(bias, site)

    def output(self, layer: int) -> Tensor:
        """Return W_O of all heads of a layer: [H, D, d]."""
        site = self._site(layer)
        return self._matrix(site.out, site).T.unflatten(0, (site.n_heads, site.d_head))

    def output_bias(self, layer: int) -> Tensor | None:
        """Return the bias of a layer's output [d], or None. It belongs to the layer, not to a head."""
        return self._get(self._site(layer).out, "bias")

    def values(self, layer: int, x: Tensor) -> Tensor:
        """Return a layer's values for attention inputs x [n, d]: [n, K, D], with biases, norms and clipping."""
        site = self._value_site(layer)
        if site.layout == "latent":
            latent = x @ self._latent(site).to(x).T
            bias = self._get(site.latent, "bias")
            latent = latent if bias is None else latent + bias[: latent.shape[-1]].to(x)
            latent = latent * torch.rsqrt(latent.pow(2).mean(dim=-1, keepdim=True) + site.latent_eps)
            rows = families.cut_values(self._matrix(site.value, site), site).to(x)
            return torch.einsum("nr,kdr->nkd", latent * self._latent_norm(site).to(x), rows)
        v = torch.einsum("nm,kmd->nkd", x, self.value(layer).to(x))
        bias = self.value_bias(layer)
        v = v if bias is None else v + bias.to(x)
        return v if site.clip is None else v.clamp(-site.clip, site.clip)

    def _latent(self, site: Site) -> Tensor:
        """Return the projection into the latent vector [rank, d], without the rows that make the rotary keys."""
        return self._matrix(site.latent, site)[: len(self._latent_norm(site))]

    def _latent_norm(self, site: Site) -> Tensor:
        weight = self._get(site.latent_norm, "weight")
        assert weight is not None
        return weight

    # --- a head at a time

    def W_V(self, layer: int, head: int) -> Tensor:
        """Return W_V [d, D] of the KV head that query head `head` reads."""
        return self.value(layer)[self._head(head) * self.anatomy.n_kv_heads // self.anatomy.n_heads]

    def W_O(self, layer: int, head: int) -> Tensor:
        """Return W_O [D, d] of a head."""
        return self.output(layer)[self._head(head)]

    def _head(self, head: int) -> int:
        """Return the head's number, checked."""
        if not 0 <= head < self.anatomy.n_heads:
            raise BadArgument(f"head is {head}, expected 0 to {self.anatomy.n_heads - 1}")
        return head

    # --- the ends of the model

    def embedding(self) -> Tensor:
        """Return E [vocabulary, d]."""
        return families.embedding(self._front_model, self.anatomy).detach()

    def unembedding(self) -> Tensor:
        """Return U [d, vocabulary]."""
        return families.unembedding(self._front_model, self.anatomy).detach()

    @torch.no_grad()
    def first_mlp(self, x: Tensor) -> Tensor:
        """Run block 0's MLP on its input norm, without the residual: [n, d] → [n, d]."""
        return families.first_mlp(self._front_model, self.anatomy, x)

    # --- the model same_model, run

    @torch.no_grad()
    def run(self, texts: Tensor, on_x: Callable[[int, Tensor], None], device: torch.device | str = "cpu") -> None:
        """Run texts and read the inputs of each layer's attention at the last token.

        From disk, one block is in memory at a time, in float32 (or float64), on `device`.

        Args:
            texts: token ids [text, token].
            on_x: called as on_x(layer, x [text, d]).
        """
        model = self._running(device)
        embedding = model.get_input_embeddings()
        if self.source == "disk":
            # only the rows of E for these tokens, which are numbered anew
            used_tokens, texts = texts.unique(return_inverse=True)
            stored = families.parameter(self._front_model.get_input_embeddings(), "weight")
            # this index of a row may now be out of range
            embedding.padding_idx = None
            precision = torch.promote_types(stored.dtype, torch.float32)
            embedding.weight = nn.Parameter(stored[used_tokens].to(device, precision), False)
        with reading_inputs(model, self.anatomy, lambda layer, x: on_x(layer, x[:, -1])):
            model.base_model(input_ids=texts.to(families.parameter(embedding, "weight").device), use_cache=False)

    def through_norms(self, layer: int, written: Tensor) -> Tensor:
        """Scale what a layer's heads write [..., d] by the norms between them and U, up to one positive factor.

        through_norms(layer, z @ W_O) @ U is the direct contribution of a head to the logits.
        """
        for norm in families.norms_behind(self._running(written.device), self.anatomy, layer):
            written = through_norm(norm, written)
        return written

    def _running(self, device: torch.device | str) -> PreTrainedModel:
        """Return a model that can run, made on first use."""
        if self._running_model is None:
            self._running_model = self._runner(device)
        return self._running_model


@torch.no_grad()
def through_norm(norm: nn.Module, y: Tensor) -> Tensor:
    """Return what a part y [..., d_model] of a norm's input adds to its output, up to one positive factor.

    This is y, centred if the norm centres, times the norm's scale. The scale is read by running the norm, because the
    meaning of its weight differs (Gemma's scale is 1 + weight).
    """
    ones = y.new_ones(y.shape[-1])
    signs = ones.clone()
    signs[1::2] = -1
    scaled = _without_bias(norm, signs)
    # a norm that centres maps a constant vector to 0
    if _without_bias(norm, ones).abs().max() < 1e-3 * scaled.abs().max():
        return (y - y.mean(-1, keepdim=True)) * scaled / (signs - signs.mean())
    return y * scaled / signs


@torch.no_grad()
def norm_factor(norm: nn.Module, x: Tensor) -> Tensor:
    """Return the factor that `through_norm` leaves out, for the norm's whole input x [d_model].

    A part y of x adds norm_factor(norm, x) * through_norm(norm, y) to the norm's output.
    """
    scaled = through_norm(norm, x)
    return (_without_bias(norm, x) * scaled).sum() / (scaled * scaled).sum()


def _without_bias(norm: nn.Module, x: Tensor) -> Tensor:
    """Run a norm without its bias, in x's precision: half the difference of its outputs for x and −x."""
    weights = {name: parameter(norm, name).to(x) for name, _ in norm.named_parameters()}
    return (functional_call(norm, weights, (x[None],)) - functional_call(norm, weights, (-x[None],)))[0] / 2

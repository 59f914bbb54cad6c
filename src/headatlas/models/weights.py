"""Every head's own matrices, from a model in memory or from a checkpoint on disk that is never loaded.

Both ways share one description of where things are (`families`): on disk it is read off a weightless skeleton.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from headatlas.errors import BadArgument, BadFile, UnsupportedModel, one_line
from headatlas.models import families
from headatlas.models.checkpoint import Checkpoint
from headatlas.models.families import Anatomy, Site
from headatlas.models.fingerprint import fingerprint_model, fingerprint_values
from headatlas.models.quiet import quiet_transformers


class Weights:
    """Matrices act on row vectors: a head maps x to x @ W_V @ W_O. K = number of KV heads, D = head size, d = hidden size."""

    def __init__(
        self,
        anatomy: Anatomy,
        get: Callable[[str, str], Tensor | None],
        front: Callable[[], PreTrainedModel],
        fingerprint: Callable[[], str],
        config: PretrainedConfig,
        source: str,
    ) -> None:
        self.anatomy = anatomy
        self.config = config
        self.source = source  # 'memory' or 'disk'
        self._get = get  # (module path, "weight" or "bias") → tensor
        self._front = front  # a model with at least the embeddings and block 0
        self._fingerprint = fingerprint
        self._known: str | None = None

    @classmethod
    def from_model(cls, model: PreTrainedModel, anatomy: Anatomy) -> "Weights":
        def get(path: str, kind: str) -> Tensor | None:
            module = model.get_submodule(path)
            return None if getattr(module, kind, None) is None else families.parameter(module, kind)

        return cls(anatomy, get, lambda: model, lambda: fingerprint_model(model), model.config, "memory")

    @classmethod
    def from_disk(cls, folder: str | Path) -> "Weights":
        """Read a checkpoint folder lazily: one tensor at a time, so that it may be far larger than memory."""
        folder = Path(folder)
        checkpoint = Checkpoint(folder)
        config = read_config(folder)
        with torch.device("meta"), quiet_transformers():
            skeleton = AutoModelForCausalLM.from_config(config)
        anatomy = families.find_anatomy(skeleton)
        block_list = anatomy.blocks.rpartition(".")[2]

        def get(path: str, kind: str) -> Tensor | None:
            expected = getattr(skeleton.get_submodule(path), kind, None)
            if expected is None:
                return None
            tail = f"{block_list}{path.removeprefix(anatomy.blocks)}.{kind}"
            name = checkpoint.find(f"{path}.{kind}", skeleton.base_model_prefix, tail)
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
            model = load_front(folder, config)
            if (
                model.dtype.itemsize < 4
            ):  # in place, so that no second copy of the block is made when it is run in float32
                model.get_submodule(f"{anatomy.blocks}.0").float()
            return model

        return cls(anatomy, get, front, checkpoint.fingerprint, config, "disk")

    def fingerprint(self) -> str:
        """A short hash of all weights, in their precision."""
        return self._known or self._fingerprint()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """While inside, weights are taken to stay as they are, and are read once for their fingerprint."""
        before, self._known = self._known, self.fingerprint()
        try:
            yield
        finally:
            self._known = before

    def likeness(self) -> str:
        """A short hash of some weights as bfloat16: the same for one model on disk and in memory, in whatever precision."""
        layers = [i for i, site in enumerate(self.anatomy.sites) if site is not None]
        return fingerprint_values([*(self.output(i) for i in {layers[0], layers[-1]}), self.embedding()[:256]])

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
                " (docs/adding-a-family.md); reading and scaling its heads works"
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

        Under latent attention (MLA) values pass a norm, so x @ W_V is the value up to a positive factor per x; `values` has it.
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
        """The value vectors that layer's attention makes of its inputs x [n, d]: [n, K, D], biases, norms and clipping included."""
        site = self._value_site(layer)
        if site.layout == "latent":
            latent, bias = x @ self._latent(site).to(x.dtype).T, self._get(site.latent, "bias")
            latent = latent if bias is None else latent + bias[: latent.shape[-1]].to(x.dtype)
            latent = latent * torch.rsqrt(latent.pow(2).mean(dim=-1, keepdim=True) + site.latent_eps)
            rows = families.cut_values(self._matrix(site.value, site), site).to(x.dtype)
            return torch.einsum("nr,kdr->nkd", latent * self._latent_norm(site).to(x.dtype), rows)
        v = torch.einsum("nm,kmd->nkd", x, self.value(layer).to(x.dtype))
        bias = self.value_bias(layer)
        v = v if bias is None else v + bias.to(x.dtype)
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


def read_config(folder: Path, trust_remote_code: bool = False) -> Any:
    if not (folder / "config.json").is_file():
        raise BadFile(f"{folder} has no config.json: a model folder holds config.json and safetensors files")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as e:  # as many ways to fail as there are configuration classes
        kind = UnsupportedModel if "does not recognize" in str(e) or "custom code" in str(e) else BadFile
        raise kind(f"{folder / 'config.json'} cannot be read as a model configuration: {one_line(e)}") from e


def check_complete(spec: str, info: dict[str, Any]) -> None:
    """Refuse what transformers would fill in with random numbers."""
    missing, mismatched = sorted(info["missing_keys"]), sorted(str(k) for k in info["mismatched_keys"])
    if missing:
        raise BadFile(f"{spec} lacks {len(missing)} of the model's tensors, the first is {missing[0]}")
    if mismatched:
        raise BadFile(
            f"{spec} has {len(mismatched)} tensors of another shape than its config.json says, the first is {mismatched[0]}"
        )


def load_front(folder: Path, config: Any) -> PreTrainedModel:
    """The embeddings, block 0 and the LM head, by transformers' own loader on a configuration of one layer."""
    shallow = copy.deepcopy(config)
    text = shallow.get_text_config()
    depth = text.num_hidden_layers
    for key, value in vars(text).items():
        if isinstance(value, list) and len(value) == depth:  # one entry per layer, such as layer_types
            setattr(text, key, value[:1])
    text.num_hidden_layers = 1
    try:
        with quiet_transformers():
            model, info = AutoModelForCausalLM.from_pretrained(
                folder,
                config=shallow,
                dtype="auto",
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                experts_implementation="eager",  # the one that takes every precision
            )
    except Exception as e:  # loaders of 400 architectures raise what they like about a damaged file
        raise BadFile(f"{folder}: cannot read its embeddings and first block: {one_line(e)}") from e
    check_complete(str(folder), info)
    return model.eval().requires_grad_(False)

"""Where each architecture keeps its attention heads.

`find_anatomy(model)` examines a model (a real one, or a skeleton without weights on the meta device) and returns where
its blocks, its heads' value and output projections, its embeddings and its first MLP are. It goes by structure: names
of sub-modules that mean the same thing in every architecture. `FAMILIES`, with one entry per `model_type`, has what the
structure does not show: how a fused QKV matrix is split, or an MLP that is no separate module
(docs/how-to/adding-a-family.md).

This is the only file with knowledge of single architectures.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from accelerate.utils import align_module_device
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headatlas.errors import UnsupportedModel

Layout = Literal["separate", "blocks", "interleaved", "latent"]
"""How the value projection's output rows are arranged, with H query heads in K groups of G = H / K, head size D:

separate     a separate matrix for values      [K·D]
blocks       queries, then keys, then values   [H·D | K·D | K·D]
interleaved  group by group                    K × [G·D | D | D]
latent       multi-head latent attention (MLA): x is compressed into a latent vector, normalised, and expanded
             to keys and values of every head  H × [D_key | D]
"""

# Names of the projection that makes the values. Fused ones need a layout from FAMILIES.
SEPARATE_VALUE = ("v_proj",)
FUSED_VALUE = ("qkv_proj", "query_key_value", "c_attn", "Wqkv")
LATENT_VALUE = ("kv_b_proj",)
QUERY = ("q_proj",)
OUTPUT = ("o_proj", "out_proj", "dense", "c_proj")
# Sub-modules of an attention that needs no entry in FAMILIES. Any other may change values, or z, on their way.
KNOWN_MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "dense", "c_proj", "q_norm", "k_norm"}
KNOWN_MODULES |= {"q_layernorm", "k_layernorm", "rotary_emb"}
KNOWN_MODULES |= {"attention_dropout", "attn_dropout", "resid_dropout", "dropout"}
MLP = ("mlp", "ffn", "feed_forward", "block_sparse_moe")
# Names of the norm that feeds the MLP; the first match is used. In parallel blocks, MLP and attention share a norm.
MLP_NORM = (
    "pre_feedforward_layernorm",
    "ln_mlp",
    "ln_2",
    "norm_2",
    "post_attention_layernorm",
    "input_layernorm",
    "ln_1",
)

# The norm on an attention's output, before it joins the residual stream. The first name means that only in blocks which
# have the second as well; elsewhere it is the MLP's input norm.
POST_ATTENTION = "post_attention_layernorm"
POST_MLP = "post_feedforward_layernorm"
# layers in one part of a method's work: few enough that little is lost if a run is interrupted
LAYERS_PER_PART = 8
FINAL_NORM = ("norm", "ln_f", "final_layernorm", "final_layer_norm", "norm_f")


@dataclass(frozen=True)
class Family:
    """A tested `model_type`, and what its structure does not show.

    Args:
        title: the names of its models, for users.
        fused: how a fused value projection is arranged.
        first_mlp: computes block 0's MLP on its input norm, if the MLP is no separate module.
    """

    title: str
    fused: Layout | None = None
    first_mlp: Callable[[nn.Module, Tensor], Tensor] | None = None


def _opt_mlp(block: nn.Module, x: Tensor) -> Tensor:
    """Compute OPT's MLP, whose layers belong to the block itself.

    OPT-350m alone has its norms after attention and MLP instead of before; there, attention's norm feeds the MLP.
    """
    opt: Any = block
    normed = opt.final_layer_norm(x) if opt.do_layer_norm_before else opt.self_attn_layer_norm(x)
    return opt.fc2(opt.activation_fn(opt.fc1(normed)))


FAMILIES: dict[str, Family] = {
    "llama": Family("Llama, SmolLM, Yi, TinyLlama"),
    "mistral": Family("Mistral"),
    "mixtral": Family("Mixtral"),
    "qwen2": Family("Qwen2"),
    "qwen3": Family("Qwen3"),
    "qwen3_next": Family("Qwen3-Next (hybrid)"),
    "gemma": Family("Gemma"),
    "gemma2": Family("Gemma 2"),
    "gemma3_text": Family("Gemma 3 (text)"),
    "gemma3": Family("Gemma 3 (text and images)"),
    "phi": Family("Phi"),
    "phi3": Family("Phi-3, Phi-4", fused="blocks"),
    "gpt2": Family("GPT-2", fused="blocks"),
    "gpt_neo": Family("GPT-Neo"),
    "gpt_neox": Family("GPT-NeoX, Pythia", fused="interleaved"),
    "gptj": Family("GPT-J"),
    "opt": Family("OPT", first_mlp=_opt_mlp),
    "bloom": Family("BLOOM", fused="interleaved"),
    "falcon": Family("Falcon", fused="interleaved"),
    "mpt": Family("MPT", fused="blocks"),
    "stablelm": Family("StableLM"),
    "cohere": Family("Cohere (Command R)"),
    "cohere2": Family("Cohere 2 (Command R7B)"),
    "olmo": Family("OLMo"),
    "olmo2": Family("OLMo 2"),
    "granite": Family("Granite"),
    "gpt_oss": Family("GPT-OSS"),
    "deepseek_v3": Family("DeepSeek-V3 (MLA)"),
}


@dataclass(frozen=True)
class Site:
    """One layer's attention. Names are dotted paths from the model's root, as in `model.get_submodule`."""

    attention: str
    out: str
    value: str
    layout: Layout | None  # None: values are made in an unknown way, or by another layer: z is right, W_V unknown
    n_heads: int
    n_kv_heads: int
    d_head: int
    transposed: bool  # GPT-2's Conv1D keeps its matrices as [in, out], all others as [out, in]
    latent: str = ""  # MLA: the projection into the latent vector, and the norm on it
    latent_norm: str = ""
    latent_eps: float = 0.0
    clip: float | None = None  # OLMo, MPT: values are clamped to ± this


@dataclass(frozen=True)
class Anatomy:
    """Where a model's blocks, heads and projections are."""

    family: str
    blocks: str
    sites: tuple[Site | None, ...]  # None: a layer without attention heads
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    context: int | None  # longest text in tokens, where the architecture has such a limit

    @property
    def n_layers(self) -> int:
        return len(self.sites)

    @property
    def attentions(self) -> list[tuple[int, Site]]:
        """The layers with heads: (layer, site)."""
        return [(layer, site) for layer, site in enumerate(self.sites) if site is not None]

    @property
    def layers_with_heads(self) -> list[int]:
        return [layer for layer, _ in self.attentions]

    def layer_groups(self, size: int = LAYERS_PER_PART) -> list[list[int]]:
        """Return the layers with heads in groups of at most `size`."""
        layers = self.layers_with_heads
        return [layers[i : i + size] for i in range(0, len(layers), size)]

    @property
    def layers_without_heads(self) -> list[int]:
        """Linear-attention and state-space layers of hybrids."""
        return [layer for layer, site in enumerate(self.sites) if site is None]

    @property
    def has_heads(self) -> Tensor:
        """Whether each layer has heads: bool [layer]."""
        return torch.tensor([site is not None for site in self.sites])

    @property
    def tested(self) -> bool:
        return self.family in FAMILIES

    @property
    def decoder(self) -> str:
        """The module that runs the blocks."""
        return self.blocks.rpartition(".")[0]


def find_anatomy(model: PreTrainedModel) -> Anatomy:
    """Locate every layer's heads in a model.

    Raises:
        UnsupportedModel: they cannot be located; the error says why.
    """
    config = model.config.get_text_config()
    name = type(model).__name__
    if model.get_output_embeddings() is None:
        raise UnsupportedModel(
            f"{name} has no unembedding: HeadAtlas reads causal language models (…ForCausalLM, …LMHeadModel)"
        )
    if not hasattr(config, "num_hidden_layers") or not hasattr(config, "num_attention_heads"):
        raise UnsupportedModel(f"cannot place the heads of {name}: its configuration names no layers or heads")
    if config.is_encoder_decoder or any("MaskedLM" in a for a in [name, *(model.config.architectures or [])]):
        raise UnsupportedModel(
            f"{name} is not a causal language model: HeadAtlas reads decoder-only models (…ForCausalLM, …LMHeadModel)"
        )
    path, blocks = _find_blocks(model, config.num_hidden_layers)
    sites = tuple(_find_site(model, config, f"{path}.{i}", block) for i, block in enumerate(blocks))
    shapes = {(s.n_heads, s.n_kv_heads, s.d_head) for s in sites if s is not None}
    if not shapes:
        raise UnsupportedModel(
            f"cannot place the heads of {name} (model_type {config.model_type!r}):"
            f" no layer has an attention that ends in one of {', '.join(OUTPUT)}"
        )
    if len(shapes) > 1:
        raise UnsupportedModel(
            f"{name}: layers differ in (heads, KV heads, head size): {sorted(shapes)}; HeadAtlas needs them equal"
        )
    n_heads, n_kv_heads, d_head = shapes.pop()
    context = getattr(config, "max_position_embeddings", None) or getattr(config, "max_seq_len", None)
    return Anatomy(model.config.model_type, path, sites, n_heads, n_kv_heads, d_head, config.hidden_size, context)


def _find_blocks(model: PreTrainedModel, n_layers: int) -> tuple[str, nn.ModuleList]:
    """Return the path of the list of transformer blocks, and the list."""
    # inside the decoder: image and sound towers have blocks as well
    decoder = model.get_decoder()
    prefix = next(name for name, module in model.named_modules() if module is decoder)
    for name, module in decoder.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return (f"{prefix}.{name}" if prefix else name), module
    raise UnsupportedModel(
        f"cannot place the heads of {type(model).__name__}: no list of {n_layers} blocks found in it"
    )


def _find_attention(
    model: PreTrainedModel, config: Any, path: str, block: nn.Module
) -> tuple[str, nn.Module, str, str] | None:
    """Find the sub-module of a block that owns a query or value projection and an output projection.

    Returns:
        Its path, the module, and the names of its value projection ('' if it has none) and its output projection; None
        if the block has no attention.
    """
    owners = []
    for name, module in block.named_modules():
        children = dict(module.named_children())
        value = next((n for n in SEPARATE_VALUE + FUSED_VALUE + LATENT_VALUE if n in children), "")
        out = next((n for n in OUTPUT if n in children), None)
        if out and (value or any(n in children for n in QUERY)) and not _is_linear_attention(config, path, module):
            owners.append((f"{path}.{name}", module, value, out))
    if len(owners) > 1:
        raise UnsupportedModel(
            f"{type(model).__name__}: {path} has {len(owners)} attentions"
            f" ({', '.join(o[0] for o in owners)}), expected one"
        )
    return owners[0] if owners else None


def _find_site(model: PreTrainedModel, config: Any, path: str, block: nn.Module) -> Site | None:
    """Return where a block's heads are; None if it has no attention heads."""
    owner = _find_attention(model, config, path, block)
    if owner is None:
        return None
    attention, module, value, out = owner
    if getattr(module, "slow_but_exact", False) and getattr(module, "pretraining_tp", 1) > 1:
        raise UnsupportedModel(
            f"{type(model).__name__}: slow_but_exact=True bypasses the output projection;"
            " load it with slow_but_exact=False"
        )

    n_heads = config.num_attention_heads
    in_features, _ = linear_shape(module, out)
    if in_features % n_heads:
        raise UnsupportedModel(
            f"{attention}.{out} takes {in_features} features, which {n_heads} heads cannot share equally"
        )
    # not hidden_size / n_heads: in Gemma, Qwen3, GPT-OSS and MLA, heads have another size
    d_head = in_features // n_heads

    family = FAMILIES.get(config.model_type)
    rows = linear_shape(module, value)[1] if value else 0
    layout: Layout | None
    if not value:
        # another layer's keys and values are used (Gemma 3n): z is right, but there is no W_V
        layout = None
        n_kv_heads = config.num_key_value_heads
    elif value in SEPARATE_VALUE:
        layout = "separate"
        n_kv_heads = rows // d_head
    elif value in LATENT_VALUE:
        layout = "latent"
        n_kv_heads = n_heads
    else:
        layout = family.fused if family else None
        n_kv_heads = (rows // d_head - n_heads) // 2
    if family is None and set(dict(module.named_children())) - KNOWN_MODULES:
        # an unknown module may be between x and z, or between z and the output
        layout = None
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise UnsupportedModel(
            f"{attention}.{value} has {rows} rows:"
            f" not a whole number of value heads of size {d_head} for {n_heads} query heads"
        )
    return Site(
        attention=attention,
        out=f"{attention}.{out}",
        value=f"{attention}.{value}",
        layout=layout,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        transposed=isinstance(module.get_submodule(out), Conv1D),
        clip=getattr(module, "clip_qkv", None) or getattr(config, "clip_qkv", None),
        **_latent(attention, module) if layout == "latent" else {},
    )


def _latent(attention: str, module: Any) -> dict[str, Any]:
    return {
        "latent": f"{attention}.kv_a_proj_with_mqa",
        "latent_norm": f"{attention}.kv_a_layernorm",
        "latent_eps": module.kv_a_layernorm.variance_epsilon,
    }


def _is_linear_attention(config: Any, path: str, module: nn.Module) -> bool:
    """Return whether a module is linear attention or a state space, which may own the same projections.

    Their heads are no softmax heads.
    """
    kinds = getattr(config, "layer_types", None) or []
    layer = int(path.rpartition(".")[2])
    kind = str(kinds[layer]) if layer < len(kinds) else ""
    return any(w in kind for w in ("linear", "mamba", "recurrent", "conv")) or any(
        isinstance(c, nn.Conv1d) for c in module.modules()
    )


def linear_shape(owner: nn.Module, name: str) -> tuple[int, int]:
    """Return the (in, out) features of a linear map, whichever way it stores its matrix."""
    module: Any = owner.get_submodule(name)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        raise UnsupportedModel(f"{type(owner).__name__}.{name} is a {type(module).__name__}, expected a linear map")
    rows, columns = weight.shape
    return (rows, columns) if isinstance(module, Conv1D) else (columns, rows)


def cut_values(fused: Tensor, site: Site) -> Tensor:
    """Return the value rows of a projection's weight or bias: [row, …] → [kv_head, d_head, …]."""
    d = site.d_head
    k = site.n_kv_heads
    if site.layout == "separate":
        return fused.unflatten(0, (k, d))
    if site.layout == "blocks":
        return fused[-k * d :].unflatten(0, (k, d))
    if site.layout == "interleaved":
        return fused.unflatten(0, (k, -1, d))[:, -1]
    assert site.layout == "latent"
    return fused.unflatten(0, (k, -1))[:, -d:]


def parameter(module: nn.Module, name: str) -> Tensor:
    """Return a parameter of a module, read in if accelerate offloads it (device_map)."""
    with align_module_device(module):
        return getattr(module, name)


def embedding(model: PreTrainedModel, anatomy: Anatomy) -> Tensor:
    """Return E [vocabulary, d_model], before any scaling or position that the model adds."""
    weight = parameter(model.get_input_embeddings(), "weight")
    # OPT-350m embeds in fewer dimensions than d_model
    project = getattr(model.get_submodule(anatomy.decoder), "project_in", None)
    return weight if project is None else project(weight)


def unembedding(model: PreTrainedModel, anatomy: Anatomy) -> Tensor:
    """Return U [d_model, vocabulary], without bias, final norm or logit scale."""
    head = model.get_output_embeddings()
    if head is None:
        raise UnsupportedModel(
            f"{type(model).__name__} has no unembedding: HeadAtlas reads language models (…ForCausalLM)"
        )
    weight = parameter(head, "weight")
    project = getattr(model.get_submodule(anatomy.decoder), "project_out", None)
    return weight.T if project is None else parameter(project, "weight").T @ weight.T


def first_mlp(model: PreTrainedModel, anatomy: Anatomy, x: Tensor) -> Tensor:
    """Run block 0's MLP on its input norm, without the residual, in x's precision: [n, d_model] → [n, d_model]."""
    block: nn.Module = model.get_submodule(f"{anatomy.blocks}.0")
    if any(p.dtype != x.dtype for p in block.parameters()):
        block = copy.deepcopy(block).to(x.dtype)
    family = FAMILIES.get(anatomy.family)
    if family is None:
        raise UnsupportedModel(
            f"the norm before block 0's MLP is not known for model_type {anatomy.family!r}:"
            " add it (docs/how-to/adding-a-family.md), or use input='stream' in maps"
        )
    if family.first_mlp:
        return family.first_mlp(block, x)
    mlp = _child(block, MLP)
    if mlp is None:
        raise UnsupportedModel(f"no MLP found in {anatomy.blocks}.0: none of {', '.join(MLP)}")
    # Blocks that norm the MLP's output but not its input (OLMo 2) have no input norm at all.
    post_norm = hasattr(block, POST_MLP) and not hasattr(block, "pre_feedforward_layernorm")
    norm = None if post_norm else _child(block, MLP_NORM)
    # mixtures of experts need [batch, token, d]
    normed = (norm(x) if norm else x)[None]
    # BLOOM and MPT add the residual inside the MLP
    takes_residual = "residual" in inspect.signature(mlp.forward).parameters
    out = mlp(normed, torch.zeros_like(normed)) if takes_residual else mlp(normed)
    return (out[0] if isinstance(out, tuple) else out).reshape(x.shape)


def norms_behind(model: PreTrainedModel, anatomy: Anatomy, layer: int) -> list[nn.Module]:
    """Return the norms between a layer's attention output and the unembedding: its own, if any, and the final one."""
    block: nn.Module = model.get_submodule(f"{anatomy.blocks}.{layer}")
    post_attention = _child(block, (POST_ATTENTION,)) if hasattr(block, POST_MLP) else None
    final = _child(model.get_submodule(anatomy.decoder), FINAL_NORM)
    return [norm for norm in (post_attention, final) if norm is not None]


def residual_scale(model: PreTrainedModel) -> float:
    """Return the factor of a block's outputs before they are added to the stream; 1 in all but Granite."""
    return float(getattr(model.config.get_text_config(), "residual_multiplier", 1.0))


def _child(module: nn.Module, names: tuple[str, ...]) -> nn.Module | None:
    """Return the first of these sub-modules that a module has."""
    return next((child for n in names if isinstance(child := getattr(module, n, None), nn.Module)), None)

"""Tiny random models of every family, with shapes chosen to catch mistakes.

Grouped heads, a head size that is not hidden / heads where the architecture allows it, biases on, and no parameter
left at its initial value (zero biases and unit norms would hide errors).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

VOCABULARY = 61


@dataclass(frozen=True, eq=False)
class Tiny:
    """One configuration to test a family with. Values are of order 1, so the tolerance is absolute and relative."""

    family: str
    config: str
    options: dict[str, Any] = field(default_factory=dict)
    variant: str = ""
    dtype: torch.dtype = torch.float64
    rounds: str = ""  # why this family cannot be held to float64's last digits, where it cannot

    @property
    def tolerance(self) -> float:
        return 1e-5 if self.rounds else 1e-12

    @property
    def id(self) -> str:
        return self.family + (f"-{self.variant}" if self.variant else "")


BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "intermediate_size": 56,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
GROUPED = BASE | {"num_key_value_heads": 2}
ODD = GROUPED | {"head_dim": 10}  # 6 heads × 10 ≠ 48
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 28,
}
MOE = {"num_experts_per_tok": 2}
GPT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "n_positions": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
FALCON = GROUPED | {"bias": True}
MLA = (
    BASE
    | {
        "num_key_value_heads": 6,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
        "n_routed_experts": 4,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "attention_bias": True,
    }
    | MOE
)

# A left-padded row with no visible key is NaN in float64 (the mask's minimum overflows in their float32 softmax).
EAGER = "its float32 softmax overflows on padded rows in float64"

TINY = [
    Tiny("llama", "LlamaConfig", ODD | {"attention_bias": True, "mlp_bias": True}),
    Tiny("mistral", "MistralConfig", ODD | {"sliding_window": 4}),
    Tiny("mixtral", "MixtralConfig", ODD | MOE | {"num_local_experts": 4}),
    Tiny("qwen2", "Qwen2Config", GROUPED | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}),
    Tiny("qwen3", "Qwen3Config", ODD | {"attention_bias": True}),
    Tiny(
        "qwen3_next",
        "Qwen3NextConfig",
        ODD
        | MOE
        | {
            "num_hidden_layers": 4,
            "num_experts": 4,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "attention_bias": True,
        },
        rounds="its linear attention computes in float32",
    ),
    Tiny("gemma", "GemmaConfig", ODD | {"attention_bias": True}),
    Tiny(
        "gemma2", "Gemma2Config", ODD | {"sliding_window": 4, "attention_bias": True}, dtype=torch.float32, rounds=EAGER
    ),
    Tiny("gemma3_text", "Gemma3TextConfig", ODD | {"sliding_window": 4, "attention_bias": True}),
    Tiny("gemma3", "Gemma3Config", {"text_config": ODD | {"sliding_window": 4}, "vision_config": VISION}),
    Tiny("phi", "PhiConfig", GROUPED),
    Tiny("phi3", "Phi3Config", ODD),
    Tiny("gpt2", "GPT2Config", GPT),
    Tiny(
        "gpt_neo",
        "GPTNeoConfig",
        {k: BASE[k] for k in ("vocab_size", "hidden_size", "max_position_embeddings", "bos_token_id", "eos_token_id")}
        | {"num_layers": 4, "num_heads": 6, "attention_types": [[["global", "local"], 2]], "window_size": 4},
        rounds="its attention computes scores in float32",
    ),
    Tiny("gpt_neox", "GPTNeoXConfig", BASE | {"attention_bias": True}),
    Tiny("gpt_neox", "GPTNeoXConfig", BASE | {"use_parallel_residual": False}, "sequential"),
    Tiny("gptj", "GPTJConfig", GPT | {"rotary_dim": 4}, rounds="its attention computes scores in float32"),
    Tiny("opt", "OPTConfig", BASE | {"ffn_dim": 40, "word_embed_proj_dim": 48}),
    Tiny("opt", "OPTConfig", BASE | {"ffn_dim": 40, "word_embed_proj_dim": 32, "do_layer_norm_before": False}, "350m"),
    Tiny(
        "bloom",
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 3, "n_head": 6, "bos_token_id": 0, "eos_token_id": 1},
        dtype=torch.float32,
        rounds=EAGER,
    ),
    Tiny("falcon", "FalconConfig", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}, "40b"),
    Tiny(
        "falcon",
        "FalconConfig",
        FALCON | {"new_decoder_architecture": False, "multi_query": True, "parallel_attn": True},
        "7b",
    ),
    Tiny(
        "falcon",
        "FalconConfig",
        FALCON | {"new_decoder_architecture": False, "multi_query": False, "alibi": True, "parallel_attn": False},
        "rw",
    ),
    Tiny(
        "mpt",
        "MptConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": 48,
            "n_layers": 3,
            "n_heads": 6,
            "max_seq_len": 64,
            "expansion_ratio": 2,
            "attn_config": {"clip_qkv": 1.0},
        },
        dtype=torch.float32,
        rounds=EAGER,
    ),
    Tiny("stablelm", "StableLmConfig", GROUPED | {"use_qkv_bias": True}),
    Tiny("stablelm", "StableLmConfig", GROUPED | {"use_parallel_residual": True, "qk_layernorm": True}, "parallel"),
    Tiny("cohere", "CohereConfig", GROUPED | {"attention_bias": True, "use_qk_norm": True}),
    Tiny("cohere2", "Cohere2Config", ODD | {"attention_bias": True, "sliding_window": 4}),
    Tiny("olmo", "OlmoConfig", GROUPED | {"attention_bias": True, "clip_qkv": 1.0}),
    Tiny("olmo2", "Olmo2Config", GROUPED | {"attention_bias": True}),
    Tiny(
        "granite",
        "GraniteConfig",
        GROUPED
        | {"attention_bias": True, "residual_multiplier": 0.7, "embedding_multiplier": 3.0, "logits_scaling": 2.0},
    ),
    Tiny("gpt_oss", "GptOssConfig", ODD | MOE | {"num_local_experts": 4, "sliding_window": 4, "head_dim": 10}),
    Tiny(
        "deepseek_v3",
        "DeepseekV3Config",
        MLA | {"q_lora_rank": 10, "first_k_dense_replace": 1},
        rounds="its router computes in float32",
    ),
    Tiny(
        "deepseek_v3",
        "DeepseekV3Config",
        MLA | {"q_lora_rank": None, "first_k_dense_replace": 0},
        "moe",
        rounds="its router computes in float32",
    ),
]


def build(tiny: Tiny, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = getattr(transformers, tiny.config)(**tiny.options)
    # the grouped experts cannot do float64
    model = AutoModelForCausalLM.from_config(config, experts_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
    return model.to(tiny.dtype).eval().requires_grad_(False)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token per word: w0 … w56, and four special ones."""
    words = ["<bos>", "<eos>", "<pad>", "<unk>"] + [f"w{i}" for i in range(VOCABULARY - 4)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def texts(lengths: tuple[int, ...] = (7, 3, 9, 5), seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]

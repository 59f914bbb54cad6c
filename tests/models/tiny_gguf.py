"""Tiny models as GGUF files, written as llama.cpp's converters write them, and their tokenizers as on the hub."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GROUPED = SHAPE | {"num_key_value_heads": 2}
CONTROL = 3  # the type of a token such as BOS


def byte_level(*special: str) -> dict[str, Any]:
    """A byte-level vocabulary: the 256 bytes, a few words with and without a space before them, and special tokens."""
    tokens, merges = list(bytes_to_unicode().values()), []
    for a, b in [("t", "h"), ("th", "e"), ("c", "a"), ("ca", "t"), ("Ġ", "the"), ("Ġ", "cat"), ("1", "2")]:
        tokens.append(a + b)
        merges.append(f"{a} {b}")
    tokens.append("Ġand")  # a word without merges: one token for Llama 3, letters for others
    return {"model": "gpt2", "tokens": [*tokens, *special], "merges": merges, "special": special}


def sentencepiece(*special: str) -> dict[str, Any]:
    """A SentencePiece vocabulary: special tokens, 256 bytes, letters, and words whose scores give the merge order."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz"]
    words = ["th", "the", "▁the", "ca", "cat", "▁cat"]
    tokens = [*special, *(f"<0x{b:02X}>" for b in range(256)), *words, *letters]
    scores = [0.0] * (len(special) + 256) + [-float(i) for i in range(1, 1 + len(words) + len(letters))]
    return {"model": "llama", "tokens": tokens, "scores": scores, "special": special}


@dataclass(frozen=True)
class TinyGGUF:
    """A family: its model, its vocabulary as the file has it, and its tokenizer as the hub has it."""

    name: str
    architecture: str  # as GGUF calls it
    config: Callable[[int], Any]  # by size of the vocabulary
    vocabulary: dict[str, Any]
    hub: Callable[[dict[str, Any], bool], Any]  # the tokenizer, with or without BOS
    opens: bool  # whether the hub's tokenizer adds BOS
    pre: str | None = None
    bos: str = ""
    eos: str = ""

    def build(self) -> Any:
        torch.manual_seed(0)
        config = self.config(len(self.vocabulary["tokens"]))
        config.bos_token_id, config.eos_token_id = (self.vocabulary["tokens"].index(t) for t in (self.bos, self.eos))
        config.pad_token_id = None
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.1 * torch.randn_like(p)  # norms that are all one and biases that are all zero would hide errors
        return model.eval()

    def tokenizer(self, opens: bool) -> Any:
        return self.hub(self.vocabulary, opens)


def _ids(vocabulary: dict[str, Any]) -> dict[str, int]:
    return {t: i for i, t in enumerate(vocabulary["tokens"])}


def _merges(vocabulary: dict[str, Any]) -> list[tuple[str, ...]]:
    if "merges" in vocabulary:
        return [tuple(m.split()) for m in vocabulary["merges"]]
    return [("t", "h"), ("th", "e"), ("▁", "the"), ("c", "a"), ("ca", "t"), ("▁", "cat")]


def _class(name: str, **options: Any) -> Callable[[dict[str, Any], bool], Any]:
    def hub(vocabulary: dict[str, Any], opens: bool) -> Any:
        made = getattr(transformers, name)(vocab=_ids(vocabulary), merges=_merges(vocabulary), **options)
        made.add_bos_token = opens
        return made

    return hub


def _llama3(vocabulary: dict[str, Any], opens: bool) -> Any:
    """As Llama 3's on the hub: a tokenizer.json whose post-processor adds BOS, which its configuration does not say."""
    made = Tokenizer(models.BPE(vocab=_ids(vocabulary), merges=_merges(vocabulary), ignore_merges=True))
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(vocabulary["special"]))
    bos = vocabulary["special"][0]
    single = f"{bos} $A" if opens else "$A"
    made.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[(bos, made.token_to_id(bos))] if opens else []
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=bos, eos_token=vocabulary["special"][1])


_GEMMA3 = GROUPED | {"head_dim": 16, "sliding_window": 16}
_ENDS = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
FAMILIES = [
    TinyGGUF(
        "llama-2",
        "llama",
        lambda n: transformers.LlamaConfig(vocab_size=n, **GROUPED),
        sentencepiece("<unk>", "<s>", "</s>"),
        _class("LlamaTokenizer"),
        True,
        bos="<s>",
        eos="</s>",
    ),
    TinyGGUF(
        "llama-3",
        "llama",
        lambda n: transformers.LlamaConfig(vocab_size=n, **GROUPED),
        byte_level("<|begin_of_text|>", "<|eot_id|>"),
        _llama3,
        True,
        "llama-bpe",
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
    ),
    TinyGGUF(
        "qwen2",
        "qwen2",
        lambda n: transformers.Qwen2Config(vocab_size=n, **GROUPED),
        byte_level("<|endoftext|>", "<|im_end|>"),
        _class("Qwen2Tokenizer", bos_token="<|endoftext|>"),
        False,
        "qwen2",
        bos="<|endoftext|>",
        eos="<|im_end|>",
    ),
    TinyGGUF(
        "qwen2-moe",
        "qwen2moe",
        lambda n: transformers.Qwen2MoeConfig(vocab_size=n, **GROUPED, num_experts=4, num_experts_per_tok=2),
        byte_level("<|endoftext|>", "<|im_end|>"),
        _class("Qwen2Tokenizer", bos_token="<|endoftext|>"),
        False,
        "qwen2",
        bos="<|endoftext|>",
        eos="<|im_end|>",
    ),
    TinyGGUF(
        "gemma3",
        "gemma3",
        lambda n: transformers.Gemma3TextConfig(vocab_size=n, **_GEMMA3),
        sentencepiece("<pad>", "<eos>", "<bos>", "<unk>"),
        _class("GemmaTokenizer"),
        True,
        bos="<bos>",
        eos="<eos>",
    ),
    TinyGGUF(
        "gpt2",
        "gpt2",
        lambda n: transformers.GPT2Config(vocab_size=n, n_embd=32, n_layer=2, n_head=4),
        byte_level("<|endoftext|>"),
        _class("GPT2Tokenizer", **_ENDS),
        False,
        "gpt-2",
        bos="<|endoftext|>",
        eos="<|endoftext|>",
    ),
]


def write_family(
    path: Path,
    family: TinyGGUF,
    model: Any,
    add_bos: bool | None = None,
    quantise: bool = False,
    names_bos: bool = True,
    **metadata: Any,
) -> None:
    """A model of a family as a GGUF file.

    add_bos: what the file says about BOS at the start of a text; None: nothing. names_bos: whether it says which token
    BOS is. metadata: more entries, by the names that GGUFWriter has for them.
    """
    writer = gguf.GGUFWriter(path, family.architecture)
    _write_shape(writer, model.config)
    vocabulary = family.vocabulary
    writer.add_tokenizer_model(vocabulary["model"])
    if family.pre is not None:
        writer.add_tokenizer_pre(family.pre)
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types([CONTROL if t in vocabulary["special"] else 1 for t in vocabulary["tokens"]])
    if "merges" in vocabulary:
        writer.add_token_merges(vocabulary["merges"])
    else:
        writer.add_token_scores(vocabulary["scores"])
    if names_bos:
        writer.add_bos_token_id(vocabulary["tokens"].index(family.bos))
    writer.add_eos_token_id(vocabulary["tokens"].index(family.eos))
    if add_bos is not None:
        writer.add_add_bos_token(add_bos)
    for key, value in metadata.items():
        getattr(writer, f"add_{key}")(value)
    for name, array in _as_written(family, model).items():
        if quantise and array.ndim > 1 and array.shape[-1] % 32 == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, array)
    _finish(writer)


def _write_shape(writer: gguf.GGUFWriter, c: Any) -> None:
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_head_count(c.num_attention_heads)
    if c.model_type == "gpt2":
        writer.add_layer_norm_eps(c.layer_norm_epsilon)
        writer.add_feed_forward_length(4 * c.hidden_size)
        return
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    if c.model_type == "gemma3_text":
        writer.add_key_length(c.head_dim)
        writer.add_value_length(c.head_dim)
        writer.add_sliding_window(c.sliding_window)
    elif c.model_type == "qwen2_moe":
        writer.add_expert_count(c.num_experts)
        writer.add_expert_used_count(c.num_experts_per_tok)


def _as_written(family: TinyGGUF, model: Any) -> dict[str, np.ndarray]:
    """The model's tensors with the names and in the order that converters give them."""
    c = model.config
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == family.architecture)
    names = gguf.get_tensor_name_map(arch, c.num_hidden_layers)
    heads = {"q_proj": c.num_attention_heads, "k_proj": getattr(c, "num_key_value_heads", 0)}
    tied = set(model.all_tied_weights_keys)
    arrays: dict[str, np.ndarray] = {}
    for ours, tensor in model.state_dict().items():
        if ours in tied:
            continue
        array: np.ndarray = tensor.float().numpy().copy()
        block = ours.split(".")[2] if ours.startswith(("model.layers", "transformer.h")) else ""
        if ours.endswith("experts.gate_up_proj"):  # [expert, gate and up, in]
            gate, up = np.split(array, 2, axis=1)
            arrays |= {f"blk.{block}.ffn_gate_exps.weight": gate, f"blk.{block}.ffn_up_exps.weight": up}
            continue
        if ours.endswith("experts.down_proj"):
            arrays[f"blk.{block}.ffn_down_exps.weight"] = array
            continue
        if family.architecture == "llama":
            for part, n in heads.items():
                if part in ours:
                    array = array.reshape(n, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
        if family.architecture == "gemma3" and ours.endswith("norm.weight"):
            array = array + np.float32(1)
        if family.architecture == "gpt2" and array.ndim == 2 and ".h." in ours:
            array = np.ascontiguousarray(array.T)
        if ours.endswith("shared_expert_gate.weight"):
            array = array[0]
        theirs = names.get_name(ours, try_suffixes=(".weight", ".bias"))
        assert theirs is not None, ours
        arrays[theirs] = array
    return arrays


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny_llama(**options: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{"vocab_size": 64} | GROUPED | options))


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    leave_out: str = "",
    more: dict[str, np.ndarray] | None = None,
    kinds: Sequence[gguf.GGMLQuantizationType] = (),
    quantise: bool = False,
    layers: int = 0,
    rope_theta: float = 10_000.0,
) -> None:
    """A tiny Llama with next to no vocabulary; without one of its tensors, or with others than its own.

    kinds: number formats of the last matrix of each block. layers: number of copies of the first layer to write.
    """
    c = copy.copy(model.config)
    c.num_hidden_layers = layers or c.num_hidden_layers
    writer = gguf.GGUFWriter(path, "llama")
    _write_shape(writer, c)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(rope_theta)
    writer.add_vocab_size(c.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["<bos>", "<eos>", "a", "b", "ab"] + [chr(0x100 + i) for i in range(c.vocab_size - 5)])
    writer.add_token_types([1] * c.vocab_size)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    of = {f"blk.{i}.ffn_down.weight": kind for i, kind in enumerate(kinds)}
    for name, array in (_as_written(FAMILIES[0], model) | (more or {})).items():
        kind = of.get(name, gguf.GGMLQuantizationType.Q8_0 if quantise and array.ndim == 2 else None)
        data = array if kind is None else gguf.quantize(array, kind)
        for i in range(layers if name.startswith("blk.0.") and layers else 1):
            if name != leave_out:
                writer.add_tensor(name.replace("blk.0.", f"blk.{i}.") if layers else name, data, raw_dtype=kind)
    _finish(writer)

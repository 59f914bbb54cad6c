"""Tokenizers as real models have them, trained on a few texts: like Llama 2's, with byte tokens, and like GPT-2's."""

import json
from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def sentencepiece_like(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """Words begin with "▁", which the decoder drops at the start of a text; unknown characters become bytes."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size - len(BYTES), special_tokens=SPECIAL))
    trained = json.loads(inner.to_str())["model"]
    pieces = [*SPECIAL, *BYTES, *sorted(trained["vocab"], key=trained["vocab"].get)[len(SPECIAL) :]]
    inner.model = models.BPE(
        vocab={piece: i for i, piece in enumerate(pieces)},
        merges=[tuple(merge) for merge in trained["merges"]],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _with_special(inner)


def byte_level(texts: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """Words begin with a space, which decoding keeps."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet)
    inner.train_from_iterator(texts, trainer)
    return _with_special(inner)


def _with_special(inner: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>")

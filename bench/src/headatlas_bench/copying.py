"""A model that copies, set by hand: the truth for methods about what is repeated.

A head of the first layer attends to the token before and writes it into a place of its own. In later layers, copying
heads attend to the token that came after an earlier occurrence of this token, and write it: each after some of the
words, so that every one is needed. All other heads look anywhere and write noise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headatlas.models.lm import LM
from headatlas.tasks.prompts import Example, Task
from headatlas_bench.circuits import Heads

LAYERS, HEADS, D_HEAD, COPIERS = 4, 8, 192, 3
WORDS = 72  # token 0 is what the tokenizer does not know; w1 … w71
START = 1  # the chat template ends with it, so that the model writes what came after its earlier occurrence
BASE = 1e20
SLOW = 24  # rotary pairs from here on hardly turn, so that words can be compared over any distance
QUICK = 12  # pairs that tell the token before from all others
SHARP, GAIN, NOISE = 400.0, 10.0, 0.4  # of looking; of what is copied, and of what other heads write, in logits
WORD, BEFORE, OUT = (slice(i * WORDS, (i + 1) * WORDS) for i in range(3))  # of the stream
FOLLOWED, FILLER = range(2, 32), range(32, WORDS)  # words of needles and lists, and of what stands around them


@dataclass(frozen=True)
class PlantedCopying:
    """data: what methods are asked with, by the name of their argument."""

    lm: LM
    copiers: Heads
    previous: Heads
    data: dict[str, object]


def plant_copying(seed: int = 0) -> PlantedCopying:
    """Heads are placed and noise is drawn by seed."""
    generator = np.random.default_rng(seed)
    torch_generator = torch.Generator().manual_seed(seed)
    model: Any = LlamaForCausalLM(_config())
    places = generator.permutation((LAYERS - 1) * HEADS)[:COPIERS]
    copiers = sorted((1 + int(p) // HEADS, int(p) % HEADS) for p in places)
    previous = (0, int(generator.integers(HEADS)))
    owners = generator.integers(COPIERS, size=WORDS)  # which head copies after each word
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1e3 if "norm" in name else 0.0)
        model.model.embed_tokens.weight[:, WORD] = torch.eye(WORDS)
        model.lm_head.weight[:, OUT] = torch.eye(WORDS)
        attentions = [layer.self_attn for layer in model.model.layers]
        for layer, attention in enumerate(attentions):
            for head in range(HEADS):
                if (layer, head) not in (*copiers, previous):
                    _make_noise(attention, head, torch_generator)
        _look_back_one(attentions[0], previous[1])
        _carry(attentions[0], previous[1], WORD, BEFORE, 1.0)
        for i, (layer, head) in enumerate(copiers):
            compared = slice(head * D_HEAD + SLOW, head * D_HEAD + SLOW + WORDS)
            own = torch.tensor(owners == i, dtype=torch.float32)
            attentions[layer].q_proj.weight[compared, WORD] = SHARP * torch.diag(own)
            attentions[layer].k_proj.weight[compared, BEFORE] = torch.eye(WORDS)
            _carry(attentions[layer], head, WORD, OUT, GAIN)
    lm = LM(model.eval().requires_grad_(False), _tokenizer(), f"copying, seed {seed}")
    text = [_said(generator.choice(FILLER, 4, replace=False)) for _ in range(24)]
    data = {"needles": _needles(generator), "text": text, "tasks": [_task(generator)]}
    return PlantedCopying(lm, copiers, [previous], data)


def _config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=WORDS,
        hidden_size=3 * WORDS,
        intermediate_size=8,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=D_HEAD,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        rms_norm_eps=1e6,  # so large that x / sqrt(mean x² + eps) is x / 1000, and norms are the identity
        eos_token_id=None,
        bos_token_id=None,
    )


def _look_back_one(attention: Any, head: int) -> None:
    """A score of Σ cos(θ (distance − 1)) over the quick rotary pairs, which is largest at a distance of 1."""
    for i in range(QUICK):
        turn = torch.tensor(BASE ** (-2 * i / D_HEAD))
        even, odd = head * D_HEAD + i, head * D_HEAD + i + D_HEAD // 2  # the pair, as transformers lays it out
        attention.k_proj.bias[even] = 1.0
        attention.q_proj.bias[even], attention.q_proj.bias[odd] = SHARP * turn.cos(), -SHARP * turn.sin()


def _carry(attention: Any, head: int, taken: slice, put: slice, gain: float) -> None:
    rows = slice(head * D_HEAD, head * D_HEAD + WORDS)
    attention.v_proj.weight[rows, taken] = torch.eye(WORDS)
    attention.o_proj.weight[put, rows] = gain * torch.eye(WORDS)


def _make_noise(attention: Any, head: int, generator: torch.Generator) -> None:
    """Scores of places have a standard deviation of about 2, what is written one of NOISE for a single word."""
    rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[rows, WORD] = 2**0.5 * torch.randn(D_HEAD, WORDS, generator=generator)
    attention.v_proj.weight[rows, WORD] = torch.randn(D_HEAD, WORDS, generator=generator) / D_HEAD**0.5
    attention.o_proj.weight[OUT, rows] = NOISE * torch.randn(WORDS, D_HEAD, generator=generator)


def _said(words: Iterable[int]) -> str:
    return " ".join(f"w{i}" for i in words)


def _needles(generator: np.random.Generator) -> list[dict[str, str]]:
    """Each begins with the word that the template ends with, behind which the model reads on."""
    answers = [_said(generator.choice(FOLLOWED, 5, replace=False)) for _ in range(12)]
    return [{"needle": f"w{START} {answer}", "question": f"w{WORDS - 1}", "answer": answer} for answer in answers]


def _task(generator: np.random.Generator) -> Task:
    """A word, a list, other words, and the list's first word again: the rest of it follows.

    The text's first token has none before it, and is taken for its own, so no list begins there.
    """
    examples = []
    for _ in range(48):
        words = generator.choice(FOLLOWED, 16, replace=False)
        first, *between = generator.choice(FILLER, 33, replace=False)
        examples.append(Example(f"w{first} {_said(words)} {_said(between)} w{words[0]}", f" {_said(words[1:])}"))
    return Task("copying", tuple(examples[:24]), tuple(examples[24:]))


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<unk>": 0} | {f"w{i}": i for i in range(1, WORDS)}
    inner = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    template = f"<unk> {{{{ messages[0]['content'] }}}} w{START}"
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", chat_template=template)

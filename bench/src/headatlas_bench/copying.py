"""A model with hand-set weights that copies: the ground truth for methods about repetition.

A head of the first layer attends to the previous token and writes it into separate dimensions of the stream. In later
layers, copying heads attend to the token after an earlier occurrence of the current token, and write it. Each does so
for some of the words, so that every copying head is needed. All other heads attend anywhere and write noise.
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

LAYERS, HEADS, D_HEAD, N_COPIERS = 4, 8, 192, 3
# Token 0 stands for unknown words; the others are w1 … w71.
N_WORDS = 72
# The chat template ends with this word, so that the model writes what followed its earlier occurrence.
TEMPLATE_END = 1
ROTARY_BASE = 1e20
# With this base, rotary pairs from here on turn by at most 1e-5 per token: words can be compared over any distance.
FIRST_SLOW_PAIR = 24
# Pairs that distinguish the previous token from all others.
N_FAST_PAIRS = 12
# Factor on the attention scores of the previous-token head and the copying heads.
SHARPNESS = 400.0
# Size of what copying heads and of what other heads write, in logits.
COPY_LOGIT = 10.0
NOISE_LOGIT = 0.4
# Dimensions of the stream: the current word, the previous word, the prediction.
WORD_DIMS, PREVIOUS_DIMS, OUTPUT_DIMS = (slice(i * N_WORDS, (i + 1) * N_WORDS) for i in range(3))
# Words of needles and lists, and words of the text around them.
CONTENT_WORDS = range(2, 32)
FILLER_WORDS = range(32, N_WORDS)


@dataclass(frozen=True)
class PlantedCopying:
    """A copying model and its heads. data: what methods are called with, by the name of their argument."""

    lm: LM
    copiers: Heads
    previous: Heads
    data: dict[str, object]


def plant_copying(seed: int = 0) -> PlantedCopying:
    """Build the model; the seed decides the places of heads and their noise."""
    generator = np.random.default_rng(seed)
    torch_generator = torch.Generator().manual_seed(seed)
    model: Any = LlamaForCausalLM(_config())
    places = generator.permutation((LAYERS - 1) * HEADS)[:N_COPIERS]
    copiers = sorted((1 + int(p) // HEADS, int(p) % HEADS) for p in places)
    previous = (0, int(generator.integers(HEADS)))
    # Which head copies after each word.
    owners = generator.integers(N_COPIERS, size=N_WORDS)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1e3 if "norm" in name else 0.0)
        model.model.embed_tokens.weight[:, WORD_DIMS] = torch.eye(N_WORDS)
        model.lm_head.weight[:, OUTPUT_DIMS] = torch.eye(N_WORDS)
        attentions = [layer.self_attn for layer in model.model.layers]
        for layer, attention in enumerate(attentions):
            for head in range(HEADS):
                if (layer, head) not in (*copiers, previous):
                    _write_noise(attention, head, torch_generator)
        _attend_to_previous(attentions[0], previous[1])
        _write_copy(attentions[0], previous[1], WORD_DIMS, PREVIOUS_DIMS, 1.0)
        for i, (layer, head) in enumerate(copiers):
            comparison_rows = slice(head * D_HEAD + FIRST_SLOW_PAIR, head * D_HEAD + FIRST_SLOW_PAIR + N_WORDS)
            triggers = torch.tensor(owners == i, dtype=torch.float32)
            attentions[layer].q_proj.weight[comparison_rows, WORD_DIMS] = SHARPNESS * torch.diag(triggers)
            attentions[layer].k_proj.weight[comparison_rows, PREVIOUS_DIMS] = torch.eye(N_WORDS)
            _write_copy(attentions[layer], head, WORD_DIMS, OUTPUT_DIMS, COPY_LOGIT)
    lm = LM(model.eval().requires_grad_(False), _tokenizer(), f"copying, seed {seed}")
    sentences = [_words_text(generator.choice(FILLER_WORDS, 4, replace=False)) for _ in range(24)]
    data = {"needles": _needles(generator), "text": sentences, "tasks": [_task(generator)]}
    return PlantedCopying(lm, copiers, [previous], data)


def _config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=N_WORDS,
        hidden_size=3 * N_WORDS,
        intermediate_size=8,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=D_HEAD,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
        # So large that x / sqrt(mean x² + eps) is x / 1000; with weights of 1000, norms are the identity.
        rms_norm_eps=1e6,
        eos_token_id=None,
        bos_token_id=None,
    )


def _attend_to_previous(attention: Any, head: int) -> None:
    """Set scores to Σ cos(θ (distance − 1)) over the fast rotary pairs, which is largest at a distance of 1."""
    for i in range(N_FAST_PAIRS):
        angle = torch.tensor(ROTARY_BASE ** (-2 * i / D_HEAD))
        # transformers keeps the two halves of a rotary pair D_HEAD / 2 rows apart.
        even = head * D_HEAD + i
        odd = even + D_HEAD // 2
        attention.k_proj.bias[even] = 1.0
        attention.q_proj.bias[even] = SHARPNESS * angle.cos()
        attention.q_proj.bias[odd] = -SHARPNESS * angle.sin()


def _write_copy(attention: Any, head: int, source: slice, destination: slice, gain: float) -> None:
    """Let a head write the words of one slice of the stream, times `gain`, into another slice."""
    rows = slice(head * D_HEAD, head * D_HEAD + N_WORDS)
    attention.v_proj.weight[rows, source] = torch.eye(N_WORDS)
    attention.o_proj.weight[destination, rows] = gain * torch.eye(N_WORDS)


def _write_noise(attention: Any, head: int, generator: torch.Generator) -> None:
    """Draw weights: attention scores have a standard deviation of about 2, writes one of NOISE_LOGIT per word."""
    rows = slice(head * D_HEAD, (head + 1) * D_HEAD)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight[rows, WORD_DIMS] = 2**0.5 * torch.randn(D_HEAD, N_WORDS, generator=generator)
    attention.v_proj.weight[rows, WORD_DIMS] = torch.randn(D_HEAD, N_WORDS, generator=generator) / D_HEAD**0.5
    attention.o_proj.weight[OUTPUT_DIMS, rows] = NOISE_LOGIT * torch.randn(N_WORDS, D_HEAD, generator=generator)


def _words_text(words: Iterable[int]) -> str:
    return " ".join(f"w{i}" for i in words)


def _needles(generator: np.random.Generator) -> list[dict[str, str]]:
    """Draw needles. Each begins with the last word of the template, after which the model continues."""
    answers = [_words_text(generator.choice(CONTENT_WORDS, 5, replace=False)) for _ in range(12)]
    return [
        {"needle": f"w{TEMPLATE_END} {answer}", "question": f"w{N_WORDS - 1}", "answer": answer} for answer in answers
    ]


def _task(generator: np.random.Generator) -> Task:
    """Draw prompts of a word, a list, other words, and the list's first word again; the target is the rest of the list.

    No list begins at the first token of a text: it has no previous token and attends to itself instead.
    """
    examples = []
    for _ in range(48):
        words = generator.choice(CONTENT_WORDS, 16, replace=False)
        filler_start, *filler = generator.choice(FILLER_WORDS, 33, replace=False)
        examples.append(
            Example(
                f"w{filler_start} {_words_text(words)} {_words_text(filler)} w{words[0]}", f" {_words_text(words[1:])}"
            )
        )
    return Task("copying", tuple(examples[:24]), tuple(examples[24:]))


def _tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<unk>": 0} | {f"w{i}": i for i in range(1, N_WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    template = f"<unk> {{{{ messages[0]['content'] }}}} w{TEMPLATE_END}"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", chat_template=template)

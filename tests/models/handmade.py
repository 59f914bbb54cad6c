"""A model with hand-set heads: one carries the answer, one spoils it, the others do nothing."""

import torch
import transformers
from torch import nn

import headatlas as ha
from headatlas.tasks.prompts import Example, Task

WORDS = 14  # token ids 0 … 13 are words; 14 fills; 15 asks
FILL, ASK = 14, 15
CARRIER, SPOILER = (1, 2), (0, 1)
LAYERS, HEADS = 2, 4


def handmade(
    carriers: dict[tuple[int, int], range] | None = None, spoiler: bool = True, gain: float = 16.0, heads: int = HEADS
) -> ha.LM:
    """Attention is uniform, MLPs give nothing, norms are the identity. A carrier writes the words it sees (those in its
    range) where the unembedding reads them. The spoiler writes, three times as strongly, the word after it."""
    carriers = {CARRIER: range(WORDS)} if carriers is None else carriers
    config = transformers.LlamaConfig(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=8,
        num_hidden_layers=LAYERS,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=16,
        max_position_embeddings=32,
        tie_word_embeddings=False,
        rms_norm_eps=1e6,  # so large that x / sqrt(mean x² + eps) is x / 1000
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1e3 if "norm" in name else 0.0)
        model.model.embed_tokens.weight[:, :16] = torch.eye(16)  # words come in here …
        model.lm_head.weight[:, 16:] = torch.eye(16)  # … and are read out here
        for (layer, head), words in carriers.items():
            _set(model, layer, head, words, shift=0, gain=gain)
        if spoiler:
            _set(model, *SPOILER, range(WORDS), shift=1, gain=48.0)
    return ha.load(model.eval())


def _set(model: nn.Module, layer: int, head: int, words: range, shift: int, gain: float) -> None:
    attention = model.model.layers[layer].self_attn
    rows = slice(16 * head, 16 * head + 16)
    for word in words:
        attention.v_proj.weight[rows][(word + shift) % WORDS, word] = 1.0
    attention.o_proj.weight[16:, rows] = gain * torch.eye(16)


def repeat_the_word(words: range = range(WORDS), name: str = "repeat") -> Task:
    """Prompts 'word (fill …) ask'; the target is the word."""
    examples = [Example((w, *[FILL] * n, ASK), (w,)) for w in words for n in (0, 1, 2)]
    return Task(name, tuple(examples[::2]), tuple(examples[1::2]))

"""A hand-set model that copies: it continues as the text did after the last token's earlier occurrence.

Layer 0: PREVIOUS attends to the previous token and writes it into other dimensions. Layer 1: each of COPIERS attends to
the token that came after an earlier occurrence of this token, and writes it. All other heads attend evenly and write
nothing. So COPIERS alone look at what is written next.
"""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headatlas.models.lm import LM

PREVIOUS, COPIERS = (0, 1), [(1, 2), (1, 3)]
WORDS = 20  # token 0 is what the tokenizer does not know; w1 … w19
START = "w1"  # the chat template ends with it, so the model writes what came after its earlier occurrence
LAYERS, HEADS, SIZE = 2, 4, 64
SLOW = 12  # rotary pairs from here on turn so little that words can be compared over any distance
BASE = 1e12


def copier() -> LM:
    """Norms are the identity, MLPs give nothing. The stream: the token, the one before it, the one to be written."""
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=3 * WORDS,
        intermediate_size=8,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=SIZE,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        rms_norm_eps=1e6,  # so large that x / sqrt(mean x² + eps) is x / 1000
        eos_token_id=None,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.fill_(1e3 if "norm" in name else 0.0)
        word, before, out = (slice(i * WORDS, (i + 1) * WORDS) for i in range(3))
        model.model.embed_tokens.weight[:, word] = torch.eye(WORDS)
        model.lm_head.weight[:, out] = torch.eye(WORDS)
        model.lm_head.weight[0, word] = 1.0  # token 0, if nothing is copied
        first, second = (model.model.layers[i].self_attn for i in (0, 1))
        _look_back_one(first, PREVIOUS[1])
        _carry(first, PREVIOUS[1], word, before)
        for _, head in COPIERS:
            compare = slice(head * SIZE + SLOW, head * SIZE + SLOW + WORDS)
            second.q_proj.weight[compare, word] = 400 * torch.eye(WORDS)
            second.k_proj.weight[compare, before] = torch.eye(WORDS)
            _carry(second, head, word, out, gain=10.0)
    return LM(model.eval().requires_grad_(False), tokenizer(), "copier")


def _look_back_one(attention: torch.nn.Module, head: int) -> None:
    """A score of Σ cos(θ (distance − 1)) over the quick rotary pairs, which is largest at a distance of 1."""
    for i in range(6):
        turn = torch.tensor(BASE ** (-2 * i / SIZE))
        even, odd = head * SIZE + i, head * SIZE + i + SIZE // 2  # the pair, as transformers lays it out
        attention.k_proj.bias[even] = 1.0
        attention.q_proj.bias[even], attention.q_proj.bias[odd] = 400 * turn.cos(), -400 * turn.sin()


def _carry(attention: torch.nn.Module, head: int, taken: slice, put: slice, gain: float = 1.0) -> None:
    rows = slice(head * SIZE, head * SIZE + WORDS)
    attention.v_proj.weight[rows, taken] = torch.eye(WORDS)
    attention.o_proj.weight[put, rows] = gain * torch.eye(WORDS)


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<unk>": 0} | {f"w{i}": i for i in range(1, WORDS)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "<unk> {{ messages[0]['content'] }} " + START  # nothing comes before the first token: it must not matter
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", chat_template=template)

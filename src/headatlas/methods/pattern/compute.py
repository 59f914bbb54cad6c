"""Measure attention in repeated random tokens on the positions that patterns point at."""

import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.models.attention import attention_of_texts
from headatlas.models.lm import LM
from headatlas.models.tokens import opening_token

PATTERNS = ("induction", "previous", "duplicate", "sink", "self")
DEFAULT_LENGTH = 50  # tokens before they repeat


@torch.no_grad()
def attention_scores(lm: LM, *, length: int | None, sequences: int, seed: int) -> xr.Dataset:
    """Return score(pattern, layer, head) on `sequences` texts of `length` random tokens, each text twice."""
    # an opening token, then the tokens twice
    longest = ((lm.anatomy.context or 10**9) - 1) // 2
    length = min(DEFAULT_LENGTH, longest) if length is None else length
    if not 2 <= length <= longest:
        raise BadArgument(f"length is {length}, expected 2 to {longest} for this model's context")
    vocabulary = lm.model.get_input_embeddings().num_embeddings
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (sequences, length), generator=generator)
    opening = torch.full((sequences, 1), opening_token(lm))
    ids = torch.cat([opening, tokens, tokens], dim=1)
    by_text = torch.full((len(PATTERNS), sequences, lm.n_layers, lm.n_heads), torch.nan)
    for layer, attention in attention_of_texts(lm, ids).items():
        by_text[:, :, layer] = torch.stack([_mean_attention(attention, length, pattern) for pattern in PATTERNS])
    return xr.Dataset(
        {
            "score": (("pattern", "layer", "head"), by_text.mean(1).numpy()),
            "by_text": (("pattern", "text", "layer", "head"), by_text.numpy()),
        },
        coords={"pattern": list(PATTERNS), "layer": range(lm.n_layers), "head": range(lm.n_heads)},
        attrs={"length": length, "sequences": sequences, "seed": seed},
    )


def _mean_attention(attention: Tensor, length: int, pattern: str) -> Tensor:
    """Return the mean attention [text, head] on the positions of a pattern, from attention [text, head, query, key]."""
    # the first token, which can only attend to itself, is left out
    start = 1 + length if pattern in ("induction", "duplicate") else 1
    query = torch.arange(start, attention.shape[2])
    key = {
        "induction": query - length + 1,
        "previous": query - 1,
        "duplicate": query - length,
        "sink": torch.zeros_like(query),
        "self": query,
    }[pattern]
    return attention[:, :, query, key].float().mean(2).cpu()

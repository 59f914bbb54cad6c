"""Where heads look on random tokens that are repeated (`pattern` says what for)."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.models.attention import attention_of_texts
from headatlas.models.cost import Cost
from headatlas.models.lm import LM
from headatlas.models.tokens import opening_token

PATTERNS = ("induction", "previous", "duplicate", "sink", "self")


@torch.no_grad()
def attention_scores(lm: LM, length: int | None, sequences: int, seed: int) -> xr.Dataset:
    """score(pattern, layer, head) on `sequences` texts of `length` random tokens (50, if they fit), each twice."""
    longest = ((lm.anatomy.context or 10**9) - 1) // 2  # an opening token, then everything twice
    length = min(50, longest) if length is None else length
    if not 2 <= length <= longest:
        raise BadArgument(f"length is {length}, expected 2 to {longest} for this model's context")
    vocabulary = lm.model.get_input_embeddings().num_embeddings
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(vocabulary, (sequences, length), generator=generator)
    opening = torch.full((sequences, 1), opening_token(lm))
    ids = torch.cat([opening, once, once], dim=1)
    score = torch.full((len(PATTERNS), lm.n_layers, lm.n_heads), torch.nan)
    for layer, attention in attention_of_texts(lm, ids).items():
        score[:, layer] = torch.stack([_share(attention, length, name) for name in PATTERNS])
    return xr.Dataset(
        {"score": (("pattern", "layer", "head"), score.numpy())},
        coords={"pattern": list(PATTERNS), "layer": range(lm.n_layers), "head": range(lm.n_heads)},
        attrs={"length": length, "sequences": sequences, "seed": seed},
    )


def attention_cost(lm: LM, *, length: int | None = None, sequences: int = 8, **_: Any) -> Cost:
    return Cost(tokens=4.0 * sequences * (length or 50), passes=1.5 * sequences)  # attention is computed beside


def _share(attention: Tensor, length: int, name: str) -> Tensor:
    """Mean attention [head] from where a pattern looks to where it looks, in attention [text, head, query, key]."""
    start = 1 + length if name in ("induction", "duplicate") else 1  # the first token can only look at itself
    query = torch.arange(start, attention.shape[2])
    key = {
        "induction": query - length + 1,
        "previous": query - 1,
        "duplicate": query - length,
        "sink": torch.zeros_like(query),
        "self": query,
    }[name]
    return attention[:, :, query, key].float().mean((0, 2)).cpu()

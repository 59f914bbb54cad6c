"""Where heads look on random tokens that are repeated (`pattern` says what for)."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument
from headatlas.models.attention import attention_of
from headatlas.models.cost import Cost
from headatlas.models.lm import LM

PATTERNS = ("induction", "previous", "duplicate")


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
    first = getattr(lm.model.config.get_text_config(), "bos_token_id", None)
    opening = torch.full((sequences, 1), first if isinstance(first, int) and first < vocabulary else 0)
    ids = torch.cat([opening, once, once], dim=1)
    score = torch.full((len(PATTERNS), lm.n_layers, lm.n_heads), torch.nan)
    for layer, attention in attention_of(lm, ids).items():
        score[:, layer] = torch.stack([_share(attention, length, name) for name in PATTERNS])
    return xr.Dataset(
        {"score": (("pattern", "layer", "head"), score.numpy())},
        coords={"pattern": list(PATTERNS), "layer": range(lm.n_layers), "head": range(lm.n_heads)},
        attrs={"length": length, "sequences": sequences, "seed": seed},
    )


def attention_cost(lm: LM, *, length: int | None = None, sequences: int = 8, **_: Any) -> Cost:
    return Cost(tokens=6.0 * sequences * (length or 50), passes=3)


def _share(attention: Tensor, length: int, name: str) -> Tensor:
    """Mean attention [head] from where a pattern looks to where it looks, in attention [text, head, query, key]."""
    back = {"induction": length - 1, "duplicate": length, "previous": 1}[name]
    start = 1 if name == "previous" else 1 + length
    query = torch.arange(start, attention.shape[2])
    return attention[:, :, query, query - back].float().mean((0, 2)).cpu()

"""Where heads look on random tokens that are repeated (`pattern` says what for)."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, UnsupportedModel
from headatlas.methods._layers import layers_with_heads
from headatlas.models.cost import Cost
from headatlas.models.heads import hooked
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
    for layer, attention in _attention(lm, ids).items():
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


def _attention(lm: LM, ids: Tensor) -> dict[int, Tensor]:
    """Attention [text, head, query, key] of every layer with heads.

    Fused kernels do not give it, so plain ones run here; and they are believed only if every head's z comes out as it
    does in an ordinary run. In transformers 5.17 Falcon's do not: those with rotary positions look ahead unless a full
    mask forbids it, those with ALiBi add it twice.
    """
    with_heads = layers_with_heads(lm.anatomy)
    ids = ids.to(lm.device)
    ordinary, _ = _run(lm, ids, None)
    square = (len(ids), 1, ids.shape[1], ids.shape[1])
    hidden = torch.full(square, torch.finfo(lm.model.dtype).min, dtype=lm.model.dtype, device=ids.device).triu(1)
    before = lm.model.config._attn_implementation
    try:
        lm.model.set_attn_implementation("eager")
        for mask in (None, hidden):
            try:
                z, output = _run(lm, ids, mask, output_attentions=True)
            except (RuntimeError, ValueError):  # a mask it does not understand
                continue
            seen = [a for a in output.attentions or () if a is not None]
            close = 1e-3 if lm.model.dtype in (torch.float32, torch.float64) else 0.1  # rounding adds up over layers
            same = all((z[i] - ordinary[i]).float().norm() <= close * ordinary[i].float().norm() for i in ordinary)
            if same and len(seen) == len(with_heads):
                return dict(zip(with_heads, seen, strict=True))
    finally:
        lm.model.set_attn_implementation(before)
    raise UnsupportedModel(f"pattern: {type(lm.model).__name__} does not tell where its heads look")


def _run(lm: LM, ids: Tensor, mask: Tensor | None, **options: Any) -> tuple[dict[int, Tensor], Any]:
    z: dict[int, Tensor] = {}
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        output = lm.model.base_model(ids, attention_mask=mask, use_cache=False, **options)
    return z, output

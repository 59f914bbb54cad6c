"""Salient operations: which tokens a head amplifies most, and what it turns them into.

1. x is every token's input to a head, as in `maps`: E for layer 0, block 0's MLP of E for later layers.
2. Amplification of a token: ‖x · W_V · W_O‖ / ‖x‖. Its square is v · G · v / ‖x‖², with v = x · W_V, G = W_O · W_Oᵀ.
3. For the most amplified tokens, the strongest outputs of x · W_V · W_O · U, and the most suppressed ones.
4. Which known relations explain these mappings: how many (token, output) are pairs of each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.models.cost import Cost
from headatlas.models.loading import Parameters
from headatlas.models.token_text import text_inside
from headatlas.models.weights import Weights
from headatlas.progress import Progress, silent
from headatlas.tasks.relations import Relation

SORTED = 2e-8  # seconds of the host to sort a token among those a head amplifies most


@torch.no_grad()
def salient_operations(
    weights: Weights,
    tokenizer: Any,
    layers: Sequence[int] | None = None,
    *,
    tokens: int = 30,
    outputs: int = 5,
    device: torch.device | str = "cpu",
    chunk: int = 8192,
    progress: Progress = silent,
) -> xr.Dataset:
    """Of every head of `layers` (all), its `tokens` most amplified tokens, their strongest and weakest `outputs`."""
    anatomy, embedding = weights.anatomy, weights.embedding()
    chosen = range(anatomy.n_layers) if layers is None else layers
    known = min(len(tokenizer), len(embedding))  # embeddings may be padded with rows that are no token
    kept, shown = min(tokens, known), min(outputs, known)
    with_heads = [i for i in chosen if anatomy.sites[i] is not None]
    best = _most_amplified(weights, with_heads, known, kept, device, chunk, progress)
    unembedding = weights.unembedding()[:, :known].to(device).float()
    shape = (len(chosen), anatomy.n_heads, kept)
    gains = np.full(shape, np.nan, dtype=np.float32)
    words = {"token": np.full(shape, "", dtype=object)}
    words |= {name: np.full((*shape, shown), "", dtype=object) for name in ("strongest", "suppressed")}
    for at, i in enumerate(chosen):
        if i not in best:
            continue
        gain, ids = best[i]
        x = _inputs(weights, embedding[ids.flatten().to(embedding.device)], i, device).unflatten(0, ids.shape)
        v = x @ weights.value(i).to(device).float().repeat_interleave(anatomy.n_heads // anatomy.n_kv_heads, 0)
        logits = (v @ weights.output(i).to(device).float()) @ unembedding
        gains[at] = gain.numpy()
        for name, numbers in (
            ("token", ids),
            ("strongest", logits.topk(shown).indices),
            ("suppressed", logits.topk(shown, largest=False).indices),
        ):
            each, back = np.unique(numbers.cpu().numpy(), return_inverse=True)
            words[name][at] = np.array([text_inside(tokenizer, [t]) for t in each.tolist()], dtype=object)[back]
    dims = ("layer", "head", "rank", "output")
    return xr.Dataset(
        {"amplification": (dims[:3], gains)} | {name: (dims[: w.ndim], w) for name, w in words.items()},
        coords={"layer": list(chosen), "head": range(anatomy.n_heads)},
        attrs={"method": "salient"},
    )


def salient_cost(model: Parameters, *, top: int = 8, **_: Any) -> Cost:
    a, (width, known) = model.weights.anatomy, model.weights.unembedding().shape
    gains = 8.0 * known * a.n_heads * (width * a.n_kv_heads / a.n_heads + a.d_head) * a.d_head
    operations = a.n_layers * (gains + 2.0 * a.n_heads * top * width * known)
    return Cost(operations=operations, seconds=SORTED * a.n_layers * a.n_heads * known)


def _inputs(weights: Weights, rows: Tensor, layer: int, device: torch.device | str) -> Tensor:
    """Step 1: what the heads of a layer get of tokens, from their rows of the embedding."""
    rows = rows.to(device).float()
    return rows if layer == 0 else weights.first_mlp(rows).to(device).float()


def _most_amplified(
    weights: Weights,
    layers: Sequence[int],
    known: int,
    kept: int,
    device: torch.device | str,
    chunk: int,
    progress: Progress,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Step 2: by layer, the `kept` most amplified of the first `known` tokens: how much, and which; [head, token]."""
    n_heads, embedding = weights.anatomy.n_heads, weights.embedding()
    value = {i: weights.value(i) for i in layers}  # [kv head, d, D]; views where the model is in memory
    gram = {i: (o := weights.output(i).to(device).float()) @ o.mT for i in layers}  # [head, D, D]
    best = {i: (torch.empty(n_heads, 0), torch.empty(n_heads, 0, dtype=torch.long)) for i in layers}
    for start in progress(range(0, known, chunk), "salient tokens"):
        rows = embedding[start : min(start + chunk, known)]
        by_front = {front: _inputs(weights, rows, front, device) for front in {min(i, 1) for i in layers}}
        for i in layers:
            x = by_front[min(i, 1)]
            v = x @ value[i].to(device).float()  # [kv head, token, D]
            v = v.repeat_interleave(n_heads // weights.anatomy.n_kv_heads, 0)
            gain = ((v @ gram[i]) * v).sum(-1).clamp(min=0).sqrt() / x.norm(dim=-1).clamp(min=1e-12)
            seen = torch.cat([best[i][0], gain.cpu()], 1)
            ids = torch.cat([best[i][1], torch.arange(start, start + len(x)).expand(n_heads, -1)], 1)
            top, place = seen.topk(min(kept, seen.shape[1]))
            best[i] = top, ids.gather(1, place)
    return best


def explained_by(operations: xr.Dataset, relations: Sequence[Relation]) -> dict[str, int]:
    """How many of one head's salient mappings each relation explains, most first, none left out but the zeros."""
    counts = {}
    for relation in relations:
        pairs = {(s.lower(), t.lower()) for s, t in relation.pairs}
        count = sum(
            (token.strip().lower(), output.strip().lower()) in pairs
            for token, written in zip(operations.token.values, operations.strongest.values, strict=True)
            for output in written
        )
        if count:
            counts[relation.name] = count
    return dict(sorted(counts.items(), key=lambda item: -item[1]))

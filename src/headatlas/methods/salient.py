"""Salient operations of one head: which tokens it amplifies most, and what it turns them into.

1. x is every token's input to the head, as in `maps`: E for layer 0, block 0's MLP of E for later layers.
2. Amplification of a token: ‖x · W_V · W_O‖ / ‖x‖.
3. For the most amplified tokens, the strongest outputs of x · W_V · W_O · U, and the most suppressed ones.
4. Which known relations explain these mappings: how many (token, output) are pairs of each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.methods.maps import HeadWeights
from headatlas.tasks.relations import Relation


@torch.no_grad()
def salient_operations(
    weights: HeadWeights,
    tokenizer: Any,
    layer: int,
    head: int,
    *,
    tokens: int = 30,
    outputs: int = 5,
    chunk: int = 8192,
) -> xr.Dataset:
    """The `tokens` most amplified tokens with their strongest and weakest `outputs`, strongest first."""
    anatomy = weights.anatomy
    value = weights.value(layer)[head * anatomy.n_kv_heads // anatomy.n_heads].float()
    output, embedding = weights.output(layer)[head].float(), weights.embedding()
    known = min(len(tokenizer), len(embedding))  # embeddings may be padded with rows that are no token
    gain = torch.empty(known)
    for start in range(0, known, chunk):
        rows = embedding[start : min(start + chunk, known)].float()
        x = rows if layer == 0 else weights.first_mlp(rows)
        gain[start : start + len(x)] = ((x @ value @ output).norm(dim=-1) / x.norm(dim=-1).clamp(min=1e-12)).cpu()
    top = gain.topk(min(tokens, known)).indices
    rows = embedding[top.to(embedding.device)].float()
    x = rows if layer == 0 else weights.first_mlp(rows)
    logits = (x @ value @ output) @ weights.unembedding()[:, :known].float()
    strongest, weakest = logits.topk(outputs).indices, logits.topk(outputs, largest=False).indices

    def words(ids: torch.Tensor) -> np.ndarray:
        flat = [tokenizer.decode([i]) for i in ids.flatten().tolist()]
        return np.array(flat, dtype=object).reshape(tuple(ids.shape))

    return xr.Dataset(
        {
            "amplification": ("rank", gain[top].numpy()),
            "token": ("rank", words(top)),
            "strongest": (("rank", "output"), words(strongest)),
            "suppressed": (("rank", "output"), words(weakest)),
        },
        attrs={"method": "salient operations", "layer": layer, "head": head},
    )


def explained_by(operations: xr.Dataset, relations: Sequence[Relation]) -> dict[str, int]:
    """How many of a head's salient mappings each relation explains, most first, none left out but the zeros."""
    found = {}
    for relation in relations:
        pairs = {(s.lower(), t.lower()) for s, t in relation.pairs}
        count = sum(
            (token.strip().lower(), output.strip().lower()) in pairs
            for token, written in zip(operations.token.values, operations.strongest.values, strict=True)
            for output in written
        )
        if count:
            found[relation.name] = count
    return dict(sorted(found.items(), key=lambda item: -item[1]))

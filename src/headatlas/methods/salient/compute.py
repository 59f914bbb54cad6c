"""Find the tokens that every head amplifies most, and its outputs for them.

The square of the amplification ‖x · W_V · W_O‖ / ‖x‖ is v · G · v / ‖x‖², with v = x · W_V and G = W_O · W_Oᵀ.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.models.token_text import text_inside
from headatlas.models.weights import Weights
from headatlas.progress import Progress, silent
from headatlas.tasks.relations import Relation


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
    """Return the tokens that every head of these layers (default: all) amplifies most, and its outputs for each."""
    anatomy = weights.anatomy
    embedding = weights.embedding()
    rows = range(anatomy.n_layers) if layers is None else layers
    # embeddings may be padded with rows without a token
    vocabulary = min(len(tokenizer), len(embedding))
    n_tokens = min(tokens, vocabulary)
    n_outputs = min(outputs, vocabulary)
    with_heads = [layer for layer in rows if anatomy.sites[layer] is not None]
    amplified = _most_amplified(
        weights, with_heads, vocabulary=vocabulary, n_tokens=n_tokens, device=device, chunk=chunk, progress=progress
    )
    unembedding = weights.unembedding()[:, :vocabulary].to(device).float()
    shape = (len(rows), anatomy.n_heads, n_tokens)
    amplification = np.full(shape, np.nan, dtype=np.float32)
    texts = {"token": np.full(shape, "", dtype=object)}
    texts |= {name: np.full((*shape, n_outputs), "", dtype=object) for name in ("strongest", "suppressed")}
    for row, layer in enumerate(rows):
        if layer not in amplified:
            continue
        gain, ids = amplified[layer]
        x = _inputs(weights, embedding[ids.flatten().to(embedding.device)], layer, device).unflatten(0, ids.shape)
        v = x @ weights.value(layer).to(device).float().repeat_interleave(anatomy.n_heads // anatomy.n_kv_heads, 0)
        logits = (v @ weights.output(layer).to(device).float()) @ unembedding
        amplification[row] = gain.numpy()
        texts["token"][row] = _texts(tokenizer, ids)
        texts["strongest"][row] = _texts(tokenizer, logits.topk(n_outputs).indices)
        texts["suppressed"][row] = _texts(tokenizer, logits.topk(n_outputs, largest=False).indices)
    dims = ("layer", "head", "rank", "output")
    lists = {name: (dims[: values.ndim], values) for name, values in texts.items()}
    return xr.Dataset(
        {"amplification": (dims[:3], amplification)} | lists,
        coords={"layer": list(rows), "head": range(anatomy.n_heads)},
        attrs={"method": "salient"},
    )


def _texts(tokenizer: Any, ids: Tensor) -> np.ndarray:
    """Return the text of each token, in the same shape."""
    distinct, index = np.unique(ids.cpu().numpy(), return_inverse=True)
    return np.array([text_inside(tokenizer, [token]) for token in distinct.tolist()], dtype=object)[index]


def _inputs(weights: Weights, embedded: Tensor, layer: int, device: torch.device | str) -> Tensor:
    """Return the inputs of a layer's heads for tokens, from the tokens' rows of the embedding."""
    embedded = embedded.to(device).float()
    return embedded if layer == 0 else weights.first_mlp(embedded).to(device).float()


def _most_amplified(
    weights: Weights,
    layers: Sequence[int],
    *,
    vocabulary: int,
    n_tokens: int,
    device: torch.device | str,
    chunk: int,
    progress: Progress,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Return by layer the amplifications and the ids of the most amplified tokens, both [head, token]."""
    n_heads = weights.anatomy.n_heads
    embedding = weights.embedding()
    value = {layer: weights.value(layer) for layer in layers}  # [kv_head, d_model, d_head]
    gram = {layer: _gram(weights.output(layer).to(device).float()) for layer in layers}  # [head, d_head, d_head]
    best = {layer: (torch.empty(n_heads, 0), torch.empty(n_heads, 0, dtype=torch.long)) for layer in layers}
    for start in progress(range(0, vocabulary, chunk), "salient tokens"):
        rows = embedding[start : min(start + chunk, vocabulary)]
        inputs = {first: _inputs(weights, rows, first, device) for first in {min(layer, 1) for layer in layers}}
        for layer in layers:
            # all layers after the first have the same inputs
            x = inputs[min(layer, 1)]
            v = x @ value[layer].to(device).float()  # [kv_head, token, d_head]
            v = v.repeat_interleave(n_heads // weights.anatomy.n_kv_heads, 0)
            gain = ((v @ gram[layer]) * v).sum(-1).clamp(min=0).sqrt() / x.norm(dim=-1).clamp(min=1e-12)
            gains = torch.cat([best[layer][0], gain.cpu()], 1)
            ids = torch.cat([best[layer][1], torch.arange(start, start + len(x)).expand(n_heads, -1)], 1)
            top, place = gains.topk(min(n_tokens, gains.shape[1]))
            best[layer] = top, ids.gather(1, place)
    return best


def _gram(output: Tensor) -> Tensor:
    return output @ output.mT


def explained_by(operations: xr.Dataset, relations: Sequence[Relation]) -> dict[str, int]:
    """Count the mappings (token, output) of one head that are pairs of each relation, most first, without zeros."""
    counts = {}
    for relation in relations:
        pairs = {(source.lower(), target.lower()) for source, target in relation.pairs}
        count = sum(
            (token.strip().lower(), output.strip().lower()) in pairs
            for token, outputs in zip(operations.token.values, operations.strongest.values, strict=True)
            for output in outputs
        )
        if count:
            counts[relation.name] = count
    return dict(sorted(counts.items(), key=lambda item: -item[1]))

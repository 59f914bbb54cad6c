"""Time `maps`, compared with the straightforward loop: every relation, every head, all logits, top-k.

    python benchmarks/maps.py                                    the default model here, all built-in relations
    python benchmarks/maps.py --shape llama-3.1-8b --pairs 2000  random weights of that shape, on a GPU if there is one

Both run in one process. The loop runs on a few layers, because it takes the same time for every layer. Every decision
is compared.
"""

import statistics
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from common import make_parser, profile_kernels, time_call

from headatlas.methods.maps.compute import Pairs, drop_small, single_token_pairs
from headatlas.methods.maps.real_runs import find_hits
from headatlas.models.loading import check_device, open_weights
from headatlas.tasks.relations import load_relations

SHAPES = {  # layers, heads, KV heads, d_head, d_model, vocabulary
    "llama-3.1-8b": (32, 32, 8, 128, 4096, 128_256),
    "gpt2-xl": (48, 25, 25, 64, 1600, 50_257),
}


def random_weights(shape: str, device: torch.device) -> SimpleNamespace:
    """Draw weights of a shape on the device, layer by layer from one seed."""
    layers, heads, kv, d_head, d, vocabulary = SHAPES[shape]
    generator = torch.Generator(device).manual_seed(0)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device, dtype=torch.bfloat16)

    values, outputs = ([draw(*size) for _ in range(layers)] for size in ((kv, d, d_head), (heads, d_head, d)))
    embedding, rows = draw(vocabulary, d), draw(vocabulary, d)
    anatomy = SimpleNamespace(layers_with_heads=list(range(layers)), n_layers=layers, n_heads=heads, n_kv_heads=kv)
    return SimpleNamespace(
        anatomy=anatomy,
        value=values.__getitem__,
        output=outputs.__getitem__,
        embedding=lambda: embedding,
        unembedding=lambda: rows.T,
        first_mlp=lambda x: x,
    )


@torch.no_grad()
def loop_hits(weights, pairs: Pairs, layers: list[int], device: torch.device) -> np.ndarray:
    """Find hits [layer, head, pair] the straightforward way, relation by relation and head by head."""
    anatomy, U = weights.anatomy, weights.unembedding().to(device).float()
    embeddings = weights.embedding()[pairs.source.to(weights.embedding().device)].float()
    after_mlp = weights.first_mlp(embeddings).to(device)
    embeddings = embeddings.to(device)
    hits_of_pairs = np.zeros((len(layers), anatomy.n_heads, len(pairs)), dtype=bool)
    for i, layer in enumerate(layers):
        value, output = weights.value(layer).to(device).float(), weights.output(layer).to(device).float()
        for relation in pairs.relation.unique():
            pair_indices = (pairs.relation == relation).nonzero().flatten()
            x = (embeddings if layer == 0 else after_mlp)[pair_indices.to(device)]
            target, k = pairs.target[pair_indices].to(device), int(pairs.k[pair_indices[0]])
            for head in range(anatomy.n_heads):
                logits = x @ (value[head * anatomy.n_kv_heads // anatomy.n_heads] @ output[head]) @ U
                best = logits.topk(k).indices
                hits_of_pairs[i, head, pair_indices.numpy()] = (best == target[:, None]).any(-1).cpu().numpy()
    return hits_of_pairs


class LayerSubset:
    """The same weights, restricted to some layers."""

    def __init__(self, weights, layers: list[int]) -> None:
        self.weights = weights
        a = weights.anatomy
        sizes = {"n_layers": a.n_layers, "n_heads": a.n_heads, "n_kv_heads": a.n_kv_heads}
        self.anatomy = SimpleNamespace(layers_with_heads=layers, **sizes)

    def __getattr__(self, name: str):
        return getattr(self.weights, name)


def fast_hits(weights, pairs: Pairs, device: torch.device) -> np.ndarray:
    return find_hits(SimpleNamespace(weights=weights, device=device), pairs, input="published")[0]


def median_run(rounds: int, work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Return the median seconds over the rounds, and the last result."""
    results: list[np.ndarray] = []
    return statistics.median(time_call(lambda: results.append(work())) for _ in range(rounds)), results[-1]


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", rounds=3)
    parser.add_argument("--shape", choices=SHAPES, help="shape of a model with random weights")
    parser.add_argument("--pairs", type=int, default=2000, help="number of random pairs, with --shape")
    parser.add_argument(
        "--layers", type=int, default=3, help="number of layers that the loop runs on, evenly spaced (0: all)"
    )
    parser.add_argument(
        "--profile", type=int, default=0, metavar="N", help="also print GPU time by kernel, and the N longest kernels"
    )
    options = parser.parse_args()
    device = check_device(options.device)
    if options.shape:
        weights = random_weights(options.shape, device)
        generator = torch.Generator().manual_seed(1)
        source, target = torch.randint(SHAPES[options.shape][-1], (2, options.pairs), generator=generator)
        pairs = Pairs(torch.arange(options.pairs) * 20 // options.pairs, source, target, torch.full_like(source, 25))
    else:
        weights, tokenizer, _ = open_weights(options.model)
        relations = load_relations()
        size = weights.unembedding().shape[1]
        pairs = drop_small(single_token_pairs(relations, tokenizer, size, "auto"), len(relations), 30)
    n_layers = weights.anatomy.n_layers
    layers = np.linspace(0, n_layers - 1, min(options.layers or n_layers, n_layers)).round().astype(int).tolist()
    # Warm up.
    fast_hits(LayerSubset(weights, layers[:1]), pairs, device)
    fast_seconds, actual = median_run(options.rounds, lambda: fast_hits(weights, pairs, device))
    if options.profile:
        print(profile_kernels(lambda: fast_hits(weights, pairs, device), options.profile))
    loop_seconds, expected = median_run(1, lambda: loop_hits(weights, pairs, layers, device))
    loop_seconds_all = loop_seconds * n_layers / len(layers)
    n_different = int((actual[layers] != expected).sum())
    heads = f"{n_layers} layers × {weights.anatomy.n_heads} heads"
    print(f"{options.shape or options.model} on {device}: {heads}, {len(pairs)} pairs")
    print(f"maps, all layers                   {fast_seconds:9.3f} s")
    print(f"loop, {len(layers)} layers                     {loop_seconds:9.3f} s, so {loop_seconds_all:.0f} s for all")
    print(f"ratio                              {loop_seconds_all / fast_seconds:9.1f}")
    print(f"decisions that differ              {n_different:9} of {len(layers) * weights.anatomy.n_heads * len(pairs)}")


if __name__ == "__main__":
    main()

"""How fast `maps` is, against the straightforward loop: every relation, every head, all logits, top-k.

    python benchmarks/maps.py                                    the default model here, all built-in relations
    python benchmarks/maps.py --shape llama-3.1-8b --pairs 2000  random weights of that shape, on a GPU if there is one

Both run in one process; the loop on a few layers, because every layer costs it the same. Every decision is compared.
"""

import statistics
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from common import arguments, kernels, timed

from headatlas.methods.maps.compute import Pairs, drop_small, single_token_pairs
from headatlas.methods.maps.proof import find_hits
from headatlas.models.loading import check_device, open_weights
from headatlas.tasks.relations import load_relations

SHAPES = {  # layers, heads, KV heads, d_head, d_model, vocabulary
    "llama-3.1-8b": (32, 32, 8, 128, 4096, 128_256),
    "gpt2-xl": (48, 25, 25, 64, 1600, 50_257),
}


def random_weights(shape: str, device: torch.device) -> SimpleNamespace:
    """Weights of a shape, already on the device, drawn layer by layer from one seed."""
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
def loop(weights, pairs: Pairs, layers: list[int], device: torch.device) -> np.ndarray:
    """The straightforward way, relation by relation and head by head: [layer, head, pair] hits."""
    anatomy, U = weights.anatomy, weights.unembedding().to(device).float()
    embedded = weights.embedding()[pairs.source.to(weights.embedding().device)].float()
    later = weights.first_mlp(embedded).to(device)
    embedded = embedded.to(device)
    hit = np.zeros((len(layers), anatomy.n_heads, len(pairs)), dtype=bool)
    for i, layer in enumerate(layers):
        value, output = weights.value(layer).to(device).float(), weights.output(layer).to(device).float()
        for relation in pairs.relation.unique():
            mine = (pairs.relation == relation).nonzero().flatten()
            x = (embedded if layer == 0 else later)[mine.to(device)]
            target, k = pairs.target[mine].to(device), int(pairs.k[mine[0]])
            for head in range(anatomy.n_heads):
                logits = x @ (value[head * anatomy.n_kv_heads // anatomy.n_heads] @ output[head]) @ U
                best = logits.topk(k).indices
                hit[i, head, mine.numpy()] = (best == target[:, None]).any(-1).cpu().numpy()
    return hit


class Only:
    """The same weights with these layers alone."""

    def __init__(self, weights, layers: list[int]) -> None:
        self.weights = weights
        a = weights.anatomy
        rest = {"n_layers": a.n_layers, "n_heads": a.n_heads, "n_kv_heads": a.n_kv_heads}
        self.anatomy = SimpleNamespace(layers_with_heads=layers, **rest)

    def __getattr__(self, name: str):
        return getattr(self.weights, name)


def hits(weights, pairs: Pairs, device: torch.device) -> np.ndarray:
    return find_hits(SimpleNamespace(weights=weights, device=device), pairs, input="published")[0]


def median_of(rounds: int, work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    """Median seconds over the rounds, and the last result."""
    results: list[np.ndarray] = []
    return statistics.median(timed(lambda: results.append(work())) for _ in range(rounds)), results[-1]


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto", rounds=3)
    parser.add_argument("--shape", choices=SHAPES)
    parser.add_argument("--pairs", type=int, default=2000, help="random pairs, with --shape")
    parser.add_argument("--layers", type=int, default=3, help="layers the loop is run on, evenly spaced (0: all)")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="also time by kernel, and the N longest")
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
    hits(Only(weights, layers[:1]), pairs, device)  # warm up
    fast, ours = median_of(options.rounds, lambda: hits(weights, pairs, device))
    if options.profile:
        print(kernels(lambda: hits(weights, pairs, device), options.profile))
    slow, expected = median_of(1, lambda: loop(weights, pairs, layers, device))
    all_slow = slow * n_layers / len(layers)
    differ = int((ours[layers] != expected).sum())
    heads = f"{n_layers} layers × {weights.anatomy.n_heads} heads"
    print(f"{options.shape or options.model} on {device}: {heads}, {len(pairs)} pairs")
    print(f"maps, all layers                   {fast:9.3f} s")
    print(f"loop, {len(layers)} layers                     {slow:9.3f} s, so {all_slow:.0f} s for all")
    print(f"ratio                              {all_slow / fast:9.1f}")
    print(f"decisions that differ              {differ:9} of {len(layers) * weights.anatomy.n_heads * len(pairs)}")


if __name__ == "__main__":
    main()

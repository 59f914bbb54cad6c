"""What the influence of all heads on texts costs, against one forward pass for every head.

    python benchmarks/influence.py            the default model on the built-in texts
    python benchmarks/influence.py --shape    the shape of Llama-3.1-8B with random weights, on a GPU

Both remove a head everywhere and compute the divergence of what follows. They run in one process, in turn, after a
warm-up; medians are compared. Only ratios mean anything. One pass per head is timed on some heads, spread over the
layers: they all cost the same.
"""

import numpy as np
import torch
from common import arguments, in_turn, llama_8b

import headatlas as ha
from headatlas.methods.influence.compute import divergence, encode, influences
from headatlas.tasks.texts import built_in_texts

HEADS = 9  # removed one by one


def compare(lm: ha.LM, texts: tuple[tuple[int, ...], ...], positions: str, rounds: int) -> None:
    chosen = [(i * lm.n_layers // HEADS, i % lm.n_heads) for i in range(HEADS)]
    inputs = lm.pad(texts, "right")
    first = [0 if positions == "all" else len(text) - 1 for text in texts]
    row, place = torch.tensor([(i, p) for i, text in enumerate(texts) for p in range(first[i], len(text))]).T
    results: dict[str, np.ndarray] = {}

    def ours() -> None:
        results["ours"] = influences(lm, texts, range(lm.n_layers), positions=positions)[0]

    @torch.no_grad()
    def one_by_one() -> None:
        """All texts in one batch, with logits at every token, as the model gives them."""
        logits = []
        for head in [None, *chosen]:
            with lm.patched(head or (0, 0), torch.nan if head is None else 0.0):
                logits.append(lm.model(**inputs, use_cache=False).logits[row, place].float())
        kl = torch.stack([divergence(logits[0], each) for each in logits[1:]], dim=1).cpu()
        results["one by one"] = np.stack([part.mean(0) for part in kl.split(row.bincount().tolist())])

    fast, plain = in_turn(rounds, ours, one_by_one)
    plain *= (lm.n_layers * lm.n_heads + 1) / (HEADS + 1)
    tokens = sum(map(len, texts))
    print(f"{positions}: {lm.n_layers * lm.n_heads} heads, {len(texts)} texts, {tokens} tokens: {fast:.2f} s")
    print(f"  one forward pass per head: {plain:.2f} s, {plain / fast:.2f} × as long")
    layers, heads = np.transpose(chosen)
    worst = np.abs(results["ours"][:, layers, heads] - results["one by one"]).max()
    print(f"  largest difference {worst:.1e} of {results['one by one'].max():.2g} nats")


def random_texts(lm: ha.LM, count: int, tokens: int) -> tuple[tuple[int, ...], ...]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.model.get_input_embeddings().num_embeddings, (count, tokens), generator=generator)
    return tuple(map(tuple, ids.tolist()))


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto", rounds=1)
    parser.add_argument("--shape", action="store_true")
    parser.add_argument("--set", default="story", choices=list(built_in_texts()))
    options = parser.parse_args()
    lm = llama_8b() if options.shape else ha.load(options.model, options.device)
    own = None if options.shape else encode(lm, options.set, built_in_texts()[options.set], False)
    texts = own or random_texts(lm, 16, 64)
    for positions in ("last", "all"):
        compare(lm, texts, positions, options.rounds)


if __name__ == "__main__":
    main()

"""Time the influence of all heads on texts, compared with one forward pass per head.

    python benchmarks/influence.py            the default model on the built-in texts
    python benchmarks/influence.py --shape    the shape of Llama-3.1-8B with random weights, on a GPU

Both remove a head everywhere and compute the divergence of the next tokens. They alternate in one process, after a
warm-up, and their medians are compared; only ratios are meaningful. One pass per head is timed on some heads, spread
over the layers, because all heads take the same time.
"""

import numpy as np
import torch
from common import llama_8b, make_parser, median_seconds

import headatlas as ha
from headatlas.methods.influence.compute import divergence, encode, influences
from headatlas.tasks.texts import built_in_texts

N_TIMED_HEADS = 9


def compare(lm: ha.LM, texts: tuple[tuple[int, ...], ...], positions: str, rounds: int) -> None:
    timed_heads = [(i * lm.n_layers // N_TIMED_HEADS, i % lm.n_heads) for i in range(N_TIMED_HEADS)]
    inputs = lm.pad(texts, "right")
    first = [0 if positions == "all" else len(text) - 1 for text in texts]
    row, place = torch.tensor([(i, p) for i, text in enumerate(texts) for p in range(first[i], len(text))]).T
    results: dict[str, np.ndarray] = {}

    def packed() -> None:
        results["ours"] = influences(lm, texts, range(lm.n_layers), positions=positions)[0]

    @torch.no_grad()
    def run_per_head() -> None:
        """Run all texts in one batch per head, with logits at every token."""
        logits = []
        for head in [None, *timed_heads]:
            with lm.patched(head or (0, 0), torch.nan if head is None else 0.0):
                logits.append(lm.model(**inputs, use_cache=False).logits[row, place].float())
        kl = torch.stack([divergence(logits[0], changed_logits) for changed_logits in logits[1:]], dim=1).cpu()
        results["one by one"] = np.stack(
            [text_divergences.mean(0) for text_divergences in kl.split(row.bincount().tolist())]
        )

    packed_seconds, per_head_seconds = median_seconds(rounds, packed, run_per_head)
    per_head_seconds *= (lm.n_layers * lm.n_heads + 1) / (N_TIMED_HEADS + 1)
    tokens = sum(map(len, texts))
    print(f"{positions}: {lm.n_layers * lm.n_heads} heads, {len(texts)} texts, {tokens} tokens: {packed_seconds:.2f} s")
    print(f"  one forward pass per head: {per_head_seconds:.2f} s, {per_head_seconds / packed_seconds:.2f} × as long")
    layers, heads = np.transpose(timed_heads)
    worst = np.abs(results["ours"][:, layers, heads] - results["one by one"]).max()
    print(f"  largest difference {worst:.1e} of {results['one by one'].max():.2g} nats")


def random_texts(lm: ha.LM, count: int, tokens: int) -> tuple[tuple[int, ...], ...]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.model.get_input_embeddings().num_embeddings, (count, tokens), generator=generator)
    return tuple(map(tuple, ids.tolist()))


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", rounds=1)
    parser.add_argument("--shape", action="store_true")
    parser.add_argument("--set", default="story", choices=list(built_in_texts()))
    options = parser.parse_args()
    lm = llama_8b() if options.shape else ha.load(options.model, options.device)
    built_in = None if options.shape else encode(lm, options.set, built_in_texts()[options.set], False)
    texts = built_in or random_texts(lm, 16, 64)
    for positions in ("last", "all"):
        compare(lm, texts, positions, options.rounds)


if __name__ == "__main__":
    main()

"""What reading every head costs, against a bare forward pass through the same layers on the same batches.

    python benchmarks/capture.py [--model smollm2] [--device auto] [--prompts 64] [--tokens 120]

Both are timed in turn in one run and compared by their medians; only the ratio means anything.
"""

import argparse
import statistics

import torch
from common import timed

import headatlas as ha


def prompts(lm: ha.LM, count: int, tokens: int) -> list[list[int]]:
    """Random token texts, 10 % shorter to 10 % longer than `tokens`."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(int(tokens * 0.9), int(tokens * 1.1) + 1, (count,), generator=generator).tolist()
    vocabulary = lm.model.get_input_embeddings().num_embeddings
    return [torch.randint(vocabulary, (n,), generator=generator).tolist() for n in lengths]


def compare(lm: ha.LM, texts: list[list[int]], batch_size: int, rounds: int) -> tuple[float, float]:
    """Median seconds of (bare forward, capture)."""
    order = sorted(texts, key=len)
    batches = [lm.batch(order[i : i + batch_size], side="right") for i in range(0, len(order), batch_size)]

    @torch.no_grad()
    def bare() -> None:
        for inputs in batches:
            lm.model.base_model(**inputs, use_cache=False)

    def capture() -> None:
        lm.head_outputs(texts, batch_size=batch_size, device=lm.device)

    bare(), capture()  # warm up
    seconds = [(timed(bare), timed(capture)) for _ in range(rounds)]
    return statistics.median(b for b, _ in seconds), statistics.median(c for _, c in seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    lm = ha.load(options.model, options.device)
    texts = prompts(lm, options.prompts, options.tokens)
    bare, capture = compare(lm, texts, options.batch_size, options.rounds)
    print(f"{lm}\n{len(texts)} prompts, {sum(map(len, texts))} tokens, medians of {options.rounds} rounds")
    print(f"bare forward through the layers  {bare:8.3f} s")
    print(f"capture of all heads             {capture:8.3f} s   ratio {capture / bare:.3f}")

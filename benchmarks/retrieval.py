"""What reading the position that every head attends to most costs, against a bare pass through the same layers.

    python benchmarks/retrieval.py [--model smollm2] [--device auto] [--tokens 1024] [--answer 32] [--rounds 5]
    python benchmarks/retrieval.py --model 8b --tokens 4096        random weights of Llama-3.1-8B's shape, on a GPU

A text of random tokens; the queries are its last ones, as many as an answer has. Both are timed in turn in one run and
compared by their medians; only the ratio means anything. On a GPU, memory is what each takes beyond the model, at half
the length and at the whole: it must grow with the length, not with its square.
"""

import statistics
from collections.abc import Callable

import torch
from common import arguments, llama_8b, timed

import headatlas as ha
from headatlas.models.attention import _beside_the_kernel, most_attended_positions


def peak(work: Callable[[], object]) -> float:
    """MB on the GPU beyond what is there already."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto", tokens=1024, answer=32, rounds=5)
    options = parser.parse_args()
    lm = llama_8b() if options.model == "8b" else ha.load(options.model, options.device)
    vocabulary = lm.model.get_input_embeddings().num_embeddings
    ids = torch.randint(vocabulary, (options.tokens,), generator=torch.Generator().manual_seed(0)).tolist()

    @torch.no_grad()
    def bare(n: int = options.tokens) -> None:
        lm.model.base_model(torch.tensor([ids[:n]], device=lm.device), use_cache=False)

    def read(n: int = options.tokens) -> None:
        most_attended_positions(lm, ids[:n], range(n - options.answer, n))

    bare(), read()  # warm up
    seconds = [(timed(bare), timed(read)) for _ in range(options.rounds)]
    a, b = (statistics.median(column) for column in zip(*seconds, strict=True))
    few = torch.tensor(range(options.tokens - options.answer, options.tokens))
    with torch.no_grad():
        fast = _beside_the_kernel(lm, torch.tensor([ids], device=lm.device), few) is not None
    whole = lm.n_heads * options.tokens**2 * lm.model.dtype.itemsize / 2**20
    print(f"{lm}\n{options.tokens} tokens, {options.answer} queries, medians of {options.rounds} rounds")
    print(f"bare forward through the layers     {a:8.3f} s")
    print(f"where all heads look most           {b:8.3f} s   ratio {b / a:.3f}")
    print(f"read beside the model's own kernel  {'yes' if fast else 'no: whole matrices were computed'}")
    for n in (options.tokens // 2, options.tokens) if lm.device.type == "cuda" else ():
        without, with_it = peak(lambda n=n: bare(n)), peak(lambda n=n: read(n))
        print(f"peak memory, {n:6} tokens   bare {without:8.1f} MB   reading {with_it:8.1f} MB")
    print(f"one layer's attention matrices alone would be {whole:.0f} MB at {options.tokens} tokens")


if __name__ == "__main__":
    main()

"""Time reading the position that every head attends to most, compared with a bare pass through the layers.

    python benchmarks/retrieval.py [--model smollm2] [--device auto] [--tokens 1024] [--answer 32] [--rounds 5]
    python benchmarks/retrieval.py --model 8b --tokens 4096        random weights of Llama-3.1-8B's shape, on a GPU

The text consists of random tokens, of which the last are the queries. Both calls alternate in one run, and their
medians are compared; only the ratio is meaningful. On a GPU, also prints the memory that each takes in addition to the
model, at half and at full length: it must grow with the length, not with its square.
"""

import statistics
from collections.abc import Callable

import torch
from common import llama_8b, make_parser, time_call

import headatlas as ha
from headatlas.models.attention import _beside_the_kernel, most_attended_positions


def peak_memory(work: Callable[[], object]) -> float:
    """Return the peak memory of a call on the GPU in MB, in addition to what was allocated before."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", tokens=1024, answer=32, rounds=5)
    options = parser.parse_args()
    lm = llama_8b() if options.model == "8b" else ha.load(options.model, options.device)
    vocabulary = lm.model.get_input_embeddings().num_embeddings
    ids = torch.randint(vocabulary, (options.tokens,), generator=torch.Generator().manual_seed(0)).tolist()

    @torch.no_grad()
    def run_bare(n: int = options.tokens) -> None:
        lm.model.base_model(torch.tensor([ids[:n]], device=lm.device), use_cache=False)

    def run_attended_most(n: int = options.tokens) -> None:
        most_attended_positions(lm, ids[:n], range(n - options.answer, n))

    # Warm up.
    run_bare()
    run_attended_most()
    seconds = [(time_call(run_bare), time_call(run_attended_most)) for _ in range(options.rounds)]
    a, b = (statistics.median(column) for column in zip(*seconds, strict=True))
    queries = torch.tensor(range(options.tokens - options.answer, options.tokens))
    with torch.no_grad():
        uses_kernel = _beside_the_kernel(lm, torch.tensor([ids], device=lm.device), queries) is not None
    matrix_size = lm.n_heads * options.tokens**2 * lm.model.dtype.itemsize / 2**20
    print(f"{lm}\n{options.tokens} tokens, {options.answer} queries, medians of {options.rounds} rounds")
    print(f"bare forward through the layers     {a:8.3f} s")
    print(f"where all heads attend most         {b:8.3f} s   ratio {b / a:.3f}")
    print(f"read with the model's kernel         {'yes' if uses_kernel else 'no: whole matrices were computed'}")
    for n in (options.tokens // 2, options.tokens) if lm.device.type == "cuda" else ():
        bare_memory, read_memory = peak_memory(lambda n=n: run_bare(n)), peak_memory(lambda n=n: run_attended_most(n))
        print(f"peak memory, {n:6} tokens   bare {bare_memory:8.1f} MB   reading {read_memory:8.1f} MB")
    print(f"one layer's attention matrices alone would be {matrix_size:.0f} MB at {options.tokens} tokens")


if __name__ == "__main__":
    main()

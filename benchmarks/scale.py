"""What scale costs: how work grows, and how far estimates are off.

python benchmarks/scale.py growth     heads, examples, seeds, workers, on tiny models: ratios to the smallest
python benchmarks/scale.py [--model MODEL] plan [--dtype bfloat16] [--shape llama-3.1-8b] [--preset quick] [--methods …]
                                      seconds of `headatlas run --plan` compared with doing it, method by method
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from common import timed
from transformers import AutoModelForCausalLM, LlamaConfig

import headatlas as ha
from headatlas.errors import HeadAtlasError
from headatlas.models.lm import LM
from headatlas.models.loading import open_weights
from headatlas.models.memory import GIB, memory, tokens_at_once
from headatlas.runs.estimate import time_plan
from headatlas.runs.run import compute
from headatlas.runs.selection import select_methods
from headatlas.runs.worker import make_plan, make_work

MODEL = ["smollm2"]  # whose tokenizer models with random weights get
SHAPES = {  # layers, hidden size, MLP size, heads, KV heads
    "llama-3.1-8b": (32, 4096, 14336, 32, 8),
}


def shape(layers: int, hidden: int, mlp: int, heads: int, kv_heads: int, vocabulary: int = 128_256) -> LlamaConfig:
    return LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=mlp,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        dtype="bfloat16",
    )


def random_model(config: LlamaConfig, device: str, dtype: torch.dtype) -> LM:
    """Of that shape, with random weights and the default model's tokenizer."""
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return LM(model.eval().requires_grad_(False), open_weights(MODEL[0])[1], "random")


def growth(options: argparse.Namespace) -> None:
    """One thing grows, the rest stays; the median of three rounds, after a warm-up, as a ratio to the first."""

    def tiny(heads: int = 4, layers: int = 4) -> LM:
        return random_model(shape(layers, 32 * heads, 64 * heads, heads, heads, 49_152), "cpu", torch.float32)

    def table(what: str, values: list[int], make: Callable[[int], Callable[[], object]]) -> None:
        each = {}
        for value in values:
            do = make(value)
            do()
            each[value] = statistics.median(timed(do) for _ in range(3))
        first = each[values[0]]
        print(f"{what}: " + ", ".join(f"{v} → {t / first:.2f} ×" for v, t in each.items()), flush=True)

    lm = tiny()
    gate = partial(ha.gate, tasks=["syntax"], seeds=2, batch=8, updates=6)
    ablate = partial(ha.ablate, tasks=["syntax"], limit=4)
    table("heads a layer, maps", [4, 8, 16], lambda n: partial(ha.maps, tiny(n), baselines=False))
    table("heads a layer, ablate", [4, 8, 16], lambda n: partial(ablate, tiny(n)))
    table("heads a layer, gate", [4, 8, 16], lambda n: partial(gate, tiny(n)))
    table("layers, ablate", [4, 8, 16], lambda n: partial(ablate, tiny(4, n)))
    table("layers, gate", [4, 8, 16], lambda n: partial(gate, tiny(4, n)))
    table("examples, ablate", [4, 8, 16, 32], lambda n: partial(ablate, lm, limit=n))
    table("examples an update, gate", [4, 8, 16, 32], lambda n: partial(gate, lm, batch=n))
    table("seeds, gate", [1, 2, 4, 8], lambda n: partial(gate, lm, seeds=n))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "tiny"
        tiny(8, 8).model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
        torch.set_num_threads(1)
        for workers in (1, 2):
            start = time.perf_counter()
            made = ha.run(folder, Path(place) / str(workers), methods=["maps", "gate", "ablate"], workers=workers)
            took, spent = time.perf_counter() - start, sum(m["seconds"] for m in made.info["methods"].values())
            many = f"{workers} worker{'s' * (workers > 1)}"
            print(f"{many}, one thread each: {took:.0f} s in all, {spent:.0f} s of it at work")


def check_plan(options: argparse.Namespace) -> None:
    """Estimated and real seconds of every method. Those that would take too long are estimated only."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    methods = options.methods.split(",") if options.methods else None
    if options.shape:
        lm = random_model(shape(*SHAPES[options.shape]), device, torch.bfloat16 if device == "cuda" else torch.float32)
    else:
        lm = ha.load(options.model, device, options.dtype)
    needs = memory(lm.model, lm.n_layers, lm.model.dtype)
    print("method        estimated      real  real / estimated")
    total = [0.0, 0.0]
    for method, chosen in select_methods(options.preset, methods):
        if options.updates and "updates" in method.options:
            chosen = {**chosen, "updates": options.updates}
        try:
            work = make_work(method, lm, chosen)
        except HeadAtlasError as e:
            print(f"{method.name:12} {e}")
            continue
        expected = sum(time_plan(make_plan(method, work, {}), lm).values())
        if expected > options.most:
            print(f"{method.name:15} {expected:7.1f} s, not run", flush=True)
            continue
        real = timed(partial(compute, method, lm, chosen, preset=options.preset))
        total = [total[0] + expected, total[1] + real]
        print(f"{method.name:15} {expected:7.1f} {real:9.1f} {real / expected:9.2f}", flush=True)
    print(f"{'together':15} {total[0]:7.1f} {total[1]:9.1f} {total[1] / total[0]:9.2f}")
    if device == "cuda":
        budget = tokens_at_once(lm, None)
        expected = (needs.weights + budget * needs.per_token_with_gradients) / GIB
        used = torch.cuda.max_memory_allocated() / GIB
        print(f"memory: {expected:.1f} GiB estimated, with {budget} tokens at once; {used:.1f} GiB used")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("growth").set_defaults(do=growth)
    planning = commands.add_parser("plan")
    planning.add_argument("--shape", choices=SHAPES)
    planning.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    planning.add_argument("--updates", type=int, help="of fits, instead of the preset's")
    planning.add_argument("--preset", default="quick")
    planning.add_argument("--methods", default="")
    planning.add_argument("--most", type=float, default=1e9, help="leave out methods estimated to take more seconds")
    planning.set_defaults(do=check_plan)
    parser.add_argument("--model", default="smollm2", help="the model to plan for; its tokenizer goes with every shape")
    options = parser.parse_args()
    MODEL[:] = [options.model]
    options.do(options)

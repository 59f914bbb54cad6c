"""Measure how work grows with scale, and the error of estimates.

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
from common import time_call
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

# Models with random weights get the tokenizer of this model; set by --model.
TOKENIZER_MODEL = ["smollm2"]
SHAPES = {  # layers, hidden size, MLP size, heads, KV heads
    "llama-3.1-8b": (32, 4096, 14336, 32, 8),
}


def make_config(
    layers: int, hidden: int, mlp: int, heads: int, kv_heads: int, vocabulary: int = 128_256
) -> LlamaConfig:
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
    """Make a model with random weights and the tokenizer of --model."""
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    return LM(model.eval().requires_grad_(False), open_weights(TOKENIZER_MODEL[0])[1], "random")


def measure_growth(options: argparse.Namespace) -> None:
    """Print how seconds grow with one size at a time: medians of three rounds, relative to the first size."""

    def tiny(heads: int = 4, layers: int = 4) -> LM:
        return random_model(make_config(layers, 32 * heads, 64 * heads, heads, heads, 49_152), "cpu", torch.float32)

    def print_growth(title: str, values: list[int], make_call: Callable[[int], Callable[[], object]]) -> None:
        seconds = {}
        for value in values:
            call = make_call(value)
            call()
            seconds[value] = statistics.median(time_call(call) for _ in range(3))
        baseline = seconds[values[0]]
        print(f"{title}: " + ", ".join(f"{v} → {t / baseline:.2f} ×" for v, t in seconds.items()), flush=True)

    lm = tiny()
    gate = partial(ha.gate, tasks=["syntax"], seeds=2, batch=8, updates=6)
    ablate = partial(ha.ablate, tasks=["syntax"], limit=4)
    print_growth("heads per layer, maps", [4, 8, 16], lambda n: partial(ha.maps, tiny(n), baselines=False))
    print_growth("heads per layer, ablate", [4, 8, 16], lambda n: partial(ablate, tiny(n)))
    print_growth("heads per layer, gate", [4, 8, 16], lambda n: partial(gate, tiny(n)))
    print_growth("layers, ablate", [4, 8, 16], lambda n: partial(ablate, tiny(4, n)))
    print_growth("layers, gate", [4, 8, 16], lambda n: partial(gate, tiny(4, n)))
    print_growth("examples, ablate", [4, 8, 16, 32], lambda n: partial(ablate, lm, limit=n))
    print_growth("examples per update, gate", [4, 8, 16, 32], lambda n: partial(gate, lm, batch=n))
    print_growth("seeds, gate", [1, 2, 4, 8], lambda n: partial(gate, lm, seeds=n))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "tiny"
        tiny(8, 8).model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
        torch.set_num_threads(1)
        for workers in (1, 2):
            start = time.perf_counter()
            atlas = ha.run(folder, Path(temporary) / str(workers), methods=["maps", "gate", "ablate"], workers=workers)
            total_seconds = time.perf_counter() - start
            work_seconds = sum(m["seconds"] for m in atlas.info["methods"].values())
            workers_text = f"{workers} worker{'s' * (workers > 1)}"
            seconds = f"{total_seconds:.0f} s in total, of which {work_seconds:.0f} s of work"
            print(f"{workers_text}, one thread each: {seconds}")


def check_plan(options: argparse.Namespace) -> None:
    """Print estimated and real seconds of every method. Methods that would take too long are only estimated."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    methods = options.methods.split(",") if options.methods else None
    if options.shape:
        lm = random_model(
            make_config(*SHAPES[options.shape]), device, torch.bfloat16 if device == "cuda" else torch.float32
        )
    else:
        lm = ha.load(options.model, device, options.dtype)
    memory_model = memory(lm.model, lm.n_layers, lm.model.dtype)
    print("method        estimated      real  real / estimated")
    total = [0.0, 0.0]
    for method, method_options in select_methods(options.preset, methods):
        if options.updates and "updates" in method.options:
            method_options = {**method_options, "updates": options.updates}
        try:
            work = make_work(method, lm, method_options)
        except HeadAtlasError as e:
            print(f"{method.name:12} {e}")
            continue
        expected_seconds = sum(time_plan(make_plan(method, work, {}), lm).values())
        if expected_seconds > options.most:
            print(f"{method.name:15} {expected_seconds:7.1f} s, not run", flush=True)
            continue
        real_seconds = time_call(partial(compute, method, lm, method_options, preset=options.preset))
        total = [total[0] + expected_seconds, total[1] + real_seconds]
        print(
            f"{method.name:15} {expected_seconds:7.1f} {real_seconds:9.1f} {real_seconds / expected_seconds:9.2f}",
            flush=True,
        )
    print(f"{'together':15} {total[0]:7.1f} {total[1]:9.1f} {total[1] / total[0]:9.2f}")
    if device == "cuda":
        budget = tokens_at_once(lm, None)
        expected_memory = (memory_model.weights + budget * memory_model.per_token_with_gradients) / GIB
        used_memory = torch.cuda.max_memory_allocated() / GIB
        print(f"memory: {expected_memory:.1f} GiB estimated, with {budget} tokens at once; {used_memory:.1f} GiB used")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("growth").set_defaults(command=measure_growth)
    plan_parser = commands.add_parser("plan")
    plan_parser.add_argument("--shape", choices=SHAPES)
    plan_parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    plan_parser.add_argument("--updates", type=int, help="updates of fits, instead of the preset's")
    plan_parser.add_argument("--preset", default="quick")
    plan_parser.add_argument("--methods", default="")
    plan_parser.add_argument(
        "--most", type=float, default=1e9, help="skip methods that are estimated to take more seconds"
    )
    plan_parser.set_defaults(command=check_plan)
    parser.add_argument("--model", default="smollm2", help="model to plan for; every shape uses its tokenizer")
    options = parser.parse_args()
    TOKENIZER_MODEL[:] = [options.model]
    options.command(options)

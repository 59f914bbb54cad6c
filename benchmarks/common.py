"""What the benchmarks share: seconds and memory of pieces of work, and a large model with random weights."""

import argparse
import re
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

import headatlas as ha


def arguments(description: str | None, **defaults: object) -> argparse.ArgumentParser:
    """A parser that explains itself, with these options and their defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser


def timed(work: Callable[[], object]) -> float:
    """Seconds, on whatever device it runs."""
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start


def in_turn(rounds: int, *works: Callable[[], object]) -> list[float]:
    """Median seconds of each, after one warm-up."""
    times = [[timed(work) for work in works] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*times, strict=True)]


KINDS = {  # of CUDA kernels, by what their names hold
    "matrix products": r"gemm|nvjet|cutlass.*tensorop|splitK",
    "attention": r"flash|fmha|attention",
    "norms": r"norm",
    "sums and softmax": r"reduce|softmax",
    "copies": r"memcpy|memset|copy",
}


def kernels(work: Callable[[], object], most: int = 0) -> str:
    """Seconds of the GPU by kind of kernel while a profiler watches, after a warm-up; and the longest, by name."""
    work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as watched:
        whole = timed(work)
    each = {e.key: (e.self_device_time_total / 1e6, e.count) for e in watched.key_averages()}
    kinds = dict.fromkeys([*KINDS, "other"], 0.0)
    for name, (seconds, _) in each.items():
        kinds[next((k for k, like in KINDS.items() if re.search(like, name, re.IGNORECASE)), "other")] += seconds
    told = ", ".join(f"{kind} {seconds:.4f}" for kind, seconds in kinds.items())
    lines = [f"{whole:.4f} s under a profiler, kernels {sum(kinds.values()):.4f}: {told}"]
    longest = sorted(each.items(), key=lambda item: -item[1][0])[:most]
    return "\n".join([*lines, *(f"  {seconds:.4f} s, {n} × {name[:140]}" for name, (seconds, n) in longest)])


class PeakMemory:
    """The most anonymous memory this process held meanwhile, in MB. Pages of mapped files do not count."""

    def __enter__(self) -> "PeakMemory":
        self.before = self.peak = self.now()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def now(self) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

    def watch(self) -> None:
        while not self.over.wait(0.005):
            self.peak = max(self.peak, self.now())

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()


def llama_8b() -> ha.LM:
    """Random weights of the shape of Llama-3.1-8B, in bfloat16, on a GPU."""
    return _random(
        LlamaConfig(
            vocab_size=128_256,
            hidden_size=4096,
            intermediate_size=14336,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=8,
            max_position_embeddings=8192,
        )
    )


def qwen_1_5b() -> ha.LM:
    """Random weights of the shape of Qwen2.5-1.5B, in bfloat16, on a GPU."""
    return _random(
        Qwen2Config(
            vocab_size=151_936,
            hidden_size=1536,
            intermediate_size=8960,
            num_hidden_layers=28,
            num_attention_heads=12,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )


def _random(config: PretrainedConfig) -> ha.LM:
    with torch.device("cuda"):
        return ha.load(AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval())

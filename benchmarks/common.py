"""Shared code of the benchmarks: seconds and memory of calls, and large models with random weights."""

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


def make_parser(description: str | None, **defaults: object) -> argparse.ArgumentParser:
    """Make a parser with these options and their defaults; --help shows the description."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser


def time_call(work: Callable[[], object]) -> float:
    """Return the seconds of a call, including work on the GPU."""
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    synchronise()
    start = time.perf_counter()
    work()
    synchronise()
    return time.perf_counter() - start


def median_seconds(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Return the median seconds of each call. The calls alternate, after one warm-up round."""
    times = [[time_call(work) for work in calls] for _ in range(rounds + 1)][1:]
    return [statistics.median(column) for column in zip(*times, strict=True)]


# Kinds of CUDA kernels, by patterns of their names.
KERNEL_KINDS = {
    "matrix products": r"gemm|nvjet|cutlass.*tensorop|splitK",
    "attention": r"flash|fmha|attention",
    "norms": r"norm",
    "sums and softmax": r"reduce|softmax",
    "copies": r"memcpy|memset|copy",
}


def profile_kernels(work: Callable[[], object], n_longest: int = 0) -> str:
    """Profile a call after a warm-up: GPU seconds by kind of kernel, and the n longest kernels by name."""
    work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        total_seconds = time_call(work)
    kernels = {e.key: (e.self_device_time_total / 1e6, e.count) for e in profile.key_averages()}
    seconds_by_kind = dict.fromkeys([*KERNEL_KINDS, "other"], 0.0)
    for name, (seconds, _) in kernels.items():
        seconds_by_kind[
            next((k for k, pattern in KERNEL_KINDS.items() if re.search(pattern, name, re.IGNORECASE)), "other")
        ] += seconds
    summary = ", ".join(f"{kind} {seconds:.4f}" for kind, seconds in seconds_by_kind.items())
    lines = [f"{total_seconds:.4f} s under a profiler, kernels {sum(seconds_by_kind.values()):.4f}: {summary}"]
    slowest = sorted(kernels.items(), key=lambda item: -item[1][0])[:n_longest]
    return "\n".join([*lines, *(f"  {seconds:.4f} s, {n} × {name[:140]}" for name, (seconds, n) in slowest)])


class PeakMemory:
    """Measure the peak anonymous memory of this process, in MB. Pages of mapped files do not count."""

    def __enter__(self) -> "PeakMemory":
        self.before = self.peak = self.current_memory()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def current_memory(self) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

    def watch(self) -> None:
        while not self.stopped.wait(0.005):
            self.peak = max(self.peak, self.current_memory())

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        self.thread.join()


def llama_8b() -> ha.LM:
    """Make a model with the shape of Llama-3.1-8B and random weights, in bfloat16, on a GPU."""
    return _random_model(
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
    """Make a model with the shape of Qwen2.5-1.5B and random weights, in bfloat16, on a GPU."""
    return _random_model(
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


def _random_model(config: PretrainedConfig) -> ha.LM:
    with torch.device("cuda"):
        return ha.load(AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval())

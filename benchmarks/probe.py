"""What reading answers for the probe costs, against reading them one prompt at a time through hooks while generating.

    python benchmarks/probe.py capture     seconds a prompt, and the ratio (--model NAME, --questions N)
    python benchmarks/probe.py memory      peak anonymous memory with 400 and with 1,600 examples
    python benchmarks/probe.py batch       accuracy and seconds of the published probe, with batches of 1 and of 32
    python benchmarks/probe.py shape       capture at the shape of Llama-3.1-8B, random weights, on a GPU
    python benchmarks/probe.py causal      not speed: does importance follow what heads are worth? (--atlas DIR)

Each pair runs in one process, in turn, after a warm-up. Only ratios mean anything.
"""

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from timing import timed

import headatlas as ha
from headatlas.methods._gradients import gate_gradients
from headatlas.methods.probe.examples import Examples
from headatlas.methods.probe.features import capture
from headatlas.methods.probe.maps import fit_probe, predict
from headatlas.methods.probe.settings import Training
from headatlas.models.heads import hooked
from headatlas.models.targets import TokenExample
from headatlas.results.store import load
from headatlas.tasks.names import FUNCTIONS
from headatlas.tasks.questions import SPLITS, Question, load_questions, with_answer


def by_main(questions: list[Question]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for i, q in enumerate(questions):
        groups.setdefault(q.main, []).append(i)
    return list(groups.values())


def room(lm: ha.LM, n: int) -> np.ndarray:
    return np.zeros((n, lm.n_layers, lm.n_heads, lm.d_head), np.float32)


def everything(example: int, surprisal: np.ndarray) -> list[int]:
    return list(range(len(surprisal)))


@torch.no_grad()
def one_by_one(lm: ha.LM, asked: list[TokenExample], free: bool = False) -> list[list[torch.Tensor]]:
    """As the published code does it: generate for one prompt, a hook on every layer keeping the last token's z at each step.

    As many tokens as the reference answer has, so that both ways read as many; free: until the model ends, at most 128.
    """
    kept = []
    for a in asked:
        steps: list[torch.Tensor] = []
        with hooked(lm.model, lm.anatomy, lambda layer, z, steps=steps: steps.append(z[0, -1].cpu().clone())):
            n = 128 if free else len(a.target)
            lm.generate([list(a.prompt)], max_new_tokens=n, min_new_tokens=1 if free else n)
        kept.append(steps)
    return kept


def compare_capture(name: str, count: int) -> None:
    lm = ha.load(name)
    questions = load_questions(limit=count)
    asked = [with_answer(lm, q, q.answer) for q in questions]
    groups, features = by_main(questions), room(lm, len(asked))
    some = asked[:: max(1, len(asked) // 24)]
    capture(lm, asked, groups, everything, features)  # warm up
    one_by_one(lm, some[:2])
    ours = [timed(lambda: capture(lm, asked, groups, everything, features)) / len(asked) for _ in range(3)]
    theirs = [timed(lambda: one_by_one(lm, some)) / len(some) for _ in range(3)]
    freely = timed(lambda: one_by_one(lm, some, free=True)) / len(some)
    a, b = statistics.median(theirs), statistics.median(ours)
    tokens = statistics.mean(len(x.target) for x in asked)
    print(f"{lm}: {len(asked)} questions, {tokens:.1f} answer tokens each")
    print(f"ours, packed and teacher-forced                        {1e3 * b:8.1f} ms a prompt")
    print(
        f"one prompt at a time, through hooks, as many tokens    {1e3 * a:8.1f} ms a prompt: ours is {a / b:.1f} × faster"
    )
    print(f"the same, until the model ends or 128 (published)      {1e3 * freely:8.1f} ms a prompt: {freely / b:.1f} ×")


def compare_memory() -> None:
    """A random model with many heads; features go to disk, so only the number of batches grows."""
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=512,
        intermediate_size=64,
        num_hidden_layers=12,
        num_attention_heads=32,
        head_dim=64,
    )
    lm = ha.load(transformers.LlamaForCausalLM(config).eval())
    generator = torch.Generator().manual_seed(0)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 1000, (n,), generator=generator).tolist())

    peaks = []
    for n in (400, 400, 1600):  # the first warms up
        asked = [TokenExample(draw(4), draw(2)) for _ in range(n)]
        with tempfile.TemporaryDirectory() as folder, Watch() as watch:
            shape = (n, lm.n_layers, lm.n_heads, lm.d_head)
            path = Path(folder) / "features.npy"
            features = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            capture(lm, asked, [[i] for i in range(n)], everything, features, batch_tokens=512)
            size = features.nbytes
        peaks.append(watch.peak)
        print(f"{n:5} examples, {size / 2**20:6.0f} MB of features: at most {watch.peak / 2**20:6.0f} MB of memory")
    print(f"growth from 400 to 1600 examples: {(peaks[2] - peaks[1]) / 2**20:.0f} MB")


class Watch:
    """The most anonymous memory this process held; pages of mapped files are not its own."""

    def __enter__(self) -> "Watch":
        self.peak, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self) -> None:
        while not self.over.wait(0.01):
            lines = Path("/proc/self/status").read_text().splitlines()
            held = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, held)

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()


def compare_batches(name: str, count: int) -> None:
    lm = ha.load(name)
    questions = load_questions(limit=count)
    asked = [with_answer(lm, q, q.answer) for q in questions]
    features = room(lm, len(asked))
    capture(lm, asked, by_main(questions), everything, features)
    labels = np.array([FUNCTIONS.index(q.function) for q in questions])
    parts = [np.array([i for i, q in enumerate(questions) if q.split == s]) for s in SPLITS]
    data = Examples(features, *parts, lm.device)
    for batch in (1, 32):
        accuracy = []
        start = time.perf_counter()
        for seed in range(3):
            fitted = fit_probe(data, labels, len(FUNCTIONS), Training(batch=batch), seed=seed)
            accuracy.append((predict(fitted.probe, data) == labels[data.test]).mean())
        spent = (time.perf_counter() - start) / 3
        print(f"batch {batch:2}: accuracy {', '.join(f'{a:.3f}' for a in accuracy)}; {spent:.1f} s a fit")


def measure_shape() -> None:
    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    lm = ha.load(model)
    generator = torch.Generator().manual_seed(0)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 100_000, (n,), generator=generator).tolist())

    asked, groups = [], []
    for _ in range(64):  # as the built-in questions are: five to a main question, about 90 tokens shared
        main = draw(90)
        groups.append(list(range(len(asked), len(asked) + 5)))
        asked += [TokenExample(main + draw(25), draw(5)) for _ in range(5)]
    features = room(lm, len(asked))
    capture(lm, asked, groups, everything, features)
    one_by_one(lm, asked[:2])
    ours = statistics.median(timed(lambda: capture(lm, asked, groups, everything, features)) for _ in range(3))
    theirs = statistics.median(timed(lambda: one_by_one(lm, asked[:16])) for _ in range(3)) / 16
    ours /= len(asked)
    print(f"{lm}\nours {1e3 * ours:.2f} ms a prompt, one at a time {1e3 * theirs:.1f} ms: {theirs / ours:.0f} × faster")


def compare_causal(name: str, folder: str) -> None:
    """Spearman over heads of importance and of the absolute gradient of log P(answer) in each head's gate, function by function."""
    lm = ha.load(name)
    found = load(Path(folder) / "probe.nc")
    questions = [q for q in load_questions() if q.split == "test"]
    for function in found.function.values.tolist():
        asked = [with_answer(lm, q, q.answer) for q in questions if q.function == function][:32]
        worth = np.abs(gate_gradients(lm, asked).numpy()).mean(0)
        worth = found.importance.sel(function=function, drop=True).copy(data=worth)
        agreed = ha.agreement(found.importance.sel(function=function, drop=True), worth)
        print(f"{function:25} Spearman {float(agreed.spearman):+.2f}  p {float(agreed.spearman_p):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["capture", "memory", "batch", "shape", "causal"])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--atlas", default="atlas")
    options = parser.parse_args()
    if options.what == "capture":
        compare_capture(options.model, options.questions)
    elif options.what == "memory":
        compare_memory()
    elif options.what == "batch":
        compare_batches(options.model, options.questions)
    elif options.what == "causal":
        compare_causal(options.model, options.atlas)
    else:
        measure_shape()

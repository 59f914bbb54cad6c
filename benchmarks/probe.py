"""What reading answers for the probe costs, against reading them one prompt at a time through hooks while generating.

    python benchmarks/probe.py capture     seconds a prompt, and the ratio (--model NAME, --questions N)
    python benchmarks/probe.py memory      peak anonymous memory with 400 and with 1,600 examples
    python benchmarks/probe.py batch       accuracy and seconds of the published probe, with batches of 1 and of 32
    python benchmarks/probe.py shape       capture at the shape of Llama-3.1-8B, random weights, on a GPU
    python benchmarks/probe.py words       not speed: what a bag of words tells of the built-in questions
    python benchmarks/probe.py causal      not speed: does importance follow what heads are worth? (--atlas DIR)

Each pair runs in one process, in turn, after a warm-up. Only ratios mean anything.
"""

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from common import PeakMemory, arguments, llama_8b, timed

import headatlas as ha
from headatlas.methods.probe.classifier import Examples, bag_of_words, fit_probe, predict
from headatlas.methods.probe.compute import capture
from headatlas.models.gradients import gate_gradients
from headatlas.models.hooks import hooked
from headatlas.models.tokens import TokenExample
from headatlas.results.store import load
from headatlas.tasks.built_in import FUNCTIONS, QUESTIONS
from headatlas.tasks.questions import SPLITS, Question, in_words, load_questions, with_answer

PUBLISHED = {"epochs": 100, "lr": 1e-4, "patience": 10}


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
def one_by_one(lm: ha.LM, examples: list[TokenExample], free: bool = False) -> list[list[torch.Tensor]]:
    """As the published code does it: generate for one prompt; a hook on every layer keeps the last token's z each step.

    As many tokens as the reference answer has, so that both ways read as many; free: until the model ends, at most 128.
    """
    kept = []
    for a in examples:
        steps: list[torch.Tensor] = []
        with hooked(lm.model, lm.anatomy, lambda layer, z, steps=steps: steps.append(z[0, -1].cpu().clone())):
            n = 128 if free else len(a.target)
            lm.generate([list(a.prompt)], max_new_tokens=n, min_new_tokens=1 if free else n)
        kept.append(steps)
    return kept


def compare_capture(lm: ha.LM, count: int) -> None:
    questions = load_questions("stories", limit=count)
    examples = [with_answer(lm, q, q.answer) for q in questions]
    groups, features = by_main(questions), room(lm, len(examples))
    few = examples[:: max(1, len(examples) // 24)]
    capture(lm, examples, groups, everything, features)  # warm up
    one_by_one(lm, few[:2])
    ours = [timed(lambda: capture(lm, examples, groups, everything, features)) / len(examples) for _ in range(3)]
    theirs = [timed(lambda: one_by_one(lm, few)) / len(few) for _ in range(3)]
    freely = timed(lambda: one_by_one(lm, few, free=True)) / len(few)
    a, b = statistics.median(theirs), statistics.median(ours)
    tokens = statistics.mean(len(x.target) for x in examples)
    print(f"{lm}: {len(examples)} questions, {tokens:.1f} answer tokens each")
    print(f"ours, packed and teacher-forced                        {1e3 * b:8.1f} ms a prompt")
    print(f"one prompt at a time, through hooks, as many tokens    {1e3 * a:8.1f} ms a prompt: {a / b:.1f} ×")
    print(f"the same, until the model ends or 128 (published)      {1e3 * freely:8.1f} ms a prompt: {freely / b:.1f} ×")


def compare_memory() -> None:
    """A random model with many heads; features go to disk, so only the number of batches grows."""
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=64,
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
        examples = [TokenExample(draw(4), draw(2)) for _ in range(n)]
        with tempfile.TemporaryDirectory() as folder, PeakMemory() as memory:
            shape = (n, lm.n_layers, lm.n_heads, lm.d_head)
            path = Path(folder) / "features.npy"
            features = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            capture(lm, examples, [[i] for i in range(n)], everything, features, batch_tokens=128)
            size = features.nbytes
        peaks.append(memory.peak)
        print(f"{n:5} examples, {size / 2**20:6.0f} MB of features: at most {memory.peak:6.0f} MB of memory")
    print(f"growth from 400 to 1600 examples: {peaks[2] - peaks[1]:.0f} MB")


def compare_batches(lm: ha.LM, count: int) -> None:
    questions = load_questions("stories", limit=count)
    examples = [with_answer(lm, q, q.answer) for q in questions]
    features = room(lm, len(examples))
    capture(lm, examples, by_main(questions), everything, features)
    labels = np.array([FUNCTIONS.index(q.function) for q in questions])
    parts = [np.array([i for i, q in enumerate(questions) if q.split == s]) for s in SPLITS]
    data = Examples(features, *parts, lm.device)
    for batch in (1, 32):
        accuracy = []
        start = time.perf_counter()
        for seed in range(3):
            fitted = fit_probe(data, labels, len(FUNCTIONS), **PUBLISHED, batch=batch, seed=seed)
            accuracy.append((predict(fitted.probe, data) == labels[data.test]).mean())
        spent = (time.perf_counter() - start) / 3
        print(f"batch {batch:2}: accuracy {', '.join(f'{a:.3f}' for a in accuracy)}; {spent:.1f} s a fit")


def measure_shape() -> None:
    lm = llama_8b()
    generator = torch.Generator().manual_seed(0)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 100_000, (n,), generator=generator).tolist())

    examples, groups = [], []
    for _ in range(64):  # as the built-in questions are: five to a main question, about 90 tokens shared
        main = draw(90)
        groups.append(list(range(len(examples), len(examples) + 5)))
        examples += [TokenExample(main + draw(25), draw(5)) for _ in range(5)]
    features = room(lm, len(examples))
    capture(lm, examples, groups, everything, features)
    one_by_one(lm, examples[:2])
    ours = statistics.median(timed(lambda: capture(lm, examples, groups, everything, features)) for _ in range(3))
    theirs = statistics.median(timed(lambda: one_by_one(lm, examples[:16])) for _ in range(3)) / 16
    texts = torch.tensor([a.prompt + a.target for a in examples], device=lm.device)

    @torch.no_grad()
    def bare() -> None:
        for part in texts.split(64):
            lm.model(input_ids=part, use_cache=False, logits_to_keep=1)

    bare()
    passes = statistics.median(timed(bare) for _ in range(3)) / len(examples)
    ours /= len(examples)
    print(f"{lm}\nours {1e3 * ours:.2f} ms a prompt, one at a time {1e3 * theirs:.1f} ms: {theirs / ours:.0f} × faster")
    print(f"a bare forward pass {1e3 * passes:.2f} ms a prompt: ours is {ours / passes:.2f} × that")


def compare_causal(lm: ha.LM, folder: str) -> None:
    """Spearman over heads of importance and the absolute gradient of log P(answer) in each head's gate, by function."""
    result = load(Path(folder) / "probe.nc")
    questions = [q for q in load_questions("stories") if q.split == "test"]
    for function in result.function.values.tolist():
        examples = [with_answer(lm, q, q.answer) for q in questions if q.function == function][:32]
        worth = np.abs(gate_gradients(lm, examples).numpy()).mean(0)
        importance = result.importance.sel(function=function, drop=True)
        agreed = ha.compare(importance, importance.copy(data=worth))
        print(f"{function:25} Spearman {float(agreed.spearman):+.2f}  p {float(agreed.p):.3f}")


def compare_words() -> None:
    """Accuracy of a bag of words, trained on the training split, by what it sees and where it is tested."""
    texts = {"question": lambda q: q.text, "prompt": in_words, "answer": lambda q: q.answer}
    for name in QUESTIONS:
        questions = load_questions(name)
        labels = np.array([FUNCTIONS.index(q.function) for q in questions])
        train, *others = (np.array([i for i, q in enumerate(questions) if q.split == s]) for s in SPLITS)
        for seen, text in texts.items():
            reached = [bag_of_words([text(q) for q in questions], labels, train, tested) for tested in others]
            print(f"{name:8} words of the {seen:9} validation {reached[0]:.1%}  test {reached[1]:.1%}")


if __name__ == "__main__":
    parser = arguments(__doc__, model="smollm2", device="auto", questions=200, atlas="atlas")
    parser.add_argument("what", choices=["capture", "memory", "batch", "shape", "words", "causal"])
    options = parser.parse_args()
    loaded = partial(ha.load, options.model, options.device)
    {
        "capture": lambda: compare_capture(loaded(), options.questions),
        "memory": compare_memory,
        "batch": lambda: compare_batches(loaded(), options.questions),
        "shape": measure_shape,
        "words": compare_words,
        "causal": lambda: compare_causal(loaded(), options.atlas),
    }[options.what]()

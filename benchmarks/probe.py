"""Time the capture of answers for the probe, compared with hooks during generation, one prompt at a time.

    python benchmarks/probe.py capture     seconds per prompt, and the ratio (--model NAME, --questions N)
    python benchmarks/probe.py memory      peak anonymous memory with 400 and with 1,600 examples
    python benchmarks/probe.py batch       accuracy and seconds of the published probe, with batches of 1 and of 32
    python benchmarks/probe.py shape       capture at the shape of Llama-3.1-8B, random weights, on a GPU
    python benchmarks/probe.py words       quality: accuracy of a bag of words on the built-in questions
    python benchmarks/probe.py causal      quality: correlation of importance with gradients in gates (--atlas DIR)

Each pair alternates in one process, after a warm-up; only ratios are meaningful.
"""

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from common import PeakMemory, llama_8b, make_parser, time_call

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


def group_by_main(questions: list[Question]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for i, q in enumerate(questions):
        groups.setdefault(q.main, []).append(i)
    return list(groups.values())


def empty_features(lm: ha.LM, n: int) -> np.ndarray:
    return np.zeros((n, lm.n_layers, lm.n_heads, lm.d_head), np.float32)


def all_tokens(example: int, surprisal: np.ndarray) -> list[int]:
    return list(range(len(surprisal)))


@torch.no_grad()
def generate_with_hooks(lm: ha.LM, examples: list[TokenExample], until_end: bool = False) -> list[list[torch.Tensor]]:
    """Generate for one prompt at a time, as the published code does; hooks store the last token's z of each step.

    Generates the length of the reference answer, so that both ways read the same number of tokens. until_end: generate
    until the model ends, at most 128 tokens.
    """
    outputs = []
    for a in examples:
        steps: list[torch.Tensor] = []
        with hooked(lm.model, lm.anatomy, lambda layer, z, steps=steps: steps.append(z[0, -1].cpu().clone())):
            n = 128 if until_end else len(a.target)
            lm.generate([list(a.prompt)], max_new_tokens=n, min_new_tokens=1 if until_end else n)
        outputs.append(steps)
    return outputs


def compare_capture(lm: ha.LM, count: int) -> None:
    questions = load_questions("stories", limit=count)
    examples = [with_answer(lm, q, q.answer) for q in questions]
    groups, features = group_by_main(questions), empty_features(lm, len(examples))
    sampled = examples[:: max(1, len(examples) // 24)]
    # Warm up.
    capture(lm, examples, groups, all_tokens, features)
    generate_with_hooks(lm, sampled[:2])
    packed_seconds = [
        time_call(lambda: capture(lm, examples, groups, all_tokens, features)) / len(examples) for _ in range(3)
    ]
    hook_seconds = [time_call(lambda: generate_with_hooks(lm, sampled)) / len(sampled) for _ in range(3)]
    full_answer_seconds = time_call(lambda: generate_with_hooks(lm, sampled, until_end=True)) / len(sampled)
    a, b = statistics.median(hook_seconds), statistics.median(packed_seconds)
    tokens = statistics.mean(len(x.target) for x in examples)
    print(f"{lm}: {len(examples)} questions, {tokens:.1f} answer tokens each")
    print(f"ours, packed and teacher-forced                        {1e3 * b:8.1f} ms per prompt")
    print(f"one prompt at a time, through hooks, as many tokens    {1e3 * a:8.1f} ms per prompt: {a / b:.1f} ×")
    c = full_answer_seconds
    print(f"the same, until the model ends or 128 (published)      {1e3 * c:8.1f} ms per prompt: {c / b:.1f} ×")


def compare_memory() -> None:
    """Measure a random model with many heads. Features go to disk, so memory must not grow with the examples."""
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
    # The first round warms up.
    for n in (400, 400, 1600):
        examples = [TokenExample(draw(4), draw(2)) for _ in range(n)]
        with tempfile.TemporaryDirectory() as folder, PeakMemory() as memory:
            shape = (n, lm.n_layers, lm.n_heads, lm.d_head)
            path = Path(folder) / "features.npy"
            features = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
            capture(lm, examples, [[i] for i in range(n)], all_tokens, features, batch_tokens=128)
            size = features.nbytes
        peaks.append(memory.peak)
        print(f"{n:5} examples, {size / 2**20:6.0f} MB of features: at most {memory.peak:6.0f} MB of memory")
    print(f"growth from 400 to 1600 examples: {peaks[2] - peaks[1]:.0f} MB")


def compare_batches(lm: ha.LM, count: int) -> None:
    questions = load_questions("stories", limit=count)
    examples = [with_answer(lm, q, q.answer) for q in questions]
    features = empty_features(lm, len(examples))
    capture(lm, examples, group_by_main(questions), all_tokens, features)
    labels = np.array([FUNCTIONS.index(q.function) for q in questions])
    parts = [np.array([i for i, q in enumerate(questions) if q.split == s]) for s in SPLITS]
    data = Examples(features, *parts, lm.device)
    for batch in (1, 32):
        accuracy = []
        start = time.perf_counter()
        for seed in range(3):
            fit = fit_probe(data, labels, len(FUNCTIONS), **PUBLISHED, batch=batch, seed=seed)
            accuracy.append((predict(fit.probe, data) == labels[data.test]).mean())
        seconds = (time.perf_counter() - start) / 3
        print(f"batch {batch:2}: accuracy {', '.join(f'{a:.3f}' for a in accuracy)}; {seconds:.1f} s per fit")


def measure_shape() -> None:
    lm = llama_8b()
    generator = torch.Generator().manual_seed(0)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(0, 100_000, (n,), generator=generator).tolist())

    examples, groups = [], []
    # Like the built-in questions: five per main question, with about 90 shared tokens.
    for _ in range(64):
        main = draw(90)
        groups.append(list(range(len(examples), len(examples) + 5)))
        examples += [TokenExample(main + draw(25), draw(5)) for _ in range(5)]
    features = empty_features(lm, len(examples))
    capture(lm, examples, groups, all_tokens, features)
    generate_with_hooks(lm, examples[:2])
    packed_seconds = statistics.median(
        time_call(lambda: capture(lm, examples, groups, all_tokens, features)) for _ in range(3)
    )
    hook_seconds = statistics.median(time_call(lambda: generate_with_hooks(lm, examples[:16])) for _ in range(3)) / 16
    texts = torch.tensor([a.prompt + a.target for a in examples], device=lm.device)

    @torch.no_grad()
    def bare() -> None:
        for part in texts.split(64):
            lm.model(input_ids=part, use_cache=False, logits_to_keep=1)

    bare()
    pass_seconds = statistics.median(time_call(bare) for _ in range(3)) / len(examples)
    packed_seconds /= len(examples)
    ratio = hook_seconds / packed_seconds
    print(
        f"{lm}\nours {1e3 * packed_seconds:.2f} ms per prompt, one at a time {1e3 * hook_seconds:.1f} ms: {ratio:.0f} ×"
    )
    ratio = packed_seconds / pass_seconds
    print(f"a bare forward pass {1e3 * pass_seconds:.2f} ms per prompt: ours is {ratio:.2f} × that")


def compare_causal(lm: ha.LM, folder: str) -> None:
    """Print the Spearman correlation of importance with |gradient of log P(answer) in each gate|, by function."""
    result = load(Path(folder) / "probe.nc")
    questions = [q for q in load_questions("stories") if q.split == "test"]
    for function in result.function.values.tolist():
        examples = [with_answer(lm, q, q.answer) for q in questions if q.function == function][:32]
        gate_gradient = np.abs(gate_gradients(lm, examples).numpy()).mean(0)
        importance = result.importance.sel(function=function, drop=True)
        agreement = ha.compare(importance, importance.copy(data=gate_gradient))
        print(f"{function:25} Spearman {float(agreement.spearman):+.2f}  p {float(agreement.p):.3f}")


def compare_words() -> None:
    """Print the accuracy of a bag of words, trained on the training split, by source of the words and split."""
    texts = {"question": lambda q: q.text, "prompt": in_words, "answer": lambda q: q.answer}
    for name in QUESTIONS:
        questions = load_questions(name)
        labels = np.array([FUNCTIONS.index(q.function) for q in questions])
        train, *other_splits = (np.array([i for i, q in enumerate(questions) if q.split == s]) for s in SPLITS)
        for source, text in texts.items():
            accuracies = [
                bag_of_words([text(q) for q in questions], labels, train, indices) for indices in other_splits
            ]
            print(f"{name:8} words of the {source:9} validation {accuracies[0]:.1%}  test {accuracies[1]:.1%}")


if __name__ == "__main__":
    parser = make_parser(__doc__, model="smollm2", device="auto", questions=200, atlas="atlas")
    parser.add_argument("what", choices=["capture", "memory", "batch", "shape", "words", "causal"])
    options = parser.parse_args()
    load_model = partial(ha.load, options.model, options.device)
    {
        "capture": lambda: compare_capture(load_model(), options.questions),
        "memory": compare_memory,
        "batch": lambda: compare_batches(load_model(), options.questions),
        "shape": measure_shape,
        "words": compare_words,
        "causal": lambda: compare_causal(load_model(), options.atlas),
    }[options.what]()

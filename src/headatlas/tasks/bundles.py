"""Tasks as the model meets them: examples behind worked examples, bundled where they begin alike."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from headatlas.models.lm import LM
from headatlas.models.tokens import Bundle, TokenExample, encode_target, make_bundle
from headatlas.tasks.prompts import Example, Task

IN_A_BUNDLE = 4  # examples that share their worked example, and so the cost of running it

MatchedBundles = tuple[Bundle, ...]
"""The same examples as matched tasks (mostly one) put them: a bundle for each task."""


@dataclass(frozen=True)
class _Group:
    """Examples of a task behind the same few-shot examples: the rows of a bundle."""

    task: Task
    shown: tuple[Example, ...]
    examples: tuple[Example, ...]


def batches_of(lm: LM, tasks: Sequence[Task], batch: int, seed: int) -> Iterator[list[MatchedBundles]]:
    """Training examples for update after update, `batch` at a time, epoch after epoch, each in an order of its own."""
    generator = np.random.default_rng(seed)
    left: list[int] = []
    while True:
        while len(left) < batch:
            left += generator.permutation(len(tasks[0].train)).tolist()
        now, left = left[:batch], left[batch:]
        yield _bundles(lm, _lay_out(tasks, "train", now, generator))


def ahead(updates: Iterator[list[MatchedBundles]]) -> Generator[list[MatchedBundles], None, None]:
    """The same, each made while the one before it is used: words take a while to become tokens."""
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(next, updates)
        while True:
            now = upcoming.result()
            upcoming = thread.submit(next, updates)
            yield now


def held_out_bundles(lm: LM, task: Task, limit: int) -> list[Bundle]:
    """Up to `limit` held-out examples, as many of one kind as of another, the same ones every time."""
    return [bundle for (bundle,) in _bundles(lm, _held_out(task, limit))]


def held_out_rows(task: Task, limit: int) -> list[Example]:
    """The rows in the prompts of `held_out_bundles`: the examples and the few-shot examples before them."""
    return [row for (group,) in _held_out(task, limit) for row in (*group.shown, *group.examples)]


def _held_out(task: Task, limit: int) -> list[tuple[_Group, ...]]:
    generator = np.random.default_rng(0)
    turns: list[tuple[int, int]] = []  # each kind's first example, then each kind's second, …
    taken: Counter[str] = Counter()
    for i in generator.permutation(len(task.held_out)).tolist():
        turns.append((taken[task.held_out[i].kind], i))
        taken[task.held_out[i].kind] += 1
    chosen = [i for _, i in sorted(turns, key=lambda t: t[0])[:limit]]
    return _lay_out([task], "held_out", chosen, generator)


def bundles_of(lm: LM, task: Task, split: str, seed: int) -> list[Bundle]:
    """All examples of a split, each behind worked examples."""
    chosen = range(len(getattr(task, split)))
    return [bundle for (bundle,) in _bundles(lm, _lay_out([task], split, chosen, np.random.default_rng(seed)))]


def _lay_out(
    tasks: Sequence[Task], split: str, chosen: Sequence[int], generator: np.random.Generator
) -> list[tuple[_Group, ...]]:
    """The chosen examples in groups, one for each task: as many full ones as possible, the rest one by one.

    Those in a group are of one kind and follow the same worked examples; without worked examples, they are of similar
    length. The layout does not change which examples are run. Batches of one kind or length would share more of their
    beginnings, but gates fitted to them follow whatever came last.
    """
    first = tasks[0]
    examples = [getattr(t, split) for t in tasks]
    groups: dict[str, list[int]] = {}
    for i in (
        chosen if first.shots else sorted(chosen, key=lambda i: len(examples[0][i].prompt) + len(examples[0][i].target))
    ):
        groups.setdefault(examples[0][i].kind if first.shots else "", []).append(i)
    parts = []
    for kind, members in groups.items():
        others = sum(e.kind == kind for e in first.train) - first.shots  # enough must be left to show
        bundled = len(members) // IN_A_BUNDLE * IN_A_BUNDLE if not first.shots or others >= IN_A_BUNDLE else 0
        parts += [members[a : a + IN_A_BUNDLE] for a in range(0, bundled, IN_A_BUNDLE)]
        parts += [[i] for i in members[bundled:]]
    return [
        tuple(_group(t, [e[i] for i in members], generator) for t, e in zip(tasks, examples, strict=True))
        for members in parts
    ]


def _group(task: Task, examples: Sequence[Example], generator: np.random.Generator) -> _Group:
    shown: tuple[Example, ...] = ()
    if task.shots:
        others = [e for e in task.train if e.kind == examples[0].kind and e not in examples]
        chosen = generator.choice(len(others), size=task.shots, replace=False)
        shown = tuple(others[i] for i in chosen)
    return _Group(task, shown, tuple(examples))


def _bundles(lm: LM, groups: Iterable[tuple[_Group, ...]]) -> list[MatchedBundles]:
    return [tuple(_bundle(lm, group) for group in matched) for matched in groups]


def _bundle(lm: LM, group: _Group) -> Bundle:
    task = group.task
    shown = "".join(f"{e.prompt}{e.target}{task.separator}" for e in group.shown)
    return make_bundle([_encode(lm, task, shown, e) for e in group.examples])


def _encode(lm: LM, task: Task, shown: str, example: Example) -> TokenExample:
    prompt = f"{shown}{example.prompt}" if shown else example.prompt
    return encode_target(lm, prompt, example.target, f"task {task.name!r}, prompt {str(example.prompt)[:40]!r}")

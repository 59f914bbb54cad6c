"""Lay out tasks as the model reads them: examples after few-shot examples, bundled if they share a beginning."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from headatlas.models.lm import LM
from headatlas.models.tokens import Bundle, TokenExample, encode_target, make_bundle
from headatlas.tasks.prompts import Example, Task

# Examples that share their few-shot examples, and so the cost of running these.
BUNDLE_SIZE = 4

MatchedBundles = tuple[Bundle, ...]
"""The same examples as each of several matched tasks (mostly one) words them: a bundle per task."""


@dataclass(frozen=True)
class _Group:
    """Examples of a task after the same few-shot examples: the rows of a bundle."""

    task: Task
    shown: tuple[Example, ...]
    examples: tuple[Example, ...]


def batches_of(lm: LM, tasks: Sequence[Task], batch: int, seed: int) -> Iterator[list[MatchedBundles]]:
    """Yield training examples, `batch` per update, without end; every epoch is in a new random order."""
    generator = np.random.default_rng(seed)
    upcoming: list[int] = []
    while True:
        while len(upcoming) < batch:
            upcoming += generator.permutation(len(tasks[0].train)).tolist()
        rows = upcoming[:batch]
        upcoming = upcoming[batch:]
        yield _bundles(lm, _lay_out(tasks, "train", rows, generator))


def prefetch(updates: Iterator[list[MatchedBundles]]) -> Generator[list[MatchedBundles], None, None]:
    """Yield the same items, tokenising the next one in a background thread while the current one is used."""
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(next, updates)
        while True:
            current = upcoming.result()
            upcoming = thread.submit(next, updates)
            yield current


def held_out_bundles(lm: LM, task: Task, limit: int) -> list[Bundle]:
    """Bundle up to `limit` held-out examples, equally many of each kind, the same ones every time."""
    return [bundle for (bundle,) in _bundles(lm, _held_out(task, limit))]


def held_out_rows(task: Task, limit: int) -> list[Example]:
    """Return the rows in the prompts of `held_out_bundles`: the examples and their few-shot examples."""
    return [row for (group,) in _held_out(task, limit) for row in (*group.shown, *group.examples)]


def held_out_examples(lm: LM, task: Task, limit: int) -> list[tuple[Example, TokenExample]]:
    """Return the examples of `held_out_bundles`, each as its row and as tokens."""
    groups = _held_out(task, limit)
    rows = [example for (group,) in groups for example in group.examples]
    tokens = [example for (bundle,) in _bundles(lm, groups) for example in bundle.examples]
    return list(zip(rows, tokens, strict=True))


def _held_out(task: Task, limit: int) -> list[tuple[_Group, ...]]:
    generator = np.random.default_rng(0)
    # Kinds take turns: the first example of each kind, then the second of each, …
    turns: list[tuple[int, int]] = []
    counts: Counter[str] = Counter()
    for i in generator.permutation(len(task.held_out)).tolist():
        turns.append((counts[task.held_out[i].kind], i))
        counts[task.held_out[i].kind] += 1
    rows = [i for _, i in sorted(turns, key=lambda turn: turn[0])[:limit]]
    return _lay_out([task], "held_out", rows, generator)


def bundles_of(lm: LM, task: Task, split: str, seed: int) -> list[Bundle]:
    """Bundle all examples of a split, each after few-shot examples."""
    rows = range(len(getattr(task, split)))
    return [bundle for (bundle,) in _bundles(lm, _lay_out([task], split, rows, np.random.default_rng(seed)))]


def _lay_out(
    tasks: Sequence[Task], split: str, rows: Sequence[int], generator: np.random.Generator
) -> list[tuple[_Group, ...]]:
    """Arrange rows of a split in groups, one for each task: as many full groups as possible, the other rows singly.

    Rows of a group have the same kind and follow the same few-shot examples; without few-shot examples, they have a
    similar length. The layout does not change which rows are run. Batches of one kind or length would share longer
    beginnings, but gates fitted to them would follow the last kind seen.
    """
    first = tasks[0]
    examples = [getattr(t, split) for t in tasks]
    groups: dict[str, list[int]] = {}
    if not first.shots:
        rows = sorted(rows, key=lambda i: len(examples[0][i].prompt) + len(examples[0][i].target))
    for i in rows:
        groups.setdefault(examples[0][i].kind if first.shots else "", []).append(i)
    parts = []
    for kind, members in groups.items():
        # A bundle must leave enough other rows of the kind for its few-shot examples.
        others = sum(e.kind == kind for e in first.train) - first.shots
        can_bundle = not first.shots or others >= BUNDLE_SIZE
        bundled = len(members) // BUNDLE_SIZE * BUNDLE_SIZE if can_bundle else 0
        parts += [members[start : start + BUNDLE_SIZE] for start in range(0, bundled, BUNDLE_SIZE)]
        parts += [[i] for i in members[bundled:]]
    return [
        tuple(_group(t, [e[i] for i in members], generator) for t, e in zip(tasks, examples, strict=True))
        for members in parts
    ]


def _group(task: Task, examples: Sequence[Example], generator: np.random.Generator) -> _Group:
    shown: tuple[Example, ...] = ()
    if task.shots:
        others = [e for e in task.train if e.kind == examples[0].kind and e not in examples]
        shown = tuple(others[i] for i in generator.choice(len(others), size=task.shots, replace=False))
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

"""Tasks of prompt and target, which `gate`, `ablate` and the other causal methods measure.

Four are built in; users give theirs as JSON Lines, CSV, a list, or a Hugging Face dataset. An example may have a `kind`
(its few-shot examples are then of the same kind) and a `split`; without splits, a fifth of the examples is held out.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from importlib.resources import files
from numbers import Integral
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pandas as pd

from headatlas.errors import (
    BadArgument,
    BadFile,
    HeadAtlasError,
    MissingExtra,
    brief,
    check_columns,
    check_unique,
    one_line,
)
from headatlas.models.lm import LM, Text
from headatlas.models.loading import Parameters
from headatlas.models.token_text import text_inside
from headatlas.tasks.built_in import BUILT_IN, check_task
from headatlas.tasks.words import word_ids

EXPECTED = (
    f"names of built-in tasks ({', '.join(BUILT_IN)}), files, examples such as"
    ' [{"prompt": "…", "target": "…"}, …] or [("prompt", "target"), …], or {name: examples}'
)
SPLITS = ("train", "held_out")
# Share of a task's examples that is held out if they have no splits.
HELD_OUT = 0.2


@dataclass(frozen=True)
class Example:
    """A prompt and its target. row: the prompt that identifies the row, if a template changed it."""

    prompt: Text
    target: Text
    kind: str = ""
    row: str = dataclass_field(default="", repr=False, compare=False)


@dataclass(frozen=True)
class Task:
    """A task. Every prompt follows `shots` few-shot examples of the same kind, taken from `train`."""

    name: str
    train: tuple[Example, ...]
    held_out: tuple[Example, ...]
    shots: int = 0
    separator: str = "\n\n"

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of its examples."""
        return sorted({e.kind for e in (*self.train, *self.held_out)} - {""})

    def halves(self) -> tuple["Task", "Task"]:
        """Return the task with each half of its training examples; every kind is halved."""
        if len(self.train) < 2:
            raise BadArgument(f"task {self.name!r} has {len(self.train)} train example: too few for two halves")
        order = sorted(range(len(self.train)), key=lambda i: self.train[i].kind)
        parts = [tuple(self.train[i] for i in sorted(order[start::2])) for start in (0, 1)]
        return replace(self, train=parts[0]), replace(self, train=parts[1])


def load_tasks(lm: LM | Parameters | None, tasks: Any, shots: Any = None) -> list[Task]:
    """Load tasks from names, files, `hf:` addresses, examples, {name: examples} or Tasks.

    shots: few-shot examples per prompt (default: 1 for built-in tasks, 0 for others). Without a model, tasks are read
    and checked, except aba_abb, which is made from the model's vocabulary.
    """
    if shots is not None and (not isinstance(shots, Integral) or shots < 0):
        raise BadArgument(f"shots is {brief(shots)}, expected 0 or more")
    listed = list_tasks("tasks", tasks)
    loaded = [_load(lm, name, task) for name, task in listed if lm is not None or task != "aba_abb"]
    check_task_names(loaded)
    loaded = [t if shots is None else replace(t, shots=int(shots)) for t in loaded]
    for task in loaded:
        check_shots(task)
    return loaded


def check_task_names(tasks: Iterable[Task]) -> None:
    """Check that no two tasks have the same name."""
    check_unique("tasks", [t.name for t in tasks], "; give {name: examples}")


def list_tasks(argument: str, tasks: Any) -> list[tuple[str, Any]]:
    """List tasks one by one, each with the name that the user gave it, or ''."""
    if isinstance(tasks, str | Path | Task):
        return [("", tasks)]
    if isinstance(tasks, pd.DataFrame):
        return [("", tasks.to_dict("records"))]
    if not isinstance(tasks, Iterable):
        raise BadArgument(f"{argument} is {brief(tasks)}, expected {EXPECTED}")
    listed: list[Any] = list(tasks)
    if not listed:
        raise BadArgument(f"{argument} is empty, expected {EXPECTED}")
    if isinstance(tasks, Mapping):
        if isinstance(tasks.get("prompt"), str):
            raise BadArgument(f"{argument} is one example, {brief(dict(tasks))}: expected a list of at least 2")
        for name in listed:
            if not isinstance(name, str) or not name.strip():
                raise BadArgument(
                    f"{argument} has the name {brief(name)}, expected text, as in {{'capitals': examples}}"
                )
        return list(tasks.items())
    return [("", listed)] if _looks_like_example(listed[0]) else [("", task) for task in listed]


def _looks_like_example(value: Any) -> bool:
    """Return whether a value can only be meant as an example, valid or not."""
    if isinstance(value, Mapping | Example):
        return True
    return isinstance(value, tuple | list) and bool(value) and all(_is_text(part) for part in value)


def as_text(value: Any) -> Text | None:
    """Return text as it is and token ids as a tuple; None if the value is neither, or empty."""
    if isinstance(value, str):
        return value if value.strip() else None
    ids = value.tolist() if hasattr(value, "tolist") else value
    is_ids = isinstance(ids, list | tuple) and bool(ids) and all(isinstance(i, Integral) for i in ids)
    return tuple(ids) if is_ids else None


def _is_text(value: Any) -> bool:
    return as_text(value) is not None


def describe_tasks() -> list[dict[str, Any]]:
    """Return a row per built-in task."""
    rows = []
    for name, about in BUILT_IN.items():
        sizes = ABA_ABB  # made from each model's own vocabulary
        if name != "aba_abb":
            task = _built_in(name)
            sizes = {"train": len(task.train), "held out": len(task.held_out), "shots": task.shots}
        rows.append({"task": name, **sizes, "about": about})
    return rows


def hash_tasks(tasks: Iterable[Task]) -> str:
    """Return a short hash of the tasks, for provenance and resuming."""
    return hashlib.sha256(repr(list(tasks)).encode()).hexdigest()[:16]


def _load(lm: LM | Parameters | None, name: str, task: Any) -> Task:
    """Load a task. name: the name that the user gave it, or ''."""
    if isinstance(task, Task):
        train, held_out = (
            _distinct(replace(e, prompt=_frozen(e.prompt), target=_frozen(e.target)) for e in part)
            for part in (task.train, task.held_out)
        )
        return _require_both_parts(replace(task, train=train, held_out=held_out, name=name or task.name))
    if isinstance(task, str | Path):
        check_task(task)
        if str(task) == "aba_abb":
            assert lm is not None
            built = aba_abb(lm)
        elif str(task) in BUILT_IN:
            built = _built_in(str(task))
        elif str(task).startswith("hf:"):
            built = split_examples(str(task), _check(str(task), _from_hub(str(task))))
        else:
            path = Path(task).expanduser()
            built = split_examples(path.stem, _read(path))
        return replace(built, name=name or built.name)
    where = f"tasks[{name!r}]" if name else "tasks"
    if isinstance(task, pd.DataFrame):
        task = task.to_dict("records")
    if isinstance(task, Mapping) or not isinstance(task, Iterable):
        raise BadArgument(f"{where} is {brief(task)}, expected {EXPECTED}")
    return split_examples(name or "task", _check(where, task, BadArgument))


def _built_in(name: str) -> Task:
    file = files("headatlas.tasks") / "data" / "gate" / f"{name}.jsonl"
    return replace(split_examples(name, _parse_lines(name, file.read_text(encoding="utf-8"))), shots=1)


def _read(path: Path) -> list[tuple[Example, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise BadFile(f"cannot read tasks from {path}: {one_line(e)}") from e
    if path.suffix.lower() != ".csv":
        return _parse_lines(str(path), text)
    reader = csv.DictReader(io.StringIO(text, newline=""))
    check_columns(path, reader.fieldnames, ("prompt", "target"))
    try:
        return _check(str(path), reader)
    except csv.Error as e:
        raise BadFile(f"{path}, line {reader.line_num} is not CSV: {one_line(e)}") from e


def _parse_lines(where: str, text: str) -> list[tuple[Example, str]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except ValueError as e:
            raise BadFile(f"{where}, line {number} is not JSON: {one_line(e)}") from e
    return _check(where, rows)


def _from_hub(address: str) -> list[dict[str, Any]]:
    """Read 'hf:NAME?config=main&split=train&prompt=question&target=answer'; all but the name may be left out."""
    try:
        import datasets
    except ImportError as e:
        raise MissingExtra(f"{address} needs the datasets package: pip install 'headatlas[datasets]'") from e
    name, _, query = address.removeprefix("hf:").partition("?")
    options = dict(parse_qsl(query))
    if unknown := set(options) - {"config", "split", "prompt", "target", "kind"}:
        raise BadArgument(f"{address}: {min(unknown)!r} is not one of config, split, prompt, target, kind")
    split = options.pop("split", "train")
    try:
        rows = datasets.load_dataset(name, options.pop("config", None), split=split)
    except Exception as e:  # the datasets library raises many unrelated types
        raise BadFile(f"{address}: cannot load split {split!r}: {one_line(e)}") from e
    columns = {field: options.get(field, field) for field in ("prompt", "target", "kind")}
    for field in ("prompt", "target"):
        if columns[field] not in rows.column_names:
            raise BadArgument(
                f"{address}: no column {columns[field]!r} for the {field}; there are {', '.join(rows.column_names)}"
                f" (choose with ?{field}=COLUMN)"
            )
    return [{field: row[c] for field, c in columns.items() if c in row} for row in rows]


def _check(where: str, rows: Iterable[Any], error: type[HeadAtlasError] = BadFile) -> list[tuple[Example, str]]:
    """Return examples with their splits, '' for none."""
    examples = []
    for i, entry in enumerate(rows):
        place = f"{where}, example {i + 1}"
        row = entry
        if isinstance(entry, Example):
            row = {"prompt": entry.prompt, "target": entry.target, "kind": entry.kind}
        elif isinstance(entry, tuple | list) and len(entry) == 2:
            row = dict(zip(("prompt", "target"), entry, strict=True))
        if not isinstance(row, Mapping) or "prompt" not in row or "target" not in row:
            raise error(f'{place} is {brief(entry)}, expected {{"prompt": "…", "target": "…"}} or ("prompt", "target")')
        for field in ("prompt", "target"):
            if not _is_text(row[field]):
                raise error(f"{place} has {field} {brief(row[field])}, expected text")
        split = str(row.get("split") or "")
        if split and split not in SPLITS:
            raise error(f"{place} has split {split!r}, expected one of {', '.join(SPLITS)}")
        examples.append((Example(_frozen(row["prompt"]), _frozen(row["target"]), str(row.get("kind") or "")), split))
    return examples


def _frozen(text: Any) -> Text:
    return text if isinstance(text, str) else tuple(text.tolist() if hasattr(text, "tolist") else text)


def _distinct(examples: Iterable[Any]) -> tuple[Any, ...]:
    """Drop repeated examples: one could otherwise be a few-shot example of itself."""
    return tuple(dict.fromkeys(examples))


def split_examples(name: str, pairs: list[tuple[Example, str]]) -> Task:
    """Make a task from examples and their splits; if none has a split, a fifth is held out."""
    examples = list(_distinct(pairs))
    if len(examples) < 2:
        counted = f"{len(pairs)} example{'s' * (len(pairs) != 1)}" + f", {len(examples)} distinct" * (
            len(pairs) > len(examples)
        )
        raise BadArgument(f"task {name!r} has {counted}, expected at least 2: one to train on and one to hold out")
    if not any(split for _, split in examples):
        order = np.random.default_rng(0).permutation(len(examples))
        held_out_rows = set(order[: max(1, round(HELD_OUT * len(examples)))].tolist())
        examples = [(e, SPLITS[i in held_out_rows]) for i, (e, _) in enumerate(examples)]
    train = tuple(e for e, split in examples if split != "held_out")
    held_out = tuple(e for e, split in examples if split == "held_out")
    return _require_both_parts(Task(name, train, held_out))


def _require_both_parts(task: Task) -> Task:
    if not task.train or not task.held_out:
        counted = f"{len(task.train)} train and {len(task.held_out)} held_out examples"
        raise BadArgument(f"task {task.name!r} has {counted}: give some of both")
    return task


def check_shots(task: Task) -> None:
    """Check that every kind has enough training examples for few-shot prompts."""
    if not task.shots:
        return
    if any(not isinstance(e.prompt, str) for e in (*task.train, *task.held_out)):
        raise BadArgument(f"task {task.name!r} is made of token ids: few-shot examples (shots={task.shots}) need text")
    for kind in sorted({e.kind for e in (*task.train, *task.held_out)}):
        n = sum(e.kind == kind for e in task.train)
        if n <= task.shots:
            raise BadArgument(
                f"task {task.name!r} has {n} train examples{f' of kind {kind!r}' if kind else ''}, too few for"
                f" shots={task.shots}: few-shot examples are taken from the other train examples"
            )


ABA_ABB = {"train": 480, "held out": 160, "shots": 4}


def aba_abb(lm: LM | Parameters, seed: int = 0) -> Task:
    """Make a task of lines of three random words, ABA or ABB; the third word of the last line is the target.

    The words are single tokens of this model's vocabulary; no word occurs twice within the prompts of an example.
    """
    tokenizer = lm.tokenizer
    # The first 60,000 tokens hold enough words; larger vocabularies would only take longer.
    plain = {
        w[1:].lower()
        for w in (text_inside(tokenizer, [i]) for i in range(min(len(tokenizer), 60_000)))
        if w[:1] == " " and w[1:].isascii() and w[1:].isalpha() and len(w) > 3
    }
    listed = sorted(plain)
    words = [w for w, ids in zip(listed, word_ids(tokenizer, listed), strict=True) if len(ids) == 1]
    if len(words) < 40:
        raise BadArgument(f"task 'aba_abb' needs 40 words that are single tokens: model {lm.name!r} has {len(words)}")
    generator = np.random.default_rng(seed)
    total = ABA_ABB["train"] + ABA_ABB["held out"]
    pairs: dict[tuple[str, str], None] = {}
    while len(pairs) < total:
        a, b = (words[j] for j in generator.choice(len(words), size=2, replace=False))
        pairs[a, b] = None
    examples = []
    for i, (a, b) in enumerate(pairs):
        kind = ("aba", "abb")[i % 2]
        example = Example(f"- {a}: {b}:", f" {a if kind == 'aba' else b}", kind)
        examples.append((example, SPLITS[i >= ABA_ABB["train"]]))
    return replace(split_examples("aba_abb", examples), shots=ABA_ABB["shots"], separator="\n")

"""Record the rows and few-shot counts that a map used: later tests must use other rows in prompts of the same form."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headatlas.tasks.prompts import Example, Task
    from headatlas.tasks.questions import Question
    from headatlas.tasks.relations import Relation


@dataclass(frozen=True)
class Used:
    """The rows that a map was made from.

    rows: `row_id` of every question and every few-shot example that the map was fitted to or measured on.
    shots: few-shot examples per prompt, by task.
    """

    rows: frozenset[int] = frozenset()
    shots: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: "Used") -> "Used":
        return Used(self.rows | other.rows, {**self.shots, **other.shots})


def row_id(example: "Example") -> int:
    """Identify a row by its prompt and target, whatever file, split or template it is in."""
    return text_id(example.row or example.prompt, example.target)


def text_id(prompt: object, target: object) -> int:
    """Return a 64-bit hash of a prompt and its target."""
    digest = hashlib.sha256(repr((prompt, target)).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def used_rows(tasks: Iterable["Task"], examples: Iterable["Example"]) -> Used:
    """Record examples, and the shots of their tasks."""
    return Used(frozenset(map(row_id, examples)), {task.name: task.shots for task in tasks})


def used_pairs(relations: Iterable["Relation"]) -> Used:
    """Record all word pairs of relations, as rows of the relations' prompts."""
    return Used(frozenset(text_id(r.row(source), f" {target}") for r in relations for source, target in r.pairs))


def used_questions(questions: Iterable["Question"]) -> Used:
    """Record steps of cognitive questions, each as a row of question and answer."""
    return Used(frozenset(text_id(q.text, q.answer) for q in questions))

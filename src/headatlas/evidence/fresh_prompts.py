"""The prompts of a test: none was used to make, choose or tune the tested map, and the answers each could have had."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, encode_target, tokenizer_of, without_end
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.tasks.bundles import held_out_examples
from headatlas.tasks.labelled import named_task
from headatlas.tasks.prompts import Example, Task, check_shots
from headatlas.tasks.questions import Question, load_questions, with_answer
from headatlas.tasks.texts import built_in_texts
from headatlas.tasks.used import Used, row_id, used_questions

MAX_CANDIDATES = 64  # answers that the right one is compared with
MAX_OTHER_ROWS = 200  # rows that other answers are taken from
TEXT_ANSWER = 3  # tokens at the end of a plain text that are predicted
MIN_PROMPTS = 8


@dataclass(frozen=True)
class PromptSet:
    """What a model is asked in the test of a subject.

    Args:
        subject: what the prompts are about.
        examples: prompts with their right answers.
        candidates: by example, the first tokens of the answers that its subject has.
        cluster: by example, the main question or kind that it belongs to.
        guess: the accuracy of the best guess: the commonest answer, or chance among the candidates.
        missing: why there are no prompts, or fewer than wanted.
    """

    subject: str
    examples: tuple[TokenExample, ...] = ()
    candidates: tuple[tuple[int, ...], ...] = ()
    cluster: tuple[int, ...] = ()
    guess: float = 0.0
    missing: str = ""

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def has_choice(self) -> bool:
        """Whether answers can be told apart by their first tokens."""
        return bool(self.candidates) and min(map(len, self.candidates)) > 1

    def first(self, n: int) -> "PromptSet":
        """Return the first n examples."""
        return replace(
            self, examples=self.examples[:n], candidates=self.candidates[:n], cluster=self.cluster[:n], missing=""
        )


def load_prompts(lm: LM, subject: Any, used: Used | None, n: int, *, name: str = "", seed: int = 0) -> PromptSet:
    """Return up to n fresh prompts of a subject.

    Args:
        lm: the model; prompts are tokens of its tokenizer.
        subject: a built-in task, relation or cognitive function, a file, a Task, a Relation, examples, or Questions of
            one function as a tuple.
        used: the rows that the map was made from; None if they are not known.
        n: number of prompts.
        name: of the subject, for examples without one.
        seed: of the prompts and of their few-shot examples.
    """
    if isinstance(subject, str) and subject in FUNCTIONS:
        questions = [question for question in load_questions() if question.function == subject]
        return question_prompts(lm, subject, questions, used, n, seed=seed)
    if isinstance(subject, tuple) and subject and isinstance(subject[0], Question):
        return question_prompts(lm, name, subject, used, n, seed=seed)
    return task_prompts(lm, named_task(lm, name, subject), used, n, seed=seed)


def task_prompts(lm: LM, task: Task, used: Used | None, n: int, *, seed: int = 0) -> PromptSet:
    """Return up to n prompts of a task from rows that were not used, held-out rows first."""
    if used is None:
        return PromptSet(task.name, missing="the file of the map does not record the rows it used: make it again")
    rows = _rows(task)
    tested = fresh_rows(task, used, n, seed=seed)
    if len(tested) < min(n, MIN_PROMPTS):
        return PromptSet(task.name, missing=_too_few(len(rows), len(tested)))
    test = replace(with_test_rows(task, tested), shots=used.shots.get(task.name, task.shots))
    check_shots(test)
    return prompts_of_task(lm, test, n, seed=seed)


def prompts_of_task(lm: LM, task: Task, n: int, *, seed: int = 0) -> PromptSet:
    """Return up to n prompts of a task's held-out rows, equally many of each kind."""
    pairs = held_out_examples(lm, task, n)
    kinds = [example.kind for example, _ in pairs]
    generator = np.random.default_rng([seed, *task.name.encode(), 1])
    others = [task.train[i] for i in generator.permutation(len(task.train))[:MAX_OTHER_ROWS]]

    def encode(example: Example) -> TokenExample:
        return encode_target(lm, example.prompt, example.target, f"task {task.name!r}")

    answers = [(example.kind, encode(example)) for example in others]
    return _prompt_set(task.name, [tokens for _, tokens in pairs], kinds, answers, kinds, n)


def _rows(task: Task) -> dict[int, Example]:
    """Return all rows of a task by their identity; each is there once."""
    return {row_id(example): example for example in (*task.train, *task.held_out)}


def fresh_rows(task: Task, used: Used, n: int, *, seed: int = 0) -> list[Example]:
    """Return up to n rows that no map used, in a random order, held-out rows first."""
    held_out = {row_id(example) for example in task.held_out}
    unused = [(i, example) for i, example in _rows(task).items() if i not in used.rows]
    order = np.random.default_rng([seed, *task.name.encode()]).permutation(len(unused))
    shuffled = sorted((unused[i] for i in order), key=lambda row: row[0] not in held_out)
    return [example for _, example in shuffled[:n]]


def with_test_rows(task: Task, tested: Iterable[Example]) -> Task:
    """Return the task with these rows held out; all others are few-shot examples, except those of the same prompts."""
    held_out = tuple(tested)
    ids = {row_id(example) for example in held_out}
    prompts = {example.prompt for example in held_out}
    shown = [example for i, example in _rows(task).items() if i not in ids and example.prompt not in prompts]
    return replace(task, train=tuple(shown), held_out=held_out)


def question_prompts(
    lm: LM,
    subject: str,
    questions: Sequence[Question],
    used: Used | None,
    n: int,
    *,
    template: bool = True,
    seed: int = 0,
) -> PromptSet:
    """Return up to n prompts of questions of one cognitive function that were not used, test questions first."""
    if used is None:
        return PromptSet(subject, missing="the file of the map does not record the questions it used: make it again")
    unused = [question for question in questions if not used_questions([question]).rows & used.rows]
    generator = np.random.default_rng([seed, *subject.encode()])
    order = [unused[i] for i in generator.permutation(len(unused))]
    order.sort(key=lambda question: question.split != "test")
    tested = order[:n]
    if len(tested) < min(n, MIN_PROMPTS):
        return PromptSet(subject, missing=_too_few(len(questions), len(tested)))
    others = [question for question in questions if question not in tested]
    others = [others[i] for i in generator.permutation(len(others))[:MAX_OTHER_ROWS]]
    answers = [("", with_answer(lm, question, question.answer, template)) for question in others]
    examples = [with_answer(lm, question, question.answer, template) for question in tested]
    groups = [question.group for question in tested]
    return _prompt_set(subject, examples, [""] * len(tested), answers, groups, n)


def text_prompts(lm: LM, n: int) -> PromptSet:
    """Return up to n plain texts whose last tokens are predicted; none where the model has no tokenizer."""
    tokenizer = tokenizer_of(lm)
    if tokenizer is None:
        return PromptSet("plain text", missing="the model has no tokenizer")
    mixed = [str(text) for texts in zip(*built_in_texts().values(), strict=False) for text in texts]
    tokens = [tuple(without_end(tokenizer, text)[: lm.anatomy.context]) for text in mixed]
    long_enough = [ids for ids in tokens if len(ids) > 2 * TEXT_ANSWER][:n]
    examples = tuple(TokenExample(ids[:-TEXT_ANSWER], ids[-TEXT_ANSWER:]) for ids in long_enough)
    return PromptSet("plain text", examples, cluster=tuple(range(len(examples))))


def answers_apart(examples: Sequence[TokenExample]) -> list[TokenExample]:
    """Return the examples with the tokens that all answers begin with counted to the prompts."""
    targets = [example.target for example in examples]
    # what the first and the last in order share, all share
    first = min(targets)
    last = max(targets)
    longest = min(map(len, targets)) - 1
    n = next((i for i in range(longest) if first[i] != last[i]), longest)
    return [TokenExample(example.prompt + example.target[:n], example.target[n:]) for example in examples]


def _prompt_set(
    subject: str,
    examples: Sequence[TokenExample],
    kinds: Sequence[str],
    others: Sequence[tuple[str, TokenExample]],
    groups: Sequence[str],
    n: int,
) -> PromptSet:
    """Give every example the answers of its kind as candidates. others: rows that are not tested, with their kinds."""
    apart = answers_apart([*examples, *(example for _, example in others)])
    tested = apart[: len(examples)]
    rows = list(zip([*kinds, *(kind for kind, _ in others)], apart, strict=True))
    common = {
        kind: [token for token, _ in Counter(row.target[0] for k, row in rows if k == kind).most_common(MAX_CANDIDATES)]
        for kind in set(kinds)
    }
    candidates = tuple(
        tuple(dict.fromkeys([example.target[0], *common[kind]])) for kind, example in zip(kinds, tested, strict=True)
    )
    commonest = np.mean([example.target[0] == common[kind][0] for kind, example in zip(kinds, tested, strict=True)])
    chance = np.mean([1 / len(options) for options in candidates])
    guess = float(max(commonest, chance))
    labels = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    short = "" if len(tested) >= n else f"{len(tested)} fresh prompts, fewer than the {n} wanted"
    return PromptSet(subject, tuple(tested), candidates, tuple(labels[group] for group in groups), guess, short)


def _too_few(rows: int, left: int) -> str:
    return (
        f"{left} of {rows} rows were not used for the map, a test needs at least {MIN_PROMPTS}: give a file with more"
        " rows, or make the map from fewer"
    )

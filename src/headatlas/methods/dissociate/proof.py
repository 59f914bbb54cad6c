"""Test a dissociation: remove the heads of each function, and measure it and the others (evidence/selective.py)."""

from collections.abc import Sequence

import xarray as xr

from headatlas.evidence.selective import Trial, remove_heads_of
from headatlas.methods._effects import MAX_TEST_QUESTIONS, held_out_questions
from headatlas.methods.dissociate.compute import (
    BASELINE,
    candidates,
    closed_share,
    gates_part,
    removal_part,
    stored_baseline,
)
from headatlas.methods.method import Part
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import FinishedParts, Progress, show_step
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.tasks.labelled import LabelledExamples, named_task
from headatlas.tasks.questions import load_questions, with_answer


def removal_parts(data: LabelledExamples, *, steps: Sequence[int], draws: int, batch_tokens: int | None) -> list[Part]:
    """The removal of the heads of each function."""
    parts = []
    for function, name in enumerate(data.names):
        arguments = {"data": data, "function": function, "steps": steps, "draws": draws, "batch_tokens": batch_tokens}
        inputs = (BASELINE, gates_part(name))
        parts.append(Part(name=removal_part(name), do=remove, arguments=arguments, inputs=inputs))
    return parts


def remove(
    lm: LM,
    data: LabelledExamples,
    function: int,
    *,
    steps: Sequence[int],
    draws: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Store what `remove_heads_of` returns for the heads that the gates of a function closed."""
    name = data.names[function]
    with show_step(progress, removal_part(name)):
        score = candidates(closed_share(lm, done[gates_part(name)][0]))
        trial = Trial(lm, data, stored_baseline(done), batch_tokens)
        done[removal_part(name)] = remove_heads_of(trial, function, score, steps, draws=draws)


def ask_test(lm: LM, subject: str) -> list[TokenExample]:
    """Examples of a built-in task, relation or function that were not used to fit gates or to choose heads."""
    if subject in FUNCTIONS:
        questions = [q for q in load_questions() if q.function == subject and q.split == "test"]
        return [with_answer(lm, q, q.answer) for q in questions[:MAX_TEST_QUESTIONS]]
    return held_out_questions(lm, named_task(lm, "", subject), MAX_TEST_QUESTIONS)


def sentences(result: xr.Dataset) -> list[str]:
    """Say of each function whether only it needs its heads."""
    if not {"verdict", "proven", "other_effect"} <= set(result):
        return []
    lines = []
    for function in result.function.values.tolist():
        test = result.sel(function=function)
        size = float(abs(test.other_effect).mean())
        others = f"; without them the others change by ±{size:.2f} on average" * bool(test.proven)
        lines.append(f"dissociate: {function}: {test.verdict.item()}{others}")
    return lines

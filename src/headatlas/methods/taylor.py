"""taylor: what removing a head would do to log P(target), read from one gradient instead of tried.

1. Every head's output is multiplied by a gate that stands at 1.
2. effect = ∂ log P(target) / ∂ gate, one backward pass for all heads and examples (Michel et al. 2019).
3. importance = the mean of its absolute value over examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from headatlas.methods.method import Measure, Truth, Work, method

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import xarray as xr

    from headatlas.models.cost import Cost
    from headatlas.models.lm import LM
    from headatlas.models.targets import Asked
    from headatlas.progress import Done, Progress
    from headatlas.tasks.prompts import Task

MEANING = (
    "log P(target) lost without each head, as one gradient predicts it. A cheap estimate of ablation, not a removal."
)


def tables(result: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    from headatlas.methods._effects import effect_tables

    return effect_tables(result)


def ask(lm: LM, subject: str) -> list[Asked]:
    from headatlas.methods._effects import ask_training

    return ask_training(lm, subject)


@method(
    title="Gradients (Taylor)",
    measures=[
        Measure(
            "effect", over="task", meaning=MEANING, label="log P lost without the head", repeats=("effect_half", "half")
        )
    ],
    presets={"quick": {"limit": 16}, "full": {"limit": 32}},
    tells="what one gradient says a head is worth to a task",
    does_not_tell="what its removal does: that is guessed, and heads are taken one by one",
    cites=("Are Sixteen Heads Really Better than One?, Michel, Levy & Neubig, NeurIPS 2019, arXiv 1905.10650",),
    tables=tables,
    ask=ask,
    truths={"taylor": Truth("functions", "importance", {"limit": 32})},
    order=40,
)
def taylor(
    lm: LM,
    tasks: Annotated[Any, "built-in tasks, files with prompt and target, 'hf:' addresses, or examples of your own"] = (
        "math",
        "syntax",
    ),
    *,
    limit: Annotated[int, "held-out examples of each task"] = 16,
    shots: Annotated[int | None, "worked examples before each prompt; built-in tasks have their own number"] = None,
    batch_tokens: Annotated[int | None, "tokens through the model at once; lower it when memory runs out"] = None,
) -> Work:
    """`ablate` guessed from one gradient.

    Returns effect(task, layer, head) = ∂ log P(target) / ∂ gate, importance(task, layer, head), baseline(task).
    """
    from headatlas.methods._effects import effects_work

    return effects_work("taylor", lm, tasks, measure, cost, {}, limit=limit, shots=shots, batch_tokens=batch_tokens)


def measure(
    lm: LM,
    label: str,
    task: Task,
    layers: Sequence[int],
    limit: int,
    batch_tokens: int | None,
    settings: Mapping[str, Any],
    *,
    done: Done,
    progress: Progress,
) -> None:
    from headatlas.methods._effects import questions_of
    from headatlas.methods._gradients import gate_gradients

    found = gate_gradients(lm, questions_of(lm, task, limit), tokens=batch_tokens, label=label, progress=progress)
    done[label] = (found[:, layers].numpy(),)


def cost(lm: LM, label: str, task: Task, layers: Any, limit: int, batch_tokens: Any, settings: Any) -> Cost:
    from headatlas.methods._effects import alone
    from headatlas.models.cost import learning

    return learning(lm, alone(lm, task, limit))

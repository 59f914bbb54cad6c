"""taylor: estimate what removing each head does to log P(target), from one gradient.

1. Every head's output is multiplied by a gate of 1.
2. contribution = ∂ log P(target) / ∂ gate, one backward pass for all heads and examples (Michel et al. 2019).
3. importance = the mean of its absolute value over examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headatlas.methods._arguments import BatchTokens, Shots, Tasks
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MEANING = (
    "log P(target) lost without each head, as one gradient predicts it. A cheap estimate of ablation, not a removal."
)


@method(
    title="Gradients (Taylor)",
    measures=[
        Measure(
            "contribution",
            over="task",
            meaning=MEANING,
            label="log P lost without the head",
            units="nats",
            repeats=("by_example", "example"),
            claim="needed",
            examples=("examples", "limit"),
        )
    ],
    presets={"quick": {"limit": 16}, "full": {"limit": 32}},
    finds="how much each head contributes to a task, as one gradient predicts it",
    misses="what removing the head does: that is estimated, and for one head at a time",
    cites=("Are Sixteen Heads Really Better than One?, Michel, Levy & Neubig, NeurIPS 2019, arXiv 1905.10650",),
    ask=lazily("headatlas.methods._effects:ask_training"),
    truths={"taylor": Truth("functions", "importance", {"limit": 32})},
    seconds=10,
    in_parts=True,
)
def taylor(
    lm: LM,
    tasks: Tasks = ("math", "syntax"),
    *,
    limit: Annotated[int, "maximum number of held-out examples of each task"] = 16,
    shots: Shots = None,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Estimate the contributions that `ablate` measures from one gradient.

    Returns:
        contribution(task, layer, head), ∂ log P(target) / ∂ gate;
        importance(task, layer, head), the mean of its absolute value over examples; reliability of the
        contribution; baseline(task), log P(target) of the whole model; whole_accuracy(task).

    Example:
        >>> ha.taylor("smollm2", "math").heads.top(5)
    """
    from headatlas.methods._effects import contribution_work
    from headatlas.methods._gradients import compute_gradients

    return contribution_work(
        "taylor",
        lm,
        tasks,
        compute=compute_gradients,
        limit=limit,
        shots=shots,
        batch_tokens=batch_tokens,
    )

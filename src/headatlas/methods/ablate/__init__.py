"""ablate: measure what removing each head alone does to log P(target).

1. A head is removed: its output is set to zero, to its mean over the data, or to its value on another prompt.
2. contribution = log P(target) of the whole model minus that without the head.
3. importance = the mean of its absolute value over examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from headatlas.errors import check_choice
from headatlas.methods._arguments import BatchTokens, Shots, Tasks
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

KINDS = ("zero", "mean", "resample")
MEANING = (
    "Fall of log P(target) when this one head is removed; above 0 the head helps, below 0 it harms."
    " Causal, but blind to heads that compensate for each other."
)


@method(
    title="Ablation",
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
            by_removal=True,
        )
    ],
    presets={"full": {"limit": 32}},
    finds="what removing each head alone does to a task",
    misses="what a head does that others compensate for: heads are removed one by one",
    cites=("Are Sixteen Heads Really Better than One?, Michel, Levy & Neubig, NeurIPS 2019, arXiv 1905.10650",),
    ask=lazily("headatlas.methods._effects:ask_training"),
    truths={
        "ablate": Truth("functions", "contribution", {"limit": 32}),
        "ablate-mean": Truth("functions", "contribution", {"limit": 32, "kind": "mean"}),
        "ablate-resample": Truth("functions", "contribution", {"limit": 32, "kind": "resample"}),
        "ablate-interference": Truth("interference", "contribution", {"limit": 32}, sign=-1),
    },
    seconds=300,
    in_parts=True,
)
def ablate(
    lm: LM,
    tasks: Tasks = ("math", "syntax"),
    *,
    kind: Annotated[
        Literal["zero", "mean", "resample"],
        "what replaces a removed head's output: zero, its mean over the data, or its value on another prompt",
    ] = "zero",
    limit: Annotated[int, "maximum number of held-out examples of each task"] = 16,
    shots: Shots = None,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Measure what removing each head alone does to a task.

    Returns:
        contribution(task, layer, head), mean log P(target) of the whole model minus that without the head;
        importance(task, layer, head), the mean of its absolute value over examples; reliability of the
        contribution; baseline(task), log P(target) of the whole model; whole_accuracy(task).

    Example:
        >>> ha.ablate("smollm2", "math", kind="mean").heads.top(5)
    """
    from headatlas.methods._effects import contribution_work
    from headatlas.methods.ablate.compute import compute_removals
    from headatlas.models.families import LAYERS_PER_PART

    check_choice("kind", kind, KINDS)
    return contribution_work(
        "ablate",
        lm,
        tasks,
        compute=compute_removals,
        limit=limit,
        shots=shots,
        batch_tokens=batch_tokens,
        settings={"kind": kind},
        layers_per_part=LAYERS_PER_PART,
    )

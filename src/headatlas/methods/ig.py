"""ig: estimate each head's contribution to log P(target), from gradients integrated while all gates go from 0 to 1.

1. Every head's output is multiplied by a gate; all gates are set to the middle of one of `steps` equal parts of [0, 1].
2. contribution = ∂ log P(target) / ∂ gate, averaged over the steps (integrated gradients, Sundararajan et al. 2017).
3. Summed over heads, contributions are log P(target) of the whole model minus that without any head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headatlas.errors import check_count
from headatlas.methods._arguments import BatchTokens, Shots, Tasks
from headatlas.methods.method import Measure, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MAX_STEPS = 10_000
MEANING = (
    "log P(target) lost without each head, as gradients between closed and open gates predict it."
    " An estimate, not a removal."
)


@method(
    title="Integrated gradients",
    measures=[
        Measure(
            "contribution",
            over="task",
            meaning=MEANING,
            label="log P lost without the head",
            units="nats",
            repeats=("by_example", "example"),
            examples=("examples", "limit"),
            claim="needed",
        )
    ],
    presets={"full": {"limit": 32}},
    finds="how much each head contributes to a task by gradients, so that contributions add up over heads",
    misses="what removing one head does: all gates move together",
    variables={
        "without_heads": Variable("log P without heads", "nats", "Mean log P(target) of the model without any head.")
    },
    cites=("Axiomatic Attribution for Deep Networks, Sundararajan, Taly & Yan, ICML 2017, arXiv 1703.01365",),
    sentences=lazily("headatlas.methods._effects:sum_sentences"),
    ask=lazily("headatlas.methods._effects:ask_training"),
    truths={"ig": Truth("functions", "contribution", {"limit": 32})},
    seconds=30,
    in_parts=True,
)
def ig(
    lm: LM,
    tasks: Tasks = ("math", "syntax"),
    *,
    steps: Annotated[int, "number of gate values between 0 and 1 at which gradients are computed"] = 16,
    limit: Annotated[int, "maximum number of held-out examples of each task"] = 16,
    shots: Shots = None,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Estimate contributions that add up over heads, from gradients while all gates go from 0 to 1 together.

    Returns:
        contribution(task, layer, head), ∂ log P(target) / ∂ gate, averaged over the steps;
        importance(task, layer, head), the mean of its absolute value over examples; reliability of the
        contribution; baseline(task) and without_heads(task), log P(target) of the whole model and of the model without
        heads (if contributions do not add up to their difference, there were too few steps); whole_accuracy(task).

    Example:
        >>> ha.ig("smollm2", "math", steps=8).heads.top(5)
    """
    from headatlas.methods._effects import contribution_work
    from headatlas.methods._gradients import compute_gradients

    check_count("steps", steps, 1, MAX_STEPS)
    return contribution_work(
        "ig",
        lm,
        tasks,
        compute=compute_gradients,
        limit=limit,
        shots=shots,
        batch_tokens=batch_tokens,
        settings={"steps": steps},
        without_heads=True,
    )

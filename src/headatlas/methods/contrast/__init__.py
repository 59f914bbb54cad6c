"""contrast: find the heads that one task needs and a matched one can spare (Nam et al. 2025, arXiv 2505.13737).

1. Take two tasks whose examples match one by one: A is to be kept, B to be lost.
2. Gates G[l, h] = sigmoid(θ[l, h]) multiply every head's output; weights are frozen. From G ~ Uniform(0, 1), minimise
   max(NLL_A − NLL_B, −5) − λ · mean(clip(θ, −4, 4)), with λ < 0: gates stay open only where A needs them.
3. lost = 1 − G.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import BadArgument, check_count
from headatlas.methods._arguments import Batch, BatchTokens, Low, Seeds, Shots, Strength
from headatlas.methods._seeds import MAX_EXAMPLES, seed_numbers
from headatlas.methods.gate import ROLE_THRESHOLD, Pair
from headatlas.methods.method import Measure, Part, Variable, Work, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM
    from headatlas.tasks.prompts import Task


@method(
    title="Contrastive gating",
    measures=[
        Measure(
            "lost",
            over="task",
            meaning="How far a head's gate closes when one task is to be kept and another lost (mean over seeds): high"
            " means that the kept task can spare the head. Heads that neither task needs close too.",
            at_least=ROLE_THRESHOLD,
            repeats=("lost", "seed"),
            claim="needed",
        )
    ],
    finds="which heads one task needs and a matched one can spare",
    misses="whether the lost task needs each of them: heads that neither task needs are lost too",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    variables={
        "gate": Variable("gate", "", "Fitted gate of a head: 0 is closed, 1 is open."),
        "nll": Variable(
            "−log P", "nats", "Mean −log P(target) on held-out examples, of the whole model and under the gates."
        ),
        "accuracy": Variable(
            "accuracy", "share", "Share of held-out examples done right by the whole model and under the gates."
        ),
    },
    # the settings of gate's quick preset; its two stages of updates are one here
    presets={
        "quick": {"seeds": 2, "strength": 0.4, "updates": 54, "batch": 2, "low": 0.5, "held_out": 32},
        "full": {},
    },
    seconds=60,
    in_parts=True,
    in_run=False,
)
def contrast(
    lm: LM,
    *,
    keep: Annotated[Any, "the task to keep: a built-in one, a file, or a list of examples"],
    lose: Annotated[Any, "the task to lose; its examples must match those of the task to keep, one by one"],
    seeds: Seeds = 10,
    shots: Shots = None,
    strength: Strength = 0.1,
    updates: Annotated[int, "updates of the fit"] = 1000,
    lr: Annotated[Pair, "learning rates at the start and at the end of the fit"] = (0.5, 0.1),
    batch: Batch = 64,
    low: Low = 0.0,
    held_out: Annotated[int, "maximum number of held-out examples of each task to measure the gates on"] = 128,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Find the heads that the task `lose` needs and the task `keep` can spare (docs/methods/contrast.md).

    Returns:
        lost and gate(task, seed, layer, head), where task has one label, for the pair; nll and accuracy(side, gates,
        seed) of keep and lose on held-out examples: of the whole model, under the fitted gates, and under the rounded
        gates.

    Example:
        >>> ha.contrast("smollm2", keep="capitals.jsonl", lose="currencies.jsonl").lost.mean("seed")
    """
    from headatlas.methods.contrast.compute import GATES, combine, fit_pair, pair_name
    from headatlas.methods.gate.compute import check_fitting, make_schedule
    from headatlas.tasks.prompts import hash_tasks
    from headatlas.tasks.used import used_rows

    numbers = seed_numbers(seeds)
    schedule = make_schedule(updates, lr, "lr")
    fitting = check_fitting(strength, batch, low)
    held_out = check_count("held_out", held_out, 1, MAX_EXAMPLES)
    pair = (_one_task(lm, "keep", keep, shots), _one_task(lm, "lose", lose, shots))
    _check_matched(*pair)
    names = {"keep": pair[0].name, "lose": pair[1].name}
    common = {"pair": pair, "seeds": numbers, "batch_tokens": batch_tokens}
    fit_arguments = {**common, **fitting, "schedule": schedule}
    return Work(
        summary=f"keep {names['keep']}, lose {names['lose']}: {len(numbers)} seeds, {schedule.updates} updates",
        combine=combine,
        arguments={**common, "held_out": held_out},
        parts=[Part(name=GATES, do=fit_pair, arguments=fit_arguments)],
        data=hash_tasks(pair),
        settings={**asdict(schedule), **fitting, "seeds": numbers, **names},
        result_settings={"held_out": held_out},
        used=used_rows(pair, (row for task in pair for row in task.train)),
        subjects={pair_name(pair): pair[1]},
    )


def _one_task(lm: LM, argument: str, task: Any, shots: int | None) -> Task:
    from headatlas.tasks.prompts import list_tasks, load_tasks

    task = list(task) if isinstance(task, Iterator) else task
    n_tasks = len(list_tasks(argument, task))
    if n_tasks > 1:
        raise BadArgument(f"{argument} has {n_tasks} tasks, expected one")
    return load_tasks(lm, task, shots)[0]


def _check_matched(keep: Task, lose: Task) -> None:
    """Check that the tasks differ, and have the same number of examples in each split."""
    if keep.train == lose.train:
        raise BadArgument("keep and lose have the same examples, expected two different tasks")
    for split in ("train", "held_out"):
        n_keep = len(getattr(keep, split))
        n_lose = len(getattr(lose, split))
        if n_keep != n_lose:
            raise BadArgument(
                f"keep has {n_keep} {split} examples and lose has {n_lose}:"
                " they must match, example by example, in the same order"
            )

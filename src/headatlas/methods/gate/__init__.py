"""gate: find the heads that a task needs, that harm it, and that are idle (Nam et al. 2025, arXiv 2505.13737).

1. Gates G[l, h] = sigmoid(θ[l, h]) multiply every head's output z at every position. Weights are frozen; only θ is
   fitted.
2. *free*: from G ~ Uniform(0, 1), minimise −log P(target | prompt).
3. *retain* and *remove*: from the result, minimise −log P(target | prompt) − λ · mean(clip(θ, −4, 4)), with λ > 0
   (pressure towards 1) for retain, which gives G⁺, and λ < 0 (pressure towards 0) for remove, which gives G⁻.
4. facilitation = G⁻: open although closing it is rewarded. interference = 1 − G⁺: closed although opening it is
   rewarded. irrelevance = G⁺ · (1 − G⁻): follows the pressure both ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headatlas.errors import check_count
from headatlas.methods._arguments import Batch, BatchTokens, Low, Seeds, Shots, Strength, Tasks
from headatlas.methods._seeds import MAX_EXAMPLES, seed_numbers
from headatlas.methods.method import Measure, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

ROLE_THRESHOLD = 0.5  # a head has a role if its score is at least this
Pair = tuple[float, float]


@method(
    title="Causal head gating",
    measures=[
        Measure(
            "facilitation",
            over="task",
            meaning="How far a head's gate stays open although closing it is rewarded (mean over seeds): high means the"
            " task needs it. Gates are fitted together, so where heads can replace each other, seeds may find different"
            " ones.",
            at_least=ROLE_THRESHOLD,
            repeats=("facilitation", "seed"),
            claim="needed",
        ),
        Measure(
            "interference",
            over="task",
            meaning="How far a head's gate closes although keeping it open is rewarded (mean over seeds): high means"
            " the head harms the task. It holds for this task's examples, not for the head in general.",
            at_least=ROLE_THRESHOLD,
            repeats=("interference", "seed"),
            claim="harmful",
        ),
        Measure(
            "irrelevance",
            over="task",
            meaning="How far a head's gate follows whichever way it is pushed (mean over seeds): high means the task"
            " does not depend on the head. Other tasks may.",
            at_least=ROLE_THRESHOLD,
            repeats=("irrelevance", "seed"),
        ),
    ],
    variables={
        "gate": Variable("gate", "", "Fitted gate of a head in each of the three fits: 0 is closed, 1 is open."),
        "summary": Variable(
            "score over seeds", "", "Each score over seeds: lowest, highest, mean, standard deviation."
        ),
        "share": Variable("share of heads", "share", f"Share of heads whose score is at least {ROLE_THRESHOLD}."),
        "facilitation_half": Variable("facilitation by half", "", "Facilitation from each half of the training data."),
        "interference_half": Variable("interference by half", "", "Interference from each half of the training data."),
        "irrelevance_half": Variable("irrelevance by half", "", "Irrelevance from each half of the training data."),
    },
    shows={"roles": ("facilitation", "irrelevance", "interference")},
    presets={
        # gates start at least half open, because so few updates cannot repair a model with half of its heads closed
        "quick": {
            "seeds": 2,
            "strength": 0.4,
            "updates": (24, 30),
            "free_lr": (0.4, 0.2),
            "batch": 2,
            "low": 0.5,
            "held_out": 32,
        },
        "full": {},
    },
    finds="which heads a task needs, which harm it, and which it does not depend on, with all heads fitted together",
    misses="which of several heads that can replace each other does the work",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    sentences=lazily("headatlas.methods.gate.compute:sentences"),
    ask=lazily("headatlas.methods._effects:ask_held_out"),
    truths={
        "gate": Truth("functions", "facilitation", {"seeds": 3}),
        "gate-any": Truth("functions", "any", {"seeds": 3}),
        "gate-always": Truth("functions", "always", {"seeds": 3}),
        "gate-interference": Truth("interference", "interference", {"seeds": 3}),
    },
    seconds=90,
    in_parts=True,
    imports="gate",
)
def gate(
    lm: LM,
    tasks: Tasks = ("math", "syntax"),
    *,
    seeds: Seeds = 10,
    shots: Shots = None,
    strength: Strength = 0.1,
    updates: Annotated[
        int | tuple[int, int], "updates of each fit, or two numbers: of the free fit, and of the other two"
    ] = 500,
    free_lr: Annotated[Pair, "learning rates at the start and at the end of the free fit"] = (0.1, 0.01),
    pressed_lr: Annotated[Pair, "learning rates at the start and at the end of the retain and remove fits"] = (
        0.5,
        0.1,
    ),
    batch: Batch = 64,
    low: Low = 0.0,
    held_out: Annotated[int, "maximum number of held-out examples of each task to measure the gates on"] = 128,
    batch_tokens: BatchTokens = None,
    halves: Annotated[bool, "whether to fit each half of the training examples too"] = False,
) -> Work:
    """Find the heads that a task needs, that harm it, and that are idle (docs/methods/gate.md).

    Returns:
        gate(fit, task, seed, layer, head), and the scores of the roles: facilitation, interference and
        irrelevance(task, seed, layer, head). Over seeds: summary(role, over, task, layer, head),
        share(role, share_over, task) of heads that have the role, always and any(task, layer, head) of facilitation.
        Held-out: nll(fit, task, seed), baseline(task), log P(target) of the whole model, whole_accuracy(task).
        With halves: facilitation_half(half, task, layer, head), and so on.

    Example:
        >>> ha.gate("smollm2", "math", seeds=2).facilitation.mean("seed")
    """
    from headatlas.methods.gate import compute
    from headatlas.tasks.prompts import check_shots, hash_tasks, load_tasks
    from headatlas.tasks.used import used_rows

    numbers = seed_numbers(seeds)
    schedules = compute.make_schedules(updates, free_lr, pressed_lr)
    fitting = compute.check_fitting(strength, batch, low)
    held_out = check_count("held_out", held_out, 1, MAX_EXAMPLES)
    loaded = load_tasks(lm, tasks, shots)
    groups = [loaded, *([compute.half_of(task, i) for task in loaded] for i in (0, 1) if halves)]
    all_tasks = [task for group in groups for task in group]
    for task in all_tasks:
        check_shots(task)
    blocks = {task.name: compute.split_seeds(lm, task, numbers, fitting["batch"]) for task in all_tasks}
    fit_arguments = {**schedules, **fitting, "batch_tokens": batch_tokens}
    rows = (row for task in loaded for row in task.train)
    names = ", ".join(task.name for task in loaded)
    return Work(
        summary=f"{names}: {len(numbers)} seeds, {compute.count_updates(schedules)} updates",
        combine=compute.combine,
        arguments={"groups": groups, "blocks": blocks, "held_out": held_out, "batch_tokens": batch_tokens},
        parts=[compute.fit_part(task, block, fit_arguments) for task in all_tasks for block in blocks[task.name]],
        data=hash_tasks(loaded),
        settings={**compute.plain_settings(schedules), **fitting, "seeds": numbers},
        result_settings={"held_out": held_out, "halves": int(halves)},
        used=used_rows(loaded, rows),
        subjects={task.name: task for task in loaded},
    )

"""gate: which heads a task needs, which harm it, and which are idle (Nam et al. 2025, arXiv 2505.13737).

1. Gates G[l, h] = sigmoid(θ[l, h]) multiply every head's output z at every position. Weights are frozen; only θ learns.
2. *free*: from G ~ Uniform(0, 1), minimise −log P(target | prompt).
3. *retain* and *remove*: both from there, minimise −log P(target | prompt) − λ · mean(clip(θ, −4, 4)), with λ > 0
   (pressure towards 1) for retain, which gives G⁺, and λ < 0 (pressure towards 0) for remove, which gives G⁻.
4. facilitation = G⁻: kept although dropping it would pay. interference = 1 − G⁺: dropped although keeping it would pay.
   irrelevance = G⁺ · (1 − G⁻): goes whichever way it is pushed.
5. Proof: from G⁺, the top heads of each role are switched off against on, on held-out examples; so are random heads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from headatlas.methods._arguments import Batch, BatchTokens, Preset, Seeds, Shots, Strength, Tasks, Updates
from headatlas.methods._seeds import seed_numbers
from headatlas.methods.gate.settings import HAS_ROLE
from headatlas.methods.method import Measure, Part, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM


@method(
    title="Causal head gating",
    measures=[
        Measure(
            "facilitation",
            over="task",
            meaning="How far a head's gate stays open although closing it is rewarded (mean over seeds): high means the"
            " task needs it. Gates are fitted together, so where heads can replace each other, seeds may choose"
            " differently.",
            at_least=HAS_ROLE,
            repeats=("facilitation", "seed"),
        ),
        Measure(
            "interference",
            over="task",
            meaning="How far a head's gate closes although keeping it open is rewarded (mean over seeds): high means"
            " the head harms the task. It holds for this task's examples, not for the head in general.",
            at_least=HAS_ROLE,
        ),
        Measure(
            "irrelevance",
            over="task",
            meaning="How far a head's gate follows whichever way it is pushed (mean over seeds): high means the task"
            " does not mind. Irrelevant here may be essential elsewhere.",
            at_least=HAS_ROLE,
        ),
    ],
    presets={"quick": {}, "full": {}},
    tells="which heads a task needs, which harm it, and which it does not mind, all heads fitted together",
    does_not_tell="which of several heads that can replace each other does the work",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    sentences=lazily("headatlas.methods.gate.sentences:gate_sentences"),
    ask=lazily("headatlas.methods._effects:ask_held_out"),
    truths={
        "gate": Truth("functions", "facilitation", {"proof": False, "seeds": 3}),
        "gate-any": Truth("functions", "any", {"proof": False, "seeds": 3}),
        "gate-always": Truth("functions", "always", {"proof": False, "seeds": 3}),
        "gate-interference": Truth("interference", "interference", {"proof": False, "seeds": 3}),
    },
    order=50,
    in_parts=True,
    imports="gate",
)
def gate(
    lm: LM,
    tasks: Tasks = ("math", "syntax"),
    *,
    seeds: Seeds = None,
    preset: Preset = "quick",
    shots: Shots = None,
    strength: Strength = None,
    updates: Updates = None,
    batch: Batch = None,
    batch_tokens: BatchTokens = None,
    halves: Annotated[bool, "fit each half of the data too"] = False,
    proof: Annotated[bool, "switch the heads of each role off, against random heads"] = True,
) -> Work:
    """Which heads a task needs, which it would be better without, which are idle (docs/methods/gate.md).

    Returns:
        gate(fit, task, seed, layer, head), and the roles they give: facilitation, interference and
        irrelevance(task, seed, layer, head). Over seeds: summary(role, over, task, layer, head),
        share(role, share_over, task) of heads that have the role, always and any(task, layer, head) of facilitation.
        Held-out: nll(fit, task, seed), baseline(task), log P(target) of the whole model, whole_accuracy(task).
        With proof: effect(task, role, n_removed), log P with heads off minus on, random_effect(…, draw), p and
        p_corrected(task, role, n_removed). With halves: facilitation_half(half, task, layer, head), and so on.

    Example:
        >>> ha.gate("smollm2", "math", seeds=2).facilitation.mean("seed")
    """
    from headatlas.methods.gate.fits import TaskFit, fit_cost, fit_task, seeds_together
    from headatlas.methods.gate.result import combine, combine_cost
    from headatlas.methods.gate.settings import flat_settings, settings_of
    from headatlas.tasks.bundles import held_out_rows
    from headatlas.tasks.prompts import check_shots, hash_tasks, load_tasks
    from headatlas.tasks.used import used_rows

    settings = settings_of(preset, strength, updates, batch)
    numbers = seed_numbers(settings.seeds if seeds is None else seeds)
    chosen = load_tasks(lm, tasks, shots)
    split = [[replace(t.halves()[i], name=f"{t.name}, half {i}") for t in chosen] for i in (0, 1) if halves]
    for task in (task for group in (chosen, *split) for task in group):
        check_shots(task)
    fits, *of_halves = (
        [TaskFit(t, numbers, settings, batch_tokens, seeds_together(lm, t, settings)) for t in group]
        for group in (chosen, *split)
    )
    blocks = [block for fitted in (fits, *of_halves) for of in fitted for block in of.blocks()]
    names = ", ".join(t.name for t in chosen)
    tested = max(settings.held_out, settings.switching)
    return Work(
        summary=f"{names}: {len(numbers)} seeds, {settings.free.updates} + {settings.pressed.updates} updates",
        combine=combine,
        arguments=(fits, of_halves, proof),
        parts=[
            Part(name=block.name, do=fit_task, arguments=(block,), outputs=block.stages, cost=fit_cost)
            for block in blocks
        ],
        data=hash_tasks(chosen),
        settings={"preset": preset, **flat_settings(settings), "seeds": numbers},
        result_settings={"halves": int(halves), "proof": int(proof)},
        cost=combine_cost,
        used=used_rows(chosen, (row for task in chosen for row in (*task.train, *held_out_rows(task, tested)))),
    )

"""contrast: which heads one task needs and a matched one can spare (Nam et al. 2025, arXiv 2505.13737).

1. Two tasks whose examples ask the same, one by one: A is to be kept, B to be lost.
2. Gates G[l, h] = sigmoid(θ[l, h]) multiply every head's output; weights are frozen. From G ~ Uniform(0, 1), minimise
   max(NLL_A − NLL_B, −5) − λ · mean(clip(θ, −4, 4)), with λ < 0: gates stay open only where A needs them.
3. lost = 1 − G.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import BadArgument
from headatlas.methods._arguments import Batch, BatchTokens, Preset, Seeds, Shots, Strength, Updates
from headatlas.methods._seeds import seed_numbers
from headatlas.methods.gate.settings import HAS_ROLE
from headatlas.methods.method import Measure, Part, Work, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM
    from headatlas.tasks.prompts import Task


@method(
    title="Contrastive gating",
    measures=[
        Measure(
            "lost",
            over="task",
            meaning="How far a head's gate closes where one task is to be kept and another lost (mean over seeds): high"
            " means that the kept task can spare the head. Heads that neither task needs close too.",
            at_least=HAS_ROLE,
            repeats=("lost", "seed"),
        )
    ],
    tells="which heads one task needs and a matched one can spare",
    does_not_tell="whether the lost task needs each of them: heads that neither task needs are lost too",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    order=55,
    in_parts=True,
)
def contrast(
    lm: LM,
    *,
    keep: Annotated[Any, "the task to keep: a built-in one, a file, or examples of your own"],
    lose: Annotated[Any, "the task to lose; its examples match those of keep, one by one"],
    seeds: Seeds = None,
    preset: Preset = "quick",
    shots: Shots = None,
    strength: Strength = None,
    updates: Updates = None,
    batch: Batch = None,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which heads the task `lose` needs and the task `keep` can spare (docs/methods/contrast.md).

    Returns:
        lost and gate(task, seed, layer, head), where task has one label, for the pair; nll and accuracy(side, gates,
        seed) of keep and lose on held-out examples: of the whole model, under the fitted gates, and under rounded ones.

    Example:
        >>> ha.contrast("smollm2", keep="capitals.jsonl", lose="currencies.jsonl").lost.mean("seed")
    """
    from headatlas.methods.contrast.fits import GATES, PairFit, combine, combine_cost, fit_cost, fit_pair
    from headatlas.methods.gate.settings import flat_settings, settings_of
    from headatlas.tasks.bundles import held_out_rows
    from headatlas.tasks.prompts import hash_tasks
    from headatlas.tasks.used import used_rows

    settings = settings_of(preset, strength, updates, batch)
    numbers = seed_numbers(settings.seeds if seeds is None else seeds)
    kept, lost = _one_task(lm, "keep", keep, shots), _one_task(lm, "lose", lose, shots)
    _check_matched(kept, lost)
    both = (kept, lost)
    pair = PairFit(kept, lost, numbers, settings, batch_tokens)
    return Work(
        summary=f"{pair.name}: {len(numbers)} seeds",
        combine=combine,
        arguments=(pair,),
        parts=[Part(name=GATES, do=fit_pair, arguments=(pair,), cost=fit_cost)],
        data=hash_tasks(both),
        settings=flat_settings(settings) | {"seeds": numbers, "keep": kept.name, "lose": lost.name},
        cost=combine_cost,
        used=used_rows(both, (row for t in both for row in (*t.train, *held_out_rows(t, settings.held_out)))),
    )


def _one_task(lm: LM, argument: str, task: Any, shots: int | None) -> Task:
    from headatlas.tasks.prompts import list_tasks, load_tasks

    task = list(task) if isinstance(task, Iterator) else task
    if (n := len(list_tasks(argument, task))) > 1:
        raise BadArgument(f"{argument} has {n} tasks, expected one")
    return load_tasks(lm, task, shots)[0]


def _check_matched(keep: Task, lose: Task) -> None:
    """That example i of both can be the same question."""
    if keep.train == lose.train:
        raise BadArgument("keep and lose are the same examples: nothing tells them apart")
    for split in ("train", "held_out"):
        a, b = (len(getattr(t, split)) for t in (keep, lose))
        if a != b:
            raise BadArgument(
                f"keep has {a} {split} examples and lose has {b}:"
                " they must match, example by example, in the same order"
            )

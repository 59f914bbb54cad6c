"""dissociate: which heads a function needs and the others do not.

1. For each function, gates on all heads are fitted to lose it and to keep the others (fits.py).
2. The heads whose gates shut are removed for good, so many of them as validation questions say (evidence/selective.py).
3. On test questions, the function must lose three times what the others do, and more than with random heads of the same
   layers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import check_count
from headatlas.methods._arguments import (
    BatchTokens,
    Context,
    FunctionTasks,
    Limit,
    Preset,
    Questions,
    Seeds,
    Shots,
    Template,
    Test,
    Updates,
)
from headatlas.methods.method import Measure, Truth, Work, lazily, method
from headatlas.tasks.built_in import BUILT_IN

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MEANING = (
    "Heads this function needs and the other functions can spare, from gates fitted for that; they sum to 1. It is"
    " causal for the set of heads as a whole; one head's share is not its effect alone. Not supported where removing"
    " the heads did not show, on test questions, that they are the function's own."
)


@method(
    title="Dissociate",
    measures=[
        Measure(
            "importance",
            over="function",
            meaning=MEANING,
            label="Heads Importance",
            above="proven",
            unproven="not supported",
            repeats=("score", "seed"),
        )
    ],
    presets={"quick": {}, "full": {}},
    tells="which heads a function needs and the others can spare, as a set",
    does_not_tell="what one of these heads does alone",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    sentences=lazily("headatlas.methods.dissociate.sentences:verdicts"),
    ask=lazily("headatlas.methods.dissociate.parts:ask_test"),
    truths={"dissociate": Truth("functions", "score", {"own": 6, "seeds": 2, "limit": 10_000, "proof": False})},
    seconds=150,
    in_parts=True,
)
def dissociate(
    lm: LM,
    tasks: FunctionTasks = None,
    *,
    questions: Questions = None,
    test: Test = None,
    functions: Annotated[Any, "only these"] = None,
    seeds: Seeds = None,
    preset: Preset = "quick",
    context: Context = "retrieval",
    limit: Limit = None,
    shots: Shots = None,
    template: Template = True,
    updates: Updates = None,
    penalty: Annotated[float | None, "final λ: what a shut gate costs; by default what the preset says"] = None,
    own: Annotated[int | None, "examples of the function in an update; by default what the preset says"] = None,
    proof: Annotated[bool, "remove the heads for good, on questions that nothing was fitted to"] = True,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which heads each function needs and the others do not, by gates that lose one and keep the rest.

    Functions come from `tasks`, or from `questions`: built in ('varied', 'stories'), or yours in the CogQA layout
    (test: a file of its own for the test questions). Without either, they are the built-in tasks in the quick preset,
    and the 'varied' questions in the full one or where `functions` are named. `shots` applies to tasks; `context` and
    `template` apply to questions. Without a limit, the quick preset uses 40 examples of each function.

    Returns:
        score(function, seed, layer, head): 1 − gate, how far a head was shut; always and any(function, layer,
        head): the least and the most over seeds; importance(function, layer, head): the mean, which sums to 1;
        baseline(function): mean log P per answer token. With proof: selected(function, layer, head), the heads that
        were removed, and n_removed(function); effect(function), other_effect(function, other), random_effect(function,
        draw): the changes of log P per answer token, with p and p_corrected(function); effect_curve,
        other_curve and other_size_curve(function, split, step): the same for each number of heads (other_size: mean
        size of the others' changes); verdict and proven(function).

    Example:
        >>> ha.dissociate("smollm2", ["math", "syntax"], updates=20, out="atlas")
    """
    from headatlas.methods.dissociate.fits import settings_of
    from headatlas.methods.dissociate.parts import dissociation_work
    from headatlas.tasks.labelled import load_labelled

    settings = settings_of(preset, seeds, updates, penalty, own)
    if limit is not None:
        check_count("limit", limit, 1)
    if tasks is None and questions is None and functions is None and preset == "quick":
        tasks = tuple(BUILT_IN)  # short prompts: the eight functions want a GPU
    load = partial(load_labelled, lm, tasks, questions, test, functions=functions, each=settings.each)
    data = load(context=context, limit=limit, shots=shots, template=template)
    return dissociation_work(data, settings, preset=preset, proof=proof, batch_tokens=batch_tokens)

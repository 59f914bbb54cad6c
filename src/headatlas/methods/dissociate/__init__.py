"""dissociate: find the heads that one function needs and the others can spare.

1. For each function, gates on all heads are fitted to lose it and to keep the others (compute.py).
2. Heads whose gates closed are removed. Their number is chosen on validation questions (evidence/selective.py).
3. On test questions, the function must lose three times what the others do, and more than with random heads of the same
   layers (proof.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import check_choice, check_count, check_counts
from headatlas.methods._arguments import (
    BatchTokens,
    Context,
    FunctionTasks,
    Limit,
    Questions,
    Seeds,
    Shots,
    Template,
    Test,
)
from headatlas.methods._seeds import seed_numbers
from headatlas.methods.method import Measure, Truth, Variable, Work, lazily, method
from headatlas.tasks.built_in import BUILT_IN

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MAX_DRAWS = 100_000
MEANING = (
    "Share of each head in what this function needs and the other functions can spare, from fitted gates; shares sum to"
    " 1. It is causal for the set of heads as a whole; one head's share is not its effect alone. Not supported: on test"
    " questions, removing the heads did not show that only this function needs them."
)
NATS = "nats per answer token"
REMOVAL_VARIABLES = {
    "baseline": Variable("log P", NATS, "Mean log P of the whole model on the function's test questions."),
    "effect": Variable("change", NATS, "Change of log P on test questions without the selected heads; below 0: worse."),
    "other_effect": Variable("others", NATS, "The same change for each other function; below 0: worse."),
    "random_effect": Variable("random heads", NATS, "The change for each draw of random heads; below 0: worse."),
    "effect_curve": Variable("change by step", NATS, "The function's change for each number of heads; below 0: worse."),
    "other_curve": Variable("others by step", NATS, "Mean of the others' changes by number of heads; below 0: worse."),
    "other_size_curve": Variable(
        "others' size by step", NATS, "Mean absolute change of the others by number of heads; 0: unchanged."
    ),
}
"""The variables of a test by removal."""


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
    variables={
        "score": Variable(
            "score", "", "1 − gate from each seed; 1 is a closed gate, for a head that only this function needs."
        ),
        "se": Variable("standard error", "", "Standard error of the mean of the score over seeds."),
        **REMOVAL_VARIABLES,
    },
    presets={
        "quick": {
            # tasks have short prompts; the questions of the eight functions need a GPU
            "built_in": "tasks",
            "seeds": 1,
            "per_function": 40,
            "updates": 30,
            "own": 3,
            "others": 1,
            "lr": 0.4,
            "sharp": 0.4,
            "steps": (4, 8, 16, 32),
            "draws": 80,
        },
        "full": {},
    },
    answers="which heads a function needs and the others can spare, as a set",
    does_not_answer="what one of these heads does alone",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    sentences=lazily("headatlas.methods.dissociate.proof:sentences"),
    ask=lazily("headatlas.methods.dissociate.proof:ask_test"),
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
    functions: Annotated[Any, "names of the functions to map (default: all)"] = None,
    built_in: Annotated[
        Literal["tasks", "questions"],
        "which built-in data to use if no tasks, questions or functions are given: tasks, or the questions 'varied'",
    ] = "questions",
    context: Context = "retrieval",
    limit: Limit = None,
    per_function: Annotated[
        int | None, "maximum number of examples of each function if no limit is given (default: all)"
    ] = None,
    shots: Shots = None,
    template: Template = True,
    seeds: Seeds = 4,
    updates: Annotated[int, "updates of each fit"] = 160,
    own: Annotated[int, "examples of the function per update"] = 16,
    others: Annotated[int, "examples of each other function per update"] = 3,
    lr: Annotated[float, "learning rate"] = 0.2,
    penalty: Annotated[float, "final value of λ, the penalty on closed gates"] = 1.0,
    sharp: Annotated[float, "final temperature of the gates; at lower values they are closer to open or closed"] = 0.2,
    steps: Annotated[Sequence[int], "numbers of heads to try removing"] = (4, 8, 12, 16, 24, 32),
    draws: Annotated[int, "maximum number of random sets of heads that the test compares with"] = 199,
    proof: Annotated[
        bool, "whether to test the map by removing its heads, on questions not used to fit or choose"
    ] = True,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Find the heads that each function needs and the others do not, by gates that lose one and keep the rest.

    Functions come from `tasks`, or from `questions`: built-in ones ('varied', 'stories'), or yours in the CogQA layout
    (`test`: a separate file of test questions). Without either, they are the built-in tasks in the quick preset, and
    the 'varied' questions in the full preset or if `functions` are named. `shots` applies to tasks; `context` and
    `template` apply to questions.

    Returns:
        score(function, seed, layer, head), 1 − gate: how far a head was closed; always and any(function, layer, head),
        the lowest and the highest over seeds; importance(function, layer, head), the mean over seeds, scaled to sum to
        1; baseline(function), mean log P per answer token. With proof: selected(function, layer, head), the heads that
        were removed, and n_removed(function); effect(function), other_effect(function, other), random_effect(function,
        draw), the changes of log P per answer token, with p and p_corrected(function); effect_curve,
        other_curve and other_size_curve(function, split, step), the same for each number of heads (other_size: mean
        absolute change of the others); verdict and proven(function).

    Example:
        >>> ha.dissociate("smollm2", ["math", "syntax"], updates=20, out="atlas")
    """
    from headatlas.methods.dissociate.compute import FIXED_SETTINGS, check_fitting, combine, fit_parts
    from headatlas.methods.dissociate.proof import removal_parts
    from headatlas.tasks.labelled import load_labelled

    numbers = seed_numbers(seeds)
    fitting = check_fitting(updates=updates, own=own, others=others, lr=lr, penalty=penalty, sharp=sharp)
    steps = check_counts("steps", steps)
    check_count("draws", draws, 1, MAX_DRAWS)
    _check_data_options(limit, per_function, built_in)
    if built_in == "tasks" and tasks is None and questions is None and functions is None:
        tasks = tuple(BUILT_IN)
    load = partial(load_labelled, lm, tasks, questions, test, functions=functions, per_function=per_function)
    data = load(context=context, limit=limit, shots=shots, template=template)
    parts = fit_parts(data, numbers, fitting, batch_tokens)
    if proof:
        parts += removal_parts(data, steps=steps, draws=draws, batch_tokens=batch_tokens)
    return Work(
        summary=f"{len(data.names)} functions, {len(numbers)} seed{'s' * (len(numbers) != 1)}, {updates} updates each",
        combine=combine,
        arguments={"data": data, "seeds": numbers, "steps": steps, "proof": proof},
        parts=parts,
        data=data.hash(),
        settings=fitting | {"steps": steps, "draws": draws, "seeds": numbers} | FIXED_SETTINGS,
        result_settings={"proof": int(proof)},
        used=data.used,
    )


def _check_data_options(limit: int | None, per_function: int | None, built_in: str) -> None:
    for name, value in (("limit", limit), ("per_function", per_function)):
        if value is not None:
            check_count(name, value, 1)
    check_choice("built_in", built_in, ("tasks", "questions"))

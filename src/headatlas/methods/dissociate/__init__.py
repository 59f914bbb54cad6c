"""dissociate: find the heads that one function needs and the others can spare.

For each function, gates on all heads are fitted to lose it and to keep the others (compute.py). A head's score is how
far its gate closed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import check_choice, check_count
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

MEANING = (
    "Share of each head in what this function needs and the other functions can spare, from fitted gates; shares sum to"
    " 1. It is causal for the set of heads as a whole; one head's share is not its effect alone."
)


@method(
    title="Dissociate",
    measures=[
        Measure(
            "importance",
            over="function",
            meaning=MEANING,
            label="Heads Importance",
            repeats=("score", "seed"),
            claim="needed",
        )
    ],
    variables={
        "score": Variable(
            "score", "", "1 − gate from each seed; 1 is a closed gate, for a head that only this function needs."
        ),
        "se": Variable("standard error", "", "Standard error of the mean of the score over seeds."),
        "baseline": Variable(
            "log P", "nats per answer token", "Mean log P of the whole model on the function's test questions."
        ),
    },
    presets={
        "quick": {
            # tasks have short prompts; the questions of the eight functions need a GPU
            "built_in": "tasks",
            "seeds": 4,
            "per_function": 40,
            "updates": 30,
            "own": 3,
            "others": 1,
            "lr": 0.4,
            "sharp": 0.4,
        },
        "full": {},
    },
    finds="which heads a function needs and the others can spare, as a set",
    misses="what one of these heads does alone",
    cites=("Causal Head Gating, Nam et al., NeurIPS 2025, arXiv 2505.13737",),
    ask=lazily("headatlas.methods.dissociate.compute:ask_test"),
    truths={"dissociate": Truth("functions", "score", {"own": 6, "seeds": 2, "limit": 10_000})},
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
        1; baseline(function), mean log P per answer token on test questions.

    Example:
        >>> ha.dissociate("smollm2", ["math", "syntax"], updates=20, out="atlas")
    """
    from headatlas.methods.dissociate.compute import FIXED_SETTINGS, check_fitting, combine, fit_parts
    from headatlas.tasks.labelled import load_labelled

    numbers = seed_numbers(seeds)
    fitting = check_fitting(updates=updates, own=own, others=others, lr=lr, penalty=penalty, sharp=sharp)
    _check_data_options(limit, per_function, built_in)
    if built_in == "tasks" and tasks is None and questions is None and functions is None:
        tasks = tuple(BUILT_IN)
    load = partial(load_labelled, lm, tasks, questions, test, functions=functions, per_function=per_function)
    data = load(context=context, limit=limit, shots=shots, template=template)
    return Work(
        summary=f"{len(data.names)} functions, {len(numbers)} seed{'s' * (len(numbers) != 1)}, {updates} updates each",
        combine=combine,
        arguments={"data": data, "seeds": numbers},
        parts=fit_parts(data, numbers, fitting, batch_tokens),
        data=data.hash(),
        settings=fitting | {"seeds": numbers} | FIXED_SETTINGS,
        used=data.used,
        subjects=data.subjects,
    )


def _check_data_options(limit: int | None, per_function: int | None, built_in: str) -> None:
    for name, value in (("limit", limit), ("per_function", per_function)):
        if value is not None:
            check_count(name, value, 1)
    check_choice("built_in", built_in, ("tasks", "questions"))

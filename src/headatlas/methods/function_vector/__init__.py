"""function_vector: find the heads that carry a few-shot task, and test the vector that they write.

After Function Vectors in Large Language Models (Todd et al., ICLR 2024, arXiv 2310.15213).

1. In few-shot prompts of a task, average every head's output at the last token.
2. Make prompts with shuffled answers: every few-shot example has the answer of another one.
3. contribution = the mean rise of P(right answer) in these when one head's output at the last token is replaced by its
   mean.
4. The function vector is the sum of the means of the `top` heads with the highest contribution, each through W_O.
5. Test: add it to the residual stream after a layer, at the last token of questions without few-shot examples. The
   layer is the best of about ten on other questions. The control: vectors of random heads of the same layers, each
   added after the layer that is best for it.

Only the first token of an answer counts, as in the published code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import check_count
from headatlas.methods._arguments import BatchTokens
from headatlas.methods.method import Measure, Part, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.methods.function_vector.prompts import Prompts
    from headatlas.models.lm import LM
    from headatlas.models.tokens import TokenExample

DEFAULT_RELATIONS = ("country_to_capital", "object_superclass", "verb_to_past_tense", "word_to_antonym")
MEANING = (
    "Rise of P(right answer) in few-shot prompts with shuffled answers when this head's output at the last token is"
    " replaced by its mean over prompts with right answers. Causal, for one head at a time."
)


@method(
    title="Function vectors",
    measures=[
        Measure(
            "contribution",
            over="task",
            meaning=MEANING,
            label="rise of P",
            repeats=("by_example", "example"),
            examples=("limit", "limit"),
            claim="needed",
        )
    ],
    variables={
        "selected": Variable("selected", "", "Whether the head's mean output is part of the function vector."),
        "vector": Variable("function vector", "", "The sum of what the selected heads add to the residual stream."),
        "baseline": Variable("whole model", "", "P(right answer) and accuracy of the unchanged model, by prompt kind."),
        "added_at": Variable("layer", "", "The layer that the function vector is added after."),
        "effect": Variable(
            "change", "", "Change of P(right answer) and accuracy when the vector is added; above 0 it helps."
        ),
        "effect_by_layer": Variable(
            "change by layer", "", "The same change when the vector is added after each layer; above 0 it helps."
        ),
        "random_effect": Variable("random heads", "", "The same change with each vector of random heads."),
        "beyond_low": Variable(
            "lower end", "", "Lower end of the 95 % interval over prompts of the rise of P beyond random heads."
        ),
        "beyond_high": Variable("upper end", "", "Upper end of the same interval."),
        "outcome": Variable("outcome", "", "Whether the vector raises P(answer): supported, not supported, undecided."),
        "reason": Variable("reason", "", "The reason for the outcome."),
    },
    presets={"full": {"limit": 64, "draws": 100}},
    finds="which heads carry a few-shot task, and how well their sum alone makes the model do it",
    misses="which heads read the few-shot examples: only the last token is changed",
    cites=("Function Vectors in Large Language Models, Todd et al., ICLR 2024, arXiv 2310.15213",),
    sentences=lazily("headatlas.methods.function_vector.vector:sentences"),
    ask=lazily("headatlas.methods.function_vector.prompts:ask_held_out"),
    seconds=70,
    in_parts=True,
)
def function_vector(
    lm: LM,
    relations: Annotated[
        Any, "tasks: built-in relations by name, a folder, a JSON or CSV file, or your pairs by name"
    ] = None,
    tasks: Annotated[Any, "more tasks: files with prompt and target, built-in tasks, or your examples"] = None,
    *,
    shots: Annotated[int, "few-shot examples in a prompt"] = 10,
    limit: Annotated[
        int, "prompts of each kind for each task; the kinds are few-shot, few-shot with shuffled answers, and zero-shot"
    ] = 12,
    top: Annotated[int, "number of heads in the function vector"] = 10,
    layer: Annotated[int | None, "add the vector after this layer (default: the best on other prompts)"] = None,
    draws: Annotated[int, "number of vectors of random heads to compare with"] = 20,
    template: Annotated[
        str | None, "text with {} for a pair's source (default: 'Q: {}', then 'A:' on the next line)"
    ] = None,
    seed: Annotated[int, "random seed for the prompts and the random heads"] = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Find the heads that carry a few-shot task, and test how well their sum does it without few-shot examples.

    Without relations and tasks, four built-in relations are used. The template makes prompts from the pairs of a
    relation; tasks bring their prompts. A fifth of the examples is held out for the zero-shot prompts.

    Returns:
        contribution(task, layer, head), the mean rise of P(right answer); its reliability; selected(task, layer, head),
        the heads of the function vector; vector(task, d_model), the vector itself; baseline(task, prompt, measure),
        probability and accuracy of the unchanged model: few-shot, with shuffled answers and zero-shot; added_at(task),
        the layer that the vector is added after; effect(task, measure), how much this raises zero-shot answers;
        effect_by_layer(task, layer, measure), the same for every layer; random_effect(task, draw, measure), the same
        for vectors of random heads; p and p_corrected(task), the share of these that raise the probability as much;
        beyond_low and beyond_high(task), the 95 % interval over prompts of the rise beyond random heads; outcome and
        reason(task), supported, not supported or undecided.

    Example:
        >>> ha.function_vector("smollm2", ["word_to_antonym"]).heads.top(5)
    """
    from headatlas.methods.function_vector import compute
    from headatlas.methods.function_vector.prompts import make_prompts
    from headatlas.tasks.few_shot import few_shot_tasks
    from headatlas.tasks.prompts import hash_tasks
    from headatlas.tasks.used import used_rows

    check_count("shots", shots, 2)
    check_count("limit", limit, 2)
    check_count("top", top, 1, lm.n_layers * lm.n_heads)
    check_count("draws", draws, 1)
    check_count("seed", seed, 0, 2**63 - 1)
    if layer is not None:
        check_count("layer", layer, 0, lm.n_layers - 1)
    relations = DEFAULT_RELATIONS if relations is None and tasks is None else relations
    loaded = few_shot_tasks(lm, relations, tasks, shots=shots, template=template)
    prompts = {task.name: make_prompts(lm, task, limit, seed) for task in loaded}
    scored = {name: compute.split_prompts(name, task_prompts) for name, task_prompts in prompts.items()}
    testing = {"top": top, "layer": layer, "draws": draws, "seed": seed, "batch_tokens": batch_tokens}
    return Work(
        summary=f"{', '.join(prompts)}: {limit} prompts of each kind, {shots} shots",
        combine=compute.combine,
        arguments={"scored": {name: tuple(parts) for name, parts in scored.items()}, "draws": draws},
        parts=[part for name in prompts for part in _parts(name, prompts[name], scored[name], testing)],
        data=hash_tasks(loaded),
        settings={
            "shots": shots,
            "limit": limit,
            "top": top,
            "added_after": "best" if layer is None else layer,
            "draws": draws,
            "seed": seed,
        },
        # few-shot examples are drawn from all training rows; held-out rows only test the vector
        used=used_rows(loaded, (row for task in loaded for row in task.train)),
        subjects={task.name: task for task in loaded},
    )


def _parts(
    task: str, prompts: Prompts, scored: Mapping[str, Sequence[TokenExample]], testing: Mapping[str, Any]
) -> list[Part]:
    """Return the parts of one task. testing: options of the function vector and its test."""
    from headatlas.methods.function_vector import compute, vector

    means = compute.means_part(task)
    batch_tokens = testing["batch_tokens"]
    parts = [
        Part(
            name=means,
            do=compute.average_outputs,
            arguments={"task": task, "prompts": prompts.right, "batch_tokens": batch_tokens},
        )
    ]
    for part, part_prompts in scored.items():
        arguments = {"part": part, "task": task, "prompts": part_prompts, "batch_tokens": batch_tokens}
        parts.append(Part(name=part, do=compute.score_prompts, arguments=arguments, inputs=(means,)))
    parts.append(
        Part(
            name=compute.vector_part(task),
            do=vector.evaluate_vector,
            arguments={"task": task, "scored": tuple(scored), "prompts": prompts, **testing},
            inputs=(means, *scored),
        )
    )
    return parts

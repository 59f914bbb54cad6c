"""function_vector: which heads carry a few-shot task, and what they carry.

After Function Vectors in Large Language Models (Todd et al., ICLR 2024, arXiv 2310.15213).

1. Few-shot prompts of a task: worked examples, then a question. A head's mean output at the last token, over prompts.
2. The same kind of prompts with shuffled answers: every worked example has the answer of another one.
3. contribution = the mean rise of P(right answer) in these when one head's output at the last token is replaced by its
   mean.
4. The function vector is the sum of the means of the `top` heads with the highest contribution, each through W_O.
5. It is added to the residual stream after a layer, at the last token of questions without any example. The layer is
   the best of about ten on other questions. The control: vectors of random heads of the same layers, each added after
   the layer that is best for it.

The answer is its first token, as in the published code.
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

DEFAULT = ("country_to_capital", "object_superclass", "verb_to_past_tense", "word_to_antonym")
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
            repeats=("contribution_half", "half"),
            examples=("limit", "limit"),
        )
    ],
    variables={
        "contribution_half": Variable("rise of P by half", "", "The rise of P on each half of the prompts."),
        "selected": Variable("selected", "", "Whether the head's mean output is part of the function vector."),
        "vector": Variable("function vector", "", "The sum of what the selected heads add to the residual stream."),
        "baseline": Variable("whole model", "", "P(right answer) and accuracy of the unchanged model, by prompt kind."),
        "added_at": Variable("layer", "", "The layer that the function vector is added after."),
        "effect": Variable(
            "change", "", "Change of P(right answer) and accuracy when the vector is added; above 0 it does the task."
        ),
        "effect_by_layer": Variable(
            "change by layer", "", "The same change when the vector is added after each layer; above 0: better."
        ),
        "random_effect": Variable("random heads", "", "The same change with each vector of random heads."),
    },
    presets={"full": {"limit": 64, "draws": 100}},
    tells="which heads carry a few-shot task, and what the model does with their sum alone",
    does_not_tell="which heads read the examples: only the last token is changed",
    cites=("Function Vectors in Large Language Models, Todd et al., ICLR 2024, arXiv 2310.15213",),
    sentences=lazily("headatlas.methods.function_vector.proof:sentences"),
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
    shots: Annotated[int, "worked examples in a few-shot prompt"] = 10,
    limit: Annotated[int, "prompts of each kind and task: few-shot, with shuffled answers, without examples"] = 12,
    top: Annotated[int, "number of heads in the function vector"] = 10,
    layer: Annotated[int | None, "add the vector after this layer (default: the best on other prompts)"] = None,
    draws: Annotated[int, "number of vectors of random heads to compare with"] = 20,
    template: Annotated[
        str | None, "text with {} for a pair's source (default: 'Q: {}', then 'A:' on the next line)"
    ] = None,
    seed: Annotated[int, "random seed for the prompts and the random heads"] = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which heads carry a few-shot task, and how well their sum does it without examples.

    relations, tasks: the tasks; without both, four built-in relations. Pairs of a relation are put into the template;
    tasks have prompts already. A fifth of the examples is held out, for prompts without examples.

    Returns:
        contribution(task, layer, head), the mean rise of P(right answer); contribution_half(task, half, layer, head);
        selected(task, layer, head), the heads of the function vector; vector(task, d_model), the vector itself;
        baseline(task, prompt, measure), probability and accuracy of the model as it is, few-shot, with shuffled answers
        and zero-shot; added_at(task), the layer it is added after; effect(task, measure), how much that raises
        zero-shot answers; effect_by_layer(task, layer, measure), the same after every layer;
        random_effect(task, draw, measure), with vectors of random heads; p and p_corrected(task), how often these raise
        the probability as much.

    Example:
        >>> ha.function_vector("smollm2", ["word_to_antonym"]).heads.top(5)
    """
    from headatlas.methods.function_vector import compute
    from headatlas.methods.function_vector.prompts import make_prompts, source_rows
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
    relations = DEFAULT if relations is None and tasks is None else relations
    loaded = few_shot_tasks(lm, relations, tasks, shots=shots, template=template)
    prompts = {task.name: make_prompts(lm, task, limit, seed) for task in loaded}
    scored = {name: compute.split_prompts(name, of_task) for name, of_task in prompts.items()}
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
        used=used_rows(loaded, (row for task in loaded for row in source_rows(task, limit, seed))),
    )


def _parts(
    task: str, prompts: Prompts, scored: Mapping[str, Sequence[TokenExample]], testing: Mapping[str, Any]
) -> list[Part]:
    """The parts of one task. testing: options of the function vector."""
    from headatlas.methods.function_vector import compute, proof

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
            do=proof.evaluate_vector,
            arguments={"task": task, "scored": tuple(scored), "prompts": prompts, **testing},
            inputs=(means, *scored),
        )
    )
    return parts

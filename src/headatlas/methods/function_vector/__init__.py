"""function_vector: which heads carry a task that is told by examples alone, and what they carry.

After Function Vectors in Large Language Models (Todd et al., ICLR 2024, arXiv 2310.15213).

1. Few-shot prompts of a task: worked examples, then a question. A head's mean output at the last token, over prompts.
2. The same kind of prompts with shuffled answers: every worked example has the answer of another one.
3. contribution = the mean rise of P(right answer) in these when one head's output at the last token is replaced by its
   mean.
4. The function vector is the sum of the means of the `top` heads with the highest contribution, each through W_O.
5. It is added to the residual stream after a layer, at the last token of questions without any example. The layer is
   the best of about ten on other questions. So are those of vectors made of random heads of the same layers, the
   control.

The answer is its first token, as in the published code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import check_count
from headatlas.methods._arguments import BatchTokens
from headatlas.methods.method import Measure, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

DEFAULT = ("country_to_capital", "object_superclass", "verb_to_past_tense", "word_to_antonym")
SHOTS = 10
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
    presets={"full": {"limit": 64, "draws": 100}},
    tells="which heads carry a task that is told by examples, and what the model does with their sum alone",
    does_not_tell="which heads read the examples: only the last token is changed",
    cites=("Function Vectors in Large Language Models, Todd et al., ICLR 2024, arXiv 2310.15213",),
    sentences=lazily("headatlas.methods.function_vector.sentences:vector_sentences"),
    ask=lazily("headatlas.methods.function_vector.parts:ask_held_out"),
    seconds=70,
    in_parts=True,
)
def function_vector(
    lm: LM,
    relations: Annotated[
        Any, "tasks: built-in relations by name, a folder, a JSON or CSV file, or pairs of your own by name"
    ] = None,
    tasks: Annotated[Any, "more tasks: files with prompt and target, built-in tasks, or examples of your own"] = None,
    *,
    shots: Annotated[int, "worked examples in a few-shot prompt"] = SHOTS,
    limit: Annotated[int, "prompts of each kind and task: few-shot, with shuffled answers, without examples"] = 12,
    top: Annotated[int, "heads whose means are the function vector"] = 10,
    layer: Annotated[int | None, "add the vector after this layer; by default the best on other prompts"] = None,
    draws: Annotated[int, "vectors of random heads to compare with"] = 20,
    template: Annotated[str | None, "a pair's source in a text; by default 'Q: {}' and, on the next line, 'A:'"] = None,
    seed: Annotated[int, "of the prompts and the random heads"] = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which heads carry a task told by examples alone, and how well their sum does it without examples.

    relations, tasks: what is asked; without both, four built-in relations. Pairs of a relation are put into the
    template; tasks have prompts of their own. A fifth of the examples is held out, for prompts without examples.

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
    from headatlas.methods.function_vector.parts import Settings, combine, plan, rows
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
    chosen = few_shot_tasks(lm, relations, tasks, shots=shots, template=template)
    settings = Settings(limit, top, layer, draws, seed, batch_tokens)
    plans = [plan(lm, task, settings) for task in chosen]
    where = "best" if layer is None else layer
    return Work(
        summary=f"{', '.join(t.name for t in chosen)}: {limit} prompts of each kind, {shots} shots",
        combine=combine,
        arguments=(plans,),
        parts=[part for one in plans for part in one.parts()],
        data=hash_tasks(chosen),
        settings={"shots": shots, "limit": limit, "top": top, "added_after": where, "draws": draws, "seed": seed},
        used=used_rows(chosen, (row for task in chosen for row in rows(task, settings))),
    )

"""streaming: what is lost when a KV head sees only the first and the last tokens.

1. Texts whose end needs what was said far back: passkeys in filler, or the user's own prompts and targets.
2. A KV head streams: it sees the first `sink` tokens and the last `recent` ones. loss = the fall of log P per scored
   token when it alone streams (kind "one").
3. Or every KV head gives α · full + (1 − α) · streaming attention, and α is fitted to be small while the last hidden
   states stay as they are (kind "learned", as published).
4. On other texts, the half of the KV heads that needs full attention least streams, beside random halves with as many
   in every layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import check_choice
from headatlas.methods._arguments import BatchTokens
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

KINDS = ("one", "learned")
MEANING = (
    "How much a head needs to see far back. Kind one: the log P per token that is lost when its KV head alone sees only"
    " the first and the last tokens. Kind learned: α of its KV head, 1 where it must see everything and 0 where it can"
    " stream. Query heads that share a KV head have the same value."
)


@method(
    title="Streaming",
    measures=[
        Measure(
            "need",
            over="task",
            meaning=MEANING,
            label="need of full attention",
            repeats=("need_half", "half"),
            examples=("examples", "limit"),
            shared=True,
        )
    ],
    presets={"full": {"length": 2048, "limit": 8, "held_out": 4, "draws": 99}},
    tells="which KV heads must see far back, and which can do with the first and the last tokens",
    does_not_tell="what they read there; texts with other needs may need other heads",
    cites=("DuoAttention, Xiao et al., ICLR 2025, arXiv 2410.10819",),
    sentences=lazily("headatlas.methods.streaming.sentences:verdicts"),
    truths={"streaming": Truth("copying", "need", {"limit": 8, "held_out": 0})},
    seconds=130,
    exports=("duo-attention",),
    in_parts=True,
)
def streaming(
    lm: LM,
    tasks: Annotated[
        Any, "long texts of your own: tasks with prompt and target; by default ours, with passkeys"
    ] = None,
    *,
    kind: Annotated[
        Literal["one", "learned"], "each KV head alone, or α of all of them fitted together, as published"
    ] = "one",
    sink: Annotated[int | None, "first tokens that a streaming head sees; by default a quarter of recent"] = None,
    recent: Annotated[int | None, "last tokens that it sees; by default an eighth of the longest text"] = None,
    length: Annotated[int, "tokens of a text with passkeys; fewer where the model's context is shorter"] = 384,
    keys: Annotated[int, "passkeys in a text; fewer where it is short"] = 8,
    limit: Annotated[int | None, "texts of each task; by default 2, or 8 that take turns where α is learned"] = None,
    updates: Annotated[int, "kind learned: updates of the fit, each on one text"] = 40,
    strength: Annotated[float, "kind learned: λ, the pressure on α"] = 0.05,
    lr: Annotated[float, "kind learned: the learning rate of α"] = 0.1,
    held_out: Annotated[int, "other texts of each task that the map is tested on; 0 for no test"] = 2,
    draws: Annotated[int, "random choices of KV heads that it is compared with there"] = 19,
    batch_tokens: BatchTokens = None,
) -> Work:
    """What is lost when KV heads see only the first and the last tokens.

    Returns:
        need(task, layer, head): how much the head's KV head needs to see far back. Kind one: loss(task, layer,
        kv_head), the fall of log P per scored token when it alone streams, and need_half(task, half, layer, head).
        Kind learned: gate(task, layer, kv_head), α; distance(task, update), what the mixing changed in the last hidden
        states. baseline(task), whole_accuracy(task): the whole model's log P of scored tokens, and how many of
        them are its likeliest; examples(task). On held-out texts, changes of log P per scored token: effect(task) with
        the half of the KV heads that needs full attention least streaming, n_removed(task) of them;
        random_effect(task, draw) with random ones; rest_effect(task) with the other half; all_effect(task) with all;
        p(task), how often random ones lose as little, and p_corrected(task).

    Example:
        >>> ha.streaming("smollm2", kind="learned").gate.sel(task="passkeys")
    """
    from headatlas.methods.streaming.parts import Options, streaming_work

    check_choice("kind", kind, KINDS)
    options = Options(kind, sink, recent, length, keys, limit, updates, strength, lr, held_out, draws, batch_tokens)
    return streaming_work(lm, tasks, options)

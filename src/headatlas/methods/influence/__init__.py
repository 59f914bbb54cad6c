"""influence: which heads matter for these texts. No labels, no task.

After the SHIPS score (Zhou et al. 2024, arXiv 2410.13708), which is this on harmful questions.

1. The whole model reads a text: p, its distribution over the next token after the last token (or after every token).
2. The same without one head, whose output is set to zero everywhere: q.
3. kl = KL(p ‖ q) = Σ p · (log p − log q) in nats, the mean over a text's positions, then over texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import check_choice, check_count
from headatlas.methods._arguments import BatchTokens, Template
from headatlas.methods.method import Measure, Part, Truth, Work, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

POSITIONS = ("last", "all")
MEANING = (
    "KL divergence in nats of what the model expects next, from the whole model to the model without this head."
    " It says how much the head matters for these texts, not whether it helps or harms."
)


@method(
    title="Influence on texts",
    measures=[
        Measure(
            "kl",
            over="text_set",
            meaning=MEANING,
            label="KL in nats",
            repeats=("kl_half", "half"),
            examples=("texts", "limit"),
        )
    ],
    presets={"full": {"positions": "all"}},
    tells="which heads change what the model says next on your texts",
    does_not_tell="whether the change is for the better, or what heads do that stand in for each other",
    cites=(
        "On the Role of Attention Heads in Large Language Model Safety (SHIPS), Zhou et al. 2024, arXiv 2410.13708",
    ),
    truths={"influence": Truth("functions", "kl", {"limit": 32})},
    seconds=210,
    in_parts=True,
)
def influence(
    lm: LM,
    texts: Annotated[
        Any,
        "texts, {name: texts}, a .txt, .jsonl or .csv file, or names of built-in sets (facts, story, code, repeats)",
    ] = None,
    *,
    positions: Annotated[Literal["last", "all"], "after the last token of a text, or after every token"] = "last",
    limit: Annotated[int | None, "use at most so many texts of a set, its first"] = 6,
    template: Template = False,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which heads matter for your texts: how far the next-token distribution moves without each head.

    texts: a list of texts is one set; {name: texts} are several, each with a map of its own.

    Returns:
        kl(text_set, layer, head), the mean KL divergence in nats; kl_half(text_set, half, layer, head);
        changed(text_set, layer, head), how often the likeliest token is another one without the head;
        entropy(text_set), of the whole model's distribution in nats; texts(text_set), how many.

    Example:
        >>> ha.influence("smollm2", ["How do I pick a lock?", "How do I bake bread?"]).heads.top(5)
    """
    from headatlas.methods.influence.measure import Piece, combine, encode, measure, piece_cost
    from headatlas.tasks.texts import hash_texts, load_texts
    from headatlas.tasks.used import Used

    check_choice("positions", positions, POSITIONS)
    if limit is not None:
        check_count("limit", limit, 1)
    sets = {name: of[:limit] for name, of in load_texts(texts).items()}
    ids = {name: encode(lm, name, of, template) for name, of in sets.items()}
    spans = [tuple(layers) for layers in lm.anatomy.layer_groups()]
    pieces = {
        name: [Piece(f"{name}: layers {s[0]} to {s[-1]}", of, s, positions, batch_tokens) for s in spans]
        for name, of in ids.items()
    }
    return Work(
        summary=f"{', '.join(f'{name}: {len(of)} texts' for name, of in ids.items())}; positions: {positions}",
        combine=combine,
        arguments=(pieces,),
        parts=[
            Part(name=piece.name, do=measure, arguments=(piece,), cost=piece_cost)
            for of_set in pieces.values()
            for piece in of_set
        ],
        data=hash_texts(sets),
        settings={"positions": positions, "template": int(template)},
        used=Used(),
    )

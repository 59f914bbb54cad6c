"""influence: measure how much each head matters for given texts. No labels, no task.

After the SHIPS score (Zhou et al. 2024, arXiv 2410.13708), which measures it on harmful questions.

1. The whole model reads a text: p, its distribution over the next token after the last token (or after every token).
2. The same without one head, whose output is set to zero at every token: q.
3. kl = KL(p ‖ q) = Σ p · (log p − log q) in nats, the mean over a text's positions, then over texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import check_choice, check_count
from headatlas.methods._arguments import BatchTokens, Template
from headatlas.methods.method import Measure, Part, Truth, Variable, Work, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

POSITIONS = ("last", "all")
MEANING = (
    "KL divergence, in nats, between the next-token distributions of the whole model and of the model without this"
    " head. It shows how much the head matters for these texts, not whether it helps or harms."
)


@method(
    title="Influence on texts",
    measures=[
        Measure(
            "kl",
            over="text_set",
            meaning=MEANING,
            label="KL in nats",
            units="nats",
            repeats=("by_text", "text"),
            examples=("texts", "limit"),
        )
    ],
    variables={
        "changed": Variable(
            "changed", "share", "Share of positions where the most likely token differs without the head."
        ),
        "entropy": Variable("entropy", "nats", "Entropy of the whole model's next-token distribution."),
        "texts": Variable("texts", "texts", "Number of texts in the set."),
    },
    presets={"full": {"positions": "all"}},
    finds="which heads change the model's next-token distribution on your texts",
    misses="whether a head helps or harms, or what heads do that can replace each other",
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
    positions: Annotated[
        Literal["last", "all"], "compare next-token distributions after the last token of a text, or after every token"
    ] = "last",
    limit: Annotated[int | None, "number of texts used from the beginning of each set; None for all"] = 6,
    template: Template = False,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Measure how far the next-token distribution on your texts moves without each head.

    A list of texts is one set; {name: texts} has several sets, each with its map.

    Returns:
        kl(text_set, layer, head), the mean KL divergence in nats, and its reliability;
        changed(text_set, layer, head), the share of positions where the most likely token differs without the head;
        entropy(text_set), of the whole model's distribution in nats; texts(text_set), the number of texts.

    Example:
        >>> ha.influence("smollm2", ["How do I pick a lock?", "How do I bake bread?"]).heads.top(5)
    """
    from headatlas.methods.influence.compute import combine, encode, measure_layers, part_name
    from headatlas.tasks.texts import hash_texts, load_texts
    from headatlas.tasks.used import Used

    check_choice("positions", positions, POSITIONS)
    if limit is not None:
        check_count("limit", limit, 1)
    texts_by_set = {name: set_texts[:limit] for name, set_texts in load_texts(texts).items()}
    tokens_by_set = {name: encode(lm, name, set_texts, template) for name, set_texts in texts_by_set.items()}
    groups = lm.anatomy.layer_groups()
    options = {"positions": positions, "batch_tokens": batch_tokens}
    return Work(
        summary=f"{', '.join(f'{name}: {len(tokens)} texts' for name, tokens in tokens_by_set.items())};"
        f" positions: {positions}",
        combine=combine,
        arguments={"n_texts": {name: len(tokens) for name, tokens in tokens_by_set.items()}, "groups": groups},
        parts=[
            Part(
                name=part_name(name, layers),
                do=measure_layers,
                arguments={"part": part_name(name, layers), "texts": tokens, "layers": layers, **options},
            )
            for name, tokens in tokens_by_set.items()
            for layers in groups
        ],
        data=hash_texts(texts_by_set),
        settings={"positions": positions, "template": int(template)},
        used=Used(),
    )

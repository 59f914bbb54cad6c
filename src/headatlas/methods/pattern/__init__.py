"""pattern: measure where heads attend in repeated random tokens. No task, no causal claim.

1. Make texts of random tokens, each repeated once.
2. induction: the attention from a token's second occurrence to the token after its first. duplicate (duplicate-token
   heads): to the first occurrence itself. previous (previous-token heads): from any token to the one before. sink: from
   any token to the first of the text. self: from any token to itself.
3. A score is the mean share of attention that goes there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from headatlas.errors import check_count
from headatlas.methods.method import Measure, Truth, method

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.models.lm import LM

MAX_SEQUENCES = 10_000
ALIASES = (
    ("previous-token", "previous"),
    ("duplicate-token", "duplicate"),
    ("first-token", "sink"),
    ("attention-sink", "sink"),
    ("current-token", "self"),
)


@method(
    title="Attention patterns",
    measures=[
        Measure(
            "score",
            over="pattern",
            meaning="Share of attention on the token that each pattern points at, in repeated random tokens: the one"
            " after this token's first occurrence (induction), the one before (previous), the same token earlier"
            " (duplicate), the first of the text (sink), itself (self). It shows where a head attends, not what it"
            " does.",
            aliases=ALIASES,
            repeats=("by_text", "text"),
            examples=("sequences", "sequences"),
        )
    ],
    presets={"quick": {}, "full": {}},
    finds="where a head attends",
    misses="whether anything depends on it",
    cites=("In-context Learning and Induction Heads, Olsson et al. 2022, arXiv 2209.11895",),
    truths={"pattern-induction": Truth("copying", "score", subject="induction")},
    seconds=3,
)
def pattern(
    lm: LM,
    *,
    length: Annotated[int | None, "random tokens before they repeat (default: 50, or what fits the context)"] = None,
    sequences: Annotated[int, "number of texts of random tokens"] = 8,
    seed: Annotated[int, "random seed for the tokens"] = 0,
) -> xr.Dataset:
    """Score heads for attention patterns in repeated random tokens: induction, previous, duplicate, sink and self.

    Returns:
        score(pattern, layer, head), the mean share of attention on the token that the pattern points at.

    Example:
        >>> ha.pattern("smollm2").score.sel(pattern="induction").argmax(("layer", "head"))
    """
    check_count("sequences", sequences, 1, MAX_SEQUENCES)
    check_count("seed", seed, 0, 2**63 - 1)
    from headatlas.methods.pattern.compute import attention_scores

    return attention_scores(lm, length=length, sequences=sequences, seed=seed)

"""retrieval: which heads copy the answer out of a long text.

After Wu et al. 2024 (Retrieval Head Mechanistically Explains Long-Context Factuality, arXiv 2404.15574).

1. A needle, a sentence found nowhere else, is put into a long text at several depths. A question that only the needle
   answers follows (`tasks.needles`).
2. The model answers greedily, up to the end of a line.
3. At every step of the answer, for every head: the position that it attends to most (`models.attention`). If that
   position is in the needle's answer and holds the token being written, the head has copied that token.
4. A head's score for one text is the share of the needle's tokens that it copied, each counted once. As the released
   code counts (`kind="published-code"`), every step counts, repeats too.
5. The score is the mean over the texts that were answered: at least half of the words of the needle's answer were
   written.
6. Needles that had no part in the score are asked with the best heads removed, and with random heads of the same layers
   (`proof`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.methods._arguments import BatchTokens, Template
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

KINDS = ("paper", "published-code")
MOST_DEPTHS, MOST_TOKENS = 1000, 10_000  # more is a mistake
MEANING = (
    "Share of a needle's tokens that the head copied: it attended most to the very token that was then written."
    " Mean over the needles that the model answered. It is where a head looks while the model copies, not that the"
    " answer needs it; the removal curves tell that."
)


@method(
    title="Retrieval heads",
    measures=[
        Measure(
            "score",
            over="needles",
            meaning=MEANING,
            label="share of tokens copied",
            repeats=("score_half", "half"),
            examples=("answered", "limit"),
        )
    ],
    presets={"full": {"lengths": (1024, 2048, 4096), "depths": 10, "limit": 12, "causal": 8}},
    tells="which heads look at the answer in a long text while the model writes it",
    does_not_tell="whether the answer needs each of them: only sets of them are removed",
    cites=(
        "Retrieval Head Mechanistically Explains Long-Context Factuality, Wu, Wang, Xiao, Peng & Fu, 2024,"
        " arXiv 2404.15574",
    ),
    sentences=lazily("headatlas.methods.retrieval.sentences:retrieval_sentences"),
    truths={
        "retrieval": Truth("copying", "score", {"lengths": (128,), "new_tokens": 6, "causal": 0}, subject="needles")
    },
    order=35,
    exports=("headkv", "duo-attention"),
    in_parts=True,
)
def retrieval(
    lm: LM,
    needles: Annotated[Any, "a file with needle, question and answer, or needles of your own; by default, ours"] = None,
    *,
    text: Annotated[Any, "a text file to hide them in; by default, our own text"] = None,
    lengths: Annotated[Sequence[int], "tokens of the prompts, at most; longer than the context means what fits"] = (
        512,
    ),
    depths: Annotated[int, "how many places of a needle, evenly from the text's beginning to its end"] = 3,
    kind: Annotated[
        Literal["paper", "published-code"],
        "a token of the needle counts once, as in the paper, or every time it is copied, as in the released code",
    ] = "paper",
    limit: Annotated[int, "needles of each set that the score is made from"] = 6,
    causal: Annotated[int, "other needles to check with, by removing heads; 0: no check"] = 4,
    recall: Annotated[float, "share of its words that must be written for a needle to count as answered"] = 0.5,
    new_tokens: Annotated[int, "tokens of an answer, at most"] = 50,
    template: Template = True,
    batch_tokens: BatchTokens = None,
    seed: Annotated[int, "of the random heads"] = 0,
) -> Work:
    """Which heads copy the answer out of a long text (docs/methods/retrieval.md).

    needles: our own, invented facts; a file, JSON Lines or CSV, with needle, question and answer (the part of the
    needle that is the answer); a list of such; or several sets by name. A set has a map of its own.

    Returns score(needles, layer, head); score_half(needles, half, layer, head), of every other needle; asked and
    answered(needles), how many; each(test, layer, head), the score of each text; set, needle, answer, length, depth,
    response, recall, used and held_out(test), what each text was, how much of the answer was written, whether it is
    part of the score, or kept to check with.
    A set of which no needle was answered has no score: NaN.
    With causal: baseline(needles, measure), effect(needles, n_removed, measure), random_effect(needles, n_removed,
    draw, measure), p and p_corrected(needles, n_removed), questions(needles).

    Example:
        >>> ha.retrieval("smollm2", lengths=(256,), depths=1, limit=2, causal=0).heads.top(5)
    """
    from headatlas.methods.retrieval.parts import Asking, Counting, plan

    check_choice("kind", kind, KINDS)
    check_count("depths", depths, 1, MOST_DEPTHS)
    check_count("limit", limit, 1)
    check_count("causal", causal, 0)
    check_count("new_tokens", new_tokens, 1, MOST_TOKENS)
    check_count("seed", seed, 0, 2**32 - 1)
    if not 0 <= recall <= 1:
        raise BadArgument(f"recall is {recall}, expected 0 to 1")
    asking = Asking(lengths, depths, limit, causal, new_tokens, template)
    return plan(lm, needles, text, asking, Counting(kind, recall, batch_tokens, seed))

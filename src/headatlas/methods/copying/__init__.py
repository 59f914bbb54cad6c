"""copying: which heads carry over the next token of a repeated list, and which the whole of a repeated word.

After The Dual-Route Model of Induction (Feucht et al. 2025, arXiv 2504.03022), section 2.

1. A list of random tokens x₁ … xₙ ends in a unit u₁ … uₖ: k more random tokens (`token`), or a word of k pieces
   (`concept`).
2. The clean text is the list, a line break, and the list again up to the unit. In the corrupted text the first list is
   another one, of random tokens only, so that nothing can be copied.
3. One head's output z at the second xₙ, the token before the unit, is taken from the clean text and put into the
   corrupted one. The rest of the model runs on.
4. token: the rise of P(u₁), the next token, at that place.
   concept: the text goes on with u₁, and the score is the rise of P(u₂) there. Nothing was changed at u₁ itself: only
   a head that had more of the word in view than its next token can raise it.
5. A head's score is the mean over texts. 95 % intervals are of a bootstrap over texts.
6. Beside it, the mean rise of log P: a mean of P is that of the few texts in which it is large. A head is above chance
   where P rises in more texts than a coin would for any of the heads (a sign test).
7. The proof: the heads above chance that score highest are removed while clean texts of other tokens and words are
   copied, from xₙ on; and so are random heads of the same layers (`evidence.control`).

What differs from the published code: docs/methods/copying.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import check_count
from headatlas.methods._arguments import BatchTokens
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MOST_TEXTS = 100_000  # more is a mistake
COPIED = (
    " when this one head's output is taken from a text that repeats itself. token: the next token of a list. concept:"
    " the second piece of a word, one token ahead. Causal, but a head may pass on what others carried."
)


@method(
    title="Copying",
    measures=[
        Measure(
            "score",
            over="copied",
            meaning=f"Rise of P(what comes next){COPIED}",
            label="rise of P",
            above="above_chance",
            low="score_low",
            high="score_high",
            repeats=("score_half", "half"),
            examples=("texts", "texts"),
        ),
        Measure(
            "log_rise",
            over="copied",
            meaning=f"Rise of log P(what comes next){COPIED}",
            label="rise of log P",
            above="above_chance",
            repeats=("log_rise_half", "half"),
            examples=("texts", "texts"),
        ),
    ],
    presets={"full": {"texts": 256}},
    tells="which heads alone carry over the next token of a repeated list, or more of a repeated word",
    does_not_tell="what a head copies where several are needed together, or in other texts",
    cites=("The Dual-Route Model of Induction, Feucht, Todd, Wallace & Bau, COLM 2025, arXiv 2504.03022",),
    sentences=lazily("headatlas.methods.copying.sentences:copying_sentences"),
    ask=lazily("headatlas.methods.copying.texts:ask_again"),
    truths={"copying": Truth("copying", "score", {"texts": 64}, subject="token")},
    seconds=50,
    in_parts=True,
)
def copying(
    lm: LM,
    words: Annotated[Any, "a file with a word a line, or words of your own; by default ours, in English"] = None,
    *,
    texts: Annotated[int, "texts of each kind"] = 32,
    length: Annotated[int | None, "tokens before they repeat; by default what fits, at most 30"] = None,
    seed: Annotated[int, "of the random tokens and the order of the words"] = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which heads copy: the next token of a repeated random list, or more of a repeated word.

    words: of 2 to 5 tokens behind a space; others are left out. Where too few are left, `concept` is.

    Returns:
        score(copied, layer, head), the rise of P, for `copied` token and concept; score_low and score_high(copied,
        layer, head), a 95 % interval; log_rise(copied, layer, head), the rise of log P; raised(copied, layer, head),
        the share of texts in which it rises; above_chance(copied, layer, head); score_half and log_rise_half(copied,
        half, layer, head); clean and corrupted(copied), P in texts with and without something to copy;
        baseline(copied, measure), effect(copied, n_removed, measure), random_effect(copied, n_removed, draw, measure),
        p and p_corrected(copied, n_removed).

    Example:
        >>> ha.copying("smollm2").log_rise.sel(copied="token").argmax(("layer", "head"))
    """
    check_count("texts", texts, 2, MOST_TEXTS)
    check_count("seed", seed, 0, 2**32 - 1)
    from headatlas.methods.copying.scores import copying_work

    return copying_work(lm, words, texts, length, seed, batch_tokens)

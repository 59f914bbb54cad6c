"""copying: which heads carry over the next token of a repeated list, and which the whole of a repeated word.

After The Dual-Route Model of Induction (Feucht et al. 2025, arXiv 2504.03022), section 2.

1. A list of random tokens x₁ … xₙ ends in a unit u₁ … uₖ: k more random tokens (`token`), or a word of k pieces
   (`concept`).
2. The clean text is the list, a line break, and the list again up to the unit. In the corrupted text the first list is
   another one, of random tokens only, so that nothing can be copied.
3. One head's output z at the second xₙ, the token before the unit, is taken from the clean text and put into the
   corrupted one. The rest of the model runs on.
4. token: the rise of P(u₁), the next token, at that place.
   concept: the text continues with u₁, and the score is the rise of P(u₂) there. Nothing was changed at u₁ itself: only
   a head that had more of the word in view than its next token can raise it.
5. A head's score is the mean over texts. 95 % intervals are of a bootstrap over texts.
6. Also the mean rise of log P: a mean of P is that of the few texts in which it is large. A head is above chance
   where P rises in more texts than a coin would for any of the heads (a sign test).
7. The test: the heads above chance that score highest are removed while clean texts of other tokens and words are
   copied, from xₙ on; and so are random heads of the same layers (`evidence.control`).

What differs from the published code: docs/methods/copying.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import check_count
from headatlas.methods._arguments import BatchTokens
from headatlas.methods.method import Measure, Part, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MAX_TEXTS = 100_000  # more is a mistake
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
            units="nats",
            above="above_chance",
            repeats=("log_rise_half", "half"),
            examples=("texts", "texts"),
        ),
    ],
    variables={
        "score_low": Variable("score, low", "", "Lower end of the 95 % bootstrap interval of the score, over texts."),
        "score_high": Variable("score, high", "", "Upper end of the 95 % bootstrap interval of the score, over texts."),
        "score_half": Variable("score by half", "", "The score on each half of the texts: above 0 the head copies."),
        "log_rise_half": Variable(
            "rise of log P by half", "nats", "The rise of log P on each half of the texts: above 0 the head copies."
        ),
        "raised": Variable("texts raised", "share", "Share of texts in which the head raises P."),
        "above_chance": Variable("above chance", "", "Whether P rises in more texts than a coin would show."),
        "clean": Variable("P where it can be copied", "", "Mean P of the next token or piece in clean texts."),
        "corrupted": Variable("P where it cannot", "", "Mean P of the next token or piece in corrupted texts."),
        "baseline": Variable("whole model", "", "Mean score of the whole model's answers; higher is better."),
        "effect": Variable("change", "", "Change of the score without the top heads; below 0 the model copies less."),
        "random_effect": Variable(
            "random heads", "", "The same without random heads, as many in each layer; below 0 it copies less."
        ),
    },
    presets={"full": {"texts": 256}},
    tells="which heads alone carry over the next token of a repeated list, or more of a repeated word",
    does_not_tell="what a head copies where several are needed together, or in other texts",
    cites=("The Dual-Route Model of Induction, Feucht, Todd, Wallace & Bau, COLM 2025, arXiv 2504.03022",),
    sentences=lazily("headatlas.methods.copying.proof:copying_sentences"),
    ask=lazily("headatlas.methods.copying.proof:ask_again"),
    truths={"copying": Truth("copying", "score", {"texts": 64}, subject="token")},
    seconds=50,
    in_parts=True,
)
def copying(
    lm: LM,
    words: Annotated[Any, "a file with one word per line, or your words (default: built-in, English)"] = None,
    *,
    texts: Annotated[int, "texts of each kind"] = 32,
    length: Annotated[int | None, "tokens before they repeat; by default what fits, at most 30"] = None,
    seed: Annotated[int, "random seed for the tokens and the order of the words"] = 0,
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
    from headatlas.methods.copying.compute import combine, cut_into_parts, removal_part, score_texts
    from headatlas.methods.copying.proof import remove_top
    from headatlas.methods.copying.texts import AHEAD, hash_texts, make_texts
    from headatlas.tasks.used import Used

    check_count("texts", texts, 2, MAX_TEXTS)
    check_count("seed", seed, 0, 2**32 - 1)
    made = make_texts(lm, words, texts, length, seed)
    parts: list[Part] = []
    scored: dict[str, list[str]] = {}
    for copied, its_texts in made.items():
        cut = cut_into_parts(copied, its_texts.scored)
        scored[copied] = list(cut)
        for name, part_texts in cut.items():
            scoring = {"name": name, "texts": part_texts, "ahead": AHEAD[copied], "batch_tokens": batch_tokens}
            parts.append(Part(name=name, do=score_texts, arguments=scoring))
        name = removal_part(copied)
        removal: dict[str, Any] = {"name": name, "scored": scored[copied], "texts": its_texts.proof}
        removal |= {"seed": seed, "batch_tokens": batch_tokens}
        parts.append(Part(name=name, do=remove_top, arguments=removal, inputs=tuple(cut)))
    first = made["token"].scored[0]
    size = len(first.again) + len(first.unit)
    return Work(
        summary=f"{texts} texts of {size} tokens, twice: {' and '.join(made)}",
        combine=combine,
        arguments={"parts": scored, "seed": seed},
        parts=parts,
        data=hash_texts(made),
        settings={"texts": texts, "length": size, "seed": seed},
        used=Used(),
    )

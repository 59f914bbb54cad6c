"""copying: find the heads that copy the next token of a repeated list, and those that copy a repeated word.

After The Dual-Route Model of Induction (Feucht et al. 2025, arXiv 2504.03022), section 2.

1. A list of random tokens x₁ … xₙ ends in a unit u₁ … uₖ: k more random tokens (`token`), or a word of k pieces
   (`concept`).
2. The clean text is the list, a line break, and the list again up to the unit. In the corrupted text the first list is
   another list of random tokens, so that nothing can be copied.
3. One head's output z at the second xₙ, the token before the unit, is taken from the clean text and patched into the
   corrupted one. The rest of the model runs as usual.
4. token: the score is the rise of P(u₁), the next token, at that position.
   concept: the text continues with u₁, and the score is the rise of P(u₂) there. Nothing was patched at u₁: only a head
   whose output at xₙ carries more of the word than its next token can raise P(u₂).
5. A head's score is the mean over texts, with a 95 % bootstrap interval over texts.
6. The mean rise of log P is stored too, because few texts with a large P dominate the mean of P. A head is above chance
   if P rises in more texts than a coin would show for any of the heads (a sign test).
7. Clean texts of other tokens and words are left for the test of the best heads (docs/concepts/evidence.md).

What differs from the published code: docs/methods/copying.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from headatlas.errors import check_count
from headatlas.methods._arguments import BatchTokens
from headatlas.methods.method import Measure, Part, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MAX_TEXTS = 100_000
MEANING = (
    " when this one head's output is taken from a text that repeats itself. token: the next token of a list. concept:"
    " the second token of a word, one token ahead. Causal, but a head may pass on what other heads copied."
)


@method(
    title="Copying",
    measures=[
        Measure(
            "score",
            over="copied",
            meaning=f"Rise of P(next token){MEANING}",
            label="rise of P",
            above="above_chance",
            low="score_low",
            high="score_high",
            repeats=("by_text", "text"),
            examples=("texts", "texts"),
            claim="needed",
        ),
        Measure(
            "log_rise",
            over="copied",
            meaning=f"Rise of log P(next token){MEANING}",
            label="rise of log P",
            units="nats",
            above="above_chance",
            repeats=("log_rise_by_text", "text"),
            examples=("texts", "texts"),
        ),
    ],
    variables={
        "score_low": Variable("score, low", "", "Lower end of the 95 % bootstrap interval of the score, over texts."),
        "score_high": Variable("score, high", "", "Upper end of the 95 % bootstrap interval of the score, over texts."),
        "raised": Variable("texts raised", "share", "Share of texts in which the head raises P."),
        "above_chance": Variable("above chance", "", "Whether P rises in more texts than a coin would show."),
        "clean": Variable("P in clean texts", "", "Mean P of the next token where it can be copied."),
        "corrupted": Variable("P in corrupted texts", "", "Mean P of the next token where it cannot be copied."),
    },
    presets={"full": {"texts": 256}},
    finds="which heads, each alone, copy the next token of a repeated list, or more of a repeated word",
    misses="what heads copy that are needed together, or what they do in other texts",
    cites=("The Dual-Route Model of Induction, Feucht, Todd, Wallace & Bau, COLM 2025, arXiv 2504.03022",),
    sentences=lazily("headatlas.methods.copying.compute:copying_sentences"),
    ask=lazily("headatlas.methods.copying.compute:ask_again"),
    truths={"copying": Truth("copying", "score", {"texts": 64}, subject="token")},
    seconds=50,
    in_parts=True,
)
def copying(
    lm: LM,
    words: Annotated[Any, "a file with one word per line, or your words (default: built-in, English)"] = None,
    *,
    texts: Annotated[int, "texts of each kind"] = 32,
    length: Annotated[int | None, "tokens of a list before it repeats (default: what fits, at most 30)"] = None,
    seed: Annotated[int, "random seed for the tokens and the order of the words"] = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Find the heads that copy the next token of a repeated random list, or more of a repeated word.

    Words must have 2 to 5 tokens after a space; others are left out. If too few built-in words remain, `concept` is
    left out.

    Returns:
        score(copied, layer, head), the rise of P, where `copied` is token or concept; score_low and score_high(copied,
        layer, head), a 95 % interval; log_rise(copied, layer, head), the rise of log P; raised(copied, layer, head),
        the share of texts in which it rises; above_chance(copied, layer, head); clean and corrupted(copied), P in texts
        with and without something to copy.

    Example:
        >>> ha.copying("smollm2").log_rise.sel(copied="token").argmax(("layer", "head"))
    """
    from headatlas.methods.copying.compute import combine, cut_into_parts, make_task, score_texts
    from headatlas.methods.copying.texts import AHEAD, hash_texts, make_texts
    from headatlas.tasks.used import Used

    check_count("texts", texts, 2, MAX_TEXTS)
    check_count("seed", seed, 0, 2**32 - 1)
    texts_by_kind = make_texts(lm, words, texts, length, seed)
    parts: list[Part] = []
    score_parts: dict[str, list[str]] = {}
    for copied, kind_texts in texts_by_kind.items():
        texts_by_part = cut_into_parts(copied, kind_texts.scored)
        score_parts[copied] = list(texts_by_part)
        for name, part_texts in texts_by_part.items():
            scoring = {"name": name, "texts": part_texts, "ahead": AHEAD[copied], "batch_tokens": batch_tokens}
            parts.append(Part(name=name, do=score_texts, arguments=scoring))
    first = texts_by_kind["token"].scored[0]
    size = len(first.again) + len(first.unit)
    return Work(
        summary=f"{texts} lists of {size} tokens, repeated: {' and '.join(texts_by_kind)}",
        combine=combine,
        arguments={"parts": score_parts, "seed": seed},
        parts=parts,
        data=hash_texts(texts_by_kind),
        settings={"texts": texts, "length": size, "seed": seed},
        used=Used(),
        subjects={copied: make_task(copied, kind_texts.unused) for copied, kind_texts in texts_by_kind.items()},
    )

"""retrieval: find the heads that copy the answer out of a long text.

After Wu et al. 2024 (Retrieval Head Mechanistically Explains Long-Context Factuality, arXiv 2404.15574).

1. A needle, a sentence found nowhere else, is put into a long text at several depths, followed by a question that only
   the needle answers (`tasks.needles`).
2. The model answers greedily, up to the end of a line.
3. At every step of the answer, find the position that each head attends to most (`models.attention`). If that position
   is in the needle's answer and holds the token being written, the head has copied that token.
4. A head's score for one text is the share of the needle's tokens that it copied, each counted once. With
   `kind="published-code"`, every step counts, repeats too, as in the released code.
5. A head's score is the mean over the answered texts: those where the model wrote at least half of the words of the
   needle's answer.
6. The other needles are left for the test of the best heads (docs/concepts/evidence.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.methods._arguments import BatchTokens, Template
from headatlas.methods.method import Measure, Part, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

Kind = Literal["paper", "published-code"]
MAX_DEPTHS = 1000
MAX_NEW_TOKENS = 10_000
MEANING = (
    "Share of a needle's tokens that the head copied: it attended most to the very token that was then written."
    " Mean over the needles that the model answered. It shows where a head attends while the model copies, not whether"
    " the answer needs it; the test of the best heads shows that."
)


@method(
    title="Retrieval heads",
    measures=[
        Measure(
            "score",
            over="needles",
            meaning=MEANING,
            label="share of tokens copied",
            repeats=("by_needle", "needle_text"),
            examples=("answered", "limit"),
            claim="needed",
        )
    ],
    variables={
        "each": Variable("score of a text", "", "Share of the answer's tokens in one text that the head copied."),
        "set": Variable("needles", "", "Set that the text's needle comes from."),
        "needle": Variable("needle", "", "Sentence hidden in the text."),
        "answer": Variable("answer", "", "Part of the needle that answers the question."),
        "length": Variable("length", "tokens", "Length of the prompt."),
        "depth": Variable("depth", "", "Place of the needle in the text: 0 is its beginning, 1 its end."),
        "response": Variable("response", "", "What the model wrote."),
        "recall": Variable("recall", "share", "Share of the answer's words in the response."),
        "used": Variable("used", "", "Whether the text is part of the score: its question was answered."),
        "asked": Variable("asked", "texts", "Number of texts for the score."),
        "answered": Variable("answered", "texts", "Number of these texts that were answered; the score is their mean."),
    },
    presets={"full": {"lengths": (1024, 2048, 4096), "depths": 10, "limit": 12}},
    finds="which heads attend to the answer in a long text while the model writes it",
    misses="whether the answer needs each of them: only the best of them are removed, together",
    cites=(
        "Retrieval Head Mechanistically Explains Long-Context Factuality, Wu, Wang, Xiao, Peng & Fu, 2024,"
        " arXiv 2404.15574",
    ),
    sentences=lazily("headatlas.methods.retrieval.compute:retrieval_sentences"),
    truths={"retrieval": Truth("copying", "score", {"lengths": (128,), "new_tokens": 6}, subject="needles")},
    seconds=120,
    exports=("headkv", "duo-attention"),
    in_parts=True,
)
def retrieval(
    lm: LM,
    needles: Annotated[Any, "a file with needle, question and answer, or your needles (default: built-in)"] = None,
    *,
    text: Annotated[Any, "a text file to hide needles in (default: built-in)"] = None,
    lengths: Annotated[Sequence[int], "lengths of the prompts in tokens; larger ones than the context are reduced"] = (
        512,
    ),
    depths: Annotated[int, "number of depths of a needle, evenly spaced from the beginning to the end of the text"] = 3,
    kind: Annotated[
        Kind,
        "whether a token counts once, as in the paper, or each time it is copied, as in the released code",
    ] = "paper",
    limit: Annotated[int, "maximum number of needles of each set for the score; others are left for its test"] = 6,
    recall: Annotated[float, "share of a needle's answer words that the model must write to count as answered"] = 0.5,
    new_tokens: Annotated[int, "maximum number of tokens of an answer"] = 50,
    template: Template = True,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Find the heads that copy the answer out of a long text (docs/methods/retrieval.md).

    Args:
        needles: the built-in, invented facts; a JSON Lines or CSV file with needle, question and answer (the part of
            the needle that is the answer); a list of these; or several sets by name. Each set has its map.

    Returns:
        score(needles, layer, head), NaN for a set without an answered needle, and its reliability over
        needles; asked and answered(needles), numbers of texts; each(test, layer, head), the score of
        each text; set, needle, answer, length, depth, response, recall and used(test), what each text was, how much of
        the answer was written, and whether it is part of the score.

    Example:
        >>> ha.retrieval("smollm2", lengths=(256,), depths=1, limit=2).heads.top(5)
    """
    from headatlas.methods.retrieval.compute import combine, fitting_lengths, hide_needles, make_task, read_texts
    from headatlas.tasks.needles import check_needles, hash_needles, load_needles, load_sentences
    from headatlas.tasks.used import Used, text_id

    _check(kind, depths, limit, recall, new_tokens)
    fitting = fitting_lengths(lm, lengths, new_tokens)
    sentences = load_sentences(text, fitting[-1])
    sets = load_needles(needles)
    check_needles(lm, sets, sentences, fitting[0], template)
    scored = {name: in_set[:limit] for name, in_set in sets.items()}
    texts = hide_needles(scored, sentences, fitting, depths)
    tasks = {
        name: make_task(lm, name, in_set[limit:], sentences, fitting[0], template) for name, in_set in sets.items()
    }
    answering = {"new_tokens": new_tokens, "template": template, "batch_tokens": batch_tokens}
    amounts = {"depths": depths, "limit": limit}
    counting = {"kind": kind, "recall": recall}
    return Work(
        summary=f"{sum(len(t.depths) for t in texts)} texts of {' and '.join(f'{n:,}' for n in fitting)} tokens,"
        " a needle in each",
        combine=combine,
        arguments={"texts": texts, **counting},
        parts=[Part(name=t.name, do=read_texts, arguments={"texts": t, **answering}) for t in texts],
        data=hash_needles(scored, sentences),
        settings=amounts | {"lengths": list(fitting), "new_tokens": new_tokens, "template": int(template)},
        result_settings=counting,
        used=Used(frozenset(text_id(n.question, n.answer) for in_set in scored.values() for n in in_set)),
        subjects={name: task for name, task in tasks.items() if task is not None},
    )


def _check(kind: str, depths: int, limit: int, recall: float, new_tokens: int) -> None:
    check_choice("kind", kind, get_args(Kind))
    check_count("depths", depths, 1, MAX_DEPTHS)
    check_count("limit", limit, 1)
    check_count("new_tokens", new_tokens, 1, MAX_NEW_TOKENS)
    if not 0 <= recall <= 1:
        raise BadArgument(f"recall is {recall}, expected 0 to 1")

"""The test of `retrieval`: do answers need the best heads? They are removed while the model answers.

The answers are those that the model gave to needles that had no part in the score. Heads are removed from the prompt's
last token on, where the copying is done. Effects are changes of the mean log P of the answer's tokens, and of the share
of them that are the likeliest (accuracy, which is 1 for the whole model).
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import xarray as xr

from headatlas.evidence.control import (
    ANSWERS,
    answers_without,
    cached_by_heads,
    compare_with_random,
    correct_p,
    same_layers,
    top_heads,
)
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import Progress

N_REMOVED = (2, 4, 8, 16, 32)
MAX_DRAWS = 99  # random sets per set of removed heads; fewer where the answer is plain


def check_removal(
    lm: LM,
    questions: Mapping[str, Sequence[TokenExample]],
    score: xr.DataArray,
    *,
    seed: int,
    tokens: int | None,
    progress: Progress,
) -> xr.Dataset:
    """Return removal curves of each set of needles; NaN where no head scores or no question was answered."""
    names = list(questions)
    shape = (len(names), len(N_REMOVED))
    baseline = np.full((len(names), len(ANSWERS)), np.nan)
    effect = np.full((*shape, len(ANSWERS)), np.nan)
    p = np.full(shape, np.nan)
    random_effect = np.full((*shape, MAX_DRAWS, len(ANSWERS)), np.nan)
    for i, name in enumerate(progress(names, "removal")):
        values = score.sel(needles=name).values
        heads = top_heads(values, int((values > 0).sum()))
        sets = [heads[:n] for n in N_REMOVED if n <= len(heads)]
        if not sets or not questions[name]:
            continue
        quality = cached_by_heads(partial(answers_without, lm, questions[name], tokens=tokens))
        draw = same_layers(lm.n_heads, np.random.default_rng([seed, i]))
        result = compare_with_random(quality, sets, draw, draws=MAX_DRAWS, reference=[])
        baseline[i] = result.reference
        effect[i, : len(sets)] = result.effect
        p[i, : len(sets)] = result.p
        random_effect[i, : len(sets)] = result.random_effect
    dims = ("needles", "n_removed")
    return xr.Dataset(
        {
            "baseline": (("needles", "measure"), baseline),
            "effect": ((*dims, "measure"), effect),
            "random_effect": ((*dims, "draw", "measure"), random_effect),
            "p": (dims, p),
            "p_corrected": (dims, correct_p(p)),
            "questions": ("needles", [len(of_set) for of_set in questions.values()]),
        },
        coords={"needles": names, "n_removed": list(N_REMOVED), "measure": list(ANSWERS), "draw": range(MAX_DRAWS)},
    )


def retrieval_sentences(result: xr.Dataset) -> list[str]:
    """Return what a reader must know before believing a map: above all, whether the model answered at all."""
    lines = []
    for name in result.needles.values.tolist():
        needles = result.sel(needles=name)
        answered = int(needles.answered)
        n_questions = int(needles.asked)
        if not answered:
            lines.append(
                f"{name}: the model answered none of {n_questions} questions, so there is no score. Try shorter texts"
            )
        elif answered < n_questions:
            lines.append(f"{name}: the model answered {answered} of {n_questions} questions; scores are of those")
        if "questions" in result and answered and not int(needles.questions):
            lines.append(f"{name}: none of the needles kept to check with was answered, so no head was removed")
    return lines

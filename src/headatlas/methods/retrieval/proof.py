"""retrieval, its check: do answers need the best heads? They are removed while the model answers.

The answers are those that the model gave to needles that had no part in the score. Heads are removed from the prompt's
last token on, where the copying is done. Effects are of the mean log P of the answer's tokens, and of the share of them
that stay the likeliest (accuracy, which is 1 to begin with).
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

STEPS = (2, 4, 8, 16, 32)  # heads removed
DRAWS = 99  # of random heads, at most: fewer where p is plain


def check_removal(
    lm: LM,
    questions: Mapping[str, Sequence[TokenExample]],
    score: xr.DataArray,
    seed: int,
    tokens: int | None,
    progress: Progress,
) -> xr.Dataset:
    """Removal curves of each set of needles; NaN where nothing can be removed or was answered."""
    names, shape = list(questions), (len(questions), len(STEPS))
    baseline = np.full((len(names), len(ANSWERS)), np.nan)
    effect, p = np.full((*shape, len(ANSWERS)), np.nan), np.full(shape, np.nan)
    random_effect = np.full((*shape, DRAWS, len(ANSWERS)), np.nan)
    for i, name in enumerate(progress(names, "removal")):
        values = score.sel(needles=name).values
        heads = top_heads(values, int((values > 0).sum()))
        sets = [heads[:n] for n in STEPS if n <= len(heads)]
        if not sets or not questions[name]:
            continue
        quality = cached_by_heads(partial(answers_without, lm, questions[name], tokens=tokens))
        draw = same_layers(lm.n_heads, np.random.default_rng([seed, i]))
        result = compare_with_random(quality, sets, draw, draws=DRAWS, reference=[])
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
        coords={"needles": names, "n_removed": list(STEPS), "measure": list(ANSWERS), "draw": range(DRAWS)},
    )

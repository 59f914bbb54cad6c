"""Remove the best heads while texts are copied (step 7 of `copying`), and say what the map shows."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from headatlas.evidence.control import (
    ANSWERS,
    answers_without,
    cached_by_heads,
    compare_with_random,
    same_layers,
    top_heads,
)
from headatlas.methods.copying.compute import N_REMOVED, RANDOM_DRAWS, above_chance, rises
from headatlas.methods.copying.texts import AHEAD, Text, make_texts
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import FinishedParts, Progress, show_step

MAX_ASKED = 6  # texts of a removal test elsewhere


def copying_sentences(result: xr.Dataset) -> list[str]:
    """Say how well the whole model copies, and what was not measured."""
    if "clean" not in result:  # a map from elsewhere
        return []
    sentences = []
    for copied in result.copied.values.tolist():
        clean, corrupted = (float(result[name].sel(copied=copied)) for name in ("clean", "corrupted"))
        sentences.append(
            f"the whole model gives the next {'token' if copied == 'token' else 'piece of a word'}"
            f" P {clean:.2f} where it can be copied, {corrupted:.3f} where it cannot"
        )
    missing = [kind for kind in AHEAD if kind not in result.copied.values]
    return sentences + [f"{kind} was not measured: too few words" for kind in missing]


def ask_again(lm: LM, subject: str) -> list[TokenExample]:
    """Return a few clean texts: those that heads would be removed on."""
    return [t.full for t in make_texts(lm, None, MAX_ASKED, None, 0)[subject].proof]


def remove_top(
    lm: LM,
    *,
    name: str,
    scored: Sequence[str],
    texts: Sequence[Text],
    seed: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Compute baseline [measure], effect [step, measure], random_effect [step, draw, measure] and p [step].

    Only heads above chance are removed, so there may be no step at all. scored: the parts with the scores.
    """
    rise, log_rise, *_ = rises(done, scored)
    above = above_chance(log_rise)
    heads = top_heads(np.where(above, rise.mean(0), np.nan), int(above.sum()))
    sets = [heads[:n] for n in N_REMOVED if n <= len(heads)]
    quality = cached_by_heads(partial(answers_without, lm, [t.full for t in texts], tokens=batch_tokens))
    draw = same_layers(lm.n_heads, np.random.default_rng([seed, 2]))
    effect, p = np.full((len(N_REMOVED), len(ANSWERS)), np.nan), np.full(len(N_REMOVED), np.nan)
    random_effect = np.full((len(N_REMOVED), RANDOM_DRAWS, len(ANSWERS)), np.nan)
    with show_step(progress, name):
        removal = compare_with_random(quality, sets, draw, draws=RANDOM_DRAWS, reference=[])
    effect[: len(sets)] = removal.effect
    random_effect[: len(sets)] = removal.random_effect
    p[: len(sets)] = removal.p
    done[name] = (removal.reference, effect, random_effect, p)

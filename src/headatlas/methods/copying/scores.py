"""Scores of heads that copy, and the proof of them (steps 3 to 7 of `copying`)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from scipy.stats import binom

from headatlas.evidence.control import (
    ANSWERS,
    answers_without,
    cached_by_heads,
    compare_with_random,
    correct_p,
    removal_cost,
    same_layers,
    top_heads,
)
from headatlas.methods.copying.texts import AHEAD, Text, hash_texts, make_texts
from headatlas.methods.method import Part, Work
from headatlas.models.cost import Cost, reading
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.memory import tokens_at_once
from headatlas.models.patching import log_probs_patched, patching_cost
from headatlas.models.tokens import make_bundle
from headatlas.progress import Done, Progress, doing
from headatlas.tasks.used import Used

AT_ONCE = 8  # texts that are one part of the work
STEPS = (1, 2, 4, 8, 16)  # heads removed
DRAWS = 99  # of random heads, at most: fewer where p is plain
BOOTSTRAP = 1000  # draws of texts
ROUNDING = 1e-4  # changes of log P below this are none
SURE = 0.05


def copying_work(lm: LM, words: Any, n: int, length: int | None, seed: int, batch_tokens: int | None) -> Work:
    texts = make_texts(lm, words, n, length, seed)
    parts: list[Part] = []
    names: dict[str, list[str]] = {}
    for copied, of in texts.items():
        scored = [of.scored[i : i + AT_ONCE] for i in range(0, n, AT_ONCE)]
        names[copied] = [f"{copied}: texts {AT_ONCE * i} to {AT_ONCE * i + len(t) - 1}" for i, t in enumerate(scored)]
        for name, some in zip(names[copied], scored, strict=True):
            parts.append(
                Part(name=name, do=score_texts, arguments=(name, some, AHEAD[copied], batch_tokens), cost=_score_cost)
            )
        arguments = (_proof(copied), names[copied], of.proof, seed, batch_tokens)
        parts.append(
            Part(name=_proof(copied), do=remove_top, arguments=arguments, inputs=tuple(names[copied]), cost=_proof_cost)
        )
    one = next(iter(texts.values())).scored[0]
    size = len(one.again) + len(one.unit)
    return Work(
        summary=f"{n} texts of {size} tokens, twice: {' and '.join(texts)}",
        combine=combine,
        arguments=(names, seed),
        parts=parts,
        data=hash_texts(texts),
        settings={"texts": n, "length": size, "seed": seed},
        used=Used(),
    )


def score_texts(
    lm: LM, name: str, texts: Sequence[Text], ahead: int, batch_tokens: int | None, *, done: Done, progress: Progress
) -> None:
    """A part: log P with each head patched [text, layer, head]; in clean and in corrupted texts [2, text]."""
    clean = batched_log_probs(lm, [make_bundle([t.clean(ahead)]) for t in texts], tokens=batch_tokens)[0][0]
    prompts = [t.whole.prompt for t in texts]  # up to the token before the unit: what comes after does not matter
    rows = max(1, tokens_at_once(lm, batch_tokens) // max(map(len, prompts)))
    z = lm.head_outputs(prompts, "last", batch_size=rows)[:, 0]  # [text, layer, head, d_head]
    examples = [t.corrupted(ahead) for t in texts]
    patched, corrupted = log_probs_patched(lm, examples, z, ahead, tokens=batch_tokens, label=name, progress=progress)
    done[name] = (patched.numpy(), torch.stack([clean, corrupted]).numpy())


def remove_top(
    lm: LM,
    name: str,
    scored: Sequence[str],
    texts: Sequence[Text],
    seed: int,
    batch_tokens: int | None,
    *,
    done: Done,
    progress: Progress,
) -> None:
    """A part, step 7: baseline [measure], effect [step, measure], random_effect [step, draw, measure], p [step].

    Only heads above chance are removed, so there may be no step at all.
    """
    rise, log_rise, *_ = _rises(done, scored)
    above = above_chance(log_rise)
    heads = top_heads(np.where(above, rise.mean(0), np.nan), int(above.sum()))
    sets = [heads[:n] for n in STEPS if n <= len(heads)]
    quality = cached_by_heads(partial(answers_without, lm, [t.whole for t in texts], tokens=batch_tokens))
    draw = same_layers(lm.n_heads, np.random.default_rng([seed, 2]))
    effect, p = np.full((len(STEPS), len(ANSWERS)), np.nan), np.full(len(STEPS), np.nan)
    random_effect = np.full((len(STEPS), DRAWS, len(ANSWERS)), np.nan)
    with doing(progress, name):
        removal = compare_with_random(quality, sets, draw, draws=DRAWS, reference=[])
    effect[: len(sets)] = removal.effect
    random_effect[: len(sets)] = removal.random_effect
    p[: len(sets)] = removal.p
    done[name] = (removal.reference, effect, random_effect, p)


def combine(lm: LM, parts: Mapping[str, Sequence[str]], seed: int, *, done: Done, progress: Progress) -> xr.Dataset:
    """parts: those of each kind."""
    result = xr.concat([_one(copied, names, seed, done) for copied, names in parts.items()], "copied")
    return result.assign(p_corrected=(("copied", "n_removed"), correct_p(result.p.values))).assign_coords(
        copied=list(parts),
        half=["first", "second"],
        n_removed=list(STEPS),
        measure=list(ANSWERS),
        draw=range(DRAWS),
        layer=range(lm.n_layers),
        head=range(lm.n_heads),
    )


def above_chance(log_rise: np.ndarray) -> np.ndarray:
    """Which heads [layer, head] raise P in more of the texts [text, layer, head] than a coin would, for any of them.

    A sign test, because P differs by orders of magnitude between texts; corrected for the number of heads.
    """
    raised = np.where(np.isnan(log_rise[0]), 0, (log_rise > ROUNDING).sum(0))
    return binom.sf(raised - 1, len(log_rise), 0.5) * np.isfinite(log_rise[0]).sum() < SURE


def _rises(done: Done, names: Sequence[str]) -> tuple[np.ndarray, ...]:
    """The rise of P and of log P [text, layer, head]; log P in clean and in corrupted texts [text]."""
    patched = np.concatenate([done[name][0] for name in names])
    clean, corrupted = np.concatenate([done[name][1] for name in names], axis=1)
    before = corrupted[:, None, None]
    return np.exp(patched) - np.exp(before), patched - before, clean, corrupted


def _one(copied: str, names: Sequence[str], seed: int, done: Done) -> xr.Dataset:
    rise, log_rise, clean, corrupted = _rises(done, names)
    baseline, effect, random_effect, p = done[_proof(copied)]
    n = len(rise)
    counts = np.random.default_rng([seed, 3]).multinomial(n, np.full(n, 1 / n), size=BOOTSTRAP)
    low, high = np.quantile(np.tensordot(counts / n, rise, 1), [0.025, 0.975], axis=0)
    raised = np.where(np.isnan(rise[0]), np.nan, (log_rise > ROUNDING).mean(0))
    heads = ("layer", "head")
    return xr.Dataset(
        {
            "score": (heads, rise.mean(0)),
            "score_low": (heads, low.astype(rise.dtype)),
            "score_high": (heads, high.astype(rise.dtype)),
            "score_half": (("half", *heads), np.stack([rise[0::2].mean(0), rise[1::2].mean(0)])),
            "log_rise": (heads, log_rise.mean(0)),
            "log_rise_half": (("half", *heads), np.stack([log_rise[0::2].mean(0), log_rise[1::2].mean(0)])),
            "raised": (heads, raised.astype(rise.dtype)),
            "above_chance": (heads, above_chance(log_rise)),
            "clean": np.exp(clean).mean(),
            "corrupted": np.exp(corrupted).mean(),
            "baseline": ("measure", baseline),
            "effect": (("n_removed", "measure"), effect),
            "random_effect": (("n_removed", "draw", "measure"), random_effect),
            "p": ("n_removed", p),
        }
    )


def _proof(copied: str) -> str:
    return f"{copied}: top heads removed"


def _score_cost(lm: LM, name: str, texts: Sequence[Text], ahead: int, batch_tokens: int | None) -> Cost:
    read = reading(lm, [make_bundle([t.clean(ahead)]) for t in texts], tokens=batch_tokens)
    return 2 * read + patching_cost(lm, [t.corrupted(ahead) for t in texts], ahead, batch_tokens)


def _proof_cost(lm: LM, name: str, scored: Any, texts: Sequence[Text], seed: int, batch_tokens: int | None) -> Cost:
    return removal_cost(lm, [t.whole for t in texts], len(STEPS), DRAWS, batch_tokens)

"""Score every head's copying (steps 3 to 6 of `copying`)."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import xarray as xr
from scipy.stats import binom

from headatlas.methods.copying.texts import AHEAD, Text, make_texts
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.memory import tokens_at_once
from headatlas.models.patching import log_probs_patched
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import FinishedParts, Progress
from headatlas.tasks.prompts import Example, Task

TEXTS_PER_PART = 8
BOOTSTRAP_DRAWS = 1000
MIN_LOG_RISE = 1e-4  # nats; smaller changes of log P are rounding
SIGNIFICANCE = 0.05
MAX_ASKED = 6  # texts of a removal test where no truth is known


def cut_into_parts(copied: str, texts: Sequence[Text]) -> dict[str, Sequence[Text]]:
    """Return the scored texts of each part by its name."""
    texts_by_part = {}
    for start in range(0, len(texts), TEXTS_PER_PART):
        part_texts = texts[start : start + TEXTS_PER_PART]
        texts_by_part[f"{copied}: texts {start} to {start + len(part_texts) - 1}"] = part_texts
    return texts_by_part


def make_task(copied: str, texts: Sequence[Text]) -> Task:
    """Return clean texts as a task of token ids, with the whole unit as target: what the map is tested on."""
    examples = tuple(Example(text.full.prompt, text.full.target) for text in texts)
    # a task has examples of both splits; nothing is trained on, and its test uses both
    half = len(examples) // 2
    return Task(copied, examples[half:], examples[:half])


def score_texts(
    lm: LM,
    *,
    name: str,
    texts: Sequence[Text],
    ahead: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Compute log P with each head patched [text, layer, head], and in clean and corrupted texts [2, text]."""
    clean = batched_log_probs(lm, [make_bundle([t.clean(ahead)]) for t in texts], tokens=batch_tokens)[0][0]
    # up to the token before the unit, where heads are patched: later tokens cannot change it
    prompts = [t.full.prompt for t in texts]
    rows = max(1, tokens_at_once(lm, batch_tokens) // max(map(len, prompts)))
    z = lm.head_outputs(prompts, "last", batch_size=rows)[:, 0]  # [text, layer, head, d_head]
    examples = [t.corrupted(ahead) for t in texts]
    patched, corrupted = log_probs_patched(lm, examples, z, ahead, tokens=batch_tokens, label=name, progress=progress)
    done[name] = (patched.numpy(), torch.stack([clean, corrupted]).numpy())


def combine(
    lm: LM, *, parts: Mapping[str, Sequence[str]], seed: int, done: FinishedParts, progress: Progress
) -> xr.Dataset:
    """Join scores. parts: names of the parts with scores, by what is copied."""
    results = [_result_of(names, seed, done) for names in parts.values()]
    return xr.concat(results, "copied").assign_coords(
        copied=list(parts),
        layer=range(lm.n_layers),
        head=range(lm.n_heads),
    )


def above_chance(log_rise: np.ndarray) -> np.ndarray:
    """Return which heads [layer, head] raise P in more of the texts [text, layer, head] than a coin would.

    It is a sign test, because P differs by orders of magnitude between texts, corrected for the number of heads.
    """
    raised = np.where(np.isnan(log_rise[0]), 0, (log_rise > MIN_LOG_RISE).sum(0))
    return binom.sf(raised - 1, len(log_rise), 0.5) * np.isfinite(log_rise[0]).sum() < SIGNIFICANCE


def rises(done: FinishedParts, names: Sequence[str]) -> tuple[np.ndarray, ...]:
    """Return the rise of P and of log P [text, layer, head], and log P in clean and corrupted texts [text]."""
    patched = np.concatenate([done[name][0] for name in names])
    clean, corrupted = np.concatenate([done[name][1] for name in names], axis=1)
    before = corrupted[:, None, None]
    return np.exp(patched) - np.exp(before), patched - before, clean, corrupted


def _result_of(names: Sequence[str], seed: int, done: FinishedParts) -> xr.Dataset:
    rise, log_rise, clean, corrupted = rises(done, names)
    n = len(rise)
    counts = np.random.default_rng([seed, 3]).multinomial(n, np.full(n, 1 / n), size=BOOTSTRAP_DRAWS)
    low, high = np.quantile(np.tensordot(counts / n, rise, 1), [0.025, 0.975], axis=0)
    raised = np.where(np.isnan(rise[0]), np.nan, (log_rise > MIN_LOG_RISE).mean(0))
    heads = ("layer", "head")
    return xr.Dataset(
        {
            "score": (heads, rise.mean(0)),
            "score_low": (heads, low.astype(rise.dtype)),
            "score_high": (heads, high.astype(rise.dtype)),
            "by_text": (("text", *heads), rise),
            "log_rise": (heads, log_rise.mean(0)),
            "log_rise_by_text": (("text", *heads), log_rise),
            "raised": (heads, raised.astype(rise.dtype)),
            "above_chance": (heads, above_chance(log_rise)),
            "clean": np.exp(clean).mean(),
            "corrupted": np.exp(corrupted).mean(),
        },
        # An index, because the two kinds may have different numbers of texts.
        coords={"text": range(len(rise))},
    )


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
    """Return a few clean texts that heads are not scored on."""
    return [t.full for t in make_texts(lm, None, MAX_ASKED, None, 0)[subject].unused[:MAX_ASKED]]

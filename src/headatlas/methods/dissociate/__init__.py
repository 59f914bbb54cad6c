"""`ha.dissociate`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.results.files import check_folder
from headatlas.methods.dissociate.fits import PRESETS, Settings, drawn, fit, reference
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.progress import Done, Progress, doing, silent
from headatlas.runs.job import Job, Part, loaded, method, stamp_of
from headatlas.runs.presets import MOST_UPDATES, seed_numbers
from headatlas.tasks.labelled import check_data, load_labelled
from headatlas.evidence.selective import Trial, put_to_the_test, try_function

WHOLE, REMOVING = "reference", "removing heads for good"
SHUT = 0.5  # a head whose gate was below this in some seed may be chosen


@method
def dissociate(
    model: LM | str | Path = DEFAULT_MODEL,
    data: Any = None,
    *,
    test: str | Path | Sequence[Any] | None = None,
    functions: Sequence[str] | str | None = None,
    seeds: int | Sequence[int] | None = None,
    preset: str = "quick",
    context: str = "retrieval",
    limit: int | None = None,
    shots: int | None = None,
    template: bool = True,
    updates: int | None = None,
    penalty: float | None = None,
    tokens: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Which heads each function needs and the others do not: gates that lose one function and keep the rest (docs/dissociate.md).

    data: nothing for the built-in cognitive questions; a file or list in the CogQA layout (test: another one); or tasks, each of
    them a function: names of built-in tasks and relations, files and lists as `gate` takes them, {name: examples}. Of a single
    task, each kind is a function. functions: only these.
    seeds: how many, or which. preset: 'quick' for a laptop, 'full' for a GPU. updates, penalty (λ in the end) override it.
    context, template: of questions, as in `probe`; shots: of tasks, as in `gate`. limit: use about so many examples in all; the
    quick preset uses 40 of each function.
    out: a folder for dissociate.nc; interrupted work goes on there, function by function.
    """
    check_folder(out)
    settings = _settings(preset, updates, penalty)
    numbers = seed_numbers(settings.seeds if seeds is None else seeds)
    check_limit(limit)
    data = list(data) if isinstance(data, Iterator) else data
    check_data(data, shots)
    lm = loaded(model, device, progress)
    given: dict[str, Any] = {"functions": functions, "context": context, "shots": shots, "template": template}
    with doing(progress, "reading the questions"):
        asked = load_labelled(lm, data, test, limit=limit, each=settings.each, **given)
    names = list(asked.names)

    def answer(done: Done, progress: Progress) -> None:
        done[WHOLE] = (reference(lm, asked, tokens).numpy(),)

    def everything() -> Cost:
        return reading(lm, asked.sheets(range(len(asked.asked)))[0])

    def fitting(f: int) -> Part:
        def do(done: Done, progress: Progress) -> None:
            whole = torch.from_numpy(done[WHOLE][0])
            gate = fit(lm, asked, whole, f, numbers, settings, tokens=tokens, progress=progress)
            done[f"gates of {names[f]}"] = (gate.numpy(),)

        def cost() -> Cost:
            some = [examples for _, examples in zip(range(3), drawn(asked, f, settings, 0), strict=False)]
            sheets = [sheet for examples in some for sheet in asked.sheets(examples)[0]]
            return learning(lm, sheets, len(numbers) / 3) * settings.updates

        return Part(f"gates of {names[f]}", (f"gates of {names[f]}",), do, (WHOLE,), cost)

    def scores(done: Done, functions: Sequence[int]) -> np.ndarray:
        """[function, seed, layer, head]"""
        score = np.stack([1 - done[f"gates of {names[f]}"][0] for f in functions])
        score[:, :, lm.layers_without_heads] = np.nan
        return score

    def removing(f: int) -> Part:
        def do(done: Done, progress: Progress) -> None:
            trial = Trial(lm, asked, torch.from_numpy(done[WHOLE][0]), tokens)
            [score] = candidates(scores(done, [f]))
            for _ in progress([f], f"{names[f]}: {REMOVING}"):
                try_function(trial, f, score, settings.steps, draws=settings.draws, done=done, label=REMOVING)

        def cost() -> Cost:
            tried = [
                asked.sheets([i for g in range(len(names)) for i in asked.of(s, g)])[0] for s in ("validation", "test")
            ]
            return reading(lm, [*tried[0], *tried[1]], len(settings.steps)) + reading(
                lm, asked.sheets(asked.of("test", f))[0], settings.draws
            )

        needs = (WHOLE, f"gates of {names[f]}")
        return Part(f"{names[f]}: {REMOVING}", (f"{REMOVING}: {names[f]}",), do, needs, cost)

    def work(done: Done, progress: Progress) -> xr.Dataset:
        whole, score = torch.from_numpy(done[WHOLE][0]), scores(done, range(len(names)))
        options: dict[str, Any] = {"draws": settings.draws, "done": done, "label": REMOVING}
        trial = Trial(lm, asked, whole, tokens)
        tested = put_to_the_test(trial, candidates(score), settings.steps, **options)
        baseline = [float(whole[asked.of("test", f)].mean()) for f in range(len(names))]
        return _map(score, names, numbers).merge(tested).assign(baseline=("function", baseline))

    return Job(
        "dissociate",
        f"{len(names)} functions, {len(numbers)} seed{'s' * (len(numbers) != 1)}, {settings.updates} updates each",
        stamp_of(lm, asked.hash(), progress) | {"preset": preset, **flat_settings(settings), "seeds": numbers},
        work,
        {},
        None if out is None else Path(out),
        progress,
        [
            Part(WHOLE, (WHOLE,), answer, (), everything),
            *map(fitting, range(len(names))),
            *map(removing, range(len(names))),
        ],
    )


def candidates(score: np.ndarray) -> np.ndarray:
    """The mean over seeds [function, layer, head] of heads that some seed shut, NaN of the others; score: [function, seed, …]."""
    return np.where(score.max(1) > SHUT, score.mean(1), np.nan)


def _map(score: np.ndarray, names: Sequence[str], seeds: Sequence[int]) -> xr.Dataset:
    """The gates as a map: `score`, over seeds `always` (the least), `any` (the most) and `importance`, which sums to 1."""
    dims = ("layer", "head")
    over = score.mean(1)
    total = np.nansum(over, axis=(1, 2), keepdims=True)
    return xr.Dataset(
        {
            "score": (("function", "seed", *dims), score),
            "importance": (("function", *dims), over / np.where(total > 0, total, 1)),
            "always": (("function", *dims), score.min(1)),
            "any": (("function", *dims), score.max(1)),
        },
        coords={
            "function": list(names),
            "seed": list(seeds),
            "layer": range(score.shape[2]),
            "head": range(score.shape[3]),
        },
    )


def check_limit(limit: Any) -> None:
    if limit is not None:
        check_count("limit", limit, 1)


def _settings(preset: Any, updates: Any, penalty: Any) -> Settings:
    check_choice("preset", preset, PRESETS)
    settings = PRESETS[preset]
    if updates is not None:
        settings = replace(settings, updates=check_count("updates", updates, 1, MOST_UPDATES))
    if penalty is not None:
        if not isinstance(penalty, float | int | np.number) or not 0 <= penalty < math.inf:
            raise BadArgument(f"penalty is {penalty!r}, expected a number that is 0 or more")
        settings = replace(settings, penalty=float(penalty))
    return settings


def flat_settings(settings: Settings) -> dict[str, Any]:
    """What the preset stands for, as attributes of a file."""
    given = {k: v for k, v in asdict(settings).items() if k not in ("seeds", "each")}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}

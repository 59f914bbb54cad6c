"""`ha.gate`, and contrastive gating."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.results.files import check_folder
from headatlas.methods.gate.fits import (
    PRESETS,
    ROLES,
    Settings,
    blocks,
    fit_contrast,
    fit_names,
    fit_task,
    gate_tasks,
    said_seeds,
    ungated,
)
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.targets import measure
from headatlas.progress import Done, Progress, silent
from headatlas.runs.job import Job, Part, Tasks, method, stamp_of, with_tasks
from headatlas.runs.presets import MOST_EXAMPLES, MOST_UPDATES, seed_numbers
from headatlas.tasks.prompts import Task, batches_of, check_shots, hash_tasks, held_out_sheets, list_tasks, load_tasks
from headatlas.methods.gate.switching import DRAWS, switch_off_curves


@method
def gate(
    model: LM | str | Path = DEFAULT_MODEL,
    tasks: Tasks | None = None,
    *,
    keep: Tasks | None = None,
    lose: Tasks | None = None,
    seeds: int | Sequence[int] | None = None,
    preset: str = "quick",
    shots: int | None = None,
    strength: float | None = None,
    updates: int | None = None,
    batch: int | None = None,
    tokens: int | None = None,
    halves: bool = False,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Which heads a task needs, which it would be better without, which are idle (docs/gate.md).

    tasks: names of built-in ones (without any: math and syntax), JSON Lines or CSV files with prompt and target, 'hf:' addresses,
    or your own: [(prompt, target), …], [{"prompt": …, "target": …}, …], or several by name, {"capitals": examples}.
    keep, lose: instead of tasks, two matched ones: find the heads that `lose` needs and `keep` can spare.
    seeds: how many, or which. preset: 'quick' for a laptop, 'full' is published. strength, updates, batch override it.
    shots: worked examples before each prompt (built-in tasks have their own number, your own have none).
    tokens: how many go through the model at once; lower it when memory runs out. halves: fit each half of the data too.
    out: a folder for gate.nc (contrast.nc for keep and lose); interrupted work goes on there at the last finished fit.
    """
    check_folder(out)
    settings = _settings(preset, strength, updates, batch)
    numbers = seed_numbers(settings.seeds if seeds is None else seeds)
    if (keep is None) != (lose is None):
        raise BadArgument(
            f"{'lose' if lose is None else 'keep'} is missing: contrastive gating needs both keep and lose"
        )
    if keep is not None and (tasks is not None or halves):
        raise BadArgument(
            f"{'tasks' if tasks is not None else 'halves'} does not go with keep and lose: give one or the other"
        )
    folder = None if out is None else Path(out)
    if keep is not None and lose is not None:
        return _contrast(model, keep, lose, numbers, settings, shots, tokens, device, folder, progress)
    lm, chosen = with_tasks(model, ("math", "syntax") if tasks is None else tasks, shots, device, progress)
    split = [[replace(t.halves()[i], name=f"{t.name}, half {i}") for t in chosen] for i in (0, 1) if halves]
    for half in chain(*split):
        check_shots(half)
    names = [t.name for t in chosen]

    def part(task: Task, block: Sequence[int]) -> Part:
        def do(done: Done, progress: Progress) -> None:
            fit_task(lm, task, block, settings, done=done, tokens=tokens, progress=progress)

        def cost() -> Cost:
            updates = islice(batches_of(lm, [task], settings.batch, seed=0), 3)
            some = [sheet for strands in updates for (sheet,) in strands]
            free, pressed = (learning(lm, some, times * len(block) / 3) for times in (1, 2))
            return free * settings.free.updates + pressed * settings.pressed.updates

        return Part(f"{task.name}, {said_seeds(block)}", fit_names(task, block), do, cost=cost)

    def proof() -> Cost:
        found = Cost()
        for task in chosen:
            found += reading(lm, held_out_sheets(lm, task, settings.held_out), 1 + 3 * len(numbers))
            sets = len(ROLES) * len(settings.steps) * (1 + DRAWS)
            found += reading(lm, held_out_sheets(lm, task, settings.switching), 2 * sets)
        return found

    def work(done: Done, progress: Progress) -> xr.Dataset:
        options: dict[str, Any] = {"tokens": tokens, "progress": progress}
        found = gate_tasks(lm, chosen, numbers, settings, done=done, **options)
        curves = []
        for task in chosen:
            one = found.sel(task=task.name)
            retained = torch.from_numpy(one.gate.sel(fit="retain").mean("seed").values)
            scores = one[list(ROLES)].mean("seed")
            held_out = held_out_sheets(lm, task, settings.switching)
            label = f"{task.name}: switching heads off"
            curves.append(
                switch_off_curves(lm, retained, scores, held_out, steps=settings.steps, label=label, **options)
            )
        found = found.merge(xr.concat(curves, "task").assign_coords(task=names))
        if halves:
            parts = [
                gate_tasks(lm, half, numbers, settings, done=done, **options).assign_coords(task=names)
                for half in split
            ]
            both = xr.concat([p[list(ROLES)].mean("seed") for p in parts], "half")
            both = both.assign_coords(half=["first", "second"])
            found = found.merge(both.rename({role: f"{role}_half" for role in ROLES}))
        return found

    return Job(
        "gate",
        f"{', '.join(names)}: {len(numbers)} seeds, {settings.free.updates} + {settings.pressed.updates} updates",
        stamp_of(lm, hash_tasks(chosen), progress) | {"preset": preset, **_flat_settings(settings), "seeds": numbers},
        work,
        {"halves": int(halves)},
        folder,
        progress,
        [part(task, block) for task in (*chosen, *chain(*split)) for block in blocks(numbers)],
        proof,
    )


def _contrast(
    model: LM | str | Path,
    keep: Tasks,
    lose: Tasks,
    seeds: list[int],
    settings: Settings,
    shots: int | None,
    tokens: int | None,
    device: str,
    out: Path | None,
    progress: Progress,
) -> Job:
    keep, lose = (list(tasks) if isinstance(tasks, Iterator) else tasks for tasks in (keep, lose))
    for name, tasks in (("keep", keep), ("lose", lose)):
        if (n := len(list_tasks(name, tasks))) > 1:
            raise BadArgument(f"{name} has {n} tasks, expected one")
    load_tasks(None, lose, shots)  # before a model is loaded for the other
    lm, pair = with_tasks(model, keep, shots, device, progress)
    pair += load_tasks(lm, lose, shots)
    if pair[0].train == pair[1].train:
        raise BadArgument("keep and lose are the same examples: nothing tells them apart")

    def work(done: Done, progress: Progress) -> xr.Dataset:
        theta = fit_contrast(lm, pair[0], pair[1], seeds, settings, tokens=tokens, progress=progress)
        gates = theta.sigmoid()
        nll, accuracy = np.empty((2, 2, 3, len(seeds)))
        for side, task in enumerate(pair):
            held_out = held_out_sheets(lm, task, settings.held_out)
            whole = ungated(lm, task, held_out, tokens)
            nll[side, 0], accuracy[side, 0] = whole["whole_nll"], whole["whole_accuracy"]
            for i, used in enumerate((gates, gates.round()), 1):
                log_p, right = measure(lm, held_out, used, tokens)
                nll[side, i], accuracy[side, i] = -log_p.mean(1), right.float().mean(1)
        gates[:, lm.layers_without_heads] = torch.nan
        return xr.Dataset(
            {
                "gate": (("seed", "layer", "head"), gates.numpy()),
                "lost": (("seed", "layer", "head"), (1 - gates).numpy()),
                "nll": (("side", "gates", "seed"), nll),
                "accuracy": (("side", "gates", "seed"), accuracy),
            },
            coords={"side": ["keep", "lose"], "gates": ["whole", "fitted", "rounded"], "seed": seeds}
            | {"layer": range(lm.n_layers), "head": range(lm.n_heads)},
        )

    names = {"keep": pair[0].name, "lose": pair[1].name}
    said = f"keep {names['keep']}, lose {names['lose']}: {len(seeds)} seeds"
    stamp = stamp_of(lm, hash_tasks(pair), progress) | _flat_settings(settings) | {"seeds": seeds} | names
    return Job("contrast", said, stamp, work, out=out, progress=progress)


def _settings(preset: Any, strength: Any, updates: Any, batch: Any) -> Settings:
    check_choice("preset", preset, PRESETS)
    settings = PRESETS[preset]
    if strength is not None:
        if not isinstance(strength, float | int | np.number) or not 0 < strength < math.inf:
            raise BadArgument(
                f"strength is {strength!r}, expected a number above 0: it is the size of λ, which retain adds and remove takes away"
            )
        settings = replace(settings, strength=float(strength))
    if updates is not None:
        check_count("updates", updates, 1, MOST_UPDATES)
    if batch is not None:
        check_count("batch", batch, 1, MOST_EXAMPLES, "they are laid out together")
    if updates is not None:
        free, pressed = (replace(s, updates=int(updates)) for s in (settings.free, settings.pressed))
        settings = replace(settings, free=free, pressed=pressed)
    return settings if batch is None else replace(settings, batch=int(batch))


def _flat_settings(settings: Settings) -> dict[str, Any]:
    given = asdict(settings)
    stages = {f"{name}_{k}": v for name in ("free", "pressed") for k, v in given.pop(name).items()}
    del given["seeds"]
    return stages | {k: list(v) if isinstance(v, tuple) else v for k, v in given.items()}

"""Edit the heads of a model for good: a new model in memory, or a checkpoint that needs no HeadAtlas."""

import gc
import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from headatlas import __version__
from headatlas.edits import measure
from headatlas.edits.change import HeadEdit, make_edit
from headatlas.edits.checkpoint import CARD, write_checkpoint
from headatlas.edits.fold import Source, fold, folded_copy, open_source
from headatlas.edits.model_card import RECORD, Record, card
from headatlas.edits.prune import Saved, prune
from headatlas.edits.rows import UsedRows, load_tests, rows_of_atlas, rows_of_checkpoint, write_rows
from headatlas.edits.sets import Chosen, choose
from headatlas.errors import BadArgument
from headatlas.files import check_new, new_folder
from headatlas.methods._tables import head_name
from headatlas.models.cache import cache_folder
from headatlas.models.families import Anatomy
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.lm import LM
from headatlas.models.loading import find_folder, load, open_parameters
from headatlas.models.weights import Weights
from headatlas.progress import Progress, doing, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import stack_maps
from headatlas.tasks.built_in import BUILT_IN, relation_names
from headatlas.tasks.prompts import Task

log = logging.getLogger(__name__)
Heads = Any
"""As `LM.patched` takes them, or as text with commas between: 'L23.H4,L3.H1'."""


@overload
def edit(
    model: LM | str | Path = ...,
    *,
    remove: Heads = ...,
    scale: Any = ...,
    steer: Any = ...,
    atlas: Atlas | str | Path | None = ...,
    sets: str | Sequence[str] = ...,
    out: None = ...,
    device: str = ...,
    dtype: str = ...,
    progress: Progress = ...,
) -> LM: ...


@overload
def edit(
    model: LM | str | Path = ...,
    *,
    remove: Heads = ...,
    scale: Any = ...,
    steer: Any = ...,
    atlas: Atlas | str | Path | None = ...,
    sets: str | Sequence[str] = ...,
    out: str | Path,
    prune: bool = ...,
    tasks: Any = ...,
    limit: int = ...,
    shots: int | None = ...,
    draws: int = ...,
    device: str = ...,
    dtype: str = ...,
    progress: Progress = ...,
) -> Path: ...


def edit(
    model: LM | str | Path = "smollm2",
    *,
    remove: Heads = (),
    scale: Any = (),
    steer: Any = (),
    atlas: Atlas | str | Path | None = None,
    sets: str | Sequence[str] = (),
    out: str | Path | None = None,
    prune: bool = False,
    tasks: Any = None,
    limit: int = measure.LIMIT,
    shots: int | None = None,
    draws: int = measure.DRAWS,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = silent,
) -> LM | Path:
    """Remove, scale or steer heads for good. For a while only, `LM.gated` and `LM.patched` do the same.

    Args:
        model: what `load` returned, or what it takes. It is not changed.
        remove: heads: 'L23.H4', several of these, text with commas between, or a bool mask [layer, head].
        scale: factors by head, {'L3.H1': 0.5}, or of all heads, [layer, head]. 0 removes a head.
        steer: directions by head, {'L3.H1': [d_head]}, or by layer, {'L3': [d_model]}, added at every token. A
            direction is an array, a .npy file, or one of a result: 'function_vector.nc:capitals'.
        atlas: an atlas of this model, or its folder.
        sets: heads to remove by name from the atlas: 'math by dissociate', 'interfering by gate, syntax',
            'lowest 10% by ablate'.
        out: a new folder for a checkpoint that plain transformers loads. The model is read file by file and may be
            larger than memory.
        prune: drop whole key-value groups from the checkpoint instead of setting them to zero.
        tasks: what the effect is measured on for the checkpoint's card, never on rows that a map of the atlas used; by
            default the atlas's built-in tasks with enough other rows, () for none.
        limit: examples of each task.
        shots: few-shot examples before each of them; by default as many as the map had.
        draws: of random heads.

    Returns:
        Without out, a new model that shares all other weights with the old one. With out, the folder.

    Example:
        >>> lm = ha.edit("smollm2", remove="L23.H4")
        >>> ha.edit("smollm2", atlas="atlas", sets="math by dissociate", out="smollm2-no-math")
    """
    request = Request(remove, scale, steer, atlas, (sets,) if isinstance(sets, str) else tuple(sets), prune)
    if out is not None:
        report = write_edit(
            model, request, out, tasks, limit, draws, shots=shots, device=device, dtype=dtype, progress=progress
        )
        return report.folder
    if prune:
        raise BadArgument("prune is True without out: heads are dropped from a checkpoint; give a new folder")
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    return folded_copy(lm, request.resolve(lm.weights, lm.name).edit)


@dataclass(frozen=True)
class Request:
    """What is asked for, before it is checked against a model."""

    remove: Heads = ()
    scale: Any = ()
    steer: Any = ()
    atlas: Atlas | str | Path | None = None
    sets: tuple[str, ...] = ()
    prune: bool = False

    def resolve(self, weights: Weights, name: str) -> "Resolved":
        """The edit of this model, the sets that some of its heads are from, and what identifies the model."""
        if self.sets and self.atlas is None:
            raise BadArgument(f"set is {self.sets[0]!r} without an atlas: give the folder of one")
        opened, chosen, identity = self.opened, [], {}
        if opened is not None:
            identity = opened.check_model(weights, name)
            chosen = choose(opened, self.sets)
        asked = make_edit(weights.anatomy, _with(self.remove, chosen, weights.anatomy), self.scale, self.steer)
        return Resolved(asked, chosen, identity or {"fingerprint": weights.fingerprint()})

    @property
    def opened(self) -> Atlas | None:
        return open_atlas(self.atlas, "atlas") if isinstance(self.atlas, str | Path) else self.atlas

    @property
    def place(self) -> str | None:
        """Where the atlas is."""
        return None if self.atlas is None else str(self.atlas.folder if isinstance(self.atlas, Atlas) else self.atlas)


@dataclass(frozen=True)
class Resolved:
    """What is asked for, of one model.

    identity: the model's fingerprint; with an atlas, the atlas's fingerprint and values_hash, and which was checked.
    """

    edit: HeadEdit
    chosen: list[Chosen]
    identity: dict[str, str]


def _with(remove: Heads, chosen: Sequence[Chosen], anatomy: Anatomy) -> Heads:
    """Heads named by hand, and those of sets."""
    if not chosen:
        return remove
    by_hand = np.zeros((anatomy.n_layers, anatomy.n_heads), bool)
    if isinstance(remove, str) or len(remove):
        by_hand = (make_edit(anatomy, remove).gate == 0).numpy()
    for layer, head in (head for of in chosen for head in of.heads):
        by_hand[layer, head] = True
    return by_hand


@dataclass(frozen=True)
class Report:
    """A checkpoint that was written, and the record of it."""

    folder: Path
    record: Record


def write_edit(
    model: LM | str | Path,
    request: Request,
    out: str | Path,
    tasks: Any = None,
    limit: int = measure.LIMIT,
    draws: int = measure.DRAWS,
    *,
    shots: int | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = silent,
) -> Report:
    """An edited checkpoint in a new folder, with its card. It is measured after it is written, from the new files."""
    folder = check_new(out)
    files, name = (None, model.name) if isinstance(model, LM) else find_folder(model)
    weights = model.weights if isinstance(model, LM) else Weights.from_disk(files or "")
    resolved = request.resolve(weights, name)
    asked, chosen = resolved.edit, resolved.chosen
    wanted = _tasks_of(request, chosen) if tasks is None else tasks
    used = _used_rows(request, chosen, files)
    tests: list[Task] = []
    refused: dict[str, str] = {}
    if measure.check_tasks(wanted, limit, draws, shots):
        known = model if isinstance(model, LM) else open_parameters(model, device)
        tests, refused = load_tests(known, wanted, used, limit, shots)
    if refused and tasks is not None:
        raise BadArgument(f"{'; '.join(refused.values())}; or leave out the effect (--no-measure, tasks=())")
    for why in refused.values():
        log.warning("not measured: %s", why)
    with new_folder(folder) as place:
        if isinstance(model, LM):
            files = _save(model, place / ".original")
        assert files is not None
        source = open_source(files)
        new, saved = fold(source, asked), None
        if request.prune:
            new, saved = prune(new, asked)
        record = describe(source, name, resolved, saved) | {
            "atlas": request.place,
            "rows_of": list(used.by_method),
            "not_measured": refused,
        }
        if record["dequantised"]:
            log.info("%s is quantised: its weights are written dequantised", name)
        write_checkpoint(new, place, progress)
        shutil.rmtree(place / ".original", ignore_errors=True)
        if used.by_method or used.unknown:
            write_rows(used, place)
        if tests:
            record["effects"] = _effects(model, asked, place, tests, limit, draws, device, dtype, progress)
        (place / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (place / CARD).write_text(card(record), encoding="utf-8")
    return Report(folder, record)


def _save(lm: LM, folder: Path) -> Path:
    """A model in memory as a checkpoint."""
    with quiet_transformers():
        lm.model.save_pretrained(folder)
        if lm._tokenizer is not None:
            lm._tokenizer.save_pretrained(folder)
    return folder


def describe(source: Source, name: str, resolved: Resolved, saved: Saved | None) -> Record:
    """What is done, as plain values."""
    asked, chosen = resolved.edit, resolved.chosen
    steered = {head_name(*at): v for at, v in asked.steer.items()} | {f"L{i}": v for i, v in asked.push.items()}
    return {
        "headatlas": __version__,
        "model": name,
        **resolved.identity,
        "dequantised": source.folder.parent == cache_folder() / "models",
        "removed": [head_name(*at) for at in asked.removed],
        "scaled": {head_name(*at): factor for at, factor in asked.scaled.items()},
        "steered": {at: float(v.norm()) for at, v in steered.items()},
        "pruned": asdict(saved) if saved else None,
        "sets": [{"set": c.text, "heads": [head_name(*at) for at in c.heads], "why": c.why} for c in chosen],
        "effects": [],
    }


def _tasks_of(request: Request, chosen: Sequence[Chosen]) -> list[str]:
    """What the atlas has maps of and can be asked: its built-in tasks, and relations whose heads are removed."""
    if request.opened is None:
        return []
    subjects = set(stack_maps(request.opened.results).subject.values.tolist())
    named = {subject for of in chosen for subject in of.subjects if len(of.subjects) == 1}
    return [name for name in BUILT_IN if name in subjects] + sorted(named & set(relation_names()))


def _used_rows(request: Request, chosen: Sequence[Chosen], files: Path | None) -> UsedRows:
    """The rows that maps used: those of the atlas, and those by which the model itself was edited before."""
    used = UsedRows() if files is None else rows_of_checkpoint(files)
    if request.opened is None:
        return used
    subjects = [subject for of in chosen for subject in of.subjects if len(of.subjects) == 1]
    return rows_of_atlas(request.opened, [of.method for of in chosen], subjects) | used


def _effects(
    model: LM | str | Path,
    asked: HeadEdit,
    place: Path,
    tests: Sequence[Task],
    limit: int,
    draws: int,
    device: str,
    dtype: str,
    progress: Progress,
) -> list[dict[str, Any]]:
    """What the edit does to tasks: the original beside random heads, then the checkpoint in `place`."""
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    where, precision = str(lm.device), lm.model.dtype
    controls = measure.control(lm, asked, tests, limit=limit, draws=draws, progress=progress)
    del lm
    gc.collect()  # before the next one is loaded
    with doing(progress, "measuring the edited checkpoint"):
        edited = measure.scores(load(place, where, precision), tests, limit)
    return measure.effect_rows(tests, controls, edited)

"""Edit the heads of a model permanently: a new model in memory, or a checkpoint that needs no HeadAtlas."""

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
from headatlas.edits.sets import SelectedHeads, select_heads
from headatlas.errors import BadArgument
from headatlas.files import check_new, new_folder
from headatlas.methods._tables import head_name
from headatlas.models.cache import cache_folder
from headatlas.models.families import Anatomy
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.lm import LM
from headatlas.models.loading import find_folder, load, open_parameters
from headatlas.models.weights import Weights
from headatlas.progress import Progress, show_step, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.results.charts import stack_maps
from headatlas.tasks.built_in import BUILT_IN, relation_names
from headatlas.tasks.prompts import Task

log = logging.getLogger(__name__)
Heads = Any
"""Heads as `LM.patched` takes them, or comma-separated text: 'L23.H4,L3.H1'."""


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
    """Remove, scale or steer heads permanently. For temporary changes, see `LM.gated` and `LM.patched`.

    Args:
        model: what `load` returned, or what it takes. It is not changed.
        remove: heads: 'L23.H4', a list of such names, comma-separated text, or a bool mask [layer, head].
        scale: factors by head, {'L3.H1': 0.5}, or of all heads, [layer, head]. 0 removes a head.
        steer: directions by head, {'L3.H1': [d_head]}, or by layer, {'L3': [d_model]}, added at every token. A
            direction is an array, a .npy file, or a direction in a result: 'function_vector.nc:capitals'.
        atlas: an atlas of this model, or its folder.
        sets: names of sets of heads to remove, looked up in the atlas: 'math by dissociate',
            'interfering by gate, syntax', 'lowest 10% by ablate'.
        out: a new folder for a checkpoint that plain transformers can load. The model is read file by file, so it may
            be larger than memory.
        prune: drop whole key-value groups from the checkpoint instead of setting them to zero.
        tasks: tasks to measure the effect on, for the checkpoint's card. Rows that a map of the atlas used are left
            out. Default: the atlas's built-in tasks with enough other rows; () for none.
        limit: examples per task.
        shots: few-shot examples per prompt (default: as many as the map had).
        draws: maximum number of draws of random heads to compare with.

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
        raise BadArgument("prune is True without out: only a checkpoint can be pruned; give a new folder")
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    return folded_copy(lm, request.resolve(lm.weights, lm.name).edit)


@dataclass(frozen=True)
class Request:
    """The requested edit, before it is checked against a model."""

    remove: Heads = ()
    scale: Any = ()
    steer: Any = ()
    atlas: Atlas | str | Path | None = None
    sets: tuple[str, ...] = ()
    prune: bool = False

    def resolve(self, weights: Weights, name: str) -> "Resolved":
        """Check the edit against a model, and select the heads of sets from the atlas."""
        if self.sets and self.atlas is None:
            raise BadArgument(f"set is {self.sets[0]!r} without an atlas: give the folder of one")
        atlas = self.opened
        selections: list[SelectedHeads] = []
        identity: dict[str, str] = {}
        if atlas is not None:
            identity = atlas.check_model(weights, name)
            selections = select_heads(atlas, self.sets)
        remove = _merge_selected(self.remove, selections, weights.anatomy)
        edit = make_edit(weights.anatomy, remove, self.scale, self.steer)
        return Resolved(edit, selections, identity or {"fingerprint": weights.fingerprint()})

    @property
    def opened(self) -> Atlas | None:
        """Return the atlas, opened if it was given as a folder."""
        return open_atlas(self.atlas, "atlas") if isinstance(self.atlas, str | Path) else self.atlas

    @property
    def place(self) -> str | None:
        """Return the folder of the atlas as text."""
        return None if self.atlas is None else str(self.atlas.folder if isinstance(self.atlas, Atlas) else self.atlas)


@dataclass(frozen=True)
class Resolved:
    """An edit that fits a model.

    selections: the sets that heads were selected by.
    identity: the model's fingerprint; with an atlas, its fingerprint and values_hash, and which of them was checked.
    """

    edit: HeadEdit
    selections: list[SelectedHeads]
    identity: dict[str, str]


def _merge_selected(remove: Heads, selections: Sequence[SelectedHeads], anatomy: Anatomy) -> Heads:
    """Return the heads that the user named, and those of sets."""
    if not selections:
        return remove
    removed = np.zeros((anatomy.n_layers, anatomy.n_heads), bool)
    if isinstance(remove, str) or len(remove):
        removed = (make_edit(anatomy, remove).gate == 0).numpy()
    for layer, head in (head for selection in selections for head in selection.heads):
        removed[layer, head] = True
    return removed


@dataclass(frozen=True)
class Report:
    """The folder of a written checkpoint, and the record of its edit."""

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
    """Write an edited checkpoint with its card to a new folder. Effects are measured on the written files."""
    folder = check_new(out)
    files, name = (None, model.name) if isinstance(model, LM) else find_folder(model)
    weights = model.weights if isinstance(model, LM) else Weights.from_disk(files or "")
    resolved = request.resolve(weights, name)
    edit = resolved.edit
    requested_tasks = _default_tasks(request, resolved.selections) if tasks is None else tasks
    used = _used_rows(request, resolved.selections, files)
    tests: list[Task] = []
    refused: dict[str, str] = {}
    if measure.check_tasks(requested_tasks, limit, draws, shots):
        parameters = model if isinstance(model, LM) else open_parameters(model, device)
        tests, refused = load_tests(parameters, requested_tasks, used, limit, shots)
    if refused and tasks is not None:
        raise BadArgument(f"{'; '.join(refused.values())}; or do not measure effects (--no-measure, tasks=())")
    for why in refused.values():
        log.warning("not measured: %s", why)
    with new_folder(folder) as place:
        if isinstance(model, LM):
            files = _save(model, place / ".original")
        assert files is not None
        source = open_source(files)
        new = fold(source, edit)
        saved = None
        if request.prune:
            new, saved = prune(new, edit)
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
            record["effects"] = _effects(model, edit, place, tests, limit, draws, device, dtype, progress)
        (place / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (place / CARD).write_text(card(record), encoding="utf-8")
    return Report(folder, record)


def _save(lm: LM, folder: Path) -> Path:
    """Save a model in memory as a checkpoint."""
    with quiet_transformers():
        lm.model.save_pretrained(folder)
        if lm._tokenizer is not None:
            lm._tokenizer.save_pretrained(folder)
    return folder


def describe(source: Source, name: str, resolved: Resolved, saved: Saved | None) -> Record:
    """Make the record of an edit, without its effects."""
    edit = resolved.edit
    steered = {head_name(*head): vector for head, vector in edit.steer.items()}
    steered |= {f"L{layer}": vector for layer, vector in edit.push.items()}
    sets = [
        {"set": selection.text, "heads": [head_name(*head) for head in selection.heads], "why": selection.why}
        for selection in resolved.selections
    ]
    return {
        "headatlas": __version__,
        "model": name,
        **resolved.identity,
        "dequantised": source.folder.parent == cache_folder() / "models",
        "removed": [head_name(*head) for head in edit.removed],
        "scaled": {head_name(*head): factor for head, factor in edit.scaled.items()},
        "steered": {name: float(vector.norm()) for name, vector in steered.items()},
        "pruned": asdict(saved) if saved else None,
        "sets": sets,
        "effects": [],
    }


def _default_tasks(request: Request, selections: Sequence[SelectedHeads]) -> list[str]:
    """Return the tasks to measure: built-in ones that the atlas has maps of, and relations whose heads are removed."""
    if request.opened is None:
        return []
    subjects = set(stack_maps(request.opened.results).subject.values.tolist())
    named = set(_single_subjects(selections))
    return [name for name in BUILT_IN if name in subjects] + sorted(named & set(relation_names()))


def _single_subjects(selections: Sequence[SelectedHeads]) -> list[str]:
    """Return the subjects of the selections that are of one subject only."""
    return [selection.subjects[0] for selection in selections if len(selection.subjects) == 1]


def _used_rows(request: Request, selections: Sequence[SelectedHeads], files: Path | None) -> UsedRows:
    """Return the rows that maps used: those of the atlas, and those of earlier edits of this model."""
    used = UsedRows() if files is None else rows_of_checkpoint(files)
    if request.opened is None:
        return used
    selecting_methods = [selection.method for selection in selections]
    return rows_of_atlas(request.opened, selecting_methods, _single_subjects(selections)) | used


def _effects(
    model: LM | str | Path,
    edit: HeadEdit,
    place: Path,
    tests: Sequence[Task],
    limit: int,
    draws: int,
    device: str,
    dtype: str,
    progress: Progress,
) -> list[dict[str, Any]]:
    """Measure the edit on tasks: the original model with random heads edited, then the checkpoint in `place`."""
    lm = model if isinstance(model, LM) else load(model, device, dtype)
    original_device = str(lm.device)
    original_dtype = lm.model.dtype
    controls = measure.measure_controls(lm, edit, tests, limit=limit, draws=draws, progress=progress)
    # Free the original before the edited model is loaded.
    del lm
    gc.collect()
    with show_step(progress, "measuring the edited checkpoint"):
        edited = measure.measure_scores(load(place, original_device, original_dtype), tests, limit)
    return measure.effect_rows(tests, controls, edited)

"""Measure what an edit does to tasks, compared with the same edit of random heads; and compare any two models."""

import gc
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch.nn.functional import cross_entropy

from headatlas.edits.change import HeadEdit, applied
from headatlas.edits.rows import UsedRows, load_tests, rows_of_atlas, rows_of_checkpoint
from headatlas.errors import BadArgument, BadFile, check_count, one_line
from headatlas.evidence.control import Heads, compare_with_random, correct_p
from headatlas.evidence.decide import NO_ABILITY, decide_one
from headatlas.evidence.fresh_prompts import PromptSet, prompts_of_task, text_prompts
from headatlas.evidence.inference import accuracy_low, detectable, interval
from headatlas.evidence.matching import MatchedSets, match
from headatlas.evidence.replacing import answers_changed, generic_influence
from headatlas.models.interventions import Change
from headatlas.models.lm import LM, text_ids
from headatlas.models.loading import find_folder, load
from headatlas.progress import Progress, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.tasks.built_in import check_task, relation_names
from headatlas.tasks.prompts import Task, list_tasks

TASKS = ("math", "syntax")
LIMIT = 32  # examples per task
DRAWS = 59  # maximum number of draws of random heads
TEXTS = 40  # plain texts for generic influence, which random heads are matched by
MEASURES = {"accuracy": 2, "log_p": 0, "choice": 1}
"""The columns of scores, in the order of tables."""
WINDOW = 1024  # tokens of a text per forward pass


@dataclass(frozen=True)
class Scores:
    """A model's answers to the prompts of a task.

    values: log P per token, choice (NaN if there is none) and whether the answer is right [example, measure].
    """

    prompts: PromptSet
    values: np.ndarray

    @property
    def log_p(self) -> np.ndarray:
        """Mean log P of the answer's tokens [example]."""
        return self.values[:, 0]

    @property
    def choice(self) -> np.ndarray:
        """Log P of the answer's first token among the task's answers [example]."""
        return self.values[:, 1]

    @property
    def right(self) -> np.ndarray:
        """Whether the answer is the likeliest [example]."""
        return self.values[:, 2]


def check_tasks(tasks: Any, limit: int, draws: int = 0, shots: int | None = None) -> bool:
    """Check the arguments about tasks; return whether there are any tasks."""
    check_count("limit", limit, 1)
    check_count("draws", draws, 0)
    if shots is not None:
        check_count("shots", shots, 0)
    if tasks is None or (isinstance(tasks, Sized) and not len(tasks)):
        return False
    for _, task in list_tasks("tasks", tasks):
        if isinstance(task, str | Path):
            check_task(task, relation_names())
    return True


def score_prompts(lm: LM, prompts: PromptSet) -> Scores:
    """Score a model on prompts of a task."""
    unchanged = Change(torch.ones(lm.n_layers, lm.n_heads))
    return Scores(prompts, answers_changed(lm, prompts, [unchanged], range(len(prompts)))[0])


# --- an edit


@dataclass(frozen=True)
class EditControl:
    """A task before an edit, and the same edit of random heads.

    random: mean change by prompt [example, measure]; NaN without draws. matched: what random heads share with the
    edited ones. n_sets: number of different random sets.
    """

    before: Scores
    random: np.ndarray
    draws: int
    p: float
    matched: str
    n_sets: float


def measure_controls(
    lm: LM,
    edit: HeadEdit,
    tests: Sequence[Task],
    *,
    limit: int = LIMIT,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress,
) -> dict[str, EditControl]:
    """Measure each task before the edit, and compare the edit with the same edit of random heads.

    Random heads are matched to removed ones; for other edits, they are of the same layers.
    """
    prompts = {task.name: prompts_of_task(lm, task, limit) for task in tests}
    matched: MatchedSets | None = None
    if edit.only_removes and draws:
        texts = text_prompts(lm, TEXTS).examples or next(iter(prompts.values())).examples
        influence = generic_influence(lm, texts)
        matched = match(edit.removed, influence, lm.n_kv_heads, np.random.default_rng(seed))
    return {
        task.name: _measure_control(lm, edit, prompts[task.name], matched, draws, seed)
        for task in progress(tests, "editing random heads")
    }


def _measure_control(
    lm: LM, edit: HeadEdit, prompts: PromptSet, matched: MatchedSets | None, draws: int, seed: int
) -> EditControl:
    before = score_prompts(lm, prompts)
    generator = np.random.default_rng(seed)
    measured: list[np.ndarray] = []  # the edit's changes by prompt, then those of random heads

    def change(edits: Sequence[HeadEdit]) -> np.ndarray:
        changes = [_score_edited(lm, e, prompts).values - before.values for e in edits]
        measured.extend(changes)
        return np.array([values.mean(0) for values in changes])

    def draw(original: HeadEdit) -> HeadEdit:
        return original.shuffled(generator) if matched is None else removal_of(matched.draw(generator), edit)

    n_tested = 2 if prompts.has_choice else 1
    control = compare_with_random(change, [edit], draw, draws=draws, draws_per_round=10, n_tested=n_tested)
    random = np.mean(measured[1:], axis=0) if draws else np.full(before.values.shape, np.nan)
    text = "matched by layer only, because the edit does more than remove heads" if matched is None else matched.text
    n_sets = np.inf if matched is None else matched.n_sets
    return EditControl(before, random, int(control.n_drawn[0]), float(control.p[0]), text, n_sets)


def removal_of(heads: Heads, like: HeadEdit) -> HeadEdit:
    """Return the edit that removes these heads."""
    gate = torch.ones_like(like.gate)
    gate[tuple(np.transpose(heads))] = 0.0
    return HeadEdit(gate)


def _score_edited(lm: LM, edit: HeadEdit, prompts: PromptSet) -> Scores:
    with applied(lm, edit):
        return score_prompts(lm, prompts)


def measure_scores(lm: LM, tests: Sequence[Task], limit: int = LIMIT) -> dict[str, Scores]:
    """Score a model on the held-out examples of each task."""
    return {task.name: score_prompts(lm, prompts_of_task(lm, task, limit)) for task in tests}


def effect_rows(
    tests: Sequence[Task], controls: dict[str, EditControl], edited: dict[str, Scores]
) -> list[dict[str, Any]]:
    """Make a row per task: before, after, the change beyond that of random heads with its interval, and the outcome."""
    tested = [controls[task.name] for task in tests]
    corrected = correct_p(np.array([control.p if control.draws else np.nan for control in tested]))
    return [
        _effect_row(task, control, edited[task.name], float(p))
        for task, control, p in zip(tests, tested, corrected, strict=True)
    ]


def _effect_row(task: Task, control: EditControl, edited: Scores, p_corrected: float) -> dict[str, Any]:
    before = control.before
    change = edited.values - before.values
    beyond = change - control.random if control.draws else change
    low, high = interval(beyond, before.prompts.cluster)
    outcome, reason = _outcome(control, beyond, high, p_corrected)
    row: dict[str, Any] = {"task": task.name, "examples": len(before.log_p), "shots": task.shots}
    for name, column in MEASURES.items():
        row[name] = _number(before.values[:, column].mean())
        row[f"{name}_after"] = _number(edited.values[:, column].mean())
    return row | {
        "change": float(change[:, 0].mean()),
        "random": _number(control.random[:, 0].mean()),
        "low": float(low[0]),
        "high": float(high[0]),
        "draws": control.draws,
        "p": control.p if control.draws else None,
        "p_corrected": _number(p_corrected),
        "outcome": outcome,
        "reason": reason,
        "random_heads": control.matched if control.draws else "",
    }


def _number(value: float) -> float | None:
    """Return a number as JSON has it: None for NaN."""
    return float(value) if np.isfinite(value) else None


def _outcome(control: EditControl, beyond: np.ndarray, high: np.ndarray, p: float) -> tuple[str, str]:
    """Return whether the task needs the edited heads, and the reason; empty without draws."""
    if not control.draws:
        return "", ""
    prompts = control.before.prompts
    lowest = accuracy_low(control.before.right)
    if not lowest > prompts.guess:
        return NO_ABILITY, f"accuracy is at least {lowest:.0%} with 95 % confidence, the best guess {prompts.guess:.0%}"
    # Log P, and choice where there is one, must both fall.
    n_tested = 2 if prompts.has_choice else 1
    seen = detectable(beyond[:, 0], prompts.cluster)
    return decide_one(p, float(-high[:n_tested].max()), control.draws, n_sets=control.n_sets, seen=seen)


# --- two models


def evaluate(
    a: LM | str | Path,
    b: LM | str | Path,
    tasks: Any = TASKS,
    *,
    text: str | Path | None = None,
    limit: int = 64,
    shots: int | None = None,
    atlas: Atlas | str | Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = silent,
) -> xr.Dataset:
    """Compare two models, such as a checkpoint before and after an edit, on tasks and on a text.

    Args:
        a: what `load` returned, or what it takes. One model is in memory at a time.
        b: the model to compare with.
        tasks: built-in tasks and relations, files, or your examples; () for none.
        text: a file of plain text. It is read in windows of up to 1,024 tokens that overlap by half.
        limit: held-out examples per task.
        shots: few-shot examples per prompt (default: as many as the maps that selected the heads had; otherwise 1 for
            built-in tasks and 0 for others).
        atlas: an atlas, or its folder, that was used to change one of the models. Rows that its maps used are not
            tested. Not needed for models that `edit` made from an atlas, which record these rows.

    Returns:
        accuracy, log_p (per token) and choice(model, task), log P of the answer's first token among the answers of the
        task; change(task), the change of log_p from a to b, with low and high, its 95 % interval over prompts;
        examples and shots(task). With a text: perplexity(model) per token of
        each model's tokenizer; bits_per_byte(model), which does not depend on the tokenizer; tokens(model).

    Example:
        >>> ha.evaluate("smollm2", "smollm2-no-math", ["math", "syntax"])
    """
    if text is not None:
        text = _read(Path(text))
    has_tasks = check_tasks(tasks, limit, shots=shots)
    if not has_tasks and text is None:
        raise BadArgument("tasks is empty and there is no text: nothing to measure")
    tests: list[Task] = []
    used = _used_rows((a, b), atlas) if has_tasks else UsedRows()
    names: list[str] = []
    task_scores: list[dict[str, Scores]] = []
    text_losses: list[tuple[float, int]] = []
    for model in progress([a, b], "measuring"):
        lm = model if isinstance(model, LM) else load(model, device, dtype)
        if has_tasks and not tests:
            tests, refused = load_tests(lm, tasks, used, limit, shots)
            if refused:
                raise BadArgument("; ".join(refused.values()))
        names.append(str(model) if not isinstance(model, LM) else lm.name)
        task_scores.append(measure_scores(lm, tests, limit))
        if text is not None:
            text_losses.append(text_loss(lm, text))
        # Free this model before the next one is loaded.
        del lm
        gc.collect()
    names = names if names[0] != names[1] else [f"{names[0]} (a)", f"{names[1]} (b)"]
    result = xr.Dataset(coords={"model": names})
    if tests:
        result = result.merge(_compare(task_scores)).assign(shots=("task", [task.shots for task in tests]))
    if text is not None:
        losses = np.array(text_losses)
        result["perplexity"] = "model", np.exp(losses[:, 0] / losses[:, 1])
        result["bits_per_byte"] = "model", losses[:, 0] / np.log(2) / len(text.encode())
        result["tokens"] = "model", losses[:, 1].astype(int)
    return result


def _used_rows(models: Sequence[LM | str | Path], atlas: Atlas | str | Path | None) -> UsedRows:
    """Return the rows that maps used: those of an atlas, and those recorded in edited checkpoints."""
    used = UsedRows()
    for model in models:
        used |= UsedRows() if isinstance(model, LM) else rows_of_checkpoint(find_folder(model)[0])
    if atlas is not None:
        used |= rows_of_atlas(atlas if isinstance(atlas, Atlas) else open_atlas(atlas, "atlas"))
    return used


def _compare(scores: Sequence[dict[str, Scores]]) -> xr.Dataset:
    """Compare the scores of two models: the change of log P per task, with its interval over prompts."""
    tasks = list(scores[0])
    changes = []
    for task in tasks:
        first, second = (model_scores[task] for model_scores in scores)
        differences = second.log_p - first.log_p
        low, high = interval(differences, first.prompts.cluster)
        changes.append((differences.mean(), low, high, len(differences)))
    change, low, high, n = np.array(changes).T
    return xr.Dataset(
        {
            "accuracy": (("model", "task"), [[s[t].right.mean() for t in tasks] for s in scores]),
            "log_p": (("model", "task"), [[s[t].log_p.mean() for t in tasks] for s in scores]),
            "choice": (("model", "task"), [[s[t].choice.mean() for t in tasks] for s in scores]),
            "change": ("task", change),
            "low": ("task", low),
            "high": ("task", high),
            "examples": ("task", n.astype(int)),
        },
        coords={"task": tasks},
    )


def _read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise BadFile(f"cannot read the text {path}: {one_line(e)}") from e
    if not text.strip():
        raise BadFile(f"the text {path} is empty")
    return text


@torch.no_grad()
def text_loss(lm: LM, text: str) -> tuple[float, int]:
    """Return −log P of a text and its number of predicted tokens.

    All tokens but the first are predicted, each from at least half a window of context.
    """
    ids = text_ids(lm.tokenizer, text)
    if len(ids) < 2:
        raise BadArgument(f"text has {len(ids)} token, expected at least 2")
    width = min(WINDOW, lm.anatomy.context or WINDOW)
    total = 0.0
    done = 1  # tokens scored so far; the first has no context to be predicted from
    while done < len(ids):
        start = max(0, done - width // 2) if done > 1 else 0
        window = ids[start : start + width]
        logits = lm.model(**lm.pad([window], "right"), use_cache=False).logits[0, done - start - 1 : -1].float()
        targets = torch.tensor(window[done - start :], device=logits.device)
        total += float(cross_entropy(logits, targets, reduction="sum"))
        done = start + len(window)
    return total, len(ids) - 1


def evaluation_rows(result: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of an `evaluate` result by title."""
    first, second = (str(m) for m in result["model"].values)
    parts: dict[str, list[dict[str, Any]]] = {}
    if "accuracy" in result:
        parts[f"{first} (a) and {second} (b)"] = [
            {"task": str(task), "examples": int(row.examples), "shots": int(row.shots)}
            | {
                f"{name}_{m}": float(row[name][i])
                for name in ("accuracy", "log_p", "choice")
                for i, m in enumerate("ab")
            }
            | {name: float(row[name]) for name in ("change", "low", "high")}
            for task in result.task.values
            for row in [result.sel(task=task)]
        ]
    if "perplexity" in result:
        parts["The text"] = [
            {"model": str(m)}
            | {"tokens": int(row.tokens), "perplexity": float(row.perplexity)}
            | {"bits_per_byte": float(row.bits_per_byte)}
            for m in result["model"].values
            for row in [result.sel(model=m)]
        ]
    return parts

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
from headatlas.evidence.control import Control, compare_with_random
from headatlas.models.lm import LM, text_ids
from headatlas.models.loading import find_folder, load
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import Bundle
from headatlas.progress import Progress, silent
from headatlas.results.atlas import Atlas, open_atlas
from headatlas.tasks.built_in import check_task, relation_names
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.prompts import Task, list_tasks

TASKS = ("math", "syntax")
LIMIT = 32  # examples per task
DRAWS = 20  # draws of random heads
WINDOW = 1024  # tokens of a text per forward pass
BOOTSTRAP_SAMPLES = 2000


@dataclass(frozen=True)
class Scores:
    """A model's results on a task: log P(target) of each held-out example, and whether its answer is right."""

    log_p: np.ndarray
    right: np.ndarray


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


def score_bundles(lm: LM, bundles: Sequence[Bundle]) -> Scores:
    """Score a model on held-out examples."""
    log_p, right = batched_log_probs(lm, bundles)
    return Scores(log_p[0].double().numpy(), right[0].numpy())


# --- an edit


def measure_controls(
    lm: LM,
    edit: HeadEdit,
    tests: Sequence[Task],
    *,
    limit: int = LIMIT,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress,
) -> dict[str, tuple[Scores, Control[HeadEdit]]]:
    """Measure each task before the edit, and compare the edit with the same done to random heads of the same layers."""
    return {
        task.name: _measure_control(lm, edit, held_out_bundles(lm, task, limit), draws, seed)
        for task in progress(tests, "editing random heads")
    }


def _measure_control(
    lm: LM, edit: HeadEdit, bundles: Sequence[Bundle], draws: int, seed: int
) -> tuple[Scores, Control[HeadEdit]]:
    before = score_bundles(lm, bundles)
    generator = np.random.default_rng(seed)

    def change(edits: Sequence[HeadEdit]) -> np.ndarray:
        return np.array([_score_edited(lm, e, bundles).log_p.mean() for e in edits]) - before.log_p.mean()

    def draw(original: HeadEdit) -> HeadEdit:
        return original.shuffled(generator)

    return before, compare_with_random(change, [edit], draw, draws=draws, stop_early=False)


def _score_edited(lm: LM, edit: HeadEdit, bundles: Sequence[Bundle]) -> Scores:
    with applied(lm, edit):
        return score_bundles(lm, bundles)


def measure_scores(lm: LM, tests: Sequence[Task], limit: int = LIMIT) -> dict[str, Scores]:
    """Score a model on the held-out examples of each task."""
    return {task.name: score_bundles(lm, held_out_bundles(lm, task, limit)) for task in tests}


def effect_rows(
    tests: Sequence[Task], controls: dict[str, tuple[Scores, Control[HeadEdit]]], edited: dict[str, Scores]
) -> list[dict[str, Any]]:
    """Make a row per task: before, after, and the change with random heads."""
    rows = []
    for task in tests:
        before, test = controls[task.name]
        after_edit = edited[task.name]
        draws = int(test.n_drawn[0])
        rows.append(
            {
                "task": task.name,
                "examples": len(before.log_p),
                "shots": task.shots,
                "accuracy": float(before.right.mean()),
                "accuracy_after": float(after_edit.right.mean()),
                "log_p": float(before.log_p.mean()),
                "log_p_after": float(after_edit.log_p.mean()),
                "change": float(after_edit.log_p.mean() - before.log_p.mean()),
                "random": float(test.random_effect[0].mean()) if draws else None,
                "draws": draws,
                "p": float(test.p[0]) if draws else None,
            }
        )
    return rows


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
        accuracy and log_p(model, task); change(task), the change of mean log P(target) from a to b, with low and high,
        its 95 % bootstrap interval over examples; examples and shots(task). With a text: perplexity(model) per token of
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
    """Compare the scores of two models: the change of log P per task, with a bootstrap interval over examples."""
    tasks = list(scores[0])
    generator = np.random.default_rng(0)
    changes = []
    for task in tasks:
        first, second = (model_scores[task].log_p for model_scores in scores)
        differences = second - first
        samples = generator.integers(len(differences), size=(BOOTSTRAP_SAMPLES, len(differences)))
        low, high = np.quantile(differences[samples].mean(1), (0.025, 0.975))
        changes.append((differences.mean(), low, high, len(differences)))
    change, low, high, n = np.array(changes).T
    return xr.Dataset(
        {
            "accuracy": (("model", "task"), [[s[t].right.mean() for t in tasks] for s in scores]),
            "log_p": (("model", "task"), [[s[t].log_p.mean() for t in tasks] for s in scores]),
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
            | {f"{name}_{m}": float(row[name][i]) for name in ("accuracy", "log_p") for i, m in enumerate("ab")}
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

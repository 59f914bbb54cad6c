"""The paper's tests of a probe's map: the top 10 % of heads are removed, or pushed, while the model answers.

Specialisation: every function's heads against every function's questions. Hierarchy: the heads of lower-order functions
against higher-order questions, and the other way round, and random heads of the same layers. Intervention: the top
heads pushed along the function's direction, and against it. None of them decides whether a function needs its heads:
the test of every map does (docs/concepts/evidence.md).

Many changes are measured together, so that a prompt is run once for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.control import Heads, gates_without, same_layers, top_heads
from headatlas.methods.probe.classifier import EVALUATION_BATCH, Examples
from headatlas.models.generation import generate_answers
from headatlas.models.interventions import MEASURES, Change, answers_under
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.tasks.questions import HIGHER, LOWER, Question, prompt_ids, with_answer
from headatlas.tasks.scoring import is_right, token_f1

REMOVED_GATE = 1e-4  # the factor on removed heads, as published
MASKED_SHARE = 0.1  # of all heads: those removed for the specialisation matrix and the hierarchy
ORDER_DRAWS = 5  # random sets of the hierarchy
ALPHAS = (-2.0, -1.0, 1.0, 2.0)  # how far heads are pushed, in standard deviations
GENERATED_MEASURES = ("f1", "right")

Ask = Callable[[str, list[Change]], np.ndarray]
"""(function, changes) → how that function's test questions are answered under each: [change, question, measure].
More is better."""


def run_published_tests(
    lm: LM,
    asked: Mapping[str, Sequence[Question]],
    labels: np.ndarray,
    data: Examples,
    importance: xr.DataArray,
    *,
    generate: bool,
    template: bool,
    new_tokens: int,
    batch_tokens: int | None,
    seed: int,
    progress: Progress = silent,
) -> xr.Dataset:
    """Remove and push the top heads of importance(function, layer, head) while the model answers.

    Args:
        lm: the model.
        asked: questions of each function.
        labels: functions of the questions that the map was made from, as positions in the map.
        data: their features and splits.
        importance: the map.
        generate: score generated answers instead of the references.
        template: whether prompts are in the chat template.
        new_tokens: of a generated answer.
        batch_tokens: through the model at once.
        seed: of the random heads.
        progress: reports the functions.
    """
    names = importance.function.values.tolist()
    pushes = torch.zeros(len(names), lm.n_layers, lm.n_heads, lm.d_head)
    pushes[:, lm.layers_with_heads] = directions(data, labels, len(names))

    def ask(function: str, changes: list[Change]) -> np.ndarray:
        if generate:
            return _generate_under(lm, asked[function], changes, template, new_tokens)
        examples = [with_answer(lm, q, q.answer, template) for q in asked[function]]
        return answers_under(lm, examples, changes, tokens=batch_tokens).numpy()

    measures = GENERATED_MEASURES if generate else MEASURES
    result = measure_changes(ask, importance, pushes, measures=measures, seed=seed, progress=progress)
    return result.assign(asked=("function", [len(asked[name]) for name in names]))


def _generate_under(
    lm: LM, questions: Sequence[Question], changes: list[Change], template: bool, new_tokens: int
) -> np.ndarray:
    """Score the answers that are generated under each change: [change, question, measure]."""
    prompts = [prompt_ids(lm, q, template) for q in questions]
    scores = np.empty((len(changes), len(prompts), len(GENERATED_MEASURES)))
    for c, change in enumerate(changes):
        with ExitStack() as stack:
            stack.enter_context(lm.gated(change.gate, positions="last"))
            if change.add is not None:
                heads = change.add.abs().sum(-1) > 0
                stack.enter_context(lm.patched(heads, change.add, add=True, positions="last"))
            answers = generate_answers(lm, prompts, new_tokens)
        for e, (q, tokens) in enumerate(zip(questions, answers, strict=True)):
            text = lm.tokenizer.decode(tokens, skip_special_tokens=True)
            scores[c, e] = token_f1(text, q.answer), is_right(text, q.answer)
    return scores


def measure_changes(
    ask: Ask,
    importance: xr.DataArray,
    pushes: Tensor,
    *,
    measures: Sequence[str],
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Remove and push heads, and return how each function's answers change.

    pushes: σ · direction [function, layer, head, d_head]. The other arguments are those of `run_published_tests`.
    """
    functions = importance.function.values.tolist()
    shape = (importance.sizes["layer"], importance.sizes["head"])
    masked = max(1, round(MASKED_SHARE * int(importance.isel(function=0).notnull().sum())))
    top = {f: top_heads(importance.sel(function=f).values, masked) for f in functions}
    unions = _orders(top)
    results = []
    for number, function in enumerate(progress(functions, "removing heads while answering")):
        draw = same_layers(shape[1], np.random.default_rng([seed, number]))
        removed: dict[str, list[Heads]] = {
            "whole": [[]],
            "masked": [top[f] for f in functions],
            "order": list(unions.values()),
            "order_random": [draw(union) for union in unions.values() for _ in range(ORDER_DRAWS)],
        }
        pushed = gates_without([top[function]], shape)[0] == 0
        changes = [Change(gate) for sets in removed.values() for gate in gates_without(sets, shape, REMOVED_GATE)]
        changes += [Change(torch.ones(shape), alpha * pushes[number] * pushed[..., None]) for alpha in ALPHAS]
        scores = np.split(ask(function, changes).mean(1), np.cumsum([*map(len, removed.values())]))
        results.append(_function_result(dict(zip([*removed, "pushed"], scores, strict=True)), len(unions)))
    coords = {
        "function": functions,
        "masked": functions,
        "order": list(unions),
        "alpha": list(ALPHAS),
        "measure": list(measures),
    }
    return xr.concat(results, "function").assign_coords(coords).assign(masked_heads=masked)


def _orders(top: Mapping[str, Heads]) -> dict[str, Heads]:
    """Return the top heads of all lower-order and of all higher-order functions; nothing if either has no function."""
    orders = {"lower": [f for f in top if f in LOWER], "higher": [f for f in top if f in HIGHER]}
    if not all(orders.values()):
        return {}
    return {name: sorted({head for f in members for head in top[f]}) for name, members in orders.items()}


def _function_result(scores: Mapping[str, np.ndarray], n_orders: int) -> xr.Dataset:
    """Return one function's measurements, as changes from the whole model. scores: by what is changed."""
    (baseline,) = scores["whole"]
    by_order = (scores["order_random"] - baseline).reshape(n_orders, ORDER_DRAWS, len(baseline))
    return xr.Dataset(
        {
            "baseline": ("measure", baseline),
            "specialisation": (("masked", "measure"), scores["masked"] - baseline),
            "hierarchy": (("order", "measure"), scores["order"] - baseline),
            "hierarchy_random": (("order", "order_draw", "measure"), by_order),
            "intervention": (("alpha", "measure"), scores["pushed"] - baseline),
        }
    )


@torch.no_grad()
def directions(data: Examples, labels: np.ndarray, classes: int) -> Tensor:
    """σ · d [class, layer, head, d_head] over training examples.

    d is the unit vector from the mean of the other classes to the class's mean, σ the standard deviation along it.
    """
    layers, heads, d = data.features.shape[1:]
    hot = np.eye(classes, dtype=np.float32)[labels]
    sums = torch.zeros(classes, layers, heads, d, device=data.device)
    for batch, z in data.batches(data.train, EVALUATION_BATCH):
        sums += torch.einsum("bc,blhd->clhd", torch.tensor(hot[batch], device=data.device), z)
    counts = torch.from_numpy(hot[data.train].sum(0)).to(data.device)[:, None, None, None]
    total = sums.sum(0)
    unit = sums / counts - (total - sums) / (len(data.train) - counts)
    unit = torch.nn.functional.normalize(unit, dim=-1)
    first, second = torch.zeros(2, classes, layers, heads, device=data.device)
    for _, z in data.batches(data.train, EVALUATION_BATCH):
        along = torch.einsum("blhd,clhd->bclh", z - total / len(data.train), unit)
        first, second = first + along.sum(0), second + along.square().sum(0)
    variance = second / len(data.train) - (first / len(data.train)).square()
    return (unit * variance.clamp(min=0).sqrt()[..., None]).cpu()

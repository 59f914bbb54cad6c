"""Test a probe's map: heads are removed, or pushed, while the model answers. What counts is how good its answers are.

Removal (`evidence.control`): a function's top heads, its lowest, and random heads of the same layers as the top ones.
Specialisation: every function's heads against every function's questions. Hierarchy: the heads of lower-order functions
against higher-order questions, and the other way round. Intervention: the top heads pushed along the function's
direction, and against it.

Many changes are measured together, so that a prompt is run once for all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.evidence.control import (
    Control,
    Heads,
    cached_by_heads,
    compare_with_random,
    correct_p,
    gates_without,
    same_layers,
    top_heads,
)
from headatlas.methods.probe.classifier import EVALUATION_BATCH, Examples
from headatlas.models.generation import generate_answers
from headatlas.models.interventions import MEASURES, Change, answers_under
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import Progress, silent
from headatlas.tasks.questions import HIGHER, LOWER, Question, load_questions, prompt_ids, with_answer
from headatlas.tasks.scoring import is_right, token_f1

REMOVED_GATE = 1e-4  # the factor on removed heads, as published
MASKED_SHARE = 0.1  # of all heads: those removed for the specialisation matrix and the hierarchy
ORDER_DRAWS = 5  # random sets of the hierarchy
ALPHAS = (-2.0, -1.0, 1.0, 2.0)  # how far heads are pushed, in standard deviations
CONSTANTS = {"proof_masked": MASKED_SHARE, "proof_order_draws": ORDER_DRAWS, "proof_alphas": list(ALPHAS)}
GENERATED_MEASURES = ("f1", "right")
MAX_VALIDATION = 6  # questions of a removal test where no truth is known

Ask = Callable[[str, list[Change]], np.ndarray]
"""(function, changes) → how that function's test questions are answered under each: [change, question, measure].
More is better. p-values are about the first measure."""


def probe_sentences(result: xr.Dataset) -> list[str]:
    """Say how many heads are above chance, and how much words alone show."""
    lines = []
    if "clears_control" in result:
        above = int(result.clears_control.any("function").sum())
        heads = int(result.importance.isel(function=0).count())
        none = "" if above else "no function has a head above chance in this model: "
        lines.append(f"probe: {none}{above or 'none'} of {heads} heads clear what shuffled labels give")
    if {"accuracy", "bag_of_words"} <= set(result):
        words = result.bag_of_words
        text = words.wording.values[np.argmax(words.values)]
        lines.append(
            f"probe: reads the function right in {float(result.accuracy):.1%} of test questions;"
            f" words alone ({text}) in {float(words.max()):.1%}"
        )
    return lines


def ask_validation(lm: LM, subject: str) -> list[TokenExample]:
    """Return validation questions: the probe was fitted to training ones, its importance measured on test ones."""
    questions = [q for q in load_questions() if q.function == subject and q.split == "validation"]
    return [with_answer(lm, q, q.answer) for q in questions[:MAX_VALIDATION]]


def prove_map(
    lm: LM,
    questions: Sequence[Question],
    labels: np.ndarray,
    data: Examples,
    importance: xr.DataArray,
    *,
    generate: bool,
    everywhere: bool,
    template: bool,
    new_tokens: int,
    batch_tokens: int | None,
    max_questions: int,
    shares: Sequence[float],
    draws: int,
    seed: int,
    progress: Progress = silent,
) -> xr.Dataset:
    """Test importance(function, layer, head) on test questions of each function, scoring references or generated text.

    Args:
        lm: the model.
        questions: those whose answers were read.
        labels: their functions, as positions in the map.
        data: their features and splits.
        importance: the map.
        generate: score generated answers instead of the references.
        everywhere: change heads at the prompt too, not from its last token on.
        template: whether prompts are in the chat template.
        new_tokens: of a generated answer.
        batch_tokens: through the model at once.
        max_questions: of each function.
        shares: of all heads, to be removed.
        draws: of random heads, at most.
        seed: of the draws.
        progress: reports the functions.
    """
    names = importance.function.values.tolist()
    pushes = torch.zeros(len(names), lm.n_layers, lm.n_heads, lm.d_head)
    pushes[:, lm.layers_with_heads] = directions(data, labels, len(names))
    by_function = [data.test[labels[data.test] == c][:max_questions] for c in range(len(names))]
    tested = {name: [questions[i] for i in numbers] for name, numbers in zip(names, by_function, strict=True)}

    def ask(function: str, changes: list[Change]) -> np.ndarray:
        if generate:
            return _generate_under(lm, tested[function], changes, template, everywhere, new_tokens)
        examples = [with_answer(lm, q, q.answer, template) for q in tested[function]]
        return answers_under(lm, examples, changes, everywhere=everywhere, tokens=batch_tokens).numpy()

    measures = GENERATED_MEASURES if generate else MEASURES
    result = prove(ask, importance, pushes, measures=measures, shares=shares, draws=draws, seed=seed, progress=progress)
    return result.assign(proof_questions=("function", [len(tested[name]) for name in names]))


def _generate_under(
    lm: LM, questions: Sequence[Question], changes: list[Change], template: bool, everywhere: bool, new_tokens: int
) -> np.ndarray:
    """Score the answers that are generated under each change: [change, question, measure]."""
    prompts = [prompt_ids(lm, q, template) for q in questions]
    scores = np.empty((len(changes), len(prompts), len(GENERATED_MEASURES)))
    positions: Any = "all" if everywhere else "last"
    for c, change in enumerate(changes):
        with ExitStack() as stack:
            stack.enter_context(lm.gated(change.gate, positions=positions))
            if change.add is not None:
                heads = change.add.abs().sum(-1) > 0
                stack.enter_context(lm.patched(heads, change.add, add=True, positions=positions))
            answers = generate_answers(lm, prompts, new_tokens)
        for e, (q, tokens) in enumerate(zip(questions, answers, strict=True)):
            text = lm.tokenizer.decode(tokens, skip_special_tokens=True)
            scores[c, e] = token_f1(text, q.answer), is_right(text, q.answer)
    return scores


def prove(
    ask: Ask,
    importance: xr.DataArray,
    pushes: Tensor,
    *,
    measures: Sequence[str],
    shares: Sequence[float],
    draws: int,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Remove and push heads, and return how each function's answers change.

    pushes: σ · direction [function, layer, head, d_head]. The other arguments are those of `prove_map`.
    """
    functions = importance.function.values.tolist()
    shape = (importance.sizes["layer"], importance.sizes["head"])
    n = int(importance.isel(function=0).notnull().sum())
    ranked = {f: top_heads(importance.sel(function=f).values, n) for f in functions}
    steps = sorted({max(1, round(share * n)) for share in shares})
    masked = max(1, round(MASKED_SHARE * n))
    unions = _orders({f: heads[:masked] for f, heads in ranked.items()})
    results = []
    for number, function in enumerate(progress(functions, "removing heads while answering")):
        draw = same_layers(shape[1], np.random.default_rng([seed, number]))
        heads = ranked[function]

        def quality(sets: Sequence[Heads], function: str = function) -> np.ndarray:
            changes = [Change(gate) for gate in gates_without(sets, shape, REMOVED_GATE)]
            return ask(function, changes).mean(1)  # [set, measure]

        top_sets = [heads[:m] for m in steps]
        top = compare_with_random(cached_by_heads(quality), top_sets, draw, draws=draws, reference=[])
        removed = {
            "lowest": [heads[::-1][:m] for m in steps],
            "masked": [ranked[f][:masked] for f in functions],
            "order": list(unions.values()),
            "order_random": [draw(union) for union in unions.values() for _ in range(ORDER_DRAWS)],
        }
        pushed = gates_without([heads[:masked]], shape)[0] == 0
        changes = [Change(gate) for sets in removed.values() for gate in gates_without(sets, shape, REMOVED_GATE)]
        changes += [Change(torch.ones(shape), alpha * pushes[number] * pushed[..., None]) for alpha in ALPHAS]
        effects = np.split(ask(function, changes).mean(1) - top.reference, np.cumsum([*map(len, removed.values())]))
        results.append(_function_result(top, dict(zip([*removed, "pushed"], effects, strict=True)), len(unions)))
    coords = {
        "function": functions,
        "n_removed": steps,
        "draw": range(draws),
        "masked": functions,
        "order": list(unions),
        "alpha": list(ALPHAS),
        "measure": list(measures),
    }
    result = xr.concat(results, "function").assign_coords(coords).assign(masked_heads=masked)
    return result.assign(p_corrected=(result.p.dims, correct_p(result.p.values)))


def _orders(top: Mapping[str, Heads]) -> dict[str, Heads]:
    """Return the top heads of all lower-order and of all higher-order functions; nothing if either has no function."""
    orders = {"lower": [f for f in top if f in LOWER], "higher": [f for f in top if f in HIGHER]}
    if not all(orders.values()):
        return {}
    return {name: sorted({head for f in members for head in top[f]}) for name, members in orders.items()}


def _function_result(top: Control[Heads], effects: Mapping[str, np.ndarray], n_orders: int) -> xr.Dataset:
    """One function's measurements, as changes from the whole model."""
    by_order = effects["order_random"].reshape(n_orders, ORDER_DRAWS, len(top.reference))
    return xr.Dataset(
        {
            "baseline": ("measure", top.reference),
            "effect": (("n_removed", "measure"), top.effect),
            "lowest_effect": (("n_removed", "measure"), effects["lowest"]),
            "random_effect": (("n_removed", "draw", "measure"), top.random_effect),
            "p": ("n_removed", top.p),
            "specialisation": (("masked", "measure"), effects["masked"]),
            "hierarchy": (("order", "measure"), effects["order"]),
            "hierarchy_random": (("order", "order_draw", "measure"), by_order),
            "intervention": (("alpha", "measure"), effects["pushed"]),
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

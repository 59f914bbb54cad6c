"""The proof of a probe's map: heads are removed, or pushed, while the model answers. What counts is how answers fare.

Removal (`evidence.control`): a function's top heads, its lowest, and random heads of the same layers as the top ones.
Specialisation: every function's heads against every function's questions. Hierarchy: the heads of lower-order functions
against higher-order questions, and the other way round. Intervention: the top heads pushed along the function's
direction, and against it.

Many changes are asked at once, so that a prompt is run once for all of them.
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
from headatlas.methods.probe.features import generate_answers
from headatlas.methods.probe.settings import Options, Trials
from headatlas.models.interventions import MEASURES, Change, answers_under
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import Progress, silent
from headatlas.tasks.questions import HIGHER, LOWER, Question, load_questions, prompt_ids, with_answer
from headatlas.tasks.scoring import is_right, token_f1

SCALE = 1e-4  # what removed heads are multiplied by, as published
MEASURES_OF = {"score": MEASURES, "generate": ("f1", "right")}
ASK = 6  # questions of a removal test where no truth is known

Ask = Callable[[str, list[Change]], np.ndarray]
"""(function, changes) → how that function's test questions are answered under each: [change, question, measure].
More is better. p-values are about the first measure."""


def ask_validation(lm: LM, subject: str) -> list[TokenExample]:
    """Validation questions: the probe was fitted to training ones, and its importance measured on test ones."""
    questions = [q for q in load_questions() if q.function == subject and q.split == "validation"]
    return [with_answer(lm, q, q.answer) for q in questions[:ASK]]


def score_under(
    lm: LM, tested: Mapping[str, Sequence[Question]], options: Options, function: str, changes: list[Change]
) -> np.ndarray:
    """How likely the reference answers are."""
    examples = [with_answer(lm, q, q.answer, options.template) for q in tested[function]]
    return answers_under(lm, examples, changes, everywhere=options.everywhere, tokens=options.batch_tokens).numpy()


def generate_under(
    lm: LM, tested: Mapping[str, Sequence[Question]], options: Options, function: str, changes: list[Change]
) -> np.ndarray:
    """How good the generated answers are."""
    prompts = [prompt_ids(lm, q, options.template) for q in tested[function]]
    scores = np.empty((len(changes), len(prompts), 2))
    positions: Any = "all" if options.everywhere else "last"
    for c, change in enumerate(changes):
        with ExitStack() as stack:
            stack.enter_context(lm.gated(change.gate, positions=positions))
            if change.add is not None:
                heads = change.add.abs().sum(-1) > 0
                stack.enter_context(lm.patched(heads, change.add, add=True, positions=positions))
            answers = generate_answers(lm, prompts, options.settings.new_tokens)
        for e, (q, new) in enumerate(zip(tested[function], answers, strict=True)):
            text = lm.tokenizer.decode(new, skip_special_tokens=True)
            scores[c, e] = token_f1(text, q.answer), is_right(text, q.answer)
    return scores


def prove(
    ask: Ask,
    measures: Sequence[str],
    importance: xr.DataArray,
    pushes: Tensor,
    trials: Trials,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """importance(function, layer, head) put to the test; pushes: σ · direction [function, layer, head, d_head]."""
    functions = importance.function.values.tolist()
    shape = (importance.sizes["layer"], importance.sizes["head"])
    n = int(importance.isel(function=0).notnull().sum())
    ranked = {f: top_heads(importance.sel(function=f).values, n) for f in functions}
    steps = sorted({max(1, round(share * n)) for share in trials.shares})
    masked = max(1, round(trials.masked * n))
    orders = {name: [f for f in functions if f in of] for name, of in (("lower", LOWER), ("higher", HIGHER))}
    orders = orders if all(orders.values()) else {}
    unions = {o: sorted({head for f in of for head in ranked[f][:masked]}) for o, of in orders.items()}
    results = []
    for number, function in enumerate(progress(functions, "removing heads while answering")):
        draw = same_layers(shape[1], np.random.default_rng([seed, number]))
        own = ranked[function]

        def quality(sets: Sequence[Heads], function: str = function) -> np.ndarray:
            changes = [Change(gate) for gate in gates_without(sets, shape, SCALE)]
            return ask(function, changes).mean(1)  # [set, measure]

        tops = [own[:m] for m in steps]
        top = compare_with_random(cached_by_heads(quality), tops, draw, draws=trials.draws, reference=[])
        removed = {
            "lowest": [own[::-1][:m] for m in steps],
            "masked": [ranked[f][:masked] for f in functions],
            "order": list(unions.values()),
            "order_random": [draw(union) for union in unions.values() for _ in range(trials.order_draws)],
        }
        pushed = gates_without([own[:masked]], shape)[0] == 0
        changes = [Change(gate) for sets in removed.values() for gate in gates_without(sets, shape, SCALE)]
        changes += [Change(torch.ones(shape), alpha * pushes[number] * pushed[..., None]) for alpha in trials.alphas]
        change = np.split(ask(function, changes).mean(1) - top.reference, np.cumsum([*map(len, removed.values())]))
        results.append(_one(top, dict(zip([*removed, "pushed"], change, strict=True)), len(orders), trials.order_draws))
    coords = {
        "function": functions,
        "n_removed": steps,
        "draw": range(trials.draws),
        "masked": functions,
        "order": list(orders),
        "alpha": list(trials.alphas),
        "measure": list(measures),
    }
    result = xr.concat(results, "function").assign_coords(coords).assign(masked_heads=masked)
    return result.assign(p_corrected=(result.p.dims, correct_p(result.p.values)))


def _one(top: Control[Heads], change: dict[str, np.ndarray], orders: int, order_draws: int) -> xr.Dataset:
    """One function's measurements, as changes from the whole model."""
    by_order = change["order_random"].reshape(orders, order_draws, len(top.reference))
    return xr.Dataset(
        {
            "baseline": ("measure", top.reference),
            "effect": (("n_removed", "measure"), top.effect),
            "lowest_effect": (("n_removed", "measure"), change["lowest"]),
            "random_effect": (("n_removed", "draw", "measure"), top.random_effect),
            "p": ("n_removed", top.p),
            "specialisation": (("masked", "measure"), change["masked"]),
            "hierarchy": (("order", "measure"), change["order"]),
            "hierarchy_random": (("order", "order_draw", "measure"), by_order),
            "intervention": (("alpha", "measure"), change["pushed"]),
        }
    )

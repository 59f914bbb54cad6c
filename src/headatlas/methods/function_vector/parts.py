"""The work of `function_vector` in parts, task by task, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr

from headatlas.evidence.control import Heads, compare_with_random, correct_p, same_layers, top_heads
from headatlas.methods._effects import ASK, halves
from headatlas.methods.function_vector import SHOTS
from headatlas.methods.function_vector.effects import mean_outputs, rises, scales_outputs
from headatlas.methods.function_vector.vectors import TRIED, answers_with, best_layers, vector_of
from headatlas.methods.method import Part
from headatlas.models.cost import Cost, a_pass, answering, reading
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Done, Progress
from headatlas.tasks.built_in import BUILT_IN
from headatlas.tasks.few_shot import few_shot_prompts, few_shot_tasks, zero_shot_prompts
from headatlas.tasks.prompts import Example, Task

MEASURES = ("probability", "accuracy")
PROMPTS = ("few_shot", "shuffled", "zero_shot")
AT_ONCE = 8  # prompts that are one part
ADDED_UP = 2.5e-3  # seconds of the host to add up what ten heads write


@dataclass(frozen=True)
class Settings:
    limit: int
    top: int
    layer: int | None
    draws: int
    seed: int
    batch_tokens: int | None


@dataclass(frozen=True)
class Plan:
    """What is asked of one task.

    right, shuffled: few-shot prompts of training questions, others in each. choosing: the questions of `shuffled`
    alone. testing, testing_few_shot: held-out questions, alone and in few-shot prompts.
    """

    name: str
    settings: Settings
    right: tuple[TokenExample, ...]
    shuffled: tuple[TokenExample, ...]
    choosing: tuple[TokenExample, ...]
    testing: tuple[TokenExample, ...]
    testing_few_shot: tuple[TokenExample, ...]

    @property
    def means(self) -> str:
        return f"{self.name}: mean outputs"

    @property
    def effects(self) -> list[str]:
        """Names of the parts that are some prompts each."""
        return [f"{self.name}: from prompt {first + 1}" for first in range(0, len(self.shuffled), AT_ONCE)]

    @property
    def vector(self) -> str:
        return f"{self.name}: function vector"

    def parts(self) -> list[Part]:
        effects = [
            Part(name=name, do=_effects, arguments=(self, i * AT_ONCE, name), inputs=(self.means,), cost=_effects_cost)
            for i, name in enumerate(self.effects)
        ]
        needs = (self.means, *self.effects)
        return [
            Part(name=self.means, do=_means, arguments=(self,), cost=_means_cost),
            *effects,
            Part(name=self.vector, do=_vector, arguments=(self,), inputs=needs, cost=_vector_cost),
        ]


def plan(lm: LM, task: Task, settings: Settings) -> Plan:
    """Prompts are made now, so that one that is too long is told before anything is computed."""
    train, testing = _questions(task, settings)
    shuffled, right = train[: settings.limit], train[::-1][: settings.limit]
    return Plan(
        task.name,
        settings,
        tuple(few_shot_prompts(lm, task, right, 3 * settings.seed)),
        tuple(few_shot_prompts(lm, task, shuffled, 3 * settings.seed + 1, shuffled=True)),
        tuple(zero_shot_prompts(lm, task, shuffled)),
        tuple(zero_shot_prompts(lm, task, testing)),
        tuple(few_shot_prompts(lm, task, testing, 3 * settings.seed + 2)),
    )


def rows(task: Task, settings: Settings) -> list[Example]:
    """The rows that prompts are made of. Few-shot examples are drawn from all training rows."""
    train, testing = _questions(task, settings)
    return [*train, *testing]


def _questions(task: Task, settings: Settings) -> tuple[list[Example], list[Example]]:
    """Training questions in random order, and the held-out questions that are asked."""
    generator = np.random.default_rng([settings.seed, *task.name.encode()])
    train, held_out = ([part[i] for i in generator.permutation(len(part))] for part in (task.train, task.held_out))
    return train, held_out[: settings.limit]


def _means(lm: LM, plan: Plan, *, done: Done, progress: Progress) -> None:
    tokens = plan.settings.batch_tokens
    done[plan.means] = (mean_outputs(lm, plan.right, tokens=tokens, label=plan.means, progress=progress).numpy(),)


def _effects(lm: LM, plan: Plan, first: int, name: str, *, done: Done, progress: Progress) -> None:
    prompts, means = plan.shuffled[first : first + AT_ONCE], torch.from_numpy(done[plan.means][0][0])
    rise, before = rises(lm, prompts, means, tokens=plan.settings.batch_tokens, label=name, progress=progress)
    done[name] = (rise.numpy(), before.numpy())


def _vector(lm: LM, plan: Plan, *, done: Done, progress: Progress) -> None:
    settings, means = plan.settings, torch.from_numpy(done[plan.means][0][1])
    effect = np.concatenate([done[name][0] for name in plan.effects]).mean(0)
    most = min(settings.top, int(np.isfinite(effect).sum()))
    heads = top_heads(effect, most)
    tokens = settings.batch_tokens

    def rise(sets: Sequence[Heads]) -> np.ndarray:
        vectors = torch.stack([vector_of(lm, drawn, means) for drawn in progress(sets, plan.vector)])
        layers = best_layers(lm, plan.choosing, vectors, settings.layer, tokens)
        answers = answers_with(lm, plan.testing, layers, vectors, tokens)
        return answers[:-1] - answers[-1]

    control = compare_with_random(
        rise,
        [heads],
        same_layers(lm.n_heads, np.random.default_rng([settings.seed, *plan.name.encode()])),
        draws=settings.draws,
        direction="higher",
        draws_per_round=settings.draws,
        stop_early=False,
    )
    vector = vector_of(lm, heads, means)
    (layer,) = best_layers(lm, plan.choosing, vector[None], settings.layer, tokens)
    by_layer = answers_with(lm, plan.testing, range(lm.n_layers), vector.expand(lm.n_layers, -1), tokens)
    log_p, right = batched_log_probs(lm, [make_bundle([a]) for a in plan.testing_few_shot], tokens=tokens)
    few_shot = np.array([log_p.double().exp().mean(), right.double().mean()])
    selected = np.zeros(effect.shape, bool)
    selected[tuple(np.transpose(heads))] = True
    test = (control.effect[0], control.random_effect[0], control.p[0])
    done[plan.vector] = (selected, vector.numpy(), few_shot, by_layer, np.array(layer), *test)


def combine(lm: LM, plans: Sequence[Plan], *, done: Done, progress: Progress) -> xr.Dataset:
    results = []
    for one in plans:
        each, before = (np.concatenate([done[name][i] for name in one.effects]) for i in (0, 1))
        selected, vector, few_shot, by_layer, layer, effect, random_effect, p = done[one.vector]
        after, zero = by_layer[:-1], by_layer[-1]
        variables = {
            "contribution": (("layer", "head"), each.mean(0)),
            "contribution_half": (("half", "layer", "head"), halves(each)),
            "selected": (("layer", "head"), selected),
            "vector": ("d_model", vector),
            "baseline": (("prompt", "measure"), np.stack([few_shot, before.mean(0), zero])),
            "added_at": int(layer),
            "effect": ("measure", effect),
            "effect_by_layer": (("layer", "measure"), after - zero),
            "random_effect": (("draw", "measure"), random_effect),
            "p": p,
        }
        results.append(xr.Dataset(variables))
    result = xr.concat(results, "task").assign_coords(
        task=[one.name for one in plans],
        half=["first", "second"],
        prompt=list(PROMPTS),
        measure=list(MEASURES),
        draw=range(plans[0].settings.draws),
        layer=range(lm.n_layers),
        head=range(lm.n_heads),
    )
    return result.assign(p_corrected=("task", correct_p(result.p.values)))


def _means_cost(lm: LM, plan: Plan) -> Cost:
    bundles = [make_bundle([a]) for a in plan.right]
    if scales_outputs(lm):
        return sum((a_pass(lm, [bundle]) for bundle in bundles), Cost())
    return reading(lm, bundles, tokens=plan.settings.batch_tokens, packed=False)


def _effects_cost(lm: LM, plan: Plan, first: int, name: str) -> Cost:
    prompts = plan.shuffled[first : first + AT_ONCE]
    return answering(lm, prompts, 1 + lm.n_layers * lm.n_heads, tokens=plan.settings.batch_tokens)


def _vector_cost(lm: LM, plan: Plan) -> Cost:
    draws, tokens = plan.settings.draws, plan.settings.batch_tokens
    cost = reading(lm, [make_bundle([a]) for a in plan.testing_few_shot], tokens=tokens)
    cost += Cost(seconds=ADDED_UP * (1 + draws))
    if plan.settings.layer is None:
        cost += answering(lm, plan.choosing, 1 + TRIED * (1 + draws), tokens=tokens)
    return cost + answering(lm, plan.testing, 1 + lm.n_layers + draws, tokens=tokens)


def ask_held_out(lm: LM, subject: str) -> list[TokenExample]:
    """Held-out questions of a built-in relation or task, each behind two draws of worked examples: effects are of
    training questions."""
    given = (None, subject) if subject in BUILT_IN else ([subject], None)
    (task,) = few_shot_tasks(lm, *given, shots=SHOTS)
    generator = np.random.default_rng([0, *subject.encode()])
    queries = [task.held_out[i] for i in generator.permutation(len(task.held_out))[: ASK // 2]]
    return [
        a for pair in zip(*(few_shot_prompts(lm, task, queries, seed) for seed in (0, 1)), strict=True) for a in pair
    ]

"""What the parts and the result of `maps` cost."""

from collections.abc import Sequence

from headatlas.methods.maps.causal import DRAWS, STEPS, relation_questions
from headatlas.methods.maps.dynamic import CONTEXTS, TEMPLATES
from headatlas.methods.maps.pairs import ChosenPairs
from headatlas.methods.maps.scores import Settings
from headatlas.models.cost import Cost, answering
from headatlas.models.lm import LM
from headatlas.models.parameters import Parameters
from headatlas.tasks.relations import Relation

DRAWN = 1e8  # random numbers a second
LOOKED_AT = 1800  # tokens of the vocabulary that a pair's output is computed for, about, before its rank is known


def layers_cost(model: Parameters, chosen: ChosenPairs, settings: Settings, layers: Sequence[int]) -> Cost:
    """Of `score_layers`."""
    a, pairs = model.weights.anatomy, chosen.named(settings.baselines, settings.seed)
    texts = len(pairs["maps"].source.unique()) * (1 + len(settings.reading.opening))
    drawn = len(layers) * 2 * a.n_heads * a.d_head * a.d_model if settings.baselines else 0
    run = Cost(tokens=texts, passes=1) if settings.reading.input == "stream" else Cost()
    ranked = _ranking(model, len(layers), sum(map(len, pairs.values())))
    return run + ranked + Cost(seconds=0.3 + 0.02 * len(layers) + drawn / DRAWN)


def checks_cost(lm: LM, relations: Sequence[Relation], chosen: ChosenPairs, settings: Settings) -> Cost:
    """Of the checks in real runs, if there are any."""
    cost = Cost()
    if settings.dynamic:
        enough = chosen.count[chosen.count >= settings.min_pairs]
        texts = len(TEMPLATES) * int(enough.clip(max=settings.dynamic).sum())
        tokens = texts / len(TEMPLATES) * sum(len(lm.encode(t)[0]) + 1 for t in TEMPLATES)
        cost += Cost(tokens=tokens, passes=texts / 64) + _ranking(lm, lm.n_layers, len(CONTEXTS) * texts)
    if settings.causal:
        questions = [q for r in relations for q in relation_questions(lm, r, settings.causal, settings.seed)]
        cost += answering(lm, questions, 1 + len(STEPS) * (2 + DRAWS))
    return cost


def _ranking(model: Parameters | LM, layers: int, pairs: int) -> Cost:
    a = model.weights.anatomy
    return Cost(operations=2.0 * layers * a.n_heads * pairs * a.d_model * LOOKED_AT)

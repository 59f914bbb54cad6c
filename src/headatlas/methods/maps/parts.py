"""What `maps` does piece by piece: a few layers each; then the scores and the checks of all of them."""

from collections.abc import Sequence

import xarray as xr

from headatlas.evidence.control import removal_cost
from headatlas.methods.maps.causal import DRAWS, STEPS, check_causal, relation_questions
from headatlas.methods.maps.dynamic import BATCH, CONTEXTS, TEMPLATES, check_dynamic
from headatlas.methods.maps.pairs import ChosenPairs
from headatlas.methods.maps.scores import Settings, score_layers, score_relations
from headatlas.methods.method import Part
from headatlas.models.cost import Cost, answering
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters
from headatlas.progress import Done, Progress
from headatlas.tasks.relations import Relation

RANKED = 5e-3  # seconds of the host to rank a layer's heads once
DRAWN = 1e8  # random numbers a second
LOOKED_AT = 1800  # tokens of the vocabulary that a pair's output is computed for, about, before its rank is known


def layer_parts(model: Parameters, chosen: ChosenPairs, settings: Settings) -> list[Part]:
    """A few layers each; all of them, where a stream passes them anyway."""
    anatomy = model.weights.anatomy
    stream = settings.reading.input == "stream"
    return [
        Part(
            name=f"maps, layers {layers[0]} to {layers[-1]}",
            do=score_layers,
            arguments=(chosen, settings, layers),
            outputs=tuple(f"{name} layer {i}" for i in layers for name in ("maps", *settings.baselines)),
            cost=layers_cost,
        )
        for layers in (anatomy.layer_groups(anatomy.n_layers) if stream else anatomy.layer_groups())
    ]


def combine(
    model: Parameters,
    relations: Sequence[Relation],
    chosen: ChosenPairs,
    settings: Settings,
    *,
    done: Done,
    progress: Progress,
) -> xr.Dataset:
    """Scores from what the heads of all layers hit, and the checks. For those, the model is an LM."""
    result = score_relations(model, relations, chosen, settings, done)
    if settings.dynamic:
        assert isinstance(model, LM)
        result = result.merge(check_dynamic(model, relations, settings, progress))
    if settings.causal:
        assert isinstance(model, LM)
        result = result.merge(check_causal(model, relations, result, settings, progress))
    text = model.tokenizer.decode(settings.reading.opening)
    return result.set_xindex("category_name").assign_attrs(opening_text=text)


# --- what that costs


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
        runs = len(TEMPLATES) * -(-texts // len(TEMPLATES) // BATCH)
        cost += Cost(tokens=tokens, passes=runs, seconds=RANKED * runs * len(CONTEXTS) * lm.n_layers)
        cost += _ranking(lm, lm.n_layers, len(CONTEXTS) * texts)
    if settings.causal:
        for r in relations:
            questions = relation_questions(lm, r, settings.causal, settings.seed)
            if questions:
                cost += answering(lm, questions, 1) + removal_cost(lm, questions, len(STEPS), DRAWS)
                cost += answering(lm, questions, len(STEPS))  # while another relation is asked
    return cost


def _ranking(model: Parameters | LM, layers: int, pairs: int) -> Cost:
    a = model.weights.anatomy
    return Cost(operations=2.0 * layers * a.n_heads * pairs * a.d_model * LOOKED_AT)

"""What `maps` does piece by piece: a few layers each; then the scores and the checks of all of them."""

from collections.abc import Sequence

import xarray as xr

from headatlas.methods._layers import layer_spans
from headatlas.methods.maps.causal import check_causal
from headatlas.methods.maps.cost import layers_cost
from headatlas.methods.maps.dynamic import check_dynamic
from headatlas.methods.maps.pairs import ChosenPairs
from headatlas.methods.maps.scores import Settings, score_layers, score_relations
from headatlas.methods.method import Part
from headatlas.models.lm import LM
from headatlas.models.parameters import Parameters
from headatlas.progress import Done, Progress
from headatlas.tasks.relations import Relation


def layer_parts(model: Parameters, chosen: ChosenPairs, settings: Settings) -> list[Part]:
    """A few layers each; all of them, where a stream passes them anyway."""
    anatomy = model.weights.anatomy
    stream = settings.reading.input == "stream"
    return [
        Part(
            f"maps, layers {layers[0]} to {layers[-1]}",
            score_layers,
            (chosen, settings, layers),
            tuple(f"{name} layer {i}" for i in layers for name in ("maps", *settings.baselines)),
            cost=layers_cost,
        )
        for layers in (layer_spans(anatomy, anatomy.n_layers) if stream else layer_spans(anatomy))
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

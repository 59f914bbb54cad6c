"""The published tests of a probe's map, against answers that follow the heads in a known way."""

import numpy as np
import pytest
import torch
import xarray as xr

from headatlas.methods.probe.published_tests import ORDER_DRAWS, REMOVED_GATE, measure_changes
from headatlas.models.interventions import Change

LAYERS, HEADS, D = 4, 5, 3
NAMES = ["Retrieval", "Inference", "Other"]
WORTH = np.random.default_rng(0).uniform(0, 1, (3, LAYERS, HEADS))
PUSHES = torch.from_numpy(np.random.default_rng(1).normal(size=(3, LAYERS, HEADS, D))).float()
TRIALS = {"measures": ("log_p", "double")}


def ask(function: str, changes: list[Change]) -> np.ndarray:
    """Two questions: a head's share of the answer is its worth to the function; pushes count by their first number."""
    worth = torch.from_numpy(WORTH[NAMES.index(function)]).float()
    scores = []
    for change in changes:
        pushed = 0.0 if change.add is None else change.add[..., 0].sum().item()
        scores.append((worth * change.gate).sum().item() + pushed)
    scores = np.array(scores)[:, None, None]
    return np.concatenate([scores - 1, scores + 1], axis=1) * [1.0, 2.0]  # [change, question, measure]


@pytest.fixture(scope="module")
def measured() -> xr.Dataset:
    dims = ("function", "layer", "head")
    importance = xr.DataArray(WORTH / WORTH.sum((1, 2), keepdims=True), dims=dims, coords={"function": NAMES})
    return measure_changes(ask, importance, PUSHES, **TRIALS)


def ranked(function: int) -> list[tuple[int, int]]:
    order = np.argsort(-WORTH[function], axis=None)
    return list(zip(*np.unravel_index(order, (LAYERS, HEADS)), strict=True))


def loss(function: int, heads) -> float:
    return (1 - REMOVED_GATE) * sum(WORTH[function][head] for head in heads)


def test_the_whole_model(measured) -> None:
    assert measured.masked_heads == 2
    for i, name in enumerate(NAMES):
        one = measured.sel(function=name, measure="log_p")
        assert one.baseline.item() == pytest.approx(WORTH[i].sum(), rel=1e-5)
    np.testing.assert_allclose(
        measured.specialisation.sel(measure="double"), 2 * measured.specialisation.sel(measure="log_p")
    )


def test_random_heads_are_of_the_same_layers() -> None:
    seen = []

    def look(function: str, changes: list[Change]) -> np.ndarray:
        seen.append([(c.gate < 1).sum(1).tolist() for c in changes if c.add is None])
        return ask(function, changes)

    importance = xr.DataArray(WORTH, dims=("function", "layer", "head"), coords={"function": NAMES})
    measure_changes(look, importance, PUSHES, **TRIALS)
    for per_layer in seen:  # the whole model, the heads of three functions, those of two orders, random ones
        assert per_layer[0] == [0] * LAYERS
        lower, higher = per_layer[4:6]
        assert per_layer[6:] == [lower] * ORDER_DRAWS + [higher] * ORDER_DRAWS


def test_specialisation_is_whose_heads_by_what_is_asked(measured) -> None:
    for i, function in enumerate(NAMES):
        for j, masked in enumerate(NAMES):
            change = measured.specialisation.sel(function=function, masked=masked, measure="log_p").item()
            assert change == pytest.approx(-loss(i, ranked(j)[:2]), rel=1e-4, abs=1e-5)


def test_orders_are_the_heads_of_lower_and_of_higher_functions(measured) -> None:
    assert measured.order.values.tolist() == ["lower", "higher"]
    for order, j in (("lower", 0), ("higher", 1)):
        change = measured.hierarchy.sel(function="Other", order=order, measure="log_p").item()
        assert change == pytest.approx(-loss(2, ranked(j)[:2]), rel=1e-4)
    assert measured.hierarchy_random.sizes["order_draw"] == ORDER_DRAWS


def test_pushes_go_along_the_direction_in_the_top_heads_only(measured) -> None:
    for i, name in enumerate(NAMES):
        along = sum(PUSHES[i][head][0].item() for head in ranked(i)[:2])
        for alpha in (-1.0, 2.0):
            change = measured.intervention.sel(function=name, alpha=alpha, measure="log_p").item()
            assert change == pytest.approx(alpha * along, rel=1e-4, abs=1e-5)


def test_without_both_orders_there_is_no_hierarchy() -> None:
    importance = xr.DataArray(WORTH[1:], dims=("function", "layer", "head"), coords={"function": NAMES[1:]})
    result = measure_changes(ask, importance, PUSHES, **TRIALS)
    assert result.sizes["order"] == 0

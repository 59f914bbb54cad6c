"""All maps of an atlas side by side."""

import numpy as np
import xarray as xr

from headatlas.results.charts import head_ranks, stack_maps


def dataset(**variables: tuple) -> xr.Dataset:
    return xr.Dataset(variables).pipe(lambda d: d.assign_coords({n: range(d.sizes[n]) for n in ("layer", "head")}))


def test_every_method_s_maps_stand_side_by_side() -> None:
    rng = np.random.default_rng(0)
    dims = ("function", "layer", "head")
    importance = rng.random((2, 3, 4))
    probe = dataset(importance=(dims, importance), low=(dims, importance - 1), high=(dims, importance + 1))
    probe = probe.assign_coords(function=["A", "B"])
    roles = {n: (("task", "seed", "layer", "head"), rng.random((1, 5, 3, 4))) for n in ("facilitation", "interference")}
    gate = dataset(**roles).assign_coords(task=["math"])
    score = np.stack([rng.random((3, 4)), np.full((3, 4), np.nan)])
    maps = dataset(score=(("relation", "layer", "head"), score)).assign_coords(relation=["one", "left out"])
    charts = stack_maps({"probe": probe, "gate": gate, "maps": maps, "mine": maps})
    assert charts.chart.values.tolist() == [
        "probe: A",
        "probe: B",
        "gate: math, facilitation",
        "gate: math, interference",
        "maps: one, score",
    ]
    assert charts.measure.values.tolist() == ["importance", "importance", "facilitation", "interference", "score"]
    np.testing.assert_array_equal(charts.score.sel(chart="probe: B"), importance[1])
    np.testing.assert_array_equal(charts.high.sel(chart="probe: B"), importance[1] + 1)
    seeds = gate.facilitation.isel(task=0)
    np.testing.assert_allclose(charts.score.sel(chart="gate: math, facilitation"), seeds.mean("seed"))
    np.testing.assert_array_equal(charts.low.sel(chart="gate: math, facilitation"), seeds.min("seed"))
    assert charts.low.sel(chart="maps: one, score").isnull().all()


def test_nothing_is_an_empty_overview() -> None:
    charts = stack_maps({})
    assert charts.sizes["chart"] == 0
    assert charts.method.values.tolist() == []


def test_ranks_share_the_better_place_and_leave_nan_out() -> None:
    score = xr.DataArray([[[3.0, 1.0], [3.0, np.nan]], [[0.0, 0.0], [-1.0, 2.0]]], dims=("chart", "layer", "head"))
    charts = xr.Dataset({"score": score, "at_chance": xr.zeros_like(score, dtype=bool)})
    np.testing.assert_array_equal(head_ranks(charts), [[[1, 3], [1, np.nan]], [[2, 2], [4, 1]]])
    charts["at_chance"] = score < 2
    np.testing.assert_array_equal(head_ranks(charts), [[[1, np.nan], [1, np.nan]], [[np.nan] * 2, [np.nan, 1]]])

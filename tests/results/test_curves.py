"""Removal curves of every method in one form."""

import numpy as np
import pytest
import xarray as xr

from headatlas.results.curves import change_matrix, ranking_measure, stack_removal_curves
from tests.figures import synthetic


def test_curves_of_all_methods_begin_with_the_full_model() -> None:
    rng = np.random.default_rng(0)
    draws = rng.random((1, 2, 21, 2))
    probe = xr.Dataset(
        {
            "effect": (("function", "n_removed", "measure"), [[[-8.0, -3.0], [-7.0, -2.0]]]),
            "lowest_effect": (("function", "n_removed", "measure"), [[[-6.0, -3.0], [-5.0, -2.0]]]),
            "random_effect": (("function", "n_removed", "draw", "measure"), draws - 9),
            "p": (("function", "n_removed"), [[0.1, 0.2]]),
            "baseline": (("function", "measure"), [[9.0, 8.0]]),
        },
        coords={"function": ["A"], "n_removed": [3, 7], "measure": ["log_p", "rank"]},
    )
    gate = xr.Dataset(
        {
            "effect": (("task", "role", "n_removed"), [[[-2.0]]]),
            "random_effect": (("task", "role", "n_removed", "draw"), [[[[-1.0, -3.0]]]]),
            "p": (("task", "role", "n_removed"), [[[0.5]]]),
            "baseline": ("task", [-4.0]),
        },
        coords={"task": ["math"], "role": ["facilitation"], "n_removed": [7]},
    )
    curves = stack_removal_curves({"probe": probe, "gate": gate, "maps": xr.Dataset()})
    assert curves.removed.values.tolist() == [0, 3, 7]
    assert curves.subject.values.tolist() == ["A", "math"]
    assert curves.measure.values.tolist() == ["log P", "change of log P"]
    assert curves.ranked_by.values.tolist() == ["importance", "facilitation"]
    np.testing.assert_array_equal(curves.top, [[9, 1, 2], [0, np.nan, -2]])
    np.testing.assert_array_equal(curves.lowest, [[9, 3, 4], [np.nan] * 3])
    np.testing.assert_array_equal(curves.p, [[np.nan, 0.1, 0.2], [np.nan, np.nan, 0.5]])
    np.testing.assert_allclose(curves.random[0, 1:], draws[0, :, :, 0].mean(1))
    np.testing.assert_allclose(curves.random_low[0, 1:], np.sort(draws[0, :, :, 0])[:, 1])


@pytest.mark.parametrize("made", [synthetic.ablate, synthetic.dissociate, synthetic.compare_maps, synthetic.salient])
def test_without_proof_there_is_no_curve(made) -> None:
    """Their effects, if there are any, are of single heads, or of one number of heads."""
    assert stack_removal_curves({made.__name__: made(3, 4)}).sizes["curve"] == 0
    assert stack_removal_curves({"probe": xr.Dataset()}).sizes["curve"] == 0


def test_curves_that_begin_with_nothing_removed_do_so_once() -> None:
    maps = xr.Dataset(
        {
            "effect": (("relation", "n_removed", "measure"), [[[0.0], [-4.0]]]),
            "random_effect": (("relation", "n_removed", "draw", "measure"), [[[[0.0]], [[-1.0]]]]),
            "baseline": (("relation", "measure"), [[5.0]]),
        },
        coords={"relation": ["one"], "n_removed": [0, 4], "measure": ["accuracy"]},
    )
    curves = stack_removal_curves({"maps": maps})
    assert curves.removed.values.tolist() == [0, 4]
    np.testing.assert_array_equal(curves.top, [[5, 1]])
    assert curves.p.isnull().all()


def test_heads_were_ranked_by_a_role_or_by_the_first_measure() -> None:
    assert ranking_measure("gate", "interference") == "interference"
    assert ranking_measure("maps", "importance") == "score"
    assert ranking_measure("probe", "importance") == "importance"


def test_changes_of_every_function_without_each_function_s_heads() -> None:
    probe = synthetic.probe(6, 8)
    rows, columns, change, measure = change_matrix(probe)
    assert (rows, columns, measure) == (probe.masked.values.tolist(), probe.function.values.tolist(), "log P")
    np.testing.assert_array_equal(change, probe.specialisation.values[..., 0].T)
    dissociate = synthetic.dissociate(6, 8)  # the second function has no heads
    rows, columns, change, measure = change_matrix(dissociate)
    names = dissociate.function.values.tolist()
    assert (rows, columns, measure) == ([names[i] for i in (0, 2, 3)], names, "log P per token")
    np.testing.assert_array_equal(change[[0, 1, 2], [0, 2, 3]], dissociate.effect.values[[0, 2, 3]])
    np.testing.assert_array_equal(change[1, [0, 1, 3]], dissociate.other_effect.values[2, [0, 1, 3]])
    for made in (synthetic.gate, synthetic.maps, synthetic.ablate, synthetic.compare_maps):
        assert change_matrix(made(3, 4)) is None

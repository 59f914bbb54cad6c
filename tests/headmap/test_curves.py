"""Removal curves of every method in one form."""

import numpy as np
import xarray as xr

from headatlas.results.curves import removal


def test_curves_of_all_methods_begin_with_the_whole_model() -> None:
    rng = np.random.default_rng(0)
    draws = rng.random((1, 2, 21, 2))
    probe = xr.Dataset(
        {
            "removal_top": (("function", "removed", "measure"), [[[1.0, 5.0], [2.0, 6.0]]]),
            "removal_lowest": (("function", "removed", "measure"), [[[3.0, 5.0], [4.0, 6.0]]]),
            "removal_random": (("function", "removed", "draw", "measure"), draws),
            "removal_p": (("function", "removed"), [[0.1, 0.2]]),
            "whole": (("function", "measure"), [[9.0, 8.0]]),
        },
        coords={"function": ["A"], "removed": [3, 7], "measure": ["log_p", "rank"]},
    )
    gate = xr.Dataset(
        {
            "switch_off": (("task", "role", "switched"), [[[-2.0]]]),
            "switch_off_random": (("task", "role", "switched", "draw"), [[[[-1.0, -3.0]]]]),
            "switch_off_p": (("task", "role", "switched"), [[[0.5]]]),
        },
        coords={"task": ["math"], "role": ["facilitation"], "switched": [7]},
    )
    found = removal({"probe": probe, "gate": gate, "maps": xr.Dataset()})
    assert found.removed.values.tolist() == [0, 3, 7]
    assert found.subject.values.tolist() == ["A", "math"]
    np.testing.assert_array_equal(found.top, [[9, 1, 2], [0, np.nan, -2]])
    np.testing.assert_array_equal(found.lowest, [[9, 3, 4], [np.nan] * 3])
    np.testing.assert_array_equal(found.p, [[np.nan, 0.1, 0.2], [np.nan, np.nan, 0.5]])
    np.testing.assert_allclose(found.random[0, 1:], draws[0, :, :, 0].mean(1))
    np.testing.assert_allclose(found.random_low[0, 1:], np.sort(draws[0, :, :, 0])[:, 1])


def test_without_proof_there_is_no_curve() -> None:
    assert removal({"probe": xr.Dataset()}).sizes["curve"] == 0


def test_curves_that_begin_with_nothing_removed_do_so_once() -> None:
    maps = xr.Dataset(
        {
            "removal_top": (("relation", "removed", "measure"), [[[5.0], [1.0]]]),
            "removal_random": (("relation", "removed", "draw", "measure"), [[[[5.0]], [[4.0]]]]),
            "whole_model": (("relation", "measure"), [[5.0]]),
        },
        coords={"relation": ["one"], "removed": [0, 4], "measure": ["accuracy"]},
    )
    found = removal({"maps": maps})
    assert found.removed.values.tolist() == [0, 4]
    np.testing.assert_array_equal(found.top, [[5, 1]])

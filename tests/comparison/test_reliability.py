"""What a run says of maps that do not agree with themselves."""

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.comparison.reliability import data_factor_needed, spearman_brown, stability_warnings
from headatlas.errors import BadArgument
from headatlas.methods import get_method, method_names
from headatlas.testing import tiny_lm, tiny_task

SHAPE = (6, 8)


def halves_that_correlate(wanted: float) -> np.ndarray:
    """Two maps [half, layer, head] whose Spearman correlation is nearly `wanted`."""
    generator = np.random.default_rng(0)
    a = generator.permutation(48).astype(float)
    tries = (np.argsort(np.argsort(wanted * a + (1 - abs(wanted)) * generator.permutation(48))) for _ in range(4000))
    b = min(tries, key=lambda b: abs(np.corrcoef(a, b)[0, 1] - wanted))
    return np.stack([a, b]).reshape(2, *SHAPE).astype(float)


def taylor(*correlations: float, n: int = 16) -> xr.Dataset:
    """A result of taylor with a task for each correlation."""
    both = np.stack([halves_that_correlate(r) for r in correlations])
    data = {
        "contribution": (("task", "layer", "head"), both.mean(1)),
        "contribution_half": (("task", "half", "layer", "head"), both),
        "examples": ("task", [n] * len(both)),
    }
    return xr.Dataset(data, {"task": [f"t{i}" for i in range(len(both))]}, {"method": "taylor"})


def test_spearman_and_brown_agree_with_averages_of_noisy_maps() -> None:
    """A map of n examples is the truth plus noise / √n. The formula must give the number of copies for 0.8."""
    generator, heads = np.random.default_rng(0), 20_000
    truth = generator.normal(size=heads)

    def correlation(n: int) -> float:
        noisy = [truth + 3 * generator.normal(size=(n, heads)).mean(0) for _ in range(2)]
        return float(np.corrcoef(*noisy)[0, 1])

    once = correlation(1)
    assert once == pytest.approx(0.1, abs=0.02)
    assert spearman_brown(once, 2) == pytest.approx(correlation(2), abs=0.02)
    assert data_factor_needed(once, 0.8) == pytest.approx(36, rel=0.2)
    assert correlation(36) == pytest.approx(0.8, abs=0.02)
    assert spearman_brown(0.3, data_factor_needed(0.3, 0.8)) == pytest.approx(0.8)
    with pytest.raises(BadArgument, match="correlation is 0 and wanted is 0.8, expected both between 0 and 1"):
        data_factor_needed(0, 0.8)


def test_a_map_below_a_half_is_named_with_what_it_would_take() -> None:
    lines = stability_warnings({"taylor": taylor(0.2, 0.45, -0.3, 0.7)})
    assert lines == [
        "taylor: t0: 0.20 between halves of 16 examples; halves of about 260 would correlate at 0.8"
        " (headatlas taylor --limit)",
        "taylor: t1: 0.45 between halves of 16 examples; halves of about 79 would correlate at 0.8"
        " (headatlas taylor --limit)",
        "taylor: t2: -0.30 between halves of 16 examples; halves of more than 1,300 would correlate at 0.8"
        " (headatlas taylor --limit)",
    ]
    assert stability_warnings({"taylor": taylor(0.7)}) == []


def test_where_the_number_of_examples_is_not_known_none_is_told() -> None:
    assert stability_warnings({"taylor": taylor(0.2).drop_vars("examples")}) == [
        "taylor: t0: 0.20 between halves of the data"
    ]
    assert stability_warnings({"taylor": taylor(0.2).assign_attrs(imported="x")}) == []


def test_seeds_count_once_each() -> None:
    """The map is their mean: that of k seeds is stable to k·r / (1 + (k − 1)·r)."""
    gates = xr.DataArray(halves_that_correlate(0.3)[None], dims=("task", "seed", "layer", "head"))
    result = xr.Dataset({"facilitation": gates.assign_coords(task=["math"], seed=[0, 1])}, attrs={"method": "gate"})
    assert stability_warnings({"gate": result}) == [
        "gate: math: 0.30 between seeds; means over about 10 seeds would correlate at 0.8 (headatlas gate --seeds)"
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "n"),
    [
        ("taylor", {"tasks": tiny_task("a", 0), "limit": 3}, 3),
        ("influence", {"texts": ["w1 w2", "w3 w4 w5", "w6 w7"]}, 3),
        ("copying", {"texts": 4, "length": 6}, 4),
    ],
)
def test_results_know_how_many_examples_they_are_of(name, arguments, n) -> None:
    result = getattr(ha, name)(tiny_lm(), **arguments)
    measure = get_method(name).measures[0]
    halves = result[measure.repeats[0]]
    halves.loc[{"half": "second"}] = -halves.sel(half="first")
    line = stability_warnings({name: result})[0]
    assert f"-1.00 between halves of {n} examples; halves of more than" in line


def test_every_method_with_halves_says_how_to_ask_for_more() -> None:
    for name in method_names():
        method = get_method(name)
        for measure in method.measures:
            if measure.repeats and measure.repeats[1] == "half":
                assert measure.examples, name
                assert measure.examples[1] in method.options, name

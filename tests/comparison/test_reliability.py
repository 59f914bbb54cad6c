"""What a run says of maps that are not reliable."""

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.comparison import repeats
from headatlas.comparison.repeats import data_factor_needed, reliability_warnings
from headatlas.errors import BadArgument
from headatlas.evidence.reliability import spearman_brown
from headatlas.methods import get_method, measures_of, method_names
from headatlas.results.stored_reliability import reliability_note, with_reliability
from headatlas.testing import MethodCase, check_declaration, tiny_lm, tiny_task

SHAPE = (6, 8)


def halves_that_correlate(wanted: float) -> np.ndarray:
    """Two maps [half, layer, head] whose Spearman correlation is nearly `wanted`."""
    generator = np.random.default_rng(0)
    a = generator.permutation(48).astype(float)
    tries = (np.argsort(np.argsort(wanted * a + (1 - abs(wanted)) * generator.permutation(48))) for _ in range(4000))
    b = min(tries, key=lambda b: abs(np.corrcoef(a, b)[0, 1] - wanted))
    return np.stack([a, b]).reshape(2, *SHAPE).astype(float)


def taylor(*correlations: float, n: int = 16) -> xr.Dataset:
    """A result of taylor with a task for each correlation between halves of n examples."""
    dims = ("task", "layer", "head")
    data = {
        "contribution": (dims, np.zeros((len(correlations), *SHAPE))),
        "reliability": ("task", list(correlations), {"over": "example"}),
        "repeats": ("task", [n] * len(correlations), {"over": "example"}),
    }
    return xr.Dataset(data, {"task": [f"t{i}" for i in range(len(correlations))]}, {"method": "taylor"})


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


def test_a_map_below_0_8_is_named_with_what_it_would_take() -> None:
    lines = reliability_warnings({"taylor": taylor(0.2, 0.45, -0.3, 0.7, 0.8)})
    assert lines == [
        "taylor: t0: reliability 0.20 between halves of 16 examples; halves of about 260 would reach 0.8"
        " (headatlas taylor --limit)",
        "taylor: t1: reliability 0.45 between halves of 16 examples; halves of about 79 would reach 0.8"
        " (headatlas taylor --limit)",
        "taylor: t2: reliability -0.30 between halves of 16 examples; halves of more than 1,300 would reach 0.8"
        " (headatlas taylor --limit)",
        "taylor: t3: reliability 0.70 between halves of 16 examples; halves of about 28 would reach 0.8"
        " (headatlas taylor --limit)",
    ]


def test_no_measure_is_skipped(monkeypatch) -> None:
    """One without repeats, and one with a single repeat, are of unknown reliability."""
    weights = ha.Measure("size", over="function", repeats="it is read from the weights")
    monkeypatch.setattr(repeats, "measures_of", lambda name: (weights,) if name == "weights" else measures_of(name))
    gates = xr.DataArray(np.zeros((1, 1, *SHAPE)), dims=("task", "seed", "layer", "head"), coords={"task": ["math"]})
    gate = xr.Dataset({"facilitation": gates, "interference": gates}, attrs={"method": "gate"})
    size = xr.Dataset({"size": (("function", "layer", "head"), np.zeros((1, *SHAPE)))}, {"function": ["a"]})
    assert reliability_warnings({"gate": gate, "weights": size}) == [
        "gate, facilitation: reliability unknown",
        "gate, interference: reliability unknown",
        "weights: reliability unknown: it is read from the weights",
    ]
    some = taylor(0.9, np.nan)
    assert reliability_warnings({"taylor": some}) == ["taylor: t1: reliability unknown"]


def test_of_imported_maps_no_more_examples_are_asked_for() -> None:
    assert reliability_warnings({"taylor": taylor(0.2).assign_attrs(imported=1)}) == [
        "taylor: t0: reliability 0.20 between halves of 16 examples"
    ]


def test_seeds_are_counted() -> None:
    gates = xr.DataArray(halves_that_correlate(0.3)[None], dims=("task", "seed", "layer", "head"))
    gate = get_method("gate")
    result = xr.Dataset({"facilitation": gates.assign_coords(task=["math"], seed=[0, 1])}, attrs={"method": "gate"})
    assert reliability_warnings({"gate": with_reliability(result, gate.measures)}) == [
        "gate: math, facilitation: reliability 0.30 between halves of 2 seeds; halves of about 19 would reach 0.8"
        " (headatlas gate --seeds)"
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "n"),
    [
        ("taylor", {"tasks": tiny_task("a", 0), "limit": 3}, 3),
        ("pattern", {"sequences": 5}, 5),
    ],
)
def test_results_count_their_repeats(name, arguments, n) -> None:
    result = getattr(ha, name)(tiny_lm(), **arguments)
    assert result.repeats.values.tolist() == [n] * result.repeats.size
    assert not {"by_example", "by_text", "example", "text"} & {*result.variables, *result.dims}
    result.reliability[:] = 0.1
    assert f"reliability 0.10 between halves of {n} " in reliability_warnings({name: result})[0]


def test_the_whole_map_is_the_mean_of_its_repeats() -> None:
    """Reliability and standard errors are of the measure that is shown."""
    values = np.random.default_rng(0).normal(size=(2, 6, *SHAPE))
    # the second task has two examples fewer
    values[1, 4:] = np.nan
    result = xr.Dataset(
        {
            "contribution": (("task", "layer", "head"), np.nanmean(values, 1)),
            "by_example": (("task", "example", "layer", "head"), values),
        },
        {"task": ["a", "b"], "example": range(6)},
    )
    assessed = with_reliability(result, get_method("taylor").measures)
    assert assessed.repeats.values.tolist() == [6, 4]
    np.testing.assert_allclose(assessed.se.sel(task="b"), values[1, :4].std(0, ddof=1) / 2)
    assert set(assessed.coords) == {"task"}


def test_repeats_may_name_their_subject() -> None:
    """Then subjects may have any number of repeats; a head without a score is missing."""
    values = np.random.default_rng(0).random((7, *SHAPE)) < 0.3
    score = np.stack([values[:3].mean(0), values[3:].mean(0), np.full(SHAPE, np.nan)])
    score[:, 2] = np.nan
    dims = ("layer", "head")
    result = xr.Dataset(
        {
            **dict.fromkeys(("score", "suppression"), (("relation", *dims), score)),
            **{f"{name}_by_pair": (("pair", *dims), values) for name in ("score", "suppression")},
        },
        {"relation": ["a", "b", "c"], "repeat_of": ("pair", ["a"] * 3 + ["b"] * 4)},
    )
    assessed = with_reliability(result, get_method("maps").measures)
    assert assessed.repeats_score.values.tolist() == [3, 4, 0]
    assert assessed.repeats_score.attrs["over"] == "pair"
    assert "pair" not in {*assessed.dims, *assessed.coords}
    expected = values[3:].std(0, ddof=1) / 2
    expected[2] = np.nan
    np.testing.assert_allclose(assessed.se_suppression.sel(relation="b"), expected)
    assert assessed.se_score.sel(relation="c").isnull().all()


def test_the_note_of_a_map() -> None:
    assert [reliability_note(r) for r in (0.8, 0.79, -0.1, np.nan)] == [
        "",
        "reliability 0.79, below 0.8",
        "reliability -0.10, below 0.8",
        "reliability unknown",
    ]


def test_every_measure_with_examples_says_how_to_ask_for_more() -> None:
    for name in method_names():
        method = get_method(name)
        for measure in method.measures:
            if not isinstance(measure.repeats, str) and measure.repeats[1] not in ("seed", "refit", "pair"):
                assert measure.examples, name
                assert measure.examples[1] in method.options, name


def test_a_declaration_without_repeats_is_refused() -> None:
    @ha.method(title="t", measures=[ha.Measure("score", over="task", meaning="m")])
    def silent(lm):
        """Score nothing."""

    with pytest.raises(AssertionError, match="silent: measure score has no repeats: declare"):
        check_declaration(MethodCase(silent))

"""Which scores chance explains, of every method."""

import numpy as np
import pytest
import xarray as xr

from headatlas.methods._chance import (
    above_chance_text,
    at_chance,
    chance,
    members_above_chance,
    none_above,
    scale_level,
)
from headatlas.results.about import by_kv_group
from headatlas.results.charts import stack_maps
from tests.figures import synthetic


def test_maps_are_above_chance_beyond_the_level_of_their_relation() -> None:
    result = synthetic.with_chance(synthetic.maps(6, 8))
    flag = at_chance(result, "score")
    assert flag.dims == result.score.dims
    np.testing.assert_array_equal(flag, result.score <= result.chance)
    assert none_above(result, "score").values.tolist() == [False, True, *[False] * 6]
    np.testing.assert_array_equal(at_chance(result, "suppression"), result.suppression <= 0.1)


def test_a_probe_s_heads_must_clear_shuffled_labels() -> None:
    result = synthetic.probe(6, 8)
    np.testing.assert_array_equal(at_chance(result, "importance"), ~result.clears_control)
    assert chance(result, "importance").dims == ("function", "layer", "head")


@pytest.mark.parametrize("made", [synthetic.gate, synthetic.ablate, synthetic.maps])
def test_without_a_baseline_no_level_is_known(made) -> None:
    result = made(3, 4)
    for measure in ("score", "suppression", "facilitation", "contribution", "member"):
        assert chance(result, measure) is None
        assert at_chance(result, measure) is None
    charts = stack_maps({made.__name__: result})
    assert not charts.at_chance.any()
    assert not charts.none_above.any()
    assert charts.chance.isnull().all()


def test_maps_made_without_baselines_have_no_level() -> None:
    result = synthetic.with_chance(synthetic.maps(3, 4))
    result["chance"][:] = np.nan
    assert chance(result, "score") is None
    assert at_chance(result, "score") is None


def test_layers_without_heads_are_neither_above_nor_at_chance() -> None:
    result = synthetic.with_chance(synthetic.maps(6, 8))
    result["score"][:, 2] = np.nan
    assert not at_chance(result, "score")[:, 2].any()
    assert none_above(result, "score").values.tolist() == [False, True, *[False] * 6]


def test_charts_of_all_methods_know_their_level() -> None:
    made = {"maps": synthetic.with_chance(synthetic.maps(6, 8)), "gate": synthetic.gate(6, 8)}
    charts = stack_maps(made)
    assert charts.at_chance.dtype == bool
    chart_scores = charts.sel(chart="maps: relation_1, score")
    assert bool(chart_scores.none_above)
    np.testing.assert_allclose(chart_scores.chance, made["maps"].chance[1])


def test_methods_that_are_not_here_have_no_charts_and_no_level() -> None:
    result = synthetic.with_chance(synthetic.maps(6, 8)).assign_attrs(method="somebody_s")
    assert stack_maps({"somebody_s": result}).sizes["chart"] == 0
    assert at_chance(result, "score") is None


def test_heads_above_chance_in_words() -> None:
    score = np.array([[0.0512, np.nan], [0.01, 0.04]])
    levels = np.array([[0.0333, 0.0], [0.02, 0.05]])
    assert above_chance_text(score, levels, score <= levels) == "1 of 3 heads above chance"
    assert above_chance_text(score, 2 * levels, score <= 2 * levels) == "not above chance: best 0.051, chance 0.067"
    assert above_chance_text(score, np.full((2, 2), np.nan), score < 0) == ""


def test_the_level_of_a_scale_is_the_median() -> None:
    assert scale_level(None) == 0
    assert scale_level(xr.DataArray([0.1, np.nan, 0.2, 0.9])) == 0.2


def maps_with_members() -> xr.Dataset:
    """Two categories of two relations each. The second relation has heads over the threshold, but none above chance."""
    result = synthetic.with_chance(synthetic.maps(6, 8, ["Knowledge", "Linguistic"]))
    high = ((result.score >= 0.15) | (result.suppression >= 0.15)).values
    result["member"] = ("category", "layer", "head"), np.stack([high[:2].any(0), high[2:].any(0)])
    return result


def test_members_by_scores_at_chance_are_not_shown_and_the_file_is_left_alone() -> None:
    result = maps_with_members()
    shown = members_above_chance(result, result.member)
    first = (result.score[0] >= 0.15) | (result.suppression[:2] >= 0.15).any("relation")
    np.testing.assert_array_equal(shown[0], first)
    assert int(shown[0].sum()) < int(result.member[0].sum())
    np.testing.assert_array_equal(shown[1], result.member[1])  # its relations have levels below the threshold
    result["member_from_multi"] = ("category", [True, False])
    # multi-token pairs have no level of chance
    np.testing.assert_array_equal(members_above_chance(result, result.member), result.member)
    np.testing.assert_array_equal(
        members_above_chance(synthetic.maps(6, 8), synthetic.maps(6, 8).member), synthetic.maps(6, 8).member
    )


def test_a_group_is_above_chance_where_one_of_its_heads_is() -> None:
    result = maps_with_members().assign_attrs(n_kv_heads=4)
    grouped = by_kv_group(result)
    above = ~at_chance(result, "score")
    by_head = above.values.reshape(*above.shape[:2], 4, 2)
    np.testing.assert_array_equal(~at_chance(grouped, "score"), by_head.any(-1))
    assert none_above(grouped, "score").values.tolist() == [False, True, False, False]
    assert chance(grouped, "score") is None  # it is of single heads, not of their sums
    by_head = members_above_chance(result, result.member).values.reshape(2, 6, 4, 2)
    np.testing.assert_array_equal(members_above_chance(grouped, grouped.member), by_head.any(-1))

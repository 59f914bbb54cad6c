"""Queries of a finished atlas."""

import json
from pathlib import Path

import numpy as np
import pytest

import headatlas as ha
from headatlas.errors import BadArgument, BadFile
from headatlas.results import tables
from headatlas.results.store import load, save
from headatlas.results.stored_tests import with_outcomes
from tests.figures import synthetic
from tests.figures.made_tests import make_tests, with_tests
from tests.test_cli import headatlas


@pytest.fixture
def made(tmp_path) -> Path:
    """A folder of synthetic head maps."""
    for name, result in synthetic.atlas(12, 8).items():
        save(result, tmp_path / "made" / f"{name}.nc")
    return tmp_path / "made"


def test_a_folder_without_an_index_opens(made) -> None:
    opened = ha.open(made)
    assert set(opened.complete) == set(opened) == set(opened.results) == set(synthetic.atlas(1, 1))
    assert len(opened) == 6
    assert "12 × 8 heads" in repr(opened)
    assert opened["maps"].identical(load(made / "maps.nc"))
    with pytest.raises(BadArgument, match="method 'map' is not in this atlas, which has .* Did you mean 'maps'"):
        opened["map"]
    with pytest.raises(KeyError):
        opened["map"]
    with pytest.raises(BadFile, match="not an atlas"):
        ha.open(made.parent)


def test_heads_of_one_file(made, capsys) -> None:
    result = ha.open(made / "gate.nc").assign_attrs(n_kv_heads=4)
    save(result, made / "gate.nc")
    facilitation = result.facilitation.sel(task="math").mean("seed").values
    code, out, _ = headatlas(capsys, "heads", made / "gate.nc", "--function", "math", "--top", 1, "--json")
    assert code == 0
    first = json.loads(out)[0]
    assert first["value"] == pytest.approx(facilitation.max())
    code, out, _ = headatlas(capsys, "heads", made / "gate.nc", "--function", "math", "--by", "kv-group", "--json")
    assert code == 0
    assert json.loads(out)[0]["head"] == ha.open(made).heads("math", 1, method="gate", by="kv-group")["head"][0]


def test_heads_by_kv_group(made) -> None:
    atlas = ha.open(made)
    row = atlas.heads("math", 1, method="gate", by="kv-group").iloc[0]
    facilitation = load(made / "gate.nc").sel(task="math").facilitation.values  # [seed, layer, head]
    by_hand = np.stack([facilitation[:, :, 2 * g] + facilitation[:, :, 2 * g + 1] for g in range(4)], -1)
    layer, group = np.unravel_index(by_hand.mean(0).argmax(), (12, 4))
    assert row["head"] == f"L{layer}.G{group}"
    numbers = [by_hand[:, layer, group].mean(), by_hand[:, layer, group].min(), by_hand[:, layer, group].max()]
    assert [row["value"], row["low"], row["high"]] == pytest.approx(numbers)
    grouped = atlas.results_by("kv-group")
    np.testing.assert_allclose(grouped["gate"]["always"].sel(task="math"), by_hand.min(0))
    np.testing.assert_allclose(grouped["gate"]["any"].sel(task="math"), by_hand.max(0))
    assert set(grouped["probe"].data_vars) == {"importance", "clears_control", "above_chance_importance"}
    assert set(grouped["dissociate"].data_vars) == {"importance"}
    np.testing.assert_array_equal(grouped["maps"].best_head, load(made / "maps.nc").score.max(("layer", "head")))
    assert "salient" not in grouped
    with pytest.raises(BadArgument, match="by is 'layer', expected kv-group"):
        atlas.results_by("layer")


def test_heads_at_chance_have_no_rank() -> None:
    result = synthetic.with_chance(synthetic.maps(12, 8))
    rows = tables.heads({"maps": result}, "relation_1", 2)
    level = pytest.approx(float(result.chance[1]))
    assert [(r["rank"], r["at_chance"], r["chance"]) for r in rows[:2]] == [(None, True, level)] * 2
    assert [(r["rank"], r["at_chance"]) for r in rows[2:]] == [(1, False), (2, False)]  # suppression
    assert [r["rank"] for r in tables.heads_in_words(rows)] == ["at chance", "at chance", 1, 2]
    evidence = {r["subject"]: r for r in tables.evidence({"maps": result})}
    assert "relation_1" not in evidence
    assert evidence["relation_0"]["chance"] == pytest.approx(0.1)
    assert tables.warnings({"maps": result}) == ["maps: no head above chance for relation_1"]


def test_relations_below_the_threshold_are_not_listed() -> None:
    result = synthetic.maps(12, 8)
    result["score"][2] = result.score[2] * 0.1 / result.score[2].max()
    subjects = [r["subject"] for r in tables.evidence({"maps": result})]
    assert subjects == [f"relation_{i}" for i in range(8) if i != 2]


def test_functions_at_chance_keep_their_test_but_name_no_heads(made) -> None:
    results = with_tests(ha.open(made).results)
    results["probe"]["clears_control"][:] = False
    rows = {(r["method"], r["subject"]): r for r in tables.evidence_in_words(tables.evidence(results))}
    row = rows["probe", "Knowledge Recall"]
    assert (row["top heads"], row["outcome"]) == ("no head above chance", "supported, p 0.014, 4 heads")
    words = "probe: no function has a head above chance in this model: none of 96 heads clear what shuffled labels give"
    assert tables.warnings({"probe": results["probe"]}) == [words]


def test_heads_above_chance_are_named_though_others_score_higher(made) -> None:
    probe = ha.open(made).results["probe"]
    order = probe.importance.sel(function="Inference").values.ravel().argsort()[::-1]
    fifth, tenth = (divmod(int(i), 8) for i in order[[4, 9]])
    probe["clears_control"][:] = False
    for layer, head in (fifth, tenth):
        probe["clears_control"].loc["Inference", layer, head] = True
    rows = {r["subject"]: r for r in tables.evidence({"probe": probe})}
    expected = [f"L{layer}.H{head}" for layer, head in (fifth, tenth)]
    assert [h["head"] for h in rows["Inference"]["top_heads"]] == expected
    assert all(h["at_chance"] for h in rows["Retrieval"]["top_heads"])


def test_all_top_heads_with_their_tests(made) -> None:
    results = with_tests(ha.open(made).results)
    rows = {(r["method"], r["subject"]): r for r in tables.evidence(results)}
    row = rows["probe", "Knowledge Recall"]
    result = results["probe"].sel(function="Knowledge Recall")
    assert (row["heads"], row["outcome"], row["accuracy"]) == (4, "supported", 0.6)
    assert (row["change"], row["accuracy_after"]) == pytest.approx((-1.2, 0.36))
    assert row["beyond"] == pytest.approx(row["change"] - row["random"])
    assert row["low"] < row["beyond"] < row["high"] < 0
    assert row["top_heads"][0]["value"] == pytest.approx(float(result.importance.max()))
    assert len(row["top_heads"]) == 3
    cannot = rows["probe", "Decision-making"]
    assert (cannot["outcome"], cannot["accuracy"], cannot["change"], cannot["p"]) == ("no ability", 0.13, None, None)
    (words,) = (r for r in tables.evidence_in_words([row]))
    assert (words["right"], words["log P"], words["outcome"]) == ("60 % → 36 %", "-1.20", "supported, p 0.014, 4 heads")


def test_maps_that_are_not_tested_say_so_and_tests_of_other_measures_are_listed(made) -> None:
    gate = ha.open(made).results["gate"]
    tests = make_tests({"gate": gate})
    tests["map_measure"] = "test", ["facilitation", "interference"]
    rows = {(r["measure"], r["subject"]): r for r in tables.evidence(with_outcomes({"gate": gate}, tests))}
    assert list(rows) == [("facilitation", "math"), ("facilitation", "syntax"), ("interference", "syntax")]
    untested = rows["facilitation", "syntax"]
    assert (untested["outcome"], untested["change"], untested["heads"]) == ("not tested", None, None)
    table = tables.evidence_in_words(list(rows.values()))
    assert [row["method"] for row in table] == ["gate", "gate", "gate, interference"]
    assert [row["outcome"] for row in table] == ["supported, p 0.01, 4 heads", "-", "not supported, p 0.4, 4 heads"]
    assert set(tables.evidence_in_words(tables.evidence({"gate": gate}))[0]) == {
        "method",
        "subject",
        "top heads",
        "reliability",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"function": "Maths calculation"}, "Did you mean"),
        ({"function": "Retrieval", "method": "gate"}, "expected one of those with 'Retrieval': .*probe"),
        ({"function": "Retrieval", "top": 0}, "top is 0"),
        ({"function": 3}, "function is 3"),
        ({}, "function is '', expected one of"),
    ],
)
def test_wrong_arguments_of_heads(made, arguments, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.open(made).heads(**arguments)

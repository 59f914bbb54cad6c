"""Queries of a finished atlas."""

import json
from pathlib import Path

import numpy as np
import pytest

import headatlas as ha
from headatlas.errors import BadArgument, BadFile
from headatlas.results import tables
from headatlas.results.store import load, save
from tests.figures import synthetic
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
    assert len(opened) == 7
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
    grouped = atlas.by("kv-group")
    np.testing.assert_allclose(grouped["gate"]["always"].sel(task="math"), by_hand.min(0))
    np.testing.assert_allclose(grouped["gate"]["any"].sel(task="math"), by_hand.max(0))
    assert set(grouped["probe"].data_vars) == {"importance", "clears_control", "above_chance_importance"}
    dissociate = grouped["dissociate"]
    assert {"importance", "selected", "proven", "verdict"} <= set(dissociate)
    assert not {"effect", "p", "random_effect", "baseline"} & set(dissociate)
    np.testing.assert_array_equal(grouped["maps"].best_head, load(made / "maps.nc").score.max(("layer", "head")))
    assert "salient" not in grouped
    with pytest.raises(BadArgument, match="by is 'layer', expected kv-group"):
        atlas.by("layer")


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


def test_functions_at_chance_keep_their_proof_but_name_no_heads(made) -> None:
    results = ha.open(made).results
    results["probe"]["clears_control"][:] = False
    rows = {(r["method"], r["subject"]): r for r in tables.evidence_in_words(tables.evidence(results))}
    row = rows["probe", "Inference"]
    assert (row["top heads"], row["removed"]) == ("no head above chance", "top 7")
    assert sum(r["top heads"] == "not supported" for r in rows.values() if r["method"] == "dissociate") == 2
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


def test_all_top_heads_with_their_evidence(made) -> None:
    rows = {(r["method"], r["subject"]): r for r in tables.evidence(ha.open(made).results)}
    row = rows["probe", "Inference"]
    result = load(made / "probe.nc").sel(function="Inference", measure="log_p")
    assert (row["removed"], row["of"]) == (7, "log P")  # three are too few for a test
    assert row["change"] == pytest.approx(float(result.effect[1]))
    assert row["random"] == pytest.approx(float(result.random_effect[1].mean()))
    assert row["p"] == pytest.approx(float(result.p[1]))
    assert row["top_heads"][0]["value"] == pytest.approx(float(result.importance.max()))
    assert len(row["top_heads"]) == 3
    gate = load(made / "gate.nc").sel(task="math", role="facilitation")
    row = rows["gate", "math"]
    assert (row["removed"], row["of"]) == (4, "log P")
    assert (row["change"], row["p"]) == pytest.approx((float(gate.effect[0]), float(gate.p[0])))
    dissociate = load(made / "dissociate.nc")
    row = rows["dissociate", str(dissociate.function.values[0])]
    assert (row["removed"], row["of"], row["p"]) == (8, "log P per token", pytest.approx(0.02))
    assert (row["change"], row["random"]) == pytest.approx(
        (float(dissociate.effect[0]), float(dissociate.random_effect[0].mean()))
    )
    without = rows["dissociate", str(dissociate.function.values[1])]
    assert {without[k] for k in ("removed", "of", "change", "random", "p")} == {None}
    assert rows["ablate", "math"]["removed"] is None


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

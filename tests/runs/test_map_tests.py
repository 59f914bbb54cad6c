"""The tests of the maps of a run: made once, kept, corrected together, and made again where a map has changed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.evidence.decide import NO_ABILITY, NOT_SUPPORTED, SUPPORTED, UNDECIDED, decide
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.evidence.heads_test import TEST_VARIABLES
from headatlas.methods import get_method
from headatlas.results.stored_tests import TESTS
from headatlas.runs import map_tests
from headatlas.runs.map_tests import plan_tests
from headatlas.runs.plan import Plan
from headatlas.runs.run import compute
from headatlas.runs.where import Where
from headatlas.runs.worker import ModelWorker
from headatlas.tasks.used import Used, row_id
from tests.evidence.planted import FIRST, OWN, SECOND, planted, rows_of

OPTIONS = {"limit": 8}


@pytest.fixture(scope="module")
def lm() -> ha.LM:
    return planted()


FEW = {"prompts": 16, "draws": 39, "max_subjects": 4, "max_others": 2, "other_prompts": 12}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch) -> None:
    monkeypatch.setitem(map_tests.PRESETS, "quick", FEW)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> list[Path]:
    """Three task files: two that the model can do, and one that it cannot."""
    folder = tmp_path_factory.mktemp("tasks")
    subjects = {"first": rows_of(FIRST), "second": rows_of(SECOND), "other": rows_of(FIRST, shift=1)}
    for name, rows in subjects.items():
        lines = [json.dumps({"prompt": list(row.prompt), "target": list(row.target)}) for row in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return [folder / f"{name}.jsonl" for name in subjects]


def compute_tested(lm, files, out, method: str = "taylor", **options) -> xr.Dataset:
    return compute(get_method(method), lm, {"tasks": files, **OPTIONS, **options}, out=out, tests=True)


def count_tests(monkeypatch) -> list[str]:
    """Return a list that grows by the subject of every test that is made."""
    made: list[str] = []
    run_test = map_tests.run_test

    def counted(removal, heads, prompts, *arguments, **options):
        made.append(prompts.subject)
        return run_test(removal, heads, prompts, *arguments, **options)

    monkeypatch.setattr(map_tests, "run_test", counted)
    return made


def test_a_run_tests_its_maps_once(lm, files, tmp_path, monkeypatch) -> None:
    made = count_tests(monkeypatch)
    result = compute_tested(lm, files, tmp_path)
    assert sorted(made) == ["first", "other", "second"]
    atlas = ha.open(tmp_path)
    tests = atlas.tests
    assert tests.test.values.tolist() == [f"taylor: contribution: {name}" for name in ("first", "second", "other")]
    assert tests.outcome.values.tolist() == [SUPPORTED, SUPPORTED, NO_ABILITY]
    assert np.argwhere(tests.selected[0].values).tolist() == [list(head) for head in OWN]
    assert set(TEST_VARIABLES) <= set(tests.variables)
    assert all(tests[name].attrs["description"] for name in tests.data_vars)
    assert tests.attrs["fingerprint"] == lm.fingerprint()
    for shown in (result, atlas["taylor"], atlas.results["taylor"]):
        by_subject = shown.sel(tested_measure="contribution", task="first")
        assert by_subject.tested_outcome.item() == SUPPORTED
        # the heads also change the answers to `other`, which has the same words
        assert by_subject.tested_selective.item() == NOT_SUPPORTED
        assert by_subject.tested_accuracy.item() == 1
        assert by_subject.tested_p.item() == pytest.approx(tests.p_corrected[0].item())
        assert by_subject.tested_effect.item() == pytest.approx(tests.effect[0, 0, 0].item())
        assert by_subject.tested_random.item() == pytest.approx(tests.random_effect[0, 0, :, 0].mean().item())
        np.testing.assert_array_equal(by_subject.tested_heads, tests.selected[0])
    assert atlas.info["tests"]["complete"]
    assert "tests" not in atlas.complete

    before = (tmp_path / f"{TESTS}.nc").read_bytes()
    again = compute_tested(lm, files, tmp_path)
    assert len(made) == 3
    assert (tmp_path / f"{TESTS}.nc").read_bytes() == before
    xr.testing.assert_identical(again, result)
    assert ha.open(tmp_path).info["tests"] == atlas.info["tests"]
    # without tests, a later run keeps them
    compute(get_method("taylor"), lm, {"tasks": files, **OPTIONS}, out=tmp_path)
    assert ha.open(tmp_path).info["tests"] == atlas.info["tests"]
    assert len(made) == 3


def test_outcomes_are_returned_where_nothing_is_kept(lm, files) -> None:
    result = compute_tested(lm, files[:2], None)
    assert result.tested_outcome.values.tolist() == [[SUPPORTED, SUPPORTED]]
    assert result.tested_selective.values.tolist() == [[SUPPORTED, SUPPORTED]]


def test_a_method_that_is_added_is_tested_and_p_is_corrected_over_all(lm, files, tmp_path, monkeypatch) -> None:
    compute_tested(lm, files, tmp_path)
    alone = ha.open(tmp_path).tests
    made = count_tests(monkeypatch)
    compute_tested(lm, files[:2], tmp_path, "ablate")
    assert sorted(made) == ["first", "second"]
    both = ha.open(tmp_path).tests
    kept = both.isel(test=both.method.values == "taylor")
    assert kept.test.values.tolist() == alone.test.values.tolist()
    assert both.sizes["test"] == 5
    for name in ("effect", "random_effect", "p_measure", "example_effect", "selected", "test_key"):
        np.testing.assert_array_equal(kept[name], alone[name])
    np.testing.assert_array_equal(both.p_corrected, decide(both).p_corrected)
    p = both.p.values[np.isfinite(both.p)]
    assert len(p) == 4
    worst = both.p_corrected.values[np.nanargmax(both.p.values)]
    assert worst == pytest.approx(p.max())
    assert ha.open(tmp_path)["taylor"].tested_outcome.values.tolist() == [[SUPPORTED, SUPPORTED, NO_ABILITY]]


def test_a_map_that_is_made_again_loses_its_test_and_is_tested_again(lm, files, tmp_path, monkeypatch) -> None:
    compute_tested(lm, files[:2], tmp_path)
    compute_tested(lm, files[:1], tmp_path, "ablate")
    result = compute(get_method("taylor"), lm, {"tasks": files[:2], "limit": 6}, out=tmp_path)
    assert "tested_outcome" not in result
    atlas = ha.open(tmp_path)
    assert "tested_outcome" not in atlas["taylor"]
    assert atlas["ablate"].tested_outcome.values.tolist() == [[SUPPORTED]]
    assert atlas.tests.method.values.tolist() == ["ablate"]
    made = count_tests(monkeypatch)
    compute_tested(lm, files[:2], tmp_path, limit=6)
    assert sorted(made) == ["first", "second"]
    assert sorted(ha.open(tmp_path).tests.method.values.tolist()) == ["ablate", "taylor", "taylor"]


def test_other_settings_of_the_tests_make_them_again(lm, files, tmp_path, monkeypatch) -> None:
    compute_tested(lm, files[:1], tmp_path)
    made = count_tests(monkeypatch)
    monkeypatch.setitem(map_tests.PRESETS, "quick", FEW | {"prompts": 12})
    compute_tested(lm, files[:1], tmp_path)
    assert made == ["first"]
    assert ha.open(tmp_path).tests.prompts.item() == 12


class Interrupted(BaseException):
    pass


def test_an_interrupted_run_resumes_without_repeating(lm, files, tmp_path, monkeypatch) -> None:
    whole = compute_tested(lm, files, tmp_path / "whole")
    made = count_tests(monkeypatch)
    run_counted = map_tests.run_test

    def interrupted(*arguments, **options):
        if len(made) == 2:
            raise Interrupted
        return run_counted(*arguments, **options)

    monkeypatch.setattr(map_tests, "run_test", interrupted)
    with pytest.raises(Interrupted):
        compute_tested(lm, files, tmp_path / "part")
    assert made == ["first", "second"]
    assert ha.open(tmp_path / "part").tests is None
    monkeypatch.setattr(map_tests, "run_test", run_counted)
    resumed = compute_tested(lm, files, tmp_path / "part")
    assert made == ["first", "second", "other"]
    xr.testing.assert_allclose(resumed.tested_effect, whole.tested_effect)
    assert not (tmp_path / "part" / f".{TESTS}").exists()


def test_damaged_tests_are_made_again(lm, files, tmp_path, monkeypatch) -> None:
    compute_tested(lm, files[:1], tmp_path)
    (tmp_path / f"{TESTS}.nc").write_bytes(b"damaged")
    made = count_tests(monkeypatch)
    assert compute_tested(lm, files[:1], tmp_path).tested_outcome.values.tolist() == [[SUPPORTED]]
    assert made == ["first"]


def planned(lm, files, method: str = "taylor", **options) -> Plan:
    selected = [(get_method(method), {"tasks": files, **OPTIONS, **options})]
    plan = ModelWorker(lm, Where()).plan(selected).plans[method]
    assert isinstance(plan, Plan)
    return plan


def test_rows_that_made_a_map_are_not_tested(lm, files) -> None:
    plan = planned(lm, files[:1])
    rows = {row_id(row): row for row in rows_of(FIRST)}
    assert len(plan.work.used.rows & rows.keys()) == 8
    prompts = load_prompts(lm, plan.work.subjects["first"], plan.work.used, 100)
    assert len(prompts) == len(rows) - 8
    used = {tuple(rows[i].prompt) for i in plan.work.used.rows}
    assert not used & {example.prompt for example in prompts.examples}
    every = load_prompts(lm, plan.work.subjects["first"], Used(), 100)
    assert len(every) == len(rows)
    assert used <= {example.prompt for example in every.examples}


def test_a_map_whose_rows_are_not_recorded_is_undecided(lm, files) -> None:
    prompts = load_prompts(lm, planned(lm, files).work.subjects["first"], None, 24)
    assert not len(prompts)
    assert "does not record the rows" in prompts.missing


def test_a_map_of_most_rows_is_undecided_and_says_why(lm, tmp_path) -> None:
    rows = rows_of(FIRST)[:12]
    lines = [json.dumps({"prompt": list(row.prompt), "target": list(row.target)}) for row in rows]
    file = tmp_path / "short.jsonl"
    file.write_text("\n".join([*lines[:5], *[line.replace("}", ', "split": "held_out"}') for line in lines[5:]]]))
    result = compute_tested(lm, [file], tmp_path / "atlas", limit=7)
    assert result.tested_outcome.values.tolist() == [[UNDECIDED]]
    assert result.tested_reason.item().startswith("5 of 12 rows were not used for the map, a test needs at least 8")


def test_a_result_of_other_settings_is_not_tested(lm, files, tmp_path) -> None:
    """It is in the folder because the run that should make it again has failed."""
    compute(get_method("taylor"), lm, {"tasks": files[:1], **OPTIONS}, out=tmp_path)
    results = ha.open(tmp_path).results
    same, other = planned(lm, files[:1]), planned(lm, files[:1], limit=6)
    assert plan_tests(results, {"taylor": same}, "quick") is not None
    assert plan_tests(results, {"taylor": other}, "quick") is None
    assert plan_tests({}, {"taylor": same}, "quick") is None


def test_maps_that_were_read_from_disk_are_tested_in_memory(lm, files, tmp_path) -> None:
    """On disk the model may be of another precision, with another fingerprint."""
    compute(get_method("taylor"), lm, {"tasks": files[:1], **OPTIONS}, out=tmp_path)
    plan = planned(lm, files[:1])
    on_disk = replace(plan, stamp={**plan.stamp, "read_from": "disk", "fingerprint": "of the files"})
    results = {"taylor": ha.open(tmp_path)["taylor"].assign_attrs(key=on_disk.key)}
    tests = plan_tests(results, {"taylor": on_disk}, "quick")
    assert tests is not None
    assert tests.stamp["read_from"] == "memory"
    assert "fingerprint" not in tests.stamp
    assert tests.stamp["values_hash"] == plan.stamp["values_hash"]


def test_finished_tests_of_an_interrupted_run_stay_valid_if_a_method_is_added(lm, files, tmp_path) -> None:
    plans = {}
    for method in ("taylor", "ablate"):
        compute(get_method(method), lm, {"tasks": files[:2], **OPTIONS}, out=tmp_path)
        plans[method] = planned(lm, files[:2], method)
    results = ha.open(tmp_path).results
    alone = plan_tests(results, {"taylor": plans["taylor"]}, "quick")
    both = plan_tests(results, plans, "quick")
    assert alone is not None
    assert both is not None
    # the arrays of parts are found by their names, in a folder that belongs to the stamp
    assert alone.stamp == both.stamp
    assert alone.key != both.key
    outputs = [{output for part in plan.work.parts for output in part.outputs} for plan in (alone, both)]
    assert outputs[0] < outputs[1]

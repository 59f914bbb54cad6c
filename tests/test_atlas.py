"""The whole flow: planned, resumed, never done twice, killed at any moment; and queries of a finished atlas."""

import json
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock

import headatlas as ha
from headatlas.errors import BadArgument, BadFile, CannotDo
from headatlas.models.lm import LM
from headatlas.results.store import load, save
from headatlas.runs.selection import select_methods
from headatlas.runs.where import Where
from headatlas.runs.worker import ModelWorker
from tests.figures import synthetic
from tests.figures.made_tests import make_tests
from tests.models.tiny import TINY, build, tokenizer
from tests.plugins.small_figures import draw_small
from tests.test_cli import headatlas

QUICK = ["salient", "pattern", "taylor"]


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(TINY[0]), tokenizer(), "tiny")


@pytest.fixture
def made(tmp_path) -> Path:
    """A folder of synthetic head maps."""
    for name, result in synthetic.atlas(12, 8).items():
        save(result, tmp_path / "made" / f"{name}.nc")
    return tmp_path / "made"


def states(lm: LM, out: Path, methods: list[str], preset: str = "quick") -> dict[str, str]:
    planned = ModelWorker(lm, Where()).plan(select_methods(preset, methods))
    return {name: plan.state(out) for name, plan in planned.possible.items()}


def run(lm: LM, out: Path, methods: list[str], **options) -> ha.Atlas:
    """Without figures, which take longest."""
    return ha.run(lm, out, methods=methods, tests=False, draw=False, **options)


def written(folder: Path) -> dict[str, int]:
    """When each file was written."""
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


class TestRun:
    def test_a_finished_part_is_not_computed_or_drawn_again(self, lm, tmp_path) -> None:
        first = ha.run(lm, tmp_path, methods=QUICK)
        assert states(lm, tmp_path, QUICK) == dict.fromkeys(QUICK, "done")
        before = {name: time for name, time in written(tmp_path).items() if name not in ("atlas.json", ".lock")}
        assert ha.run(lm, tmp_path, methods=QUICK).info["methods"] == first.info["methods"]
        assert {name: written(tmp_path)[name] for name in before} == before

    def test_a_changed_setting_recomputes_only_what_depends_on_it(self, lm, tmp_path) -> None:
        run(lm, tmp_path, QUICK)
        before = {name: (tmp_path / f"{name}.nc").stat().st_mtime_ns for name in QUICK}
        assert states(lm, tmp_path, QUICK, "full") == {"salient": "done", "pattern": "done", "taylor": "to do"}
        run(lm, tmp_path, QUICK, preset="full")  # taylor asks more there
        changed = [name for name in QUICK if (tmp_path / f"{name}.nc").stat().st_mtime_ns != before[name]]
        assert changed == ["taylor"]

    @pytest.mark.parametrize("name", ["tiny", "other"])
    def test_a_folder_holds_one_model_whatever_it_is_called(self, lm, tmp_path, name) -> None:
        run(lm, tmp_path, ["pattern", "taylor"])
        other = LM(build(TINY[0]), tokenizer(), name)
        other.model.get_input_embeddings().weight.data.mul_(1.5)
        with pytest.raises(BadArgument, match="pattern.nc is of another model .*give another folder"):
            run(other, tmp_path, ["pattern"])
        with pytest.raises(BadArgument, match="give another folder"):
            ha.pattern(other, out=tmp_path)
        assert ha.open(tmp_path).info["model"]["fingerprint"] == lm.fingerprint()

    def test_one_model_may_be_read_from_disk_and_from_memory(self, folder, tmp_path) -> None:
        ha.salient(folder, out=tmp_path / "both")
        model = LM(build(TINY[0]).float(), tokenizer(), "in memory")
        ha.pattern(model, out=tmp_path / "both")
        assert set(ha.open(tmp_path / "both")) == {"pattern", "salient"}

    def test_another_configuration_or_tokenizer_is_another_result(self, tmp_path) -> None:
        same, turned, renamed, spoken = (LM(build(TINY[0]), tokenizer(), "tiny") for _ in range(4))
        run(same, tmp_path, ["pattern"])
        turned.model.config.rope_parameters = {"rope_theta": 10.0, "rope_type": "default"}
        renamed.tokenizer.add_tokens(["one more"])
        spoken.tokenizer.chat_template = "{{ messages }}"
        for other in (turned, renamed, spoken):
            assert states(other, tmp_path, ["pattern"]) == {"pattern": "to do"}
        same.tokenizer(["a", "b c"], padding=True, truncation=True, max_length=2)  # use does not change it
        assert states(same, tmp_path, ["pattern"]) == {"pattern": "done"}

    def test_figures_are_restored_and_those_of_what_is_gone_removed(self, lm, tmp_path) -> None:
        ha.run(lm, tmp_path, methods=["pattern", "taylor"])
        drawn = {p.name for p in (tmp_path / "figures").iterdir()}
        shutil.rmtree(tmp_path / "figures")
        ha.run(lm, tmp_path, methods=["pattern", "taylor"])
        assert {p.name for p in (tmp_path / "figures").iterdir()} == drawn
        (tmp_path / "taylor.nc").unlink()
        ha.run(lm, tmp_path, methods=["pattern"])
        left = {p.name for p in (tmp_path / "figures").iterdir()}
        assert "importance-pattern.png" in left
        assert not [name for name in left if "taylor" in name]

    def test_files_that_are_not_ours_are_left_alone(self, lm, tmp_path) -> None:
        for place in (tmp_path / ".mine.part", tmp_path / "sub" / ".x.headatlas-part"):
            place.parent.mkdir(exist_ok=True)
            place.write_text("precious")
        (tmp_path / ".pattern.nc.abc.headatlas-part").write_text("half")
        run(lm, tmp_path, ["pattern"])
        assert (tmp_path / ".mine.part").is_file()
        assert (tmp_path / "sub" / ".x.headatlas-part").is_file()
        assert not (tmp_path / ".pattern.nc.abc.headatlas-part").exists()

    def test_another_method_s_damaged_file_is_told_before_any_work(self, lm, tmp_path) -> None:
        (tmp_path / "gate.nc").write_bytes(b"not netCDF")
        with pytest.raises(BadFile, match="cannot read .*gate.nc"):
            run(lm, tmp_path, ["pattern"])
        assert not (tmp_path / "pattern.nc").exists()

    def test_what_was_asked_and_failed_ends_with_1(self, capsys, folder, tmp_path) -> None:
        assert headatlas(capsys, "run", folder, "--out", tmp_path / "a", "--methods", "pattern")[0] == 0
        code, out, _ = headatlas(capsys, "run", folder, "--out", tmp_path / "a", "--methods", "pattern,maps")
        assert (code, "maps failed" in out) == (1, True)
        assert "induction" in out
        assert out.splitlines()[-1].startswith("wrote pattern.nc, ")
        code, out, _ = headatlas(capsys, "run", folder, "--out", tmp_path / "b", "--methods", "maps")
        assert (code, "maps failed" in out) == (1, True)
        assert "Top heads and the tests of them" in out
        assert "): none\n" in out
        assert out.splitlines()[-1] == f"wrote 0 figures, {tmp_path / 'b' / 'report.html'}"
        code, out, _ = headatlas(capsys, "run", folder, "--out", tmp_path / "a", "--methods", "pattern")
        assert (code, "maps failed" in out) == (0, False)

    def test_methods_are_kept_between_runs(self, lm, tmp_path) -> None:
        run(lm, tmp_path, ["pattern"])
        made = run(lm, tmp_path, ["taylor"])
        assert list(made.info["methods"]) == ["pattern", "taylor"]
        assert set(made) == {"taylor", "pattern"}

    def test_the_second_of_two_runs_stops(self, lm, tmp_path) -> None:
        with FileLock(tmp_path / ".lock"), pytest.raises(CannotDo, match="another headatlas process is writing to"):
            run(lm, tmp_path, ["pattern"])
        with FileLock(tmp_path / ".lock"), pytest.raises(CannotDo, match="another headatlas process is writing to"):
            ha.pattern(lm, out=tmp_path)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"methods": ["map"]}, "methods: 'map' is not one of .* Did you mean 'maps'"),
            ({"methods": []}, "methods is empty"),
            ({"preset": "fast"}, "preset is 'fast', expected one of quick, full"),
            ({"functions": ["Maths"]}, "functions: 'Maths' is not one of Knowledge Recall"),
            ({"functions": ["Retrieval"], "methods": ["pattern"]}, "functions is given, but the methods are pattern"),
        ],
    )
    def test_what_is_asked_wrongly_is_told_before_any_work(self, lm, tmp_path, options, message) -> None:
        with pytest.raises(BadArgument, match=message):
            ha.run(lm, tmp_path, **options)
        assert not list(tmp_path.glob("*.nc"))

    def test_a_damaged_result_is_computed_again(self, lm, tmp_path) -> None:
        first = run(lm, tmp_path, ["pattern"])["pattern"]
        path = tmp_path / "pattern.nc"
        path.write_bytes(path.read_bytes()[:1000])
        assert states(lm, tmp_path, ["pattern"]) == {"pattern": "to do"}
        np.testing.assert_array_equal(run(lm, tmp_path, ["pattern"])["pattern"].score, first.score)


KILL_METHODS = ["pattern", "taylor", "gate"]


def lm_for_killing() -> LM:
    return LM(build(TINY[0]), tokenizer(), "tiny")


def run_until_killed(folder: Path, at: int, when: str, threads: int) -> None:
    """Run in a process that kills itself before or after it renames its at-th file."""
    torch.set_num_threads(threads)
    renamed, replace = 0, Path.replace

    def counted(self: Path, target: Path) -> Path:
        nonlocal renamed
        renamed += 1
        if renamed == at and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = replace(self, target)
        if renamed == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    draw_small()
    Path.replace = counted
    ha.run(lm_for_killing(), folder, methods=KILL_METHODS, tests=False)


def test_killed_at_any_moment_it_ends_with_the_same_files(tmp_path) -> None:
    """Killed just before or after files are renamed: index, parts, results, figures, page."""
    ha.run(lm_for_killing(), tmp_path / "undisturbed", methods=KILL_METHODS, tests=False)
    killed = tmp_path / "killed"
    processes = multiprocessing.get_context("forkserver")  # one process imports everything, the others are its copies
    processes.set_forkserver_preload([__name__, "headatlas.runs.run", "h5netcdf"])
    for at, when in ((1, "after"), (2, "before"), (4, "after"), (4, "before"), (7, "before"), (9, "after")):
        process = processes.Process(target=run_until_killed, args=(killed, at, when, torch.get_num_threads()))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert not (killed / "report.html").is_file() or 'http-equiv="refresh"' in (killed / "report.html").read_text()
    ha.run(lm_for_killing(), killed, methods=KILL_METHODS, tests=False)
    names = sorted(str(p.relative_to(killed)) for p in killed.rglob("*"))
    assert names == sorted(
        str(p.relative_to(killed.parent / "undisturbed")) for p in (tmp_path / "undisturbed").rglob("*")
    )
    for name in names:
        a, b = (_timeless(f / name) for f in (tmp_path / "undisturbed", killed))
        assert a == b, name


def _timeless(path: Path) -> bytes:
    """A file's bytes, without times and the folder's own name."""
    if path.is_dir():
        return b""
    if path.suffix in (".json", ".html", ".txt"):
        timed = r"\d{4}-\d\d-\d\dT[\d:+]+|\"seconds\": ?[\d.e-]+|\"key\": ?\"\w+\"|\"pictures\": \{[^}]*\}"
        return re.sub(timed, "", path.read_text()).encode()
    return path.read_bytes()


class TestAsking:
    def test_heads_of_a_function_as_table_json_and_csv(self, capsys, made) -> None:
        code, table, _ = headatlas(capsys, "heads", made, "--function", "math calculation", "--top", 3)
        assert code == 0
        assert table.count("importance") == 3
        _, text, _ = headatlas(capsys, "heads", made, "--function", "Math Calculation", "--top", 3, "--json")
        rows = json.loads(text)
        result = load(made / "probe.nc").sel(function="Math Calculation")
        best = result.importance.values.max()
        assert rows[0]["value"] == pytest.approx(best)
        assert rows[0]["low"] == pytest.approx(0.7 * best)
        assert [r["rank"] for r in rows] == [1, 2, 3]
        assert not any(r["at_chance"] for r in rows)
        _, text, _ = headatlas(capsys, "heads", made, "--function", "Math Calculation", "--top", 3, "--csv")
        assert text.splitlines()[0] == "method,measure,rank,head,value,low,high,at_chance,chance,reliability"
        assert len(text.splitlines()) == 4

    def test_heads_by_kv_group(self, capsys, made) -> None:
        options = ["--function", "math", "--method", "gate", "--by", "kv-group", "--json", "--top", 1]
        row = json.loads(headatlas(capsys, "heads", made, *options)[1])[0]
        facilitation = load(made / "gate.nc").sel(task="math").facilitation.values  # [seed, layer, head]
        by_hand = np.stack([facilitation[:, :, 2 * g] + facilitation[:, :, 2 * g + 1] for g in range(4)], -1)
        layer, group = np.unravel_index(by_hand.mean(0).argmax(), (12, 4))
        assert row["head"] == f"L{layer}.G{group}"
        numbers = [by_hand[:, layer, group].mean(), by_hand[:, layer, group].min(), by_hand[:, layer, group].max()]
        assert [row["value"], row["low"], row["high"]] == pytest.approx(numbers)
        code, _, err = headatlas(capsys, "heads", made, "--by", "layer")
        assert code == 2
        assert "--by is 'layer', expected one of kv-group" in err

    def test_heads_at_chance_have_no_rank(self, capsys, tmp_path) -> None:
        result = synthetic.with_chance(synthetic.maps(12, 8))
        save(result, tmp_path / "maps.nc")
        command = ["heads", tmp_path, "--function", "relation_1", "--top", 2]
        rows = json.loads(headatlas(capsys, *command, "--json")[1])
        level = pytest.approx(float(result.chance[1]))
        assert [(r["rank"], r["at_chance"], r["chance"]) for r in rows[:2]] == [(None, True, level)] * 2
        assert [(r["rank"], r["at_chance"]) for r in rows[2:]] == [(1, False), (2, False)]  # suppression
        table = headatlas(capsys, *command)[1]
        assert table.count("at chance") == 2
        evidence = {r["subject"]: r for r in json.loads(headatlas(capsys, "heads", tmp_path, "--json")[1])}
        assert "relation_1" not in evidence
        assert evidence["relation_0"]["chance"] == pytest.approx(0.1)

    def test_functions_at_chance_keep_their_test_but_name_no_heads(self, capsys, made) -> None:
        result = load(made / "probe.nc")
        result["clears_control"][:] = False
        save(result, made / "probe.nc")
        save(make_tests(ha.open(made).results), made / "tests.nc")
        _, table, _ = headatlas(capsys, "heads", made)
        lines = [line for line in table.splitlines() if line.startswith("probe")]
        assert all("no head above chance" in line for line in lines)
        assert "supported, p 0.0" in lines[0]
        rows = json.loads(headatlas(capsys, "heads", made, "--json")[1])
        assert {row["outcome"] for row in rows} == {"supported", "not supported", "undecided", "no ability"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["heads", "DIR", "--function", "Maths calculation"], "Did you mean"),
            (
                ["heads", "DIR", "--function", "Retrieval", "--method", "gate"],
                "expected one of those with 'Retrieval': dissociate, probe",
            ),
            (["heads", "DIR", "--top", "0"], "--top"),
            (["figures", "DIR", "--only", "heat"], "--only: 'heat' is not one of importance"),
            (["figures", "DIR", "--format", "jpg"], "--format: 'jpg' is not one of png"),
            (["figures", "DIR", "--palette", "rainbow"], "palette is 'rainbow'"),
            (["figures", "/no/such"], "DIR is '/no/such': no such folder"),
            (["report", "/no/such"], "DIR is '/no/such': no such folder"),
            (["compare", "DIR", "/no/such"], "ATLAS is '/no/such': no such folder"),
        ],
    )
    def test_asked_wrongly(self, capsys, made, arguments, message) -> None:
        code, _, err = headatlas(capsys, *(made if a == "DIR" else a for a in arguments))
        assert code == 2
        assert message in err
        assert len(err.splitlines()) == 1

    def test_figures_and_report_of_any_folder_of_maps(self, capsys, made) -> None:
        code, out, _ = headatlas(capsys, "figures", made, "--only", "categories", "--format", "svg")
        assert (code, out.strip()) == (0, str(made / "figures" / "categories.svg"))
        code, out, _ = headatlas(capsys, "figures", made, "--only", "importance", "--format", "png", "--by", "kv-group")
        assert f"{made / 'figures-kv-group' / 'importance-probe.png'}" in out
        code, out, _ = headatlas(capsys, "report", made)
        assert code == 0
        assert "L3.H5" not in (made / "report.html").read_text()[:2000]
        assert (made / "report.html").stat().st_size > 4_000_000  # the plotting library is inside

    def test_two_checkpoints_are_compared_head_by_head_and_other_models_by_depth(self, capsys, made, tmp_path) -> None:
        for name, other in synthetic.atlas(24, 4).items():
            save(other, tmp_path / "other" / f"{name}.nc")
        code, out, _ = headatlas(capsys, "compare", made, tmp_path / "other")
        assert code == 0
        assert "by relative depth: their numbers of layers or heads differ" in out
        rows = json.loads(headatlas(capsys, "compare", made, made, "--json")[1])
        assert rows[0]["spearman"] == pytest.approx(1)

    def test_a_head_card_from_the_command(self, capsys, folder, tmp_path) -> None:
        lm = ha.load(folder)
        run(lm, tmp_path / "atlas", ["taylor", "pattern"])
        card = tmp_path / "card.svg"
        arguments = ["head", folder, "L1.H3", "--atlas", tmp_path / "atlas", "--figure", card, "--tokens", 5]
        code, out, _ = headatlas(capsys, *arguments)
        assert code == 0
        assert "pattern: induction" in out
        assert card.read_text().startswith("<?xml")
        code, text, _ = headatlas(capsys, *arguments, "--json")
        assert {r["chart"] for r in json.loads(text)["standings"]} >= {"taylor: math", "pattern: induction"}
        other = build(TINY[0])
        other.get_input_embeddings().weight.data.mul_(2)
        other.save_pretrained(tmp_path / "other" / "tiny")
        tokenizer().save_pretrained(tmp_path / "other" / "tiny")
        code, _, err = headatlas(capsys, "head", tmp_path / "other" / "tiny", "L1.H3", "--atlas", tmp_path / "atlas")
        assert (code, "is of tiny, not of this tiny" in err) == (2, True)
        code, _, err = headatlas(capsys, "head", folder, "L1.H3", "--figure", tmp_path / "card")
        assert (code, "format has 'none'" in err) == (2, True)


SAME = '[{"function": 1, "layer": 0, "head": 0, "value": 1}, {"function": "1", "layer": 0, "head": 0, "value": 2}]'


class TestImport:
    @pytest.mark.parametrize("kind", ["csv", "json", "rows.json", "npy"])
    def test_importances_of_any_origin_are_drawn(self, capsys, tmp_path, kind) -> None:
        scores = synthetic.probe(5, 4)
        path = tmp_path / f"scores.{kind}"
        table = scores.importance.to_dataframe().reset_index()[["function", "layer", "head", "importance"]]
        if kind == "csv":
            table.to_csv(path, index=False)
        elif kind == "json":
            path.write_text(
                json.dumps({str(f): scores.importance.sel(function=f).values.tolist() for f in scores.function.values})
            )
        elif kind == "rows.json":
            path.write_text(table.to_json(orient="records", double_precision=15))
        else:
            np.save(path, scores.importance.values)
        code, out, err = headatlas(
            capsys, "import", path, "--as", "importance", "--out", tmp_path / "in", "--model", "theirs"
        )
        assert code == 0, err
        assert "5 layer, 4 head" in out or "8 function" in out
        stored = load(tmp_path / "in" / "probe.nc")
        np.testing.assert_allclose(stored.importance.sel(function=scores.function), scores.importance, rtol=1e-6)
        assert stored.attrs["model"] == "theirs"
        code, out, _ = headatlas(capsys, "figures", tmp_path / "in", "--format", "png")
        assert "importance-probe.png" in out
        code, _, err = headatlas(capsys, "import", path, "--as", "importance", "--out", tmp_path / "in")
        assert (code, "already has probe.nc" in err) == (2, True)

    def test_categories_and_gates(self, capsys, tmp_path) -> None:
        (tmp_path / "c.csv").write_text("category,layer,head\nKnowledge,2,1\nLinguistic,0,0\nKnowledge,0,0\n")
        code, _, err = headatlas(capsys, "import", tmp_path / "c.csv", "--as", "categories", "--out", tmp_path / "c")
        assert code == 0, err
        member = load(tmp_path / "c" / "maps.nc").member
        assert member.shape == (2, 3, 2)
        assert member.sel(category_name="Knowledge").values.sum() == 2
        assert bool(member.sel(category_name="Linguistic")[0, 0])
        rows = [f"math,{s},{layer},{h},{0.1 * s + 0.2 * h}" for s in (0, 1) for layer in (0, 1) for h in (0, 1, 2)]
        (tmp_path / "g.csv").write_text("task,seed,layer,head,facilitation\n" + "\n".join(rows))
        code, _, err = headatlas(capsys, "import", tmp_path / "g.csv", "--as", "gate", "--out", tmp_path / "g")
        assert code == 0, err
        gate = load(tmp_path / "g" / "gate.nc")
        np.testing.assert_allclose(gate["always"][0, 0], [0, 0.2, 0.4])
        np.testing.assert_allclose(gate["any"][0, 0], [0.1, 0.3, 0.5])
        for name in ("c", "g"):
            assert headatlas(capsys, "figures", tmp_path / name, "--format", "png")[0] == 0
            assert headatlas(capsys, "report", tmp_path / name)[0] == 0

    @pytest.mark.parametrize(
        ("name", "content", "kind", "message"),
        [
            (
                "a.csv",
                "function,layer,head,importance\nA,0,0,1\nA,0,0,2\n",
                "importance",
                "row 2: layer 0, head 0 occurs twice",
            ),
            ("a.csv", "function,layer,head,importance\nA,-1,0,1\n", "importance", "row 1: layer is -1"),
            ("a.csv", "function,layer,head,importance\nA,x,0,1\n", "importance", "row 1: layer is 'x'"),
            (
                "a.csv",
                "function,layer,head,importance\nA,0,0,much\n",
                "importance",
                "row 1: score is 'much', expected a finite number",
            ),
            (
                "a.csv",
                "function,layer,head,importance\nA,999999999,0,1\n",
                "importance",
                "row 1: layer is 999999999, expected a whole number from 0 to 9999",
            ),
            ("a.csv", "layer,head\n0,0\n", "importance", "lacks function, a value"),
            ("a.csv", "", "importance", "has no rows"),
            ("a.csv", "function,layer,head,importance\n", "importance", "has no rows"),
            ("a.csv", "function,layer,head,importance\n,0,0,1\n", "importance", "row 1: function is empty"),
            (
                "a.csv",
                "function,layer,head,importance\nA,0,0,inf\n",
                "importance",
                "row 1: score is inf, expected a finite number",
            ),
            ("a.json", '{"A": [[[1]]]}', "importance", "layer 0, head 0: score is [1]"),
            ("a.json", "[" * 100_000, "importance", "is nested too deeply"),
            ("a.json", SAME, "importance", "occurs twice"),
            ("a.json", "{", "importance", "is not JSON"),
            ("a.json", '{"A": [[1, 2], [3]]}', "importance", "layer 1 has 1 scores, but layer 0 has 2"),
            ("a.json", '{"A": [[1]], "B": [[1, 2]]}', "importance", "different sizes"),
            ("a.json", "{}", "importance", "expected an object of maps"),
            ("a.json", '{"math": {"interference": [[1]]}}', "gate", "every task needs a facilitation score"),
            ("a.json", '{"math": [[1]]}', "gate", "expected an object with facilitation"),
            ("a.txt", "", "importance", "expected a file that ends in .csv, .json, .npy"),
            ("a.csv", "", "scores", "--as is 'scores'"),
        ],
    )
    def test_bad_files_are_told_in_a_line(self, capsys, tmp_path, name, content, kind, message) -> None:
        (tmp_path / name).write_text(content)
        code, _, err = headatlas(capsys, "import", tmp_path / name, "--as", kind, "--out", tmp_path / "in")
        assert code in (1, 2)
        assert message in err
        assert len(err.splitlines()) == 1
        assert not list((tmp_path / "in").glob("*.nc"))

    def test_a_function_may_be_called_none_and_models_are_not_mixed(self, capsys, tmp_path) -> None:
        (tmp_path / "a.csv").write_text("function,layer,head,importance\nNone,0,0,1\nNA,0,1,1\n")
        assert headatlas(capsys, "import", tmp_path / "a.csv", "--as", "importance", "--out", tmp_path / "in")[0] == 0
        assert load(tmp_path / "in" / "probe.nc").function.values.tolist() == ["None", "NA"]
        (tmp_path / "c.csv").write_text("category,layer,head\nKnowledge,2,1\n")
        code, _, err = headatlas(capsys, "import", tmp_path / "c.csv", "--as", "categories", "--out", tmp_path / "in")
        assert (code, "imported scores of a with 1 × 2 heads, not imported scores of c with 3 × 2 heads" in err) == (
            2,
            True,
        )
        with pytest.raises(BadArgument, match="probe.nc is imported"):
            ha.pattern(lm_for_killing(), out=tmp_path / "in")
        np.save(tmp_path / "z.npy", np.ones((2, 2, 2), complex))
        code, _, err = headatlas(capsys, "import", tmp_path / "z.npy", "--as", "importance", "--out", tmp_path / "z")
        assert (code, "holds complex128" in err) == (1, True)

    def test_objects_may_have_seeds_and_missing_heads(self, tmp_path) -> None:
        path = tmp_path / "a.json"
        path.write_text(
            '{"math": {"facilitation": [[[0.5, null]], [[0.25, NaN]]]}, "aba": {"facilitation": [[[1, 0]], [[0, 1]]]}}'
        )
        result = ha.import_scores(path, kind="gate")
        assert result.facilitation.dims == ("task", "seed", "layer", "head")
        np.testing.assert_array_equal(result["any"].sel(task="math"), [[0.5, np.nan]])
        np.testing.assert_array_equal(result.always, [[[0.25, np.nan]], [[0, 0]]])
        path.write_text('{"Retrieval": [[1, null]]}')
        np.testing.assert_array_equal(ha.import_scores(path, kind="importance").importance, [[[1, np.nan]]])
        np.save(tmp_path / "a.npy", np.arange(24.0).reshape(1, 3, 2, 2, 2))
        np.testing.assert_array_equal(
            ha.import_scores(tmp_path / "a.npy", kind="gate", names=["math"]).interference[0, 1], [[12, 13], [14, 15]]
        )

    def test_nothing_in_a_file_is_run(self, capsys, tmp_path) -> None:
        np.save(tmp_path / "a.npy", np.array([print], dtype=object), allow_pickle=True)
        code, _, err = headatlas(capsys, "import", tmp_path / "a.npy", "--as", "importance", "--out", tmp_path / "in")
        assert code == 1
        assert "allow_pickle=False" in err

"""No row that a map used is a test row of `edit` and `evaluate`; shots are those of the map."""

import json
from dataclasses import replace

import numpy as np
import pytest

import headatlas as ha
from headatlas.edits import measure
from headatlas.edits.rows import ROWS, UsedRows, load_tests, rows_of_atlas, rows_of_checkpoint, write_rows
from headatlas.errors import BadArgument, BadFile
from headatlas.results.store import load, save
from headatlas.results.used import recorded_rows
from headatlas.tasks.bundles import held_out_bundles, held_out_rows
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.used import Used, row_id
from headatlas.testing import tiny_lm, tiny_relations, tiny_task

FIT = {"seeds": 1, "updates": 1}


def rows(n: int, seed: int = 0) -> list[Example]:
    """Prompts of the tiny model's words, no two alike."""
    pairs = np.random.default_rng(seed).permutation(50 * 49)[:n]
    return [Example(f"w{p % 50} w{p // 50} w{(p * 7) % 50}", f" w{p % 13}") for p in pairs]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    lm, folder = tiny_lm(), tmp_path_factory.mktemp("model") / "tiny"
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def asked(monkeypatch):
    """The text of every prompt that `edit` and `evaluate` measure: few-shot examples and question."""
    prompts: list[tuple[int, ...]] = []

    def score(lm, tested, own=measure.score_prompts):
        prompts.extend(e.prompt + e.target for e in tested.examples)
        return own(lm, tested)

    monkeypatch.setattr(measure, "score_prompts", score)
    return prompts


def shown_in(lm, example: Example, prompts) -> bool:
    """Check whether a row is in any of these prompts."""
    row = " ".join(map(str, lm.encode([f"{example.prompt}{example.target}"])[0]))
    return any(f" {row} " in f" {' '.join(map(str, p))} " for p in prompts)


def asks(lm, example: Example, prompts) -> bool:
    """Whether a row is the question of any of these prompts."""
    ids = tuple(lm.encode([f"{example.prompt}{example.target}"])[0])
    return any(p[-len(ids) :] == ids for p in prompts)


def methods():
    """Every method that takes tasks, as it is called, and the name of its set."""
    yield "ablate", lambda m, t, out: ha.ablate(m, t, limit=5, shots=2, out=out), "top 1 mine by ablate"
    yield "taylor", lambda m, t, out: ha.taylor(m, t, limit=5, shots=2, out=out), "top 1 mine by taylor"
    yield "gate", lambda m, t, out: ha.gate(m, t, shots=2, out=out, **FIT), "top 1 mine by gate"
    yield (
        "dissociate",
        lambda m, t, out: ha.dissociate(m, {**t, "other": tiny_task("other", 3)}, limit=40, shots=2, out=out, **FIT),
        "top 1 mine by dissociate",
    )
    yield (
        "contrast",
        lambda m, t, out: ha.contrast(
            m, keep=t, lose=[replace(e, target=" w40") for e in t["mine"]], shots=2, out=out, **FIT
        ),
        "top 1 by contrast",
    )
    yield (
        "function_vector",
        lambda m, t, out: ha.function_vector(m, tasks=t, shots=2, limit=3, draws=1, out=out),
        "top 1 mine by function_vector",
    )


@pytest.mark.parametrize(("name", "make", "heads"), list(methods()), ids=[name for name, *_ in methods()])
def test_no_row_of_a_map_is_tested(model, tmp_path, asked, name, make, heads) -> None:
    small, more = rows(80), rows(100)  # the same rows and 20 others
    make(model, {"mine": small}, tmp_path / "atlas")
    used = recorded_rows(load(tmp_path / "atlas" / f"{name}.nc"))
    assert used.shots["mine"] == 2 if "mine" in used.shots else name == "contrast"
    options = {"atlas": tmp_path / "atlas", "sets": heads, "draws": 0}
    out = ha.edit(model, **options, tasks={"mine": more}, limit=12, out=tmp_path / "new")
    (effect,) = json.loads((out / "headatlas-edit.json").read_text())["effects"]
    assert (effect["examples"], effect["shots"]) == (12, 2)
    ha.evaluate(model, out, {"mine": more}, limit=12)
    lm = ha.load(model)
    of_map = [e for e in small if row_id(e) in used.rows]
    assert len(of_map) > 5
    assert not any(asks(lm, e, asked) for e in of_map)
    questions = [e for e in more if asks(lm, e, asked)]
    assert len(questions) == 12  # the same ones by `edit` and by `evaluate`
    shown = [tuple(p[:-4]) for p in asked]  # without the question
    assert any(shown_in(lm, e, shown) for e in more)
    assert not any(shown_in(lm, e, shown) for e in questions)


def test_too_few_rows_are_refused_before_anything_is_written(model, tmp_path) -> None:
    ha.gate(model, {"mine": rows(20)}, out=tmp_path / "atlas", **FIT)
    options = {"atlas": tmp_path / "atlas", "sets": "top 1 mine by gate", "out": tmp_path / "new"}
    says = (
        r"task 'mine' has 20 rows, the maps used 16 of them \(gate 16\) and 4 are left to test on, expected at least 8:"
        r" give a file with more rows as a task, or make the maps from fewer rows"
    )
    with pytest.raises(BadArgument, match=f"{says}; or do not measure effects"):
        ha.edit(model, **options, tasks={"mine": rows(20)})
    with pytest.raises(BadArgument, match=says):
        ha.evaluate(model, model, {"mine": rows(20)}, atlas=tmp_path / "atlas")
    assert [p.name for p in tmp_path.iterdir()] == ["atlas"]
    ha.edit(model, **options, tasks=())
    with pytest.raises(BadArgument, match=says):
        ha.evaluate(model, tmp_path / "new", {"mine": rows(20)})


def test_a_task_of_the_atlas_without_rows_left_is_left_out_and_the_card_says_so(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("headatlas.edits.rows.named_task", lambda lm, name, task: Task(task, *splits(rows(20))))
    ha.gate(model, {"math": rows(20)}, out=tmp_path / "atlas", **FIT)
    out = ha.edit(model, atlas=tmp_path / "atlas", sets="top 1 math by gate", out=tmp_path / "new")
    record = json.loads((out / "headatlas-edit.json").read_text())
    assert record["effects"] == []
    assert "4 are left to test on" in record["not_measured"]["math"]
    assert f"Not measured: {record['not_measured']['math']}." in (out / "README.md").read_text()


def splits(examples):
    return tuple(examples[4:]), tuple(examples[:4])


def test_training_rows_are_tested_where_no_map_used_them(model, tmp_path) -> None:
    """ablate measures on the held-out fifth of a file: 13 of 64 rows."""
    ha.ablate(model, {"mine": rows(64)}, limit=32, out=tmp_path)
    used = rows_of_atlas(ha.open(tmp_path))
    assert len(used.by_method["ablate"].rows) == 13
    (test,), _ = load_tests(tiny_lm(), {"mine": rows(64)}, used, 32, 3)
    assert (len(test.held_out), test.shots) == (32, 3)
    ids = [{row_id(e) for e in part} for part in (test.held_out, test.train)]
    assert not ids[0] & ids[1]
    assert not ids[0] & used.by_method["ablate"].rows
    assert len(ids[0] | ids[1]) == 64


def test_the_few_shot_examples_of_a_map_are_its_rows_too() -> None:
    task = Task("mine", *splits(rows(40)), shots=3)
    shown = held_out_rows(task, 4)
    assert len(shown) == 7  # a bundle of 4, and 3 before them
    (bundle,) = held_out_bundles(tiny_lm(), task, 4)
    assert all(asks(tiny_lm(), e, [x.prompt + x.target for x in bundle.examples]) for e in task.held_out)
    assert all(shown_in(tiny_lm(), e, [x.prompt for x in bundle.examples]) for e in shown if e in task.train)


def test_few_shot_examples_are_no_test_rows_without_an_atlas() -> None:
    both = rows(6)
    task = Task("mine", (*rows(30)[6:], *both), tuple(both), shots=1)
    (test,), _ = load_tests(tiny_lm(), task, UsedRows(), 6, None)
    assert test.held_out == tuple(both)
    assert not set(test.train) & set(both)


def test_pairs_of_a_relation_are_rows_in_every_wording(model, tmp_path) -> None:
    relation = replace(tiny_relations()[0], prompt="w1 {} w2")
    ha.maps(model, [relation], baselines=False, held_out=0.0, out=tmp_path / "maps")
    ha.function_vector(model, [relation], shots=2, limit=3, draws=1, template="w7 {}", out=tmp_path / "vector")
    for folder, left in (("maps", 0), ("vector", 11)):  # the held-out pairs
        used = rows_of_atlas(ha.open(tmp_path / folder))
        tests, refused = load_tests(tiny_lm(), [relation], used, 32, 0)
        assert [len(t.held_out) for t in tests] == [left] * bool(left)
        assert not refused if left else "0 are left" in refused["next"]


def test_shots_are_those_of_the_map_unless_they_are_given(model, tmp_path) -> None:
    ha.ablate(model, {"mine": rows(60), "other": rows(60, 1)}, limit=4, shots=3, out=tmp_path)
    used = rows_of_atlas(ha.open(tmp_path), ["ablate"], ["mine"])
    for task, shots in (({"mine": rows(60)}, 3), ({"new file": rows(40, 2)}, 3), ("syntax", 1)):
        for given in (None, 0, 2):
            (test,), _ = load_tests(tiny_lm(), task, used, 8, given)
            assert test.shots == (shots if given is None else given)
    result = ha.evaluate(model, model, {"mine": rows(60)}, atlas=tmp_path, limit=8)
    assert result.shots.item() == 3
    assert ha.evaluate(model, model, {"mine": rows(60)}, atlas=tmp_path, shots=1, limit=8).shots.item() == 1
    with pytest.raises(BadArgument, match="shots is -1"):
        ha.evaluate(model, model, {"mine": rows(60)}, shots=-1)


def test_a_map_that_does_not_record_its_rows_is_refused(model, tmp_path) -> None:
    ha.ablate(model, {"mine": rows(60)}, limit=4, out=tmp_path / "atlas")
    file = tmp_path / "atlas" / "ablate.nc"
    old = load(file).drop_vars("used_row")
    del old.attrs["used_shots"]
    save(old, file)
    options = {"atlas": tmp_path / "atlas", "sets": "top 1 mine by ablate"}
    with pytest.raises(BadArgument, match=r"ablate.nc does not record the rows it used; make this map again"):
        ha.edit(model, **options, tasks={"mine": rows(60)}, out=tmp_path / "new")
    again = ha.ablate(model, {"mine": rows(60)}, limit=4, out=tmp_path / "atlas")  # it is made again
    assert again.used_row.size == 4
    ha.edit(model, **options, tasks={"mine": rows(60)}, draws=0, out=tmp_path / "new")


def test_rows_are_noted_beside_a_checkpoint_and_kept_by_further_edits(model, tmp_path) -> None:
    used = UsedRows({"ablate": Used(frozenset({2**63 + 1, 5}), {"mine": 3})}, ("mine",))
    write_rows(used, tmp_path)
    assert rows_of_checkpoint(tmp_path) == used
    ha.ablate(model, {"mine": rows(60)}, limit=4, out=tmp_path / "atlas")
    first = ha.edit(model, atlas=tmp_path / "atlas", sets="top 1 mine by ablate", tasks=(), out=tmp_path / "first")
    second = ha.edit(first, remove="L0.H5", out=tmp_path / "second")
    assert len(rows_of_checkpoint(second).by_method["ablate"].rows) == 4
    (second / ROWS).write_text("[]")
    with pytest.raises(BadFile, match=f"cannot read .*{ROWS}"):
        ha.evaluate(model, second, {"mine": rows(60)})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_card_names_the_weights_as_the_atlas_does(model, tmp_path, dtype) -> None:
    """The fingerprint of a checkpoint on disk is another one than that of the model in memory."""
    ha.ablate(ha.load(model, dtype=dtype), {"mine": rows(60)}, limit=4, out=tmp_path / "atlas")
    stored = ha.open(tmp_path / "atlas" / "ablate.nc").attrs
    options = {"atlas": tmp_path / "atlas", "sets": "top 1 mine by ablate", "tasks": ()}
    for source, checked in ((model, "values_hash"), (ha.load(model, dtype=dtype), "fingerprint")):
        out = ha.edit(source, **options, out=tmp_path / checked)
        record = json.loads((out / "headatlas-edit.json").read_text())
        assert {name: record[name] for name in ("fingerprint", "values_hash", "checked")} == {
            "fingerprint": stored["fingerprint"],
            "values_hash": stored["values_hash"],
            "checked": checked,
        }
        told = f"fingerprint {stored['fingerprint']}, values hash {stored['values_hash']}, as in the atlas; the"
        assert f"{told} {checked.replace('_', ' ')} was checked" in (out / "README.md").read_text()

"""`headatlas test`: a planted model, whose heads are known, and the maps of an atlas."""

import json

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.evidence import fresh_prompts
from headatlas.results.store import load
from headatlas.results.used import recorded_rows
from headatlas.runs import one_test
from headatlas.runs.one_test import map_test
from headatlas.tasks.prompts import Example
from headatlas.tasks.used import row_id
from headatlas_bench.ground_truth import planted_folder, read_truth
from headatlas_bench.prompts import planted_task
from tests.test_cli import headatlas

FUNCTION = "Retrieval"  # its heads are in two layers, so there are many sets of random heads
QUICK = ["--prompts", 24, "--draws", 59]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Prompts of the planted model's function, as a file of the user's."""
    task = planted_task(FUNCTION, 40, 40)
    path = tmp_path_factory.mktemp("data") / "mine.jsonl"
    rows = [{"prompt": row.prompt, "target": row.target} for row in (*task.train, *task.held_out)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def names(heads) -> str:
    return ",".join(f"L{layer}.H{head}" for layer, head in heads)


def test_the_planted_heads_are_supported_and_background_heads_are_not(capsys, data, tmp_path) -> None:
    model = planted_folder("one")
    truth = read_truth(model)
    options = ["--data", data, *QUICK, "--others", "math"]
    out = tmp_path / "test.nc"
    heads = names(truth.functions[FUNCTION])
    code, text, _ = headatlas(capsys, "test", model, "--heads", heads, *options, "--out", out)
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("supported: significant by ")
    assert lines[2].split() == [
        "replacement",
        "measure",
        "before",
        "after",
        "change",
        "random",
        "beyond",
        "random",
        "p",
    ]
    assert any(line.startswith("zero") and "accuracy" in line for line in lines)
    assert f"6 heads removed from the last token on; claim: needed; 24 fresh prompts of {data.stem}" in lines
    assert any(line.startswith("24 prompts show changes from 0.") and line.endswith(" nats on") for line in lines)
    assert any(line.startswith("selectivity ") and "plain text" in line for line in lines)
    assert any(line.startswith("draws of random heads: zero 59") and "matched by" in line for line in lines)
    assert lines[-1] == f"wrote {out}"
    stored = load(out)
    assert stored.outcome.item() == "supported"
    assert np.argwhere(stored.selected.values).tolist() == [list(head) for head in sorted(truth.functions[FUNCTION])]
    assert stored.example_effect.sizes["example"] == 24
    code, text, _ = headatlas(capsys, "test", model, "--heads", names(truth.background[:6]), *options, "--json")
    record = json.loads(text)
    assert record["outcome"] == "not supported"
    assert record["heads"] == names(truth.background[:6]).split(",")
    assert record["accuracy"] > 0.9 > record["guess"]
    assert {row["measure"] for row in record["effects"]} == {"log P", "choice", "accuracy"}


def test_harmful_is_the_other_direction(capsys, data) -> None:
    model = planted_folder("one")
    heads = names(read_truth(model).functions[FUNCTION])
    options = ["--heads", heads, "--data", data, *QUICK, "--claim", "harmful"]
    _, text, _ = headatlas(capsys, "test", model, *options)
    assert text.startswith(
        "not supported: removal by zero and mean and resample does not change log P in the direction"
    )


@pytest.fixture(scope="module")
def atlas(data, tmp_path_factory):
    """An atlas of the planted model with a map by `taylor`, of 40 of the 80 rows."""
    folder = tmp_path_factory.mktemp("atlas")
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    ha.taylor(planted_folder("one"), {"mine": rows[:40]}, limit=40, shots=0, device="cpu", out=folder)
    return folder


class TestMap:
    """The top heads of a map in an atlas."""

    def test_its_top_heads_are_tested_on_rows_it_was_not_made_from(self, capsys, data, atlas, monkeypatch) -> None:
        asked = []

        def load_prompts(*arguments, **options):
            asked.append(fresh_prompts.load_prompts(*arguments, **options))
            return asked[-1]

        monkeypatch.setattr(one_test, "load_prompts", load_prompts)
        options = ["--from", atlas, "--method", "taylor", "--subject", "mine", "--data", data, *QUICK, "--json"]
        code, text, _ = headatlas(capsys, "test", planted_folder("one"), *options)
        assert code == 0
        record = json.loads(text)
        importance = load(atlas / "taylor.nc").contribution.sel(task="mine")
        best = np.argsort(-importance.values, axis=None)[:4]
        expected = [f"L{layer}.H{head}" for layer, head in zip(*np.unravel_index(best, (6, 8)), strict=True)]
        assert record["heads"] == sorted(expected)
        assert record["prompts"] == 24
        used = recorded_rows(load(atlas / "taylor.nc")).rows
        rows = {row["prompt"]: row for row in map(json.loads, data.read_text().splitlines())}
        lm = ha.load(planted_folder("one"), device="cpu")
        prompts = {tuple(lm.encode([prompt])[0]): row for prompt, row in rows.items()}
        tested = [prompts[example.prompt] for example in asked[0].examples]
        assert len(tested) == 24
        assert used
        assert not used & {row_id(Example(row["prompt"], row["target"])) for row in tested}

    def test_number_and_order_of_heads(self, data, atlas) -> None:
        rows = [json.loads(line) for line in data.read_text().splitlines()]
        options = {"others": "math", "prompts": 8, "draws": 1, "device": "cpu"}
        by_map = map_test(planted_folder("one"), atlas, "taylor", "mine", {"mine": rows}, top=2, **options)
        importance = load(atlas / "taylor.nc").contribution.sel(task="mine")
        by_hand = ha.test(planted_folder("one"), importance, {"mine": rows}, atlas=atlas, top=2, **options)
        assert int(by_map.n_heads) == 2
        xr.testing.assert_identical(by_map, by_hand)
        # Numbers of heads from a fourth of two to four times two.
        assert by_map.curve_heads.values.tolist() == [1, 1, 2, 4, 8]

    def test_without_rows_left_the_outcome_is_undecided(self, capsys, data, atlas, tmp_path) -> None:
        used = recorded_rows(load(atlas / "taylor.nc")).rows
        lines = dict(zip(ids(data), data.read_text().splitlines(), strict=True))
        assert len(used & lines.keys()) == len(used) == 8
        fresh = [line for i, line in lines.items() if i not in used][:5]
        few = tmp_path / "few.jsonl"
        few.write_text("\n".join([*(lines[i] for i in used), *fresh]))
        options = ["--from", atlas, "--method", "taylor", "--subject", "mine", "--data", few, *QUICK]
        code, text, _ = headatlas(capsys, "test", planted_folder("one"), *options)
        assert code == 0
        assert text.startswith("undecided: 5 of 13 rows were not used for the map, a test needs at least 8")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (["--method", "taylor", "--subject", "yours"], "subject is 'yours', expected one of mine"),
            (["--method", "tailor", "--subject", "mine"], "method 'tailor' is not in this atlas, which has taylor"),
            (
                ["--method", "taylor", "--subject", "mine", "--measure", "weight"],
                "measure is 'weight', expected one of contribution",
            ),
            (["--method", "taylor", "--subject", "mine"], "subject 'mine' is no built-in task, relation or function"),
            (["--method", "taylor", "--subject", "mine", "--task", "math", "--top", "49"], "top is 49, expected"),
        ],
    )
    def test_usage_errors(self, capsys, atlas, options, says) -> None:
        code, out, err = headatlas(capsys, "test", planted_folder("one"), "--from", atlas, *options)
        assert (code, out) == (2, "")
        assert says in err

    def test_an_atlas_of_another_model_is_refused(self, capsys, folder, atlas) -> None:
        options = ["--from", atlas, "--method", "taylor", "--subject", "mine", "--task", "math"]
        code, _, err = headatlas(capsys, "test", folder, *options)
        assert code == 2
        assert "taylor.nc is of" in err


def ids(path) -> list[int]:
    """Return the identity of every row of a file."""
    rows = map(json.loads, path.read_text().splitlines())
    return [row_id(Example(row["prompt"], row["target"])) for row in rows]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "no heads: give --heads L4.H1,L9.H3, or --from ATLAS --method NAME --subject NAME"),
        (["--heads", "L1.H0"], "no task: give --data FILE or --task NAME"),
        (["--heads", "", "--task", "math"], "--heads is '', expected heads such as L23.H4,L3.H1"),
        (["--heads", "L1H0", "--task", "math"], "'L1H0' is not a head"),
        (["--heads", "L9.H0", "--task", "math"], "head L9.H0 is out of range: this model has L0 to L2, H0 to H5"),
        (["--heads", "L1.H0", "--task", "maths"], "task 'maths' is neither built in (math, syntax,"),
        (["--heads", "L1.H0", "--data", "none.jsonl"], "--data is 'none.jsonl': no such file"),
        (["--heads", "L1.H0", "--data", __file__, "--task", "math"], "--task is 'math' and --data is"),
        (["--heads", "L1.H0", "--task", "math", "--top", "3"], "--top is 3 and --heads is 'L1.H0'"),
        (["--heads", "L1.H0", "--task", "math", "--others", "maths"], "task 'maths' is neither built in"),
        (
            ["--heads", "L1.H0", "--task", "math", "--claim", "used"],
            "--claim is 'used', expected one of needed, harmful",
        ),
        (["--heads", "L1.H0", "--task", "math", "--out", "test.json"], "--out is 'test.json', expected a file ending"),
        (["--from", "."], "--from is '.' without --method: name the map with --method and --subject"),
        (["--from", ".", "--method", "taylor"], "--from is '.' without --subject"),
        (["--from", "none", "--method", "taylor", "--subject", "math"], "no such folder"),
    ],
)
def test_usage_errors_come_before_torch_is_imported(capsys, folder, monkeypatch, options, says) -> None:
    monkeypatch.setattr("headatlas.cli.test_command.import_torch", lambda: pytest.fail("too late"))
    code, out, err = headatlas(capsys, "test", folder, *options)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1

"""`headatlas dissociate` and `compare-maps`, and `ha.compare_maps`."""

import json

import numpy as np
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.models.targets import Asked
from headatlas.results.store import load
from headatlas.tasks.labelled import load_labelled
from tests.data import TASKS, questions
from tests.models.tiny import TINY, build, tokenizer
from tests.test_cli import headatlas

NAMES = ["taylor", "ablate", "ablate-own", "gate", "dissociate"]


@pytest.fixture(scope="module")
def lm() -> ha.LM:
    return ha.LM(build(next(t for t in TINY if t.id == "llama")).float(), tokenizer(), "tiny")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "<mine>.jsonl"
    rows = [{"prompt": f"w{i} w3", "target": f" w{i + 1}", "kind": ("one", "two")[i % 2]} for i in range(40)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_dissociate_prints_tables_and_writes_the_file(capsys, folder, data, tmp_path) -> None:
    options = ["--data", data, "--updates", 3, "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, "dissociate", folder, *options)
    assert code == 0
    assert "Heads removed for good" in out
    assert f"wrote {tmp_path / 'out' / 'dissociate.nc'}" in out
    result = load(tmp_path / "out" / "dissociate.nc")
    assert result.function.values.tolist() == ["one", "two"]
    code, out, _ = headatlas(capsys, "dissociate", folder, *options, "--json")
    first = next(iter(json.loads(out).values()))
    assert [row["function"] for row in first] == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "status", "text"),
    [
        (["--tasks", "maths"], 2, "Did you mean 'math'"),
        (["--preset", "slow"], 2, "quick, full"),
        (["--functions", "Retrieval"], 2, "expected at least 2"),
        (["--data", "none.json"], 2, "--data is 'none.json': no such file"),
    ],
)
def test_bad_input_is_one_line(capsys, folder, tmp_path, options, status, text) -> None:
    code, _, err = headatlas(capsys, "dissociate", folder, *options, "--out", tmp_path / "out")
    assert code == status
    assert text in err
    assert "Traceback" not in err


def test_compare_maps_tests_every_map_alike(lm) -> None:
    result = ha.compare_maps(lm, TASKS)
    assert result["ranking"].values.tolist() == NAMES
    assert result.effect.sizes == {"ranking": 5, "function": 2}
    effect = result.ranking_score.sel(ranking="ablate")
    np.testing.assert_allclose(
        result.ranking_score.sel(ranking="ablate-own"), effect - effect.mean("function"), rtol=1e-5, atol=1e-6
    )
    for i in range(5):
        for f in range(2):
            one = result.isel(ranking=i, function=f)
            m = int(one.n_removed)
            if m:
                assert one.effect_curve.sel(step=m, split="test") == one.effect
                assert int(one.selected.sum()) == m
                chosen, rest = (
                    one.ranking_score.where(c).values for c in (one.selected, ~one.selected & (one.ranking_score > 0))
                )
                assert np.nanmin(chosen) >= np.nanmax(rest, initial=-np.inf)
    np.testing.assert_allclose(result.selectivity, result.other_effect.mean("other") - result.effect)


def test_compare_maps_makes_maps_from_training_examples_only(lm, monkeypatch) -> None:
    seen: set = set()
    data = load_labelled(lm, TASKS)
    train = {data.asked[i] for i in data.of("train")}

    def yardstick(lm, asked, **options):
        seen.update(asked)
        return torch.zeros(len(asked), lm.n_layers, lm.n_heads)

    def gate(lm, task, *rest, **options):
        seen.update(Asked(e.prompt, e.target) for e in (*task.train, *task.held_out))
        return torch.zeros(3, 1, lm.n_layers, lm.n_heads)

    monkeypatch.setattr("headatlas.methods.compare_maps.gate_gradients", yardstick)
    monkeypatch.setattr("headatlas.methods.compare_maps.ablate", lambda *a, **o: (yardstick(*a), None))
    monkeypatch.setattr("headatlas.methods.compare_maps.fit_task", gate)
    for name in ("taylor", "ablate", "gate"):
        seen.clear()
        ha.compare_maps(lm, TASKS, methods=[name])
        assert seen <= train, name
        assert seen


def test_compare_maps_takes_questions_and_own_maps(lm) -> None:
    given = questions(40)
    names = load_labelled(lm, questions=given).names
    score = np.random.default_rng(0).random((len(names), lm.n_layers, lm.n_heads))
    mine = xr.DataArray(score, dims=("function", "layer", "head"), coords={"function": list(names)})
    result = ha.compare_maps(lm, questions=given, maps={"mine": mine}, methods=["probe"])
    assert result["ranking"].values.tolist() == ["mine", "probe"]
    np.testing.assert_allclose(result.ranking_score[0], score, rtol=1e-6)
    for bad, text in (
        (mine[0], "dimensions"),
        (mine[1:], "lacks the function"),
        (mine[:, :1], r"of 1 × 6 heads, the model has 3 × 6"),
    ):
        with pytest.raises(BadArgument, match=text):
            ha.compare_maps(lm, questions=given, maps={"mine": bad})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"methods": ["probe"]}, "reads questions"),
        ({"methods": ["tailor"]}, "Did you mean 'taylor'"),
        ({"methods": []}, "methods is empty"),
        ({"limit": "x"}, "limit is 'x'"),
        ({"preset": "slow"}, "quick, full"),
    ],
)
def test_compare_maps_bad_input(lm, options, text) -> None:
    with pytest.raises(BadArgument, match=text):
        ha.compare_maps(lm, TASKS, **options)


def test_compare_maps_goes_on_where_it_was_interrupted(lm, tmp_path, monkeypatch) -> None:
    whole = ha.compare_maps(lm, TASKS, methods=["taylor", "dissociate"])
    left = [8]

    def stops(items, label):
        for item in items:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        ha.compare_maps(lm, TASKS, methods=["taylor", "dissociate"], out=tmp_path, progress=stops)
    monkeypatch.setattr("headatlas.methods.compare_maps.gate_gradients", lambda *a, **o: pytest.fail("done again"))
    again = ha.compare_maps(lm, TASKS, methods=["taylor", "dissociate"], out=tmp_path)
    np.testing.assert_array_equal(again.effect_curve, whole.effect_curve)


def test_compare_maps_on_the_command_line(capsys, folder, data, tmp_path) -> None:
    options = ["--data", data, "--methods", "taylor,ablate-own", "--out", tmp_path / "out"]
    code, out, _ = headatlas(capsys, "compare-maps", folder, *options)
    assert code == 0
    assert "Maps compared" in out
    assert "ablate-own" in out
    assert out.endswith(f"wrote {tmp_path / 'out' / 'compare_maps.nc'}\n")
    assert ha.open(tmp_path / "out").complete == ["compare_maps"]
    code, out, _ = headatlas(capsys, "figures", tmp_path / "out", "--format", "png")
    assert code == 0
    for name in ("comparison.png", "comparison.txt"):
        assert (tmp_path / "out" / "figures" / name).is_file()

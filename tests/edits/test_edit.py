"""`ha.edit` to a folder: the card, what it measures, and that mistakes leave nothing behind. `ha.evaluate`."""

import errno
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas.edits import checkpoint
from headatlas.edits.change import HeadEdit, applied, make_edit
from headatlas.edits.measure import WINDOW, text_loss
from headatlas.edits.rows import load_tests, rows_of_atlas
from headatlas.errors import BadArgument, BadFile, CannotDo
from headatlas.evidence.fresh_prompts import prompts_of_task
from headatlas.evidence.inference import interval
from headatlas.models.log_probs import log_probs
from headatlas.models.tokens import make_bundle
from headatlas.results.store import save
from headatlas.tasks.prompts import Task
from headatlas.testing import tiny_lm, tiny_task
from headatlas_bench.ground_truth import planted_folder, read_truth
from headatlas_bench.prompts import planted_task
from tests.models.tiny_gguf import tiny_llama, write_gguf

TASK = tiny_task("first", 0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny model on disk."""
    lm, folder = tiny_lm(), tmp_path_factory.mktemp("model") / "tiny"
    lm.model.save_pretrained(folder)
    lm.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def atlas(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("atlas")
    ha.ablate(model, {"math": TASK}, limit=4, out=folder)
    return folder


def fresh(atlas: Path, task: Task, limit: int) -> Task:
    (test,), refused = load_tests(tiny_lm(), task, rows_of_atlas(ha.open(atlas)), limit, None)
    assert not refused
    return test


def test_the_card_tells_the_effect_beside_random_heads(model, atlas, tmp_path) -> None:
    out = ha.edit(
        model, atlas=atlas, sets="top 3 math by ablate", scale={"L1.H0": 0.5}, tasks=TASK, draws=6, out=tmp_path / "new"
    )
    record = json.loads((out / "headatlas-edit.json").read_text())
    assert len(record["removed"]) == 3
    assert record["scaled"] == {"L1.H0": 0.5}
    assert record["sets"][0]["heads"] == [row["head"] for row in ha.open(atlas).heads("math", 3).to_dict("records")]
    (row,) = record["effects"]
    lm = ha.load(model)
    edit = make_edit(lm.anatomy, record["removed"], record["scaled"])
    prompts = prompts_of_task(lm, fresh(atlas, TASK, 32), 32)  # of 24 rows, ablate used 4
    before, whole_right = by_hand(lm, prompts)
    with applied(lm, edit):
        after, right = by_hand(lm, prompts)
    assert row["log_p"] == pytest.approx(before.mean(), abs=1e-5)
    assert row["log_p_after"] == pytest.approx(after.mean(), abs=1e-4)
    assert row["accuracy"] == whole_right.mean()
    assert row["accuracy_after"] == right.mean()
    random = []
    generator = np.random.default_rng(0)
    for _ in range(6):
        with applied(lm, edit.shuffled(generator)):
            random.append(by_hand(lm, prompts)[0] - before)
    assert row["draws"] == 6
    assert row["random"] == pytest.approx(np.mean(random), abs=1e-5)
    as_much = sum(r.mean() <= row["change"] for r in random)
    assert row["p"] >= min(5 / 6, (1 + as_much) / 7)
    low, high = interval(after - before - np.mean(random, axis=0), prompts.cluster)
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-3)
    assert row["outcome"] == "no ability"  # a random model
    assert "because the edit does more than remove heads" in row["random_heads"]
    text = (out / "README.md").read_text()
    for words in (
        *record["removed"],
        "L1.H0 × 0.5",
        "the map of math by ablate",
        f"| first | 20 | 0 | {row['accuracy']:.2f}",
        "| no ability |",
        "The maps of the atlas (ablate) used none of these examples",
    ):
        assert words in text
    assert max(map(len, text.splitlines())) < 1000


def by_hand(lm, prompts) -> tuple[np.ndarray, np.ndarray]:
    """Return log P per token of each answer, and whether it is the likeliest; one prompt at a time."""
    scores = [log_probs(lm, [make_bundle([example])]) for example in prompts.examples]
    lengths = np.array([len(example.target) for example in prompts.examples])
    log_p = np.array([log_p.item() for log_p, _ in scores])
    return log_p / lengths, np.array([right.item() for _, right in scores]).astype(float)


def test_removed_heads_are_compared_with_matched_ones_and_have_an_outcome(tmp_path) -> None:
    """The heads of one function of a planted model, and heads that do nothing."""
    model = planted_folder("one")
    truth = read_truth(model)
    task = planted_task("Retrieval", 16, 40)
    outcomes = {}
    for name, heads in (("own", truth.functions["Retrieval"]), ("background", truth.background[:6])):
        out = ha.edit(model, remove=heads, tasks=task, out=tmp_path / name, device="cpu", draws=199)
        (row,) = json.loads((out / "headatlas-edit.json").read_text())["effects"]
        outcomes[name] = row["outcome"]
        assert row["random_heads"].startswith("matched by layer, key-value group and influence")
        assert row["choice"] > -0.1
        card = (out / "README.md").read_text()
        assert f"- {row['task']}: {row['outcome']}: {row['reason']}." in card
    assert outcomes == {"own": "supported", "background": "not supported"}


def test_the_atlas_says_what_is_measured(model, atlas, tmp_path, monkeypatch) -> None:
    requests = []
    monkeypatch.setattr("headatlas.edits.edit._effects", lambda *a: requests.append([t.name for t in a[3]]) or [])
    ha.edit(model, atlas=atlas, sets=["lowest 1 by ablate"], out=tmp_path / "a")
    ha.edit(model, remove="L0.H0", tasks=["copying"], out=tmp_path / "b")
    ha.edit(model, remove="L0.H0", out=tmp_path / "c")
    assert requests == [["math"], ["copying"]]
    assert "Not measured." in (tmp_path / "c" / "README.md").read_text()


def test_random_heads_are_of_the_same_layers_and_all_can_be_drawn() -> None:
    gate = torch.ones(3, 4, dtype=torch.float64)
    gate[0, 1], gate[2, 0], gate[2, 3] = 0, 0, 0.5
    edit = HeadEdit(gate, {(2, 3): torch.ones(2)}, {1: torch.ones(8)})
    seen = np.zeros((3, 4))
    for seed in range(40):
        other = edit.shuffled(np.random.default_rng(seed))
        assert torch.equal(other.gate.sort(1).values, gate.sort(1).values)
        ((steered_head, vector),) = other.steer.items()
        assert steered_head[0] == 2
        assert other.gate[steered_head] == 0.5  # steered and scaled together, as before
        assert torch.equal(vector, torch.ones(2))
        assert other.push is edit.push
        seen += (other.gate == 0).numpy()
    assert (seen[0] > 0).all()
    assert (seen[2] > 0).all()
    assert not seen[1].any()


def test_directions_are_read_from_a_result(model, tmp_path) -> None:
    generator = np.random.default_rng(0)
    coords = {"task": ["first", "second"], "layer": range(3), "head": range(6)}
    result = xr.Dataset(
        {
            "vector": (("task", "d_model"), generator.normal(size=(2, 48))),
            "mean": (("task", "layer", "head", "d_head"), generator.normal(size=(2, 3, 6, 10))),
            "contribution": (("task", "layer", "head"), np.zeros((2, 3, 6))),
        },
        coords,
    )
    save(result, tmp_path / "vectors.nc")
    lm, file = ha.load(model), tmp_path / "vectors.nc"
    edit = make_edit(lm.anatomy, steer={"L1": f"{file}:second*2", "L2.H4": f"{file}:first"})
    np.testing.assert_allclose(edit.push[1], 2 * result.vector[1])
    np.testing.assert_allclose(edit.steer[2, 4], result["mean"][0, 2, 4])
    for text, says in [
        (f"L1={file}:third", "the task in vectors.nc is 'third', expected one of first, second"),
        (f"L1={file}", "the task in vectors.nc is ''"),
    ]:
        with pytest.raises(BadArgument, match=says):
            make_edit(lm.anatomy, steer=text)
    save(result.drop_vars("vector"), tmp_path / "none.nc")
    with pytest.raises(BadArgument, match="none.nc has none, expected one variable of directions with 48 numbers"):
        make_edit(lm.anatomy, steer=f"L1={tmp_path / 'none.nc'}:first")


def test_a_gguf_file_is_dequantised_and_the_card_says_so(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "small.gguf", tiny_llama())
    with caplog.at_level("INFO", "headatlas"):
        ha.edit(tmp_path / "small.gguf", remove="L0.H0", out=tmp_path / "new")
    assert "small is quantised: its weights are written dequantised" in caplog.text
    assert "came from a quantised GGUF file" in (tmp_path / "new" / "README.md").read_text()
    assert not ha.load(tmp_path / "new").weights.W_O(0, 0).any()


# --- mistakes


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, BadArgument, "nothing is to be changed"),
        ({"scale": {"L0.H0": 1}}, BadArgument, "nothing is to be changed"),
        ({"remove": "L9.H0"}, BadArgument, "head L9.H0 is out of range: this model has L0 to L2, H0 to H5"),
        ({"remove": ""}, BadArgument, "remove is '', expected heads"),
        ({"remove": 7}, BadArgument, "remove is 7, expected heads"),
        ({"remove": "L0.H0", "scale": "L0.H0=0.5"}, BadArgument, "L0.H0 is to be removed and to be scaled by 0.5"),
        ({"scale": torch.ones(2, 3, 6)}, BadArgument, r"scale has shape \(2, 3, 6\), expected \[layer, head\]"),
        ({"scale": {"L0.H0": math.inf}}, BadArgument, "expected a finite number"),
        ({"steer": {"L0.H0": np.ones(7)}}, BadArgument, r"steer of L0.H0 has shape \(7,\), expected \[10\], or"),
        ({"steer": {"L0": np.ones(10)}}, BadArgument, r"steer of L0 has shape \(10,\), expected \[48\]"),
        ({"steer": {"L0.H0": [math.nan] * 10}}, BadArgument, "NaN or infinite"),
        ({"steer": {"L0.H0": "text"}}, BadArgument, "'text': no such file"),
        ({"steer": {"L0.H0": Path(__file__)}}, BadFile, "test_edit.py is not a .npy file"),
        ({"steer": {"L0.H0": object()}}, BadArgument, "expected numbers or a .npy file"),
        ({"sets": "math by gate"}, BadArgument, "without an atlas"),
        ({"sets": "math by gate", "atlas": "/no/such"}, BadArgument, "atlas is '/no/such': no such folder"),
        ({"remove": "L0.H0", "tasks": "nonsense"}, BadArgument, "'nonsense' is neither built in"),
        ({"remove": "L0.H0", "tasks": TASK, "limit": 0}, BadArgument, "limit is 0"),
        ({"remove": "L0.H0", "tasks": TASK, "draws": -1}, BadArgument, "draws is -1"),
    ],
)
def test_what_is_asked_wrongly_is_a_line_and_leaves_nothing(model, tmp_path, options, error, message) -> None:
    with pytest.raises(error, match=message) as caught:
        ha.edit(model, **options, out=tmp_path / "deep" / "new")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_atlas_of_another_model_is_refused(model, atlas, tmp_path) -> None:
    other = shutil.copytree(model, tmp_path / "other")
    ha.edit(model, remove="L0.H0", out=tmp_path / "edited")
    shutil.copy(tmp_path / "edited" / "model.safetensors", other)
    for edited in (other, ha.load(other)):
        with pytest.raises(BadArgument, match="whose ablate.nc is of tiny, not of this other"):
            ha.edit(edited, atlas=atlas, sets="top 1 math by ablate", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert ha.edit(ha.load(model), atlas=ha.open(atlas), sets="top 1 math by ablate").name == "tiny, edited"


def test_a_folder_that_exists_is_left_alone(model, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine", "file", "link"):
        with pytest.raises(BadArgument, match="which exists: give a new folder"):
            ha.edit(model, remove="L0.H0", out=tmp_path / name)
    with pytest.raises(CannotDo, match="cannot write .*file/new: (Not a directory|File exists)"):
        ha.edit(model, remove="L0.H0", out=tmp_path / "file" / "new")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link", "mine"]


def test_a_full_disk_is_a_line_and_leaves_nothing(model, tmp_path, monkeypatch) -> None:
    def full(*arguments) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_copy", full)  # while weights are written
        with pytest.raises(CannotDo, match="^no space left for .*new: nothing was written$"):
            ha.edit(model, remove="L0.H0", out=tmp_path / "a" / "new")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
        with pytest.raises(CannotDo, match=r"no space left in .*: the checkpoint has 0 MB, 0 MB are free"):
            ha.edit(model, remove="L0.H0", out=tmp_path / "a" / "new")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_nothing(model, tmp_path, monkeypatch) -> None:
    def stop(*arguments) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headatlas.edits.edit._effects", stop)
    with pytest.raises(KeyboardInterrupt):
        ha.edit(model, remove="L0.H0", tasks=TASK, out=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# --- two models


def test_two_models_are_compared(model, tmp_path) -> None:
    new = ha.edit(model, scale=torch.zeros(3, 6), out=tmp_path / "new")
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{i % 50}" for i in range(150)))
    result = ha.evaluate(model, new, {"mine": TASK}, text=text, limit=5)
    lm = ha.load(model)
    prompts = prompts_of_task(lm, TASK, 5)
    log_p, right = by_hand(lm, prompts)
    assert result.log_p.sel(model=str(model), task="mine").item() == pytest.approx(log_p.mean(), abs=1e-5)
    assert result.accuracy.sel(model=str(model), task="mine").item() == right.mean()
    assert np.isfinite(result.choice).all()
    assert result.examples.item() == 5
    change = result.log_p.diff("model").item()
    assert result.change.item() == pytest.approx(change)
    assert result.low.item() < change < result.high.item()
    assert (result.tokens == 149).all()
    bits = np.log2(result.perplexity) * 149 / len(text.read_bytes())
    xr.testing.assert_allclose(result.bits_per_byte, bits)
    again = ha.evaluate(lm, lm, (), text=text)
    assert list(again["model"].values) == ["tiny (a)", "tiny (b)"]
    assert again.perplexity[0].item() == pytest.approx(result.perplexity[0].item())


@pytest.mark.parametrize("length", [2, 40, 64, 65, 97, 150])
def test_every_token_is_predicted_once_after_at_least_half_a_window(length) -> None:
    """The context is 64 tokens: windows begin every 32."""
    lm = tiny_lm()
    assert lm.anatomy.context == 64 < WINDOW
    ids = np.random.default_rng(0).integers(4, 61, length)
    total, tokens = text_loss(lm, lm.tokenizer.decode(ids))
    expected, end = 0.0, 64  # where the window of a token ends
    for i in range(1, length):
        end += 32 * (i >= end)
        log_p = lm.model(torch.tensor(ids[None, max(0, end - 64) : i])).logits[0, -1].log_softmax(-1)
        expected -= log_p[ids[i]].item()
    assert (tokens, total) == (length - 1, pytest.approx(expected, rel=1e-4))


@pytest.mark.parametrize(
    ("tasks", "text", "message"),
    [((), None, "nothing to measure"), ((), b"\xff\xfe\xff", "cannot read the text"), ((), b" \n", "is empty")],
)
def test_nothing_to_compare_is_told(model, tmp_path, tasks, text, message) -> None:
    if text is not None:
        (tmp_path / "text").write_bytes(text)
    with pytest.raises((BadArgument, BadFile), match=message):
        ha.evaluate(model, model, tasks, text=None if text is None else tmp_path / "text")

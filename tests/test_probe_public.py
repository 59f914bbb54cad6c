"""`ha.probe` and `headatlas probe`, whole: what is in the file, resuming, generated answers, the judge, bad input."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo
from headatlas.results.store import load
from headatlas.models.lm import LM
from headatlas.public import probe as public
from headatlas.tasks.questions import FUNCTIONS, load_questions, with_answer
from tests.models.tiny import TINY, build, tokenizer
from tests.test_cli import headatlas

BY_ID = {t.id: t for t in TINY}


def questions(n: int = 50, seed: int = 0) -> list[dict]:
    """Four steps to a main question, in the tiny tokenizer's words; a function shows in the first word of the answer."""
    generator = np.random.default_rng(seed)

    def some(count: int) -> str:
        return " ".join(f"w{i}" for i in generator.integers(57, size=count))

    found = []
    for i in range(n):
        steps = [
            {
                "subquestion": some(3),
                "answer": f"w{5 * c + generator.integers(3)} {some(generator.integers(8))}",
                "cognitive_skill": FUNCTIONS[c],
            }
            for c in generator.choice(8, 4, replace=False)
        ]
        found.append({"question": f"w{i % 57} w{i // 57} {some(3)}", "answer": "w1", "generated": steps})
    return found


def stop(items, label):
    """A progress that is interrupted at the fifth item."""
    for i, item in enumerate(items):
        if i == 4:
            raise KeyboardInterrupt
        yield item


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(BY_ID["llama"]).float(), tokenizer(), "tiny")


@pytest.fixture(scope="module")
def found(lm):
    return ha.probe(lm, questions())


def test_what_is_in_it(found, lm) -> None:
    assert found.importance.dims == found.signed.dims == found.selected.dims == ("function", "layer", "head")
    assert found.importance.shape == (8, lm.n_layers, lm.n_heads)
    assert found.function.values.tolist() == list(FUNCTIONS)
    np.testing.assert_allclose(found.importance.sum(("layer", "head")), 1, rtol=1e-9)
    weight = abs(found.signed)
    np.testing.assert_allclose(found.importance, weight / weight.sum(("layer", "head")), rtol=1e-6)
    for name in ("accuracy", "bag_of_words_accuracy", "majority_accuracy", "control_accuracy", "selectivity"):
        assert found[name].dims == ()
        assert np.isfinite(found[name])
    counts = found.questions.sel(split="test")
    assert ((found.confusion * counts).sum() / counts.sum()).item() == pytest.approx(1)
    recall = (found.accuracy_per_function * counts).sum() / counts.sum()
    assert recall.item() == pytest.approx(found.accuracy.item())
    assert int(found.questions.sum()) == 200
    assert found.bag_of_words_accuracy == found.bag_of_words.sel(wording="question")
    assert (found.selected <= found.before_elbow).all()
    assert (found.selected <= found.clears_control).all()
    assert found.attrs["model"] == "tiny"


def test_the_proof_is_in_it(found) -> None:
    assert found.removal_random.sizes["draw"] >= 20
    own = found.removal_top.sel(measure="log_p")
    random = found.removal_random.sel(measure="log_p")
    expected = (1 + (random <= own).sum("draw")) / 21
    np.testing.assert_allclose(
        found.removal_p.transpose("function", "removed"), expected.transpose("function", "removed")
    )
    assert found.specialisation.sizes["masked"] == 8
    at = int(found.masked_heads)
    if at in found.removed:  # the diagonal is the removal curve at that number of heads
        diagonal = [found.specialisation.sel(function=f, masked=f, measure="log_p").item() for f in FUNCTIONS]
        curve = (own.sel(removed=at) - found.whole.sel(measure="log_p")).values
        np.testing.assert_allclose(diagonal, curve, atol=1e-5)
    assert found.hierarchy.sizes["order"] == 2
    assert set(found.alpha.values.tolist()) == {-2, -1, 1, 2}


def test_features_are_means_of_z_over_the_answer(lm, monkeypatch) -> None:
    """What reaches the probe, against `head_outputs` one example at a time."""
    seen = {}

    def keep(data, labels, names, **options):
        seen["features"], seen["labels"] = np.array(data.features), labels
        return probe_map(data, labels, names, **options)

    probe_map = public.probe_map
    monkeypatch.setattr(public, "probe_map", keep)
    given = questions(20)
    ha.probe(lm, given, proof="none", k=3)
    for q, feature, label in zip(load_questions(given), seen["features"], seen["labels"], strict=True):
        asked = with_answer(lm, q, q.answer)
        z = lm.head_outputs([asked.prompt + asked.target])[0, len(asked.prompt) :]
        assert FUNCTIONS[label] == q.function
        if len(asked.target) <= 3:
            np.testing.assert_allclose(feature, z.mean(0), rtol=1e-4, atol=1e-5)
        else:
            logits = lm.model(torch.tensor([asked.prompt + asked.target])).logits[0].log_softmax(-1)
            surprisal = [-logits[len(asked.prompt) - 1 + i, t].item() for i, t in enumerate(asked.target)]
            top = sorted(range(len(surprisal)), key=lambda i: -surprisal[i])[:3]
            np.testing.assert_allclose(feature, z[top].mean(0), rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_file(lm, tmp_path) -> None:
    for name in "ab":
        ha.probe(lm, questions(20), out=tmp_path / name)
    assert (tmp_path / "a" / "probe.nc").read_bytes() == (tmp_path / "b" / "probe.nc").read_bytes()
    assert load(tmp_path / "a" / "probe.nc").identical(load(tmp_path / "b" / "probe.nc"))


@pytest.fixture
def shards(monkeypatch):
    """Answers are read a few questions at a time, and in the third shard somebody interrupts."""
    monkeypatch.setattr("headatlas.methods.probe.features.SHARD", 30)

    def stop(items, label):
        if label.startswith("reading answers, shard 3"):
            raise KeyboardInterrupt
        return items

    return stop


def test_interrupted_capture_goes_on_at_the_shard_it_had_reached(lm, shards, tmp_path) -> None:
    whole = ha.probe(lm, questions(20), tokens=100, proof="none")
    reached = []

    def count(items, label):
        reached.extend([label] if label.startswith("reading answers") else [])
        return items

    with pytest.raises(KeyboardInterrupt):
        ha.probe(lm, questions(20), tokens=100, proof="none", out=tmp_path, progress=shards)
    assert not (tmp_path / "probe.nc").exists()
    again = ha.probe(lm, questions(20), tokens=100, proof="none", out=tmp_path, progress=count)
    assert reached[0] == "reading answers, shard 3 of 3"
    assert again.equals(whole)
    assert [p.name for p in tmp_path.iterdir()] == [".lock", "probe.nc"]
    reached.clear()
    ha.probe(lm, questions(20), tokens=100, proof="none", seed=1, out=tmp_path, progress=count)
    assert reached[0] == "reading answers, shard 1 of 3"  # another seed is another work, from the start


def test_going_on_with_other_batches_gives_the_same(lm, shards, tmp_path) -> None:
    whole = ha.probe(lm, questions(20), tokens=150, proof="none")
    with pytest.raises(KeyboardInterrupt):
        ha.probe(lm, questions(20), tokens=100, proof="none", out=tmp_path, progress=shards)
    again = ha.probe(lm, questions(20), tokens=150, proof="none", out=tmp_path)
    np.testing.assert_allclose(again.signed, whole.signed, rtol=1e-3, atol=1e-7)


def test_a_damaged_part_is_read_again(lm, shards, tmp_path) -> None:
    whole = ha.probe(lm, questions(20), tokens=100, proof="none")
    with pytest.raises(KeyboardInterrupt):
        ha.probe(lm, questions(20), tokens=100, proof="none", out=tmp_path, progress=shards)
    first, second = sorted((tmp_path / ".probe").glob("shard*.npz"))
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:-100])
    assert ha.probe(lm, questions(20), tokens=100, proof="none", out=tmp_path).equals(whole)


def test_generated_answers(lm, caplog, monkeypatch) -> None:
    caplog.set_level(logging.INFO)
    found = ha.probe(lm, questions(), answers="generated", proof="none")
    assert "answers are right" in caplog.text
    assert 0 <= found.answers_right < 0.5
    monkeypatch.setattr(public, "is_right", lambda answer, reference: len(reference) % 4 > 0)
    some = ha.probe(lm, questions(), answers="generated", keep="correct", proof="none")
    good = sum(len(q.answer) % 4 > 0 for q in load_questions(questions()))
    assert int(some.questions.sum()) == pytest.approx(good, abs=10)  # some answers of this random model are empty
    assert some.questions.sum() < 190
    monkeypatch.setattr(public, "is_right", lambda answer, reference: False)
    with pytest.raises(BadArgument, match="of 0 functions"):
        ha.probe(lm, questions(), answers="generated", keep="correct", proof="none")


def test_answers_of_nothing_are_dropped_and_told(lm, caplog, monkeypatch) -> None:
    caplog.set_level(logging.INFO)
    made = public.generate_answers
    monkeypatch.setattr(
        public,
        "generate_answers",
        lambda *a, **k: [[] if i % 50 == 0 else t or [9] for i, t in enumerate(made(*a, **k))],
    )
    found = ha.probe(lm, questions(), answers="generated", proof="none")
    assert int(found.questions.sum()) == 196
    assert "dropped 4 questions that the model answered with nothing" in caplog.text


def test_a_proof_by_generating(lm, monkeypatch) -> None:
    few = replace(public.PRESETS["quick"], proof=2, new_tokens=4)
    few = replace(few, trials=replace(few.trials, draws=2, shares=(0.1,), alphas=(-4.0, 4.0)))
    monkeypatch.setitem(public.PRESETS, "quick", few)
    for everywhere in (False, True):
        found = ha.probe(lm, questions(), proof="generate", everywhere=everywhere)
        assert found.measure.values.tolist() == ["f1", "right"]
        assert (found.removal_top >= 0).all()
        assert (found.removal_top <= 1).all()


def test_a_judge_picks_tokens_and_marks_answers(lm, endpoint, tmp_path, monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path))
    endpoint.says = ['{"right": true, "pieces": [0]}']
    judged = ha.probe(lm, questions(20), judge=endpoint.address, proof="none")
    asked = len(endpoint.asked)
    assert asked == sum(len(step["answer"].split()) > 5 for e in questions(20) for step in e["generated"])
    again = ha.probe(lm, questions(20), judge=endpoint.address, proof="none")
    assert len(endpoint.asked) == asked  # what it said is kept
    assert again.equals(judged)
    alone = ha.probe(lm, questions(20), proof="none")
    assert not judged.signed.equals(alone.signed)
    endpoint.says = [None]
    without = ha.probe(lm, questions(20), judge=endpoint.address, judge_model="other", proof="none")
    assert "going on without it" in caplog.text
    assert without.attrs["judge"] == f"other at {endpoint.address}, given up"
    assert without.signed.equals(alone.signed)


def test_generated_answers_are_read_at_the_tokens_the_model_gave(lm, monkeypatch) -> None:
    """Tokens that their own text would be cut into differently (here: an unknown word) are kept as they are."""
    unknown = 3
    monkeypatch.setattr(public, "generate_answers", lambda model, prompts, n, **k: [[9, unknown, 4] for _ in prompts])
    seen = []
    read = public.capture

    def look(model, asked, *rest, **options):
        seen.extend(a.target for a in asked)
        return read(model, asked, *rest, **options)

    monkeypatch.setattr(public, "capture", look)
    ha.probe(lm, questions(20), answers="generated", proof="none")
    assert set(seen) == {(9, unknown, 4)}


def test_too_long_for_an_answer_is_told_before_any_work(lm, tmp_path) -> None:
    given = questions(20)
    given[3]["question"] = " ".join(["w1"] * 40)
    for options in ({"answers": "generated"}, {"proof": "generate"}):
        with pytest.raises(BadArgument, match=r"question 'w.*' is a prompt of \d+ tokens: with 32 new ones it exceeds"):
            ha.probe(lm, given, out=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_the_proof_is_asked_as_the_rest_is(lm, monkeypatch) -> None:
    """Without the template in the proof too; everywhere if so asked; and with heads really scaled while text is generated."""
    heard = []

    def score(model, asked, changes, *, everywhere, tokens):
        heard.append((asked[0].prompt, everywhere))
        return torch.zeros(len(changes), len(asked), 3)

    monkeypatch.setattr(public, "answers_under", score)
    ha.probe(lm, questions(20), everywhere=True, template=False)
    assert {everywhere for _, everywhere in heard} == {True}
    shut = []

    def generate(model, prompts, n, **options):
        last = model.head_outputs([[4, 5, 6]])[0]  # [token, layer, head, d_head]
        shut.append([int((z.abs().amax(-1) < 1e-3).sum()) for z in (last[0], last[-1])])
        return [[4] for _ in prompts]

    few = replace(public.PRESETS["quick"], proof=1)
    few = replace(few, trials=replace(few.trials, draws=2, shares=(0.1, 0.5), alphas=(1.0,)))
    monkeypatch.setitem(public.PRESETS, "quick", few)
    monkeypatch.setattr(public, "generate_answers", generate)
    for everywhere in (False, True):
        shut.clear()
        ha.probe(lm, questions(20), proof="generate", everywhere=everywhere)
        assert shut[0] == [0, 0]  # the whole model
        assert shut[1:3] == [[2 * everywhere, 2], [9 * everywhere, 9]]  # the top 10 % and 50 % of 18 heads
        assert shut[-1] == [0, 0]  # pushed, not removed


def test_activations_that_are_not_numbers_are_named(lm) -> None:
    broken = LM(build(BY_ID["llama"]).float(), tokenizer(), "tiny")
    with torch.no_grad():
        broken.model.model.layers[1].self_attn.v_proj.weight[0, 0] = torch.nan
    with pytest.raises(CannotDo, match="activations in layer 1 are NaN or infinite"):
        ha.probe(broken, questions(20))


def test_a_hybrid_model_has_nan_where_it_has_no_heads() -> None:
    hybrid = LM(build(BY_ID["qwen3_next"]).float(), tokenizer(), "hybrid")
    found = ha.probe(hybrid, questions(20))
    without = hybrid.layers_without_heads
    assert without
    assert found.importance.isel(layer=without).isnull().all()
    assert not found.selected.isel(layer=without).any()
    assert found.selected.dtype == bool
    np.testing.assert_allclose(found.importance.sum(("layer", "head")), 1, rtol=1e-9)
    assert np.isfinite(found.removal_top).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preset": "fast"}, "preset is 'fast', expected one of quick, full"),
        ({"answers": "referense"}, "Did you mean 'reference'"),
        ({"probe": "linear"}, "probe is 'linear', expected one of published, per-head, written"),
        ({"keep": "right"}, "keep is 'right'"),
        ({"proof": "yes"}, "proof is 'yes', expected one of score, generate, none"),
        ({"k": 0}, "k is 0, expected a whole number, at least 1"),
        ({"k": 2.5}, "k is 2.5"),
        ({"seed": -1}, "seed is -1, expected a whole number, at least 0"),
        ({"limit": "40"}, "limit is '40'"),
        ({"keep": "correct"}, "keep is 'correct' with answers='reference'"),
        ({"tokens": 0}, "tokens is 0"),
        ({"judge": "there"}, "judge is 'there', expected the address"),
        ({"functions": ["Magic"]}, "functions has 'Magic'"),
    ],
)
def test_asked_wrongly(lm, options, says) -> None:
    with pytest.raises(BadArgument, match=says):
        ha.probe(lm, questions(20), **options)


def test_the_command(capsys, folder, tmp_path) -> None:
    data, test = tmp_path / "data.json", tmp_path / "test.json"
    data.write_text(json.dumps(questions(40)))
    extra = questions(20, seed=1)
    extra[0]["generated"].append({"subquestion": "w1", "answer": "w2", "cognitive_skill": "<Induction>"})
    test.write_text(json.dumps(extra))
    options = ["--data", data, "--test", test, "--out", tmp_path / "out"]
    code, out, err = headatlas(capsys, "probe", folder, *options)
    assert code == 0
    assert "dropped 1 questions of other functions: 1 × '<Induction>'" in err
    for title in (
        "Test accuracy",
        "Functions and their heads",
        "Heads removed while answering",
        "lower- and of higher",
    ):
        assert title in out
    assert f"wrote {tmp_path / 'out' / 'probe.nc'}" in out
    found = load(tmp_path / "out" / "probe.nc")
    code, out, _ = headatlas(capsys, "probe", folder, *options, "--json", "--probe", "per-head", "--proof", "none")
    assert code == 0
    parts = json.loads(out)
    assert next(iter(parts)).startswith("Test accuracy")
    assert len(parts) == 2
    assert found.questions.sel(split="test").sum() == 80


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--data", "none.json"], 2, "--data is 'none.json': no such file"),
        (["--data", "bad.json"], 1, "bad.json is not JSON"),
        (["--data", "few.json"], 2, "examples, expected at least 8"),
        (["--test", "few.json"], 2, "test is given without data"),
        (["--context", "some"], 2, "context is 'some', expected one of retrieval, all, none"),
    ],
)
def test_the_command_asked_wrongly(capsys, folder, tmp_path, monkeypatch, options, code, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("[1,")
    (tmp_path / "few.json").write_text(json.dumps(questions(2)))
    ended, out, err = headatlas(capsys, "probe", folder, *options, "--out", tmp_path / "out")
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert (ended, len(lines), out) == (code, 1, "")
    assert message in lines[0]

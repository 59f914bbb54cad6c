"""`ha.probe` and `headatlas probe`, whole: what is in the file, resuming, generated answers, the judge, bad input."""

import json
import logging

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.methods import get_method
from headatlas.methods.probe import compute
from headatlas.models.generation import generate_answers
from headatlas.models.lm import LM
from headatlas.progress import silent
from headatlas.results.store import load
from headatlas.runs.worker import retry_smaller
from headatlas.tasks.questions import FUNCTIONS, load_questions, with_answer
from headatlas.tasks.used import used_questions
from tests.models.tiny import TINY, build, tokenizer
from tests.test_cli import headatlas

BY_ID = {t.id: t for t in TINY}


def questions(n: int = 50, seed: int = 0) -> list[dict]:
    """Four steps to a main question, in the tiny tokenizer's words. The first word of an answer shows the function."""
    generator = np.random.default_rng(seed)

    def words(count: int) -> str:
        return " ".join(f"w{i}" for i in generator.integers(57, size=count))

    entries = []
    for i in range(n):
        steps = [
            {
                "subquestion": words(3),
                "answer": f"w{5 * c + generator.integers(3)} {words(generator.integers(8))}",
                "cognitive_skill": FUNCTIONS[c],
            }
            for c in generator.choice(8, 4, replace=False)
        ]
        entries.append({"question": f"w{i % 57} w{i // 57} {words(3)}", "answer": "w1", "generated": steps})
    return entries


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
def result(lm):
    return ha.probe(lm, questions(), held_out=0, published_tests=True)


def test_what_is_in_it(result, lm) -> None:
    assert result.importance.dims == result.signed.dims == result.selected.dims == ("function", "layer", "head")
    assert result.importance.shape == (8, lm.n_layers, lm.n_heads)
    assert result.function.values.tolist() == list(FUNCTIONS)
    np.testing.assert_allclose(result.importance.sum(("layer", "head")), 1, rtol=1e-9)
    weight = abs(result.signed)
    np.testing.assert_allclose(result.importance, weight / weight.sum(("layer", "head")), rtol=1e-6)
    for name in ("accuracy", "bag_of_words_accuracy", "majority_accuracy", "control_accuracy", "selectivity"):
        assert result[name].dims == ()
        assert np.isfinite(result[name])
    counts = result.questions.sel(split="test")
    assert ((result.confusion * counts).sum() / counts.sum()).item() == pytest.approx(1)
    recall = (result.accuracy_per_function * counts).sum() / counts.sum()
    assert recall.item() == pytest.approx(result.accuracy.item())
    assert int(result.questions.sum()) == 200
    assert result.bag_of_words_accuracy == result.bag_of_words.sel(wording="question")
    assert (result.selected <= result.before_elbow).all()
    assert (result.selected <= result.clears_control).all()
    assert result.attrs["model"] == "tiny"


def test_every_variable_is_described(result) -> None:
    for name, values in result.data_vars.items():
        assert values.attrs["long_name"], name
        assert values.attrs["description"].endswith("."), name
        assert "units" in values.attrs, name


def test_settings_are_in_the_attributes(result) -> None:
    """By their options' names, whatever preset they come from."""
    method = get_method("probe")
    numbers = {
        n: v
        for n, v in method.in_preset("quick", {"held_out": 0, "published_tests": 1}).items()
        if n != "built_in_limit"
    }
    assert {name: result.attrs[name] for name in numbers} == numbers
    assert "preset" not in result.attrs


def test_the_published_tests_are_in_it(result) -> None:
    assert result.baseline.dims == ("function", "measure")
    assert result.specialisation.sizes["masked"] == 8
    assert int(result.masked_heads) == 2  # of 18
    assert result.hierarchy.sizes["order"] == 2
    assert set(result.alpha.values.tolist()) == {-2, -1, 1, 2}
    assert not {"effect", "p", "n_removed"} & set(result.variables)


def test_questions_are_left_out_for_its_test(lm) -> None:
    """All questions of a function are its subject, and those that the map was not made from are not used."""
    method = get_method("probe")
    entries = questions(150)
    work = method.function(lm, entries, **method.in_preset("quick", {"held_out": 20}))
    everything = load_questions(entries)
    assert {name: list(of_function) for name, of_function in work.subjects.items()} == {
        name: [q for q in everything if q.function == name] for name in FUNCTIONS
    }
    in_map = work.arguments["questions"]
    assert work.used == used_questions(in_map)
    assert {q.group for q in everything} > {q.group for q in in_map}
    for name in FUNCTIONS:
        prompts = load_prompts(lm, work.subjects[name], work.used, 16, name=name)
        assert len(prompts) == 16
        of_map = {with_answer(lm, q, q.answer).prompt for q in in_map}
        assert not of_map & {example.prompt[: len(example.prompt)] for example in prompts.examples}
    tested = method.function(lm, entries, held_out=20, published_tests=True).arguments["asked"]
    assert not {q.group for of_function in tested.values() for q in of_function} & {q.group for q in in_map}
    everything_used = method.function(lm, entries, held_out=0)
    assert everything_used.used == used_questions(everything)
    assert {q.split for of_function in everything_used.arguments["asked"].values() for q in of_function} == {"test"}


def test_refits_are_in_it(lm, result) -> None:
    assert result.importance_refit.dims == ("refit", "function", "layer", "head")
    assert result.sizes["refit"] == 2
    np.testing.assert_allclose(result.importance_refit.sum(("layer", "head")), 1, rtol=1e-9)
    first, second = result.importance_refit
    assert not np.allclose(first, second)
    assert result.reliability.notnull().all()
    alone = ha.probe(lm, questions(), held_out=0, refits=1)
    np.testing.assert_allclose(alone.importance, first, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(alone.importance_refit.isel(refit=0), alone.importance)
    assert ha.probe(lm, questions(), kind="per-head", refits=3).sizes["refit"] == 1


def read(lm, *args, **options) -> list[tuple[int, np.ndarray]]:
    """The number of every question whose answer is read, and its feature: what the parts of the work leave."""
    done: dict[str, tuple[np.ndarray, ...]] = {}
    rows = []
    method = get_method("probe")
    for part in method.function(lm, *args, **method.in_preset("quick", options)).parts:
        part.do(lm, **part.arguments, done=done, progress=silent)
        if part.name.startswith("reading"):
            features, kept = (done[name] for name in part.outputs)
            rows += zip(kept[0].tolist(), features[0], strict=True)
    return sorted(rows, key=lambda row: row[0])


def test_features_are_means_of_z_over_the_answer(lm) -> None:
    """What reaches the probe, against `head_outputs` one example at a time."""
    entries = questions(20)
    rows, loaded = read(lm, entries, k=3), load_questions(entries)
    assert [i for i, _ in rows] == list(range(len(loaded)))
    for i, feature in rows:
        one = with_answer(lm, loaded[i], loaded[i].answer)
        z = lm.head_outputs([one.prompt + one.target])[0, len(one.prompt) :]
        logits = lm.model(torch.tensor([one.prompt + one.target])).logits[0].log_softmax(-1)
        surprisal = [-logits[len(one.prompt) - 1 + i, t].item() for i, t in enumerate(one.target)]
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
    monkeypatch.setattr("headatlas.methods.probe.compute.MIN_SHARD", 30)

    def stop(items, label):
        if label.startswith("reading answers, shard 3"):
            raise KeyboardInterrupt
        return items

    return stop


def test_interrupted_capture_goes_on_at_the_shard_it_had_reached(lm, shards, tmp_path) -> None:
    expected = ha.probe(lm, questions(20), batch_tokens=100)
    reached = []

    def count(items, label):
        reached.extend([label] if label.startswith("reading answers") else [])
        return items

    with pytest.raises(KeyboardInterrupt):
        ha.probe(lm, questions(20), batch_tokens=100, out=tmp_path, progress=shards)
    assert not (tmp_path / "probe.nc").exists()
    again = ha.probe(lm, questions(20), batch_tokens=100, out=tmp_path, progress=count)
    assert reached[0] == "reading answers, shard 3 of 3"
    assert again.equals(expected)
    assert [p.name for p in tmp_path.iterdir()] == ["atlas.json", "probe.nc"]
    reached.clear()
    ha.probe(lm, questions(20), batch_tokens=100, seed=1, out=tmp_path, progress=count)
    assert reached[0] == "reading answers, shard 1 of 3"  # another seed is another work, from the start


def test_going_on_with_other_batches_gives_the_same(lm, shards, tmp_path) -> None:
    expected = ha.probe(lm, questions(20), batch_tokens=150)
    with pytest.raises(KeyboardInterrupt):
        ha.probe(lm, questions(20), batch_tokens=100, out=tmp_path, progress=shards)
    again = ha.probe(lm, questions(20), batch_tokens=150, out=tmp_path)
    np.testing.assert_allclose(again.signed, expected.signed, rtol=1e-3, atol=1e-7)


def test_a_damaged_part_is_read_again(lm, shards, tmp_path) -> None:
    expected = ha.probe(lm, questions(20), batch_tokens=100)
    with pytest.raises(KeyboardInterrupt):
        ha.probe(lm, questions(20), batch_tokens=100, out=tmp_path, progress=shards)
    first, second = sorted((tmp_path / ".probe").glob("shard*.npz"))
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:-100])
    assert ha.probe(lm, questions(20), batch_tokens=100, out=tmp_path).equals(expected)


def test_generated_answers(lm, endpoint, tmp_path, monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path))
    result = ha.probe(lm, questions(), answers="generated")
    assert "answers are right" in caplog.text
    assert 0 <= result.answers_right < 0.5
    options = {"answers": "generated", "keep": "correct", "judge": endpoint.address}
    endpoint.says = [f'{{"right": {"false" if i % 4 == 3 else "true"}, "pieces": []}}' for i in range(200)]
    chosen = ha.probe(lm, questions(), **options)
    answered = len(endpoint.requests)
    assert answered == int(result.questions.sum())  # each is judged once; of this random model, a few are empty
    assert int(chosen.questions.sum()) == answered - answered // 4
    assert chosen.answers_right == pytest.approx(1 - (answered // 4) / answered)
    endpoint.says = ['{"right": false, "pieces": []}']
    with pytest.raises(BadArgument, match="that were answered right are of 0 functions"):
        ha.probe(lm, questions(), judge_model="strict", **options)


def test_a_function_that_is_never_answered_right_is_named(lm, endpoint, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path))
    monkeypatch.setattr(lm, "generate_ids", lambda prompts, n: [[9, 4] for _ in prompts])
    loaded = load_questions(questions())
    by_shard = [
        q.function != "Inference" for q in loaded
    ]  # in the order of the questions, which are read by main question
    endpoint.says = [f'{{"right": {str(right).lower()}, "pieces": []}}' for right in by_shard]
    with pytest.raises(BadArgument, match="function 'Inference' has 0 examples that were answered right"):
        ha.probe(lm, questions(), answers="generated", held_out=0, keep="correct", judge=endpoint.address)


def test_answers_of_nothing_are_dropped_and_told(lm, caplog, monkeypatch) -> None:
    caplog.set_level(logging.INFO)
    empty = {with_answer(lm, q, q.answer).prompt for q in load_questions(questions())[::50]}
    monkeypatch.setattr(lm, "generate_ids", lambda prompts, n: [[] if tuple(p) in empty else [9] for p in prompts])
    result = ha.probe(lm, questions(), answers="generated", held_out=0)
    assert int(result.questions.sum()) == 196
    assert "dropped 4 questions with an empty answer" in caplog.text


def test_the_published_tests_of_generated_answers(lm) -> None:
    result = ha.probe(lm, questions(), answers="generated", published_tests=True, new_tokens=4)
    assert result.measure.values.tolist() == ["f1", "right"]
    removed = result.baseline + result.specialisation
    assert (removed >= 0).all()
    assert (removed <= 1).all()


def test_a_judge_picks_tokens_and_marks_answers(lm, endpoint, tmp_path, monkeypatch, caplog) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HEADATLAS_CACHE", str(tmp_path))
    endpoint.says = ['{"right": true, "pieces": [0]}']
    judged = ha.probe(lm, questions(20), judge=endpoint.address)
    requests = len(endpoint.requests)
    assert requests == sum(len(step["answer"].split()) > 5 for e in questions(20) for step in e["generated"])
    again = ha.probe(lm, questions(20), judge=endpoint.address)
    assert len(endpoint.requests) == requests  # what it said is kept
    assert again.equals(judged)
    alone = ha.probe(lm, questions(20))
    assert not judged.signed.equals(alone.signed)
    endpoint.says = [None]
    without = ha.probe(lm, questions(20), judge=endpoint.address, judge_model="other")
    assert "answers are judged offline from now on" in caplog.text
    assert without.attrs["judge"] == f"other at {endpoint.address}, given up"
    assert without.signed.equals(alone.signed)


def test_generated_answers_are_read_at_the_tokens_the_model_gave(lm, monkeypatch) -> None:
    """Tokens that their own text would be cut into differently (here: an unknown word) are kept as they are."""
    new, entries = (9, 3, 4), questions(20)
    monkeypatch.setattr(lm, "generate_ids", lambda prompts, n: [list(new) for _ in prompts])
    rows, loaded = read(lm, entries, answers="generated"), load_questions(entries)
    assert len(rows) == len(loaded)
    for i, feature in rows:
        prompt = with_answer(lm, loaded[i], loaded[i].answer).prompt
        z = lm.head_outputs([prompt + new])[0, len(prompt) :]
        np.testing.assert_allclose(feature, z.mean(0), rtol=1e-4, atol=1e-5)


def test_too_long_for_an_answer_is_told_before_any_work(lm, tmp_path) -> None:
    entries = questions(20)
    entries[3]["question"] = " ".join(["w1"] * 40)
    with pytest.raises(BadArgument, match=r"question 'w.*' has a prompt of \d+ tokens: with 32 new ones it exceeds"):
        ha.probe(lm, entries, out=tmp_path, answers="generated")
    assert {p.name for p in tmp_path.iterdir()} <= {".lock"}


def test_answers_are_scored_with_heads_removed(lm) -> None:
    """As asked for: without the template. Against one pass for each question."""
    entries = questions(20)
    result = ha.probe(lm, entries, published_tests=True, template=False).sel(function="Retrieval", measure="log_p")
    tested = [q for q in load_questions(entries) if q.function == "Retrieval" and q.split == "test"]
    assert result.asked == len(tested)
    n = int(result.masked_heads)
    gate = torch.ones(lm.n_layers * lm.n_heads)
    gate[np.argsort(-result.importance.values, axis=None, kind="stable")[:n]] = 1e-4
    gate = gate.reshape(lm.n_layers, lm.n_heads)

    def log_p(q, gate) -> float:
        example = with_answer(lm, q, q.answer, template=False)
        ids, first = example.prompt + example.target, len(example.prompt) - 1
        with lm.gated(gate, positions=list(range(first, len(ids)))):
            logits = lm.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return np.mean([logits[first + i, t].item() for i, t in enumerate(example.target)])

    baseline, removed = (np.mean([log_p(q, g) for q in tested]) for g in (torch.ones_like(gate), gate))
    assert result.baseline.item() == pytest.approx(baseline, rel=1e-4)
    assert result.specialisation.sel(masked="Retrieval").item() == pytest.approx(removed - baseline, rel=1e-3, abs=1e-5)


def test_heads_are_really_scaled_while_text_is_generated(lm, monkeypatch) -> None:
    shut = []

    def generate(prompts, n):
        last = lm.head_outputs([[4, 5, 6]])[0]  # [token, layer, head, d_head]
        shut.append([int((z.abs().amax(-1) < 1e-3).sum()) for z in (last[0], last[-1])])
        return [[4] for _ in prompts]

    monkeypatch.setattr(lm, "generate_ids", generate)
    ha.probe(lm, questions(20), answers="generated", published_tests=True, new_tokens=4)
    changes = shut[-25:]  # of the last function: none, the heads of 8 functions, of orders, random ones, and pushes
    assert changes[0] == [0, 0]  # the whole model
    assert changes[1:9] == [[0, 2]] * 8  # the top 10 % of 18 heads, from the prompt's last token on
    assert changes[-4:] == [[0, 0]] * 4  # pushed, not removed


def test_activations_that_are_not_numbers_are_named(lm) -> None:
    broken = LM(build(BY_ID["llama"]).float(), tokenizer(), "tiny")
    with torch.no_grad():
        broken.model.model.layers[1].self_attn.v_proj.weight[0, 0] = torch.nan
    with pytest.raises(CannotDo, match="activations in layer 1 are NaN or infinite"):
        ha.probe(broken, questions(20))


def test_a_hybrid_model_has_nan_where_it_has_no_heads() -> None:
    hybrid = LM(build(BY_ID["qwen3_next"]).float(), tokenizer(), "hybrid")
    result = ha.probe(hybrid, questions(20), published_tests=True)
    without = hybrid.layers_without_heads
    assert without
    assert result.importance.isel(layer=without).isnull().all()
    assert not result.selected.isel(layer=without).any()
    assert result.selected.dtype == bool
    np.testing.assert_allclose(result.importance.sum(("layer", "head")), 1, rtol=1e-9)
    assert np.isfinite(result.specialisation).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "fast"}, "preset is 'fast', expected one of quick, full"),
        ({"answers": "referense"}, "Did you mean 'reference'"),
        ({"kind": "linear"}, "kind is 'linear', expected one of published, per-head, written, used"),
        ({"keep": "right"}, "keep is 'right'"),
        ({"refits": 0}, "refits is 0, expected a whole number, at least 1"),
        ({"held_out": -1}, "held_out is -1, expected a whole number, at least 0"),
        ({"k": 0}, "k is 0, expected a whole number, at least 1"),
        ({"k": 2.5}, "k is 2.5"),
        ({"seed": -1}, "seed is -1, expected a whole number from 0"),
        ({"limit": "40"}, "limit is '40'"),
        ({"keep": "correct"}, "keep is 'correct', but all reference answers are correct"),
        ({"batch_tokens": 0}, "batch_tokens is 0, expected a whole number, at least 1"),
        ({"judge": "there"}, "judge is 'there', expected the address"),
        ({"functions": ["Magic"]}, "functions has 'Magic'"),
        ({"epochs": 0}, "epochs is 0, expected a whole number, at least 1"),
        ({"controls": -1}, "controls is -1, expected a whole number, at least 0"),
        ({"lr": 0.0}, "lr is 0.0, expected a number above 0"),
    ],
)
def test_asked_wrongly(lm, options, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.probe(lm, questions(20), **options)


def test_the_command(capsys, folder, tmp_path) -> None:
    data, test = tmp_path / "data.json", tmp_path / "test.json"
    data.write_text(json.dumps(questions(40)))
    extra = questions(20, seed=1)
    extra[0]["generated"].append({"subquestion": "w1", "answer": "w2", "cognitive_skill": "<Induction>"})
    test.write_text(json.dumps(extra))
    options = ["--questions", data, "--test", test, "--out", tmp_path / "out", "--held-out", 0]
    code, out, err = headatlas(capsys, "probe", folder, *options, "--published-tests")
    assert code == 0
    assert "dropped 1 questions of other functions: 1 × '<Induction>'" in err
    for title in (
        "Probe: each wording",
        "Probe: top heads",
        "lower- and of higher",
    ):
        assert title in out
    assert f"wrote {tmp_path / 'out' / 'probe.nc'}" in out
    result = load(tmp_path / "out" / "probe.nc")
    code, out, _ = headatlas(capsys, "probe", folder, *options, "--json", "--kind", "per-head")
    assert code == 0
    parts = json.loads(out)
    assert {"Probe: each wording", "Probe: top heads"} <= set(parts)
    assert not [title for title in parts if "lower- and of higher" in title]
    assert result.questions.sel(split="test").sum() == 80


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--questions", "none.json"], 2, "--questions is 'none.json': no such file"),
        (["--questions", "bad.json"], 1, "bad.json is not JSON"),
        (["--questions", "few.json"], 2, "examples, expected at least 8"),
        (["--test", "few.json"], 2, "test is given without questions"),
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


def test_a_probe_that_does_not_fit_beside_the_model_is_trained_on_the_cpu(lm, result, monkeypatch, caplog) -> None:
    plain, devices = compute.probe_map, []

    def short(data, *args, **options):
        devices.append(data.device)
        if len(devices) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(data, *args, **options)

    monkeypatch.setattr(compute, "probe_map", short)
    again = ha.probe(lm, questions(), held_out=0, published_tests=True)
    assert devices[1] == torch.device("cpu")
    assert "so it is trained on the CPU" in caplog.text
    np.testing.assert_allclose(again.importance, result.importance, rtol=1e-5, atol=1e-7)


def test_answers_are_generated_fewer_at_once_where_memory_is_short(caplog) -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "fresh")
    prompts = [[1 + i % 7, 2, 3] for i in range(40)]
    expected = generate_answers(lm, prompts, 4)
    plain, sizes = lm.generate_ids, []

    def short(some, new_tokens):
        sizes.append(len(some))
        if len(some) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(some, new_tokens)

    lm.generate_ids = short
    assert retry_smaller(lambda: generate_answers(lm, prompts, 4)) == expected
    assert sizes[0] == 40
    assert 1 < max(sizes[-4:]) <= 12
    assert "out of memory" in caplog.text

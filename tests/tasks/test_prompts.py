"""Tasks of prompt and target: what is read, how it is split, and the bundles they are run as."""

import json
import re
import sys

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadArgument, HeadAtlasError, MissingExtra
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, encode_target, make_bundle
from headatlas.tasks.bundles import batches_of, held_out_bundles
from headatlas.tasks.needles import load_sentences
from headatlas.tasks.prompts import BUILT_IN, Example, Task, describe_tasks, load_tasks
from headatlas.tasks.words import word_ids
from tests.models.tiny import TINY, build, tokenizer
from tests.models.trained import byte_level, sentencepiece_like


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(TINY[0]), tokenizer(), "tiny")


def rows(n: int = 20) -> list[dict[str, str]]:
    return [{"prompt": f"w{i} w3", "target": f" w{i + 1}"} for i in range(n)]


def write(path, lines) -> str:
    path.write_text("\n".join(json.dumps(line) if not isinstance(line, str) else line for line in lines))
    return str(path)


@pytest.mark.parametrize("name", ["math", "syntax", "commonsense"])
def test_built_in_tasks(lm, name) -> None:
    (task,) = load_tasks(lm, name)
    assert task.name == name
    assert task.shots == 1
    assert len(task.train) + len(task.held_out) >= 400
    assert len(task.held_out) >= 100
    assert not {e.prompt for e in task.train} & {e.prompt for e in task.held_out}
    assert len(task.kinds) >= 7


def test_the_list_of_tasks_is_what_is_there(lm) -> None:
    listed = {row["task"]: row for row in describe_tasks()}
    assert list(listed) == list(BUILT_IN)
    (math,) = load_tasks(lm, "math")
    assert (listed["math"]["train"], listed["math"]["held out"]) == (len(math.train), len(math.held_out))


@pytest.mark.parametrize("train", [sentencepiece_like, byte_level])
def test_aba_abb_follows_its_pattern_in_words_of_one_token(lm, train) -> None:
    spoken = train(load_sentences(), 1500)
    (task,) = load_tasks(LM(lm.model, spoken, "spoken"), "aba_abb")
    assert (len(task.train), len(task.held_out)) == (480, 160)
    for e in task.train:
        a, b = re.fullmatch(r"- (\w+): (\w+):", e.prompt).groups()
        assert a != b
        assert e.target == f" {a if e.kind == 'aba' else b}"
        assert [len(ids) for ids in word_ids(spoken, [a, b])] == [1, 1]
    assert {e.kind for e in task.train} == {"aba", "abb"}
    assert sum(e.kind == "aba" for e in task.train) == 240


def test_aba_abb_needs_words(lm) -> None:
    with pytest.raises(BadArgument, match="needs 40 words that are single tokens"):
        load_tasks(lm, "aba_abb")


def test_json_lines_csv_and_lists_say_the_same(lm, tmp_path) -> None:
    lines = write(tmp_path / "mine.jsonl", [*rows(), ""])
    table = tmp_path / "mine.csv"
    table.write_text("prompt,target\n" + "".join(f"{r['prompt']},{r['target']}\n" for r in rows()))
    tasks = [load_tasks(lm, t)[0] for t in (lines, table, rows(), [Example(r["prompt"], r["target"]) for r in rows()])]
    assert {t.train for t in tasks} == {tasks[0].train}
    assert {t.held_out for t in tasks} == {tasks[0].held_out}
    assert (len(tasks[0].train), len(tasks[0].held_out), tasks[0].shots) == (16, 4, 0)
    assert tasks[0].name == "mine"


def test_files_as_windows_writes_them(lm, tmp_path) -> None:
    plain = load_tasks(lm, rows())[0]
    lines = tmp_path / "w.jsonl"
    lines.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(json.dumps(r) for r in rows()).encode())
    table = tmp_path / "w.CSV"
    table.write_bytes(
        b"\xef\xbb\xbf" + ("prompt,target\r\n" + "".join(f"{r['prompt']},{r['target']}\r\n" for r in rows())).encode()
    )
    assert load_tasks(lm, lines)[0].train == load_tasks(lm, table)[0].train == plain.train
    odd = {"prompt": "w1\u2028w2", "target": "w3\u0085"}
    (tmp_path / "odd.jsonl").write_text("\n".join(json.dumps(o, ensure_ascii=False) for o in [odd, *rows(4)]))
    loaded = load_tasks(lm, tmp_path / "odd.jsonl")[0]
    assert "w1\u2028w2" in {e.prompt for e in (*loaded.train, *loaded.held_out)}
    (tmp_path / "q.csv").write_text('prompt,target\n"w1\nw2",w3\nw4,w5\n')
    assert "w1\nw2" in {e.prompt for t in load_tasks(lm, tmp_path / "q.csv") for e in (*t.train, *t.held_out)}


def test_an_example_said_twice_counts_once(lm) -> None:
    (loaded,) = load_tasks(lm, rows() + rows())
    assert len(loaded.train) + len(loaded.held_out) == 20
    (loaded,) = load_tasks(lm, Task("t", (Example([1, 2], [3]),) * 3, (Example([1], [2]),)))
    assert loaded.train == (Example((1, 2), (3,)),)


def test_what_a_tokenizer_puts_around_texts(lm) -> None:
    """BOS goes before the prompt; EOS is not part of the target."""

    def around(text, add_special_tokens=True):
        ids = [5 + int(w[1:]) for w in text.split()]
        return {"input_ids": [1, *ids, 2] if add_special_tokens else ids}

    encoded = encode_target(LM(lm.model, around, "around"), "w1 w2", " w3", "where")
    assert (encoded.prompt, encoded.target) == ((1, 6, 7), (8,))


@pytest.mark.parametrize("ids", [["x"], [[1]], [None], [1.7], [-1], [10**6]])
def test_token_ids_are_numbers_in_the_vocabulary(lm, ids) -> None:
    with pytest.raises(BadArgument, match=r"where: .* is not a token id, expected whole numbers from 0 to"):
        encode_target(lm, [1, 2], ids, "where")


def test_own_splits_and_kinds_are_kept(lm) -> None:
    mine = [r | {"split": "held_out" if i < 3 else "train", "kind": "k"} for i, r in enumerate(rows())]
    (task,) = load_tasks(lm, mine)
    assert [e.prompt for e in task.held_out] == ["w0 w3", "w1 w3", "w2 w3"]
    assert task.kinds == ["k"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"prompt": "", "target": " w1"}], "example 1 has prompt '', expected text"),
        ([{"prompt": "w1", "target": "  "}], "example 1 has target '  ', expected text"),
        ([{"prompt": "w1", "target": 5}], "example 1 has target 5, expected text"),
        ([{"prompt": "w1"}], 'expected {"prompt": "…", "target": "…"}'),
        (["not json"], "line 1 is not JSON"),
        ([{"prompt": "w1", "target": "w2"}], "has 1 example, expected at least 2"),
        ([], "has 0 examples, expected at least 2"),
        ([{"prompt": "w1", "target": "w2"}] * 5, "has 5 examples, 1 distinct, expected at least 2"),
        ([{"prompt": "a", "target": "b", "split": "test"}], "split 'test', expected one of train, held_out"),
        ([r | {"split": "train"} for r in rows(3)], "3 train and 0 held_out examples: give some of both"),
    ],
)
def test_bad_files(lm, tmp_path, lines, message) -> None:
    with pytest.raises(HeadAtlasError, match=re.escape(message)):
        load_tasks(lm, write(tmp_path / "bad.jsonl", lines))


def test_bad_names(lm, tmp_path) -> None:
    with pytest.raises(BadArgument, match="'maths' is neither built in .* nor a file. Did you mean 'math'?"):
        load_tasks(lm, "maths")
    with pytest.raises(BadArgument, match="tasks is empty"):
        load_tasks(lm, [])
    with pytest.raises(BadArgument, match="'math' 2 times"):
        load_tasks(lm, ["math", "math"])
    (tmp_path / "x.csv").write_text("prompt\nw1\n")
    with pytest.raises(HeadAtlasError, match="lacks the column target"):
        load_tasks(lm, tmp_path / "x.csv")
    with pytest.raises(BadArgument, match="is neither built in .* nor a file"):
        load_tasks(lm, tmp_path)


def test_what_the_model_cannot_take(lm) -> None:
    with pytest.raises(BadArgument, match="where: target is '!', which has no tokens"):
        encode_target(_swallowing(lm), "w1", "!", "where")
    long = " ".join(["w1"] * (lm.anatomy.context + 1))
    with pytest.raises(BadArgument, match=rf"tokens long, but the model's context is {lm.anatomy.context}"):
        encode_target(lm, long, " w2", "where")
    with pytest.raises(BadArgument, match="both be text or both be token ids"):
        encode_target(lm, "w1", (2,), "where")
    with pytest.raises(BadArgument, match=r"where: prompt is '', expected text"):
        encode_target(lm, "", "w1", "where")


def _swallowing(lm: LM) -> LM:
    """The same model with a tokenizer that has no token for '!'."""
    plain = lm.tokenizer
    return LM(lm.model, lambda text, **options: plain(text.replace("!", ""), **options), "swallowing")


@pytest.mark.parametrize(
    ("prompt", "target", "expected"),
    [
        ([5, 6], [7], ((5, 6), (7,))),
        ("ab", "c", ((1, 2), (3,))),  # cut where the prompt ends
        ("a", "bc", ((1,), (23,))),  # 'bc' is one token behind 'a'
        ("ab", "d", ((1,), (24,))),  # 'bd' is one token: it reaches across the border and belongs to the target
        ("x", "y", ((9,), (8,))),  # 'xy' melts into one token, so they are cut one by one
    ],
)
def test_where_the_target_begins(lm, prompt, target, expected) -> None:
    table = {"ab": [1, 2], "abc": [1, 2, 3], "a": [1], "abd": [1, 24], "x": [9], "y": [8], "xy": [11]}
    if prompt == "a":
        table["abc"] = [1, 23]
    known = LM(lm.model, lambda text, **options: {"input_ids": table[text]}, "known")
    encoded = encode_target(known, prompt, target, "where")
    assert (encoded.prompt, encoded.target) == expected


# --- bundles


def task(shots: int, n: int = 40) -> Task:
    examples = [Example(f"w{i} w{i % 7}", f" w{(i + 1) % 40}", ("odd", "even")[i % 2]) for i in range(n)]
    return Task("t", tuple(examples[: n // 2]), tuple(examples[n // 2 :]), shots=shots, separator=" ")


@pytest.mark.parametrize("shots", [0, 1, 2])
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_sheets_hold_every_example_once_behind_worked_ones(lm, shots, split) -> None:
    one = task(shots)
    bundles = held_out_bundles(lm, one, 20)
    if split == "train":
        bundles = [bundle for (bundle,) in next(batches_of(lm, [one], 20, 0))]
    examples = {tuple(lm.encode(e.prompt + e.target)[0]): e for e in getattr(one, split)}
    worked = {tuple(lm.encode(e.prompt + e.target)[0]): e for e in one.train}
    seen = []
    for bundle in bundles:
        kinds = set()
        for a in bundle.examples:
            parts = [tuple((a.prompt + a.target)[i : i + 3]) for i in range(0, len(a), 3)]
            assert len(parts) == shots + 1
            assert parts[-1] not in parts[:-1]  # never shown its own answer
            kinds |= {examples[parts[-1]].kind, *(worked[p].kind for p in parts[:-1])}
            seen.append(parts[-1])
        assert len({a.prompt[: 3 * shots] for a in bundle.examples}) == 1
        assert len(kinds) == 1 or not shots
        assert bundle.shared >= 3 * shots or len(bundle.examples) == 1
    assert sorted(seen) == sorted(examples)
    assert max(len(bundle.examples) for bundle in bundles) == 4


def test_a_batch_is_drawn_from_all_kinds_alike(lm) -> None:
    """How examples are laid out must not decide which are drawn: with two an update, both kinds often meet."""
    made = batches_of(lm, [task(1)], 2, 0)
    mixed = 0
    for _ in range(40):
        asked = [a for (bundle,) in next(made) for a in bundle.examples]
        mixed += len({a.prompt[-2] % 2 for a in asked}) == 2
    assert 10 < mixed < 35


def test_few_examples_still_get_others_to_be_shown(lm) -> None:
    """Three of a kind and two shown: bundles of one."""
    few = Task("few", task(0).train[:6], task(0).held_out[:2], shots=2, separator=" ")
    assert all(len(bundle.examples) == 1 for (bundle,) in next(batches_of(lm, [few], 6, 0)))
    with pytest.raises(BadArgument, match="has 3 train examples of kind 'even', too few for shots=3"):
        load_tasks(lm, few, shots=3)


def test_batches_go_on_for_ever_and_repeat_with_the_seed(lm) -> None:
    def first(seed: int, n: int = 12) -> list:
        made = batches_of(lm, [task(1)], 8, seed)
        return [next(made) for _ in range(n)]

    again = first(0)
    assert first(0) == again
    assert first(1) != again
    assert all(sum(len(s[0].examples) for s in b) == 8 for b in again)


def test_matched_tasks_stay_matched(lm) -> None:
    a = task(0)
    b = Task("b", *(tuple(Example("w9 " + e.prompt, e.target, e.kind) for e in part) for part in (a.train, a.held_out)))
    for one, other in next(batches_of(lm, [a, b], 16, seed=3)):
        assert [x.prompt[-2:] for x in one.examples] == [y.prompt[-2:] for y in other.examples]


def test_halves_split_every_kind_alike(lm) -> None:
    halves = task(0).halves()
    assert not set(halves[0].train) & set(halves[1].train)
    assert len(halves[0].train) + len(halves[1].train) == 20
    for half in halves:
        assert sum(e.kind == "odd" for e in half.train) == 5
        assert half.held_out == task(0).held_out


def test_a_sheet_shares_what_prompts_have_in_common() -> None:
    bundle = make_bundle([TokenExample((1, 2, 3, 4), (9,)), TokenExample((1, 2, 3, 5, 6), (9, 9))])
    assert (bundle.shared, bundle.rest, bundle.size) == (3, 3, 3 + 1 + 3)
    same = make_bundle([TokenExample((1, 2, 3), (8,)), TokenExample((1, 2, 3), (9,))])
    assert same.shared == 2  # the last token of a prompt is always its own: it predicts the target
    assert make_bundle([TokenExample((1, 2, 3), (8,))]).shared == 0


# --- Hugging Face datasets


def test_without_the_extra_its_installation_is_named(lm, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'headatlas[datasets]'")):
        load_tasks(lm, "hf:someone/something")


def test_a_hugging_face_dataset(lm, tmp_path, monkeypatch) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", [{"question": r["prompt"], "answer": r["target"]} for r in rows()])
    (loaded,) = load_tasks(lm, f"hf:{tmp_path / 'set'}?prompt=question&target=answer")
    assert len(loaded.train) + len(loaded.held_out) == 20
    assert {e.target for e in (*loaded.train, *loaded.held_out)} == {r["target"] for r in rows()}
    with pytest.raises(BadArgument, match=r"no column 'prompt' for the prompt; there are question, answer"):
        load_tasks(lm, f"hf:{tmp_path / 'set'}")
    with pytest.raises(BadArgument, match="'colour' is not one of config, split, prompt, target, kind"):
        load_tasks(lm, f"hf:{tmp_path / 'set'}?colour=red")
    with pytest.raises(HeadAtlasError, match="cannot load split 'nowhere'"):
        load_tasks(lm, f"hf:{tmp_path / 'set'}?split=nowhere")


def test_examples_of_token_ids(lm) -> None:
    ids = [{"prompt": [3, i], "target": [i]} for i in range(10)]
    result = ha.taylor(lm, ids, limit=2)
    assert np.isfinite(result.contribution).all()
    with pytest.raises(BadArgument, match="few-shot examples .* need text"):
        load_tasks(lm, ids, shots=1)
    assert torch.is_grad_enabled()

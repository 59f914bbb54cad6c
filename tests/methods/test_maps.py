"""maps against the straightforward implementation, on tiny models of several architectures."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing

import headatlas as ha
from headatlas.errors import BadArgument, BadFile
from headatlas.methods import get_method
from headatlas.methods.maps import ranks
from headatlas.methods.maps.compute import (
    BASELINES,
    Pairs,
    choose_k,
    choose_pairs,
    head_values,
    layer_parts,
    members,
    multi_token_pairs,
    score_relations,
    single_token_pairs,
)
from headatlas.methods.maps.real_runs import check_dynamic, find_hits, relation_questions, run_at_last_token
from headatlas.methods.salient.compute import explained_by, salient_operations
from headatlas.models.lm import LM
from headatlas.models.loading import load_skeleton
from headatlas.models.weights import Weights
from headatlas.results.method_tables import method_tables
from headatlas.results.store import PartFolder, load
from headatlas.tasks.relations import Relation, load_relations
from headatlas.tasks.used import text_id
from headatlas.tasks.words import find_opening
from tests.models.tiny import TINY, VOCABULARY, build, tokenizer

BY_ID = {t.id: t for t in TINY}
WORDS = VOCABULARY - 4
PUBLISHED = {"input": "published", "opening": ()}
STREAM = {"input": "stream", "opening": (0,)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch) -> None:
    monkeypatch.setitem(ranks.SIZES, "cpu", ranks.Sizes((5, 9), 20, 10**6, 300, 10**4, 2))


def relation(name: str, category: str, count: int, shift: int) -> Relation:
    return Relation(name, category, tuple((f"w{i}", f"w{(i * 3 + shift) % WORDS}") for i in range(count)))


RELATIONS = [
    relation("one", "Algorithmic", 40, 1),
    relation("two", "Knowledge", 31, 5),
    relation("few", "Translation", 10, 7),
]


def scored(lm: LM, relations, reading, *, k="auto", threshold=0.15, min_pairs=30, baselines=BASELINES) -> xr.Dataset:
    pairs = choose_pairs(lm, relations, k, min_pairs)
    done: dict[str, tuple[np.ndarray, ...]] = {}
    for part in layer_parts(lm, pairs, **reading, baselines=baselines, seed=0):
        part.do(lm, **part.arguments, done=done)
    return score_relations(
        lm, relations, pairs, done, k=k, threshold=threshold, min_pairs=min_pairs, baselines=baselines
    )


@pytest.fixture(
    scope="module", params=["llama", "gpt2", "falcon-40b", "bloom", "deepseek_v3", "qwen3_next", "olmo2", "mixtral"]
)
def lm(request) -> LM:
    return LM(build(BY_ID[request.param]), tokenizer(), request.param)


def straightforward(weights, relations, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Relation by relation, head by head, all logits, top-k: [relation, layer, head] scores and suppressions."""
    a = weights.anatomy
    score, suppression = np.full((2, len(relations), a.n_layers, a.n_heads), np.nan)
    E, U = weights.embedding(), weights.unembedding()
    ids = {f"w{i}": i + 4 for i in range(WORDS)}
    for r, rel in enumerate(relations):
        source, target = (torch.tensor([ids[w] for w in words]) for words in zip(*rel.pairs, strict=True))
        for layer in range(a.n_layers):
            if a.sites[layer] is None:
                continue
            x = E[source] if layer == 0 else weights.first_mlp(E[source])
            for head in range(a.n_heads):
                logits = x @ weights.W_V(layer, head) @ weights.W_O(layer, head) @ U
                for largest, where in ((True, score), (False, suppression)):
                    best = logits.topk(k, largest=largest).indices
                    where[r, layer, head] = (best == target[:, None]).any(-1).double().mean()
    return score, suppression


def straightforward_stream(lm: LM, relations, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for the stream, word by word and head by head: what the head would write if it attended to the word
    alone, put through the model's own norms. A norm divides by one positive number, which changes no rank."""
    a, weights = lm.anatomy, lm.weights
    score, suppression = np.full((2, len(relations), a.n_layers, a.n_heads), np.nan)
    final = next(m for n, m in lm.model.get_submodule(a.decoder).named_children() if n in ("norm", "ln_f"))

    def alone(norm, y: torch.Tensor) -> torch.Tensor:
        return (norm(y[None]) - norm(torch.zeros_like(y)[None]))[0]  # without its bias

    for r, rel in enumerate(relations):
        hit = {}
        for source, target in ((int(s[1:]) + 4, int(t[1:]) + 4) for s, t in rel.pairs):
            _, x = run_at_last_token(lm, [[0, source]])
            for layer, entering in x.items():
                block = lm.model.get_submodule(f"{a.blocks}.{layer}")
                value = weights.values(layer, entering)[0]
                for head in range(a.n_heads):
                    y = value[head * a.n_kv_heads // a.n_heads] @ weights.W_O(layer, head)
                    if lm.model.config.model_type in ("olmo2", "gemma2", "gemma3_text"):
                        y = alone(block.post_attention_layernorm, y)
                    logits = alone(final, y) @ weights.unembedding()
                    ends = [target in logits.topk(k, largest=largest).indices for largest in (True, False)]
                    hit.setdefault((layer, head), []).append(ends)
        for place, ends in hit.items():
            score[r][place], suppression[r][place] = np.mean(ends, axis=0)
    return score, suppression


@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "gemma2", "gemma3_text", "gpt2", "falcon-40b", "bloom", "olmo2", "cohere"]
)
def test_the_stream_equals_the_straightforward_way(family) -> None:
    lm = LM(build(BY_ID[family]), tokenizer(), family)
    few = [relation("one", "Algorithmic", 12, 1), relation("two", "Knowledge", 9, 5)]
    result = scored(lm, few, STREAM, k=4, min_pairs=5, baselines=())
    score, suppression = straightforward_stream(lm, few, 4)
    np.testing.assert_allclose(result.score, score, atol=1e-6)
    np.testing.assert_allclose(result.suppression, suppression, atol=1e-6)
    assert 0 < np.nanmean(score) < 0.5


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_a_stream_from_disk_is_the_one_in_memory(tiny, tmp_path) -> None:
    lm = LM(build(tiny), tokenizer(), tiny.id)
    lm.model.save_pretrained(tmp_path / "m", max_shard_size="30KB")
    texts = torch.tensor([[0, 5], [0, 9], [0, 40]])
    memory, disk = ({}, {})
    weights = Weights.from_disk(tmp_path / "m")
    for source, x in ((lm.weights, memory), (weights, disk)):
        source.run(texts, x.__setitem__)
    assert list(memory) == list(disk) == [i for i, site in enumerate(lm.anatomy.sites) if site]
    tolerance = max(tiny.tolerance, 1e-6)  # some keep constants (Gemma's embedding scale) in float32 only once saved
    for layer, x in memory.items():
        torch.testing.assert_close(disk[layer], x, rtol=tolerance, atol=tolerance)
        written = torch.eye(lm.d_model, dtype=x.dtype)
        expected = lm.weights.through_norms(layer, written)
        torch.testing.assert_close(weights.through_norms(layer, written), expected, rtol=tolerance, atol=tolerance)


def test_openings() -> None:
    """A text behind what the tokenizer itself begins texts with, once."""
    plain = tokenizer()
    assert find_opening(plain, "w3 w4") == (7, 8)
    assert find_opening(plain, "<eos>") == (1,)
    assert find_opening(plain) == tuple(plain("The word is")["input_ids"])
    plain.backend_tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    assert find_opening(plain, "w3") == (0, 7)
    assert find_opening(plain, "<bos> w3") == (0, 7)
    assert find_opening(plain, "") == (0,)


@pytest.mark.parametrize("k", [1, 10])
def test_equals_the_straightforward_way(lm: LM, k) -> None:
    result = scored(lm, RELATIONS, PUBLISHED, k=k, baselines=())
    score, suppression = straightforward(lm.weights, RELATIONS, k)
    score[2] = suppression[2] = np.nan  # too few pairs
    np.testing.assert_allclose(result.score, score, atol=1e-6)
    np.testing.assert_allclose(result.suppression, suppression, atol=1e-6)
    assert result.pairs.values.tolist() == [40, 31, 10]
    assert result.left_out.values.tolist() == ["", "", "10 of 10 pairs are one token on both sides, 30 are needed"]


def test_from_disk_equals_from_memory(lm: LM, tmp_path) -> None:
    lm.model.save_pretrained(tmp_path / "m", max_shard_size="30KB")
    lm.tokenizer.save_pretrained(tmp_path / "m")
    memory, disk = ha.maps(lm, RELATIONS, min_pairs=5), ha.maps(tmp_path / "m", RELATIONS, min_pairs=5)
    for name in memory.data_vars:
        np.testing.assert_array_equal(memory[name], disk[name], err_msg=name)


def test_half_precision_weights_are_scored_in_float32() -> None:
    model = build(BY_ID["llama"]).to(torch.bfloat16)
    half, single = LM(model, tokenizer(), "half"), LM(build(BY_ID["llama"]), tokenizer(), "single")
    single.model.load_state_dict(model.state_dict())
    single.model.float()
    a, b = (scored(m, RELATIONS, PUBLISHED, baselines=()) for m in (half, single))
    np.testing.assert_array_equal(a.score, b.score)


def test_layer_zero_reads_the_embedding_and_so_may_all_layers(lm: LM) -> None:
    mlp, plain = (
        scored(lm, RELATIONS, PUBLISHED | {"input": input}, baselines=()) for input in ("published", "embedding")
    )
    np.testing.assert_array_equal(mlp.score[:, 0], plain.score[:, 0])
    assert not np.array_equal(mlp.score[:2, -1], plain.score[:2, -1])


def test_a_planted_relation_is_found() -> None:
    """W_V · W_O of one head fitted to write a relation: it scores 1 there, and the negated head suppresses it fully."""
    model = build(BY_ID["llama"])
    lm = LM(model, tokenizer(), "planted")
    E, U = lm.weights.embedding(), lm.weights.unembedding()
    source = torch.arange(4, 14)  # as many pairs as a head of size 10 can hold exactly
    target = source.roll(3)
    x = lm.weights.first_mlp(E[source])
    wanted = torch.linalg.pinv(U.T)[:, target].T  # residual-stream vectors whose logits are one-hot
    V = torch.linalg.pinv(x)  # [d, 10]: x @ V = identity
    for head, sign in ((2, 1.0), (3, -1.0)):
        lm.weights.value(1)[head // 3].copy_(V)
        lm.weights.output(1)[head].copy_(sign * wanted)
    planted = Relation(
        "planted", "Knowledge", tuple((f"w{s - 4}", f"w{t - 4}") for s, t in zip(source, target, strict=True))
    )
    result = scored(lm, [planted], PUBLISHED, k=1, min_pairs=5)
    assert result.score[0, 1, 2] == 1
    assert result.suppression[0, 1, 3] == 1
    assert result.member.sel(category=1)[1, 2]
    assert result.baseline_score.max() < 0.5


def test_k_rule() -> None:
    assert [choose_k(n, v, "auto") for n in ("copying", "name_copying", "x") for v in (100_000, 100_001)] == [
        1,
        3,
        1,
        3,
        10,
        25,
    ]
    assert choose_k("copying", 5, 7) == 7


def test_categories_by_threshold() -> None:
    score = np.zeros((3, 1, 4))
    score[0, 0, 0], score[1, 0, 1], score[2, 0, :] = 0.15, 0.149, np.nan
    suppression = np.zeros_like(score)
    suppression[1, 0, 2] = 0.5
    result = members(score, suppression, ["Knowledge", "Knowledge", "Translation"], 0.15)
    assert result[1, 0].tolist() == [True, False, True, False]
    assert not result[[0, 2, 3]].any()


def test_multi_token_pairs_take_the_last_and_the_first_token() -> None:
    class Letters:
        """A tokenizer that cuts words into threes."""

        def __call__(self, texts, add_special_tokens):
            cut = [
                [hash3(w[i : i + 3]) for w in t.split(" ") for i in range(0, len(w), 3)]
                for t in ([texts] if isinstance(texts, str) else texts)
            ]
            return {"input_ids": cut[0] if isinstance(texts, str) else cut}

        def decode(self, ids):
            return names[ids[0]]

    names: dict[int, str] = {}

    def hash3(piece: str) -> int:
        names[sum(ord(c) * 300**i for i, c in enumerate(piece))] = piece
        return sum(ord(c) * 300**i for i, c in enumerate(piece))

    rel = [Relation("r", "Knowledge", (("abcdef", "ghijkl"), ("abc", "de"), ("xyz", "xyzabc"), ("abc", "defgh")))]
    single = single_token_pairs(rel, Letters(), 10, 3)
    assert [(names[int(s)], names[int(t)]) for s, t in zip(single.source, single.target, strict=True)] == [
        ("abc", "de")
    ]
    multi = multi_token_pairs(rel, Letters(), 10, 3)
    assert [(names[int(s)], names[int(t)]) for s, t in zip(multi.source, multi.target, strict=True)] == [
        ("def", "ghi"),
        ("abc", "de"),
        ("abc", "def"),
    ]


def test_a_relation_that_allows_it_goes_by_parts_of_words() -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    pairs = tuple((f"w{i} w{i + 1}", f"w{i + 3}") for i in range(40))
    strict, lenient = (
        Relation("strict", "Knowledge", pairs),
        Relation("lenient", "Knowledge", pairs, None, "", "last-first"),
    )
    single = Relation("single", "Knowledge", tuple((s.split()[1], t) for s, t in pairs), None, "", "last-first")
    result = scored(lm, [strict, lenient, single], PUBLISHED)
    assert result.multi_token.values.tolist() == [False, True, False]
    assert result.pairs.values.tolist() == [0, 40, 40]
    assert np.isnan(result.score[0]).all()
    np.testing.assert_array_equal(result.score[1], result.score[2])
    assert result.left_out.values[1] == ""


@pytest.mark.parametrize("input", ["published", "stream"])
def test_baselines_have_other_heads_of_the_same_shape(lm: LM, input) -> None:
    layers = [i for i, s in enumerate(lm.anatomy.sites) if s]
    x = torch.randn(5, lm.d_model, dtype=lm.model.dtype, generator=torch.Generator().manual_seed(0))
    own, targets, random = (
        head_values(lm.weights, name, layers[-1], x, input=input, seed=1) for name in ("maps", *BASELINES)
    )
    assert all(torch.equal(a, b) for a, b in zip(targets, own, strict=True))
    for drawn, theirs in zip(random, own, strict=True):
        assert drawn.shape == theirs.shape
        assert not torch.equal(drawn, theirs)
        assert 0.2 < drawn.std() / theirs.std() < 5
    assert torch.equal(random[1], head_values(lm.weights, "random", layers[-1], x, input=input, seed=1)[1])  # seeded


def test_targets_are_shuffled_within_their_relation() -> None:
    pairs = Pairs(torch.tensor([0, 1] * 20), torch.arange(40), torch.arange(40) + 100, torch.full((40,), 5))
    shuffled = pairs.with_targets_shuffled(3)
    for name in ("relation", "source", "k"):
        assert torch.equal(getattr(shuffled, name), getattr(pairs, name))
    for r in (0, 1):
        mine = pairs.relation == r
        assert sorted(shuffled.target[mine].tolist()) == pairs.target[mine].tolist()
        assert (shuffled.target[mine] == pairs.target[mine]).sum() < 6
    assert torch.equal(shuffled.target, pairs.with_targets_shuffled(3).target)


def test_nan_weights_are_named(tmp_path) -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "nan")
    lm.weights.output(2)[1, 0, 0] = torch.nan
    for input in ("stream", "published"):
        with pytest.raises(BadFile, match="layer 2's W_V or W_O: 1 of .* NaN"):
            ha.maps(lm, RELATIONS, input=input)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_pairs": 100}, "none of the 3 has 100 pairs left \\(the most is 40\\)"),
        ({"threshold": 0}, "threshold is 0"),
        ({"k": 0}, "k is 0"),
        ({"input": "streams"}, "input is 'streams', expected one of stream, .* Did you mean 'stream'"),
        ({"input": "published", "opening": "w1"}, "opening is 'w1', but input='published' reads no text"),
    ],
)
def test_bad_options(lm: LM, options, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.maps(lm, RELATIONS, **options)


def test_interrupted_work_goes_on_where_it_was(tmp_path, monkeypatch) -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    complete = ha.maps(lm, RELATIONS, baselines=False)

    def stop_after_two(items, label):
        for i, item in enumerate(items):
            if i == 2:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        ha.maps(lm, RELATIONS, out=tmp_path, progress=stop_after_two)
    assert not (tmp_path / "maps.nc").exists()
    worked: list[int] = []

    def count(items, label):
        worked.extend(items if label.startswith("maps") else [])
        return items

    again = ha.maps(lm, RELATIONS, out=tmp_path, progress=count, baselines=False)
    assert worked == [2]
    np.testing.assert_array_equal(again.score, complete.score)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["atlas.json", "maps.nc"]
    assert load(tmp_path / "maps.nc").score.equals(again.score)
    ha.maps(lm, RELATIONS, out=tmp_path, progress=count, min_pairs=11, baselines=False)
    assert worked == [2, 0, 1, 2]  # another setting: nothing of the old is used


def test_a_store_for_another_purpose_is_emptied(tmp_path) -> None:
    store = PartFolder(tmp_path / "s", {"a": 1})
    store["layer 3"] = (np.array([True]), np.array([False]))
    assert list(PartFolder(tmp_path / "s", {"a": 1})) == ["layer 3"]
    assert PartFolder(tmp_path / "s", {"a": 1})["layer 3"][0].tolist() == [True]
    assert list(PartFolder(tmp_path / "s", {"a": 2})) == []


def test_what_the_file_says(tmp_path) -> None:
    lm = LM(build(BY_ID["qwen3_next"]), tokenizer(), "hybrid")
    result = ha.maps(lm, RELATIONS, out=tmp_path)
    stored = load(tmp_path / "maps.nc")
    assert stored.score.dims == stored.suppression.dims == ("relation", "layer", "head")
    assert stored.member.dims == ("category", "layer", "head")
    assert stored.category.dims == ("relation",)
    assert stored.attrs["fingerprint"] == lm.fingerprint()
    assert {"model", "data", "key", "torch", "headatlas", "seed", "method"} <= set(stored.attrs)
    assert np.isnan(stored.score[:, :3]).all()  # layers without heads
    assert not np.isnan(stored.score[:2, 3]).any()
    assert stored.member.sel(category_name="Knowledge").equals(result.member.sel(category_name="Knowledge"))


def test_work_is_plain_data_and_planned_without_weights(folder) -> None:
    lm, _ = load_skeleton(folder, "auto", "cpu")
    prompted = [replace(r, prompt="w1 {}") for r in RELATIONS]
    work = pickle.loads(pickle.dumps(get_method("maps").function(lm, prompted, dynamic=3)))  # noqa: S301
    assert work.needs_model
    [part] = work.parts
    assert part.outputs[:3] == ("maps layer 0", "targets layer 0", "random layer 0")
    raw = get_method("maps").function(lm, prompted, input="published", baselines=False)
    assert not raw.needs_model
    assert [name for part in raw.parts for name in part.outputs] == [f"maps layer {i}" for i in range(lm.n_layers)]
    with pytest.raises(BadArgument, match="none of the 3 has 100 pairs left"):
        get_method("maps").function(lm, prompted, min_pairs=100)


def test_what_the_command_prints() -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    result = ha.maps(lm, RELATIONS, dynamic=3)
    tables = method_tables(result)
    relations = {row["relation"]: row for row in tables["Relations (MAPS): each relation"]}
    assert relations["few"]["left out"].startswith("10 of 10 pairs")
    heads = {row["relation"]: row for row in tables["Relations (MAPS): top heads"] if row["measure"] == "score"}
    assert heads["one"]["chance"] == pytest.approx(result.chance.sel(relation="one").item(), rel=0.1)
    [correlations] = [rows for title, rows in tables.items() if title.startswith("dynamic correlation: Pearson")]
    assert set(correlations[0]) == {"relation", "with", "without"}
    members = {row["category name"]: row["member: heads"] for row in tables["Relations (MAPS): each category"]}
    assert members["Knowledge"] == int(result.member.sel(category_name="Knowledge").sum())
    without = method_tables(ha.maps(lm, RELATIONS, baselines=False))
    assert not any(title.startswith("dynamic correlation") for title in without)
    assert all("chance" not in row for row in without["Relations (MAPS): top heads"])


def test_built_in_relations_can_be_asked_again() -> None:
    """Where no truth is known: those with a prompt."""
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    ask = get_method("maps").ask
    assert all(ask(lm, r.name) == [] for r in load_relations())  # none of their words is a token of this model
    with pytest.raises(BadArgument):
        ask(lm, "mine")


def test_multi_token_pairs_alone_can_be_mapped() -> None:
    """Ten single-token pairs are too few; with the multi-token ones there are enough."""
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    pairs = tuple((f"w{i} w{i + 1}", f"w{i + 3}") for i in range(40))
    result = scored(lm, [Relation("two words", "Knowledge", pairs)], PUBLISHED)
    assert np.isnan(result.score).all()
    assert not np.isnan(result.score_multi).any()
    assert "0 of 40 pairs" in result.left_out.item()


def test_prompts_of_a_relation() -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    relation = Relation("r", "Knowledge", (("w1", "w2"), ("w3", "w4 w5"), ("w6", "w7")), prompt="w9 {} w8")
    questions = relation_questions(lm, relation, 5)
    decode = lm.tokenizer.decode
    assert {decode(q.prompt): decode(q.target) for q in questions} == {"w9 w1 w8": "w2", "w9 w6 w8": "w7"}


# --- pairs that are left out


def sources(pairs: Pairs, relation: int, lm: LM) -> set[str]:
    return {lm.tokenizer.decode([i]) for i in pairs.source[pairs.relation == relation].tolist()}


def test_pairs_are_left_out_for_the_test() -> None:
    """A source is left out with all its targets."""
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    pairs = tuple((f"w{i % 50}", f"w{(i + 1 + i // 50) % 57}") for i in range(60))  # ten sources have two targets
    many = Relation("many", "Knowledge", pairs, prompt="w3 {}")
    unasked = Relation("unasked", "Knowledge", pairs)
    few = Relation("few", "Knowledge", pairs[:20], prompt="w3 {}")
    function = get_method("maps").function
    work = function(lm, [many, unasked, few], held_out=0.3)
    mapped = {r.name: r for r in work.arguments["relations"]}
    assert work.subjects == {"many": many}  # the others cannot be asked, or have no map
    assert mapped["few"] == few
    kept = set(mapped["many"].pairs)
    dropped = set(pairs) - kept
    assert len({source for source, _ in dropped}) == 15
    assert not {source for source, _ in dropped} & {source for source, _ in kept}
    used = {text_id(f"w3 {source}", f" {target}") for source, target in kept | set(few.pairs)}
    assert work.used.rows == used | {text_id(source, f" {target}") for source, target in mapped["unasked"].pairs}
    number = list(mapped).index("many")
    assert sources(work.arguments["pairs"].single, number, lm) == {source for source, _ in kept}
    assert function(lm, [many], held_out=0.3, seed=1).arguments["relations"] != [mapped["many"]]
    everything = function(lm, [many], held_out=0.0)
    assert not everything.subjects
    assert everything.arguments["relations"] == [many]


def test_enough_usable_pairs_are_left() -> None:
    """Of 31 pairs of whole words among 90, one at most is left out; nor are words split for that."""
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    whole = [(f"w{i}", f"w{i + 1}") for i in range(31)]
    split = [(f"w{i} w{i + 1}", f"w{i + 3}") for i in range(59 - 10)]
    relation = Relation("mixed", "Knowledge", (*whole, *split), "w3 {}", "", "last-first")
    work = get_method("maps").function(lm, [relation], held_out=0.6)
    assert work.subjects == {"mixed": relation}
    assert not work.arguments["pairs"].multi_token.any()
    assert work.arguments["pairs"].n_single.tolist() == [30]
    assert len(work.arguments["relations"][0].pairs) == len(relation.pairs) - round(0.6 * len(relation.pairs))
    words = replace(relation, pairs=tuple(split))
    work = get_method("maps").function(lm, [words], held_out=0.3)
    assert work.subjects == {"mixed": words}
    assert work.arguments["pairs"].multi_token.all()
    assert 30 <= work.arguments["pairs"].n_multi.item() < len(split)


@pytest.mark.parametrize("held_out", [-0.1, 1.0])
def test_held_out_is_a_share(held_out) -> None:
    with pytest.raises(BadArgument, match=f"held_out is {held_out}, expected 0 or more and less than 1"):
        get_method("maps").function(LM(build(BY_ID["llama"]), tokenizer(), "tiny"), RELATIONS, held_out=held_out)


# --- in real runs


def test_a_word_alone_is_without_context(lm: LM) -> None:
    """A one-token text attends to nothing but itself, so its z is its value vector."""
    if lm.name == "qwen3_next":
        return  # it gates the output of attention, so z is not only the values
    z, x = run_at_last_token(lm, [[7], [9]])
    for layer in z:
        alone = lm.weights.values(layer, x[layer]).repeat_interleave(lm.n_heads // lm.n_kv_heads, dim=1)
        torch.testing.assert_close(z[layer], alone, rtol=1e-5, atol=1e-5)


def test_dynamic_scores_and_their_correlation(lm: LM) -> None:
    result = check_dynamic(lm, RELATIONS, limit=12, **STREAM)
    assert result.dynamic_pairs.values.tolist() == [12, 12, 0]
    assert result.dynamic.dims == ("context", "template", "relation", "layer", "head")
    here = result.dynamic.isel(relation=[0, 1], layer=-1)
    assert float(here.min()) >= 0
    assert float(here.max()) <= 1
    assert np.isnan(result.dynamic_correlation.sel(relation="few")).all()


# --- one head


def test_salient_operations_are_the_most_amplified(lm: LM) -> None:
    layer = [i for i, s in enumerate(lm.anatomy.sites) if s][-1]
    result = salient_operations(lm.weights, lm.tokenizer, tokens=7, outputs=3, chunk=10).sel(layer=layer, head=1)
    E = lm.weights.embedding()
    x = (E if layer == 0 else lm.weights.first_mlp(E.to(lm.model.dtype))).float()
    y = x @ lm.weights.W_V(layer, 1).float() @ lm.weights.W_O(layer, 1).float()
    gain = y.norm(dim=-1) / x.norm(dim=-1)
    order = gain.argsort(descending=True)[:7]
    np.testing.assert_allclose(result.amplification, gain[order], rtol=1e-4)
    assert result.token.values.tolist() == [lm.tokenizer.decode([i]) for i in order.tolist()]
    logits = y[order] @ lm.weights.unembedding().float()
    assert result.strongest.values[0].tolist() == [lm.tokenizer.decode([i]) for i in logits[0].topk(3).indices.tolist()]


def test_salient_is_of_all_heads(lm: LM, tmp_path) -> None:
    result = ha.salient(lm, top=5, outputs=2, out=tmp_path)
    assert result.token.dims == result.amplification.dims == ("layer", "head", "rank")
    assert result.strongest.dims == result.suppressed.dims == ("layer", "head", "rank", "output")
    assert (result.sizes["rank"], result.sizes["output"]) == (5, 2)
    layers = [i for i, site in enumerate(lm.anatomy.sites) if site]
    assert result.amplification.isel(layer=layers).notnull().all()
    assert int(result.amplification.notnull().sum()) == 5 * lm.n_heads * len(layers)
    rows = method_tables(load(tmp_path / "salient.nc"))["Heads with the highest amplification"]
    assert rows[0]["amplification"] == pytest.approx(float(result.amplification.max()), rel=0.01)
    assert len(rows) == 5 * 3
    for options in ({"top": 0}, {"outputs": 10_001}):
        with pytest.raises(BadArgument, match=f"{next(iter(options))} is .* from 1 to 10000"):
            ha.salient(lm, **options)


def test_mappings_are_explained_by_relations() -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    result = salient_operations(lm.weights, lm.tokenizer, [1], tokens=5, outputs=2).sel(layer=1, head=1)
    pair = (str(result.token.values[3]), str(result.strongest.values[3][1]))
    right, wrong = Relation("right", "Knowledge", (pair, ("a", "b"))), Relation("wrong", "Knowledge", (("a", "b"),))
    assert explained_by(result, [wrong, right]) == {"right": 1}


def test_pairs_are_computed_once() -> None:
    pairs = Pairs(*(torch.tensor(t) for t in ([0, 1, 1], [5, 5, 6], [7, 7, 8], [10, 10, 10])))
    distinct, index = pairs.unique()
    assert len(distinct) == 2
    assert torch.equal(distinct.source[index], pairs.source)
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    np.testing.assert_array_equal(
        find_hits(lm, distinct, **PUBLISHED)[0][..., index.numpy()], find_hits(lm, pairs, **PUBLISHED)[0]
    )


def test_a_checkpoint_that_lacks_a_tensor_of_a_block_is_not_run(tmp_path) -> None:
    lm = LM(build(BY_ID["llama"]), tokenizer(), "tiny")
    lm.model.save_pretrained(tmp_path / "m")
    lm.tokenizer.save_pretrained(tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadFile, match=r"lacks 1 of the model's tensors, the first is model\.layers\.1\.mlp\.up_proj"):
        ha.maps(tmp_path / "m", RELATIONS)

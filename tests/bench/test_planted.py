"""The shipped models do what their truth says, functions are trained where they belong, planted relations are exact."""

import json
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import HeadAtlasError
from headatlas.evidence.control import answers_without
from headatlas.models.hooks import head_mask
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.questions import FUNCTIONS as QUESTION_FUNCTIONS
from headatlas.tasks.questions import Question, prompt_ids
from headatlas.tasks.words import find_opening
from headatlas_bench import circuits, harm, interference, known, pool, training
from headatlas_bench.asking import LONGEST, SHORTEST, planted_questions, planted_task
from headatlas_bench.circuits import KINDS, Circuit, place
from headatlas_bench.copying import plant_copying
from headatlas_bench.functions import BACKGROUND, FUNCTIONS, ID, LENGTH, WORDS, Draw
from headatlas_bench.holds import accept, measure_functions
from headatlas_bench.interference import ENOUGH, HURTS, plant_interference
from headatlas_bench.known import MOST_SEEDS, UNSEEN, Truth, answer, planted_folder, read_truth
from headatlas_bench.names import HARDER, MODEL_KINDS, PLAIN, SHIPPED
from headatlas_bench.relations import plant_relations


@pytest.fixture
def few_sequences(monkeypatch):
    """Whether a model is what it should be is measured on a quarter of the sequences."""
    monkeypatch.setattr(known, "answer", partial(answer, sequences=16))


@pytest.mark.parametrize("name", PLAIN)
def test_a_shipped_model_is_accepted(name, few_sequences):
    folder = planted_folder(name)
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    measured = measure_functions(lm, truth)
    assert list(measured) == list(QUESTION_FUNCTIONS)
    assert accept(measured) == {}
    for row in measured.values():  # the numbers the issue asks for
        assert row["all"] >= 0.98
        assert row["only"] >= 0.95
        assert row["without"] <= row["chance"] + 0.10
    assert (folder / "model.safetensors").stat().st_size <= 12e6


LEFT_OUT = {"spare-two": {"Semantic Understanding"}}  # as the docs say


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "spare-two" else n for n in HARDER])
def test_a_harder_model_is_what_its_truth_says(name, few_sequences):
    """Measured on a quarter of the sequences, so with some room below what acceptance asks."""
    folder = planted_folder(name)
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    measured = measure_functions(lm, truth)
    assert set(accept(measured)) <= LEFT_OUT.get(name, set())
    for function, row in measured.items():
        if function in LEFT_OUT.get(name, set()):
            continue
        circuit = truth.circuits[function]
        assert row["all"] >= 0.98
        assert row["only"] >= 0.95
        assert row["without"] <= row["chance"] + 0.10
        if len(circuit.works) > 1:
            assert row["spared"] >= 0.95
        if circuit.decoys:
            assert row["read"] >= 0.95
            assert row["decoy_effect"] <= 0.01
        if circuit.planting == "backup":
            assert abs(row["idle_effect"]) <= 0.01
            assert row["waking"] > 3
        if "relay" in circuit.parts:
            assert abs(row["direct_effect"]) <= 0.05
        assert row.get("beside_harm", 1) >= 0.95
        if circuit.harmful:
            assert min(row["harm"]) >= 0.05
            assert len(set(row["harm"])) == 3


def test_harder_models_have_every_planting_twice_and_are_small():
    folders = [planted_folder(name) for name in HARDER]
    plantings = [
        {c.planting for f, c in read_truth(folder).circuits.items() if f not in LEFT_OUT.get(name, set())}
        for name, folder in zip(HARDER, folders, strict=True)
    ]
    assert plantings == [{"redundant", "backup", "decoy"}] * 2 + [{"shared", "relay", "harmful"}] * 2
    kv = [json.loads((f / "config.json").read_text())["num_key_value_heads"] for f in folders]
    assert kv == [8, 4, 8, 4]
    assert sum(p.stat().st_size for folder in folders for p in folder.iterdir()) <= 12e6


def test_shipped_models_differ_in_placement_and_one_shares_keys():
    folders = [planted_folder(name) for name in PLAIN]
    first, second = map(read_truth, folders)
    assert all(first.functions[f] != second.functions[f] for f in FUNCTIONS)
    kv = [json.loads((f / "config.json").read_text())["num_key_value_heads"] for f in folders]
    assert min(kv) < max(kv) == KINDS["plain"].heads


@pytest.mark.parametrize("name", SHIPPED)
def test_the_recipe_places_heads_where_the_truth_says(name):
    folder = planted_folder(name)
    recipe = json.loads((folder / "truth.json").read_text())
    assert Truth(*place(KINDS[recipe.get("kind", "plain")], recipe["seed"])) == read_truth(folder)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_every_head_has_one_home(kind):
    shape = KINDS[kind]
    assert tuple(KINDS) == MODEL_KINDS
    for seed in range(20):
        placed, left = place(shape, seed)
        homes = {f: {*c.heads, *c.decoys, *c.harmful} for f, c in placed.items()}
        shared = {h for c in placed.values() for h in c.parts.get("shared", [])}
        every = [h for own in homes.values() for h in own - shared] + [*shared, *left]
        assert sorted(every) == list(product(range(shape.layers), range(shape.heads)))
        for function, circuit in placed.items():
            sizes = {piece.part: piece.sizes for piece in shape.plans[function].pieces}
            for part, heads in circuit.parts.items():
                layers = sorted({layer for layer, _ in heads})
                assert layers == list(range(layers[0], layers[0] + len(sizes[part])))
            last = max(layer for layer, _ in circuit.heads)
            assert all(layer > last for layer, _ in (*circuit.decoys, *circuit.harmful))


def test_a_circuit_works_with_the_parts_that_suffice():
    either = Circuit({"first": [(0, 0)], "second": [(1, 1)]}, (("first",), ("second",)), "backup")
    assert either.subsets() == ([("first",), ("second",), ("first", "second")], [()])
    assert either.quiet(("first", "second")) == [(1, 1)]
    assert either.quiet(("second",)) == []
    both = Circuit({"relay": [(0, 0)], "own": [(1, 1)]}, (("relay", "own"),), "relay")
    assert both.subsets() == ([("relay", "own")], [(), ("relay",), ("own",)])
    assert both.quiet(("relay", "own")) == [(0, 0)]


def test_only_heads_that_learn_are_taught():
    heads, d_head = 8, 4
    attention = torch.nn.Linear(heads * d_head, 16, bias=False)
    routed = training.Routed(attention, heads)
    z = torch.randn(2, 5, heads * d_head, requires_grad=True)
    learn = torch.zeros(2, heads)
    learn[0, 3] = learn[1, 5] = 1
    routed.learn, routed.active, routed.quiet = learn, torch.ones_like(learn), torch.zeros_like(learn)
    written = routed(z)
    torch.testing.assert_close(written, attention(z))  # all take part
    written.square().sum().backward()
    moved = z.grad.unflatten(-1, (heads, -1)).abs().sum((1, 3)) > 0
    assert moved.tolist() == (learn > 0).tolist()
    routed.active, routed.quiet = learn, learn
    shut = attention((z.detach().unflatten(-1, (heads, -1)) * learn[:, None, :, None]).flatten(2))
    torch.testing.assert_close(routed(z), shut)
    torch.testing.assert_close(routed.fine, shut.square().mean(-1))  # what is written by those that should be quiet


@pytest.fixture
def quick_training(monkeypatch, few_sequences):
    monkeypatch.setattr(pool, "POOL", 16)
    monkeypatch.setattr(pool, "FUNCTIONS", {name: replace(f, share=8) for name, f in FUNCTIONS.items()})
    monkeypatch.setattr(pool, "BACKGROUND", replace(BACKGROUND, share=8))
    monkeypatch.setattr(harm, "STEPS", 2)
    monkeypatch.setattr(harm, "HALVINGS", 2)
    for name, kind in KINDS.items():
        monkeypatch.setitem(circuits.KINDS, name, replace(kind, d_model=32, d_mlp=32))


@pytest.mark.parametrize(("kind", "problem"), [("plain", "Retrieval"), ("spare", "a decoy"), ("joint", "Inference")])
def test_training_goes_from_start_to_a_folder_that_load_takes(kind, problem, tmp_path, caplog, quick_training):
    truth = training.plant(tmp_path / "new", seed=7, kv_heads=2, kind=kind, steps=4, device="cpu")
    lm = ha.load(tmp_path / "new", device="cpu")
    assert (lm.n_layers, lm.n_heads, lm.n_kv_heads) == (6, 8, 2)
    assert read_truth(tmp_path / "new") == truth
    assert lm.tokenizer.decode(lm.encode("Anna recalls")[0]) == "<begin> Anna recalls"
    assert "is not accepted" in caplog.text
    assert problem in caplog.text
    with pytest.raises(HeadAtlasError, match="exists already"):
        training.plant(tmp_path / "new")


def test_harmful_heads_push_another_answer_and_nothing_else_changes(monkeypatch):
    """Taught again for a few steps, on the shipped model: the function gets worse, the others hardly."""
    monkeypatch.setattr(pool, "POOL", 64)
    folder = planted_folder("joint-two")
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    before = {name: p.clone() for name, p in lm.model.named_parameters()}
    circuit = truth.circuits["Semantic Understanding"]
    one = replace(circuit, harmful=circuit.harmful[:1])
    only = Truth(
        {f: one if f == "Semantic Understanding" else replace(c, harmful=[]) for f, c in truth.circuits.items()}, []
    )
    harm.plant_harm(lm.model, only, 0, torch.device("cpu"), steps=12)
    changed = [name for name, p in lm.model.named_parameters() if not torch.equal(p, before[name])]
    layer = one.harmful[0][0]
    assert changed == [f"model.layers.{layer}.self_attn.{name}_proj.weight" for name in ("q", "o")]  # keys are shared
    hurt = answer(lm, "Semantic Understanding", 8)[0].mean()
    with lm.gated(1 - head_mask(one.harmful, lm.anatomy).float()):
        assert answer(lm, "Semantic Understanding", 8)[0].mean() > hurt + 0.5  # 1 nat where it was scaled


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_heads": 3}, "kv_heads is 3"),
        ({"steps": 0}, "steps is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"kind": "hard"}, "kind is 'hard', expected one of plain, spare, joint"),
    ],
)
def test_training_is_asked_rightly(tmp_path, options, message):
    with pytest.raises(HeadAtlasError, match=message):
        training.plant(tmp_path / "new", **options)


def test_acceptance_is_measured_on_sequences_that_training_has_not_seen():
    """On one device: torch keeps 32 bits of a seed, so seeds of training must lie below."""
    assert 16 * (MOST_SEEDS - 1) + len(FUNCTIONS) < UNSEEN < 2**32 - 1001 * MOST_SEEDS
    for i, function in enumerate(FUNCTIONS.values()):
        trained = function.make(Draw(64, i, "cpu")).tokens
        unseen = function.make(Draw(64, UNSEEN + i, "cpu")).tokens
        assert not (trained[:, None] == unseen[None]).all(2).any()


def test_the_callers_precision_and_generator_are_left_alone(tmp_path, monkeypatch, few_sequences):
    monkeypatch.setattr(pool, "POOL", 4)
    plain = training.LlamaForCausalLM(training._config(KINDS["plain"], 8))
    monkeypatch.setattr(training.Training, "run", lambda *a: plain)
    torch.manual_seed(3)
    expected, before = torch.rand(1), torch.get_float32_matmul_precision()
    torch.manual_seed(3)
    training.plant(tmp_path / "new", device="cpu")
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_float32_matmul_precision() == before


def test_answers_follow_from_the_words_before_them():
    """Every generator against a plain reading of its rule."""
    word = np.array(WORDS)
    numbers = {WORDS[ID["zero"] + i]: i for i in range(30)}
    tables = {"Knowledge Recall": {}, "Semantic Understanding": {}, "background": {}}
    for name, function in {**FUNCTIONS, "background": BACKGROUND}.items():
        batch = function.make(Draw(20, 3, "cpu"))
        assert batch.tokens.shape == batch.answers.shape == (20, LENGTH)
        for tokens, is_answer in zip(word[batch.tokens.numpy()], batch.answers.numpy(), strict=True):
            for i in np.flatnonzero(is_answer):
                before, target = list(tokens[:i]), tokens[i]
                if name in ("Knowledge Recall", "Semantic Understanding"):
                    assert tables[name].setdefault(before[-2], target) == target
                elif name == "background":
                    assert tables[name].setdefault((before[-2], before[-1]), target) == target
                elif name == "Retrieval":
                    at = before[1:-1:2].index(before[-1])
                    assert before[2 + 2 * at] == target
                elif name == "Decision-making":
                    assert target == max(before[-5:-1], key=numbers.get)
                elif name == "Math Calculation":
                    assert numbers[target] == numbers[before[-4]] + numbers[before[-2]]
                elif name == "Syntactic Understanding":
                    many = before[-5].endswith("s")
                    assert target == (before[-2] if many else f"{before[-2]}s")
                elif name == "Logical Reasoning":
                    pairs = dict(zip(before[2:-1:2], before[3::2], strict=True))
                    assert pairs.get(before[-1], target) == target
    batch = FUNCTIONS["Inference"].make(Draw(20, 3, "cpu"))
    kind = {WORDS[ID["robin"] + i]: WORDS[ID["bird"] + i // 8] for i in range(48)}
    for tokens, is_answer in zip(word[batch.tokens.numpy()], batch.answers.numpy(), strict=True):
        told = dict(zip(tokens[1:13:2], tokens[2:13:2], strict=True))
        assert all(told[kind[tokens[i - 1]]] == tokens[i] for i in np.flatnonzero(is_answer))


def test_prompts_are_cut_before_an_answer_the_model_knows():
    lm = ha.load(planted_folder("one"), device="cpu")
    for function in FUNCTIONS:
        task = planted_task(function, 4, 4)
        assert len(task.train) == len(task.held_out) == 4
        assert not set(task.train) & set(task.held_out)
        for e in task.held_out:
            ids = lm.encode(e.prompt)[0]
            assert SHORTEST <= len(ids) <= LONGEST
            assert f" {lm.generate(e.prompt, max_new_tokens=1).strip()}" == e.target
    questions = planted_questions(4)
    first = Question("main", (("before", "that"),), str(questions[0]["question"]), "answer", "Retrieval")
    assert prompt_ids(lm, first) == tuple(lm.encode(first.text)[0])  # the template leaves a question's own words
    assert len({q["question"] for q in questions}) == 4 * len(FUNCTIONS)


def test_interfering_heads_make_it_worse_and_the_model_given_is_left_alone(monkeypatch):
    """Which heads hurt is chosen on a few sequences here, and measured on more."""
    monkeypatch.setattr(interference, "answer", lambda lm, function, sequences, seed: answer(lm, function, 4, seed))
    folder = planted_folder("one")
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    before = {name: p.clone() for name, p in lm.model.named_parameters()}
    noisy, interferes, heads = plant_interference(lm, truth)
    assert all(torch.equal(p, before[name]) for name, p in lm.model.named_parameters())
    assert set(heads) <= set(truth.background)
    assert len(interferes) >= ENOUGH
    for function, hurt_by in interferes.items():
        assert hurt_by
        assert set(hurt_by) <= set(heads)
        with noisy.gated(1 - head_mask(heads, noisy.anatomy).float()):
            cleared = answer(noisy, function, 16, seed=1)[0].mean()
        assert cleared - answer(noisy, function, 16, seed=1)[0].mean() >= HURTS / 2


def test_planted_relations_are_written_exactly():
    planted = plant_relations(0.0, seed=1)
    weights, ids = planted.lm.weights, planted.lm.tokenizer.get_vocab()
    relation = planted.relations[0]
    (layer, head), (low_layer, low_head) = planted.writers[relation.name][0], planted.suppressors[relation.name][0]
    model, x = planted.lm.model, {}
    texts = [[*find_opening(planted.lm.tokenizer), ids[s]] for s, _ in relation.pairs]
    weights.run(torch.tensor(texts), x.__setitem__)
    for at, h, pick in ((layer, head, "argmax"), (low_layer, low_head, "argmin")):
        written = x[at] @ weights.W_V(at, h) @ weights.W_O(at, h)
        assert getattr(model.lm_head(model.model.norm(written)), pick)(1).tolist() == [
            ids[t] for _, t in relation.pairs
        ]


def test_a_folder_without_truth_is_told(tmp_path):
    with pytest.raises(HeadAtlasError, match="neither one of one, two, spare-one, .* nor a folder with a truth.json"):
        planted_folder(tmp_path)
    for text in ("{}", "[]", "no JSON", '{"functions": {"Retrieval": ["2.3"]}, "background": []}'):
        (tmp_path / "truth.json").write_text(text)
        with pytest.raises(HeadAtlasError, match="not a truth file"):
            read_truth(tmp_path)
    (tmp_path / "truth.json").write_text('{"functions": {"Cooking": ["L1.H1"]}, "background": []}')
    with pytest.raises(HeadAtlasError, match="nor a folder with a model.safetensors"):
        planted_folder(tmp_path)
    with pytest.raises(HeadAtlasError, match="'Cooking' is not one of the functions Knowledge Recall, "):
        read_truth(tmp_path)


def test_a_model_that_copies_needs_each_of_its_copying_heads() -> None:
    planted = plant_copying(1)
    [task] = planted.data["tasks"]
    examples = [a for bundle in held_out_bundles(planted.lm, task, 8) for a in bundle.examples]
    alone = [[head] for head in planted.copiers]
    others = [head for head in product(range(4), range(8)) if head not in (*planted.copiers, *planted.previous)]
    whole, without, left, *each = answers_without(planted.lm, examples, [[], planted.copiers, others, *alone])[:, 1]
    assert whole > 0.95
    assert without < 0.1
    assert left == 1  # without the noise
    assert max(each) < whole - 0.1

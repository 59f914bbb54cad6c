"""Shipped models do what their truth says; training puts functions where they belong; planted relations are exact."""

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
from headatlas_bench import circuits, ground_truth, harm, interference, training, training_data
from headatlas_bench.acceptance import accept, measure_functions
from headatlas_bench.circuits import DESIGNS, Circuit, place_circuits
from headatlas_bench.copying import plant_copying
from headatlas_bench.functions import BACKGROUND, FUNCTIONS, ID, LENGTH, WORDS, Draw
from headatlas_bench.ground_truth import FIRST_UNSEEN_SEED, MAX_SEEDS, Truth, planted_folder, read_truth, score_answers
from headatlas_bench.interference import MIN_HURT_FUNCTIONS, MIN_LOSS, plant_interference
from headatlas_bench.names import HARDER, MODEL_KINDS, PLAIN, SHIPPED
from headatlas_bench.prompts import MAX_PROMPT_WORDS, MIN_PROMPT_WORDS, planted_questions, planted_task
from headatlas_bench.relations import plant_relations


@pytest.fixture
def few_sequences(monkeypatch):
    """Measure models on a quarter of the sequences."""
    monkeypatch.setattr(ground_truth, "score_answers", partial(score_answers, sequences=16))


@pytest.mark.parametrize("name", PLAIN)
def test_a_shipped_model_is_accepted(name, few_sequences):
    folder = planted_folder(name)
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    measured = measure_functions(lm, truth)
    assert list(measured) == list(QUESTION_FUNCTIONS)
    assert accept(measured) == {}
    for row in measured.values():
        assert row["all"] >= 0.98
        assert row["only"] >= 0.95
        assert row["without"] <= row["chance"] + 0.10
    assert (folder / "model.safetensors").stat().st_size <= 12e6


NOT_ACCEPTED = {"spare-two": {"Semantic Understanding"}}  # as the docs say


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n == "spare-two" else n for n in HARDER])
def test_a_harder_model_is_what_its_truth_says(name, few_sequences):
    """Measured on a quarter of the sequences, with a tolerance below the thresholds of acceptance."""
    folder = planted_folder(name)
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    measured = measure_functions(lm, truth)
    assert set(accept(measured)) <= NOT_ACCEPTED.get(name, set())
    for function, row in measured.items():
        if function in NOT_ACCEPTED.get(name, set()):
            continue
        circuit = truth.circuits[function]
        assert row["all"] >= 0.98
        assert row["only"] >= 0.95
        assert row["without"] <= row["chance"] + 0.10
        if len(circuit.sufficient_sets) > 1:
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
        {c.planting for f, c in read_truth(folder).circuits.items() if f not in NOT_ACCEPTED.get(name, set())}
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
    assert min(kv) < max(kv) == DESIGNS["plain"].heads


@pytest.mark.parametrize("name", SHIPPED)
def test_the_recipe_places_heads_where_the_truth_says(name):
    folder = planted_folder(name)
    recipe = json.loads((folder / "truth.json").read_text())
    assert Truth(*place_circuits(DESIGNS[recipe.get("kind", "plain")], recipe["seed"])) == read_truth(folder)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_every_head_has_one_home(kind):
    design = DESIGNS[kind]
    assert tuple(DESIGNS) == MODEL_KINDS
    for seed in range(20):
        placed, left = place_circuits(design, seed)
        homes = {f: {*c.heads, *c.decoys, *c.harmful} for f, c in placed.items()}
        shared = {h for c in placed.values() for h in c.parts.get("shared", [])}
        every = [h for heads in homes.values() for h in heads - shared] + [*shared, *left]
        assert sorted(every) == list(product(range(design.layers), range(design.heads)))
        for function, circuit in placed.items():
            sizes = {part.part: part.sizes for part in design.plans[function].parts}
            for part, heads in circuit.parts.items():
                layers = sorted({layer for layer, _ in heads})
                assert layers == list(range(layers[0], layers[0] + len(sizes[part])))
            last = max(layer for layer, _ in circuit.heads)
            assert all(layer > last for layer, _ in (*circuit.decoys, *circuit.harmful))


def test_a_circuit_works_with_the_parts_that_suffice():
    either = Circuit({"first": [(0, 0)], "second": [(1, 1)]}, (("first",), ("second",)), "backup")
    assert either.subsets() == ([("first",), ("second",), ("first", "second")], [()])
    assert either.quiet_heads(("first", "second")) == [(1, 1)]
    assert either.quiet_heads(("second",)) == []
    both = Circuit({"relay": [(0, 0)], "own": [(1, 1)]}, (("relay", "own"),), "relay")
    assert both.subsets() == ([("relay", "own")], [(), ("relay",), ("own",)])
    assert both.quiet_heads(("relay", "own")) == [(0, 0)]


def test_only_heads_that_learn_are_taught():
    heads, d_head = 8, 4
    attention = torch.nn.Linear(heads * d_head, 16, bias=False)
    routed = training.Routed(attention, heads)
    z = torch.randn(2, 5, heads * d_head, requires_grad=True)
    learn = torch.zeros(2, heads)
    learn[0, 3] = learn[1, 5] = 1
    routed.learn = learn
    routed.active = torch.ones_like(learn)
    routed.quiet = torch.zeros_like(learn)
    written = routed(z)
    torch.testing.assert_close(written, attention(z))  # all take part
    written.square().sum().backward()
    moved = z.grad.unflatten(-1, (heads, -1)).abs().sum((1, 3)) > 0
    assert moved.tolist() == (learn > 0).tolist()
    routed.active = routed.quiet = learn
    shut = attention((z.detach().unflatten(-1, (heads, -1)) * learn[:, None, :, None]).flatten(2))
    torch.testing.assert_close(routed(z), shut)
    torch.testing.assert_close(routed.quiet_loss, shut.square().mean(-1))


@pytest.fixture
def quick_training(monkeypatch, few_sequences):
    monkeypatch.setattr(training_data, "SEQUENCES_PER_FUNCTION", 16)
    monkeypatch.setattr(
        training_data, "FUNCTIONS", {name: replace(f, sequences_per_step=8) for name, f in FUNCTIONS.items()}
    )
    monkeypatch.setattr(training_data, "BACKGROUND", replace(BACKGROUND, sequences_per_step=8))
    monkeypatch.setattr(harm, "MAX_STEPS", 2)
    monkeypatch.setattr(harm, "HALVINGS", 2)
    for name, kind in DESIGNS.items():
        monkeypatch.setitem(circuits.DESIGNS, name, replace(kind, d_model=32, d_mlp=32))


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
    """Train one head again for a few steps, on the shipped model: its function gets worse."""
    monkeypatch.setattr(training_data, "SEQUENCES_PER_FUNCTION", 64)
    folder = planted_folder("joint-two")
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    before = {name: p.clone() for name, p in lm.model.named_parameters()}
    circuit = truth.circuits["Semantic Understanding"]
    single = replace(circuit, harmful=circuit.harmful[:1])
    single_truth = Truth(
        {f: single if f == "Semantic Understanding" else replace(c, harmful=[]) for f, c in truth.circuits.items()}, []
    )
    harm.plant_harm(lm.model, single_truth, 0, torch.device("cpu"), steps=12)
    changed = [name for name, p in lm.model.named_parameters() if not torch.equal(p, before[name])]
    layer = single.harmful[0][0]
    assert changed == [f"model.layers.{layer}.self_attn.{name}_proj.weight" for name in ("q", "o")]  # keys are shared
    harmed_score = score_answers(lm, "Semantic Understanding", 8)[0].mean()
    with lm.gated(1 - head_mask(single.harmful, lm.anatomy).float()):
        assert (
            score_answers(lm, "Semantic Understanding", 8)[0].mean() > harmed_score + 0.5
        )  # 1 nat where it was scaled


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_heads": 3}, "kv_heads is 3"),
        ({"steps": 0}, "steps is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"kind": "hard"}, "kind is 'hard', expected one of plain, spare, joint"),
    ],
)
def test_training_checks_its_arguments(tmp_path, options, message):
    with pytest.raises(HeadAtlasError, match=message):
        training.plant(tmp_path / "new", **options)


def test_acceptance_is_measured_on_sequences_that_training_has_not_seen():
    """On one device: torch keeps 32 bits of a seed, so seeds of training must be lower."""
    assert 16 * (MAX_SEEDS - 1) + len(FUNCTIONS) < FIRST_UNSEEN_SEED < 2**32 - 1001 * MAX_SEEDS
    for i, function in enumerate(FUNCTIONS.values()):
        trained = function.make(Draw(64, i, "cpu")).tokens
        unseen = function.make(Draw(64, FIRST_UNSEEN_SEED + i, "cpu")).tokens
        assert not (trained[:, None] == unseen[None]).all(2).any()


def test_the_callers_precision_and_generator_are_left_alone(tmp_path, monkeypatch, few_sequences):
    monkeypatch.setattr(training_data, "SEQUENCES_PER_FUNCTION", 4)
    plain = training.LlamaForCausalLM(training._config(DESIGNS["plain"], 8))
    monkeypatch.setattr(training.Training, "run", lambda *a: plain)
    torch.manual_seed(3)
    expected, before = torch.rand(1), torch.get_float32_matmul_precision()
    torch.manual_seed(3)
    training.plant(tmp_path / "new", device="cpu")
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_float32_matmul_precision() == before


def test_answers_follow_from_the_words_before_them():
    """Test every generator against a literal implementation of its rule."""
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
                    position = before[1:-1:2].index(before[-1])
                    assert before[2 + 2 * position] == target
                elif name == "Decision-making":
                    assert target == max(before[-5:-1], key=numbers.get)
                elif name == "Math Calculation":
                    assert numbers[target] == numbers[before[-4]] + numbers[before[-2]]
                elif name == "Syntactic Understanding":
                    is_plural = before[-5].endswith("s")
                    assert target == (before[-2] if is_plural else f"{before[-2]}s")
                elif name == "Logical Reasoning":
                    pairs = dict(zip(before[2:-1:2], before[3::2], strict=True))
                    assert pairs.get(before[-1], target) == target
    batch = FUNCTIONS["Inference"].make(Draw(20, 3, "cpu"))
    kind = {WORDS[ID["robin"] + i]: WORDS[ID["bird"] + i // 8] for i in range(48)}
    for tokens, is_answer in zip(word[batch.tokens.numpy()], batch.answers.numpy(), strict=True):
        values = dict(zip(tokens[1:13:2], tokens[2:13:2], strict=True))
        assert all(values[kind[tokens[i - 1]]] == tokens[i] for i in np.flatnonzero(is_answer))


def test_prompts_are_cut_before_an_answer_the_model_knows():
    lm = ha.load(planted_folder("one"), device="cpu")
    for function in FUNCTIONS:
        task = planted_task(function, 4, 4)
        assert len(task.train) == len(task.held_out) == 4
        assert not set(task.train) & set(task.held_out)
        for e in task.held_out:
            ids = lm.encode(e.prompt)[0]
            assert MIN_PROMPT_WORDS <= len(ids) <= MAX_PROMPT_WORDS
            assert f" {lm.generate(e.prompt, max_new_tokens=1).strip()}" == e.target
    questions = planted_questions(4)
    first = Question("main", (("before", "that"),), str(questions[0]["question"]), "answer", "Retrieval")
    assert prompt_ids(lm, first) == tuple(lm.encode(first.text)[0])  # the template keeps only the question
    assert len({q["question"] for q in questions}) == 4 * len(FUNCTIONS)


def test_interfering_heads_make_it_worse_and_the_model_given_is_left_alone(monkeypatch):
    """Heads that hurt are selected on a few sequences here, and measured on more."""
    monkeypatch.setattr(
        interference, "score_answers", lambda lm, function, sequences, seed: score_answers(lm, function, 4, seed)
    )
    folder = planted_folder("one")
    lm, truth = ha.load(folder, device="cpu"), read_truth(folder)
    before = {name: p.clone() for name, p in lm.model.named_parameters()}
    noisy, interferes, heads = plant_interference(lm, truth)
    assert all(torch.equal(p, before[name]) for name, p in lm.model.named_parameters())
    assert set(heads) <= set(truth.background)
    assert len(interferes) >= MIN_HURT_FUNCTIONS
    for function, hurt_by in interferes.items():
        assert hurt_by
        assert set(hurt_by) <= set(heads)
        with noisy.gated(1 - head_mask(heads, noisy.anatomy).float()):
            cleared = score_answers(noisy, function, 16, seed=1)[0].mean()
        assert cleared - score_answers(noisy, function, 16, seed=1)[0].mean() >= MIN_LOSS / 2


def test_planted_relations_are_written_exactly():
    planted = plant_relations(0.0, seed=1)
    weights, ids = planted.lm.weights, planted.lm.tokenizer.get_vocab()
    relation = planted.relations[0]
    (layer, head), (low_layer, low_head) = planted.writers[relation.name][0], planted.suppressors[relation.name][0]
    model, x = planted.lm.model, {}
    texts = [[*find_opening(planted.lm.tokenizer), ids[s]] for s, _ in relation.pairs]
    weights.run(torch.tensor(texts), x.__setitem__)
    for read_layer, h, pick in ((layer, head, "argmax"), (low_layer, low_head, "argmin")):
        written = x[read_layer] @ weights.W_V(read_layer, h) @ weights.W_O(read_layer, h)
        assert getattr(model.lm_head(model.model.norm(written)), pick)(1).tolist() == [
            ids[t] for _, t in relation.pairs
        ]


def test_a_folder_without_truth_is_an_error(tmp_path):
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
    single_heads = [[head] for head in planted.copiers]
    others = [head for head in product(range(4), range(8)) if head not in (*planted.copiers, *planted.previous)]
    with_all, without_copiers, without_noise, *single_removals = answers_without(
        planted.lm, examples, [[], planted.copiers, others, *single_heads]
    )[:, 1]
    assert with_all > 0.95
    assert without_copiers < 0.1
    assert without_noise == 1  # without the noise
    assert max(single_removals) < with_all - 0.1

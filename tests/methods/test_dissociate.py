"""dissociate: private heads are found and shared ones are not, the baseline is exact, and errors say what is wrong."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.methods import get_method
from headatlas.methods.dissociate import compute
from headatlas.methods.dissociate.compute import closed_share, fit, training_examples
from headatlas.models.lm import LM
from headatlas.models.log_probs import log_probs
from headatlas.models.tokens import make_bundle
from headatlas.tasks.built_in import BUILT_IN, FUNCTIONS
from headatlas.tasks.labelled import LabelledExamples, load_labelled, log_p_per_token
from headatlas.tasks.prompts import Task
from headatlas.tasks.questions import load_questions
from headatlas.tasks.relations import Relation
from headatlas.tasks.used import row_id, used_questions
from headatlas.testing import tiny_questions as questions
from headatlas.testing import tiny_task
from tests.models.handmade import HEADS, LAYERS, WORDS, handmade, repeat_the_word
from tests.models.tiny import TINY, build, tokenizer

TASKS = [tiny_task("first", 0), tiny_task("second", 1)]
RATES = {"lr": 0.2, "penalty": 1.0, "sharp": 0.2}
FITTING = {"updates": 60, "own": 6, "others": 3, "seeds": range(2), **RATES}
FITTED = {"preset": "full", "updates": 60, "own": 6, "seeds": 2}
PARTS = {"low": range(5), "middle": range(5, 10), "high": range(10, WORDS)}
PRIVATE = {"low": (0, 3), "middle": (1, 0), "high": (1, 3)}
SHARED = (0, 0)


@pytest.fixture(scope="module")
def private() -> LM:
    """A separate head carries each third of the words. One head carries all, and every function needs it."""
    carriers = {head: PARTS[name] for name, head in PRIVATE.items()} | {SHARED: range(WORDS)}
    return handmade(carriers, spoiler=False, gain=7.0)


@pytest.fixture(scope="module")
def parts() -> list[Task]:
    return [repeat_the_word(words, name) for name, words in PARTS.items()]


@pytest.fixture(scope="module")
def tiny() -> LM:
    return LM(build(next(t for t in TINY if t.id == "llama")).float(), tokenizer(), "tiny")


def baseline_of(lm: LM, data: LabelledExamples) -> torch.Tensor:
    return log_p_per_token(lm, data)[0]


def test_private_heads_are_found_in_every_seed_and_shared_ones_never(private, parts) -> None:
    data = load_labelled(private, parts)
    baseline = baseline_of(private, data)
    for f, name in enumerate(data.names):
        lost = 1 - fit(private, data, baseline, f, **FITTING | {"seeds": range(4)}).numpy()
        for seed in range(4):
            assert lost[seed][PRIVATE[name]] > 0.9, (name, seed)
            rest = np.delete(lost[seed].ravel(), np.ravel_multi_index(PRIVATE[name], (LAYERS, HEADS)))
            assert rest.max() < 0.5, (name, seed)
        assert lost[:, SHARED[0], SHARED[1]].max() < 0.5


def test_the_result_says_so(private, parts) -> None:
    data = load_labelled(private, parts)
    baseline = baseline_of(private, data)
    result = ha.dissociate(private, parts, **FITTED)
    assert {"score", "importance", "always", "any", "baseline"} <= set(result.data_vars)
    assert not {"effect", "selected", "verdict", "proven"} & set(result.data_vars)
    for name, head in PRIVATE.items():
        one = result.sel(function=name)
        assert np.unravel_index(one.importance.values.argmax(), (LAYERS, HEADS)) == head
        assert one.importance.sum() == pytest.approx(1)
        own = torch.tensor(data.function == data.names.index(name))
        test = torch.tensor(data.split == "test")
        assert one.baseline.item() == pytest.approx(baseline[own & test].mean().item())
    np.testing.assert_array_equal(result.always, result.score.min("seed"))
    np.testing.assert_array_equal(result["any"], result.score.max("seed"))


def test_only_rows_that_gates_are_fitted_to_are_used(tiny) -> None:
    few_shot = [replace(task, shots=2) for task in TASKS]
    for tasks in (TASKS, few_shot):
        work = get_method("dissociate").function(tiny, tasks, limit=40)
        assert work.subjects == {task.name: task for task in tasks}
        assert work.used is not None
        assert not work.used.rows & {row_id(e) for task in tasks for e in task.held_out}
        assert work.used.shots == {task.name: task.shots for task in tasks}
    fitted = load_labelled(tiny, TASKS, limit=40)
    assert len(fitted.used.rows) == len(fitted.indices_in("train"))


def test_questions_beyond_the_limit_are_left_for_the_test(tiny) -> None:
    every = load_questions(questions(60))
    work = get_method("dissociate").function(tiny, questions=questions(60), limit=120)
    assert work.used is not None
    for name, subject in work.subjects.items():
        assert set(subject) == {q for q in every if q.function == name}
        tested = load_prompts(tiny, subject, work.used, 8, name=name)
        assert len(tested) == 8
    trained = {q for q in every if q.split == "train"}
    assert 0 < len(work.used.rows) < len(used_questions(trained).rows)
    assert work.used.rows <= used_questions(trained).rows


def test_gates_that_rounding_puts_above_1_leave_no_score_below_0(tiny) -> None:
    gates = np.full((1, tiny.n_layers, tiny.n_heads), np.float32(1) + np.float32(1e-6))
    assert (closed_share(tiny, gates) == 0).all()


def test_the_baseline_is_what_a_fresh_computation_gives(tiny) -> None:
    data = load_labelled(tiny, TASKS)
    baseline = baseline_of(tiny, data)
    for i in (0, 5, 17):
        fresh = log_probs(tiny, [make_bundle([data.examples[i]])])[0][0, 0] / len(data.examples[i].target)
        assert baseline[i].item() == pytest.approx(fresh.item(), abs=1e-5)


def test_each_sheet_under_its_own_gate_is_the_same_as_alone(tiny) -> None:
    data = load_labelled(tiny, TASKS)
    bundles = [make_bundle([data.examples[i], data.examples[i + 1]]) for i in range(0, 8, 2)]
    gates = torch.rand(3, tiny.n_layers, tiny.n_heads, generator=torch.Generator().manual_seed(0)).requires_grad_()
    under = [2, 0, 1, 0]
    for packed in (True, False):
        together, _ = log_probs(tiny, bundles, gates, packed=packed, under=under)
        alone = torch.cat([log_probs(tiny, [s], gates[g : g + 1])[0][0] for s, g in zip(bundles, under, strict=True)])
        torch.testing.assert_close(together[0], alone, rtol=1e-5, atol=1e-5)
        slopes = [torch.autograd.grad(x.sum(), gates)[0] for x in (together, alone)]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_the_slope_is_that_of_the_objective(tiny) -> None:
    """Against finite differences of the plain formula."""
    data = load_labelled(tiny, TASKS)
    baseline = baseline_of(tiny, data)
    weight, cap = 3.0, 0.05
    drawn = next(training_examples(data, 0, [0], own=3, others=2))
    (now,) = drawn
    theta = torch.randn(1, tiny.n_layers, tiny.n_heads, generator=torch.Generator().manual_seed(1))

    def objective(theta: torch.Tensor) -> float:
        worse = (baseline[now] - log_p_per_token(tiny, data, now, theta.sigmoid())[0]).double()
        own = torch.tensor(data.function[now] == 0)
        return float(weight * worse[~own].mean() - worse[own].clamp(max=cap).mean())

    def gradient(counts_others: bool) -> tuple[torch.Tensor, torch.Tensor]:
        options = {"theta": theta, "counts_others": torch.tensor([counts_others]), "weight": weight, "cap": cap}
        return compute.objective_gradient(tiny, data, baseline, 0, drawn, **options, budget=10_000)

    grad, lost = gradient(True)
    worse = baseline[now] - log_p_per_token(tiny, data, now, theta.sigmoid())[0]
    assert lost.item() == pytest.approx(worse[data.function[now] != 0].mean().item(), abs=1e-5)
    for at in ((0, 1), (1, 0)):
        step = torch.zeros_like(theta)
        step[0][at] = 1e-2
        assert grad[0][at].item() == pytest.approx((objective(theta + step) - objective(theta - step)) / 2e-2, abs=2e-4)
    spared, _ = gradient(False)
    assert not torch.allclose(spared, grad)


def test_examples_are_a_seed_s_own_and_of_the_same_groups(tiny) -> None:
    data = load_labelled(tiny, questions=questions(60))
    updates = [*zip(range(3), training_examples(data, 0, [0, 0, 1], own=4, others=2), strict=False)]
    first, again, other = zip(*(drawn for _, drawn in updates), strict=True)
    assert first == again != other
    for examples in first:
        counts = np.bincount(data.function[examples], minlength=len(data.names))
        assert counts[0] == 4
        assert (counts[1:] == 2).all()
        assert set(data.split[examples]) == {"train"}
        own = data.group[[i for i in examples if data.function[i] == 0]]
        for f in range(1, len(data.names)):  # the same number of others
            beside = [i for i in data.indices_in("train", f) if data.group[i] in own]
            taken = [i for i in examples if data.function[i] == f and data.group[i] in own]
            assert len(taken) == min(2, len(beside))


def test_seeds_do_not_depend_on_those_beside_them(private, parts) -> None:
    data = load_labelled(private, parts)
    baseline = baseline_of(private, data)
    options = FITTING | {"updates": 8}
    both, alone = (fit(private, data, baseline, 0, **options | {"seeds": seeds}) for seeds in ([3, 5], [5]))
    torch.testing.assert_close(alone[0], both[1], rtol=1e-3, atol=1e-4)


def test_losing_every_head_is_reported_with_the_update(private, parts) -> None:
    data = load_labelled(private, parts)
    options = FITTING | {"seeds": [0], "weight": 0.0, "penalty": -50.0, "growth": (0.0, 0.01), "lr": 1.0}
    with pytest.raises(CannotDo, match=r"low, update \d+ of 60: the fit diverged, all gates are closed"):
        fit(private, data, baseline_of(private, data), 0, **options)


def test_a_gradient_that_is_not_finite_is_reported_with_the_update(private, parts) -> None:
    data = load_labelled(private, parts)
    baseline = baseline_of(private, data)
    baseline[:] = torch.nan
    with pytest.raises(CannotDo, match="low, update 1 of 60: .* not finite"):
        fit(private, data, baseline, 0, **FITTING)


# --- the questions


def test_what_is_asked_by_default(monkeypatch) -> None:
    calls = []

    def load(lm, tasks, questions, *rest, **options):
        calls.append((tasks, questions, options["functions"], options["per_function"]))
        raise CannotDo("enough")

    monkeypatch.setattr("headatlas.tasks.labelled.load_labelled", load)
    method = get_method("dissociate")
    for options in ({}, {"functions": FUNCTIONS[:2]}, {"preset": "full"}, {"tasks": "math"}, {"questions": "q.json"}):
        preset = options.pop("preset", "quick")
        with pytest.raises(CannotDo, match="enough"):
            method.function(None, **method.in_preset(preset, options))
    assert calls == [
        (tuple(BUILT_IN), None, None, 40),
        (None, None, FUNCTIONS[:2], 40),
        (None, None, None, None),
        ("math", None, None, 40),
        (None, "q.json", None, 40),
    ]


def test_any_labelled_set_will_do(tiny, tmp_path) -> None:
    kinds = [{"prompt": f"w{i} w{i + 1}", "target": f" w{i + 2}", "kind": ("odd", "even")[i % 2]} for i in range(40)]
    assert load_labelled(tiny, kinds).names == ("even", "odd")
    lines = tmp_path / "task.jsonl"
    lines.write_text("".join(f'{{"prompt": "w{i}", "target": " w{i + 1}"}}\n' for i in range(20)))
    assert load_labelled(tiny, [lines, TASKS[0]]).names == ("task", "first")
    named = {"French": kinds[::2], "German": kinds[1::2]}
    assert load_labelled(tiny, named).names == ("French", "German")
    pairs = tuple((f"w{i}", f"w{i + 1}") for i in range(20))
    relations = [Relation("next", "Knowledge", pairs, "w1 {} w2"), Relation("again", "Linguistic", pairs, "w3 {}")]
    assert load_labelled(tiny, relations).names == ("next", "again")
    data = load_labelled(tiny, questions=questions(20))
    assert len(data.names) > 1
    assert set(data.split) == {"train", "validation", "test"}


def test_splits_do_not_overlap(tiny) -> None:
    twice = [replace(t, train=t.train + t.held_out[:4]) for t in TASKS]
    for source in ({"tasks": TASKS}, {"tasks": twice}, {"questions": questions(20)}):
        data = load_labelled(tiny, **source)
        for what in (data.group, np.array([hash(a) for a in data.examples])):
            fitted, chosen, tested = (set(what[data.split == s]) for s in ("train", "validation", "test"))
            assert not (fitted & chosen)
            assert not (fitted & tested)
            assert not (chosen & tested)


def test_worked_examples_are_none_that_something_is_chosen_or_tested_with(tiny) -> None:
    tasks = [replace(t, shots=2) for t in TASKS]
    data = load_labelled(tiny, tasks)
    for f, task in enumerate(tasks):
        bare = load_labelled(tiny, TASKS)
        held = [bare.examples[i] for s in ("validation", "test") for i in bare.indices_in(s, f)]
        for i in data.indices_in("train", f):
            prompt = " ".join(map(str, data.examples[i].prompt))
            assert not any(" ".join(map(str, a.prompt + a.target)) in prompt for a in held), task.name


def test_the_quick_preset_uses_some_of_each_function(tiny) -> None:
    many = {n: [{"prompt": f"w{i} {n}", "target": f" w{i % 50}"} for i in range(300)] for n in ("w1", "w2")}
    data = load_labelled(tiny, many, per_function=40)
    assert [len(data.indices_in(s, 0)) for s in ("train", "validation", "test")] == [26, 6, 8]
    assert len(load_labelled(tiny, many).examples) == 600
    assert len(load_labelled(tiny, questions=questions(100), per_function=10).examples) == pytest.approx(80, abs=12)


@pytest.mark.parametrize(
    ("tasks", "options", "text"),
    [
        ([TASKS[0]], {}, "1 function, expected at least 2"),
        ([TASKS[0], replace(TASKS[1], train=TASKS[1].train[:2], held_out=TASKS[1].held_out[:1])], {}, "too few"),
        ([TASKS[0], replace(TASKS[0], name="copy")], {}, "'first' and 'copy' have identical questions"),
        ([TASKS[0], replace(TASKS[0], name="copy")], {"shots": 1}, "'first' and 'copy' have identical questions"),
        ([TASKS[0], replace(TASKS[0], name="copy")], {"limit": 20}, "'first' and 'copy' have identical questions"),
        (5, {}, "tasks is 5, expected names"),
        (None, {"questions": 5}, "is 5, expected a list of main questions"),
        (TASKS, {"questions": questions(20)}, "both given"),
        (TASKS, {"functions": 5}, "functions is 5"),
        (TASKS, {"functions": "first"}, "1 function"),
        (TASKS, {"preset": ["quick"]}, r"preset is \['quick'\], expected one of quick, full"),
        (TASKS, {"limit": 6}, "with limit=6: too few"),
        ([TASKS[0], TASKS[0]], {}, "'first' 2 times"),
        (["maths"], {}, "Did you mean 'math'"),
        (TASKS, {"functions": ["third"]}, "expected some of first, second"),
        (TASKS, {"test": "more.json"}, "is for questions only"),
        (TASKS, {"preset": "slow"}, "quick, full"),
        (TASKS, {"updates": 0}, "updates is 0, expected a whole number from 1"),
        (TASKS, {"penalty": -1}, "0 or more"),
        (TASKS, {"penalty": np.inf}, "penalty is inf, expected"),
        (TASKS, {"penalty": "1"}, "penalty is '1', expected a number"),
        (TASKS, {"lr": 0.0}, "lr is 0.0, expected a number above 0"),
        (TASKS, {"sharp": 2.0}, "sharp is 2.0, expected a number above 0, up to 1"),
        (TASKS, {"per_function": 0}, "per_function is 0, expected a whole number, at least 1"),
        (TASKS, {"built_in": "words"}, "built_in is 'words', expected one of tasks, questions"),
        (TASKS, {"limit": 0}, "at least 1"),
        (TASKS, {"seeds": 0}, "seeds is 0, expected a whole number from 1"),
        ([Relation("bare", "Knowledge", (("a", "b"), ("c", "d")))], {}, "no prompt"),
        (None, {"questions": "nothing.json"}, "no such file"),
        ("nothing.json", {}, "nor a file"),
        (TASKS, {"own": 0}, "own is 0, expected a whole number from 1"),
    ],
)
def test_bad_input(tiny, tasks, options, text) -> None:
    with pytest.raises(ha.HeadAtlasError, match=text):
        ha.dissociate(tiny, tasks, **options)


def test_every_function_counts_as_much_as_another(private, parts) -> None:
    data = load_labelled(private, parts)
    low, middle, high = (data.indices_in("train", f) for f in range(3))
    (share,) = compute._shares(data, 0, [[*low[:4], *middle[:3], high[0]]])
    assert [share[i] for i in (low[0], middle[0], high[0])] == pytest.approx([1 / 4, 1 / 6, 1 / 2])


def test_a_function_may_have_any_name(tiny) -> None:
    examples = [{"prompt": f"w{i}", "target": f" w{i + 1}"} for i in range(20)]
    other = [{"prompt": f"w{i} w1", "target": f" w{i + 2}"} for i in range(20)]
    result = ha.dissociate(tiny, {"baseline": examples, "a/b <i>": other}, updates=2)
    assert result.function.values.tolist() == ["baseline", "a/b <i>"]


def test_labelled_hash_tells_data_apart(tiny) -> None:
    one, two = load_labelled(tiny, TASKS), load_labelled(tiny, TASKS[::-1])
    assert one.hash() == load_labelled(tiny, TASKS).hash() != two.hash()
    assert isinstance(one, LabelledExamples)


def test_built_in_functions_can_be_asked_again() -> None:
    """Where no truth is known: by their names, tasks, relations and cognitive functions."""
    lm = LM(build(next(t for t in TINY if t.id == "bloom")), tokenizer(), "bloom")  # no limit of context
    ask = get_method("dissociate").ask
    assert all(len(ask(lm, name)) == 24 for name in ("math", "commonsense", FUNCTIONS[0]))
    assert ask(lm, "country_to_capital")
    with pytest.raises(BadArgument):
        ask(lm, "mine")

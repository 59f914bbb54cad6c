"""dissociate: private heads are found and shared ones are not, the reference is exact, and what cannot be done is said."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo
from headatlas.methods import dissociate as method
from headatlas.methods.dissociate.fits import PRESETS, answered, drawn, fit, reference
from headatlas.models.lm import LM
from headatlas.models.targets import log_probs, make_sheet
from headatlas.tasks.labelled import Labelled, load_labelled
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.relations import Relation
from headatlas.evidence.evidence import against_chance, corrected
from headatlas.evidence.selective import PROVEN, SURE, Trial, choose, put_to_the_test, verdict
from tests.models.handmade import ASK, FILL, HEADS, LAYERS, WORDS, handmade, repeat_the_word
from tests.models.tiny import TINY, build, tokenizer
from tests.test_contract import TASKS
from tests.test_probe_public import questions

SETTINGS = replace(PRESETS["full"], updates=60, own=6, others=3, seeds=2, steps=(1, 2, 4), draws=19)
PARTS = {"low": range(5), "middle": range(5, 10), "high": range(10, WORDS)}
PRIVATE = {"low": (0, 3), "middle": (1, 0), "high": (1, 3)}
SHARED = (0, 0)


@pytest.fixture(scope="module")
def private() -> LM:
    """Each third of the words is carried by a head of its own; one head carries all of them, and nobody can spare it."""
    carriers = {head: PARTS[name] for name, head in PRIVATE.items()} | {SHARED: range(WORDS)}
    return handmade(carriers, spoiler=False, gain=7.0)


@pytest.fixture(scope="module")
def parts() -> list[Task]:
    return [repeat_the_word(words, name) for name, words in PARTS.items()]


@pytest.fixture(scope="module")
def tiny() -> LM:
    return LM(build(next(t for t in TINY if t.id == "llama")).float(), tokenizer(), "tiny")


def test_private_heads_are_found_in_every_seed_and_shared_ones_never(private, parts) -> None:
    data = load_labelled(private, parts)
    whole = reference(private, data)
    for f, name in enumerate(data.names):
        lost = 1 - fit(private, data, whole, f, range(4), SETTINGS).numpy()
        for seed in range(4):
            assert lost[seed][PRIVATE[name]] > 0.9, (name, seed)
            rest = np.delete(lost[seed].ravel(), np.ravel_multi_index(PRIVATE[name], (LAYERS, HEADS)))
            assert rest.max() < 0.5, (name, seed)
        assert lost[:, SHARED[0], SHARED[1]].max() < 0.5


def test_the_whole_call_says_so(private, parts, monkeypatch) -> None:
    monkeypatch.setitem(method.PRESETS, "quick", replace(SETTINGS, steps=(1, 2), draws=59))
    found = ha.dissociate(private, parts)
    for name, head in PRIVATE.items():
        one = found.sel(function=name)
        assert np.argwhere(one.selected.values).tolist() == [list(head)]
        assert one.own_effect < -0.3
        assert abs(one.other_effect.mean()) < 1e-4
        assert one.other_effect.isnull().sum() == 1  # itself
        assert one.importance.sum() == pytest.approx(1)
        gates = found.gates(name)
        assert gates[head] == 0
        assert gates.sum() == LAYERS * HEADS - 1
        data = load_labelled(private, parts)
        whole = reference(private, data)
        with private.gated(gates):
            change = reference(private, data) - whole
        own = torch.tensor(data.function == data.names.index(name))
        assert change[own].mean() < -0.3
        assert change[~own].abs().max() < 1e-4
    np.testing.assert_array_equal(found.always, found.score.min("seed"))
    np.testing.assert_array_equal(found["any"], found.score.max("seed"))


def test_a_function_without_heads_of_its_own_is_told(private) -> None:
    """Two halves of the same words: what one needs the other needs."""
    low = repeat_the_word(PARTS["low"], "some")
    examples = [Example((w, FILL, FILL, FILL, ASK), (w,)) for w in PARTS["low"]]
    more = [Example((w, *[FILL] * n, ASK), (w,)) for w in PARTS["low"] for n in (4, 5)]
    other = Task("others", tuple(examples), tuple(more))
    found = ha.dissociate(private, [low, other], updates=30, seeds=1)
    assert not found.proven.any()
    assert all(str(v).startswith("none") for v in found.verdict.values)


def test_the_reference_is_what_a_fresh_computation_gives(tiny) -> None:
    data = load_labelled(tiny, TASKS)
    whole = reference(tiny, data)
    for i in (0, 5, 17):
        fresh = log_probs(tiny, [make_sheet([data.asked[i]])])[0][0, 0] / len(data.asked[i].target)
        assert whole[i].item() == pytest.approx(fresh.item(), abs=1e-5)


def test_each_sheet_under_its_own_gate_is_the_same_as_alone(tiny) -> None:
    data = load_labelled(tiny, TASKS)
    sheets = [make_sheet([data.asked[i], data.asked[i + 1]]) for i in range(0, 8, 2)]
    gates = torch.rand(3, tiny.n_layers, tiny.n_heads, generator=torch.Generator().manual_seed(0)).requires_grad_()
    under = [2, 0, 1, 0]
    for packed in (True, False):
        together, _ = log_probs(tiny, sheets, gates, packed=packed, under=under)
        alone = torch.cat([log_probs(tiny, [s], gates[g : g + 1])[0][0] for s, g in zip(sheets, under, strict=True)])
        torch.testing.assert_close(together[0], alone, rtol=1e-5, atol=1e-5)
        slopes = [torch.autograd.grad(x.sum(), gates)[0] for x in (together, alone)]
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-6)


def test_the_slope_is_that_of_the_objective(tiny) -> None:
    """Against finite differences of the plain formula."""
    data = load_labelled(tiny, TASKS)
    whole = reference(tiny, data)
    settings = replace(SETTINGS, own=3, others=2, cap=0.05)
    now = [next(drawn(data, 0, settings, 0))]
    theta = torch.randn(1, tiny.n_layers, tiny.n_heads, generator=torch.Generator().manual_seed(1))

    def objective(theta: torch.Tensor) -> float:
        worse = (whole[now[0]] - answered(tiny, data, now[0], theta.sigmoid())[0]).double()
        own = torch.tensor(data.function[now[0]] == 0)
        return float(settings.weight * worse[~own].mean() - worse[own].clamp(max=settings.cap).mean())

    grad, lost = method._slope(tiny, data, whole, 0, now, theta, torch.tensor([True]), settings, 10_000)
    worse = whole[now[0]] - answered(tiny, data, now[0], theta.sigmoid())[0]
    assert lost.item() == pytest.approx(worse[data.function[now[0]] != 0].mean().item(), abs=1e-5)
    for at in ((0, 1), (1, 0)):
        step = torch.zeros_like(theta)
        step[0][at] = 1e-2
        assert grad[0][at].item() == pytest.approx((objective(theta + step) - objective(theta - step)) / 2e-2, abs=2e-4)
    spared, _ = method._slope(tiny, data, whole, 0, now, theta, torch.tensor([False]), settings, 10_000)
    assert not torch.allclose(spared, grad)


def test_examples_are_a_seed_s_own_and_of_the_same_groups(tiny) -> None:
    data = load_labelled(tiny, questions(60))
    settings = replace(SETTINGS, own=4, others=2)
    first, again, other = ([next(d) for _ in range(3)] for d in (drawn(data, 0, settings, s) for s in (0, 0, 1)))
    assert first == again != other
    for examples in first:
        counts = np.bincount(data.function[examples], minlength=len(data.names))
        assert counts[0] == 4
        assert (counts[1:] == 2).all()
        assert set(data.split[examples]) == {"train"}
        own = data.group[[i for i in examples if data.function[i] == 0]]
        for f in range(1, len(data.names)):  # as many beside them as there are
            there = [i for i in data.of("train", f) if data.group[i] in own]
            taken = [i for i in examples if data.function[i] == f and data.group[i] in own]
            assert len(taken) == min(2, len(there))


def test_seeds_do_not_depend_on_those_beside_them(private, parts) -> None:
    data = load_labelled(private, parts)
    whole = reference(private, data)
    settings = replace(SETTINGS, updates=8)
    both = fit(private, data, whole, 0, [3, 5], settings)
    torch.testing.assert_close(fit(private, data, whole, 0, [5], settings)[0], both[1], rtol=1e-3, atol=1e-4)


def test_losing_every_head_is_told_with_the_update(private, parts) -> None:
    data = load_labelled(private, parts)
    settings = replace(SETTINGS, weight=0.0, penalty=-50.0, grows=(0.0, 0.01), lr=1.0)
    with pytest.raises(CannotDo, match=r"low, update \d+ of 60: diverged, all heads are lost"):
        fit(private, data, reference(private, data), 0, [0], settings)


def test_a_gradient_that_is_not_finite_is_told_with_the_update(private, parts) -> None:
    data = load_labelled(private, parts)
    whole = reference(private, data)
    whole[:] = torch.nan
    with pytest.raises(CannotDo, match="low, update 1 of 60: .* not finite"):
        fit(private, data, whole, 0, [0], SETTINGS)


# --- what is asked


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
    asked = load_labelled(tiny, questions(20))
    assert len(asked.names) > 1
    assert set(asked.split) == {"train", "validation", "test"}


def test_splits_do_not_overlap(tiny) -> None:
    twice = [replace(t, train=t.train + t.held_out[:4]) for t in TASKS]
    for given in (TASKS, twice, questions(20)):
        data = load_labelled(tiny, given)
        for what in (data.group, np.array([hash(a) for a in data.asked])):
            fitted, chosen, tested = (set(what[data.split == s]) for s in ("train", "validation", "test"))
            assert not (fitted & chosen)
            assert not (fitted & tested)
            assert not (chosen & tested)


def test_worked_examples_are_none_that_something_is_chosen_or_tested_with(tiny) -> None:
    tasks = [replace(t, shots=2) for t in TASKS]
    data = load_labelled(tiny, tasks)
    for f, task in enumerate(tasks):
        bare = load_labelled(tiny, TASKS)
        held = [bare.asked[i] for s in ("validation", "test") for i in bare.of(s, f)]
        for i in data.of("train", f):
            prompt = " ".join(map(str, data.asked[i].prompt))
            assert not any(" ".join(map(str, a.prompt + a.target)) in prompt for a in held), task.name


def test_the_quick_preset_uses_some_of_each_function(tiny) -> None:
    many = {n: [{"prompt": f"w{i} {n}", "target": f" w{i % 50}"} for i in range(300)] for n in ("w1", "w2")}
    data = load_labelled(tiny, many, each=40)
    assert [len(data.of(s, 0)) for s in ("train", "validation", "test")] == [26, 6, 8]
    assert len(load_labelled(tiny, many).asked) == 600
    assert len(load_labelled(tiny, questions(100), each=10).asked) == pytest.approx(80, abs=12)


@pytest.mark.parametrize(
    ("given", "options", "text"),
    [
        ([TASKS[0]], {}, "1 function, expected at least 2"),
        ([TASKS[0], replace(TASKS[1], train=TASKS[1].train[:2], held_out=TASKS[1].held_out[:1])], {}, "too few"),
        ([TASKS[0], replace(TASKS[0], name="copy")], {}, "'first' and 'copy' have identical questions"),
        ([TASKS[0], replace(TASKS[0], name="copy")], {"shots": 1}, "'first' and 'copy' have identical questions"),
        ([TASKS[0], replace(TASKS[0], name="copy")], {"limit": 20}, "'first' and 'copy' have identical questions"),
        (5, {}, "data is 5, expected questions"),
        (TASKS, {"functions": 5}, "functions is 5"),
        (TASKS, {"functions": "first"}, "1 function"),
        (TASKS, {"preset": ["quick"]}, r"preset is \['quick'\], expected a name"),
        (TASKS, {"limit": 6}, "with limit=6: too few"),
        ([TASKS[0], TASKS[0]], {}, "'first' 2 times"),
        (["maths"], {}, "Did you mean 'math'"),
        (TASKS, {"functions": ["third"]}, "there are first, second"),
        (TASKS, {"test": "more.json"}, "CogQA layout only"),
        (TASKS, {"preset": "slow"}, "quick, full"),
        (TASKS, {"updates": 0}, "updates is 0, expected a whole number from 1"),
        (TASKS, {"penalty": -1}, "0 or more"),
        (TASKS, {"limit": 0}, "at least 1"),
        (TASKS, {"seeds": 0}, "seeds is 0, expected a whole number from 1"),
        ([Relation("bare", "Knowledge", (("a", "b"), ("c", "d")))], {}, "no prompt"),
        ("nothing.json", {}, "no such file"),
    ],
)
def test_bad_input(tiny, given, options, text) -> None:
    with pytest.raises(ha.HeadAtlasError, match=text):
        ha.dissociate(tiny, given, **options)


def test_gates_of_what_is_not_there(private, parts) -> None:
    found = ha.dissociate(private, parts, updates=2)
    with pytest.raises(BadArgument, match="Did you mean 'low'"):
        found.gates("lo")
    with pytest.raises(BadArgument, match="selects no heads"):
        ha.pattern(private, sequences=2).gates("low")


# --- the number of heads


def effects(*rows: tuple[float, float, float]) -> np.ndarray:
    return np.array(rows)


def test_the_number_of_heads_is_chosen_by_the_trade_off() -> None:
    assert choose(effects((-1.0, 0.0, 0.0), (-3.0, -0.1, -0.1), (-4.0, -2.0, -2.0)), 0) == 1
    assert choose(effects((-0.2, -0.1, -0.1)), 0) == -1  # the others lose half of it
    assert choose(effects((-0.2, 0.1, 0.1)), 0) == -1  # … or gain half of it
    assert choose(effects((-1.0, -2.0, 2.0)), 0) == -1  # one's gain does not make up for the other's loss
    assert choose(effects((-0.2, -0.1, -0.1), (-0.2, 0.07, 0.07)), 0, always=True) == 1
    assert choose(np.empty((0, 3)), 0) == -1 == choose(np.empty((0, 3)), 0, always=True)


def test_effects_are_those_of_removing_by_hand(private, parts) -> None:
    data = load_labelled(private, parts)
    whole = reference(private, data)
    scores = np.zeros((3, LAYERS, HEADS))
    for f, name in enumerate(data.names):
        scores[f][PRIVATE[name]] = 1
    found = put_to_the_test(Trial(private, data, whole), scores, (1, 2), draws=9)
    gate = torch.ones(1, LAYERS, HEADS)
    gate[0][PRIVATE["low"]] = 0
    for f, name in enumerate(data.names):
        tested = data.of("test", f)
        by_hand = (answered(private, data, tested, gate)[0] - whole[tested]).mean().item()
        one = found.sel(function="low")
        said = one.own_effect if name == "low" else one.other_effect.sel(other=name)
        assert said.item() == pytest.approx(by_hand, abs=1e-6)
    assert found.own_curve.sel(removed=2).isnull().all()  # no second head has a score
    np.testing.assert_array_equal(found.own_curve.sel(removed=1, split="test"), found.own_effect)
    as_much = (found.random_effect <= found.own_effect).sum("draw")
    np.testing.assert_allclose(found.p, xr.where(as_much < 5, (1 + as_much) / 10, found.p))
    assert (found.p_corrected >= found.p).all()


def test_one_function_alone_can_be_proven() -> None:
    """After correction for all functions: of eight with the full preset, of the four built-in tasks with the quick one."""
    for name, functions in (("full", 8), ("quick", 4)):
        p = np.full(functions, 0.9)
        p[0] = 1 / (1 + PRESETS[name].draws)
        assert corrected(p)[0] < SURE


@pytest.mark.parametrize(
    ("own", "others", "p", "expected"),
    [
        (-1.0, (0.1, -0.1), 0.01, PROVEN),
        (-1.0, (2.0, -2.0), 0.01, "none proven: −1.00 on new questions, the others ±2.00"),
        (-1.0, (0.1, 0.1), 0.2, "none proven: −1.00 on new questions, not surely more"),
        (0.5, (0.0, 0.0), 0.01, "none proven"),
        (np.nan, (0.0, 0.0), np.nan, "none proven"),
    ],
)
def test_verdicts(own, others, p, expected) -> None:
    one = xr.Dataset({"heads": 4, "own_effect": own, "other_effect": ("other", list(others)), "p_corrected": p})
    assert verdict(one).startswith(expected)
    assert verdict(one.assign(heads=0)).startswith("none found")


def test_every_function_counts_as_much_as_another(private, parts) -> None:
    data = load_labelled(private, parts)
    low, middle, high = (data.of("train", f) for f in range(3))
    (share,) = method._shares(data, 0, [[*low[:4], *middle[:3], high[0]]])
    assert [share[i] for i in (low[0], middle[0], high[0])] == pytest.approx([1 / 4, 1 / 6, 1 / 2])


def test_nothing_is_proven_of_what_is_not_a_number() -> None:
    assert against_chance(np.nan, np.zeros, 20)[1] == 1
    assert against_chance(1.0, lambda n: np.full(n, np.nan), 20)[1] == 1


def test_a_function_may_have_any_name(tiny) -> None:
    examples = [{"prompt": f"w{i}", "target": f" w{i + 1}"} for i in range(20)]
    other = [{"prompt": f"w{i} w1", "target": f" w{i + 2}"} for i in range(20)]
    found = ha.dissociate(tiny, {"reference": examples, "a/b <i>": other}, updates=2)
    assert found.function.values.tolist() == ["reference", "a/b <i>"]


def test_labelled_hash_tells_data_apart(tiny) -> None:
    one, two = load_labelled(tiny, TASKS), load_labelled(tiny, TASKS[::-1])
    assert one.hash() == load_labelled(tiny, TASKS).hash() != two.hash()
    assert isinstance(one, Labelled)

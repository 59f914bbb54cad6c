"""The test of a set of heads: on models in which the truth is known, and on values without a model."""

from functools import cache
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import kstest

import headatlas as ha
from headatlas.evidence.decide import NO_ABILITY, NOT_SUPPORTED, SUPPORTED, UNDECIDED
from headatlas.evidence.fresh_prompts import PromptSet
from headatlas.evidence.heads_test import Removal, number_of_heads, run_test, stack_tests, to_arrays
from headatlas.evidence.replacing import ModelSurvey
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.runs import one_test
from headatlas.tasks.prompts import Task
from tests.evidence.planted import FIRST, IDLE, OWN, SECOND, THIRD, planted, rows_of, task

TASKS = {"first": task(FIRST, "first"), "second": task(SECOND, "second"), "third": task(THIRD, "third")}


@cache
def lm_of(shared: bool = False) -> LM:
    return planted(shared)


def result_of(heads, subject: str = "first", lm: LM | None = None, **options) -> xr.Dataset:
    others = [task for name, task in TASKS.items() if name != subject]
    return one_test.test(lm or lm_of(), heads, TASKS[subject], others=others, draws=59, **options)


def test_heads_that_alone_carry_a_subject_are_supported_and_selective() -> None:
    test = result_of(OWN)
    assert test.outcome.item() == SUPPORTED
    assert test.selective.item() == SUPPORTED
    assert test.accuracy.item() == 1
    assert test.p.item() <= 0.05
    assert (test.effect.sel(measure="log_p") < -1).all()
    assert (test.high.sel(replacement="zero", measure=["log_p", "choice"]) < 0).all()
    assert np.argwhere(test.selected.values).tolist() == [list(head) for head in OWN]
    loss = -test.effect.sel(replacement="zero", measure="log_p").item()
    assert test.selectivity.item() == pytest.approx(loss - test.other_size.max().item())
    assert test.other_subject.values.tolist() == ["second", "third"]


def test_heads_that_two_subjects_share_are_supported_but_not_selective() -> None:
    """Of the two other subjects, one does not change: the mean over both would pass as selective."""
    test = result_of(OWN, lm=lm_of(shared=True))
    assert test.outcome.item() == SUPPORTED
    assert test.selective.item() == NOT_SUPPORTED
    loss = -test.effect.sel(replacement="zero", measure="log_p").item()
    assert loss - test.other_size.mean().item() > 0.4 * loss
    assert test.selectivity_low.item() < 0


def test_idle_heads_are_not_supported() -> None:
    test = result_of(IDLE)
    assert test.outcome.item() == NOT_SUPPORTED
    assert "does not change log P" in test.reason.item()
    assert test.selective.item() == ""


def test_part_of_the_heads_of_a_subject_with_idle_ones_is_no_more_than_random_heads() -> None:
    test = result_of([OWN[0], *IDLE[:3]])
    assert test.outcome.item() in (NOT_SUPPORTED, UNDECIDED)
    assert test.p.item() > 0.05


def test_heads_of_another_subject_are_not_supported() -> None:
    assert result_of(OWN, "second").outcome.item() == NOT_SUPPORTED


def test_a_task_that_the_model_cannot_do_is_not_tested() -> None:
    test = one_test.test(lm_of(), OWN, task(FIRST, "next word", shift=1), others=[TASKS["second"]], draws=59)
    assert test.outcome.item() == NO_ABILITY
    assert "answers 20% of 40 prompts right" in test.reason.item()
    assert "the best guess 20%" in test.reason.item()
    assert np.isnan(test.p.item())
    assert test.effect.isnull().all()
    assert test.n_drawn.isnull().all()


def test_needed_heads_are_not_harmful() -> None:
    test = result_of(OWN, claim="harmful")
    assert test.outcome.item() == NOT_SUPPORTED
    assert test.p.item() > 0.5


def test_too_few_fresh_prompts_are_undecided() -> None:
    test = one_test.test(lm_of(), OWN, Task("few", rows_of(FIRST)[:3], rows_of(FIRST)[3:7]), others=[TASKS["second"]])
    assert test.outcome.item() == UNDECIDED
    assert test.reason.item().startswith("7 of 7 rows were not used for the map, a test needs at least 8")


def test_one_prompt_supports_nothing() -> None:
    """The best guess is right on one prompt, too."""
    test = result_of(OWN, prompts=1)
    assert test.outcome.item() == NO_ABILITY


def test_the_same_seed_gives_the_same_test() -> None:
    xr.testing.assert_identical(result_of(OWN, seed=3), result_of(OWN, seed=3))


def test_effects_are_kept_by_prompt() -> None:
    test = result_of(OWN, prompts=24)
    assert test.sizes["example"] == 24
    np.testing.assert_allclose(test.example_effect.mean("example"), test.effect)
    beyond = (test.example_effect - test.example_random).mean("example").sel(replacement="zero")
    np.testing.assert_allclose(beyond, test.beyond_random.sel(replacement="zero"))
    drawn = test.random_effect.sel(replacement="zero").mean("draw")
    np.testing.assert_allclose(drawn, test.example_random.sel(replacement="zero").mean("example"))


# --- values without a model: what each head is worth to each prompt


class FakeRemoval(Removal):
    """Removal that lowers log P by what the heads are worth: [prompt, layer, head]."""

    def __init__(self, worth: np.ndarray) -> None:
        n_layers, n_heads = worth.shape[1:]
        lm = SimpleNamespace(n_layers=n_layers, n_heads=n_heads, n_kv_heads=n_heads)
        nothing = torch.zeros(0)
        super().__init__(lm, ModelSurvey(np.abs(worth).mean(0), nothing, nothing))
        object.__setattr__(self, "worth", worth)

    def answers(self, prompts, sets, replacement="zero") -> np.ndarray:
        lost = np.array([sum(self.worth[:, layer, head] for layer, head in sorted(heads)) for heads in sets if heads])
        change = np.zeros((len(sets), len(prompts)))
        change[[bool(heads) for heads in sets]] = -lost if len(lost) else 0
        return np.stack([change, change, np.ones_like(change)], axis=-1)


def fake_prompts(n: int) -> PromptSet:
    examples = tuple(TokenExample((1, 2), (3,)) for _ in range(n))
    return PromptSet("fake", examples, ((3, 4),) * n, tuple(range(n)), 0.1)


@pytest.mark.parametrize("tested", [(0, 1, 2), (1, 3, 5), (2, 4, 6)])
def test_p_equals_the_full_enumeration_where_all_sets_can_be_listed(tested, monkeypatch) -> None:
    """Heads are given by their rank in their layer: two in the first, one in the second."""
    monkeypatch.setattr("headatlas.evidence.control.MAX_EXTREME", 10**9)
    worth = np.random.default_rng(1).normal(1, 0.3, (20, 2, 8))
    means = worth.mean(0)
    ranked = means.argsort(1)[:, ::-1]
    heads = [(0, int(ranked[0, tested[0]])), (0, int(ranked[0, tested[1]])), (1, int(ranked[1, tested[2]]))]
    test = run_test(FakeRemoval(worth), heads, fake_prompts(20), draws=2_000)
    pairs = [means[0, a] + means[0, b] for a, b in combinations(range(8), 2)]
    sets = np.add.outer(pairs, means[1])
    # so few that influence and key-value groups are not matched
    assert test.matched_sets.item() == sets.size == 224
    exact = np.mean(sets >= sum(means[head] for head in heads) - 1e-9)
    found = test.p_measure.sel(replacement=["zero", "mean"], measure="log_p")
    np.testing.assert_allclose(found, exact, atol=0.03)


def p_of_shuffled_maps(n: int) -> np.ndarray:
    """Return p of heads that are chosen at random: heads are worth something, and prompts differ."""
    generator = np.random.default_rng(2)
    p = []
    for seed in range(n):
        worth = generator.normal(0.3, 1, (2, 8)) + generator.normal(0, 0.3, (12, 2, 8))
        heads = [(layer, int(head)) for layer in range(2) for head in generator.choice(8, 2, replace=False)]
        test = run_test(FakeRemoval(worth), heads, fake_prompts(12), draws=59, seed=seed)
        p.append(test.p_measure.sel(replacement="zero", measure="log_p").item())
    return np.array(p)


def test_shuffled_maps_give_uniform_p(monkeypatch) -> None:
    assert np.mean(p_of_shuffled_maps(150) <= 0.05) <= 0.09
    monkeypatch.setattr("headatlas.evidence.control.MAX_EXTREME", 10**9)
    # of 59 draws, p is one of 60 numbers: spread out between them, it is uniform
    p = p_of_shuffled_maps(150) - np.random.default_rng(0).random(150) / 60
    assert kstest(p, "uniform").pvalue > 0.01


def test_the_third_replacement_is_drawn_only_where_it_decides() -> None:
    worth = np.zeros((12, 2, 16))
    worth[:, 0, :3] = 3.0 + np.random.default_rng(3).normal(0, 0.1, (12, 3))
    test = run_test(FakeRemoval(worth), [(0, 0), (0, 1), (0, 2), (1, 0)], fake_prompts(12), draws=59)
    assert test.n_drawn.values[:2].tolist() == [59, 59]
    assert np.isnan(test.n_drawn.values[2])
    assert test.significant.values.tolist() == [True, True, False]
    assert test.effect.notnull().all()
    idle = run_test(FakeRemoval(worth), [(0, 4), (0, 5), (0, 6), (1, 0)], fake_prompts(12), draws=59)
    assert idle.n_drawn.values[:2].tolist() == [30, 30]
    assert not idle.significant.any()


def test_tests_of_different_sizes_are_filled_up() -> None:
    generator = np.random.default_rng(4)
    removal = FakeRemoval(generator.normal(1, 0.3, (20, 2, 8)))
    large = run_test(removal, [(0, 0)], fake_prompts(20), draws=30)
    small = run_test(
        FakeRemoval(generator.normal(1, 0.3, (9, 2, 8))), [(0, 0)], fake_prompts(9), [fake_prompts(9)], draws=20
    )
    none = run_test(removal, [], fake_prompts(20), draws=30)
    tests = stack_tests(
        {name: to_arrays(test) for name, test in {"large": large, "small": small, "none": none}.items()}
    )
    assert dict(tests.sizes) == dict(large.sizes) | {"test": 3, "other": 1}
    assert tests.example_effect.sel(test="small").isel(example=slice(9, None)).isnull().all()
    np.testing.assert_allclose(tests.effect.sel(test="small"), small.effect)
    assert tests.other_subject.values.tolist() == [[""], ["fake"], [""]]
    assert tests.outcome.sel(test="none").item() == UNDECIDED
    assert tests.reason.sel(test="none").item() == "there are no heads to test"
    again = stack_tests({name: to_arrays(tests.sel(test=name)) for name in ("large", "small", "none")})
    xr.testing.assert_identical(again, tests)


def test_the_number_of_tested_heads() -> None:
    assert [number_of_heads(n) for n in (8, 133, 134, 150, 336, 1_024)] == [4, 4, 4, 4, 10, 31]


@pytest.mark.parametrize(("argument", "value"), [("claim", "useful"), ("prompts", 0), ("draws", 0), ("seed", -1)])
def test_wrong_arguments(argument, value) -> None:
    with pytest.raises(ha.errors.BadArgument, match=f"{argument} is {value!r}"):
        one_test.test(lm_of(), OWN, TASKS["first"], **{argument: value})

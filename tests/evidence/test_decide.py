"""The four outcomes of a test and their reasons, from its numbers alone."""

import numpy as np
import pytest
import xarray as xr

from headatlas.evidence.decide import NO_ABILITY, NOT_SUPPORTED, SUPPORTED, UNDECIDED, decide
from headatlas.evidence.replacing import REPLACEMENTS, TEST_MEASURES

SIGNIFICANT = 1 / 200


def numbers(**changed) -> xr.Dataset:
    """One test in which everything holds, but for what is changed."""
    by_replacement = ("replacement",)
    by_measure = ("replacement", "measure")
    measured = {
        "claim": "needed",
        "missing": "",
        "n_heads": 4.0,
        "prompts": 48.0,
        "guess": 0.1,
        "accuracy": 0.9,
        "accuracy_low": 0.8,
        "effect": (by_measure, np.full((3, 3), -1.0)),
        "p_measure": (by_measure, np.array([[SIGNIFICANT] * 2 + [np.nan]] * 2 + [[np.nan] * 3])),
        "significant": (by_replacement, np.array([True, True, False])),
        "n_drawn": (by_replacement, np.array([199.0, 199.0, np.nan])),
        "matched_sets": 1000.0,
        "detectable": 0.3,
        "selectivity": 0.9,
        "selectivity_low": 0.5,
        "p_selectivity": SIGNIFICANT,
    }
    coordinates = {"replacement": list(REPLACEMENTS), "measure": list(TEST_MEASURES)}
    return xr.Dataset(measured | changed, coords=coordinates)


def decided(*tests: xr.Dataset) -> xr.Dataset:
    return decide(xr.concat(tests, "test"))


def outcome(**changed) -> tuple[str, str]:
    test = decided(numbers(**changed)).isel(test=0)
    return test.outcome.item(), test.reason.item()


def effects(**by_replacement: float) -> tuple[tuple[str, str], np.ndarray]:
    values = {"zero": -1.0, "mean": -1.0, "resample": -1.0} | by_replacement
    return ("replacement", "measure"), np.array([[values[name]] * 3 for name in REPLACEMENTS])


def p_values(*by_replacement: float) -> tuple[tuple[str, str], np.ndarray]:
    return ("replacement", "measure"), np.array([[p, p, np.nan] for p in by_replacement])


def significant(*by_replacement: bool) -> tuple[tuple[str], np.ndarray]:
    return ("replacement",), np.array(by_replacement)


NONE_SIGNIFICANT = {"significant": significant(False, False, False), "p_measure": p_values(0.3, 0.4, np.nan)}


@pytest.mark.parametrize(
    ("changed", "expected", "reason"),
    [
        ({}, SUPPORTED, "significant by zero and mean, p 0.005"),
        ({"n_heads": 0.0, "missing": "9 fresh prompts"}, UNDECIDED, "there are no heads to test"),
        ({"prompts": 0.0, "missing": "3 of 20 rows were not used"}, UNDECIDED, "3 of 20 rows were not used"),
        ({"accuracy": 0.2, "accuracy_low": 0.09}, NO_ABILITY, "the model answers 20% of 48 prompts right (at least 9%"),
        ({"guess": 0.8}, NO_ABILITY, "the best guess 80%"),
        (
            {"effect": effects(resample=0.1)},
            NOT_SUPPORTED,
            "removal by resample does not change log P in the direction",
        ),
        ({"effect": effects(zero=np.nan)}, NOT_SUPPORTED, "removal by zero does not change log P in the direction"),
        ({"claim": "harmful"}, NOT_SUPPORTED, "removal by zero and mean and resample does not change"),
        ({"claim": "harmful", "effect": effects(zero=1.0, mean=1.0, resample=1.0)}, SUPPORTED, "significant by zero"),
        (NONE_SIGNIFICANT, NOT_SUPPORTED, "significant with 0 of 3 replacements, p 0.4"),
        (
            {"significant": significant(True, False, False), "p_measure": p_values(0.005, 0.3, 0.2)},
            NOT_SUPPORTED,
            "significant with 1 of 3 replacements, p 0.2",
        ),
        (
            NONE_SIGNIFICANT | {"detectable": 1.0},
            UNDECIDED,
            "48 prompts show changes from 1 nats on: 192 would show 0.5",
        ),
        (NONE_SIGNIFICANT | {"detectable": 0.5}, NOT_SUPPORTED, "significant with 0 of 3"),
        (NONE_SIGNIFICANT | {"prompts": 1.0, "detectable": np.inf}, UNDECIDED, "1 prompts show nothing about others"),
        (NONE_SIGNIFICANT | {"matched_sets": 20.0}, UNDECIDED, "there are only 20 different sets of random heads"),
        (NONE_SIGNIFICANT | {"matched_sets": 21.0}, NOT_SUPPORTED, "significant with 0 of 3"),
        (
            NONE_SIGNIFICANT | {"n_drawn": ("replacement", [19.0, 19.0, np.nan])},
            UNDECIDED,
            "19 draws are too few for p below 0.05: it takes 20",
        ),
        (NONE_SIGNIFICANT | {"n_drawn": ("replacement", [20.0, 20.0, np.nan])}, NOT_SUPPORTED, "significant with 0"),
    ],
)
def test_each_outcome_has_its_reason(changed, expected, reason) -> None:
    found, why = outcome(**changed)
    assert found == expected
    assert reason in why


def test_p_is_that_of_the_second_replacement_and_of_the_weaker_measure() -> None:
    both = (("replacement", "measure"), np.array([[0.01, 0.02, np.nan], [0.2, 0.04, np.nan], [0.03, 0.1, np.nan]]))
    assert decided(numbers(p_measure=both)).p.item() == 0.1
    log_p_alone = (
        ("replacement", "measure"),
        np.array([[0.01, np.nan, np.nan], [0.2, np.nan, np.nan], [np.nan] * 3]),
    )
    assert decided(numbers(p_measure=log_p_alone)).p.item() == 0.2
    nothing = decided(numbers(p_measure=p_values(np.nan, np.nan, np.nan), accuracy_low=0.0))
    assert np.isnan(nothing.p.item())
    assert np.isnan(nothing.p_corrected.item())


def test_p_is_corrected_over_the_tests_that_were_done() -> None:
    near = numbers(p_measure=p_values(0.03, 0.03, np.nan))
    far = numbers(p_measure=p_values(0.6, 0.6, np.nan), significant=significant(False, False, False))
    cannot = numbers(p_measure=p_values(np.nan, np.nan, np.nan), accuracy_low=0.0)
    assert decided(near).outcome.item() == SUPPORTED
    assert decided(near, cannot, cannot).outcome[0].item() == SUPPORTED
    both = decided(near, far)
    assert both.p_corrected.values.tolist() == [0.06, 0.6]
    assert both.outcome.values.tolist() == [NOT_SUPPORTED, NOT_SUPPORTED]
    assert both.reason[0].item() == "p 0.06 after correction for all tests"


def test_a_test_that_could_not_pass_the_correction_is_undecided() -> None:
    """Its p is the smallest that 59 draws can give, and there are 20 other tests."""
    drawn = {"n_drawn": ("replacement", [59.0, 59.0, np.nan])}
    best = numbers(p_measure=p_values(1 / 60, 1 / 60, np.nan), **drawn)
    others = [numbers(**NONE_SIGNIFICANT, **drawn)] * 20
    tests = decided(best, *others)
    assert tests.outcome.values.tolist() == [UNDECIDED, *[NOT_SUPPORTED] * 20]
    assert "59 draws of 1000 sets are too few for p below 0.05 after correction" in tests.reason[0].item()
    more_draws = numbers(n_drawn=("replacement", [999.0, 999.0, np.nan]), p_measure=p_values(0.001, 0.001, np.nan))
    assert decided(more_draws, *others).outcome[0].item() == SUPPORTED
    few_sets = more_draws.assign(matched_sets=100.0, p_measure=best.p_measure)
    assert decided(few_sets, *others).outcome[0].item() == UNDECIDED


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, SUPPORTED),
        ({"selectivity_low": -0.1}, NOT_SUPPORTED),
        ({"p_selectivity": 0.2}, NOT_SUPPORTED),
        ({"selectivity": np.nan, "p_selectivity": np.nan}, ""),
        (NONE_SIGNIFICANT, ""),
        ({"accuracy_low": 0.0}, ""),
    ],
)
def test_only_a_supported_set_can_be_selective(changed, expected) -> None:
    assert decided(numbers(**changed)).selective.item() == expected


def test_selectivity_is_corrected_over_all_tests() -> None:
    weak = numbers(p_selectivity=0.04)
    assert decided(weak).selective.item() == SUPPORTED
    tests = decided(weak, numbers(p_selectivity=0.9))
    assert tests.selective.values.tolist() == [NOT_SUPPORTED, NOT_SUPPORTED]
    assert tests.p_selectivity_corrected.values.tolist() == [0.08, 0.9]

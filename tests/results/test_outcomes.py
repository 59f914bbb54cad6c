"""The outcomes of tests next to the maps they are of, and in words."""

import numpy as np
import pytest
import xarray as xr

from headatlas.results.about import by_kv_group
from headatlas.results.outcomes import all_outcomes, outcomes
from headatlas.results.stored_tests import with_outcomes
from tests.figures import synthetic
from tests.figures.made_tests import make_tests, with_tests


@pytest.fixture(scope="module")
def probe() -> xr.Dataset:
    return with_tests({"probe": synthetic.probe(6, 8)})["probe"]


def test_every_outcome_in_a_few_words(probe) -> None:
    words = [outcome.text for outcome in outcomes(probe).values()][:4]
    assert words == [
        "supported, p 0.015, 4 heads",
        "not supported, p 0.4, 4 heads",
        "undecided: 48 prompts show changes from 0.7 nats on: 95 would show 0.5",
        "no ability: 13 % right, guess 27 %",
    ]
    assert [outcome.supported for outcome in outcomes(probe).values()][:4] == [True, False, False, False]


def test_an_outcome_has_the_numbers_of_its_test(probe) -> None:
    outcome = outcomes(probe)["importance", "Knowledge Recall"]
    test = make_tests({"probe": probe}).isel(test=0)
    zero = test.sel(replacement="zero", measure="log_p")
    assert (outcome.effect, outcome.accuracy) == (-1.2, 0.6)
    assert outcome.accuracy_after == pytest.approx(0.6 - 1.2 * 0.2)
    assert outcome.random == pytest.approx(float(zero.random_effect.mean()))
    assert outcome.random_low < outcome.random < outcome.random_high
    assert outcome.beyond["mean"] == pytest.approx(float(test.beyond_random.sel(replacement="mean", measure="log_p")))
    assert outcome.low["zero"] < outcome.beyond["zero"] < outcome.high["zero"]
    np.testing.assert_array_equal(outcome.heads, test.selected)
    assert outcome.curve == pytest.approx({1: -0.3, 2: -0.6, 4: -1.2, 8: -2.4, 16: -4.8})
    assert outcome.others == dict.fromkeys(test.other_subject.values.tolist(), -0.05)
    without = outcomes(probe)["importance", "Decision-making"]
    assert np.isnan([without.effect, without.accuracy_after, without.p, without.random]).all()
    assert without.curve == without.others == {}


def test_a_test_of_an_earlier_map_is_left_out() -> None:
    result = synthetic.gate(6, 8).assign_attrs(key="one")
    tests = make_tests({"gate": result})
    assert len(outcomes(with_outcomes({"gate": result}, tests)["gate"])) == 2
    anew = result.assign_attrs(key="another")
    assert not outcomes(with_outcomes({"gate": anew}, tests)["gate"])


def test_results_without_tests_and_old_files_have_no_outcome() -> None:
    """Old files have removal tests of their own, in other names."""
    made = synthetic.atlas(6, 8)
    assert list(all_outcomes(made)) == []
    assert with_outcomes(made, None) == made
    only_gate = with_outcomes(made, make_tests({"gate": made["gate"]}))
    assert {method for method, *_ in all_outcomes(only_gate)} == {"gate"}


def test_outcomes_of_groups_of_heads_are_those_of_the_heads(probe) -> None:
    grouped, single = outcomes(by_kv_group(probe)), outcomes(probe)
    assert [o.text for o in grouped.values()] == [o.text for o in single.values()]
    for key, outcome in single.items():
        np.testing.assert_array_equal(grouped[key].heads, outcome.heads.reshape(6, 4, 2).any(2))

"""The card of one head."""

import numpy as np
import pytest

from headatlas.figures import head_card
from headatlas.results.card import card, place_in_words
from tests.figures import synthetic
from tests.figures.made_tests import with_tests


def test_a_head_s_standings_and_categories_are_those_of_the_maps() -> None:
    made = synthetic.atlas(6, 8)
    card_data = card(made, 1, 0)
    assert (card_data.name, card_data.model) == ("L1.H0", "synthetic")
    importance = made["probe"].importance.sel(function="Retrieval")
    standing = next(s for s in card_data.standings if s.chart == "probe: Retrieval")
    assert standing.value == pytest.approx(float(importance[1, 0]))
    assert standing.rank == int((importance > importance[1, 0]).sum()) + 1
    member = made["maps"].member[:, 1, 0].values
    assert card_data.categories == [str(n) for n, m in zip(made["maps"].category_name.values, member, strict=True) if m]


def test_only_what_was_measured_by_removal_is_listed_as_removed() -> None:
    ablate = synthetic.ablate(6, 8)
    made = {"taylor": ablate.assign_attrs(method="taylor"), "ablate": ablate, "ig": ablate.assign_attrs(method="ig")}
    card_data = card(made, 1, 0)
    assert {s.method for s in card_data.standings} == {"taylor", "ablate", "ig"}
    assert {s.method for s in card_data.standings if s.by_removal} == {"ablate"}
    texts = [text.get_text() for text in head_card(made, 1, 0).texts]
    first = texts.index("This head removed (log P lost)") + 1
    value = {task: float(ablate.contribution.sel(task=task, layer=1, head=0)) for task in ("math", "syntax")}
    assert sorted(texts[first:]) == [f"{task}, ablate: {v:+.3f}" for task, v in value.items()]


def test_at_chance_a_head_has_no_rank_and_comes_after_those_that_have_one() -> None:
    maps = synthetic.with_chance(synthetic.maps(6, 8))
    layer, head = (int(i) for i in np.argwhere(maps.score[1].values == maps.score[1].max().item())[0])
    standings = {s.chart: s for s in card({"maps": maps}, layer, head).standings}
    best = standings["maps: relation_1, score"]
    assert (best.rank, best.value) == (None, best.chance)
    places = [(s.value == 0, s.rank is None) for s in card({"maps": maps}, layer, head).standings]
    assert places == sorted(places)
    assert (
        {s.rank is None for s in standings.values()}
        == {s.value <= s.chance for s in standings.values()}
        == {True, False}
    )


def test_a_card_says_which_maps_are_not_reliable() -> None:
    gate = synthetic.gate(6, 8, ["math"]).assign(reliability_facilitation=("task", [0.41]))
    places = {s.measure: place_in_words(s) for s in card({"gate": gate}, 1, 0).standings}
    assert places["facilitation"].endswith("; reliability 0.41")
    assert "reliability" not in places["interference"]


def test_the_tested_sets_that_hold_a_head_are_listed_with_their_outcome() -> None:
    made = with_tests({"probe": synthetic.probe(4, 4, ["A", "B"]), "gate": synthetic.gate(4, 4, ["math"])})
    for layer, head in np.ndindex(4, 4):
        sets = card(made, layer, head).tested
        assert {(t.method, t.subject) for t in sets} == {
            (method, subject)
            for method, over in (("probe", ["A", "B"]), ("gate", ["math"]))
            for i, subject in enumerate(over)
            if made[method].tested_heads[0, i, layer, head]
        }
        assert all(t.outcome.n_heads == 4 for t in sets)
    layer, head = (int(i) for i in np.argwhere(made["gate"].tested_heads[0, 0].values)[0])
    texts = [text.get_text() for text in head_card({"gate": made["gate"]}, layer, head).texts]
    first = texts.index("Tested together with other top heads") + 1
    words = "math, facilitation by gate: supported, p 0.0075, 4 heads; log P -1.20, random heads -0.10"
    assert " ".join(texts[first:]) == words

"""Everything known of one head."""

import numpy as np
import pytest

from headatlas.results.card import card
from tests.figures import synthetic


def test_a_head_s_standings_and_categories_are_those_of_the_maps() -> None:
    made = synthetic.atlas(6, 8)
    known = card(made, 1, 0)
    assert (known.name, known.model) == ("L1.H0", "synthetic")
    importance = made["probe"].importance.sel(function="Retrieval")
    one = next(s for s in known.standings if s.chart == "probe: Retrieval")
    assert one.value == pytest.approx(float(importance[1, 0]))
    assert one.rank == int((importance > importance[1, 0]).sum()) + 1
    member = made["maps"].member[:, 1, 0].values
    assert known.categories == [str(n) for n, m in zip(made["maps"].category_name.values, member, strict=True) if m]


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


def test_of_tied_heads_only_those_removed_are_listed_as_removed() -> None:
    made = {"probe": synthetic.probe(4, 4, ["A"])}
    made["probe"]["importance"][:] = 1 / 16  # removed were 3, 7 and 14: the first heads, layer by layer
    sets = {(a, b): [r.heads for r in card(made, a, b).removed] for a, b in np.ndindex(4, 4)}
    assert [sets[0, h] for h in range(4)] == [[3], [3], [3], [7]]
    assert sets[1, 3] == [14]
    assert sets[3, 2] == []

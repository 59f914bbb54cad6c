"""Everything known of one head."""

import numpy as np
import pytest

from headatlas.headmap.card import card
from tests.figures import synthetic


def test_a_head_s_standings_and_categories_are_those_of_the_maps() -> None:
    made = synthetic.atlas(6, 8)
    known = card(made, 2, 5)
    assert (known.name, known.model) == ("L2.H5", "synthetic")
    importance = made["probe"].importance.sel(function="Retrieval")
    one = next(s for s in known.standings if s.chart == "probe: Retrieval")
    assert one.value == pytest.approx(float(importance[2, 5]))
    assert one.rank == int((importance > importance[2, 5]).sum()) + 1
    member = made["maps"].member[:, 2, 5].values
    assert known.categories == [str(n) for n, m in zip(made["maps"].category_name.values, member, strict=True) if m]


def test_of_tied_heads_only_those_that_were_removed_are_said_to_be() -> None:
    made = {"probe": synthetic.probe(4, 4, ["A"])}
    made["probe"]["importance"][:] = 1 / 16  # removed were 3, 7 and 14: the first heads, layer by layer
    sets = {(a, b): [r.heads for r in card(made, a, b).removed] for a, b in np.ndindex(4, 4)}
    assert [sets[0, h] for h in range(4)] == [[3], [3], [3], [7]]
    assert sets[1, 3] == [14]
    assert sets[3, 2] == []

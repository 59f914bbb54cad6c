"""Agreement and stability of maps, against formulas written out."""

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument


def array(values: np.ndarray, **coords) -> xr.DataArray:
    return xr.DataArray(values, dims=(*coords, "layer", "head"), coords=coords)


def test_spearman_and_overlap_by_hand() -> None:
    """Five heads without ties: 1 − 6 Σd² / (n (n² − 1)); of 40 heads, 5 % are two."""
    a, b = array(np.array([[1.0, 2, 3, 4, 5]])), array(np.array([[2.0, 1, 4, 3, 5]]))
    assert ha.agreement(a, b).spearman.item() == pytest.approx(1 - 6 * 4 / (5 * 24))
    x = np.arange(40.0).reshape(4, 10)
    y = x.copy()
    y[3, 8] = -1  # the second best of x is the worst of y
    assert ha.agreement(array(x), array(y)).overlap.item() == 0.5


def test_ties_take_mean_ranks() -> None:
    a, b = array(np.array([[1.0, 1, 2, 3]])), array(np.array([[1.0, 2, 3, 4]]))
    ranks = np.array([1.5, 1.5, 3, 4]), np.array([1.0, 2, 3, 4])
    assert ha.agreement(a, b).spearman.item() == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_p_values_tell_agreement_from_chance() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20, 10))
    same = ha.agreement(array(x), array(x + 0.1 * generator.normal(size=x.shape)), draws=999)
    assert same.spearman > 0.95
    assert same.spearman_p.item() == pytest.approx(1 / 1000)
    assert same.overlap_p.item() == pytest.approx(1 / 1000)
    p = [ha.agreement(array(x), array(generator.normal(size=x.shape)), draws=99).spearman_p.item() for _ in range(60)]
    assert 0.3 < np.mean(p) < 0.7  # uniform under chance


def test_ties_do_not_agree() -> None:
    """One head above many zeros, another one in the other map: all tied heads share the places left."""
    a, b = np.zeros((20, 10)), np.zeros((20, 10))
    a[3, 4], b[11, 2] = 1, 1
    result = ha.agreement(array(a), array(b), draws=200)
    assert result.overlap < 0.1
    assert result.overlap_p > 0.5
    generator = np.random.default_rng(0)
    small = 0
    for _ in range(60):
        sparse = [np.where(generator.random((20, 10)) < 0.03, generator.random((20, 10)), 0) for _ in range(2)]
        small += ha.agreement(*map(array, sparse), draws=99).overlap_p.item() <= 0.05
    assert small <= 8


def test_missing_heads_are_left_out_and_other_dimensions_kept() -> None:
    generator = np.random.default_rng(0)
    a = array(generator.normal(size=(2, 4, 6)), task=["x", "y"])
    b = array(generator.normal(size=(4, 6)))
    a[0, 1] = np.nan
    result = ha.agreement(a, b, draws=10)
    assert result.spearman.dims == ("task",)
    kept = [0, 2, 3]
    alone = ha.agreement(array(a.values[0][kept]), array(b.values[kept]), draws=10)
    assert result.spearman.sel(task="x").item() == pytest.approx(alone.spearman.item())
    assert np.isnan(ha.agreement(b, array(np.ones((4, 6))), draws=10).spearman)  # a flat map ranks nothing


def test_stability_is_mean_agreement_over_pairs() -> None:
    generator = np.random.default_rng(0)
    maps = array(generator.normal(size=(3, 4, 6)), seed=[0, 1, 2])
    pairs = [ha.agreement(maps[i], maps[j], draws=1).spearman.item() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert ha.stability(maps).spearman.item() == pytest.approx(np.mean(pairs))
    halves = array(np.stack([maps.values[0]] * 2), half=["first", "second"])
    assert ha.stability(halves, "half").overlap.item() == 1


def test_bad_maps() -> None:
    a = array(np.zeros((2, 3)))
    with pytest.raises(BadArgument, match="a has 2 layers and b has 4: maps of different models?"):
        ha.agreement(a, array(np.zeros((4, 3))))
    with pytest.raises(BadArgument, match="b has dimensions ndarray, expected a labelled array"):
        ha.agreement(a, np.zeros((2, 3)))
    with pytest.raises(BadArgument, match="draws is 0"):
        ha.agreement(a, a, draws=0)
    with pytest.raises(BadArgument, match="dim is 'seed', expected a dimension of at least 2"):
        ha.stability(a)

"""Two arrays compared, and one over its repeats, against formulas written out."""

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.results.variables import describe_variables


def array(values: np.ndarray, **coords) -> xr.DataArray:
    return xr.DataArray(values, dims=(*coords, "layer", "head"), coords=coords)


def test_spearman_and_overlap_by_hand() -> None:
    """Five heads without ties: 1 − 6 Σd² / (n (n² − 1)); of 40 heads, 5 % are two."""
    a, b = array(np.array([[1.0, 2, 3, 4, 5]])), array(np.array([[2.0, 1, 4, 3, 5]]))
    assert ha.compare(a, b).spearman.item() == pytest.approx(1 - 6 * 4 / (5 * 24))
    x = np.arange(40.0).reshape(4, 10)
    y = x.copy()
    y[3, 8] = -1  # the second best of x is the worst of y
    assert ha.compare(array(x), array(y)).shared.item() == 1


def test_ties_take_mean_ranks() -> None:
    a, b = array(np.array([[1.0, 1, 2, 3]])), array(np.array([[1.0, 2, 3, 4]]))
    ranks = np.array([1.5, 1.5, 3, 4]), np.array([1.0, 2, 3, 4])
    assert ha.compare(a, b).spearman.item() == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_p_values_tell_agreement_from_chance() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20, 10))
    same = ha.compare(array(x), array(x + 0.1 * generator.normal(size=x.shape)), draws=999)
    assert same.spearman > 0.95
    assert same.p.item() == pytest.approx(1 / 1000)
    assert same.p_shared.item() == pytest.approx(1 / 1000)
    p = [ha.compare(array(x), array(generator.normal(size=x.shape)), draws=99).p.item() for _ in range(60)]
    assert 0.3 < np.mean(p) < 0.7  # uniform under chance


def test_ties_do_not_agree() -> None:
    """One head above many zeros, another one in the other map: all tied heads share the places left."""
    a, b = np.zeros((20, 10)), np.zeros((20, 10))
    a[3, 4], b[11, 2] = 1, 1
    result = ha.compare(array(a), array(b), draws=200)
    assert result.shared / result.top < 0.1
    assert result.p_shared > 0.5
    generator = np.random.default_rng(0)
    small = 0
    for _ in range(60):
        sparse = [np.where(generator.random((20, 10)) < 0.03, generator.random((20, 10)), 0) for _ in range(2)]
        small += ha.compare(*map(array, sparse), draws=99).p_shared.item() <= 0.05
    assert small <= 8


def test_missing_heads_are_left_out_and_other_dimensions_kept() -> None:
    generator = np.random.default_rng(0)
    a = array(generator.normal(size=(2, 4, 6)), task=["x", "y"])
    b = array(generator.normal(size=(4, 6)))
    a[0, 1] = np.nan
    result = ha.compare(a, b, draws=10)
    assert result.spearman.dims == ("task",)
    layers_kept = [0, 2, 3]
    alone = ha.compare(array(a.values[0][layers_kept]), array(b.values[layers_kept]), draws=10)
    assert result.spearman.sel(task="x").item() == pytest.approx(alone.spearman.item())
    assert np.isnan(ha.compare(b, array(np.ones((4, 6))), draws=10).spearman)  # a flat map ranks nothing


def test_stability_is_mean_agreement_over_pairs() -> None:
    generator = np.random.default_rng(0)
    maps = array(generator.normal(size=(3, 4, 6)), seed=[0, 1, 2])
    pairs = [ha.compare(maps[i], maps[j], draws=1).spearman.item() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert ha.compare(maps, over="seed").spearman.item() == pytest.approx(np.mean(pairs))
    halves = array(np.stack([maps.values[0]] * 2), half=["first", "second"])
    assert ha.compare(halves, over="half").spearman_whole.item() == pytest.approx(1)


def test_bad_maps() -> None:
    a = array(np.zeros((2, 3)))
    with pytest.raises(BadArgument, match="a has 2 layers and b has 4: maps of different models?"):
        ha.compare(a, array(np.zeros((4, 3))))
    with pytest.raises(BadArgument, match="map b has dimensions ndarray, expected a labelled array"):
        ha.compare(a, np.zeros((2, 3)))
    with pytest.raises(BadArgument, match="draws is 0"):
        ha.compare(a, a, draws=0)
    with pytest.raises(BadArgument, match="over is 'seed', expected a dimension with at least 2 labels"):
        ha.compare(a, over="seed")


def test_agreement_about_layers_alone_is_not_significant() -> None:
    """Two maps whose layers have the same means, and whose heads within layers are independent."""
    generator = np.random.default_rng(0)
    layers = 5 * generator.normal(size=(12, 1))
    dims = ("layer", "head")
    p = []
    for _ in range(40):
        a, b = (xr.DataArray(layers + generator.normal(size=(12, 8)), dims=dims) for _ in range(2))
        compared = ha.compare(a, b, draws=99)
        assert compared.spearman > 0.5
        p.append(compared.p.item())
    assert np.mean(np.array(p) < 0.05) <= 0.1
    assert 0.3 < np.mean(p) < 0.7


def test_always_and_any_are_compared_at_the_same_number_of_seeds_only() -> None:
    ten, two = (
        describe_variables(xr.Dataset({"any": (("layer", "head"), np.eye(4))}, {"seed": range(n)}))["any"]
        for n in (10, 2)
    )
    assert ha.compare(ten, ten).spearman.item() == pytest.approx(1)
    with pytest.raises(BadArgument, match="a is over 10 seeds and b over 2: always falls and any rises"):
        ha.compare(ten, two)

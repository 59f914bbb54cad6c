"""Every two maps of several atlases, against what scipy and scikit-learn compute of them one by one."""

import json

import numpy as np
import pytest
import xarray as xr
from scipy.stats import false_discovery_control, spearmanr
from sklearn.metrics import roc_auc_score

import headatlas as ha
from headatlas.comparison.compare import DEPTH, GROUP, MAXIMUM, MEAN, correlation_matrix
from headatlas.comparison.pairs import compare_all_pairs
from headatlas.comparison.side_by_side import side_by_side
from headatlas.errors import BadArgument, BadFile
from headatlas.figures.agreement_matrix import plan_comparison
from headatlas.report.content import content
from headatlas.results import store
from tests.figures import synthetic
from tests.test_cli import headatlas

LAYERS, HEADS, GROUPS, TOP = 10, 12, 3, 15


def table(name: str, score: np.ndarray, **attributes) -> xr.Dataset:
    """An imported table of one map [layer, head], or of several."""
    score = score if score.ndim == 3 else score[None]
    coords = {
        "table": [f"t{i}" for i in range(len(score))],
        "layer": range(score.shape[1]),
        "head": range(score.shape[2]),
    }
    dims = ("table", "layer", "head")
    return xr.Dataset({"score": (dims, score)}, coords=coords, attrs={"method": name, "model": "m"} | attributes)


@pytest.fixture
def maps() -> np.ndarray:
    """Four maps: one, the same with noise, and two of which the last has no heads in some layers."""
    generator = np.random.default_rng(0)
    first = generator.normal(size=(LAYERS, HEADS))
    made = np.stack([first, first + generator.normal(size=first.shape), *generator.normal(size=(2, *first.shape))])
    made[3, 4:6] = np.nan
    made[3] += first
    return made


def pair(result: xr.Dataset, a: str, b: str, unit: str | None = None) -> xr.Dataset:
    matches = (result.a == a) & (result.b == b) & ((unit is None) | (result.unit == unit))
    return result.isel(pair=np.flatnonzero(matches.values)).squeeze("pair")


def check(row: xr.Dataset, x: np.ndarray, y: np.ndarray, top: int, draws: int = 400) -> None:
    """That a pair's numbers are those of two maps [layer, head] without ties."""
    both = np.isfinite(x) & np.isfinite(y)
    layer = np.nonzero(both)[0]
    x, y = x[both], y[both]
    spearman = spearmanr(x, y).statistic
    assert int(row.n) == len(x)
    assert float(row.spearman) == pytest.approx(spearman)
    best = [set(np.argsort(v)[-top:]) for v in (x, y)]
    shared = len(best[0] & best[1])
    assert float(row.shared) == pytest.approx(shared)
    assert float(row.shared_by_chance) == pytest.approx(top * top / len(x))
    marks = [np.isin(np.arange(len(x)), list(heads)) for heads in best]
    assert float(row.auroc_ab) == pytest.approx(roc_auc_score(marks[1], x))
    assert float(row.auroc_ba) == pytest.approx(roc_auc_score(marks[0], y))
    # The slow way: shuffle each layer by itself, and compute both numbers anew. Four standard errors of both shares.
    generator = np.random.default_rng(11)
    as_high = np.zeros(2)
    for _ in range(draws):
        order = np.concatenate([generator.permutation(np.flatnonzero(layer == i)) for i in np.unique(layer)])
        shuffled = y[order]
        shuffled_top = set(np.argsort(shuffled)[-top:])
        as_high += [spearmanr(x, shuffled).statistic >= spearman - 1e-9, len(best[0] & shuffled_top) >= shared]
    for p, share in zip((row.p, row.p_shared), as_high / draws, strict=True):
        assert float(p) == pytest.approx(share, abs=0.01 + 4 * np.sqrt(share * (1 - share) * (1 / draws + 1 / 1000)))


def test_every_pair_is_what_scipy_and_sklearn_say(maps) -> None:
    result = ha.compare({"one": table("one", maps[:3])}, {"two": table("two", maps[3])}, top=TOP, draws=1000)
    names = ["one: t0", "one: t1", "one: t2", "two: t0"]
    assert result.chart.values.tolist() == names
    assert result.sizes["pair"] == 6
    for i in range(4):
        for j in range(i + 1, 4):
            check(pair(result, names[i], names[j]), maps[i], maps[j], TOP)
    assert set(result.unit.values) == {"head"}
    assert pair(result, "one: t0", "one: t1").p.item() == pytest.approx(1 / 1001)
    between = result.isel(pair=np.flatnonzero((result.atlas_a != result.atlas_b).values))
    np.testing.assert_allclose(between.p_corrected, false_discovery_control(between.p))
    assert (result.p_corrected >= result.p).all()
    assert pair(result, "one: t2", "two: t0").atlas_b.item() == "B"
    matrix = correlation_matrix(result)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.diag(matrix).tolist() == [1] * 4
    assert matrix.sel(chart="two: t0", other="one: t1").item() == pair(result, "one: t1", "two: t0").spearman.item()


def test_heads_that_tie_for_the_last_place_share_it() -> None:
    """Half of the heads score 0. Their weights are those of a sample that is as much one thing as the other."""
    generator = np.random.default_rng(1)
    x = np.where(generator.random((LAYERS, HEADS)) < 0.5, 0.0, generator.integers(0, 4, (LAYERS, HEADS)))
    y = np.where(generator.random((LAYERS, HEADS)) < 0.9, 0.0, 1.0)
    row = ha.compare(table("x", x), table("y", y), top=TOP, draws=10)
    assert float(row.spearman.item()) == pytest.approx(spearmanr(x.ravel(), y.ravel()).statistic)
    weights = []
    for score in (x.ravel(), y.ravel()):
        last = np.sort(score)[-TOP]
        above, tied = score > last, score == last
        weights.append(above + tied * (TOP - above.sum()) / tied.sum())
    assert row.shared.item() == pytest.approx(weights[0] @ weights[1])
    twice = np.repeat([1, 0], x.size)
    for name, score, weight in (("auroc_ab", x, weights[1]), ("auroc_ba", y, weights[0])):
        both = np.concatenate([weight, 1 - weight])
        assert row[name].item() == pytest.approx(roc_auc_score(twice, np.tile(score.ravel(), 2), sample_weight=both))


def test_maps_per_kv_group_are_compared_with_the_maximum_and_the_mean_of_heads(maps) -> None:
    """Whether they were spread to heads or not; and two of them with each other as they are."""
    coarse = np.random.default_rng(2).normal(size=(2, LAYERS, GROUPS))
    parts = maps[0].reshape(LAYERS, GROUPS, -1)
    expected = {MAXIMUM: parts.max(-1), MEAN: parts.mean(-1)}
    spread = table("kv", np.repeat(coarse, HEADS // GROUPS, axis=-1), n_kv_heads=GROUPS)
    groups = table("kv", coarse, unit="KV group", n_kv_heads=GROUPS)
    for kv in (spread, groups):
        result = ha.compare(kv, table("heads", maps[:2]), top=6, draws=1000)
        for unit, of_groups in expected.items():
            check(pair(result, "kv: t0", "heads: t0", unit), coarse[0], of_groups, 6)
        check(pair(result, "kv: t0", "kv: t1", GROUP), coarse[0], coarse[1], 6)
        assert pair(result, "heads: t0", "heads: t1").unit.item() == "head"
        assert result.sizes["pair"] == 1 + 1 + 2 * 4
        at_most = correlation_matrix(result).sel(chart="kv: t0", other="heads: t0").item()
        assert at_most == pair(result, "kv: t0", "heads: t0", MAXIMUM).spearman.item()
    alone = ha.compare(groups, top=6, draws=10)
    assert (alone.unit.item(), int(alone.n.item())) == (GROUP, LAYERS * GROUPS)


def test_all_maps_by_kv_group(maps) -> None:
    heads = table("heads", maps[[0, 3]])
    result = ha.compare(heads, by="kv-group", kv_heads=GROUPS, top=6, draws=1000)
    parts = maps[[0, 3]].reshape(2, LAYERS, GROUPS, -1)
    for unit, values in ((MAXIMUM, parts.max(-1)), (MEAN, parts.mean(-1))):
        check(pair(result, "heads: t0", "heads: t1", unit), values[0], values[1], 6)
    by_head = ha.compare(heads, top=6, draws=10)
    same = ha.compare(heads, by="kv-group", kv_heads=HEADS, top=6, draws=10)  # every head is a group
    assert same.spearman.item() == by_head.spearman.item()
    assert same.unit.values.tolist() == [GROUP]
    with pytest.raises(BadArgument, match="these maps do not record kv_heads: give it"):
        ha.compare(heads, by="kv-group")
    with pytest.raises(BadArgument, match="kv_heads is 5, which does not divide the 12 heads"):
        ha.compare(heads, by="kv-group", kv_heads=5)
    with pytest.raises(BadArgument, match="by is 'group', expected kv-group"):
        ha.compare(heads, by="group")


def test_agreement_about_layers_alone_does_not_count() -> None:
    generator = np.random.default_rng(3)
    depth = np.arange(LAYERS)[:, None]
    maps = depth + generator.normal(size=(2, LAYERS, HEADS))
    by_layer = ha.compare(table("x", maps), draws=500)
    assert by_layer.spearman.item() > 0.7
    assert by_layer.p.item() > 0.1
    maps[1] = maps[0] + 0.1 * generator.normal(size=maps[0].shape)
    by_head = ha.compare(table("x", maps), draws=500)
    assert by_head.p.item() == by_head.p_shared.item() == pytest.approx(1 / 501)


def test_p_is_uniform_by_chance() -> None:
    generator = np.random.default_rng(4)
    p = compare_all_pairs(generator.normal(size=(24, 60)), np.repeat(np.arange(6), 10), 5, draws=99)
    # Few heads are shared, so that many draws share as many: p_shared is more often near 1 than p.
    for name, largest in (("p", 0.6), ("p_shared", 0.85)):
        values = p[name][np.triu_indices(24, 1)]
        assert 0.4 < values.mean() < largest
        assert (values <= 0.1).mean() < 0.2


def test_maps_that_cannot_be_compared_have_no_numbers(maps) -> None:
    flat = np.full((LAYERS, HEADS), 0.5)
    alone = np.full((LAYERS, HEADS), np.nan)
    alone[0, :2] = 1, 2  # two heads are too few
    result = ha.compare(table("x", np.stack([maps[0], flat, alone, maps[1]])), draws=10)
    for a, b in (("x: t0", "x: t1"), ("x: t0", "x: t2"), ("x: t1", "x: t2")):
        row = pair(result, a, b)
        assert all(np.isnan(row[name]) for name in ("spearman", "p", "shared", "auroc_ab", "auroc_ba"))
    assert np.isfinite(pair(result, "x: t0", "x: t3").spearman)
    assert plan_comparison(result).rows == ["x: t0", "x: t3"]
    with pytest.raises(BadArgument, match="no two maps in which heads differ"):
        plan_comparison(ha.compare(table("x", np.stack([flat, flat])), draws=1))


def test_top_heads_are_at_most_half(maps) -> None:
    result = ha.compare(table("x", maps[:2]), top=1000, draws=1)
    assert result.top.item() == LAYERS * HEADS / 2
    for top in (0, -1, 2.5, "20"):
        with pytest.raises(BadArgument, match="top is "):
            ha.compare(table("x", maps[:2]), top=top)
    with pytest.raises(BadArgument, match="draws is 0"):
        ha.compare(table("x", maps[:2]), draws=0)


def test_a_method_that_several_atlases_have_is_named_after_them(tmp_path) -> None:
    """Chance levels stay known; a method that only one has keeps all it has."""
    first = {"maps": synthetic.with_chance(synthetic.maps(6, 8)), "probe": synthetic.probe(6, 8, ["A"])}
    second = {"maps": synthetic.maps(6, 8)}
    maps, origin = side_by_side([first, second])
    assert list(maps) == ["A/maps", "probe", "B/maps"]
    assert origin == {"A/maps": "A", "probe": "A", "B/maps": "B"}
    assert "clears_control" in maps["probe"]
    charts = content(maps, {})["charts"]
    none = {f"{c['method']}: {c['subject']}": c["none"] for c in charts}
    assert none["A/maps: relation_1, score"]
    assert not none["B/maps: relation_1, score"]
    result = ha.compare(first, second, draws=10)
    same = pair(result, "A/maps: relation_0, score", "B/maps: relation_0, score")
    assert same.spearman.item() == pytest.approx(1)
    assert (same.atlas_a.item(), same.atlas_b.item()) == ("A", "B")


def test_atlases_are_folders_files_or_results(tmp_path, maps) -> None:
    for name, folder in (("one", "x"), ("two", "x/y"), ("three", "z/x")):
        np.save(tmp_path / "a.npy", maps[0])
        ha.import_scores(tmp_path / "a.npy", name=name, model="m", out=tmp_path / folder)
    atlases = [
        tmp_path / "x",
        ha.open(tmp_path / "z" / "x"),
        str(tmp_path / "x" / "y" / "two.nc"),
        table("four", maps[1]),
    ]
    result = ha.compare(*atlases, draws=10)
    assert result.chart.values.tolist() == ["one: score", "three: score", "two: score", "four: t0"]
    assert result.atlas.values.tolist() == ["x", str(tmp_path / "z" / "x"), "two", "D"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFile, match="is not an atlas"):
        ha.compare(tmp_path / "x", tmp_path / "empty")
    with pytest.raises(BadArgument, match="atlas is .*: no such file or folder"):
        ha.compare(tmp_path / "nowhere")
    with pytest.raises(BadArgument, match="atlas is 5, expected an atlas"):
        ha.compare(5)
    with pytest.raises(BadArgument, match="atlases is empty"):
        ha.compare()
    with pytest.raises(BadArgument, match="atlases have 1 maps, expected at least two"):
        ha.compare(tmp_path / "x")


def test_maps_of_different_models_are_compared_by_depth(maps) -> None:
    """Head by head only within a model; a map of twice the layers has the same profile."""
    generator = np.random.default_rng(6)
    late = np.arange(LAYERS)[:, None] ** 2 + generator.random((LAYERS, HEADS))
    twice = np.repeat(late, 2, axis=0)
    result = ha.compare(table("x", np.stack([late, maps[0]])), table("y", np.stack([twice, -twice])), draws=10)
    across = pair(result, "x: t0", "y: t0")
    assert (across.unit.item(), int(across.n)) == (DEPTH, 0)
    assert all(np.isnan(across[name]) for name in ("spearman", "p", "p_corrected", "shared", "auroc_ab"))
    assert across.depth_r.item() == pytest.approx(1)
    assert pair(result, "y: t0", "y: t1").spearman.item() == pytest.approx(-1)
    assert result.depth.sel(chart="x: t0").item() == pytest.approx(result.depth.sel(chart="y: t1").item())
    assert result.depth.sel(chart="x: t0").item() > 0.7
    assert result.sizes["pair"] == 6
    with pytest.raises(BadArgument, match="x has 10 layers × 12 heads, y has 9 layers × 12 heads: maps of different"):
        ha.export({"x": table("x", maps[0]), "y": table("y", maps[1, :9])}, "csv", "a.csv")


def test_models_with_other_groups_are_not_compared(maps) -> None:
    two, three = table("x", maps[0], n_kv_heads=2), table("y", maps[1], n_kv_heads=3)
    with pytest.raises(BadArgument, match="atlases have 2 and 3 KV heads: maps of different models"):
        ha.compare(two, three)
    assert ha.compare(two, three, kv_heads=3, draws=1).sizes["pair"] == 1
    with pytest.raises(BadArgument, match="B has 5 KV groups, but others have 12 heads: maps of different models"):
        ha.compare(table("x", maps[0]), table("y", np.ones((LAYERS, 5)), unit="KV group"))


def test_the_figure_and_the_page_have_its_numbers(maps) -> None:
    atlases = [table("one", maps[:2]), table("two", maps[3])]
    result = ha.compare(*atlases, draws=10)
    plan = plan_comparison(result)
    assert plan.rows == ["one: t0", "one: t1", "two: t0"]
    assert plan.borders == [2]
    assert plan.values[0, 2] == pair(result, "one: t0", "two: t0").spearman.item()
    ha.figures.agreed(result)
    agreement = content(side_by_side(atlases)[0], {}, compared=result)["agreement"]
    assert agreement["spearman"][0][2] == pytest.approx(plan.values[0, 2], abs=1e-4)
    assert [(row["a"], row["b"]) for row in agreement["pairs"]] == [(0, 2), (1, 2)]  # between atlases, closest first
    json.dumps(agreement, allow_nan=False)
    with pytest.raises(BadArgument, match="the figure needs the pairs of ha.compare"):
        ha.figures.agreed(atlases[0])


def test_the_command(capsys, tmp_path, maps) -> None:
    many = np.random.default_rng(5).normal(size=(9, LAYERS, HEADS))
    for name, scores in (("one", maps), ("two", many)):
        np.save(tmp_path / f"{name}.npy", scores)
        ha.import_scores(tmp_path / f"{name}.npy", model="m", out=tmp_path / "atlases" / name)
    atlases = [tmp_path / "atlases" / name for name in ("one", "two")]
    code, out, err = headatlas(capsys, "compare", *atlases, "--top", 10, "--out", tmp_path / "out")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "36 comparisons of 13 maps, the closest first"
    assert len(lines) == 33
    assert lines[-1].startswith("and 6 more, down to -0.")
    assert "of 10" in lines[2]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"agreement.png", "agreement.txt", "report.html"}
    code, out, _ = headatlas(capsys, "compare", *atlases, "--top", 10, "--json")
    rows = json.loads(out)
    assert (code, len(rows)) == (0, 13 * 12 / 2)
    assert all(row["top"] == 10 for row in rows)
    assert [row["spearman"] for row in rows] == sorted((row["spearman"] for row in rows), reverse=True)
    code, _, err = headatlas(capsys, "compare", *atlases, "--by", "kv-group")
    assert (code, "do not record kv_heads" in err) == (2, True)
    code, out, _ = headatlas(capsys, "compare", *atlases, "--by", "kv-group", "--kv-heads", 3, "--csv")
    assert out.splitlines()[0].startswith("a,b,atlas_a,atlas_b,same,unit,n,top,spearman,p,p_corrected,shared")
    assert len(out.splitlines()) == 1 + 13 * 12


def test_repeats_of_results_by_map(capsys, tmp_path) -> None:
    """Every measure whose repeats are over the dimension; the mean of k repeats by Spearman and Brown."""
    gates = synthetic.gate(LAYERS, HEADS)
    result = ha.compare({"gate": gates, "maps": synthetic.maps(LAYERS, HEADS)}, over="seed")
    measures = ("facilitation", "interference", "irrelevance")
    assert result.chart.values.tolist() == [f"gate: {task}, {name}" for name in measures for task in gates.task.values]
    k = gates.sizes["seed"]
    for task in gates.task.values:
        chart = f"gate: {task}, facilitation"
        score = gates.facilitation.sel(task=task).values.reshape(k, -1)
        r = np.mean([spearmanr(score[i], score[j]).statistic for i in range(k) for j in range(i + 1, k)])
        assert result.spearman.sel(chart=chart).item() == pytest.approx(r)
        assert result.spearman_whole.sel(chart=chart).item() == pytest.approx(k * r / (1 + (k - 1) * r))
    with pytest.raises(BadArgument, match="over is 'half', but no map has several halves"):
        ha.compare({"gate": gates}, over="half")
    store.save(gates, tmp_path / "gate.nc")
    code, out, _ = headatlas(capsys, "compare", tmp_path, "--over", "seed")
    assert (code, f"{3 * len(gates.task)} maps, the least stable first" in out) == (0, True)
    rows = json.loads(headatlas(capsys, "compare", tmp_path, "--over", "seed", "--json")[1])
    assert [row["spearman"] for row in rows] == sorted(result.spearman.values)
    code, _, err = headatlas(capsys, "compare", tmp_path, "--over", "prompt")
    assert (code, "--over is 'prompt', expected one of seed, refit" in err) == (2, True)

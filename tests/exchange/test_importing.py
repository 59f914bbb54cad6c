"""Other people's tables, in every format that they are published in; the test writes them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headatlas as ha
from headatlas.errors import BadArgument, BadFile
from headatlas.exchange import import_formats
from headatlas.exchange.maps_repository import DYNAMIC
from headatlas.figures.all import pictures
from headatlas.report.content import content
from headatlas.results.charts import stack_maps
from tests.figures import synthetic
from tests.test_cli import headatlas

FORMATS = tuple(import_formats())
LAYERS, HEADS, KV_HEADS = 4, 6, 2
VALUES = np.random.default_rng(0).normal(size=(LAYERS, HEADS)) / 3
KV_VALUES = np.random.default_rng(1).random((LAYERS, KV_HEADS)) / 7
EACH = [(layer, head, float(v)) for (layer, head), v in np.ndenumerate(VALUES)]
ROWS = [{"layer": layer, "head": head, "score": v} for layer, head, v in EACH]


def written(folder: Path, format: str) -> Path:
    """VALUES (of KV heads, KV_VALUES) in a format."""
    file = folder / f"scores.{format if format in ('csv', 'npy', 'parquet') else 'json'}"
    if format == "duo-attention":
        np.savetxt(folder / "full_attention_heads.tsv", KV_VALUES, delimiter="\t", fmt="%.18e")
        (folder / "config.json").write_text(json.dumps({"model_name": "models/llama", "sink_size": 128, "lr": 0.02}))
        return folder
    if format == "headvis":
        rows = [{"layer": layer, "head": head, "induction_score": v} for layer, head, v in EACH]
        (folder / "scatter_data.json").write_text(json.dumps(rows))
        (folder / "config.json").write_text(json.dumps({"model_name": "org/llama", "metrics": ["induction_score"]}))
        return folder
    if format == "maps":
        (folder / "antonym").mkdir()
        file = folder / "antonym" / "scores.csv"
        cells = np.stack([VALUES.ravel(), -VALUES.ravel()], axis=1).tolist()  # one template
        file.write_text(",".join(list(DYNAMIC)[:2]) + "\n" + "\n".join(f"{a!r},{b!r}" for a, b in cells))
    elif format == "npy":
        np.save(file, VALUES)
    elif format in ("csv", "parquet"):
        table = pd.DataFrame(ROWS)
        table.to_csv(file, index=False) if format == "csv" else table.to_parquet(file)
    else:
        layouts = {
            "retrieval-head": {f"{layer}-{head}": [v] for layer, head, v in EACH},
            "ranked": [list(row) for row in sorted(EACH, key=lambda row: -row[2])],
            "layers-by-heads": VALUES.tolist(),
            "minference": [
                {str(h): ["vertical_and_slash", 30, 800, v] for h, v in enumerate(r)} for r in VALUES.tolist()
            ],
            "json": [row | {"method": "theirs", "subject": "copying", "measure": "effect"} for row in ROWS],
        }
        file.write_text(json.dumps(layouts["retrieval-head" if format == "headkv" else format]))
    return file


def written_json(folder: Path, content: object) -> Path:
    (folder / "scores.json").write_text(json.dumps(content))
    return folder / "scores.json"


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_gives_the_same_numbers_back(tmp_path, format) -> None:
    path = written(tmp_path, format)
    result = ha.import_scores(path, format, model="llama", layers=LAYERS, heads=HEADS, out=tmp_path / "in")
    stored = ha.open(tmp_path / "in" / f"{result.attrs['method']}.nc")
    assert (stored.attrs["format"], stored.attrs["model"], stored.attrs["source"]) == (format, "llama", path.name)
    score = stored.score.isel(table=0).values
    if format == "duo-attention":
        np.testing.assert_array_equal(stored.kv_score.isel(table=0), KV_VALUES)
        np.testing.assert_array_equal(score, np.repeat(KV_VALUES, 3, axis=1))
    else:
        np.testing.assert_array_equal(score, VALUES)


@pytest.mark.parametrize("format", [f for f in FORMATS if f != "ranked"])
def test_a_format_is_told_by_the_file(tmp_path, format) -> None:
    layout = "retrieval-head" if format == "headkv" else format
    path = written(tmp_path, format)
    sizes = {"layers": LAYERS, "heads": HEADS} if format == "maps" else {}
    assert ha.import_scores(path, **sizes).attrs["format"] == layout


def test_a_format_that_a_file_does_not_tell_is_asked_for(tmp_path) -> None:
    """Triples may be heads with scores, or layers of three heads."""
    with pytest.raises(BadArgument, match="cannot be detected from .*: give one of retrieval-head, headkv"):
        ha.import_scores(written(tmp_path, "ranked"))
    assert ha.import_scores(tmp_path / "scores.json", "layers-by-heads").sizes["head"] == 3
    for nothing in ([], {}, 5, "scores", [5], {"a": 1}, [{"a": 1, "b": 2}], [[[1.0]]], None):
        with pytest.raises(BadArgument, match="cannot be detected from"):
            ha.import_scores(written_json(tmp_path, nothing))
    for name in ("scores.txt", "scores"):
        (tmp_path / name).write_text("1 2 3")
        with pytest.raises(BadArgument, match="cannot be detected from"):
            ha.import_scores(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadArgument, match="cannot be detected from"):
        ha.import_scores(tmp_path / "empty")


def test_the_mean_over_needles_is_the_score_and_each_is_kept(tmp_path) -> None:
    path = written_json(tmp_path, {"0-0": [0, 1, 0.5], "1-2": [0.25], "0-1": [1, 0]})
    result = ha.import_scores(path)
    expected = np.array([[0.5, 0.5, np.nan], [np.nan, np.nan, 0.25]])
    np.testing.assert_array_equal(result.score.sel(table="retrieval"), expected)
    np.testing.assert_array_equal(result.scores[0, :, 0, 0], [0, 1, 0.5])
    np.testing.assert_array_equal(result.scores[0, :, 0, 1], [1, 0, np.nan])
    assert result.attrs["method"] == "retrieval-head"


@pytest.mark.parametrize(
    "rows",
    [
        [[3, 1, 0.25], [0, 5, -1.5]],
        [{"layer": 3, "head": 1, "score": 0.25}, {"layer": 0, "head_idx": 5, "score": -1.5}],
        [{"L3H1": [3, 1, 0.25]}, {"L0H5": [0, 5, -1.5]}],
        [{"1": {"layer": 3, "head": 1, "score": 0.25}}, [0, 5.0, -1.5]],
    ],
    ids=["triples", "objects", "one-entry objects", "mixed"],
)
def test_ranked_lists_of_some_heads(tmp_path, rows) -> None:
    path = written_json(tmp_path, rows)
    result = ha.import_scores(path, "ranked", layers=LAYERS, heads=HEADS).score.isel(table=0)
    assert (result.shape, int(result.notnull().sum())) == ((LAYERS, HEADS), 2)
    assert (float(result[3, 1]), float(result[0, 5])) == (0.25, -1.5)
    filled = ha.import_scores(path, "ranked", layers=LAYERS, heads=HEADS, fill=0).score.isel(table=0)
    assert (float(filled[0, 5]), float(filled.sum())) == (-1.5, -1.25)
    assert ha.import_scores(path, "ranked").score.shape == (1, 4, 6)


def test_several_ranked_lists_in_an_object(tmp_path) -> None:
    """As dual-route-induction has them; the longest says how large all are."""
    content = {
        "next_tok": [{"layer": 0, "head_idx": 0, "score": 1}],
        "end_tok": [{"layer": 1, "head_idx": 2, "score": 2}],
    }
    result = ha.import_scores(written_json(tmp_path, content))
    assert result.attrs["format"] == "ranked"
    assert result.table.values.tolist() == ["next_tok", "end_tok"]
    np.testing.assert_array_equal(result.score[1], [[np.nan] * 3, [np.nan, np.nan, 2]])
    assert ha.import_scores(tmp_path / "scores.json", "ranked", key="end_tok").table.values.tolist() == ["end_tok"]


def test_a_table_deep_in_a_json_file(tmp_path) -> None:
    content = {"models": ["x"], "results": [{}, {"scores": VALUES.tolist(), "a.b": VALUES.T.tolist()}]}
    path = written_json(tmp_path, content)
    result = ha.import_scores(path, "layers-by-heads", key="results.1.scores", name="induction")
    np.testing.assert_array_equal(result.score.sel(table="scores"), VALUES)
    assert stack_maps({"induction": result}).chart.values.tolist() == ["induction: scores"]
    with pytest.raises(BadFile, match="has the keys 'models', 'results': give key"):
        ha.import_scores(path, "layers-by-heads")
    with pytest.raises(BadArgument, match="has no 'score' there; the keys are scores, a.b. Did you"):
        ha.import_scores(path, "layers-by-heads", key="results.1.score")
    with pytest.raises(BadArgument, match="has no '2' there; the keys are 0, 1"):
        ha.import_scores(path, "layers-by-heads", key="results.2")
    path = written_json(tmp_path, {"a.b": VALUES.tolist(), "c": VALUES.tolist()})
    assert ha.import_scores(path).table.values.tolist() == ["a.b", "c"]
    np.testing.assert_array_equal(ha.import_scores(path, "layers-by-heads", key="a.b").score[0], VALUES)


def test_scores_of_kv_heads_are_spread_to_heads_or_stand_for_groups(tmp_path) -> None:
    path = written(tmp_path, "duo-attention")
    groups = ha.import_scores(path / "full_attention_heads.tsv")
    assert groups.score.shape == (1, LAYERS, KV_HEADS)
    assert (groups.attrs["unit"], groups.attrs["model"], groups.attrs["sink_size"]) == ("KV group", "llama", 128)
    assert groups.heads.top(1)["head"].item().startswith("L")
    assert ".G" in groups.heads.top(1)["head"].item()
    spread = ha.import_scores(path, heads=HEADS, out=tmp_path / "in")
    by_group = ha.open(tmp_path / "in").results_by("kv-group")["duo-attention"]
    np.testing.assert_array_equal(by_group.score[0], KV_VALUES)  # not summed over heads that it was spread to
    assert spread.attrs["n_kv_heads"] == KV_HEADS
    with pytest.raises(BadArgument, match="heads is 5, not a multiple of the 2 KV heads"):
        ha.import_scores(path, heads=5)
    rows = [{"layer": layer, "kv_head": h, "score": v} for (layer, h), v in np.ndenumerate(KV_VALUES)]
    result = ha.import_scores(written_json(tmp_path, rows), heads=HEADS)
    np.testing.assert_array_equal(result.kv_score[0], KV_VALUES)


def test_a_model_on_this_machine_tells_its_layers_and_heads(tmp_path) -> None:
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text('{"num_hidden_layers": 5, "num_attention_heads": 6}')
    result = ha.import_scores(written_json(tmp_path, [[0, 1, 0.5]]), "ranked", model=str(tmp_path / "llama"))
    assert result.score.shape == (1, 5, 6)


def test_patterns_and_their_sizes_are_kept(tmp_path) -> None:
    layers = [
        {"1": ["stream_llm", 10, 20, 0.5], "0": ["block_sparse", 1, 2, 0.25]},
        {"0": ["vertical_and_slash", 3, 4, 1]},
    ]
    result = ha.import_scores(written_json(tmp_path, layers), out=tmp_path / "in")
    result = ha.open(tmp_path / "in" / "minference.nc")
    np.testing.assert_array_equal(result.score[0], [[0.25, 0.5], [1, np.nan]])
    assert result.pattern.values.tolist() == [["block_sparse", "stream_llm"], ["vertical_and_slash", ""]]
    np.testing.assert_array_equal(result.size_b, [[2, 20], [4, np.nan]])


def test_maps_scores_are_means_over_templates(tmp_path) -> None:
    """4 templates × layers × heads in rows without numbers, a folder for each relation."""
    scores = np.random.default_rng(2).random((4, LAYERS, HEADS))
    for relation in ("antonym", "capital"):
        (tmp_path / "dynamic" / relation).mkdir(parents=True)
        lines = "\n".join(map(repr, scores.ravel().tolist()))
        (tmp_path / "dynamic" / relation / "scores.csv").write_text(f"{list(DYNAMIC)[2]}\n{lines}\n")
    result = ha.import_scores(tmp_path / "dynamic", layers=LAYERS, heads=HEADS)
    assert result.table.values.tolist() == ["antonym, without context", "capital, without context"]
    np.testing.assert_allclose(result.score[1], scores.mean(0), rtol=1e-12)  # sums in another order round differently
    np.testing.assert_array_equal(result.scores[1], scores)
    assert result.attrs["method"] == "maps-dynamic"


def test_a_long_table_of_all_charts_comes_back(tmp_path) -> None:
    """With the columns method, measure, subject, layer, head, score, low, high and rank; empty where there is none."""
    charts = stack_maps({"probe": synthetic.probe(LAYERS, HEADS, ["A", "B"]), "gate": synthetic.gate(LAYERS, HEADS)})
    charts = charts.assign(score=charts.score.where(charts.layer != 2))
    table = charts[["score", "low", "high"]].to_dataframe().reset_index()
    table = table[["method", "measure", "subject", "layer", "head", "score", "low", "high"]].assign(rank=1)
    for kind in ("csv", "json", "parquet"):
        path = tmp_path / f"scores.{kind}"
        if kind == "json":
            rows = [{k: None if v != v else v for k, v in row.items()} for row in table.to_dict("records")]
            path.write_text(json.dumps(rows))
        else:
            table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        result = ha.import_scores(path)
        assert result.attrs["format"] == kind
        assert result.sizes["table"] == charts.sizes["chart"]
        for i, chart in enumerate(result.table.values.tolist()):
            name = f"{charts.method.values[i]}: {charts.subject.values[i]}, {charts.measure.values[i]}"
            assert chart == name
            for variable in ("score", "low", "high"):
                np.testing.assert_array_equal(result[variable][i], charts[variable][i])
    again = stack_maps({"theirs": result})
    np.testing.assert_array_equal(again.high, charts.high)


def test_arrays_of_several_tables(tmp_path) -> None:
    np.save(tmp_path / "a.npy", np.stack([VALUES, VALUES + 1]).astype(np.float32))
    result = ha.import_scores(tmp_path / "a.npy", names=["one", "two"])
    np.testing.assert_array_equal(result.score.sel(table="one"), VALUES.astype(np.float32))
    assert ha.import_scores(tmp_path / "a.npy").table.values.tolist() == ["table 0", "table 1"]
    with pytest.raises(BadArgument, match="names has 1 names, but .* has 2 tables"):
        ha.import_scores(tmp_path / "a.npy", names=["one"])


def test_tables_are_charts_figures_and_a_page(capsys, tmp_path) -> None:
    for name, scale in (("one", 1.0), ("two", 2.0)):
        ha.import_scores(
            written_json(tmp_path, (VALUES * scale).tolist()), name=name, model="llama", out=tmp_path / "in"
        )
    atlas = ha.open(tmp_path / "in")
    assert stack_maps(atlas.results).chart.values.tolist() == ["one: score", "two: score"]
    assert [p.name for p in pictures(atlas.results)] == ["importance-one", "importance-two", "layers", "agreement"]
    page = content(atlas.results, atlas.info)
    assert [group["title"] for group in page["groups"]] == ["one: score", "two: score"]
    assert page["agreement"]["spearman"][0][1] == pytest.approx(1)
    code, out, _ = headatlas(capsys, "heads", tmp_path / "in", "--function", "score", "--json")
    layer, head = np.unravel_index(VALUES.argmax(), VALUES.shape)
    assert (code, json.loads(out)[0]["head"]) == (0, f"L{layer}.H{head}")
    code, out, _ = headatlas(capsys, "heads", tmp_path / "in")
    assert (code, "one" in out) == (0, True)


def test_names_of_results(tmp_path) -> None:
    np.save(tmp_path / "pattern.npy", VALUES)
    assert ha.import_scores(tmp_path / "pattern.npy").attrs["method"] == "pattern-table"  # pattern is a method
    np.save(tmp_path / "a b:c.npy", VALUES)
    assert ha.import_scores(tmp_path / "a b:c.npy").attrs["method"] == "a-b-c"
    for name in ("pattern", "../x", "", "a/b", ".x", "x" * 200):
        with pytest.raises(BadArgument, match="name is "):
            ha.import_scores(tmp_path / "pattern.npy", name=name)
    with pytest.raises(BadArgument, match="give one of them"):
        ha.import_scores(tmp_path / "pattern.npy", "npy", kind="importance")
    with pytest.raises(BadArgument, match="format is 'jason', expected one of .* Did you mean 'json'"):
        ha.import_scores(tmp_path / "pattern.npy", "jason")
    with pytest.raises(BadArgument, match="key is 'a', which format npy does not take"):
        ha.import_scores(tmp_path / "pattern.npy", key="a")
    with pytest.raises(BadArgument, match="heads is 6, which kind importance does not take"):
        ha.import_scores(tmp_path / "pattern.npy", kind="importance", heads=6)
    with pytest.raises(BadArgument, match="fill is nan, expected a finite number"):
        ha.import_scores(tmp_path / "pattern.npy", fill=float("nan"))
    for size in (0, -1, 10**9, 1.5, "8"):
        with pytest.raises(BadArgument, match="heads is "):
            ha.import_scores(tmp_path / "pattern.npy", heads=size)


def test_names_that_no_file_can_hold(tmp_path) -> None:
    path = written_json(tmp_path, {"a\x00\n\ud800": VALUES.tolist()})
    result = ha.import_scores(path, out=tmp_path / "in")
    assert ha.open(tmp_path / "in" / "scores.nc").table.values.tolist() == result.table.values.tolist()
    assert result.table.values[0] == "a\ufffd\ufffd\ufffd"
    with pytest.raises(BadFile, match="two tables are called"):
        ha.import_scores(written_json(tmp_path, {"a\n": [[1.5]], "a\t": [[1.5]]}))


TSV, FLAT = "full_attention_heads.tsv", ",".join(DYNAMIC)
BAD = [  # file, what is in it, options, what is said
    ("a.json", '{"0-0": [1], "0-0": [2]}', "retrieval-head", "the key '0-0' occurs twice"),
    ("a.json", '{"0-0": [1], "00-0": [2]}', "retrieval-head", "a.json: 00-0: layer 0, head 0 occurs twice"),
    ("a.json", '{"0-0": [1, NaN]}', "retrieval-head", "a.json: 0-0: score is nan, expected a finite number"),
    ("a.json", '{"0-0": [-Infinity]}', "retrieval-head", "score is -inf"),
    ("a.json", '{"0-0": [1e400]}', "retrieval-head", "score is inf"),
    ("a.json", f'{{"0-0": [1{"0" * 400}]}}', "retrieval-head", "expected a finite number"),
    ("a.json", f'{{"0-0": [{"1" * 5000}]}}', "retrieval-head", "is not JSON"),
    ("a.json", '{"0-0": ["1"]}', "retrieval-head", "score is '1', expected a finite number"),
    ("a.json", '{"0-0": [true]}', "retrieval-head", "score is True"),
    ("a.json", '{"0-0": []}', "retrieval-head", "a.json: 0-0 has no score"),
    ("a.json", '{"0-0": {}}', "retrieval-head", "score is {}"),
    ("a.json", "{}", "retrieval-head", "has no scores"),
    ("a.json", "[1]", "retrieval-head", "expected an object"),
    ("a.json", '{"L0H0": [1]}', "retrieval-head", "the key 'L0H0' is not a head, such as '12-5'"),
    ("a.json", '{"-1-0": [1]}', "retrieval-head", "is not a head"),
    ("a.json", '{"0-999999999": [1]}', "retrieval-head", "head is 999999999, expected a whole number from 0 to 9999"),
    ("a.json", '{"0-99999999999999999999": [1]}', "retrieval-head", "is not a head"),
    ("a.json", '{"9999-9999": [1]}', "retrieval-head", "would be 10000 layers × 10000 heads: is one of them not an"),
    (
        "a.json",
        '{"0-6": [1]}',
        "retrieval-head --heads 6",
        "head is 6, expected a whole number from 0 to 5: there are 6",
    ),
    ("a.json", '{"4-0": [1]}', "retrieval-head --layers 4", "layer is 4, expected a whole number from 0 to 3"),
    ("a.json", b'{"0-0": [1], "\xff": 2}', "retrieval-head", "is not UTF-8 text: byte 14 is 0xff"),
    ("a.json", "[" * 100_000, "ranked", "is nested too deeply"),
    ("a.json", '{"a":' * 100_000, "ranked", "is nested too deeply"),
    ("a.json", "{", "ranked", "is not JSON: Expecting property name"),
    ("a.json", "", "ranked", "is not JSON"),
    ("a.json", "5", "ranked", "holds 5, expected a list of [layer, head, score]"),
    ("a.json", "[]", "ranked", "has no rows"),
    ("a.json", "[[0, 0, 1], [0, 0, 2]]", "ranked", "row 2: layer 0, head 0 occurs twice"),
    ("a.json", "[[0, 0]]", "ranked", "row 1 is [0, 0], expected [layer, head, score]"),
    ("a.json", "[[0, 0, 1], [0.5, 0, 1]]", "ranked", "row 2: layer is 0.5, expected a whole number"),
    ("a.json", "[[0, NaN, 1]]", "ranked", "row 1: head is nan"),
    ("a.json", "[[0, 1e300, 1]]", "ranked", "head is 1e+300"),
    ("a.json", "[[0, true, 1]]", "ranked", "head is True"),
    ("a.json", "[[0, -1, 1]]", "ranked", "head is -1, expected a whole number from 0"),
    ("a.json", '[{"layer": 0, "score": 1, "x": 2}]', "ranked", "row 1 lacks head; it has 'layer, score, x'"),
    ("a.json", '[{"layer": 0, "head": 1, "rank": 1}]', "ranked", "row 1 lacks score"),
    ("a.json", "[[0, 0, [1, 2]]]", "ranked", "row 1: score is [1, 2], expected a finite number"),
    ("a.json", '[{"0": ["x", 1, 2, [3]]}]', "minference", "score is [3], expected a finite number"),
    ("a.json", '{"a": [[0, 0, 1]], "b": 5}', "ranked", "a.json: 'b' holds 5, expected a list"),
    ("a.json", "[[1, 2], [3]]", "layers-by-heads", "layer 1 has 1 scores, but layer 0 has 2"),
    ("a.json", "[[1, NaN]]", "layers-by-heads", "layer 0, head 1: score is nan"),
    ("a.json", "[[1, null]]", "layers-by-heads", "layer 0, head 1: score is None"),
    ("a.json", "[[[1]]]", "layers-by-heads", "layer 0, head 0: score is [1]"),
    ("a.json", "[]", "layers-by-heads", "holds [], expected a list of layers"),
    (
        "a.json",
        '{"a": [[1]], "b": [[1, 2]]}',
        "layers-by-heads",
        "'a' has 1 layers × 1 heads, 'b' has 1 layers × 2 heads",
    ),
    ("a.json", '{"a": [[1]]}', "layers-by-heads --key b", "a.json has no 'b' there; the keys are a"),
    ("a.json", '{"a": [[1]]}', "layers-by-heads --heads 2", "has 1 heads, expected 2"),
    ("a.json", "5", "layers-by-heads --key b", "it has no keys"),
    ("a.json", "{}", "minference", "expected a list of layers"),
    ("a.json", "[{}]", "minference", "has no scores"),
    (
        "a.json",
        '[{"0": ["x", 1, 2]}]',
        "minference",
        "layer 0, head '0' holds ['x', 1, 2], expected [pattern, a, b, score]",
    ),
    ("a.json", '[{"0": [1, 1, 2, 3]}]', "minference", "expected [pattern, a, b, score]"),
    ("a.json", '[{"0": ["x", 1, "2", 3]}]', "minference", "b is '2', expected a finite number"),
    ("a.json", '[{"0": ["x", 1, 2, NaN]}]', "minference", "score is nan"),
    ("a.json", '[{"head": ["x", 1, 2, 3]}]', "minference", "the key is not the number of a head"),
    ("a.json", '[{"7": ["x", 1, 2, 3]}]', "minference --heads 6", "head is 7, expected a whole number from 0 to 5"),
    (TSV, "1\t2\n3\n", "duo-attention", "layer 1 has 1 scores, but layer 0 has 2"),
    (TSV, "1\tnan\n", "duo-attention", "layer 0, head 1: score is nan"),
    (TSV, "1\tx\n", "duo-attention", "layer 0, head 1: score is 'x'"),
    (TSV, "1_0\t1\n", "duo-attention", "score is '1_0'"),
    (TSV, "", "duo-attention", "expected a list of layers"),
    (TSV, b"\xff\xfe1", "duo-attention", "is not UTF-8 text"),
    (TSV, "1\t2\n", "duo-attention --layers 2", "has 1 layers, expected 2"),
    ("a.json", "[]", "duo-attention", "lacks full_attention_heads.tsv"),
    ("a.csv", FLAT, "maps", "layers and heads must be given"),
    (
        "a.csv",
        FLAT + "\n1,2,3,4\n",
        "maps --layers 2 --heads 1",
        "has 1 rows, expected a multiple of 2 layers × 1 heads = 2",
    ),
    ("a.csv", FLAT + "\n", "maps --layers 2 --heads 1", "has 0 rows"),
    ("a.csv", "x,y\n1,2\n", "maps --layers 1 --heads 1", "has the columns 'x, y', expected some of w_context_dynamic"),
    ("a.csv", FLAT + "\n1,2,nan,4\n", "maps --layers 1 --heads 1", "row 1: wo_context_dynamic_relation_scores is nan"),
    ("a.csv", FLAT + "\n1,2,,4\n", "maps --layers 1 --heads 1", "row 1: wo_context_dynamic_relation_scores is None"),
    ("a.csv", FLAT + "\n1,2\n", "maps --layers 1 --heads 1", "row 1 has 2 cells, the header 4"),
    ("a.csv", "", "csv", "has no rows"),
    ("a.csv", "layer,head,score\n", "csv", "has no rows"),
    ("a.csv", "layer,head,score\n0,0,\n", "csv", "has no scores"),
    ("a.csv", "layer,head,score\n0,0,NaN\n", "csv", "row 1: score is nan"),
    ("a.csv", "layer,head,score\n0,0,much\n", "csv", "row 1: score is 'much'"),
    ("a.csv", "layer,head,score\n0,0,1\n0,0,1\n", "csv", "row 2: layer 0, head 0 occurs twice"),
    ("a.csv", "layer,head,score\n0,1000000,1\n", "csv", "row 1: head is 1000000"),
    ("a.csv", "layer,head,score,score\n0,0,1,2\n", "csv", "has a column twice"),
    ("a.csv", "layer,score\n0,1\n", "csv", "row 1 lacks head"),
    ("a.csv", 'layer,head,score\n0,0,"1\n', "csv", "is not CSV"),
    ("a.csv", "layer,head,score\n0,0,1,9\n", "csv", "row 1 has 4 cells, the header 3"),
    ("a.csv", b"layer,head,score\n0,0,\xe9\n", "csv", "is not UTF-8"),
    ("a.json", '[{"layer": 0, "head": 0, "score": 1}, 5]', "json", "expected a list of objects"),
    ("a.parquet", b"PAR1 no such thing PAR1", "parquet", "cannot read a.parquet as parquet"),
    ("a.npy", b"\x93NUMPY", "npy", "cannot read a.npy as npy"),
    ("a.npy", b"no array", "npy", "cannot read a.npy as npy"),
    ("a.json", "[[1.5]]", "npy", "cannot read a.json as npy"),
]


@pytest.mark.parametrize(("name", "text", "options", "message"), BAD)
def test_bad_files_are_told_in_a_line_with_the_place(
    capsys, tmp_path, monkeypatch, name, text, options, message
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = headatlas(capsys, "import", name, "--format", *options.split(), "--out", "in")
    assert (code in (1, 2), out) == (True, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert "please report" not in err
    assert not list(tmp_path.glob("in/*.nc"))


def test_hostile_arrays(tmp_path) -> None:
    np.save(tmp_path / "object.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(BadFile, match="cannot read"):
        ha.import_scores(tmp_path / "object.npy")
    np.save(tmp_path / "wrong.npy", np.ones((2, 2, 2, 2)))
    with pytest.raises(BadFile, match=r"float64 of the shape \(2, 2, 2, 2\), expected numbers \[layer, head\]"):
        ha.import_scores(tmp_path / "wrong.npy")
    np.save(tmp_path / "inf.npy", np.array([[1, np.inf]]))
    with pytest.raises(BadFile, match="table 0, layer 0, head 1 is infinite"):
        ha.import_scores(tmp_path / "inf.npy")
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(117) + "\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
    with pytest.raises(BadFile, match="cannot read"):
        ha.import_scores(tmp_path / "huge.npy")


def test_the_command_says_what_is_missing(capsys, tmp_path) -> None:
    path = written_json(tmp_path, [[0, 0, 1], [1, 1, 2]])
    code, out, _ = headatlas(capsys, "import", path, "--format", "ranked", "--out", tmp_path / "in")
    assert code == 0
    assert "1 table, 2 layer, 2 head" in out
    assert "2 of 4 heads have no score" in out
    (tmp_path / "duo").mkdir()
    code, out, _ = headatlas(capsys, "import", written(tmp_path / "duo", "duo-attention"), "--out", tmp_path / "kv")
    assert (code, "scores are of KV heads" in out) == (0, True)
    code, _, err = headatlas(capsys, "import", path, "--format", "ranked", "--out", tmp_path / "in")
    assert (code, "already has scores.nc" in err) == (2, True)
    code, _, err = headatlas(capsys, "import", tmp_path, "--format", "ranked", "--out", tmp_path / "in")
    assert (code, "no such file" in err) == (2, True)

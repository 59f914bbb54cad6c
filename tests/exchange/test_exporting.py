"""Maps as other tools' files: each is read back with the same numbers, as import reads it and as the tool does."""

import csv
import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo, MissingExtra
from headatlas.exchange import FORMATS, export_formats
from headatlas.methods import methods
from headatlas.results import store
from headatlas.results.charts import head_ranks, stack_maps
from tests.figures import synthetic
from tests.test_cli import headatlas

FORMATS_TO = tuple(export_formats())
FOLDERS = [name for name, format in export_formats().items() if format.is_folder]
TABLES = [name for name, format in export_formats().items() if format.ending]
LAYERS, HEADS, GROUPS = 5, 6, 2
COORDS = {"layer": range(LAYERS), "head": range(HEADS)}
ABOUT = {"model": "tiny", "n_kv_heads": GROUPS}


def result(method: str, dims: str, name: str, values: np.ndarray, **attributes) -> xr.Dataset:
    coords = {dims: [f"{dims}{i}" for i in range(len(values))]} | COORDS
    dataset = xr.Dataset({name: ((dims, "layer", "head"), values)}, coords=coords)
    return dataset.assign_attrs(ABOUT | {"method": method} | attributes)


@pytest.fixture
def maps() -> dict[str, xr.Dataset]:
    """need is a KV head's, in float32 and partly below 0, as streaming's; retrieval's is a head's, from 0 to 1."""
    generator = np.random.default_rng(0)
    need = np.repeat(generator.normal(size=(1, LAYERS, GROUPS)), HEADS // GROUPS, axis=-1).astype("f4")
    return {
        "streaming": result("streaming", "task", "need", need, sink=16, recent=48),
        "retrieval": result("retrieval", "needles", "score", generator.random((1, LAYERS, HEADS))),
        "probe": synthetic.probe(LAYERS, HEADS, ["recall"]).assign_attrs(ABOUT | {"method": "probe"}),
        "maps": synthetic.maps(LAYERS, HEADS, ["language"]).assign_attrs(ABOUT | {"method": "maps"}),
    }


def target(folder: Path, to: str) -> Path:
    return folder / (to if to in FOLDERS else f"maps.{to}" if to in TABLES else "maps.json")


def score(maps, chart: str) -> np.ndarray:
    return stack_maps(maps).sel(chart=chart).score.values.astype(float)


def test_methods_name_formats_that_are_written_and_every_format_has_a_use() -> None:
    assert {name for method in methods().values() for name in method.exports} <= set(export_formats())
    assert len({format.name for format in FORMATS}) == len(FORMATS)
    assert all(format.read or format.write for format in FORMATS)


@pytest.mark.parametrize("to", TABLES)
def test_tables_come_back_with_all_charts_and_their_intervals(tmp_path, maps, to) -> None:
    said = ha.export(maps, to, target(tmp_path, to))
    charts = stack_maps(maps)
    assert said == [f"wrote {target(tmp_path, to)}: {to}, {charts.sizes['chart']} charts of 5 layers × 6 heads"]
    back = ha.import_scores(target(tmp_path, to))
    assert back.sizes["table"] == charts.sizes["chart"]
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        table = back.sel(table=f"{one.method.item()}: {one.subject.item()}, {one.measure.item()}")
        for name in ("score", "low", "high"):
            np.testing.assert_array_equal(table[name], one[name].astype(float))


@pytest.mark.parametrize(
    ("to", "commands"),
    [("duo-attention", "`headatlas streaming` or `headatlas retrieval`"), ("headkv", "`headatlas retrieval`")],
)
def test_an_atlas_without_the_map_a_format_is_for_names_the_command(tmp_path, maps, to, commands) -> None:
    others = {name: maps[name] for name in ("probe", "maps")}
    with pytest.raises(BadArgument, match=f"no map made for {to}: make one with {commands}, or give chart: 'probe: "):
        ha.export(others, to, tmp_path / "a")


def test_names_of_subjects_may_hold_any_character(tmp_path) -> None:
    names = ["a\0b", "\x1b[31m", '"q",\n', "é\u2028"]
    made = result("streaming", "task", "need", np.zeros((len(names), LAYERS, HEADS))).assign_coords(task=names)
    for to in ("csv", "json"):
        ha.export(made, to, target(tmp_path, to))
    with target(tmp_path, "csv").open(encoding="utf-8", newline="") as file:
        assert list(dict.fromkeys(row["subject"] for row in csv.DictReader(file))) == names
    rows = json.loads(target(tmp_path, "json").read_text(encoding="utf-8"))
    assert list(dict.fromkeys(row["subject"] for row in rows)) == names
    ha.export(made.assign_attrs(model="\udcff"), "headvis", tmp_path / "headvis", chart="streaming: é\u2028")
    assert json.loads((tmp_path / "headvis" / "config.json").read_text())["model_name"] == "\udcff"


def test_a_row_has_its_rank_and_nothing_where_there_is_no_number(tmp_path, maps) -> None:
    maps["retrieval"].score[0, 3] = np.nan
    ha.export(maps, "csv", tmp_path / "a.csv", method="retrieval")
    with (tmp_path / "a.csv").open() as f:
        rows = list(csv.DictReader(f))
    assert list(rows[0]) == ["method", "measure", "subject", "layer", "head", "score", "low", "high", "rank"]
    rank = head_ranks(stack_maps({"retrieval": maps["retrieval"]})).values.ravel()
    assert [float(row["rank"] or "nan") for row in rows] == pytest.approx(rank, nan_ok=True)
    assert [row["score"] == "" for row in rows] == np.isnan(maps["retrieval"].score.values.ravel()).tolist()
    back = ha.import_scores(tmp_path / "a.csv").score.values[0]
    np.testing.assert_array_equal(back, maps["retrieval"].score.values[0])


def test_duo_attention_is_what_numpy_and_import_read(tmp_path, maps) -> None:
    said = ha.export(maps, "duo-attention", tmp_path / "duo", method="retrieval", sink=0, recent=7, kv_heads=GROUPS)
    expected = score(maps, "retrieval: needles0").reshape(LAYERS, GROUPS, -1).max(-1)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "duo" / "full_attention_heads.tsv", delimiter="\t"), expected)
    config = json.loads((tmp_path / "duo" / "config.json").read_text())
    assert (config["sink_size"], config["recent_size"], config["model_name"]) == (0, 7, "tiny")
    assert said == [f"wrote {tmp_path / 'duo'}: duo-attention, retrieval: needles0, 5 layers × 2 KV heads"]
    back = ha.import_scores(tmp_path / "duo", heads=HEADS)
    np.testing.assert_array_equal(back.kv_score.values[0], expected)
    assert back.attrs["model"] == "tiny"


def test_duo_attention_takes_streaming_first_and_rescales_what_is_not_from_0_to_1(tmp_path, maps) -> None:
    said = ha.export(maps, "duo-attention", tmp_path / "duo")
    need = score(maps, "streaming: task0")[:, :: HEADS // GROUPS]
    written = np.loadtxt(tmp_path / "duo" / "full_attention_heads.tsv")
    config = json.loads((tmp_path / "duo" / "config.json").read_text())
    assert (written.min(), written.max(), config["scale"]) == (0, 1, [need.min(), need.max()])
    np.testing.assert_allclose(written * (need.max() - need.min()) + need.min(), need, atol=1e-15)
    assert (np.argsort(written, None) == np.argsort(need, None)).all()
    assert (config["sink_size"], config["recent_size"]) == (16, 48)
    assert "streaming: task0" in said[0]
    assert "rescaled" in said[1]


def test_headkv_has_every_head_in_order_and_none_below_0(tmp_path, maps) -> None:
    ha.export(maps, "headkv", tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    content = json.loads(text)
    assert text.count("\n") == 1
    assert list(content) == [f"{layer}-{head}" for layer in range(LAYERS) for head in range(HEADS)]
    np.testing.assert_array_equal(
        ha.import_scores(tmp_path / "a.json", "headkv").score.values[0], score(maps, "retrieval: needles0")
    )
    said = ha.export(maps, "headkv", tmp_path / "b.json", chart="streaming: task0")
    need = score(maps, "streaming: task0")
    np.testing.assert_array_equal(ha.import_scores(tmp_path / "b.json").score.values[0], np.maximum(need, 0))
    assert said[1] == f"{(need < 0).sum()} scores below 0 are written as 0: headkv has no negative scores"


def test_headvis_is_the_tree_that_neuronpedia_loads(tmp_path, maps) -> None:
    """Its loader asks for these keys and files (load-head-metrics.py)."""
    maps["retrieval"].score[0, 3] = np.nan
    ha.export(maps, "headvis", tmp_path / "tree")
    config = json.loads((tmp_path / "tree" / "config.json").read_text())
    for key in ("model_name", "dataset_name", "n_sequences", "seq_len", "dtype", "attn_implementation"):
        assert config[key] is not None
        assert config["pipeline_config"][key] == config[key]
    rows = json.loads((tmp_path / "tree" / "scatter_data.json").read_text())
    assert [[row["layer"], row["head"]] for row in rows] == config["heads"]
    assert all(set(row) == {"layer", "head", *config["metrics"]} for row in rows)
    assert set(config["metric_descriptions"]) == set(config["metrics"])
    names = {f"L{layer}H{head}.json" for layer in range(LAYERS) for head in range(HEADS)}
    assert set(os.listdir(tmp_path / "tree" / "heads")) == names
    one = json.loads((tmp_path / "tree" / "heads" / "L1H2.json").read_text())
    assert one["statistics"] == {k: v for k, v in rows[HEADS + 2].items() if k not in ("layer", "head")}
    back = ha.import_scores(tmp_path / "tree")
    charts = stack_maps(maps)
    assert back.table.values.tolist() == config["metrics"]
    np.testing.assert_array_equal(back.score, charts.score.transpose("chart", "layer", "head").astype(float))


def test_missing_heads_are_refused_or_filled(tmp_path, maps) -> None:
    maps["retrieval"].score[0, 1:3] = np.nan
    for to in ("duo-attention", "headkv"):
        with pytest.raises(BadArgument, match=r"no score for 12 of 30 heads \(layers 1, 2\)"):
            ha.export(maps, to, target(tmp_path, to), method="retrieval")
    assert os.listdir(tmp_path) == []
    said = ha.export(maps, "duo-attention", tmp_path / "duo", method="retrieval", fill=1)
    assert (np.loadtxt(tmp_path / "duo" / "full_attention_heads.tsv")[1:3] == 1).all()
    assert "12 of 30 heads (layers 1, 2) have no score: 1 is written" in said


def test_tables_of_kv_heads_stay_so(tmp_path, maps) -> None:
    values = np.random.default_rng(1).random((LAYERS, GROUPS))
    folder = tmp_path / "theirs"
    folder.mkdir()
    np.savetxt(folder / "full_attention_heads.tsv", values, delimiter="\t")
    theirs = ha.import_scores(folder)
    ha.export(theirs, "duo-attention", tmp_path / "duo")
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "duo" / "full_attention_heads.tsv"), values)
    ha.export(theirs, "csv", tmp_path / "a.csv")
    np.testing.assert_array_equal(ha.import_scores(tmp_path / "a.csv").kv_score.values[0], values)
    with pytest.raises(BadArgument, match="import with heads"):
        ha.export(theirs, "headkv", tmp_path / "a.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chart": "streaming: tsk0"}, "Did you mean 'streaming: task0'"),
        ({"method": "gate"}, "method is 'gate', expected one of"),
        ({"method": "maps", "measure": "scor"}, "measure is 'scor', expected one of 'score', 'suppression'"),
        (
            {"method": "maps"},
            "chart is not given, and duo-attention holds one map: give one of 'maps: relation_0, score'",
        ),
        ({"method": "maps", "subject": "french"}, "subject is 'french'"),
        ({"chart": "streaming: task0", "method": "maps"}, "give one of them"),
        ({"kv_heads": 4}, "kv_heads is 4, which does not divide the 6 heads"),
        ({"recent": 0}, "recent is 0"),
        ({"sink": 1.5}, "sink is 1.5"),
        ({"fill": float("nan")}, "fill is nan"),
        ({"to": "gguf"}, "to is 'gguf', expected one of headkv, duo-attention"),
        ({"to": "csv", "sink": 4, "out": "a.csv"}, "sink is 4, which csv does not take"),
        ({"to": "csv"}, "expected a file that ends in .csv"),
        ({"to": "headvis", "method": "maps", "out": "."}, "which exists: give a new folder"),
    ],
)
def test_bad_requests_are_one_line_and_write_nothing(tmp_path, monkeypatch, maps, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgument) as e:
        ha.export(maps, options.pop("to", "duo-attention"), options.pop("out", "new/duo"), **options)
    assert message in str(e.value)
    assert "\n" not in str(e.value)
    assert os.listdir(tmp_path) == []


def test_nothing_to_export(tmp_path, maps) -> None:
    with pytest.raises(CannotDo, match="no maps"):
        ha.export({}, "csv", tmp_path / "a.csv")
    with pytest.raises(CannotDo, match="no score above 0"):
        ha.export(maps["retrieval"] * -1, "headkv", tmp_path / "a.json")
    zero = result("retrieval", "needles", "score", np.full((1, LAYERS, HEADS), 2.0))
    with pytest.raises(CannotDo, match="heads cannot be ranked by it"):
        ha.export(zero, "duo-attention", tmp_path / "duo")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("to", FORMATS_TO)
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, maps, to) -> None:
    write, written = Path.write_bytes, []

    def full(path: Path, data: bytes) -> int:
        if written or to not in FOLDERS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CannotDo, match="no space left for .*: nothing was written"):
        ha.export(maps, to, target(tmp_path / "new", to))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("to", FORMATS_TO)
def test_what_exists_is_left_alone(tmp_path, maps, to) -> None:
    target(tmp_path, to).write_text("theirs")
    with pytest.raises(BadArgument, match="which exists"):
        ha.export(maps, to, target(tmp_path, to))
    assert target(tmp_path, to).read_text() == "theirs"


def test_parquet_without_pyarrow(tmp_path, monkeypatch, maps) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'headatlas\[parquet\]'"):
        ha.export(maps, "parquet", tmp_path / "a.parquet")


def test_the_command(capsys, tmp_path, maps) -> None:
    for name, one in maps.items():
        store.save(one, tmp_path / "atlas" / f"{name}.nc")
    duo, table = str(tmp_path / "duo"), str(tmp_path / "a.csv")
    atlas = str(tmp_path / "atlas")
    code, out, _ = headatlas(capsys, "export", atlas, "--to", "duo-attention", "--out", duo, "--method", "retrieval")
    assert code == 0
    assert out.splitlines() == [
        f"wrote {duo}: duo-attention, retrieval: needles0, 5 layers × 2 KV heads",
        "sink_size is 128, the default of DuoAttention: retrieval: needles0 has none",
        "recent_size is 256, the default of DuoAttention: retrieval: needles0 has none",
    ]
    code, out, _ = headatlas(capsys, "export", f"{atlas}/maps.nc", "--to", "csv", "--out", table)
    assert (code, out) == (
        0,
        f"wrote {table}: csv, {stack_maps({'maps': maps['maps']}).sizes['chart']} charts of 5 layers × 6 heads\n",
    )
    code, out, err = headatlas(capsys, "export", atlas, "--to", "headkv", "--chart", "nothing", "--out", f"{duo}.json")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: chart is 'nothing', expected one of")

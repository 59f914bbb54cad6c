"""Results on disk."""

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.errors import BadFile
from headatlas.files import read_json, write_json
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete_methods
from headatlas.results.store import ESCAPE_PREFIX, SCHEMA, load, load_attributes, save
from tests.figures import synthetic


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, r"by HeadAtlas 0.1 \(schema 1; this version reads schema 3\): run the method again, or .* headatlas==0.1"),
        ({"schema": 1}, r"by HeadAtlas 0.1 \(schema 1; .*: run the method again, or .* headatlas==0.1"),
        ({"schema": 2}, r"by HeadAtlas 0.2 \(schema 2; .*: run the method again, or .* headatlas==0.2"),
        ({"schema": "new"}, "has schema 'new', but this version reads schema 3"),
        ({"schema": [3] * 200}, "has schema .*, but this version reads schema 3"),
    ],
)
def test_a_file_of_another_schema_is_refused_with_what_to_do(tmp_path, attributes, message) -> None:
    path, result = tmp_path / "gate.nc", synthetic.gate(3, 4)
    result.assign_attrs(attributes).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(BadFile, match=message) as raised:
        ha.open(path)
    assert len(str(raised.value).splitlines()) == 1
    assert load_attributes(path)["method"] == "gate"
    with pytest.raises(BadFile, match=message):
        ha.open(tmp_path)["gate"]


def test_a_file_says_its_schema(tmp_path) -> None:
    save(synthetic.gate(3, 4), tmp_path / "gate.nc")
    assert load(tmp_path / "gate.nc").attrs["schema"] == SCHEMA == describe_run()["schema"] == 3


def test_results_in_a_folder_are_those_of_methods_and_other_files_with_heads(tmp_path) -> None:
    for name, result in synthetic.atlas(3, 4).items():
        save(result, tmp_path / f"{name}.nc")
    save(synthetic.gate(3, 4), tmp_path / "a_method_not_installed.nc")
    save(synthetic.gate(3, 4).isel(layer=0, head=0, drop=True), tmp_path / "of_no_heads.nc")
    (tmp_path / "damaged.nc").write_bytes(b"not netCDF")
    names = complete_methods(tmp_path)
    assert set(names) == {*synthetic.atlas(3, 4), "a_method_not_installed"}
    assert names[-1] == "a_method_not_installed"


def test_a_subject_twice_is_told(tmp_path) -> None:
    save(synthetic.gate(3, 4, tasks=["math", "math"]), tmp_path / "gate.nc")
    with pytest.raises(BadFile, match="gate.nc has the same task twice: math, math"):
        ha.open(tmp_path / "gate.nc")


TOKENS = ["", " a", "é\n\t", "\\u0000", "\x1b\x7f\x85\u2028", "\U0010ffff", "</script>", *map(chr, range(33))]
ODD = ["\0", "a\0", "\0\0b", "\0é\\", f"{ESCAPE_PREFIX}x", ESCAPE_PREFIX]


@pytest.mark.parametrize("texts", [TOKENS, ODD, [*TOKENS, *ODD]], ids=["plain", "odd", "both"])
def test_any_token_is_read_back_as_it_was(tmp_path, texts) -> None:
    """In variables, coordinates and attributes of both."""
    array = np.array(texts, dtype=object)
    result = xr.Dataset(
        {"token": (("layer", "rank"), np.stack([array, array[::-1]]), {"units": texts[0]})},
        coords={"rank": array, "name": ("layer", [1, 2], {"long_name": texts[-1]})},
        attrs={"first": texts[0], "all": texts, "pair": texts[:2], "n": 3},
    )
    before = result.copy(deep=True)
    save(result, tmp_path / "x.nc")
    xr.testing.assert_identical(result, before)
    back = load(tmp_path / "x.nc")
    xr.testing.assert_identical(back, before.assign_attrs(schema=SCHEMA))
    assert back.token.values.tolist() == before.token.values.tolist()  # xarray compares without NUL at the end
    assert back["rank"].values.tolist() == texts
    attributes = load_attributes(tmp_path / "x.nc")
    assert {name: attributes[name] for name in before.attrs} == before.attrs
    save(back, tmp_path / "again.nc")
    assert load(tmp_path / "again.nc").token.values.tolist() == before.token.values.tolist()


def test_lone_surrogates_are_read_back(tmp_path) -> None:
    """Names of files that are not UTF-8 have them."""
    result = synthetic.gate(3, 4, tasks=["math", "\ud800"]).assign_attrs(data="\udcff.jsonl")
    save(result, tmp_path / "gate.nc")
    back = load(tmp_path / "gate.nc")
    assert back.task.values.tolist() == ["math", "\ud800"]
    assert load_attributes(tmp_path / "gate.nc")["data"] == "\udcff.jsonl"
    np.testing.assert_array_equal(back.facilitation.sel(task="\ud800"), result.facilitation.sel(task="\ud800"))
    write_json(tmp_path / "atlas.json", {"data": "\udcff.jsonl é"})
    assert read_json(tmp_path / "atlas.json") == {"data": "\udcff.jsonl é"}


def test_ordinary_texts_are_stored_as_they_are(tmp_path) -> None:
    save(xr.Dataset({"token": ("rank", ["\\u0000", " é"])}), tmp_path / "x.nc")
    plain = xr.load_dataset(tmp_path / "x.nc", engine="h5netcdf")
    assert plain.token.values.tolist() == ["\\u0000", " é"]

"""Results on disk."""

import numpy as np
import pytest
import xarray as xr

import headatlas as ha
from headatlas.errors import BadFile
from headatlas.files import read_json, write_json
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete
from headatlas.results.store import ESCAPED, SCHEMA, load, load_attributes, save
from tests.figures import synthetic


def test_files_say_their_schema_and_those_of_another_are_told_in_a_line(tmp_path) -> None:
    path, result = tmp_path / "gate.nc", synthetic.gate(3, 4)
    save(result, path)
    assert load(path).attrs["schema"] == SCHEMA == describe_run()["schema"]
    for other in ({}, {"schema": 1}, {"schema": "new"}, {"schema": [2, 2]}):
        result.assign_attrs(other).to_netcdf(path, engine="h5netcdf")
        with pytest.raises(
            BadFile, match=r"gate.nc was written by another version of HeadAtlas \(schema .*reads 2\)"
        ) as told:
            ha.open(path)
        assert len(str(told.value).splitlines()) == 1
        assert "run it again, or install headatlas<0.2" in str(told.value)
        assert load_attributes(path)["method"] == "gate"
        with pytest.raises(BadFile, match="another version"):
            ha.open(tmp_path)["gate"]


def test_results_in_a_folder_are_those_of_methods_and_other_files_with_heads(tmp_path) -> None:
    for name, result in synthetic.atlas(3, 4).items():
        save(result, tmp_path / f"{name}.nc")
    save(synthetic.gate(3, 4), tmp_path / "a_method_not_installed.nc")
    save(synthetic.gate(3, 4).isel(layer=0, head=0, drop=True), tmp_path / "of_no_heads.nc")
    (tmp_path / "damaged.nc").write_bytes(b"not netCDF")
    names = complete(tmp_path)
    assert set(names) == {*synthetic.atlas(3, 4), "a_method_not_installed"}
    assert names[-1] == "a_method_not_installed"


def test_a_subject_twice_is_told(tmp_path) -> None:
    save(synthetic.gate(3, 4, tasks=["math", "math"]), tmp_path / "gate.nc")
    with pytest.raises(BadFile, match="gate.nc has a task twice: math, math"):
        ha.open(tmp_path / "gate.nc")


TOKENS = ["", " a", "é\n\t", "\\u0000", "\x1b\x7f\x85\u2028", "\U0010ffff", "</script>", *map(chr, range(33))]
ODD = ["\0", "a\0", "\0\0b", "\0é\\", f"{ESCAPED}x", ESCAPED]


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

"""Results on disk."""

import pytest

import headatlas as ha
from headatlas.errors import BadFile
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete
from headatlas.results.store import SCHEMA, load, load_attributes, save
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

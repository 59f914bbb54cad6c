"""A plan: the work of one method on one model. It is plain data, so that any worker can do its parts."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument, CannotDo, HeadAtlasError
from headatlas.methods.method import Measure, Variable, Work
from headatlas.results.provenance import describe_run, flat
from headatlas.results.store import PartFolder, load_attributes, save
from headatlas.results.stored_reliability import with_reliability
from headatlas.results.stored_tests import TESTS
from headatlas.results.used import SHOTS, with_recorded_rows
from headatlas.results.variables import describe_variables


@dataclass(frozen=True)
class Plan:
    """The work of one method on one model.

    Args:
        method: the method's name; its result is written to a file of that name.
        work: the parts, and the function that combines them.
        stamp: model, data, settings and versions: if any differs, earlier parts are not used.
        measures: the maps that the result must have; None if it has no maps of heads.
        variables: descriptions of the result's other variables.
        seconds: the time that the method usually takes.
    """

    method: str
    work: Work
    stamp: Mapping[str, Any]
    measures: Sequence[Measure] | None = None
    variables: Mapping[str, Variable] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def key(self) -> str:
        """A hash of everything on which the result depends, other than the versions of libraries."""
        # a new version of numpy must not make everybody's results outdated; versions are noted in the file
        libraries = set(flat(describe_run())) - {"headatlas"}
        dependencies = {k: v for k, v in {**self.stamp, **self.work.result_settings}.items() if k not in libraries}
        return hashlib.sha256(json.dumps(dependencies, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def path(self, folder: Path) -> Path:
        """Return the path of the result in a folder."""
        return folder / f"{self.method}.nc"

    def state(self, folder: Path) -> str:
        """Return 'done', 'begun' or 'to do', by the files in the folder."""
        stored = load_attributes(self.path(folder))
        # a result without a record of its examples (an earlier version's) is computed again
        if stored.get("key") == self.key and (self.work.used is None or SHOTS in stored):
            return "done"
        return "begun" if PartFolder.is_begun(self._parts_folder(folder), dict(self.stamp)) else "to do"

    def task_name(self, part: str = "result") -> str:
        """Return the name of a part, or of the result, that is unique among the tasks of a run."""
        return f"{self.method}: {part}"

    def finished_parts(self, folder: Path) -> PartFolder:
        """Return the arrays of parts that an interrupted run finished."""
        return PartFolder(self._parts_folder(folder), dict(self.stamp))

    def forget_parts(self, folder: Path) -> None:
        """Remove the finished parts, which are only needed to resume."""
        shutil.rmtree(self._parts_folder(folder), ignore_errors=True)

    def write(self, result: xr.Dataset, folder: Path) -> xr.Dataset:
        """Check that a result has what its method declares, and write it as `finish` returns it."""
        self._check(result)
        result = self.finish(result)
        save(result, self.path(folder))
        return result

    def finish(self, result: xr.Dataset) -> xr.Dataset:
        """Add the reliability of the maps, descriptions, attributes and the rows that the maps were made from."""
        attributes = {"method": self.method, **self.stamp, **self.work.result_settings, "key": self.key}
        result = with_reliability(result, self.measures or ())
        result = describe_variables(result, self.measures or (), self.variables)
        result = result.assign_attrs(attributes | result.attrs)
        if self.work.used is not None:
            result = with_recorded_rows(result, self.work.used)
        return result

    def _parts_folder(self, folder: Path) -> Path:
        return folder / f".{self.method}"

    def _check(self, result: xr.Dataset) -> None:
        """Check that a result has the dimensions and measures that its method declares."""
        if self.measures is None:
            return
        if not isinstance(result, xr.Dataset) or not {"layer", "head"} <= set(result.dims):
            dims = tuple(getattr(result, "dims", ()))
            hint = ": declare in_parts=True" if isinstance(result, Work) else ""
            raise CannotDo(
                f"method {self.method} returned a {type(result).__name__} over {dims},"
                f" expected a Dataset over layer and head{hint}"
            )
        for measure in self.measures:
            dims = result[measure.name].dims if measure.name in result else ()
            if not {measure.over, "layer", "head"} <= set(dims) or measure.over not in result.coords:
                raise CannotDo(
                    f"method {self.method}: {measure.name} is over ({', '.join(map(str, dims))}),"
                    f" expected ({measure.over}, layer, head) with a label for each {measure.over}"
                )


Plans = Mapping[str, Plan | HeadAtlasError]
"""For each method, its plan, or the error that prevents it."""


@dataclass(frozen=True)
class RunPlan:
    """The plans of a run.

    Args:
        model: description of the model, for atlas.json.
        title: description of the model as one line of text.
        plans: for each method, its plan or the error that prevents it.
    """

    model: Mapping[str, Any]
    title: str
    plans: Plans

    @property
    def possible(self) -> dict[str, Plan]:
        """The plans that can be done."""
        return {name: plan for name, plan in self.plans.items() if isinstance(plan, Plan)}

    def check_folder(self, folder: Path) -> None:
        """Check that the results in a folder are of the same model.

        Read from disk and from memory, a model may differ in precision and so in its fingerprint; then `values_hash`
        decides.
        """
        planned = next((plan.stamp for plan in self.possible.values()), {})
        for path in sorted(folder.glob("*.nc")) if planned else ():
            stored = load_attributes(path)
            # a damaged file is an error only if it must be read; tests belong to the maps, which are checked
            if not stored or path.stem == TESTS:
                continue
            same = stored.get("fingerprint") == planned["fingerprint"] or (
                stored.get("values_hash") == planned["values_hash"] and stored.get("read_from") != planned["read_from"]
            )
            if not same:
                model = f"of another model ({stored.get('model')!r})"
                origin = f"imported ({stored['source']})" if "imported" in stored else model
                raise BadArgument(f"out is {str(folder)!r}, where {path.name} is {origin}: give another folder")

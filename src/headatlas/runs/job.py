"""A job: one method's work on one model, planned and stamped. It is plain data, so that any worker can do its parts."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.errors import BadArgument, CannotDo, HeadAtlasError
from headatlas.methods.method import Measure, Part, Work
from headatlas.models.cost import Cost, Machine
from headatlas.results.provenance import describe_run, flat
from headatlas.results.store import Finished, load_attributes, save
from headatlas.results.used import SHOTS, with_used
from headatlas.tasks.used import Used

KEPT = 0.5  # seconds to check a result and write it


@dataclass(frozen=True)
class Job:
    """stamp: model, data, settings, versions, on which every part depends. settings: on which only the result does."""

    name: str  # of the method, and of its file
    says: str  # what will be done, for people
    stamp: Mapping[str, Any]
    combine: Callable[..., xr.Dataset]
    arguments: tuple[Any, ...] = ()
    parts: Sequence[Part] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Callable[..., Cost] | None = None
    measures: Sequence[Measure] | None = None  # that the result must have; None: it is no map of heads
    used: Used | None = None  # the rows that the result is made from; None: not recorded

    @property
    def key(self) -> str:
        """A hash of all that the result depends on. Versions of other libraries are noted, but not part of it."""
        libraries = set(flat(describe_run())) - {"headatlas"}
        depends = {k: v for k, v in {**self.stamp, **self.settings}.items() if k not in libraries}
        return hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def path(self, folder: Path) -> Path:
        return folder / f"{self.name}.nc"

    def state(self, folder: Path) -> str:
        """'done', 'begun' or 'to do', by what lies in the folder."""
        stored = load_attributes(self.path(folder))
        if stored.get("key") == self.key and (self.used is None or SHOTS in stored):
            return "done"
        return "begun" if Finished.begun(folder / f".{self.name}", dict(self.stamp)) else "to do"

    def expected(self, model: Any, machine: Machine) -> dict[str, float]:
        """Seconds of every part and of the result, by name. What has no estimate counts as nothing."""
        steps = [*((self.item(p.name), p.cost, p.arguments) for p in self.parts)]
        steps.append((self.item(), self.cost, self.arguments))
        costs = {name: Cost() if cost is None else cost(model, *args) for name, cost, args in steps}
        costs[self.item()] += Cost(seconds=KEPT)
        return {name: machine.seconds(cost) for name, cost in costs.items()}

    def item(self, part: str = "result") -> str:
        """What a part, or the result, is called among the work of all jobs."""
        return f"{self.name}: {part}"

    def finished_parts(self, folder: Path) -> Finished:
        """What interrupted work left in the folder."""
        return Finished(folder / f".{self.name}", dict(self.stamp))

    def forget_parts(self, folder: Path) -> None:
        """Remove what is only needed to resume."""
        shutil.rmtree(folder / f".{self.name}", ignore_errors=True)

    def keep(self, result: xr.Dataset, folder: Path) -> xr.Dataset:
        """Write the result, stamped, once it is known to be what its method declares."""
        self._check(result)
        attributes = {"method": self.name, **self.stamp, **self.settings, "key": self.key}
        result = result.assign_attrs(attributes | result.attrs)
        if self.used is not None:
            result = with_used(result, self.used)
        save(result, self.path(folder))
        return result

    def _check(self, result: xr.Dataset) -> None:
        if self.measures is None:
            return
        if not isinstance(result, xr.Dataset) or not {"layer", "head"} <= set(result.dims):
            dims = tuple(getattr(result, "dims", ()))
            hint = ": declare in_parts=True" if isinstance(result, Work) else ""
            raise CannotDo(
                f"method {self.name} gave a {type(result).__name__} over {dims},"
                f" expected a Dataset over layer and head{hint}"
            )
        for measure in self.measures:
            dims = result[measure.name].dims if measure.name in result else ()
            if not {measure.over, "layer", "head"} <= set(dims) or measure.over not in result.coords:
                raise CannotDo(
                    f"method {self.name}: {measure.name} is over ({', '.join(map(str, dims))}),"
                    f" expected ({measure.over}, layer, head) with a label for each {measure.over}"
                )


Jobs = Mapping[str, Job | HeadAtlasError]
"""What is to be done, by method: a job, or why it cannot be done."""


def check_model(jobs: Jobs, folder: Path) -> None:
    """That a folder has results of the same model. Read from disk and from memory it may differ in precision, and so
    in its fingerprint."""
    planned = next((job.stamp for job in jobs.values() if isinstance(job, Job)), {})
    for path in sorted(folder.glob("*.nc")) if planned else ():
        stored = load_attributes(path)
        if not stored:
            continue  # damaged: the error comes when it is read
        same = stored.get("fingerprint") == planned["fingerprint"] or (
            stored.get("values_hash") == planned["values_hash"] and stored.get("read_from") != planned["read_from"]
        )
        if not same:
            other = f"of another model ({stored.get('model')!r})"
            of = f"imported ({stored['source']})" if "imported" in stored else other
            raise BadArgument(f"out is {str(folder)!r}, where {path.name} is {of}: give another folder")

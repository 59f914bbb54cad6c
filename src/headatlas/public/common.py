"""What the public calls share: work that is planned first and done later, how results are stamped, how seeds are named."""

import functools
import gc
import hashlib
import inspect
import json
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, OutOfMemory, brief
from headatlas.headmap.files import alone_in
from headatlas.headmap.provenance import describe_run, flat
from headatlas.headmap.store import Finished, load, load_attributes, save
from headatlas.models.cost import Cost
from headatlas.models.lm import LM
from headatlas.models.loading import load as load_model
from headatlas.models.weights import Weights
from headatlas.progress import Done, Progress, doing, silent
from headatlas.public.shown import show_maps
from headatlas.tasks.prompts import Task, load_tasks

Tasks = str | Path | Task | Iterable[Any]
P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger(__name__)
SPAN = 8  # layers that are one part of a job


@dataclass(frozen=True)
class Part:
    """A piece of a job that can be done by itself, anywhere, before the rest. It leaves what it finds in the `Done` it is given."""

    name: str
    leaves: tuple[str, ...]  # the names of what it leaves
    do: Callable[[Done, Progress], None]
    needs: tuple[str, ...] = ()  # the names of what other parts must have left before
    cost: Callable[[], Cost] = Cost

    def missing(self, done: Done) -> bool:
        return any(name not in done for name in self.leaves)


@dataclass(frozen=True)
class Job:
    """A method's work, planned: arguments are checked and data is read, nothing is computed."""

    name: str  # of the method, and of its file
    says: str  # what will be done, for people
    stamp: dict[str, Any]  # model, data, settings: what every part of the work depends on
    work: Callable[[Done, Progress], xr.Dataset]  # from what the parts left to the result
    settings: dict[str, Any] = field(default_factory=dict)  # what only the result as a whole depends on
    out: Path | None = None
    progress: Progress = silent
    parts: Sequence[Part] = ()
    cost: Callable[[], Cost] = Cost  # of `work`, after the parts

    @property
    def path(self) -> Path:
        assert self.out is not None
        return self.out / f"{self.name}.nc"

    @property
    def key(self) -> str:
        """Of all that the result depends on. Other libraries' versions are told, but do not make a result stale."""
        libraries = set(flat(describe_run())) - {"headatlas"}
        depends = {k: v for k, v in (self.stamp | self.settings).items() if k not in libraries}
        return hashlib.sha256(json.dumps(depends, sort_keys=True, default=str).encode()).hexdigest()[:16]

    @property
    def state(self) -> str:
        """'done', 'begun' or 'to do', by what lies in the folder."""
        if self.out is None:
            return "to do"
        if load_attributes(self.path).get("key") == self.key:
            return "done"
        return "begun" if Finished.begun(self.path.parent / f".{self.name}", self.stamp) else "to do"


def compute(job: Job, done: Done) -> xr.Dataset:
    """All parts, but those that are done, and the result."""
    for part in job.parts:
        if part.missing(done):
            patiently(partial(part.do, done, job.progress))
    return patiently(lambda: job.work(done, job.progress))


def patiently(do: Callable[[], T]) -> T:
    """Do something; where memory runs out, again with half as many tokens at once, which `OutOfMemory` says has been seen to."""
    while True:
        try:
            return do()
        except OutOfMemory as e:
            log.warning(str(e))  # not the error itself: whoever keeps the record would keep all its tensors
        gc.collect()  # what the error held on to
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def stamped(job: Job, found: xr.Dataset) -> xr.Dataset:
    return found.assign_attrs({"method": job.name} | job.stamp | job.settings | {"key": job.key} | found.attrs)


def finish(job: Job) -> xr.Dataset:
    """Do the work, going on where an interrupted one had stopped; or read the result, if it is there already."""
    if job.out is None:
        with tempfile.TemporaryDirectory() as folder:
            return show_maps(stamped(job, compute(job, Finished(Path(folder) / job.name, {}))))
    with alone_in(job.out):
        if job.state == "done":
            return show_maps(load(job.path))
        check_model(job)
        done = finished_parts(job)
        try:
            found = compute(job, done)
        finally:
            if not done:
                done.clear()  # nothing was begun that could go on
        return show_maps(keep(job, found, done))


def finished_parts(job: Job) -> Finished:
    """What interrupted work left in the job's folder."""
    assert job.out is not None
    return Finished(job.out / f".{job.name}", job.stamp)


def keep(job: Job, found: xr.Dataset, done: Finished) -> xr.Dataset:
    """Write the result; its parts are no longer needed."""
    found = stamped(job, found)
    save(found, job.path)
    done.clear()
    return found


def check_model(job: Job) -> None:
    """An atlas is of one model. Read from disk and held in memory it may differ in precision, and so in its fingerprint."""
    for path in sorted(job.path.parent.glob("*.nc")):
        there = load_attributes(path)
        if not there:
            continue  # damaged: it is told where it is read
        same = there.get("fingerprint") == job.stamp["fingerprint"] or (
            there.get("likeness") == job.stamp["likeness"] and there.get("read_from") != job.stamp["read_from"]
        )
        if not same:
            of = (
                f"imported ({there['source']})" if "imported" in there else f"of another model ({there.get('model')!r})"
            )
            raise BadArgument(f"out is {str(job.out)!r}, where {path.name} is {of}: give another folder")


def spans(lm_or_weights: LM | Weights, size: int = SPAN) -> list[list[int]]:
    """The layers that have heads, a few at a time."""
    there = [i for i, site in enumerate(lm_or_weights.anatomy.sites) if site is not None]
    return [there[a : a + size] for a in range(0, len(there), size)]


def said_with(progress: Progress, what: str) -> Progress:
    """Progress that says more than the label: which part it is."""
    return lambda items, label: progress(items, f"{label}, {what}")


class Method(Protocol[P]):
    """A public call, which does its work at once; `plan` takes the same arguments and gives a Job to `finish` later."""

    plan: Callable[P, Job]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> xr.Dataset: ...


def method(plan: Callable[P, Job]) -> Method[P]:
    """Make a public call of a function that plans its work."""

    signature = inspect.signature(plan)

    @functools.wraps(plan)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Job:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check_type(name, value, signature.parameters[name].annotation)
        return plan(*args, **kwargs)

    @functools.wraps(plan)
    def call(*args: P.args, **kwargs: P.kwargs) -> xr.Dataset:
        return finish(checked(*args, **kwargs))

    vars(call).update(plan=checked, __signature__=signature.replace(return_annotation=xr.Dataset))
    return cast(Method[P], call)


TYPES: dict[Any, tuple[tuple[type, ...], str]] = {  # what may be given for an annotation, and what it is called
    bool: ((bool, np.bool_), "True or False"),
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    str: ((str,), "a name"),
    Path: ((Path,), "a path"),
    LM: ((LM,), "a model from `load`"),
    type(None): ((type(None),), "None"),
}


def check_type(argument: str, value: Any, annotation: Any) -> None:
    """That a value is of a plain type it is annotated with; other annotations are checked where the value is used."""
    kinds = get_args(annotation) or (annotation,)
    if any(kind not in TYPES and get_origin(kind) is not Literal for kind in kinds):
        return
    named = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    plain = [TYPES[kind] for kind in kinds if kind in TYPES]
    flag = isinstance(value, bool | np.bool_) and bool not in kinds  # which would pass for a number
    if flag or not (
        isinstance(value, tuple(t for types, _ in plain for t in types)) or (isinstance(value, str) and value in named)
    ):
        expected = " or ".join([*(words for _, words in plain), *map(repr, named)])
        raise BadArgument(f"{argument} is {brief(value)}, expected {expected}")


def loaded(model: LM | str | Path, device: str, progress: Progress) -> LM:
    """A model, which is loaded unless it is already."""
    if isinstance(model, LM):
        return model
    with doing(progress, f"loading {model}"):
        return load_model(model, device)


def with_tasks(
    model: LM | str | Path, tasks: Any, shots: int | None, device: str, progress: Progress
) -> tuple[LM, list[Task]]:
    """A model and tasks for it. What is wrong with the tasks is told before the model is loaded."""
    tasks = list(tasks) if isinstance(tasks, Iterator) else tasks
    load_tasks(None, tasks, shots)
    lm = loaded(model, device, progress)
    with doing(progress, "reading the tasks"):
        return lm, load_tasks(lm, tasks, shots)


def stamp_of(lm: LM, data: str, progress: Progress) -> dict[str, Any]:
    return stamp(lm.weights, lm.setup(), lm.name, data, progress)


def stamp(weights: Weights, setup: str, name: str, data: str, progress: Progress) -> dict[str, Any]:
    """What a file says about where it came from; no time of day, so that the same work gives the same file.

    The fingerprint is of the weights in their precision, the likeness is not; the setup is of configuration and tokenizer.
    """
    there = not weights.embedding().is_meta  # a model without weights is planned for, and never mapped
    with doing(progress, f"reading the weights of {name} for their fingerprint"):
        fingerprints = (weights.fingerprint(), weights.likeness()) if there else ("", "")
    model = {"model": name, **dict(zip(("fingerprint", "likeness"), fingerprints, strict=True))}
    model |= {"read_from": weights.source, "setup": setup}
    versions = {k: v for k, v in flat(describe_run()).items() if k != "time"}
    return model | {"n_kv_heads": weights.anatomy.n_kv_heads, "data": data} | versions

"""The benchmark's models: how each is made, as data, and what is then known of its heads.

Trained ones whose functions are in chosen heads, plain ones also with noise in spare heads, which interferes; random
ones with relations written into chosen heads; and ones that copy, set by hand.
"""

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headatlas.errors import BadArgument, CannotDo
from headatlas.models.cache import cache_folder
from headatlas.models.hooks import head_mask
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.progress import Progress, silent
from headatlas_bench.copying import plant_copying
from headatlas_bench.exams import Exam, exams_of
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.holds import accept, measure_functions
from headatlas_bench.interference import plant_interference
from headatlas_bench.known import Truth, planted_folder, read_truth
from headatlas_bench.relations import plant_relations
from headatlas_bench.training import plant

RELATION_SEEDS = COPYING_SEEDS = (0, 1)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """A model, and of every subject which heads must come first.

    group: what results are averaged over. functions: those that the model knows. data: what to ask with, by the name of
    a method's argument; of trained functions, none: `contenders` makes it.
    """

    name: str
    kind: str  # of truth
    group: str
    lm: LM
    exams: Mapping[str, Exam]
    functions: Sequence[str] = tuple(FUNCTIONS)
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Functions:
    """A trained model, as it is and, if it is a plain one, with noise in spare heads.

    where: a shipped one, a folder, or 'seed:N'. plantings: kinds of truth and names of exams, of one that is not plain.
    """

    name: str
    where: str
    device: str
    files: str  # a hash of what is in its folder
    plantings: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[tuple[str, str, str]]:
        """Kind of truth, name and group of every model it makes."""
        if self.plantings:
            return [(kind, f"{self.name}, {exam}", exam) for kind, exam in self.plantings]
        noisy = ("interference", f"{self.name}, noisy", "interference")
        return [("functions", self.name, "functions"), noisy]

    def make(self, kinds: Collection[str], seed: int) -> Iterator[Known]:
        folder = find_model(self.where, self.device)
        if hash_folder(folder) != self.files:
            raise CannotDo(f"model {self.name!r} has other files here ({folder}) than where the work was planned")
        lm, truth = load(folder, self.device), read_truth(folder)
        head_mask(truth.background, lm.anatomy)  # that the model has them
        measured = _measured(folder, self.device, self.files)
        problems = accept(measured)
        for function, problem in problems.items():
            log.warning("model %s: %s is left out, it is not where the truth says: %s", self.name, function, problem)
        if not set(truth.circuits) - set(problems):
            raise BadArgument(f"model {self.name!r}: no function is where its truth.json says")
        makes = self._circuits(lm, truth, measured) if self.plantings else self._plain(lm, truth, kinds, seed)
        for known in makes:
            exams = {f: exam for f, exam in known.exams.items() if f not in problems}
            if exams and known.kind in kinds:
                yield replace(known, exams=exams)

    def _plain(self, lm: LM, truth: Truth, kinds: Collection[str], seed: int) -> Iterator[Known]:
        (_, name, group), (_, noisy_name, noisy_group) = self.names
        yield Known(name, "functions", group, lm, {f: Exam(heads) for f, heads in truth.functions.items()})
        if "interference" in kinds:
            noisy, interferes, heads = plant_interference(lm, truth, seed)
            exams = {f: Exam(hurt, unsure=heads) for f, hurt in interferes.items()}
            yield Known(noisy_name, "interference", noisy_group, noisy, exams)

    def _circuits(self, lm: LM, truth: Truth, measured: Mapping[str, Mapping[str, Any]]) -> Iterator[Known]:
        exams = exams_of(truth, measured, (lm.n_layers, lm.n_heads))
        for kind, name, group in self.names:
            yield Known(name, kind, group, lm, exams[kind, group], list(truth.circuits))


@cache
def _measured(folder: Path, device: str, files: str) -> Mapping[str, Mapping[str, Any]]:
    """What the model is, measured once for the same files (a hash of them)."""
    return MappingProxyType(measure_functions(load(folder, device), read_truth(folder)))


def plantings_of(folder: Path) -> tuple[tuple[str, str], ...]:
    """Kinds of truth and names of exams of a model that is not plain; nothing of one that is."""
    truth = read_truth(folder)
    if all(circuit.planting == "plain" for circuit in truth.circuits.values()):
        return ()
    return tuple(exams_of(truth, {f: {"harm": ()} for f in truth.circuits}, (0, 0)))


@dataclass(frozen=True)
class Relations:
    """A random model with relations written into some heads, under noise."""

    noise: float
    number: int

    @property
    def names(self) -> list[tuple[str, str, str]]:
        groups = {kind: f"{kind}, noise {self.noise:g}" for kind in ("relations", "suppression")}
        return [(kind, f"{group}, {self.number}", group) for kind, group in groups.items()]

    def make(self, kinds: Collection[str], seed: int) -> Iterator[Known]:
        planted = plant_relations(self.noise, len(RELATION_SEEDS) * seed + self.number)
        for (kind, name, group), heads in zip(self.names, (planted.writers, planted.suppressors), strict=True):
            if kind in kinds:
                exams = {relation: Exam(of) for relation, of in heads.items()}
                yield Known(name, kind, group, planted.lm, exams, data={"relations": planted.relations})


@dataclass(frozen=True)
class Copying:
    """A model set by hand that copies what is repeated."""

    number: int

    @property
    def names(self) -> list[tuple[str, str, str]]:
        return [("copying", f"copying, {self.number}", "copying")]

    def make(self, kinds: Collection[str], seed: int) -> Iterator[Known]:
        planted = plant_copying(len(COPYING_SEEDS) * seed + self.number)
        exams = {"copying": Exam(planted.copiers, unsure=planted.previous)}
        yield Known(f"copying, {self.number}", "copying", "copying", planted.lm, exams, data=planted.data)


Recipe = Functions | Relations | Copying


def find_model(where: str, device: str, progress: Progress = silent) -> Path:
    """The folder of a planted model; 'seed:N' is planted first."""
    if numbers := re.fullmatch(r"seed:(\d+)(?:/(\d+))?", where):
        seed, kv_heads = int(numbers[1]), int(numbers[2] or 8)
        folder = cache_folder() / "planted" / f"seed-{seed}-{kv_heads}"
        if not folder.exists():
            plant(folder, seed, kv_heads, device=device, progress=progress)
        return folder
    return planted_folder(where)


def hash_folder(folder: Path) -> str:
    """Of everything in it: weights, tokenizer, truth."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]

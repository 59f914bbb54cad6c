"""Recipes of the benchmark's models, and the exams on their heads.

There are trained models with functions in selected heads, of which the plain ones also come with interfering noise in
spare heads; random models with relations written into selected heads; and copying models with hand-set weights.
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
from headatlas_bench.acceptance import accept, measure_functions
from headatlas_bench.copying import plant_copying
from headatlas_bench.exams import Exam, list_exams
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.ground_truth import Truth, planted_folder, read_truth
from headatlas_bench.interference import plant_interference
from headatlas_bench.relations import plant_relations
from headatlas_bench.training import plant

RELATION_SEEDS = COPYING_SEEDS = (0, 1)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchmarkModel:
    """A model and its exams by subject.

    kind: the kind of truth. group: results are averaged over the models of a group. functions: those that the model
    knows. data: what methods are called with, by the name of their argument; empty for trained functions, for which
    `contenders` makes it.
    """

    name: str
    kind: str
    group: str
    lm: LM
    exams: Mapping[str, Exam]
    functions: Sequence[str] = tuple(FUNCTIONS)
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class FunctionRecipe:
    """A trained model, as it is and, if it is a plain one, with noise in spare heads.

    source: name of a shipped model, a folder, or 'seed:N'. files_hash: hash of its files. plantings: kinds
    of truth and names of exams; empty for a plain model.
    """

    name: str
    source: str
    device: str
    files_hash: str
    plantings: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> list[tuple[str, str, str]]:
        """Return the kind of truth, name and group of every model it makes."""
        if self.plantings:
            return [(kind, f"{self.name}, {exam}", exam) for kind, exam in self.plantings]
        plain = ("functions", self.name, "functions")
        noisy = ("interference", f"{self.name}, noisy", "interference")
        return [plain, noisy]

    def make(self, kinds: Collection[str], seed: int) -> Iterator[BenchmarkModel]:
        folder = find_model(self.source, self.device)
        if hash_folder(folder) != self.files_hash:
            raise CannotDo(
                f"the files of model {self.name!r} in {folder} differ from those on the machine that planned the work"
            )
        lm, truth = load(folder, self.device), read_truth(folder)
        # This fails if the truth names heads that the model does not have.
        head_mask(truth.background, lm.anatomy)
        measured = _measure_once(folder, self.device, self.files_hash)
        problems = accept(measured)
        for function, problem in problems.items():
            log.warning(
                "model %s: %s is skipped, because its heads are not those of truth.json: %s",
                self.name,
                function,
                problem,
            )
        if not set(truth.circuits) - set(problems):
            raise BadArgument(f"model {self.name!r}: no function has the heads that its truth.json names")
        if self.plantings:
            models = self._make_circuit_models(lm, truth, measured)
        else:
            models = self._make_plain_models(lm, truth, kinds, seed)
        for model in models:
            exams = {f: exam for f, exam in model.exams.items() if f not in problems}
            if exams and model.kind in kinds:
                yield replace(model, exams=exams)

    def _make_plain_models(self, lm: LM, truth: Truth, kinds: Collection[str], seed: int) -> Iterator[BenchmarkModel]:
        (_, name, group), (_, noisy_name, noisy_group) = self.names
        exams = {f: Exam(heads) for f, heads in truth.functions.items()}
        yield BenchmarkModel(name, "functions", group, lm, exams)
        if "interference" in kinds:
            noisy_lm, interferes, noisy_heads = plant_interference(lm, truth, seed)
            exams = {f: Exam(interfering, unsure=noisy_heads) for f, interfering in interferes.items()}
            yield BenchmarkModel(noisy_name, "interference", noisy_group, noisy_lm, exams)

    def _make_circuit_models(
        self, lm: LM, truth: Truth, measured: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[BenchmarkModel]:
        exams = list_exams(truth, measured, (lm.n_layers, lm.n_heads))
        for kind, name, group in self.names:
            yield BenchmarkModel(name, kind, group, lm, exams[kind, group], list(truth.circuits))


@cache
def _measure_once(folder: Path, device: str, files_hash: str) -> Mapping[str, Mapping[str, Any]]:
    """Measure a model's functions, once for the same files."""
    return MappingProxyType(measure_functions(load(folder, device), read_truth(folder)))


def list_plantings(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the kinds of truth and names of exams of a model; none for a plain model."""
    truth = read_truth(folder)
    if all(circuit.planting == "plain" for circuit in truth.circuits.values()):
        return ()
    # Names do not depend on what is measured, nor on the shape.
    return tuple(list_exams(truth, {f: {"harm": ()} for f in truth.circuits}, (0, 0)))


@dataclass(frozen=True)
class RelationRecipe:
    """A random model with relations written into some heads, under noise."""

    noise: float
    number: int

    @property
    def names(self) -> list[tuple[str, str, str]]:
        groups = {kind: f"{kind}, noise {self.noise:g}" for kind in ("relations", "suppression")}
        return [(kind, f"{group}, {self.number}", group) for kind, group in groups.items()]

    def make(self, kinds: Collection[str], seed: int) -> Iterator[BenchmarkModel]:
        planted = plant_relations(self.noise, len(RELATION_SEEDS) * seed + self.number)
        for (kind, name, group), heads_by_relation in zip(
            self.names, (planted.writers, planted.suppressors), strict=True
        ):
            if kind in kinds:
                exams = {relation: Exam(heads) for relation, heads in heads_by_relation.items()}
                yield BenchmarkModel(name, kind, group, planted.lm, exams, data={"relations": planted.relations})


@dataclass(frozen=True)
class CopyingRecipe:
    """A copying model with hand-set weights."""

    number: int

    @property
    def names(self) -> list[tuple[str, str, str]]:
        return [("copying", f"copying, {self.number}", "copying")]

    def make(self, kinds: Collection[str], seed: int) -> Iterator[BenchmarkModel]:
        planted = plant_copying(len(COPYING_SEEDS) * seed + self.number)
        exams = {"copying": Exam(planted.copiers, unsure=planted.previous)}
        yield BenchmarkModel(f"copying, {self.number}", "copying", "copying", planted.lm, exams, data=planted.data)


Recipe = FunctionRecipe | RelationRecipe | CopyingRecipe


def find_model(source: str, device: str, progress: Progress = silent) -> Path:
    """Return the folder of a planted model; a 'seed:N' model is trained first, unless it is cached."""
    if match := re.fullmatch(r"seed:(\d+)(?:/(\d+))?", source):
        seed, kv_heads = int(match[1]), int(match[2] or 8)
        folder = cache_folder() / "planted" / f"seed-{seed}-{kv_heads}"
        if not folder.exists():
            plant(folder, seed, kv_heads, device=device, progress=progress)
        return folder
    return planted_folder(source)


def hash_folder(folder: Path) -> str:
    """Hash all files of a folder: weights, tokenizer, truth."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]

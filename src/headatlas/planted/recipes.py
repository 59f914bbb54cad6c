"""The benchmark's models: how each is made, as data, and what is then known of its heads.

Four kinds of model: trained ones whose functions are in chosen heads; the same with noise in spare heads, which
interferes; random ones with relations written into chosen heads; and ones that copy, set by hand.
"""

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from headatlas.errors import BadArgument, CannotDo
from headatlas.models.cache import cache_folder
from headatlas.models.heads import head_mask
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.planted.copying import plant_copying
from headatlas.planted.interference import plant_interference
from headatlas.planted.known import Heads, accept, measure_functions, planted_folder, read_truth
from headatlas.planted.relations import plant_relations
from headatlas.planted.training import plant
from headatlas.progress import Progress, silent

RELATION_SEEDS = COPYING_SEEDS = (0, 1)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """A model, and which heads serve which subject. `unsure` heads are neither right nor wrong.

    data: what to ask with, by the name of a method's argument; of trained functions, none: `contenders` makes it.
    """

    name: str
    lm: LM
    heads: dict[str, Heads]
    unsure: Heads
    data: Mapping[str, object]


@dataclass(frozen=True)
class Functions:
    """A trained model, as it is and with noise in spare heads. where: a shipped one, a folder, or 'seed:N'."""

    name: str
    where: str
    device: str
    files: str  # a hash of what is in its folder

    @property
    def names(self) -> dict[str, str]:
        """By kind of truth, what its models are called."""
        return {"functions": self.name, "interference": f"{self.name}, noisy"}

    def group(self, kind: str) -> str:
        """What results are averaged over."""
        return kind

    def make(self, kinds: Collection[str], seed: int) -> Iterator[Known]:
        folder = find_model(self.where, self.device)
        if hash_folder(folder) != self.files:
            raise CannotDo(f"model {self.name!r} has other files here ({folder}) than where the work was planned")
        lm, truth = load(folder, self.device), read_truth(folder)
        head_mask(truth.background, lm.anatomy)  # that the model has them
        problems = _misplaced(folder, self.device, self.files)
        for function, problem in problems.items():
            log.warning("model %s: %s is left out, it is not where the truth says: %s", self.name, function, problem)
        heads_of = {f: heads for f, heads in truth.functions.items() if f not in problems}
        if not heads_of:
            raise BadArgument(f"model {self.name!r}: no function is where its truth.json says")
        if "functions" in kinds:
            yield Known(self.name, lm, heads_of, [], {})
        if "interference" in kinds:
            noisy, interferes, heads = plant_interference(lm, truth, seed)
            interferes = {f: hurt for f, hurt in interferes.items() if f in heads_of}
            yield Known(self.names["interference"], noisy, interferes, heads, {})


@cache
def _misplaced(folder: Path, device: str, files: str) -> Mapping[str, str]:
    """Functions that are not where the truth says, and why. Measured once for the same files (a hash of them)."""
    return MappingProxyType(accept(measure_functions(load(folder, device), read_truth(folder))))


@dataclass(frozen=True)
class Relations:
    """A random model with relations written into some heads, under noise."""

    noise: float
    number: int

    @property
    def names(self) -> dict[str, str]:
        return {kind: f"{self.group(kind)}, {self.number}" for kind in ("relations", "suppression")}

    def group(self, kind: str) -> str:
        return f"{kind}, noise {self.noise:g}"

    def make(self, kinds: Collection[str], seed: int) -> Iterator[Known]:
        planted = plant_relations(self.noise, len(RELATION_SEEDS) * seed + self.number)
        for kind, heads in (("relations", planted.writers), ("suppression", planted.suppressors)):
            if kind in kinds:
                yield Known(self.names[kind], planted.lm, heads, [], {"relations": planted.relations})


@dataclass(frozen=True)
class Copying:
    """A model set by hand that copies what is repeated."""

    number: int

    @property
    def names(self) -> dict[str, str]:
        return {"copying": f"copying, {self.number}"}

    def group(self, kind: str) -> str:
        return kind

    def make(self, kinds: Collection[str], seed: int) -> Iterator[Known]:
        planted = plant_copying(len(COPYING_SEEDS) * seed + self.number)
        yield Known(self.names["copying"], planted.lm, {"copying": planted.copiers}, planted.previous, planted.data)


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

"""The ground truth of a planted model: which heads serve which function, and how well it answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headatlas.errors import BadArgument, BadFile, one_line
from headatlas.models.lm import LM
from headatlas_bench.circuits import Circuit, Heads, head_names
from headatlas_bench.functions import FUNCTIONS, Batch, Draw
from headatlas_bench.names import SHIPPED

# Seeds from here on are never used in training (torch keeps 32 bits of a seed).
FIRST_UNSEEN_SEED = 2**31
MAX_SEEDS = 2**20


@dataclass(frozen=True)
class Truth:
    """The circuit of every planted function, and the heads that belong to none."""

    circuits: Mapping[str, Circuit]
    background: Heads

    @property
    def functions(self) -> dict[str, Heads]:
        """Return all heads of every function's circuit."""
        return {f: circuit.heads for f, circuit in self.circuits.items()}

    def to_dict(self) -> dict[str, Any]:
        circuits = {f: circuit.to_dict() for f, circuit in self.circuits.items()}
        return {"circuits": circuits, "background": head_names(self.background)}


def planted_folder(model: str | Path) -> Path:
    """Return the folder of a shipped model, or check a folder that `plant` wrote."""
    if str(model) in SHIPPED:
        with as_file(files("headatlas_bench") / "data" / str(model)) as folder:
            return folder
    for name in ("truth.json", "model.safetensors"):
        if not (Path(model) / name).is_file():
            raise BadArgument(f"model {str(model)!r} is neither one of {', '.join(SHIPPED)} nor a folder with a {name}")
    return Path(model)


def read_truth(folder: Path) -> Truth:
    """Read truth.json: circuits, or lists of heads in the files of plain models."""

    def parse_heads(names: Sequence[str]) -> Heads:
        pairs = (name.removeprefix("L").split(".H") for name in names)
        return [(int(layer), int(head)) for layer, head in pairs]

    def parse_circuit(entry: Any) -> Circuit:
        if isinstance(entry, list):
            return Circuit({"own": parse_heads(entry)})
        parts = {str(part): parse_heads(h) for part, h in entry["parts"].items()}
        sufficient_sets = tuple(tuple(sufficient) for sufficient in entry["works"])
        if unknown := {part for sufficient in sufficient_sets for part in sufficient} - set(parts):
            raise ValueError(f"{min(unknown)!r} is not one of the parts {', '.join(parts)}")
        return Circuit(
            parts,
            sufficient_sets,
            str(entry["planting"]),
            parse_heads(entry["decoys"]),
            parse_heads(entry["harmful"]),
        )

    try:
        content = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        circuits = content["circuits"] if "circuits" in content else content["functions"]
        if unknown := set(circuits) - set(FUNCTIONS):
            raise ValueError(f"{min(unknown)!r} is not one of the functions {', '.join(FUNCTIONS)}")
        return Truth(
            {str(f): parse_circuit(entry) for f, entry in circuits.items()},
            parse_heads(content["background"]),
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as e:
        raise BadFile(f"{folder / 'truth.json'} is not a truth file: {one_line(e)}") from e


def draw_unseen(function: str, sequences: int = 64, seed: int = 0) -> Batch:
    """Draw sequences that no training has seen."""
    batch_seed = FIRST_UNSEEN_SEED + 16 * seed + list(FUNCTIONS).index(function)
    return FUNCTIONS[function].make(Draw(sequences, batch_seed, "cpu"))


@torch.no_grad()
def score_answers(lm: LM, function: str, sequences: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Score all answers in unseen sequences: log P [answer], and whether the model would give them [answer]."""
    batch = draw_unseen(function, sequences, seed)
    tokens, is_answer = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    log_p = lm.model(tokens).logits[:, :-1].float().log_softmax(-1)
    is_right = log_p.argmax(-1) == tokens[:, 1:]
    return log_p.gather(2, tokens[:, 1:, None])[..., 0][is_answer], is_right[is_answer]

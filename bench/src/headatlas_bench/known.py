"""What is known of a planted model: which heads serve which function, and how it answers."""

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
from headatlas_bench.circuits import Circuit, Heads, named
from headatlas_bench.functions import FUNCTIONS, Batch, Draw
from headatlas_bench.names import SHIPPED

UNSEEN = 2**31  # seeds of sequences from here on are not those of training (torch keeps 32 bits of a seed)
MOST_SEEDS = 2**20


@dataclass(frozen=True)
class Truth:
    circuits: Mapping[str, Circuit]
    background: Heads

    @property
    def functions(self) -> dict[str, Heads]:
        """All heads of every function's circuit."""
        return {f: circuit.heads for f, circuit in self.circuits.items()}

    def to_dict(self) -> dict[str, Any]:
        circuits = {f: circuit.to_dict() for f, circuit in self.circuits.items()}
        return {"circuits": circuits, "background": named(self.background)}


def planted_folder(model: str | Path) -> Path:
    """The folder of a shipped model, or one that `plant` wrote."""
    if str(model) in SHIPPED:
        with as_file(files("headatlas_bench") / "data" / str(model)) as folder:
            return folder
    for name in ("truth.json", "model.safetensors"):
        if not (Path(model) / name).is_file():
            raise BadArgument(f"model {str(model)!r} is neither one of {', '.join(SHIPPED)} nor a folder with a {name}")
    return Path(model)


def read_truth(folder: Path) -> Truth:
    def heads(named: Sequence[str]) -> Heads:
        return [(int(layer), int(head)) for layer, head in (name.removeprefix("L").split(".H") for name in named)]

    def circuit(of: Any) -> Circuit:
        if isinstance(of, list):
            return Circuit({"own": heads(of)})
        parts = {str(part): heads(h) for part, h in of["parts"].items()}
        works = tuple(tuple(enough) for enough in of["works"])
        if unknown := {part for enough in works for part in enough} - set(parts):
            raise ValueError(f"{min(unknown)!r} is not one of the parts {', '.join(parts)}")
        return Circuit(parts, works, str(of["planting"]), heads(of["decoys"]), heads(of["harmful"]))

    try:
        content = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        circuits = content["circuits"] if "circuits" in content else content["functions"]
        if unknown := set(circuits) - set(FUNCTIONS):
            raise ValueError(f"{min(unknown)!r} is not one of the functions {', '.join(FUNCTIONS)}")
        return Truth({str(f): circuit(of) for f, of in circuits.items()}, heads(content["background"]))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as e:
        raise BadFile(f"{folder / 'truth.json'} is not a truth file: {one_line(e)}") from e


def unseen(function: str, sequences: int = 64, seed: int = 0) -> Batch:
    """Sequences that no training has seen."""
    number = UNSEEN + 16 * seed + list(FUNCTIONS).index(function)
    return FUNCTIONS[function].make(Draw(sequences, number, "cpu"))


@torch.no_grad()
def answer(lm: LM, function: str, sequences: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """All answers in unseen sequences: their log P, and whether the model would give them."""
    batch = unseen(function, sequences, seed)
    tokens, is_answer = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    log_p = lm.model(tokens).logits[:, :-1].float().log_softmax(-1)
    right = log_p.argmax(-1) == tokens[:, 1:]
    return log_p.gather(2, tokens[:, 1:, None])[..., 0][is_answer], right[is_answer]

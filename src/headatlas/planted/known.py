"""What is known of a planted model: which heads serve which function, and its accuracy with and without them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headatlas.errors import BadArgument, BadFile, one_line
from headatlas.models.heads import head_mask
from headatlas.models.lm import LM
from headatlas.planted.functions import FUNCTIONS, Draw

Heads = list[tuple[int, int]]
SHIPPED = ("one", "two")
UNSEEN = 2**31  # seeds of sequences from here on are not those of training (torch keeps 32 bits of a seed)
MOST_SEEDS = 2**20

ACCEPTED = {"all": 0.98, "only": 0.95, "without": 0.10}  # the last: above chance


@dataclass(frozen=True)
class Truth:
    functions: dict[str, Heads]
    background: Heads

    def to_dict(self) -> dict[str, Any]:
        def named(heads: Heads) -> list[str]:
            return [f"L{layer}.H{head}" for layer, head in heads]

        return {"functions": {f: named(h) for f, h in self.functions.items()}, "background": named(self.background)}


def planted_folder(model: str | Path) -> Path:
    """The folder of a shipped model ('one', 'two'), or one that `plant` wrote."""
    if str(model) in SHIPPED:
        with as_file(files("headatlas.planted") / "data" / str(model)) as folder:
            return folder
    for name in ("truth.json", "model.safetensors"):
        if not (Path(model) / name).is_file():
            raise BadArgument(f"model {str(model)!r} is neither one of {', '.join(SHIPPED)} nor a folder with a {name}")
    return Path(model)


def read_truth(folder: Path) -> Truth:
    def heads(named: Sequence[str]) -> Heads:
        return [(int(layer), int(head)) for layer, head in (name.removeprefix("L").split(".H") for name in named)]

    try:
        content = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        if unknown := set(content["functions"]) - set(FUNCTIONS):
            raise ValueError(f"{min(unknown)!r} is not one of the functions {', '.join(FUNCTIONS)}")
        return Truth({str(f): heads(h) for f, h in content["functions"].items()}, heads(content["background"]))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as e:
        raise BadFile(f"{folder / 'truth.json'} is not a truth file: {one_line(e)}") from e


@torch.no_grad()
def answer(lm: LM, function: str, sequences: int = 64, seed: int = 0) -> tuple[Tensor, Tensor]:
    """All answers in sequences that no training has seen: their log P, and whether the model would give them."""
    number = UNSEEN + 16 * seed + list(FUNCTIONS).index(function)
    batch = FUNCTIONS[function].make(Draw(sequences, number, "cpu"))
    tokens, is_answer = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    log_p = lm.model(tokens).logits[:, :-1].float().log_softmax(-1)
    right = log_p.argmax(-1) == tokens[:, 1:]
    return log_p.gather(2, tokens[:, 1:, None])[..., 0][is_answer], right[is_answer]


def measure_functions(lm: LM, truth: Truth) -> dict[str, dict[str, float]]:
    """Of each function: accuracy with all heads, with only its own, without them; and what guessing gives."""
    accuracy = {}
    for name, heads in truth.functions.items():
        own = head_mask(heads, lm.anatomy).float()
        accuracy[name] = {"chance": round(FUNCTIONS[name].chance, 4)}
        for condition, gate in (("all", torch.ones_like(own)), ("only", own), ("without", 1 - own)):
            with lm.gated(gate):
                accuracy[name][condition] = round(float(answer(lm, name)[1].float().mean()), 4)
    return accuracy


def accept(measured: dict[str, dict[str, float]]) -> dict[str, str]:
    """Functions that cannot be accepted, and why not; nothing if all can."""
    problems = {}
    for name, row in measured.items():
        reasons = [
            f"{row[condition]:.1%} with {heads}, expected {ACCEPTED[condition]:.0%}"
            for condition, heads in (("all", "all heads"), ("only", "only its own heads"))
            if row[condition] < ACCEPTED[condition]
        ]
        if row["without"] > row["chance"] + ACCEPTED["without"]:
            reasons.append(f"{row['without']:.1%} without its heads, where chance is {row['chance']:.1%}")
        if reasons:
            problems[name] = " and ".join(reasons)
    return problems

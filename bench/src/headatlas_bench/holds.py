"""Whether a planted model is what its truth says, measured on sequences that no training has seen."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import linear

from headatlas.models.hooks import head_mask, hooked
from headatlas.models.lm import LM
from headatlas_bench import known
from headatlas_bench.circuits import Circuit, Heads
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.known import Truth, unseen

ACCEPTED = {"all": 0.98, "only": 0.95, "spared": 0.95, "read": 0.95, "beside_harm": 0.95}  # at least
ALLOWED = {"decoy_effect": 0.01, "idle_effect": 0.01, "direct_effect": 0.05}  # nats, at most, of either sign
ABOVE_CHANCE = 0.10  # at most, without the heads that are needed
HARMS = 0.05  # nats that each harmful head must cost
SAID = {
    "all": "with all heads",
    "only": "with only its own heads",
    "spared": "without what it can spare",
    "read": "by a probe of a decoy",
    "beside_harm": "with the harmful heads of other functions",
    "decoy_effect": "removing the decoys",
    "idle_effect": "removing the backup",
    "direct_effect": "removing what its relays write to the end directly",
}


def measure_functions(lm: LM, truth: Truth) -> dict[str, dict[str, Any]]:
    """Of each function, as accuracy: `all` heads; `only` the least that suffices; `without` any that it needs.

    `spared`: all heads but those it can do without, where there are such. Of several sets, the worst counts. `chance`
    is what guessing gives. Harmful heads are off in all of these; what else is planted is measured by `_decoys`,
    `_backup`, `_relay` and `_harm`.
    """
    harmful = [head for circuit in truth.circuits.values() for head in circuit.harmful]
    measured = {}
    with lm.gated(1 - head_mask(harmful, lm.anatomy).float()):
        for function, circuit in truth.circuits.items():
            row = _accuracies(lm, function, circuit)
            row |= _decoys(lm, function, circuit, list(truth.circuits)) if circuit.decoys else {}
            row |= _backup(lm, function, circuit) if circuit.planting == "backup" else {}
            row |= _relay(lm, function, circuit) if "relay" in circuit.parts else {}
            measured[function] = row
    for function, circuit in truth.circuits.items() if harmful else ():
        measured[function] |= _harm(lm, function, circuit, harmful)
    return measured


def accept(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Functions that cannot be accepted, and why not; nothing if all can."""
    problems = {}
    for name, row in measured.items():
        reasons = [
            f"{row[key]:.1%} {SAID[key]}, expected {least:.0%}"
            for key, least in ACCEPTED.items()
            if row.get(key, 1) < least
        ]
        if row["without"] > row["chance"] + ABOVE_CHANCE:
            reasons.append(f"{row['without']:.1%} without its heads, where chance is {row['chance']:.1%}")
        reasons += [
            f"{SAID[key]} changes log P by {row[key]:.3f} nats, expected at most {most}"
            for key, most in ALLOWED.items()
            if abs(row.get(key, 0)) > most
        ]
        reasons += [
            f"a harmful head costs {cost:.3f} nats, expected {HARMS}" for cost in row.get("harm", ()) if cost < HARMS
        ]
        if reasons:
            problems[name] = " and ".join(reasons)
    return problems


def _accuracies(lm: LM, function: str, circuit: Circuit) -> dict[str, Any]:
    def accuracy(gate: Tensor) -> float:
        with lm.gated(gate):
            return round(float(known.answer(lm, function)[1].float().mean()), 4)

    def mask(heads: Heads) -> Tensor:
        return head_mask(heads, lm.anatomy).float()

    every = mask(circuit.heads)
    working, failing = ([mask(circuit.heads_of(on)) for on in subsets] for subsets in circuit.subsets())
    row = {"chance": round(FUNCTIONS[function].chance, 4), "all": accuracy(torch.ones_like(every))}
    row["only"] = min(accuracy(mask(circuit.heads_of(on))) for on in circuit.works)
    if len(circuit.works) > 1:
        row["spared"] = min(accuracy(1 - every + on) for on in working)
    row["without"] = max(accuracy(1 - every + on) for on in failing)
    return row


def _decoys(lm: LM, function: str, circuit: Circuit, functions: Sequence[str]) -> dict[str, Any]:
    """read: how often a probe of one decoy tells the answer, and that it is this function, the worst of them.

    decoy_effect: what removing all of them does to log P of the function that minds most.
    """
    outputs = {f: _at_answers(lm, f) for f in functions}
    z, answers = outputs.pop(function)
    read = [
        min(
            _probe(z[:, layer, head], answers),
            *(_apart(z[:, layer, head], o[:, layer, head]) for o, _ in outputs.values()),
        )
        for layer, head in circuit.decoys
    ]
    effects = [_effect(lm, of, circuit.decoys) for of in functions]
    return {"read": round(min(read), 4), "decoy_effect": round(max(map(abs, effects)), 4)}


def _backup(lm: LM, function: str, circuit: Circuit) -> dict[str, Any]:
    """idle_effect: of removing the second part while the first is there. waking: how many times as much the second part
    writes, where an answer is asked, when the first is gone."""
    with_first = _size(lm, function, circuit.parts["second"])
    with lm.gated(1 - head_mask(circuit.parts["first"], lm.anatomy).float()):
        without_first = _size(lm, function, circuit.parts["second"])
    effect = _effect(lm, function, circuit.parts["second"])
    return {"idle_effect": round(effect, 4), "waking": round(without_first / with_first, 2)}


@torch.no_grad()
def _relay(lm: LM, function: str, circuit: Circuit) -> dict[str, Any]:
    """direct_effect: on log P, when what relays write reaches every layer but not the end."""
    batch = unseen(function)
    tokens, asked = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    written: list[Tensor] = []

    def write(layer: int, z: Tensor) -> None:
        kept = head_mask(circuit.parts["relay"], lm.anatomy)[layer].to(z)
        weight = lm.weights.output(layer).to(z)
        written.append(torch.einsum("bthd,hdm->btm", z * kept[:, None], weight))

    model: Any = lm.model
    ends: list[Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, args: ends.append(args[0]))
    try:
        with hooked(lm.model, lm.anatomy, write):
            model(tokens)
    finally:
        hook.remove()
    log_p = [
        model.lm_head(model.model.norm(end))[:, :-1]
        .float()
        .log_softmax(-1)
        .gather(2, tokens[:, 1:, None])[..., 0][asked]
        for end in (ends[0], ends[0] - sum(written))
    ]
    return {"direct_effect": round(float((log_p[1] - log_p[0]).mean()), 4)}


def _harm(lm: LM, function: str, circuit: Circuit, harmful: Heads) -> dict[str, Any]:
    """beside_harm: accuracy with the harmful heads of other functions; harmed: with its own too; harm: what each of
    these costs, the others being there."""
    row: dict[str, Any] = {}
    with lm.gated(1 - head_mask(circuit.harmful, lm.anatomy).float()):
        row["beside_harm"] = round(float(known.answer(lm, function)[1].float().mean()), 4)
    if circuit.harmful:
        row["harmed"] = round(float(known.answer(lm, function)[1].float().mean()), 4)
        row["harm"] = [round(_effect(lm, function, [h]), 4) for h in circuit.harmful]
    return row


def _effect(lm: LM, function: str, heads: Heads) -> float:
    """Of removing heads, on mean log P."""
    before = known.answer(lm, function)[0].mean()
    with lm.gated(1 - head_mask(heads, lm.anatomy).float()):
        return float(known.answer(lm, function)[0].mean() - before)


@torch.no_grad()
def _at_answers(lm: LM, function: str) -> tuple[Tensor, Tensor]:
    """z where answers are asked [answer, layer, head, d_head], and the answers."""
    batch = unseen(function)
    tokens, asked = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    kept: list[Tensor] = []
    with hooked(lm.model, lm.anatomy, lambda _, z: kept.append(z[:, :-1][asked].float())):
        lm.model(tokens)
    return torch.stack(kept, 1).cpu(), tokens[:, 1:][asked].cpu()


def _size(lm: LM, function: str, heads: Heads) -> float:
    """How much heads write where an answer is asked, on average."""
    z, _ = _at_answers(lm, function)
    written = [linear(z[:, layer, head], lm.weights.output(layer)[head].float().cpu().T) for layer, head in heads]
    return float(sum(w.norm(dim=1).mean() for w in written))


def _apart(own: Tensor, other: Tensor) -> float:
    """How often a probe of z [answer, d_head] tells a question of this function from one of another."""
    n = min(len(own), len(other)) // 2
    z = torch.cat([own[:n], other[:n], own[n : 2 * n], other[n : 2 * n]])
    return _probe(z, torch.tensor([0, 1, 0, 1]).repeat_interleave(n))


def _probe(z: Tensor, labels: Tensor) -> float:
    """How often a linear probe is right, on the half of the answers that it was not fitted to."""
    half = len(z) // 2
    fitted = LogisticRegression(max_iter=1000, C=100.0).fit(z[:half] / z.std(), labels[:half])
    return float(fitted.score(z[half:] / z.std(), labels[half:]))

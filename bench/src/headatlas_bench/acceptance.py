"""Test whether a planted model is what its truth says, on sequences that no training has seen."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import linear

from headatlas.models.hooks import head_mask, hooked
from headatlas.models.lm import LM
from headatlas_bench import ground_truth
from headatlas_bench.circuits import Circuit, Heads
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.ground_truth import Truth, draw_unseen

MIN_ACCURACY = {"all": 0.98, "only": 0.95, "spared": 0.95, "read": 0.95, "beside_harm": 0.95}
# Nats, of either sign.
MAX_ABS_EFFECT = {"decoy_effect": 0.01, "idle_effect": 0.01, "direct_effect": 0.05}
# Accuracy above chance without the heads that are needed.
MAX_ABOVE_CHANCE = 0.10
# Nats that each harmful head must cost.
MIN_HARM = 0.05
DESCRIPTIONS = {
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
    """Measure every function: function → name of the measurement → value.

    Accuracies: `all` with all heads; `only` with a sufficient set alone; `without` any set it needs; `spared` without
    heads it can do without, where it has such. Of several sets, the worst counts. `chance` is the accuracy of guessing.
    Harmful heads are removed in all of these. What else is planted is measured by `_measure_decoys`,
    `_measure_backup`, `_measure_relay` and `_measure_harm`.
    """
    harmful = [head for circuit in truth.circuits.values() for head in circuit.harmful]
    measured = {}
    with lm.gated(1 - head_mask(harmful, lm.anatomy).float()):
        for function, circuit in truth.circuits.items():
            row = _accuracies(lm, function, circuit)
            row |= _measure_decoys(lm, function, circuit, list(truth.circuits)) if circuit.decoys else {}
            row |= _measure_backup(lm, function, circuit) if circuit.planting == "backup" else {}
            row |= _measure_relay(lm, function, circuit) if "relay" in circuit.parts else {}
            measured[function] = row
    for function, circuit in truth.circuits.items() if harmful else ():
        measured[function] |= _measure_harm(lm, function, circuit, harmful)
    return measured


def accept(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the functions that are not accepted, with the reasons; empty if all are."""
    problems = {}
    for name, row in measured.items():
        reasons = [
            f"{row[key]:.1%} {DESCRIPTIONS[key]}, expected {minimum:.0%}"
            for key, minimum in MIN_ACCURACY.items()
            if row.get(key, 1) < minimum
        ]
        if row["without"] > row["chance"] + MAX_ABOVE_CHANCE:
            reasons.append(f"{row['without']:.1%} without its heads, where chance is {row['chance']:.1%}")
        reasons += [
            f"{DESCRIPTIONS[key]} changes log P by {row[key]:.3f} nats, expected at most {limit}"
            for key, limit in MAX_ABS_EFFECT.items()
            if abs(row.get(key, 0)) > limit
        ]
        reasons += [
            f"a harmful head costs {cost:.3f} nats, expected {MIN_HARM}"
            for cost in row.get("harm", ())
            if cost < MIN_HARM
        ]
        if reasons:
            problems[name] = " and ".join(reasons)
    return problems


def _accuracies(lm: LM, function: str, circuit: Circuit) -> dict[str, Any]:
    """Measure accuracy with and without sets of the circuit's parts."""

    def accuracy(gate: Tensor) -> float:
        with lm.gated(gate):
            return round(float(ground_truth.score_answers(lm, function)[1].float().mean()), 4)

    def mask(heads: Heads) -> Tensor:
        return head_mask(heads, lm.anatomy).float()

    circuit_mask = mask(circuit.heads)
    working, failing = ([mask(circuit.heads_of(present)) for present in subsets] for subsets in circuit.subsets())
    row = {"chance": round(FUNCTIONS[function].chance, 4), "all": accuracy(torch.ones_like(circuit_mask))}
    row["only"] = min(accuracy(mask(circuit.heads_of(present))) for present in circuit.sufficient_sets)
    if len(circuit.sufficient_sets) > 1:
        row["spared"] = min(accuracy(1 - circuit_mask + present) for present in working)
    row["without"] = max(accuracy(1 - circuit_mask + present) for present in failing)
    return row


def _measure_decoys(lm: LM, function: str, circuit: Circuit, functions: Sequence[str]) -> dict[str, Any]:
    """Measure decoys.

    read: the lowest accuracy of the probes of single decoys, for the answer and for this function against each other.
    decoy_effect: the largest change of log P of any function when all decoys are removed.
    """
    outputs = {f: _answer_outputs(lm, f) for f in functions}
    z, answers = outputs.pop(function)
    accuracies = [
        min(
            _probe_accuracy(z[:, layer, head], answers),
            *(_probe_function(z[:, layer, head], other_z[:, layer, head]) for other_z, _ in outputs.values()),
        )
        for layer, head in circuit.decoys
    ]
    effects = [_removal_effect(lm, f, circuit.decoys) for f in functions]
    return {"read": round(min(accuracies), 4), "decoy_effect": round(max(map(abs, effects)), 4)}


def _measure_backup(lm: LM, function: str, circuit: Circuit) -> dict[str, Any]:
    """Measure a backup circuit.

    idle_effect: effect of removing the second part while the first is present. waking: how many times larger the writes
    of the second part at answers are when the first is removed.
    """
    with_first = _mean_write_norm(lm, function, circuit.parts["second"])
    with lm.gated(1 - head_mask(circuit.parts["first"], lm.anatomy).float()):
        without_first = _mean_write_norm(lm, function, circuit.parts["second"])
    effect = _removal_effect(lm, function, circuit.parts["second"])
    return {"idle_effect": round(effect, 4), "waking": round(without_first / with_first, 2)}


@torch.no_grad()
def _measure_relay(lm: LM, function: str, circuit: Circuit) -> dict[str, Any]:
    """Measure relays. direct_effect: change of log P when their writes reach every layer but not the final norm."""
    batch = draw_unseen(function)
    tokens, is_answer = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    writes: list[Tensor] = []

    def record_writes(layer: int, z: Tensor) -> None:
        relay_mask = head_mask(circuit.parts["relay"], lm.anatomy)[layer].to(z)
        weight = lm.weights.output(layer).to(z)
        writes.append(torch.einsum("bthd,hdm->btm", z * relay_mask[:, None], weight))

    model: Any = lm.model
    streams: list[Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, args: streams.append(args[0]))
    try:
        with hooked(lm.model, lm.anatomy, record_writes):
            model(tokens)
    finally:
        hook.remove()
    log_p = [
        model.lm_head(model.model.norm(stream))[:, :-1]
        .float()
        .log_softmax(-1)
        .gather(2, tokens[:, 1:, None])[..., 0][is_answer]
        for stream in (streams[0], streams[0] - sum(writes))
    ]
    return {"direct_effect": round(float((log_p[1] - log_p[0]).mean()), 4)}


def _measure_harm(lm: LM, function: str, circuit: Circuit, harmful: Heads) -> dict[str, Any]:
    """Measure harmful heads.

    beside_harm: accuracy with the harmful heads of other functions only. harmed: accuracy with all harmful heads.
    harm: nats that each of the function's harmful heads costs while the others are present.
    """
    row: dict[str, Any] = {}
    with lm.gated(1 - head_mask(circuit.harmful, lm.anatomy).float()):
        row["beside_harm"] = round(float(ground_truth.score_answers(lm, function)[1].float().mean()), 4)
    if circuit.harmful:
        row["harmed"] = round(float(ground_truth.score_answers(lm, function)[1].float().mean()), 4)
        row["harm"] = [round(_removal_effect(lm, function, [h]), 4) for h in circuit.harmful]
    return row


def _removal_effect(lm: LM, function: str, heads: Heads) -> float:
    """Return the change of mean log P when heads are removed."""
    before = ground_truth.score_answers(lm, function)[0].mean()
    with lm.gated(1 - head_mask(heads, lm.anatomy).float()):
        return float(ground_truth.score_answers(lm, function)[0].mean() - before)


@torch.no_grad()
def _answer_outputs(lm: LM, function: str) -> tuple[Tensor, Tensor]:
    """Return z at the tokens that predict answers [answer, layer, head, d_head], and the answers [answer]."""
    batch = draw_unseen(function)
    tokens, is_answer = batch.tokens.to(lm.device), batch.answers[:, 1:].to(lm.device)
    outputs: list[Tensor] = []
    with hooked(lm.model, lm.anatomy, lambda _, z: outputs.append(z[:, :-1][is_answer].float())):
        lm.model(tokens)
    return torch.stack(outputs, 1).cpu(), tokens[:, 1:][is_answer].cpu()


def _mean_write_norm(lm: LM, function: str, heads: Heads) -> float:
    """Return the mean norm of what heads write at answers, summed over heads."""
    z, _ = _answer_outputs(lm, function)
    writes = [linear(z[:, layer, head], lm.weights.output(layer)[head].float().cpu().T) for layer, head in heads]
    return float(sum(w.norm(dim=1).mean() for w in writes))


def _probe_function(own_outputs: Tensor, other_outputs: Tensor) -> float:
    """Return how often a probe of z [answer, d_head] distinguishes questions of two functions."""
    n = min(len(own_outputs), len(other_outputs)) // 2
    # Both classes in both halves: the probe is fitted to the first half.
    z = torch.cat([own_outputs[:n], other_outputs[:n], own_outputs[n : 2 * n], other_outputs[n : 2 * n]])
    return _probe_accuracy(z, torch.tensor([0, 1, 0, 1]).repeat_interleave(n))


def _probe_accuracy(z: Tensor, labels: Tensor) -> float:
    """Return the accuracy of a linear probe on the half of the answers that it was not fitted to."""
    half = len(z) // 2
    probe = LogisticRegression(max_iter=1000, C=100.0).fit(z[:half] / z.std(), labels[:half])
    return float(probe.score(z[half:] / z.std(), labels[half:]))

"""Plant interference: some spare heads of a planted model write noise, so that it does better without them."""

import copy

import torch

from headatlas.errors import BadArgument
from headatlas.models.hooks import head_mask
from headatlas.models.lm import LM
from headatlas_bench.circuits import Heads
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.ground_truth import Truth, score_answers

N_NOISY_HEADS = 2
# Nats that a head alone must cost a function to count as interfering with it.
MIN_LOSS = 0.1
MIN_HURT_FUNCTIONS = 3
NOISE_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def plant_interference(lm: LM, truth: Truth, seed: int = 0) -> tuple[LM, dict[str, Heads], Heads]:
    """Give background heads a random W_O, each at the smallest tried scale at which it hurts three functions.

    Whether a head hurts is measured with its noise alone, against the same model without that head.

    Returns: a noisy copy of the model; function → the heads that interfere with it; all noisy heads.
    """
    if len(truth.background) < N_NOISY_HEADS:
        raise BadArgument(
            f"the truth names {len(truth.background)} background heads, expected at least {N_NOISY_HEADS}"
        )
    generator = torch.Generator().manual_seed(seed)
    order = [truth.background[int(i)] for i in torch.randperm(len(truth.background), generator=generator)]
    heads = sorted(order[:N_NOISY_HEADS])
    noise = torch.randn(N_NOISY_HEADS, lm.d_model, lm.d_head, generator=generator) * lm.d_head**-0.5
    noisy = _copy_model(lm)
    interferes: dict[str, Heads] = {f: [] for f in FUNCTIONS}
    for head, write in zip(heads, noise, strict=True):
        with lm.gated(1 - head_mask([head], lm.anatomy).float()):
            clean = _losses(lm)
        for scale in NOISE_SCALES:
            single_noise = _copy_model(lm)
            _write_output(single_noise, head, scale * write)
            hurt_functions = [f for f, loss in _losses(single_noise).items() if loss - clean[f] >= MIN_LOSS]
            if len(hurt_functions) >= MIN_HURT_FUNCTIONS:
                break
        _write_output(noisy, head, scale * write)
        for f in hurt_functions:
            interferes[f].append(head)
    return noisy, {f: hurt_by for f, hurt_by in interferes.items() if hurt_by}, heads


def _copy_model(lm: LM) -> LM:
    return LM(copy.deepcopy(lm.model), lm.tokenizer, f"{lm.name}, noisy")


def _write_output(lm: LM, head: tuple[int, int], write: torch.Tensor) -> None:
    site = lm.anatomy.sites[head[0]]
    assert site is not None
    weight = lm.model.get_submodule(site.out).weight
    with torch.no_grad():
        weight[:, head[1] * lm.d_head : (head[1] + 1) * lm.d_head] = write.to(weight)


def _losses(lm: LM) -> dict[str, float]:
    return {function: -float(score_answers(lm, function, sequences=16, seed=1)[0].mean()) for function in FUNCTIONS}

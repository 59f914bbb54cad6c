"""Planted interference: a planted model in which some spare heads write noise, so that it does better without them."""

import copy

import torch

from headatlas.errors import BadArgument
from headatlas.models.hooks import head_mask
from headatlas.models.lm import LM
from headatlas_bench.circuits import Heads
from headatlas_bench.functions import FUNCTIONS
from headatlas_bench.known import Truth, answer

NOISY = 2  # heads that get noise
HURTS = 0.1  # nats a head must cost a function, alone, to count as interfering with it
ENOUGH = 3  # functions it must hurt
SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def plant_interference(lm: LM, truth: Truth, seed: int = 0) -> tuple[LM, dict[str, Heads], Heads]:
    """A copy of the model with noisy heads; which of them interfere with which function; and all of them.

    The noise is a random W_O for background heads, each as small as it can be and still hurt three functions. Whether a
    head hurts is measured with its noise alone, against the same model without that head.
    """
    if len(truth.background) < NOISY:
        raise BadArgument(f"the truth names {len(truth.background)} background heads, expected at least {NOISY}")
    generator = torch.Generator().manual_seed(seed)
    order = [truth.background[int(i)] for i in torch.randperm(len(truth.background), generator=generator)]
    heads = sorted(order[:NOISY])
    noise = torch.randn(NOISY, lm.d_model, lm.d_head, generator=generator) * lm.d_head**-0.5
    noisy = _copied(lm)
    interferes: dict[str, Heads] = {f: [] for f in FUNCTIONS}
    for head, write in zip(heads, noise, strict=True):
        with lm.gated(1 - head_mask([head], lm.anatomy).float()):
            clean = _losses(lm)
        for scale in SCALES:
            alone = _copied(lm)
            _set(alone, head, scale * write)
            hurt = [f for f, loss in _losses(alone).items() if loss - clean[f] >= HURTS]
            if len(hurt) >= ENOUGH:
                break
        _set(noisy, head, scale * write)
        for f in hurt:
            interferes[f].append(head)
    return noisy, {f: hurt_by for f, hurt_by in interferes.items() if hurt_by}, heads


def _copied(lm: LM) -> LM:
    return LM(copy.deepcopy(lm.model), lm.tokenizer, f"{lm.name}, noisy")


def _set(lm: LM, head: tuple[int, int], write: torch.Tensor) -> None:
    site = lm.anatomy.sites[head[0]]
    assert site is not None
    weight = lm.model.get_submodule(site.out).weight
    with torch.no_grad():
        weight[:, head[1] * lm.d_head : (head[1] + 1) * lm.d_head] = write.to(weight)


def _losses(lm: LM) -> dict[str, float]:
    return {function: -float(answer(lm, function, sequences=16, seed=1)[0].mean()) for function in FUNCTIONS}

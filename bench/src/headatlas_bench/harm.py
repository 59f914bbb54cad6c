"""Heads that push a wrong answer, at several strengths: planted into a model that is trained already.

1. A head is taught, all else stays (its keys and values too, if other heads share them): where its function's answer is
   asked, it is to bring out another answer, always the same one for the same right answer; the other functions stay as
   they are. Harmful heads of earlier layers are there in every second step, so that it does not mind them.
2. Its output is scaled until, alone, it takes its share of the margin between the right answer and the wrong one.
3. A function's harmful heads are then scaled together, until all of them cost it 1 nat.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from headatlas_bench.known import Truth
from headatlas_bench.pool import Pool

SHARES = (0.2, 0.3, 0.5)  # of the margin, that each head takes
COST = 1.0  # nats, of all harmful heads of a function
STEPS, RATE, HALVINGS, MOST = 150, 1e-2, 14, 8.0
FEWER = 4  # one of so many sequences of a training step is used

Scales = dict[tuple[int, int], float]
log = logging.getLogger(__name__)


def plant_harm(model: LlamaForCausalLM, truth: Truth, seed: int, device: torch.device, steps: int = STEPS) -> None:
    """Give the harmful heads of `truth` their weights, in place. The model comes back on the CPU."""
    strength = {h: s for c in truth.circuits.values() for h, s in zip(c.harmful, SHARES, strict=False)}
    if not strength:
        return
    names = list(truth.circuits)
    of = {head: names.index(f) for f, c in truth.circuits.items() for head in c.harmful}
    pool = Pool(names, seed, device)
    pool.which = pool.which[::FEWER]
    scales: Scales = dict.fromkeys(of, 0.0)
    model.to(device).requires_grad_(False)
    for head in sorted(of):
        before = {h: s for h, s in scales.items() if h[0] < head[0]}
        _teach(model, head, of[head], before, pool, scales, min(steps, STEPS))
        margin = partial(_scaled_by, partial(_margin, model, of[head], pool), dict.fromkeys(of, 0.0), {head: 1.0})
        scales[head] = _falls_to(margin, margin(0.0) * (1 - strength[head]))
    final: Scales = {}
    for number, circuit in enumerate(truth.circuits.values()):
        own = {h: scales[h] for h in circuit.harmful}
        if own:
            log_p = partial(_scaled_by, partial(_log_p, model, number, pool), dict.fromkeys(of, 0.0), own)
            times = _falls_to(log_p, log_p(0.0) - COST)
            final |= {h: times * s for h, s in own.items()}
    for head, scale in final.items():
        log.info("%s: L%d.H%d pushes a wrong answer, scaled by %.3f", names[of[head]], *head, scale)
        attention, at = _slices(model, head)
        attention.o_proj.weight.data[:, at] *= scale
    model.cpu()


def _slices(model: Any, head: tuple[int, int]) -> tuple[Any, slice]:
    attention = model.model.layers[head[0]].self_attn
    return attention, slice(head[1] * attention.head_dim, (head[1] + 1) * attention.head_dim)


@contextmanager
def _scaled(model: Any, scales: Mapping[tuple[int, int], float]) -> Iterator[None]:
    """Heads' outputs times a number each, while the block runs."""

    def scale(at: slice, by: float, _: Any, args: tuple[Tensor]) -> tuple[Tensor]:
        z = args[0].clone()
        z[..., at] = z[..., at] * by
        return (z,)

    with ExitStack() as stack:
        for head, by in scales.items():
            attention, at = _slices(model, head)
            stack.callback(attention.o_proj.register_forward_pre_hook(partial(scale, at, by)).remove)
        yield


def _teach(
    model: LlamaForCausalLM, head: tuple[int, int], function: int, before: Scales, pool: Pool, every: Scales, steps: int
) -> None:
    attention, at = _slices(model, head)
    learnt = [attention.o_proj.weight, attention.q_proj.weight]
    learnt += [] if attention.num_key_value_groups > 1 else [attention.k_proj.weight, attention.v_proj.weight]
    places: list[tuple[slice, ...]] = [(slice(None), at), *[(at,)] * (len(learnt) - 1)]
    for weight in learnt:
        weight.requires_grad_()
    optimiser = torch.optim.Adam(learnt, lr=RATE)
    wrong, off = _wrong(pool, function), {h: 0.0 for h in every if h != head}
    for step in range(steps):
        which, tokens, answers = pool.draw()
        own, asked = which == function, answers[:, 1:]
        meant = torch.where(own[:, None], wrong[tokens], tokens)[:, 1:]
        with _scaled(model, off | (before if step % 2 else {})):
            each = cross_entropy(model(tokens).logits[:, :-1].transpose(1, 2), meant, reduction="none") * asked
        loss = each[own].sum() / asked[own].sum() + each[~own].sum() / asked[~own].sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for weight, kept in zip(learnt, places, strict=True):
            assert weight.grad is not None
            grad, weight.grad = weight.grad, torch.zeros_like(weight)
            weight.grad[kept] = grad[kept]
        optimiser.step()
    model.requires_grad_(False)


def _wrong(pool: Pool, function: int) -> Tensor:
    """Of every word, the wrong answer it stands for [word]: the function's next answer word."""
    words = pool.answer_words()[function].nonzero()[:, 0]
    wrong = torch.arange(pool.answer_words().shape[1], device=words.device)
    wrong[words] = words.roll(-1)
    return wrong


@torch.no_grad()
def _margin(model: LlamaForCausalLM, function: int, pool: Pool, scales: Scales) -> float:
    """By how much the right answer is before the wrong one, on average."""
    tokens, answers = pool.tokens[function, :64], pool.answers[function, :64]
    with _scaled(model, scales):
        logits = model(tokens).logits[:, :-1].float()
    right, other = (logits.gather(2, t[:, 1:, None])[..., 0] for t in (tokens, _wrong(pool, function)[tokens]))
    return float((right - other)[answers[:, 1:]].mean())


@torch.no_grad()
def _log_p(model: LlamaForCausalLM, function: int, pool: Pool, scales: Scales) -> float:
    tokens, answers = pool.tokens[function, :64], pool.answers[function, :64]
    with _scaled(model, scales):
        log_p = model(tokens).logits[:, :-1].float().log_softmax(-1)
    return float(log_p.gather(2, tokens[:, 1:, None])[..., 0][answers[:, 1:]].mean())


def _scaled_by(value: Callable[[Scales], float], others: Scales, heads: Scales, times: float) -> float:
    """Of the model with these heads scaled so many times."""
    return value(others | {h: times * s for h, s in heads.items()})


def _falls_to(value: Callable[[float], float], goal: float) -> float:
    """Where a value that falls from 0 on is the goal; at most MOST."""
    low, high = 0.0, MOST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) > goal else (low, middle)
    return (low + high) / 2

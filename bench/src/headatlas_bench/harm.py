"""Harmful heads, which push a wrong answer at several strengths: planted into a trained model.

1. Only one head is trained (without its keys and values, if other heads share them). At the answers of its function it
   learns to produce a wrong answer, always the same one for the same right answer; the other functions stay as they
   are. Harmful heads of earlier layers are active in every second step, so that it does not depend on them.
2. Its output is scaled until, alone, it removes its share of the margin between the right and the wrong answer.
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

from headatlas_bench.ground_truth import Truth
from headatlas_bench.training_data import TrainingData

# Share of the margin that each harmful head of a function removes.
MARGIN_SHARES = (0.2, 0.3, 0.5)
# Nats that all harmful heads of a function cost it together.
TOTAL_COST = 1.0
MAX_STEPS = 150
LEARNING_RATE = 1e-2
HALVINGS = 14
MAX_SCALE = 8.0
# One in four sequences of a training step is enough for a single head.
SEQUENCE_STRIDE = 4

Scales = dict[tuple[int, int], float]
log = logging.getLogger(__name__)


def plant_harm(model: LlamaForCausalLM, truth: Truth, seed: int, device: torch.device, steps: int = MAX_STEPS) -> None:
    """Give the harmful heads of `truth` their weights, in place. The model comes back on the CPU."""
    strength = {h: s for c in truth.circuits.values() for h, s in zip(c.harmful, MARGIN_SHARES, strict=False)}
    if not strength:
        return
    names = list(truth.circuits)
    function_of_head = {head: names.index(f) for f, c in truth.circuits.items() for head in c.harmful}
    data = TrainingData(names, seed, device)
    data.schedule = data.schedule[::SEQUENCE_STRIDE]
    scales: Scales = dict.fromkeys(function_of_head, 0.0)
    model.to(device).requires_grad_(False)
    for head in sorted(function_of_head):
        earlier = {h: s for h, s in scales.items() if h[0] < head[0]}
        _train_head(model, head, function_of_head[head], earlier, data, scales, min(steps, MAX_STEPS))
        margin = partial(
            _value_when_scaled,
            partial(_margin, model, function_of_head[head], data),
            dict.fromkeys(function_of_head, 0.0),
            {head: 1.0},
        )
        scales[head] = _solve_falling(margin, margin(0.0) * (1 - strength[head]))
    final: Scales = {}
    for number, circuit in enumerate(truth.circuits.values()):
        own_scales = {h: scales[h] for h in circuit.harmful}
        if own_scales:
            log_p = partial(
                _value_when_scaled,
                partial(_log_p, model, number, data),
                dict.fromkeys(function_of_head, 0.0),
                own_scales,
            )
            times = _solve_falling(log_p, log_p(0.0) - TOTAL_COST)
            final |= {h: times * s for h, s in own_scales.items()}
    for head, scale in final.items():
        log.info("%s: L%d.H%d pushes a wrong answer, scaled by %.3f", names[function_of_head[head]], *head, scale)
        attention, columns = _slices(model, head)
        attention.o_proj.weight.data[:, columns] *= scale
    model.cpu()


def _slices(model: Any, head: tuple[int, int]) -> tuple[Any, slice]:
    attention = model.model.layers[head[0]].self_attn
    return attention, slice(head[1] * attention.head_dim, (head[1] + 1) * attention.head_dim)


@contextmanager
def _scale_heads(model: Any, scales: Mapping[tuple[int, int], float]) -> Iterator[None]:
    """Multiply the outputs of heads by one factor each, while the block runs."""

    def scale(columns: slice, factor: float, _: Any, args: tuple[Tensor]) -> tuple[Tensor]:
        z = args[0].clone()
        z[..., columns] = z[..., columns] * factor
        return (z,)

    with ExitStack() as stack:
        for head, factor in scales.items():
            attention, columns = _slices(model, head)
            stack.callback(attention.o_proj.register_forward_pre_hook(partial(scale, columns, factor)).remove)
        yield


def _train_head(
    model: LlamaForCausalLM,
    head: tuple[int, int],
    function: int,
    earlier: Scales,
    data: TrainingData,
    scales: Scales,
    steps: int,
) -> None:
    attention, columns = _slices(model, head)
    # Heads that share keys and values would change with them.
    trained = [attention.o_proj.weight, attention.q_proj.weight]
    trained += [] if attention.num_key_value_groups > 1 else [attention.k_proj.weight, attention.v_proj.weight]
    trained_slices: list[tuple[slice, ...]] = [(slice(None), columns), *[(columns,)] * (len(trained) - 1)]
    for weight in trained:
        weight.requires_grad_()
    optimiser = torch.optim.Adam(trained, lr=LEARNING_RATE)
    wrong = _wrong_answers(data, function)
    others_off = {h: 0.0 for h in scales if h != head}
    for step in range(steps):
        function_indices, tokens, answers = data.draw()
        is_function = function_indices == function
        is_answer = answers[:, 1:]
        targets = torch.where(is_function[:, None], wrong[tokens], tokens)[:, 1:]
        with _scale_heads(model, others_off | (earlier if step % 2 else {})):
            losses = cross_entropy(model(tokens).logits[:, :-1].transpose(1, 2), targets, reduction="none") * is_answer
        loss = (
            losses[is_function].sum() / is_answer[is_function].sum()
            + losses[~is_function].sum() / is_answer[~is_function].sum()
        )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for weight, trained_slice in zip(trained, trained_slices, strict=True):
            assert weight.grad is not None
            # Other heads of the matrix get no gradient.
            head_grad = weight.grad[trained_slice].clone()
            weight.grad = torch.zeros_like(weight)
            weight.grad[trained_slice] = head_grad
        optimiser.step()
    model.requires_grad_(False)


def _wrong_answers(data: TrainingData, function: int) -> Tensor:
    """Return the wrong answer for every right one [word]: the function's next answer word."""
    words = data.answer_words()[function].nonzero()[:, 0]
    wrong = torch.arange(data.answer_words().shape[1], device=words.device)
    wrong[words] = words.roll(-1)
    return wrong


@torch.no_grad()
def _margin(model: LlamaForCausalLM, function: int, data: TrainingData, scales: Scales) -> float:
    """Return the mean logit of the right answer minus that of the wrong one."""
    tokens = data.tokens[function, :64]
    answers = data.answers[function, :64]
    with _scale_heads(model, scales):
        logits = model(tokens).logits[:, :-1].float()
    right_tokens = tokens[:, 1:, None]
    wrong_tokens = _wrong_answers(data, function)[tokens][:, 1:, None]
    margins = (logits.gather(2, right_tokens) - logits.gather(2, wrong_tokens))[..., 0]
    return float(margins[answers[:, 1:]].mean())


@torch.no_grad()
def _log_p(model: LlamaForCausalLM, function: int, data: TrainingData, scales: Scales) -> float:
    tokens = data.tokens[function, :64]
    answers = data.answers[function, :64]
    with _scale_heads(model, scales):
        log_p = model(tokens).logits[:, :-1].float().log_softmax(-1)
    return float(log_p.gather(2, tokens[:, 1:, None])[..., 0][answers[:, 1:]].mean())


def _value_when_scaled(value: Callable[[Scales], float], others: Scales, heads: Scales, times: float) -> float:
    """Return the value of the model with the scales of `heads` multiplied by `times`."""
    return value(others | {h: times * s for h, s in heads.items()})


def _solve_falling(value: Callable[[float], float], goal: float) -> float:
    """Find by bisection where a value that falls from 0 on reaches the goal; at most MAX_SCALE."""
    low, high = 0.0, MAX_SCALE
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) > goal else (low, middle)
    return (low + high) / 2

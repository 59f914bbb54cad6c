"""Heads changed one at a time: the logits with each of them removed, or with another output in its place.

Layers below a head never change, so what they gave in the clean run is recorded and the model is replayed from the
head's layer on, many heads in one batch. Whether replaying gives the right result for a model is tried by `can_replay`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from headatlas.models.hooks import forward_replaced, hooked
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs, score_targets
from headatlas.models.memory import halve_batch_on_oom
from headatlas.models.packing import logits_of, stack
from headatlas.models.tokens import Bundle

Value = Callable[[int], Tensor]
"""A layer → what its heads give instead: [head, 1 or d_head], or [row, token, head, d_head]. NaN leaves z as it is."""


def logits_by_head(
    lm: LM,
    bundles: Sequence[Bundle],
    layers: Sequence[int] | None = None,
    *,
    gate: Tensor | None = None,
    value: Value | None = None,
    replay: bool = True,
    budget: int,
) -> Iterator[tuple[int, list[int], Tensor, Tensor]]:
    """Layer by layer, some heads at a time: its number, the heads, logits with each changed [head, target token,
    vocabulary], and those of the clean run [target token, vocabulary]. Between two of them the model is as it was.

    layers: those with heads, by default all. gate [layer, head]: how far heads are open meanwhile. value: what a head
    gives instead of zero. replay: run only what lies above a head. budget: tokens at once.
    """
    gate = (torch.ones(lm.n_layers, lm.n_heads) if gate is None else gate).to(lm.device)
    layout = stack(lm, bundles)
    with torch.no_grad(), recorded(lm) as record, halve_batch_on_oom(lm, budget):
        clean = logits_of(lm, layout, gate[None])
    at_once = max(1, budget // layout.inputs["input_ids"].numel())
    for layer in lm.layers_with_heads if layers is None else layers:
        instead = torch.zeros(lm.n_heads, 1) if value is None else value(layer)
        for first in range(0, lm.n_heads, at_once):
            heads = list(range(first, min(first + at_once, lm.n_heads)))
            rerun = replayed(lm, layer, record, len(heads)) if replay else nullcontext()
            with torch.no_grad(), _changed(lm, layer, heads, instead), halve_batch_on_oom(lm, budget), rerun:
                logits = logits_of(lm, layout, gate.expand(len(heads), -1, -1))
            yield layer, heads, logits.unflatten(0, (len(heads), -1)), clean


def effects_by_layer(
    lm: LM,
    bundles: Sequence[Bundle],
    layers: Sequence[int] | None = None,
    *,
    gate: Tensor | None = None,
    value: Value | None = None,
    replay: bool = True,
    budget: int,
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Layer by layer: its number, what changing each of its heads costs [example, head], and log P(target) with them
    [example]. The arguments are those of `logits_by_head`.
    """
    lost = torch.empty(sum(len(bundle.examples) for bundle in bundles), lm.n_heads)
    for layer, heads, logits, clean in logits_by_head(
        lm, bundles, layers, gate=gate, value=value, replay=replay, budget=budget
    ):
        whole, without = (score_targets(each, bundles)[0] for each in (clean, logits.flatten(0, 1)))
        lost[:, heads] = (whole - without).T.float().cpu()
        if heads[-1] == lm.n_heads - 1:
            yield layer, lost.clone(), whole[0].float().cpu()


def texts_at_once(lm: LM, bundles: Sequence[Bundle], budget: int) -> list[list[int]]:
    """A few texts at a time, by number, so that all heads of a layer fit beside each other."""
    return [chosen for _, chosen in batches(bundles, 1, max(1, budget // lm.n_heads))]


@contextmanager
def _changed(lm: LM, layer: int, heads: list[int], value: Tensor) -> Iterator[None]:
    """In the n-th copy of the batch, the n-th of the heads gives its value."""

    def edit(at: int, z: Tensor) -> Tensor | None:
        if at != layer:
            return None
        z = z.unflatten(0, (len(heads), -1)).clone()  # [copy, row, token, head, d_head]
        for copy, head in enumerate(heads):
            new = value[..., head, :].to(z)
            z[copy, :, :, head] = torch.where(new.isnan(), z[copy, :, :, head], new)
        return z.flatten(0, 1)

    with hooked(lm.model, lm.anatomy, edit):
        yield


Record = dict[int, Any]
"""The output of each block, by layer."""


@contextmanager
def recorded(lm: LM) -> Iterator[Record]:
    """Keep the output of every block of the model."""
    record: Record = {}
    with ExitStack() as stack:
        for i in range(lm.n_layers):
            block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")

            def keep(module: Any, args: Any, output: Any, layer: int = i) -> None:
                record[layer] = output

            stack.callback(block.register_forward_hook(keep).remove)
        yield record


@contextmanager
def replayed(lm: LM, layer: int, record: Record, copies: int = 1) -> Iterator[None]:
    """Start at block `layer`, on the recorded batch repeated `copies` times."""
    output = _repeat(record[layer - 1], copies) if layer else None
    with ExitStack() as stack:
        stack.enter_context(lm.state.lock)
        for i in range(layer):
            block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")
            stack.enter_context(forward_replaced(block, lambda *args, **kwargs: output))
        yield


def _repeat(output: Any, copies: int) -> Any:
    """A block's output for a batch repeated so many times; only the hidden states are repeated."""
    if isinstance(output, tuple):
        return (_repeat(output[0], copies), *output[1:])
    return output.repeat(copies, 1, 1)


@torch.no_grad()
def can_replay(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Whether replaying gives what a full run gives, tried on these texts from the middle and from the last block."""
    try:
        with recorded(lm) as record:
            expected = log_probs(lm, bundles)[0]
        if set(record) != set(range(lm.n_layers)):
            return False
        return all(_same(lm, bundles, layer, record, expected) for layer in {lm.n_layers // 2, lm.n_layers - 1})
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return False


def _same(lm: LM, bundles: Sequence[Bundle], layer: int, record: Record, expected: Tensor) -> bool:
    if layer == 0:  # no block is skipped
        return True
    noise = {i: _jolt(output) for i, output in record.items()}
    with replayed(lm, layer, record):
        again = log_probs(lm, bundles)[0]
    with replayed(lm, layer, noise):
        other = log_probs(lm, bundles)[0]  # a model that does not use the recorded output would not change
    return bool(torch.allclose(again, expected, rtol=1e-4, atol=1e-4)) and not bool(torch.equal(other, expected))


def _jolt(output: Any) -> Any:
    if isinstance(output, tuple):
        return (_jolt(output[0]), *output[1:])
    noise = torch.linspace(-1, 1, output.shape[-1]).to(output)
    return output + output.abs().max() * noise  # as large as the output: less may not change what the model predicts

"""Change heads one at a time: the logits with each of them removed, or with another output in its place.

Layers below a head do not change, so their outputs are recorded in a clean run, and the model is replayed from the
head's layer on, many heads in one batch. `can_replay` tries whether this gives the right result for a model.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from headatlas.models.hooks import hooked, replace_forward
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs, score_targets
from headatlas.models.memory import halve_batch_on_oom
from headatlas.models.packing import logits_of, stack
from headatlas.models.tokens import Bundle

Value = Callable[[int], Tensor]
"""Function of a layer that returns the outputs that replace those of its heads.

These are [head, 1 or d_head], or [row, token, head, d_head]; NaN leaves z unchanged.
"""


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
    """Yield the logits with each head changed, layer by layer, some heads at a time.

    Between two items the model is unchanged.

    Args:
        layers: layers with heads (default: all).
        gate: gate [layer, head] that scales all heads in addition (default: 1).
        value: the outputs that replace those of the heads (default: zero).
        replay: run only the layers from the head's layer on.
        budget: number of tokens at once.

    Yields:
        The layer, the heads, the logits with each of them changed [head, target token, vocabulary], and the logits of
        the clean run [target token, vocabulary].
    """
    gate = (torch.ones(lm.n_layers, lm.n_heads) if gate is None else gate).to(lm.device)
    layout = stack(lm, bundles)
    with torch.no_grad(), record_blocks(lm) as record, halve_batch_on_oom(lm, budget):
        clean = logits_of(lm, layout, gate[None])
    heads_at_once = max(1, budget // layout.inputs["input_ids"].numel())
    for layer in lm.layers_with_heads if layers is None else layers:
        replacement = torch.zeros(lm.n_heads, 1) if value is None else value(layer)
        for first in range(0, lm.n_heads, heads_at_once):
            heads = list(range(first, min(first + heads_at_once, lm.n_heads)))
            rerun = replay_from(lm, layer, record, len(heads)) if replay else nullcontext()
            with torch.no_grad(), _replace_heads(lm, layer, heads, replacement), halve_batch_on_oom(lm, budget), rerun:
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
    """Yield how much log P(target) falls when each head is changed, layer by layer.

    The arguments are those of `logits_by_head`.

    Yields:
        The layer, the loss of log P(target) for each of its heads [example, head], and log P(target) of the clean run
        [example].
    """
    loss = torch.empty(sum(len(bundle.examples) for bundle in bundles), lm.n_heads)
    for layer, heads, logits, clean in logits_by_head(
        lm, bundles, layers, gate=gate, value=value, replay=replay, budget=budget
    ):
        clean_log_p, _ = score_targets(clean, bundles)
        changed_log_p, _ = score_targets(logits.flatten(0, 1), bundles)
        loss[:, heads] = (clean_log_p - changed_log_p).T.float().cpu()
        if heads[-1] == lm.n_heads - 1:
            yield layer, loss.clone(), clean_log_p[0].float().cpu()


def texts_at_once(lm: LM, bundles: Sequence[Bundle], budget: int) -> list[list[int]]:
    """Return batches of bundles, by index, that are small enough for all heads of a layer to run at once."""
    return [indices for _, indices in batches(bundles, 1, max(1, budget // lm.n_heads))]


@contextmanager
def _replace_heads(lm: LM, layer: int, heads: list[int], value: Tensor) -> Iterator[None]:
    """Replace the n-th of these heads by its value in the n-th copy of the batch, while the block runs."""

    def edit(edited_layer: int, z: Tensor) -> Tensor | None:
        if edited_layer != layer:
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
def record_blocks(lm: LM) -> Iterator[Record]:
    """Record the output of every block of the model while the `with` block runs."""
    record: Record = {}
    with ExitStack() as stack:
        for i in range(lm.n_layers):
            block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")

            def keep(module: Any, args: Any, output: Any, layer: int = i) -> None:
                record[layer] = output

            stack.callback(block.register_forward_hook(keep).remove)
        yield record


@contextmanager
def replay_from(lm: LM, layer: int, record: Record, copies: int = 1) -> Iterator[None]:
    """Make passes start at block `layer`, on the recorded batch repeated `copies` times, while the `with` block runs.

    The blocks below return the recorded output without any work.
    """
    output = _repeat(record[layer - 1], copies) if layer else None
    with ExitStack() as stack:
        stack.enter_context(lm.state.lock)
        for i in range(layer):
            block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")
            stack.enter_context(replace_forward(block, lambda *args, **kwargs: output))
        yield


def _repeat(output: Any, copies: int) -> Any:
    """Return a block's output with its hidden states repeated for `copies` of the batch."""
    if isinstance(output, tuple):
        return (_repeat(output[0], copies), *output[1:])
    return output.repeat(copies, 1, 1)


@torch.no_grad()
def can_replay(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Return whether replaying gives the same as a full run, tried on these texts from the middle and last block."""
    try:
        with record_blocks(lm) as record:
            expected = log_probs(lm, bundles)[0]
        if set(record) != set(range(lm.n_layers)):
            return False
        layers = {lm.n_layers // 2, lm.n_layers - 1}
        return all(_replays_from(lm, bundles, layer, record, expected) for layer in layers)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return False


def _replays_from(lm: LM, bundles: Sequence[Bundle], layer: int, record: Record, expected: Tensor) -> bool:
    """Return whether a replay from this layer gives the expected log P, and uses the recorded output."""
    if layer == 0:
        # no block is skipped
        return True
    with replay_from(lm, layer, record):
        replayed = log_probs(lm, bundles)[0]
    # a model that does not use the recorded output would not change with it
    noisy_record = {i: _add_noise(output) for i, output in record.items()}
    with replay_from(lm, layer, noisy_record):
        noisy = log_probs(lm, bundles)[0]
    return bool(torch.allclose(replayed, expected, rtol=1e-4, atol=1e-4)) and not bool(torch.equal(noisy, expected))


def _add_noise(output: Any) -> Any:
    """Return a block's output plus noise as large as itself: less might not change what the model predicts."""
    if isinstance(output, tuple):
        return (_add_noise(output[0]), *output[1:])
    noise = torch.linspace(-1, 1, output.shape[-1]).to(output)
    return output + output.abs().max() * noise

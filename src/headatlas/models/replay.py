"""Running a model from one of its blocks on: the outputs of the blocks before are taken from an earlier run.

Whether this gives the right result for a model is tried by `can_replay`.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from headatlas.models.cost import Cost, a_pass
from headatlas.models.lm import LM
from headatlas.models.targets import Bundle, log_probs

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
    skipped = [lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}") for i in range(layer)]
    before = [block.__dict__.get("forward") for block in skipped]
    output = _repeat(record[layer - 1], copies) if layer else None
    try:
        for block in skipped:
            block.forward = lambda *args, **kwargs: output
        yield
    finally:
        for block, own in zip(skipped, before, strict=True):
            if own is None:
                del block.forward
            else:  # accelerate sets a forward of its own
                block.forward = own


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


def trial_cost(lm: LM, bundles: Sequence[Bundle]) -> Cost:
    """Of `can_replay`: a whole run, and two from either block on."""
    return (1 + 2 * (lm.n_layers - lm.n_layers // 2 + 1) / lm.n_layers) * a_pass(lm, bundles, packed=False)


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

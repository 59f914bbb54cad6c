"""Running a model from one of its blocks on: what lies before is taken from an earlier run.

Blocks before the chosen one are stood in for by what they gave then. Whether a model lets itself be replayed is not taken on
trust: `can_replay` tries it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from headatlas.models.lm import LM
from headatlas.models.targets import Bundle, log_probs

Record = dict[int, Any]
"""What each block gave, by layer."""


@contextmanager
def recorded(lm: LM) -> Iterator[Record]:
    """Keep what every block gives while the block runs."""
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
    stood_in = [lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}") for i in range(layer)]
    before = [block.__dict__.get("forward") for block in stood_in]
    given = _repeat(record[layer - 1], copies) if layer else None
    try:
        for block in stood_in:
            block.forward = lambda *args, **kwargs: given
        yield
    finally:
        for block, own in zip(stood_in, before, strict=True):
            if own is None:
                del block.forward
            else:  # accelerate puts a forward of its own there
                block.forward = own


def _repeat(output: Any, copies: int) -> Any:
    """A block's output for a batch repeated so many times: the hidden states, and whatever stands beside them as it was."""
    if isinstance(output, tuple):
        return (_repeat(output[0], copies), *output[1:])
    return output.repeat(copies, 1, 1)


@torch.no_grad()
def can_replay(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Whether replaying gives what a full run gives, tried on these texts from the middle and from the last block."""
    try:
        with recorded(lm) as record:
            whole = log_probs(lm, bundles)[0]
        if set(record) != set(range(lm.n_layers)):
            return False
        return all(_same(lm, bundles, layer, record, whole) for layer in {lm.n_layers // 2, lm.n_layers - 1})
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError):
        return False


def _same(lm: LM, bundles: Sequence[Bundle], layer: int, record: Record, whole: Tensor) -> bool:
    if layer == 0:  # nothing is stood in for
        return True
    noise = {i: _jolt(output) for i, output in record.items()}
    with replayed(lm, layer, record):
        again = log_probs(lm, bundles)[0]
    with replayed(lm, layer, noise):
        other = log_probs(lm, bundles)[0]  # a model that looks past the stand-ins would not notice this
    return bool(torch.allclose(again, whole, rtol=1e-4, atol=1e-4)) and not bool(torch.equal(other, whole))


def _jolt(output: Any) -> Any:
    if isinstance(output, tuple):
        return (_jolt(output[0]), *output[1:])
    return output + output.abs().max() * torch.linspace(-1, 1, output.shape[-1]).to(
        output
    )  # a sure model shrugs off less

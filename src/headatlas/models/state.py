"""What is remembered of a model while it is used, kept on the model itself: hooks, too, are where the model is."""

from dataclasses import dataclass, field

from torch import nn


@dataclass
class State:
    """batched: batch sizes that the edits in force were made for.
    packed: what was tried of packed rows: their width, their longest text, whether texts shared beginnings, whether it was right.
    fewer: how many times fewer tokens at once than one would like; doubled whenever memory runs out.
    fitting: how many tokens fit at once on its GPUs, once that is known."""

    batched: list[int] = field(default_factory=list)
    packed: list[tuple[int, int, bool, bool]] = field(default_factory=list)
    fewer: int = 1
    fitting: int | None = None


def state_of(model: nn.Module) -> State:
    state: State = vars(model).setdefault("_headatlas", State())
    return state

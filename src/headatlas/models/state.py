"""What is remembered of a model while it is used. It is kept on the model itself, as hooks are."""

from dataclasses import dataclass, field

from torch import nn


@dataclass
class State:
    """batched: batch sizes that the edits in force were made for.
    packed: trials of packed rows: their width, longest text, whether texts shared beginnings, whether it was right.
    fewer: tokens at once are divided by this; doubled whenever memory runs out.
    fitting: how many tokens fit at once on its GPUs, once that is known.
    plain: whether a norm is x / √(mean x² + ε) · weight, once that was tried.
    planned: how many would be run at once where its work is planned for, if it has no weights here."""

    batched: list[int] = field(default_factory=list)
    packed: list[tuple[int, int, bool, bool]] = field(default_factory=list)
    fewer: int = 1
    fitting: int | None = None
    plain: dict[nn.Module, bool] = field(default_factory=dict)
    planned: int | None = None


def state_of(model: nn.Module) -> State:
    state: State = vars(model).setdefault("_headatlas", State())
    return state

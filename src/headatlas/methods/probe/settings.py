"""What the presets of `probe` stand for, and what its parts are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headatlas.tasks.judge import Judge
    from headatlas.tasks.questions import Question


@dataclass(frozen=True)
class Training:
    """Published, but for the batch (published: 1) and for stopping early."""

    epochs: int = 100
    lr: float = 1e-4
    batch: int = 32
    patience: int = 10  # epochs without a lower validation loss after which training ends


@dataclass(frozen=True)
class Trials:
    """What the proof tries."""

    shares: tuple[float, ...]  # of all heads, to be removed
    masked: float = 0.1  # share of heads whose removal makes up the specialisation matrix and the hierarchy
    draws: int = 20  # of random heads, at most: few for 24 tests (8 functions × 3 shares)
    order_draws: int = 5  # of the hierarchy
    alphas: tuple[float, ...] = (-2.0, -1.0, 1.0, 2.0)


@dataclass(frozen=True)
class Settings:
    """What a preset stands for."""

    limit: int | None  # built-in questions used
    training: Training
    controls: int  # labellings shuffled
    draws: int  # of the bootstrap
    new_tokens: int  # of a generated answer
    proof: int  # test questions of each function that the proof asks
    trials: Trials

    def attributes(self, proof: str) -> dict[str, Any]:
        """As attributes of a file. The limit is not among them: the questions themselves are in the key."""
        values = asdict(self)
        training, trials, questions = values.pop("training"), values.pop("trials"), values.pop("proof")
        del values["limit"]
        proven = {"asked": questions} | {k: list(v) if isinstance(v, tuple) else v for k, v in trials.items()}
        return training | values | ({f"proof_{k}": v for k, v in proven.items()} if proof != "none" else {})


PUBLISHED = Training()
PRESETS = {
    "quick": Settings(900, Training(30, 3e-4, 32, 5), 1, 500, 32, 6, Trials((0.05, 0.1, 0.2))),
    "full": Settings(None, PUBLISHED, 5, 2000, 128, 64, Trials((0.01, 0.02, 0.05, 0.1, 0.2, 0.3), draws=199)),
}


@dataclass(frozen=True)
class Options:
    """The arguments of a call, as its parts need them."""

    questions: Sequence[Question]
    settings: Settings
    preset: str
    answers: str
    kind: str
    context: str
    keep: str
    k: int
    template: bool
    judge: Judge | None
    proof: str
    everywhere: bool
    seed: int
    batch_tokens: int | None

    @property
    def generated(self) -> bool:
        """Whether the model's own answers are read, not the references."""
        return self.answers == "generated"


@dataclass(frozen=True)
class Shard:
    """Questions whose answers are read together, by number; those of a main question are a group."""

    name: str
    groups: Sequence[Sequence[int]]

    @property
    def questions(self) -> list[int]:
        return [i for group in self.groups for i in group]

    @property
    def outputs(self) -> tuple[str, str]:
        """Names of what is read of it: the features, and which questions they are of."""
        return self.name, f"kept of {self.name}"

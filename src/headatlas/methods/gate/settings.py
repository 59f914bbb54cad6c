"""How gates are fitted: what each preset says, and what a user may say instead."""

import math
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any

from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.methods._seeds import MOST_EXAMPLES, MOST_UPDATES

HAS_ROLE = 0.5  # a head whose score is at least this has the role


@dataclass(frozen=True)
class Schedule:
    """So many updates of Adam, with a learning rate that falls linearly."""

    updates: int
    lr: float
    lr_end: float


@dataclass(frozen=True)
class Settings:
    free: Schedule
    pressed: Schedule
    strength: float  # |λ|
    batch: int  # examples an update
    seeds: int
    held_out: int  # examples that results are measured on
    switching: int  # examples that heads are switched off on
    steps: tuple[int, ...]  # how many heads are switched off at once
    draws: int  # of random heads, at most; there are fewer where the answer is plain
    low: float = 0.0  # gates start from Uniform(low, 1)
    norm: float = 1.0  # gradients are clipped to it, seed by seed


PRESETS = {
    "quick": Settings(
        free=Schedule(24, 0.4, 0.2),
        pressed=Schedule(30, 0.5, 0.1),
        strength=0.4,
        batch=2,
        seeds=2,
        held_out=32,
        switching=6,
        steps=(32,),
        draws=20,
        low=0.5,  # a model with half its heads shut takes more updates to mend than there are
    ),
    "full": Settings(
        free=Schedule(500, 0.1, 0.01),
        pressed=Schedule(500, 0.5, 0.1),
        strength=0.1,
        batch=64,
        seeds=10,
        held_out=128,
        switching=64,
        steps=(1, 2, 4, 8, 16, 32),
        draws=199,
    ),
}


def settings_of(preset: str, strength: Any, updates: Any, batch: Any) -> Settings:
    """What the preset says, and what is given instead."""
    check_choice("preset", preset, PRESETS)
    settings = PRESETS[preset]
    if strength is not None:
        if not isinstance(strength, Real) or not 0 < float(strength) < math.inf:
            raise BadArgument(
                f"strength is {strength!r}, expected a number above 0: it is the size of λ,"
                " which retain adds and remove takes away"
            )
        settings = replace(settings, strength=float(strength))
    if updates is not None:
        updates = check_count("updates", updates, 1, MOST_UPDATES)
        free, pressed = (replace(s, updates=updates) for s in (settings.free, settings.pressed))
        settings = replace(settings, free=free, pressed=pressed)
    if batch is not None:
        settings = replace(settings, batch=check_count("batch", batch, 1, MOST_EXAMPLES, "they are laid out together"))
    return settings


def flat_settings(settings: Settings) -> dict[str, Any]:
    """As attributes of a file."""
    values = asdict(settings)
    stages = {f"{name}_{k}": v for name in ("free", "pressed") for k, v in values.pop(name).items()}
    del values["seeds"], values["draws"]  # they are dimensions of the result
    return stages | {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

"""What an update of `dissociate` costs on the stories, in each precision.

    python benchmarks/dissociate.py --model smollm2 --preset full

Seconds of the quickest of three rounds, in one process, after a warm-up. Beside them, those of removing a function's
heads, with random scores in place of fitted ones.
"""

from typing import Any

import numpy as np
import torch
from common import arguments, timed

import headatlas as ha
from headatlas.evidence.selective import Trial, remove_heads_of
from headatlas.methods import get_method
from headatlas.methods.dissociate.compute import fit
from headatlas.models.gradients import frozen_float32_stream
from headatlas.tasks.labelled import load_labelled, log_p_per_token

UPDATES = 10


FITTING = ("own", "others", "lr", "penalty", "sharp")


def options_of(preset: str) -> dict[str, Any]:
    """The options of dissociate in a preset."""
    method = get_method("dissociate")
    return {name: option.default for name, option in method.options.items()} | dict(method.presets[preset])


def measure(lm: ha.LM, preset: str) -> None:
    options = options_of(preset)
    data = load_labelled(lm, questions="stories", each=options["per_function"])
    baseline = log_p_per_token(lm, data)[0]
    fitting = {name: options[name] for name in FITTING}

    def updates(n: int = UPDATES) -> None:
        fit(lm, data, baseline, 0, seeds=range(options["seeds"]), updates=n, **fitting)

    with frozen_float32_stream(lm):
        updates(1)
        seconds = min(timed(updates) for _ in range(3)) / UPDATES
    print(f"{lm.model.dtype!s:15} an update: {seconds:.3f} s")
    random_score = np.random.default_rng(0).random((lm.n_layers, lm.n_heads))
    score = np.where(random_score > 0.8, random_score, np.nan)
    trial = Trial(lm, data, baseline)
    steps, draws = options["steps"], options["draws"]
    seconds = timed(lambda: remove_heads_of(trial, 0, score, steps, draws=draws, always=True))
    print(f"{lm.model.dtype!s:15} removing the heads of a function: {seconds:.1f} s", flush=True)


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto")
    parser.add_argument("--preset", choices=["quick", "full"], default="full")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()
    for dtype in options.dtype:
        measure(ha.load(options.model, options.device, dtype), options.preset)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

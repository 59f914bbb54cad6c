"""What an update of `dissociate` costs on the stories, in each precision.

    python benchmarks/dissociate.py --model smollm2 --preset full

Seconds of the quickest of three rounds, in one process, after a warm-up. Beside them, those of removing a function's
heads, with random scores in place of fitted ones.
"""

from dataclasses import replace

import numpy as np
import torch
from common import arguments, timed

import headatlas as ha
from headatlas.methods.dissociate.fits import fit, settings_of
from headatlas.methods.dissociate.parts import BASELINE, remove_top, targets_of
from headatlas.models.gradients import for_gradients
from headatlas.tasks.labelled import load_labelled, log_p_per_token

UPDATES = 10


def measure(lm: ha.LM, preset: str) -> None:
    settings = settings_of(preset)
    data = load_labelled(lm, questions="stories", each=settings.each)
    baseline = log_p_per_token(lm, data)[0]

    def updates(n: int = UPDATES) -> None:
        fit(lm, data, baseline, 0, replace(settings, updates=n))

    with for_gradients(lm):
        updates(1)
        seconds = min(timed(updates) for _ in range(3)) / UPDATES
    print(f"{lm.model.dtype!s:15} an update: {seconds:.3f} s")
    score = np.random.default_rng(0).random((lm.n_layers, lm.n_heads))
    target, done = targets_of(data, settings, None)[0], {BASELINE: (baseline.numpy(),)}
    seconds = timed(lambda: remove_top(lm, target, np.where(score > 0.8, score, np.nan), done, always=True))
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

"""Measure the seconds of an update of `dissociate` on the stories, in each precision.

    python benchmarks/dissociate.py --model smollm2 --preset full

Times are those of the fastest of three rounds in one process, after a warm-up.
"""

from typing import Any

import torch
from common import make_parser, time_call

import headatlas as ha
from headatlas.methods import get_method
from headatlas.methods.dissociate.compute import fit
from headatlas.models.gradients import frozen_float32_stream
from headatlas.tasks.labelled import load_labelled, log_p_per_token

UPDATES_PER_ROUND = 10


FIT_OPTIONS = ("own", "others", "lr", "penalty", "sharp")


def preset_options(preset: str) -> dict[str, Any]:
    """Return the options of dissociate in a preset."""
    method = get_method("dissociate")
    return {name: option.default for name, option in method.options.items()} | dict(method.presets[preset])


def measure(lm: ha.LM, preset: str) -> None:
    options = preset_options(preset)
    data = load_labelled(lm, questions="stories", per_function=options["per_function"])
    baseline = log_p_per_token(lm, data)[0]
    fit_options = {name: options[name] for name in FIT_OPTIONS}

    def run_updates(n: int = UPDATES_PER_ROUND) -> None:
        fit(lm, data, baseline, 0, seeds=range(options["seeds"]), updates=n, **fit_options)

    with frozen_float32_stream(lm):
        run_updates(1)
        seconds = min(time_call(run_updates) for _ in range(3)) / UPDATES_PER_ROUND
    print(f"{lm.model.dtype!s:15} an update: {seconds:.3f} s", flush=True)


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto")
    parser.add_argument("--preset", choices=["quick", "full"], default="full")
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()
    for dtype in options.dtype:
        measure(ha.load(options.model, options.device, dtype), options.preset)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

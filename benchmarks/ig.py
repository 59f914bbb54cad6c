"""Test whether ig adds up: log P of one example and its slope, as the gates of all heads go from 0 to 1 together.

python benchmarks/ig.py smollm2 --task math
"""

import torch
from common import make_parser

import headatlas as ha
from headatlas.methods._effects import held_out_questions
from headatlas.methods._gradients import midpoints
from headatlas.models.gradients import gate_gradients
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.tokens import make_bundle
from headatlas.tasks.prompts import load_tasks


def main() -> None:
    parser = make_parser(__doc__, task="math", steps=32, device="auto", dtype="auto")
    parser.add_argument("model")
    options = parser.parse_args()
    lm = ha.load(options.model, options.device, options.dtype)
    example = held_out_questions(lm, *load_tasks(lm, options.task), 4)[0]
    levels = midpoints(options.steps)
    gates = torch.tensor([0.0, *levels, 1.0])[:, None, None].expand(-1, lm.n_layers, lm.n_heads)
    first, *log_p, last = batched_log_probs(lm, [make_bundle([example])], gates)[0][:, 0].tolist()
    slopes = [float(gate_gradients(lm, [example], [level]).nansum()) for level in levels]
    print("| gates at | log P | slope |\n| --- | --- | --- |")
    for level, value, slope in zip(levels, log_p, slopes, strict=True):
        print(f"| {level:.3f} | {value:.1f} | {slope:.1f} |")
    print(f"\nlog P rises by {last - first:.1f} from no heads to all; {options.steps} slopes say", end=" ")
    print(f"{sum(slopes) / len(slopes):.1f}")


if __name__ == "__main__":
    main()

"""Not speed: how far gradients in bfloat16 are from those in float32, with the stream in bfloat16 and in float32.

python benchmarks/precision.py MODEL --tasks syntax math

Gradients are of log P in every head's gate (`taylor`). The error of an example in a layer is the mean distance over
heads, in mean sizes of its gradients there. Printed are the median over examples and the worst.
"""

from contextlib import nullcontext
from unittest.mock import patch

import torch
from common import arguments
from torch import Tensor

import headatlas as ha
from headatlas.methods._effects import held_out_questions
from headatlas.models.gradients import gate_gradients
from headatlas.tasks.prompts import load_tasks

READY = "headatlas.models.gradients.frozen_float32_stream"


def gradients(lm: ha.LM, tasks: list[str], limit: int) -> Tensor:
    """[task, example, layer, head]"""
    return torch.stack([gate_gradients(lm, held_out_questions(lm, task, limit)) for task in load_tasks(lm, tasks)])


def main() -> None:
    parser = arguments(__doc__, limit=16, device="auto")
    parser.add_argument("model")
    parser.add_argument("--tasks", nargs="+", default=["math", "syntax"])
    options = parser.parse_args()
    exact = gradients(ha.load(options.model, options.device, "float32"), options.tasks, options.limit)
    half = ha.load(options.model, options.device, "bfloat16")
    with patch(READY, lambda lm: nullcontext()):
        found = [gradients(half, options.tasks, options.limit)]
    found.append(gradients(half, options.tasks, options.limit))
    size = exact.abs().mean(-1)  # [task, example, layer]
    errors = [(one - exact).abs().mean(-1) / size for one in found]
    heads = [f"{task}, {stream}" for task in options.tasks for stream in ("bfloat16 stream", "float32 stream")]
    print("| layer | " + " | ".join(heads) + " |\n| --- | " + " | ".join("---" for _ in heads) + " |")
    for layer in range(size.shape[-1]):
        each = [error[task, :, layer] for task in range(len(options.tasks)) for error in errors]
        print(f"| {layer} | " + " | ".join(f"{e.median():.0%}, {e.max():.0%}" for e in each) + " |")


if __name__ == "__main__":
    main()

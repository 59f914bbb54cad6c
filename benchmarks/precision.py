"""Measure the error of gradients in bfloat16 against float32, with the stream in bfloat16 and in float32.

python benchmarks/precision.py MODEL --tasks syntax math

Gradients are those of log P in every head's gate (`taylor`). The error of an example in a layer is the mean absolute
error over heads, relative to the layer's mean |gradient|. Prints the median over examples and the maximum.
"""

from contextlib import nullcontext
from unittest.mock import patch

import torch
from common import make_parser
from torch import Tensor

import headatlas as ha
from headatlas.methods._effects import held_out_questions
from headatlas.models.gradients import gate_gradients
from headatlas.tasks.prompts import load_tasks

STREAM_CONTEXT = "headatlas.models.gradients.frozen_float32_stream"


def gradients(lm: ha.LM, tasks: list[str], limit: int) -> Tensor:
    """Return gradients [task, example, layer, head]."""
    return torch.stack([gate_gradients(lm, held_out_questions(lm, task, limit)) for task in load_tasks(lm, tasks)])


def main() -> None:
    parser = make_parser(__doc__, limit=16, device="auto")
    parser.add_argument("model")
    parser.add_argument("--tasks", nargs="+", default=["math", "syntax"])
    options = parser.parse_args()
    exact = gradients(ha.load(options.model, options.device, "float32"), options.tasks, options.limit)
    half = ha.load(options.model, options.device, "bfloat16")
    with patch(STREAM_CONTEXT, lambda lm: nullcontext()):
        candidates = [gradients(half, options.tasks, options.limit)]
    candidates.append(gradients(half, options.tasks, options.limit))
    mean_sizes = exact.abs().mean(-1)  # [task, example, layer]
    errors = [(candidate - exact).abs().mean(-1) / mean_sizes for candidate in candidates]
    heads = [f"{task}, {stream}" for task in options.tasks for stream in ("bfloat16 stream", "float32 stream")]
    print("| layer | " + " | ".join(heads) + " |\n| --- | " + " | ".join("---" for _ in heads) + " |")
    for layer in range(mean_sizes.shape[-1]):
        layer_errors = [error[task, :, layer] for task in range(len(options.tasks)) for error in errors]
        print(f"| {layer} | " + " | ".join(f"{e.median():.0%}, {e.max():.0%}" for e in layer_errors) + " |")


if __name__ == "__main__":
    main()

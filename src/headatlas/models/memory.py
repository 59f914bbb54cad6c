"""The memory that a model needs on a GPU, computed before it is loaded, and the number of tokens that fit as well."""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headatlas.errors import BadArgument, CannotDo, OutOfMemory, one_line
from headatlas.models.library_settings import quiet_transformers

if TYPE_CHECKING:
    from headatlas.models.lm import LM


GIB = 2**30
# activations that autograd stores per token and layer, as a multiple of the outputs of the layer's matrices
STORED_ACTIVATIONS = 1.6
# share of tokens whose logits are computed; each of these logits is held three times, in float32
LOGITS_SHARE = 0.1
# the batch size is not halved below this number of tokens when memory runs out
MIN_TOKENS = 64
# bytes of a GPU that CUDA needs for itself, or that are lost to fragmentation
RESERVED_BYTES = 1.5 * GIB


def skeleton(config: PretrainedConfig, trust_remote_code: bool = False) -> PreTrainedModel:
    """Return a model without weights, on the meta device."""
    with torch.device("meta"), quiet_transformers():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    return model


@dataclass(frozen=True)
class Memory:
    """Bytes that a model needs.

    Args:
        weights: for its weights.
        per_token: for each token that runs at once, without gradients.
        per_token_with_gradients: the same, with gradients.
    """

    weights: int
    per_token: float
    per_token_with_gradients: float

    def max_tokens(self, n_bytes: float) -> int:
        """Return how many tokens with gradients fit into memory in addition to the weights."""
        return int((n_bytes - self.weights) // self.per_token_with_gradients)


def memory(model: nn.Module, layers: int, dtype: torch.dtype) -> Memory:
    """Return the memory that a model, or its skeleton, needs in this precision."""
    weights = sum(p.numel() for p in model.parameters()) * dtype.itemsize
    # all layers are like the first; the first number of a path is the layer, because experts have numbers too
    first_layer = re.compile(r"\D*\.0\.")
    outputs = sum(_output_size(m) for name, m in model.named_modules() if first_layer.match(f"{name}."))
    vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    logits = LOGITS_SHARE * vocabulary * 3 * 4
    per_token = 4 * outputs * dtype.itemsize + logits
    per_token_with_gradients = STORED_ACTIVATIONS * layers * outputs * dtype.itemsize + logits
    return Memory(weights, per_token, per_token_with_gradients)


def _output_size(module: nn.Module) -> int:
    """Return how many numbers a matrix outputs per token; 0 for other modules."""
    return module.out_features if isinstance(module, nn.Linear) else module.nf if isinstance(module, Conv1D) else 0


def check_room(
    name: str, needed: Memory, dtype: torch.dtype, available: float, gpus: int, min_tokens: int = MIN_TOKENS
) -> None:
    """Check that a model and a few tokens fit into GPUs; the error names options with which they would.

    Args:
        needed: the memory that the model needs.
        available: bytes on all of these GPUs together.
        gpus: number of GPUs.
    """
    n_bytes = needed.weights + min_tokens * needed.per_token_with_gradients
    if n_bytes + gpus * RESERVED_BYTES <= available:
        return
    usable_per_gpu = available / gpus - RESERVED_BYTES
    suggestions = [f"--gpus-per-job {math.ceil(n_bytes / usable_per_gpu)}"] if usable_per_gpu > 0 else []
    suggestions += ["--dtype bfloat16"] if dtype.itemsize > 2 else []
    other = (min_tokens * needed.per_token_with_gradients + gpus * RESERVED_BYTES) / GIB
    raise CannotDo(
        f"{name} does not fit: it needs {needed.weights / GIB:.1f} GiB for weights in"
        f" {str(dtype).removeprefix('torch.')} and {other:.1f} GiB for the rest,"
        f" but {gpus} GPU{'s have' if gpus > 1 else ' has'} {available / GIB:.1f} GiB:"
        f" try {', '.join([*suggestions, '--device cpu'])}"
    )


def free_bytes(devices: Iterable[int]) -> float:
    """Return the free memory of these GPUs together, including what torch has reserved and does not use."""
    cuda = torch.cuda
    return float(sum(cuda.mem_get_info(i)[0] + cuda.memory_reserved(i) - cuda.memory_allocated(i) for i in devices))


def max_tokens_on_gpus(lm: "LM") -> int:
    """Return how many tokens fit at once on the model's GPUs.

    Other users of the GPUs do not count, so that all workers of a run get the same number.
    """
    if lm.state.tokens_that_fit is None:
        devices = {p.device for p in lm.model.parameters() if p.device.type == "cuda"}
        usable = sum(torch.cuda.get_device_properties(d).total_memory - RESERVED_BYTES for d in devices)
        lm.state.tokens_that_fit = memory(lm.model, lm.n_layers, lm.model.dtype).max_tokens(usable)
    return lm.state.tokens_that_fit


def tokens_at_once(lm: "LM", tokens: int | None) -> int:
    """Return how many tokens, padding included, run at once; fewer if memory has run out before.

    Args:
        tokens: the user's number, if there is one.
    """
    if tokens is not None and tokens < 1:
        raise BadArgument(f"batch_tokens is {tokens}, expected at least 1")
    if tokens is None and lm.device.type == "cuda":
        tokens = min(good_tokens_on_gpu(lm), max(MIN_TOKENS, max_tokens_on_gpus(lm)))
    elif tokens is None:
        tokens = 2048
    return max(1, tokens // lm.state.batch_divisor)


def good_tokens_on_gpu(lm: "LM") -> int:
    """Return a number of tokens that keeps a GPU busy: more for small models, whose passes would wait for launches."""
    return max(1024, 2**30 // (lm.n_layers * lm.d_model))


@contextmanager
def halve_batch_on_oom(lm: "LM", tokens: int) -> Iterator[None]:
    """Halve the model's number of tokens at once if memory runs out in the block, and raise `OutOfMemory`.

    Args:
        tokens: number of tokens that run at once in the block.

    Raises:
        CannotDo: memory runs out with a number that is too small to be halved.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as e:
        if not isinstance(e, torch.OutOfMemoryError) and "can't allocate memory" not in str(e):
            raise
        if tokens <= MIN_TOKENS:
            raise CannotDo(f"out of memory, even with batch_tokens={tokens}: {one_line(e)}") from e
        lm.state.batch_divisor *= 2
        raise OutOfMemory(f"out of memory with batch_tokens={tokens}: retrying with batch_tokens={tokens // 2}") from e

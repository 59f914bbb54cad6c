"""How much memory a model needs on a GPU, computed before it is loaded, and how many tokens fit in addition to it."""

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
KEPT = 1.6  # what autograd keeps of a token, in sizes of what a layer's matrices give
TARGETS = 0.1  # share of tokens whose logits are made; each is held three times, in float32
FEWEST = 64  # tokens at once that are tried when memory runs out
SPARE = 1.5 * GIB  # CUDA's own, and what fragments


def skeleton(config: PretrainedConfig, trust_remote_code: bool = False) -> PreTrainedModel:
    """A model without weights."""
    with torch.device("meta"), quiet_transformers():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    return model


@dataclass(frozen=True)
class Memory:
    """Bytes that a model needs: its weights, and each token that is run at once, without and with gradients."""

    weights: int
    a_token: float
    a_learned: float

    def largest(self, room: float) -> int:
        """How many tokens fit beside the weights, with gradients."""
        return int((room - self.weights) // self.a_learned)


def memory(model: nn.Module, layers: int, dtype: torch.dtype) -> Memory:
    """What a model, or its skeleton, needs in this precision."""
    weights = sum(p.numel() for p in model.parameters()) * dtype.itemsize
    first_layer = re.compile(r"\D*\.0\.")  # the first number of a path: experts have numbers too
    outputs = sum(_width(m) for name, m in model.named_modules() if first_layer.match(f"{name}."))
    vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
    logits = TARGETS * vocabulary * 3 * 4
    return Memory(weights, 4 * outputs * dtype.itemsize + logits, KEPT * layers * outputs * dtype.itemsize + logits)


def _width(module: nn.Module) -> int:
    """How many numbers a matrix gives for a token; 0 for what is no matrix."""
    return module.out_features if isinstance(module, nn.Linear) else module.nf if isinstance(module, Conv1D) else 0


def check_room(name: str, needs: Memory, dtype: torch.dtype, room: float, gpus: int, least: int = 64) -> None:
    """Check that a model and a few tokens fit into GPUs with so much room together; the error says what would fit."""
    want = needs.weights + least * needs.a_learned
    if want + gpus * SPARE <= room:
        return
    each = room / gpus - SPARE
    tries = [f"--gpus-per-job {math.ceil(want / each)}"] if each > 0 else []
    tries += ["--dtype bfloat16"] if dtype.itemsize > 2 else []
    beside = (least * needs.a_learned + gpus * SPARE) / GIB
    raise CannotDo(
        f"{name} does not fit: {needs.weights / GIB:.1f} GiB of weights in {str(dtype).removeprefix('torch.')} and"
        f" {beside:.1f} GiB beside them, but {gpus} GPU{'s have' if gpus > 1 else ' has'}"
        f" {room / GIB:.1f} GiB: try {', '.join([*tries, '--device cpu'])}"
    )


def free_room(devices: Iterable[int]) -> float:
    """Bytes that are free on these GPUs, with what torch has reserved and does not use."""
    cuda = torch.cuda
    return float(sum(cuda.mem_get_info(i)[0] + cuda.memory_reserved(i) - cuda.memory_allocated(i) for i in devices))


def fitting(lm: "LM") -> int:
    """How many tokens fit at once beside a model on its GPUs, were these otherwise empty: the same for all workers."""
    if lm.state.tokens_that_fit is None:
        devices = {p.device for p in lm.model.parameters() if p.device.type == "cuda"}
        room = sum(torch.cuda.get_device_properties(d).total_memory - SPARE for d in devices)
        lm.state.tokens_that_fit = memory(lm.model, lm.n_layers, lm.model.dtype).largest(room)
    return lm.state.tokens_that_fit


def tokens_at_once(lm: "LM", tokens: int | None) -> int:
    """How many tokens, padding included, go through the model at once: the user's number, or a good one; fewer where
    memory has run out before."""
    if tokens is not None and tokens < 1:
        raise BadArgument(f"batch_tokens is {tokens}, expected at least 1")
    if tokens is None and lm.device.type == "cuda":
        tokens = min(good_on_gpu(lm), max(FEWEST, fitting(lm)))
    elif tokens is None:
        tokens = 2048
    return max(1, tokens // lm.state.batch_divisor)


def good_on_gpu(lm: "LM") -> int:
    """Many tokens for small models: small passes would wait for launches."""
    return max(1024, 2**30 // (lm.n_layers * lm.d_model))


@contextmanager
def halve_batch_on_oom(lm: "LM", tokens: int) -> Iterator[None]:
    """Running out of memory as one line; from then on, the model gets half as many tokens at once."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as e:
        if not isinstance(e, torch.OutOfMemoryError) and "can't allocate memory" not in str(e):
            raise
        if tokens <= FEWEST:
            raise CannotDo(f"out of memory, even with batch_tokens={tokens}: {one_line(e)}") from e
        lm.state.batch_divisor *= 2
        raise OutOfMemory(f"out of memory with batch_tokens={tokens}: going on with batch_tokens={tokens // 2}") from e

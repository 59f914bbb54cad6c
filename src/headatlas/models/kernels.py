"""Which of PyTorch's attention kernels models are run with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Other kernels than cuDNN's. Its gradients are NaN for masked rows of 64 more than a multiple of 128 tokens where
    a head's scores are all far below zero, as in Qwen2.5 (pytorch issue 196678); and they are not the same twice. It
    also prepares for every length of a text that is new, which takes longer than running it."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)

"""Settings of PyTorch and transformers that hold while a block runs."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from threading import Lock

import torch
from transformers.utils import logging as transformers_logging


def process_wide(setting: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
    """Let a setting of the whole process hold as long as a block of any thread needs it, and restore it then."""
    lock, applied, users = Lock(), ExitStack(), 0

    @wraps(setting)
    @contextmanager
    def shared() -> Iterator[None]:
        nonlocal users
        with lock:
            if not users:
                applied.enter_context(setting())
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if not users:
                    applied.close()

    return shared


@process_wide
@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars, load reports or warnings from transformers, its hub client and accelerate inside the block."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    others = {logger: logger.level for logger in map(logging.getLogger, ("huggingface_hub", "accelerate"))}
    for logger in others:
        logger.setLevel(logging.ERROR)
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, before in others.items():
            logger.setLevel(before)
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


@process_wide
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

"""Context managers for settings of PyTorch and transformers."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from threading import Lock

import torch
from transformers.utils import logging as transformers_logging


def process_wide(setting: Callable[[], AbstractContextManager[None]]) -> Callable[[], AbstractContextManager[None]]:
    """Share a setting of the whole process between threads: it holds until the last block that uses it ends."""
    lock = Lock()
    applied = ExitStack()
    users = 0

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
    """Silence progress bars, load reports and warnings of transformers, its hub client and accelerate in the block."""
    level = transformers_logging.get_verbosity()
    has_bars = transformers_logging.is_progress_bar_enabled()
    other_levels = {logger: logger.level for logger in map(logging.getLogger, ("huggingface_hub", "accelerate"))}
    for logger in other_levels:
        logger.setLevel(logging.ERROR)
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, other_level in other_levels.items():
            logger.setLevel(other_level)
        transformers_logging.set_verbosity(level)
        if has_bars:
            transformers_logging.enable_progress_bar()


@process_wide
@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Use other attention kernels than cuDNN's in the block.

    - Its gradients are NaN for masked rows whose length is 64 more than a multiple of 128 tokens, if all scores of a
      head are far below zero, as in Qwen2.5 (pytorch issue 196678).
    - Its gradients differ between equal runs.
    - For every new length of a text it takes more time to prepare than to run.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)

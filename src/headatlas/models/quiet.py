"""Keep a library's messages off the terminal while we handle what it reports ourselves."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging


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

"""The models that tests share."""

from pathlib import Path

import filelock
import pytest

from headatlas.models.cache import cache_folder
from headatlas.models.lm import LM
from headatlas.models.loading import load
from tests.models.tiny import TINY, build, tokenizer


@pytest.fixture(scope="session")
def default_lm() -> LM:
    """The one that `make atlas` and the README use."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(cache_folder() / ".test-lock"):  # fetch and dequantise once, not once per process
        return load("smollm2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model on disk, with its tokenizer."""
    build(TINY[0]).save_pretrained(tmp_path / "tiny")
    tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"

"""Where fetched and converted models are kept. A folder in the cache is complete: it is built aside, then renamed."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from headatlas.errors import CannotDo
from headatlas.files import is_disk_full, sha256

VERSION = "v2"  # of converted models; their folders' names end in it, and folders of another version are not used
_STALE = 24 * 3600  # seconds after which a half-built folder must be from a process that was killed


def cache_folder() -> Path:
    """$HEADATLAS_CACHE, else the user's cache folder."""
    chosen = os.environ.get("HEADATLAS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headatlas"


def converted(gguf: Path) -> Path:
    """The folder in which the model of a GGUF file is kept, once it is converted."""
    return cache_folder() / "models" / f"{gguf.stem}-{sha256(gguf)[:16]}-{VERSION}"


def cached_models() -> list[Path]:
    """Folders of converted models, ready to load."""
    return sorted(
        p.parent for p in (cache_folder() / "models").glob("*/config.json") if not p.parent.name.startswith(".")
    )


@contextmanager
def built_aside(target: Path) -> Iterator[Path]:
    """A folder to build in, renamed to `target` when the block ends well and removed when it does not."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(".partial-*"):
            if time.time() - left.stat().st_mtime > _STALE:
                shutil.rmtree(left, ignore_errors=True)
        aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    except OSError as e:
        raise CannotDo(
            f"cannot write to the cache folder {target.parent}: {e.strerror}; choose another with HEADATLAS_CACHE"
        ) from e
    try:
        yield aside
        try:
            aside.rename(target)
        except OSError:
            if not target.is_dir():  # another process may have built the same thing first
                raise
    except (OSError, SafetensorError) as e:
        if is_disk_full(e):
            raise CannotDo(
                f"no space left in the cache folder {target.parent}; free some, or choose another with HEADATLAS_CACHE"
            ) from e
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)

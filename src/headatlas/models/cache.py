"""The cache of downloaded and converted models. Every folder in it is complete: it is built aside, then renamed."""

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

# Version of the conversion from GGUF. Folders' names end in it, and folders of another version are not used.
VERSION = "v2"
# A half-built folder that is older must be from a process that was killed.
_MAX_BUILD_SECONDS = 24 * 3600


def cache_folder() -> Path:
    """Return $HEADATLAS_CACHE, or else headatlas/ in the user's cache folder."""
    override = os.environ.get("HEADATLAS_CACHE")
    if override:
        return Path(override).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headatlas"


def converted_folder(gguf: Path) -> Path:
    """Return the folder for the converted model of a GGUF file, whether or not it exists yet."""
    return cache_folder() / "models" / f"{gguf.stem}-{sha256(gguf)[:16]}-{VERSION}"


def cached_models() -> list[Path]:
    """Return the folders of converted models, ready to load."""
    return sorted(
        p.parent for p in (cache_folder() / "models").glob("*/config.json") if not p.parent.name.startswith(".")
    )


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield a folder to build in. It is renamed to `target` at the end of the block, or removed after an error."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for partial in target.parent.glob(".partial-*"):
            if time.time() - partial.stat().st_mtime > _MAX_BUILD_SECONDS:
                shutil.rmtree(partial, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=".partial-", dir=target.parent))
    except OSError as e:
        raise CannotDo(
            f"cannot write to the cache folder {target.parent}: {e.strerror}; choose another with HEADATLAS_CACHE"
        ) from e
    try:
        yield temporary
        try:
            temporary.rename(target)
        except OSError:
            # another process may have built the same folder first, which is just as good
            if not target.is_dir():
                raise
    except (OSError, SafetensorError) as e:
        if is_disk_full(e):
            raise CannotDo(
                f"no space left in the cache folder {target.parent}; free some, or choose another with HEADATLAS_CACHE"
            ) from e
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

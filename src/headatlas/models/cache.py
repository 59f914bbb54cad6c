"""Where fetched and converted models are kept. What is there is whole: everything is built aside and renamed into place."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headatlas.errors import CannotDo


def cache_folder() -> Path:
    """$HEADATLAS_CACHE, else the user's cache folder."""
    chosen = os.environ.get("HEADATLAS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headatlas"


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
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise CannotDo(
                f"no space left in the cache folder {target.parent}; free some, or choose another with HEADATLAS_CACHE"
            ) from e
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def sampled_hash(path: Path, pieces: int = 64, size: int = 65536) -> str:
    """A hash of a file's length and of evenly spaced pieces of it: cheap for tens of gigabytes."""
    length = path.stat().st_size
    digest = hashlib.sha256(str(length).encode())
    with path.open("rb") as f:
        for i in range(pieces):
            f.seek(max(length - size, 0) * i // max(pieces - 1, 1))
            digest.update(f.read(size))
    return digest.hexdigest()[:16]

"""Write files so that a file that exists is complete: under a temporary name first, which is then renamed."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from headatlas.errors import BadArgument, BadFile, CannotDo, one_line

# Ends the temporary name of a file that is being written.
_PART_SUFFIX = ".headatlas-part"
# Errors of a full disk, a quota and a file that is too large for the file system.
_DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path in the same folder; rename it to `path` after the block, or remove it on an error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_PART_SUFFIX, dir=path.parent)
        os.close(handle)
    except OSError as e:
        raise CannotDo(f"cannot write {path}: {e.strerror}") from e
    temporary = Path(name)
    try:
        yield temporary
        # `mkstemp` makes files that only their owner can read.
        temporary.chmod(0o666 & ~umask())
        temporary.replace(path)
    except OSError as e:
        raise CannotDo(f"cannot write {path}: {e.strerror}") from e
    finally:
        temporary.unlink(missing_ok=True)


def umask() -> int:
    """Return the permission bits that new files must not have."""
    # The system has no call that reads the mask without setting it.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_folder(out: str | Path | None) -> None:
    """Check, before any work is done, that results can be written to a folder."""
    if out is None:
        return
    path = Path(out)
    if path.exists() and not path.is_dir():
        raise BadArgument(f"out is {str(out)!r}, which is a file: give a folder")
    nearest = next((p for p in (path, *path.absolute().parents) if p.exists()), path)
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        reason = "is not writable" if nearest.is_dir() else "is a file"
        raise CannotDo(f"cannot make the folder {out}: {nearest} {reason}")


def check_new(out: str | Path, kind: str = "folder") -> Path:
    """Return a path, and check that nothing exists there yet."""
    path = Path(out)
    if path.exists() or path.is_symlink():
        raise BadArgument(f"out is {str(out)!r}, which exists: give a new {kind}")
    return path


@contextmanager
def new_path(out: Path, kind: str = "file") -> Iterator[Path]:
    """Give a temporary path for a new file or folder; rename it to `out` after the block, or remove it on an error."""
    missing = [p for p in out.parents if not p.exists()]
    temporary: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=_PART_SUFFIX, dir=out.parent))
        yield temporary / out.name
        # It may have been made by somebody else during the block.
        check_new(out, kind)
        (temporary / out.name).rename(out)
        missing = []
    except OSError as e:
        if is_disk_full(e):
            raise CannotDo(f"no space left for {out}: nothing was written") from e
        raise CannotDo(f"cannot write {out}: {e.strerror or one_line(e)}") from e
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        _remove_empty(missing)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; rename it to `out` after the block, or remove it on an error."""
    with new_path(out, "folder") as temporary:
        temporary.mkdir()
        yield temporary


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and lock it against other processes while results are written to it.

    Half-written files of killed processes are removed first. A folder that stays empty is removed afterwards.
    """
    check_folder(folder)
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The system releases the lock however the process ends.
        lock = FileLock(path, timeout=0, is_singleton=True)
        with lock:
            outermost = lock.lock_counter == 1
            if outermost:
                # Results, figures, and the parts of interrupted work.
                for subfolder in ("", "figures/", ".*/"):
                    for leftover in folder.glob(f"{subfolder}.*{_PART_SUFFIX}"):
                        leftover.unlink(missing_ok=True)
            try:
                yield
            finally:
                if outermost:
                    # Windows does not delete files that are open.
                    with suppress(OSError):
                        path.unlink()
    except Timeout as e:
        raise CannotDo(f"another headatlas process is writing to {folder}: wait for it, or give another folder") from e
    except OSError as e:
        raise CannotDo(f"cannot write to {folder}: {e.strerror}") from e
    finally:
        _remove_empty(missing)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty; give the innermost first."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def is_disk_full(error: Exception) -> bool:
    """Return whether an error means that the disk, or a quota, is full."""
    # Libraries written in Rust give the code only in their message.
    in_message = any(f"(os error {code})" in str(error) for code in _DISK_FULL_CODES)
    return in_message or getattr(error, "errno", None) in _DISK_FULL_CODES


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as hexadecimal digits."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as indented JSON, complete or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    with atomic_file(path) as temporary:
        # Lone surrogates have no UTF-8; this writes them as JSON escapes.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise BadFile(f"cannot read {path}: {e.strerror}") from e
    except ValueError as e:
        raise BadFile(f"{path} is not JSON: {one_line(e)}") from e
    if not isinstance(content, dict):
        raise BadFile(f"{path} holds a JSON {type(content).__name__}, expected an object")
    return content

"""Files that are complete if they exist: written under a temporary name, then renamed."""

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

_UNFINISHED = ".headatlas-part"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well and removed when it does not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_UNFINISHED, dir=path.parent)
        os.close(handle)
    except OSError as e:
        raise CannotDo(f"cannot write {path}: {e.strerror}") from e
    aside = Path(name)
    try:
        yield aside
        aside.chmod(0o666 & ~umask())
        aside.replace(path)
    except OSError as e:
        raise CannotDo(f"cannot write {path}: {e.strerror}") from e
    finally:
        aside.unlink(missing_ok=True)


def umask() -> int:
    """The permissions that new files are not to have."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_folder(out: str | Path | None) -> None:
    """Check that results can be written to a folder, so that no work is done that could not be kept."""
    if out is None:
        return
    path = Path(out)
    if path.exists() and not path.is_dir():
        raise BadArgument(f"out is {str(out)!r}, which is a file: give a folder")
    first = next((p for p in (path, *path.absolute().parents) if p.exists()), path)
    if not first.is_dir() or not os.access(first, os.W_OK):
        reason = "cannot be written to" if first.is_dir() else "is a file"
        raise CannotDo(f"cannot make the folder {out}: {first} {reason}")


def check_new(out: str | Path, kind: str = "folder") -> Path:
    """That a folder, or a file, is not there yet."""
    path = Path(out)
    if path.exists() or path.is_symlink():
        raise BadArgument(f"out is {str(out)!r}, which exists: give a new {kind}")
    return path


@contextmanager
def new_path(out: Path, kind: str = "file") -> Iterator[Path]:
    """A path to write a file or folder at, renamed to `out` when the block ends well and removed when it does not."""
    missing = [p for p in out.parents if not p.exists()]
    aside = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=_UNFINISHED, dir=out.parent))
        yield aside / out.name
        check_new(out, kind)
        (aside / out.name).rename(out)
        missing = []
    except OSError as e:
        if is_disk_full(e):
            raise CannotDo(f"no space left for {out}: nothing was written") from e
        raise CannotDo(f"cannot write {out}: {e.strerror or one_line(e)}") from e
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
        _remove_empty(missing)


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder to write in, renamed to `out` when the block ends well and removed when it does not."""
    with new_path(out, "folder") as place:
        place.mkdir()
        yield place


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and hold it for this process while it writes results.

    Half-written files of killed processes are removed, and a new folder in which nothing was written.
    """
    check_folder(folder)
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, timeout=0, is_singleton=True)  # the system releases it however a process ends
        with lock:
            outermost = lock.lock_counter == 1
            if outermost:
                for place in ("", "figures/", ".*/"):  # results, figures, parts of interrupted work
                    for left in folder.glob(f"{place}.*{_UNFINISHED}"):
                        left.unlink(missing_ok=True)
            try:
                yield
            finally:
                if outermost:
                    with suppress(OSError):  # Windows keeps files that are open
                        path.unlink()
    except Timeout as e:
        raise CannotDo(f"another headatlas is at work in {folder}: wait for it, or give another folder") from e
    except OSError as e:
        raise CannotDo(f"cannot write to {folder}: {e.strerror}") from e
    finally:
        _remove_empty(missing)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders that are empty, the innermost first."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def is_disk_full(error: Exception) -> bool:
    """Whether an error is that of a full disk, or of a quota."""
    return getattr(error, "errno", None) in _FULL or any(f"(os error {code})" in str(error) for code in _FULL)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_file(path) as aside:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        aside.write_text(text, encoding="utf-8", errors="backslashreplace")  # lone surrogates, as JSON escapes them


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise BadFile(f"cannot read {path}: {e.strerror}") from e
    except ValueError as e:
        raise BadFile(f"{path} is not JSON: {one_line(e)}") from e
    if not isinstance(content, dict):
        raise BadFile(f"{path} holds a JSON {type(content).__name__}, expected an object")
    return content

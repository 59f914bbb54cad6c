"""List supported families and the models on this machine, and delete cached models, for `headatlas models`."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from headatlas.errors import BadArgument, CannotDo, did_you_mean, one_line
from headatlas.models.cache import VERSION, cached_models
from headatlas.models.default_model import DEFAULT_MODEL, gguf_path
from headatlas.models.families import FAMILIES

HUB = "Hugging Face cache"


def list_families() -> list[dict[str, Any]]:
    """Return the supported model families, a row each."""
    return [{"family": family.title, "model_type": name} for name, family in FAMILIES.items()]


def list_models() -> list[dict[str, Any]]:
    """Return the models in HeadAtlas's cache and in the Hugging Face cache, by the names that `load` takes."""
    rows = [_row(folder.name, folder, _note(folder)) for folder in cached_models()]
    if gguf_path().parent.is_dir():
        rows.append(_row(DEFAULT_MODEL, gguf_path().parent, "as fetched"))
    hub = sorted(_hub(), key=lambda r: r.repo_id)
    return rows + [_row(r.repo_id, r.repo_path, HUB, r.size_on_disk) for r in hub]


def delete_cached(name: str) -> list[dict[str, Any]]:
    """Delete a model from HeadAtlas's cache, and return the deleted rows.

    Args:
        name: a name in the list, or the name of a .gguf file, whose converted models are deleted in all versions. For
            the default model, the downloaded file is deleted too.
    """
    rows = [row for row in list_models() if row["note"] != HUB]
    matches = [row for row in rows if name == row["model"]] or [row for row in rows if name == _stem(row["model"])]
    if name == DEFAULT_MODEL:
        files = {p.stem for p in gguf_path().parent.glob("*.gguf")}
        matches += [row for row in rows if _stem(row["model"]) in files]
    if not matches and name in {r.repo_id for r in _hub()}:
        raise BadArgument(f"model {name!r} is in the Hugging Face cache: delete it there (hf cache rm model/{name})")
    if not matches:
        names = [row["model"] for row in rows]
        raise BadArgument(
            f"model {name!r} is not in the cache; it holds: {', '.join(names) or 'none'}.{did_you_mean(name, names)}"
        )
    for row in matches:
        folder = Path(row["folder"])
        try:
            temporary = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
            # renamed first, because every folder in the cache must be complete
            folder.rename(temporary / folder.name)
            shutil.rmtree(temporary)
        except OSError as e:
            raise CannotDo(f"cannot delete {folder}: {one_line(e)}") from e
    return matches


def _row(name: str, folder: Path, note: str, size: int | None = None) -> dict[str, Any]:
    size = sum(f.stat().st_size for f in folder.iterdir()) if size is None else size
    return {"model": name, "size_mb": size // 10**6, "folder": str(folder), "note": note}


def _note(folder: Path) -> str:
    """Return whether a folder was converted from a GGUF file, and whether it is still used."""
    if folder.name.endswith(f"-{VERSION}"):
        return "converted"
    return "of another version: not used" if _stem(folder.name) != folder.name else ""


def _stem(name: str) -> str:
    """Return the name of the .gguf file that a folder was converted from."""
    return re.sub(r"-[0-9a-f]{16}(-v\d+)?$", "", name)


def _hub() -> list[Any]:
    try:
        return [repo for repo in scan_cache_dir().repos if repo.repo_type == "model"]
    except CacheNotFound:
        return []

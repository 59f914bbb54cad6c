"""What `headatlas models` lists and deletes: supported families, and models already on this machine."""

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


def supported() -> list[dict[str, Any]]:
    return [{"family": family.title, "model_type": name} for name, family in FAMILIES.items()]


def cached() -> list[dict[str, Any]]:
    """Models that HeadAtlas has converted or fetched, and those in the Hugging Face cache, by the name `load` takes."""
    rows = [_row(folder.name, folder, _note(folder)) for folder in cached_models()]
    if gguf_path().parent.is_dir():
        rows.append(_row(DEFAULT_MODEL, gguf_path().parent, "as fetched"))
    hub = sorted(_hub(), key=lambda r: r.repo_id)
    return rows + [_row(r.repo_id, r.repo_path, HUB, r.size_on_disk) for r in hub]


def delete_cached(name: str) -> list[dict[str, Any]]:
    """Delete a model from HeadAtlas's cache, by its name in the list or by the name of its .gguf file, in all versions.

    Of the default model, what was fetched is deleted too. Returns the rows that are gone.
    """
    rows = [row for row in cached() if row["note"] != HUB]
    chosen = [row for row in rows if name == row["model"]] or [row for row in rows if name == _stem(row["model"])]
    if name == DEFAULT_MODEL:
        files = {p.stem for p in gguf_path().parent.glob("*.gguf")}
        chosen += [row for row in rows if _stem(row["model"]) in files]
    if not chosen and name in {r.repo_id for r in _hub()}:
        raise BadArgument(f"model {name!r} is in the Hugging Face cache: delete it there (hf cache rm model/{name})")
    if not chosen:
        names = [row["model"] for row in rows]
        raise BadArgument(
            f"model {name!r} is not in the cache; there are: {', '.join(names) or 'none'}.{did_you_mean(name, names)}"
        )
    for row in chosen:
        folder = Path(row["folder"])
        try:
            aside = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
            folder.rename(aside / folder.name)  # at once: what is in the cache is complete
            shutil.rmtree(aside)
        except OSError as e:
            raise CannotDo(f"cannot delete {folder}: {one_line(e)}") from e
    return chosen


def _row(name: str, folder: Path, note: str, size: int | None = None) -> dict[str, Any]:
    size = sum(f.stat().st_size for f in folder.iterdir()) if size is None else size
    return {"model": name, "size_mb": size // 10**6, "folder": str(folder), "note": note}


def _note(folder: Path) -> str:
    """Whether a folder is one that a GGUF file was converted to, and still used."""
    if folder.name.endswith(f"-{VERSION}"):
        return "converted"
    return "of another version: not used" if _stem(folder.name) != folder.name else ""


def _stem(name: str) -> str:
    """The name of the .gguf file that a folder was made of."""
    return re.sub(r"-[0-9a-f]{16}(-v\d+)?$", "", name)


def _hub() -> list[Any]:
    try:
        return [repo for repo in scan_cache_dir().repos if repo.repo_type == "model"]
    except CacheNotFound:
        return []

"""What `headatlas models` lists: supported families, and models already on this machine."""

from typing import Any

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from headatlas.models.cache import cached_models
from headatlas.models.families import FAMILIES


def supported() -> list[dict[str, Any]]:
    return [{"family": family.title, "model_type": name} for name, family in FAMILIES.items()]


def cached() -> list[dict[str, Any]]:
    """Models converted by HeadAtlas and models in the Hugging Face cache, by the name `load` takes."""
    rows = [
        {
            "model": folder.name,
            "size_mb": sum(f.stat().st_size for f in folder.iterdir()) // 10**6,
            "folder": str(folder),
        }
        for folder in cached_models()
    ]
    try:
        hub = [repo for repo in scan_cache_dir().repos if repo.repo_type == "model"]
    except CacheNotFound:
        hub = []
    return rows + [
        {"model": r.repo_id, "size_mb": r.size_on_disk // 10**6, "folder": str(r.repo_path)}
        for r in sorted(hub, key=lambda r: r.repo_id)
    ]

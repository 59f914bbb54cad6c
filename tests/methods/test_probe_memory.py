"""Reading answers for the probe takes no more memory for more questions."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "probe.py"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_examples() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "memory"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    features = [int(n) for n in re.findall(r"(\d+) MB of features", done.stdout)]
    grown = int(re.search(r"growth .*: (-?\d+) MB", done.stdout)[1])
    assert features[2] - features[1] > 100
    assert grown < 0.3 * (features[2] - features[1]), done.stdout

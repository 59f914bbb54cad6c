"""maps of a checkpoint on disk does not hold the checkpoint in memory."""

import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(("input", "shape"), [("published", "small"), ("stream", "small-blocks")])
def test_memory_stays_far_below_the_checkpoint(tmp_path, monkeypatch, capsys, input, shape) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import maps_from_disk  # it writes the checkpoint here, and measures in a separate process

    command = ["maps_from_disk.py", "--input", input, "--shape", shape, "--folder", str(tmp_path / "checkpoint")]
    monkeypatch.setattr(sys, "argv", [*command, "--pairs", "8"])
    maps_from_disk.main()
    out = capsys.readouterr().out
    size, before, peak = (int(n) for n in re.findall(r"(\d+) MB", out))
    assert size > 600
    assert peak - before < 0.6 * size, out  # the embeddings, block 0 and one layer, and the imports that come with them

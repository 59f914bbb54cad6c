"""What a run would take, told beforehand."""

import pytest
import torch

import headatlas as ha
from headatlas.errors import CannotDo
from headatlas.methods.method import Part, Work
from headatlas.models.cost import Cost
from headatlas.models.loading import load_skeleton
from headatlas.runs.estimate import estimate, makespan
from headatlas.runs.plan import Plan
from tests.models.test_cost import LLAMA, MACHINE


def plan(*parts: tuple[float, tuple[str, ...]], rest: float) -> Plan:
    parts = [
        Part(name=f"p{i}", do=lambda *a: None, inputs=needs, cost=lambda model, s=seconds: Cost(seconds=s))
        for i, (seconds, needs) in enumerate(parts)
    ]
    work = Work(summary="", combine=lambda *a: None, parts=parts, cost=lambda model: Cost(seconds=rest))
    return Plan("job", work, {})


@pytest.mark.parametrize(("workers", "seconds"), [(1, 11), (2, 7), (9, 6)])
def test_the_end_depends_on_workers_and_on_what_waits_for_what(workers, seconds) -> None:
    plans = {"a": plan((1, ()), (3, ("p0",)), (3, ("p0",)), rest=2), "b": plan(rest=2), "c": CannotDo("no")}
    assert makespan(plans, {"a": [1, 3, 3, 2], "b": [2], "c": "no"}, workers) == seconds


def test_an_estimate_needs_no_weights(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "large"
    LLAMA.save_pretrained(folder)
    ha.load("smollm2").tokenizer.save_pretrained(folder)
    lm, dtype = load_skeleton(folder, "bfloat16", "cpu")
    assert lm.model.device.type == "meta"
    expected = estimate(folder, workers=8, device="cpu", dtype="bfloat16", machine=MACHINE, preset="full")
    assert dtype == torch.bfloat16
    assert len(expected.jobs["maps"]) == 1 + 1  # one pass through all layers, the scores
    assert len(expected.jobs["gate"]) == 10 + 5 + 1  # ten seeds: one by one; by two, of a task with shorter prompts
    assert all(min(each) >= 0 < sum(each) for each in expected.jobs.values())
    assert expected.work / 8 < expected.seconds < expected.work

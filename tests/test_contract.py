"""The contract: one set of checks, run over every method. A new method is added to METHODS and must pass them all."""

import json
import pickle
from collections.abc import Callable
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas.errors import CannotDo
from headatlas.results.charts import MEASURES
from headatlas.results.store import load
from headatlas.models.lm import LM
from headatlas.runs.plan import PLANS
from headatlas.runs.execute import Hand, Planned
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.relations import Relation
from tests.models.tiny import TINY, build, tokenizer
from tests.test_probe_public import questions

BY_ID = {t.id: t for t in TINY}


def words(generator: np.random.Generator, n: int) -> str:
    return " ".join(f"w{i}" for i in generator.integers(57, size=n))


def task(name: str, seed: int) -> Task:
    """Prompts of many lengths, so that batches are padded or packed."""
    generator = np.random.default_rng(seed)
    examples = tuple(Example(words(generator, 3 + i % 7), f" {words(generator, 1 + i % 2)}") for i in range(24))
    return Task(name, examples[:12], examples[12:])


TASKS = [task("first", 0), task("second", 1)]
ORDER = np.random.default_rng(2).permutation(57)
RELATIONS = [
    Relation("next", "Algorithmic", tuple((f"w{i}", f"w{(i + 1) % 57}") for i in range(57))),
    Relation("shuffled", "Knowledge", tuple((f"w{i}", f"w{ORDER[i]}") for i in range(40))),
]

METHODS: dict[str, Callable[..., xr.Dataset]] = {
    "maps": lambda lm, **o: ha.maps(lm, RELATIONS, **o),
    "salient": lambda lm, **o: ha.salient(lm, **o),
    "pattern": lambda lm, **o: ha.pattern(lm, sequences=3, **o),
    "taylor": lambda lm, **o: ha.taylor(lm, TASKS, examples=8, **o),
    "ig": lambda lm, **o: ha.ig(lm, TASKS, examples=8, steps=3, **o),
    "ablate": lambda lm, **o: ha.ablate(lm, TASKS, examples=8, **o),
    "gate": lambda lm, **o: ha.gate(lm, TASKS, seeds=2, updates=3, **o),
    "probe": lambda lm, **o: ha.probe(lm, questions(20), **o),
    "dissociate": lambda lm, **o: ha.dissociate(lm, TASKS, seeds=2, updates=4, **o),
}
SUBJECTS = {
    "maps": ["next", "shuffled"],
    **{name: ["first", "second"] for name in ("taylor", "ig", "ablate", "gate", "dissociate")},
}
AT_ONCE = ("pattern",)  # those that are done in one step
IN_BATCHES = (
    "taylor",
    "ig",
    "ablate",
    "gate",
    "probe",
    "dissociate",
)  # those that take `tokens`, how many are run at once


def model(family: str = "llama") -> LM:
    return LM(build(BY_ID[family]).float(), tokenizer(), family)


@pytest.fixture(scope="module")
def lm() -> LM:
    return model()


@pytest.fixture(scope="module")
def results(lm) -> dict[str, xr.Dataset]:
    return {name: call(lm) for name, call in METHODS.items()}


def test_every_method_is_here() -> None:
    assert set(METHODS) == set(PLANS)


def head_maps(found: xr.Dataset) -> dict[str, xr.DataArray]:
    return {str(n): v for n, v in found.data_vars.items() if {"layer", "head"} <= set(v.dims)}


def same(a: xr.Dataset, b: xr.Dataset) -> None:
    plain = (xr.Dataset(x.data_vars, x.coords) for x in (a, b))  # users get a subclass, files do not
    xr.testing.assert_identical(*plain)


@pytest.mark.parametrize("name", METHODS)
class TestContract:
    def test_shapes_and_labels(self, name, lm, results) -> None:
        found = results[name]
        assert head_maps(found)
        assert found.layer.values.tolist() == list(range(lm.n_layers))
        assert found["head"].values.tolist() == list(range(lm.n_heads))
        for measure, dim in MEASURES.get(name, ()):
            assert {dim, "layer", "head"} <= set(found[measure].dims)
            labels = found[dim].values.tolist()
            assert len(set(labels)) == len(labels) > 0
            assert all(isinstance(label, str) for label in labels)
            assert labels == SUBJECTS.get(name, labels)
            assert np.isfinite(found[measure]).all()

    def test_the_same_twice(self, name, lm, results) -> None:
        torch.manual_seed(7)  # whatever the caller did with the global generators
        np.random.seed(7)
        same(METHODS[name](lm), results[name])

    def test_the_callers_generators_are_left_alone(self, name, lm) -> None:
        torch.manual_seed(11)
        expected = torch.rand(1)
        torch.manual_seed(11)
        METHODS[name](lm)
        assert torch.equal(torch.rand(1), expected)

    def test_the_model_is_left_alone(self, name) -> None:
        own = model()
        before = {n: p.clone() for n, p in own.model.named_parameters()}
        METHODS[name](own)
        assert all(torch.equal(p, before[n]) for n, p in own.model.named_parameters())
        hooks = [h for m in own.model.modules() for h in (*m._forward_pre_hooks.values(), *m._forward_hooks.values())]
        assert [h for h in hooks if h.__module__.startswith("headatlas")] == []  # transformers leaves some of its own
        assert not own.model.training

    def test_provenance(self, name, lm, results, tmp_path) -> None:
        said = results[name].attrs
        assert said["method"] == name
        assert said["model"] == lm.name
        assert said["fingerprint"] == lm.fingerprint()
        for part in ("data", "key", "headatlas", "torch", "transformers", "setup", "n_kv_heads"):
            assert part in said, part
        json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in said.items()})

    def test_written_it_reads_back_and_is_not_done_again(self, name, lm, results, tmp_path, monkeypatch) -> None:
        METHODS[name](lm, out=tmp_path)
        same(load(tmp_path / f"{name}.nc"), results[name])
        assert [p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")] == [f"{name}.nc"]
        monkeypatch.setattr("headatlas.runs.job.save", lambda *a: pytest.fail("computed again"))
        same(METHODS[name](lm, out=tmp_path), results[name])

    def test_interrupted_anywhere_it_goes_on_to_the_same(self, name, lm, results, tmp_path) -> None:
        for stop_at in (1, 4):
            folder = tmp_path / str(stop_at)
            left = [stop_at]

            def stops(items, label, left=left):
                for item in items:
                    left[0] -= 1
                    if left[0] == 0:
                        raise KeyboardInterrupt
                    yield item

            try:
                METHODS[name](lm, out=folder, progress=stops)
                assert stop_at > 1 or name in AT_ONCE
            except KeyboardInterrupt:
                assert not (folder / f"{name}.nc").exists()
            same(METHODS[name](lm, out=folder), results[name])

    def test_parts_done_elsewhere_in_any_order_give_the_same(self, name, lm, results, monkeypatch) -> None:
        monkeypatch.setattr("headatlas.runs.job.finish", lambda job: job)
        monkeypatch.setattr("headatlas.methods.probe.features.SHARD", 10)
        job = METHODS[name](lm)
        monkeypatch.undo()
        elsewhere = Hand(lambda: Planned({}, "", {name: job}), torch.get_num_threads())
        assert pickle.loads(pickle.dumps(elsewhere(("plan",)))).jobs[name].key == job.key  # noqa: S301
        done: dict[str, tuple[np.ndarray, ...]] = {}
        waiting = list(job.parts)[::-1]
        while waiting:
            part = next(p for p in waiting if set(p.needs) <= set(done))
            waiting.remove(part)
            left = elsewhere((name, part.name, job.stamp, {n: done[n] for n in part.needs}))
            assert set(left) == set(part.leaves)
            done |= left
        found = elsewhere((name, None, job.stamp, {n: done[n] for p in job.parts for n in p.leaves}))
        if name == "probe":  # other shards were run together
            np.testing.assert_allclose(found.importance, results[name].importance, rtol=1e-2, atol=1e-5)
        else:
            same(found, results[name])
        with pytest.raises(CannotDo, match="fingerprint is .* there, but other where the work was planned"):
            elsewhere((name, None, job.stamp | {"fingerprint": "other"}, {}))

    def test_costs_are_positive(self, name, lm, monkeypatch) -> None:
        monkeypatch.setattr("headatlas.runs.job.finish", lambda job: job)
        job = METHODS[name](lm)
        costs = [sum(astuple(cost())) for cost in (*(p.cost for p in job.parts), job.cost)]
        assert min(costs[:-1], default=1) > 0
        assert sum(costs) > 0

    def test_layers_without_heads_are_there_and_nan(self, name) -> None:
        hybrid = model("qwen3_next")
        without = hybrid.layers_without_heads
        assert without
        found = METHODS[name](hybrid)
        assert found.sizes["layer"] == hybrid.n_layers
        for measure, _ in MEASURES.get(name, ()):
            assert np.isnan(found[measure].sel(layer=without)).all()
            assert np.isfinite(found[measure].drop_sel(layer=without)).all()


@pytest.mark.parametrize("name", IN_BATCHES)
def test_batch_size_does_not_matter(name, lm, results) -> None:
    one_by_one = METHODS[name](lm, tokens=1)
    for variable, found in head_maps(results[name]).items():
        if found.dtype != bool:
            np.testing.assert_allclose(one_by_one[variable], found, rtol=2e-3, atol=2e-5, err_msg=variable)


@pytest.mark.parametrize("name", ["taylor", "ig", "ablate"])
def test_padding_does_not_matter(name, lm) -> None:
    """A task's effects are the same whether a much longer example is asked beside it or not."""
    short = replace(TASKS[0], held_out=tuple(sorted(TASKS[0].held_out, key=lambda e: len(e.prompt)))[:4])
    generator = np.random.default_rng(3)
    long = Example(words(generator, 40), f" {words(generator, 1)}")
    call = getattr(ha, name)

    def summed(examples: tuple[Example, ...]) -> np.ndarray:
        return call(lm, replace(short, held_out=examples), examples=8).effect.values[0] * len(examples)

    alone = summed(short.held_out) + 0.5 * summed((long, replace(long, kind="again")))
    np.testing.assert_allclose(summed((*short.held_out, long)), alone, rtol=1e-3, atol=1e-5)

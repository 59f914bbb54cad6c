"""compare_maps: every map is made from training examples only, and tested like every other."""

import numpy as np
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.methods import get_method
from headatlas.methods.compare_maps import scores
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.tasks.labelled import load_labelled
from headatlas.testing import tiny_questions as questions
from headatlas.testing import tiny_task
from tests.models.tiny import TINY, build, tokenizer

TASKS = [tiny_task("first", 0), tiny_task("second", 1)]
NAMES = ["taylor", "ablate", "ablate-own", "gate", "dissociate"]


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(next(t for t in TINY if t.id == "llama")).float(), tokenizer(), "llama")


@pytest.fixture(scope="module")
def result(lm) -> xr.Dataset:
    return ha.compare_maps(lm, TASKS)


def test_every_map_is_tested_alike(lm, result) -> None:
    assert result["ranking"].values.tolist() == NAMES
    assert result.effect.sizes == {"ranking": 5, "function": 2}
    ablated = result.ranking_score.sel(ranking="ablate")
    np.testing.assert_allclose(
        result.ranking_score.sel(ranking="ablate-own"), ablated - ablated.mean("function"), rtol=1e-5, atol=1e-6
    )
    for i in range(5):
        for f in range(2):
            entry = result.isel(ranking=i, function=f)
            n = int(entry.n_removed)
            if n:
                assert entry.effect_curve.sel(step=n, split="test") == entry.effect
                assert int(entry.selected.sum()) == n
                selected, rest = (
                    entry.ranking_score.where(c).values
                    for c in (entry.selected, ~entry.selected & (entry.ranking_score > 0))
                )
                assert np.nanmin(selected) >= np.nanmax(rest, initial=-np.inf)
    np.testing.assert_allclose(result.selectivity, result.other_effect.mean("other") - result.effect)
    dissociated = ha.dissociate(lm, TASKS)
    np.testing.assert_array_equal(result.baseline, dissociated.baseline)


def test_each_map_and_each_test_is_a_part(lm) -> None:
    work = get_method("compare_maps").function(lm, TASKS, methods=["taylor", "ablate-own"])
    assert [part.name for part in work.parts] == [
        "baseline",
        "taylor: map of first",
        "taylor: map of second",
        "ablate: map of first",
        "ablate: map of second",
        "ablate-own: maps",
        "taylor: removing heads of first",
        "taylor: removing heads of second",
        "ablate-own: removing heads of first",
        "ablate-own: removing heads of second",
    ]
    outputs = {name for part in work.parts for name in part.outputs}
    assert {name for part in work.parts for name in part.inputs} <= outputs
    made_by = {part.name: part.do for part in work.parts}  # parts of one function are taken to be as long as each other
    assert made_by["taylor: map of first"] is made_by["taylor: map of second"]
    assert made_by["taylor: map of first"] is not made_by["ablate: map of first"]


def test_the_presets_are_an_option() -> None:
    method = get_method("compare_maps")
    assert method.in_preset("quick", {}) == {"effort": "quick"}
    assert "preset" not in method.options
    assert not method.run_presets
    assert scores.map_options("quick")["gate"]["free"].updates == get_method("gate").presets["quick"]["updates"][0]


def test_maps_are_made_from_training_examples_only(lm, monkeypatch) -> None:
    seen: set = set()
    data = load_labelled(lm, TASKS)
    train = {data.examples[i] for i in data.indices_in("train")}

    def effects(lm, examples, **options):
        seen.update(examples)
        return torch.zeros(len(examples), lm.n_layers, lm.n_heads)

    def gate(lm, task, **options):
        seen.update(TokenExample(e.prompt, e.target) for e in (*task.train, *task.held_out))
        return torch.zeros(3, 1, lm.n_layers, lm.n_heads)

    monkeypatch.setattr(scores, "gate_gradients", effects)
    monkeypatch.setattr(scores, "ablate_heads", lambda *a, **o: (effects(*a), None))
    monkeypatch.setattr(scores, "fit_task", gate)
    for name in ("taylor", "ablate", "gate"):
        seen.clear()
        ha.compare_maps(lm, TASKS, methods=[name])
        assert seen <= train, name
        assert seen


def test_questions_and_own_maps(lm) -> None:
    data = questions(40)
    names = load_labelled(lm, questions=data).names
    score = np.random.default_rng(0).random((len(names), lm.n_layers, lm.n_heads))
    mine = xr.DataArray(score, dims=("function", "layer", "head"), coords={"function": list(names)})
    result = ha.compare_maps(lm, questions=data, maps={"mine": mine}, methods=["probe"])
    assert result["ranking"].values.tolist() == ["mine", "probe"]
    np.testing.assert_allclose(result.ranking_score[0], score, rtol=1e-6)
    alone = ha.compare_maps(lm, questions=data, maps={"mine": mine}, methods=[])
    np.testing.assert_array_equal(alone.effect[0], result.effect[0])
    for bad, text in (
        (mine[0], "dimensions"),
        (mine[1:], "lacks the function"),
        (mine[:, :1], r"has 1 × 6 heads, the model has 3 × 6"),
    ):
        with pytest.raises(BadArgument, match=text):
            ha.compare_maps(lm, questions=data, maps={"mine": bad})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"methods": ["probe"]}, "makes maps of questions only"),
        ({"methods": ["tailor"]}, "Did you mean 'taylor'"),
        ({"methods": []}, "methods is empty"),
        ({"maps": 5}, "maps is 5, expected maps by name"),
        ({"limit": "x"}, "limit is 'x'"),
        ({"limit": 0}, "at least 1"),
        ({"preset": "slow"}, "quick, full"),
        ({"effort": "slow"}, "effort is 'slow', expected one of quick, full"),
        ({"questions": questions(20)}, "both given"),
    ],
)
def test_bad_input(lm, options, text) -> None:
    with pytest.raises(BadArgument, match=text):
        ha.compare_maps(lm, TASKS, **options)


def test_it_goes_on_where_it_was_interrupted(lm, tmp_path, monkeypatch) -> None:
    complete = ha.compare_maps(lm, TASKS, methods=["taylor", "dissociate"])

    def stops(items, label):
        for item in items:
            if "dissociate: removing" in label:
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        ha.compare_maps(lm, TASKS, methods=["taylor", "dissociate"], out=tmp_path, progress=stops)
    for made in ("compare_maps.scores.gate_gradients", "dissociate.compute.fit"):
        monkeypatch.setattr(f"headatlas.methods.{made}", lambda *a, **o: pytest.fail("done again"))
    again = ha.compare_maps(lm, TASKS, methods=["taylor", "dissociate"], out=tmp_path)
    np.testing.assert_array_equal(again.effect_curve, complete.effect_curve)

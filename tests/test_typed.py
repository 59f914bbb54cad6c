"""What users type first works; errors name the argument and the valid choices."""

import inspect
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import headatlas as ha
from headatlas import figures
from headatlas.errors import BadArgument, BadFile, HeadAtlasError
from headatlas.figures.arguments import one_map
from headatlas.figures.importance import plan
from headatlas.methods import get_method, methods
from headatlas.models.lm import LM
from headatlas.runs import run as runs
from headatlas.tasks.prompts import Example, load_tasks
from tests.figures import synthetic
from tests.models.tiny import TINY, build, tokenizer

PAIRS = [(f"w{i} w3", f" w{i + 1}") for i in range(30)]
ROWS = [{"prompt": p, "target": t} for p, t in PAIRS]


@pytest.fixture(scope="module")
def lm() -> LM:
    return LM(build(TINY[0]).float(), tokenizer(), "tiny")


@pytest.fixture(scope="module")
def made(lm, tmp_path_factory) -> ha.Atlas:
    """An atlas of two methods, without figures."""
    folder = tmp_path_factory.mktemp("atlas")
    ha.run(lm, folder, methods=["pattern", "salient"], draw=False)
    ha.maps(lm, {"next": [(f"w{i}", f"w{i + 1}") for i in range(40)]}, out=folder)
    return ha.open(folder)


class Planned(Exception):
    """The request could be planned; nothing was computed."""


@pytest.fixture
def only_planned(monkeypatch) -> None:
    """No work is done. Methods that give a dataset at once check their arguments as they run, and do run."""

    def execute(pool, plans, folder, progress, timeline):
        if any(get_method(name).in_parts for name in plans):
            raise Planned([plan.work.summary for plan in plans.values()])
        return work(pool, plans, folder, progress, timeline)

    work = runs.execute
    monkeypatch.setattr(runs, "execute", execute)


class TestTasks:
    def test_every_way_to_give_examples_is_the_same_task(self, lm) -> None:
        expected = load_tasks(lm, ROWS)
        for mine in (
            PAIRS,
            tuple(PAIRS),
            [list(p) for p in PAIRS],
            [Example(*p) for p in PAIRS],
            pd.DataFrame(ROWS),
            [PAIRS],
        ):
            assert load_tasks(lm, mine) == expected
        for mine in (ROWS, PAIRS, pd.DataFrame(ROWS), expected[0]):
            (task,) = load_tasks(lm, {"capitals": mine})
            assert task.name == "capitals"
            assert task.train == expected[0].train
        assert [t.name for t in load_tasks(lm, {"a": PAIRS, "b": "math"})] == ["a", "b"]

    def test_token_ids_are_text_too(self, lm) -> None:
        (task,) = load_tasks(lm, [([1, 2], [3]), ((4, 5), (6,)), (torch.tensor([7]), np.array([8]))])
        assert {e.prompt for e in (*task.train, *task.held_out)} == {(1, 2), (4, 5), (7,)}

    def test_everywhere_tasks_are_taken(self, lm) -> None:
        named = {"first": PAIRS, "second": [(t, p) for p, t in PAIRS]}
        for method, options in (
            (ha.gate, {"seeds": 1, "updates": 1}),
            (ha.ablate, {"limit": 2}),
            (ha.taylor, {"limit": 2}),
            (ha.ig, {"limit": 2, "steps": 1}),
        ):
            assert method(lm, named, **options).task.values.tolist() == ["first", "second"]

    def test_everywhere_tasks_are_planned(self, lm, only_planned) -> None:
        named = {"first": PAIRS, "second": [(t, p) for p, t in PAIRS]}
        with pytest.raises(Planned, match="2 functions"):
            ha.dissociate(lm, named)
        with pytest.raises(Planned, match="keep first, lose second"):
            ha.contrast(lm, keep={"first": PAIRS}, lose={"second": named["second"]})

    @pytest.mark.parametrize(
        ("tasks", "message"),
        [
            ({}, "tasks is empty, expected names"),
            ([], "tasks is empty, expected names"),
            (7, "tasks is 7, expected names"),
            (ROWS[0], "tasks is one example"),
            ({"x": []}, "task 'x' has 0 examples, expected at least 2"),
            ({"x": None}, r"tasks\['x'\] is None, expected names"),
            ({"x": 5}, r"tasks\['x'\] is 5, expected names"),
            ({"x": ROWS[0]}, r"tasks\['x'\] is \{'prompt'.*, expected names"),
            ({"x": {"prompts": ["a"]}}, r"tasks\['x'\] is \{'prompts'"),
            ({5: PAIRS}, "tasks has the name 5, expected text"),
            ({"x": "nowhere.jsonl"}, "'nowhere.jsonl' is neither built in"),
            (Path("nowhere.jsonl"), "nowhere.jsonl.* is neither built in"),
            ([("a", "b", "c")], r"example 1 is \('a', 'b', 'c'\), expected \{\"prompt\""),
            ([("a", " b"), ("c",)], r"example 2 is \('c',\), expected"),
            ([("a", 5), ("b", 6)], "expected"),
            ([("a", ""), ("c", "d")], "expected"),
            ({"x": [{"question": "a", "answer": "b"}]}, r"tasks\['x'\], example 1 is \{'question'"),
            (pd.DataFrame({"a": [1]}), "tasks, example 1 is {'a': 1}, expected"),
            (np.zeros(3), "expected"),
            ([None], "tasks is None, expected names"),
        ],
    )
    def test_what_cannot_be_taken(self, lm, only_planned, tasks, message) -> None:
        for method in (ha.gate, ha.taylor):
            with pytest.raises(BadArgument, match=message) as caught:
                method(lm, tasks)
            assert "\n" not in str(caught.value)
        with pytest.raises(BadArgument):
            ha.dissociate(lm, tasks)


class TestAtlas:
    def test_is_a_mapping(self, made) -> None:
        assert list(made) == list(made.keys()) == made.complete == ["pattern", "salient", "maps"]
        assert len(made) == 3
        assert "maps" in made
        assert "map" not in made
        assert made.get("map") is None
        assert made["maps"].identical(dict(made.items())["maps"])
        with pytest.raises(
            BadArgument, match="method 'map' is not in this atlas, which has pattern, .* Did you mean 'maps'"
        ):
            made["map"]
        with pytest.raises(KeyError):
            made[5]

    def test_one_file_opens_as_its_dataset(self, made) -> None:
        for path in (made.folder / "maps.nc", str(made.folder / "maps.nc")):
            opened = ha.open(path)
            assert opened.identical(made["maps"])
            assert isinstance(opened, xr.Dataset)
            assert opened.heads._repr_html_().startswith("<img")

    def test_heads_are_those_of_the_command(self, made) -> None:
        table = made.heads("next", 4)
        assert isinstance(table, pd.DataFrame)
        assert (table.method == "maps").all()
        assert (table.measure == "score").sum() == 4
        assert made.heads("induction", 2, method="pattern").shape[0] == 2
        for alias, name in (("previous-token", "previous"), ("First-token", "sink"), ("attention-sink", "sink")):
            assert made.heads(alias, 4).equals(made.heads(name, 4))
        assert made.heads("induction", 1, by="kv-group")["head"].item().split(".")[1].startswith("G")
        for wrong, says in (
            (None, "function is '', expected one of"),
            (5, "function is 5"),
            ("nxt", "Did you mean 'next'"),
        ):
            with pytest.raises(BadArgument, match=says):
                made.heads(wrong)
        with pytest.raises(BadArgument, match="top is 0"):
            made.heads("next", 0)

    def test_a_card_of_an_atlas_its_folder_or_its_results(self, made) -> None:
        texts = []
        for maps in (made, made.folder, str(made.folder), made.results):
            for head in (("L2.H4",), (2, 4)):
                texts.append([t.get_text() for t in figures.head_card(maps, *head).texts])
        assert all(text == texts[0] for text in texts)
        assert texts[0][0] == "L2.H4"
        for head, says in (
            (("L99.H0",), "L99.H0 is out of range: this model has L0 to L2, H0 to H5"),
            (("two",), "'two' is not a head"),
            ((None,), "layer and head are None and None"),
            ((2,), "layer and head are 2 and None"),
            ((2, "4"), "layer and head are 2 and '4'"),
        ):
            with pytest.raises(BadArgument, match=says):
                figures.head_card(made, *head)

    @pytest.mark.parametrize(
        "wrong", [None, 5, [], {"maps": None}, xr.Dataset(), "nowhere", Path("nowhere"), np.zeros((3, 6))]
    )
    def test_figures_of_an_atlas_say_what_they_take(self, wrong) -> None:
        for draw in (figures.layer_profile, figures.agreement, lambda maps: figures.head_card(maps, "L0.H0")):
            with pytest.raises(BadArgument, match="maps"):
                draw(wrong)
        with pytest.raises(BadArgument, match=r"^(atlas(\['maps'\])? is|map a has)"):
            ha.compare(wrong, wrong)

    def test_the_page_of_an_atlas_draws_from_it(self, made) -> None:
        assert figures.layer_profile(made).axes
        assert figures.layer_profile(made["pattern"]).axes
        assert figures.agreement(made.folder).axes

    @pytest.mark.parametrize(
        ("path", "error", "message"),
        [
            (None, BadArgument, "path is None, expected the folder"),
            (5, BadArgument, "path is 5"),
            ("nowhere", BadArgument, "path is 'nowhere': no such folder"),
            ("nowhere/maps.nc", BadArgument, "no such folder"),
            (__file__, BadFile, "cannot read .* as a head map"),
            (Path(__file__).parent, BadFile, "is not an atlas"),
        ],
    )
    def test_what_cannot_be_opened(self, path, error, message) -> None:
        with pytest.raises(error, match=message):
            ha.open(path)


class TestGrid:
    def test_any_map_can_be_drawn(self, made) -> None:
        grid, labelled = np.random.default_rng(0).random((4, 3)), made["maps"].score
        for data, titles in (
            (grid, ["score"]),
            (grid.tolist(), ["score"]),
            (torch.tensor(grid), ["score"]),
            (np.stack([grid, grid]), ["map 0", "map 1"]),
            (pd.DataFrame(grid), ["score"]),
            (xr.DataArray(grid), ["score"]),
            (xr.DataArray(grid, dims=("layer", "head"), name="mine"), ["mine"]),
            (labelled, ["next"]),
            (labelled.sel(relation="next"), ["next"]),
            (labelled.isel(relation=0).transpose("head", "layer"), ["next"]),
            (made["pattern"], ["induction", "previous", "duplicate", "sink", "self"]),
            (synthetic.gate(4, 3), list(synthetic.gate(4, 3).task.values)),
            (xr.Dataset({"a": (("layer", "head"), grid)}), ["a"]),
        ):
            drawn = plan(*one_map(data, None))
            assert [p.title for p in drawn.panels] == titles
            assert figures.importance_grid(data).axes
        (panel,) = plan(*one_map(xr.DataArray(grid, dims=("layer", "head")), None)).panels
        np.testing.assert_array_equal(panel.values, grid)
        turned = plan(*one_map(xr.DataArray(grid.T, dims=("head", "layer")), None)).panels[0]
        np.testing.assert_array_equal(turned.values, grid)

    def test_seeds_are_averaged(self) -> None:
        gates = synthetic.gate(4, 3)
        values = plan(*one_map(gates, "facilitation")).panels[0].values
        np.testing.assert_allclose(values, gates.facilitation.isel(task=0).mean("seed").values)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (None, "result is None, expected a result"),
            ("atlas", "result is 'atlas', expected a result"),
            (5, "result has the shape"),
            ({}, "result is {}, expected a result"),
            ([[1], [2, 3]], "expected a result"),
            (np.zeros(3), "result has the shape"),
            (np.zeros((2, 2, 2, 2)), "result has the shape"),
            (np.zeros((0, 3)), "result has the shape"),
            (xr.DataArray(np.zeros((2, 2)), dims=("layer", "x")), "result has the shape"),
            (xr.Dataset(), "the maps are: none"),
            (pd.DataFrame({"a": ["x"]}), "expected a result"),
        ],
    )
    def test_what_cannot_be_drawn(self, data, message) -> None:
        with pytest.raises(BadArgument, match=message):
            figures.importance_grid(data)

    @pytest.mark.parametrize(
        "draw",
        [
            figures.always_any,
            figures.category_map,
            figures.specialisation,
        ],
    )
    def test_figures_of_a_result_say_so(self, draw, made) -> None:
        for wrong in (None, 5, "atlas", made, np.zeros((3, 6)), {}):
            with pytest.raises(BadArgument, match="result is .*, expected an xarray.Dataset with "):
                draw(wrong)


def test_relations_of_ones_own_are_mapped_and_drawn(lm, made) -> None:
    result = made["maps"]
    assert result.category.values.tolist() == ["Other"]
    assert result.category_name.values.tolist()[-1] == "Other"
    assert result.member.sizes["category"] == 5
    assert "Other" in [a.get_title() for a in figures.category_map(result).axes]


WRONG = [
    None,
    -1,
    0,
    10**9,
    1.5,
    float("nan"),
    True,
    "nowhere",
    "",
    [],
    {},
    {"a": 1},
    ("a", "b", "c"),
    [None],
    Path("nowhere"),
    pd.DataFrame({"a": [1]}),
    np.zeros(2),
    object(),
]
OTHERS = {  # what a method must be given so that the argument at hand decides
    "contrast": {"keep": {"a": PAIRS}, "lose": {"b": PAIRS}},
    "dissociate": {"tasks": {"a": PAIRS, "b": [*PAIRS[::-1], ("w1", " w2")]}},
}
ASKED = [
    (name, p)
    for name in methods()
    for p in inspect.signature(getattr(ha, name)).parameters
    if p not in ("out", "progress", "engine", "address", "workers")
]


@pytest.mark.parametrize(("name", "argument"), ASKED)
def test_whatever_is_given_is_planned_or_refused_by_name(lm, only_planned, name, argument) -> None:
    """Every argument of every method: usage errors are one-line errors of HeadAtlas, and nothing else."""
    others = OTHERS.get(name, {}) if argument not in ("test", "questions") else {}
    for value in WRONG:
        if argument == "model" and str(value) == "nowhere":
            continue  # the hub would be asked for it
        try:
            getattr(ha, name)(**{"model": lm} | others | {argument: value})
        except HeadAtlasError as e:
            refused = e
        except Planned:
            continue
        else:
            continue
        assert isinstance(refused, BadArgument), (value, refused)
        assert len(str(refused).splitlines()) == 1, value

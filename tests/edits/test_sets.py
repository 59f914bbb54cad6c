"""Sets of heads by name: how they are written, and which heads of an atlas they are."""

import numpy as np
import pytest
import xarray as xr

from headatlas.edits.arguments import Direction, HeadSet, parse_set, split_heads, split_scales, split_steers
from headatlas.edits.sets import select_heads
from headatlas.errors import BadArgument, CannotDo
from headatlas.results.atlas import open_atlas
from headatlas.results.store import save
from tests.figures.made_tests import make_tests

TASKS = ["math", "syntax"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("math by dissociate", ("dissociate", ("math",), "", 0, False)),
        ("interfering by gate, syntax", ("gate", ("interfering", "syntax"), "", 0, False)),
        ("lowest 10% by ablate", ("ablate", (), "lowest", 10, True)),
        ("lowest 2.5 % by ablate,math", ("ablate", ("math",), "lowest", 2.5, True)),
        ("top 3 country_to_capital by maps", ("maps", ("country_to_capital",), "top", 3, False)),
        ("Math Calculation by function-vector", ("function_vector", ("Math Calculation",), "", 0, False)),
        ("top 5 stand by me by gate", ("gate", ("stand by me",), "top", 5, False)),
        ("lowest group of every layer by ablate", ("ablate", (), "lowest", 1, False, True)),
        ("top 2 groups  of each layer math by ablate", ("ablate", ("math",), "top", 2, False, True)),
        ("lowest by gate", ("gate", ("lowest",), "", 0, False)),  # a subject of this name
    ],
)
def test_sets_are_read(text, expected) -> None:
    assert parse_set(text) == HeadSet(text, *expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected such as 'math by dissociate'"),
        ("math", "expected such as"),
        ("by gate", "names no subject and no number"),
        ("top 0 math by gate", "top 0, expected a whole number, at least 1"),
        ("top 1.5 math by gate", "a whole number"),
        ("lowest 101% by gate", "at most 100%"),
        ("lowest 50% groups of every layer by gate", "a whole number"),
    ],
)
def test_sets_that_cannot_be_read_are_told(text, says) -> None:
    with pytest.raises(BadArgument, match=says):
        parse_set(text)


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (split_heads, " , ", "remove is ' , ', expected heads"),
        (split_heads, "L1", "'L1' is not a head"),
        (split_scales, ["L1.H2"], "scale is 'L1.H2', expected such as L3.H1=0.5"),
        (split_scales, ["L1.H2=x"], "expected a head and a number"),
        (split_scales, ["L1.H2=nan"], "scale of L1.H2 is nan, expected a finite number"),
        (split_steers, ["L1.H2=/no/such.npy"], "no such file"),
        (split_steers, [f"L1.H2={__file__}*-"], "expected such as L3.H1=direction.npy\\*2"),
        (split_steers, [f"H2={__file__}"], "is not a head"),
    ],
)
def test_heads_that_cannot_be_read_are_told(read, text, says) -> None:
    with pytest.raises(BadArgument, match=says):
        read(text)


def test_numbers_and_files_are_read(tmp_path) -> None:
    assert split_heads("L1.H2, l0.h3") == ["L1.H2", "l0.h3"]
    assert split_scales(["L1.H2=0.5,L0.H3=-1", "L2.H0=2"]) == {"L1.H2": 0.5, "L0.H3": -1.0, "L2.H0": 2.0}
    (tmp_path / "a*b.npy").touch()
    assert split_steers([f"L1={tmp_path}/a*b.npy*-1.5e-1"]) == {"L1": Direction(tmp_path / "a*b.npy", -0.15)}
    (tmp_path / "v.nc").touch()
    expected = Direction(tmp_path / "v.nc", 2.0, "one: two")
    assert split_steers([f"L1.H0={tmp_path}/v.nc:one: two*2"]) == {"L1.H0": expected}


def over(dim: str, values: np.ndarray, *more: str) -> tuple[tuple[str, ...], np.ndarray]:
    return (dim, *more, "layer", "head"), values


@pytest.fixture(scope="module")
def atlas(tmp_path_factory):
    """Of 2 layers × 3 heads; layer 1 of ablate has a head that was not measured."""
    heads = {"layer": [0, 1], "head": [0, 1, 2]}
    effect = np.array([[[0.5, 0.1, -0.2], [0.3, np.nan, 0.0]], [[0.0, 0.2, -0.6], [0.4, np.nan, 0.1]]])
    ablate = xr.Dataset({"contribution": over("task", effect)}, {"task": TASKS, **heads})
    role = np.zeros((2, 2, 2, 3))  # task, seed, layer, head
    role[1, :, 0, 2], role[1, 0, 1, 1] = 0.9, 1.0  # of one seed only: 0.5 on average
    gate = xr.Dataset(
        {
            "facilitation": over("task", 1 - role, "seed"),
            "interference": over("task", role, "seed"),
            "irrelevance": over("task", role * 0, "seed"),
        },
        {"task": TASKS, "seed": [0, 1], **heads},
    )
    importance = np.array([[[0.1, 0.3, 0.0], [0.6, 0.0, 0.0]], np.full((2, 3), 1 / 6)])
    dissociate = xr.Dataset(
        {"importance": over("function", importance)},
        {"function": TASKS, **heads},
    )
    score = np.array([[[0.9, 0.5, 0.2], [0.4, 0.0, 0.0]], np.zeros((2, 3))])
    chance = np.full((2, 2, 3), 0.3)
    relations = {"relation": ["country_to_capital", "copying"], **heads}
    maps = xr.Dataset({"score": over("relation", score), "chance": over("relation", chance)}, relations)
    results = {"ablate": ablate, "gate": gate, "dissociate": dissociate, "maps": maps.assign_attrs(threshold=0.45)}
    folder = tmp_path_factory.mktemp("atlas")
    tests = make_tests({"dissociate": dissociate, "gate": gate})  # math is supported, syntax is not
    tests["map_measure"] = "test", ["importance", "importance", "facilitation", "interference"]
    tests["selected"][0] = [[False, True, False], [True, False, False]]
    save(tests, folder / "tests.nc")
    for name, result in results.items():
        save(result.assign_attrs(model="tiny", method=name, n_kv_heads=3), folder / f"{name}.nc")
    return open_atlas(folder)


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("math by dissociate", [(1, 0), (0, 1)]),
        ("MATH by dissociate", [(1, 0), (0, 1)]),
        ("top 1 math by dissociate", [(1, 0)]),
        ("math by gate", [(0, 0), (0, 1), (0, 2), (1, 0)]),  # its tested heads, not all above 0.5
        ("interfering by gate, syntax", [(0, 2), (1, 1)]),
        ("interference by gate, syn", [(0, 2), (1, 1)]),
        ("top 1 interfering by gate, syntax", [(0, 2)]),
        ("lowest 1 syntax by gate", [(0, 2)]),
        ("lowest 40% by ablate", [(0, 2), (1, 2)]),  # of 5 heads, by the mean over tasks: −0.4, 0.05, 0.15, 0.25, 0.35
        ("lowest 1 by ablate, math", [(0, 2)]),
        ("top 6% math by ablate", [(0, 0)]),
        ("top 5 syntax by ablate", [(1, 0), (0, 1), (1, 2)]),  # the others are not above 0
        ("country_to_capital by maps", [(0, 0), (0, 1)]),
        ("lowest group of every layer by dissociate, math", [(0, 2), (1, 1)]),
        ("top 2 groups of every layer math by dissociate", [(0, 1), (0, 0), (1, 0), (1, 1)]),
    ],
)
def test_sets_are_of_these_heads(atlas, text, heads) -> None:
    (chosen,) = select_heads(atlas, text)
    assert chosen.heads == heads
    assert chosen.text == text


def test_a_set_says_its_evidence(atlas) -> None:
    (chosen,) = select_heads(atlas, ["math by dissociate"])
    assert chosen.why.startswith("the map of math by dissociate: its tested heads. The method finds")
    test = (
        "the test of its top heads: supported, p 0.01, 4 heads; log P per token changed by -1.20 (random heads -0.10)."
    )
    assert test in chosen.why
    assert select_heads(atlas, "lowest 1 by ablate")[0].why.startswith(
        "the map of math, syntax (the mean) by ablate: lowest 1 by contribution."
    )
    interfering = select_heads(atlas, "interfering by gate, syntax")[0].why
    assert "interference of at least 0.5." in interfering
    assert "the test of its top heads: not supported, p 0.4, 4 heads; " in interfering  # of this role, not of the first
    assert "score above chance and at least 0.45" in select_heads(atlas, "country_to_capital by maps")[0].why


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("math by probe", BadArgument, "'probe' is not in this atlas, which has maps"),
        (
            "maths by dissociate",
            BadArgument,
            "'maths' is neither .*math, syntax.* nor .*importance.* Did you mean 'math'",
        ),
        ("math by dissociate, math", BadArgument, "'math' is neither"),
        ("syntax by dissociate", BadArgument, r"ranks heads and marks none \(not supported, p 0.4, 4 heads\): give a"),
        ("copying by maps", CannotDo, "is empty"),
        ("math by ablate", BadArgument, "ranks heads and marks none: give a number, as in 'top 10 math by ablate'"),
        ("interfering by gate", BadArgument, "names no subject: give one of math, syntax"),
        ("lowest 6 by ablate", BadArgument, "there are 5 heads"),
        ("lowest 4 groups of every layer by dissociate, math", BadArgument, "but a layer has 3"),
    ],
)
def test_sets_without_heads_are_told_in_a_line(atlas, text, error, says) -> None:
    with pytest.raises(error, match=says) as told:
        select_heads(atlas, text)
    assert len(str(told.value).splitlines()) == 1

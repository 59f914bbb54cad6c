"""Built-in questions by name, in every method that takes questions."""

import pytest

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.methods import methods
from headatlas.models.lm import LM
from headatlas.tasks.built_in import FUNCTIONS, QUESTIONS
from headatlas.testing import tiny_lm, tiny_questions

TAKERS = ("probe", "dissociate")


@pytest.fixture(scope="module")
def lm() -> LM:
    return tiny_lm(context=128)


def test_all_methods_that_take_questions_name_the_choices() -> None:
    assert sorted(m.name for m in methods().values() if "questions" in m.options) == sorted(TAKERS)
    for name in TAKERS:
        assert ", ".join(QUESTIONS) in methods()[name].options["questions"].help


@pytest.mark.parametrize("name", TAKERS)
def test_an_unknown_name_is_told(lm: LM, name: str) -> None:
    with pytest.raises(BadArgument, match=r"questions is 'story'.*\(varied, stories\)\. Did you mean 'stories'"):
        getattr(ha, name)(lm, questions="story")


def test_varied_questions_in_a_probe(lm: LM) -> None:
    result = ha.probe(lm, "varied", kind="per-head", limit=240)
    assert result["function"].values.tolist() == list(FUNCTIONS)
    assert int(result.questions.sum()) == 240
    assert int(result.questions.min()) >= 3
    assert float(result.bag_of_words_accuracy) > 0.3


def test_the_quick_preset_limits_built_in_questions(lm: LM) -> None:
    probe, mine = methods()["probe"], tiny_questions(300)
    for preset, questions, options, number in (
        ("quick", "varied", {}, 808),  # 49 of each function are left out
        ("quick", "varied", {"held_out": 0}, 900),
        ("quick", "varied", {"held_out": 0, "limit": 1000}, 1000),
        ("full", "varied", {}, 800),
        ("full", "varied", {"held_out": 0}, 1200),
        ("quick", mine, {"held_out": 0}, 1200),  # those of a file or a list are all used
    ):
        work = probe.function(lm, questions, **probe.in_preset(preset, options))
        assert abs(int(work.summary.split()[0]) - number) <= (8 if "limit" in options else 0)


def test_varied_questions_in_dissociate(lm: LM) -> None:
    options = {"questions": "varied", "functions": ["Math Calculation", "Retrieval"]}
    result = ha.dissociate(lm, **options, updates=2, seeds=1, limit=40)
    assert sorted(result["function"].values.tolist()) == ["Math Calculation", "Retrieval"]

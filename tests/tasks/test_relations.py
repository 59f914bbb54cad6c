"""Relations: the built-in ones, a user's own, and what is wrong with a file."""

import json

import pytest

from headatlas.errors import BadArgument, BadFile
from headatlas.tasks.relations import CATEGORIES, COPYING, Relation, hash_relations, load_relations

NAMES = {
    "Algorithmic": "copying item_to_following name_copying word_first_letter word_last_letter",
    "Knowledge": "country_to_capital country_to_language object_superclass product_by_company work_to_location",
    "Linguistic": "adj_to_comparative adj_to_superlative noun_to_pronoun verb_to_past_tense word_to_antonym"
    " word_to_compound word_to_homophone word_to_synonym",
    "Translation": "english_to_french english_to_spanish",
}


def test_the_twenty_relations() -> None:
    relations = load_relations()
    assert {c: " ".join(r.name for r in relations if r.category == c) for c in CATEGORIES} == NAMES
    for r in relations:
        assert len(r.pairs) >= (300 if r.name == "copying" else 80), r.name
        assert r.source, r.name
        assert r.prompt, r.name
        assert all((s == t) == (r.name in COPYING) for s, t in r.pairs), r.name


def test_some_facts() -> None:
    pairs = {r.name: dict(r.pairs) for r in load_relations()}
    assert pairs["country_to_capital"]["France"] == "Paris"
    assert pairs["verb_to_past_tense"]["go"] == "went"
    assert pairs["adj_to_comparative"]["good"] == "better"
    following = {"A": "B", "three": "four", "fifth": "sixth", "Monday": "Tuesday", "May": "June", "1999": "2000"}
    assert following.items() <= pairs["item_to_following"].items()
    assert all(t == s[0].lower() for s, t in pairs["word_first_letter"].items())
    assert all(t == s[-1].lower() for s, t in pairs["word_last_letter"].items())
    assert all(t.startswith(s) for s, t in pairs["word_to_compound"].items())


def good(**changes) -> dict:
    return {"category": "Knowledge", "pairs": [["France", "Paris"], ["Spain", "Madrid"]]} | changes


def test_a_folder_a_file_a_csv_and_a_list_are_the_same(tmp_path) -> None:
    (tmp_path / "rel").mkdir()
    (tmp_path / "rel" / "capital.json").write_text(json.dumps(good()))
    table = "relation,category,source,target\ncapital,Knowledge,France,Paris\ncapital,Knowledge,Spain,Madrid\n"
    (tmp_path / "rel.csv").write_text(table)
    expected = [Relation("capital", "Knowledge", (("France", "Paris"), ("Spain", "Madrid")))]
    for relations in (
        tmp_path / "rel",
        tmp_path / "rel" / "capital.json",
        str(tmp_path / "rel.csv"),
        expected,
        [good(name="capital")],
    ):
        assert load_relations(relations) == expected


def test_pairs_given_twice_count_once() -> None:
    [relation] = load_relations([good(name="x", pairs=[["a", "b"], ["a", " b "]])])
    assert relation.pairs == (("a", "b"),)


def test_the_hash_is_of_what_is_asked() -> None:
    relations = load_relations()
    assert hash_relations(relations) == hash_relations(relations[::-1]) != hash_relations(relations[1:])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "another layout"),
        (json.dumps({"category": "Knowledge"}), "another layout"),
        (json.dumps({"pairs": []}), "has no pairs"),
        (json.dumps(good(category="Knowlege")), "category 'Knowlege', expected one of .* Did you mean 'Knowledge'"),
        (json.dumps(good(category=3)), "category 3"),
        (json.dumps(good(pairs=[])), "has no pairs"),
        (json.dumps(good(pairs="x")), "has no pairs"),
        (
            '{"category": "Knowledge",\n "pairs": [\n["a", "b"],\n["c"]]}',
            r"line 4: pairs\[1\] is \['c'\], expected two words",
        ),
        (json.dumps(good(pairs=[["a", ""]])), r"pairs\[0\]"),
        (json.dumps(good(pairs=[["a", 1]])), r"pairs\[0\]"),
        (json.dumps(good(prompt="no place")), "expected a text with {}"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path, text, message) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadFile, match=message) as caught:
        load_relations(tmp_path)
    assert "\n" not in str(caught.value)


def test_what_is_wrong_with_a_csv(tmp_path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("relation,category,source\n")
    with pytest.raises(BadFile, match="lacks the column target"):
        load_relations(path)
    path.write_text("relation,category,source,target\nr,Knowledge,a,b\nr,Knowledge,,b\n")
    with pytest.raises(BadFile, match="line 3: source or target is empty"):
        load_relations(path)


def test_nothing_twice_and_missing(tmp_path) -> None:
    with pytest.raises(BadArgument, match="'x' 2 times"):
        load_relations([good(name="x"), good(name="x")])
    with pytest.raises(BadArgument, match="holds no relation"):
        load_relations(tmp_path)
    with pytest.raises(BadArgument, match="no such file or folder, nor a built-in relation"):
        load_relations(tmp_path / "missing.json")
    with pytest.raises(BadArgument, match="has no name"):
        load_relations([good()])


def test_what_a_user_types_first() -> None:
    """Pairs by name, and built-in relations by theirs; without a category they are in none of the four."""
    pairs = (("France", "Paris"), ("Spain", "Madrid"))
    expected = [Relation("capital", "Other", pairs)]
    for mine in ({"capital": list(pairs)}, {"capital": pairs}, {"capital": {"pairs": [list(p) for p in pairs]}}):
        assert load_relations(mine) == expected
    assert load_relations([{"name": "capital", "pairs": pairs}]) == expected
    assert load_relations({"capital": good()})[0].category == "Knowledge"
    assert load_relations({"mine": Relation("theirs", "Knowledge", pairs)})[0].name == "mine"
    assert [r.name for r in load_relations("country_to_capital")] == ["country_to_capital"]
    assert [r.name for r in load_relations([*expected, "copying"])] == ["copying", "capital"]  # Other comes last


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        (5, "relations is 5, expected names of built-in relations"),
        ({}, "holds no relation"),
        ([], "holds no relation"),
        ([None], r"relations\[0\] is None, expected"),
        ([("France", "Paris")], r"relations\[0\] is \('France', 'Paris'\), expected"),
        ({"x": None}, r"relations\['x'\] has no pairs"),
        ({"x": 5}, r"relations\['x'\] has no pairs"),
        ({"x": []}, r"relations\['x'\] has no pairs"),
        ({"x": {"France": "Paris"}}, r"relations\['x'\] has another layout"),
        ({"x": [("a", "b", "c")]}, r"relations\['x'\]: pairs\[0\] is \('a', 'b', 'c'\), expected two words"),
        ({"x": ["ab"]}, r"pairs\[0\] is 'ab', expected two words"),
        ({5: [("a", "b")]}, "has the name 5, expected text"),
        ({"x": {"pairs": [("a", "b")], "category": "Mine"}}, "category 'Mine', expected one of .*, Other"),
        ("country_to_capitol", "Did you mean 'country_to_capital'"),
        ("captial", "Did you mean 'country_to_capital'"),
    ],
)
def test_relations_that_cannot_be_taken(mine, message) -> None:
    with pytest.raises(BadArgument, match=message) as caught:
        load_relations(mine)
    assert "\n" not in str(caught.value)

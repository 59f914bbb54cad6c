"""Scoring answers and choosing tokens offline."""

import numpy as np
import pytest

from headatlas.tasks.scoring import informative_tokens, is_right, token_f1, words


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("Paris", "paris.", True),
        ("The capital is Paris.", "Paris", True),
        ("Paris", "The capital is Paris", False),
        ("London", "Paris", False),
        ("12", "twelve", True),
        ("There are 1,200 pens.", "1200", True),
        ("1200.0", "1200", True),
        ("3 × 4 = 12", "She has 12 pens.", True),
        ("She has 13 pens.", "She has 12 pens.", False),
        ("She has 120 pens", "12", False),
        ("Yes, it is.", "Yes", True),
        ("No, it is not.", "Yes", False),
        ("yes", "Yes, because it rains", True),
        ("It is yes", "yes", False),
        ("", "Paris", False),
        ("the", "Paris", False),
        ("a big old red barn", "the big red barn", True),
        ("a small blue shed", "the big red barn", False),
        ("A", "a", True),
        ("B", "A", False),
        ("=", "=", True),
        ("5", "-5", False),
        ("5", ".5", False),
        ("0.5", ".5", True),
        ("4", "3/4", False),
        ("11:30", "10:30", False),
        ("3 hours 30 minutes", "2 hours 30 minutes", False),
        ("Lyon in 1990", "Paris in 1990", False),
        ("It is not 5, it is 6", "5", False),
        ("21", "twenty-one", True),
        ("forty", "40 pens", True),
        ("not Paris", "Paris", True),  # what containment cannot see; the judge can
    ],
)
def test_right_and_wrong(answer, reference, right) -> None:
    assert is_right(answer, reference) == right


def test_words() -> None:
    assert words("The 3 pens cost $1,250.50, don't they?") == ["3", "pens", "cost", "1250.5", "don't", "they"]


def test_f1() -> None:
    assert token_f1("big red barn", "the red barn") == pytest.approx(0.8)
    assert token_f1("x", "y") == 0
    assert token_f1("red red", "red") == pytest.approx(2 / 3)


def test_short_answers_are_kept_whole() -> None:
    assert informative_tokens(["It", " is", " the", " cat", "."], np.zeros(5)) == [0, 1, 2, 3, 4]


def test_content_words_by_surprisal() -> None:
    pieces = ["She", " has", " thir", "teen", " red", " pens", ",", " and", " the", " box", "."]
    surprisal = np.array([9.0, 9, 1, 2, 3, 4, 9, 9, 9, 5, 9])
    assert informative_tokens(pieces, surprisal) == [2, 3, 4, 5, 9]
    assert informative_tokens(pieces, surprisal, k=2) == [5, 9]


def test_a_stop_word_is_told_from_a_piece_of_a_word() -> None:
    pieces = ["to", "ma", "toes", " do", " be", " to", " green", " in"]
    assert informative_tokens(pieces, np.arange(8.0), k=4) == [0, 1, 2, 6]


def test_pieces_of_letters_are_no_punctuation() -> None:
    assert informative_tokens(["na", "\ufffd", "\ufffd", "ve", " caf", "\ufffd", "."], np.arange(7.0), k=3) == [3, 4, 5]


def test_nothing_but_stop_words() -> None:
    assert informative_tokens(["It", " is", " as", " it", " was", "."], np.arange(6.0), k=2) == [4, 5]

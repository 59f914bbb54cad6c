"""Judge free answers offline: whether one is right, and which of its tokens carry its meaning."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

# What a part of a character decodes to, in tokenizers that split characters into bytes.
PARTIAL_CHARACTER = "\ufffd"
# Word overlap (F1) from which an answer counts as a paraphrase of the reference.
MIN_F1 = 0.6

_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being below between both
but by can could did do does doing down during each either else every few for from further had has have having he her
here hers him his how i if in into is it its itself just may me might more most must my neither nor of off on once only
or other our out over own per rather same shall she should since so some such than that the their them then there these
they this those through to too under until up upon us very was we were what when where whether which while who whom
whose why will with within without would yet you your"""
# Without "no", which may be an answer by itself.
_STOP = frozenset(_STOP_WORDS.split())
_COUNTING = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBERS = {word: i for i, word in enumerate(_COUNTING.split())}
_NUMBERS |= {word: 20 + 10 * i for i, word in enumerate(_TENS.split())}
_COMPOUND = re.compile(rf"\b({_TENS.replace(' ', '|')})[- ]({'|'.join(_COUNTING.split()[1:10])})\b")


def words(text: str) -> list[str]:
    """Split text into lower-case words and numbers, without articles and punctuation.

    '1,200.0 pens' → ['1200', 'pens']. Text of articles and punctuation alone keeps them: 'A' may be the answer to a
    multiple choice.
    """
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower())
    text = _COMPOUND.sub(lambda m: str(_NUMBERS[m[1]] + _NUMBERS[m[2]]), text)
    parts = re.findall(r"(?<![\w.])-?(?:\d+\.)?\.?\d+|\d+|[^\W\d_]+(?:['’][^\W\d_]+)*", text)
    parts = [str(_NUMBERS.get(w, _plain_number(w))) for w in parts]
    return [w for w in parts if w not in ("a", "an", "the")] or parts or text.split()


def _plain_number(word: str) -> str:
    if not _is_number(word) or len(word) > 15:
        return word
    value = float(word)
    return str(int(value) if value.is_integer() else value)


def _is_number(word: str) -> bool:
    return word[-1].isdecimal()


def token_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall over words, each counted as often as it occurs."""
    a = words(answer)
    b = words(reference)
    common = sum((Counter(a) & Counter(b)).values())
    return 2 * common / (len(a) + len(b)) if common else 0.0


def is_right(answer: str, reference: str) -> bool:
    """Return whether an answer means the same as the reference.

    If the reference has numbers, they must be the last ones of the answer, and must count the same thing. Otherwise:
    the same words, or the reference's words in a row within the answer, or mostly the same words. 'Yes' and 'no' must
    agree whenever the reference begins with one.
    """
    a = words(answer)
    b = words(reference)
    if not a or not b or a == b:
        return bool(a) and a == b
    if b[0] in ("yes", "no") and (a[0] in ("yes", "no") or len(b) == 1):
        return a[0] == b[0]
    numbers = [w for w in b if _is_number(w)]
    if numbers:
        named = [{w for w in text if not _is_number(w) and w not in _STOP} for text in (a, b)]
        same = [w for w in a if _is_number(w)][-len(numbers) :] == numbers
        return same and (not all(named) or bool(named[0] & named[1]))
    if any(a[i : i + len(b)] == b for i in range(len(a) - len(b) + 1)):
        return True
    return token_f1(answer, reference) >= MIN_F1


def informative_tokens(pieces: Sequence[str], surprisal: np.ndarray, k: int = 5) -> list[int]:
    """Return the k tokens that carry an answer's meaning: the most surprising ones of content words, or all if few.

    pieces: the answer's tokens as text, with a space in front where a word begins. Never stop-words or punctuation,
    unless there is nothing else.
    """
    if len(pieces) <= k:
        return list(range(len(pieces)))
    word_of = []
    spelled = [""]
    for i, piece in enumerate(pieces):
        begins = piece[:1].isspace() or not piece[:1].isalnum() or (i > 0 and not pieces[i - 1][-1:].isalnum())
        if begins and i:
            spelled.append("")
        spelled[-1] += piece
        word_of.append(len(spelled) - 1)
    is_word = [any(c.isalnum() or c == PARTIAL_CHARACTER for c in piece) for piece in pieces]
    content = [i for i in range(len(pieces)) if is_word[i] and spelled[word_of[i]].strip().lower() not in _STOP]
    candidates = content or list(range(len(pieces)))
    return sorted(sorted(candidates, key=lambda i: (-surprisal[i], i))[:k])

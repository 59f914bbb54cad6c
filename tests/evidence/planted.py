"""Models in which chosen heads alone produce the answers of a subject, and tasks for them."""

from headatlas.models.lm import LM
from headatlas.tasks.prompts import Example, Task
from tests.models.handmade import ASK, FILL, handmade

HEADS = 16
FIRST, SECOND, THIRD = range(5), range(5, 10), range(10, 14)  # the words of three subjects
OWN = [(1, head) for head in (1, 4, 8, 13)]  # they alone carry the first subject
SHARED = [(1, head) for head in (2, 5, 9, 14)]  # they carry the second and the third
IDLE = [(1, head) for head in (0, 3, 6, 7)]
GAIN = 6.0


def planted(shared: bool = False) -> LM:
    """Four heads carry one subject, and four others the other two; if shared, all four carry the first two."""
    if shared:
        carriers = dict.fromkeys(OWN, range(10)) | dict.fromkeys(SHARED, THIRD)
    else:
        carriers = dict.fromkeys(OWN, FIRST) | dict.fromkeys(SHARED, range(5, 14))
    return handmade(carriers, spoiler=False, gain=GAIN, heads=HEADS)


def rows_of(words: range, lengths: range = range(8), shift: int = 0) -> tuple[Example, ...]:
    """Prompts 'word, fill …, ask' of several lengths; the target is the word (or one further, which no head does)."""
    return tuple(Example((w, *[FILL] * n, ASK), ((w + shift) % 14,)) for n in lengths for w in words)


def task(words: range, name: str, shift: int = 0) -> Task:
    rows = rows_of(words, shift=shift)
    return Task(name, rows[::2], rows[1::2])

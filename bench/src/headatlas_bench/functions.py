"""Synthetic versions of the eight cognitive functions, and a background task.

A sequence packs many questions of one function; each answer is one word. Only attention can move what an answer needs
to its position: the words that matter precede the last word of the question, or are further back.

Knowledge Recall         Anna recalls → baker                a fixed table of facts
Retrieval                key value … key → value             the value of the key earlier in this sequence
Logical Reasoning        rule x y x y … x → y                the one of six permutations that the pairs so far follow
Decision-making          seven two nine four best → nine     the largest of four numbers
Semantic Understanding   robin kind → bird                   the category of a thing
Syntactic Understanding  pins near door open agree → open    the verb agrees with the first noun, not the nearest
Inference                bird ken tool bux … robin → ken     what holds for a category holds for its things
Math Calculation         four plus nine gives → thirteen     sums
background               two words → the next                a table of what follows which two words
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

# Words per sequence.
LENGTH = 64
BEGIN, UNKNOWN = "<begin>", "<unknown>"


def _split_words(text: str) -> list[str]:
    return text.split()


NUMBERS = _split_words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty twenty-one twenty-two twenty-three twenty-four twenty-five twenty-six
    twenty-seven twenty-eight twenty-nine"""
)
PEOPLE = _split_words(
    """Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Klara Lukas Maria Nina Oskar Paula Quentin Rosa
    Simon Tanja Ulrich Vera Walter Xenia Yvonne Zeno Agnes Bruno Carla Dieter Edith Frank Gerda Hanna Igor Julia Kevin
    Laura Marco Nora"""
)
JOBS = _split_words(
    """baker tailor doctor farmer pilot painter lawyer miner singer teacher builder sailor writer driver nurse cook
    judge banker guard dancer"""
)
CATEGORIES = {
    "bird": "robin eagle heron raven stork swan finch owl",
    "tool": "hammer chisel pliers wrench saw drill rasp lathe",
    "fruit": "apple pear plum cherry grape lemon mango fig",
    "metal": "iron copper zinc nickel silver gold lead tin",
    "cloth": "shirt coat scarf glove sock hat skirt boot",
    "ship": "sloop canoe ferry barge yacht raft tanker dinghy",
}
NOUNS = _split_words("pin door lamp chair book cup bag stone clock bell cart fork")
PREPOSITIONS = _split_words("near under beside behind")
VERBS = _split_words("open fall shine move break turn ring roll")
KEYS = [f"{a}{b}" for a, b in product("bdfgklmnpr", ("al", "or"))]
VALUES = [f"{a}{b}" for a, b in product("bdfgklmnpr", ("en", "ux"))]
FILL = [f"{a}{b}" for a, b in product("stvwz", ("ami", "elo", "iru", "ona", "uta"))]
MARKERS = _split_words("recalls rule best kind agree plus gives")

WORDS = [
    BEGIN,
    UNKNOWN,
    *MARKERS,
    *NUMBERS,
    *PEOPLE,
    *JOBS,
    *CATEGORIES,
    *(w for words in CATEGORIES.values() for w in words.split()),
    *NOUNS,
    *(f"{n}s" for n in NOUNS),
    *PREPOSITIONS,
    *VERBS,
    *(f"{v}s" for v in VERBS),
    *KEYS,
    *VALUES,
    *FILL,
]
ID = {word: i for i, word in enumerate(WORDS)}


@dataclass(frozen=True)
class Batch:
    """Sequences of one function. answers: true where the word is an answer, which follows from the words before it."""

    tokens: Tensor  # [sequence, LENGTH]
    answers: Tensor  # [sequence, LENGTH]


def _ids(words: Iterable[str]) -> Tensor:
    return torch.tensor([ID[w] for w in words])


def _fixed_permutation(n: int, seed: int) -> Tensor:
    """Return 0 … n − 1 in an order that is part of the task: the same in every model."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


_NUMBERS, _KEYS, _VALUES, _FILL, _CATEGORIES = map(_ids, (NUMBERS, KEYS, VALUES, FILL, CATEGORIES))
_THINGS = _ids(w for words in CATEGORIES.values() for w in words.split())  # category by category
_THINGS_PER_CATEGORY = len(_THINGS) // len(_CATEGORIES)
_JOB_OF = _ids(JOBS)[_fixed_permutation(len(PEOPLE), seed=1) % len(JOBS)]  # two people per job
_RULES = torch.stack([_fixed_permutation(len(NUMBERS), seed=10 + i) for i in range(6)])
_NEXT = torch.stack([_fixed_permutation(len(FILL), seed=20 + i) for i in range(len(FILL))])


def _look_up(table: Tensor, *index: Tensor) -> Tensor:
    """Index a table on the device of the index."""
    return table.to(index[0].device)[index]


class Draw:
    """Random choices, vectorised over sequences."""

    def __init__(self, n: int, seed: int, device: torch.device | str) -> None:
        self.n, self.device = n, device
        self.generator = torch.Generator(device).manual_seed(seed)

    def integers(self, bound: int, count: int) -> Tensor:
        """Draw [n, count] numbers below a bound, with replacement."""
        return torch.randint(bound, (self.n, count), generator=self.generator, device=self.device)

    def distinct(self, bound: int, count: int) -> Tensor:
        """Draw [n, count] numbers below a bound, different within each row."""
        return torch.rand(self.n, bound, generator=self.generator, device=self.device).argsort(1)[:, :count]


def _pack_questions(draw: Draw, *parts: Tensor | str) -> Batch:
    """Pack questions: each part is one word, or [n, questions] words; the last part is the answer."""
    shape_like = next(p for p in parts if isinstance(p, Tensor))
    words = torch.stack([torch.full_like(shape_like, ID[p]) if isinstance(p, str) else p for p in parts], 2).flatten(1)
    return _make_batch(draw, words, torch.arange(words.shape[1], device=draw.device) % len(parts) == len(parts) - 1)


def _make_batch(draw: Draw, words: Tensor, answers: Tensor) -> Batch:
    """Put words [n, count] after the first word, cut or padded to LENGTH; answers: [count] or [n, count]."""
    length = min(words.shape[1], LENGTH - 1)
    tokens = torch.full((draw.n, LENGTH), ID[BEGIN], device=draw.device)
    is_answer = torch.zeros(draw.n, LENGTH, dtype=torch.bool, device=draw.device)
    tokens[:, 1 : 1 + length] = words[:, :length]
    is_answer[:, 1 : 1 + length] = answers[..., :length]
    return Batch(tokens, is_answer)


def recall(draw: Draw) -> Batch:
    people = draw.integers(len(PEOPLE), 21)
    return _pack_questions(draw, _look_up(_ids(PEOPLE), people), "recalls", _look_up(_JOB_OF, people))


def semantic(draw: Draw) -> Batch:
    indices = draw.integers(len(_THINGS), 21)
    return _pack_questions(
        draw, _look_up(_THINGS, indices), "kind", _look_up(_CATEGORIES, indices // _THINGS_PER_CATEGORY)
    )


def mathematics(draw: Draw) -> Batch:
    a, b = draw.integers(15, 12), draw.integers(15, 12)
    return _pack_questions(
        draw, _look_up(_NUMBERS, a), "plus", _look_up(_NUMBERS, b), "gives", _look_up(_NUMBERS, a + b)
    )


def decision(draw: Draw) -> Batch:
    options = torch.stack([draw.distinct(len(NUMBERS), 4) for _ in range(10)], 1)  # [n, question, 4]
    return _pack_questions(draw, *_look_up(_NUMBERS, options).unbind(2), "best", _look_up(_NUMBERS, options.amax(2)))


def syntactic(draw: Draw) -> Batch:
    is_plural = draw.integers(2, 20)
    nouns = draw.integers(len(NOUNS), 20)
    noun = _look_up(torch.stack([_ids(NOUNS), _ids(f"{n}s" for n in NOUNS)]), is_plural, nouns)
    prepositions = _look_up(_ids(PREPOSITIONS), draw.integers(len(PREPOSITIONS), 10))
    verb = draw.integers(len(VERBS), 10)
    # Verbs of singular nouns end in s.
    answer_verbs = _look_up(torch.stack([_ids(f"{v}s" for v in VERBS), _ids(VERBS)]), is_plural[:, :10], verb)
    return _pack_questions(
        draw, noun[:, :10], prepositions, noun[:, 10:], _look_up(_ids(VERBS), verb), "agree", answer_verbs
    )


def retrieval(draw: Draw) -> Batch:
    """Draw 31 pairs of two to eight keys with values; from a key's second occurrence on, its value is an answer."""
    keys, values = (_look_up(ids, draw.distinct(len(ids), 8)) for ids in (_KEYS, _VALUES))
    # 840 is a multiple of every number up to eight, so all keys are equally likely.
    indices = draw.integers(840, 31) % (2 + draw.integers(7, 1))
    was_seen = torch.stack([(indices[:, :i] == indices[:, i : i + 1]).any(1) for i in range(31)], 1)
    words = torch.stack([keys.gather(1, indices), values.gather(1, indices)], 2).flatten(1)
    return _make_batch(draw, words, torch.stack([torch.zeros_like(was_seen), was_seen], 2).flatten(1))


def inference(draw: Draw) -> Batch:
    """Give six categories a value each; then ask about things of these categories, none of them twice."""
    values = _look_up(_VALUES, draw.distinct(len(VALUES), len(CATEGORIES)))
    categories = draw.distinct(len(CATEGORIES), len(CATEGORIES))
    things = draw.distinct(len(_THINGS), 25)
    facts = torch.stack([_look_up(_CATEGORIES, categories), values.gather(1, categories)], 2).flatten(1)
    questions = torch.stack([_look_up(_THINGS, things), values.gather(1, things // _THINGS_PER_CATEGORY)], 2).flatten(1)
    words = torch.cat([facts, questions], 1)
    position = torch.arange(words.shape[1], device=draw.device)
    return _make_batch(draw, words, (position > facts.shape[1]) & (position % 2 == 1))


def logical(draw: Draw) -> Batch:
    """Draw pairs of one permutation: the first pair shows which it is, the others ask."""
    rule = draw.integers(len(_RULES), 1)
    x = draw.integers(len(NUMBERS), 31)
    pairs = torch.stack([_look_up(_NUMBERS, x), _look_up(_NUMBERS, _look_up(_RULES, rule, x))], 2).flatten(1)
    words = torch.cat([torch.full_like(rule, ID["rule"]), pairs], 1)
    position = torch.arange(words.shape[1], device=draw.device)
    return _make_batch(draw, words, (position > 2) & (position % 2 == 0))


def background(draw: Draw) -> Batch:
    """Draw words that follow from the two before them; two new ones come every eight words."""
    words = draw.integers(len(FILL), LENGTH - 1)
    is_answer = torch.arange(LENGTH - 1, device=draw.device) % 8 >= 2
    for i in is_answer.nonzero()[:, 0].tolist():
        words[:, i] = _look_up(_NEXT, words[:, i - 2], words[:, i - 1])
    return _make_batch(draw, _look_up(_FILL, words), is_answer)


@dataclass(frozen=True)
class Function:
    """A function as it is planted.

    chance: accuracy of guessing. heads: number of its heads in each of some consecutive layers.
    """

    make: Callable[[Draw], Batch]
    chance: float
    heads: tuple[int, ...]
    sequences_per_step: int


FUNCTIONS = {
    "Knowledge Recall": Function(recall, 1 / len(JOBS), (2,), 32),
    "Retrieval": Function(retrieval, sum(1 / n for n in range(2, 9)) / 7, (3, 3), 128),
    "Logical Reasoning": Function(logical, 1 / len(_RULES), (2, 2, 2), 64),
    "Decision-making": Function(decision, 1 / 4, (3, 2), 32),
    "Semantic Understanding": Function(semantic, 1 / len(CATEGORIES), (2,), 32),
    "Syntactic Understanding": Function(syntactic, 1 / 2, (3,), 32),
    "Inference": Function(inference, 1 / len(CATEGORIES), (3, 3), 128),
    "Math Calculation": Function(mathematics, 1 / 15, (3,), 32),
}
BACKGROUND = Function(background, 1 / len(FILL), (), 32)

"""Synthetic versions of the eight cognitive functions, and a background task.

A sequence packs many questions of one function; each answer is one word. Only attention can bring what an answer needs
to its place: the words that matter stand before the last word of the question, or far back.

Knowledge Recall         Anna recalls → baker                a table of facts, learnt by heart
Retrieval                key value … key → value             what the key had earlier in this sequence
Logical Reasoning        rule x y x y … x → y                which of six maps of numbers the pairs so far follow
Decision-making          seven two nine four best → nine     the largest of four numbers
Semantic Understanding   robin kind → bird                   the kind of a thing
Syntactic Understanding  pins near door open agree → open    the verb agrees with the first noun, not the nearest
Inference                bird ken tool bux … robin → ken     what is true of a kind holds for the things of that kind
Math Calculation         four plus nine gives → thirteen     sums
background               two words → the next                a table of what follows which two words
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

LENGTH = 64  # words a sequence
BEGIN, UNKNOWN = "<begin>", "<unknown>"


def _words(text: str) -> list[str]:
    return text.split()


NUMBERS = _words(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty twenty-one twenty-two twenty-three twenty-four twenty-five twenty-six
    twenty-seven twenty-eight twenty-nine"""
)
PEOPLE = _words(
    """Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Klara Lukas Maria Nina Oskar Paula Quentin Rosa
    Simon Tanja Ulrich Vera Walter Xenia Yvonne Zeno Agnes Bruno Carla Dieter Edith Frank Gerda Hanna Igor Julia Kevin
    Laura Marco Nora"""
)
JOBS = _words(
    """baker tailor doctor farmer pilot painter lawyer miner singer teacher builder sailor writer driver nurse cook
    judge banker guard dancer"""
)
KINDS = {
    "bird": "robin eagle heron raven stork swan finch owl",
    "tool": "hammer chisel pliers wrench saw drill rasp lathe",
    "fruit": "apple pear plum cherry grape lemon mango fig",
    "metal": "iron copper zinc nickel silver gold lead tin",
    "cloth": "shirt coat scarf glove sock hat skirt boot",
    "ship": "sloop canoe ferry barge yacht raft tanker dinghy",
}
NOUNS = _words("pin door lamp chair book cup bag stone clock bell cart fork")
PREPOSITIONS = _words("near under beside behind")
VERBS = _words("open fall shine move break turn ring roll")
KEYS = [f"{a}{b}" for a, b in product("bdfgklmnpr", ("al", "or"))]
VALUES = [f"{a}{b}" for a, b in product("bdfgklmnpr", ("en", "ux"))]
FILL = [f"{a}{b}" for a, b in product("stvwz", ("ami", "elo", "iru", "ona", "uta"))]
MARKERS = _words("recalls rule best kind agree plus gives")

WORDS = [
    BEGIN,
    UNKNOWN,
    *MARKERS,
    *NUMBERS,
    *PEOPLE,
    *JOBS,
    *KINDS,
    *(w for words in KINDS.values() for w in words.split()),
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
    tokens: Tensor  # [sequence, LENGTH]
    answers: Tensor  # [sequence, LENGTH]: true where the word is an answer, to be told from the words before it


def _ids(words: Iterable[str]) -> Tensor:
    return torch.tensor([ID[w] for w in words])


def _shuffled(n: int, seed: int) -> Tensor:
    """0 … n − 1 in an order that is part of the task: the same in every model."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


_NUMBERS, _KEYS, _VALUES, _FILL, _KINDS = map(_ids, (NUMBERS, KEYS, VALUES, FILL, KINDS))
_THINGS = _ids(w for words in KINDS.values() for w in words.split())  # kind after kind
_OF_A_KIND = len(_THINGS) // len(_KINDS)
_JOB_OF = _ids(JOBS)[_shuffled(len(PEOPLE), seed=1) % len(JOBS)]  # two people a job
_RULES = torch.stack([_shuffled(len(NUMBERS), seed=10 + i) for i in range(6)])
_NEXT = torch.stack([_shuffled(len(FILL), seed=20 + i) for i in range(len(FILL))])


def _at(table: Tensor, *index: Tensor) -> Tensor:
    return table.to(index[0].device)[index]


class Draw:
    """Random choices, vectorised over sequences."""

    def __init__(self, n: int, seed: int, device: torch.device | str) -> None:
        self.n, self.device = n, device
        self.generator = torch.Generator(device).manual_seed(seed)

    def below(self, most: int, count: int) -> Tensor:
        return torch.randint(most, (self.n, count), generator=self.generator, device=self.device)

    def different(self, most: int, count: int) -> Tensor:
        """[n, count] different numbers below `most`."""
        return torch.rand(self.n, most, generator=self.generator, device=self.device).argsort(1)[:, :count]


def _packed(draw: Draw, *parts: Tensor | str) -> Batch:
    """Questions side by side: each part is a word, or [n, questions] words; the last part is the answer."""
    like = next(p for p in parts if isinstance(p, Tensor))
    words = torch.stack([torch.full_like(like, ID[p]) if isinstance(p, str) else p for p in parts], 2).flatten(1)
    return _sequence(draw, words, torch.arange(words.shape[1], device=draw.device) % len(parts) == len(parts) - 1)


def _sequence(draw: Draw, words: Tensor, answers: Tensor) -> Batch:
    """Words [n, any] and which are answers ([any] or [n, any]), after the first word, cut or filled to LENGTH."""
    used = min(words.shape[1], LENGTH - 1)
    tokens = torch.full((draw.n, LENGTH), ID[BEGIN], device=draw.device)
    is_answer = torch.zeros(draw.n, LENGTH, dtype=torch.bool, device=draw.device)
    tokens[:, 1 : 1 + used], is_answer[:, 1 : 1 + used] = words[:, :used], answers[..., :used]
    return Batch(tokens, is_answer)


def recall(draw: Draw) -> Batch:
    who = draw.below(len(PEOPLE), 21)
    return _packed(draw, _at(_ids(PEOPLE), who), "recalls", _at(_JOB_OF, who))


def semantic(draw: Draw) -> Batch:
    which = draw.below(len(_THINGS), 21)
    return _packed(draw, _at(_THINGS, which), "kind", _at(_KINDS, which // _OF_A_KIND))


def mathematics(draw: Draw) -> Batch:
    a, b = draw.below(15, 12), draw.below(15, 12)
    return _packed(draw, _at(_NUMBERS, a), "plus", _at(_NUMBERS, b), "gives", _at(_NUMBERS, a + b))


def decision(draw: Draw) -> Batch:
    options = torch.stack([draw.different(len(NUMBERS), 4) for _ in range(10)], 1)  # [n, question, 4]
    return _packed(draw, *_at(_NUMBERS, options).unbind(2), "best", _at(_NUMBERS, options.amax(2)))


def syntactic(draw: Draw) -> Batch:
    many, nouns = draw.below(2, 20), draw.below(len(NOUNS), 20)
    noun = _at(torch.stack([_ids(NOUNS), _ids(f"{n}s" for n in NOUNS)]), many, nouns)
    between, verb = _at(_ids(PREPOSITIONS), draw.below(len(PREPOSITIONS), 10)), draw.below(len(VERBS), 10)
    agrees = _at(torch.stack([_ids(f"{v}s" for v in VERBS), _ids(VERBS)]), many[:, :10], verb)  # one opens, many open
    return _packed(draw, noun[:, :10], between, noun[:, 10:], _at(_ids(VERBS), verb), "agree", agrees)


def retrieval(draw: Draw) -> Batch:
    """31 pairs of two to eight keys, each with its own value in this sequence; asked from a key's second time on."""
    keys, values = (_at(ids, draw.different(len(ids), 8)) for ids in (_KEYS, _VALUES))
    which = draw.below(840, 31) % (2 + draw.below(7, 1))  # 840: of every number up to eight
    seen = torch.stack([(which[:, :i] == which[:, i : i + 1]).any(1) for i in range(31)], 1)
    words = torch.stack([keys.gather(1, which), values.gather(1, which)], 2).flatten(1)
    return _sequence(draw, words, torch.stack([torch.zeros_like(seen), seen], 2).flatten(1))


def inference(draw: Draw) -> Batch:
    """Six kinds get a value each; then things of these kinds are asked, none of them twice."""
    values = _at(_VALUES, draw.different(len(VALUES), len(KINDS)))
    kinds, things = draw.different(len(KINDS), len(KINDS)), draw.different(len(_THINGS), 25)
    told = torch.stack([_at(_KINDS, kinds), values.gather(1, kinds)], 2).flatten(1)
    questions = torch.stack([_at(_THINGS, things), values.gather(1, things // _OF_A_KIND)], 2).flatten(1)
    words = torch.cat([told, questions], 1)
    place = torch.arange(words.shape[1], device=draw.device)
    return _sequence(draw, words, (place > told.shape[1]) & (place % 2 == 1))


def logical(draw: Draw) -> Batch:
    """The first pair shows which map it is, the others ask."""
    rule, x = draw.below(len(_RULES), 1), draw.below(len(NUMBERS), 31)
    pairs = torch.stack([_at(_NUMBERS, x), _at(_NUMBERS, _at(_RULES, rule, x))], 2).flatten(1)
    words = torch.cat([torch.full_like(rule, ID["rule"]), pairs], 1)
    place = torch.arange(words.shape[1], device=draw.device)
    return _sequence(draw, words, (place > 2) & (place % 2 == 0))


def background(draw: Draw) -> Batch:
    """Each word follows from the two before it; two new ones come every eight words."""
    words = draw.below(len(FILL), LENGTH - 1)
    follows = torch.arange(LENGTH - 1, device=draw.device) % 8 >= 2
    for i in follows.nonzero()[:, 0].tolist():
        words[:, i] = _at(_NEXT, words[:, i - 2], words[:, i - 1])
    return _sequence(draw, _at(_FILL, words), follows)


@dataclass(frozen=True)
class Function:
    """A function as it is planted."""

    make: Callable[[Draw], Batch]
    chance: float  # what guessing gives
    heads: tuple[int, ...]  # how many it gets, in consecutive layers
    share: int  # sequences of it in a training step


FUNCTIONS = {
    "Knowledge Recall": Function(recall, 1 / len(JOBS), (2,), 32),
    "Retrieval": Function(retrieval, sum(1 / n for n in range(2, 9)) / 7, (3, 3), 128),
    "Logical Reasoning": Function(logical, 1 / len(_RULES), (2, 2, 2), 64),
    "Decision-making": Function(decision, 1 / 4, (3, 2), 32),
    "Semantic Understanding": Function(semantic, 1 / len(KINDS), (2,), 32),
    "Syntactic Understanding": Function(syntactic, 1 / 2, (3,), 32),
    "Inference": Function(inference, 1 / len(KINDS), (3, 3), 128),
    "Math Calculation": Function(mathematics, 1 / 15, (3,), 32),
}
BACKGROUND = Function(background, 1 / len(FILL), (), 32)

"""retrieval in parts: a needle at one length, at every depth; then scores, over the texts that were answered."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo, brief
from headatlas.evidence.control import removal_cost
from headatlas.methods.method import Part, Work
from headatlas.methods.retrieval.proof import DRAWS, STEPS, check_removal
from headatlas.models.attention import attended_most
from headatlas.models.cost import Cost, reading
from headatlas.models.lm import LM
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Done, Progress
from headatlas.tasks.needles import Hidden, Needle, check_needles, hash_needles, hide, load_needles, load_sentences
from headatlas.tasks.scoring import words
from headatlas.tasks.used import Used, text_id

log = logging.getLogger(__name__)
NOTHING = -1  # stands for no token
LOOKED = 1.5  # passes that a pass costs if it is seen where heads look
HIDDEN = 1.2e-5  # seconds of the host to make a token of a text with a needle


@dataclass(frozen=True)
class Piece:
    """A part of the work: one needle in texts of one length, at some depths. held_out: only to check with."""

    name: str
    set: str
    number: int  # of the needle in its set
    needle: Needle
    sentences: Sequence[str]
    length: int
    depths: tuple[float, ...]
    new_tokens: int
    template: bool
    held_out: bool

    def hidden(self, lm: LM, depth: float) -> Hidden:
        return hide(lm, self.needle, self.sentences, self.length, depth, self.template)


@dataclass(frozen=True)
class Asking:
    """What the parts depend on, beside needles and text: options of the method."""

    lengths: Any
    depths: int
    limit: int
    causal: int
    new_tokens: int
    template: bool


@dataclass(frozen=True)
class Counting:
    """What only the result depends on: options of the method."""

    kind: str
    recall: float
    batch_tokens: int | None
    seed: int


def plan(lm: LM, needles: Any, text: Any, asking: Asking, counting: Counting) -> Work:
    """What the method would do."""
    lengths = _lengths(lm, asking.lengths, asking.new_tokens)
    sentences = load_sentences(text, lengths[-1])
    sets = {name: _split(name, of_set, asking) for name, of_set in load_needles(needles).items()}
    together = {name: (*used, *held_out) for name, (used, held_out) in sets.items()}
    check_needles(lm, together, sentences, lengths[0], asking.template)
    depths = (0.5,) if asking.depths == 1 else tuple(np.linspace(0, 1, asking.depths).round(4).tolist())
    pieces = []
    for name, all_needles in together.items():
        for i, needle in enumerate(all_needles):
            first = i * len(sentences) // len(all_needles)  # so that not every needle is hidden in the same text
            around = (*sentences[first:], *sentences[:first])
            held_out = i >= len(sets[name][0])
            at = (depths[i % len(depths)],) if held_out else depths  # a needle to check with is asked once
            for length in lengths[:1] if held_out else lengths:
                label = f"{name}: needle {i + 1}, {length} tokens"
                rest = (length, at, asking.new_tokens, asking.template, held_out)
                pieces.append(Piece(label, name, i + 1, needle, around, *rest))
    listed = " and ".join(f"{n:,}" for n in lengths)
    return Work(
        summary=f"{sum(len(p.depths) for p in pieces)} texts of {listed} tokens, a needle in each",
        combine=combine,
        arguments=(pieces, counting),
        parts=[Part(name=p.name, do=read, arguments=(p,), cost=read_cost) for p in pieces],
        data=hash_needles(together, sentences),
        settings=asdict(asking) | {"lengths": list(lengths), "template": int(asking.template)},
        result_settings={"kind": counting.kind, "recall": counting.recall, "seed": counting.seed},
        cost=combine_cost,
        used=Used(frozenset(text_id(n.question, n.answer) for of_set in together.values() for n in of_set)),
    )


def _lengths(lm: LM, lengths: Any, new_tokens: int) -> tuple[int, ...]:
    """In order, each once, none longer than what fits into the context with the answer."""
    listed: Any = [lengths] if isinstance(lengths, Integral) else lengths
    plain = isinstance(listed, Sequence) and not isinstance(listed, str)
    if not plain or not listed or not all(isinstance(n, Integral) and int(n) > 0 for n in listed):
        raise BadArgument(f"lengths is {brief(lengths)}, expected numbers of tokens, such as (512, 1024)")
    fits = (lm.anatomy.context or 10**9) - new_tokens
    if fits < 1:
        raise BadArgument(f"new_tokens is {new_tokens}, but the model's context is {lm.anatomy.context} tokens")
    if max(map(int, listed)) > fits:
        log.warning("lengths: %s leaves %d tokens for a prompt; longer ones are cut to that", lm.name, fits)
    return tuple(sorted({min(int(n), fits) for n in listed}))


def _split(name: str, needles: Sequence[Needle], asking: Asking) -> tuple[Sequence[Needle], Sequence[Needle]]:
    """Needles for the score, and others to check it with."""
    rest = len(needles) - asking.causal
    if rest < 1:
        raise BadArgument(
            f"causal is {asking.causal}, but set {name!r} has {len(needles)} needle{'s' * (len(needles) != 1)}:"
            " at least one must be left for the score"
        )
    return needles[: min(asking.limit, rest)], needles[rest:]


def read(lm: LM, piece: Piece, *, done: Done, progress: Progress) -> None:
    """Of each depth: needle tokens copied by every head, each counted once and as often as copied [depth, layer, head];
    how many there are [depth]; the answer's tokens [depth, token]; the prompt's length [depth].

    Where heads look is not read if the needle is only to check with.
    """
    once, often = (np.zeros((len(piece.depths), lm.n_layers, lm.n_heads), np.int32) for _ in range(2))
    size, prompt = (np.zeros(len(piece.depths), np.int32) for _ in range(2))
    written = np.full((len(piece.depths), piece.new_tokens), NOTHING)
    texts = [piece.hidden(lm, depth) for depth in piece.depths]
    answers = answer_lines(lm, [hidden.ids for hidden in texts], piece.new_tokens)
    for i, (hidden, answer) in enumerate(progress(list(zip(texts, answers, strict=True)), piece.name)):
        if answer and not piece.held_out:
            try:
                once[i], often[i] = count_copies(lm, hidden, answer)
            except torch.OutOfMemoryError as e:
                raise CannotDo(f"out of memory with a text of {len(hidden.ids)} tokens: give shorter lengths") from e
        size[i], prompt[i] = hidden.end - hidden.start, len(hidden.ids)
        written[i, : len(answer)] = answer
    done[piece.name] = (once, often, size, written, prompt)


def answer_lines(lm: LM, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
    """What the model writes behind each prompt, greedily, up to the end of its line: as many at once as fit."""

    def line_ends(ids: Tensor, *_: Any, **__: Any) -> Tensor:
        return torch.tensor([ends(token) for token in ids[:, -1].tolist()], device=ids.device)

    def ends(token: int) -> bool:
        return "\n" in lm.tokenizer.decode([token])

    budget = tokens_at_once(lm, None)
    at_once = max(1, budget // (max(map(len, prompts)) + new_tokens))
    lines = []
    for first in range(0, len(prompts), at_once):
        with halve_batch_on_oom(lm, budget):
            batch = [list(prompt) for prompt in prompts[first : first + at_once]]
            lines += lm.generate_ids(batch, new_tokens, stopping_criteria=[line_ends])
    return [line[: next((i + 1 for i, token in enumerate(line) if ends(token)), None)] for line in lines]


def count_copies(lm: LM, hidden: Hidden, answer: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens of the needle's answer every head copied: each counted once, and as often as it was copied."""
    first = len(hidden.ids) - 1  # the token before the answer writes its first one
    most = attended_most(lm, (*hidden.ids, *answer[:-1]), range(first, first + len(answer)))  # [layer, head, step]
    held = torch.tensor(hidden.ids)[most.clamp(0, first)]  # the token there
    copied = (most >= hidden.start) & (most < hidden.end) & (held == torch.tensor(list(answer)))
    places = torch.arange(hidden.start, hidden.end)
    once = (copied[..., None] & (most[..., None] == places)).any(2).sum(-1)
    return once.numpy(), copied.sum(-1).numpy()


def word_recall(response: str, answer: str) -> float:
    """The share of the answer's words that were written, each as often as it occurs."""
    wanted = Counter(words(answer))
    return (wanted & Counter(words(response))).total() / wanted.total()


def combine(lm: LM, pieces: Sequence[Piece], counting: Counting, *, done: Done, progress: Progress) -> xr.Dataset:
    tests = xr.concat([_tests(lm, piece, counting, done[piece.name]) for piece in pieces], "test")
    sets = list(dict.fromkeys(piece.set for piece in pieces))
    used, number = tests.used.values, tests.number.values
    heads = xr.DataArray([i in lm.layers_with_heads for i in range(lm.n_layers)], dims="layer")
    tests["each"] = tests.each.where(heads & ~tests.held_out)
    scored = {name: used & (tests.set.values == name) for name in sets}
    halves = [[_mean(tests.each, scored[name] & (number % 2 == odd)) for odd in (1, 0)] for name in sets]
    shown = ~tests.held_out.values
    result = tests.drop_vars("number").assign(
        score=(("needles", "layer", "head"), np.stack([_mean(tests.each, scored[name]) for name in sets])),
        score_half=(("needles", "half", "layer", "head"), np.array(halves)),
        asked=("needles", [int((shown & (tests.set.values == name)).sum()) for name in sets]),
        answered=("needles", [int(scored[name].sum()) for name in sets]),
    )
    result = result.assign_coords(
        needles=sets, half=["first", "second"], layer=range(lm.n_layers), head=range(lm.n_heads)
    )
    if any(piece.held_out for piece in pieces):
        questions = {name: _questions(lm, pieces, counting, done, name) for name in sets}
        settings = (counting.seed, counting.batch_tokens)
        result = result.merge(check_removal(lm, questions, result.score, *settings, progress=progress))
    return result


def _tests(lm: LM, piece: Piece, counting: Counting, arrays: tuple[np.ndarray, ...]) -> xr.Dataset:
    """The texts of a part, one by one."""
    once, often, size, written, prompt = arrays
    responses = [_decoded(lm, row) for row in written]
    recalls = np.array([word_recall(r, piece.needle.answer) for r in responses])
    copied = once if counting.kind == "paper" else often
    n = len(piece.depths)
    return xr.Dataset(
        {
            "each": (("test", "layer", "head"), (copied / size[:, None, None]).astype(np.float32)),
            "set": ("test", [piece.set] * n),
            "needle": ("test", [piece.needle.text] * n),
            "answer": ("test", [piece.needle.answer] * n),
            "number": ("test", [piece.number] * n),
            "length": ("test", prompt.astype(np.int64)),
            "depth": ("test", list(piece.depths)),
            "response": ("test", responses),
            "recall": ("test", recalls),
            "used": ("test", (recalls >= counting.recall) & (not piece.held_out)),
            "held_out": ("test", [piece.held_out] * n),
        }
    )


def _questions(
    lm: LM, pieces: Sequence[Piece], counting: Counting, done: Mapping[str, tuple[np.ndarray, ...]], name: str
) -> list[TokenExample]:
    """Prompts of needles kept to check with, and the answers that the model gave, if they are right."""
    return [
        TokenExample(piece.hidden(lm, depth).ids, tuple(row[row != NOTHING].tolist()))
        for piece in pieces
        if piece.held_out and piece.set == name
        for depth, row in zip(piece.depths, done[piece.name][3], strict=True)
        if (row != NOTHING).any() and word_recall(_decoded(lm, row), piece.needle.answer) >= counting.recall
    ]


def _decoded(lm: LM, tokens: np.ndarray) -> str:
    return str(lm.tokenizer.decode(tokens[tokens != NOTHING].tolist(), skip_special_tokens=True)).strip()


def _mean(each: xr.DataArray, chosen: np.ndarray) -> np.ndarray:
    """[layer, head]; NaN where nothing is chosen."""
    values = each.values[chosen]
    return values.mean(0) if len(values) else np.full(each.shape[1:], np.nan, np.float32)


def read_cost(lm: LM, piece: Piece) -> Cost:
    """Passes to answer: one for the prompts that fit at once, and one for every token of the longest answer. Then one
    for each text, to see where heads look."""
    text, texts = make_bundle([TokenExample((0,) * piece.length, (0,))]), len(piece.depths)
    prompts = reading(lm, [text], texts)
    longest = _answer_length(lm, piece)
    written = Cost(tokens=texts * longest, passes=prompts.passes * longest)
    looking = Cost() if piece.held_out else texts * LOOKED * reading(lm, [text])
    return prompts + written + looking + Cost(seconds=HIDDEN * texts * piece.length)


def _answer_length(lm: LM, piece: Piece) -> int:
    """In tokens, about: answers are sentences around what is asked for."""
    return min(piece.new_tokens, 2 * len(lm.encode(piece.needle.answer)[0]))


def combine_cost(lm: LM, pieces: Sequence[Piece], counting: Counting) -> Cost:
    asked = [p for p in pieces if p.held_out for _ in p.depths]
    texts = [TokenExample((0,) * p.length, (0,) * _answer_length(lm, p)) for p in asked]
    return removal_cost(lm, texts, len(STEPS), DRAWS, counting.batch_tokens) if texts else Cost()

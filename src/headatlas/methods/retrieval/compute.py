"""Hide needles in texts, let the model answer, count the tokens that heads copied, and make the scores."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo, brief
from headatlas.models.attention import most_attended_positions
from headatlas.models.lm import LM
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.progress import FinishedParts, Progress
from headatlas.tasks.needles import Haystack, Needle, answer_beginning, hide_needle
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.scoring import words

log = logging.getLogger(__name__)
NO_TOKEN = -1
TESTED_TOKENS = 4  # of an answer, in the test


# --- texts


@dataclass(frozen=True)
class NeedleTexts:
    """One needle in texts of one length, a text for each depth.

    Args:
        set: name of the needle's set.
        number: number of the needle in its set, from 1.
        needle: the needle.
        sentences: sentences of the text around it.
        length: length of the prompts in tokens.
        depths: depth of the needle in each text.
    """

    set: str
    number: int
    needle: Needle
    sentences: Sequence[str]
    length: int
    depths: Sequence[float]

    @property
    def name(self) -> str:
        return f"{self.set}: needle {self.number}, {self.length} tokens"

    def prompts(self, lm: LM, template: bool) -> list[Haystack]:
        """Return the prompt of each text."""
        return [hide_needle(lm, self.needle, self.sentences, self.length, depth, template) for depth in self.depths]


def fitting_lengths(lm: LM, lengths: Any, new_tokens: int) -> tuple[int, ...]:
    """Return the lengths in order, each once, none longer than what fits into the context with the answer."""
    length_list: Any = [lengths] if isinstance(lengths, Integral) else lengths
    is_list = isinstance(length_list, Sequence) and not isinstance(length_list, str)
    if not is_list or not length_list or not all(isinstance(n, Integral) and int(n) > 0 for n in length_list):
        raise BadArgument(f"lengths is {brief(lengths)}, expected numbers of tokens, such as (512, 1024)")
    longest = (lm.anatomy.context or 10**9) - new_tokens
    if longest < 1:
        raise BadArgument(f"new_tokens is {new_tokens}, but the model's context is {lm.anatomy.context} tokens")
    if max(map(int, length_list)) > longest:
        log.warning("lengths: %s has room for prompts of %d tokens; larger lengths are reduced", lm.name, longest)
    return tuple(sorted({min(int(n), longest) for n in length_list}))


def hide_needles(
    sets: Mapping[str, Sequence[Needle]], sentences: Sequence[str], lengths: Sequence[int], n_depths: int
) -> list[NeedleTexts]:
    """Return the texts of all needles."""
    depths = (0.5,) if n_depths == 1 else tuple(np.linspace(0, 1, n_depths).round(4).tolist())
    return [
        NeedleTexts(name, i + 1, needle, _around(sentences, i, len(needles)), length, depths)
        for name, needles in sets.items()
        for i, needle in enumerate(needles)
        for length in lengths
    ]


def _around(sentences: Sequence[str], i: int, n: int) -> tuple[str, ...]:
    """Return the sentences from another one on for each of n needles, so that they are hidden in different parts."""
    first = i * len(sentences) // n
    return (*sentences[first:], *sentences[:first])


def make_task(
    lm: LM, name: str, needles: Sequence[Needle], sentences: Sequence[str], length: int, template: bool
) -> Task | None:
    """Return a task of token ids: questions about needles in texts, with the answers' first tokens as targets.

    The prompt begins the answer in the words of the needle, so that the next tokens do not depend on how a model words
    it. None for fewer than two needles.
    """
    depths = np.linspace(0, 1, max(len(needles), 2))
    examples = []
    for i, needle in enumerate(needles):
        beginning = answer_beginning(lm, needle, template)
        around = _around(sentences, i, len(needles))
        prompt = hide_needle(lm, needle, around, length - len(beginning), float(depths[i]), template)
        answer = prompt.ids[prompt.start : prompt.end][:TESTED_TOKENS]
        examples.append(Example((*prompt.ids, *beginning), answer))
    # a task has examples of both splits; nothing is trained on, and its test uses both
    return Task(name, tuple(examples[1::2]), tuple(examples[0::2])) if len(examples) > 1 else None


# --- answers, and which of their tokens heads copied


def read_texts(
    lm: LM,
    *,
    texts: NeedleTexts,
    new_tokens: int,
    template: bool,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Answer the question of each text, and count the needle's tokens that every head copied.

    Stores the number of distinct tokens copied and the number of copies, both [text, layer, head]; the number of tokens
    of the needle's answer [text]; the written tokens [text, token]; and the length of the prompt [text].
    """
    n = len(texts.depths)
    distinct = np.zeros((n, lm.n_layers, lm.n_heads), np.int32)
    copies = np.zeros_like(distinct)
    needle_size = np.zeros(n, np.int32)
    prompt_size = np.zeros(n, np.int32)
    written = np.full((n, new_tokens), NO_TOKEN)
    prompts = texts.prompts(lm, template)
    answers = answer_lines(lm, [prompt.ids for prompt in prompts], new_tokens, batch_tokens)
    for i, (prompt, answer) in enumerate(progress(list(zip(prompts, answers, strict=True)), texts.name)):
        if answer:
            try:
                distinct[i], copies[i] = count_copies(lm, prompt, answer)
            except torch.OutOfMemoryError as e:
                raise CannotDo(f"out of memory with a text of {len(prompt.ids)} tokens: give shorter lengths") from e
        needle_size[i] = prompt.end - prompt.start
        prompt_size[i] = len(prompt.ids)
        written[i, : len(answer)] = answer
    done[texts.name] = (distinct, copies, needle_size, written, prompt_size)


def answer_lines(
    lm: LM, prompts: Sequence[Sequence[int]], new_tokens: int, batch_tokens: int | None = None
) -> list[list[int]]:
    """Return the tokens that the model writes after each prompt, greedily, up to the end of its line."""

    def has_line_break(token: int) -> bool:
        return "\n" in lm.tokenizer.decode([token])

    def is_finished(ids: Tensor, *_: Any, **__: Any) -> Tensor:
        return torch.tensor([has_line_break(token) for token in ids[:, -1].tolist()], device=ids.device)

    budget = tokens_at_once(lm, batch_tokens)
    batch_size = max(1, budget // (max(map(len, prompts)) + new_tokens))
    lines = []
    for first in range(0, len(prompts), batch_size):
        with halve_batch_on_oom(lm, budget):
            batch = [list(prompt) for prompt in prompts[first : first + batch_size]]
            lines += lm.generate_ids(batch, new_tokens, stopping_criteria=[is_finished])
    # in a batch, the model writes until all lines are finished
    return [line[: next((i + 1 for i, token in enumerate(line) if has_line_break(token)), None)] for line in lines]


def count_copies(lm: LM, prompt: Haystack, answer: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Count the distinct tokens of the needle's answer that every head copied, and all copies, both [layer, head]."""
    # the answer's first token is predicted at the last one of the prompt
    first = len(prompt.ids) - 1
    steps = range(first, first + len(answer))
    position = most_attended_positions(lm, (*prompt.ids, *answer[:-1]), steps)  # [layer, head, step]
    attended_token = torch.tensor(prompt.ids)[position.clamp(0, first)]
    in_needle = (position >= prompt.start) & (position < prompt.end)
    copied = in_needle & (attended_token == torch.tensor(list(answer)))
    needle_positions = torch.arange(prompt.start, prompt.end)
    distinct = (copied[..., None] & (position[..., None] == needle_positions)).any(2).sum(-1)
    return distinct.numpy(), copied.sum(-1).numpy()


def word_recall(response: str, answer: str) -> float:
    """Return the share of the answer's words that the response has; a repeated word must be repeated."""
    answer_words = Counter(words(answer))
    return (answer_words & Counter(words(response))).total() / answer_words.total()


# --- scores


def combine(
    lm: LM,
    *,
    texts: Sequence[NeedleTexts],
    kind: str,
    recall: float,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Make the map from the answered texts."""
    tests = xr.concat([_text_results(lm, t, kind, recall, done[t.name]) for t in texts], "test")
    sets = list(dict.fromkeys(t.set for t in texts))
    number = tests.number.values
    has_heads = xr.DataArray([i in lm.layers_with_heads for i in range(lm.n_layers)], dims="layer")
    tests["each"] = tests.each.where(has_heads)
    scored = {name: tests.used.values & (tests.set.values == name) for name in sets}
    # The texts of one needle are one repeat, because they are answered alike.
    needles = [(name, i) for name in sets for i in np.unique(number[scored[name]])]
    by_needle = [_mean(tests.each, scored[name] & (number == i)) for name, i in needles]
    result = tests.drop_vars("number").assign(
        score=(("needles", "layer", "head"), np.stack([_mean(tests.each, scored[name]) for name in sets])),
        by_needle=(("needle_text", "layer", "head"), np.reshape(by_needle, (-1, lm.n_layers, lm.n_heads))),
        asked=("needles", [int((tests.set.values == name).sum()) for name in sets]),
        answered=("needles", [int(scored[name].sum()) for name in sets]),
    )
    return result.assign_coords(
        needles=sets,
        repeat_of=("needle_text", np.array([name for name, _ in needles], dtype=str)),
        layer=range(lm.n_layers),
        head=range(lm.n_heads),
    )


def _text_results(lm: LM, texts: NeedleTexts, kind: str, recall: float, arrays: tuple[np.ndarray, ...]) -> xr.Dataset:
    """Return the results of each text, from the arrays that `read_texts` stored."""
    distinct, copies, needle_size, written, prompt_size = arrays
    responses = [_decode(lm, tokens) for tokens in written]
    recalls = np.array([word_recall(response, texts.needle.answer) for response in responses])
    copied = distinct if kind == "paper" else copies
    n = len(texts.depths)
    return xr.Dataset(
        {
            "each": (("test", "layer", "head"), (copied / needle_size[:, None, None]).astype(np.float32)),
            "set": ("test", [texts.set] * n),
            "needle": ("test", [texts.needle.text] * n),
            "answer": ("test", [texts.needle.answer] * n),
            "number": ("test", [texts.number] * n),
            "length": ("test", prompt_size.astype(np.int64)),
            "depth": ("test", list(texts.depths)),
            "response": ("test", responses),
            "recall": ("test", recalls),
            "used": ("test", recalls >= recall),
        }
    )


def _decode(lm: LM, tokens: np.ndarray) -> str:
    return str(lm.tokenizer.decode(tokens[tokens != NO_TOKEN].tolist(), skip_special_tokens=True)).strip()


def _mean(scores: xr.DataArray, selected: np.ndarray) -> np.ndarray:
    """Return the mean over the selected tests, [layer, head]; NaN where none is selected."""
    values = scores.values[selected]
    return values.mean(0) if len(values) else np.full(scores.shape[1:], np.nan, np.float32)


def retrieval_sentences(result: xr.Dataset) -> list[str]:
    """Return what a reader must know before believing a map: above all, whether the model answered at all."""
    lines = []
    for name in result.needles.values.tolist():
        needles = result.sel(needles=name)
        answered = int(needles.answered)
        n_questions = int(needles.asked)
        if not answered:
            lines.append(
                f"{name}: the model answered none of {n_questions} questions, so there is no score. Try shorter texts"
            )
        elif answered < n_questions:
            lines.append(f"{name}: the model answered {answered} of {n_questions} questions; scores are of those")
    return lines

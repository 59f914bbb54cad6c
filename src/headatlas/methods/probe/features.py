"""probe, steps 1 to 4: answers, their informative tokens, and the mean of z over these, for every head.

Examples are read in shards, which are independent of each other.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from headatlas.errors import CannotDo
from headatlas.methods.probe.settings import Shard
from headatlas.models.interventions import answer_states
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.token_text import text_inside
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Done, Progress, silent
from headatlas.tasks.questions import Question

SHARD = 128  # examples of a shard, at least

Choose = Callable[[int, np.ndarray], list[int]]
"""(example, −log P of its answer tokens) → which of them to keep."""


def capture(
    lm: LM,
    examples: Sequence[TokenExample] | Mapping[int, TokenExample],
    groups: Sequence[Sequence[int]],
    choose: Choose,
    features: np.ndarray | dict[int, np.ndarray],
    *,
    batch_tokens: int | None = None,
    label: str = "reading answers",
    progress: Progress = silent,
) -> None:
    """Fill features [example, layer, head, d_head] with means of z over each answer's chosen tokens.

    Layers are those with heads. examples: by number. groups: those to read; their prompts begin alike, so they are run
    together.
    """
    layers = lm.layers_with_heads
    budget = tokens_at_once(lm, batch_tokens)
    groups = [part for group in groups for part in _cut(group, max(1, budget // max(len(examples[i]) for i in group)))]
    bundles = [make_bundle([examples[i] for i in group]) for group in groups]
    for _, chosen in progress(list(batches(bundles, 1, budget)), label):
        numbers = [i for s in chosen for i in groups[s]]
        with halve_batch_on_oom(lm, budget):
            states = answer_states(lm, [bundles[s] for s in chosen])
        for example, (surprisal, z) in zip(numbers, states, strict=True):
            kept = choose(example, surprisal.cpu().numpy())
            mean = z[kept][:, layers].to(torch.promote_types(z.dtype, torch.float32)).mean(0)
            bad = ~mean.isfinite().flatten(1).all(1)
            if bad.any():
                layer = layers[int(bad.nonzero()[0])]
                raise CannotDo(
                    f"example {example}: activations in layer {layer} are NaN or infinite"
                    " (a model in float16 overflows easily: load it in bfloat16 or float32)"
                )
            features[example] = mean.cpu().numpy()


def shards(questions: Sequence[Question]) -> list[Shard]:
    """Questions cut into shards that are large enough to fill batches; a main question's stay together."""
    groups: dict[str, list[int]] = {}
    for i, q in enumerate(questions):
        groups.setdefault(q.group, []).append(i)
    cut: list[list[list[int]]] = [[]]
    for group in groups.values():
        if sum(map(len, cut[-1])) >= SHARD:
            cut.append([])
        cut[-1].append(group)
    return [Shard(f"shard {number} of {len(cut)}", groups) for number, groups in enumerate(cut, 1)]


def pieces(lm: LM, answer: Sequence[int]) -> list[str]:
    """An answer's tokens as text, with a space in front where a word begins."""
    texts = [text_inside(lm.tokenizer, [i]) for i in answer]
    return [f"{' ' * text.startswith(' ')}{text.strip()}" for text in texts]


def _cut(group: Sequence[int], size: int) -> list[Sequence[int]]:
    return [group[a : a + size] for a in range(0, len(group), size)]


def generate_answers(
    lm: LM,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    *,
    done: Done | None = None,
    label: str = "answering",
    progress: Progress = silent,
) -> list[list[int]]:
    """Greedy answers as tokens, prompts of like length together."""
    done = {} if done is None else done
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    budget = tokens_at_once(lm, None)
    batch = max(1, 32 // lm.state.batch_divisor, budget // (max(map(len, prompts)) + max_new_tokens))
    answers: list[list[int]] = [[] for _ in prompts]
    for start in progress(range(0, len(order), batch), label):
        chosen = order[start : start + batch]
        name = f"{label} {start} to {start + len(chosen)}"
        if name not in done:
            with halve_batch_on_oom(lm, budget):
                written = lm.generate_ids([list(prompts[i]) for i in chosen], max_new_tokens)
            done[name] = (padded(written, max_new_tokens),)
        for i, tokens in zip(chosen, unpadded(done[name][0]), strict=True):
            answers[i] = tokens
    return answers


def padded(answers: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """Answers as an array [answer, token], −1 behind their ends."""
    array = np.full((len(answers), width), -1)
    for row, ids in zip(array, answers, strict=True):
        row[: len(ids)] = ids
    return array


def unpadded(array: np.ndarray) -> list[list[int]]:
    return [row[row >= 0].tolist() for row in array]

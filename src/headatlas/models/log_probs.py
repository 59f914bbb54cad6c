"""log P(target | prompt) under many gates at once: differentiable and exact.

Logits are made only where a target token is predicted; tokens run at once are bounded; texts are packed (`packing`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from headatlas.models.lm import LM
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import lay_out, logits_of, stack
from headatlas.models.tokens import Bundle


def batches(
    bundles: Sequence[Bundle], gates: int, tokens: int, *, packed: bool = False
) -> Iterator[tuple[slice, list[int]]]:
    """What to run at once: a range of gates and bundles (by number), together at most `tokens` tokens where possible.

    Counted as if every text had a row of its own, padded: packing needs less, but not every model packs. packed: this
    one does. The longest come first: so memory runs out early if at all, and whether a model packs is tried once, not
    for every longer text.
    """
    if not bundles:
        return
    length = [bundle.shared + bundle.rest for bundle in bundles]
    order = sorted(range(len(bundles)), key=lambda i: (-length[i], i))

    def size(texts: int, own: int, longest: int) -> int:
        return own if packed else texts * longest

    each = [(len(bundle.examples), bundle.size) for bundle in bundles]
    together = min(gates, max(1, tokens // max(size(*of, n) for of, n in zip(each, length, strict=True))))
    for first in range(0, gates, together):
        chunk: list[int] = []
        texts = total = 0
        for i in order:
            more_texts, more = each[i]
            if chunk and together * size(texts + more_texts, total + more, length[chunk[0]]) > tokens:
                yield slice(first, first + together), chunk
                chunk, texts, total = [], 0, 0
            chunk.append(i)
            texts, total = texts + more_texts, total + more
        yield slice(first, first + together), chunk


def log_probs(
    lm: LM,
    bundles: Sequence[Bundle],
    gate: Tensor | None = None,
    *,
    packed: bool = False,
    under: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """log P(target | prompt), and whether every target token was the likeliest: both [gate, example], float32 and bool.

    Examples come bundle by bundle. Differentiable in the gate.

    gate: [gate, layer, head]; without one, the model as it is, as a single gate.
    packed: where that saves tokens and the model can. Otherwise every text has a row of its own, padded on the right,
        and gate may be [gate, example, layer, head].
    under: the one gate of each bundle, instead of every bundle under every gate; results are then [1, example].
    """
    layout = lay_out(lm, bundles) if packed and (gate is None or gate.ndim == 3) else stack(lm, bundles)
    return score_targets(logits_of(lm, layout, gate, under), bundles)


def score_targets(logits: Tensor, bundles: Sequence[Bundle]) -> tuple[Tensor, Tensor]:
    """`log_probs` from logits [gate · target token, vocabulary]."""
    targets = [a.target for bundle in bundles for a in bundle.examples]
    gates = len(logits) // sum(map(len, targets))
    # non_blocking: the host need not wait until the logits are there
    tokens = torch.tensor([t for target in targets for t in target]).to(logits.device, non_blocking=True).repeat(gates)
    log_p = -cross_entropy(logits, tokens, reduction="none").view(gates, -1)
    right = (logits.detach().argmax(-1) == tokens).view(gates, -1)
    # each example's tokens side by side, then whatever is behind the last one: one sum, not one for each example
    lengths = np.array([len(target) for target in targets])[:, None]
    ends, nth = np.cumsum(lengths)[:, None], np.arange(lengths.max())
    own = torch.from_numpy(np.where(nth < lengths, ends - lengths + nth, ends[-1]))
    own = own.to(logits.device, non_blocking=True)
    return pad(log_p, (0, 1))[:, own].sum(-1), pad(right, (0, 1), value=True)[:, own].all(-1)


@torch.no_grad()
def batched_log_probs(
    lm: LM, bundles: Sequence[Bundle], gate: Tensor | None = None, tokens: int | None = None
) -> tuple[Tensor, Tensor]:
    """`log_probs` without gradients, in as many passes as `tokens` at once need; on the CPU."""
    gates = 1 if gate is None else len(gate)
    starts = torch.tensor([0, *(len(bundle.examples) for bundle in bundles)]).cumsum(0).tolist()
    log_p = torch.empty(gates, starts[-1])
    right = torch.empty(gates, starts[-1], dtype=torch.bool)
    budget = tokens_at_once(lm, tokens)
    for rows, chosen in batches(bundles, gates, budget):
        with halve_batch_on_oom(lm, budget):
            now = None if gate is None else gate[rows].to(lm.device)
            result = log_probs(lm, [bundles[i] for i in chosen], now, packed=True)
        examples = [e for i in chosen for e in range(starts[i], starts[i + 1])]
        log_p[rows, examples], right[rows, examples] = result[0].float().cpu(), result[1].cpu()
    return log_p, right

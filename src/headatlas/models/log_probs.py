"""log P(target | prompt) under many gates at once: differentiable and exact.

Logits are computed only where a target token is predicted; the number of tokens at once is limited; texts are packed
(`packing`).
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
    """Yield what runs at once: a range of gates, and bundles by index, at most `tokens` tokens if possible.

    The longest bundles come first. So memory runs out at the start, if at all, and packing is tried only once.

    Args:
        packed: count the tokens of packed texts. Otherwise each text counts as a padded row: packing needs less, but
            not every model can pack.
    """
    if not bundles:
        return
    length = [bundle.shared + bundle.rest for bundle in bundles]
    order = sorted(range(len(bundles)), key=lambda i: (-length[i], i))

    def cost(n_texts: int, n_tokens: int, longest: int) -> int:
        return n_tokens if packed else n_texts * longest

    largest = max(cost(len(bundle.examples), bundle.size, n) for bundle, n in zip(bundles, length, strict=True))
    gates_at_once = min(gates, max(1, tokens // largest))
    for first in range(0, gates, gates_at_once):
        batch: list[int] = []
        n_texts = n_tokens = 0
        for i in order:
            new_texts = len(bundles[i].examples)
            new_tokens = bundles[i].size
            if batch and gates_at_once * cost(n_texts + new_texts, n_tokens + new_tokens, length[batch[0]]) > tokens:
                yield slice(first, first + gates_at_once), batch
                batch = []
                n_texts = n_tokens = 0
            batch.append(i)
            n_texts += new_texts
            n_tokens += new_tokens
        yield slice(first, first + gates_at_once), batch


def log_probs(
    lm: LM,
    bundles: Sequence[Bundle],
    gate: Tensor | None = None,
    *,
    packed: bool = False,
    under: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return log P(target | prompt), and whether every target token was the likeliest; differentiable in the gate.

    Args:
        gate: [gate, layer, head]; without one, the unchanged model counts as a single gate.
        packed: pack texts if that saves tokens and the model can. Otherwise every text has a row, padded on the right,
            and gate may be [gate, example, layer, head].
        under: the index of the gate of each bundle; by default, every bundle is run under every gate.

    Returns:
        Both [gate, example], float32 and bool, with examples bundle by bundle; [1, example] with `under`.
    """
    layout = lay_out(lm, bundles) if packed and (gate is None or gate.ndim == 3) else stack(lm, bundles)
    return score_targets(logits_of(lm, layout, gate, under), bundles)


def score_targets(logits: Tensor, bundles: Sequence[Bundle]) -> tuple[Tensor, Tensor]:
    """Return what `log_probs` returns, from logits [gate · target token, vocabulary]."""
    targets = [a.target for bundle in bundles for a in bundle.examples]
    n_gates = len(logits) // sum(map(len, targets))
    # non_blocking, so that the host need not wait for the logits
    tokens = torch.tensor([t for target in targets for t in target]).to(logits.device, non_blocking=True)
    tokens = tokens.repeat(n_gates)
    log_p = -cross_entropy(logits, tokens, reduction="none").view(n_gates, -1)
    is_likeliest = (logits.detach().argmax(-1) == tokens).view(n_gates, -1)
    # A row of token indices per example, filled up with one past the last token, where `pad` puts a neutral value: one
    # sum for all examples, not one for each.
    lengths = np.array([len(target) for target in targets])[:, None]
    ends = np.cumsum(lengths)[:, None]
    nth = np.arange(lengths.max())
    index = torch.from_numpy(np.where(nth < lengths, ends - lengths + nth, ends[-1]))
    index = index.to(logits.device, non_blocking=True)
    return pad(log_p, (0, 1))[:, index].sum(-1), pad(is_likeliest, (0, 1), value=True)[:, index].all(-1)


@torch.no_grad()
def batched_log_probs(
    lm: LM, bundles: Sequence[Bundle], gate: Tensor | None = None, tokens: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return what `log_probs` returns, on the CPU, without gradients, in passes of at most `tokens` tokens."""
    n_gates = 1 if gate is None else len(gate)
    starts = torch.tensor([0, *(len(bundle.examples) for bundle in bundles)]).cumsum(0).tolist()
    log_p = torch.empty(n_gates, starts[-1])
    is_likeliest = torch.empty(n_gates, starts[-1], dtype=torch.bool)
    budget = tokens_at_once(lm, tokens)
    for gates, indices in batches(bundles, n_gates, budget):
        with halve_batch_on_oom(lm, budget):
            batch_gate = None if gate is None else gate[gates].to(lm.device)
            batch_log_p, batch_is_likeliest = log_probs(lm, [bundles[i] for i in indices], batch_gate, packed=True)
        examples = [e for i in indices for e in range(starts[i], starts[i + 1])]
        log_p[gates, examples] = batch_log_p.float().cpu()
        is_likeliest[gates, examples] = batch_is_likeliest.cpu()
    return log_p, is_likeliest

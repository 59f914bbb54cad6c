"""z of every head at the tokens of an answer, and how likely the answer stays while heads are changed.

Answers are teacher-forced, so everything is one pass over prompt and answer, packed. Changes apply from the prompt's
last token on, where answering begins. The prompt is the same for every change, so it is run once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from headatlas.models import heads as h
from headatlas.models.lm import LM
from headatlas.models.targets import (
    Bundle,
    Layout,
    TokenExample,
    batches,
    lay_out,
    logits_only,
    out_of_memory_told,
    tokens_at_once,
)

MEASURES = ("log_p", "rank", "first")


@torch.no_grad()
def answer_states(lm: LM, bundles: Sequence[Bundle]) -> list[tuple[Tensor, Tensor]]:
    """For each example, bundle by bundle: −log P of its answer tokens [token], and z [token, layer, head, d_head]."""
    longer = [Bundle(tuple(TokenExample(a.prompt, (*a.target, 0)) for a in s.examples), s.shared) for s in bundles]
    layout = lay_out(lm, longer)  # with one token more to predict, the last answer token is run too
    rows, places = torch.tensor(layout.rows), torch.tensor(layout.places)
    z = torch.full((len(rows), lm.n_layers, lm.n_heads, lm.d_head), torch.nan, dtype=lm.model.dtype, device=lm.device)

    def read(layer: int, now: Tensor) -> None:
        z[:, layer] = now[rows.to(now.device), places.to(now.device)].to(z.device)

    with h.hooked(lm.model, lm.anatomy, read), logits_only(lm, rows, places):
        logits = lm.model(**layout.inputs, use_cache=False).logits[0]
    states, at = [], 0
    for a in (a for bundle in bundles for a in bundle.examples):
        n = len(a.target)
        target = torch.tensor(a.target, device=logits.device)
        states.append((cross_entropy(logits[at : at + n].float(), target, reduction="none"), z[at + 1 : at + n + 1]))
        at += n + 1
    return states


@dataclass(frozen=True)
class Change:
    """What is done to z while answering: scaled by gate [layer, head], then add [layer, head, d_head] is added."""

    gate: Tensor
    add: Tensor | None = None


@torch.no_grad()
def answers_under(
    lm: LM,
    examples: Sequence[TokenExample],
    changes: Sequence[Change],
    *,
    everywhere: bool = False,
    tokens: int | None = None,
) -> Tensor:
    """How good the answers are under each change: [change, example, measure], means over the tokens of an answer.

    Measures: log_p, log P of the token; rank, log of its rank, 0 for the likeliest; first, whether it is the likeliest.
    everywhere: change heads at the prompt's tokens too, which costs the prompt once for every change.
    """
    budget = tokens_at_once(lm, tokens)
    bundles, place = [], []
    for e, a in enumerate(examples):
        shared = 0 if everywhere else len(a.prompt) - 1
        packs = shared > 0 and len(lay_out(lm, [Bundle((a, a), shared)]).inputs["input_ids"]) == 1
        together = max(1, (budget - shared) // (len(a) - shared) if packs else budget // len(a))
        for first in range(0, len(changes), together):
            bundles.append(Bundle((a,) * len(changes[first : first + together]), shared))
            place.append((e, first))
    result = torch.empty(len(changes), len(examples), len(MEASURES))
    gates = torch.stack([c.gate for c in changes] + [torch.ones(lm.n_layers, lm.n_heads)])
    for _, chosen in batches(bundles, 1, budget):
        now = [bundles[i] for i in chosen]
        numbers = [place[i][1] + k for i in chosen for k in range(len(bundles[i].examples))]
        with out_of_memory_told(lm, budget):
            layout = lay_out(lm, now)
            which = torch.where(layout.owner >= 0, torch.tensor(numbers)[layout.owner.clamp(min=0)], len(changes))
            measured = _changed(lm, now, layout, which, gates, changes)
        result[numbers, [place[i][0] for i in chosen for _ in bundles[i].examples]] = measured
    return result


def _changed(
    lm: LM, bundles: Sequence[Bundle], layout: Layout, which: Tensor, gates: Tensor, changes: Sequence[Change]
) -> Tensor:
    """[text, measure], with change number which [row, place] in force at every token; the last number is none."""
    added = [i for i, c in enumerate(changes) if c.add is not None]
    adds = torch.stack([c.add for c in changes if c.add is not None]) if added else None
    slot = torch.full((len(changes) + 1,), -1)
    slot[added] = torch.arange(len(added))
    slot = slot[which]

    def edit(layer: int, z: Tensor) -> Tensor:
        z = z * gates[:, layer].to(z.device, z.dtype)[which.to(z.device)][..., None]
        if adds is not None:
            rows, places = (slot >= 0).nonzero(as_tuple=True)
            here = rows.to(z.device), places.to(z.device)
            z[here] += adds[slot[rows, places], layer].to(z.device, z.dtype)
        return z

    rows, places = torch.tensor(layout.rows), torch.tensor(layout.places)
    with h.hooked(lm.model, lm.anatomy, edit), logits_only(lm, rows, places):
        logits = lm.model(**layout.inputs, use_cache=False).logits[0].float()
    targets = [a.target for bundle in bundles for a in bundle.examples]
    own = logits.gather(1, torch.tensor([t for target in targets for t in target], device=logits.device)[:, None])
    log_p = own[:, 0] - logits.logsumexp(-1)
    rank = (logits > own).sum(1)
    each = torch.stack([log_p, (1.0 + rank).log(), (rank == 0).float()], dim=1).cpu()
    return torch.stack([part.mean(0) for part in each.split([len(target) for target in targets])])

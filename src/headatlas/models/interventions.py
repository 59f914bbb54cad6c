"""Interventions while a model answers: what its heads give, and how likely the answer stays while they are changed.

Answers are teacher-forced, so everything is one pass over prompt and answer, packed. Changes apply from the prompt's
last token on, where answering begins. The prompt is the same for every change, so it is run once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from headatlas.models.hooks import hooked
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import Layout, lay_out, logits_only, packs
from headatlas.models.tokens import Bundle, TokenExample

MEASURES = ("log_p", "rank", "first")
LOGITS = 4  # logits take memory: so many times fewer tokens may have some at once


@torch.no_grad()
def answer_states(lm: LM, bundles: Sequence[Bundle]) -> list[tuple[Tensor, Tensor]]:
    """For each example, bundle by bundle: −log P of its answer tokens [token], and z [token, layer, head, d_head]."""
    longer = [Bundle(tuple(TokenExample(a.prompt, (*a.target, 0)) for a in s.examples), s.shared) for s in bundles]
    layout = lay_out(lm, longer)  # with one token more to predict, the last answer token is run too
    rows, places = torch.tensor(layout.rows), torch.tensor(layout.places)
    z = torch.full((len(rows), lm.n_layers, lm.n_heads, lm.d_head), torch.nan, dtype=lm.model.dtype, device=lm.device)

    def read(layer: int, now: Tensor) -> None:
        z[:, layer] = now[rows.to(now.device), places.to(now.device)].to(z.device)

    with hooked(lm.model, lm.anatomy, read), logits_only(lm, rows, places), without_cudnn_attention():
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


Changing = Callable[[Tensor], AbstractContextManager[None]]
"""Number of the change at every token [row, place], as high as there are changes where none is → it is in force."""


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
    changing = _scaled_and_pushed(lm, changes)
    return answers_while(lm, examples, len(changes), changing, everywhere=everywhere, tokens=tokens)


@torch.no_grad()
def answers_while(
    lm: LM,
    examples: Sequence[TokenExample],
    changes: int,
    changing: Changing,
    *,
    everywhere: bool = False,
    tokens: int | None = None,
) -> Tensor:
    """`answers_under` so many changes of any kind."""
    budget = tokens_at_once(lm, tokens)
    bundles, place, packed = [], [], True
    for e, a in enumerate(examples):
        shared = 0 if everywhere else len(a.prompt) - 1
        together = shares(lm, a, shared)
        packed &= together
        for number in copies(a, shared, changes, budget, together):
            bundles.append(Bundle((a,) * len(number), shared))
            place.append((e, number))
    result = torch.empty(changes, len(examples), len(MEASURES))
    for chosen in _passes(lm, bundles, budget, packed):
        now = [bundles[i] for i in chosen]
        numbers = [number for i in chosen for number in place[i][1]]
        with halve_batch_on_oom(lm, budget):
            layout = lay_out(lm, now)
            which = torch.where(layout.owner >= 0, torch.tensor(numbers)[layout.owner.clamp(min=0)], changes)
            with changing(which):
                measured = _measured(lm, now, layout)
        result[numbers, [place[i][0] for i in chosen for _ in bundles[i].examples]] = measured
    return result


def _passes(lm: LM, bundles: Sequence[Bundle], budget: int, packed: bool) -> Iterator[list[int]]:
    """What to run at once, by number. packed: copies were found to share their beginnings; some models take no rows as
    wide as these, so that is asked again."""
    for chosen in filled(bundles, budget) if packed else [list(range(len(bundles)))]:
        now = [bundles[i] for i in chosen]
        if packed and packs(lm, now):
            yield chosen
        else:
            yield from ([chosen[i] for i in some] for _, some in batches(now, 1, budget))


def filled(bundles: Sequence[Bundle], budget: int) -> Iterator[list[int]]:
    """Bundles that are packed into a pass, by number: at most `budget` tokens where possible, and with logits, which
    take memory, fewer."""
    chosen: list[int] = []
    tokens = targets = 0
    for i in sorted(range(len(bundles)), key=lambda i: -bundles[i].size):
        more, more_targets = bundles[i].size, sum(len(a.target) for a in bundles[i].examples)
        if chosen and (tokens + more > budget or targets + more_targets > budget // LOGITS):
            yield chosen
            chosen, tokens, targets = [], 0, 0
        chosen.append(i)
        tokens, targets = tokens + more, targets + more_targets
    if chosen:
        yield chosen


def copies(example: TokenExample, shared: int, changes: int, budget: int, together: bool) -> list[range]:
    """Changes that an example is run under at once: as many copies as fit, behind the beginning they share or each with
    its own."""
    own, targets = len(example) - 1 - shared, len(example.target)
    packed = min((budget - shared) // own, budget // LOGITS // targets)
    return spans(changes, packed if together else budget // (shared + own))


def spans(number: int, at_once: int) -> list[range]:
    """0 to number − 1, so many at once, and at least one."""
    step = max(1, at_once)
    return [range(first, min(first + step, number)) for first in range(0, number, step)]


def shares(lm: LM, example: TokenExample, shared: int) -> bool:
    """Whether copies of an example can share so many tokens of its beginning: the model runs these once."""
    return shared > 0 and packs(lm, [Bundle((example, example), shared)])


def _scaled_and_pushed(lm: LM, changes: Sequence[Change]) -> Changing:
    gates = torch.stack([c.gate for c in changes] + [torch.ones(lm.n_layers, lm.n_heads)]).to(lm.device)
    added = [i for i, c in enumerate(changes) if c.add is not None]
    adds = torch.stack([c.add for c in changes if c.add is not None]) if added else None
    slots = torch.full((len(changes) + 1,), -1)
    slots[added] = torch.arange(len(added))

    def changing(which: Tensor) -> AbstractContextManager[None]:
        slot, on_device = slots[which], which.to(lm.device)

        def edit(layer: int, z: Tensor) -> Tensor:
            z = z * gates[:, layer].to(z.device, z.dtype)[on_device.to(z.device)][..., None]
            if adds is not None:
                rows, places = (slot >= 0).nonzero(as_tuple=True)
                here = rows.to(z.device), places.to(z.device)
                z[here] += adds[slot[rows, places], layer].to(z.device, z.dtype)
            return z

        return hooked(lm.model, lm.anatomy, edit)

    return changing


def _measured(lm: LM, bundles: Sequence[Bundle], layout: Layout) -> Tensor:
    """[text, measure], of the model as it is now."""
    with logits_only(lm, torch.tensor(layout.rows), torch.tensor(layout.places)), without_cudnn_attention():
        logits = lm.model(**layout.inputs, use_cache=False).logits[0].float()
    targets = [a.target for bundle in bundles for a in bundle.examples]
    own = logits.gather(1, torch.tensor([t for target in targets for t in target], device=logits.device)[:, None])
    log_p = own[:, 0] - logits.logsumexp(-1)
    rank = (logits > own).sum(1)
    each = torch.stack([log_p, (1.0 + rank).log(), (rank == 0).float()], dim=1).cpu()
    lengths = torch.tensor([len(target) for target in targets])
    text = torch.arange(len(targets)).repeat_interleave(lengths)
    return torch.zeros(len(targets), len(MEASURES)).index_add_(0, text, each) / lengths[:, None]


def replacing(lm: LM, heads: Sequence[tuple[int, int]], values: Tensor) -> Changing:
    """Under change n, head number n gives values[n]; under higher ones none is changed. values [change, d_head]."""
    layers, numbers = torch.tensor(heads).T

    def changing(which: Tensor) -> AbstractContextManager[None]:
        def edit(layer: int, z: Tensor) -> Tensor | None:
            rows, places, change = _tokens(which, layers == layer)
            if not len(rows):
                return None
            z = z.clone()
            z[rows.to(z.device), places.to(z.device), numbers[change].to(z.device)] = values[change].to(z)
            return z

        return hooked(lm.model, lm.anatomy, edit)

    return changing


def adding(lm: LM, layers: Sequence[int], vectors: Tensor) -> Changing:
    """Under change n, vectors[n] is added to what block layers[n] gives; under higher ones nothing is. vectors [change,
    d_model]."""
    at = torch.tensor(layers)

    @contextmanager
    def changing(which: Tensor) -> Iterator[None]:
        def hook(layer: int, output: Any) -> Any:
            if isinstance(output, tuple):
                return (hook(layer, output[0]), *output[1:])
            rows, places, change = _tokens(which, at == layer)
            hidden = output.clone()
            hidden[rows.to(hidden.device), places.to(hidden.device)] += vectors[change].to(hidden)
            return hidden

        with ExitStack() as stack:
            for i in sorted(set(layers)):
                block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")
                handle = block.register_forward_hook(lambda module, args, output, i=i: hook(i, output))
                stack.callback(handle.remove)
            yield

    return changing


def _tokens(which: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and places of the tokens under one of the wanted changes (bool [change]), and the change each is under."""
    here = wanted[which.clamp(max=len(wanted) - 1)] & (which < len(wanted))
    rows, places = here.nonzero(as_tuple=True)
    return rows, places, which[rows, places]

"""Interventions while a model answers: its heads' outputs, and how likely its answers stay while heads are changed.

Answers are teacher-forced: one packed pass over prompt and answer. Changes apply from the prompt's last token on, where
answering begins. The tokens before it are the same for every change, so they are run once.
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
from headatlas.models.packing import Layout, is_packed, lay_out, logits_only
from headatlas.models.tokens import Bundle, TokenExample

MEASURES = ("log_p", "rank", "first")
CHOICE_MEASURES = ("choice", "chosen")  # measured in addition if there are candidates
# Logits take memory: at most one token in four of those that run at once may have some.
TOKENS_PER_LOGITS = 4


@torch.no_grad()
def answer_states(lm: LM, bundles: Sequence[Bundle]) -> list[tuple[Tensor, Tensor]]:
    """Run examples and read the heads at their answer tokens.

    Returns:
        For each example, bundle by bundle: −log P of its answer tokens [token], and z [token, layer, head, d_head].
    """
    # a target with one more token, so that the last answer token is run too
    longer = [Bundle(tuple(TokenExample(a.prompt, (*a.target, 0)) for a in s.examples), s.shared) for s in bundles]
    layout = lay_out(lm, longer)
    rows = torch.tensor(layout.rows)
    places = torch.tensor(layout.places)
    z = torch.full((len(rows), lm.n_layers, lm.n_heads, lm.d_head), torch.nan, dtype=lm.model.dtype, device=lm.device)

    def read(layer: int, layer_z: Tensor) -> None:
        z[:, layer] = layer_z[rows.to(layer_z.device), places.to(layer_z.device)].to(z.device)

    with hooked(lm.model, lm.anatomy, read), logits_only(lm, rows, places), without_cudnn_attention():
        logits = lm.model(**layout.inputs, use_cache=False).logits[0]
    states = []
    start = 0
    for a in (a for bundle in bundles for a in bundle.examples):
        end = start + len(a.target)
        target = torch.tensor(a.target, device=logits.device)
        loss = cross_entropy(logits[start:end].float(), target, reduction="none")
        # logits at a token predict the next one; z is read at the answer tokens themselves, one place later
        states.append((loss, z[start + 1 : end + 1]))
        start = end + 1
    return states


@dataclass(frozen=True)
class Change:
    """A change of z while answering: z is multiplied by gate [layer, head], then add [layer, head, d_head] is added."""

    gate: Tensor
    add: Tensor | None = None


ApplyChanges = Callable[[Tensor], AbstractContextManager[None]]
"""Applies changes: takes the number of the change at every token [row, place], and returns a context that applies them.

Tokens without a change have the number after that of the last change.
"""


@torch.no_grad()
def answers_under(
    lm: LM,
    examples: Sequence[TokenExample],
    changes: Sequence[Change],
    *,
    everywhere: bool = False,
    tokens: int | None = None,
    candidates: Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """Measure the answers under each change: [change, example, measure], means over the tokens of an answer.

    The measures are log_p, the log-probability of the token; rank, the log of its rank, 0 for the likeliest; and first,
    whether it is the likeliest.

    Args:
        everywhere: change heads at the prompt's tokens too; the prompt is then run once per change.
        tokens: maximum number of tokens that run at once.
        candidates: the tokens that answers to each example may begin with. Two measures are then added: choice, the
            log-probability of the answer's first token among these, and chosen, whether it is the likeliest of them.
    """
    apply_changes = _scale_and_add(lm, changes)
    return answers_while(
        lm, examples, len(changes), apply_changes, everywhere=everywhere, tokens=tokens, candidates=candidates
    )


@torch.no_grad()
def answers_while(
    lm: LM,
    examples: Sequence[TokenExample],
    changes: int,
    apply_changes: ApplyChanges,
    *,
    everywhere: bool = False,
    tokens: int | None = None,
    candidates: Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """Measure the answers, as `answers_under` does, under changes of any kind.

    Args:
        changes: number of changes.
        apply_changes: applies the change of every token.
    """
    budget = tokens_at_once(lm, tokens)
    bundles = []
    # of each bundle: the example's number, and the changes under which its copies are run
    origins = []
    can_pack = True
    for e, a in enumerate(examples):
        shared = 0 if everywhere else len(a.prompt) - 1
        is_shared = can_share(lm, a, shared)
        can_pack &= is_shared
        for numbers in group_copies(a, shared, changes, budget, is_shared):
            bundles.append(Bundle((a,) * len(numbers), shared))
            origins.append((e, numbers))
    result = torch.empty(
        changes, len(examples), len(MEASURES) + (len(CHOICE_MEASURES) if candidates is not None else 0)
    )
    for indices in _group_into_passes(lm, bundles, budget, can_pack):
        batch = [bundles[i] for i in indices]
        change_of_text = [number for i in indices for number in origins[i][1]]
        example_of_text = [origins[i][0] for i in indices for _ in bundles[i].examples]
        with halve_batch_on_oom(lm, budget):
            layout = lay_out(lm, batch)
            owner = layout.owner.clamp(min=0)
            change_of_token = torch.where(layout.owner >= 0, torch.tensor(change_of_text)[owner], changes)
            with apply_changes(change_of_token):
                options = None if candidates is None else [candidates[e] for e in example_of_text]
                measures = _measure(lm, batch, layout, options)
        result[change_of_text, example_of_text] = measures
    return result


def _group_into_passes(lm: LM, bundles: Sequence[Bundle], budget: int, can_pack: bool) -> Iterator[list[int]]:
    """Yield the bundles of each pass, by index.

    Args:
        can_pack: whether the copies of every example can share a beginning. It is checked again for the whole pass,
            because some models fail only for wider rows.
    """
    for indices in fill_passes(bundles, budget) if can_pack else [list(range(len(bundles)))]:
        group = [bundles[i] for i in indices]
        if can_pack and is_packed(lm, group):
            yield indices
        else:
            yield from ([indices[i] for i in batch] for _, batch in batches(group, 1, budget))


def fill_passes(bundles: Sequence[Bundle], budget: int) -> Iterator[list[int]]:
    """Yield the bundles that are packed into each pass, by index, the largest first.

    A pass has at most `budget` tokens if possible, and fewer with logits, which take memory.
    """
    indices: list[int] = []
    n_tokens = n_targets = 0
    for i in sorted(range(len(bundles)), key=lambda i: -bundles[i].size):
        size = bundles[i].size
        targets = sum(len(a.target) for a in bundles[i].examples)
        if indices and (n_tokens + size > budget or n_targets + targets > budget // TOKENS_PER_LOGITS):
            yield indices
            indices = []
            n_tokens = n_targets = 0
        indices.append(i)
        n_tokens += size
        n_targets += targets
    if indices:
        yield indices


def group_copies(example: TokenExample, shared: int, changes: int, budget: int, is_shared: bool) -> list[range]:
    """Group changes into passes: one copy of the example runs under each change, and a pass fits into the budget.

    Args:
        shared: number of tokens at the beginning that are the same under every change.
        is_shared: whether copies follow one shared beginning, or each has its beginning.
    """
    rest = len(example) - 1 - shared
    if is_shared:
        n_copies = min((budget - shared) // rest, budget // TOKENS_PER_LOGITS // len(example.target))
    else:
        n_copies = budget // (shared + rest)
    return spans(changes, n_copies)


def spans(number: int, size: int) -> list[range]:
    """Return ranges of at most `size` (at least 1) numbers that together are 0 to number − 1."""
    step = max(1, size)
    return [range(first, min(first + step, number)) for first in range(0, number, step)]


def can_share(lm: LM, example: TokenExample, shared: int) -> bool:
    """Return whether copies of an example can share this many tokens at their beginning, which then run once."""
    return shared > 0 and is_packed(lm, [Bundle((example, example), shared)])


def _scale_and_add(lm: LM, changes: Sequence[Change]) -> ApplyChanges:
    """Return what applies changes that scale z and add to it."""
    # one more gate of 1, for tokens without a change
    gates = torch.stack([c.gate for c in changes] + [torch.ones(lm.n_layers, lm.n_heads)]).to(lm.device)
    adding_changes = [i for i, c in enumerate(changes) if c.add is not None]
    vectors = torch.stack([c.add for c in changes if c.add is not None]) if adding_changes else None
    # the vector of each change by its index; −1 for none
    vector_of_change = torch.full((len(changes) + 1,), -1)
    vector_of_change[adding_changes] = torch.arange(len(adding_changes))

    def apply_changes(change_of_token: Tensor) -> AbstractContextManager[None]:
        vector_of_token = vector_of_change[change_of_token]
        gate_of_token = change_of_token.to(lm.device)

        def edit(layer: int, z: Tensor) -> Tensor:
            z = z * gates[:, layer].to(z.device, z.dtype)[gate_of_token.to(z.device)][..., None]
            if vectors is not None:
                rows, places = (vector_of_token >= 0).nonzero(as_tuple=True)
                added = vectors[vector_of_token[rows, places], layer].to(z.device, z.dtype)
                z[rows.to(z.device), places.to(z.device)] += added
            return z

        return hooked(lm.model, lm.anatomy, edit)

    return apply_changes


def _measure(
    lm: LM, bundles: Sequence[Bundle], layout: Layout, candidates: Sequence[Sequence[int]] | None = None
) -> Tensor:
    """Run the model, with the changes in force, and return the measures of each text: [text, measure]."""
    with logits_only(lm, torch.tensor(layout.rows), torch.tensor(layout.places)), without_cudnn_attention():
        logits = lm.model(**layout.inputs, use_cache=False).logits[0].float()
    targets = [a.target for bundle in bundles for a in bundle.examples]
    target_tokens = torch.tensor([t for target in targets for t in target], device=logits.device)
    target_logits = logits.gather(1, target_tokens[:, None])
    log_p = target_logits[:, 0] - logits.logsumexp(-1)
    rank = (logits > target_logits).sum(1)
    by_token = torch.stack([log_p, (1.0 + rank).log(), (rank == 0).float()], dim=1).cpu()
    lengths = torch.tensor([len(target) for target in targets])
    text = torch.arange(len(targets)).repeat_interleave(lengths)
    measures = torch.zeros(len(targets), len(MEASURES)).index_add_(0, text, by_token) / lengths[:, None]
    if candidates is None:
        return measures
    first_tokens = torch.tensor([target[0] for target in targets], device=logits.device)
    starts = (lengths.cumsum(0) - lengths).to(logits.device)
    choice = _choice(logits[starts], first_tokens, candidates)
    return torch.cat([measures, choice.cpu()], dim=1)


def _choice(logits: Tensor, answers: Tensor, candidates: Sequence[Sequence[int]]) -> Tensor:
    """Measure each text's answer among its candidates, [text, measure] (CHOICE_MEASURES). logits: [text, token]."""
    width = max(map(len, candidates))
    padded = torch.tensor([[*row, *[row[0]] * (width - len(row))] for row in candidates], device=logits.device)
    lengths = torch.tensor([len(row) for row in candidates], device=logits.device)
    # padding repeats a token, which must not count twice
    is_padding = torch.arange(width, device=logits.device) >= lengths[:, None]
    among = logits.gather(1, padded).masked_fill(is_padding, -torch.inf)
    of_answer = logits.gather(1, answers[:, None])[:, 0]
    return torch.stack([of_answer - among.logsumexp(1), (of_answer >= among.amax(1)).float()], dim=1)


def replacing(lm: LM, heads: Sequence[tuple[int, int]], values: Tensor) -> ApplyChanges:
    """Return what applies these changes: change n replaces the output of heads[n] by values[n].

    Args:
        values: [change, d_head].
    """
    layers, heads_in_layer = torch.tensor(heads).T

    def apply_changes(change_of_token: Tensor) -> AbstractContextManager[None]:
        def edit(layer: int, z: Tensor) -> Tensor | None:
            rows, places, change = _tokens_under(change_of_token, layers == layer)
            if not len(rows):
                return None
            z = z.clone()
            z[rows.to(z.device), places.to(z.device), heads_in_layer[change].to(z.device)] = values[change].to(z)
            return z

        return hooked(lm.model, lm.anatomy, edit)

    return apply_changes


def adding(lm: LM, layers: Sequence[int], vectors: Tensor) -> ApplyChanges:
    """Return what applies these changes: change n adds vectors[n] to the output of block layers[n].

    Args:
        vectors: [change, d_model].
    """
    layer_of_change = torch.tensor(layers)

    @contextmanager
    def apply_changes(change_of_token: Tensor) -> Iterator[None]:
        def hook(layer: int, output: Any) -> Any:
            if isinstance(output, tuple):
                return (hook(layer, output[0]), *output[1:])
            rows, places, change = _tokens_under(change_of_token, layer_of_change == layer)
            hidden = output.clone()
            hidden[rows.to(hidden.device), places.to(hidden.device)] += vectors[change].to(hidden)
            return hidden

        with ExitStack() as stack:
            for i in sorted(set(layers)):
                block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}")
                handle = block.register_forward_hook(lambda module, args, output, i=i: hook(i, output))
                stack.callback(handle.remove)
            yield

    return apply_changes


def _tokens_under(change_of_token: Tensor, changes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows and places of the tokens under any of these changes (bool [change]), and the change of each."""
    n_changes = len(changes)
    selected = changes[change_of_token.clamp(max=n_changes - 1)] & (change_of_token < n_changes)
    rows, places = selected.nonzero(as_tuple=True)
    return rows, places, change_of_token[rows, places]

"""Pack texts into rows: the examples of a batch are placed end to end, under a mask that separates them.

This needs no padding, and a beginning that prompts share is run once. Models that do not take such a mask (ALiBi,
state-space layers) are recognised by a trial, and get padded rows instead.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from headatlas.models.hooks import hooked
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.tokens import Bundle, TokenExample

# Packed rows have about this number of tokens. Longer ones would cost more: attention goes over the whole row.
ROW = 256
# On a GPU, the length of rows is a multiple of this, because attention otherwise copies its mask in every layer.
ALIGN = 16


@dataclass(frozen=True)
class Layout:
    """Texts as model inputs, the same for every gate.

    Attributes:
        rows, places: where the tokens are that predict targets.
        owner: index of the text of each token [row, place]; −1 for a bundle's shared beginning, and for padding.
        bundle: index of the bundle of each token [row, place]; −1 for padding.
    """

    inputs: dict[str, Tensor]
    rows: list[int]
    places: list[int]
    owner: Tensor
    bundle: Tensor


def lay_out(lm: LM, bundles: Sequence[Bundle]) -> Layout:
    """Return texts packed, if that saves tokens and the model can; otherwise a row each."""
    return _pack(lm, bundles) if is_packed(lm, bundles) else stack(lm, bundles)


def is_packed(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Return whether `lay_out` packs these texts: it saves tokens, and the model can."""
    return saves_tokens(bundles) and _can_pack(lm, bundles)


def saves_tokens(bundles: Sequence[Bundle]) -> bool:
    """Return whether packing saves more than a few tokens."""
    padded = sum(len(bundle.examples) for bundle in bundles) * max(bundle.shared + bundle.rest for bundle in bundles)
    return padded > 1.1 * sum(bundle.size for bundle in bundles)


def logits_of(lm: LM, layout: Layout, gate: Tensor | None, under: Sequence[int] | None = None) -> Tensor:
    """Run the model and return logits [gate · target token, vocabulary], in float32 or better.

    Args:
        gate: [gate, layer, head], or [gate, example, layer, head] for stacked texts; by default none.
        under: the index of the gate of each bundle; by default, all texts are run under every gate.
    """
    n_gates = 1 if gate is None or under is not None else len(gate)
    n_rows = len(layout.inputs["input_ids"])
    rows = (torch.arange(n_gates)[:, None] * n_rows + torch.tensor(layout.rows)).flatten()
    places = torch.tensor(layout.places).repeat(n_gates)
    with _gates_applied(lm, gate, layout, under), logits_only(lm, rows, places), without_cudnn_attention():
        inputs = {name: t.repeat(n_gates, *[1] * (t.ndim - 1)) for name, t in layout.inputs.items()}
        logits = lm.model(**inputs, use_cache=False).logits[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def stack(lm: LM, bundles: Sequence[Bundle]) -> Layout:
    """Return a row per text, padded on the right: no token sees padding, so fused kernels run without a mask."""
    examples = [a for bundle in bundles for a in bundle.examples]
    texts = [(a.prompt + a.target)[:-1] for a in examples]
    rows = [i for i, a in enumerate(examples) for _ in a.target]
    places = [p for a, t in zip(examples, texts, strict=True) for p in range(len(t) - len(a.target), len(t))]
    tokens = lm.pad(texts, "right")["input_ids"]
    owner = torch.full(tokens.shape, -1)
    bundle_of_token = torch.full(tokens.shape, -1)
    bundle_of_text = [b for b, bundle in enumerate(bundles) for _ in bundle.examples]
    for i, b in enumerate(bundle_of_text):
        owner[i, bundles[b].shared : len(texts[i])] = i
        bundle_of_token[i, : len(texts[i])] = b
    return Layout({"input_ids": tokens}, rows, places, owner, bundle_of_token)


def _pack(lm: LM, bundles: Sequence[Bundle], min_width: int = 0) -> Layout:
    """Return bundles end to end in rows of about `ROW` tokens.

    A token sees its bundle's beginning, and its text up to itself.

    Args:
        min_width: rows have at least this number of tokens; unless 0, the last text is at the very end of its row.
    """
    bins = _bins(bundles)
    width = max(min_width, _width(lm, bundles, bins))
    # The pieces of each bundle: 0 is what its texts share, then one piece per text. Of each piece: its row, place,
    # bundle, number in the bundle, first position, and length.
    pieces: list[tuple[int, ...]] = []
    all_ids: list[int] = []
    for row, indices in enumerate(bins):
        place = 0
        for i in indices:
            shared = bundles[i].shared
            examples = bundles[i].examples
            parts = [examples[0].prompt[:shared], *(a.prompt[shared:] + a.target[:-1] for a in examples)]
            for number, ids in enumerate(parts):
                if min_width and i == indices[-1] and number == len(examples):
                    place = width - len(ids)
                pieces.append((row, place, i, number, shared if number else 0, len(ids)))
                all_ids += ids
                place += len(ids)
    piece_row, piece_place, bundle, number_in_bundle, first_position, length = np.array(pieces).T
    first_text = np.cumsum([0, *(len(b.examples) for b in bundles)])
    text = np.where(number_in_bundle > 0, first_text[bundle] + number_in_bundle - 1, -1)
    nth = _count_up(length)
    start = piece_row * width + piece_place
    flat_place = np.repeat(start, length) + nth

    def table(values: Any, default: int) -> Tensor:
        """Return a table [row, place] with a value for each token of each piece."""
        flat = np.full(len(bins) * width, default)
        flat[flat_place] = values
        return torch.from_numpy(flat.reshape(len(bins), width))

    position = table(np.repeat(first_position, length) + nth, 0)
    bundle_of_token = table(np.repeat(bundle, length), -1)
    number_of_token = table(np.repeat(number_in_bundle, length), -1)
    owner = table(np.repeat(text, length), -1)
    mask = _mask(lm, bundle_of_token, number_of_token)
    inputs = {"input_ids": table(all_ids, 0), "position_ids": position, "attention_mask": mask}
    end = np.empty(first_text[-1], int)
    end[text[text >= 0]] = (start + length)[text >= 0]
    targets = np.array([len(a.target) for b in bundles for a in b.examples])
    # the last target token is not in the row, so the last n tokens of a text predict its n target tokens
    rows, places = np.divmod(np.repeat(end - targets, targets) + _count_up(targets), width)
    inputs = {k: v.to(lm.device) for k, v in inputs.items()}
    return Layout(inputs, rows.tolist(), places.tolist(), owner, bundle_of_token)


def _bins(bundles: Sequence[Bundle]) -> list[list[int]]:
    """Return the bundles of each row, by index: rows have about the same number of tokens."""
    row_size = max(ROW, *(b.size for b in bundles))
    bins: list[list[int]] = [[] for _ in range(max(1, round(sum(b.size for b in bundles) / row_size)))]
    sizes = [0] * len(bins)
    # the largest first, each into the emptiest row
    for i in sorted(range(len(bundles)), key=lambda i: -bundles[i].size):
        emptiest = sizes.index(min(sizes))
        bins[emptiest].append(i)
        sizes[emptiest] += bundles[i].size
    return [indices for indices in bins if indices]


def _width(lm: LM, bundles: Sequence[Bundle], bins: Sequence[Sequence[int]]) -> int:
    """Return the number of tokens in a row."""
    width = max(sum(bundles[i].size for i in indices) for indices in bins)
    return width + -width % (1 if lm.device.type == "cpu" else ALIGN)


def _mask(lm: LM, bundle: Tensor, number: Tensor) -> Tensor:
    """Return the additive mask [row, 1, query, key]: a token sees its bundle's beginning, and its text up to itself.

    Args:
        bundle: index of the bundle of each token [row, place].
        number: number of its text in the bundle [row, place]; 0 for the shared beginning.
    """
    bundle = bundle.to(lm.device)
    number = number.to(lm.device)
    index = torch.arange(bundle.shape[1], device=lm.device)
    visible = bundle[:, :, None] == bundle[:, None, :]
    visible &= (number[:, None, :] == 0) | (number[:, :, None] == number[:, None, :])
    visible &= index[:, None] >= index
    mask = torch.zeros(visible.shape, dtype=lm.model.dtype, device=lm.device)
    return mask.masked_fill_(~visible, torch.finfo(lm.model.dtype).min)[:, None]


def _count_up(lengths: np.ndarray) -> np.ndarray:
    """Return 0 to n − 1 for each length n, end to end."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _can_pack(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Return whether a model takes packed rows as wide as these, with texts as long as these.

    If earlier trials do not decide, packed rows are compared with a row per text, on a few texts:

    - The rows are wide, with the last text at the very end: attention windows, and positions that count places of the
      row, fail with width.
    - The longest text is one of them: attention windows that a mask switches off fail with length.
    - All heads are open, because a closed head hides what it sees.
    - Packed rows are run again with the last text changed: if another text changes too, state leaks between texts.
    """
    if lm.layers_without_heads or "position_ids" not in signature(lm.model.forward).parameters:
        return False
    width = _width(lm, bundles, _bins(bundles))
    longest = max(bundle.shared + bundle.rest for bundle in bundles)
    trials = lm.state.packing_trials
    most_shared = any(len(bundle.examples) > 1 and bundle.shared for bundle in bundles)
    if any(good and width <= w and longest <= n and most_shared <= s for w, n, s, good in trials):
        return True
    if any(not good and width >= w and longest >= n and most_shared >= s for w, n, s, good in trials):
        return False
    # wider than these rows, so that batches of similar width need no other trial
    trial_width = 1 << (width - 1).bit_length()
    tolerance = 2e-4 if lm.model.dtype in (torch.float32, torch.float64) else 5e-2
    texts = _trial_texts(bundles)
    last = texts[-1].examples[-1]
    other = TokenExample((*last.prompt[:-1], (last.prompt[-1] + 1) % 2), last.target)
    changed_texts = [*texts[:-1], Bundle((*texts[-1].examples[:-1], other), texts[-1].shared)]
    try:
        with torch.no_grad():
            packed = logits_of(lm, _pack(lm, texts, trial_width), None)
            changed = logits_of(lm, _pack(lm, changed_texts, trial_width), None)
            expected = logits_of(lm, stack(lm, texts), None)
        size = expected.abs().max()
        n_others = len(expected) - len(last.target)
        good = bool((packed - expected).abs().max() <= tolerance * size)
        good &= bool(((packed - changed)[:n_others].abs() <= 1e-5 * size).all())
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError):
        # the model does not take such a mask
        good = False
    trials.append((trial_width if good else width, longest, most_shared, good))
    return good


def _trial_texts(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Return a few texts to try packing: two of the bundle with the longest text, two with the longest beginning."""
    longest = max(bundles, key=lambda s: s.shared + s.rest)
    most_shared = max(bundles, key=lambda s: s.shared * (len(s.examples) > 1))
    # if both are the same bundle, any other is the second
    distinct = list(dict.fromkeys([longest, most_shared, *bundles]))
    # the bundle with the longest text comes last
    return [Bundle(tuple(sorted(s.examples, key=lambda a: -len(a))[:2]), s.shared) for s in distinct[1::-1]]


@contextmanager
def _gates_applied(lm: LM, gate: Tensor | None, layout: Layout, under: Sequence[int] | None) -> Iterator[None]:
    """Apply every gate to all texts while the block runs; with `under`, apply to each bundle its gate."""
    with ExitStack() as stack:
        if gate is not None and under is not None:
            # a matrix product, because the gradient of indexing differs between equal runs on a GPU
            which = one_hot(torch.tensor(under)[layout.bundle.clamp(min=0)], len(gate)).to(gate)  # [row, place, gate]
            factors = (which @ gate.flatten(1)).to(lm.model.dtype).unflatten(-1, gate.shape[1:])
            by_layer = factors.unbind(2)  # [row, place, head]

            def edit(layer: int, z: Tensor) -> Tensor:
                return z * by_layer[layer].to(z.device, z.dtype)[..., None]

            stack.enter_context(hooked(lm.model, lm.anatomy, edit))
        elif gate is not None:
            rows = len(layout.inputs["input_ids"])
            stack.enter_context(lm.gated(gate.flatten(0, 1) if gate.ndim == 4 else gate.repeat_interleave(rows, dim=0)))
        yield


@contextmanager
def logits_only(lm: LM, rows: Tensor, places: Tensor) -> Iterator[None]:
    """Pass only the tokens at these rows and places to the unembedding, which then returns [1, token, vocabulary].

    A hook on it is enough: models treat its output (scales, softcaps) token by token.
    """
    # before the pass, because in the hook the host would wait for the device
    rows, places = (t.to(lm.device, non_blocking=True) for t in (rows, places))

    def pick(module: Any, args: Any) -> Any:
        return (args[0][rows.to(args[0].device), places.to(args[0].device)][None], *args[1:])

    handle = lm.model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()

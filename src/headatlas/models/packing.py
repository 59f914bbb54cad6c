"""Texts packed into rows: the examples of a batch lie end to end, under a mask that lets each see itself alone.

That needs no padding, and a beginning that prompts share is run once. Models that do not take such a mask (ALiBi,
state-space layers) are found by trying, and get padded rows instead.
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

ROW = 256  # tokens a packed row is filled to, about: attention looks over all of the row
ALIGN = 16  # on a GPU, rows are a multiple of so many tokens: attention otherwise copies its mask in every layer


@dataclass(frozen=True)
class Layout:
    """Texts as model inputs, the same for every gate, and where the tokens that predict targets lie.

    owner [row, place]: which text a token belongs to; −1 for a bundle's shared beginning, and for padding.
    bundle [row, place]: which bundle; −1 for padding.
    """

    inputs: dict[str, Tensor]
    rows: list[int]
    places: list[int]
    owner: Tensor
    bundle: Tensor


def lay_out(lm: LM, bundles: Sequence[Bundle]) -> Layout:
    """Texts packed, where that saves tokens and the model can; otherwise a row each."""
    return _pack(lm, bundles) if packs(lm, bundles) else stack(lm, bundles)


def packs(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Whether these texts are packed: it saves tokens, and the model can."""
    return saves(bundles) and _can_pack(lm, bundles)


def saves(bundles: Sequence[Bundle]) -> bool:
    """Whether packing saves tokens, more than a few."""
    padded = sum(len(bundle.examples) for bundle in bundles) * max(bundle.shared + bundle.rest for bundle in bundles)
    return padded > 1.1 * sum(bundle.size for bundle in bundles)


def logits_of(lm: LM, layout: Layout, gate: Tensor | None, under: Sequence[int] | None = None) -> Tensor:
    """[gate · target token, vocabulary], in float32 or better."""
    gates, n = 1 if gate is None or under is not None else len(gate), len(layout.inputs["input_ids"])
    rows = (torch.arange(gates)[:, None] * n + torch.tensor(layout.rows)).flatten()
    places = torch.tensor(layout.places).repeat(gates)
    with _under(lm, gate, layout, under), logits_only(lm, rows, places), without_cudnn_attention():
        inputs = {name: t.repeat(gates, *[1] * (t.ndim - 1)) for name, t in layout.inputs.items()}
        logits = lm.model(**inputs, use_cache=False).logits[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def stack(lm: LM, bundles: Sequence[Bundle]) -> Layout:
    """A row each, padded on the right: no token sees padding, so no mask is needed and fused kernels stay in use."""
    examples = [a for bundle in bundles for a in bundle.examples]
    texts = [(a.prompt + a.target)[:-1] for a in examples]
    rows = [i for i, a in enumerate(examples) for _ in a.target]
    places = [p for a, t in zip(examples, texts, strict=True) for p in range(len(t) - len(a.target), len(t))]
    tokens = lm.pad(texts, "right")["input_ids"]
    owner, bundle_of = (torch.full(tokens.shape, -1) for _ in range(2))
    for i, s in enumerate(s for s, bundle in enumerate(bundles) for _ in bundle.examples):
        owner[i, bundles[s].shared : len(texts[i])] = i
        bundle_of[i, : len(texts[i])] = s
    return Layout({"input_ids": tokens}, rows, places, owner, bundle_of)


def _pack(lm: LM, bundles: Sequence[Bundle], at_least: int = 0) -> Layout:
    """Bundles end to end in rows of about `ROW` tokens; a token sees its bundle's beginning and its own text so far.

    at_least: rows of so many tokens, with the last text at the very end.
    """
    bins = _bins(bundles)
    width = max(at_least, _width(lm, bundles, bins))
    texts: list[tuple[int, ...]] = []  # row, place, bundle, number in it (0: what they share), first position, length
    words: list[int] = []
    for row, chosen in enumerate(bins):
        at = 0
        for i in chosen:
            shared, examples = bundles[i].shared, bundles[i].examples
            parts = [examples[0].prompt[:shared], *(a.prompt[shared:] + a.target[:-1] for a in examples)]
            for number, ids in enumerate(parts):
                if at_least and i == chosen[-1] and number == len(examples):
                    at = width - len(ids)
                texts.append((row, at, i, number, shared if number else 0, len(ids)))
                words += ids
                at += len(ids)
    row_of, place, bundle, number_of, first, length = np.array(texts).T  # of each text
    before = np.cumsum([0, *(len(b.examples) for b in bundles)])
    example = np.where(number_of > 0, before[bundle] + number_of - 1, -1)
    nth = _count_up(length)
    flat = np.repeat(row_of * width + place, length) + nth

    def lay(values: Any, elsewhere: int) -> Tensor:
        table = np.full(len(bins) * width, elsewhere)
        table[flat] = values
        return torch.from_numpy(table.reshape(len(bins), width))

    tokens, position = lay(words, 0), lay(np.repeat(first, length) + nth, 0)
    bundle_of, text_of, owner = (lay(np.repeat(v, length), -1) for v in (bundle, number_of, example))
    inputs = {"input_ids": tokens, "position_ids": position, "attention_mask": _mask(lm, bundle_of, text_of)}
    end = np.empty(before[-1], int)
    end[example[example >= 0]] = (row_of * width + place + length)[example >= 0]
    targets = np.array([len(a.target) for b in bundles for a in b.examples])
    predicting = np.divmod(np.repeat(end - targets, targets) + _count_up(targets), width)
    rows, places = (part.tolist() for part in predicting)
    return Layout({k: v.to(lm.device) for k, v in inputs.items()}, rows, places, owner, bundle_of)


def _bins(bundles: Sequence[Bundle]) -> list[list[int]]:
    """Bundles dealt to rows of about the same number of tokens, the largest first."""
    wanted = max(ROW, *(b.size for b in bundles))
    bins: list[list[int]] = [[] for _ in range(max(1, round(sum(b.size for b in bundles) / wanted)))]
    filled = [0] * len(bins)
    for i in sorted(range(len(bundles)), key=lambda i: -bundles[i].size):
        emptiest = filled.index(min(filled))
        bins[emptiest].append(i)
        filled[emptiest] += bundles[i].size
    return [chosen for chosen in bins if chosen]


def _width(lm: LM, bundles: Sequence[Bundle], bins: Sequence[Sequence[int]]) -> int:
    """Tokens in a row."""
    width = max(sum(bundles[i].size for i in chosen) for chosen in bins)
    return width + -width % (1 if lm.device.type == "cpu" else ALIGN)


def _mask(lm: LM, bundle_of: Tensor, text_of: Tensor) -> Tensor:
    """[row, 1, query, key]: 0 where a token sees its bundle's beginning or its own text so far, as low as can be
    elsewhere. bundle_of, text_of: [row, place]."""
    on, of = bundle_of.to(lm.device), text_of.to(lm.device)
    index = torch.arange(on.shape[1], device=lm.device)
    seen = on[:, :, None] == on[:, None, :]
    seen &= (of[:, None, :] == 0) | (of[:, :, None] == of[:, None, :])
    seen &= index[:, None] >= index
    hidden = torch.zeros(seen.shape, dtype=lm.model.dtype, device=lm.device)
    return hidden.masked_fill_(~seen, torch.finfo(lm.model.dtype).min)[:, None]


def _count_up(lengths: np.ndarray) -> np.ndarray:
    """0 to n − 1 for each length n, end to end."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _can_pack(lm: LM, bundles: Sequence[Bundle]) -> bool:
    """Whether a model takes packed rows as wide as these with texts as long as these.

    Where earlier trials do not tell, it is tried on a few texts, against a row for each text. Windows and positions
    that are counted in places fail with width; windows that a mask switches off fail with length. The last text is
    moved to the row's end. All heads are open, because a closed head hides what it sees. Packed rows are run once more
    with the last text changed: the others must not change (state would leak).
    """
    if lm.layers_without_heads or "position_ids" not in signature(lm.model.forward).parameters:
        return False
    width = _width(lm, bundles, _bins(bundles))
    longest = max(bundle.shared + bundle.rest for bundle in bundles)
    tried = lm.state.packing_trials
    sharing = any(len(bundle.examples) > 1 and bundle.shared for bundle in bundles)
    if any(good and width <= w and longest <= n and sharing <= s for w, n, s, good in tried):
        return True
    if any(not good and width >= w and longest >= n and sharing >= s for w, n, s, good in tried):
        return False
    wide = 1 << (width - 1).bit_length()  # tried a little wider, so that the next batch need not be tried again
    near = 2e-4 if lm.model.dtype in (torch.float32, torch.float64) else 5e-2  # of the largest logit
    few = _few(bundles)
    last = few[-1].examples[-1]
    other = TokenExample((*last.prompt[:-1], (last.prompt[-1] + 1) % 2), last.target)
    changed = [*few[:-1], Bundle((*few[-1].examples[:-1], other), few[-1].shared)]
    try:
        with torch.no_grad():
            packed, moved = (logits_of(lm, _pack(lm, texts, wide), None) for texts in (few, changed))
            expected = logits_of(lm, stack(lm, few), None)
        size = expected.abs().max()
        others = len(expected) - len(last.target)
        good = bool((packed - expected).abs().max() <= near * size)
        good &= bool(((packed - moved)[:others].abs() <= 1e-5 * size).all())
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError):  # it does not understand such a mask
        good = False
    tried.append((wide if good else width, longest, sharing, good))
    return good


def _few(bundles: Sequence[Bundle]) -> list[Bundle]:
    """Texts to try packing with: two of the bundle with the longest one, and of that with the longest beginning."""
    longest = max(bundles, key=lambda s: s.shared + s.rest)
    sharing = max(bundles, key=lambda s: s.shared * (len(s.examples) > 1))
    chosen = dict.fromkeys([longest, sharing, *bundles])
    return [Bundle(tuple(sorted(s.examples, key=lambda a: -len(a))[:2]), s.shared) for s in list(chosen)[1::-1]]


@contextmanager
def _under(lm: LM, gate: Tensor | None, layout: Layout, under: Sequence[int] | None) -> Iterator[None]:
    """The model under every gate in turn, all texts each; or, with `under`, each bundle under a gate of its own."""
    with ExitStack() as stack:
        if gate is not None and under is not None:
            # a product instead of picking, whose gradient is not the same twice on a GPU
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
    """Let the unembedding see only the tokens at these rows and places: it then gives [1, token, vocabulary].

    A hook on it, because what models do with its output (scales, softcaps) is theirs and is done to every token alike.
    """
    # moved before the pass: in the hook, the host would wait for the device
    rows, places = (t.to(lm.device, non_blocking=True) for t in (rows, places))

    def pick(module: Any, args: Any) -> Any:
        return (args[0][rows.to(args[0].device), places.to(args[0].device)][None], *args[1:])

    handle = lm.model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()

"""log P(target | prompt) under many gates at once: differentiable, exact, and no dearer than it must be.

Logits are made only where a target token is predicted; what is run at once is bounded by a number of tokens. And texts are
packed: the examples of a batch lie end to end in a few rows, under a mask that lets each see itself alone. That needs no
padding, and prompts that begin alike (a worked example, an instruction) form a `Sheet`, whose beginning is run once. A model
that does not take such a mask (ALiBi, state-space layers) is noticed by trying, and gets padded rows instead.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot
from transformers import PreTrainedModel

from headatlas.errors import BadArgument, CannotDo, OutOfMemory, one_line
from headatlas.models import heads as h
from headatlas.models.lm import LM, Text, text_ids
from headatlas.models.memory import fitting

ROW = 256  # tokens a packed row is filled to, about: attention looks over the whole row
ALIGN = 16  # on a GPU, rows are a multiple of so many tokens: attention otherwise copies its mask in every layer


@dataclass(frozen=True)
class Asked:
    """Token ids of a prompt, and of the target that should follow it."""

    prompt: tuple[int, ...]
    target: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.target)


@dataclass(frozen=True)
class Sheet:
    """Prompts that begin alike, and how many tokens they share. At least the last token of each prompt is its own."""

    asked: tuple[Asked, ...]
    shared: int

    @property
    def rest(self) -> int:
        """Tokens of the longest one after the shared beginning; the last token of a target predicts nothing."""
        return max(map(len, self.asked)) - 1 - self.shared

    @property
    def size(self) -> int:
        """Tokens to be run."""
        return self.shared + sum(len(a) - 1 - self.shared for a in self.asked)


def encode_target(lm: LM, prompt: Text, target: Text, where: str) -> Asked:
    """Tokens of prompt and target as the model would meet them: the text is cut as a whole, then split where the prompt ends.

    Where a token reaches across that border, it belongs to the target. `where` names the example in errors.
    """
    for name, text in (("prompt", prompt), ("target", target)):
        if len(text) == 0 or (isinstance(text, str) and not text.strip()):
            raise BadArgument(f"{where}: {name} is {text!r}, expected text")
    if isinstance(prompt, str) != isinstance(target, str):
        raise BadArgument(f"{where}: prompt and target must both be text or both be token ids")
    if isinstance(prompt, str) and isinstance(target, str):
        tokenizer = lm.tokenizer
        before, whole = (without_end(tokenizer, text) for text in (prompt, prompt + target))
        cut = next(
            (i for i, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), min(len(before), len(whole))
        )
        if cut == 0:  # prompt and target melt into one token: cut them one by one
            cut, whole = len(before), before + tokenizer(target, add_special_tokens=False)["input_ids"]
    else:
        cut, whole = len(prompt), [*prompt, *target]
        vocabulary = lm.model.get_input_embeddings().num_embeddings
        ids: list[Any] = whole
        for i in ids:
            if not isinstance(i, Integral) or not 0 <= int(i) < vocabulary:
                raise BadArgument(
                    f"{where}: {i!r} is not a token id, expected whole numbers from 0 to {vocabulary - 1}"
                )
    if cut == len(whole):
        raise BadArgument(f"{where}: target is {target!r}, which has no tokens")
    limit = lm.anatomy.context
    if limit and len(whole) > limit:
        raise BadArgument(
            f"{where}: prompt and target are {len(whole)} tokens long, but the model's context is {limit}"
        )
    return Asked(tuple(whole[:cut]), tuple(whole[cut:]))


def without_end(tokenizer: Any, text: str) -> list[int]:
    """Token ids with what the tokenizer puts before a text, such as BOS, and without what it puts behind it, such as EOS."""
    ids, bare = text_ids(tokenizer, text), tokenizer(text, add_special_tokens=False)["input_ids"]
    start = next((i for i in range(len(ids) - len(bare) + 1) if ids[i : i + len(bare)] == bare), None)
    return ids if start is None else ids[: start + len(bare)]


def make_sheet(asked: Sequence[Asked]) -> Sheet:
    """A sheet of examples, sharing as much as they have in common."""
    prompts = [a.prompt for a in asked]
    longest = min(map(len, prompts)) - 1
    first, last = min(prompts), max(prompts)  # what these share, all share
    shared = next((i for i in range(longest) if first[i] != last[i]), longest)
    return Sheet(tuple(asked), shared if len(asked) > 1 else 0)


def batches(sheets: Sequence[Sheet], gates: int, tokens: int) -> Iterator[tuple[slice, list[int]]]:
    """What to run at once: a range of gates and some sheets (by number), together at most `tokens` tokens where possible.

    Counted as if every text had a row of its own, padded: packing needs less, but not every model packs. The longest come first:
    memory that does not suffice shows at once, and whether a model packs is tried once and not with every longer text.
    """
    texts, length = [len(sheet.asked) for sheet in sheets], [sheet.shared + sheet.rest for sheet in sheets]
    order = sorted(range(len(sheets)), key=lambda i: (-length[i], i))
    together = min(gates, max(1, tokens // max(n * m for n, m in zip(texts, length, strict=True))))
    for first in range(0, gates, together):
        chunk: list[int] = []
        for i in order:
            if chunk and together * length[chunk[0]] * sum(texts[j] for j in [*chunk, i]) > tokens:
                yield slice(first, first + together), chunk
                chunk = []
            chunk.append(i)
        yield slice(first, first + together), chunk


def _padded(sheets: Sequence[Sheet]) -> int:
    return sum(len(sheet.asked) for sheet in sheets) * max(sheet.shared + sheet.rest for sheet in sheets)


@dataclass(frozen=True)
class Layout:
    """Texts as model inputs, the same for every gate, and where the tokens that predict targets lie.

    owner [row, place]: which text a token belongs to; −1 for a sheet's shared beginning, and for padding.
    sheet [row, place]: which sheet; −1 for padding.
    """

    inputs: dict[str, Tensor]
    rows: list[int]
    places: list[int]
    owner: Tensor
    sheet: Tensor


def log_probs(
    lm: LM,
    sheets: Sequence[Sheet],
    gate: Tensor | None = None,
    *,
    packed: bool = False,
    under: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """log P(target | prompt), and whether every target token was the likeliest: both [gate, example], float32 and bool.

    gate: [gate, layer, head]; without one, the whole model as a single gate. Examples come sheet by sheet. Differentiable in the
    gate. packed: where that saves tokens and the model can. Otherwise every text has a row of its own, padded on the right, and
    gate may be [gate, example, layer, head].
    under: for each sheet the one gate it is run under, instead of every sheet under every gate; both are then [1, example].
    """
    may = packed and (gate is None or gate.ndim == 3)
    return _run(lm, sheets, lay_out(lm, sheets) if may else _stack(lm, sheets), gate, under)


def lay_out(lm: LM, sheets: Sequence[Sheet]) -> Layout:
    """Texts packed, where that saves tokens and the model can; otherwise a row each."""
    if _padded(sheets) > 1.1 * sum(sheet.size for sheet in sheets):
        layout = _pack(lm, sheets)
        if _packs(lm, sheets, layout):
            return layout
    return _stack(lm, sheets)


def _logits(lm: LM, layout: Layout, gate: Tensor | None, under: Sequence[int] | None = None) -> Tensor:
    """[gate · target token, vocabulary], in float32 or better."""
    gates, n = 1 if gate is None or under is not None else len(gate), len(layout.inputs["input_ids"])
    rows = (torch.arange(gates)[:, None] * n + torch.tensor(layout.rows)).flatten()
    places = torch.tensor(layout.places).repeat(gates)
    with _under(lm, gate, layout, under), logits_only(lm, rows, places), _without_cudnn_attention():
        inputs = {name: t.repeat(gates, *[1] * (t.ndim - 1)) for name, t in layout.inputs.items()}
        logits = lm.model(**inputs, use_cache=False).logits[0]
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _run(
    lm: LM, sheets: Sequence[Sheet], layout: Layout, gate: Tensor | None, under: Sequence[int] | None
) -> tuple[Tensor, Tensor]:
    gates = 1 if gate is None or under is not None else len(gate)
    asked = [a for sheet in sheets for a in sheet.asked]
    logits = _logits(lm, layout, gate, under)
    wanted = torch.tensor([t for a in asked for t in a.target], device=logits.device).repeat(gates)
    lengths = [len(a.target) for a in asked]
    log_p = -cross_entropy(logits, wanted, reduction="none").view(gates, -1)
    right = (logits.detach().argmax(-1) == wanted).view(gates, -1)
    return (
        torch.stack([part.sum(1) for part in log_p.split(lengths, dim=1)], dim=1),
        torch.stack([part.all(1) for part in right.split(lengths, dim=1)], dim=1),
    )


def _stack(lm: LM, sheets: Sequence[Sheet]) -> Layout:
    """A row each. Padding on the right is never looked at and moves no position: no mask, so fused kernels stay in use."""
    asked = [a for sheet in sheets for a in sheet.asked]
    texts = [(a.prompt + a.target)[:-1] for a in asked]
    rows = [i for i, a in enumerate(asked) for _ in a.target]
    places = [p for a, t in zip(asked, texts, strict=True) for p in range(len(t) - len(a.target), len(t))]
    tokens = lm.pad(texts, "right")["input_ids"]
    owner, sheet_of = (torch.full(tokens.shape, -1) for _ in range(2))
    for i, s in enumerate(s for s, sheet in enumerate(sheets) for _ in sheet.asked):
        owner[i, sheets[s].shared : len(texts[i])] = i
        sheet_of[i, : len(texts[i])] = s
    return Layout({"input_ids": tokens}, rows, places, owner, sheet_of)


def _pack(lm: LM, sheets: Sequence[Sheet], at_least: int = 0) -> Layout:
    """Sheets end to end in rows of about `ROW` tokens, each text seeing its sheet's beginning and itself, up to each token.

    at_least: rows of so many tokens, with the last text at the very end.
    """
    wanted = max(ROW, *(s.size for s in sheets))
    bins: list[list[int]] = [[] for _ in range(max(1, round(sum(s.size for s in sheets) / wanted)))]
    filled = [0] * len(bins)
    for i in sorted(range(len(sheets)), key=lambda i: -sheets[i].size):
        emptiest = filled.index(min(filled))
        bins[emptiest].append(i)
        filled[emptiest] += sheets[i].size
    bins = [b for b in bins if b]
    width = max([*filled, at_least])
    width += -width % (1 if lm.device.type == "cpu" else ALIGN)
    tokens, position, sheet_of, text_of, owner = (torch.full((len(bins), width), f) for f in (0, 0, -1, -1, -1))
    starts = torch.tensor([0, *(len(sheet.asked) for sheet in sheets)]).cumsum(0).tolist()
    found: dict[int, list[tuple[int, int]]] = {}  # by sheet: row and place of each token that predicts
    for row, chosen in enumerate(bins):
        at = 0
        for i in chosen:
            sheet = sheets[i]
            parts = [(0, sheet.asked[0].prompt[: sheet.shared])] if sheet.shared else []
            parts += [(n, (a.prompt + a.target)[sheet.shared : -1]) for n, a in enumerate(sheet.asked, 1)]
            for text, ids in parts:
                if at_least and i == chosen[-1] and text == len(sheet.asked):
                    at = width - len(ids)
                here = slice(at, at + len(ids))
                tokens[row, here] = torch.tensor(ids)
                first = sheet.shared if text else 0
                position[row, here] = torch.arange(first, first + len(ids))
                sheet_of[row, here], text_of[row, here] = i, text
                at += len(ids)
                if text:
                    owner[row, here] = starts[i] + text - 1
                    found.setdefault(i, []).extend((row, p) for p in range(at - len(sheet.asked[text - 1].target), at))
    index, on, of = torch.arange(width, device=lm.device), sheet_of.to(lm.device), text_of.to(lm.device)
    seen = on[:, :, None] == on[:, None, :]
    seen &= (of[:, None, :] == 0) | (of[:, :, None] == of[:, None, :])
    seen &= index[:, None] >= index
    hidden = torch.zeros(seen.shape, dtype=lm.model.dtype, device=lm.device)
    hidden.masked_fill_(~seen, torch.finfo(lm.model.dtype).min)
    inputs = {"input_ids": tokens, "position_ids": position, "attention_mask": hidden[:, None]}
    where = [pair for i in range(len(sheets)) for pair in found[i]]
    rows, places = ([w[k] for w in where] for k in (0, 1))
    return Layout({k: v.to(lm.device) for k, v in inputs.items()}, rows, places, owner, sheet_of)


_PACKED: WeakKeyDictionary[PreTrainedModel, list[tuple[int, int, bool, bool]]] = WeakKeyDictionary()
"""By model, what was tried: the width of packed rows, their longest text, whether texts shared beginnings, and whether the model
was right."""


def _packs(lm: LM, sheets: Sequence[Sheet], layout: Layout) -> bool:
    """Whether a model takes packed rows as wide as these with texts as long as these.

    Tried, against a row for each text, whenever neither is known to be right or wrong: windows and positions that are counted
    in places show with width, windows that a given mask switches off show with length. A few texts tell, the last of them moved
    to the row's end. Tried with all heads open, because a shut head hides what it sees; and once more with the last text
    changed, because no other may feel that (state would leak).
    """
    if lm.layers_without_heads or "position_ids" not in signature(lm.model.forward).parameters:
        return False
    width, longest = layout.inputs["input_ids"].shape[1], max(sheet.shared + sheet.rest for sheet in sheets)
    tried = _PACKED.setdefault(lm.model, [])
    sharing = any(len(sheet.asked) > 1 and sheet.shared for sheet in sheets)
    if any(good and width <= w and longest <= n and sharing <= s for w, n, s, good in tried):
        return True
    if any(not good and width >= w and longest >= n and sharing >= s for w, n, s, good in tried):
        return False
    wide = 1 << (width - 1).bit_length()  # tried a little wider, so that the next batch need not be tried again
    near = 2e-4 if lm.model.dtype in (torch.float32, torch.float64) else 5e-2  # of the largest logit
    few = _few(sheets)
    last = few[-1].asked[-1]
    other = Asked((*last.prompt[:-1], (last.prompt[-1] + 1) % 2), last.target)
    changed = [*few[:-1], Sheet((*few[-1].asked[:-1], other), few[-1].shared)]
    try:
        with torch.no_grad():
            found, moved = (_logits(lm, _pack(lm, texts, wide), None) for texts in (few, changed))
            expected = _logits(lm, _stack(lm, few), None)
        size = expected.abs().max()
        others = len(expected) - len(last.target)
        good = bool((found - expected).abs().max() <= near * size)
        good &= bool(((found - moved)[:others].abs() <= 1e-5 * size).all())
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError):  # it does not understand such a mask
        good = False
    tried.append((wide if good else width, longest, sharing, good))
    return good


def _few(sheets: Sequence[Sheet]) -> list[Sheet]:
    """Texts to try packing with: of the sheet with the longest one, and of that with the longest beginning, at most two each."""
    longest = max(sheets, key=lambda s: s.shared + s.rest)
    sharing = max(sheets, key=lambda s: s.shared * (len(s.asked) > 1))
    chosen = dict.fromkeys([longest, sharing, *sheets])
    return [Sheet(tuple(sorted(s.asked, key=lambda a: -len(a))[:2]), s.shared) for s in list(chosen)[1::-1]]


@torch.no_grad()
def measure(
    lm: LM, sheets: Sequence[Sheet], gate: Tensor | None = None, tokens: int | None = None
) -> tuple[Tensor, Tensor]:
    """`log_probs` without gradients, in as many passes as `tokens` at once need; on the CPU."""
    gates = 1 if gate is None else len(gate)
    starts = torch.tensor([0, *(len(sheet.asked) for sheet in sheets)]).cumsum(0).tolist()
    log_p = torch.empty(gates, starts[-1])
    right = torch.empty(gates, starts[-1], dtype=torch.bool)
    budget = tokens_at_once(lm, tokens)
    for some, chosen in batches(sheets, gates, budget):
        with telling_memory(lm, budget):
            under = None if gate is None else gate[some].to(lm.device)
            now = log_probs(lm, [sheets[i] for i in chosen], under, packed=True)
        examples = [e for i in chosen for e in range(starts[i], starts[i + 1])]
        log_p[some, examples], right[some, examples] = now[0].float().cpu(), now[1].cpu()
    return log_p, right


def tokens_at_once(lm: LM, tokens: int | None) -> int:
    """How many tokens, padding included, go through the model at once: as many as the user says, or a good number; fewer where
    memory has run out before."""
    if tokens is not None and tokens < 1:
        raise BadArgument(f"batch_tokens is {tokens}, expected at least 1")
    if tokens is None:
        good = good_on_gpu(lm)
        tokens = (
            2048 if lm.device.type != "cuda" else min(good, max(FEWEST, fitting(lm.model, lm.n_layers, lm.model.dtype)))
        )
    return max(1, tokens // _FEWER.get(lm.model, 1))


def good_on_gpu(lm: LM) -> int:
    """Many tokens for small models: small passes would wait for launches."""
    return max(1024, 2**30 // (lm.n_layers * lm.d_model))


_FEWER: WeakKeyDictionary[PreTrainedModel, int] = WeakKeyDictionary()
"""By model, how many times fewer tokens at once than one would like: doubled whenever memory runs out."""
FEWEST = 64


@contextmanager
def telling_memory(lm: LM, tokens: int) -> Iterator[None]:
    """Running out of memory as one line; from then on, the model gets half as many tokens at once."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as e:
        if not isinstance(e, torch.OutOfMemoryError) and "can't allocate memory" not in str(e):
            raise
        if tokens <= FEWEST:
            raise CannotDo(f"out of memory, even with batch_tokens={tokens}: {one_line(e)}") from e
        _FEWER[lm.model] = 2 * _FEWER.get(lm.model, 1)
        raise OutOfMemory(f"out of memory with batch_tokens={tokens}: going on with batch_tokens={tokens // 2}") from e


@contextmanager
def frozen(lm: LM) -> Iterator[None]:
    """Weights without gradients, as they were before when the block ends."""
    learning = [p for p in lm.model.parameters() if p.requires_grad]
    try:
        for p in learning:
            p.requires_grad_(False)
        yield
    finally:
        for p in learning:
            p.requires_grad_(True)


@contextmanager
def _under(lm: LM, gate: Tensor | None, layout: Layout, under: Sequence[int] | None) -> Iterator[None]:
    """The model under every gate in turn, all texts each; or, with `under`, each sheet under a gate of its own."""
    with ExitStack() as stack:
        if gate is not None and under is not None:
            # a product instead of picking, whose gradient is not the same twice on a GPU
            which = one_hot(torch.tensor(under)[layout.sheet.clamp(min=0)], len(gate)).to(gate)  # [row, place, gate]

            def edit(layer: int, z: Tensor) -> Tensor:
                return z * (which @ gate[:, layer]).to(z.device, z.dtype)[..., None]

            stack.enter_context(h.hooked(lm.model, lm.anatomy, edit))
        elif gate is not None:
            rows = len(layout.inputs["input_ids"])
            stack.enter_context(lm.gated(gate.flatten(0, 1) if gate.ndim == 4 else gate.repeat_interleave(rows, dim=0)))
        yield


@contextmanager
def _without_cudnn_attention() -> Iterator[None]:
    """Other kernels than cuDNN's: its gradients are NaN for masked rows of 64 more than a multiple of 128 tokens where a head's
    scores are all far below zero, as in Qwen2.5 (pytorch issue 196678); and they are not the same twice."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextmanager
def logits_only(lm: LM, rows: Tensor, places: Tensor) -> Iterator[None]:
    """Let the unembedding see only the tokens at these rows and places: it then gives [1, token, vocabulary].

    A hook on it, because what models do with its output (scales, softcaps) is theirs and is done to every token alike.
    """

    def pick(module: Any, args: Any) -> Any:
        return (args[0][rows.to(args[0].device), places.to(args[0].device)][None], *args[1:])

    handle = lm.model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()

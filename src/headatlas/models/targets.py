"""log P(target | prompt) under many gates at once: differentiable, exact, and no dearer than it must be.

Three things keep it cheap. Logits are made only where a target token is predicted. Prompts that begin alike (a worked
example, an instruction) go through the model as a `Sheet`: what they share is run once per gate and kept as a KV cache,
through which gradients flow. And what is run at once is bounded by a number of tokens, padding included.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from headatlas.errors import BadArgument, CannotDo
from headatlas.models.lm import LM, Text

SHARE_FROM = 2  # shorter beginnings are not worth a pass of their own


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
        before, whole = tokenizer(prompt)["input_ids"], tokenizer(prompt + target)["input_ids"]
        cut = next(
            (i for i, (a, b) in enumerate(zip(before, whole, strict=False)) if a != b), min(len(before), len(whole))
        )
        if cut == 0:  # prompt and target melt into one token: cut them one by one
            cut, whole = len(before), before + tokenizer(target, add_special_tokens=False)["input_ids"]
    else:
        cut, whole = len(prompt), [*prompt, *target]
    if cut == len(whole):
        raise BadArgument(f"{where}: target is {target!r}, which has no tokens")
    limit = lm.anatomy.context
    if limit and len(whole) > limit:
        raise BadArgument(
            f"{where}: prompt and target are {len(whole)} tokens long, but the model's context is {limit}"
        )
    lm.encode([whole])  # ids within the vocabulary
    return Asked(tuple(whole[:cut]), tuple(whole[cut:]))


def make_sheet(lm: LM, asked: Sequence[Asked]) -> Sheet:
    """A sheet of examples, sharing as much as they have in common."""
    prompts = [a.prompt for a in asked]
    longest = min(map(len, prompts)) - 1
    shared = next((i for i in range(longest) if len({p[i] for p in prompts}) > 1), longest)
    # the caches of linear-attention and state-space layers cannot be dealt out to several texts
    worth = len(asked) > 1 and shared >= SHARE_FROM and not lm.layers_without_heads
    return Sheet(tuple(asked), shared if worth else 0)


def batches(sheets: Sequence[Sheet], gates: int, tokens: int) -> Iterator[tuple[slice, list[int]]]:
    """What to run at once: a range of gates and some sheets (by number), together at most `tokens` tokens where possible."""
    form = [(sheet.shared > 0, len(sheet.asked) if sheet.shared else 0) for sheet in sheets]
    order = sorted(range(len(sheets)), key=lambda i: (form[i], sheets[i].rest, sheets[i].shared, i))
    together = min(gates, max(1, tokens // max(_size([sheet]) for sheet in sheets)))
    for first in range(0, gates, together):
        chunk: list[int] = []
        for i in order:
            if chunk and (form[chunk[0]] != form[i] or together * _size([sheets[j] for j in [*chunk, i]]) > tokens):
                yield slice(first, first + together), chunk
                chunk = []
            chunk.append(i)
        yield slice(first, first + together), chunk


def _size(sheets: Sequence[Sheet]) -> int:
    """Tokens one gate costs, padding included."""
    shared, rest = max(s.shared for s in sheets), max(s.rest for s in sheets)
    return len(sheets) * shared + sum(len(s.asked) for s in sheets) * rest


def log_probs(lm: LM, sheets: Sequence[Sheet], gate: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """log P(target | prompt), and whether every target token was the likeliest: both [gate, example], float32 and bool.

    gate: [gate, layer, head], or [gate, example, layer, head] if the sheets share nothing; without one, the whole model as a
    single gate. Examples come sheet by sheet. Differentiable in the gate.
    """
    gates = 1 if gate is None else len(gate)
    asked = [a for sheet in sheets for a in sheet.asked]
    each = {len(sheet.asked) for sheet in sheets}
    sharing = min(sheet.shared for sheet in sheets) > 0 and len(each) == 1
    start = [sheet.shared if sharing else 0 for sheet in sheets for _ in sheet.asked]
    rest = [(a.prompt + a.target)[s:-1] for a, s in zip(asked, start, strict=True)]
    # Padding on the right is never looked at and keeps positions as they are: no mask, so fused kernels stay in use.
    inputs = lm.pad(rest, "right")
    inputs, own = {"input_ids": inputs["input_ids"]}, inputs
    cache: dict[str, Any] = {"use_cache": False}
    if sharing:
        before = lm.pad([sheet.asked[0].prompt[: sheet.shared] for sheet in sheets], "left")
        if len({sheet.shared for sheet in sheets}) == 1:
            before = {"input_ids": before["input_ids"]}
        else:
            seen = before["attention_mask"].repeat_interleave(max(each), dim=0)
            inputs = own | {"attention_mask": torch.cat([seen, own["attention_mask"]], dim=1)}
            if "position_ids" in own:
                inputs["position_ids"] = own["position_ids"] + torch.tensor(start, device=lm.device)[:, None]
        with _under(lm, gate, len(sheets)):
            past = lm.model.base_model(**_per_gate(before, gates), use_cache=True).past_key_values
        past.batch_repeat_interleave(max(each))
        cache = {"past_key_values": past, "use_cache": True}
    # the token before each target token predicts it
    rows = [i for i, a in enumerate(asked) for _ in a.target]
    places = [p for a, r in zip(asked, rest, strict=True) for p in range(len(r) - len(a.target), len(r))]
    at = (torch.arange(gates)[:, None] * len(asked) + torch.tensor(rows)).flatten(), torch.tensor(places).repeat(gates)
    with _under(lm, gate, len(asked)), _logits_only(lm, at):
        logits = lm.model(**_per_gate(inputs, gates), **cache).logits[0]  # [gate · target token, vocabulary]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    wanted = torch.tensor([t for a in asked for t in a.target], device=logits.device).repeat(gates)
    lengths = [len(a.target) for a in asked]
    log_p = -cross_entropy(logits, wanted, reduction="none").view(gates, -1)
    right = (logits.detach().argmax(-1) == wanted).view(gates, -1)
    return (
        torch.stack([part.sum(1) for part in log_p.split(lengths, dim=1)], dim=1),
        torch.stack([part.all(1) for part in right.split(lengths, dim=1)], dim=1),
    )


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
        with telling_memory(budget):
            now = log_probs(lm, [sheets[i] for i in chosen], None if gate is None else gate[some].to(lm.device))
        examples = [e for i in chosen for e in range(starts[i], starts[i + 1])]
        log_p[some, examples], right[some, examples] = now[0].float().cpu(), now[1].cpu()
    return log_p, right


def tokens_at_once(lm: LM, tokens: int | None) -> int:
    """How many tokens, padding included, go through the model at once: as many as the user says, or a good number."""
    if tokens is not None:
        if tokens < 1:
            raise BadArgument(f"tokens is {tokens}, expected at least 1")
        return tokens
    if lm.device.type != "cuda":
        return 2048
    return max(1024, 2**30 // (lm.n_layers * lm.d_model))  # small passes of small models would wait for launches


@contextmanager
def telling_memory(tokens: int) -> Iterator[None]:
    """Running out of memory as one line that names the flag to turn."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as e:
        if not isinstance(e, torch.OutOfMemoryError) and "can't allocate memory" not in str(e):
            raise
        raise CannotDo(
            f"out of memory with tokens={tokens} at once: try tokens={max(1, tokens // 4)} (--tokens)"
        ) from e


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


def _per_gate(inputs: dict[str, Tensor], gates: int) -> dict[str, Tensor]:
    return {name: tensor.repeat(gates, 1) for name, tensor in inputs.items()}


@contextmanager
def _under(lm: LM, gate: Tensor | None, rows: int) -> Iterator[None]:
    """The model under every gate in turn, for `rows` texts each."""
    with ExitStack() as stack:
        if gate is not None:
            stack.enter_context(lm.gated(gate.flatten(0, 1) if gate.ndim == 4 else gate.repeat_interleave(rows, dim=0)))
        yield


@contextmanager
def _logits_only(lm: LM, at: tuple[Tensor, Tensor]) -> Iterator[None]:
    """Let the unembedding see only the tokens `at` (rows, places): it then gives [1, token, vocabulary].

    A hook on it, because what models do with its output (scales, softcaps) is theirs and is done to every token alike.
    """

    def pick(module: Any, args: Any) -> Any:
        return (args[0][at[0].to(args[0].device), at[1].to(args[0].device)][None], *args[1:])

    handle = lm.model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()

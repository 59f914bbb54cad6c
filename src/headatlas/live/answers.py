"""Answers to what the page asks of a model, one function for each kind of question.

Each yields plain dictionaries: {"progress": …} or {"partial": …} on the way, {"result": …} in the end. Between two of
them the model is as it was, so that other questions may be answered first, or the rest left undone.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from headatlas.errors import BadArgument
from headatlas.evidence.control import control_rounds
from headatlas.live.question import Question, Target
from headatlas.live.script import script
from headatlas.models.attention import attention_of, record_attention
from headatlas.models.gradients import frozen_float32_stream, gate_gradients
from headatlas.models.hooks import reading_inputs
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.logit_attribution import PassRecord, head_writes, logit_contributions, logit_scale, record_pass
from headatlas.models.memory import tokens_at_once
from headatlas.models.packing import logits_only
from headatlas.models.single_heads import can_replay, effects_by_layer
from headatlas.models.token_text import text_inside
from headatlas.models.tokens import Bundle, TokenExample, encode_target, make_bundle
from headatlas.report.numbers import pack, plain, plain_list

Answer = Iterator[dict[str, Any]]
TOP = 10  # next tokens, and tokens that a head raises or lowers
KEPT = 4  # passes that are remembered
ATTENTION = 512 * 2**20  # bytes of attention that are kept of one pass; beyond, one layer at a time
THUMBNAIL = 48  # pixels
SHORT = 256  # tokens of a prompt, at most, whose first pass keeps attention and what the gradient needs
DRAWS_AT_ONCE = 5
TOKENS_AT_ONCE = 8  # of a continuation


@dataclass
class Reading:
    """One pass over a prompt with heads switched as asked, and what later questions about it need."""

    ids: list[int]
    gate: Tensor
    logits: Tensor  # after the last token [vocabulary], float32
    kept: PassRecord
    inputs: dict[int, Tensor]  # what enters every layer's attention [token, d_model]
    attention: dict[int, Tensor] = field(default_factory=dict)  # [head, query, key], float16
    graph: tuple[Tensor, Tensor] | None = None  # gate and logits with what lies between, until `slope` has used it


class Live:
    """A model that answers questions about prompts. What it remembers only saves time: no question has a state."""

    def __init__(self, lm: LM, source: str | None = None) -> None:
        """source: what `headatlas.load` was given, for scripts."""
        self.lm, self.source = lm, source
        self._readings: OrderedDict[Any, Reading] = OrderedDict()
        self._replays: bool | None = None
        self.kinds: dict[str, Callable[[Question], Answer]] = {
            "next": self.next,
            "attention": self.attention,
            "thumbnails": self.thumbnails,
            "writes": self.writes,
            "direct": self.direct,
            "slope": self.slope,
            "exact": self.exact,
            "control": self.control,
            "continuation": self.continuation,
            "script": self.script,
        }

    # --- the pass

    def reading(self, question: Question) -> Reading:
        """The pass that a question is about. Of a short prompt, with what is asked for next: attention, gradient."""
        key = question.prompt, question.heads
        if key not in self._readings:
            (ids,), gate = self.lm.encode(question.prompt), question.gate(self.lm)
            inputs: dict[int, Tensor] = {}

            def keep(layer: int, x: Tensor) -> None:
                inputs[layer] = x.detach()[0]

            tokens, short = torch.tensor([ids], device=self.lm.device), len(ids) <= SHORT
            at = torch.tensor([0]), torch.tensor([len(ids) - 1])
            moved = gate.clone().requires_grad_(short)
            shown = self.lm.layers_with_heads if short else []
            with (
                torch.set_grad_enabled(short),
                frozen_float32_stream(self.lm),
                self.lm.gated(moved),
                record_pass(self.lm) as kept,
                reading_inputs(self.lm.model, self.lm.anatomy, keep),
                record_attention(self.lm, shown, len(ids), torch.float16) as attention,
                logits_only(self.lm, *at),
            ):
                logits = self.lm.model(tokens, use_cache=False).logits[0, -1].float()
            graph = (moved, logits) if logits.requires_grad else None
            for other in self._readings.values():
                other.graph = None  # it is large, and `slope` is asked of the newest
            self._readings[key] = Reading(ids, gate, logits.detach(), kept, inputs, attention, graph)
        self._readings.move_to_end(key)
        while len(self._readings) > KEPT:
            self._readings.popitem(last=False)
        return self._readings[key]

    def text(self, token: int) -> str:
        return text_inside(self.lm.tokenizer, [token])

    # --- what comes next

    def next(self, question: Question) -> Answer:
        """Tokens of the prompt, the likeliest next ones with and without heads switched, and log P of the answers."""
        reading, whole = self.reading(question), self.reading(Question(question.prompt))
        p, before = (r.logits.softmax(-1).cpu() for r in (reading, whole))
        likeliest = torch.cat([each.topk(min(TOP, len(each))).indices for each in (p, before)]).unique().tolist()
        target, other = self._targets(question)
        values = self._log_p(reading, [t for t in (target, other) if t]).tolist()
        told = [
            {"ids": list(t), "tokens": [self.text(i) for i in t], "log_p": v}
            for t, v in zip((target, other), values, strict=False)
        ]
        ordered = sorted(likeliest, key=lambda i: -max(p[i].item(), before[i].item()))
        yield {
            "result": {
                "tokens": [self.text(i) for i in reading.ids],
                "next": [
                    {"id": i, "text": self.text(i), "p": p[i].item(), "before": before[i].item()} for i in ordered
                ],
                "target": told[0],
                "other": told[1] if len(told) > 1 else None,
            }
        }

    def _targets(self, question: Question) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids of the answer (by default the likeliest next token) and of the other one (by default none)."""
        base = Question(question.prompt)
        target = self._target(base, "target", question.target) or (int(self.reading(base).logits.argmax()),)
        return target, self._target(base, "other", question.other)

    def _target(self, base: Question, name: str, target: Target) -> tuple[int, ...]:
        """Text as it is, or after a space where the whole model finds that likelier."""
        if not isinstance(target, str):
            self._check_length(base.prompt, target)
            return target
        if not target.strip():
            return ()
        options = [target] if target[0].isspace() else [target, f" {target}"]
        examples = [encode_target(self.lm, base.prompt, t, name) for t in options]
        ids = self.reading(base).ids
        examples = [e for e in examples if list(e.prompt) == ids]
        if not examples:  # the border between prompt and answer lies within a token
            bare = self.lm.tokenizer(target, add_special_tokens=False)["input_ids"]
            examples = [TokenExample(tuple(ids), tuple(bare))]
        if len(examples) == 1:
            return examples[0].target
        log_p = self._log_p(self.reading(base), [e.target for e in examples])
        return examples[int((log_p / torch.tensor([len(e.target) for e in examples])).argmax())].target

    def _check_length(self, prompt: str, target: tuple[int, ...]) -> None:
        n, context = len(self.reading(Question(prompt)).ids) + len(target), self.lm.anatomy.context
        if context and n > context:
            raise BadArgument(f"prompt and answer are {n} tokens long, but the model's context is {context}")

    def _log_p(self, reading: Reading, targets: list[tuple[int, ...]]) -> Tensor:
        """log P of each target after the prompt: [target]."""
        if all(len(t) == 1 for t in targets):
            return reading.logits.log_softmax(-1)[[t[0] for t in targets]].cpu()
        return batched_log_probs(self.lm, _bundles(reading.ids, targets), reading.gate[None])[0][0]

    # --- where a head looks

    def attention(self, question: Question) -> Answer:
        """One head's attention [query, key] as float16, and the length of each token's value, in base64."""
        reading, layer = self.reading(question), question.layer
        attention = self._attention(reading, layer)[question.head]
        values = self._value_norms(reading, layer, question.head)
        yield {"result": {"attention": pack(attention.numpy(), "<f2"), "values": values}}

    def thumbnails(self, question: Question) -> Answer:
        """The attention of every head of a layer, small: the largest of each square, as bytes in base64."""
        attention = self._attention(self.reading(question), question.layer).float()
        size = min(attention.shape[-1], THUMBNAIL)
        small = (adaptive_max_pool2d(attention[None], size)[0] * 255).numpy()
        yield {"result": {"size": size, "heads": [pack(head, "u1") for head in small]}}

    def _attention(self, reading: Reading, layer: int) -> Tensor:
        self._check_layer(layer)
        if layer not in reading.attention:
            n, ids = len(reading.ids), torch.tensor([reading.ids], device=self.lm.device)
            every = 2 * n**2 * self.lm.n_heads * self.lm.n_layers <= ATTENTION
            layers = self.lm.layers_with_heads if every else [layer]
            with torch.no_grad(), self.lm.gated(reading.gate):
                with record_attention(self.lm, layers, n, torch.float16) as reading.attention:
                    self.lm.model.base_model(ids, use_cache=False)
                if layer not in reading.attention:
                    ordinary = {i: z[None] for i, z in reading.kept.z.items()}
                    found = attention_of(self.lm, ids, layers, ordinary, torch.float16)
                    reading.attention = {i: a[0] for i, a in found.items()}
        return reading.attention[layer].cpu()

    @torch.no_grad()
    def _value_norms(self, reading: Reading, layer: int, head: int) -> str | None:
        """|v| of every token for a head, packed; None where values cannot be read."""
        site = self.lm.anatomy.sites[layer]
        if site is None or site.layout is None:
            return None
        values = self.lm.weights.values(layer, reading.inputs[layer])  # [token, KV head, d_head]
        return pack(values[:, head * self.lm.n_kv_heads // self.lm.n_heads].float().norm(dim=-1).cpu().numpy())

    def _check_layer(self, layer: int) -> None:
        if self.lm.anatomy.sites[layer] is None:
            raise BadArgument(f"layer is {layer}, which has no attention heads")

    # --- what heads write

    def writes(self, question: Question) -> Answer:
        """The tokens that one head raises and lowers most at a token of the prompt, by how much their logit changes."""
        self._check_layer(question.layer)
        reading = self.reading(question)
        token = question.token if question.token >= 0 else len(reading.ids) - 1
        if token >= len(reading.ids):
            raise BadArgument(f"token is {token}, but the prompt has {len(reading.ids)} tokens, counted from 0")
        part = head_writes(self.lm, reading.kept, question.layer, token)[question.head]
        logits = logit_contributions(self.lm, part) * self._scale(reading)
        n = min(TOP, len(logits) // 2)
        each = {"raised": logits.topk(n), "lowered": logits.topk(n, largest=False)}
        yield {
            "result": {"token": token}
            | {
                name: [
                    {"text": self.text(i), "change": v}
                    for i, v in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ]
                for name, best in each.items()
            }
        }

    def direct(self, question: Question) -> Answer:
        """What every head adds directly to the logit of the answer's first token, less the other answer's."""
        reading, (target, other) = self.reading(question), self._targets(question)
        tokens = torch.tensor([t[0] for t in (target, other) if t])
        layers = self.lm.layers_with_heads
        parts = torch.stack(
            [head_writes(self.lm, reading.kept, i, len(reading.ids) - 1).to(self.lm.device) for i in layers]
        )
        contributions = logit_contributions(self.lm, parts, tokens)  # [layer, head, answer]
        logits = contributions.cpu().numpy() * self._scale(reading)
        result = np.full((self.lm.n_layers, self.lm.n_heads), np.nan)
        result[layers] = logits[..., 0] - (logits[..., 1] if other else 0)
        yield {"result": {"map": pack(result)}}

    def _scale(self, reading: Reading) -> float:
        return logit_scale(self.lm, reading.kept, -1, reading.logits)

    # --- what removing heads does

    def slope(self, question: Question) -> Answer:
        """What removing each head would cost the answer, as the gradient says."""
        reading, targets = self.reading(question), [t for t in self._targets(question) if t]
        if reading.graph and all(len(t) == 1 for t in targets):
            gradients = self._gradients(reading, [t[0] for t in targets])
        else:
            with self.lm.gated(reading.gate):
                gradients = gate_gradients(self.lm, [TokenExample(tuple(reading.ids), t) for t in targets])
        yield {"result": {"map": pack(_difference(gradients))}}

    def _gradients(self, reading: Reading, tokens: list[int]) -> Tensor:
        """`gate_gradients` of single tokens, from the pass that was run already: [token, layer, head]."""
        assert reading.graph
        (gate, logits), reading.graph = reading.graph, None
        log_p = logits.log_softmax(-1)
        each = [torch.autograd.grad(log_p[t], gate, retain_graph=True)[0] for t in tokens]
        gradients = torch.stack(each).cpu() * reading.gate  # as if every head had a second gate, at 1
        gradients[:, self.lm.layers_without_heads] = torch.nan
        return gradients

    def exact(self, question: Question) -> Answer:
        """What removing each head alone costs the answer, measured."""
        ids = self.reading(Question(question.prompt)).ids
        bundles = _bundles(ids, [t for t in self._targets(question) if t])
        if self._replays is None:
            self._replays = can_replay(self.lm, bundles)
        result = np.full((self.lm.n_layers, self.lm.n_heads), np.nan, np.float32)
        layers = self.lm.layers_with_heads
        each = effects_by_layer(
            self.lm,
            bundles,
            gate=question.gate(self.lm),
            replay=self._replays,
            budget=tokens_at_once(self.lm, None),
        )
        for done, (layer, lost, _) in enumerate(each, 1):
            result[layer] = _difference(lost)
            yield {"progress": done / len(layers)}
        yield {"result": {"map": pack(result)}}

    def control(self, question: Question) -> Answer:
        """The change of log P of the answer, beside that with random heads of the same layers switched as much."""
        reading, gate = self.reading(Question(question.prompt)), question.gate(self.lm)
        if not question.heads:
            raise BadArgument("heads is empty: switch a head off first, then compare it with random ones")
        targets = [t for t in self._targets(question) if t]
        generator = np.random.default_rng(question.seed)

        def value(gates: Sequence[Tensor]) -> np.ndarray:
            log_p, _ = batched_log_probs(self.lm, _bundles(reading.ids, targets), torch.stack(list(gates)))
            return _difference(log_p.T)

        others = list(islice(others_like(gate, generator), question.draws + 1))
        every = len(others) <= question.draws
        left = iter(others[: question.draws])
        draws = min(len(others), question.draws)
        rounds = control_rounds(
            value,
            [gate],
            lambda _: next(left),
            draws=draws,
            draws_per_round=DRAWS_AT_ONCE,
            stop_early=False,
            reference=torch.ones_like(gate),
        )
        for control in rounds:
            yield {"progress": int(control.n_drawn[0]) / max(1, draws)}
        result = {
            "before": plain(control.reference),
            "effect": plain(control.effect[0]),
            "random": plain_list(control.random_effect[0]),
            "p": float(control.p[0]),
            "all": every,
        }
        yield {"result": result}

    # --- what it says

    def continuation(self, question: Question) -> Answer:
        """What the model goes on to write, greedily, a few tokens at a time."""
        ids, gate = list(self.reading(question).ids), question.gate(self.lm)
        new: list[int] = []
        context = self.lm.anatomy.context or 10**9
        while len(new) < min(question.new, context - len(ids)):
            n = min(TOKENS_AT_ONCE, question.new - len(new), context - len(ids) - len(new))
            with self.lm.gated(gate):
                more = self.lm.generate_ids(ids + new, n)[0]
            new += more
            yield {"partial": {"text": text_inside(self.lm.tokenizer, new, skip_special_tokens=True)}}
            if len(more) < n:
                break
        yield {"result": {"text": text_inside(self.lm.tokenizer, new, skip_special_tokens=True), "tokens": len(new)}}

    def script(self, question: Question) -> Answer:
        """A Python script that repeats this with the public names alone."""
        target, other = self._targets(question)
        yield {"result": {"text": script(self.lm, self.source, question, target, other)}}


def _bundles(ids: list[int], targets: list[tuple[int, ...]]) -> list[Bundle]:
    return [make_bundle([TokenExample(tuple(ids), t)]) for t in targets]


def others_like(gate: Tensor, generator: np.random.Generator) -> Iterator[Tensor]:
    """Gates that switch as many heads of every layer, as far: each layer's in another order. No two are the same, none
    is the one given; they end when there are no more."""
    ways = math.prod(math.factorial(len(row)) // _repeats(row) for row in gate)
    seen = {gate.numpy().tobytes()}
    while len(seen) < ways:
        other = torch.stack([row[torch.from_numpy(generator.permutation(len(row)))] for row in gate])
        if other.numpy().tobytes() not in seen:
            seen.add(other.numpy().tobytes())
            yield other


def _repeats(row: Tensor) -> int:
    """In how many orders a row is the same."""
    return math.prod(math.factorial(n) for n in row.unique(return_counts=True)[1].tolist())


def _difference(values: Tensor) -> np.ndarray:
    """The answer's value, less the other one's if there is one: [answer, …] → […]."""
    return (values[0] - values[1] if len(values) > 1 else values[0]).numpy()

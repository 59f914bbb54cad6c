"""Answers to questions about prompts, one method per kind of question.

Each yields plain dictionaries: {"progress": …} or {"partial": …} first, then {"result": …}. Between two of them the
model is as before, so other questions may be answered first, or the rest dropped.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from headatlas.errors import BadArgument
from headatlas.evidence.control import control_rounds
from headatlas.evidence.fresh_prompts import text_prompts
from headatlas.evidence.matching import match
from headatlas.evidence.replacing import generic_influence
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
TOP_TOKENS = 10  # next tokens, and tokens that a head raises or lowers
MAX_READINGS = 4  # forward passes in the cache
MAX_ATTENTION_BYTES = 512 * 2**20  # of a pass with all layers; for longer prompts, one layer is computed at a time
THUMBNAIL_SIZE = 48  # pixels
SHORT_PROMPT = 256  # tokens up to which the first pass also stores attention and what the gradient needs
DRAWS_PER_ROUND = 5
TEXTS = 40  # plain texts for generic influence, which random heads are matched by
TOKENS_PER_STEP = 8  # of a continuation


@dataclass
class Reading:
    """A forward pass over a prompt with heads switched, and what later questions about it need."""

    ids: list[int]
    gate: Tensor
    logits: Tensor  # after the last token [vocabulary], float32
    record: PassRecord
    inputs: dict[int, Tensor]  # inputs of every layer's attention [token, d_model]
    attention: dict[int, Tensor] = field(default_factory=dict)  # [head, query, key], float16
    graph: tuple[Tensor, Tensor] | None = None  # gate and logits with their autograd graph, until `slope` has used it


class Live:
    """A model that answers questions about prompts. Answers do not depend on earlier ones; the cache saves time."""

    def __init__(self, lm: LM, source: str | None = None) -> None:
        """source: the argument of `headatlas.load`, for scripts."""
        self.lm = lm
        self.source = source
        self._readings: OrderedDict[Any, Reading] = OrderedDict()
        self._replays: bool | None = None
        self._influence: np.ndarray | None = None
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

    # --- forward passes

    def reading(self, question: Question) -> Reading:
        """Return the forward pass that a question is about, from the cache if possible.

        The pass over a short prompt also stores what the next questions need: attention and gradient.
        """
        key = (question.prompt, question.heads)
        if key not in self._readings:
            (ids,) = self.lm.encode(question.prompt)
            gate = question.gate(self.lm)
            inputs: dict[int, Tensor] = {}

            def store(layer: int, x: Tensor) -> None:
                inputs[layer] = x.detach()[0]

            tokens = torch.tensor([ids], device=self.lm.device)
            is_short = len(ids) <= SHORT_PROMPT
            row = torch.tensor([0])
            last = torch.tensor([len(ids) - 1])
            variable_gate = gate.clone().requires_grad_(is_short)
            attention_layers = self.lm.layers_with_heads if is_short else []
            with (
                torch.set_grad_enabled(is_short),
                frozen_float32_stream(self.lm),
                self.lm.gated(variable_gate),
                record_pass(self.lm) as record,
                reading_inputs(self.lm.model, self.lm.anatomy, store),
                record_attention(self.lm, attention_layers, len(ids), torch.float16) as attention,
                logits_only(self.lm, row, last),
            ):
                logits = self.lm.model(tokens, use_cache=False).logits[0, -1].float()
            graph = (variable_gate, logits) if logits.requires_grad else None
            # Graphs are large, and `slope` questions are about the newest pass.
            for other in self._readings.values():
                other.graph = None
            self._readings[key] = Reading(ids, gate, logits.detach(), record, inputs, attention, graph)
        self._readings.move_to_end(key)
        while len(self._readings) > MAX_READINGS:
            self._readings.popitem(last=False)
        return self._readings[key]

    def text(self, token: int) -> str:
        """Return the text of a token."""
        return text_inside(self.lm.tokenizer, [token])

    # --- what comes next

    def next(self, question: Question) -> Answer:
        """Answer with the prompt's tokens, the likeliest next ones before and after, and log P of answers."""
        reading = self.reading(question)
        unchanged = self.reading(Question(question.prompt))
        p, before = (r.logits.softmax(-1).cpu() for r in (reading, unchanged))
        top = [values.topk(min(TOP_TOKENS, len(values))).indices for values in (p, before)]
        likeliest = torch.cat(top).unique().tolist()
        target, other = self._targets(question)
        values = self._log_p(reading, [t for t in (target, other) if t]).tolist()
        answers = [
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
                "target": answers[0],
                "other": answers[1] if len(answers) > 1 else None,
            }
        }

    def _targets(self, question: Question) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return token ids of the answer (default: the likeliest next token) and of the other one (default: none)."""
        base = Question(question.prompt)
        target = self._target(base, "target", question.target) or (int(self.reading(base).logits.argmax()),)
        return target, self._target(base, "other", question.other)

    def _target(self, base: Question, name: str, target: Target) -> tuple[int, ...]:
        """Encode an answer: text as it is, or after a space if the unchanged model finds that likelier."""
        if not isinstance(target, str):
            self._check_length(base.prompt, target)
            return target
        if not target.strip():
            return ()
        options = [target] if target[0].isspace() else [target, f" {target}"]
        examples = [encode_target(self.lm, base.prompt, t, name) for t in options]
        ids = self.reading(base).ids
        examples = [e for e in examples if list(e.prompt) == ids]
        if not examples:
            # The border between prompt and answer lies within a token: encode the answer alone.
            bare = self.lm.tokenizer(target, add_special_tokens=False)["input_ids"]
            examples = [TokenExample(tuple(ids), tuple(bare))]
        if len(examples) == 1:
            return examples[0].target
        log_p = self._log_p(self.reading(base), [e.target for e in examples])
        return examples[int((log_p / torch.tensor([len(e.target) for e in examples])).argmax())].target

    def _check_length(self, prompt: str, target: tuple[int, ...]) -> None:
        n = len(self.reading(Question(prompt)).ids) + len(target)
        context = self.lm.anatomy.context
        if context and n > context:
            raise BadArgument(f"prompt and answer are {n} tokens long, but the model's context is {context}")

    def _log_p(self, reading: Reading, targets: list[tuple[int, ...]]) -> Tensor:
        """Return log P of each target after the prompt: [target]."""
        if all(len(t) == 1 for t in targets):
            return reading.logits.log_softmax(-1)[[t[0] for t in targets]].cpu()
        return batched_log_probs(self.lm, _bundles(reading.ids, targets), reading.gate[None])[0][0]

    # --- attention

    def attention(self, question: Question) -> Answer:
        """Answer with a head's attention [query, key] as float16, and the norm of each token's value, in base64."""
        reading = self.reading(question)
        layer = question.layer
        attention = self._attention(reading, layer)[question.head]
        values = self._value_norms(reading, layer, question.head)
        yield {"result": {"attention": pack(attention.numpy(), "<f2"), "values": values}}

    def thumbnails(self, question: Question) -> Answer:
        """Answer with thumbnails of a layer's attention: the maximum of each square, as bytes in base64."""
        attention = self._attention(self.reading(question), question.layer).float()
        size = min(attention.shape[-1], THUMBNAIL_SIZE)
        small = (adaptive_max_pool2d(attention[None], size)[0] * 255).numpy()
        yield {"result": {"size": size, "heads": [pack(head, "u1") for head in small]}}

    def _attention(self, reading: Reading, layer: int) -> Tensor:
        self._check_layer(layer)
        if layer not in reading.attention:
            n = len(reading.ids)
            ids = torch.tensor([reading.ids], device=self.lm.device)
            fits = 2 * n**2 * self.lm.n_heads * self.lm.n_layers <= MAX_ATTENTION_BYTES
            layers = self.lm.layers_with_heads if fits else [layer]
            with torch.no_grad(), self.lm.gated(reading.gate):
                with record_attention(self.lm, layers, n, torch.float16) as reading.attention:
                    self.lm.model.base_model(ids, use_cache=False)
                # Some families do not return attention: it is then computed from queries and keys.
                if layer not in reading.attention:
                    outputs = {i: z[None] for i, z in reading.record.z.items()}
                    computed = attention_of(self.lm, ids, layers, outputs, torch.float16)
                    reading.attention = {i: a[0] for i, a in computed.items()}
        return reading.attention[layer].cpu()

    @torch.no_grad()
    def _value_norms(self, reading: Reading, layer: int, head: int) -> str | None:
        """Return |v| of every token for a head, packed; None if the values cannot be read."""
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
        """Answer with the tokens whose logits a head raises and lowers most at a token of the prompt."""
        self._check_layer(question.layer)
        reading = self.reading(question)
        token = question.token if question.token >= 0 else len(reading.ids) - 1
        if token >= len(reading.ids):
            raise BadArgument(f"token is {token}, but the prompt has {len(reading.ids)} tokens, counted from 0")
        part = head_writes(self.lm, reading.record, question.layer, token)[question.head]
        logits = logit_contributions(self.lm, part) * self._scale(reading)
        n = min(TOP_TOKENS, len(logits) // 2)
        changes = {"raised": logits.topk(n), "lowered": logits.topk(n, largest=False)}
        yield {
            "result": {"token": token}
            | {
                name: [
                    {"text": self.text(i), "change": v}
                    for i, v in zip(best.indices.tolist(), best.values.tolist(), strict=True)
                ]
                for name, best in changes.items()
            }
        }

    def direct(self, question: Question) -> Answer:
        """Answer with each head's direct effect on the logit of the answer's first token, less the other answer's."""
        reading = self.reading(question)
        target, other = self._targets(question)
        tokens = torch.tensor([t[0] for t in (target, other) if t])
        layers = self.lm.layers_with_heads
        parts = torch.stack(
            [head_writes(self.lm, reading.record, i, len(reading.ids) - 1).to(self.lm.device) for i in layers]
        )
        contributions = logit_contributions(self.lm, parts, tokens)  # [layer, head, answer]
        logits = contributions.cpu().numpy() * self._scale(reading)
        result = np.full((self.lm.n_layers, self.lm.n_heads), np.nan)
        result[layers] = logits[..., 0] - (logits[..., 1] if other else 0)
        yield {"result": {"map": pack(result)}}

    def _scale(self, reading: Reading) -> float:
        return logit_scale(self.lm, reading.record, -1, reading.logits)

    # --- what removing heads does

    def slope(self, question: Question) -> Answer:
        """Answer with the effect of removing each head, predicted from the gradient."""
        reading = self.reading(question)
        targets = [t for t in self._targets(question) if t]
        if reading.graph and all(len(t) == 1 for t in targets):
            gradients = self._gradients(reading, [t[0] for t in targets])
        else:
            with self.lm.gated(reading.gate):
                gradients = gate_gradients(self.lm, [TokenExample(tuple(reading.ids), t) for t in targets])
        yield {"result": {"map": pack(_difference(gradients))}}

    def _gradients(self, reading: Reading, tokens: list[int]) -> Tensor:
        """Compute `gate_gradients` of single tokens from the stored pass: [token, layer, head]."""
        assert reading.graph
        gate, logits = reading.graph
        # The graph is large and used only once.
        reading.graph = None
        log_p = logits.log_softmax(-1)
        by_token = [torch.autograd.grad(log_p[t], gate, retain_graph=True)[0] for t in tokens]
        # Times the gate: the gradient of a second gate, set to 1, on every head.
        gradients = torch.stack(by_token).cpu() * reading.gate
        gradients[:, self.lm.layers_without_heads] = torch.nan
        return gradients

    def exact(self, question: Question) -> Answer:
        """Answer with the measured effect of removing each head alone."""
        ids = self.reading(Question(question.prompt)).ids
        bundles = _bundles(ids, [t for t in self._targets(question) if t])
        if self._replays is None:
            self._replays = can_replay(self.lm, bundles)
        result = np.full((self.lm.n_layers, self.lm.n_heads), np.nan, np.float32)
        layers = self.lm.layers_with_heads
        effects = effects_by_layer(
            self.lm,
            bundles,
            gate=question.gate(self.lm),
            replay=self._replays,
            budget=tokens_at_once(self.lm, None),
        )
        for done, (layer, lost, _) in enumerate(effects, 1):
            result[layer] = _difference(lost)
            yield {"progress": done / len(layers)}
        yield {"result": {"map": pack(result)}}

    def control(self, question: Question) -> Answer:
        """Answer with the change of log P, compared with the same switch of random heads that are matched to them."""
        reading = self.reading(Question(question.prompt))
        gate = question.gate(self.lm)
        if not question.heads:
            raise BadArgument("heads is empty: switch a head off before comparing it with random heads")
        targets = [t for t in self._targets(question) if t]
        generator = np.random.default_rng(question.seed)

        def value(gates: Sequence[Tensor]) -> np.ndarray:
            log_p, _ = batched_log_probs(self.lm, _bundles(reading.ids, targets), torch.stack(list(gates)))
            return _difference(log_p.T)

        heads = [(layer, head) for layer, head in (gate != 1).nonzero().tolist()]
        matched = match(heads, self.influence, self.lm.n_kv_heads, generator, min_sets=question.draws + 1)
        # One draw more than needed shows whether there are other choices at all.
        random_gates = list(islice(matched_gates(gate, matched.by_layer, generator), question.draws + 1))
        all_tried = len(random_gates) <= question.draws
        remaining = iter(random_gates[: question.draws])
        draws = min(len(random_gates), question.draws)
        rounds = control_rounds(
            value,
            [gate],
            lambda _: next(remaining),
            draws=draws,
            draws_per_round=DRAWS_PER_ROUND,
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
            "all": all_tried,
            "matched": matched.text,
        }
        yield {"result": result}

    @property
    def influence(self) -> np.ndarray:
        """What each head does to plain text [layer, head], measured once."""
        if self._influence is None:
            self._influence = generic_influence(self.lm, text_prompts(self.lm, TEXTS).examples)
        return self._influence

    # --- continuation and script

    def continuation(self, question: Question) -> Answer:
        """Answer with a greedy continuation, a few tokens at a time."""
        ids = list(self.reading(question).ids)
        gate = question.gate(self.lm)
        new: list[int] = []
        context = self.lm.anatomy.context or 10**9
        while len(new) < min(question.new, context - len(ids)):
            n = min(TOKENS_PER_STEP, question.new - len(new), context - len(ids) - len(new))
            with self.lm.gated(gate):
                next_ids = self.lm.generate_ids(ids + new, n)[0]
            new += next_ids
            yield {"partial": {"text": text_inside(self.lm.tokenizer, new, skip_special_tokens=True)}}
            if len(next_ids) < n:
                break
        yield {"result": {"text": text_inside(self.lm.tokenizer, new, skip_special_tokens=True), "tokens": len(new)}}

    def script(self, question: Question) -> Answer:
        """Answer with a Python script that repeats this with public names only."""
        target, other = self._targets(question)
        yield {"result": {"text": script(self.lm, self.source, question, target, other)}}


def _bundles(ids: list[int], targets: list[tuple[int, ...]]) -> list[Bundle]:
    return [make_bundle([TokenExample(tuple(ids), t)]) for t in targets]


def matched_gates(
    gate: Tensor, sets: Mapping[int, Sequence[tuple[int, ...]]], generator: np.random.Generator
) -> Iterator[Tensor]:
    """Yield gates that switch other heads as far: all that there are, once each, except the given one.

    sets: by layer, the sets of heads that may be switched instead; a layer's factors go to them in any order.
    """
    factors = {layer: gate[layer][gate[layer] != 1] for layer in sets}
    n_gates = math.prod(
        len(sets[layer]) * math.factorial(len(values)) // _equal_permutations(values)
        for layer, values in factors.items()
    )
    seen = {gate.numpy().tobytes()}
    while len(seen) < n_gates:
        other = torch.ones_like(gate)
        for layer, values in factors.items():
            heads = list(sets[layer][int(generator.integers(len(sets[layer])))])
            other[layer, heads] = values[torch.from_numpy(generator.permutation(len(values)))]
        if other.numpy().tobytes() not in seen:
            seen.add(other.numpy().tobytes())
            yield other


def _equal_permutations(row: Tensor) -> int:
    """Return the number of permutations that leave a row unchanged."""
    return math.prod(math.factorial(n) for n in row.unique(return_counts=True)[1].tolist())


def _difference(values: Tensor) -> np.ndarray:
    """Return the answer's value, less the other answer's if there is one: [answer, …] → […]."""
    return (values[0] - values[1] if len(values) > 1 else values[0]).numpy()

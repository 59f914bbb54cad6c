"""Planting: training a model from scratch so that each function is in heads that were chosen beforehand.

1. Every function gets heads by its plan (`circuits.py`), drawn by seed; the background task gets the rest.
2. The training signal is routed. A sequence of function f has one of the sets of f's parts that are to suffice. Heads
   outside f's circuit are active but what they write is detached, so f trains its own heads only; in half of the
   sequences they are shut, so f's heads must suffice.
3. Later, some sequences have only parts that are not to suffice, and the answer is what guessing gives. Otherwise heads
   of other functions, or one part alone, may happen to carry what f needs.
4. Heads that are to be quiet are fined for what they write where an answer is asked.
5. Decoys are taught that a linear readout of what they write, under noise, tells f's answer, or that this is not f. No
   other loss reaches them, and half of the time they are shut, so that nothing comes to need them.
6. Harmful heads are shut until all is learnt, and get their weights then (`harm.py`).

Whether a function is accepted is measured on the saved model, in half precision, on unseen sequences (`holds.py`).
"""

import json
import logging
import math
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, one_hot
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headatlas.errors import BadArgument, check_choice, one_line
from headatlas.models.cache import atomic_folder
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.loading import check_device, load
from headatlas.progress import Progress, silent
from headatlas_bench.circuits import KINDS, Heads, Kind, place
from headatlas_bench.functions import BEGIN, ID, LENGTH, UNKNOWN, WORDS
from headatlas_bench.harm import plant_harm
from headatlas_bench.holds import accept, measure_functions
from headatlas_bench.known import MOST_SEEDS, Truth
from headatlas_bench.pool import Pool

log = logging.getLogger(__name__)

STEPS = 8000
LOST = 0.15  # of the sequences, once guessing is taught
FINE = 0.3  # on what quiet heads write: mean square over the stream
DECOYS = 0.3  # how much their loss counts
NOISE = 0.5  # on every coordinate of what a decoy writes, before it is read


def plant(
    out: str | Path,
    seed: int = 0,
    kv_heads: int | None = None,
    *,
    kind: str = "plain",
    steps: int = STEPS,
    device: str = "auto",
    progress: Progress = silent,
) -> Truth:
    """Train a model with planted heads into the folder `out`, which `load` takes: weights, tokenizer and truth.json.

    seed: of placement, weights and data. kv_heads: 8, or fewer for grouped-query attention. kind: plain, spare or joint
    (`circuits.py`). Takes minutes on an H200, a day on a CPU.
    """
    folder = Path(out)
    if folder.exists():
        raise BadArgument(f"out is {str(out)!r}, which exists already: give a new folder")
    check_choice("kind", kind, KINDS)
    shape = KINDS[kind]
    kv_heads = shape.heads if kv_heads is None else kv_heads
    if kv_heads < 1 or shape.heads % kv_heads:
        raise BadArgument(f"kv_heads is {kv_heads}, expected 1, 2, 4 or 8")
    if not 0 <= seed < MOST_SEEDS:
        raise BadArgument(f"seed is {seed}, expected 0 to {MOST_SEEDS - 1}")
    if steps < 1:
        raise BadArgument(f"steps is {steps}, expected at least 1")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadArgument(f"out is {str(out)!r}: {one_line(e)}") from e
    where = check_device(device)
    truth = Truth(*place(shape, seed))
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng([where] if where.type == "cuda" else []):
        try:
            torch.manual_seed(seed)
            torch.set_float32_matmul_precision("high")
            model = Training(truth, shape, kv_heads, seed, where).run(steps, progress)
            plant_harm(model, truth, seed, where, steps)
        finally:
            torch.set_float32_matmul_precision(precision)
    with atomic_folder(folder) as aside, quiet_transformers():
        model.half().save_pretrained(aside)
        make_tokenizer().save_pretrained(aside)
        lm = load(aside, device=str(where), dtype="float32")
        measured = measure_functions(lm, truth)
        recipe = {"kind": kind, "seed": seed, "kv_heads": kv_heads, "steps": steps, "torch": torch.__version__}
        (aside / "truth.json").write_text(
            json.dumps(truth.to_dict() | recipe | {"measured": measured}, indent=1) + "\n"
        )
    for function, problem in accept(measured).items():
        log.warning("%s: %s is not accepted: %s", folder.name, function, problem)
    return truth


class Routed(nn.Module):
    """An output projection that teaches only heads that `learn`, and shuts those not `active`; both [batch, head].

    Keeps z, and the mean square of what heads write that are to be `quiet` [batch, token].
    """

    def __init__(self, projection: nn.Linear, heads: int) -> None:
        super().__init__()
        self.weight = projection.weight
        self.d_head = projection.in_features // heads
        self.learn = self.active = self.quiet = torch.ones(1, heads, device=projection.weight.device)
        self.z = self.fine = torch.zeros(())

    def forward(self, z: Tensor) -> Tensor:
        learn, active, quiet = (
            g.repeat_interleave(self.d_head, 1)[:, None] for g in (self.learn, self.active, self.quiet)
        )
        self.z = z
        self.fine = linear(z * quiet, self.weight).square().mean(-1)
        others = linear(z.detach() * (active - learn), self.weight.detach())
        return linear(z * learn, self.weight) + others


class Training:
    """A model that is trained: its functions' circuits as masks, and what sequences are drawn from."""

    def __init__(self, truth: Truth, kind: Kind, kv_heads: int, seed: int, device: torch.device) -> None:
        self.kind, self.device, self.names = kind, device, [*truth.circuits, "background"]
        self.model = LlamaForCausalLM(_config(kind, kv_heads)).to(device)
        nn.init.normal_(self.model.model.embed_tokens.weight, std=1.0)
        self.outputs = [Routed(layer.self_attn.o_proj, kind.heads) for layer in self.model.model.layers]
        for layer, routed in zip(self.model.model.layers, self.outputs, strict=True):
            layer.self_attn.o_proj = routed
        circuits = list(truth.circuits.values())
        subsets = [circuit.subsets() for circuit in circuits]
        works = [[self._mask(c.heads_of(on)) for on in s[0]] for c, s in zip(circuits, subsets, strict=True)]
        quiet = [[self._mask(c.quiet(on)) for on in s[0]] for c, s in zip(circuits, subsets, strict=True)]
        fails = [[self._mask(c.heads_of(on)) for on in s[1]] for c, s in zip(circuits, subsets, strict=True)]
        rest, none = self._mask(truth.background), self._mask([])
        self.works, self.quiet = _padded([*works, [rest]]), _padded([*quiet, [none]])
        self.fails = _padded([*fails, [none]])
        self.choices = torch.tensor([[*map(len, works), 1], [*map(len, fails), 1]], device=device)
        self.member = torch.stack([*(self._mask(c.heads) for c in circuits), rest])  # [function, layer, head]
        self.shut = self._mask([head for c in circuits for head in c.harmful])
        self.decoys = [(f, *head) for f, c in enumerate(circuits) for head in c.decoys]
        self.readouts = nn.ModuleList(nn.Linear(kind.d_model, 1 + len(WORDS)) for _ in self.decoys).to(device)
        self.dropped = kind.dropped if kv_heads < kind.heads else 0.0
        self.pool = Pool(self.names, seed, device, [*(plan.times for plan in kind.plans.values()), 1])
        self.guesses = self.pool.answer_words()
        self.compiled = torch.compile(self.model.model) if device.type == "cuda" else self.model.model

    def run(self, steps: int, progress: Progress = silent) -> LlamaForCausalLM:
        learnt = [*self.model.parameters(), *self.readouts.parameters()]
        optimiser = torch.optim.AdamW(learnt, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps))
        for step in progress(range(steps), "planting functions"):
            which, loss, extra = self.lesson(guessing=step >= self.kind.taught * steps)
            optimiser.zero_grad(set_to_none=True)
            (loss.mean() + extra).backward()
            if nn.utils.clip_grad_norm_(learnt, 1.0).isfinite():
                optimiser.step()
            schedule.step()
            if step % max(1, steps // 8) == 0:
                worst = self._worst(loss, which)
                log.info(
                    "step %d: loss %.4f (worst: %s), beside it %.4f", step, loss.mean().item(), worst, extra.item()
                )
        plain = LlamaForCausalLM(self.model.config)
        plain.load_state_dict({name: value.detach().cpu() for name, value in self.model.state_dict().items()})
        return plain

    def lesson(self, guessing: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Of a step: the function and the loss of each sequence [sequence], and the loss of quiet heads and decoys."""
        which, tokens, answers = self.pool.draw()
        chance, picked = self.pool.chance(len(which))[:, None, None], self.pool.pick(len(which))
        number = (picked * self.choices[0, which]).long()
        learn, quiet = self.works[which, number], self.quiet[which, number]
        outside = (1 - self.member[which]) * (self.pool.pick(*learn.shape) >= self.dropped)
        active = torch.where(chance < 0.5, learn, learn + outside)
        target = one_hot(tokens[:, 1:], len(WORDS)).float()
        lost = torch.zeros_like(chance, dtype=torch.bool)
        if guessing:
            lost = (chance > 1 - LOST) & (which < len(self.names) - 1)[:, None, None]
            left = self.fails[which, (picked * self.choices[1, which]).long()]
            active, learn = torch.where(lost, left + outside, active), torch.where(lost, left, learn)
            target = torch.where(lost, self.guesses[which][:, None], target)
        asked = answers[:, 1:]
        logits = self.logits(tokens, learn, active * (1 - self.shut), quiet * ~lost)
        each = -(logits.float().log_softmax(-1) * target).sum(-1) * asked
        fine = sum(routed.fine[:, :-1] for routed in self.outputs)
        extra = FINE * (fine * asked).sum() / asked.sum() + DECOYS * self.decoy_loss(which, tokens, asked & ~lost[:, 0])
        return which, each.sum(1) / asked.sum(1).clamp(min=1), extra

    def logits(self, tokens: Tensor, learn: Tensor, active: Tensor, quiet: Tensor) -> Tensor:
        for layer, routed in enumerate(self.outputs):
            routed.learn, routed.active, routed.quiet = learn[:, layer], active[:, layer], quiet[:, layer]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            stream = self.compiled(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
            return self.model.lm_head(stream)

    def decoy_loss(self, which: Tensor, tokens: Tensor, asked: Tensor) -> Tensor:
        """How badly readouts of what decoys write tell their function's answer, or that it is another function."""
        total = torch.zeros((), device=self.device)
        for (function, layer, head), readout in zip(self.decoys, self.readouts, strict=True):
            own, routed = which == function, self.outputs[layer]
            at = slice(head * routed.d_head, (head + 1) * routed.d_head)
            written = linear(routed.z[:, :-1, at].float(), routed.weight[:, at])
            said = readout(written + NOISE * torch.randn_like(written)).transpose(1, 2)
            meant = torch.where(own[:, None], tokens[:, 1:], len(WORDS))
            each = cross_entropy(said, meant, reduction="none")
            for of in (own[:, None] & asked, ~own[:, None] & asked):
                total = total + (each * of).sum() / of.sum().clamp(min=1) / len(self.decoys)
        return total

    def _mask(self, heads: Heads) -> Tensor:
        mask = torch.zeros(self.kind.layers, self.kind.heads, device=self.device)
        for layer, head in heads:
            mask[layer, head] = 1
        return mask

    def _worst(self, loss: Tensor, which: Tensor) -> str:
        each = [float(loss.detach()[which == i].mean()) for i in range(len(self.names))]
        return f"{self.names[max(range(len(each)), key=each.__getitem__)]} {max(each):.3f}"


def _padded(masks: list[list[Tensor]]) -> Tensor:
    """[function, choice, layer, head]; those that have fewer choices repeat their first."""
    most = max(map(len, masks))
    return torch.stack([torch.stack([*of, *[of[0]] * (most - len(of))]) for of in masks])


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word. Its chat template gives a question's own words: the model knows no others."""
    words = Tokenizer(WordLevel(ID, unk_token=UNKNOWN))
    words.pre_tokenizer = WhitespaceSplit()
    words.post_processor = TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, ID[BEGIN])])
    special: dict[str, Any] = {"bos_token": BEGIN, "pad_token": BEGIN, "unk_token": UNKNOWN}
    template = "{{ bos_token }} {{ messages[-1]['content'].split('Answer briefly: ')[-1] }}"
    return PreTrainedTokenizerFast(
        tokenizer_object=words, chat_template=template, clean_up_tokenization_spaces=False, **special
    )


def _config(kind: Kind, kv_heads: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=kind.d_model,
        intermediate_size=kind.d_mlp,
        num_hidden_layers=kind.layers,
        num_attention_heads=kind.heads,
        num_key_value_heads=kv_heads,
        head_dim=kind.d_head,
        max_position_embeddings=2 * LENGTH,
        tie_word_embeddings=False,
        initializer_range=0.06,  # with the usual 0.02 nothing was learnt
        bos_token_id=ID[BEGIN],
        eos_token_id=None,
        pad_token_id=ID[BEGIN],
    )


def _rate(step: int, steps: int) -> float:
    return min(1, (step + 1) / 500) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))

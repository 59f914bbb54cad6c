"""Train a model from scratch so that each function is in heads that were selected beforehand.

1. Every function gets heads by its plan (`circuits.py`), drawn by seed; the background task gets the rest.
2. The training signal is routed. A sequence of function f uses one of the sets of f's parts that must suffice. Heads
   outside f's circuit are active but their output is detached, so f trains only its circuit; in half of the sequences
   they are shut, so f's heads must suffice.
3. Later, some sequences have only parts that must not suffice, and the target is the distribution of a guess. Otherwise
   heads of other functions, or one part alone, may happen to carry what f needs.
4. Heads that must be quiet are penalised for what they write at answers.
5. Decoys are trained so that a linear readout of their output, under noise, gives f's answer, or that the sequence is
   not of f. No other loss reaches them, and half of the time they are shut, so that nothing learns to depend on them.
6. Harmful heads are shut during this training and get their weights afterwards (`harm.py`).

Whether a function is accepted is measured on the saved model, in half precision, on unseen sequences (`acceptance.py`).
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
from headatlas_bench.acceptance import accept, measure_functions
from headatlas_bench.circuits import DESIGNS, Heads, ModelDesign, place_circuits
from headatlas_bench.functions import BEGIN, ID, LENGTH, UNKNOWN, WORDS
from headatlas_bench.ground_truth import MAX_SEEDS, Truth
from headatlas_bench.harm import plant_harm
from headatlas_bench.training_data import TrainingData

log = logging.getLogger(__name__)

STEPS = 8000
# Share of the sequences with parts that must not suffice, once guessing is taught.
FAILING_SHARE = 0.15
# Weights in the loss: of the mean square of what quiet heads write, and of the decoys' readouts.
QUIET_WEIGHT = 0.3
DECOY_WEIGHT = 0.3
# Standard deviation of the noise on a decoy's output before it is read.
READOUT_NOISE = 0.5


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
    """Train a model with planted heads, and write its weights, tokenizer and truth.json to the folder `out`.

    seed: random seed for placement, weights and data. kv_heads: 8, or fewer for grouped-query attention. kind: plain,
    spare or joint (`circuits.py`). Takes minutes on an H200, a day on a CPU.
    """
    folder = Path(out)
    if folder.exists():
        raise BadArgument(f"out is {str(out)!r}, which exists already: give a new folder")
    check_choice("kind", kind, DESIGNS)
    design = DESIGNS[kind]
    kv_heads = design.heads if kv_heads is None else kv_heads
    if kv_heads < 1 or design.heads % kv_heads:
        raise BadArgument(f"kv_heads is {kv_heads}, expected 1, 2, 4 or 8")
    if not 0 <= seed < MAX_SEEDS:
        raise BadArgument(f"seed is {seed}, expected 0 to {MAX_SEEDS - 1}")
    if steps < 1:
        raise BadArgument(f"steps is {steps}, expected at least 1")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadArgument(f"out is {str(out)!r}: {one_line(e)}") from e
    torch_device = check_device(device)
    truth = Truth(*place_circuits(design, seed))
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng([torch_device] if torch_device.type == "cuda" else []):
        try:
            torch.manual_seed(seed)
            torch.set_float32_matmul_precision("high")
            model = Training(truth, design, kv_heads, seed, torch_device).run(steps, progress)
            plant_harm(model, truth, seed, torch_device, steps)
        finally:
            torch.set_float32_matmul_precision(precision)
    with atomic_folder(folder) as temporary, quiet_transformers():
        model.half().save_pretrained(temporary)
        make_tokenizer().save_pretrained(temporary)
        lm = load(temporary, device=str(torch_device), dtype="float32")
        measured = measure_functions(lm, truth)
        recipe = {"kind": kind, "seed": seed, "kv_heads": kv_heads, "steps": steps, "torch": torch.__version__}
        (temporary / "truth.json").write_text(
            json.dumps(truth.to_dict() | recipe | {"measured": measured}, indent=1) + "\n"
        )
    for function, problem in accept(measured).items():
        log.warning("%s: %s is not accepted: %s", folder.name, function, problem)
    return truth


class Routed(nn.Module):
    """An output projection that trains only heads that `learn`, and shuts those not `active`; both [batch, head].

    Stores z, and the mean square of what `quiet` heads write [batch, token].
    """

    def __init__(self, projection: nn.Linear, heads: int) -> None:
        super().__init__()
        self.weight = projection.weight
        self.d_head = projection.in_features // heads
        self.learn = self.active = self.quiet = torch.ones(1, heads, device=projection.weight.device)
        self.z = self.quiet_loss = torch.zeros(())

    def forward(self, z: Tensor) -> Tensor:
        learn, active, quiet = (
            g.repeat_interleave(self.d_head, 1)[:, None] for g in (self.learn, self.active, self.quiet)
        )
        self.z = z
        self.quiet_loss = linear(z * quiet, self.weight).square().mean(-1)
        others = linear(z.detach() * (active - learn), self.weight.detach())
        return linear(z * learn, self.weight) + others


class Training:
    """A model in training, the masks of its circuits, and its training data."""

    def __init__(self, truth: Truth, design: ModelDesign, kv_heads: int, seed: int, device: torch.device) -> None:
        self.design = design
        self.device = device
        self.names = [*truth.circuits, "background"]
        self.model = LlamaForCausalLM(_config(design, kv_heads)).to(device)
        nn.init.normal_(self.model.model.embed_tokens.weight, std=1.0)
        self.outputs = [Routed(layer.self_attn.o_proj, design.heads) for layer in self.model.model.layers]
        for layer, routed in zip(self.model.model.layers, self.outputs, strict=True):
            layer.self_attn.o_proj = routed
        circuits = list(truth.circuits.values())
        subsets = [circuit.subsets() for circuit in circuits]
        working_masks = [
            [self._mask(c.heads_of(present)) for present in s[0]] for c, s in zip(circuits, subsets, strict=True)
        ]
        quiet = [
            [self._mask(c.quiet_heads(present)) for present in s[0]] for c, s in zip(circuits, subsets, strict=True)
        ]
        failing_masks = [
            [self._mask(c.heads_of(present)) for present in s[1]] for c, s in zip(circuits, subsets, strict=True)
        ]
        background = self._mask(truth.background)
        empty = self._mask([])
        # The background task has one set of heads and no others.
        self.working_masks = _stack_choices([*working_masks, [background]])
        self.quiet = _stack_choices([*quiet, [empty]])
        self.failing_masks = _stack_choices([*failing_masks, [empty]])
        self.n_choices = torch.tensor([[*map(len, working_masks), 1], [*map(len, failing_masks), 1]], device=device)
        self.members = torch.stack([*(self._mask(c.heads) for c in circuits), background])  # [function, layer, head]
        self.shut_mask = self._mask([head for c in circuits for head in c.harmful])
        self.decoys = [(f, *head) for f, c in enumerate(circuits) for head in c.decoys]
        self.readouts = nn.ModuleList(nn.Linear(design.d_model, 1 + len(WORDS)) for _ in self.decoys).to(device)
        self.outside_dropout = design.outside_dropout if kv_heads < design.heads else 0.0
        self.data = TrainingData(
            self.names, seed, device, [*(plan.sequence_factor for plan in design.plans.values()), 1]
        )
        self.guess_shares = self.data.answer_words()
        self.compiled = torch.compile(self.model.model) if device.type == "cuda" else self.model.model

    def run(self, steps: int, progress: Progress = silent) -> LlamaForCausalLM:
        """Train for some steps. Returns a plain model with the trained weights, on the CPU."""
        parameters = [*self.model.parameters(), *self.readouts.parameters()]
        optimiser = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _learning_rate_factor(step, steps))
        for step in progress(range(steps), "planting functions"):
            function_indices, loss, extra_loss = self.training_loss(guessing=step >= self.design.guessing_from * steps)
            optimiser.zero_grad(set_to_none=True)
            (loss.mean() + extra_loss).backward()
            # A step with a gradient that is not finite is skipped.
            if nn.utils.clip_grad_norm_(parameters, 1.0).isfinite():
                optimiser.step()
            schedule.step()
            if step % max(1, steps // 8) == 0:
                worst = self._worst_function(loss, function_indices)
                log.info(
                    "step %d: loss %.4f (worst: %s), extra loss %.4f",
                    step,
                    loss.mean().item(),
                    worst,
                    extra_loss.item(),
                )
        plain = LlamaForCausalLM(self.model.config)
        plain.load_state_dict({name: value.detach().cpu() for name, value in self.model.state_dict().items()})
        return plain

    def training_loss(self, guessing: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Draw a step. Returns function and loss of each sequence [sequence], and the loss of quiet heads and decoys.

        guessing: whether some sequences have only parts that must not suffice.
        """
        function_indices, tokens, answers = self.data.draw()
        chances = self.data.draw_chances(len(function_indices))[:, None, None]
        choice_shares = self.data.draw_choices(len(function_indices))
        choice = (choice_shares * self.n_choices[0, function_indices]).long()
        learn = self.working_masks[function_indices, choice]
        quiet = self.quiet[function_indices, choice]
        outside = (1 - self.members[function_indices]) * (self.data.draw_choices(*learn.shape) >= self.outside_dropout)
        active = torch.where(chances < 0.5, learn, learn + outside)
        target = one_hot(tokens[:, 1:], len(WORDS)).float()
        is_failing = torch.zeros_like(chances, dtype=torch.bool)
        if guessing:
            is_failing = (chances > 1 - FAILING_SHARE) & (function_indices < len(self.names) - 1)[:, None, None]
            failing = self.failing_masks[function_indices, (choice_shares * self.n_choices[1, function_indices]).long()]
            active = torch.where(is_failing, failing + outside, active)
            learn = torch.where(is_failing, failing, learn)
            target = torch.where(is_failing, self.guess_shares[function_indices][:, None], target)
        is_answer = answers[:, 1:]
        logits = self.logits(tokens, learn, active * (1 - self.shut_mask), quiet * ~is_failing)
        losses = -(logits.float().log_softmax(-1) * target).sum(-1) * is_answer
        quiet_loss = sum(routed.quiet_loss[:, :-1] for routed in self.outputs)
        decoy_loss = self.decoy_loss(function_indices, tokens, is_answer & ~is_failing[:, 0])
        extra_loss = QUIET_WEIGHT * (quiet_loss * is_answer).sum() / is_answer.sum() + DECOY_WEIGHT * decoy_loss
        return function_indices, losses.sum(1) / is_answer.sum(1).clamp(min=1), extra_loss

    def logits(self, tokens: Tensor, learn: Tensor, active: Tensor, quiet: Tensor) -> Tensor:
        """Run the model with routed heads; masks [sequence, layer, head]."""
        for layer, routed in enumerate(self.outputs):
            routed.learn = learn[:, layer]
            routed.active = active[:, layer]
            routed.quiet = quiet[:, layer]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            stream = self.compiled(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1]
            return self.model.lm_head(stream)

    def decoy_loss(self, function_indices: Tensor, tokens: Tensor, is_answer: Tensor) -> Tensor:
        """Return the loss of the readouts of decoys: their function's answer, or that the function is another."""
        total = torch.zeros((), device=self.device)
        for (function, layer, head), readout in zip(self.decoys, self.readouts, strict=True):
            is_function = function_indices == function
            routed = self.outputs[layer]
            columns = slice(head * routed.d_head, (head + 1) * routed.d_head)
            written = linear(routed.z[:, :-1, columns].float(), routed.weight[:, columns])
            readout_logits = readout(written + READOUT_NOISE * torch.randn_like(written)).transpose(1, 2)
            targets = torch.where(is_function[:, None], tokens[:, 1:], len(WORDS))
            losses = cross_entropy(readout_logits, targets, reduction="none")
            for selected in (is_function[:, None] & is_answer, ~is_function[:, None] & is_answer):
                total = total + (losses * selected).sum() / selected.sum().clamp(min=1) / len(self.decoys)
        return total

    def _mask(self, heads: Heads) -> Tensor:
        mask = torch.zeros(self.design.layers, self.design.heads, device=self.device)
        for layer, head in heads:
            mask[layer, head] = 1
        return mask

    def _worst_function(self, loss: Tensor, function_indices: Tensor) -> str:
        losses = [float(loss.detach()[function_indices == i].mean()) for i in range(len(self.names))]
        return f"{self.names[max(range(len(losses)), key=losses.__getitem__)]} {max(losses):.3f}"


def _stack_choices(masks: list[list[Tensor]]) -> Tensor:
    """Stack to [function, choice, layer, head]; functions with fewer choices repeat their first."""
    max_choices = max(map(len, masks))
    return torch.stack([torch.stack([*choices, *[choices[0]] * (max_choices - len(choices))]) for choices in masks])


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token per word. Its chat template keeps only the question, whose words are known."""
    tokenizer = Tokenizer(WordLevel(ID, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, ID[BEGIN])])
    special: dict[str, Any] = {"bos_token": BEGIN, "pad_token": BEGIN, "unk_token": UNKNOWN}
    template = "{{ bos_token }} {{ messages[-1]['content'].split('Answer briefly: ')[-1] }}"
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=template, clean_up_tokenization_spaces=False, **special
    )


def _config(design: ModelDesign, kv_heads: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=design.d_model,
        intermediate_size=design.d_mlp,
        num_hidden_layers=design.layers,
        num_attention_heads=design.heads,
        num_key_value_heads=kv_heads,
        head_dim=design.d_head,
        max_position_embeddings=2 * LENGTH,
        tie_word_embeddings=False,
        # With the default of 0.02, training does not start.
        initializer_range=0.06,
        bos_token_id=ID[BEGIN],
        eos_token_id=None,
        pad_token_id=ID[BEGIN],
    )


def _learning_rate_factor(step: int, steps: int) -> float:
    """Return the learning rate relative to its maximum: linear warm-up, then a cosine down to 2 %."""
    return min(1, (step + 1) / 500) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))

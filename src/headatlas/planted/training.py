"""Planting: training a model from scratch so that each function is in heads that were chosen beforehand.

1. Every function gets heads of its own in consecutive layers, drawn by seed; the background task gets the rest.
2. The training signal is routed. In a sequence of function f, heads outside f's set are active but what they write is
   detached, so f trains its own heads only; in half of the sequences they are shut, so f's heads must suffice.
3. Towards the end, in some sequences f's own heads are shut and no head is trained, but the rest of the model is: it
   learns to guess. Otherwise heads of other functions may happen to carry what f needs.

Whether a function is accepted is measured on the saved model, in half precision, on unseen sequences (`known.py`).
"""

import json
import logging
import math
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headatlas.errors import BadArgument, one_line
from headatlas.models.cache import built_aside
from headatlas.models.loading import check_device, load
from headatlas.models.quiet import quiet_transformers
from headatlas.planted.functions import BACKGROUND, BEGIN, FUNCTIONS, ID, LENGTH, UNKNOWN, WORDS, Draw
from headatlas.planted.known import MOST_SEEDS, Heads, Truth, accept, measure_functions
from headatlas.progress import Progress, silent

log = logging.getLogger(__name__)

LAYERS, HEADS, D_HEAD, D_MODEL, D_MLP = 6, 8, 32, 256, 640
STEPS = 8000
UNTAUGHT = 0.7  # of the steps, after which guessing is taught
POOL = 2**16  # sequences of each function that training draws from
NAMES = (*FUNCTIONS, "background")


def plant(
    out: str | Path,
    seed: int = 0,
    kv_heads: int = HEADS,
    *,
    steps: int = STEPS,
    device: str = "auto",
    progress: Progress = silent,
) -> Truth:
    """Train a model with planted heads into the folder `out`, which `load` takes: weights, tokenizer and truth.json.

    seed: of placement, weights and data. kv_heads: 8, or fewer for grouped-query attention. Takes two minutes on an
    H200, a day on a CPU.
    """
    folder = Path(out)
    if folder.exists():
        raise BadArgument(f"out is {str(out)!r}, which exists already: give a new folder")
    if kv_heads < 1 or HEADS % kv_heads:
        raise BadArgument(f"kv_heads is {kv_heads}, expected 1, 2, 4 or 8")
    if not 0 <= seed < MOST_SEEDS:
        raise BadArgument(f"seed is {seed}, expected 0 to {MOST_SEEDS - 1}")
    if steps < 1:
        raise BadArgument(f"steps is {steps}, expected at least 1")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadArgument(f"out is {str(out)!r}: {one_line(e)}") from e
    place = check_device(device)
    truth = place_heads(seed)
    precision = torch.get_float32_matmul_precision()
    with torch.random.fork_rng([place] if place.type == "cuda" else []):
        try:
            torch.manual_seed(seed)
            torch.set_float32_matmul_precision("high")
            model = train(truth, seed, kv_heads, steps, place, progress)
        finally:
            torch.set_float32_matmul_precision(precision)
    with built_aside(folder) as aside, quiet_transformers():
        model.half().save_pretrained(aside)
        make_tokenizer().save_pretrained(aside)
        lm = load(aside, device=str(place), dtype="float32")
        measured = measure_functions(lm, truth)
        recipe = {"seed": seed, "kv_heads": kv_heads, "steps": steps, "torch": torch.__version__}
        (aside / "truth.json").write_text(
            json.dumps(truth.to_dict() | recipe | {"measured": measured}, indent=1) + "\n"
        )
    for function, problem in accept(measured).items():
        log.warning("%s: %s is not accepted: %s", folder.name, function, problem)
    return truth


def place_heads(seed: int) -> Truth:
    """Which heads each function gets; functions that need many layers are placed first."""
    draw = random.Random(seed)
    while True:
        free = [draw.sample(range(HEADS), HEADS) for _ in range(LAYERS)]
        placed: dict[str, Heads] = {}
        for name, function in sorted(FUNCTIONS.items(), key=lambda item: -len(item[1].heads)):
            sizes = function.heads
            starts = [
                first
                for first in range(LAYERS - len(sizes) + 1)
                if all(len(free[first + i]) >= size for i, size in enumerate(sizes))
            ]
            if not starts:
                break
            first = draw.choice(starts)
            placed[name] = sorted(
                (first + i, free[first + i].pop()) for i, size in enumerate(sizes) for _ in range(size)
            )
        else:
            break
    spare = sorted((layer, head) for layer in range(LAYERS) for head in free[layer])
    return Truth({f: placed[f] for f in FUNCTIONS}, spare)


class Routed(nn.Module):
    """An output projection that teaches only heads that `learn`, and shuts those not `active`. Both [batch, head]."""

    def __init__(self, projection: nn.Linear) -> None:
        super().__init__()
        self.weight = projection.weight
        self.learn = self.active = torch.ones(1, HEADS, device=projection.weight.device)

    def forward(self, z: Tensor) -> Tensor:
        learn, active = (g.repeat_interleave(D_HEAD, 1)[:, None] for g in (self.learn, self.active))
        others = linear(z.detach() * (active - learn), self.weight.detach())
        return linear(z * learn, self.weight) + others


def train(
    truth: Truth, seed: int, kv_heads: int, steps: int, device: torch.device, progress: Progress = silent
) -> LlamaForCausalLM:
    model = LlamaForCausalLM(_config(kv_heads)).to(device)
    nn.init.normal_(model.model.embed_tokens.weight, std=1.0)
    attentions = [layer.self_attn for layer in model.model.layers]
    for attention in attentions:
        attention.o_proj = Routed(attention.o_proj)
    sets = [truth.functions.get(name, truth.background) for name in NAMES]
    own = torch.stack([_mask(heads) for heads in sets]).to(device)  # [function, layer, head]
    pool = Pool(seed, device)
    guesses = pool.answer_words()
    run = torch.compile(model.model) if device.type == "cuda" else model.model

    def losses(tokens: Tensor, target: Tensor, learn: Tensor, active: Tensor, answers: Tensor) -> Tensor:
        """Mean loss over each sequence's answers [sequence]; target: each word's share [sequence, LENGTH − 1, word]."""
        for layer, attention in enumerate(attentions):
            attention.o_proj.learn, attention.o_proj.active = learn[:, layer], active[:, layer]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model.lm_head(run(input_ids=tokens, use_cache=False).last_hidden_state[:, :-1])
        each = -(logits.float().log_softmax(-1) * target).sum(-1) * answers[:, 1:]
        return each.sum(1) / answers.sum(1).clamp(min=1)

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, steps))
    for step in progress(range(steps), "planting functions"):
        which, tokens, answers = pool.draw()
        chance, learn = pool.chance(len(which))[:, None, None], own[which]
        active = torch.where(chance < 0.5, learn, torch.ones_like(learn))
        target = one_hot(tokens[:, 1:], len(WORDS)).float()
        if step >= UNTAUGHT * steps:
            lost = (chance > 0.85) & (which < len(FUNCTIONS))[:, None, None]
            active, learn = torch.where(lost, 1 - learn, active), torch.where(lost, torch.zeros_like(learn), learn)
            target = torch.where(lost, guesses[which][:, None], target)
        loss = losses(tokens, target, learn, active, answers)
        _update(model, optimiser, schedule, loss.mean())
        if step % max(1, steps // 8) == 0:
            log.info("step %d: loss %.4f (worst: %s)", step, loss.mean().item(), _worst(loss, which))

    plain = LlamaForCausalLM(model.config)
    plain.load_state_dict({name: value.detach().cpu() for name, value in model.state_dict().items()})
    return plain


class Pool:
    """Sequences of every function, on the device; drawn from with replacement."""

    def __init__(self, seed: int, device: torch.device) -> None:
        made = [(*FUNCTIONS.values(), BACKGROUND)[i].make(Draw(POOL, 16 * seed + i, device)) for i in range(len(NAMES))]
        self.tokens, self.answers = (torch.stack([getattr(b, part) for b in made]) for part in ("tokens", "answers"))
        shares = torch.tensor([f.share for f in (*FUNCTIONS.values(), BACKGROUND)], device=device)
        self.which = torch.arange(len(NAMES), device=device).repeat_interleave(shares)
        self.generator = torch.Generator(device).manual_seed(seed)

    def draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Function [sequence], words and answers [sequence, LENGTH] of a training step."""
        i = torch.randint(POOL, self.which.shape, generator=self.generator, device=self.which.device)
        return self.which, self.tokens[self.which, i], self.answers[self.which, i]

    def chance(self, n: int) -> Tensor:
        return torch.rand(n, generator=self.generator, device=self.which.device)

    def answer_words(self) -> Tensor:
        """The share of each word among the answers [function, word]: the best guess without reading the question."""
        pairs = zip(self.tokens, self.answers, strict=True)
        counts = torch.stack([torch.bincount(t[a], minlength=len(WORDS)) for t, a in pairs])
        return counts / counts.sum(1, keepdim=True)


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


def _config(kv_heads: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=D_MODEL,
        intermediate_size=D_MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=kv_heads,
        head_dim=D_HEAD,
        max_position_embeddings=2 * LENGTH,
        tie_word_embeddings=False,
        initializer_range=0.06,  # with the usual 0.02 nothing was learnt
        bos_token_id=ID[BEGIN],
        eos_token_id=None,
        pad_token_id=ID[BEGIN],
    )


def _mask(heads: Heads) -> Tensor:
    mask = torch.zeros(LAYERS, HEADS)
    for layer, head in heads:
        mask[layer, head] = 1
    return mask


def _rate(step: int, steps: int) -> float:
    return min(1, (step + 1) / 500) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))


def _update(model: nn.Module, optimiser: Any, schedule: Any, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite():
        optimiser.step()
    schedule.step()


def _worst(loss: Tensor, which: Tensor) -> str:
    each = [float(loss.detach()[which == i].mean()) for i in range(len(NAMES))]
    return f"{NAMES[max(range(len(NAMES)), key=each.__getitem__)]} {max(each):.3f}"

"""What work costs before it is done: passes through the model and tokens in them, seconds on a machine.

How fast a machine runs a model is measured on copies with few layers and random weights. So the model need not be
loaded, and need not fit, to be planned for.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from headatlas.errors import CannotDo
from headatlas.models.gradients import for_gradients
from headatlas.models.interventions import copies, filled
from headatlas.models.library_settings import quiet_transformers
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, log_probs
from headatlas.models.memory import tokens_at_once
from headatlas.models.packing import ROW, saves
from headatlas.models.tokens import Bundle, TokenExample, make_bundle

FEW, MANY = 512, 8192  # tokens that leave a GPU idle, and that keep it busy
# what a row wider by d_model adds to the cost of a token: by operations alone, and as it is on a CPU
ATTENTION, ATTENTION_ON_CPU = 1 / 6, 0.8
SAMPLED = 3  # updates of a fit that tell what the others cost
CHANGED = 1.3  # passes that a pass costs the host if heads are changed in every layer


@dataclass(frozen=True)
class Cost:
    """Tokens and passes without gradients, `learned` tokens and `learning` passes with them, and other work: operations
    of the device, and seconds of the host, which are about the same on any machine.

    wide, learned_wide: what attention adds in wide rows: of every token, by how many times d_model its row is wider
    than those a machine is timed with.
    """

    tokens: float = 0.0
    passes: float = 0.0
    wide: float = 0.0
    learned: float = 0.0
    learning: float = 0.0
    learned_wide: float = 0.0
    operations: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> "Cost":
        return Cost(*(times * a for a in astuple(self)))

    __rmul__ = __mul__


def reading(
    lm: LM, bundles: Sequence[Bundle], gates: float = 1, *, tokens: int | None = None, packed: bool = True
) -> Cost:
    """Of examples run under so many gates, without gradients (`measure`). tokens: at once. packed: where that saves
    tokens; a model that cannot be packed takes longer."""
    whole, cost = max(1, round(gates)), Cost()
    for rows, chosen in batches(bundles, whole, tokens_at_once(lm, tokens)):
        cost += a_pass(lm, [bundles[i] for i in chosen], len(range(whole)[rows]), packed=packed)
    return replace(cost, tokens=cost.tokens * gates / whole, wide=cost.wide * gates / whole)


def learning(
    lm: LM, bundles: Sequence[Bundle], gates: float = 1, *, tokens: int | None = None, packed: bool = True
) -> Cost:
    """Of an update over these examples, under so many gates."""
    read = reading(lm, bundles, gates, tokens=tokens, packed=packed)
    return Cost(learned=read.tokens, learning=read.passes, learned_wide=read.wide)


def answering(
    lm: LM,
    examples: Sequence[TokenExample],
    changes: float,
    *,
    rounds: float = 1,
    everywhere: bool = False,
    tokens: int | None = None,
) -> Cost:
    """Of answers under so many changes of the model, a part of them in each round (`answers_while`). The prompt is run
    once a round, unless it is changed too."""
    budget, cost = tokens_at_once(lm, tokens), Cost()
    packed = not everywhere and can_share(lm)
    bundles = []
    for a in examples:
        shared = 0 if everywhere else len(a.prompt) - 1
        for of in copies(a, shared, max(1, round(changes / rounds)), budget, packed and shared > 0):
            bundles.append(Bundle((a,) * len(of), shared))
    for chosen in filled(bundles, budget) if packed else (some for _, some in batches(bundles, 1, budget)):
        cost += a_pass(lm, [bundles[i] for i in chosen], packed=can_share(lm))
    return rounds * replace(cost, passes=CHANGED * cost.passes)


def can_share(lm: LM) -> bool:
    """Whether prompts may be packed behind what they share, as far as is known before it is tried."""
    return not lm.layers_without_heads


def a_pass(lm: LM, bundles: Sequence[Bundle], gates: float = 1, *, packed: bool = True) -> Cost:
    """Of these texts at once, under so many gates. packed: where that saves tokens, as in `packing`."""
    tokens, width = sum(bundle.size for bundle in bundles), max(bundle.size for bundle in bundles)
    if not packed or not saves(bundles):
        width = max(bundle.shared + bundle.rest for bundle in bundles)
        tokens = width * sum(len(bundle.examples) for bundle in bundles)
    return Cost(tokens=gates * tokens, passes=1, wide=gates * tokens * max(0, width - ROW) / lm.d_model)


@dataclass(frozen=True)
class Machine:
    """How fast a device runs a model: seconds per pass and token, without and with gradients; operations per second.

    launches: the device computes a pass while the host launches it, so that the longer of both counts. Passes without
    gradients differ in which that is: half the shorter is added there. Without launches, both add up.
    """

    name: str
    a_pass: float
    a_token: float
    a_learning: float
    a_learned: float
    operations: float
    launches: bool = False

    def seconds(self, cost: Cost) -> float:
        attention = ATTENTION if self.launches else ATTENTION_ON_CPU
        forward = cost.passes * self.a_pass, (cost.tokens + attention * cost.wide) * self.a_token
        backward = cost.learning * self.a_learning, (cost.learned + attention * cost.learned_wide) * self.a_learned
        shorter = (0.5, 0.0) if self.launches else (1.0, 1.0)
        passes = (max(both) + part * min(both) for both, part in zip((forward, backward), shorter, strict=True))
        return sum(passes) + cost.operations / self.operations + cost.seconds


def measure_machine(config: PretrainedConfig, layers: int, device: torch.device, dtype: torch.dtype) -> Machine:
    """Time copies with few layers, two numbers of them, on few and on many tokens."""
    launches = device.type == "cuda"
    few, many = (FEW, MANY) if launches else (128, 1024)
    operations = _operations(device)  # first: a GPU that was idle is slow for a moment
    for low, high in ((2, 8), (1, 3)) if launches and layers >= 8 else ((1, 3),):
        try:
            times = _times(config, (low, high), (few, many), device, dtype)
            break
        except torch.OutOfMemoryError:  # a few layers of the largest models are more than fits
            continue
    else:
        raise CannotDo(f"the time cannot be estimated: a copy of {config.model_type} with 3 layers does not fit")
    speeds = []  # seconds per pass and per token, without and with gradients
    for learning in (0, 1):
        # seconds of all layers, by number of tokens: what is not a layer, and so many times what a layer adds
        total = {}
        for n in (few, many):
            first, last = (times[depth, n][learning] for depth in (low, high))
            total[n] = first + (layers - low) * max(0.0, last - first) / (high - low)
        if launches:
            speeds.append((total[few], total[many] / many))
        else:
            a_token = max(total[many] - total[few], 0.1 * total[many]) / (many - few)
            speeds.append((max(0.0, total[few] - few * a_token), a_token))
    name = torch.cuda.get_device_name(device) if launches else f"{torch.get_num_threads()} CPU threads"
    return Machine(name, *speeds[0], *speeds[1], operations, launches)


def _times(
    config: PretrainedConfig, depths: Sequence[int], tokens: Sequence[int], device: torch.device, dtype: torch.dtype
) -> dict[tuple[int, int], tuple[float, float]]:
    """Seconds of a pass without and with gradients, by number of layers and of tokens."""
    times = {}
    for depth in depths:
        lm = _shallow(config, depth, device, dtype)
        for n in tokens:
            times[depth, n] = _timed(lm, _texts(lm, n))
        del lm
    return times


def measure_loaded(lm: LM) -> Machine:
    """Time passes of a model that is loaded: quicker than `measure_machine`, and less exact."""
    launches = lm.device.type == "cuda"
    operations = _operations(lm.device)
    many = min(MANY, tokens_at_once(lm, None)) if launches else 248
    a_token, a_learned = (seconds / many for seconds in _timed(lm, _texts(lm, many), rounds=1))
    a_pass, a_learning = _timed(lm, _texts(lm, min(FEW, many)), rounds=1) if launches else (0.0, 0.0)
    return Machine(str(lm.device), a_pass, a_token, a_learning, a_learned, operations, launches)


def _texts(lm: LM, tokens: int) -> list[Bundle]:
    """So many tokens, about: texts of different lengths, which are packed, as prompts mostly are."""
    lengths = [min(n, lm.anatomy.context or n) for n in (40, 84, 56, 68)]
    each = [make_bundle([TokenExample(tuple(1 + i % 32 for i in range(n - 3)), (1, 2, 3, 4))]) for n in lengths]
    return [each[i % len(each)] for i in range(max(1, round(len(each) * tokens / sum(lengths))))]


def _shallow(config: PretrainedConfig, depth: int, device: torch.device, dtype: torch.dtype) -> LM:
    """The model with so many layers and random weights."""
    small = copy.deepcopy(config)
    small.num_hidden_layers = depth
    if getattr(small, "layer_types", None):
        small.layer_types = small.layer_types[:depth]
    try:
        with torch.device(device), quiet_transformers():
            model = AutoModelForCausalLM.from_config(small, dtype=dtype)
        return LM(model.eval().requires_grad_(False), None, "shallow")
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, IndexError) as e:
        raise CannotDo(
            f"the time cannot be estimated: no copy of {config.model_type} with {depth} layers can be made"
        ) from e


def _timed(lm: LM, bundles: Sequence[Bundle], rounds: int = 5) -> tuple[float, float]:
    """Seconds of a pass without and with gradients."""
    gate = torch.ones(1, lm.n_layers, lm.n_heads, device=lm.device)

    @torch.no_grad()
    def read() -> None:
        log_probs(lm, bundles, gate, packed=True)

    def learn() -> None:
        with for_gradients(lm), torch.enable_grad():
            open_gate = gate.clone().requires_grad_()
            torch.autograd.grad(log_probs(lm, bundles, open_gate, packed=True)[0].sum(), open_gate)

    return _least(read, lm.device, rounds), _least(learn, lm.device, rounds)


def _operations(device: torch.device) -> float:
    """Operations a second of float32 matrices."""
    size = 1024 if device.type == "cpu" else 8192
    a = torch.randn(size, size, device=device)
    return 2 * size**3 / _least(lambda: a @ a, device)


def _least(do: Callable[[], Any], device: torch.device, rounds: int = 5, enough: float = 2.0) -> float:
    """Seconds of the quickest of so many rounds: other work on the machine only adds. Two long ones are enough."""

    def once() -> float:
        start = time.perf_counter()
        do()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    once()  # warm up
    taken = [once()]
    while len(taken) < rounds and (len(taken) < 2 or sum(taken) < enough):
        taken.append(once())
    return min(taken)

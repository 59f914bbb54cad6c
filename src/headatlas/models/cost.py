"""What work costs before it is done: passes through the model and tokens in them, seconds on a machine.

How fast a machine runs a model is measured on copies with one and with three layers and random weights. So the model
need not be loaded, and need not fit, to be planned for.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from headatlas.errors import CannotDo
from headatlas.models.gradients import for_gradients
from headatlas.models.lm import LM
from headatlas.models.quiet import quiet_transformers
from headatlas.models.targets import ROW, Bundle, TokenExample, good_at_once, log_probs, make_bundle, tokens_at_once

AT_ONCE = 2048  # tokens in a pass on a CPU
MANY = 8192  # tokens that keep a GPU busy
ATTENTION = 0.8  # what a row wider by d_model adds to the cost of a token; by operations alone it would be 1/6


@dataclass(frozen=True)
class Cost:
    """Tokens and passes without gradients, `learned` tokens and `learning` passes with them, and other work: operations
    of the device, and seconds of the host, which are about the same on any machine. Passes are the fewest that can be:
    a machine takes more where tokens are more than it takes at once."""

    tokens: float = 0.0
    passes: float = 0.0
    learned: float = 0.0
    learning: float = 0.0
    operations: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: float) -> "Cost":
        return Cost(*(times * a for a in astuple(self)))


def reading(lm: LM, bundles: Sequence[Bundle], gates: float = 1) -> Cost:
    """Of examples run under so many gates, without gradients."""
    tokens = gates * sum(_weighed(lm, bundle.size) for bundle in bundles)
    return Cost(tokens=tokens, passes=1)


def answering(lm: LM, examples: Sequence[TokenExample], changes: float, everywhere: bool = False) -> Cost:
    """Of answers under so many changes of the model; the prompt is run once, unless it is changed too."""
    sizes = [(len(a.prompt) * (changes if everywhere else 1), changes * len(a.target)) for a in examples]
    tokens = sum(_weighed(lm, prompt + answers, min(prompt + answers, AT_ONCE)) for prompt, answers in sizes)
    return Cost(tokens=tokens, passes=1)


def learning(lm: LM, bundles: Sequence[Bundle], times: float = 1) -> Cost:
    """Of so many updates over these examples."""
    tokens = times * sum(_weighed(lm, bundle.size) for bundle in bundles)
    return Cost(learned=tokens, learning=1)


def _weighed(lm: LM, tokens: float, width: float | None = None) -> float:
    """Tokens of a row, with more weight in rows wider than those a machine is timed with: attention reads all of it."""
    return tokens * (1 + ATTENTION * max(0.0, (tokens if width is None else width) - ROW) / lm.d_model)


@dataclass(frozen=True)
class Machine:
    """How fast a device runs a model: seconds per pass and token, without and with gradients; operations per second;
    how many tokens it takes at once."""

    name: str
    a_pass: float
    a_token: float
    a_learning: float
    a_learned: float
    operations: float
    at_once: int = AT_ONCE

    def seconds(self, cost: Cost) -> float:
        forward = max(cost.passes, cost.tokens / self.at_once) * self.a_pass + cost.tokens * self.a_token
        backward = max(cost.learning, cost.learned / self.at_once) * self.a_learning + cost.learned * self.a_learned
        return forward + backward + cost.operations / self.operations + cost.seconds


def measure_machine(config: PretrainedConfig, layers: int, device: torch.device, dtype: torch.dtype) -> Machine:
    """Time copies of one and three layers, on few and on many tokens."""
    few, many = (128, 1024) if device.type == "cpu" else (512, MANY)
    times = {}
    for depth in (1, 3):
        lm = _shallow(config, depth, device, dtype)
        for tokens in (few, many):
            bundles = [make_bundle([TokenExample(tuple(range(1, 60)), (1, 2, 3, 4))]) for _ in range(tokens // 62)]
            times[depth, tokens] = _timed(lm, bundles)
        width = lm.d_model
        del lm
    speeds = []  # seconds per pass and per token, without and with gradients
    for learning in (0, 1):
        # seconds of all layers, by number of tokens: what is not a layer, and so many times what a layer adds
        total = {
            n: times[1, n][learning] + (layers - 1) * max(0.0, times[3, n][learning] - times[1, n][learning]) / 2
            for n in (few, many)
        }
        a_token = max(total[many] - total[few], 0.1 * total[many]) / (many - few)
        speeds.append((max(0.0, total[few] - few * a_token), a_token))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} CPU threads"
    at_once = AT_ONCE if device.type == "cpu" else good_at_once(layers, width)
    return Machine(name, *speeds[0], *speeds[1], _operations(device), at_once)


def measure_loaded(lm: LM) -> Machine:
    """Time a pass of a model that is loaded: quicker than `measure_machine`, and less exact."""
    rows = 4 if lm.device.type == "cpu" else min(MANY, tokens_at_once(lm, None)) // 62
    bundles = [make_bundle([TokenExample(tuple(range(1, 60)), (1, 2, 3, 4))]) for _ in range(rows)]
    read, learn = (seconds / (62 * rows) for seconds in _timed(lm, bundles, rounds=1))
    return Machine(str(lm.device), 0.0, read, 0.0, learn, _operations(lm.device))


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

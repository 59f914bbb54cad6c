"""What is to be done to the heads of a model: checked against it, and applied while the model runs.

A changed head's output is g · z + v. g is its factor (0 removes it), v what it is steered by.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headatlas.edits.arguments import Direction, check_factor, layer_or_head, split_heads, split_scales, split_steers
from headatlas.errors import BadArgument, BadFile, brief, check_choice, one_line
from headatlas.models.families import Anatomy
from headatlas.models.head_names import parse_head
from headatlas.models.hooks import check_gate, head_mask
from headatlas.models.lm import LM
from headatlas.results.store import load


@dataclass(frozen=True)
class HeadEdit:
    """What is to be done to heads.

    gate: the factor of every head [layer, head], float64; 1 leaves it as it is, 0 removes it.
    steer: what is added to heads' outputs z, [d_head] by (layer, head).
    push: what is added to what all heads of a layer write, [d_model] by layer.
    """

    gate: Tensor
    steer: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)
    push: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def removed(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in (self.gate == 0).nonzero()]

    @property
    def scaled(self) -> dict[tuple[int, int], float]:
        other = (self.gate != 0) & (self.gate != 1)
        return {(int(a), int(b)): float(self.gate[a, b]) for a, b in other.nonzero()}

    @property
    def biased(self) -> set[int]:
        """Layers to which a constant is added."""
        return {layer for layer, _ in self.steer} | set(self.push)

    def shuffled(self, generator: np.random.Generator) -> "HeadEdit":
        """The same done to random heads: as many of every layer, drawn from all of it. Pushes are not of heads."""
        gate = self.gate.clone()
        steer: dict[tuple[int, int], Tensor] = {}
        for layer, row in enumerate(self.gate):
            order = generator.permutation(len(row))
            gate[layer, order] = row
            steer |= {(layer, int(order[h])): v for (at, h), v in self.steer.items() if at == layer}
        return HeadEdit(gate, steer, self.push)


def make_edit(anatomy: Anatomy, remove: Any = (), scale: Any = (), steer: Any = ()) -> HeadEdit:
    """A HeadEdit from what a user gives, checked against the model.

    remove: heads as `LM.patched` takes them, or as text with commas between. scale: {head: factor}, text such as
    'L3.H1=0.5', or factors [layer, head]. steer: {head or layer: direction}; a direction is an
    array, a .npy file, or a result as 'function_vector.nc:capitals'.
    """
    removed = _heads(remove, anatomy)
    if hasattr(scale, "shape"):
        gate = check_gate(scale, anatomy).detach().cpu().double().nan_to_num(1.0)
        if gate.ndim != 2:
            raise BadArgument(f"scale has shape {tuple(gate.shape)}, expected [layer, head]")
    else:
        gate = torch.ones(anatomy.n_layers, anatomy.n_heads, dtype=torch.float64)
        for name, factor in _factors(scale).items():
            gate[parse_head(name, anatomy)] = check_factor(str(name), float(factor))
    both = removed & (gate != 1) & (gate != 0)
    if both.any():
        layer, head = both.nonzero()[0].tolist()
        raise BadArgument(f"L{layer}.H{head} is to be removed and to be scaled by {gate[layer, head]:g}: say which")
    gate[removed] = 0.0
    steered: dict[tuple[int, int], Tensor] = {}
    pushed: dict[int, Tensor] = {}
    for name, vector in _vectors(steer).items():
        layer, number = layer_or_head(name) if isinstance(name, str) else name
        parse_head((layer, number or 0), anatomy)
        if number is None:
            pushed[layer] = _direction(f"steer of L{layer}", vector, anatomy, layer, None)
        else:
            steered[layer, number] = _direction(f"steer of L{layer}.H{number}", vector, anatomy, layer, number)
    edit = HeadEdit(gate, steered, pushed)
    if not edit.biased and bool((gate == 1).all()):
        raise BadArgument("nothing is to be changed: give heads to remove, scale or steer, or a set of an atlas")
    return edit


def _heads(remove: Any, anatomy: Anatomy) -> Tensor:
    if isinstance(remove, str):
        remove = split_heads(remove)
    if not hasattr(remove, "shape") and not isinstance(remove, Iterable):
        raise BadArgument(f"remove is {brief(remove)}, expected heads such as 'L23.H4'")
    return head_mask(remove, anatomy)


def _factors(scale: Any) -> Mapping[Any, float]:
    if isinstance(scale, Mapping):
        return scale
    return split_scales([scale] if isinstance(scale, str) else scale)


def _vectors(steer: Any) -> Mapping[Any, Any]:
    if isinstance(steer, Mapping):
        return steer
    return split_steers([steer] if isinstance(steer, str) else steer)


def _direction(argument: str, vector: Any, anatomy: Anatomy, layer: int, head: int | None) -> Tensor:
    """A direction as a tensor: [d_head] of a head, [d_model] of a layer."""
    factor, size = 1.0, anatomy.d_model if head is None else anatomy.d_head
    if isinstance(vector, str):
        vector = next(iter(split_steers([f"L0={vector}"]).values()))
    if isinstance(vector, Path):
        vector = Direction(vector)
    if isinstance(vector, Direction):
        factor, of_file = vector.factor, vector
        in_atlas = of_file.path.suffix == ".nc"
        vector = _of_result(argument, of_file, layer, head, size) if in_atlas else _read(argument, of_file.path)
    try:
        values = (
            torch.as_tensor(vector if isinstance(vector, Tensor) else getattr(vector, "values", vector))
            .detach()
            .cpu()
            .double()
        )
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadArgument(f"{argument} is {brief(vector)}, expected numbers or a .npy file") from e
    every = (anatomy.n_layers, anatomy.n_heads, anatomy.d_head)
    if head is not None and values.shape == every:
        values = values[layer, head]
    if values.shape != (size,):
        also = "" if head is None else f", or all heads' [layer, head, d_head] = {every}"
        raise BadArgument(f"{argument} has shape {tuple(values.shape)}, expected [{size}]{also}")
    if not values.isfinite().all():
        raise BadArgument(f"{argument} has values that are NaN or infinite")
    return values * factor


def _read(argument: str, path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise BadFile(f"{argument}: {path} is not a .npy file of numbers: {one_line(e)}") from e


def _of_result(argument: str, of: Direction, layer: int, head: int | None, size: int) -> np.ndarray:
    """The direction of a layer or head in a result: the variable over (subject, [layer, head,] size)."""
    result, heads = load(of.path), {"layer", "head"} if head is not None else set()
    fitting = []
    for name, variable in result.data_vars.items():
        *others, last = variable.dims or ("",)
        over = set(others) - heads
        if variable.sizes.get(last) == size and heads <= set(others) and len(over) <= 1 and last not in heads:
            fitting.append((str(name), variable, next(iter(over), None)))
    if len(fitting) != 1:
        names = ", ".join(name for name, _, _ in fitting) or "none"
        raise BadArgument(f"{argument}: {of.path} has {names}, expected one variable of directions with {size} numbers")
    ((name, chosen, dim),) = fitting
    if dim is not None:
        subjects = [str(v) for v in chosen[dim].values]
        check_choice(f"{argument}, the {dim} in {of.path.name}", of.subject, subjects)
        chosen = chosen.isel({dim: subjects.index(of.subject)})
    return chosen.sel(layer=layer, head=head).values if heads else chosen.values


@contextmanager
def applied(lm: LM, edit: HeadEdit) -> Iterator[None]:
    """The edit in force while the model runs, without a change to its weights."""
    with ExitStack() as stack:
        stack.enter_context(lm.gated(edit.gate))
        if edit.steer:
            every = torch.zeros(lm.n_layers, lm.n_heads, lm.d_head, dtype=torch.float64)
            for at, vector in edit.steer.items():
                every[at] = vector
            stack.enter_context(lm.patched(list(edit.steer), every, add=True))  # inside: after the gate
        for layer, vector in edit.push.items():
            site = lm.anatomy.sites[layer]
            assert site is not None

            def add(module: Any, args: Any, output: Tensor, v: Tensor = vector) -> Tensor:
                return output + v.to(output)

            stack.callback(lm.model.get_submodule(site.out).register_forward_hook(add).remove)
        yield

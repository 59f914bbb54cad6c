"""Edits of heads: checked against a model, and applied while it runs.

An edited head outputs g · z + v: g is its factor (0 removes it), v its steering direction.
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
    """An edit of heads.

    gate: the factor of every head [layer, head], float64; 1 leaves it as it is, 0 removes it.
    steer: directions [d_head] added to heads' outputs z, by (layer, head).
    push: directions [d_model] added to the summed output of a layer's heads, by layer.
    """

    gate: Tensor
    steer: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)
    push: Mapping[int, Tensor] = field(default_factory=dict)

    @property
    def removed(self) -> list[tuple[int, int]]:
        """Return removed heads as (layer, head)."""
        return [(int(layer), int(head)) for layer, head in (self.gate == 0).nonzero()]

    @property
    def scaled(self) -> dict[tuple[int, int], float]:
        """Return the factors of heads that are neither removed nor unchanged, by (layer, head)."""
        scaled = (self.gate != 0) & (self.gate != 1)
        return {(int(layer), int(head)): float(self.gate[layer, head]) for layer, head in scaled.nonzero()}

    @property
    def biased(self) -> set[int]:
        """Return the layers to which a constant is added."""
        return {layer for layer, _ in self.steer} | set(self.push)

    @property
    def only_removes(self) -> bool:
        """Whether heads are removed and nothing else is changed."""
        return not self.biased and not self.scaled

    def shuffled(self, generator: np.random.Generator) -> "HeadEdit":
        """Return the same edit of random heads: each layer's factors and directions permuted; pushes unchanged."""
        gate = self.gate.clone()
        steer: dict[tuple[int, int], Tensor] = {}
        for layer, row in enumerate(self.gate):
            order = generator.permutation(len(row))
            gate[layer, order] = row
            steered = {head: vector for (i, head), vector in self.steer.items() if i == layer}
            steer |= {(layer, int(order[head])): vector for head, vector in steered.items()}
        return HeadEdit(gate, steer, self.push)


def make_edit(anatomy: Anatomy, remove: Any = (), scale: Any = (), steer: Any = ()) -> HeadEdit:
    """Make a HeadEdit from arguments of a user, checked against the model.

    remove: heads as `LM.patched` takes them, or comma-separated text. scale: {head: factor}, text such as 'L3.H1=0.5',
    or factors [layer, head]. steer: {head or layer: direction}; a direction is an array, a .npy file, or a result, as
    in 'function_vector.nc:capitals'.
    """
    removed = _head_mask(remove, anatomy)
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
        raise BadArgument(f"L{layer}.H{head} is to be removed and to be scaled by {gate[layer, head]:g}: choose one")
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
        raise BadArgument("nothing is to be changed: give heads to remove, scale or steer, or a set from an atlas")
    return edit


def _head_mask(remove: Any, anatomy: Anatomy) -> Tensor:
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
    """Return a direction as a tensor: [d_head] for a head, [d_model] for a layer."""
    factor = 1.0
    size = anatomy.d_model if head is None else anatomy.d_head
    if isinstance(vector, str):
        vector = next(iter(split_steers([f"L0={vector}"]).values()))
    if isinstance(vector, Path):
        vector = Direction(vector)
    if isinstance(vector, Direction):
        direction = vector
        factor = direction.factor
        if direction.path.suffix == ".nc":
            vector = _read_result(argument, direction, layer, head, size)
        else:
            vector = _read_array(argument, direction.path)
    try:
        values = (
            torch.as_tensor(vector if isinstance(vector, Tensor) else getattr(vector, "values", vector))
            .detach()
            .cpu()
            .double()
        )
    except (TypeError, ValueError, RuntimeError) as e:
        raise BadArgument(f"{argument} is {brief(vector)}, expected numbers or a .npy file") from e
    all_heads = (anatomy.n_layers, anatomy.n_heads, anatomy.d_head)
    if head is not None and values.shape == all_heads:
        values = values[layer, head]
    if values.shape != (size,):
        alternative = "" if head is None else f", or all heads' [layer, head, d_head] = {all_heads}"
        raise BadArgument(f"{argument} has shape {tuple(values.shape)}, expected [{size}]{alternative}")
    if not values.isfinite().all():
        raise BadArgument(f"{argument} has values that are NaN or infinite")
    return values * factor


def _read_array(argument: str, path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise BadFile(f"{argument}: {path} is not a .npy file of numbers: {one_line(e)}") from e


def _read_result(argument: str, direction: Direction, layer: int, head: int | None, size: int) -> np.ndarray:
    """Read the direction of a layer or head from a result: its only variable over (subject, [layer, head,] size)."""
    result = load(direction.path)
    head_dims = {"layer", "head"} if head is not None else set()
    candidates = []
    for name, variable in result.data_vars.items():
        *outer, last = variable.dims or ("",)
        subject_dims = set(outer) - head_dims
        holds_directions = variable.sizes.get(last) == size and last not in head_dims
        if holds_directions and head_dims <= set(outer) and len(subject_dims) <= 1:
            candidates.append((str(name), variable, next(iter(subject_dims), None)))
    if len(candidates) != 1:
        names = ", ".join(name for name, _, _ in candidates) or "none"
        expected = f"expected one variable of directions with {size} numbers"
        raise BadArgument(f"{argument}: {direction.path} has {names}, {expected}")
    ((name, vectors, dim),) = candidates
    if dim is not None:
        subjects = [str(v) for v in vectors[dim].values]
        check_choice(f"{argument}, the {dim} in {direction.path.name}", direction.subject, subjects)
        vectors = vectors.isel({dim: subjects.index(direction.subject)})
    return vectors.sel(layer=layer, head=head).values if head_dims else vectors.values


@contextmanager
def applied(lm: LM, edit: HeadEdit) -> Iterator[None]:
    """Apply the edit while the model runs, without changing its weights."""
    with ExitStack() as stack:
        stack.enter_context(lm.gated(edit.gate))
        if edit.steer:
            vectors = torch.zeros(lm.n_layers, lm.n_heads, lm.d_head, dtype=torch.float64)
            for (i, head), vector in edit.steer.items():
                vectors[i, head] = vector
            # Entered after the gate, so that directions are added to gated outputs.
            stack.enter_context(lm.patched(list(edit.steer), vectors, add=True))
        for layer, vector in edit.push.items():
            site = lm.anatomy.sites[layer]
            assert site is not None

            def add(module: Any, args: Any, output: Tensor, v: Tensor = vector) -> Tensor:
                return output + v.to(output)

            stack.callback(lm.model.get_submodule(site.out).register_forward_hook(add).remove)
        yield

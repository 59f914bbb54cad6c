"""What a head gets of a token and what it makes of it: the inputs of `maps`, and its baselines.

stream     What the model itself has at the token when nothing but a short opening stands before it: one pass over all
           tokens gives every layer's x, normed as the layer norms it. The head writes (x · W_V + b_V) · W_O; the scales
           of the norms behind it (the block's own on the attention's output, if there is one, and the final one)
           come before U. This is what the head would add to the logits, up to one positive factor, if it attended to
           the token alone.
published  Block 0's MLP of the embedding, on its own norm and without the residual; in layer 0, the embedding. Raw W_V,
           W_O and U: no norm, no bias (Elhelo & Geva).
embedding  The same with the embedding in all layers.

Baselines, on the same inputs and the same U: the model's own heads with the targets dealt out anew within each relation
(`targets`), and heads with W_V and W_O drawn anew (`random`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from headatlas.errors import BadArgument, check_choice
from headatlas.methods.maps import Input
from headatlas.models.weights import Weights
from headatlas.progress import Progress
from headatlas.tasks.words import find_opening

BASELINES = ("targets", "random")


@dataclass(frozen=True)
class Reading:
    """How heads read a token and write to the logits."""

    input: Input = "stream"
    opening: tuple[int, ...] = ()  # tokens that stand before the source; of no use but in a stream

    def each_layer(
        self,
        weights: Weights,
        sources: Tensor,
        layers: Sequence[int],
        use: Callable[[int, Tensor], None],
        device: torch.device | str,
        progress: Progress,
    ) -> None:
        """Call use(layer, x [source, d]) for some layers, in their order."""
        if self.input == "stream":
            ticks = iter(progress(layers, "maps"))

            def use_and_tick(layer: int, x: Tensor) -> None:
                if layer in layers:
                    next(ticks, None)
                    use(layer, x)

            texts = torch.tensor([*self.opening, 0]).repeat(len(sources), 1)
            texts[:, -1] = sources
            weights.run(texts, use_and_tick, device)
            next(ticks, None)
            return
        embedding = weights.embedding()
        embedded = embedding[sources.to(embedding.device)]
        embedded = embedded.to(torch.promote_types(embedded.dtype, torch.float32))
        later = weights.first_mlp(embedded) if self.input == "published" else embedded
        for layer in progress(layers, "maps"):
            use(layer, embedded if layer == 0 else later)

    def heads(self, weights: Weights, variant: str, layer: int, x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Values [KV head, source, D] that a layer makes of x [source, d], and its W_O on the way to U [head, D, d].

        variant: 'random' for random heads, anything else for the model's own.
        """
        output = weights.output(layer)
        if variant == "random":
            value, output = x @ _like(weights.value(layer), seed, 2 * layer).to(x), _like(output, seed, 2 * layer + 1)
        elif self.input == "stream":
            value = weights.values(layer, x).transpose(0, 1)
        else:
            value = x @ weights.value(layer).to(x)
        return value, self.towards_logits(weights, layer, output.to(x))

    def towards_logits(self, weights: Weights, layer: int, output: Tensor) -> Tensor:
        """W_O [head, D, d] with what scales it before U."""
        return weights.through_norms(layer, output) if self.input == "stream" else output


def choose_reading(input: Input, opening: str | None, tokenizer: Any) -> Reading:
    check_choice("input", input, get_args(Input))
    if opening is not None and input != "stream":
        raise BadArgument(
            f"opening is {opening!r}, but input={input!r} reads no text: leave it out, or use input='stream'"
        )
    return Reading(input, find_opening(tokenizer, opening) if input == "stream" else ())


def _like(tensor: Tensor, seed: int, salt: int) -> Tensor:
    """Random numbers of a tensor's shape and spread."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + salt)
    return torch.randn(tensor.shape, generator=generator) * tensor.float().std().cpu()

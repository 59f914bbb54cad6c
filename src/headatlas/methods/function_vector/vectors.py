"""Steps 4 and 5: the function vector, and how well it does where no example tells the task."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headatlas.evidence.removal import Heads
from headatlas.methods.function_vector.effects import quality
from headatlas.models.answers import answers_while
from headatlas.models.direct import into_stream
from headatlas.models.examples import TokenExample
from headatlas.models.lm import LM
from headatlas.models.token_changes import adding

TRIED = 10  # layers, evenly spaced, of which the best is taken


def vector_of(lm: LM, heads: Heads, means: Tensor) -> Tensor:
    """The sum of what these heads add to the stream, [d_model]. means: of all heads, scaled, [layer, head, d_head]."""
    total = torch.zeros(lm.d_model)
    for layer in sorted({layer for layer, _ in heads}):
        own = [head for at, head in heads if at == layer]
        total += into_stream(lm, layer, means[layer].to(lm.device))[own].sum(0).cpu()
    return total


@dataclass(frozen=True)
class ZeroShot:
    """Mean P(answer) and accuracy on questions without examples, in the last dimension."""

    before: np.ndarray  # [measure], of the model as it is
    after: np.ndarray  # [layer, measure], with the function vector added after each layer
    random: np.ndarray  # [draw, measure], with vectors of random heads, each after the layer that is best for it
    layer: int  # the best for the function vector


def zero_shot(
    lm: LM,
    choosing: Sequence[TokenExample],
    testing: Sequence[TokenExample],
    vectors: Tensor,
    *,
    layer: int | None = None,
    tokens: int | None = None,
) -> ZeroShot:
    """What vectors [vector, d_model] do; the first is the function vector, the others are of random heads.

    choosing: questions on which the best of about ten layers is chosen, for each vector. testing: other questions, on
    which all is measured. layer: add them all after this one.
    """
    tried = [layer] if layer is not None else sorted({i * lm.n_layers // TRIED for i in range(TRIED)})
    best = [tried[0]] * len(vectors)
    if len(tried) > 1:
        each = _answers(lm, choosing, tried * len(vectors), vectors.repeat_interleave(len(tried), dim=0), tokens)
        best = [tried[i] for i in each[:-1, 0].reshape(len(vectors), len(tried)).argmax(1)]
    everywhere = vectors[:1].expand(lm.n_layers, -1)
    each = _answers(lm, testing, [*range(lm.n_layers), *best[1:]], torch.cat([everywhere, vectors[1:]]), tokens)
    return ZeroShot(each[-1], each[: lm.n_layers], each[lm.n_layers : -1], best[0])


def _answers(
    lm: LM, prompts: Sequence[TokenExample], layers: Sequence[int], vectors: Tensor, tokens: int | None
) -> np.ndarray:
    """Mean P(answer) and accuracy with vectors[n] added after layers[n] at the last token, [n + 1, measure]; the last
    is without any."""
    answers = answers_while(lm, prompts, len(layers) + 1, adding(lm, layers, vectors), tokens=tokens)
    return quality(answers).double().mean(1).numpy()

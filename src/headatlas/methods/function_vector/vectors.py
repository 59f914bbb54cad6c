"""Steps 4 and 5: the function vector, and how well it does without few-shot examples."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headatlas.evidence.control import Heads
from headatlas.methods.function_vector.effects import quality
from headatlas.models.interventions import adding, answers_while
from headatlas.models.lm import LM
from headatlas.models.logit_attribution import into_stream
from headatlas.models.tokens import TokenExample

TRIED = 10  # layers, evenly spaced, of which the best is taken


def vector_of(lm: LM, heads: Heads, means: Tensor) -> Tensor:
    """The sum of what these heads add to the stream, [d_model]. means: of all heads, scaled, [layer, head, d_head]."""
    total = torch.zeros(lm.d_model)
    for layer in sorted({layer for layer, _ in heads}):
        own = [head for at, head in heads if at == layer]
        total += into_stream(lm, layer, means[layer].to(lm.device))[own].sum(0).cpu()
    return total


def best_layers(
    lm: LM, prompts: Sequence[TokenExample], vectors: Tensor, layer: int | None, tokens: int | None = None
) -> list[int]:
    """Choose the layer after which to add each of vectors [vector, d_model]: the best of about ten, or `layer`."""
    tried = [layer] if layer is not None else sorted({i * lm.n_layers // TRIED for i in range(TRIED)})
    if len(tried) == 1:
        return tried * len(vectors)
    answers = answers_with(lm, prompts, tried * len(vectors), vectors.repeat_interleave(len(tried), dim=0), tokens)
    return [tried[i] for i in answers[:-1, 0].reshape(len(vectors), len(tried)).argmax(1)]


def answers_with(
    lm: LM, prompts: Sequence[TokenExample], layers: Sequence[int], vectors: Tensor, tokens: int | None = None
) -> np.ndarray:
    """Measure mean P(answer) and accuracy with vectors[n] added after layers[n] at the last token, [n + 1, measure].

    The last row is of the unchanged model.
    """
    answers = answers_while(lm, prompts, len(layers) + 1, adding(lm, layers, vectors), tokens=tokens)
    return quality(answers).double().mean(1).numpy()

"""log P(target) while one head gives something else at one token of the prompt: tried with every head.

All tokens before that one are the same whichever head is changed, so they are run once, and the tokens from there on
once for each head, packed behind them (`packing`). Models that cannot be packed run the whole prompt for every head.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from headatlas.models.hooks import hooked
from headatlas.models.interventions import spans
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches, score_targets
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import ROW, Layout, lay_out, logits_of, packs
from headatlas.models.tokens import Bundle, TokenExample
from headatlas.progress import Progress, silent

NOTHING = (-1, 0)  # in place of a layer and a head: no head is changed


@torch.no_grad()
def log_probs_patched(
    lm: LM,
    examples: Sequence[TokenExample],
    z: Tensor,
    back: int = 0,
    *,
    tokens: int | None = None,
    label: str = "patching",
    progress: Progress = silent,
) -> tuple[Tensor, Tensor]:
    """log P(target) [example, layer, head] with z of that head replaced at one token, and of the model as it is
    [example]. NaN in layers without heads.

    z [example, layer, head, d_head]: what a head gives instead, in each example.
    back: which token; 0 is the prompt's last one, 1 the one before.
    """
    budget = tokens_at_once(lm, tokens)
    changed = [(layer, head) for layer in lm.layers_with_heads for head in range(lm.n_heads)]
    changed = [NOTHING, *changed]
    bundles, place, packed = [], [], True
    for e, a in enumerate(examples):
        shared = len(a.prompt) - 1 - back
        together = shared > 0 and packs(lm, [Bundle((a,) * 2, shared)])
        packed &= together
        for chosen in _at_once(a, shared, len(changed), budget, together):
            bundles.append(Bundle((a,) * len(chosen), shared))
            place.append([(e, *changed[i]) for i in chosen])
    result = torch.full((len(examples), lm.n_layers + 1, lm.n_heads), torch.nan)
    for _, chosen in progress(list(batches(bundles, 1, budget, packed=packed)), label):
        now = [bundles[i] for i in chosen]
        e, layer, head = torch.tensor([at for i in chosen for at in place[i]]).T
        with halve_batch_on_oom(lm, budget):
            result[e, layer, head] = _log_p(lm, now, layer, head, z[e, layer, head])
    return result[:, :-1], result[(slice(None), *NOTHING)]


def _at_once(example: TokenExample, shared: int, changes: int, budget: int, together: bool) -> list[range]:
    """Changes that an example is run under in a row, if copies go behind what they share, or in a batch."""
    own = len(example) - 1 - shared
    return spans(changes, (min(_width(shared), budget) - shared) // own if together else budget // (shared + own))


def _width(shared: int) -> int:
    """Of a row: wide enough that its beginning is not run too often, not wider, for attention looks over all of it."""
    return max(2 * ROW, 2 * shared)


def _log_p(lm: LM, bundles: Sequence[Bundle], layer: Tensor, head: Tensor, z: Tensor) -> Tensor:
    """log P(target) [text], where text n has z[n] as the output of head[n] of layer[n] at its first own token."""
    layout = lay_out(lm, bundles)
    row, column = _first_own(layout)

    def edit(at: int, now: Tensor) -> Tensor | None:
        here = layer == at
        if not here.any():
            return None
        now = now.clone()
        now[row[here].to(now.device), column[here].to(now.device), head[here].to(now.device)] = z[here].to(now)
        return now

    with hooked(lm.model, lm.anatomy, edit):
        logits = logits_of(lm, layout, None)
    return score_targets(logits, bundles)[0][0].float().cpu()


def _first_own(layout: Layout) -> tuple[Tensor, Tensor]:
    """Row and place of each text's first token that it does not share."""
    owner, first = np.unique(layout.owner.numpy(), return_index=True)
    first = first[owner >= 0]  # −1: shared, or padding
    width = layout.owner.shape[1]
    return torch.tensor(first // width), torch.tensor(first % width)

"""log P(target) while the output of one head is replaced at one token of the prompt, for every head.

All tokens before that one are the same whichever head is changed, so they are run once; the tokens from there on are
run once per head, packed behind them (`packing`). Models that cannot pack run the whole prompt for every head.
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
from headatlas.models.packing import ROW, Layout, is_packed, lay_out, logits_of
from headatlas.models.tokens import Bundle, TokenExample
from headatlas.progress import Progress, silent

# in place of (layer, head) in a run without a change: its result goes to an additional last layer
UNCHANGED = (-1, 0)


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
    """Measure log P(target) with the output of one head replaced at one token.

    Args:
        z: the replacement of every head in each example [example, layer, head, d_head].
        back: the token; 0 is the prompt's last one, 1 the one before.
        tokens: maximum number of tokens that run at once.

    Returns:
        log P(target) with each head replaced [example, layer, head], NaN in layers without heads; and log P(target) of
        the unchanged model [example].
    """
    budget = tokens_at_once(lm, tokens)
    changes = [UNCHANGED, *((layer, head) for layer in lm.layers_with_heads for head in range(lm.n_heads))]
    bundles = []
    # of each text of each bundle: example, layer and head
    changes_of_bundle = []
    can_pack = True
    for e, a in enumerate(examples):
        shared = len(a.prompt) - 1 - back
        is_shared = shared > 0 and is_packed(lm, [Bundle((a,) * 2, shared)])
        can_pack &= is_shared
        for indices in _group_changes(a, shared, len(changes), budget, is_shared):
            bundles.append(Bundle((a,) * len(indices), shared))
            changes_of_bundle.append([(e, *changes[i]) for i in indices])
    # one layer more, for the model without a change
    result = torch.full((len(examples), lm.n_layers + 1, lm.n_heads), torch.nan)
    for _, batch in progress(list(batches(bundles, 1, budget, packed=can_pack)), label):
        example, layer, head = torch.tensor([change for i in batch for change in changes_of_bundle[i]]).T
        with halve_batch_on_oom(lm, budget):
            log_p = _log_p(lm, [bundles[i] for i in batch], layer, head, z[example, layer, head])
        result[example, layer, head] = log_p
    return result[:, :-1], result[(slice(None), *UNCHANGED)]


def _group_changes(example: TokenExample, shared: int, changes: int, budget: int, is_shared: bool) -> list[range]:
    """Return the changes under which an example runs in one row, behind a shared beginning, or in one batch."""
    rest = len(example) - 1 - shared
    if is_shared:
        return spans(changes, (min(_row_width(shared), budget) - shared) // rest)
    return spans(changes, budget // (shared + rest))


def _row_width(shared: int) -> int:
    """Return the width of a row for copies behind `shared` tokens.

    In narrower rows, the shared tokens would be run more often; in wider ones, attention would cost more.
    """
    return max(2 * ROW, 2 * shared)


def _log_p(lm: LM, bundles: Sequence[Bundle], layer: Tensor, head: Tensor, z: Tensor) -> Tensor:
    """Return log P(target) [text] with the output of head[n] of layer[n] replaced by z[n] in text n.

    It is replaced at the text's first token after the shared beginning.
    """
    layout = lay_out(lm, bundles)
    row, place = _first_unshared(layout)

    def edit(edited_layer: int, layer_z: Tensor) -> Tensor | None:
        texts = layer == edited_layer
        if not texts.any():
            return None
        layer_z = layer_z.clone()
        device = layer_z.device
        layer_z[row[texts].to(device), place[texts].to(device), head[texts].to(device)] = z[texts].to(layer_z)
        return layer_z

    with hooked(lm.model, lm.anatomy, edit):
        logits = logits_of(lm, layout, None)
    return score_targets(logits, bundles)[0][0].float().cpu()


def _first_unshared(layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the row and place of each text's first token after the shared beginning."""
    owner, first = np.unique(layout.owner.numpy(), return_index=True)
    # drop −1, which marks the shared beginning and padding
    first = first[owner >= 0]
    width = layout.owner.shape[1]
    return torch.tensor(first // width), torch.tensor(first % width)

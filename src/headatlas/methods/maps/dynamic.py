"""maps, dynamic: does a head do in a real run what its parameters say?

1. Put each source word at the end of four neutral templates and run the model once.
2. *With context*: the head's z at the word, as it is, · W_O · U; a pair is hit as in `maps`.
3. *Without context*: the head attending to nothing but the word. Its z is then the value vector at the word, which the
   same run computed, so no second pass is needed. With input="stream", both go through the norms' scales, as the static
   scores do.
4. Per relation, the Pearson correlation of static and dynamic scores over heads × templates.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.maps.pairs import Pairs, drop_small, single_token_pairs
from headatlas.methods.maps.ranks import Vocabulary, extremes, sizes
from headatlas.methods.maps.reading import Reading
from headatlas.methods.maps.scores import Settings, hits, joined, shares
from headatlas.models.hooks import hooked, reading_inputs
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.tasks.relations import Relation

TEMPLATES = (
    "Here is a short text about",
    "The next word on the list is",
    "Today we are going to talk about",
    "She wrote a single word on the board:",
)
CONTEXTS = ("with", "without")
BATCH = 512  # words at once


def check_dynamic(lm: LM, relations: Sequence[Relation], settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Dynamic scores on some pairs of every relation with enough, against static scores of the same pairs."""
    size = lm.weights.unembedding().shape[1]
    pairs = single_token_pairs(relations, lm.tokenizer, size, settings.k)
    pairs = drop_small(pairs, len(relations), settings.min_pairs)
    generator = torch.Generator().manual_seed(settings.seed)
    pairs = pairs[torch.randperm(len(pairs), generator=generator)]
    nth = (pairs.relation[:, None] == pairs.relation).tril(-1).sum(1)  # how many of its relation came before
    pairs = pairs[nth < settings.dynamic]
    static, _ = hits(lm.weights, pairs, settings.reading, device=lm.device)
    return dynamic_scores(lm, pairs, static, settings.reading, [r.name for r in relations], progress)


@torch.no_grad()
def dynamic_hits(
    lm: LM, pairs: Pairs, reading: Reading, batch_size: int = BATCH, progress: Progress = silent
) -> np.ndarray:
    """[context, template, layer, head, pair] for contexts with, without."""
    dtype = torch.promote_types(lm.model.dtype, torch.float32)
    U = lm.weights.unembedding().T.to(lm.device)
    rows = Vocabulary(U, dtype)
    target, k = pairs.target.to(lm.device), pairs.k.to(lm.device)
    hit = np.zeros((2, len(TEMPLATES), lm.n_layers, lm.n_heads, len(pairs)), dtype=bool)
    groups = lm.anatomy.layer_groups(sizes(U).layers)

    def output(layer: int) -> Tensor:
        return reading.towards_logits(lm.weights, layer, lm.weights.output(layer).to(dtype)).to(lm.device)

    outputs = [joined([output(layer) for layer in group]) for group in groups]  # [layer · head, d_head, d_model]
    jobs = [(i, a) for i in range(len(TEMPLATES)) for a in range(0, len(pairs), batch_size)]
    for template, start in progress(jobs, "dynamic scores"):
        part = slice(start, start + batch_size)
        prefix = lm.encode(TEMPLATES[template])[0]
        z, x = _run(lm, [[*prefix, s] for s in pairs.source[part].tolist()])
        for group, W_O in zip(groups, outputs, strict=True):
            alone = {i: lm.weights.values(i, x[i]).repeat_interleave(lm.n_heads // lm.n_kv_heads, dim=1) for i in group}
            for context, now in enumerate((z, alone)):
                heads = joined([now[i].transpose(0, 1).to(lm.device, dtype) for i in group])
                top, _ = extremes(heads, W_O, target[part], k[part], rows)
                hit[context, template, group, :, part] = top.unflatten(0, (len(group), -1)).cpu().numpy()
    return hit


def _run(lm: LM, texts: list[list[int]]) -> tuple[dict[int, Any], dict[int, Any]]:
    """At the last token of texts of one length, by layer: z [n, head, d_head], the attention's input [n, d_model]."""
    z: dict[int, Any] = {}
    x: dict[int, Any] = {}
    with (
        hooked(lm.model, lm.anatomy, lambda layer, now: z.update({layer: now[:, -1]})),
        reading_inputs(lm.model, lm.anatomy, lambda layer, now: x.update({layer: now[:, -1]})),
        without_cudnn_attention(),
    ):
        lm.model.base_model(**lm.batch(texts), use_cache=False)
    return z, x


def dynamic_scores(
    lm: LM, pairs: Pairs, static: np.ndarray, reading: Reading, relations: list[str], progress: Progress = silent
) -> xr.Dataset:
    """Scores in context, correlated with the static ones. static: hits [layer, head, pair] of the same pairs."""
    n = len(relations)
    hit = dynamic_hits(lm, pairs, reading, progress=progress)
    # [context, template, relation, layer, head]
    score = np.stack([[shares(h, pairs, n, lm.anatomy) for h in context] for context in hit])
    fixed = shares(static, pairs, n, lm.anatomy)
    correlation = np.full((len(CONTEXTS), n), np.nan)
    for c in range(len(CONTEXTS)):
        for r in range(n):
            a, b = np.broadcast_to(fixed[r], score[c, :, r].shape).ravel(), score[c, :, r].ravel()
            known = ~np.isnan(a) & ~np.isnan(b)
            if known.any() and a[known].std() > 0 and b[known].std() > 0:
                correlation[c, r] = np.corrcoef(a[known], b[known])[0, 1]
    return xr.Dataset(
        {
            "dynamic": (("context", "template", "relation", "layer", "head"), score),
            "dynamic_correlation": (("context", "relation"), correlation),
            "dynamic_pairs": ("relation", np.bincount(pairs.relation.numpy(), minlength=n)),
        },
        coords={"context": list(CONTEXTS), "template": list(TEMPLATES), "relation": relations},
    )

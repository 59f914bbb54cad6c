"""Test `maps` in real runs: does a head do what its parameters say? And the prompts of a relation.

1. Put each source word at the end of four neutral templates and run the model once.
2. *With context*: z of the head at the word, · W_O · U; a pair is hit as in `maps`.
3. *Without context*: the head attending to the word alone. Its z is then the value vector at the word, which the same
   run computed, so no second pass is needed. With input="stream", both go through the norms' scales, as the static
   scores do.
4. Per relation, the Pearson correlation of static and dynamic scores over heads × templates.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.methods.maps import Input
from headatlas.methods.maps.compute import (
    K,
    Pairs,
    collect_hits,
    drop_small,
    scale_output,
    score_layers,
    shares,
    single_token_pairs,
)
from headatlas.methods.maps.ranks import Vocabulary, extremes, join, sizes
from headatlas.models.hooks import hooked, reading_inputs
from headatlas.models.library_settings import without_cudnn_attention
from headatlas.models.lm import LM
from headatlas.models.loading import Parameters
from headatlas.models.tokens import TokenExample
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.tasks.relations import Relation, load_relations
from headatlas.tasks.words import word_ids

TEMPLATES = (
    "Here is a short text about",
    "The next word on the list is",
    "Today we are going to talk about",
    "She wrote a single word on the board:",
)
CONTEXTS = ("with", "without")
WORDS_PER_BATCH = 512
PROMPTS_WITHOUT_TRUTH = 6  # prompts of a removal test where no truth is known


def check_dynamic(
    lm: LM,
    relations: Sequence[Relation],
    *,
    limit: int,
    input: Input,
    opening: Sequence[int] = (),
    k: K = "auto",
    min_pairs: int = 30,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """Score up to `limit` pairs of each relation with enough in real runs, and correlate with their static scores."""
    vocabulary = lm.weights.unembedding().shape[1]
    pairs = drop_small(single_token_pairs(relations, lm.tokenizer, vocabulary, k), len(relations), min_pairs)
    generator = torch.Generator().manual_seed(seed)
    pairs = pairs[torch.randperm(len(pairs), generator=generator)]
    n_before = (pairs.relation[:, None] == pairs.relation).tril(-1).sum(1)  # pairs of the same relation before it
    pairs = pairs[n_before < limit]
    static, _ = find_hits(lm, pairs, input=input, opening=opening)
    return dynamic_scores(lm, pairs, static, [r.name for r in relations], input=input, progress=progress)


def find_hits(
    model: Parameters | LM, pairs: Pairs, *, input: Input, opening: Sequence[int] = (), progress: Progress = silent
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs that every head hits, and suppresses, by its parameters: bool arrays [layer, head, pair]."""
    done = cast(FinishedParts, {})
    anatomy = model.weights.anatomy
    score_layers(
        model,
        variants={"maps": pairs},
        layers=anatomy.layers_with_heads,
        input=input,
        opening=opening,
        seed=0,
        done=done,
        progress=progress,
    )
    return collect_hits(done, "maps", anatomy, len(pairs))


def dynamic_scores(
    lm: LM,
    pairs: Pairs,
    static: np.ndarray,
    relations: Sequence[str],
    *,
    input: Input,
    progress: Progress = silent,
) -> xr.Dataset:
    """Return scores in real runs, and their correlation with static hits [layer, head, pair] of the same pairs."""
    n = len(relations)
    hit = dynamic_hits(lm, pairs, input=input, progress=progress)
    # [context, template, relation, layer, head]
    score = np.stack([[shares(of_template, pairs, n, lm.anatomy) for of_template in context] for context in hit])
    fixed = shares(static, pairs, n, lm.anatomy)
    correlation = np.full((len(CONTEXTS), n), np.nan)
    for c in range(len(CONTEXTS)):
        for r in range(n):
            repeated = np.broadcast_to(fixed[r], score[c, :, r].shape)
            correlation[c, r] = _correlation(repeated.ravel(), score[c, :, r].ravel())
    return xr.Dataset(
        {
            "dynamic": (("context", "template", "relation", "layer", "head"), score),
            "dynamic_correlation": (("context", "relation"), correlation),
            "dynamic_pairs": ("relation", np.bincount(pairs.relation.numpy(), minlength=n)),
        },
        coords={"context": list(CONTEXTS), "template": list(TEMPLATES), "relation": list(relations)},
    )


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation where both have a value; NaN without any, or where one is constant."""
    both = ~np.isnan(a) & ~np.isnan(b)
    if not both.any() or a[both].std() == 0 or b[both].std() == 0:
        return np.nan
    return float(np.corrcoef(a[both], b[both])[0, 1])


@torch.no_grad()
def dynamic_hits(lm: LM, pairs: Pairs, *, input: Input, progress: Progress = silent) -> np.ndarray:
    """Return which pairs are hit in real runs, [context, template, layer, head, pair]."""
    dtype = torch.promote_types(lm.model.dtype, torch.float32)
    U = lm.weights.unembedding().T.to(lm.device)
    vocabulary = Vocabulary(U, dtype)
    target = pairs.target.to(lm.device)
    k = pairs.k.to(lm.device)
    hit = np.zeros((len(CONTEXTS), len(TEMPLATES), lm.n_layers, lm.n_heads, len(pairs)), dtype=bool)
    groups = lm.anatomy.layer_groups(sizes(U).layers)

    def output(layer: int) -> Tensor:
        return scale_output(lm.weights, layer, lm.weights.output(layer).to(dtype), input).to(lm.device)

    outputs = [join([output(layer) for layer in group]) for group in groups]  # [layer · head, d_head, d_model]
    batches = [(i, start) for i in range(len(TEMPLATES)) for start in range(0, len(pairs), WORDS_PER_BATCH)]
    for template, start in progress(batches, "dynamic scores"):
        batch = slice(start, start + WORDS_PER_BATCH)
        prefix = lm.encode(TEMPLATES[template])[0]
        z, x = run_at_last_token(lm, [[*prefix, source] for source in pairs.source[batch].tolist()])
        for group, W_O in zip(groups, outputs, strict=True):
            alone = {i: lm.weights.values(i, x[i]).repeat_interleave(lm.n_heads // lm.n_kv_heads, dim=1) for i in group}
            for context, values in enumerate((z, alone)):
                heads = join([values[i].transpose(0, 1).to(lm.device, dtype) for i in group])
                top, _ = extremes(heads, W_O, target[batch], k[batch], vocabulary)
                hit[context, template, group, :, batch] = top.unflatten(0, (len(group), -1)).cpu().numpy()
    return hit


def run_at_last_token(lm: LM, texts: list[list[int]]) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Run texts of one length; return z [text, head, d_head] and the attention's input [text, d_model] by layer.

    Both are those at the last token.
    """
    z: dict[int, Any] = {}
    x: dict[int, Any] = {}
    with (
        hooked(lm.model, lm.anatomy, lambda layer, values: z.update({layer: values[:, -1]})),
        reading_inputs(lm.model, lm.anatomy, lambda layer, values: x.update({layer: values[:, -1]})),
        without_cudnn_attention(),
    ):
        lm.model.base_model(**lm.batch(texts), use_cache=False)
    return z, x


# --- prompts


def relation_questions(lm: LM, relation: Relation, limit: int, seed: int = 0) -> list[TokenExample]:
    """Return up to `limit` prompts whose answer is one token; none without a prompt or such an answer."""
    targets = word_ids(lm.tokenizer, [target for _, target in relation.pairs])
    usable = [(source, t[0]) for (source, _), t in zip(relation.pairs, targets, strict=True) if len(t) == 1]
    used_pairs = [usable[i] for i in np.random.default_rng(seed).permutation(len(usable))[:limit]]
    if not relation.prompt or not used_pairs:
        return []
    prompts = lm.encode([relation.prompt.replace("{}", source) for source, _ in used_pairs])
    return [TokenExample(tuple(prompt), (target,)) for prompt, (_, target) in zip(prompts, used_pairs, strict=True)]


def ask_relation(lm: LM, subject: str) -> list[TokenExample]:
    """Return prompts of a built-in relation; none if it has no prompt."""
    return relation_questions(lm, load_relations([subject])[0], PROMPTS_WITHOUT_TRUTH)

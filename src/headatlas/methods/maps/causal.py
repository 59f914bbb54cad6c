"""Is a relation's map causally true? Its top heads removed while the model answers the relation's own prompt."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.tasks.relations import Relation
from headatlas.tasks.words import word_ids
from headatlas.evidence.removal import Questions, removal_curves


def relation_questions(lm: LM, relation: Relation, limit: int, seed: int = 0) -> Questions:
    """Up to `limit` prompts whose answer is one token."""
    assert relation.prompt is not None
    targets = word_ids(lm.tokenizer, [t for _, t in relation.pairs])
    usable = [(s, t[0]) for (s, _), t in zip(relation.pairs, targets, strict=True) if len(t) == 1]
    order = np.random.default_rng(seed).permutation(len(usable))[:limit]
    chosen = [usable[i] for i in order]
    return Questions(lm.encode([relation.prompt.replace("{}", s) for s, _ in chosen]), [t for _, t in chosen])


def rank_heads(score: xr.DataArray) -> list[tuple[int, int]]:
    """Heads that score at all, best first; score is [layer, head]."""
    order = np.argsort(-np.nan_to_num(score.values, nan=-1), axis=None, kind="stable")
    layers, heads = np.unravel_index(order, score.shape)
    return [(int(a), int(b)) for a, b in zip(layers, heads, strict=True) if score.values[a, b] > 0]


def check_causal(
    lm: LM, relations: Sequence[Relation], maps: xr.Dataset, limit: int, *, seed: int = 0, progress: Progress = silent
) -> xr.Dataset:
    """Removal curves of every relation with a prompt and a map; the rest of the relations are NaN."""
    usable = [r for r in relations if r.prompt and not np.isnan(maps.score.sel(relation=r.name).values).all()]
    if not usable:
        raise BadArgument("causal: none of the relations has both a score and a prompt to ask it with")
    questions = {r.name: relation_questions(lm, r, limit, seed) for r in usable}
    ranking = {r.name: rank_heads(maps.score.sel(relation=r.name)) for r in usable}
    curves = removal_curves(lm, questions, ranking, seed=seed, progress=progress)
    return curves.reindex(relation=maps.relation.values)

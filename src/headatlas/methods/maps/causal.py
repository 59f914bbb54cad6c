"""maps, causal: does a relation need its top heads? They are removed while the model answers the relation's prompt.

1. Of every relation with a map and a prompt, up to so many prompts whose answer is one token.
2. Of those that the whole model can answer, the 1, 2, 4, … best heads are removed at the prompt's last token; so are
   random heads of the same layers (`evidence.control`). p is about log P of the answers, corrected for the number of
   tests.
3. The same heads are removed while another relation is asked, the next one that the model can answer.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.evidence.control import (
    ANSWERS,
    Heads,
    answers_without,
    cached_by_heads,
    compare_with_random,
    correct_p,
    same_layers,
)
from headatlas.methods.maps.scores import Settings
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from headatlas.progress import Progress, silent
from headatlas.tasks.relations import Relation, load_relations
from headatlas.tasks.words import word_ids

STEPS = (1, 2, 4, 8, 16, 32)  # heads removed
DRAWS = 199  # of random heads, at most: fewer where p is plain
ABLE = 0.2  # a relation the whole model gets right less often than this cannot be broken by removing heads
ASK = 6  # prompts of a removal test where no truth is known


def relation_questions(lm: LM, relation: Relation, limit: int, seed: int = 0) -> list[TokenExample]:
    """Up to `limit` prompts whose answer is one token; none, where there is no prompt or no such answer."""
    targets = word_ids(lm.tokenizer, [t for _, t in relation.pairs])
    usable = [(s, t[0]) for (s, _), t in zip(relation.pairs, targets, strict=True) if len(t) == 1]
    chosen = [usable[i] for i in np.random.default_rng(seed).permutation(len(usable))[:limit]]
    if not relation.prompt or not chosen:
        return []
    prompts = lm.encode([relation.prompt.replace("{}", s) for s, _ in chosen])
    return [TokenExample(tuple(p), (t,)) for p, (_, t) in zip(prompts, chosen, strict=True)]


def ask_relation(lm: LM, subject: str) -> list[TokenExample]:
    """Prompts of a built-in relation; none, where it has no prompt."""
    return relation_questions(lm, load_relations([subject])[0], ASK)


def rank_heads(score: xr.DataArray) -> Heads:
    """Heads that score at all, best first; score is [layer, head]."""
    order = np.argsort(-np.nan_to_num(score.values, nan=-1), axis=None, kind="stable")
    layers, heads = np.unravel_index(order, score.shape)
    return [(int(a), int(b)) for a, b in zip(layers, heads, strict=True) if score.values[a, b] > 0]


def check_causal(
    lm: LM, relations: Sequence[Relation], maps: xr.Dataset, settings: Settings, progress: Progress = silent
) -> xr.Dataset:
    """Removal curves of every relation with a prompt and a map; the rest of the relations are NaN."""
    mapped = [r for r in relations if maps.score.sel(relation=r.name).notnull().any()]
    prompts = {r.name: relation_questions(lm, r, settings.causal, settings.seed) for r in mapped}
    questions = {name: of_relation for name, of_relation in prompts.items() if of_relation}
    if not questions:
        raise BadArgument("causal: none of the relations has both a score and a prompt to ask it with")
    ranking = {name: rank_heads(maps.score.sel(relation=name)) for name in questions}
    curves = removal_curves(lm, questions, ranking, seed=settings.seed, progress=progress)
    return curves.reindex(relation=maps.relation.values)


def removal_curves(
    lm: LM,
    questions: Mapping[str, Sequence[TokenExample]],
    ranking: Mapping[str, Heads],
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> xr.Dataset:
    """What each relation that the model can answer loses without its top heads, or random ones; what another loses.

    ranking: each relation's heads, best first. The other relation is the next one, in order, that the model can answer.
    """
    names = list(questions)
    baseline = np.stack(
        [answers_without(lm, questions[r], [[]])[0] for r in progress(names, "what the model can answer")]
    )
    able = [i for i, r in enumerate(names) if baseline[i, ANSWERS.index("accuracy")] >= ABLE and ranking[r]]
    shape = (len(names), len(STEPS))
    effect, other_effect = np.full((2, *shape, len(ANSWERS)), np.nan)
    random_effect, p = np.full((*shape, DRAWS, len(ANSWERS)), np.nan), np.full(shape, np.nan)
    for at, i in enumerate(progress(able, "removal curves")):
        heads = ranking[names[i]]
        sets = [heads[:m] for m in STEPS if m <= len(heads)]
        quality = cached_by_heads(partial(answers_without, lm, questions[names[i]]))
        draw = same_layers(lm.n_heads, np.random.default_rng([seed, i]))
        result = compare_with_random(quality, sets, draw, draws=DRAWS, reference=[])
        effect[i, : len(sets)], random_effect[i, : len(sets)] = result.effect, result.random_effect
        p[i, : len(sets)] = result.p
        other = able[(at + 1) % len(able)]
        if other != i:
            other_effect[i, : len(sets)] = answers_without(lm, questions[names[other]], sets) - baseline[other]
    dims = ("relation", "n_removed", "measure")
    curves = xr.Dataset(
        {
            "baseline": (("relation", "measure"), baseline),
            "effect": (dims, effect),
            "other_effect": (dims, other_effect),
            "random_effect": ((*dims[:2], "draw", "measure"), random_effect),
            "p": (dims[:2], p),
            "p_corrected": (dims[:2], correct_p(p)),
            "questions": ("relation", [len(questions[r]) for r in names]),
        },
        coords={"relation": names, "n_removed": list(STEPS), "measure": list(ANSWERS), "draw": range(DRAWS)},
    )
    return curves.sel(measure=["accuracy", "log_p"])

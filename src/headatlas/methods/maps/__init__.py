"""maps: find the relations that every head implements, from its parameters alone.

After MAPS (Elhelo & Geva, ACL 2025, arXiv 2412.11965). No data, no loaded model.

1. A pair (s, t) of a relation is used if both words are one token after a space, and a relation if enough pairs remain.
   Otherwise, a relation that allows it uses the last token of s and the first of t.
2. x is the head's input for s: by default the model's residual stream at s after a short opening; the published
   choices are block 0's MLP of E[s], or E[s] itself.
3. The head turns x into logits, x · W_V · W_O · U. With the stream, biases and the scales of norms are included.
4. The pair is hit if t is among the k largest logits, and suppressed if it is among the k smallest (`ranks`).
5. A relation's score is the share of its pairs that are hit; its suppression is the share that are suppressed.
6. A head belongs to a category if a score or suppression of one of its relations reaches the threshold.

In addition, there is a weaker multi-token score (last token of s, first token of t, over all pairs), and the scores of
two baselines: shuffled targets and random heads. They give the highest score of each relation that chance explains
(`chance.chance_level`). Scores in real runs need the loaded model (`real_runs`). Some pairs are left out of the map:
its top heads are tested on prompts of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from headatlas.errors import BadArgument, check_choice, check_count
from headatlas.methods.method import Measure, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.loading import Parameters

Input = Literal["stream", "published", "embedding"]

SCORE = "Share of the relation's word pairs that the head's parameters alone map from source to target."
SUPPRESSION = "Share of the relation's word pairs whose target the head's parameters suppress most."
LIMITS = (
    " No text is run: it shows what a head can do, not when, or whether, it does it."
    " Chance: the highest share that shuffled targets and random heads explain."
)


@method(
    title="Relations (MAPS)",
    measures=[
        Measure(
            "score",
            over="relation",
            meaning=SCORE + LIMITS,
            chance="chance",
            repeats=("score_by_pair", "pair"),
            claim="needed",
        ),
        Measure(
            "suppression",
            over="relation",
            meaning=SUPPRESSION + LIMITS,
            chance="chance_suppression",
            repeats=("suppression_by_pair", "pair"),
        ),
    ],
    variables={
        "pairs": Variable("pairs", "pairs", "Number of pairs that score and suppression are measured on."),
        "k": Variable("k", "tokens", "Number of largest logits that count as a hit, and of smallest as suppression."),
        "left_out": Variable("left out", "", "Why the relation has no score; empty if it has one."),
        "multi_token": Variable(
            "multi-token", "", "Whether pairs are the last token of the source and the first of the target."
        ),
        "score_multi": Variable("score, multi-token", "", "Score of all pairs: last token of source, first of target."),
        "suppression_multi": Variable(
            "suppression, multi-token", "", "Suppression of all pairs: last token of source, first of target."
        ),
        "pairs_multi": Variable("pairs, multi-token", "pairs", "Number of pairs of the multi-token score."),
        "member": Variable("member", "", "Whether score or suppression reaches the threshold in the category."),
        "member_from_multi": Variable(
            "from multi-token", "", "Whether the members of the category come from the multi-token score."
        ),
        "baseline_score": Variable("score, baseline", "", "Score of shuffled targets and of random heads, by chance."),
        "baseline_suppression": Variable(
            "suppression, baseline", "", "Suppression of shuffled targets and of random heads, by chance."
        ),
        "chance": Variable("chance", "", "Highest score that chance explains; NaN without baselines."),
        "chance_suppression": Variable(
            "chance of suppression", "", "Highest suppression that chance explains; NaN without baselines."
        ),
        "dynamic": Variable("score in real runs", "", "Share of pairs that the head hits in real runs."),
        "dynamic_correlation": Variable(
            "dynamic correlation", "", "Pearson correlation of scores in real runs with those from parameters."
        ),
        "dynamic_pairs": Variable("dynamic pairs", "pairs", "Number of pairs of the scores in real runs."),
    },
    shows={"categories": ("member",)},
    presets={"quick": {}, "full": {"dynamic": 64}},
    finds="which relations between words a head's parameters implement",
    misses="when the head does so in a text, or whether an answer depends on it",
    cites=(
        "Inferring Functionality of Attention Heads from their Parameters (MAPS), Elhelo & Geva, ACL 2025,"
        " arXiv 2412.11965",
    ),
    ask=lazily("headatlas.methods.maps.real_runs:ask_relation"),
    truths={
        "maps": Truth("relations", "score", {"baselines": False}),
        "maps-published": Truth("relations", "score", {"baselines": False, "input": "published", "held_out": 0.0}),
        "maps-suppression": Truth("suppression", "suppression", {"baselines": False}),
    },
    seconds=60,
    needs_model=False,
    in_parts=True,
    imports="categories",
)
def maps(
    model: Parameters,
    relations: Annotated[
        Any, "built-in relations by name, a folder, a JSON or CSV file, or your pairs by name (default: all built-in)"
    ] = None,
    *,
    k: Annotated[
        int | Literal["auto"], "number of the largest logits that count as a hit; 'auto': the published numbers"
    ] = "auto",
    threshold: Annotated[float, "score or suppression from which a head belongs to a category"] = 0.15,
    min_pairs: Annotated[int, "minimum number of pairs of a relation; relations with fewer are left out"] = 30,
    input: Annotated[
        Input,
        "a head's input for a word: the residual stream, the published one (block 0's MLP), or the embedding",
    ] = "stream",
    opening: Annotated[str | None, "text before the word for input stream (default: 'The word is')"] = None,
    baselines: Annotated[
        bool, "whether to score shuffled targets and random heads too, for the level of chance"
    ] = True,
    held_out: Annotated[
        float, "share of each relation's pairs that the map leaves out, for its test (0: none, as published)"
    ] = 0.3,
    dynamic: Annotated[int, "measure scores in real runs on at most this many pairs per relation; 0: none"] = 0,
    seed: Annotated[int, "random seed for the baselines, the pairs that are left out and those of real runs"] = 0,
) -> Work:
    """Find the relations that every head implements, from its parameters alone (docs/methods/maps.md).

    Only the tensors that are needed are read from disk, layer by layer; the model is loaded for `dynamic` alone.

    Args:
        relations: the 20 built-in ones or some of them by name, a folder, a JSON or CSV file, or your pairs by name:
            {"capitals": [("France", "Paris"), …]}.
        input: 'stream', the model's residual stream at the word after a short opening; 'published', block 0's MLP of
            its embedding; or 'embedding'. The last two use raw weights, as published.
        held_out: fewer pairs are left out where fewer than min_pairs usable ones would remain. Maps of relations that
            keep all pairs, or have no prompt, are not tested.

    Returns:
        score and suppression(relation, layer, head); score_multi and suppression_multi, those of multi-token pairs;
        pairs, pairs_multi, k, left_out, multi_token(relation); member(category, layer, head),
        member_from_multi(category); baseline_score and baseline_suppression(control, relation, layer, head), chance and
        chance_suppression(relation).
        With dynamic: dynamic(context, template, relation, layer, head), dynamic_correlation(context, relation),
        dynamic_pairs(relation).

    Example:
        >>> ha.maps("smollm2", ["country_to_capital"]).score.max()
    """
    from headatlas.methods.maps.compute import BASELINES, choose_pairs, combine, layer_parts, leave_out_pairs
    from headatlas.tasks.relations import hash_relations, load_relations
    from headatlas.tasks.used import used_pairs
    from headatlas.tasks.words import find_opening

    _check(k, threshold, input, opening, held_out, seed, dynamic)
    loaded = load_relations(relations)
    mapped = [leave_out_pairs(r, model.tokenizer, held_out, min_pairs, seed) for r in loaded]
    pairs = choose_pairs(model, mapped, k, min_pairs)
    opening_tokens = find_opening(model.tokenizer, opening) if input == "stream" else ()
    baseline_names = BASELINES if baselines else ()
    settings = {"k": k, "min_pairs": min_pairs, "seed": seed, "input": input}
    result_settings = {"threshold": threshold, "dynamic": dynamic}
    scoring: dict[str, Any] = {"input": input, "opening": opening_tokens, "baselines": baseline_names, "seed": seed}
    return Work(
        summary=f"{len(mapped)} relations, {sum(len(r.pairs) for r in mapped):,} pairs, from the parameters alone",
        combine=combine,
        arguments={"relations": mapped, "pairs": pairs, **settings, **result_settings, **scoring},
        parts=layer_parts(model, pairs, **scoring),
        data=hash_relations(loaded),
        settings=settings | {"opening": " ".join(map(str, opening_tokens)), "held_out": held_out},
        result_settings=result_settings | {"baselines": int(baselines)},
        needs_model=bool(dynamic),
        used=used_pairs(mapped),
        subjects={
            r.name: r for r, left in zip(loaded, mapped, strict=True) if r.prompt and len(left.pairs) < len(r.pairs)
        },
    )


def _check(
    k: int | str, threshold: float, input: str, opening: str | None, held_out: float, seed: int, dynamic: int
) -> None:
    if not 0 < threshold <= 1:
        raise BadArgument(f"threshold is {threshold}, expected more than 0 and at most 1")
    if k != "auto" and (isinstance(k, str) or k < 1):
        raise BadArgument(f"k is {k}, expected 'auto' or at least 1")
    check_choice("input", input, get_args(Input))
    if opening is not None and input != "stream":
        raise BadArgument(
            f"opening is {opening!r}, but input={input!r} reads no text: leave it out, or use input='stream'"
        )
    if not 0 <= held_out < 1:
        raise BadArgument(f"held_out is {held_out}, expected 0 or more and less than 1")
    check_count("seed", seed, 0, 2**32 - 1)
    check_count("dynamic", dynamic, 0)

"""maps: what every head does, from its parameters alone.

After MAPS (Elhelo & Geva, ACL 2025, arXiv 2412.11965). No data, no loaded model.

1. A pair (s, t) of a relation is used when, behind a space, both are one token; a relation when enough pairs remain.
   Where they do not, a relation that allows it goes by the last token of s and the first of t (`pairs`).
2. x is what the head gets of s: by default what the model itself has there behind a short opening; the published
   choices are block 0's MLP of E[s], or E[s] itself (`reading`).
3. The head turns x into logits, x · W_V · W_O · U (`reading` says with which biases and norms).
4. The pair is hit when t is among the k largest of these, suppressed when among the k smallest (`ranks` decides it).
5. A relation's score is the share of its pairs that are hit; its suppression the share suppressed (`scores`).
6. A head belongs to a category when a score or suppression of one of its relations reaches the threshold.

Beside it, the weaker multi-token score (last token of s, first token of t, over all pairs), and baselines that show
what scores chance gives (`reading`). From them, for each relation, the highest score that chance explains (`chance`).
Two checks need the loaded model: scores in real runs (`dynamic`), and removal of the top heads (`causal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import BadArgument, check_count
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.loading import Parameters

Input = Literal["stream", "published", "embedding"]

SCORE = "Share of the relation's word pairs that the head's parameters alone map from source to target."
SUPPRESSION = "Share of the relation's word pairs whose target the head's parameters push down most."
LIMITS = (
    " No text is run: it says what a head can do, not when, or whether, it does it."
    " Chance: the highest share that shuffled targets and random heads explain."
)


@method(
    title="Relations (MAPS)",
    measures=[
        Measure("score", over="relation", meaning=SCORE + LIMITS, chance="chance"),
        Measure("suppression", over="relation", meaning=SUPPRESSION + LIMITS, chance="chance_suppression"),
    ],
    presets={"quick": {}, "full": {"dynamic": 64, "causal": 64}},
    tells="which relations between words a head's parameters implement",
    does_not_tell="when the head does so in a text, or whether an answer depends on it",
    cites=(
        "Inferring Functionality of Attention Heads from their Parameters (MAPS), Elhelo & Geva, ACL 2025,"
        " arXiv 2412.11965",
    ),
    ask=lazily("headatlas.methods.maps.causal:ask_relation"),
    truths={
        "maps": Truth("relations", "score", {"baselines": False}),
        "maps-published": Truth("relations", "score", {"baselines": False, "input": "published"}),
        "maps-suppression": Truth("suppression", "suppression", {"baselines": False}),
    },
    order=10,
    needs_model=False,
    in_parts=True,
    imports="categories",
)
def maps(
    model: Parameters,
    relations: Annotated[
        Any, "built-in relations by name, a folder, a JSON or CSV file, or pairs of your own by name"
    ] = None,
    *,
    k: Annotated[int | Literal["auto"], "how many of the largest outputs are a hit; 'auto': as published"] = "auto",
    threshold: Annotated[float, "score or suppression at which a head belongs to a category"] = 0.15,
    min_pairs: Annotated[int, "relations with fewer pairs are left out"] = 30,
    input: Annotated[Input, "what a head gets of a word: the model's own stream, or from raw weights"] = "stream",
    opening: Annotated[str | None, "text before the word in a stream; by default 'The word is'"] = None,
    baselines: Annotated[bool, "score shuffled targets and random heads beside it, to see what chance gives"] = True,
    dynamic: Annotated[int, "check scores in real runs on up to so many pairs a relation"] = 0,
    causal: Annotated[int, "check by removing heads on up to so many prompts a relation"] = 0,
    seed: Annotated[int, "of the baselines, and of what is drawn for the checks"] = 0,
) -> Work:
    """Which relations every head implements, from its parameters alone (docs/methods/maps.md).

    Of a model on disk only the tensors needed are read, layer by layer; it is loaded for the checks alone.
    relations: the 20 built-in ones or some of them by name, a folder, a JSON or CSV file, or your own pairs by name:
    {"capitals": [("France", "Paris"), …]}.
    input: 'stream', what the model itself has at the word behind a short opening; 'published', block 0's MLP of its
    embedding; or 'embedding'. The last two use raw weights, as published.

    Returns score and suppression(relation, layer, head); score_multi and suppression_multi, the same of multi-token
    pairs; pairs, pairs_multi, k, left_out, multi_token(relation); member(category, layer, head),
    member_from_multi(category); baseline_score and baseline_suppression(control, relation, layer, head), chance and
    chance_suppression(relation).
    With dynamic: dynamic(context, template, relation, layer, head), dynamic_correlation(context, relation),
    dynamic_pairs(relation).
    With causal: baseline(relation, measure), effect and other_effect(relation, n_removed, measure),
    random_effect(relation, n_removed, draw, measure), p and p_corrected(relation, n_removed), questions(relation).

    Example:
        >>> ha.maps("smollm2", ["country_to_capital"]).score.max()
    """
    from headatlas.methods.maps.pairs import choose_pairs
    from headatlas.methods.maps.parts import checks_cost, combine, layer_parts
    from headatlas.methods.maps.reading import BASELINES, choose_reading
    from headatlas.methods.maps.scores import Settings
    from headatlas.tasks.relations import hash_relations, load_relations
    from headatlas.tasks.used import used_pairs

    _check(k, threshold, seed, dynamic, causal)
    chosen = load_relations(relations)
    reading = choose_reading(input, opening, model.tokenizer)
    settings = Settings(reading, k, threshold, min_pairs, BASELINES if baselines else (), seed, dynamic, causal)
    pairs = choose_pairs(model, chosen, k, min_pairs)
    return Work(
        summary=f"{len(chosen)} relations, {sum(len(r.pairs) for r in chosen):,} pairs, from the parameters alone",
        combine=combine,
        arguments=(chosen, pairs, settings),
        parts=layer_parts(model, pairs, settings),
        data=hash_relations(chosen),
        settings={
            "k": k,
            "min_pairs": min_pairs,
            "seed": seed,
            "input": input,
            "opening": " ".join(map(str, reading.opening)),
        },
        result_settings={"threshold": threshold, "baselines": int(baselines), "dynamic": dynamic, "causal": causal},
        cost=checks_cost,
        needs_model=bool(dynamic or causal),
        used=used_pairs(chosen),
    )


def _check(k: int | str, threshold: float, seed: int, dynamic: int, causal: int) -> None:
    if not 0 < threshold <= 1:
        raise BadArgument(f"threshold is {threshold}, expected more than 0 and at most 1")
    if k != "auto" and (isinstance(k, str) or k < 1):
        raise BadArgument(f"k is {k}, expected 'auto' or at least 1")
    check_count("seed", seed, 0, 2**32 - 1)
    check_count("dynamic", dynamic, 0)
    check_count("causal", causal, 0)

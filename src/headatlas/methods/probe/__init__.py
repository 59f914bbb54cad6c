"""probe: which cognitive functions can be read from every head (Ma et al. 2025).

1. Every question calls for one function. It is answered: by its reference, or by the model.
2. A head's feature is the mean of its output z over the answer's k informative tokens (`features.py`).
3. A classifier learns to tell the functions from the features of all heads; a head's importance is what it adds to that
   (`maps.py`; 'per-head' and 'written' are other kinds).
4. Beside it: what the words alone give away (`wording.py`), and what shuffled labels give.
5. The proof: heads are removed, or pushed, while the model answers (`proof.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import BadArgument, check_count
from headatlas.methods._arguments import BatchTokens, Context, Limit, Preset, Questions, Template, Test
from headatlas.methods.method import Measure, Part, Truth, Work, method

if TYPE_CHECKING:
    from collections.abc import Sequence

    import xarray as xr

    from headatlas.methods.probe.settings import Options
    from headatlas.models.lm import LM
    from headatlas.models.targets import Asked
    from headatlas.tasks.questions import Question

MEANING = (
    "How much a trained classifier leans on each head to tell the functions apart; it sums to 1 over heads. It shows where a"
    " function can be read, not where it is needed: importance is not causal. Chance: what a head reaches with shuffled labels."
)
ASK = 6  # questions of a removal test


def tables(result: xr.Dataset) -> dict[str, list[dict[str, Any]]]:
    from headatlas.methods.probe.tables import tables

    return tables(result)


def sentences(result: xr.Dataset) -> list[str]:
    from headatlas.methods.probe.tables import sentences

    return sentences(result)


def ask(lm: LM, subject: str) -> list[Asked]:
    """Validation questions: the probe was fitted to training ones, and its importance measured on test ones."""
    from headatlas.tasks.questions import load_questions, with_answer

    questions = [q for q in load_questions() if q.function == subject and q.split == "validation"]
    return [with_answer(lm, q, q.answer) for q in questions[:ASK]]


@method(
    title="Probe",
    measures=[
        Measure(
            "importance",
            over="function",
            meaning=MEANING,
            label="Heads Importance",
            chance="control_importance",
            above="clears_control",
            low="low",
            high="high",
        )
    ],
    presets={"quick": {}, "full": {}},
    tells="which functions can be read from a head's output while the model answers",
    does_not_tell="whether a function needs the head, or how much of it is only wording: see the proof, and the words alone",
    cites=("Cognitive Mirrors, Ma et al., NeurIPS 2025, arXiv 2512.10978",),
    tables=tables,
    sentences=sentences,
    ask=ask,
    truths={
        "probe": Truth("functions", "importance", {"proof": "none"}),
        "probe-per-head": Truth("functions", "importance", {"kind": "per-head", "proof": "none"}),
        "probe-written": Truth("functions", "importance", {"kind": "written", "proof": "none"}),
    },
    order=60,
)
def probe(
    lm: LM,
    questions: Questions = None,
    *,
    test: Test = None,
    answers: Annotated[
        Literal["reference", "generated"], "read the reference answers, teacher-forced, or the model's own"
    ] = "reference",
    kind: Annotated[
        Literal["published", "per-head", "written"],
        "the published probe, a classifier for each head, or how much heads write for a function (no classifier)",
    ] = "published",
    preset: Preset = "quick",
    context: Context = "retrieval",
    functions: Annotated[Any, "functions other than the eight, or 'all' that occur"] = None,
    keep: Annotated[Literal["all", "correct"], "of generated answers, which are used"] = "all",
    k: Annotated[int, "answer tokens that are kept"] = 5,
    limit: Limit = None,
    template: Template = True,
    judge: Annotated[
        str | None, "an OpenAI-compatible endpoint that picks the tokens and says which answers are right; else offline"
    ] = None,
    judge_model: Annotated[str, "the model to ask there"] = "gpt-4o-mini",
    proof: Annotated[
        Literal["score", "generate", "none"], "remove and push heads, and score the references or generated text"
    ] = "score",
    everywhere: Annotated[
        bool, "in the proof, change heads at the prompt too, not from where answering begins"
    ] = False,
    seed: Annotated[int, "of splits, training and draws"] = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which cognitive functions can be read from every head, beside what the wording alone would tell (docs/probe.md).

    Returns importance, low, high, control_importance(function, layer, head) and which heads are above chance,
    clears_control(function, layer, head); accuracy, and bag_of_words(wording) beside it. With a proof: baseline(function, measure),
    effect, lowest_effect(function, n_removed, measure), random_effect(function, n_removed, draw, measure), p and
    p_corrected(function, n_removed), specialisation(function, masked, measure), hierarchy(function, order, measure) and
    intervention(function, alpha, measure).

    Example:
        >>> ha.probe("smollm2").importance.sel(function="Retrieval")
    """
    check_count("k", k, 1)
    check_count("seed", seed, 0, 2**63 - 1)
    for name, number in (("limit", limit), ("batch_tokens", batch_tokens)):
        if number is not None:
            check_count(name, number, 1)
    if keep == "correct" and answers == "reference":
        raise BadArgument(
            "keep is 'correct' with answers='reference', which are all correct: ask for answers='generated'"
        )
    from headatlas.methods.probe.parts import check_room
    from headatlas.methods.probe.settings import PRESETS, Options
    from headatlas.models.cache import cache_folder
    from headatlas.tasks.judge import Judge
    from headatlas.tasks.questions import hash_questions, load_questions

    settings = PRESETS[preset]
    at_most = settings.limit if limit is None and questions is None else limit
    steps = load_questions(questions, test, context=context, functions=functions, limit=at_most, seed=seed)
    arbiter = Judge(judge, judge_model, cache_folder() / "judge") if judge else None
    generated, only_right = answers == "generated", keep == "correct"
    options = Options(
        settings,
        generated,
        kind,
        only_right,
        int(k),
        template,
        arbiter,
        proof,
        bool(everywhere),
        int(seed),
        batch_tokens,
    )
    if generated or proof == "generate":
        check_room(lm, steps, template, settings.new_tokens)
    depends = {"preset": preset, "answers": answers, "context": context, "keep": keep, "k": int(k)}
    depends |= {"template": int(template), "judge": str(arbiter or ""), "seed": int(seed)}
    only_result = {"kind": kind, "proof": proof, "everywhere": int(bool(everywhere)), **settings.attributes(proof)}
    return _work(steps, options, hash_questions(steps), depends, only_result)


def _work(
    questions: Sequence[Question],
    options: Options,
    data: str,
    settings: dict[str, Any],
    result_settings: dict[str, Any],
) -> Work:
    """Parts that each read the answers of a shard; before them, if they are the model's own, one that gives the answers."""
    from headatlas.methods.probe import parts
    from headatlas.methods.probe.features import shards
    from headatlas.tasks.questions import function_names

    cut = shards(questions)
    read = [
        Part(
            f"reading answers, {shard.name}",
            parts.read,
            (shard, questions, options),
            shard.leaves,
            (parts.ANSWERS,) if options.generated else (),
            parts.read_cost,
        )
        for shard in cut
    ]
    answer = (
        [Part(parts.ANSWERS, parts.answer, (questions, options), cost=parts.answer_cost)] if options.generated else []
    )
    n, whose = len(function_names(questions)), "generated" if options.generated else "reference"
    return Work(
        f"{len(questions)} questions, {n} functions, {whose} answers; proof: {options.proof}",
        parts.combine,
        (questions, cut, options),
        [*answer, *read],
        data,
        settings,
        result_settings,
        parts.combine_cost,
    )

"""probe: which cognitive functions can be read from every head (Ma et al. 2025).

1. Every question calls for one function. It is answered: by its reference, or by the model.
2. A head's feature is the mean of its output z over the answer's k informative tokens (`features.py`).
3. A classifier learns to tell the functions from the features of all heads; a head's importance is what it adds to that
   (`maps.py`; 'per-head', 'written' and 'used' are other kinds).
4. Beside it: what the words alone give away (`wording.py`), and what shuffled labels give.
5. The proof: heads are removed, or pushed, while the model answers (`proof.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import BadArgument, check_count
from headatlas.methods._arguments import BatchTokens, Context, Limit, Preset, Questions, Template, Test
from headatlas.methods.method import Measure, Truth, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.models.lm import LM

MEANING = (
    "How much a trained classifier leans on each head to tell the functions apart; it sums to 1 over heads. It shows"
    " where a function can be read, not where it is needed: importance is not causal. Chance: the importance that a"
    " head reaches with shuffled labels."
)
Answers = Annotated[Literal["reference", "generated"], "read the reference answers, teacher-forced, or the model's own"]
Kind = Annotated[
    Literal["published", "per-head", "written", "used"],
    "the published probe, a classifier for each head, how much heads write for a function, or how much of what they"
    " give out the answers depend on (these two without a classifier)",
]
Functions = Annotated[Any, "functions other than the eight, or 'all' that occur"]
Keep = Annotated[Literal["all", "correct"], "of generated answers, which are used"]
K = Annotated[int, "answer tokens that are kept"]
Endpoint = Annotated[
    str | None, "an OpenAI-compatible endpoint that picks the tokens and says which answers are right; else offline"
]
JudgeModel = Annotated[str, "the model to ask there"]
Proof = Annotated[
    Literal["score", "generate", "none"], "remove and push heads, and score the references or generated text"
]
Everywhere = Annotated[bool, "in the proof, change heads at the prompt too, not from where answering begins"]
Seed = Annotated[int, "of splits, training and draws"]


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
    does_not_tell="whether a function needs the head, and how much of what is read is only wording",
    cites=("Cognitive Mirrors, Ma et al., NeurIPS 2025, arXiv 2512.10978",),
    sentences=lazily("headatlas.methods.probe.sentences:probe_sentences"),
    ask=lazily("headatlas.methods.probe.proof:ask_validation"),
    truths={
        "probe": Truth("functions", "importance", {"proof": "none"}),
        "probe-per-head": Truth("functions", "importance", {"kind": "per-head", "proof": "none"}),
        "probe-written": Truth("functions", "importance", {"kind": "written", "proof": "none"}),
        "probe-used": Truth("functions", "importance", {"kind": "used", "proof": "none"}),
    },
    seconds=200,
    in_parts=True,
    imports="importance",
)
def probe(
    lm: LM,
    questions: Questions = None,
    *,
    test: Test = None,
    answers: Answers = "reference",
    kind: Kind = "published",
    preset: Preset = "quick",
    context: Context = "retrieval",
    functions: Functions = None,
    keep: Keep = "all",
    k: K = 5,
    limit: Limit = None,
    template: Template = True,
    judge: Endpoint = None,
    judge_model: JudgeModel = "gpt-4o-mini",
    proof: Proof = "score",
    everywhere: Everywhere = False,
    seed: Seed = 0,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Which cognitive functions can be read from every head, and what wording alone tells (docs/methods/probe.md).

    Returns importance, low, high, control_importance(function, layer, head) and which heads are above chance,
    clears_control(function, layer, head); accuracy, and bag_of_words(wording) beside it. With a proof:
    baseline(function, measure), effect, lowest_effect(function, n_removed, measure),
    random_effect(function, n_removed, draw, measure), p and p_corrected(function, n_removed),
    specialisation(function, masked, measure), hierarchy(function, order, measure) and
    intervention(function, alpha, measure).

    Example:
        >>> ha.probe("smollm2").importance.sel(function="Retrieval")
    """
    from headatlas.methods.probe.parts import plan
    from headatlas.methods.probe.settings import PRESETS, Options
    from headatlas.models.cache import cache_folder
    from headatlas.tasks.built_in import built_in_questions
    from headatlas.tasks.judge import Judge
    from headatlas.tasks.questions import load_questions

    _check(keep, answers, seed, k=k, limit=limit, batch_tokens=batch_tokens)
    at_most = PRESETS[preset].limit if limit is None and built_in_questions(questions) else limit
    steps = load_questions(questions, test, context=context, functions=functions, limit=at_most, seed=seed)
    options = Options(
        steps,
        PRESETS[preset],
        preset=preset,
        answers=answers,
        kind=kind,
        context=context,
        keep=keep,
        k=int(k),
        template=bool(template),
        judge=Judge(judge, judge_model, cache_folder() / "judge") if judge else None,
        proof=proof,
        everywhere=bool(everywhere),
        seed=int(seed),
        batch_tokens=batch_tokens,
    )
    return plan(lm, options)


def _check(keep: str, answers: str, seed: int, **counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None:
            check_count(name, count, 1)
    check_count("seed", seed, 0, 2**63 - 1)
    if keep == "correct" and answers == "reference":
        raise BadArgument("keep is 'correct' with answers='reference', which all are: ask for answers='generated'")

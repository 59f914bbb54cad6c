"""The work of `probe`, cut: the model answers, shards of answers are read, a map is made of that and tested."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument
from headatlas.evidence.control import removal_cost
from headatlas.methods.method import Part, Work
from headatlas.methods.probe.examples import Examples
from headatlas.methods.probe.features import (
    capture,
    generate_answers,
    padded,
    pieces,
    shards,
    unpadded,
)
from headatlas.methods.probe.maps import DIMS, HIDDEN, directions, probe_map
from headatlas.methods.probe.proof import MEASURES_OF, generate_under, prove, score_under
from headatlas.methods.probe.settings import Options, Shard
from headatlas.methods.probe.used import STEPS
from headatlas.methods.probe.used import used as what_is_used
from headatlas.methods.probe.wording import wording
from headatlas.models.cost import Cost, answering, learning, reading
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import Done, Progress
from headatlas.tasks.questions import (
    SPLITS,
    Question,
    check_sizes,
    function_names,
    hash_questions,
    prompt_ids,
    with_answer,
)
from headatlas.tasks.scoring import informative, is_right
from headatlas.tasks.used import used_questions

log = logging.getLogger(__name__)

ANSWERS = "the model's answers"  # the part that gives them, and what it leaves
TRAINED, UPDATE = 0.7, 100.0  # of its epochs, a probe trains about so many; operations of an update of one weight
UPDATING, WORDING = 0.003, 0.001  # host seconds of an update of the probe; of a question, for what its words tell
TAKEN = 1.5  # passes that a pass costs if every head's output is taken along
MOVED = 3e7  # bytes of features a second: written, gathered, and read in every epoch
TOGETHER = 32  # answers generated at once, at least


def plan(lm: LM, options: Options) -> Work:
    """Parts that each read the answers of a shard; before them, if the answers are the model's own, one that gives
    them."""
    questions, proof = options.questions, options.proof
    if options.generated or proof == "generate":
        _check_room(lm, options)
    cut, needs = shards(questions), (ANSWERS,) if options.generated else ()
    parts = [Part(name=ANSWERS, do=answer, arguments=(options,), cost=answer_cost)] if options.generated else []
    for shard in cut:
        parts.append(
            Part(
                name=f"reading answers, {shard.name}",
                do=read,
                arguments=(shard, options),
                outputs=shard.outputs,
                inputs=needs,
                cost=read_cost,
            )
        )
    n = len(function_names(questions))
    return Work(
        summary=f"{len(questions)} questions, {n} functions, {options.answers} answers; proof: {proof}",
        combine=combine,
        arguments=(cut, options),
        parts=parts,
        data=hash_questions(questions),
        settings={
            "preset": options.preset,
            "context": options.context,
            "answers": options.answers,
            "keep": options.keep,
        }
        | {"k": options.k, "template": int(options.template)}
        | {"judge": str(options.judge or ""), "seed": options.seed},
        result_settings={"kind": options.kind, "proof": proof, "everywhere": int(options.everywhere)}
        | options.settings.attributes(proof),
        cost=combine_cost,
        used=used_questions(questions),
    )


def _check_room(lm: LM, options: Options) -> None:
    """That every prompt leaves room for an answer, before any work is done."""
    context, new_tokens = lm.anatomy.context, options.settings.new_tokens
    for q in options.questions:
        n = len(prompt_ids(lm, q, options.template))
        if context and n + new_tokens > context:
            raise BadArgument(
                f"question {q.text[:40]!r} is a prompt of {n} tokens: with {new_tokens} new ones it exceeds the model's"
                f" context of {context}"
            )


def with_reference(lm: LM, question: Question, options: Options) -> TokenExample:
    return with_answer(lm, question, question.answer, options.template)


def answer(lm: LM, options: Options, *, done: Done, progress: Progress) -> None:
    """The model's own answers as tokens [question, token], −1 behind their ends."""
    prompts = [with_reference(lm, q, options).prompt for q in options.questions]
    tokens = options.settings.new_tokens
    done[ANSWERS] = (padded(generate_answers(lm, prompts, tokens, done=done, progress=progress), tokens),)


def answer_cost(lm: LM, options: Options) -> Cost:
    tokens, questions = options.settings.new_tokens, options.questions
    prompts = sum(len(with_reference(lm, q, options).prompt) for q in questions)
    return Cost(tokens=prompts + tokens * len(questions), passes=tokens * -(-len(questions) // TOGETHER))


def read(lm: LM, shard: Shard, options: Options, *, done: Done, progress: Progress) -> None:
    """Features of a shard's answers [example, layer, head, d_head]; beside them, of which questions they are, which
    answers are right, and whether the judge was given up."""
    texts, questions = _texts(lm, options, done), options.questions
    examples = {i: with_reference(lm, questions[i], options) for i in shard.questions}
    kept, right = shard.questions, []
    if options.generated:
        tokens = unpadded(done[ANSWERS][0])
        examples = {i: TokenExample(a.prompt, tuple(tokens[i])) for i, a in examples.items() if texts[i]}
        right = [_right(lm, questions[i], texts[i], a, options) for i, a in examples.items()]
        kept = [i for i, good in zip(examples, right, strict=True) if good or options.keep == "all"]
    used = set(kept)
    groups = [chosen for group in shard.groups if (chosen := [i for i in group if i in used])]
    means: dict[int, np.ndarray] = {}
    choose = partial(_choose, lm, texts, examples, options)
    label = f"reading answers, {shard.name}"
    if groups:
        capture(lm, examples, groups, choose, means, batch_tokens=options.batch_tokens, label=label, progress=progress)
    features = np.empty((len(kept), *_shape(lm)), _precision(lm))
    for row, i in zip(features, kept, strict=True):
        row[:] = means[i]
    given_up = options.judge is not None and options.judge.given_up
    features_name, kept_name = shard.outputs
    done[features_name] = (features,)
    done[kept_name] = np.array(kept, int), np.array(right, bool), np.array([given_up])


def read_cost(lm: LM, shard: Shard, options: Options) -> Cost:
    groups = [[with_reference(lm, options.questions[i], options) for i in group] for group in shard.groups]
    return TAKEN * reading(lm, [make_bundle(group) for group in groups], tokens=options.batch_tokens)


def _texts(lm: LM, options: Options, done: Done) -> list[str]:
    """The answers that are read."""
    if not options.generated:
        return [q.answer for q in options.questions]
    return [lm.tokenizer.decode(new, skip_special_tokens=True).strip() for new in unpadded(done[ANSWERS][0])]


def _right(lm: LM, question: Question, text: str, example: TokenExample, options: Options) -> bool:
    judge = options.judge
    verdict = judge.ask(question, text, pieces(lm, example.target), options.k) if judge else None
    return verdict.right if verdict else is_right(text, question.answer)


def _choose(
    lm: LM, texts: Sequence[str], examples: dict[int, TokenExample], options: Options, i: int, surprisal: np.ndarray
) -> list[int]:
    """Which tokens of an answer are kept."""
    parts, judge, k = pieces(lm, examples[i].target), options.judge, options.k
    verdict = judge.ask(options.questions[i], texts[i], parts, k) if judge and len(parts) > k else None
    return (verdict.pieces if verdict else []) or informative(parts, surprisal, k)


def _shape(lm: LM) -> tuple[int, int, int]:
    return len(lm.layers_with_heads), lm.n_heads, lm.d_head


def _precision(lm: LM) -> Any:
    return np.float16 if lm.model.dtype == torch.float16 else np.float32


def combine(lm: LM, cut: Sequence[Shard], options: Options, *, done: Done, progress: Progress) -> xr.Dataset:
    """The map, what the wording tells, and the proof."""
    names, texts = function_names(options.questions), _texts(lm, options, done)
    kept, right, given_up = (np.concatenate(arrays) for arrays in zip(*(done[s.outputs[1]] for s in cut), strict=True))
    kept.sort()
    if options.generated:
        _tell(texts, right)
    used, texts = [options.questions[i] for i in kept], [texts[i] for i in kept]
    check_sizes(used, " that were answered" + " right" * (options.keep == "correct"), names)
    data = _examples(lm, used, kept, cut, done)
    labels = np.array([names.index(q.function) for q in used])
    use = _used(lm, used, texts, labels, data, options, progress) if options.kind == "used" else None
    try:
        result = _map(lm, data, labels, names, use, options, progress)
    except torch.OutOfMemoryError:
        log.warning("out of memory: the probe does not fit beside the model, so it is trained on the CPU")
        on_cpu = replace(data, device=torch.device("cpu"))
        result = _map(lm, on_cpu, labels, names, use, options, progress)
    split = np.array([q.split for q in used])
    counts = [[int(((split == s) & (labels == c)).sum()) for s in SPLITS] for c in range(len(names))]
    result = _all_layers(result, lm).merge(wording(used, texts, labels, data))
    share_right = right.mean() if len(right) else 0.0
    result = result.assign(
        questions=(("function", "split"), counts), answers_right=share_right if options.generated else np.nan
    ).assign_coords(split=list(SPLITS))
    if options.proof != "none":
        result = result.merge(_proof(lm, used, labels, data, result.importance, options, progress))
    if given_up.any():  # it counts as another result: asked again, the judge may answer
        result = result.assign_attrs(judge=f"{options.judge}, given up", key="")
    return result


def combine_cost(lm: LM, cut: Sequence[Shard], options: Options) -> Cost:
    settings, questions = options.settings, options.questions
    names = function_names(questions)
    training, train = settings.training, sum(q.split == SPLITS[0] for q in questions)
    size = HIDDEN * DIMS * lm.n_layers * lm.n_heads  # weights of the probe's first large matrix
    epoch = 6.0 * size * train + UPDATE * size * train / training.batch
    fits = (1 + settings.controls) * training.epochs * TRAINED
    features = 4.0 * len(questions) * lm.n_layers * lm.n_heads * lm.d_head
    host = UPDATING * fits * train / training.batch + WORDING * len(questions) + features / MOVED
    cost = Cost(operations=fits * epoch, seconds=host)
    if options.kind == "used":
        test = [with_reference(lm, q, options) for q in questions if q.split == SPLITS[-1]]
        cost += STEPS * learning(lm, [make_bundle([a]) for a in test], tokens=options.batch_tokens)
    if options.proof == "none":
        return cost
    trials, everywhere, tokens = settings.trials, options.everywhere, options.batch_tokens
    beside = len(trials.shares) + len(names) + 2 * (1 + trials.order_draws) + len(trials.alphas)
    for f in names:
        tested = [q for q in questions if q.function == f][: settings.proof]
        examples = [with_reference(lm, q, options) for q in tested]
        cost += removal_cost(lm, examples, len(trials.shares), trials.draws, tokens, everywhere)
        cost += answering(lm, examples, beside, everywhere=everywhere, tokens=tokens)
    return cost


def _tell(texts: Sequence[str], right: np.ndarray) -> None:
    if nothing := sum(not text for text in texts):
        log.info("dropped %d questions that the model answered with nothing", nothing)
    log.info("%d of %d answers are right", right.sum(), len(right))


def _examples(lm: LM, used: Sequence[Question], kept: np.ndarray, cut: Sequence[Shard], done: Done) -> Examples:
    """What the shards left, in the order of the questions: on disk, if the shards are in a folder."""
    folder, shape = getattr(done, "folder", None), (len(used), *_shape(lm))
    if folder is None:
        features = np.empty(shape, _precision(lm))
    else:
        features = np.lib.format.open_memmap(folder / "features.npy", mode="w+", dtype=_precision(lm), shape=shape)
    for features_name, kept_name in (shard.outputs for shard in cut):
        features[np.searchsorted(kept, done[kept_name][0])] = done[features_name][0]
    split = np.array([q.split for q in used])
    groups = np.unique([q.group for q in used], return_inverse=True)[1]
    train, validation, test = (np.flatnonzero(split == s) for s in SPLITS)
    return Examples(features, train, validation, test, lm.device, groups)


def _map(
    lm: LM,
    data: Examples,
    labels: np.ndarray,
    names: list[str],
    use: np.ndarray | None,
    options: Options,
    progress: Progress,
) -> xr.Dataset:
    return probe_map(
        data,
        labels,
        names,
        kind=options.kind,
        write=_writing(lm, data.device) if options.kind == "written" else None,
        use=use,
        training=options.settings.training,
        controls=options.settings.controls,
        draws=options.settings.draws,
        seed=options.seed,
        progress=progress,
    )


def _writing(lm: LM, device: torch.device) -> torch.Tensor:
    """W_O · W_Oᵀ of each head, [layer, head, d_head, d_head], layers with heads only."""
    out = [lm.weights.output(layer).float() for layer in lm.layers_with_heads]
    return torch.stack([(w @ w.transpose(1, 2)).to(device) for w in out])


def _used(
    lm: LM,
    questions: Sequence[Question],
    texts: Sequence[str],
    labels: np.ndarray,
    data: Examples,
    options: Options,
    progress: Progress,
) -> np.ndarray:
    examples = [with_answer(lm, q, text, options.template) for q, text in zip(questions, texts, strict=True)]
    return what_is_used(
        lm, examples, labels, data.train, data.test, batch_tokens=options.batch_tokens, progress=progress
    )


def _all_layers(result: xr.Dataset, lm: LM) -> xr.Dataset:
    """With the layers that have no heads: NaN, or False."""
    result = result.assign_coords(layer=lm.layers_with_heads, head=range(lm.n_heads))
    flags = [name for name, variable in result.data_vars.items() if variable.dtype == bool]
    wide = result.drop_vars(flags).reindex(layer=range(lm.n_layers))
    return wide.merge(result[flags].reindex(layer=range(lm.n_layers), fill_value=False))


def _proof(
    lm: LM,
    used: Sequence[Question],
    labels: np.ndarray,
    data: Examples,
    importance: xr.DataArray,
    options: Options,
    progress: Progress,
) -> xr.Dataset:
    names, settings = importance.function.values.tolist(), options.settings
    pushes = torch.zeros(len(names), lm.n_layers, lm.n_heads, lm.d_head)
    pushes[:, lm.layers_with_heads] = directions(data, labels, len(names))
    tested = {f: [used[i] for i in data.test[labels[data.test] == c][: settings.proof]] for c, f in enumerate(names)}
    ask = partial(score_under if options.proof == "score" else generate_under, lm, tested, options)
    measures = MEASURES_OF[options.proof]
    proven = prove(ask, measures, importance, pushes, settings.trials, seed=options.seed, progress=progress)
    return proven.assign(proof_questions=("function", [len(tested[f]) for f in names]))

"""Generate answers, read their features in shards, and make the result: the map, its comparison with wording, the test.

Shards of questions are independent of each other.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, CannotDo
from headatlas.methods.method import Part, Work
from headatlas.methods.probe.classifier import (
    BATCH,
    Examples,
    probe_map,
    wording,
)
from headatlas.methods.probe.published_tests import run_published_tests
from headatlas.methods.probe.without_classifier import used_by_answers, written
from headatlas.models.generation import generate_answers, pad_answers, unpad_answers
from headatlas.models.interventions import answer_states
from headatlas.models.lm import LM
from headatlas.models.log_probs import batches
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.token_text import text_inside
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.progress import FinishedParts, Progress, silent
from headatlas.tasks.judge import Judge
from headatlas.tasks.questions import (
    MIN_LEFT_OUT,
    SPLITS,
    Question,
    check_sizes,
    function_names,
    hash_questions,
    load_questions,
    prompt_ids,
    with_answer,
)
from headatlas.tasks.scoring import informative_tokens, is_right
from headatlas.tasks.used import used_questions

log = logging.getLogger(__name__)

ANSWERS = "the model's answers"  # name of the part that generates them, and of its output
MIN_SHARD = 128  # questions
MAX_ASKED = 64  # questions of each function in the published tests
MAX_VALIDATION = 6  # questions of a removal test where no truth is known

Choose = Callable[[int, np.ndarray], list[int]]
"""Takes (example, −log P of its answer tokens), returns the indices of the tokens to read."""


def plan(
    lm: LM,
    questions: Sequence[Question],
    prompts: Mapping[str, Any],
    reading: Mapping[str, Any],
    fit: Mapping[str, Any],
    *,
    everything: Sequence[Question],
    held_out: int,
    published_tests: bool,
) -> Work:
    """Return parts that read the answers of a shard each and, if answers are generated, the part that generates them.

    Args:
        lm: the model.
        questions: questions of all splits that the map is made from.
        prompts: context, template and new_tokens.
        reading: the other options of `read`.
        fit: options of `probe_map`.
        everything: these questions, and those that are left out.
        held_out: number of questions of each function to leave out.
        published_tests: whether to do the paper's tests too.
    """
    generated = reading["answers"] == "generated"
    answering = {name: prompts[name] for name in ("template", "new_tokens")}
    asked = _questions_to_ask(questions, everything) if published_tests else {}
    if generated:
        check_room(lm, [*questions, *(q for of_function in asked.values() for q in of_function)], **answering)
    read_options = {**reading, "template": prompts["template"]}
    judge = str(reading["judge"] or "")
    shards = cut_into_shards(questions)
    names = function_names(questions)
    result_settings = {"published_tests": int(published_tests), "batch": BATCH, **fit["training"]}
    result_settings |= {name: fit[name] for name in ("kind", "refits", "controls", "draws")}
    settings = {name: reading[name] for name in ("answers", "keep", "k")} | dict(prompts)
    return Work(
        summary=f"{len(questions)} questions, {len(names)} functions, {reading['answers']} answers",
        combine=combine,
        arguments={
            "questions": questions,
            "shards": list(shards),
            "fit": fit,
            "asked": asked,
            "new_tokens": prompts["new_tokens"],
            **{name: read_options[name] for name in ("answers", "keep", "template", "batch_tokens")},
            "judge": judge,
        },
        parts=[
            *([_answering_part(questions, answering)] if generated else []),
            *(_reading_part(shard, groups, questions, read_options) for shard, groups in shards.items()),
        ],
        data=hash_questions(questions),
        settings={
            **settings,
            "template": int(prompts["template"]),
            "judge": judge,
            "seed": fit["seed"],
            "held_out": held_out,
        },
        result_settings=result_settings,
        used=used_questions(questions),
        subjects={name: tuple(q for q in everything if q.function == name) for name in names},
    )


def _questions_to_ask(questions: Sequence[Question], everything: Sequence[Question]) -> dict[str, list[Question]]:
    """Return the questions of each function for the published tests: those that made no map, or else test questions."""
    in_map = set(questions)
    asked = {}
    for name in function_names(questions):
        unused = [q for q in everything if q.function == name and q not in in_map]
        if len(unused) < MIN_LEFT_OUT:
            unused = [q for q in questions if q.function == name and q.split == "test"]
        asked[name] = sorted(unused, key=lambda q: q.split != "test")[:MAX_ASKED]
    return asked


def _answering_part(questions: Sequence[Question], answering: Mapping[str, Any]) -> Part:
    return Part(name=ANSWERS, do=answer, arguments={"questions": questions, **answering})


def _reading_part(
    shard: str, groups: Sequence[Sequence[int]], questions: Sequence[Question], options: Mapping[str, Any]
) -> Part:
    shard_questions = {i: questions[i] for group in groups for i in group}
    return Part(
        name=f"reading answers, {shard}",
        do=read,
        arguments={"shard": shard, "questions": shard_questions, "groups": groups, **options},
        outputs=shard_outputs(shard),
        inputs=(ANSWERS,) if options["answers"] == "generated" else (),
    )


# --- step 1: answers


def check_room(lm: LM, questions: Sequence[Question], template: bool, new_tokens: int) -> None:
    """Check that every prompt leaves room for an answer in the model's context."""
    context = lm.anatomy.context
    for q in questions:
        n = len(prompt_ids(lm, q, template))
        if context and n + new_tokens > context:
            raise BadArgument(
                f"question {q.text[:40]!r} has a prompt of {n} tokens: with {new_tokens} new ones it exceeds the"
                f" model's context of {context}"
            )


def answer(
    lm: LM, *, questions: Sequence[Question], template: bool, new_tokens: int, done: FinishedParts, progress: Progress
) -> None:
    """Generate the model's answers, and store their tokens [question, token], padded with −1."""
    prompts = [with_answer(lm, q, q.answer, template).prompt for q in questions]
    answers = generate_answers(lm, prompts, new_tokens, done=done, progress=progress)
    done[ANSWERS] = (pad_answers(answers, new_tokens),)


# --- steps 2 and 3: features


def cut_into_shards(questions: Sequence[Question]) -> dict[str, list[list[int]]]:
    """Return the indices of each shard's questions, grouped by main question."""
    groups: dict[str, list[int]] = {}
    for i, q in enumerate(questions):
        groups.setdefault(q.group, []).append(i)
    shards: list[list[list[int]]] = [[]]
    for group in groups.values():
        if sum(map(len, shards[-1])) >= MIN_SHARD:
            shards.append([])
        shards[-1].append(group)
    return {f"shard {number} of {len(shards)}": shard for number, shard in enumerate(shards, 1)}


def shard_outputs(shard: str) -> tuple[str, str]:
    """Return the names of a shard's outputs: its features, and the questions that they belong to."""
    return shard, f"questions of {shard}"


def read(
    lm: LM,
    *,
    shard: str,
    questions: Mapping[int, Question],
    groups: Sequence[Sequence[int]],
    answers: str,
    keep: str,
    k: int,
    template: bool,
    judge: Judge | None,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> None:
    """Compute the features of a shard's answers [example, layer, head, d_head].

    The second output holds the indices of their questions, which answers are right, and whether the judge failed.
    """
    examples = {i: with_answer(lm, q, q.answer, template) for i, q in questions.items()}
    texts = {i: q.answer for i, q in questions.items()}
    numbers = list(questions)
    right: list[bool] = []
    if answers == "generated":
        tokens = unpad_answers(done[ANSWERS][0])
        texts = {i: _answer_text(lm, tokens[i]) for i in questions}
        examples = {i: TokenExample(e.prompt, tuple(tokens[i])) for i, e in examples.items() if texts[i]}
        for i, e in examples.items():
            verdict = judge.ask(questions[i], texts[i], token_texts(lm, e.target), k) if judge else None
            right.append(verdict.right if verdict else is_right(texts[i], questions[i].answer))
        numbers = [i for i, is_good in zip(examples, right, strict=True) if is_good or keep == "all"]

    def choose(i: int, surprisal: np.ndarray) -> list[int]:
        parts = token_texts(lm, examples[i].target)
        verdict = judge.ask(questions[i], texts[i], parts, k) if judge and len(parts) > k else None
        return (verdict.pieces if verdict else []) or informative_tokens(parts, surprisal, k)

    wanted = set(numbers)
    groups = [members for group in groups if (members := [i for i in group if i in wanted])]
    means: dict[int, np.ndarray] = {}
    if groups:
        label = f"reading answers, {shard}"
        capture(lm, examples, groups, choose, means, batch_tokens=batch_tokens, label=label, progress=progress)
    features = np.empty((len(numbers), *_feature_shape(lm)), _feature_dtype(lm))
    for row, i in zip(features, numbers, strict=True):
        row[:] = means[i]
    given_up = judge is not None and judge.given_up
    features_name, numbers_name = shard_outputs(shard)
    done[features_name] = (features,)
    done[numbers_name] = np.array(numbers, int), np.array(right, bool), np.array([given_up])


def capture(
    lm: LM,
    examples: Sequence[TokenExample] | Mapping[int, TokenExample],
    groups: Sequence[Sequence[int]],
    choose: Choose,
    features: np.ndarray | dict[int, np.ndarray],
    *,
    batch_tokens: int | None = None,
    label: str = "reading answers",
    progress: Progress = silent,
) -> None:
    """Fill features [example, layer, head, d_head] with means of z over the tokens that `choose` picks of each answer.

    Only layers with heads are included.

    Args:
        lm: the model.
        examples: examples by index.
        groups: indices of the examples to read; the prompts of a group begin alike, so they are run together.
        choose: picks tokens of an answer.
        features: where features are stored.
        batch_tokens: tokens run through the model at once.
        label: label of the progress bar.
        progress: reports progress.
    """
    layers = lm.layers_with_heads
    budget = tokens_at_once(lm, batch_tokens)
    cut = []
    for group in groups:
        size = max(1, budget // max(len(examples[i]) for i in group))
        cut += [group[start : start + size] for start in range(0, len(group), size)]
    bundles = [make_bundle([examples[i] for i in group]) for group in cut]
    for _, batch in progress(list(batches(bundles, 1, budget)), label):
        numbers = [i for b in batch for i in cut[b]]
        with halve_batch_on_oom(lm, budget):
            states = answer_states(lm, [bundles[b] for b in batch])
        for example, (surprisal, z) in zip(numbers, states, strict=True):
            tokens = choose(example, surprisal.cpu().numpy())
            mean = z[tokens][:, layers].to(torch.promote_types(z.dtype, torch.float32)).mean(0)
            bad = ~mean.isfinite().flatten(1).all(1)
            if bad.any():
                layer = layers[int(bad.nonzero()[0])]
                raise CannotDo(
                    f"example {example}: activations in layer {layer} are NaN or infinite"
                    " (a model in float16 overflows easily: load it in bfloat16 or float32)"
                )
            features[example] = mean.cpu().numpy()


def token_texts(lm: LM, answer: Sequence[int]) -> list[str]:
    """Return an answer's tokens as text, with a leading space where a word begins."""
    texts = [text_inside(lm.tokenizer, [i]) for i in answer]
    return [f"{' ' * text.startswith(' ')}{text.strip()}" for text in texts]


def _answer_text(lm: LM, tokens: Sequence[int]) -> str:
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=True)).strip()


def _feature_shape(lm: LM) -> tuple[int, int, int]:
    return len(lm.layers_with_heads), lm.n_heads, lm.d_head


def _feature_dtype(lm: LM) -> Any:
    return np.float16 if lm.model.dtype == torch.float16 else np.float32


# --- the result


def combine(
    lm: LM,
    *,
    questions: Sequence[Question],
    shards: Sequence[str],
    answers: str,
    keep: str,
    judge: str,
    fit: Mapping[str, Any],
    asked: Mapping[str, Sequence[Question]],
    template: bool,
    new_tokens: int,
    batch_tokens: int | None,
    done: FinishedParts,
    progress: Progress,
) -> xr.Dataset:
    """Return the map, the accuracy of wording, and the outcome of the published tests.

    fit: options of `probe_map`. asked: questions of each function for the published tests; empty for no tests.
    """
    names = function_names(questions)
    texts = [q.answer for q in questions]
    generated = answers == "generated"
    if generated:
        texts = [_answer_text(lm, tokens) for tokens in unpad_answers(done[ANSWERS][0])]
    arrays = [done[shard_outputs(shard)[1]] for shard in shards]
    numbers, right, given_up = (np.concatenate(shard_arrays) for shard_arrays in zip(*arrays, strict=True))
    numbers.sort()
    if generated:
        _log_answers(texts, right)
    questions = [questions[i] for i in numbers]
    texts = [texts[i] for i in numbers]
    check_sizes(questions, " that were answered" + " right" * (keep == "correct"), names)
    data = _gather_examples(lm, questions, numbers, shards, done=done)
    labels = np.array([names.index(q.function) for q in questions])
    use = None
    if fit["kind"] == "used":
        examples = [with_answer(lm, q, text, template) for q, text in zip(questions, texts, strict=True)]
        use = used_by_answers(lm, examples, labels, data, batch_tokens=batch_tokens, progress=progress)
    result = _make_map(lm, data, labels, names, use, fit, progress)
    counts = _count_questions(questions, labels, len(names))
    share_right = right.mean() if len(right) else 0.0
    result = _with_all_layers(result, lm).merge(wording(questions, texts, labels, data))
    result = result.assign(
        questions=(("function", "split"), counts), answers_right=share_right if generated else np.nan
    ).assign_coords(split=list(SPLITS))
    if asked:
        options: dict[str, Any] = {"generate": generated, "template": template, "new_tokens": new_tokens}
        options |= {"batch_tokens": batch_tokens, "seed": fit["seed"], "progress": progress}
        result = result.merge(run_published_tests(lm, asked, labels, data, result.importance, **options))
    if given_up.any():
        # without its key, so that the next run does not reuse the result, and queries the judge again
        result = result.assign_attrs(judge=f"{judge}, given up", key="")
    return result


def _make_map(
    lm: LM,
    data: Examples,
    labels: np.ndarray,
    names: Sequence[str],
    use: np.ndarray | None,
    fit: Mapping[str, Any],
    progress: Progress,
) -> xr.Dataset:
    """Fit the probe, on the CPU if it does not fit next to the model.

    use: how much of each head's output the answers depend on; None for other kinds.
    """

    def fit_on(data: Examples) -> xr.Dataset:
        scores = use
        if fit["kind"] == "written":
            scores = written(data, labels, len(names), _output_products(lm, data.device))
        return probe_map(data, labels, names, scores=scores, progress=progress, **fit)

    try:
        return fit_on(data)
    except torch.OutOfMemoryError:
        log.warning("out of memory: the probe does not fit next to the model, so it is trained on the CPU")
        return fit_on(replace(data, device=torch.device("cpu")))


def _count_questions(questions: Sequence[Question], labels: np.ndarray, n_functions: int) -> np.ndarray:
    """Count the questions of each function and split: [function, split]."""
    split = np.array([q.split for q in questions])
    return np.array([[((split == s) & (labels == f)).sum() for s in SPLITS] for f in range(n_functions)])


def _log_answers(texts: Sequence[str], right: np.ndarray) -> None:
    if empty := sum(not text for text in texts):
        log.info("dropped %d questions with an empty answer", empty)
    log.info("%d of %d answers are right", right.sum(), len(right))


def _gather_examples(
    lm: LM, questions: Sequence[Question], numbers: np.ndarray, shards: Sequence[str], *, done: FinishedParts
) -> Examples:
    """Join the shards' features in the order of the questions; on disk, if the shards are in a folder."""
    folder = getattr(done, "folder", None)
    shape = (len(questions), *_feature_shape(lm))
    if folder is None:
        features = np.empty(shape, _feature_dtype(lm))
    else:
        features = np.lib.format.open_memmap(folder / "features.npy", mode="w+", dtype=_feature_dtype(lm), shape=shape)
    for features_name, numbers_name in map(shard_outputs, shards):
        features[np.searchsorted(numbers, done[numbers_name][0])] = done[features_name][0]
    split = np.array([q.split for q in questions])
    groups = np.unique([q.group for q in questions], return_inverse=True)[1]
    train, validation, test = (np.flatnonzero(split == s) for s in SPLITS)
    return Examples(features, train, validation, test, lm.device, groups)


def _output_products(lm: LM, device: torch.device) -> Tensor:
    """Return W_O · W_Oᵀ of each head in layers with heads, [layer, head, d_head, d_head]."""
    weights = [lm.weights.output(layer).float() for layer in lm.layers_with_heads]
    return torch.stack([(w @ w.transpose(1, 2)).to(device) for w in weights])


def _with_all_layers(result: xr.Dataset, lm: LM) -> xr.Dataset:
    """Add the layers without heads, as NaN or False."""
    result = result.assign_coords(layer=lm.layers_with_heads, head=range(lm.n_heads))
    flags = [name for name, variable in result.data_vars.items() if variable.dtype == bool]
    wide = result.drop_vars(flags).reindex(layer=range(lm.n_layers))
    return wide.merge(result[flags].reindex(layer=range(lm.n_layers), fill_value=False))


# --- elsewhere


def probe_sentences(result: xr.Dataset) -> list[str]:
    """Say how many heads are above chance, and how much words alone show."""
    lines = []
    if "clears_control" in result:
        above = int(result.clears_control.any("function").sum())
        heads = int(result.importance.isel(function=0).count())
        none = "" if above else "no function has a head above chance in this model: "
        lines.append(f"probe: {none}{above or 'none'} of {heads} heads clear what shuffled labels give")
    if {"accuracy", "bag_of_words"} <= set(result):
        words = result.bag_of_words
        text = words.wording.values[np.argmax(words.values)]
        lines.append(
            f"probe: reads the function right in {float(result.accuracy):.1%} of test questions;"
            f" words alone ({text}) in {float(words.max()):.1%}"
        )
    return lines


def ask_validation(lm: LM, subject: str) -> list[TokenExample]:
    """Return validation questions: the probe was fitted to training ones, its importance measured on test ones."""
    questions = [q for q in load_questions() if q.function == subject and q.split == "validation"]
    return [with_answer(lm, q, q.answer) for q in questions[:MAX_VALIDATION]]

"""`ha.probe`."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from headatlas.errors import BadArgument, did_you_mean
from headatlas.results.files import check_folder
from headatlas.results.store import Finished, Replies
from headatlas.methods.probe.examples import Examples
from headatlas.methods.probe.features import capture, generate_answers, pieces, shards
from headatlas.methods.probe.maps import DIMS, HIDDEN, PROBES, PUBLISHED, Training, directions, probe_map
from headatlas.methods.probe.wording import wording
from headatlas.models.answers import MEASURES, Change, answers_under
from headatlas.models.cache import cache_folder
from headatlas.models.cost import Cost, answering
from headatlas.models.cost import reading as read_cost
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.models.targets import Asked, make_sheet
from headatlas.progress import Done, Progress, doing, silent
from headatlas.runs.job import Job, Part, loaded, method, said_with, stamp_of
from headatlas.tasks.judge import Judge
from headatlas.tasks.names import FUNCTIONS
from headatlas.tasks.questions import (
    SPLITS,
    Question,
    check_sizes,
    hash_questions,
    load_questions,
    prompt_ids,
    with_answer,
)
from headatlas.tasks.scoring import informative, is_right, token_f1
from headatlas.methods.probe.proof import Ask, Trials, prove

log = logging.getLogger(__name__)

TRAINED, UPDATE = 0.7, 100.0  # of its epochs, a probe trains about so many; operations of an update of one weight
UPDATING, WORDING = 0.003, 0.003  # host seconds of an update of the probe; of a question, for what its words tell
TAKEN = 1.5  # passes that a pass costs if every head's output is taken along
MOVED = 3e7  # bytes of features a second: written, gathered, and read in every epoch
ANSWERS = ("reference", "generated")
KEEP = ("all", "correct")
PROOFS = ("score", "generate", "none")


@dataclass(frozen=True)
class Settings:
    limit: int | None  # built-in questions used
    training: Training
    controls: int  # labellings shuffled
    draws: int  # of the bootstrap
    new_tokens: int  # of a generated answer
    proof: int  # test questions of each function that the proof asks
    trials: Trials


PRESETS = {
    "quick": Settings(900, Training(30, 3e-4, 32, 5), 1, 500, 32, 6, Trials((0.05, 0.1, 0.2))),
    "full": Settings(None, PUBLISHED, 5, 2000, 128, 64, Trials((0.01, 0.02, 0.05, 0.1, 0.2, 0.3))),
}


@method
def probe(
    model: LM | str | Path = DEFAULT_MODEL,
    data: str | Path | Sequence[Any] | None = None,
    *,
    test: str | Path | Sequence[Any] | None = None,
    answers: str = "reference",
    probe: str = "published",
    preset: str = "quick",
    context: str = "retrieval",
    functions: Sequence[str] | str | None = None,
    keep: str = "all",
    k: int = 5,
    limit: int | None = None,
    template: bool = True,
    judge: str | None = None,
    judge_model: str = "gpt-4o-mini",
    proof: str = "score",
    everywhere: bool = False,
    seed: int = 0,
    tokens: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Which cognitive functions can be read from every head, beside what the wording alone would tell (docs/probe.md).

    data: a file or a list in the CogQA layout; test: the same, for the test questions. Without data, our own questions.
    answers: 'reference' ones are teacher-forced; 'generated' ones are the model's own, of which keep='correct' keeps the right.
    probe: 'published', 'per-head' classifiers, or what was 'written'. preset: 'quick' for a laptop; 'full' trains as published.
    context: which earlier steps a question is told, 'retrieval', 'all' or 'none'. functions: the eight, others by name, or 'all'.
    k: answer tokens that are kept. limit: use about so many questions. template=False: without the tokenizer's chat template.
    judge: an OpenAI-compatible endpoint that picks the tokens and says which answers are right; otherwise this is done offline.
    proof: remove and push heads while answering and 'score' the reference answers, or 'generate' and score text, or 'none'.
    everywhere: in the proof, change heads at the prompt too, not from where answering begins.
    out: a folder for probe.nc; interrupted work goes on there at the batch it had reached.
    """
    check_folder(out)
    for name, value, choices in (
        ("preset", preset, PRESETS),
        ("answers", answers, ANSWERS),
        ("probe", probe, PROBES),
        ("keep", keep, KEEP),
        ("proof", proof, PROOFS),
    ):
        if value not in choices:
            raise BadArgument(
                f"{name} is {value!r}, expected one of {', '.join(choices)}.{did_you_mean(str(value), choices)}"
            )
    numbers: tuple[tuple[str, Any, int], ...] = (("k", k, 1), ("seed", seed, 0), ("limit", limit, 1))
    for name, number, least in numbers:
        if number is not None and not (isinstance(number, Integral) and least <= int(number) < 2**63):
            raise BadArgument(f"{name} is {number!r}, expected a whole number, at least {least}")
    if keep == "correct" and answers == "reference":
        raise BadArgument(
            "keep is 'correct' with answers='reference', which are all correct: ask for answers='generated'"
        )
    settings = PRESETS[preset]
    use = settings.limit if limit is None and data is None else limit
    with doing(progress, "reading the questions"):
        questions = load_questions(data, test, context=context, functions=functions, limit=use, seed=seed)
    lm = loaded(model, device, progress)
    arbiter = Judge(judge, judge_model, Replies(cache_folder() / "judge")) if judge else None
    stamp = stamp_of(lm, hash_questions(questions), progress) | {
        "preset": preset,
        "answers": answers,
        "probe": probe,
        "context": context,
        "keep": keep,
        "k": k,
        "template": int(template),
        "judge": f"{judge_model} at {judge}" if judge else "",
        "seed": seed,
    }
    if answers == "generated" or proof == "generate":
        _check_room(lm, questions, template, settings.new_tokens)
    names = _names(questions)
    references = cache(lambda: [with_answer(lm, q, q.answer, template) for q in questions])

    def reading(used: list[Question], said: list[str], asked: Callable[[], list[Asked]]) -> list[Part]:
        """Parts that read z of some questions' answers: those of a main question together."""
        groups: dict[str, list[int]] = {}
        for i, q in enumerate(used):
            groups.setdefault(q.group, []).append(i)
        cut = shards(list(groups.values()))

        def part(number: int, some: list[Sequence[int]]) -> Part:
            name = f"shard {number} of {len(cut)}"

            def do(done: Done, progress: Progress) -> None:
                found: dict[int, np.ndarray] = {}
                choose = _chooser(lm, used, said, asked(), arbiter, k)
                capture(lm, asked(), some, choose, found, tokens=tokens, progress=said_with(progress, name))
                read = np.array([i for group in some for i in group])
                done[name] = read, np.stack([found[i] for i in read.tolist()]).astype(_precision(lm))

            def cost() -> Cost:
                return read_cost(lm, [make_sheet([asked()[i] for i in group]) for group in some], TAKEN)

            return Part(f"reading answers, {name}", (name,), do, cost=cost)

        return [part(number, some) for number, some in enumerate(cut, 1)]

    at_once = reading(questions, [q.answer for q in questions], references) if answers == "reference" else []

    def rest() -> Cost:
        training, train = settings.training, sum(q.split == SPLITS[0] for q in questions)
        size = HIDDEN * DIMS * lm.n_layers * lm.n_heads  # weights of the probe's first large matrix
        epoch = 6.0 * size * train + UPDATE * size * train / training.batch
        fits = (1 + settings.controls) * training.epochs * TRAINED
        features = 4.0 * len(questions) * lm.n_layers * lm.n_heads * lm.d_head
        host = UPDATING * fits * train / training.batch + WORDING * len(questions) + features / MOVED
        found = Cost(operations=fits * epoch, seconds=host)
        if proof != "none":
            trials, steps = settings.trials, len(settings.trials.shares)
            changes = 1 + steps * (2 + trials.draws) + len(names) + 2 * (1 + trials.order_draws) + len(trials.alphas)
            tested = [
                i for f in names for i in [i for i, q in enumerate(questions) if q.function == f][: settings.proof]
            ]
            found += answering(lm, [references()[i] for i in tested], changes, everywhere)
        return found

    def work(done: Done, progress: Progress) -> xr.Dataset:
        used, said, share_right = questions, [q.answer for q in questions], np.nan
        asked, parts = references(), at_once
        if answers == "generated":
            options: dict[str, Any] = {"done": done, "progress": progress}
            ids = generate_answers(lm, [a.prompt for a in asked], settings.new_tokens, **options)
            said = [lm.tokenizer.decode(new, skip_special_tokens=True).strip() for new in ids]
            asked = [Asked(a.prompt, tuple(new)) for a, new in zip(asked, ids, strict=True)]
            kept, share_right = _usable(lm, used, said, asked, keep, arbiter, k)
            used, said, asked = [used[i] for i in kept], [said[i] for i in kept], [asked[i] for i in kept]
            check_sizes(used, " that were answered" + " right" * (keep == "correct"))
            parts = reading(used, said, lambda: asked)
            for part in parts:
                if part.missing(done):
                    part.do(done, progress)
        features = _room(done, lm, len(used))
        for part in parts:
            read, found_there = done[part.leaves[0]]
            features[read] = found_there
        split = np.array([q.split for q in used])
        train, validation, tested = (np.flatnonzero(split == s) for s in SPLITS)
        main = np.unique([q.group for q in used], return_inverse=True)[1]
        examples = Examples(features, train, validation, tested, lm.device, main)
        labels = np.array([names.index(q.function) for q in used])
        found = probe_map(
            examples,
            labels,
            names,
            kind=probe,
            write=_writing(lm) if probe == "written" else None,
            training=settings.training,
            controls=settings.controls,
            draws=settings.draws,
            seed=seed,
            progress=progress,
        )
        found = _all_layers(found, lm).merge(wording(used, said, labels, examples))
        counts = [[int(((split == s) & (labels == c)).sum()) for s in SPLITS] for c in range(len(names))]
        found = found.assign(questions=(("function", "split"), counts), answers_right=share_right)
        found = found.assign_coords(split=list(SPLITS))
        if proof != "none":
            there = torch.tensor([i not in lm.layers_without_heads for i in range(lm.n_layers)])
            pushes = torch.zeros(len(names), lm.n_layers, lm.n_heads, lm.d_head)
            pushes[:, there] = directions(examples, labels, len(names))
            chosen = {f: tested[labels[tested] == c][: settings.proof].tolist() for c, f in enumerate(names)}
            ask, measures = _asking(lm, proof, used, chosen, template, settings.new_tokens, everywhere, tokens)
            proven = prove(ask, measures, found.importance, pushes, settings.trials, seed=seed, progress=progress)
            found = found.merge(proven).assign(proof_questions=("function", [len(chosen[f]) for f in names]))
        if arbiter and arbiter.given_up:  # it counts as another result: asked again, the judge may be there
            found = found.assign_attrs(judge=f"{stamp['judge']}, given up", key="")
        return found

    return Job(
        "probe",
        f"{len(questions)} questions, {len(names)} functions, {answers} answers; proof: {proof}",
        stamp,
        work,
        {"proof": proof, "everywhere": int(bool(everywhere))} | _flat_settings(settings, proof),
        None if out is None else Path(out),
        progress,
        at_once,
        rest,
    )


def _flat_settings(settings: Settings, proof: str) -> dict[str, Any]:
    """What the preset stands for, as attributes of a file."""
    given = asdict(settings)
    training, trials, asked = given.pop("training"), given.pop("trials"), given.pop("proof")
    del given["limit"]  # the questions themselves are in the key
    proven = {"asked": asked} | {k: list(v) if isinstance(v, tuple) else v for k, v in trials.items()}
    return training | given | ({f"proof_{k}": v for k, v in proven.items()} if proof != "none" else {})


def _names(questions: Sequence[Question]) -> list[str]:
    """The functions there are, in the order of figures; others after them."""
    there = {q.function for q in questions}
    return [f for f in FUNCTIONS if f in there] + sorted(there - set(FUNCTIONS))


def _check_room(lm: LM, questions: Sequence[Question], template: bool, new_tokens: int) -> None:
    """That every prompt leaves room for an answer, before any work is done."""
    for q in questions:
        n = len(prompt_ids(lm, q, template))
        if lm.anatomy.context and n + new_tokens > lm.anatomy.context:
            raise BadArgument(
                f"question {q.text[:40]!r} is a prompt of {n} tokens: with {new_tokens} new ones it exceeds the model's context of"
                f" {lm.anatomy.context}"
            )


def _usable(
    lm: LM, questions: list[Question], said: list[str], asked: list[Asked], keep: str, judge: Judge | None, k: int
) -> tuple[list[int], float]:
    """Which questions have an answer, and, if asked, a right one; the share of right ones."""
    there = [i for i, text in enumerate(said) if text]
    if len(there) < len(said):
        log.info("dropped %d questions that the model answered with nothing", len(said) - len(there))
    right = []
    for i in there:
        verdict = judge.ask(questions[i], said[i], pieces(lm, asked[i].target), k) if judge else None
        right.append(verdict.right if verdict else is_right(said[i], questions[i].answer))
    log.info("%d of %d answers are right", sum(right), len(right))
    return [i for i, good in zip(there, right, strict=True) if good or keep == "all"], sum(right) / max(1, len(right))


def _chooser(
    lm: LM, questions: list[Question], said: list[str], asked: list[Asked], judge: Judge | None, k: int
) -> Callable[[int, np.ndarray], list[int]]:
    def choose(i: int, surprisal: np.ndarray) -> list[int]:
        parts = pieces(lm, asked[i].target)
        verdict = judge.ask(questions[i], said[i], parts, k) if judge and len(parts) > k else None
        return (verdict.pieces if verdict else []) or informative(parts, surprisal, k)

    return choose


def _precision(lm: LM) -> Any:
    return np.float16 if lm.model.dtype == torch.float16 else np.float32


def _room(done: Done, lm: LM, n: int) -> np.ndarray:
    """An array for features [example, layer, head, d_head]: on disk, where there is a folder of finished parts."""
    shape = (n, lm.n_layers - len(lm.layers_without_heads), lm.n_heads, lm.d_head)
    if not isinstance(done, Finished):
        return np.empty(shape, _precision(lm))
    return np.lib.format.open_memmap(done.folder / "features.npy", mode="w+", dtype=_precision(lm), shape=shape)


def _writing(lm: LM) -> torch.Tensor:
    """W_O · W_Oᵀ of each head, [layer, head, d_head, d_head], layers with heads only."""
    there = [i for i in range(lm.n_layers) if i not in lm.layers_without_heads]
    out = [lm.weights.output(layer).float() for layer in there]
    return torch.stack([(w @ w.transpose(1, 2)).to(lm.device) for w in out])


def _all_layers(found: xr.Dataset, lm: LM) -> xr.Dataset:
    """With the layers that have no heads: NaN, or False."""
    there = [i for i in range(lm.n_layers) if i not in lm.layers_without_heads]
    found = found.assign_coords(layer=there, head=range(lm.n_heads))
    flags = [name for name, variable in found.data_vars.items() if variable.dtype == bool]
    wide = found.drop_vars(flags).reindex(layer=range(lm.n_layers))
    return wide.merge(found[flags].reindex(layer=range(lm.n_layers), fill_value=False))


def _asking(
    lm: LM,
    proof: str,
    questions: list[Question],
    tested: dict[str, list[int]],
    template: bool,
    new_tokens: int,
    everywhere: bool,
    tokens: int | None,
) -> tuple[Ask, tuple[str, ...]]:
    """How the proof measures answers, and the names of the measures."""

    def score(function: str, changes: list[Change]) -> np.ndarray:
        asked = [with_answer(lm, questions[i], questions[i].answer, template) for i in tested[function]]
        return answers_under(lm, asked, changes, everywhere=everywhere, tokens=tokens).numpy()

    def generate(function: str, changes: list[Change]) -> np.ndarray:
        prompts = [prompt_ids(lm, questions[i], template) for i in tested[function]]
        found = np.empty((len(changes), len(prompts), 2))
        for c, change in enumerate(changes):
            with ExitStack() as stack:
                where: Any = "all" if everywhere else "last"
                stack.enter_context(lm.gated(change.gate, positions=where))
                if change.add is not None:
                    heads = change.add.abs().sum(-1) > 0
                    stack.enter_context(lm.patched(heads, change.add, add=True, positions=where))
                new = generate_answers(lm, prompts, new_tokens)
            for e, i in enumerate(tested[function]):
                text, reference = lm.tokenizer.decode(new[e], skip_special_tokens=True), questions[i].answer
                found[c, e] = token_f1(text, reference), is_right(text, reference)
        return found

    return (score, MEASURES) if proof == "score" else (generate, ("f1", "right"))

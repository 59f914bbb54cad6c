"""What `streaming` does piece by piece: the map of each task, its proof on other texts, the result."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from headatlas.errors import BadArgument, check_count
from headatlas.evidence.control import Heads, compare_with_random, correct_p, gates_without, same_layers
from headatlas.methods._seeds import MOST_EXAMPLES, MOST_UPDATES
from headatlas.methods.method import Part, Work
from headatlas.methods.streaming.learned import Fit, fit_alpha
from headatlas.methods.streaming.scores import bundles_of, log_p_of_sets, losses_one_by_one
from headatlas.methods.streaming.texts import MOST_KEYS, Texts, Window, passkey_texts, rows_of_task, texts_of_task
from headatlas.models.cost import Cost, learning, reading
from headatlas.models.lm import LM
from headatlas.progress import Done, Progress
from headatlas.tasks.prompts import load_tasks
from headatlas.tasks.used import Used, used_rows

TEXTS = {"one": 2, "learned": 8}  # of a map
EIGHTH, QUARTER = 8, 4  # of a text is recent; of that is sink. In 2,048 tokens: 256 and 64, as published


@dataclass(frozen=True)
class Options:
    """Those of the call, checked."""

    kind: str
    sink: int | None
    recent: int | None
    length: int
    keys: int
    limit: int | None
    updates: int
    strength: float
    lr: float
    held_out: int
    draws: int
    batch_tokens: int | None

    def __post_init__(self) -> None:
        if self.recent is not None:
            check_count("recent", self.recent, 1)
        if self.sink is not None:
            check_count("sink", self.sink, 0)
        if self.limit is not None:
            check_count("limit", self.limit, 2, MOST_EXAMPLES, "a map is also made of each half of them")
        check_count("length", self.length, 1)
        check_count("keys", self.keys, 1, MOST_KEYS, "so many doors have names of their own")
        check_count("updates", self.updates, 1, MOST_UPDATES)
        check_count("held_out", self.held_out, 0, MOST_EXAMPLES)
        check_count("draws", self.draws, 1, MOST_EXAMPLES)
        for name in ("strength", "lr"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise BadArgument(f"{name} is {value!r}, expected a number above 0")

    @property
    def texts(self) -> int:
        return TEXTS[self.kind] if self.limit is None else self.limit

    def window(self, longest: int) -> Window:
        """For texts of at most so many tokens."""
        recent = max(1, longest // EIGHTH) if self.recent is None else self.recent
        sink = max(1, recent // QUARTER) if self.sink is None else self.sink
        if sink + recent >= longest:
            raise BadArgument(
                f"sink is {sink} and recent is {recent}, expected together less than {longest}:"
                " so long is the longest text, and nothing would be out of sight"
            )
        return Window(sink, recent)


@dataclass(frozen=True)
class Piece:
    """A part of the work: one task, and some layers where heads stream one by one."""

    name: str
    texts: Texts
    window: Window
    batch_tokens: int | None
    layers: tuple[int, ...] = ()
    fit: Fit | None = None


def streaming_work(lm: LM, tasks: Any, options: Options) -> Work:
    texts, window, used = _texts(lm, tasks, options)
    fit = Fit(options.updates, options.strength, options.lr) if options.kind == "learned" else None
    spans = [tuple(span) for span in lm.anatomy.layer_groups()]
    pieces, parts = [], []
    for of in texts:
        piece = partial(Piece, texts=of, window=window, batch_tokens=options.batch_tokens)
        if fit is None:
            own = [piece(f"{of.name}: streaming, layers {s[0]} to {s[-1]}", layers=s) for s in spans]
            parts += [Part(name=p.name, do=measure_losses, arguments=(p,), cost=losses_cost) for p in own]
        else:
            own = [piece(f"{of.name}: streaming, learned", fit=fit)]
            parts += [Part(name=p.name, do=measure_alpha, arguments=(p,), cost=alpha_cost) for p in own]
        if options.held_out:
            name, needs = _proof_name(of, options.draws), tuple(p.name for p in own)
            parts.append(
                Part(
                    name=name, do=prove, arguments=(own, options.draws), outputs=(name,), inputs=needs, cost=proof_cost
                )
            )
        pieces.append(own)
    settings = {"kind": options.kind, "sink": window.sink, "recent": window.recent}
    if fit is not None:
        settings |= {"updates": fit.updates, "strength": float(fit.strength), "lr": float(fit.lr)}
    return Work(
        summary=f"{', '.join(t.name for t in texts)}: {len(texts[0].measured)} texts of up to"
        f" {max(t.longest for t in texts)} tokens, {options.kind},"
        f" first {window.sink} and last {window.recent} tokens seen",
        combine=combine,
        arguments=(pieces, options.draws if options.held_out else 0),
        parts=parts,
        data=hashlib.sha256(repr(texts).encode()).hexdigest()[:16],
        settings=settings,
        result_settings={"held_out": options.held_out, "draws": options.draws},
        used=used,
    )


def _texts(lm: LM, tasks: Any, options: Options) -> tuple[list[Texts], Window, Used]:
    if tasks is not None:
        chosen = load_tasks(lm, tasks)
        texts = [texts_of_task(lm, task, options.texts, options.held_out) for task in chosen]
        rows = (row for task in chosen for row in rows_of_task(task, options.texts, options.held_out))
        return texts, options.window(max(t.longest for t in texts)), used_rows(chosen, rows)
    length = min(options.length, lm.anatomy.context or options.length)
    window = options.window(length)
    return [passkey_texts(lm, length, options.keys, window, options.texts, options.held_out)], window, Used()


# --- maps


def measure_losses(lm: LM, piece: Piece, *, done: Done, progress: Progress) -> None:
    """Leaves the losses [text, layer, kv_head] and, of the whole model, log P and the share of right tokens [text]."""
    results = losses_one_by_one(
        lm, piece.texts.measured, piece.window, piece.layers,
        tokens=piece.batch_tokens, label=piece.name, progress=progress,
    )  # fmt: skip
    done[piece.name] = tuple(r.numpy() for r in results)


def losses_cost(lm: LM, piece: Piece) -> Cost:
    """Of each layer, what lies above it."""
    above = sum(lm.n_layers - layer for layer in piece.layers) / lm.n_layers
    return reading(lm, bundles_of(piece.texts.measured), 1 + lm.n_kv_heads * above, tokens=piece.batch_tokens)


def measure_alpha(lm: LM, piece: Piece, *, done: Done, progress: Progress) -> None:
    """Leaves α [layer, kv_head], the distances [update] and, of the whole model, log P and right tokens [text]."""
    assert piece.fit is not None
    results = fit_alpha(lm, piece.texts.measured, piece.window, piece.fit, label=piece.name, progress=progress)
    done[piece.name] = tuple(r.numpy() for r in results)


def alpha_cost(lm: LM, piece: Piece) -> Cost:
    assert piece.fit is not None
    texts = piece.texts.measured
    each = piece.fit.updates / len(texts)
    return sum((each * (learning(lm, [text]) + reading(lm, [text])) for text in bundles_of(texts)), Cost())


def _map(lm: LM, pieces: list[Piece], done: Done) -> np.ndarray:
    """The need of every KV head: the loss by text [text, layer, kv_head], or α [1, layer, kv_head]."""
    values = np.full((len(pieces[0].texts.measured), lm.n_layers, lm.n_kv_heads), np.nan, np.float32)
    if pieces[0].fit is not None:
        values = values[:1]
        rows = lm.layers_with_heads
        values[:, rows] = done[pieces[0].name][0][rows]
        return values
    for piece in pieces:
        values[:, list(piece.layers)] = done[piece.name][0]
    return values


# --- proof on other texts


def _proof_name(texts: Texts, draws: int) -> str:
    return f"{texts.name}: streaming, proof with {draws} draws"


def prove(lm: LM, pieces: list[Piece], draws: int, *, done: Done, progress: Progress) -> None:
    """Measure how log P changes with KV heads streaming: the lower half of the map, random halves like it, the upper
    half, and all of them."""
    piece = pieces[0]
    generator = np.random.default_rng(0)
    lower, upper = halves(_map(lm, pieces, done).mean(0), generator)
    name = _proof_name(piece.texts, draws)

    def log_p_streaming(sets: Sequence[Heads]) -> np.ndarray:
        alpha = gates_without(sets, (lm.n_layers, lm.n_kv_heads))
        log_p = log_p_of_sets(
            lm,
            piece.texts.held_out,
            piece.window,
            alpha,
            tokens=piece.batch_tokens,
            label=name,
            progress=progress,
        )
        return log_p.mean(1).numpy()

    control = compare_with_random(
        log_p_streaming,
        [lower],
        same_layers(lm.n_kv_heads, generator),
        draws=draws,
        direction="higher",
        draws_per_round=draws,
        stop_early=False,
        reference=[],
    )
    rest = log_p_streaming([upper, lower + upper]) - control.reference
    done[name] = (control.effect[0], control.random_effect[0], control.p[0], rest, np.array(len(lower)))


def proof_cost(lm: LM, pieces: list[Piece], draws: int) -> Cost:
    return reading(lm, bundles_of(pieces[0].texts.held_out), 4 + draws, tokens=pieces[0].batch_tokens)


def halves(need: np.ndarray, generator: np.random.Generator) -> tuple[Heads, Heads]:
    """The half of a map [layer, kv_head] with the lowest need, and the rest; equal ones fall to either by chance."""
    there = [(int(a), int(b)) for a, b in zip(*np.nonzero(np.isfinite(need)), strict=True)]
    ordered = [there[i] for i in np.lexsort((generator.random(len(there)), [need[h] for h in there]))]
    return ordered[: len(there) // 2], ordered[len(there) // 2 :]


# --- result


def combine(lm: LM, pieces: list[list[Piece]], draws: int, *, done: Done, progress: Progress) -> xr.Dataset:
    """pieces: those of each task."""
    results = []
    for own in pieces:
        result = _result(lm, own, done)
        if draws:
            result = result.assign(_proof(*done[_proof_name(own[0].texts, draws)]))
        results.append(result)
    names = [own[0].texts.name for own in pieces]
    result = xr.concat(results, "task").assign_coords(task=names, layer=range(lm.n_layers), head=range(lm.n_heads))
    return result.assign(p_corrected=("task", correct_p(result.p.values))) if draws else result


def _proof(
    effect: np.ndarray, random_effect: np.ndarray, p: np.ndarray, rest: np.ndarray, n: np.ndarray
) -> dict[str, Any]:
    """Name the arrays of `prove`."""
    return {
        "effect": ((), effect, {"heads": "lowest"}),  # for tables: it is not the top ones that stream
        "random_effect": ("draw", random_effect),
        "rest_effect": rest[0],
        "all_effect": rest[1],
        "p": p,
        "n_removed": int(n),
    }


def _result(lm: LM, pieces: list[Piece], done: Done) -> xr.Dataset:
    values, left = _map(lm, pieces, done), done[pieces[0].name]
    size = lm.n_heads // lm.n_kv_heads
    need = values.repeat(size, axis=2)  # [text, layer, head]
    result = xr.Dataset(
        {
            "need": (("layer", "head"), need.mean(0)),
            "baseline": left[-2].mean(),
            "whole_accuracy": left[-1].mean(),
            "examples": len(pieces[0].texts.measured),
        },
        coords={"kv_head": range(lm.n_kv_heads)},
    )
    per_group = (("layer", "kv_head"), values.mean(0))
    if pieces[0].fit is not None:
        return result.assign(gate=per_group, distance=("update", left[1]))
    parts = np.stack([need[half::2].mean(0) for half in (0, 1)])
    result = result.assign(loss=per_group, need_half=(("half", "layer", "head"), parts))
    return result.assign_coords(half=["first", "second"])

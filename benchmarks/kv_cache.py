"""Measure whether maps help to compress a KV cache: what is lost when the KV heads with the lowest need stream.

    python benchmarks/kv_cache.py [--model smollm2] [--device auto] [--length 1024] [--texts 8] [--draws 5] [--out FILE]
    python benchmarks/kv_cache.py --length 256 --texts 1 --draws 1        less than ten minutes on one busy core

A KV head either stores all tokens or streams: it stores the first `sink` and the last `recent` tokens. The number of
streaming heads is such that a text of `length` tokens takes 25, 50 or 75 % of the cache. They are selected

    streaming, retrieval   by the map (of retrieval, the maximum over a KV group): the lowest scores stream
    learned                by streaming of kind learned, as in DuoAttention
    kvpress                by the scores of kvpress, with --kvpress FILE.npy (written by benchmarks/kvpress_scores.py)
    random, as …           at random, with the same number in every layer as that map; mean over the draws
    uniform                all heads stream, with the longest window that the share allows

The maps are made here, from texts that are not used again. Measured: passkeys, the share of digits that are the most
likely token; needles, the same for the tokens of an answer; perplexity of the second half of a text. Answers are
teacher-forced: each token is predicted after the correct ones before it.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from common import make_parser

import headatlas as ha
from headatlas.methods.streaming.compute import scored_log_p
from headatlas.methods.streaming.texts import ScoredText, Window, passkey_texts
from headatlas.models.memory import tokens_at_once
from headatlas.tasks.needles import hide_needle, load_needles, load_sentences

SHARES = (0.25, 0.5, 0.75)
# Needles that the retrieval map is made from and checked with.
MAP_NEEDLES = 10


def needle_texts(lm: ha.LM, length: int, n: int) -> list[ScoredText]:
    """Make texts with needles that the map has not used, at depths from 20 % to 60 %, and their answers."""
    needles = next(iter(load_needles().values()))[MAP_NEEDLES:]
    texts = []
    for i, needle in enumerate(needles[:n]):
        answer = lm.tokenizer(f" {needle.answer}", add_special_tokens=False)["input_ids"]
        ids = hide_needle(lm, needle, load_sentences(), length - len(answer), 0.2 + 0.4 * i / n, template=False).ids
        texts.append(ScoredText((*ids, *answer), tuple(range(len(ids), len(ids) + len(answer)))))
    return texts


def long_texts(lm: ha.LM, length: int, n: int) -> list[ScoredText]:
    """Make pieces of the built-in text, of which the second half is scored."""
    ids = lm.tokenizer(" ".join(load_sentences()))["input_ids"]
    starts = range(0, max(1, len(ids) - length), max(1, (len(ids) - length) // n))
    pieces = [tuple(ids[start : start + length]) for start in starts][:n]
    return [ScoredText(piece, tuple(range(len(piece) // 2, len(piece)))) for piece in pieces]


def keep_highest(score: np.ndarray, n_full: int) -> torch.Tensor:
    """Return alpha [layer, kv_head]: 1 for the n_full highest scores."""
    alpha = np.zeros(score.size)
    alpha[np.argsort(-score, axis=None, kind="stable")[:n_full]] = 1
    return torch.tensor(alpha.reshape(score.shape), dtype=torch.float32)


def draw_matched(alpha: torch.Tensor, draws: int) -> list[torch.Tensor]:
    """Draw sets with the same number of KV heads in every layer."""
    generator = np.random.default_rng(0)
    return [torch.tensor(generator.permuted(alpha.numpy(), axis=1)) for _ in range(draws)]


@torch.no_grad()
def measure_quality(
    lm: ha.LM, texts: dict[str, Sequence[ScoredText]], window: Window, sets: list[torch.Tensor]
) -> dict[str, float]:
    """Return the mean over sets and texts. Texts are run one at a time, with the number of sets that fits."""
    values: dict[str, list[float]] = {name: [] for name in texts}
    for name, texts_of_kind in texts.items():
        for text in texts_of_kind:
            for alpha in torch.stack(sets).split(max(1, tokens_at_once(lm, None) // len(text))):
                log_p, right = scored_log_p(lm, [text], window, alpha)
                values[name] += (log_p if name == "perplexity" else right).flatten().tolist()
    return {n: float(np.exp(-np.mean(v)) if n == "perplexity" else np.mean(v)) for n, v in values.items()}


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", length=1024, texts=8, draws=5)
    parser.add_argument("--kvpress", type=Path, help="scores written by benchmarks/kvpress_scores.py")
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    options = parser.parse_args()
    lm = ha.load(options.model, options.device)
    length = options.length
    window = Window(length // 32, length // 8)
    windows = {"length": length, "sink": window.sink, "recent": window.recent, "held_out": 0}
    scores = {
        "streaming": ha.streaming(lm, **windows).loss.values[0],
        "learned": ha.streaming(lm, kind="learned", **windows).gate.values[0],
    }
    copy_scores = np.nan_to_num(ha.retrieval(lm, lengths=(length,), limit=MAP_NEEDLES - 4).score.values[0])
    scores["retrieval"] = copy_scores.reshape(lm.n_layers, lm.n_kv_heads, -1).max(-1)
    if options.kvpress:
        scores["kvpress"] = np.load(options.kvpress)
    texts: dict[str, Sequence[ScoredText]] = {
        "passkeys": passkey_texts(lm, length, 8, window, 1, options.texts).held_out,
        "needles": needle_texts(lm, length, options.texts),
        "perplexity": long_texts(lm, length, max(1, options.texts // 2)),
    }
    everything = torch.ones(lm.n_layers, lm.n_kv_heads)
    rows: list[dict[str, float | str]] = []
    print(f"{lm}\n{length} tokens, sink {window.sink}, recent {window.recent}; texts: {options.texts}")
    print(f"{'cache':>6}  {'chosen by':<22}{'passkeys':>9}{'needles':>9}{'perplexity':>12}", flush=True)

    def add_row(share: float, selection: str, sets: list[torch.Tensor], row_window: Window = window) -> None:
        values = measure_quality(lm, texts, row_window, sets)
        rows.append({"cache": share, "chosen by": selection} | values)
        cells = f"{values['passkeys']:9.2f}{values['needles']:9.2f}{values['perplexity']:12.2f}"
        print(f"{share:6.0%}  {selection:<22}{cells}", flush=True)
        if options.out:
            settings = {name: str(value) for name, value in vars(options).items()}
            options.out.write_text(json.dumps(settings | {"rows": rows}, indent=2) + "\n")

    add_row(1.0, "whole model", [everything])
    window_share = (window.sink + window.recent) / length
    for share in SHARES:
        n_full = round(everything.numel() * (share - window_share) / (1 - window_share))
        for name, score in scores.items():
            selected = keep_highest(score, n_full)
            add_row(share, name, [selected])
            add_row(share, f"random, as {name}", draw_matched(selected, options.draws))
        wide_window = Window(window.sink, round(share * length) - window.sink)
        add_row(share, "uniform", [0 * everything], wide_window)


if __name__ == "__main__":
    main()

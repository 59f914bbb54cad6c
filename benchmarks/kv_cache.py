"""Does a map help to compress a cache? What is lost when KV heads that need it least see first and last tokens only.

    python benchmarks/kv_cache.py [--model smollm2] [--device auto] [--length 1024] [--texts 8] [--draws 5] [--out FILE]
    python benchmarks/kv_cache.py --length 256 --texts 1 --draws 1        less than ten minutes on one busy core

At 25, 50 and 75 % of the cache: KV heads keep everything, or the first `sink` and the last `recent` tokens, so many of
them that a text of `length` tokens takes this share of the cache. They are chosen

    streaming, retrieval   by the map (of retrieval, the maximum over a KV group): the lowest stream
    learned                by streaming of kind learned, DuoAttention's own way
    kvpress                by kvpress' own scores, with --kvpress FILE.npy (written by benchmarks/kvpress_scores.py)
    random, as …           at random, as many in every layer as by that map; mean over the draws
    uniform                all stream, with as long a window as the share allows

Our maps are made here, from texts that are not used again. Measured: passkeys, the share of their digits that are
likeliest; needles, the same of the words of an answer, after the question; perplexity of the second half of a text.
Answers are given, not generated: each token is predicted after the right ones before it.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from common import arguments

import headatlas as ha
from headatlas.methods.streaming.compute import scored_log_p
from headatlas.methods.streaming.texts import ScoredText, Window, passkey_texts
from headatlas.models.memory import tokens_at_once
from headatlas.tasks.needles import hide, load_needles, load_sentences

SHARES = (0.25, 0.5, 0.75)
MAPPED = 10  # needles that the retrieval map is made from, and checked with


def needle_texts(lm: ha.LM, length: int, n: int) -> list[ScoredText]:
    """Needles that the map has not seen, at depths from a fifth to three fifths, and their answers."""
    needles, made = next(iter(load_needles().values()))[MAPPED:], []
    for i, needle in enumerate(needles[:n]):
        answer = lm.tokenizer(f" {needle.answer}", add_special_tokens=False)["input_ids"]
        ids = hide(lm, needle, load_sentences(), length - len(answer), 0.2 + 0.4 * i / n, template=False).ids
        made.append(ScoredText((*ids, *answer), tuple(range(len(ids), len(ids) + len(answer)))))
    return made


def long_texts(lm: ha.LM, length: int, n: int) -> list[ScoredText]:
    """Pieces of our own text, of which the second half is scored."""
    ids = lm.tokenizer(" ".join(load_sentences()))["input_ids"]
    starts = range(0, max(1, len(ids) - length), max(1, (len(ids) - length) // n))
    pieces = [tuple(ids[start : start + length]) for start in starts][:n]
    return [ScoredText(piece, tuple(range(len(piece) // 2, len(piece)))) for piece in pieces]


def lowest(score: np.ndarray, n_full: int) -> torch.Tensor:
    """alpha [layer, kv_head]: 1 for the n_full highest."""
    alpha = np.zeros(score.size)
    alpha[np.argsort(-score, axis=None, kind="stable")[:n_full]] = 1
    return torch.tensor(alpha.reshape(score.shape), dtype=torch.float32)


def shuffled(alpha: torch.Tensor, draws: int) -> list[torch.Tensor]:
    """Other KV heads of the same layers."""
    generator = np.random.default_rng(0)
    return [torch.tensor(generator.permuted(alpha.numpy(), axis=1)) for _ in range(draws)]


@torch.no_grad()
def measured(
    lm: ha.LM, texts: dict[str, Sequence[ScoredText]], window: Window, sets: list[torch.Tensor]
) -> dict[str, float]:
    """The mean over sets and texts; one text at a time, and as many sets as fit."""
    each: dict[str, list[float]] = {name: [] for name in texts}
    for name, some in texts.items():
        for text in some:
            for alpha in torch.stack(sets).split(max(1, tokens_at_once(lm, None) // len(text))):
                log_p, right = scored_log_p(lm, [text], window, alpha)
                each[name] += (log_p if name == "perplexity" else right).flatten().tolist()
    return {n: float(np.exp(-np.mean(v)) if n == "perplexity" else np.mean(v)) for n, v in each.items()}


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto", length=1024, texts=8, draws=5)
    parser.add_argument("--kvpress", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lm, length = ha.load(options.model, options.device), options.length
    window = Window(length // 32, length // 8)
    windows = {"length": length, "sink": window.sink, "recent": window.recent, "held_out": 0}
    scores = {
        "streaming": ha.streaming(lm, **windows).loss.values[0],
        "learned": ha.streaming(lm, kind="learned", **windows).gate.values[0],
    }
    copied = np.nan_to_num(ha.retrieval(lm, lengths=(length,), limit=MAPPED - 4, causal=0).score.values[0])
    scores["retrieval"] = copied.reshape(lm.n_layers, lm.n_kv_heads, -1).max(-1)
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

    def row(share: float, by: str, sets: list[torch.Tensor], seen: Window = window) -> None:
        values = measured(lm, texts, seen, sets)
        rows.append({"cache": share, "chosen by": by} | values)
        told = f"{values['passkeys']:9.2f}{values['needles']:9.2f}{values['perplexity']:12.2f}"
        print(f"{share:6.0%}  {by:<22}{told}", flush=True)
        if options.out:
            asked = {name: str(value) for name, value in vars(options).items()}
            options.out.write_text(json.dumps(asked | {"rows": rows}, indent=2) + "\n")

    row(1.0, "whole model", [everything])
    kept = (window.sink + window.recent) / length
    for share in SHARES:
        n_full = round(everything.numel() * (share - kept) / (1 - kept))
        for name, score in scores.items():
            chosen = lowest(score, n_full)
            row(share, name, [chosen])
            row(share, f"random, as {name}", shuffled(chosen, options.draws))
        wide = Window(window.sink, round(share * length) - window.sink)
        row(share, "uniform", [0 * everything], wide)


if __name__ == "__main__":
    main()

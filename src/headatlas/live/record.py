"""Record answers into a page, so that it works from disk: a few prompts, with the heads that matter most for them."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from headatlas.errors import BadArgument, BadFile, CannotDo
from headatlas.evidence.control import top_heads
from headatlas.live.answers import Live
from headatlas.live.question import Question
from headatlas.live.tab import live_tab
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.report.page import Tab
from headatlas.results.charts import stack_maps

MAX_PROMPTS = 20
HEADS_BY_EFFECT = 4  # heads per prompt whose removal costs most
HEADS_BY_ATLAS = 4  # heads per prompt that are at the top of the atlas's maps


def read_prompts(path: str | Path) -> list[dict[str, str]]:
    """Read prompts, one per line; after an optional tab, the answer to follow."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as e:
        raise BadFile(f"{path} is not UTF-8 text: {e}") from e
    prompts = [dict(zip(("prompt", "target"), line.split("\t"), strict=False)) for line in lines if line.strip()]
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        raise BadArgument(f"examples is {str(path)!r} with {len(prompts)} prompts, expected 1 to {MAX_PROMPTS}")
    return [{"title": _short(p["prompt"]), "target": "", **p} for p in prompts]


def record(lm: LM, maps: Mapping[str, Any], prompts: Sequence[Mapping[str, str]], progress: Progress = silent) -> Tab:
    """Make the tab of a page with recorded answers to what readers can ask about these prompts."""
    live = Live(lm, lm.name)
    answers: dict[str, Any] = {}
    atlas_heads = _top_heads(maps)
    for number, prompt in enumerate(progress(list(prompts), "recording prompts")):
        base = Question(prompt["prompt"], target=prompt["target"])

        def store(kind: str, question: Question, *where: int, number: int = number) -> Any:
            heads = " ".join(f"{layer}.{head}.{scale:g}" for layer, head, scale in question.heads)
            key = "|".join([kind, str(number), heads, *map(str, where)])
            answers[key] = _final_answer(live, kind, question)
            return answers[key]

        for kind in ("next", "direct", "slope", "continuation", "script"):
            store(kind, base)
        effect = _unpack(store("exact", base)["map"], lm)
        heads = dict.fromkeys([*top_heads(effect, HEADS_BY_EFFECT), *atlas_heads[:HEADS_BY_ATLAS]])
        for layer, head in (h for h in heads if h[0] in lm.layers_with_heads):
            about_head = Question(base.prompt, target=base.target, layer=layer, head=head)
            # Some models do not give their attention.
            with suppress(CannotDo):
                store("attention", about_head, layer, head)
                store("thumbnails", about_head, layer)
            store("writes", about_head, layer, head, -1)
            without = Question(base.prompt, ((layer, head, 0.0),), base.target)
            for kind in ("next", "direct", "slope", "continuation", "control", "script"):
                store(kind, without)
    return live_tab(lm, prompts, answers)


def _final_answer(live: Live, kind: str, question: Question) -> Any:
    *_, last = live.kinds[kind](question)
    return last["result"]


def _unpack(text: str, lm: LM) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(lm.n_layers, lm.n_heads)


def _top_heads(maps: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the top head of every chart with heads above chance, those of the most charts first."""
    charts = stack_maps({method: result.assign_attrs(method=method) for method, result in maps.items()})
    counts: dict[tuple[int, int], int] = {}
    for i in range(charts.sizes["chart"]):
        chart = charts.isel(chart=i)
        if not bool(chart.none_above):
            (row, column), *_ = top_heads(chart.score.values, 1)
            name = (int(chart["layer"][row]), int(chart["head"][column]))
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"

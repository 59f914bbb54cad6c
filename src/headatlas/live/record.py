"""Answers recorded into a page, so that it can be tried from disk: a few prompts, and their most telling heads."""

import base64
from collections.abc import Mapping, Sequence
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

MOST_PROMPTS = 20
BY_REMOVAL, BY_ATLAS = 4, 4  # heads of each prompt whose removal costs most, and the atlas's own


def read_prompts(path: str | Path) -> list[dict[str, str]]:
    """A prompt a line, and after a tab, if there is one, the answer that is followed."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as e:
        raise BadFile(f"{path} is not UTF-8 text: {e}") from e
    prompts = [dict(zip(("prompt", "target"), line.split("\t"), strict=False)) for line in lines if line.strip()]
    if not 1 <= len(prompts) <= MOST_PROMPTS:
        raise BadArgument(f"examples is {str(path)!r} with {len(prompts)} prompts, expected 1 to {MOST_PROMPTS}")
    return [{"title": _short(p["prompt"]), "target": "", **p} for p in prompts]


def record(lm: LM, maps: Mapping[str, Any], prompts: Sequence[Mapping[str, str]], progress: Progress = silent) -> Tab:
    """A page's part that holds the answers to what a reader may ask of these prompts."""
    live, answers = Live(lm, lm.name), dict[str, Any]()
    known = _heads_of(maps)
    for number, prompt in enumerate(progress(list(prompts), "recording prompts")):
        base = Question(prompt["prompt"], target=prompt["target"])

        def keep(kind: str, question: Question, *where: int, number: int = number) -> Any:
            heads = " ".join(f"{layer}.{head}.{scale:g}" for layer, head, scale in question.heads)
            key = "|".join([kind, str(number), heads, *map(str, where)])
            answers[key] = _last(live, kind, question)
            return answers[key]

        for kind in ("next", "direct", "slope", "continuation", "script"):
            keep(kind, base)
        effect = _unpacked(keep("exact", base)["map"], lm)
        heads = dict.fromkeys([*top_heads(effect, BY_REMOVAL), *known[:BY_ATLAS]])
        for layer, head in (h for h in heads if h[0] in lm.layers_with_heads):
            here = Question(base.prompt, target=base.target, layer=layer, head=head)
            try:
                keep("attention", here, layer, head)
                keep("thumbnails", here, layer)
            except CannotDo:  # its attention cannot be read
                pass
            keep("writes", here, layer, head, -1)
            without = Question(base.prompt, ((layer, head, 0.0),), base.target)
            for kind in ("next", "direct", "slope", "continuation", "control", "script"):
                keep(kind, without)
    return live_tab(lm, prompts, answers)


def _last(live: Live, kind: str, question: Question) -> Any:
    *_, last = live.kinds[kind](question)
    return last["result"]


def _unpacked(text: str, lm: LM) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(lm.n_layers, lm.n_heads)


def _heads_of(maps: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The top head of every chart that has one above chance, those of most charts first."""
    charts = stack_maps({method: result.assign_attrs(method=method) for method, result in maps.items()})
    tops: dict[tuple[int, int], int] = {}
    for i in range(charts.sizes["chart"]):
        one = charts.isel(chart=i)
        if not bool(one.none_above):
            (layer, head), *_ = top_heads(one.score.values, 1)
            place = int(one["layer"][layer]), int(one["head"][head])
            tops[place] = tops.get(place, 0) + 1
    return sorted(tops, key=lambda place: -tops[place])


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"

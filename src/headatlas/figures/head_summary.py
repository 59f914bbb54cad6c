"""F4, the head card: everything that an atlas knows about one head, on one page."""

from numbers import Integral
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from headatlas.errors import BadArgument, brief
from headatlas.figures.figure_names import PUBLISHED
from headatlas.figures.style import palette as palette_of
from headatlas.figures.style import printable, styled, wrap
from headatlas.methods import variables_shown_as
from headatlas.models.head_names import check_head, head_numbers
from headatlas.results.card import Card, card, place_in_words
from headatlas.results.outcomes import Outcome
from headatlas.results.reading import results_of

MAX_CHARTS = 28


def head_card(maps: Any, layer: int | str, head: int | None = None, *, palette: str = PUBLISHED) -> Figure:
    """Draw scores and ranks per method, tokens that the head amplifies and writes, its roles, and effects of removal.

    maps: an atlas, its folder, or results by method. layer, head: numbers, or the head's name, as in
    head_card(atlas, "L23.H4").
    """
    results = results_of("maps", maps)
    numbers: tuple[Any, Any] = head_numbers(layer) if isinstance(layer, str) and head is None else (layer, head)
    if not all(isinstance(n, Integral) for n in numbers):
        raise BadArgument(
            f"layer and head are {brief(layer)} and {brief(head)}, expected numbers, or a name such as 'L23.H4'"
        )
    for result in results.values():
        if {"layer", "head"} <= set(result.sizes):
            check_head(int(numbers[0]), int(numbers[1]), result.sizes["layer"], result.sizes["head"])
    return draw(card(results, int(numbers[0]), int(numbers[1])), palette)


@styled
def draw(plan: Card, colours: str = PUBLISHED) -> Figure:
    """Draw a card: places among all heads left, lines of text right."""
    used = palette_of(colours)
    methods = list(dict.fromkeys(s.method for s in plan.standings))
    colour = {m: used.lines[i % len(used.lines)] for i, m in enumerate(methods)}
    shown = [s for s in plan.standings if s.value != 0][:MAX_CHARTS]
    lines = _words(plan)
    total_w, total_h = 12.0, max(3.2, 1.35 + 0.2 * max(len(shown), 3), 1.1 + 0.16 * len(lines))
    figure = Figure(figsize=(total_w, total_h))
    figure.text(0.2 / total_w, 1 - 0.3 / total_h, plan.name, fontsize=16, weight="bold", va="center")
    subtitle = " · ".join(p for p in (plan.model, ", ".join(plan.categories)) if p)
    muted: Any = {"fontsize": 9, "color": "#444444", "va": "center"}
    figure.text(1.5 / total_w, 1 - 0.3 / total_h, printable(subtitle), parse_math=False, **muted)
    height = 0.2 * max(len(shown), 1)
    axes = figure.add_axes((2.7 / total_w, 1 - (0.95 + height) / total_h, 2.1 / total_w, height / total_h))
    for i, s in enumerate(shown):
        if s.rank is not None:
            share_below = 1 - (s.rank - 1) / max(1, s.n_heads - 1)
            axes.plot([0, share_below], [i, i], color=colour[s.method], linewidth=1)
            axes.plot(share_below, i, "o", color=colour[s.method], markersize=4)
        interval = "" if np.isnan(s.low) else f" ({s.low:.2g} to {s.high:.2g})"
        place = f"{s.value:.3g}{interval}, {place_in_words(s)}".replace("-", "−")
        dim = "#888888" if s.rank is None else "black"
        axes.text(1.06, i, place, va="center", fontsize=6.5, color=dim, transform=axes.get_yaxis_transform())
    axes.set_yticks(range(len(shown)), [printable(_short(s.chart)) for s in shown], fontsize=6.5, parse_math=False)
    axes.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    axes.set_xlim(0, 1.04)
    axes.set_xticks([0, 0.5, 1], ["last", "middle", "first"])
    axes.spines[["top", "right"]].set_visible(False)
    left_out = len(plan.standings) - len(shown)
    note = f" ({left_out} more: lower, at chance or 0)" if left_out else ""
    axes.set_title(f"Place among all heads{note}", loc="left", fontsize=8.5)
    for i, (text, weight) in enumerate(lines):
        y = 1 - (0.72 + 0.16 * i) / total_h
        figure.text(7.9 / total_w, y, printable(text), fontsize=7, weight=weight, va="top", parse_math=False)
    return figure


def _short(text: str, length: int = 40) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _words(plan: Card) -> list[tuple[str, str]]:
    """Return the right half: lines of text with their font weight."""
    lines: list[tuple[str, str]] = []

    def section(title: str, texts: list[str]) -> None:
        if texts:
            lines.extend([("", "normal")] * bool(lines))
            lines.append((title, "bold"))
            lines.extend((line, "normal") for text in texts for line in wrap(text, 3.9, 7).splitlines())

    words = [f"{o.token!r} ({o.gain:.2f}) → {' '.join(map(repr, o.promoted))}" for o in plan.operations]
    section("Tokens it amplifies most → what it writes", words)
    section("What it writes least", [f"{o.token!r} → {' '.join(map(repr, o.demoted))}" for o in plan.operations[:4]])
    roles = [s for s in plan.standings if s.measure in variables_shown_as("roles", s.method)]
    by_task: dict[str, list[str]] = {}
    for s in sorted(roles, key=lambda s: (s.subject, -s.value)):
        by_task.setdefault(s.subject, []).append(f"{s.measure} {s.value:.2f}")
    section("Roles (mean over seeds)", [f"{task}: {', '.join(scores)}" for task, scores in by_task.items()])
    alone = [f"{s.subject}, {s.method}: {s.value:+.3f}" for s in plan.standings if s.by_removal]
    section("This head removed (log P lost)", alone)
    sets = [f"{t.subject}, {t.measure} by {t.method}: {_outcome(t.outcome)}" for t in plan.tested]
    section("Tested together with other top heads", sets)
    return lines or [("This atlas has nothing else about this head.", "normal")]


def _outcome(outcome: Outcome) -> str:
    """Say what a test found: 'supported, p 0.005, 8 heads; log P -1.20, random heads -0.10'."""
    if np.isnan(outcome.effect):
        return outcome.text
    return f"{outcome.text}; log P {outcome.effect:+.2f}, random heads {outcome.random:+.2f}"

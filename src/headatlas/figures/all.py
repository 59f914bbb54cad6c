"""Every figure that an atlas has the results for, with its caption."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from headatlas.errors import BadArgument, did_you_mean
from headatlas.figures.agreement_matrix import agreement
from headatlas.figures.categories import category_map
from headatlas.figures.map_comparison import comparison
from headatlas.figures.gates import always_any
from headatlas.figures.importance import importance_grid
from headatlas.figures.layers import layer_profile
from headatlas.figures.removal import removal_curves
from headatlas.figures.specialisation_matrix import specialisation
from headatlas.figures.style import PUBLISHED
from headatlas.figures.style import palette as palette_of
from headatlas.figures.tradeoff import NEEDED, trade_off
from headatlas.results.chance import none_in_words
from headatlas.results.curves import changes, removal
from headatlas.results.charts import MEASURES, overview


@dataclass(frozen=True)
class Picture:
    """A figure to be drawn: its name, what of, and what it shows."""

    name: str
    draw: Callable[[], Figure]
    says: str
    methods: list[str]


FIGURES = (
    "importance",
    "categories",
    "always-any",
    "removal",
    "trade-off",
    "specialisation",
    "comparison",
    "layers",
    "agreement",
)


def pictures(
    maps: Mapping[str, xr.Dataset], only: Sequence[str] | None = None, palette: str = PUBLISHED
) -> Iterator[Picture]:
    """The figures these datasets (by method) can be drawn as. Asked for by name (`only`), one that cannot be is an error."""
    palette_of(palette)
    for name in only or ():
        if name not in FIGURES:
            raise BadArgument(f"only has {name!r}, expected some of {', '.join(FIGURES)}.{did_you_mean(name, FIGURES)}")
    there = list(_possible(maps, palette))
    for name in only or ():
        if not any(kind == name for kind, _ in there):
            raise BadArgument(
                f"only has {name!r}, which needs {_NEEDS[name]}; here are: {', '.join(maps) or 'no maps'}"
            )
    for kind, picture in there:
        if only is None or kind in only:
            yield picture


_NEEDS = {
    "importance": "a map over layer and head",
    "categories": "maps",
    "always-any": "gate",
    "removal": "probe with proof, maps with causal, or gate",
    "trade-off": "dissociate",
    "specialisation": "dissociate, or probe with proof",
    "comparison": "compare_maps",
    "layers": "a map over layer and head",
    "agreement": "two maps in which heads differ",
}


def _possible(maps: Mapping[str, xr.Dataset], palette: str) -> Iterator[tuple[str, Picture]]:
    charts = overview(maps)
    mapped = list(dict.fromkeys(charts.method.values.tolist()))
    gate = maps.get("gate", xr.Dataset())
    for method in mapped:
        if method != "gate":
            draw = partial(importance_grid, maps[method], MEASURES[method][0][0], palette=palette)
            yield (
                "importance",
                Picture(f"importance-{method}", draw, f"{_WHAT[method]} {_SAYS['importance']}", [method]),
            )
    if "maps" in maps and "member" in maps["maps"] and "category_name" in maps["maps"].coords:
        draw = partial(category_map, maps["maps"], palette=palette)
        yield "categories", Picture("categories", draw, _SAYS["categories"], ["maps"])
    if {"always", "any"} <= set(gate):
        draw = partial(always_any, gate, "score", palette=palette)
        yield "always-any", Picture("always-any", draw, _SAYS["always-any"], ["gate"])
    if {"facilitation", "irrelevance", "interference"} <= set(gate):
        draw = partial(always_any, gate, "roles", palette=palette)
        yield "always-any", Picture("always-any-roles", draw, _SAYS["roles"], ["gate"])
    for method, found in maps.items():
        if removal({method: found}).sizes["curve"]:
            draw = partial(removal_curves, found, palette=palette)
            yield "removal", Picture(f"removal-{method}", draw, _SAYS["removal"], [method])
    if set(NEEDED) <= set(maps.get("dissociate", ())):
        draw = partial(trade_off, maps["dissociate"], palette=palette)
        yield "trade-off", Picture("trade-off", draw, _SAYS["trade-off"], ["dissociate"])
    for method, found in maps.items():
        if changes(found) is not None:
            draw = partial(specialisation, found, palette=palette)
            yield "specialisation", Picture(f"specialisation-{method}", draw, _SAYS["specialisation"], [method])
    if {"ranking", "own_effect", "other_effect", "proven"} <= set(maps.get("compare_maps", xr.Dataset()).variables):
        draw = partial(comparison, maps["compare_maps"], palette=palette)
        yield "comparison", Picture("comparison", draw, _SAYS["comparison"], ["compare_maps"])
    if not mapped:
        return
    if float(abs(charts.score).sum()):
        yield "layers", Picture("layers", partial(layer_profile, maps, palette=palette), _SAYS["layers"], mapped)
    spread = charts.score.max(("layer", "head")) > charts.score.min(("layer", "head"))
    if int(spread.sum()) > 1:
        yield "agreement", Picture("agreement", partial(agreement, maps, palette=palette), _SAYS["agreement"], mapped)


_WHAT = {
    "probe": "Importance of each head to a probe that reads cognitive functions; it sums to 1 for each function and is not causal."
    " Chance: the importance that a head reaches with shuffled labels.",
    "dissociate": "Importance of each head to a function, by gates fitted to lose it and keep the others; it sums to 1 for each."
    " Empty where removing the heads did not prove, on test questions, that they are the function's own.",
    "maps": "Share of a relation's pairs that each head implements, from its parameters alone. Chance: the highest share that"
    " shuffled targets and random heads explain.",
    "ablate": "log P(target) lost when each head alone is removed.",
    "taylor": "log P(target) lost without each head, guessed from one gradient.",
    "ig": "log P(target) lost without each head, from gradients integrated over all gates.",
    "pattern": "Share of attention on the token that each pattern points at, on random tokens said twice.",
}
_SAYS = {
    "importance": "One heatmap of layers × heads each; where the last label of the colours has a plus, larger values are clipped."
    " Where a chance level is known, heads at chance are drawn as 0, and maps without a head above it are grey.",
    "categories": "Heads by the categories of relations they implement, from their parameters alone: a head belongs to one when"
    " its score or suppression for one of the category's relations reaches the threshold and is above chance.",
    "always-any": "How far each head facilitates a task: the least over seeds (always) and the most (any).",
    "roles": "The three roles of each head as colours, as bright as their scores: the least over seeds (always) and the most (any)."
    " Mixtures are disagreement between seeds.",
    "removal": "Quality as heads are removed: the top heads of the map, random heads of the same layers (band: 90 % of draws), and"
    " the lowest. p: how often random heads lower it as much, at the last step. Of gates: log P with heads switched off minus on.",
    "trade-off": "Heads removed for good in the order of the map: what the function loses and what the others lose, on validation"
    " questions, by which the number of heads is chosen (dotted). Cross and band: the same number on test questions, and the"
    " middle 90 % of random heads of the same layers.",
    "specialisation": "Rows: whose top heads were removed. Columns: which function was asked. Cells: how the answers changed."
    " A specialised map has its strongest cells on the diagonal.",
    "comparison": "Each map's heads of each function removed for good, their number chosen on validation questions: change of log P"
    " per answer token on test questions, of the function against the mean of the others. Green: the function loses more than three"
    " times that. Filled: more than three times the mean size of the others' changes, and more than random heads of the same layers"
    " (p < 0.05, corrected).",
    "layers": "Share of each map that lies in each layer, over relative depth; of many relations, the mean of each category."
    " The grey line is an even share. Maps without a head above chance are light grey, and left out of means.",
    "agreement": "Spearman correlation over heads of every two maps; beside it, of every two seeds of the gate maps. A map marked"
    " (at chance) has no head above chance, one marked (not proven) no heads that were proven.",
}


def caption(picture: Picture, maps: Mapping[str, xr.Dataset], when: Mapping[str, str]) -> str:
    """What was measured, on what, and when. when: by method."""
    lines = [picture.says, ""]
    for method in picture.methods:
        said = {k: v for k, v in maps[method].attrs.items() if k not in ("method", "model", "fingerprint") and str(v)}
        shape = f"{maps[method].sizes['layer']} layers × {maps[method].sizes['head']} heads"
        model = f"{maps[method].attrs.get('model', 'unknown model')} ({maps[method].attrs.get('fingerprint', 'no fingerprint')})"
        settings = ", ".join(f"{k} {_plain(v)}" for k, v in said.items())
        lines.append(f"{method}: {model}, {shape}; {settings}" + (f"; {when[method]}" if method in when else ""))
    charts = overview({method: maps[method] for method in picture.methods})
    for method in picture.methods:
        measure = MEASURES.get(method, (("", ""),))[0][0]
        chosen = (charts.method == method) & (charts.measure == measure) & charts.none_above
        if names := charts.subject.values[chosen.values].tolist():
            lines.append(f"{method}: {none_in_words(method)}: {', '.join(names)}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if hasattr(value, "__iter__") and not isinstance(value, str) else str(value)

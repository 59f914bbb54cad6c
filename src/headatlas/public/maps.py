"""`ha.maps`."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from headatlas.headmap.files import check_folder
from headatlas.methods.maps import BASELINES, asked_of, check_settings, score_layers, score_relations
from headatlas.methods.maps_dynamic import check_dynamic
from headatlas.models.cost import Cost
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.fingerprint import fingerprint_setup
from headatlas.models.lm import LM
from headatlas.models.loading import check_device, open_weights
from headatlas.progress import Done, Progress, doing, silent
from headatlas.public.common import Job, Part, loaded, method, said_with, spans, stamp
from headatlas.tasks.relations import hash_relations, load_relations
from headatlas.validation.relations import check_causal

DRAWN = 1e8  # random numbers a second
LOOKED_AT = 1800  # tokens of the vocabulary that a pair's output is computed for, about, before its rank is known


@method
def maps(
    model: LM | str | Path = DEFAULT_MODEL,
    relations: Any = None,
    *,
    k: int | Literal["auto"] = "auto",
    threshold: float = 0.15,
    min_pairs: int = 30,
    first_mlp: bool = True,
    baselines: bool = True,
    dynamic: int = 0,
    causal: int = 0,
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    progress: Progress = silent,
) -> Job:
    """Which relations every head implements, from its parameters alone (docs/maps.md).

    model: an LM, or anything `load` takes; then only the tensors needed are read from disk, layer by layer.
    relations: the 20 built-in ones or some of them by name, a folder, a JSON or CSV file, or your own pairs by name:
    {"capitals": [("France", "Paris"), …]}.
    k: how many of the largest outputs count as a hit; 'auto' is the published rule.
    baselines: score shuffled and random weights beside it, to see what chance gives.
    dynamic, causal: check the scores in real runs, and by removing heads, on up to so many pairs a relation (0: not at all).
    out: a folder for maps.nc; interrupted work goes on there at the layer it had reached.
    """
    check_folder(out)
    chosen = load_relations(relations)
    with doing(progress, f"opening {model}"):
        weights, tokenizer, name = open_weights(model)
    settings: dict[str, Any] = {"k": k, "min_pairs": min_pairs, "first_mlp": first_mlp, "seed": seed}
    where = model.device if isinstance(model, LM) else check_device(device)
    check_settings(k, threshold)
    used = tuple(BASELINES) if baselines else ()
    [everywhere] = spans(weights, weights.anatomy.n_layers)
    asked = cache(lambda: asked_of(weights, tokenizer, chosen, k, min_pairs))

    def part(layers: list[int], baseline: str) -> Part:
        label, said = f"baseline: {baseline}" if baseline else "maps", f"layers {layers[0]} to {layers[-1]}"

        def do(done: Done, progress: Progress) -> None:
            options: dict[str, Any] = {"first_mlp": first_mlp, "seed": seed, "device": where}
            options["progress"] = said_with(progress, said)
            score_layers(weights, asked(), layers, done, baseline=baseline, **options)

        def cost() -> Cost:
            pairs = len(asked().used) + (0 if baseline else len(asked().used_multi))
            each = 2.0 * weights.anatomy.d_model * LOOKED_AT
            drawn = 2 * weights.unembedding().numel() if baseline == "random" else 0
            host = 0.3 + 0.02 * len(layers) + drawn / DRAWN
            return Cost(operations=len(layers) * weights.anatomy.n_heads * pairs * each, seconds=host)

        return Part(f"{label}, {said}", tuple(f"{label} layer {i}" for i in layers), do, cost=cost)

    def work(done: Done, progress: Progress) -> xr.Dataset:
        options: dict[str, Any] = {"threshold": threshold, "baselines": used, "device": where}
        found = score_relations(weights, tokenizer, chosen, **settings, **options, done=done, progress=progress)
        if dynamic or causal:
            lm = loaded(model, device, progress)
            if dynamic:
                found = found.merge(check_dynamic(lm, chosen, dynamic, **settings, progress=progress))
            if causal:
                found = found.merge(check_causal(lm, chosen, found, causal, seed=seed, progress=progress))
        return found.set_xindex("category_name")

    return Job(
        "maps",
        f"{len(chosen)} relations, {sum(len(r.pairs) for r in chosen):,} pairs, from the parameters alone",
        stamp(weights, fingerprint_setup(weights.config, tokenizer), name, hash_relations(chosen), progress)
        | {key: int(value) if isinstance(value, bool) else value for key, value in settings.items()},
        work,
        {"threshold": threshold, "baselines": int(baselines), "dynamic": dynamic, "causal": causal},
        None if out is None else Path(out),
        progress,
        # a baseline's vocabulary is made anew for every part of it: one part
        [*(part(layers, "") for layers in spans(weights)), *(part(everywhere, b) for b in used)],
    )

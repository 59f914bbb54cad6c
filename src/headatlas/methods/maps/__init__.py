"""`ha.maps`."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from headatlas.results.files import check_folder
from headatlas.methods.maps.scores import asked_of, check_settings, hit_in_layers, score_relations
from headatlas.methods.maps.dynamic import check_dynamic
from headatlas.methods.maps.reading import BASELINES, Input, choose_reading
from headatlas.models.cost import Cost
from headatlas.models.default import DEFAULT_MODEL
from headatlas.models.fingerprint import fingerprint_setup
from headatlas.models.lm import LM
from headatlas.models.loading import check_device, open_weights
from headatlas.progress import Done, Progress, doing, silent
from headatlas.runs.job import Job, Part, loaded, method, said_with, spans, stamp
from headatlas.tasks.relations import hash_relations, load_relations
from headatlas.methods.maps.causal import check_causal

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
    input: Input = "stream",
    opening: str | None = None,
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
    input: what a head gets of a word: 'stream', what the model itself has there behind a short opening; 'published', block 0's
        MLP of its embedding; or 'embedding'. The last two use raw weights, as published.
    opening: the text before the word in a stream, "The word is" unless you say otherwise.
    baselines: score shuffled targets and random heads beside it, to see what chance gives.
    dynamic, causal: check the scores in real runs, and by removing heads, on up to so many pairs a relation (0: not at all).
    out: a folder for maps.nc; interrupted work goes on there at the layer it had reached.
    """
    check_folder(out)
    chosen = load_relations(relations)
    with doing(progress, f"opening {model}"):
        weights, tokenizer, name = open_weights(model)
    settings: dict[str, Any] = {"k": k, "min_pairs": min_pairs, "seed": seed}
    reading = choose_reading(input, opening, tokenizer)
    where = model.device if isinstance(model, LM) else check_device(device)
    check_settings(k, threshold)
    used = BASELINES if baselines else ()
    asked = cache(lambda: asked_of(weights, tokenizer, chosen, k, min_pairs))
    # a stream passes all layers anyway
    pieces = spans(weights, weights.anatomy.n_layers) if input == "stream" else spans(weights)

    def part(layers: list[int]) -> Part:
        said = f"layers {layers[0]} to {layers[-1]}"

        def do(done: Done, progress: Progress) -> None:
            pairs = asked().named(used, seed)
            told = said_with(progress, said)
            hit_in_layers(weights, pairs, reading, layers, done, device=where, seed=seed, progress=told)

        def cost() -> Cost:
            a, pairs = weights.anatomy, asked().named(used, seed)
            n = sum(map(len, pairs.values()))
            ranked = 2.0 * len(layers) * a.n_heads * n * a.d_model * LOOKED_AT
            texts = len(pairs["maps"].source.unique()) * (1 + len(reading.opening))
            drawn = len(layers) * 2 * a.n_heads * a.d_head * a.d_model if baselines else 0
            run = Cost(tokens=texts, passes=1) if input == "stream" else Cost()
            return run + Cost(operations=ranked, seconds=0.3 + 0.02 * len(layers) + drawn / DRAWN)

        leaves = tuple(f"{name} layer {i}" for i in layers for name in ("maps", *used))
        return Part(f"maps, {said}", leaves, do, cost=cost)

    def work(done: Done, progress: Progress) -> xr.Dataset:
        options: dict[str, Any] = {"threshold": threshold, "baselines": used, "device": where}
        found = score_relations(weights, tokenizer, chosen, reading, **settings, **options, done=done)
        if dynamic or causal:
            lm = loaded(model, device, progress)
            if dynamic:
                found = found.merge(check_dynamic(lm, chosen, dynamic, reading=reading, **settings, progress=progress))
            if causal:
                found = found.merge(check_causal(lm, chosen, found, causal, seed=seed, progress=progress))
        return found.set_xindex("category_name").assign_attrs(opening_text=tokenizer.decode(reading.opening))

    return Job(
        "maps",
        f"{len(chosen)} relations, {sum(len(r.pairs) for r in chosen):,} pairs, from the parameters alone",
        stamp(weights, fingerprint_setup(weights.config, tokenizer), name, hash_relations(chosen), progress)
        | settings
        | {"input": input, "opening": " ".join(map(str, reading.opening))},
        work,
        {"threshold": threshold, "baselines": int(baselines), "dynamic": dynamic, "causal": causal},
        None if out is None else Path(out),
        progress,
        [part(layers) for layers in pieces],
    )

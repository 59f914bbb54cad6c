"""What an atlas consists of: the methods of each preset, and their work, planned."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headatlas.errors import HeadAtlasError
from headatlas.results.provenance import describe_model, describe_weights
from headatlas.models.lm import LM
from headatlas.models.loading import check_device, load, open_weights
from headatlas.progress import Progress, doing, silent
from headatlas.runs.job import Job
from headatlas.methods.dissociate import dissociate
from headatlas.methods.gate import gate
from headatlas.methods.maps import maps
from headatlas.runs.presets import PRESETS, check_run
from headatlas.methods.probe import probe
from headatlas.methods.salient import salient
from headatlas.runs.execute import Planned
from headatlas.methods._effects import ablate, ig, pattern, taylor

PLANS: dict[str, Callable[..., Job]] = {
    "maps": maps.plan,
    "salient": salient.plan,
    "pattern": pattern.plan,
    "taylor": taylor.plan,
    "ig": ig.plan,
    "gate": gate.plan,
    "probe": probe.plan,
    "dissociate": dissociate.plan,
    "ablate": ablate.plan,
}
Plan = Mapping[str, Job | HeadAtlasError]
"""What is to be done, by method: a job, or why it cannot be."""


def plan_for(model: LM | str | Path, device: str, dtype: str, spread_out: bool, **options: Any) -> Planned:
    """Load a model, unless its parameters are all that is asked for, and plan. spread_out: over all the GPUs there are.

    options: of `plan`.
    """
    if not isinstance(model, LM) and from_weights(options.get("preset", "quick"), options.get("methods")):
        weights, _, name = open_weights(model)
        with weights.unchanged():
            about = describe_weights(weights, name, str(check_device(device)))
            title = f"{name}, not loaded, fingerprint {weights.fingerprint()}"
            return Planned(about, title, plan(model, device=device, **options))
    lm = model if isinstance(model, LM) else load(model, device, dtype, device_map="auto" if spread_out else None)
    with lm.weights.unchanged():
        return Planned(describe_model(lm), f"{lm!r}, fingerprint {lm.fingerprint()}", plan(lm, **options))


def from_weights(preset: str, methods: Sequence[str] | None) -> bool:
    """Whether the methods read parameters only, layer by layer: then no model need be loaded."""
    settings = PRESETS.get(preset, {})
    chosen = settings if methods is None else methods
    checked = settings.get("maps", {})
    return bool(chosen) and set(chosen) <= {"maps", "salient"} and not ("maps" in chosen and checked)


def plan(
    model: LM | str | Path,
    out: str | Path | None = None,
    *,
    preset: str = "quick",
    methods: Sequence[str] | None = None,
    functions: Sequence[str] | None = None,
    device: str = "auto",
    progress: Progress = silent,
) -> Plan:
    """What `run` would do: a job for each method, or why it cannot be done. Arguments as there."""
    names, functions = check_run(preset, methods, functions)
    settings = PRESETS[preset]
    planned: dict[str, Job | HeadAtlasError] = {}
    for name in sorted(set(names), key=list(PLANS).index):
        options = settings.get(name, {})
        if functions and name in ("probe", "dissociate"):
            options = {k: v for k, v in options.items() if k != "data"} | {"functions": functions}
        try:
            with doing(progress, f"planning {name}"):
                planned[name] = PLANS[name](model, out=out, device=device, progress=progress, **options)
        except HeadAtlasError as e:
            planned[name] = e
    return planned

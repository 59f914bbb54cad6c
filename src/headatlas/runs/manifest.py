"""What is in an atlas's folder, as a run keeps it: atlas.json, and the results in memory."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import xarray as xr

from headatlas.engines.pool import Result
from headatlas.errors import BadFile, HeadAtlasError
from headatlas.files import read_json, sha256, write_json
from headatlas.methods import methods
from headatlas.results.atlas import INDEX
from headatlas.results.provenance import describe_run
from headatlas.results.reading import complete_methods, load_result
from headatlas.runs.plan import Plan, RunPlan


class Manifest:
    """An atlas while a run works on it.

    Attributes:
        info: what atlas.json says: the model, the run, how each method went, what was drawn.
        results: every result in the folder, by method.
        hashes: of their files, by method.
        to_do: the plans whose results are missing, or depend on something that has changed.
    """

    def __init__(self, folder: Path, planned: RunPlan, command: str) -> None:
        self.folder = folder
        self.results: dict[str, xr.Dataset] = {}
        self.hashes: dict[str, str] = {}
        self.to_do = {name: plan for name, plan in planned.possible.items() if plan.state(folder) != "done"}
        for name in complete_methods(folder):
            with suppress(*([BadFile] if name in self.to_do else [])):  # it will be written again
                self._keep(name, load_result(folder / f"{name}.nc"))
        self.info: dict[str, Any] = {
            "model": dict(planned.model),
            "run": describe_run() | {"command": command},
            "methods": {},
        }
        self.info |= self._noted_earlier()
        for name, plan in planned.plans.items():
            if isinstance(plan, HeadAtlasError):
                self.info["methods"][name] = {"complete": False, "why": str(plan)}
            elif name not in self.to_do:
                plan.forget_parts(folder)  # left by a run that was killed just after it wrote the result
                if self.info["methods"].get(name, {}).get("key") != plan.key:
                    self.info["methods"][name] = _completed(plan, 0.0)
        self.write()

    def note(self, name: str, result: Result) -> None:
        """Note how a method went."""
        if result.error is not None:
            self.info["methods"][name] = {"complete": False, "why": str(result.error)}
        else:
            self.info["methods"][name] = _completed(self.to_do[name], result.seconds)
            self._keep(name, result.value)
        self.write()

    def note_not_drawn(self, name: str, why: str) -> None:
        """Note that a result is there, but cannot be drawn."""
        self.info["methods"].setdefault(name, {"complete": True})["not_drawn"] = why
        self.write()

    @property
    def drawable(self) -> dict[str, xr.Dataset]:
        """The results of which nothing is known against drawing them."""
        methods = self.info["methods"]
        return {name: result for name, result in self.results.items() if "not_drawn" not in methods.get(name, {})}

    @property
    def when(self) -> dict[str, str]:
        """When each method was completed."""
        return {name: noted["time"] for name, noted in self.info["methods"].items() if "time" in noted}

    def write(self) -> None:
        """Write atlas.json."""
        write_json(self.folder / INDEX, self.info)

    def _keep(self, name: str, result: xr.Dataset) -> None:
        self.results[name] = result
        self.results = _in_order(self.results)
        self.hashes[name] = sha256(self.folder / f"{name}.nc")

    def _noted_earlier(self) -> dict[str, Any]:
        """What earlier runs for the same model noted; empty without any, or if the file is not ours."""
        noted: dict[str, Any] = {}
        try:
            earlier = read_json(self.folder / INDEX)
            # without a fingerprint, nothing could be planned: what is there stays
            if self.info["model"]["fingerprint"] in ("", earlier["model"]["fingerprint"]):
                noted["model"] = dict(earlier["model"])
                noted["methods"] = {str(name): dict(went) for name, went in earlier["methods"].items()}
                for went in noted["methods"].values():
                    went.pop("not_drawn", None)  # this version may draw it
                drawn = earlier["shown"]  # missing, if nothing was drawn: the methods are kept
                pictures = {str(name): str(key) for name, key in drawn.get("pictures", {}).items()}
                files = [str(name) for name in drawn["files"]]
                noted["shown"] = {"key": str(drawn["key"]), "files": files, "pictures": pictures}
        except (BadFile, KeyError, TypeError, ValueError, AttributeError):
            pass
        return noted


def _completed(plan: Plan, seconds: float) -> dict[str, Any]:
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"complete": True, "file": f"{plan.method}.nc", "key": plan.key, "time": when, "seconds": round(seconds, 2)}


def _in_order(results: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Results in the order of a run, those of no method here last, as `complete_methods` has them."""
    known = [name for name in methods() if name in results]
    return {name: results[name] for name in [*known, *sorted(results.keys() - set(known))]}

"""The contents of an atlas's folder during a run: atlas.json, and the results in memory."""

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
from headatlas.results.stored_tests import TESTS, load_tests, with_outcomes
from headatlas.runs.plan import Plan, RunPlan


class Manifest:
    """An atlas while a run works on it.

    Attributes:
        info: the content of atlas.json: the model, the run, the outcome of each method, the figures.
        results: every result in the folder, by method.
        tests: the tests of their maps, if there are any.
        hashes: the hash of each result's file, by method; with tests, that of their file.
        to_do: the plans whose results are missing, or depend on something that has changed.
    """

    def __init__(self, folder: Path, planned: RunPlan, command: str) -> None:
        self.folder = folder
        self.results: dict[str, xr.Dataset] = {}
        self.tests: xr.Dataset | None = None
        self.hashes: dict[str, str] = {}
        # a damaged file of tests is ignored: a run with tests writes a new one
        with suppress(BadFile):
            self.tests = load_tests(folder)
        if self.tests is not None:
            self.hashes[TESTS] = sha256(folder / f"{TESTS}.nc")
        self.to_do = {name: plan for name, plan in planned.possible.items() if plan.state(folder) != "done"}
        for name in complete_methods(folder):
            # a damaged file is an error only if the run does not write it again
            with suppress(*([BadFile] if name in self.to_do else [])):
                self._keep(name, load_result(folder / f"{name}.nc"))
        self.info: dict[str, Any] = {
            "model": dict(planned.model),
            "run": describe_run() | {"command": command},
            "methods": {},
        }
        self.info |= self._earlier_info()
        for name, plan in planned.plans.items():
            if isinstance(plan, HeadAtlasError):
                self.info["methods"][name] = {"complete": False, "why": str(plan)}
            elif name not in self.to_do:
                # parts remain if a run was killed just after it wrote the result
                plan.forget_parts(folder)
                if self.info["methods"].get(name, {}).get("key") != plan.key:
                    self.info["methods"][name] = _complete_entry(plan, 0.0)
        self.write()

    def note(self, name: str, result: Result) -> None:
        """Note how a method, or the tests of the maps, went, and keep the result."""
        if name == TESTS:
            self._note_tests(result)
        elif result.error is not None:
            self.info["methods"][name] = {"complete": False, "why": str(result.error)}
        else:
            self.info["methods"][name] = _complete_entry(self.to_do[name], result.seconds)
            self._keep(name, result.value)
        self.write()

    def _note_tests(self, result: Result) -> None:
        """Note how the tests of the maps went, and show their outcomes with the maps."""
        if result.error is not None:
            self.info["tests"] = {"complete": False, "why": str(result.error)}
        else:
            self.tests = result.value
            self.info["tests"] = {"complete": True, "file": f"{TESTS}.nc", "seconds": round(result.seconds, 2)}
            self.hashes[TESTS] = sha256(self.folder / f"{TESTS}.nc")

    def note_not_drawn(self, name: str, reason: str) -> None:
        """Note that a result is complete, but cannot be drawn."""
        self.info["methods"].setdefault(name, {"complete": True})["not_drawn"] = reason
        self.write()

    @property
    def drawable(self) -> dict[str, xr.Dataset]:
        """The results, without those that are known not to be drawable."""
        entries = self.info["methods"]
        shown = {name: result for name, result in self.results.items() if "not_drawn" not in entries.get(name, {})}
        return with_outcomes(shown, self.tests)

    @property
    def completion_times(self) -> dict[str, str]:
        """When each method was completed, in ISO 8601."""
        return {name: entry["time"] for name, entry in self.info["methods"].items() if "time" in entry}

    def write(self) -> None:
        """Write atlas.json."""
        write_json(self.folder / INDEX, self.info)

    def _keep(self, name: str, result: xr.Dataset) -> None:
        self.results[name] = result
        self.results = _in_order(self.results)
        self.hashes[name] = sha256(self.folder / f"{name}.nc")

    def _earlier_info(self) -> dict[str, Any]:
        """Return what atlas.json has from earlier runs of the same model: as far as it can be read, perhaps nothing."""
        info: dict[str, Any] = {}
        try:
            earlier = read_json(self.folder / INDEX)
            # there is no fingerprint if nothing could be planned; the earlier entries are kept then
            if self.info["model"]["fingerprint"] in ("", earlier["model"]["fingerprint"]):
                info["model"] = dict(earlier["model"])
                info["methods"] = {str(name): dict(entry) for name, entry in earlier["methods"].items()}
                if "tests" in earlier:
                    info["tests"] = dict(earlier["tests"])
                for entry in info["methods"].values():
                    # this version may be able to draw it
                    entry.pop("not_drawn", None)
                # last, because it is missing if nothing was drawn: the lines above must hold all the same
                shown = earlier["shown"]
                pictures = {str(name): str(key) for name, key in shown.get("pictures", {}).items()}
                files = [str(name) for name in shown["files"]]
                info["shown"] = {"key": str(shown["key"]), "files": files, "pictures": pictures}
        except (BadFile, KeyError, TypeError, ValueError, AttributeError):
            pass
        return info


def _complete_entry(plan: Plan, seconds: float) -> dict[str, Any]:
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return {"complete": True, "file": f"{plan.method}.nc", "key": plan.key, "time": time, "seconds": round(seconds, 2)}


def _in_order(results: Mapping[str, xr.Dataset]) -> dict[str, xr.Dataset]:
    """Return results in the order of a run; last, those of methods that are not installed, as in `complete_methods`."""
    installed = [name for name in methods() if name in results]
    return {name: results[name] for name in [*installed, *sorted(results.keys() - set(installed))]}

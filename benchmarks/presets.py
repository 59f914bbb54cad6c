"""Measure the quality of the quick preset: Spearman correlation of its maps with those of the full preset.

python benchmarks/presets.py FULL QUICK [QUICK …]     folders of results of one model; FULL is of --preset full
"""

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from headatlas.methods import measures_of


def maps(folder: Path, method: str) -> dict[tuple[str, str], np.ndarray]:
    """Return every map of a method, averaged over seeds: (measure, subject) → [layer, head]."""
    path = folder / f"{method}.nc"
    result = xr.load_dataset(path, engine="h5netcdf") if path.is_file() else xr.Dataset()
    return {
        (measure.name, str(subject)): _mean(result[_stored_scores(measure, result)]).sel({measure.over: subject}).values
        for measure in measures_of(method)
        if measure.name in result
        for subject in result[measure.over].values
    }


def _stored_scores(measure, result: xr.Dataset) -> str:
    """Return the name of the scores of all seeds, if there are any; the map itself is masked by its test."""
    variable = measure.name if isinstance(measure.repeats, str) else measure.repeats[0]
    return variable if variable in result and "seed" in result[variable].dims else measure.name


def _mean(values: xr.DataArray) -> xr.DataArray:
    return values.mean([d for d in ("seed", "kind") if d in values.dims])


def main(full: Path, *quick: Path) -> None:
    print("| method | map | " + " | ".join(str(folder) for folder in quick) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in quick) + " |")
    for path in sorted(full.glob("*.nc")):
        expected = maps(full, path.stem)
        columns = [maps(folder, path.stem) for folder in quick]
        for measure in dict.fromkeys(name for name, _ in expected):
            cells = [_agreement(measure, expected, quick_maps) for quick_maps in columns]
            if any(cells):
                print(f"| {path.stem} | {measure} | " + " | ".join(cells) + " |")


def _agreement(measure: str, expected: dict, quick_maps: dict) -> str:
    values = []
    for (name, subject), a in expected.items():
        b = quick_maps.get((name, subject))
        if name == measure and b is not None:
            finite = np.isfinite(a) & np.isfinite(b)
            values.append(spearmanr(a[finite], b[finite]).statistic)
    return f"{np.nanmean(values):.3f} ({len(values)} maps)" if values else ""


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

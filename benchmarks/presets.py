"""What the quick preset costs in quality: Spearman correlation of its maps with those of the full preset.

python benchmarks/presets.py FULL QUICK [QUICK …]     folders of results of the same model: FULL as by --preset full
"""

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from scipy.stats import spearmanr

from headatlas.methods import measures_of


def maps(folder: Path, method: str) -> dict[tuple[str, str], np.ndarray]:
    """Every map of a method, over seeds: (measure, subject) → [layer, head]."""
    path = folder / f"{method}.nc"
    result = xr.load_dataset(path, engine="h5netcdf") if path.is_file() else xr.Dataset()
    return {
        (measure.name, str(subject)): _mean(result[_fitted(measure, result)]).sel({measure.over: subject}).values
        for measure in measures_of(method)
        if measure.name in result
        for subject in result[measure.over].values
    }


def _fitted(measure, result: xr.Dataset) -> str:
    """The scores of all seeds, where the map is cleared of what is not proven."""
    seeds = measure.repeats and measure.repeats[0] in result and "seed" in result[measure.repeats[0]].dims
    return measure.repeats[0] if seeds else measure.name


def _mean(values: xr.DataArray) -> xr.DataArray:
    return values.mean([d for d in ("seed", "kind") if d in values.dims])


def main(full: Path, *quick: Path) -> None:
    print("| method | map | " + " | ".join(str(folder) for folder in quick) + " |")
    print("| --- | --- | " + " | ".join("---" for _ in quick) + " |")
    for path in sorted(full.glob("*.nc")):
        expected = maps(full, path.stem)
        columns = [maps(folder, path.stem) for folder in quick]
        for measure in dict.fromkeys(name for name, _ in expected):
            cells = [_agreement(measure, expected, found) for found in columns]
            if any(cells):
                print(f"| {path.stem} | {measure} | " + " | ".join(cells) + " |")


def _agreement(measure: str, expected: dict, found: dict) -> str:
    values = []
    for (name, subject), a in expected.items():
        b = found.get((name, subject))
        if name == measure and b is not None:
            both = np.isfinite(a) & np.isfinite(b)
            values.append(spearmanr(a[both], b[both]).statistic)
    return f"{np.nanmean(values):.3f} ({len(values)} maps)" if values else ""


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

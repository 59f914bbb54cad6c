"""Test the top heads of each method's map of each task alike: whose map holds up?

    python benchmarks/compare_maps.py smollm2 --tasks math,syntax,commonsense,aba_abb [--preset full]

All maps are tested on the same prompts, which no map was made from (docs/concepts/evidence.md). ablate-own is ablate
minus its mean over tasks. Prints a Markdown table: without a map's top heads, the change of log P per token of the task
/ the mean size of the other tasks' changes, the outcome (p corrected for the number of tests), and, if the task loses
more than the others change, 'selective'.
"""

import argparse

import numpy as np
import xarray as xr

import headatlas as ha
from headatlas.evidence.control import top_heads
from headatlas.evidence.decide import SUPPORTED
from headatlas.evidence.fresh_prompts import load_prompts
from headatlas.evidence.heads_test import OTHER_PROMPTS, Removal, number_of_heads, run_test, stack_tests, to_arrays
from headatlas.results.used import recorded_rows
from headatlas.runs.map_tests import survey_of
from headatlas.tasks.used import Used

METHODS = ("taylor", "ablate", "gate", "dissociate")


def make_maps(lm: ha.LM, tasks: list[str], preset: str) -> tuple[dict[str, xr.DataArray], Used]:
    """Return maps (task, layer, head) by name, and the rows that they were made from."""
    results = {name: getattr(ha, name)(lm, tasks, preset=preset) for name in METHODS}
    used = Used()
    for result in results.values():
        used |= recorded_rows(result) or Used()
    ablated = results["ablate"].contribution
    maps = {
        "taylor": results["taylor"].contribution,
        "ablate": ablated,
        "ablate-own": ablated - ablated.mean("task"),
        "gate": results["gate"].facilitation.mean("seed"),
        "dissociate": results["dissociate"].importance.rename(function="task"),
    }
    return maps, used


def run_tests(lm: ha.LM, maps: dict[str, xr.DataArray], tasks: list[str], used: Used, n: int, draws: int) -> xr.Dataset:
    """Test the top heads of every map, on n prompts of each task."""
    removal = Removal(lm, survey_of(lm, {task: task for task in tasks}))
    prompts = {task: load_prompts(lm, task, used, n) for task in tasks}
    n_heads = number_of_heads(lm.n_layers * lm.n_heads)
    arrays = {}
    for name, scores in maps.items():
        for task in tasks:
            score = scores.sel(task=task).transpose("layer", "head")
            heads = top_heads(score.where(score > 0).values, min(n_heads, int((score > 0).sum())))
            others = [prompts[other].first(OTHER_PROMPTS) for other in tasks if other != task]
            test = run_test(removal, heads, prompts[task], others, draws=draws)
            arrays[f"{name}: {task}"] = to_arrays(test)
    return stack_tests(arrays)


def describe(test: xr.Dataset) -> str:
    """Describe a test in a cell of the table."""
    effect = float(test.effect.sel(replacement="zero", measure="log_p"))
    if np.isnan(effect):
        return str(test.outcome.item())
    selective = ", selective" if test.selective.item() == SUPPORTED else ""
    return f"{effect:+.2f} / {float(test.other_size.mean()):.2f} {test.outcome.item()}{selective}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tasks", default="math,syntax,commonsense,aba_abb")
    parser.add_argument("--preset", choices=["quick", "full"], default="quick")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--draws", type=int, default=59)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    lm = ha.load(options.model, options.device)
    tasks = options.tasks.split(",")
    maps, used = make_maps(lm, tasks, options.preset)
    tests = run_tests(lm, maps, tasks, used, options.prompts, options.draws)
    print(f"| map | {' | '.join(tasks)} |\n|{' --- |' * (len(tasks) + 1)}")
    for name in maps:
        print(f"| {name} | {' | '.join(describe(tests.sel(test=f'{name}: {task}')) for task in tasks)} |")


if __name__ == "__main__":
    main()

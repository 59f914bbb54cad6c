"""Measure whether maps help to edit a model: remove the heads of one task by each method's map of an atlas, and measure
what this task and others lose, on checkpoints that plain transformers loads.

python benchmarks/edit.py atlas --task math --top 10

The top heads of each map of the task are removed and, for comparison, random heads of the same layers as the first
map's. Prints a Markdown table of changes of mean log P(target) on rows that no map of the atlas used.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import make_parser
from transformers import AutoModelForCausalLM, AutoTokenizer

import headatlas as ha
from headatlas.edits.measure import Scores, measure_scores
from headatlas.edits.rows import load_tests, rows_of_atlas
from headatlas.evidence.control import Heads, same_layers, top_heads
from headatlas.models.loading import find_folder, open_parameters
from headatlas.results.charts import stack_maps
from headatlas.tasks.prompts import Task


def head_sets(atlas: ha.Atlas, task: str, top: int) -> Iterator[tuple[str, Heads]]:
    """Yield the heads of the task by each map."""
    charts = stack_maps(atlas.results)
    for chart in np.flatnonzero(charts.subject.values == task):
        chart_scores = charts.isel(chart=chart)
        if heads := top_heads(chart_scores.score.values, min(top, int((chart_scores.score > 0).sum()))):
            yield f"{chart_scores.method.item()}: {chart_scores.measure.item()}", heads


def score_checkpoint(folder: str | Path, tests: list[Task], limit: int) -> dict[str, Scores]:
    """Score tasks on a checkpoint that plain transformers loads."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    lm = ha.load(model, tokenizer=AutoTokenizer.from_pretrained(folder))
    return measure_scores(lm, tests, limit)


def main() -> None:
    parser = make_parser(
        __doc__, model="smollm2", task="math", others="syntax,commonsense,aba_abb", top=10, limit=64, draws=3
    )
    parser.add_argument("atlas")
    args = parser.parse_args()
    atlas = ha.open(args.atlas)
    tasks = [args.task, *args.others.split(",")]
    named_sets = list(head_sets(atlas, args.task, args.top))
    draw = same_layers(atlas.info["model"]["n_heads"], np.random.default_rng(0))
    named_sets += [(f"random {i + 1}", draw(named_sets[0][1])) for i in range(args.draws)]
    tests, rejected = load_tests(open_parameters(args.model), tasks, rows_of_atlas(atlas), args.limit, None)
    if rejected:
        parser.error("; ".join(rejected.values()))
    baseline_scores = score_checkpoint(find_folder(args.model)[0], tests, args.limit)
    print(f"| heads of {args.task} by | removed | {' | '.join(tasks)} |\n|{' --- |' * (2 + len(tasks))}")
    cells = [f"{s.log_p.mean():.2f} ({s.right.mean():.0%})" for s in baseline_scores.values()]
    print(f"| none: log P (accuracy) | 0 | {' | '.join(cells)} |", flush=True)
    for name, heads in named_sets:
        with tempfile.TemporaryDirectory() as temporary:
            new_scores = score_checkpoint(
                ha.edit(args.model, remove=heads, out=Path(temporary) / "new", tasks=()), tests, args.limit
            )
        cells = [
            f"{new_scores[t].log_p.mean() - baseline_scores[t].log_p.mean():+.2f} ({new_scores[t].right.mean():.0%})"
            for t in baseline_scores
        ]
        print(f"| {name} | {len(heads)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

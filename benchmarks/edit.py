"""Does a map help to edit a model? The heads of one task, removed by each method's map of an atlas: what the task and
the others lose, measured on checkpoints that plain transformers loads.

python benchmarks/edit.py atlas --task math --top 10

Of each map in the atlas that has the task, the top heads are removed; of compare_maps, if it is there, the heads that
each method chose itself. Beside them: random heads of the same layers as the first map's. Prints a Markdown table of
changes of mean log P(target) on rows that no map of the atlas used.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import arguments
from transformers import AutoModelForCausalLM, AutoTokenizer

import headatlas as ha
from headatlas.edits.measure import Scores, scores
from headatlas.edits.rows import load_tests, rows_of_atlas
from headatlas.evidence.control import Heads, same_layers, top_heads
from headatlas.models.loading import find_folder, open_parameters
from headatlas.results.charts import stack_maps
from headatlas.tasks.prompts import Task


def sets_of(atlas: ha.Atlas, task: str, top: int) -> Iterator[tuple[str, Heads]]:
    """Heads of the task by each map."""
    charts = stack_maps(atlas.results)
    for chart in np.flatnonzero(charts.subject.values == task):
        one = charts.isel(chart=chart)
        if heads := top_heads(one.score.values, min(top, int((one.score > 0).sum()))):
            yield f"{one.method.item()}: {one.measure.item()}", heads
    if "compare_maps" in atlas and task in atlas["compare_maps"]["function"].values:
        chosen = atlas["compare_maps"].selected.sel(function=task)
        for ranking in chosen.ranking.values:
            heads = [(int(a), int(b)) for a, b in np.argwhere(chosen.sel(ranking=ranking).values)]
            if heads:
                yield f"compare_maps: {ranking}", heads


def measured(folder: str | Path, tests: list[Task], limit: int) -> dict[str, Scores]:
    """Tasks of a checkpoint that plain transformers loads."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    lm = ha.load(model, tokenizer=AutoTokenizer.from_pretrained(folder))
    return scores(lm, tests, limit)


def main() -> None:
    parser = arguments(
        __doc__, model="smollm2", task="math", others="syntax,commonsense,aba_abb", top=10, limit=64, draws=3
    )
    parser.add_argument("atlas")
    args = parser.parse_args()
    atlas, tasks = ha.open(args.atlas), [args.task, *args.others.split(",")]
    sets = list(sets_of(atlas, args.task, args.top))
    draw = same_layers(atlas.info["model"]["n_heads"], np.random.default_rng(0))
    sets += [(f"random {i + 1}", draw(sets[0][1])) for i in range(args.draws)]
    tests, refused = load_tests(open_parameters(args.model), tasks, rows_of_atlas(atlas), args.limit, None)
    if refused:
        parser.error("; ".join(refused.values()))
    before = measured(find_folder(args.model)[0], tests, args.limit)
    print(f"| heads of {args.task} by | removed | {' | '.join(tasks)} |\n|{' --- |' * (2 + len(tasks))}")
    cells = [f"{s.log_p.mean():.2f} ({s.right.mean():.0%})" for s in before.values()]
    print(f"| none: log P (accuracy) | 0 | {' | '.join(cells)} |", flush=True)
    for name, heads in sets:
        with tempfile.TemporaryDirectory() as aside:
            now = measured(ha.edit(args.model, remove=heads, out=Path(aside) / "new", tasks=()), tests, args.limit)
        cells = [f"{now[t].log_p.mean() - before[t].log_p.mean():+.2f} ({now[t].right.mean():.0%})" for t in before]
        print(f"| {name} | {len(heads)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Do the top heads of maps carry the answer? Their outputs are put into prompts that call for another one.

    python benchmarks/transfer.py ATLAS … [--methods gate,dissociate,function_vector] [--pairs 24] [--draws 59]
                                          [--model smollm2] [--device auto] [--out FILE]

For every map of these methods in the atlases: the top 5 % of heads, on the prompts that `benchmark --atlas` asks.
docs/concepts/evidence.md says what the columns are. 14 maps of the default model take half an hour on one core.
"""

import json
from pathlib import Path

import numpy as np
from common import arguments

import headatlas as ha
from headatlas.evidence.control import TOP_SHARE, correct_p, top_heads
from headatlas.evidence.transfer import transfer_heads
from headatlas.methods import get_method

WIDTHS = {"method": 17, "subject": 20}


def rows_of(lm: ha.LM, atlas: ha.Atlas, method: str, pairs: int, draws: int) -> list[dict[str, float | str]]:
    """One for each map of a method, printed as soon as it is known."""
    record, result, rows = get_method(method), atlas[method], []
    first = record.measures[0]
    for subject in result[first.over].values.tolist():
        score = result[first.name].sel({first.over: subject})
        score = (score.mean("seed") if "seed" in score.dims else score).transpose("layer", "head").values
        heads = top_heads(score, max(1, round(TOP_SHARE * np.isfinite(score).sum())))
        moved = transfer_heads(lm, record.ask(lm, subject), heads, n=pairs, draws=draws)
        row = {
            "method": method,
            "subject": subject,
            "heads": len(heads),
            "follows": moved.follows,
            "random": float(moved.random_follows.mean()),
            "followed": moved.followed,
            "disturbs": moved.disturbs,
            "random disturbs": float(moved.random_disturbs.mean()),
            "p": moved.p,
            "pairs": f"{moved.other_pairs} + {moved.same_pairs}",
        }
        print(line(row), flush=True)
        rows.append(row)
    return rows


def line(row: dict[str, float | str]) -> str:
    cells = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()]
    return "  ".join(cell.ljust(WIDTHS.get(name, max(7, len(name)))) for name, cell in zip(row, cells, strict=True))


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto", pairs=24, draws=59)
    parser.add_argument("atlases", nargs="+", type=Path)
    parser.add_argument("--methods", default="gate,dissociate,function_vector")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lm = ha.load(options.model, options.device)
    names = ("method", "subject", "heads", "follows", "random", "followed", "disturbs", "random disturbs", "p", "pairs")
    print(line({name: name for name in names}))
    rows = []
    for folder in options.atlases:
        atlas = ha.open(folder)
        atlas.check_model(lm.weights, lm.name)
        for method in options.methods.split(","):
            if method in atlas.complete:
                rows += rows_of(lm, atlas, method, options.pairs, options.draws)
    corrected = correct_p(np.array([row["p"] for row in rows]))
    print("p corrected for their number:", ", ".join(f"{p:.3f}" for p in corrected))
    if options.out:
        told = [row | {"p corrected": float(p)} for row, p in zip(rows, corrected, strict=True)]
        options.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

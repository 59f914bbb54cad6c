"""Test whether the top heads of maps carry the answer: put their outputs into prompts with another answer.

    python benchmarks/transfer.py ATLAS … [--methods gate,dissociate,function_vector] [--pairs 24] [--draws 59]
                                          [--model smollm2] [--device auto] [--out FILE]

Tests the top 5 % of heads of every map of these methods in the atlases, on the prompts of `benchmark --atlas`.
docs/concepts/evidence.md explains the columns. 14 maps of the default model take half an hour on one core.
"""

import json
from pathlib import Path

import numpy as np
from common import make_parser

import headatlas as ha
from headatlas.evidence.control import TOP_SHARE, correct_p, top_heads
from headatlas.evidence.transfer import transfer_heads
from headatlas.methods import get_method

WIDTHS = {"method": 17, "subject": 20}


def transfer_rows(lm: ha.LM, atlas: ha.Atlas, method: str, pairs: int, draws: int) -> list[dict[str, float | str]]:
    """Test each map of a method; every row is printed as soon as it is computed."""
    record = get_method(method)
    result = atlas[method]
    rows = []
    measure = record.measures[0]
    for subject in result[measure.over].values.tolist():
        score = result[measure.name].sel({measure.over: subject})
        score = (score.mean("seed") if "seed" in score.dims else score).transpose("layer", "head").values
        heads = top_heads(score, max(1, round(TOP_SHARE * np.isfinite(score).sum())))
        transfer = transfer_heads(lm, record.ask(lm, subject), heads, n=pairs, draws=draws)
        row = {
            "method": method,
            "subject": subject,
            "heads": len(heads),
            "follows": transfer.follows,
            "random": float(transfer.random_follows.mean()),
            "followed": transfer.followed,
            "disturbs": transfer.disturbs,
            "random disturbs": float(transfer.random_disturbs.mean()),
            "p": transfer.p,
            "pairs": f"{transfer.other_pairs} + {transfer.same_pairs}",
        }
        print(format_row(row), flush=True)
        rows.append(row)
    return rows


def format_row(row: dict[str, float | str]) -> str:
    cells = [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()]
    return "  ".join(cell.ljust(WIDTHS.get(name, max(7, len(name)))) for name, cell in zip(row, cells, strict=True))


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", pairs=24, draws=59)
    parser.add_argument("atlases", nargs="+", type=Path)
    parser.add_argument("--methods", default="gate,dissociate,function_vector")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lm = ha.load(options.model, options.device)
    names = ("method", "subject", "heads", "follows", "random", "followed", "disturbs", "random disturbs", "p", "pairs")
    print(format_row({name: name for name in names}))
    rows = []
    for folder in options.atlases:
        atlas = ha.open(folder)
        atlas.check_model(lm.weights, lm.name)
        for method in options.methods.split(","):
            if method in atlas.complete:
                rows += transfer_rows(lm, atlas, method, options.pairs, options.draws)
    corrected = correct_p(np.array([row["p"] for row in rows]))
    print("p corrected for the number of maps:", ", ".join(f"{p:.3f}" for p in corrected))
    if options.out:
        corrected_rows = [row | {"p corrected": float(p)} for row, p in zip(rows, corrected, strict=True)]
        options.out.write_text(json.dumps(corrected_rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The model card of an edited checkpoint: the edit, the evidence for it, and its effect on tasks."""

import re
from typing import Any

from headatlas import __version__

RECORD = "headatlas-edit.json"
Record = dict[str, Any]
"""An edit as plain values: `edit.describe` makes it, the card prints it, and a JSON file next to the card holds it."""


def card(record: Record) -> str:
    """Render a record as the README.md of its checkpoint."""
    parts = [_front_matter(record), f"# {record['model']}, edited"]
    parts += [*_edit(record), *_evidence(record), *_effect(record)]
    parts += ["## Load it", _LOAD, f"`{RECORD}` holds all of this for programs."]
    return "\n\n".join(parts) + "\n"


_LOAD = """It is an ordinary checkpoint; the edit is in its weights.

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("path/to/this/folder")
tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")
```"""


def _front_matter(record: Record) -> str:
    base = [f"base_model: {record['model']}"] if re.fullmatch(r"[\w.-]+/[\w.-]+", record["model"]) else []
    return "\n".join(["---", *base, "library_name: transformers", "tags:", "- headatlas", "- edited", "---"])


def _edit(record: Record) -> list[str]:
    source = f"Made from `{record['model']}` ({_identity(record)}) with HeadAtlas {__version__}."
    if record["dequantised"]:
        source += " Its weights came from a quantised GGUF file and are stored dequantised."
    lines = []
    if removed := record["removed"]:
        lines.append(f"- {_count(removed)} removed: {', '.join(removed)}.")
    if scaled := record["scaled"]:
        lines.append(f"- {_count(scaled)} scaled: {', '.join(f'{h} × {f:g}' for h, f in scaled.items())}.")
    if steered := record["steered"]:
        lengths = ", ".join(f"{name} ({length:.3g})" for name, length in steered.items())
        lines.append(f"- A constant added (its length): {lengths}.")
    if pruned := record["pruned"]:
        lines.append(f"- {saved_in_words(pruned)}")
    return [source, "## What was done", "\n".join(lines)]


def _identity(record: Record) -> str:
    """Describe the hashes that identify the weights; with an atlas, those that were compared."""
    if "checked" not in record:
        return f"fingerprint {record['fingerprint']}"
    checked = record["checked"].replace("_", " ")
    return (
        f"fingerprint {record['fingerprint']}, values hash {record['values_hash']}, as in the atlas;"
        f" the {checked} was checked"
    )


def saved_in_words(pruned: dict[str, Any]) -> str:
    """Describe in a sentence what pruning saved."""
    share = pruned["parameters"] / pruned["all_parameters"]
    cache = pruned["cache"] / pruned["all_cache"]
    return (
        f"{pruned['groups']} key-value group{'s' * (pruned['groups'] > 1)} of every layer removed:"
        f" {pruned['parameters']:,} fewer parameters ({share:.1%}) and {pruned['cache']:,} fewer bytes of cache per"
        f" token ({cache:.0%}); every layer now has {pruned['n_heads']} heads in {pruned['n_kv_heads']} groups."
        " Heads are renumbered."
    )


def _evidence(record: Record) -> list[str]:
    if not record["sets"]:
        return ["## Evidence", "The heads were named by the user."]
    lines = [f'- "{s["set"]}" ({_count(s["heads"])}): {s["why"]}' for s in record["sets"]]
    return ["## Evidence", f"From the atlas `{record['atlas']}`:", "\n".join(lines)]


def _effect(record: Record) -> list[str]:
    rows = record["effects"]
    refused = [f"Not measured: {why}." for why in record["not_measured"].values()]
    if not rows:
        return ["## Effect", *refused, "Not measured. To measure it, run `headatlas evaluate ORIGINAL THIS --tasks …`."]
    columns = ["task", "examples", "shots"]
    columns += [f"{name} {when}" for name in ("accuracy", "log P", "choice") for when in ("before", "after")]
    columns += ["change", "random heads", "beyond random (95 % interval)", "p", "outcome"]
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    for r in rows:
        numbers = [r[f"{name}{when}"] for name in ("accuracy", "log_p", "choice") for when in ("", "_after")]
        beyond = r["change"] - (r["random"] or 0.0)
        cells = [r["task"], str(r["examples"]), str(r["shots"]), *map(_two_digits, numbers), f"{r['change']:+.2f}"]
        cells += [_two_digits(r["random"]), f"{beyond:+.2f} ({r['low']:.2f} to {r['high']:.2f})"]
        cells += ["-" if r["p_corrected"] is None else f"{r['p_corrected']:.2g}", r["outcome"] or "-"]
        lines.append(f"| {' | '.join(cells)} |")
    maps = ", ".join(record["rows_of"])
    unused = f" The maps of the atlas ({maps}) used none of these examples." if maps else ""
    legend = (
        "log P is the mean log P per token of the answers, choice is log P of an answer's first token among the answers"
        f" of the task; by this checkpoint (after) and the original (before).{unused} Shots: few-shot examples per"
        " prompt. Change: of log P."
    )
    compared = [r for r in rows if r["draws"]]
    if compared:
        legend += (
            f" Random heads: mean change over up to {max(r['draws'] for r in compared)} draws of as many heads,"
            f" {compared[0]['random_heads']}. p: how often such a draw lowers log P and choice as much, corrected for"
            " the number of tasks. Outcome: whether the task needs these heads."
        )
    reasons = [f"- {r['task']}: {r['outcome']}: {r['reason']}." for r in compared]
    return ["## Effect", "\n".join(lines), legend, *(["\n".join(reasons)] if reasons else []), *refused]


def _two_digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _count(heads: Any) -> str:
    return f"{len(heads)} head{'s' * (len(heads) != 1)}"

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
        f"{pruned['groups']} key-value group{'s' * (pruned['groups'] > 1)} of every layer dropped:"
        f" {pruned['parameters']:,} parameters fewer ({share:.1%}), {pruned['cache']:,} bytes of cache fewer for every"
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
    head = "| task | examples | shots | accuracy before | after | log P before | after | change | random heads | p |"
    lines = [head, "|" + " --- |" * 10]
    for r in rows:
        numbers = [r["accuracy"], r["accuracy_after"], r["log_p"], r["log_p_after"]]
        control = ["-", "-"] if r["p"] is None else [f"{r['random']:+.2f}", f"{r['p']:.2g}"]
        counts = [str(r["examples"]), str(r["shots"])]
        cells = [r["task"], *counts, *(f"{n:.2f}" for n in numbers), f"{r['change']:+.2f}", *control]
        lines.append(f"| {' | '.join(cells)} |")
    maps = ", ".join(record["rows_of"])
    unused = f" The maps of the atlas ({maps}) used none of these examples." if maps else ""
    legend = (
        "log P is the mean log P(target) of examples, by this checkpoint (after) and the original (before)."
        f"{unused} Shots: few-shot examples per prompt."
        f" Random heads: mean change over {rows[0]['draws']} draws, each the same edit of random heads of the same"
        " layers. p: how often such a draw lowers log P as much."
    )
    return ["## Effect", "\n".join(lines), legend, *refused]


def _count(heads: Any) -> str:
    return f"{len(heads)} head{'s' * (len(heads) != 1)}"

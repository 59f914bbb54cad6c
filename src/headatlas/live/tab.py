"""Make the page's tab for prompts from its files and facts about a model."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from headatlas.models.default_model import DEFAULT_MODEL
from headatlas.models.lm import LM
from headatlas.report.page import Tab

EXAMPLES = (
    {
        "title": "A capital",
        "prompt": "The capital of Italy is",
        "target": " Rome",
        "note": "Switch off L23.H4, which attends to the country: other capitals replace Rome.",
    },
    {
        "title": "A repeated name",
        "prompt": "Mr Zorblat met Mrs Quimbly. Mr Zor",
        "target": "bl",
        "note": "Switch off L16.H0, which attends to the previous token: the name is copied less surely.",
    },
    {
        "title": "A sum",
        "prompt": "2 + 3 = 5\n4 + 4 = 8\n3 + 4 = ",
        "target": "7",
        "note": "Switch off L20.H8: the model says 8.",
    },
)
"""Example prompts; their notes are about the default model."""


def live_tab(lm: LM, prompts: Sequence[Mapping[str, str]] = EXAMPLES, recorded: Mapping[str, Any] | None = None) -> Tab:
    """Make the tab. recorded: answers stored in the page, if there is no model to ask (see `record`)."""
    show_notes = lm.name == DEFAULT_MODEL or recorded is not None
    data = {
        "prompts": [dict(p) | {"note": p.get("note", "") if show_notes else ""} for p in prompts],
        "kv": lm.n_kv_heads,
        "without": lm.layers_without_heads,
        "recorded": recorded,
    }
    script = _web_file("ask.js") + _web_file("live.js")
    return Tab(_web_file("live.html"), _web_file("live.css"), script, data, asks=recorded is None)


def _web_file(name: str) -> str:
    return (files("headatlas.live") / "web" / name).read_text(encoding="utf-8")

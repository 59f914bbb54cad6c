"""The page's part for prompts: its files, and what it needs to know of a model."""

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
        "note": "Switch off L23.H4: it looks at the country, and other capitals take Rome's place.",
    },
    {
        "title": "A repeated name",
        "prompt": "Mr Zorblat met Mrs Quimbly. Mr Zor",
        "target": "bl",
        "note": "Switch off L16.H0, which looks at the token before: the name is no longer copied so surely.",
    },
    {
        "title": "A sum",
        "prompt": "2 + 3 = 5\n4 + 4 = 8\n3 + 4 = ",
        "target": "7",
        "note": "Switch off L20.H8: the model says 8.",
    },
)
"""Prompts to begin with; notes are about the default model."""


def live_tab(lm: LM, prompts: Sequence[Mapping[str, str]] = EXAMPLES, recorded: Mapping[str, Any] | None = None) -> Tab:
    """recorded: answers that stand in the page instead of a model behind it (`record`)."""
    known = lm.name == DEFAULT_MODEL
    data = {
        "prompts": [dict(p) | {"note": p.get("note", "") if known or recorded is not None else ""} for p in prompts],
        "kv": lm.n_kv_heads,
        "without": lm.layers_without_heads,
        "recorded": recorded,
    }
    return Tab(_own("live.html"), _own("live.css"), _own("ask.js") + _own("live.js"), data, recorded is None)


def _own(name: str) -> str:
    return (files("headatlas.live") / "web" / name).read_text(encoding="utf-8")

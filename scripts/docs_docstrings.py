"""Our docstrings tell arguments as lines of 'name: what it is'. On the site they are lists."""

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(?=[\w*]+(?:, \w+)*(?:\([^)]*\))?: \S)", flags=re.MULTILINE)


class ArgumentsAsLists(griffe.Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(text: str) -> str:
    """Lines of 'name: what it is' as items of a list, in paragraphs that have some."""
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    before, *items = ARGUMENT.split(text)
    listed = [re.sub(r"^([^:]+?):", r"- `\1`:", " ".join(item.split())) for item in items]
    return "\n\n".join(part for part in (before.rstrip(), "\n".join(listed)) if part)

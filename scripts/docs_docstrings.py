"""Turn the arguments in our docstrings, which are lines of 'name: description', into lists on the site."""

import re
from typing import Any

import griffe

ARGUMENT = re.compile(r"^(?=[\w*]+(?:, \w+)*(?:\([^)]*\))?: \S)", flags=re.MULTILINE)


class ArgumentsAsLists(griffe.Extension):
    """Rewrites every docstring with arguments as lists."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_lists(obj.docstring.value)


def with_lists(text: str) -> str:
    """Turn lines of 'name: description' into items of a list, in paragraphs that have some."""
    return "\n\n".join(map(_paragraph, text.split("\n\n")))


def _paragraph(text: str) -> str:
    introduction, *items = ARGUMENT.split(text)
    list_items = [re.sub(r"^([^:]+?):", r"- `\1`:", " ".join(item.split())) for item in items]
    return "\n\n".join(part for part in (introduction.rstrip(), "\n".join(list_items)) if part)

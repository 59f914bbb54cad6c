"""Ask a language model, at an endpoint that the user names, to describe a head."""

from collections.abc import Iterable, Sequence

from headatlas.errors import CannotDo
from headatlas.tasks.endpoint import ask_endpoint, check_endpoint

PROMPT = (
    "An attention head of a language model maps tokens to tokens. Below are the tokens it amplifies most, each with the"
    " tokens it promotes most. Say in one or two sentences what the head seems to do, or that no pattern is"
    " visible.\n\n"
)


def describe_operations(operations: Iterable[tuple[str, Sequence[str]]], endpoint: str, model: str) -> str:
    """Ask `endpoint` (such as http://localhost:8000/v1) what a head does, from tokens and the tokens they promote."""
    check_endpoint("describe", endpoint)
    lines = [f"{token!r} → {', '.join(map(repr, promoted))}" for token, promoted in operations]
    try:
        return ask_endpoint(endpoint, model, PROMPT + "\n".join(lines))
    except CannotDo as e:
        raise CannotDo(f"describe: {e}") from e

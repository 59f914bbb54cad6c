"""Names of what is built in. They have a file of their own so that a name can be checked without slow imports."""

from collections.abc import Collection
from importlib.resources import files
from pathlib import Path

from headatlas.errors import BadArgument, brief, did_you_mean

BUILT_IN = {
    "math": "sums and differences of one and two digits, products, two steps, and word problems",
    "syntax": "agreement, tense, plural, pronoun, negation, question forming, minimal pairs",
    "commonsense": "multiple choice about everyday things, letters shuffled",
    "aba_abb": "which pattern random tokens follow, ABA or ABB, told by examples alone",
}
"""Tasks, and what each is about."""

FUNCTIONS = (  # in the order figures show them
    "Knowledge Recall",
    "Retrieval",
    "Logical Reasoning",
    "Decision-making",
    "Semantic Understanding",
    "Syntactic Understanding",
    "Inference",
    "Math Calculation",
)
"""Cognitive functions."""


def relation_names() -> list[str]:
    """The built-in relations."""
    return sorted(f.name.removesuffix(".json") for f in (files("headatlas.tasks") / "data" / "relations").iterdir())


def check_task(task: str | Path, relations: Collection[str] = ()) -> None:
    """That a task is built in, one of these relations, a dataset on the hub, or a file."""
    name = str(task)
    if name in BUILT_IN or name in relations or name.startswith("hf:"):
        return
    try:
        is_file = Path(task).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):  # longer than a name can be, or no user of this name
        is_file = False
    if not is_file:
        choices = f"built in ({', '.join(BUILT_IN)})"
        choices = f"{choices}, a relation ({', '.join(relations)})" if relations else choices
        near = did_you_mean(name, [*BUILT_IN, *relations])
        raise BadArgument(f"task {brief(name)} is neither {choices} nor a file.{near}")

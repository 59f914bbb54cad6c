"""Names of built-in tasks, functions and questions, in a separate file so that checking a name imports nothing slow."""

from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any

from headatlas.errors import BadArgument, brief, check_exists, did_you_mean

BUILT_IN = {
    "math": "sums and differences of one and two digits, products, two steps, and word problems",
    "syntax": "agreement, tense, plural, pronoun, negation, question forming, minimal pairs",
    "commonsense": "multiple choice about everyday things, letters shuffled",
    "aba_abb": "which pattern random tokens follow, ABA or ABB, shown only by few-shot examples",
}
"""Descriptions of the built-in tasks, by name."""

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

QUESTIONS = {  # the first is the default
    "varied": "each function has its own material, which small models can answer; wording differs between functions",
    "stories": "all functions ask about the same stories, so that wording cannot separate them: the harder control",
}
"""Descriptions of the built-in sets of questions, by name."""


def relation_names() -> list[str]:
    """Return the names of the built-in relations."""
    return sorted(f.name.removesuffix(".json") for f in (files("headatlas.tasks") / "data" / "relations").iterdir())


def built_in_questions(questions: Any) -> bool:
    """Return whether these are built-in questions, by name or by default."""
    return questions is None or (isinstance(questions, str) and questions in QUESTIONS)


def check_questions(argument: str, questions: str | Path) -> None:
    """Check that questions are built in or a file."""
    if not built_in_questions(questions):
        name = str(questions)
        near = did_you_mean(name, QUESTIONS)
        check_exists(argument, questions, "file", f", nor built-in questions ({', '.join(QUESTIONS)}).{near}")


def check_task(task: str | Path, relations: Collection[str] = ()) -> None:
    """Check that a task is built in, one of these relations, a dataset on the hub, or a file."""
    name = str(task)
    if name in BUILT_IN or name in relations or name.startswith("hf:"):
        return
    try:
        is_file = Path(task).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        # The name is too long for a path, or its ~user does not exist.
        is_file = False
    if not is_file:
        choices = f"built in ({', '.join(BUILT_IN)})"
        choices = f"{choices}, a relation ({', '.join(relations)})" if relations else choices
        near = did_you_mean(name, [*BUILT_IN, *relations])
        raise BadArgument(f"task {brief(name)} is neither {choices} nor a file.{near}")

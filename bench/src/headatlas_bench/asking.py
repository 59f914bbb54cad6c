"""The planted functions in the layouts of users' data: prompts with targets, and questions in the CogQA layout."""

from collections.abc import Iterable

import numpy as np

from headatlas.tasks.prompts import Example, Task
from headatlas_bench.functions import FUNCTIONS, WORDS, Draw
from headatlas_bench.known import UNSEEN

SHORTEST, LONGEST = 8, 40  # words before the answer


def planted_task(function: str, examples: int = 128, held_out: int = 64, seed: int = 0) -> Task:
    """Sequences cut before one of their answers: the words so far are the prompt, the answer is the target."""
    every = _examples(function, examples + held_out, seed)
    return Task(function, tuple(every[:examples]), tuple(every[examples:]))


def planted_questions(
    examples: int = 128, seed: int = 0, functions: Iterable[str] = tuple(FUNCTIONS)
) -> list[dict[str, object]]:
    """As many questions of each function, every one a main question of its own."""
    return [
        {
            "question": e.prompt,
            "answer": str(e.target).strip(),
            "generated": [{"subquestion": e.prompt, "answer": str(e.target).strip(), "cognitive_skill": function}],
        }
        for function in functions
        for e in _examples(function, examples, seed)
    ]


def _examples(function: str, n: int, seed: int) -> list[Example]:
    """n different ones. Where a sequence can be cut in several places, one is drawn."""
    generator = np.random.default_rng([seed, *map(ord, function)])
    number = UNSEEN + 1000 * (1 + seed) + list(FUNCTIONS).index(function)
    batch = FUNCTIONS[function].make(Draw(2 * n, number, "cpu"))
    every: dict[Example, None] = {}
    for tokens, answers in zip(batch.tokens.tolist(), batch.answers.tolist(), strict=True):
        places = [i for i, is_answer in enumerate(answers) if is_answer and SHORTEST <= i <= LONGEST]
        if places and len(every) < n:
            cut = int(generator.choice(places))
            every[Example(" ".join(WORDS[t] for t in tokens[1:cut]), f" {WORDS[tokens[cut]]}")] = None
    return list(every)

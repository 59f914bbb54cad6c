"""Planted functions as tasks (prompts with targets) and as questions in the CogQA layout."""

from collections.abc import Iterable

import numpy as np

from headatlas.tasks.prompts import Example, Task
from headatlas_bench.functions import FUNCTIONS, WORDS, Draw
from headatlas_bench.ground_truth import FIRST_UNSEEN_SEED

# Words before the answer.
MIN_PROMPT_WORDS = 8
MAX_PROMPT_WORDS = 40


def planted_task(function: str, examples: int = 128, held_out: int = 64, seed: int = 0) -> Task:
    """Cut sequences before one of their answers: the words so far are the prompt, the answer is the target."""
    drawn_examples = _draw_examples(function, examples + held_out, seed)
    return Task(function, tuple(drawn_examples[:examples]), tuple(drawn_examples[examples:]))


def planted_questions(
    examples: int = 128, seed: int = 0, functions: Iterable[str] = tuple(FUNCTIONS)
) -> list[dict[str, object]]:
    """Draw `examples` questions of each function, each in its own main question."""
    return [
        {
            "question": e.prompt,
            "answer": str(e.target).strip(),
            "generated": [{"subquestion": e.prompt, "answer": str(e.target).strip(), "cognitive_skill": function}],
        }
        for function in functions
        for e in _draw_examples(function, examples, seed)
    ]


def _draw_examples(function: str, n: int, seed: int) -> list[Example]:
    """Draw n different examples. Where a sequence can be cut in several places, one is drawn."""
    generator = np.random.default_rng([seed, *map(ord, function)])
    batch_seed = FIRST_UNSEEN_SEED + 1000 * (1 + seed) + list(FUNCTIONS).index(function)
    batch = FUNCTIONS[function].make(Draw(2 * n, batch_seed, "cpu"))
    # A dict is an ordered set.
    distinct: dict[Example, None] = {}
    for tokens, answers in zip(batch.tokens.tolist(), batch.answers.tolist(), strict=True):
        places = [i for i, is_answer in enumerate(answers) if is_answer and MIN_PROMPT_WORDS <= i <= MAX_PROMPT_WORDS]
        if places and len(distinct) < n:
            cut = int(generator.choice(places))
            distinct[Example(" ".join(WORDS[t] for t in tokens[1:cut]), f" {WORDS[tokens[cut]]}")] = None
    return list(distinct)

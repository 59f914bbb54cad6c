"""What tiny models are asked, in the words of their tokenizer."""

import numpy as np

from headatlas.tasks.names import FUNCTIONS
from headatlas.tasks.prompts import Example, Task


def words(generator: np.random.Generator, n: int) -> str:
    return " ".join(f"w{i}" for i in generator.integers(57, size=n))


def task(name: str, seed: int) -> Task:
    """Prompts of many lengths, so that batches are padded or packed."""
    generator = np.random.default_rng(seed)
    examples = tuple(Example(words(generator, 3 + i % 7), f" {words(generator, 1 + i % 2)}") for i in range(24))
    return Task(name, examples[:12], examples[12:])


TASKS = [task("first", 0), task("second", 1)]


def questions(n: int = 50, seed: int = 0) -> list[dict]:
    """Four steps to a main question; a function shows in the first word of the answer."""
    generator = np.random.default_rng(seed)
    mains = []
    for i in range(n):
        steps = [
            {
                "subquestion": words(generator, 3),
                "answer": f"w{5 * c + generator.integers(3)} {words(generator, generator.integers(8))}",
                "cognitive_skill": FUNCTIONS[c],
            }
            for c in generator.choice(8, 4, replace=False)
        ]
        mains.append({"question": f"w{i % 57} w{i // 57} {words(generator, 3)}", "answer": "w1", "generated": steps})
    return mains

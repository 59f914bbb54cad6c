"""Measure the share of the built-in questions that a model answers correctly, by function and question set.

python benchmarks/questions.py MODEL --dtype bfloat16

Test questions are answered greedily, in the chat template, and scored by `headatlas.tasks.scoring.is_right`.
"""

import numpy as np
from common import make_parser

import headatlas as ha
from headatlas.models.generation import generate_answers
from headatlas.tasks.built_in import QUESTIONS
from headatlas.tasks.questions import Question, function_names, load_questions, prompt_ids
from headatlas.tasks.scoring import is_right

# The longest reference answers have nine words.
NEW_TOKENS = 24


def answers_correctly(lm: ha.LM, questions: list[Question]) -> np.ndarray:
    answers = generate_answers(lm, [prompt_ids(lm, q) for q in questions], NEW_TOKENS)
    texts = [lm.tokenizer.decode(answer, skip_special_tokens=True) for answer in answers]
    return np.array([is_right(text, q.answer) for text, q in zip(texts, questions, strict=True)])


def main() -> None:
    parser = make_parser(__doc__, dtype="auto", device="auto")
    parser.add_argument("model")
    options = parser.parse_args()
    lm = ha.load(options.model, options.device, options.dtype)
    print(f"{lm}\n| function | " + " | ".join(QUESTIONS) + " |\n| --- | " + " | ".join("---" for _ in QUESTIONS) + " |")
    rows: dict[str, list[str]] = {}
    for name in QUESTIONS:
        questions = [q for q in load_questions(name) if q.split == "test"]
        right = answers_correctly(lm, questions)
        function_of = np.array([q.function for q in questions])
        for function in function_names(questions):
            rows.setdefault(function, []).append(
                f"{right[function_of == function].mean():.0%} of {(function_of == function).sum()}"
            )
        rows.setdefault("all", []).append(f"{right.mean():.0%} of {len(questions)}")
    for function, cells in rows.items():
        print(f"| {function} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

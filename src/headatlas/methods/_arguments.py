"""Arguments that several methods share, with their help texts."""

from typing import Annotated, Any, Literal

from headatlas.tasks.built_in import QUESTIONS

Tasks = Annotated[Any, "built-in tasks, files with prompt and target, 'hf:' addresses, or your examples"]
FunctionTasks = Annotated[
    Any,
    "built-in tasks and relations, files, or {name: examples}; each is a function, and of a single task each kind of"
    " example",
]
Questions = Annotated[
    Any, f"built-in questions ({', '.join(QUESTIONS)}), or a file or a list in the CogQA layout (default: varied)"
]
Limit = Annotated[int | None, "approximate number of examples to use"]
Shots = Annotated[
    int | None, "few-shot examples before each prompt (default: the number of a built-in task, none for others)"
]
Seeds = Annotated[Any, "number of seeds, or a list of seeds"]
Strength = Annotated[float, "size of λ, the pressure on gates"]
Batch = Annotated[int, "examples per update"]
Low = Annotated[float, "lower end of the uniform distribution that initial gates are drawn from; the upper end is 1"]
BatchTokens = Annotated[
    int | None, "tokens run through the model at once (default: what fits); lower it if memory runs out"
]
Context = Annotated[Literal["retrieval", "all", "none"], "which earlier steps a question's prompt contains"]
Template = Annotated[bool, "whether to put prompts into the tokenizer's chat template, if it has one"]
Test = Annotated[Any, "test questions in the CogQA layout (default: a fifth of the data)"]

"""Arguments that several methods have, with the help that goes with them. They mean the same everywhere."""

from typing import Annotated, Any, Literal

from headatlas.tasks.built_in import QUESTIONS

Tasks = Annotated[Any, "built-in tasks, files with prompt and target, 'hf:' addresses, or examples of your own"]
FunctionTasks = Annotated[
    Any, "each is a function: built-in tasks and relations, files, {name: examples}; of one, each kind"
]
Questions = Annotated[
    Any, f"built-in questions ({', '.join(QUESTIONS)}), or a file or a list in the CogQA layout (default: varied)"
]
Limit = Annotated[int | None, "use about so many examples"]
Shots = Annotated[int | None, "worked examples before each prompt; built-in tasks have their own number, others none"]
Seeds = Annotated[Any, "number of seeds, or the seeds themselves"]
Strength = Annotated[float, "size of λ, the pressure on gates"]
Batch = Annotated[int, "examples per update"]
Low = Annotated[float, "gates start from Uniform(low, 1)"]
BatchTokens = Annotated[int | None, "tokens through the model at once; lower it when memory runs out"]
Context = Annotated[Literal["retrieval", "all", "none"], "earlier steps that a question is told"]
Template = Annotated[bool, "ask in the tokenizer's chat template, where it has one"]
Test = Annotated[Any, "test questions in the CogQA layout; by default a fifth of the data"]

"""Material for prompts: relations, tasks of prompt and target, cognitive questions, needles and texts.

Built-in material is in data/.
"""

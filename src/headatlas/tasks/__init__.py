"""What is asked of a model: relations, tasks of prompt and target, and cognitive questions. Their data are in data/."""

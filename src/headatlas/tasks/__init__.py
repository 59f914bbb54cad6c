"""What is asked of a model: relations, and tasks of prompt and target; cognitive questions to come. Data lies in data/."""

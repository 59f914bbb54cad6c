"""What is asked of a model: relations so far; cognitive questions and gate tasks to come. Data lies in data/."""

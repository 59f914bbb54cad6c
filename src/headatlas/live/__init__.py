"""The live page: try a prompt, see what every head attends to and writes, switch heads, compare with random heads."""

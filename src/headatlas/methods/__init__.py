"""One file per method, the paper's steps numbered in its docstring."""

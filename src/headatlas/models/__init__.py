"""Loading · families (where each architecture keeps its heads) · heads (read, scale, remove, patch) · weights."""

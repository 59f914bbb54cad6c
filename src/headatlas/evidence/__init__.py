"""Whether a map is true: removal curves, switching gates, agreement."""

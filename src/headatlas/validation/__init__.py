"""Whether a map is true: removal curves so far."""

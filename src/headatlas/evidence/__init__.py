"""Whether a map is true: the removal experiment, selectivity, known heads."""

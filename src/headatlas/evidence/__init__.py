"""Whether a map is true: the removal experiment, selectivity, agreement, known heads."""

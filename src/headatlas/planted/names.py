"""Names that the benchmark has beside those of methods."""

BASELINES = ("random", "norm", "gradient", "direct")  # what any map of heads has to beat
KINDS = ("functions", "interference", "relations", "suppression", "copying")  # of truth

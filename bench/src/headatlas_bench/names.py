"""Names that the benchmark has beside those of methods."""

BASELINES = ("random", "norm", "gradient", "direct")  # what any map of heads has to beat
KINDS = ("functions", "interference", "relations", "suppression", "copying")  # of truth
PLAIN = ("one", "two")  # the models that come with the package: a function's heads are its own
HARDER = ("spare-one", "spare-two", "joint-one", "joint-two")  # with heads that are spare, shared, relaying, harmful
SHIPPED = (*PLAIN, *HARDER)
MODEL_KINDS = ("plain", "spare", "joint")  # that `plant` trains

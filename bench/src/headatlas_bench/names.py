"""Names that the benchmark adds to those of methods."""

# Every map of heads has to beat these.
BASELINES = ("random", "norm", "gradient", "direct")
TRUTH_KINDS = ("functions", "interference", "relations", "suppression", "copying")
# Shipped models. In plain ones every function has separate heads; harder ones add spare, shared, relay and
# harmful heads.
PLAIN = ("one", "two")
HARDER = ("spare-one", "spare-two", "joint-one", "joint-two")
SHIPPED = (*PLAIN, *HARDER)
# What `plant` can train. Repeated here because `circuits` imports torch.
MODEL_KINDS = ("plain", "spare", "joint")

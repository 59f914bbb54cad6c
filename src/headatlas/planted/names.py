"""The names of the benchmark's baselines: what any measure of heads has to beat."""

BASELINES = ("random", "norm", "gradient")

"""Meanings of the variables of results: of the names that methods share, and of those that a method declares.

Each variable carries its meaning in its attributes `long_name`, `units` and `description`, where tables, figures and
other people's scripts read it.
"""

from collections.abc import Mapping, Sequence

import xarray as xr

from headatlas.methods.method import Measure, Variable
from headatlas.results.stored_reliability import BY_HEAD, BY_SUBJECT, variable_name

# Their attribute `seeds` is the number of seeds: only those of the same number can be compared.
OVER_SEEDS = ("always", "any")
COMMON: Mapping[str, Variable] = {
    "contribution": Variable(
        "contribution", "nats", "What a head adds to log P(target): above 0 it helps, below 0 it harms."
    ),
    "importance": Variable("importance", "", "Mean absolute size of the head's contribution; 0 means none."),
    "score": Variable("score", "", "How strongly a head does what the subject names; higher means more."),
    "effect": Variable("change", "nats", "Change that the intervention causes; below 0 the model gets worse."),
    "random_effect": Variable(
        "random heads", "nats", "The same change for each draw of random heads, as many in each layer."
    ),
    "p": Variable("p", "", "Share of random draws that do at least as much, the tested set included."),
    "p_corrected": Variable(
        "p, corrected", "", "p corrected for the number of tests, by Benjamini and Hochberg's procedure."
    ),
    "n_removed": Variable("heads", "heads", "Number of heads that the intervention changes."),
    "baseline": Variable("log P", "nats", "Mean log P(target) of the whole model on the measured examples."),
    "whole_accuracy": Variable("accuracy", "share", "Share of examples that the whole model gets right."),
    "guess_accuracy": Variable("best guess", "share", "Share right when the commonest answer is always given."),
    "examples": Variable("examples", "examples", "Number of examples that the map is measured on."),
    "questions": Variable("questions", "questions", "Number of questions that the test uses."),
    "selected": Variable("selected", "", "Whether the head is in the set that the test removes."),
    "gate": Variable("gate", "", "Fitted gate of a head: 0 is closed, 1 is open."),
    "nll": Variable("−log P", "nats", "Mean −log P(target) on held-out examples under the gates."),
    "always": Variable(
        "lowest over seeds", "", "Lowest score over seeds: high means that all agree. It falls with their number."
    ),
    "any": Variable(
        "highest over seeds", "", "Highest score over seeds: high in at least one of them. It rises with their number."
    ),
    "chance": Variable("chance", "", "Highest score that chance explains."),
    "low": Variable("low", "", "Lower end of the interval of the score."),
    "high": Variable("high", "", "Upper end of the interval of the score."),
    "accuracy": Variable("accuracy", "share", "Share of held-out examples that are answered right."),
    "repeats": Variable("repeats", "", "Number of repeats of the map: examples, texts or seeds."),
    "reliability": Variable(
        "reliability",
        "",
        "Spearman correlation over heads between maps from two halves of the repeats, averaged over random splits; NaN"
        " if unknown.",
    ),
    "whole_reliability": Variable(
        "reliability of the whole map",
        "",
        "Expected Spearman correlation with a map from as many other repeats (Spearman–Brown).",
    ),
    "top_overlap": Variable(
        "top heads in both halves", "share", "Share of the top 5 % of heads of one half that is in the other's too."
    ),
    "se": Variable("standard error", "", "Standard error of a head's score: of its mean over repeats."),
    "inclusion": Variable(
        "inclusion", "share", "Share of bootstraps over repeats in which the head is in the top 5 % of the map."
    ),
    "resolved": Variable(
        "resolved", "", "Whether the head differs from the rest of its layer, at a false discovery rate of 5 %."
    ),
}


def describe_variables(
    result: xr.Dataset, measures: Sequence[Measure] = (), variables: Mapping[str, Variable] | None = None
) -> xr.Dataset:
    """Set `long_name`, `units` and `description` on each variable that has a known meaning.

    The variables that a method declares take precedence over its measures, and these over the common names. Attributes
    that a variable already has are kept.
    """
    of_measures = {m.name: Variable(m.label or m.name.replace("_", " "), m.units, m.meaning) for m in measures}
    meanings = {**COMMON, **of_measures, **_reliability_variables(measures), **(variables or {})}
    described = result.copy()
    for name, values in described.data_vars.items():
        if name in meanings:
            variable = meanings[str(name)]
            # Along the dimension `measure`, units differ.
            units = "" if "measure" in values.dims else variable.units
            texts = {"long_name": variable.long_name, "units": units, "description": variable.description}
            values.attrs = {**texts, **values.attrs}
        if name in OVER_SEEDS and "seed" in result.sizes:
            values.attrs["seeds"] = result.sizes["seed"]
    return described


def _reliability_variables(measures: Sequence[Measure]) -> dict[str, Variable]:
    """Describe the variables with the reliability of each measure."""
    described = {}
    for measure in measures:
        suffix = f", {measure.name}" if len(measures) > 1 else ""
        for name in (*BY_SUBJECT, *BY_HEAD):
            units = measure.units if name == "se" else COMMON[name].units
            described[variable_name(name, measure, measures)] = Variable(
                COMMON[name].long_name + suffix, units, COMMON[name].description
            )
    return described

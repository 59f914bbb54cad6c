"""compare_maps: which method's map of a function is of heads that the function needs and the others do not?

1. Every method makes a map of each function from training questions (scores.py).
2. Each map gets its number of heads by the same rule, on validation questions (evidence/selective.py).
3. These heads are removed on the same test questions, and random heads of the same layers beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from headatlas.errors import BadArgument, brief, check_choice, check_count, check_names, list_names
from headatlas.methods._arguments import (
    BatchTokens,
    Context,
    FunctionTasks,
    Limit,
    Questions,
    Shots,
    Template,
    Test,
)
from headatlas.methods.dissociate import REMOVAL_VARIABLES
from headatlas.methods.method import PRESETS, Variable, Work, method

if TYPE_CHECKING:
    import xarray as xr

    from headatlas.models.lm import LM

Map = Literal["probe", "taylor", "ablate", "ablate-own", "gate", "dissociate"]
MAPS: tuple[str, ...] = get_args(Map)


@method(
    title="Maps compared",
    variables={
        "ranking_score": Variable("score", "", "Score that the ranking orders heads by; its unit is that of its map."),
        "selectivity": Variable(
            "selectivity", "nats", "Mean change of the others minus that of the function: above 0 it loses more."
        ),
        **REMOVAL_VARIABLES,
    },
    tells="which method's heads a function needs and the others can spare",
    does_not_tell="which map is right: it tests sets of heads, not their order",
    presets={"quick": {"effort": "quick"}, "full": {}},
    seconds=400,
    in_parts=True,
    in_run=False,
)
def compare_maps(
    lm: LM,
    tasks: FunctionTasks = None,
    *,
    questions: Questions = None,
    maps: Annotated[Mapping[str, xr.DataArray] | None, "your own, by name, each over (function, layer, head)"] = None,
    methods: Annotated[
        list[Map] | None,
        "whose maps; ablate-own is ablate less the mean over functions, probe is of questions only",
    ] = None,
    test: Test = None,
    functions: Annotated[Any, "only these"] = None,
    effort: Annotated[
        Literal["quick", "full"], "how maps are made and tested: about as in this preset of their methods"
    ] = "full",
    context: Context = "retrieval",
    limit: Limit = None,
    shots: Shots = None,
    template: Template = True,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Remove each map's heads of each function: what does the function lose, what the others?

    Functions come from `tasks` or from `questions`, as in `dissociate` (default: the built-in questions 'varied').
    methods: all, or some of probe (of questions only), taylor, ablate, ablate-own (ablate less the mean over
    functions), gate, dissociate. maps: your own beside them, made without the test questions.

    Returns:
        Over a leading `ranking`, the maps by name: ranking_score(ranking, function, layer, head), and what
        `dissociate` says of removed heads: selected, n_removed, effect, other_effect, random_effect, p, p_corrected,
        effect_curve, other_curve, verdict and proven. selectivity(ranking, function): how much more the function loses
        than the others do. baseline(function).

    Example:
        >>> ha.compare_maps("smollm2", ["math", "syntax"], methods=["taylor", "dissociate"], out="atlas")
    """
    from headatlas.methods import get_method
    from headatlas.methods.compare_maps.scores import checked_map, comparison_work, options_of
    from headatlas.tasks.labelled import load_labelled

    check_choice("effort", effort, PRESETS)
    settings = options_of("dissociate", effort)
    if limit is not None:
        check_count("limit", limit, 1)
    if maps is not None and not isinstance(maps, Mapping):
        raise BadArgument(f"maps is {brief(maps)}, expected maps by name, each over (function, layer, head)")
    if methods is not None and (not maps or not isinstance(methods, Sized) or len(methods)):  # maps alone will do
        check_names("methods", methods, MAPS)
    questions = list(questions) if isinstance(questions, Iterator) else questions
    load = partial(load_labelled, lm, tasks, questions, test, functions=functions, each=settings["per_function"])
    data = load(context=context, limit=limit, shots=shots, template=template)
    own = {name: checked_map(name, score, data, lm) for name, score in (maps or {}).items()}
    names = [name for name in _names(methods, of_tasks=tasks is not None) if name not in own]
    if not own and not names:
        raise BadArgument(f"methods is empty: name some of {', '.join(MAPS)}, or give maps")
    probed = None
    if "probe" in names:
        probe = get_method("probe")
        asked = {"test": test, "context": context, "template": template, "functions": list(data.names), "limit": limit}
        options = probe.in_preset(effort, {**asked, "proof": "none", "batch_tokens": batch_tokens})
        probed = probe.function(lm, questions, **options)
    return comparison_work(data, own, names, effort, settings, probed, batch_tokens)


def _names(methods: Any, of_tasks: bool) -> list[str]:
    """The methods whose maps are made: by default, all that can."""
    if methods is None:
        return [m for m in MAPS if m != "probe" or not of_tasks]
    names = list(dict.fromkeys(list_names("methods", methods))) if len(methods) else []
    if "probe" in names and of_tasks:
        raise BadArgument("methods has 'probe', which reads questions: it makes no maps of tasks")
    return names

"""compare_maps: test which method's map of a function finds heads that the function needs and the others do not.

1. Every method makes a map of each function from training questions (scores.py).
2. The number of heads of each map is chosen by the same rule, on validation questions (evidence/selective.py).
3. These heads are removed on the same test questions, and compared with random heads of the same layers.
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
        "ranking_score": Variable("score", "", "Score that the ranking orders heads by, in the units of its map."),
        "selectivity": Variable(
            "selectivity", "nats", "Mean change of the others minus that of the function; above 0: it loses more."
        ),
        **REMOVAL_VARIABLES,
    },
    answers="which method's heads a function needs and the others can spare",
    does_not_answer="which map is right: it tests sets of heads, not their order",
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
    maps: Annotated[
        Mapping[str, xr.DataArray] | None, "your maps to compare, by name, each over (function, layer, head)"
    ] = None,
    methods: Annotated[
        list[Map] | None,
        "methods to make maps with (default: all that can); ablate-own is ablate minus the mean over functions, probe"
        " works with questions only",
    ] = None,
    test: Test = None,
    functions: Annotated[Any, "names of the functions to compare maps of (default: all)"] = None,
    effort: Annotated[
        Literal["quick", "full"], "make and test maps with about the settings of this preset of their methods"
    ] = "full",
    context: Context = "retrieval",
    limit: Limit = None,
    shots: Shots = None,
    template: Template = True,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Remove the heads of each method's map of each function, and compare what the function and the others lose.

    Functions come from `tasks` or from `questions`, as in `dissociate` (default: the built-in questions 'varied').

    Args:
        methods: all, or some of probe (for questions only), taylor, ablate, ablate-own (ablate minus the mean over
            functions), gate, dissociate.
        maps: your maps to compare with theirs, made without the test questions.

    Returns:
        For each map, along the dimension `ranking`: ranking_score(ranking, function, layer, head), and the variables of
        the test as in `dissociate`: selected, n_removed, effect, other_effect, random_effect, p, p_corrected,
        effect_curve, other_curve, verdict and proven. selectivity(ranking, function), how much more the function loses
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
    # methods may be empty if there are maps
    if methods is not None and (not maps or not isinstance(methods, Sized) or len(methods)):
        check_names("methods", methods, MAPS)
    questions = list(questions) if isinstance(questions, Iterator) else questions
    per_function = settings["per_function"]
    load = partial(load_labelled, lm, tasks, questions, test, functions=functions, per_function=per_function)
    data = load(context=context, limit=limit, shots=shots, template=template)
    user_maps = {name: checked_map(name, score, data, lm) for name, score in (maps or {}).items()}
    names = [name for name in _choose_methods(methods, with_tasks=tasks is not None) if name not in user_maps]
    if not user_maps and not names:
        raise BadArgument(f"methods is empty: name some of {', '.join(MAPS)}, or give maps")
    probe_work = None
    if "probe" in names:
        probe = get_method("probe")
        options = {"test": test, "context": context, "template": template, "functions": list(data.names)}
        options |= {"limit": limit, "proof": "none", "batch_tokens": batch_tokens}
        probe_work = probe.function(lm, questions, **probe.in_preset(effort, options))
    return comparison_work(data, user_maps, names, effort, settings, probe_work, batch_tokens)


def _choose_methods(methods: Any, with_tasks: bool) -> list[str]:
    """Return the methods to make maps with; by default, all that can."""
    if methods is None:
        return [m for m in MAPS if m != "probe" or not with_tasks]
    names = list(dict.fromkeys(list_names("methods", methods))) if len(methods) else []
    if "probe" in names and with_tasks:
        raise BadArgument("methods has 'probe', which makes maps of questions only, not of tasks")
    return names

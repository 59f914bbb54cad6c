"""What figures show, without drawing them."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.figures import categories, forest, gates, importance, layers
from headatlas.figures.agreement_matrix import plan as plan_agreement
from headatlas.figures.all import caption, pictures
from headatlas.figures.colour_scale import neat_step
from headatlas.figures.specialisation_matrix import plan as plan_specialisation
from headatlas.figures.style import PALETTES, columns, heading, printable, ticks, wrap
from headatlas.methods import title_of
from headatlas.results.about import by_kv_group
from headatlas.results.stored_tests import with_outcomes
from headatlas.tasks.questions import FUNCTIONS
from tests.figures import synthetic
from tests.figures.made_tests import make_tests, with_tests


@pytest.mark.parametrize(
    ("n", "every", "max_ticks", "expected"),
    [
        (32, 6, 9, [0, 6, 12, 18, 24, 30]),
        (48, 6, 9, [0, 6, 12, 18, 24, 30, 36, 42]),
        (9, 6, 9, [0, 3, 6]),
        (1, 6, 9, [0]),
        (2, 6, 9, [0, 1]),
        (126, 6, 9, [0, 18, 36, 54, 72, 90, 108]),
        (28, 3, 12, list(range(0, 28, 3))),
        (24, 3, 12, list(range(0, 24, 3))),
        (64, 12, 12, [0, 12, 24, 36, 48, 60]),
    ],
)
def test_ticks(n, every, max_ticks, expected) -> None:
    assert ticks(n, every, max_ticks) == expected


class TestTests:
    def test_every_map_is_drawn_with_its_values_and_the_outcome_of_its_test(self) -> None:
        result = with_tests({"probe": synthetic.probe(6, 8)})["probe"]
        panels = importance.plan(result).panels
        for panel in panels:
            np.testing.assert_array_equal(panel.values, result.importance.sel(function=panel.title))
        assert [p.notes[-1] for p in panels][:4] == [
            "supported, p 0.015, 4 heads",
            "not supported, p 0.4, 4 heads",
            "undecided: 48 prompts show changes from 0.7 nats on: 95 would show 0.5",
            "no ability: 13 % right, guess 27 %",
        ]

    def test_tested_heads_are_framed(self) -> None:
        result = with_tests({"probe": synthetic.probe(6, 8)})["probe"]
        plan = importance.plan(result)
        for i, panel in enumerate(plan.panels):
            np.testing.assert_array_equal(panel.framed, result.tested_heads[0, i])
            assert panel.framed.sum() == 4
        assert plan.key == "half colour strength: at chance · framed: tested heads"

    def test_a_row_per_test_with_three_replacements_under_the_title_of_its_method(self) -> None:
        made = with_tests({"probe": synthetic.probe(6, 8), "gate": synthetic.gate(6, 8)})
        plan = forest.plan(made)
        (rows,) = plan.columns
        assert [row.label for row in rows] == ["Probe", *FUNCTIONS, "Causal head gating", "math", "syntax"]
        assert [row.outcome is None for row in rows] == [row.label in ("Probe", "Causal head gating") for row in rows]
        assert set(rows[1].outcome.beyond) == set(forest.MARKS)
        assert plan.heading == "synthetic · 3 of 10 tests supported"
        low, high = plan.ends
        assert low < min(rows[1].outcome.low.values()) < 0 < high
        with pytest.raises(BadArgument, match="maps has no tests"):
            forest.plan({"probe": synthetic.probe(6, 8)})

    def test_many_tests_are_in_several_columns(self) -> None:
        plan = forest.plan(with_tests({"probe": synthetic.probe(6, 8, [f"f{i}" for i in range(100)])}))
        assert [len(column) for column in plan.columns] == [34, 34, 33]
        assert [row.label for column in plan.columns for row in column][1:] == [f"f{i}" for i in range(100)]

    def test_other_measures_of_a_method_are_named(self) -> None:
        gate = synthetic.gate(6, 8)
        tests = make_tests({"gate": gate})
        tests["map_measure"] = "test", ["facilitation", "interference"]
        (rows,) = forest.plan(with_outcomes({"gate": gate}, tests)).columns
        assert [row.label for row in rows] == ["Causal head gating", "math", "syntax, interference"]

    def test_the_specialisation_has_what_was_removed_in_rows_and_itself_on_the_diagonal(self) -> None:
        plan = plan_specialisation(with_tests({"dissociate": synthetic.dissociate(6, 8)})["dissociate"])
        assert plan.rows == list(FUNCTIONS[:3])  # the fourth was not removed: the model cannot do it
        assert plan.columns == [*FUNCTIONS[:4], "plain text"]
        np.testing.assert_allclose(plan.values[1, 1:3], [-0.1, -0.05])


class TestImportance:
    def test_the_published_eight_in_their_order(self) -> None:
        shuffled = [FUNCTIONS[i] for i in (3, 1, 7, 0, 2, 6, 5, 4)]
        plan = importance.plan(synthetic.probe(32, 32, shuffled))
        assert [p.title for p in plan.panels] == [
            "Knowledge Recall",
            "Retrieval",
            "Logical Reasoning",
            "Decision-making",
            "Semantic Understanding",
            "Syntactic Understanding",
            "Inference",
            "Math Calculation",
        ]
        assert (plan.columns, plan.xlabel, plan.ylabel) == (4, "Head", "Layer")
        assert plan.scale.label == "Heads Importance"
        assert plan.scale.colours == "viridis"

    @pytest.mark.parametrize(
        ("shape", "labels"),
        [
            ((32, 32), ["0.0000", "0.0005", "0.0010", "0.0015", "0.0020", "0.0025", "0.0030+"]),
            ((48, 32), ["0.0000", "0.0005", "0.0010", "0.0015", "0.0020+"]),
            ((30, 9), ["0.000", "0.002", "0.004", "0.006", "0.008", "0.010", "0.012+"]),
            ((1, 1), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ],
    )
    def test_the_published_scale_ends_at_three_times_an_even_share(self, shape, labels) -> None:
        scale = importance.plan(synthetic.probe(*shape), style="published").scale
        assert scale.labels == labels
        assert scale.high == float(labels[-1].rstrip("+"))

    @pytest.mark.parametrize("shape", synthetic.SHAPES, ids=str)
    def test_at_most_five_percent_of_any_map_is_clipped(self, shape) -> None:
        for result in (synthetic.probe(*shape), synthetic.dissociate(*shape), synthetic.maps(*shape)):
            plan = importance.plan(result)
            for panel in plan.panels:
                assert (panel.values > plan.scale.high).mean() <= 0.05

    def test_no_plus_where_nothing_is_clipped(self) -> None:
        even = synthetic.probe(32, 32)
        even["importance"][:] = 1 / 1024
        even["control_importance"][:] = 0.0
        assert importance.plan(even).scale.labels[-1] == "0.0030"

    def test_cells_are_the_values(self) -> None:
        result = synthetic.probe(6, 8)
        plan = importance.plan(result)
        values = result.importance.sel(function="Retrieval")
        np.testing.assert_array_equal(plan.panels[1].values, values)
        np.testing.assert_array_equal(plan.panels[1].dimmed, ~result.clears_control.sel(function="Retrieval"))

    def test_the_published_style_has_values_without_marks(self) -> None:
        plan = importance.plan(synthetic.probe(6, 8), style="published")
        assert not any(p.notes or p.dimmed is not None or p.framed is not None for p in plan.panels)
        assert not plan.key
        with pytest.raises(BadArgument, match="style is 'plain', expected one of marked, published"):
            importance.plan(synthetic.probe(6, 8), style="plain")

    def test_a_map_at_chance_is_drawn_dimmed_and_says_so(self) -> None:
        result = synthetic.maps(6, 8)
        result["score"][0], result["score"][1] = 0.0, 0.0
        result["score"][0, 2, 3], result["score"][1, 4, 5] = 0.6, 1 / 44  # one hit in 44 pairs
        result = result.isel(relation=[0, 1]).assign(chance=("relation", [0.1, 1 / 44]))
        plan = importance.plan(result)
        assert [p.notes for p in plan.panels] == [
            ("1 of 48 heads above chance", "reliability unknown"),
            ("not above chance: best 0.023, chance 0.023", "reliability unknown"),
        ]
        result = result.assign(reliability_score=("relation", [0.8, 0.79]))
        assert [p.notes[1:] for p in importance.plan(result).panels] == [(), ("reliability 0.79, below 0.8",)]
        assert plan.panels[1].values[4, 5] == 1 / 44
        assert plan.panels[1].dimmed.all()

    def test_the_scale_reaches_beyond_chance_so_that_noise_stays_dark(self) -> None:
        result = synthetic.maps(6, 8).isel(relation=[0])
        result["score"][:] = np.linspace(0, 0.3, 48).reshape(1, 6, 8)
        result = result.assign(chance=("relation", [0.5]))
        assert importance.plan(result).scale.high >= 1.25 * 0.5

    def test_signed_maps_have_a_scale_with_both_ends(self) -> None:
        result = synthetic.ablate(12, 12)
        scale = importance.plan(result).scale
        assert scale.low == -scale.high
        assert scale.colours == "RdBu_r"
        assert scale.labels[0].startswith("≤ −")
        assert scale.labels[-1].endswith("+")

    def test_any_list_of_functions_and_any_map(self) -> None:
        plan = importance.plan(synthetic.maps(6, 8), "suppression")
        assert (len(plan.panels), plan.scale.label) == (8, "Suppression")
        assert importance.plan(synthetic.probe(6, 8, ["One", "Two", "Three"])).columns == 3
        assert plan.heading == f"{title_of('maps')} · synthetic · 6 layers × 8 heads"

    def test_layers_without_heads_do_not_count(self) -> None:
        result = synthetic.probe(64, 32)
        result["importance"][:, 32:] = np.nan
        result["importance"] /= result.importance.sum(("layer", "head"))
        assert importance.plan(result, style="published").scale.high == pytest.approx(0.0030)

    def test_a_wrong_variable_is_told(self) -> None:
        with pytest.raises(BadArgument, match="'importanc'.*the maps are: importance, low, high"):
            importance.plan(synthetic.probe(6, 8), "importanc")


class TestCategories:
    def test_panels_colours_and_legend(self) -> None:
        plan = categories.plan(synthetic.maps(80, 64))
        assert [t for t, _ in plan.panels] == [
            "All Categories",
            "Algorithmic",
            "Knowledge",
            "Linguistic",
            "Translation",
        ]
        named = dict(zip(plan.classes, plan.colours, strict=True))
        assert named["Algorithmic"] == "#1f77b4"  # blue
        assert named["Knowledge"] == "#ff7f0e"  # orange
        assert named["Linguistic"] == "#2ca02c"  # green
        assert named["Translation"] == "#d62728"  # red
        assert [named[f"{n} categories"] for n in (2, 3, 4)] == ["#9467bd", "#8c564b", "#e377c2"]  # purple, brown, pink
        assert [plan.classes[i] for i in plan.legend] == [
            "4 categories",
            "3 categories",
            "2 categories",
            "Translation",
            "Linguistic",
            "Knowledge",
            "Algorithmic",
            "Unclassified",
        ]
        assert plan.xticks == [0, 16, 32, 48, 64, 80]
        assert plan.yticks == [0, 12, 24, 36, 48, 60]
        assert (plan.xlabel, plan.ylabel) == ("layer", "head")

    def test_every_head_has_the_class_of_its_memberships(self) -> None:
        member = np.zeros((4, 1, 6), bool)
        for head, classes in enumerate([(), (1,), (0, 3), (0, 1, 2), (0, 1, 2, 3), (3,)]):
            member[list(classes), 0, head] = True
        result = synthetic.maps(1, 6)
        result["member"] = ("category", "layer", "head"), member
        plan = categories.plan(result)
        classes = [plan.classes[i] for i in plan.panels[0][1][0]]
        assert classes == ["Unclassified", "Knowledge", "2 categories", "3 categories", "4 categories", "Translation"]
        class_names = [plan.classes[i] for i in plan.panels[1][1][0]]
        assert class_names == [
            "Unclassified",
            "Unclassified",
            "Algorithmic",
            "Algorithmic",
            "Algorithmic",
            "Unclassified",
        ]

    def test_heads_are_not_coloured_by_relations_at_chance(self) -> None:
        result = synthetic.maps(6, 8)
        result["score"][:], result["suppression"][:] = 0.0, 0.0
        result["score"][2, 0, 0], result["score"][3, 1, 1] = 0.2, 0.2  # both of Knowledge
        result["member"][:] = False
        result["member"][1, 0, 0] = result["member"][1, 1, 1] = True
        result = result.assign(chance=("relation", [0.05] * 3 + [0.3] + [0.05] * 4))
        plan = categories.plan(result)
        assert [plan.classes[plan.panels[0][1][i, i]] for i in (0, 1)] == ["Knowledge", "Unclassified"]
        assert int(result.member.sum()) == 2
        picture = next(p for p in pictures({"maps": result}) if p.name == "categories")
        text = caption(picture, {"maps": result}, {})
        assert "reaches the threshold and is above chance" in text
        assert "no head above chance: relation_0, relation_1, relation_3, " in text

    def test_names_have_their_colours_in_whatever_order_they_come(self) -> None:
        result = synthetic.maps(6, 8, ["Mine", "Translation", "Algorithmic"])
        plan = categories.plan(result)
        assert [t for t, _ in plan.panels[1:]] == ["Algorithmic", "Translation", "Mine"]
        assert plan.colours[:2] == ["#1f77b4", "#d62728"]
        np.testing.assert_array_equal(plan.panels[1][1] == 0, result.member[2])

    def test_other_categories_get_colours_of_their_own(self) -> None:
        plan = categories.plan(synthetic.maps(6, 8, [*"abcdef"]))
        assert len(set(plan.colours[:6])) == 6
        assert len(plan.panels) == 7

    def test_without_members_it_says_what_is_missing(self) -> None:
        with pytest.raises(BadArgument, match="no category_name: the figure needs member"):
            categories.plan(synthetic.gate(2, 2))


class TestGates:
    def test_tasks_are_rows_and_always_stands_before_any(self) -> None:
        result = synthetic.gate(28, 24)
        plan = gates.plan(result)
        assert [p.title for p in plan.panels] == ["Math (Always)", "Math (Any)", "Syntax (Always)", "Syntax (Any)"]
        assert plan.columns == 2
        assert plan.xticks == list(range(0, 24, 3))
        assert plan.scale.colours == "turbo"
        assert (plan.scale.low, plan.scale.high) == (0, 1)
        np.testing.assert_array_equal(plan.panels[2].values, result["always"].sel(task="syntax"))

    def test_roles_are_mixed_as_colours(self) -> None:
        result = synthetic.gate(1, 1, ["math"], 2)
        for role, values in (("facilitation", [1, 0]), ("irrelevance", [0, 0]), ("interference", [0, 1])):
            result[role][:] = np.array(values)[None, :, None, None]
        plan = gates.plan(result, "roles")
        always, at_all = (p.values[0, 0].tolist() for p in plan.panels)
        assert always == [0, 0, 0]  # the seeds disagree: no role in every one
        assert at_all == pytest.approx([1, 192 / 255, 0])  # red and green
        assert [meaning for _, meaning in plan.legend][:3] == ["facilitating", "irrelevant", "interfering"]

    def test_scores_above_one_are_not_clipped(self) -> None:
        result = synthetic.gate(2, 2)
        result["any"][:] = 2.4
        assert gates.plan(result).scale.high == 3

    def test_roles_of_groups_are_as_bright_as_those_of_heads(self) -> None:
        result = synthetic.gate(4, 4).assign_attrs(n_kv_heads=2)
        for role in ("facilitation", "irrelevance", "interference"):
            result[role][:] = 1 / 3
        ungrouped, grouped = (gates.plan(f, "roles").panels[0].values.max() for f in (result, by_kv_group(result)))
        assert ungrouped == pytest.approx(grouped)

    def test_a_wrong_rendering_is_told(self) -> None:
        with pytest.raises(BadArgument, match="'role', expected one of score, roles. Did you mean 'roles'"):
            gates.plan(synthetic.gate(2, 2), "role")


class TestProfiles:
    def test_specialisation_has_removed_heads_in_rows(self) -> None:
        result = synthetic.probe(6, 8)
        plan = plan_specialisation(result)
        assert plan.rows == plan.columns == list(FUNCTIONS)
        masked, tested = 2, 5
        assert plan.values[masked, tested] == result.specialisation[tested, masked, 0]

    def test_without_changes_of_others_it_says_so(self) -> None:
        with pytest.raises(BadArgument, match="no changes of other subjects: the figure needs the changes"):
            plan_specialisation(synthetic.maps(2, 2))

    def test_profiles_sum_to_one(self) -> None:
        plan = layers.plan(synthetic.atlas(12, 8))
        assert [p.title for p in plan.panels][:2] == ["Probe: importance", f"{title_of('maps')}: score"]
        for panel in plan.panels:
            assert panel.depth[[0, -1]].tolist() == pytest.approx([0.5 / 12, 11.5 / 12])
            for share in panel.lines.values():
                assert share.sum() == pytest.approx(1)
        np.testing.assert_allclose(
            plan.panels[0].lines["Retrieval"], synthetic.probe(12, 8).importance.sel(function="Retrieval").sum("head")
        )

    def test_profiles_leave_no_function_out_and_say_what_is_averaged(self) -> None:
        many = [f"f{i}" for i in range(30)]
        assert list(layers.plan({"probe": synthetic.probe(6, 8, many)}).panels[0].lines) == many
        wide = synthetic.maps(6, 8, [*"abcdef"])  # twelve relations
        assert layers.plan({"maps": wide}).panels[0].title == f"{title_of('maps')}: score, mean of each category"

    def test_profiles_of_maps_at_chance_are_faint_and_in_no_mean(self) -> None:
        few = synthetic.with_chance(synthetic.maps(6, 8))
        panel = layers.plan({"maps": few}).panels[0]
        assert panel.at_chance == {"relation_1"}
        figure = layers.layer_profile({"maps": few})
        assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()][1] == "relation_1 (at chance)"
        assert [figure.axes[0].lines[i].get_alpha() for i in (0, 1)] == [1.0, layers.FAINT]
        many = synthetic.maps(6, 8, [*"abcdef"])
        level = np.where(np.arange(12) < 3, 1.0, 0.0)  # both relations of a, one of b
        panel = layers.plan({"maps": many.assign(chance=("relation", level))}).panels[0]
        assert panel.at_chance == {"a"}
        by_layer = many.score[3].sum("head")
        np.testing.assert_allclose(panel.lines["b"], by_layer / by_layer.sum())

    def test_agreement_says_which_maps_are_at_chance(self) -> None:
        rows = plan_agreement({"maps": synthetic.with_chance(synthetic.maps(6, 8))}).rows
        assert [r for r in rows if r.endswith("(at chance)")] == ["maps: relation_1, score (at chance)"]

    def test_agreement_is_spearman_of_every_two_charts(self) -> None:
        result = synthetic.probe(6, 8, ["A", "B"])
        plan = plan_agreement({"probe": result, "gate": synthetic.gate(6, 8)})
        a, b = (result.importance.sel(function=f) for f in "AB")
        assert plan.values[0, 1] == pytest.approx(float(ha.compare(a, b, draws=1).spearman))
        assert plan.rows[2] == "gate: math, facilitation"
        roles = ("facilitation", "interference", "irrelevance")
        assert list(plan.side_points) == [f"{task}, {role}" for task in ("math", "syntax") for role in roles]
        assert {len(values) for values in plan.side_points.values()} == {3}  # pairs of three seeds
        assert plan.side_title == "Seeds of the gate maps, pairwise"
        with pytest.raises(BadArgument, match="has 1 maps"):
            plan_agreement({"probe": result.isel(function=[0])})


def test_groups_are_summed_and_named() -> None:
    result = synthetic.probe(6, 8)
    grouped = by_kv_group(result)
    assert grouped.sizes["head"] == 4
    np.testing.assert_allclose(grouped.importance[0, 0, 1], result.importance[0, 0, 2:4].sum())
    assert bool(grouped.clears_control[0, 0, 0]) == bool(result.clears_control[0, 0, :2].any())
    assert "low" not in grouped
    plan = importance.plan(grouped)
    assert plan.xlabel == "KV group"
    assert plan.heading.endswith("6 layers × 4 KV groups")
    with pytest.raises(BadArgument, match="n_kv_heads is 3, which does not divide the 8 heads"):
        by_kv_group(result, 3)


def test_pictures_of_an_atlas() -> None:
    made = with_tests(synthetic.atlas(6, 8))
    assert [p.name for p in pictures(made)] == [
        "importance-probe",
        "importance-maps",
        "importance-ablate",
        "importance-dissociate",
        "categories",
        "always-any",
        "always-any-roles",
        "tests",
        "specialisation-probe",
        "specialisation-maps",
        "specialisation-gate",
        "specialisation-ablate",
        "specialisation-dissociate",
        "layers",
        "agreement",
    ]
    assert [p.name for p in pictures(made, ["layers", "categories"])] == ["categories", "layers"]
    with pytest.raises(BadArgument, match="only: 'layer' is not one of .* Did you mean 'layers'"):
        list(pictures(made, ["layer"]))
    with pytest.raises(
        BadArgument, match=r"'categories', which needs member\(category, layer, head\) .*; there are results of: gate"
    ):
        list(pictures({"gate": made["gate"]}, ["categories"]))
    with pytest.raises(BadArgument, match="palette is 'colorblind'"):
        list(pictures(made, palette="colorblind"))
    assert list(pictures({})) == []


def test_results_of_any_method_are_drawn_by_their_variables() -> None:
    mine = {f"my_{name}": result for name, result in synthetic.atlas(6, 8).items()}
    assert [p.name for p in pictures(mine)] == [
        "categories",
        "always-any",
        "always-any-roles",
        "specialisation-my_probe",
    ]
    both = {"maps": synthetic.maps(6, 8), "other": synthetic.maps(6, 8)}
    assert [p.name for p in pictures(both, ["categories"])] == ["categories", "categories-other"]
    half = synthetic.probe(6, 8).drop_vars("specialisation")
    assert [p.name for p in pictures({"mine": half})] == []


def test_a_caption_says_what_of_what_and_when() -> None:
    made = synthetic.atlas(6, 8)
    picture = next(iter(pictures(made)))
    text = caption(picture, made, {"probe": "2026-11-15T12:00:00+00:00"})
    for part in ("not causal", "synthetic", "6 layers × 8 heads", "2026-11-15T12:00:00"):
        assert part in text


def test_palettes_have_a_colour_for_everything() -> None:
    for name, palette in PALETTES.items():
        class_names = [*palette.categories, *palette.several, palette.none]
        assert len(set(class_names)) == len(class_names), name
        assert len(set(palette.roles)) == 3


def test_texts_are_made_to_fit_the_font_and_the_width() -> None:
    assert printable("a\t東\u202e") == "a\\t\\u6771\\u202e"
    assert wrap("Semantic Understanding", 1.0).count("\n") == 1
    assert [columns(n) for n in (1, 3, 4, 5, 8, 12, 20)] == [1, 3, 4, 3, 4, 4, 6]
    assert [neat_step(x) for x in (3 / 1024, 3 / 1536, 1.0)] == pytest.approx([0.0005, 0.0005, 0.2])


def test_the_heading_of_a_narrow_figure_fits() -> None:
    name = "Retrieval heads · qwen2.5-coder-1.5b-instruct-q4_k_m · 28 layers × 12 heads"
    for width in (3.5, 9.0):
        figure = Figure(figsize=(width, 4))
        heading(figure, name, 0.55)
        (text,) = figure.texts
        box = text.get_window_extent(FigureCanvasAgg(figure).get_renderer())
        assert box.x1 <= figure.bbox.x1
        assert text.get_text().count("\n") == (width < 5)

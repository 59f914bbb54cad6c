"""What the page shows, without a browser."""

import base64
import json

import numpy as np
import pytest
import xarray as xr

from headatlas.figures import gates, importance
from headatlas.methods import get_method, title_of
from headatlas.report import heads as module
from headatlas.report.charts import scale
from headatlas.report.content import content
from headatlas.results.charts import stack_maps
from tests.figures import synthetic
from tests.figures.made_tests import with_tests
from tests.report import small


def unpack(text: str, kind: str = "<f4") -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


def test_charts_are_the_overview_in_float32_with_their_intervals() -> None:
    maps = small.atlas()
    page, charts = content(maps, small.INFO), stack_maps(maps)
    assert (page["layers"], page["heads"]) == ([0, 1, 2, 3], [0, 1, 2])
    assert len(page["charts"]) == charts.sizes["chart"] == 16
    for i, chart in enumerate(page["charts"]):
        np.testing.assert_array_equal(unpack(chart["score"]), charts.score[i].values.ravel().astype("f4"))
        assert (chart["low"] is None) == (chart["method"] in ("maps", "ablate", "dissociate"))
    maps = title_of("maps")
    titles = ["Dissociate: importance", "Probe: importance", f"{maps}: score", f"{maps}: suppression"]
    assert [g["title"] for g in page["groups"]][:4] == titles
    for group in page["groups"]:
        measure = next(m for m in get_method(group["method"]).measures if m.name == group["measure"])
        assert group["description"].startswith(measure.meaning)
        assert group["subject"].lower() == measure.over
        assert group["removal"] == (group["method"] == "ablate")
    assert sorted(c for g in page["groups"] for c in g["charts"]) == list(range(16))


@pytest.mark.parametrize(
    ("layers", "heads", "last"), [(32, 32, "0.0030+"), (48, 32, "0.0020+"), (30, 9, "0.012+"), (126, 128, "0.00020+")]
)
def test_the_scale_of_importances_ends_at_three_times_their_mean_as_published(
    layers: int, heads: int, last: str
) -> None:
    values = np.random.default_rng(0).gamma(3, size=(2, layers, heads))  # one head in 100 is above 2.8 times the mean
    ticks = scale(values / values.sum((1, 2), keepdims=True))["ticks"]
    assert (ticks[0]["text"], ticks[-1]["text"]) == (f"{0:.{len(last) - 3}f}", last)


def test_scales_of_other_scores() -> None:
    roles = scale(np.array([[[0.1, 0.9]]]))
    assert (roles["low"], roles["high"], roles["ticks"][-1]["text"]) == (0, 1, "1.0")
    effects = scale(np.array([[[-0.1, 0.4], [0.2, np.nan]]]))
    assert effects["diverging"]
    assert effects["low"] == -effects["high"] == pytest.approx(-0.4)
    assert effects["ticks"][len(effects["ticks"]) // 2] == {"at": 0.5, "text": "0.0"}
    for nothing in (np.zeros((1, 2, 2)), np.full((1, 1, 1), np.nan), np.ones((1, 1, 1))):
        assert scale(nothing)["high"] > scale(nothing)["low"]


def maps_at_chance() -> xr.Dataset:
    """No head of copying is above chance; the highest of country_to_capital is."""
    maps = small.maps()
    return maps.assign(chance=("relation", [0.7, 1.0]), category=("relation", ["Knowledge", "Algorithmic"]))


def test_charts_know_their_chance_level_and_which_heads_are_above_it() -> None:
    page = content(with_tests({"maps": maps_at_chance(), "gate": small.gate()}), small.INFO)
    score = small.maps().score.values
    first, second = page["charts"][:2]
    supported = "supported, p 0.01, 4 heads"
    notes = ["2 of 9 heads above chance", "reliability unknown", supported]
    assert (first["chance"], first["none"], first["notes"]) == (0.7, False, notes)
    assert first["above"] == np.flatnonzero(score[0] > 0.7).tolist() != []
    assert (second["above"], second["none"]) == ([], True)
    assert second["notes"][0] == f"not above chance: best {np.nanmax(score[1]):.2g}, chance 1"
    gate = next(c for c in page["charts"] if c["method"] == "gate")
    assert (gate["chance"], gate["above"], gate["none"]) == (None, None, False)
    assert gate["notes"] == ["reliability unknown", "supported, p 0.01, 4 heads"]
    (description,) = (g["description"] for g in page["groups"] if g["measure"] == "score")
    marks = "Half colour strength: at chance. Framed: tested heads; the outcome of the test is below the title."
    assert description.endswith(marks)
    assert "chance" not in next(g["description"] for g in page["groups"] if g["measure"] == "suppression")


def test_a_map_says_that_it_is_not_reliable() -> None:
    gate = small.gate().assign(
        reliability_facilitation=("task", [0.62] * 2), reliability_interference=("task", [0.93] * 2)
    )
    page = content({"gate": gate}, small.INFO)
    notes = {chart["measure"]: chart["notes"] for chart in page["charts"]}
    assert notes["facilitation"] == ["reliability 0.62, below 0.8"]
    assert notes["interference"] == []
    assert "reliability 0.62, below 0.8" in page["always"][0]["notes"]


def test_charts_have_the_marks_of_the_figures() -> None:
    atlas = small.atlas()
    page = content(atlas, small.INFO)
    for method in ("probe", "maps", "dissociate"):
        panels = {panel.title: panel for panel in importance.plan(atlas[method]).panels}
        measure = get_method(method).measures[0].name
        mine = [c for c in page["charts"] if (c["method"], c["measure"]) == (method, measure)]
        assert {c["subject"] for c in mine} == set(panels)
        for chart in mine:
            panel = panels[chart["subject"]]
            assert chart["tested"] == np.flatnonzero(panel.framed).tolist()
            assert chart["notes"] == list(panel.notes)
    for one, panel in zip(page["always"], gates.plan(atlas["gate"]).panels, strict=True):
        assert one["tested"] == np.flatnonzero(panel.framed).tolist() != []
        assert one["notes"] == list(panel.notes)


def test_tested_heads_are_found_on_a_larger_grid() -> None:
    info = {"model": {"n_layers": 6, "n_heads": 5}}
    small_grid, large_grid = (
        content({"maps": small.atlas()["maps"]}, i)["charts"][0]["tested"] for i in (small.INFO, info)
    )
    assert [divmod(at, small.HEADS) for at in small_grid] == [divmod(at, 5) for at in large_grid] != []


@pytest.mark.parametrize("method", ["probe", "maps", "dissociate", "ablate"])
def test_the_colour_scale_is_that_of_the_figure(method: str) -> None:
    atlas = {name: dataset for name, dataset in synthetic.atlas(30, 9).items() if name == method}
    if method == "maps":
        atlas["maps"] = synthetic.with_chance(atlas["maps"])
    group = content(atlas, {})["groups"][0]
    figure = importance.plan(atlas[method]).scale
    assert (group["scale"]["low"], group["scale"]["high"]) == (figure.low, figure.high)
    assert [tick["text"] for tick in group["scale"]["ticks"]] == figure.labels


def test_the_scale_reaches_beyond_chance() -> None:
    few = np.zeros((1, 20, 20))
    few[0, 3, 3] = 0.6
    assert scale(few, 0.5)["high"] >= 0.5
    assert scale(few)["high"] == pytest.approx(0.6)


def test_levels_may_differ_between_heads() -> None:
    probe = small.probe()
    probe["control_importance"] = 0.8 * probe.importance
    probe["clears_control"][1] = False
    first, second = content({"probe": probe}, small.INFO)["charts"]
    np.testing.assert_allclose(unpack(first["chance"]), 0.8 * probe.importance[0].values.ravel(), rtol=1e-6)
    assert (first["above"], second["above"], second["none"]) == (None, [], True)


def test_the_page_opens_on_the_best_supported_map() -> None:
    def opens_on(maps: dict[str, xr.Dataset]) -> tuple[str, str]:
        page = content(maps, {})
        chart = page["charts"][page["first"]]
        return chart["method"], chart["subject"]

    untested = {"maps": small.maps(), "probe": small.probe(), "gate": small.gate()}
    assert opens_on(untested) == ("probe", "Retrieval")
    gate = with_tests({"gate": small.gate()})
    assert opens_on(untested | gate) == ("gate", "math")
    better = gate["gate"].assign(tested_p=gate["gate"].tested_p / 2)
    assert opens_on(with_tests(untested) | {"gate": better}) == ("gate", "math")
    at_chance = small.maps().assign(chance=("relation", [1.0, 0.5]))  # a test of heads that chance explains
    assert opens_on(with_tests({"maps": at_chance})) == ("maps", "copying")
    assert content({}, {})["first"] is None


def test_methods_that_failed_are_named_with_their_reason() -> None:
    done, failed = {"complete": True}, {"complete": False, "why": "the model has no <b>"}
    info = small.INFO | {"methods": {"probe": done, "salient": failed, "gate": failed}}
    page = content({"probe": small.probe()}, info, {"gate": 3.0})
    assert page["failed"] == [{"title": title_of("salient"), "why": "the model has no <b>"}]
    assert content(small.atlas(), small.INFO)["failed"] == []


def test_categories_leave_out_heads_that_are_members_by_scores_at_chance() -> None:
    maps = maps_at_chance()
    maps["member"] = ("category", "layer", "head"), np.zeros((4, 4, 3), bool)
    maps["member"][1] = maps.score[0] >= 0.15
    bits = content({"maps": maps}, small.INFO)["categories"]["bits"]
    assert np.flatnonzero(np.array(bits) == 2).tolist() == np.flatnonzero(maps.score[0] > 0.7).tolist()


def test_agreement_is_spearman_over_heads_and_none_for_constant_charts() -> None:
    page = content(small.atlas(), small.INFO)
    matrix = page["agreement"]["spearman"]
    constant = [i for i, c in enumerate(page["charts"]) if c["measure"] == "suppression"]
    assert constant
    assert all(matrix[c][d] is None for c in constant for d in range(14))
    a, b = (unpack(page["charts"][i]["score"]) for i in (0, 1))
    scored = ~np.isnan(a)
    ranks = [v[scored].argsort().argsort() for v in (a, b)]
    assert matrix[0][1] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-4)


def test_categories_are_bits_and_absent_heads_have_none() -> None:
    categories = content(small.atlas(), small.INFO)["categories"]
    assert categories["names"] == ["Algorithmic", "Knowledge", "Linguistic", "Translation"]
    assert categories["colours"] == ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728"]
    assert [s["name"] for s in categories["several"]] == ["4 categories", "3 categories", "2 categories"]
    assert categories["bits"] == [3, 2, 0, 0, 0, 15, -1, -1, -1, 0, 0, 0]
    assert categories["threshold"] == 0.15


def test_always_and_any_are_titled_by_task() -> None:
    always = content(small.atlas(), small.INFO)["always"]
    assert [a["title"] for a in always] == ["Math (Always)", "Math (Any)", "Syntax (Always)", "Syntax (Any)"]


def test_tests_know_their_chart_and_have_numbers_outcome_and_curve() -> None:
    page = content(small.atlas(), small.INFO)
    assert len(page["tests"]) == 10
    for test in page["tests"]:
        chart = page["charts"][test["chart"]]
        assert (title_of(chart["method"]), chart["measure"], chart["subject"]) == tuple(
            test[name] for name in ("title", "measure", "subject")
        )
    first = next(test for test in page["tests"] if test["title"] == "Probe")
    assert (first["heads"], first["prompts"], first["before"], first["after"]) == (4, 48, 0.6, 0.36)
    assert (first["outcome"], first["selective"], first["change"]) == ("supported", "supported", -1.2)
    assert first["reason"].startswith("significant by zero and mean and resample")
    assert first["low"] < first["change"] - first["random"] < first["high"]
    assert (first["removed"], first["curve"]) == ([0, 1, 2, 4, 8, 16], [0, -0.3, -0.6, -1.2, -2.4, -4.8])


def test_a_test_of_what_the_model_cannot_do_has_no_numbers() -> None:
    names = ["Retrieval", "Inference", "Math", "Syntax"]
    test = content(with_tests({"dissociate": small.dissociate(names)}), {})["tests"][3]
    assert (test["outcome"], test["before"], test["guess"]) == ("no ability", 0.13, 0.27)
    assert {test[name] for name in ("after", "change", "random", "low", "high", "p")} == {None}
    assert test["removed"] == []


@pytest.mark.parametrize(
    ("accuracy", "clears", "words"),
    [
        (0.41, 0, "too close to call"),
        (0.41, 0, "No head's importance clears the shuffled-label control"),
        (0.30, 0, "the wording alone explains its success"),
        (0.90, 3, "reads more than wording"),
        (0.90, 3, "3 of 24 importances clear the shuffled-label control"),
    ],
)
def test_the_summary_of_the_probe_is_plain(accuracy: float, clears: int, words: str) -> None:
    probe = small.probe()
    probe["accuracy"] = accuracy
    probe.clears_control.values[:] = False
    probe.clears_control.values.flat[:clears] = True
    evidence = content({"probe": probe}, small.INFO)["evidence"]
    assert words in evidence["summary"]
    assert [r["name"] for r in evidence["rows"]] == [
        "The probe, on held-out questions",
        "Bag of words: question",
        "Bag of words: answer",
        "Probe on shuffled labels",
        "Always the commonest class",
    ]


def test_salient_tokens_are_numbers_in_one_list_and_fewer_where_heads_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = content(small.atlas(), small.INFO)["tokens"]
    assert tokens["texts"] == [" France", " Paris", " Rome"]
    np.testing.assert_array_equal(unpack(tokens["token"], "<u4"), np.full(24, 1))
    np.testing.assert_array_equal(unpack(tokens["demoted"], "<u4"), np.full(48, 2))
    monkeypatch.setattr(module, "MAX_TOKENS", 70)
    few = content(small.atlas(), small.INFO)["tokens"]
    assert few["ranks"] == 1
    assert len(unpack(few["token"], "<u4")) == 12


def test_nul_is_a_token_of_the_page_too() -> None:
    tokens = content({"salient": small.salient("\0")}, small.INFO)["tokens"]
    assert tokens["texts"] == ["\0", " France", " Rome"]


def test_provenance_tells_model_run_settings_and_data() -> None:
    page = content(small.atlas(), small.INFO)
    rows = {(t["title"], *row) for t in page["provenance"] for row in t["rows"]}
    assert rows >= {
        ("Model", "fingerprint", "f1nger"),
        ("Run", "command", "headatlas run tiny"),
        ("Run", "versions torch", "9.9"),
        ("Probe", "data", "pr0be"),
        ("Probe", "k", "5"),
        (title_of("maps"), "data", "m4ps"),
    }
    assert [c["arxiv"] for c in page["cite"]][:4] == ["2505.13737", "2512.10978", "2412.11965", "1905.10650"]
    assert page["cite"][0]["text"] == "Causal Head Gating, Nam et al., NeurIPS 2025"
    assert content({"mine": small.ablate()}, {})["cite"] == []


def as_json(maps: dict[str, xr.Dataset], info: dict) -> dict:
    return json.loads(json.dumps(content(maps, info), allow_nan=False))


@pytest.mark.parametrize("method", list(small.atlas()))
def test_any_variable_may_be_absent(method: str) -> None:
    maps = small.atlas()
    for name in [*(n for n in maps[method].variables if not str(n).startswith("tested_")), None]:
        one = maps[method].drop_vars(name) if name else maps[method]
        assert as_json({method: one}, {})["layers"] == [0, 1, 2, 3]
        assert as_json({**maps, method: one}, small.INFO)["charts"]


@pytest.mark.parametrize("maps", [{}, {"probe": xr.Dataset()}, {"mine": small.ablate()}, {"salient": small.salient()}])
def test_without_charts_there_is_still_a_page(maps: dict[str, xr.Dataset]) -> None:
    page = as_json(maps, {})
    assert (page["charts"], page["groups"], page["agreement"], page["evidence"]) == ([], [], None, None)


def test_specialisation_has_whose_heads_were_removed_in_rows() -> None:
    page = content(small.atlas(), small.INFO)
    special = next(s for s in page["special"] if s["title"] == "Dissociate")
    assert special["rows"] == ["Retrieval", "Inference"]
    assert special["columns"] == ["Retrieval", "Inference", "plain text"]
    assert special["values"] == [[-1.2, -0.05, -0.05], [-0.05, -0.1, -0.05]]


def test_only_methods_that_remove_heads_are_listed_as_removal() -> None:
    effects = {name: small.ablate().assign_attrs(method=name) for name in ("ablate", "taylor", "ig")}
    assert [g["method"] for g in content(effects, {})["groups"] if g["removal"]] == ["ablate"]

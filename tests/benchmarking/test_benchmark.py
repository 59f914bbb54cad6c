"""`ha.benchmark` and `headatlas benchmark`: what is in the file, the targets, resuming, what it says of a real model, bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from sklearn.metrics import roc_auc_score

import headatlas as ha
from headatlas import tables
from headatlas.planted import run
from headatlas.planted.contenders import CONTENDERS, Known
from headatlas.errors import BadArgument, HeadAtlasError
from headatlas.figures import benchmark as figure
from headatlas.results.store import save
from headatlas.planted.baselines import gradient_norms, output_norms
from headatlas.models.lm import LM
from headatlas.models.passes import counted
from headatlas.models.targets import Asked, make_sheet, measure
from headatlas.planted.asking import planted_task
from headatlas.planted.functions import FUNCTIONS
from headatlas.planted.known import planted_folder, read_truth
from headatlas.evidence.evidence import agreement_of, corrected, removal_test, stability_of
from headatlas.evidence.truth import mean_interval, recovery
from tests.figures import synthetic
from tests.models.tiny import TINY, build, tokenizer
from tests.test_cli import headatlas

CHEAP = ["random", "norm", "taylor", "maps"]
pytestmark = pytest.mark.xdist_group("benchmark")  # one worker, one `found`


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> xr.Dataset:
    return ha.benchmark(CHEAP, ["one"], out=tmp_path_factory.mktemp("cheap"))


class TestMeasures:
    def test_recovery_counts_pairs(self) -> None:
        generator = np.random.default_rng(0)
        score = generator.integers(5, size=(4, 5)).astype(float)  # with ties
        heads = [(0, 1), (2, 3), (3, 3)]
        truth = np.zeros((4, 5), bool)
        truth[tuple(zip(*heads, strict=True))] = True
        wins = [(a > b) + 0.5 * (a == b) for a in score[truth] for b in score[~truth]]
        assert recovery(score, heads)[0] == pytest.approx(np.mean(wins))

    def test_a_head_without_a_score_is_last_and_one_that_is_unsure_does_not_count(self) -> None:
        score = np.array([[0.9, np.nan, 0.1, 0.8]])
        assert recovery(score, [(0, 1)])[0] == 0
        assert recovery(score, [(0, 3)], unsure=[(0, 0), (0, 3)]) == (1.0, 1.0)
        assert np.isnan(recovery(score, [])).all()

    def test_the_interval_holds_the_mean(self) -> None:
        values = np.append(np.random.default_rng(0).random(30), np.nan)
        mean, low, high = mean_interval(values)
        assert mean == pytest.approx(np.nanmean(values))
        assert low < mean < high
        error = np.nanstd(values) / np.sqrt(30)
        assert high - low == pytest.approx(4 * error, rel=0.2)
        assert np.isnan(mean_interval(np.array([np.nan]))).all()


class TestBaselines:
    @pytest.fixture
    def lm(self) -> LM:
        return LM(build(TINY[0]).double(), tokenizer(), "tiny")

    def test_norms_are_those_of_what_heads_write(self, lm) -> None:
        asked = [Asked((1, 2, 3, 4), (5,)), Asked((7, 8), (9,))]
        slow = np.zeros((lm.n_layers, lm.n_heads))
        for one in asked:
            z = lm.head_outputs([list(one.prompt)])[0].double()  # [token, layer, head, d_head]
            for layer in range(lm.n_layers):
                for head in range(lm.n_heads):
                    slow[layer, head] += (z[:, layer, head] @ lm.weights.W_O(layer, head)).norm(dim=1).mean() / 2
        np.testing.assert_allclose(output_norms(lm, asked), slow, rtol=1e-5)

    def test_gradients_are_those_of_finite_differences(self, lm) -> None:
        one = Asked((1, 2, 3), (5,))
        found, step = gradient_norms(lm, [one]), 1e-4
        for layer, head in ((0, 1), (2, 4)):
            square = 0.0
            for token in range(3):
                for d in range(lm.d_head):
                    value = torch.zeros(1, 3, lm.n_layers, lm.n_heads, lm.d_head, dtype=torch.float64)
                    value[0, token, layer, head, d] = step
                    with lm.patched([(layer, head)], value, add=True):
                        up = measure(lm, [make_sheet([one])])[0].item()
                    with lm.patched([(layer, head)], -value, add=True):
                        down = measure(lm, [make_sheet([one])])[0].item()
                    square += ((up - down) / (2 * step)) ** 2
            assert found[layer, head] == pytest.approx(np.sqrt(square), rel=0.05)

    def test_passes_are_counted_by_tokens(self, lm) -> None:
        with counted(lm) as passes, torch.no_grad():
            lm.model(torch.ones(2, 5, dtype=torch.long))
        assert (passes.forward, passes.backward) == (pytest.approx(10), 0)
        with counted(lm) as passes:
            lm.model(torch.ones(2, 5, dtype=torch.long))
        assert (passes.forward, passes.backward) == (pytest.approx(10), pytest.approx(10))


class TestBenchmark:
    def test_what_is_in_the_file(self, found) -> None:
        assert found.contender.values.tolist() == CHEAP
        assert set(FUNCTIONS) <= set(found.subject.values.tolist())
        functions = found.sel(model="one", subject=list(FUNCTIONS))
        assert functions.auroc.sel(contender=CHEAP[:3]).notnull().all()
        assert functions.auroc.sel(contender="maps").isnull().all()
        assert found.auroc.sel(contender="maps", model="relations, noise 0, 0").notnull().sum() == 6
        assert found.seconds.sel(model="one", contender="taylor") > 0
        assert found.backward.sel(model="one", contender="taylor") > 0
        assert found.forward.sel(model="one", contender="random") == 0
        assert {"fingerprint", "headatlas", "key"} <= set(found.attrs)

    def test_the_numbers_are_those_of_the_method(self, found) -> None:
        folder = planted_folder("one")
        known = Known("one", "functions", ha.load(folder, device="cpu"), read_truth(folder).functions, [], [])
        scores = CONTENDERS["taylor"].score(known, 0)
        for function, heads in known.heads.items():
            truth = np.zeros((known.lm.n_layers, known.lm.n_heads), bool)
            truth[tuple(zip(*heads, strict=True))] = True
            auroc = roc_auc_score(truth.ravel(), scores[function].ravel())
            assert found.auroc.sel(contender="taylor", model="one", subject=function) == pytest.approx(auroc)

    def test_means_are_over_the_cells(self, found) -> None:
        cells = found.auroc.sel(contender="taylor", model="one", subject=list(FUNCTIONS))
        mean = found.auroc_mean.sel(contender="taylor", over="functions")
        assert mean == pytest.approx(float(cells.mean()))

    def test_baselines_are_beaten_and_chance_is_chance(self, found) -> None:
        mean = found.auroc_mean.sel(over="functions")
        assert 0.3 < mean.sel(contender="random") < 0.7
        assert mean.sel(contender="taylor") > mean.sel(contender="norm")

    @pytest.mark.parametrize("name", ["relations, noise 0", "relations, noise 2"])
    def test_the_target_of_maps_is_met(self, found, name) -> None:
        assert found.auroc_mean.sel(contender="maps", over=name) >= 0.98

    def test_interrupted_it_goes_on_where_it_was(self, found, tmp_path, monkeypatch) -> None:
        left = [3]

        def stops(items, label):
            for item in items:
                left[0] -= label.startswith("model")
                if left[0] == 0:
                    raise KeyboardInterrupt
                yield item

        with pytest.raises(KeyboardInterrupt):
            ha.benchmark(CHEAP[:3], ["one"], out=tmp_path, progress=stops)
        measured = run._measure

        def counting(name, known, seed):
            again.append(name)
            return measured(name, known, seed)

        again: list[str] = []
        monkeypatch.setattr(run, "_measure", counting)
        result = ha.benchmark(CHEAP[:3], ["one"], out=tmp_path)
        assert again == ["taylor"]
        expected = found.auroc.sel(contender=CHEAP[:3], model=["one"], subject=list(FUNCTIONS))
        np.testing.assert_array_equal(result.auroc, expected)

    def test_the_table_and_the_figure(self, found) -> None:
        rows = tables.benchmark(found)
        assert [r["method"] for r in rows[:3]] == CHEAP[:3]
        assert rows[2]["AUROC"] == round(float(found.auroc_mean.sel(contender="taylor", over="functions")), 3)
        json.dumps(rows)
        panels = figure.plan(found).panels
        assert [p.title for p in panels] == ["Functions", "Relations"]
        assert [p.x for p in panels[1].points] == [0, 2, 4, 8]
        assert len(figure.quality_and_cost(found).axes) == 2

    def test_from_the_command_line(self, tmp_path, capsys) -> None:
        out = str(tmp_path / "b")
        code, text, _ = headatlas(capsys, "benchmark", "--methods", "random", "--models", "one", "--out", out)
        assert code == 0
        assert "random" in text
        assert {"benchmark.nc", "benchmark.png", "benchmark.svg", "benchmark.pdf"} <= {
            p.name for p in (tmp_path / "b").iterdir()
        }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["gates"]}, "method is 'gates', expected one of .*Did you mean 'gate'"),
        ({"methods": []}, "methods is empty"),
        ({"models": []}, "models is empty"),
        ({"models": ["three"]}, "model 'three' is neither one of one, two nor a folder"),
        ({"models": ["seed:1/3"]}, "kv_heads is 3"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 10**20}, "seed is 1000"),
    ],
)
def test_bad_input(given, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.benchmark(**{"methods": ["random"], "models": ["one"]} | given)


def with_truth(folder, truth: dict):
    for path in planted_folder("one").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "truth.json").write_text(json.dumps(truth))
    return folder


def test_functions_that_are_not_where_the_truth_says_are_left_out(tmp_path, caplog) -> None:
    one, two = (json.loads((planted_folder(m) / "truth.json").read_text()) for m in ("one", "two"))
    one["functions"]["Retrieval"] = two["functions"]["Retrieval"]
    found = ha.benchmark(["random"], [with_truth(tmp_path, one)])
    assert found.subject.values.tolist() == [f for f in FUNCTIONS if f != "Retrieval"]
    assert "Retrieval is left out" in caplog.text


@pytest.mark.parametrize(
    ("heads", "message"), [(["L0.H0"], "no function is where its truth.json says"), (["L9.H0"], "L9.H0|9")]
)
def test_a_model_that_is_not_what_its_truth_says_is_refused(tmp_path, heads, message) -> None:
    with pytest.raises(HeadAtlasError, match=message):
        ha.benchmark(["random"], [with_truth(tmp_path, {"functions": {"Retrieval": heads}, "background": []})])


def test_the_targets_are_met_on_the_first_model() -> None:
    """The others are in the committed table; these are measured here."""
    found = ha.benchmark(["ablate", "gate", "probe-written"], ["one"])
    mean = found.auroc_mean.sel(over="functions")
    assert mean.sel(contender="gate") >= 0.95
    assert mean.sel(contender="ablate") >= 0.95
    assert mean.sel(contender="probe-written") >= 0.90


class TestReal:
    def test_removal_is_tested_against_heads_of_the_same_layers(self) -> None:
        score = np.zeros((6, 8))
        score[3, 2] = score[3, 5] = 1

        def log_p(sets):
            return np.array([-10.0 * ((3, 2) in heads) - 0.1 * len(heads) for heads in sets])

        lost, by_chance, p = removal_test(score, log_p, draws=39)
        assert lost == pytest.approx(10.2)
        assert by_chance < lost
        assert p < 0.5  # some draws have the head too
        assert removal_test(-score, lambda sets: np.zeros(len(sets)))[2] == 1

    def test_p_values_are_true_where_nothing_matters(self) -> None:
        """Losses drawn at random: p ≤ x in at most a share x of tests."""
        generator = np.random.default_rng(0)
        score = generator.random((6, 8))
        p = np.array([removal_test(score, lambda sets: generator.random(len(sets)), seed=i)[2] for i in range(2000)])
        for x in (1 / 60, 0.05, 0.1, 0.3, 0.7):
            assert (p <= x + 1e-9).mean() <= x + 0.02
        assert (p <= 0.05).mean() > 0.03
        assert p.min() == pytest.approx(1 / 60)

    def test_correction_is_that_of_benjamini_and_hochberg(self) -> None:
        p = np.array([0.01, 0.04, 0.03, 0.5])
        np.testing.assert_allclose(corrected(p), [0.04, 0.16 / 3, 0.16 / 3, 0.5])
        assert corrected(np.empty(0)).size == 0

    def test_agreement_and_stability_of_an_atlas(self) -> None:
        maps = synthetic.atlas(4, 6)
        agree, again = agreement_of(maps), stability_of(maps)
        gate = maps["gate"].facilitation.mean("seed")
        for task in gate.task.values:
            assert -1 <= agree["gate", task] <= 1
            expected = ha.stability(maps["gate"].facilitation.sel(task=task)).spearman
            assert again["gate", task] == pytest.approx(float(expected))

    def test_beside_the_planted_models(self, tmp_path) -> None:
        """A built-in task is tested; one of the user's cannot be asked again, whatever its name."""
        folder = planted_folder("two")
        lm = ha.load(folder, device="cpu")
        mine = replace(planted_task("Retrieval", 8, 8), name="math")
        save(ha.ig(lm, mine, examples=4, steps=2), tmp_path / "atlas" / "ig.nc")
        save(ha.taylor(lm, "math", examples=4), tmp_path / "atlas" / "taylor.nc")
        found = ha.benchmark(["random"], ["one"], atlas=tmp_path / "atlas", atlas_model=lm, out=tmp_path)
        assert found.real_subject.values.tolist() == ["math"]
        assert 0 < found.removal_p.item() <= found.removal_p_corrected.item() <= 1
        (row,) = tables.real(found)
        assert row["method"] == "taylor"
        assert row["stability"] == pytest.approx(found.stability.item(), abs=1e-3)
        assert tables.benchmark(found)[0]["removal p < 0.05"] is None
        with pytest.raises(BadArgument, match=r"whose \w+.nc is of .*, not of this one"):
            ha.benchmark(["random"], ["one"], atlas=tmp_path / "atlas", atlas_model=planted_folder("one"))

"""probe: the published probe and per-head classifiers find what was planted, and nothing where nothing is."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
from torch import nn

from headatlas.errors import CannotDo
from headatlas.methods import get_method
from headatlas.methods.probe import without_classifier
from headatlas.methods.probe.classifier import (
    BATCH,
    SHRINKAGES,
    Examples,
    Probe,
    attributions,
    bag_of_words,
    before_elbow,
    chance_level,
    fit_probe,
    interval,
    majority,
    normalised,
    per_head,
    probe_map,
    sentence_about,
)
from headatlas.methods.probe.published_tests import directions
from headatlas.methods.probe.without_classifier import written
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.tokens import TokenExample
from tests.models.tiny import TINY, build, tokenizer

CLASSES = 4
NAMES = ["a", "b", "c", "d"]
TRAINING = {"epochs": 40, "lr": 3e-4, "patience": 5}
PUBLISHED = {"epochs": 100, "lr": 1e-4, "patience": 10}


def planted(
    signal: float, n: int = 600, layers: int = 6, heads: int = 8, d: int = 16, carriers: int = 5, seed: int = 0
):
    """Noise, but for a few heads in which each class has a separate direction."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(CLASSES, size=n)
    x = generator.normal(size=(n, layers * heads, d)).astype(np.float32)
    chosen = generator.choice(layers * heads, carriers, replace=False)
    for head in chosen:
        x[:, head] += signal * generator.normal(size=(CLASSES, d))[labels]
    order = np.arange(n)
    parts = order[: n * 6 // 10], order[n * 6 // 10 : n * 3 // 4], order[n * 3 // 4 :]
    truth = np.isin(np.arange(layers * heads), chosen)
    return Examples(x.reshape(n, layers, heads, d), *parts, torch.device("cpu")), labels, truth


@pytest.mark.parametrize("kind", ["published", "per-head"])
@pytest.mark.parametrize("signal", [0.7, 1.5])
def test_planted_heads_are_found(kind, signal) -> None:
    data, labels, truth = planted(signal)
    result = probe_map(data, labels, NAMES, kind=kind, training={**TRAINING, "epochs": 20})
    importance = result.importance.values.reshape(CLASSES, -1)
    assert all(roc_auc_score(truth, row) >= 0.98 for row in importance)
    np.testing.assert_allclose(importance.sum(1), 1, rtol=1e-12)
    selected = result.selected.values.reshape(CLASSES, -1)
    assert (selected.sum(1) >= 1).all()
    assert selected.sum() >= 0.5 * CLASSES * truth.sum()
    assert truth[selected.nonzero()[1]].mean() >= 0.9
    assert result.accuracy > 0.9
    assert result.control_accuracy < 0.4
    assert result.selectivity == pytest.approx((result.accuracy - result.control_accuracy).item())
    assert (result.low <= result.importance + 1e-12).mean() > 0.95  # bootstrap intervals of a tiny |mean| are too high
    assert (result.importance <= result.high + 1e-12).mean() > 0.95


def test_what_is_written_equals_a_loop_over_heads() -> None:
    data, labels, _ = planted(1.0, n=120, layers=2, heads=3, d=4)
    out = np.random.default_rng(1).normal(size=(2, 3, 4, 7)).astype(np.float32)
    result = written(data, labels, CLASSES, torch.from_numpy(out @ out.transpose(0, 1, 3, 2)))
    for layer in range(2):
        for head in range(3):
            writes = data.features[:, layer, head] @ out[layer, head]
            of_class = [data.train[labels[data.train] == c] for c in range(CLASSES)]
            mean = np.mean([writes[members].mean(0) for members in of_class], axis=0)
            size = ((writes - mean) ** 2).sum(1)
            usual = np.mean([size[members].mean() for members in of_class])
            np.testing.assert_allclose(result[:, layer * 3 + head], size[data.test] / usual, rtol=1e-3)


def test_a_head_that_writes_for_one_class_alone_is_that_class_s() -> None:
    data, labels, _ = planted(0.0)
    data.features[labels == 2, 3, 5] *= 4
    data.features[:, 1, 1] = 0.0  # a head that never writes
    identity = torch.eye(16).expand(6, 8, 16, 16)
    scores = written(data, labels, CLASSES, identity)
    result = probe_map(data, labels, NAMES, kind="written", scores=scores)
    best = result.importance.sel(function="c").argmax(("layer", "head"))
    assert (int(best["layer"]), int(best["head"])) == (3, 5)
    assert result.selected.sel(function="c").values.nonzero()[0].tolist() == [3]
    assert float(result.importance[:, 1, 1].sum()) == 0
    np.testing.assert_allclose(result.importance.sum(("layer", "head")), 1)


def test_many_weak_heads_are_marked_too() -> None:
    """Every head carries the class: shares are small, but far from what shuffled labels give."""
    data, labels, _ = planted(0.5, carriers=48)
    result = probe_map(data, labels, NAMES, kind="per-head")
    assert result.clears_control.mean() > 0.5


@pytest.mark.parametrize("kind", ["published", "per-head"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_nothing_is_nothing_is_marked(kind, seed) -> None:
    data, labels, _ = planted(0.0, seed=seed)
    result = probe_map(data, labels, NAMES, kind=kind, training=TRAINING, seed=seed)
    chance = np.bincount(labels[data.test]).max() / len(data.test)
    assert result.accuracy < chance + 0.1
    assert not result.selected.any()
    assert not result.clears_control.any()


def test_the_same_seed_gives_the_same_map() -> None:
    data, labels, _ = planted(1.0, n=200)
    few = {**PUBLISHED, "epochs": 3}
    once, again = (probe_map(data, labels, NAMES, training=few, seed=4) for _ in range(2))
    assert once.identical(again)
    state = torch.random.get_rng_state()
    other = probe_map(data, labels, NAMES, training=few, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's draws are the caller's
    assert not np.allclose(other.importance, once.importance)


def test_batches_are_aligned_alike_in_every_run() -> None:
    """NumPy gives memory at any multiple of 16 bytes; where it lies can change the last bit of a product."""
    data, _, _ = planted(0.0, n=60, layers=2, heads=3, d=5)
    assert all(z.data_ptr() % 64 == 0 for size in range(1, 9) for _, z in data.batches(data.train, size))


def test_the_probe_is_the_published_one() -> None:
    """As in the paper: z concatenated with the layer's mean, one shared Linear, all concatenated, two more."""
    torch.manual_seed(0)
    probe = Probe(layers=3, heads=2, d_head=5, classes=4).eval()
    z = torch.randn(7, 3, 2, 5)
    feature = torch.cat([z, z.mean(2, keepdim=True).expand_as(z)], dim=-1)  # [example, layer, head, 2D]
    shared = probe.project(feature.reshape(7, 6, 10)).reshape(7, 6 * 64)
    after = nn.Sequential(probe.hidden, nn.ReLU(), nn.Dropout(0.3).eval(), probe.out)
    torch.testing.assert_close(probe(z), after(shared))
    sizes = {name: tuple(weight.shape) for name, weight in probe.named_parameters()}
    assert sizes["project.weight"] == (64, 10)
    assert sizes["hidden.weight"] == (512, 6 * 64)
    assert sizes["out.weight"] == (4, 512)
    assert probe.drop.p == 0.3
    defaults = {name: option.default for name, option in get_method("probe").options.items()}
    assert defaults.items() >= PUBLISHED.items()
    assert BATCH == 32


def test_attributions_one_example_at_a_time() -> None:
    data, _, _ = planted(1.0, n=40)
    torch.manual_seed(0)
    probe = Probe(*data.features.shape[1:], CLASSES).eval()
    fast = attributions(probe, data, data.test, c=2)
    for row, example in zip(fast, data.test, strict=True):
        projection = probe.projections(torch.from_numpy(data.features[example])[None]).detach().requires_grad_()
        probe.read(projection)[0, 2].backward()
        slow = (projection.grad * projection)[0].mean(-1).flatten().detach()
        np.testing.assert_allclose(row, slow, rtol=1e-5, atol=1e-9)


def test_training_stops_where_the_validation_loss_is_least() -> None:
    data, labels, _ = planted(0.3, n=150)
    fitted = fit_probe(data, labels, CLASSES, epochs=60, lr=1e-3, patience=4)
    losses = fitted.validation_loss
    assert losses[fitted.epochs - 1] == min(losses)
    assert len(losses) == min(60, fitted.epochs + 4)
    with torch.no_grad():
        z = torch.from_numpy(data.features[data.validation])
        loss = nn.functional.cross_entropy(fitted.probe(z), torch.from_numpy(labels[data.validation]))
    assert loss.item() == pytest.approx(min(losses), rel=1e-5)
    again = fit_probe(data, labels, CLASSES, epochs=2, lr=1e-3, patience=10, stop_early=False)
    assert again.epochs == len(again.validation_loss) == 2


def test_test_questions_are_never_trained_on() -> None:
    data, labels, _ = planted(1.0, n=120)
    other = data.features.copy()
    other[data.test] += 100
    changed = Examples(other, data.train, data.validation, data.test, data.device)
    a, b = (fit_probe(d, labels, CLASSES, **{**PUBLISHED, "epochs": 2}).probe.state_dict() for d in (data, changed))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_best_head_is_chosen_on_validation_examples() -> None:
    """One head carries the class except in test examples, another except in validation examples."""
    data, labels, _ = planted(0.0, n=400)
    towards = 3 * np.random.default_rng(5).normal(size=(2, CLASSES, 16))
    for head, silent in ((0, data.test), (1, data.validation)):
        loud = np.setdiff1d(np.arange(400), silent)
        data.features[loud, 2, head] += towards[head][labels[loud]]
    result = probe_map(data, labels, NAMES, kind="per-head")
    assert result.head_accuracy[2, 1] > 0.9
    assert result.accuracy < 0.5


def test_steps_of_a_main_question_are_not_independent() -> None:
    """Features that follow the main question, labels that are the same throughout it: nothing about labels is known."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 25)
    labels = generator.integers(CLASSES, size=60)[groups]
    x = generator.normal(size=(1500, 4, 6, 8)) + 3 * generator.normal(size=(60, 4, 6, 8))[groups]
    parts = [np.flatnonzero((groups >= a) & (groups < b)) for a, b in ((0, 30), (30, 40), (40, 60))]
    alone = Examples(x.astype(np.float32), *parts, torch.device("cpu"))
    marked = probe_map(alone, labels, NAMES, kind="per-head").clears_control
    assert marked.any()  # as if they were independent
    together = Examples(x.astype(np.float32), *parts, torch.device("cpu"), groups)
    assert not probe_map(together, labels, NAMES, kind="per-head").clears_control.any()


def test_labels_are_shuffled_within_groups() -> None:
    """A head that follows the main question is not important; one that distinguishes its steps is."""
    generator = np.random.default_rng(1)
    groups, labels = np.repeat(np.arange(60), 3), np.tile(np.arange(3), 60)
    of_group = generator.normal(size=60)[groups]
    each = [np.stack([of_group, generator.normal(size=180) + 2 * (labels == c)], axis=1) for c in range(3)]
    level = chance_level(each, labels, groups, np.abs, draws=300, generator=generator)
    own = np.abs([each[c][labels == c].mean(0) for c in range(3)])
    assert (own[:, 1] > level[:, 1]).all()
    assert (own[:, 0] <= level[:, 0] + 1e-9).all()


def test_a_loss_that_is_not_finite_is_told() -> None:
    data, labels, _ = planted(1.0, n=60)
    data.features[data.train[0]] = np.inf
    with pytest.raises(CannotDo, match="validation loss is nan after epoch 1"):
        fit_probe(data, labels, CLASSES, **{**PUBLISHED, "epochs": 2})


def test_per_head_equals_scikit_learns_discriminants() -> None:
    data, labels, _ = planted(0.5, n=300, layers=2, heads=3)
    fast = per_head(data, labels, CLASSES)[0][1]
    x = data.features.reshape(300, 6, -1).astype(np.float64)
    agree = []
    for shrink in SHRINKAGES:  # whichever was chosen, one of them must agree for every head
        right = []
        for head in range(6):
            within = np.mean(
                [np.cov(x[data.train][labels[data.train] == c, head].T, bias=True) * (labels[data.train] == c).sum()
                 for c in range(CLASSES)], axis=0) * CLASSES / len(data.train)  # fmt: skip
            scale = np.trace(within) / within.shape[0]
            # scikit-learn shrinks as (1 − s) Σ + s μ I; ours, Σ + t μ I, is that up to a factor, with s = t / (1 + t)
            covariance = _Given(within + shrink * scale * np.eye(16))
            priors = np.full(CLASSES, 1 / CLASSES)
            sure = LinearDiscriminantAnalysis(solver="lsqr", covariance_estimator=covariance, priors=priors)
            sure.fit(x[data.train, head], labels[data.train])
            right.append((sure.predict(x[data.test, head]) == fast[:, head]).mean())
        agree.append(min(right))
    assert max(agree) == 1


class _Given:
    """A covariance as it is; scikit-learn asks for it class by class and averages."""

    def __init__(self, covariance: np.ndarray) -> None:
        self.covariance_ = covariance

    def fit(self, x: np.ndarray) -> "_Given":
        return self


def test_shuffles_do_not_change_the_real_result() -> None:
    data, labels, _ = planted(0.5, n=200)
    shuffled = np.random.default_rng(0).permutation(labels)
    both = per_head(data, labels, CLASSES, [shuffled])
    np.testing.assert_array_equal(both[0][1], per_head(data, labels, CLASSES)[0][1])
    assert (both[1][1] == shuffled[data.test][:, None]).mean() < 0.35


def test_elbow() -> None:
    curve = np.array([0.01, 0.3, 0.01, 0.28, 0.02, 0.31, 0.01, 0.01, 0.01, 0.01])
    assert before_elbow(curve).nonzero()[0].tolist() == [1, 3, 5]
    assert not before_elbow(np.full(5, 0.2)).any()
    assert not before_elbow(np.array([1.0])).any()


def test_maps_sum_to_one_whatever_they_are_made_of() -> None:
    assert normalised(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    inside = []
    for _ in range(200):
        each = generator.normal([1.0, 2.0, -1.0], 0.5, size=(40, 3))
        low, high = interval(each[None], np.arange(40), np.abs, draws=400, generator=generator)
        inside.append((low <= [1, 2, 1]) & (high >= [1, 2, 1]))
    assert 0.9 < np.mean(inside) < 0.98


def test_a_level_is_exceeded_by_chance_as_rarely_as_it_says() -> None:
    """Heads of very different spread, and one that always says much: once in a hundred times, one exceeds its level."""
    generator = np.random.default_rng(0)
    exceeded = []
    for _ in range(200):
        labels = generator.integers(3, size=90)
        each = [generator.normal([0, 5.0, 0.1, 0], [1.0, 0.1, 3.0, 0.01], size=(90, 4)) for _ in range(3)]
        level = chance_level(each, labels, np.arange(90), np.abs, draws=300, generator=generator)
        own = np.abs([each[c][labels == c].mean(0) for c in range(3)])
        exceeded.append((own > level).any())
    assert np.mean(exceeded) < 0.04


def test_a_head_that_says_the_same_of_every_question_does_not_clear_its_level() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(90) % 3
    each = [generator.normal([5.0, 0.0], 0.1, size=(90, 2)) for _ in range(3)]
    each[1][labels == 1, 1] += 1
    level = chance_level(each, labels, np.arange(90), np.abs, draws=300, generator=generator)
    low = np.array(
        [
            interval(each[c][None, labels == c], np.arange(30), np.abs, draws=300, generator=generator)[0]
            for c in range(3)
        ]
    )
    assert (low > level).tolist() == [[False, False], [False, True], [False, False]]


def test_directions_point_from_the_rest_to_the_class() -> None:
    data, labels, _ = planted(1.0, n=300, layers=2, heads=3)
    result = directions(data, labels, CLASSES)
    x = data.features[data.train].astype(np.float64)
    of = labels[data.train] == 1
    apart = x[of].mean(0) - x[~of].mean(0)
    unit = apart / np.linalg.norm(apart, axis=-1, keepdims=True)
    sigma = np.einsum("blhd,lhd->blh", x, unit).std(0)
    np.testing.assert_allclose(result[1], unit * sigma[..., None], rtol=1e-3, atol=1e-4)


def test_the_sentence_a_step_is_about() -> None:
    main = "Ann has a red hat. Bo takes the bus 47! Which bus does Bo take?"
    assert sentence_about(main, "What colour has the hat of Ann?") == "Ann has a red hat."
    assert sentence_about("No sentence at all", "What?") == "No sentence at all"


def test_wording() -> None:
    texts = [("how many pens", "who is it", "where to go")[i % 3] + f" n{i}" for i in range(60)]
    labels = np.arange(60) % 3
    train, test = np.arange(45), np.arange(45, 60)
    assert bag_of_words(texts, labels, train, test) == 1
    assert bag_of_words(["the same"] * 60, labels, train, test) == pytest.approx(1 / 3)
    labels[:20] = 0
    assert majority(labels, train, test) == pytest.approx((labels[45:] == 0).mean())


class TestUsed:
    """Heads go from their mean output to their own, where answers are predicted."""

    @pytest.fixture
    def lm(self) -> LM:
        return LM(build(TINY[0]).double(), tokenizer(), "tiny")

    @pytest.fixture
    def examples(self) -> list[TokenExample]:
        texts = [((1, 2, 3, 4), (5, 6)), ((7, 8), (9,)), ((3, 1, 2), (4,)), ((9, 8, 7), (6, 5)), ((2, 6), (1,))]
        return [TokenExample(*text) for text in texts]

    @staticmethod
    def log_p(lm: LM, example: TokenExample, mean: torch.Tensor, share: torch.Tensor) -> float:
        """Run one text in a separate pass. share: [layer, head]."""
        tokens, n = [*example.prompt, *example.target], len(example.prompt)

        def move(layer: int, z: torch.Tensor) -> torch.Tensor:
            z = z.clone()
            for place in range(n - 1, len(tokens) - 1):
                z[0, place] = mean[layer] + share[layer][:, None] * (z[0, place] - mean[layer])
            return z

        with torch.no_grad(), hooked(lm.model, lm.anatomy, move):
            logits = lm.model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        return sum(float(logits[place, tokens[place + 1]]) for place in range(n - 1, len(tokens) - 1))

    @pytest.fixture
    def mean(self, lm, examples) -> torch.Tensor:
        """Of the first three: two of the first class, one of the second, and both classes count alike."""
        means = []
        for example in examples[:3]:
            z = lm.head_outputs([[*example.prompt, *example.target]])[0].double()
            means.append(z[len(example.prompt) - 1 : -1].mean(0))
        return (means[0] + means[1]) / 4 + means[2] / 2

    def run(self, lm: LM, examples: list[TokenExample]) -> np.ndarray:
        labels = np.array([0, 0, 1, 0, 1])
        data = Examples(np.empty(5), np.arange(3), np.empty(0, int), np.array([3, 4]), lm.device)
        return without_classifier.used_by_answers(lm, examples, labels, data).reshape(2, lm.n_layers, lm.n_heads)

    def test_it_equals_finite_differences(self, lm, examples, mean, monkeypatch) -> None:
        monkeypatch.setattr(without_classifier, "PATH_STEPS", 1)
        result, step = self.run(lm, examples), 1e-2  # norms are in float32: smaller steps drown in rounding
        for row, example in enumerate(examples[3:]):
            for layer, head in ((0, 1), (1, 0), (2, 4)):
                up, down = (torch.full((lm.n_layers, lm.n_heads), 0.5, dtype=torch.float64) for _ in range(2))
                up[layer, head] += step
                down[layer, head] -= step
                slope = (self.log_p(lm, example, mean, up) - self.log_p(lm, example, mean, down)) / (2 * step)
                assert result[row, layer, head] == pytest.approx(slope, rel=1e-2, abs=1e-4)

    def test_heads_together_are_what_their_outputs_are_worth(self, lm, examples, mean, monkeypatch) -> None:
        monkeypatch.setattr(without_classifier, "PATH_STEPS", 50)
        for row, example in zip(self.run(lm, examples), examples[3:], strict=True):
            whole, none = (torch.full((lm.n_layers, lm.n_heads), v, dtype=torch.float64) for v in (1.0, 0.0))
            worth = self.log_p(lm, example, mean, whole) - self.log_p(lm, example, mean, none)
            assert row.sum() == pytest.approx(worth, rel=1e-2, abs=1e-5)


def test_intervals_include_refits() -> None:
    """Fits that disagree: the interval is as wide as the mean of four of them varies, and covers the truth."""
    generator = np.random.default_rng(0)
    inside = []
    for _ in range(200):
        fits = generator.normal([1.0, 2.0, -1.0], 0.5, size=(8, 1, 3)) + generator.normal(0, 0.1, size=(8, 40, 3))
        low, high = interval(fits, np.arange(40), np.abs, draws=400, generator=generator)
        inside.append((low <= [1, 2, 1]) & (high >= [1, 2, 1]))
    assert 0.85 < np.mean(inside) < 0.98


def test_a_map_of_refits_is_their_mean() -> None:
    data, labels, truth = planted(1.5)
    few = {**TRAINING, "epochs": 5}
    result = probe_map(data, labels, NAMES, training=few, refits=3)
    one = probe_map(data, labels, NAMES, training=few)
    assert result.sizes["refit"] == 3
    np.testing.assert_allclose(result.importance_refit[0], one.importance, rtol=1e-6)
    assert abs(result.importance_refit[1] - result.importance_refit[0]).max() > 1e-3
    between = result.importance_refit.min("refit"), result.importance_refit.max("refit")
    carriers = truth.reshape(result.importance.shape[1:])
    inside = (result.importance >= 0.9 * between[0]) & (result.importance <= 1.1 * between[1])
    assert inside.values[:, carriers].all()

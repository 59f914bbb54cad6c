"""The rule by which a head of maps is above chance, on synthetic scores and on models of random weights."""

import numpy as np
import pytest
import torch

import headatlas as ha
from headatlas.methods.maps.chance import FALSE_MAP_RATE, chance_level
from headatlas.models.lm import LM
from headatlas.tasks.relations import Relation
from tests.models.tiny import TINY, VOCABULARY, build, tokenizer

K, V = 10, 50_000
WORDS = VOCABULARY - 4


def drawn(seed: int, clump: float, relations: int = 20, layers: int = 28, heads: int = 12) -> tuple[np.ndarray, ...]:
    """Scores [model and two baselines, relation, layer, head] of heads that know nothing, and the numbers of pairs."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(30, 300, relations)
    shape = (3, relations, layers, heads)
    rate = rng.beta(clump, 4, shape) if clump else np.full(shape, K / V * 3)
    hits = rng.binomial(pairs[:, None, None], rate)
    return (hits / pairs[:, None, None]).astype(np.float32), pairs


@pytest.mark.parametrize(("clump", "share"), [(0.0, FALSE_MAP_RATE), (0.1, 0.15), (0.02, 0.25)])
def test_models_that_know_nothing_show_nothing(clump: float, share: float) -> None:
    """clump: hits of one head come together, the more so the smaller it is. It is estimated, so more slips through."""
    shown = []
    for seed in range(40):
        scores, pairs = drawn(seed, clump)
        level = chance_level(scores[1:], pairs, np.full(len(pairs), K), V)
        shown.append((scores[0].max(axis=(1, 2)) > level).sum())
    assert np.mean(np.array(shown) > 0) <= share
    assert np.sum(shown) <= 0.02 * 20 * 40


def test_one_hit_in_44_pairs_is_chance_although_no_baseline_hits() -> None:
    """28 × 12 heads: one hit is likely for a random ranking, two are not; four are beyond it for 20 relations."""
    nothing = np.zeros((2, 20, 28, 12), np.float32)
    level = chance_level(nothing, np.full(20, 44), np.full(20, K), V)
    assert (level >= np.float32(1) / np.float32(44)).all()
    assert (level < 4 / 44).all()


def test_a_head_must_exceed_every_head_of_every_baseline() -> None:
    baseline = np.zeros((2, 1, 4, 4), np.float32)
    baseline[1, 0, 2, 3] = np.float32(20) / np.float32(40)
    level = chance_level(baseline, np.array([40]), np.array([K]), V)
    assert level[0] >= baseline.max()


def test_hits_that_come_in_clumps_raise_the_level() -> None:
    rng = np.random.default_rng(0)
    n = np.array([140])
    even = rng.binomial(140, 0.005, (1, 1, 28, 12)) / 140
    few = np.where(rng.random((1, 1, 28, 12)) < 0.05, rng.uniform(0, 0.2, (1, 1, 28, 12)), 0.0)
    levels = [float(chance_level(b.astype(np.float32), n, np.array([K]), V)[0]) for b in (even, few)]
    assert levels[0] < 0.06
    assert levels[1] > 1.2 * few.max()


def test_the_level_is_one_of_the_scores() -> None:
    """Compared with scores in float32, it must be exactly that of the same number of hits."""
    for n in (31, 44, 97, 689):
        level = chance_level(np.zeros((1, 1, 9, 9), np.float32), np.array([n]), np.array([K]), V)[0]
        assert level in np.arange(n + 1, dtype=np.float32) / np.float32(n)


def test_without_baselines_or_scores_there_is_no_level() -> None:
    assert np.isnan(chance_level(np.empty((0, 2, 3, 4)), np.array([30, 40]), np.array([K, K]), V)).all()
    left_out = np.zeros((2, 2, 3, 4), np.float32)
    left_out[:, 0] = np.nan
    level = chance_level(left_out, np.array([3, 40]), np.array([K, K]), V)
    assert np.isnan(level[0])
    assert level[1] > 0


@pytest.mark.parametrize("baseline", [0.0, 1.0])
def test_a_vocabulary_that_is_all_hits_leaves_nothing_above(baseline: float) -> None:
    level = chance_level(np.full((1, 1, 2, 2), baseline, np.float32), np.array([30]), np.array([K]), K)
    assert level.tolist() == [1.0]


# --- on models


def relations(count: int = 20) -> list[Relation]:
    rng = np.random.default_rng(0)
    return [
        Relation(
            f"r{i}",
            "Knowledge",
            tuple((f"w{s}", f"w{t}") for s, t in zip(*rng.integers(0, WORDS, (2, 40)), strict=True)),
        )
        for i in range(count)
    ]


def test_random_weights_have_no_head_above_chance_and_a_planted_one_is() -> None:
    tiny = next(t for t in TINY if t.id == "llama")
    above = 0
    for seed in range(5):
        result = ha.maps(LM(build(tiny, seed), tokenizer(), "random"), relations(), k=1, seed=seed)
        above += int((result.score > result.chance).any(("layer", "head")).sum())
    assert above <= 3  # of 100 relations

    lm = LM(build(tiny), tokenizer(), "planted")
    source = torch.arange(4, 14)  # as many pairs as a head of size 10 can hold exactly
    target = source.roll(3)
    x = lm.weights.first_mlp(lm.weights.embedding()[source])
    wanted = torch.linalg.pinv(lm.weights.unembedding().T)[:, target].T
    lm.weights.value(1)[0].copy_(torch.linalg.pinv(x))
    lm.weights.output(1)[2].copy_(wanted)
    pairs = tuple((f"w{s - 4}", f"w{t - 4}") for s, t in zip(source.tolist(), target.tolist(), strict=True))
    result = ha.maps(lm, [Relation("planted", "Knowledge", pairs)], input="published", k=1, min_pairs=5)
    assert np.argwhere((result.score > result.chance).values).tolist() == [[0, 1, 2]]

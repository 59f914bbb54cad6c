"""The real default model, end to end: the one that `make atlas` and the README use."""

import pytest
import torch

import headatlas as ha
from headatlas.models.default import default_gguf
from headatlas.models.gguf import from_gguf


@pytest.fixture(scope="module")
def lm(default_lm) -> ha.LM:
    return default_lm


def test_shape(lm) -> None:
    assert (lm.n_layers, lm.n_heads, lm.n_kv_heads, lm.d_head, lm.d_model) == (30, 9, 3, 64, 576)
    assert lm.weights.unembedding().shape == (576, 49152)
    assert lm.name == "smollm2"


def test_fingerprint_is_the_same_everywhere(lm) -> None:
    assert lm.fingerprint() == "b8d8e74884334736"


def test_it_knows_the_capital_of_france(lm) -> None:
    assert lm.generate("The capital of France is", max_new_tokens=1) == " Paris"


def test_padding_changes_nothing(lm) -> None:
    prompts = ["The capital of France is", "Two plus two makes", "Water boils at a temperature of one hundred degrees"]
    together = lm.head_outputs(prompts, side="left")
    for row, prompt in enumerate(prompts):
        alone = lm.head_outputs([prompt])[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=1e-3, atol=2e-4)


def test_removing_heads_changes_the_answer_and_only_while_asked(lm) -> None:
    prompt = "The capital of France is"
    paris = lm.encode(" Paris")[0][0]

    def log_p() -> float:
        return lm.model(**lm.batch(prompt)).logits[0, -1].log_softmax(-1)[paris].item()

    before = log_p()
    with lm.patched("L23.H4"):
        without = log_p()
    assert without < before - 0.5  # the head that the published code names for capitals
    assert log_p() == before


def test_from_disk_equals_from_memory(lm) -> None:
    disk = ha.Weights.from_disk(from_gguf(default_gguf()))
    assert torch.equal(disk.W_V(23, 4), lm.weights.W_V(23, 4))
    assert torch.equal(disk.W_O(23, 4), lm.weights.W_O(23, 4))
    x = lm.weights.embedding()[:100]
    assert torch.equal(disk.embedding()[:100], x)
    torch.testing.assert_close(disk.first_mlp(x), lm.weights.first_mlp(x))


def test_ablation_names_the_head_that_maps_names(lm) -> None:
    pairs = [("France", "Paris"), ("Italy", "Rome"), ("Japan", "Tokyo")]
    capitals = [{"prompt": f"The capital of {c} is", "target": f" {t}", "split": "held_out"} for c, t in pairs]
    capitals += [{"prompt": "The capital of Egypt is", "target": " Cairo", "split": "train"}]
    effect = ha.ablate(lm, capitals, limit=5).effect.isel(task=0)
    top = effect.argmax(("layer", "head"))
    assert (top["layer"].item(), top["head"].item()) == (23, 4)


def test_gating_helps_the_task_it_is_fitted_to(lm) -> None:
    """A few updates, where half-shut heads were: the pressed fits must do better than the free one they start from."""
    result = ha.gate(lm, "syntax", seeds=1, updates=6, batch=4, proof=False)
    nll = result.nll.isel(task=0, seed=0)
    assert nll.sel(fit="retain") < nll.sel(fit="free")
    assert result.whole_accuracy.item() > 0.5
    assert result["always"].equals(result["any"])  # one seed


def test_probing_reads_more_than_chance_and_says_what_words_alone_give(lm) -> None:
    result = ha.probe(
        lm, limit=120, kind="per-head", functions=["Math Calculation", "Semantic Understanding"], proof="none"
    )
    assert result.accuracy > result.majority_accuracy
    assert result.accuracy > result.control_accuracy
    assert result.head_accuracy.max() > 0.6
    assert 0 < result.bag_of_words_accuracy < 1
    assert result.importance.shape == (2, 30, 9)

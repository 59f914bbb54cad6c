"""The real default model, end to end: the one that `make atlas` and the README use."""

import copy
import json
import subprocess
import sys
from contextlib import nullcontext
from urllib.parse import quote

import pytest
import torch
from safetensors.torch import load_file

import headatlas as ha
from headatlas.edits.change import applied, make_edit
from headatlas.methods._effects import held_out_questions
from headatlas.models.default_model import default_gguf
from headatlas.models.gguf import from_gguf
from headatlas.models.gradients import gate_gradients
from headatlas.tasks.prompts import load_tasks
from tests.report.test_page import chrome, needs_browser, playwright

__all__ = ["chrome"]  # a fixture
from headatlas.models.lm import LM
from tests.models.tiny import TINY, build, tokenizer


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
    effect = ha.ablate(lm, capitals, limit=5).contribution.isel(task=0)
    top = effect.argmax(("layer", "head"))
    assert (top["layer"].item(), top["head"].item()) == (23, 4)


def test_gating_helps_the_task_it_is_fitted_to(lm) -> None:
    """A few updates, where half-shut heads were: the pressed fits must do better than the free one they start from."""
    result = ha.gate(lm, "syntax", seeds=1, updates=6, batch=4)
    nll = result.nll.isel(task=0, seed=0)
    assert nll.sel(fit="retain") < nll.sel(fit="free")
    assert result.whole_accuracy.item() > 0.5
    assert result["always"].equals(result["any"])  # one seed


def test_probing_reads_more_than_chance_and_says_what_words_alone_give(lm) -> None:
    result = ha.probe(lm, limit=60, kind="per-head", functions=["Math Calculation", "Semantic Understanding"])
    assert result.accuracy > result.majority_accuracy
    assert result.accuracy > result.control_accuracy
    assert result.head_accuracy.max() > 0.6
    assert 0 < result.bag_of_words_accuracy < 1
    assert result.importance.shape == (2, 30, 9)


WITHOUT_HEADATLAS = """
import sys
sys.modules["headatlas"] = None  # it cannot be imported
from safetensors.torch import save_file
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[1:]:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("w3 w5 w8: The capital of France is", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        save_file({"ids": ids, "logits": model(ids).logits}, folder + "/logits.safetensors")
"""


def test_edited_checkpoints_are_loaded_where_there_is_no_headatlas(lm, tmp_path) -> None:
    """The default model, and three families that keep their projections in other ways."""
    families = [next(t for t in TINY if t.id == name) for name in ("gpt2", "qwen3_next", "deepseek_v3")]
    models = {"smollm2": lm} | {t.id: LM(build(t).float(), tokenizer(), t.id) for t in families}
    edits = {}
    for name, model in models.items():
        layer = next(i for i in range(model.n_layers) if i not in model.layers_without_heads)
        changes = {"remove": [(layer, 1), (model.n_layers - 1, 4)], "scale": {(layer, 2): 0.3}}
        changes["steer"] = {(layer, 3): torch.full((model.d_head,), 0.1)}
        ha.edit(name if model is lm else model, **changes, out=tmp_path / name)
        edits[name] = make_edit(model.anatomy, **changes)
    command = [sys.executable, "-I", "-c", WITHOUT_HEADATLAS, *(str(tmp_path / name) for name in models)]
    subprocess.run(command, check=True, capture_output=True)
    for name, model in models.items():
        made = load_file(tmp_path / name / "logits.safetensors")
        before = model.model(made["ids"]).logits
        with applied(model, edits[name]):
            expected = model.model(made["ids"]).logits
        # in float32, the default model's logits under the edit are 2e-5 of the largest off those in float64
        torch.testing.assert_close(made["logits"], expected, rtol=0, atol=1e-4 * expected.abs().max().item())
        assert (before - expected).abs().max() > 0.1


@needs_browser
def test_the_live_page_shows_what_the_model_says_without_the_head_of_capitals(lm, chrome) -> None:
    prompt, state = "The capital of Italy is", {"heads": [[23, 4, 0]], "selected": 23 * 9 + 4}
    server = ha.view(lm, open_page=False)
    try:
        tab = chrome.new_page(viewport={"width": 1300, "height": 3000})
        tab.goto(f"{server.url}#live={quote(json.dumps(state))}")
        tab.get_by_role("button", name="A capital").click()
        expect = playwright.expect
        expect(tab.locator("#live-next th")).to_have_count(3, timeout=60_000)
        expect(tab.locator(".said.after")).not_to_contain_text("…", timeout=60_000)
        expect(tab.locator("#live-writes")).to_contain_text("Italian", timeout=60_000)
        lines = [row.locator("td").all_inner_texts() for row in tab.locator("#live-next tbody tr").all()]
        tab.close()
    finally:
        server.stop()

    def p() -> list[float]:
        return lm.model(**lm.batch(prompt)).logits[0, -1].softmax(-1).tolist()

    before = p()
    with lm.patched("L23.H4"):
        after = p()
    rome = lm.encode(" Rome")[0][0]
    row = next(line for line in lines if line[0] == "·Rome")
    assert [float(v) for v in row[1:]] == pytest.approx([before[rome], after[rome]], abs=1e-3)
    assert before[rome] > 4 * after[rome]


def test_gradients_in_bfloat16_are_nearer_with_a_float32_stream(lm, monkeypatch) -> None:
    """By a third, over all heads and examples: without it, rounding adds up from layer to layer."""
    half = ha.LM(copy.deepcopy(lm.model).bfloat16(), lm.tokenizer, "half")
    questions = held_out_questions(lm, *load_tasks(lm, "math"), 16)
    exact, near = gate_gradients(lm, questions), gate_gradients(half, questions)
    monkeypatch.setattr("headatlas.models.gradients.frozen_float32_stream", lambda lm: nullcontext())
    far = gate_gradients(half, questions)
    assert (near - exact).abs().mean() < 0.85 * (far - exact).abs().mean()

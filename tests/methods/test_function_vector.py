"""function_vector: against one run per head, and on a model whose hand-set heads carry a task."""

import numpy as np
import pytest
import torch
import transformers

import headatlas as ha
from headatlas.errors import BadArgument
from headatlas.methods import get_method
from headatlas.methods.function_vector.compute import mean_outputs, rises
from headatlas.methods.function_vector.vector import answers_with, best_layers, vector_of
from headatlas.models import single_heads
from headatlas.models.interventions import can_share
from headatlas.models.lm import LM
from headatlas.models.logit_attribution import into_stream
from headatlas.models.tokens import TokenExample
from headatlas.tasks.few_shot import few_shot_prompts, few_shot_tasks, zero_shot_prompts
from tests.models.tiny import TINY, build, tokenizer

BY_ID = {t.id: t for t in TINY}
PROMPTS = [TokenExample((5, 9, 11, 20, 7, 3), (4,)), TokenExample((8, 30, 2, 6, 19, 40, 12, 33), (17,))]
SHARING = {"llama": True, "gemma2": False, "deepseek_v3": True, "mistral": False, "bloom": False, "qwen3_next": False}


def lm_of(family: str) -> LM:
    return LM(build(BY_ID[family]), tokenizer(), family)


@torch.no_grad()
def probabilities(lm: LM, prompt: TokenExample) -> torch.Tensor:
    return lm.model(torch.tensor([prompt.prompt])).logits[0, -1].softmax(-1)


@pytest.mark.parametrize("family", SHARING)
def test_effects_equal_one_run_per_head(family) -> None:
    lm = lm_of(family)
    assert all(can_share(lm, a, len(a.prompt) - 1) == SHARING[family] for a in PROMPTS)
    means = torch.randn(lm.n_layers, lm.n_heads, lm.d_head, generator=torch.Generator().manual_seed(0))
    rise, before = rises(lm, PROMPTS, means)
    for i, prompt in enumerate(PROMPTS):
        clean = probabilities(lm, prompt)
        assert before[i].tolist() == pytest.approx([clean[prompt.target[0]].item(), 0.0], rel=1e-4)
        for layer in range(lm.n_layers):
            for head in range(lm.n_heads):
                if layer in lm.layers_without_heads:
                    assert rise[i, layer].isnan().all()
                    continue
                with lm.patched((layer, head), means, positions="last"):
                    expected = (probabilities(lm, prompt) - clean)[prompt.target[0]].item()
                assert rise[i, layer, head].item() == pytest.approx(expected, rel=1e-3, abs=1e-7)
    assert (rise.nan_to_num().abs() > 1e-5).any()


def test_the_shared_way_and_the_replayed_one_agree(monkeypatch) -> None:
    lm = lm_of("llama")
    means = torch.randn(lm.n_layers, lm.n_heads, lm.d_head, generator=torch.Generator().manual_seed(0))
    shared = rises(lm, PROMPTS, means, tokens=20)
    monkeypatch.setattr("headatlas.methods.function_vector.compute.can_share", lambda *_: False)
    replayed = rises(lm, PROMPTS, means, tokens=40)
    torch.testing.assert_close(shared, replayed, rtol=1e-4, atol=1e-7)
    monkeypatch.setattr("headatlas.methods.function_vector.compute.can_replay", lambda *_: False)
    monkeypatch.setattr(single_heads, "replay_from", None)  # would fail if it were used
    torch.testing.assert_close(rises(lm, PROMPTS, means), replayed, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("family", ["llama", "gemma2", "granite", "gpt2"])
def test_a_vector_of_all_heads_is_what_attention_writes(family) -> None:
    """All heads of a layer together are what the attention adds to the stream, less its bias."""
    lm, layer = lm_of(family), 1
    plain, scaled = mean_outputs(lm, PROMPTS)
    expected = torch.stack([lm.head_outputs([p.prompt], "last")[0, 0] for p in PROMPTS]).double().mean(0)
    torch.testing.assert_close(plain.double(), expected, rtol=1e-4, atol=1e-5)
    vector = vector_of(lm, [(layer, head) for head in range(lm.n_heads)], scaled)
    torch.testing.assert_close(vector, into_stream(lm, layer, scaled[layer]).sum(0), rtol=1e-4, atol=1e-5)
    total = torch.zeros(lm.d_model)
    for prompt in PROMPTS:
        with_heads = stream_after_attention(lm, prompt, layer)
        with lm.patched([(layer, head) for head in range(lm.n_heads)], positions="last"):
            total += with_heads - stream_after_attention(lm, prompt, layer)
    if BY_ID[family].family == "gemma2":  # its norm is not linear: without heads, all that is left is the bias
        assert torch.nn.functional.cosine_similarity(total, vector, dim=0) > 0.5
        assert not torch.allclose(plain, scaled)
    else:
        torch.testing.assert_close(vector, total / len(PROMPTS), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def stream_after_attention(lm: LM, prompt: TokenExample, layer: int) -> torch.Tensor:
    """What enters the norm before a block's MLP, at the last token: the stream with the attention's output added."""
    block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{layer}")
    names = ("pre_feedforward_layernorm", "post_attention_layernorm", "ln_2")
    norm = next(getattr(block, name) for name in names if hasattr(block, name))
    kept = []
    handle = norm.register_forward_pre_hook(lambda module, args: kept.append(args[0][0, -1].float()))
    lm.model(torch.tensor([prompt.prompt]))
    handle.remove()
    return kept[0]


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3_next"])
def test_adding_a_vector_equals_a_plain_hook(family) -> None:
    lm = lm_of(family)
    vectors = torch.randn(3, lm.d_model, generator=torch.Generator().manual_seed(0))
    layers = [0, 1, 1]
    *after, before = answers_with(lm, PROMPTS, layers, vectors)
    expected = [plainly_added(lm, PROMPTS, layer, v) for layer, v in zip(layers, vectors, strict=True)]
    np.testing.assert_allclose(after, expected, rtol=1e-4)
    assert before == pytest.approx(plainly_added(lm, PROMPTS, 0, torch.zeros(lm.d_model)), rel=1e-4)
    assert best_layers(lm, PROMPTS[:1], vectors, layer=1) == [1, 1, 1]
    by_layer = [[plainly_added(lm, PROMPTS[:1], layer, v)[0] for layer in range(lm.n_layers)] for v in vectors]
    assert best_layers(lm, PROMPTS[:1], vectors, layer=None) == np.argmax(by_layer, axis=1).tolist()


@torch.no_grad()
def plainly_added(lm: LM, prompts: list[TokenExample], layer: int, vector: torch.Tensor) -> list[float]:
    def hook(module, args, output):
        hidden = (output[0] if isinstance(output, tuple) else output).clone()
        hidden[0, -1] += vector
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    handle = lm.model.get_submodule(f"{lm.anatomy.blocks}.{layer}").register_forward_hook(hook)
    each = [(p[a.target[0]].item(), float(p.argmax() == a.target[0])) for a in prompts for p in [probabilities(lm, a)]]
    handle.remove()
    return np.mean(each, axis=0).tolist()


# --- a model that carries a task in one head

WORDS, PLACES = 24, 24  # questions are w0 … w23; the answer is the word after its place in w24 … w47
CARRIER = (1, 5)
N_HEADS, D_HEAD = 8, 56
POSITION, FLAG, TASK, OUT = (
    61,
    61 + PLACES,
    61 + PLACES + 1,
    61 + PLACES + 2,
)  # features: words, places, what heads write
HALF = 224


def answer_to(word: int) -> int:
    return WORDS + (word + 1) % WORDS


def carrying() -> LM:
    """A GPT-2 of two layers with hand-set heads and MLP; the norms are the identity.

    L0.H2 looks, at an answer, at the word before it if that is its question, else at itself, and raises a flag if it
    sees a question. L1.H5 averages the flags into the task feature. The MLP of layer 2 writes the answer to the word at
    hand where the task feature is up. So nothing but L1.H5 carries the task at the last token.
    """
    shape = {"n_embd": 2 * HALF, "n_layer": 3, "n_head": N_HEADS, "n_inner": WORDS, "n_positions": PLACES}
    config = transformers.GPT2Config(
        vocab_size=61,
        activation_function="relu",
        layer_norm_epsilon=1e6,  # so large that x / sqrt(var + eps) is x / 1000
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
        **shape,
    )
    model = transformers.GPT2LMHeadModel(config).eval().requires_grad_(False)
    for name, weight in model.named_parameters():
        weight.fill_(1e3 if "ln" in name and "weight" in name else 0.0)
    body, token = model.transformer, [i + 4 for i in range(2 * WORDS)]  # w0 is token 4

    def write(row: torch.Tensor, feature: int, size: float) -> None:
        """Every feature is written twice, with both signs, so that nothing is lost by centring."""
        row[feature], row[HALF + feature] = size, -size

    for i in range(61):
        write(body.wte.weight[i], i, 1.0)
        write(model.lm_head.weight[i], OUT + i, 10.0)
    for i in range(PLACES):
        write(body.wpe.weight[i], POSITION + i, 1.0)
    q, k, v = (slice(n * 2 * HALF, (n + 1) * 2 * HALF) for n in range(3))
    first = body.h[0].attn.c_attn.weight
    query, key, value = (first[:, part][:, 2 * D_HEAD : 3 * D_HEAD] for part in (q, k, v))
    for i in range(PLACES):
        query[POSITION + i, i], key[POSITION + i, i] = 600.0, 1.0  # itself: 1.5
        if i:
            query[POSITION + i, i - 1] = 400.0  # the word before: 1
    for word in range(WORDS):
        query[token[answer_to(word)], PLACES + word], key[token[word], PLACES + word] = (
            400.0,
            1.0,
        )  # its question: 1 more
        value[token[word], 0] = 1.0
        write(body.wte.weight[token[word]], FLAG, -1.0)  # a question sees itself: that raises no flag
    write(body.h[0].attn.c_proj.weight[2 * D_HEAD], FLAG, 1.0)
    body.h[1].attn.c_attn.weight[:, v][FLAG, CARRIER[1] * D_HEAD] = 1.0
    write(body.h[1].attn.c_proj.weight[CARRIER[1] * D_HEAD], TASK, 2.2)  # nearly half of the tokens raise a flag
    mlp = body.h[2].mlp
    for word in range(WORDS):
        mlp.c_fc.weight[token[word], word] = mlp.c_fc.weight[TASK, word] = 1.0
        mlp.c_fc.bias[word] = -1.2
        model.lm_head.weight[3, token[word]] = 0.5  # by itself a question is followed by <unk>
        write(mlp.c_proj.weight[word], OUT + token[answer_to(word)], 1.0)
    return LM(model, tokenizer(), "carrying")


def pairs(answer=answer_to) -> dict[str, list[tuple[str, str]]]:
    return {"after": [(f"w{i}", f" w{answer(i)}") for i in range(WORDS)]}


@pytest.fixture(scope="module")
def carried():
    return ha.function_vector(carrying(), tasks=pairs(), shots=6, limit=4, top=1, draws=24)


def test_it_finds_the_head_that_carries_the_task(carried) -> None:
    effect = carried.contribution.sel(task="after").values
    assert np.unravel_index(effect.argmax(), effect.shape) == CARRIER
    assert effect.max() > 0.9
    assert np.sort(np.abs(effect), axis=None)[-2] < 1e-3
    assert np.argwhere(carried.selected.values[0]).tolist() == [list(CARRIER)]
    told = carried.baseline.isel(task=0).sel(measure="probability")
    assert told.sel(prompt="few_shot") > 0.95
    assert told.sel(prompt=["shuffled", "zero_shot"]).max() < 0.05


def test_its_vector_does_the_task_without_examples(carried) -> None:
    one = carried.isel(task=0)
    assert one.effect.sel(measure="probability") > 0.9
    assert one.effect.sel(measure="accuracy") > 0.9
    by_layer = one.effect_by_layer.sel(measure="probability").values
    assert by_layer[:2].min() > 0.9
    assert abs(by_layer[2]) < 1e-3  # too late: the MLP that reads it was before
    assert one.added_at in (0, 1)
    random = one.random_effect.sel(measure="probability").values
    beyond = float(one.effect.sel(measure="probability")) - random.mean()
    assert float(one.beyond_low) - 1e-6 <= beyond <= float(one.beyond_high) + 1e-6
    assert (one.outcome.item() == "supported") == (float(one.p_corrected) < 0.05 and float(one.beyond_low) > 0)
    same = random > 0.9  # the same head was drawn
    assert np.abs(random[~same]).max() < 1e-3
    assert one.p.item() == pytest.approx((1 + same.sum()) / 25)
    assert set(np.flatnonzero(np.abs(one.vector) > 0.1)) == {TASK, HALF + TASK}


def test_without_anything_to_learn_no_head_carries_it() -> None:
    """Answers that do not follow from the questions raise no flag, and a printed line reports it."""
    from headatlas.methods.function_vector.vector import sentences

    other = np.random.default_rng(5).permutation(WORDS)
    result = ha.function_vector(carrying(), tasks=pairs(lambda i: WORDS + int(other[i])), shots=4, limit=3, draws=2)
    assert np.abs(result.contribution).max() < 0.2
    assert len(sentences(result)) == 1


# --- prompts


def test_shuffled_prompts_differ_in_answers_only() -> None:
    lm = lm_of("llama")
    (task,) = few_shot_tasks(lm, None, {"next": [(f"w{i}", f" w{i + 20}") for i in range(20)]}, shots=4)
    right, shuffled = (few_shot_prompts(lm, task, task.held_out, 7, shuffled=s) for s in (False, True))
    alone = zero_shot_prompts(lm, task, task.held_out)
    for a, b, c in zip(right, shuffled, alone, strict=True):
        assert len(a.prompt) == len(b.prompt) == 9
        assert a.prompt[0::2] == b.prompt[0::2]  # questions
        assert a.prompt[-1:] == c.prompt
        assert sorted(a.prompt[1::2]) == sorted(b.prompt[1::2])
        assert all(x != y for x, y in zip(a.prompt[1::2], b.prompt[1::2], strict=True))
        assert [y - x for x, y in zip(a.prompt[:-1:2], a.prompt[1::2], strict=True)] == [20] * 4
        assert a.prompt[-1] not in a.prompt[:-1]
        assert a.target == b.target == c.target == (a.prompt[-1] + 20,)
    assert len({a.prompt[:-1] for a in right}) == len(right)


def test_relations_are_asked_without_naming_the_task() -> None:
    (task,) = few_shot_tasks(None, ["country_to_capital"], shots=3)
    example = task.train[0]
    assert example.prompt.startswith("Q: ")
    assert example.prompt.endswith("\nA:")
    assert "capital" not in example.prompt
    assert example.target.startswith(" ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shots": 1}, "shots is 1, expected a whole number, at least 2"),
        ({"limit": 0}, "limit is 0"),
        ({"top": 0}, "top is 0, expected a whole number from 1 to 18"),
        ({"draws": 0}, "draws is 0"),
        ({"layer": 3}, "layer is 3, expected a whole number from 0 to 2"),
        ({"template": "Q: A:"}, "template is 'Q: A:', expected a text with {}"),
        ({"shots": 40}, "has 32 train examples, too few for shots=40"),
        ({"shots": 31}, "prompt and target are .* tokens long, but the model's context is 64"),
        ({"relations": "capitals"}, "nor a built-in relation"),
        ({"tasks": {"ids": [((5, 6), (7,)), ((6, 7), (8,)), ((9, 7), (8,)), ((3, 7), (8,))]}}, "made of token ids"),
    ],
)
def test_asked_wrongly(options, message) -> None:
    own = {} if "relations" in options else {"tasks": {"next": [(f"w{i} w2", f" w{i + 1}") for i in range(40)]}}
    with pytest.raises(BadArgument, match=message):
        ha.function_vector(lm_of("llama"), **own | options)


def test_built_in_relations_and_tasks_can_be_asked_again() -> None:
    """Held-out questions, each after two draws of few-shot examples: pairs with another answer and with the same."""
    lm = lm_of("bloom")  # no limit of context; every word of English is the same token
    prompts = get_method("function_vector").ask(lm, "country_to_capital")
    (task,) = few_shot_tasks(lm, "country_to_capital", shots=10)
    assert len(prompts) == 2 * min(12, len(task.held_out))
    assert all(len(a.target) == 1 for a in prompts)
    assert get_method("function_vector").ask(lm, "syntax")
    with pytest.raises(BadArgument):
        get_method("function_vector").ask(lm, "mine")

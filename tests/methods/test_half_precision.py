"""Gradients in bfloat16 and float16 on long, ragged, packed rows are finite and near those in float32.

test_gpu.py runs these checks too.
"""

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

import headatlas as ha
from headatlas.methods.dissociate.compute import fit
from headatlas.methods.gate.compute import draw_theta, loss_and_gradient, negative_log_p
from headatlas.models.attention import attention_of_texts
from headatlas.models.hooks import hooked
from headatlas.models.lm import LM
from headatlas.models.packing import lay_out
from headatlas.models.tokens import encode_target, make_bundle
from headatlas.tasks.labelled import load_labelled, log_p_per_token
from headatlas.tasks.prompts import Example, Task
from tests.models.tiny import VOCABULARY, tokenizer

LENGTHS = (691, 346, 346)  # packed into two rows of 690 tokens, 704 on a GPU: 64 more than a multiple of 128


def low_scores(dtype: torch.dtype, device: str) -> LM:
    """A model with a head whose attention scores are all about −120, as Qwen2.5's are in some heads."""
    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=VOCABULARY, num_hidden_layers=2, max_position_embeddings=2048, head_dim=64, **shape)
    config.rope_parameters = {"rope_type": "default", "rope_theta": 1e6}
    model = Qwen2ForCausalLM(config).eval().requires_grad_(False)
    attention = model.model.layers[1].self_attn
    slowest = 31  # the pair of dimensions that turns least with the position
    attention.q_proj.bias[slowest], attention.k_proj.bias[slowest] = 31.0, -31.0
    return LM(model.to(device, dtype), tokenizer(), "low scores")


def texts(lengths: tuple[int, ...] = LENGTHS) -> list[list[str]]:
    generator = np.random.default_rng(0)
    return [[f"w{i}" for i in generator.integers(0, VOCABULARY - 4, n)] for n in lengths]


def check_gradients(dtype: torch.dtype, device: str) -> None:
    half, single = low_scores(dtype, device), low_scores(torch.float32, device)
    examples = [encode_target(single, " ".join(t[:-2]), " " + " ".join(t[-2:]), "text") for t in texts()]
    matched = [(make_bundle([a]),) for a in examples]
    width = lay_out(single, [s for (s,) in matched]).inputs["input_ids"].shape[1]
    assert width == (690 if device == "cpu" else 704)
    theta = draw_theta(single, [0, 1])
    (loss, gradient), (loss_32, gradient_32) = (
        loss_and_gradient(lm, theta, matched, negative_log_p, 10**6) for lm in (half, single)
    )
    torch.testing.assert_close(loss, loss_32, rtol=0.02, atol=0)
    # bfloat16 holds scores near −120 to half a unit only
    assert (gradient - gradient_32).abs().max() < 0.4 * gradient_32.abs().max()


def check_methods(dtype: torch.dtype, device: str, lengths: tuple[int, ...] = LENGTHS) -> None:
    lm = low_scores(dtype, device)
    tasks = []
    for first, name in enumerate(("one", "two")):
        cuts = (t[i:] for i in range(first, 10, 2) for t in texts(lengths))
        examples = [Example(" ".join(t[:-1]), f" {t[-1]}") for t in cuts]
        tasks.append(Task(name, tuple(examples[:10]), tuple(examples[10:])))
    for result in (
        ha.gate(lm, tasks[:1], seeds=2, updates=2, batch=4),
        ha.taylor(lm, tasks[:1], limit=3),
        ha.ig(lm, tasks[:1], limit=3),
    ):
        for name, values in result.data_vars.items():
            if {"layer", "head"} <= set(values.dims):
                assert np.isfinite(values).all(), name
    data = load_labelled(lm, tasks)
    fitting = {"updates": 3, "own": 3, "others": 1, "lr": 0.4, "penalty": 1.0, "sharp": 0.4}
    gates = fit(lm, data, log_p_per_token(lm, data)[0], 0, seeds=(0, 1), **fitting)
    assert gates.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gradients_are_finite_and_near(dtype) -> None:
    check_gradients(dtype, "cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_methods_with_gradients_run(dtype) -> None:
    check_methods(dtype, "cpu", (160, 80, 50))  # float16 is slow on a CPU


def test_where_heads_look_is_what_gives_their_output_in_bfloat16() -> None:
    """bfloat16 holds scores near −1250 to 8 units, so plain attention in it looks elsewhere than the model does."""
    lm = low_scores(torch.bfloat16, "cpu")
    attention = lm.model.model.layers[1].self_attn
    attention.q_proj.bias[31], attention.k_proj.bias[31] = 100.0, -100.0
    ids, value, z = torch.randint(VOCABULARY, (2, 30), generator=torch.Generator().manual_seed(0)), {}, {}
    hook = attention.v_proj.register_forward_hook(lambda module, args, output: value.update({1: output}))
    with hooked(lm.model, lm.anatomy, z.__setitem__):
        lm.model(ids)
    hook.remove()
    weights = attention_of_texts(lm, ids)[1]  # [text, head, query, key]
    torch.testing.assert_close(
        (weights @ value[1][:, None].float()).transpose(1, 2), z[1].float(), rtol=0.02, atol=0.02
    )
    assert ha.pattern(lm, sequences=1, length=10).score.notnull().all()

"""Estimates: memory from a configuration, time from shallow copies, and the error when a model is too large."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import LlamaConfig

from headatlas.errors import CannotDo
from headatlas.methods.ablate.compute import ablate_heads
from headatlas.methods.gate.compute import loss_and_gradient, negative_log_p
from headatlas.models.cost import CHANGED, Cost, Machine, answering, learning, measure_machine, reading
from headatlas.models.interventions import Change, answers_under
from headatlas.models.lm import LM
from headatlas.models.loading import load_skeleton
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.memory import GIB, Memory, check_room, memory, skeleton
from headatlas.models.patching import log_probs_patched, patching_cost
from headatlas.models.single_heads import changing_cost
from headatlas.models.tokens import TokenExample, make_bundle
from tests.models.tiny import TINY, build

LLAMA = LlamaConfig(
    num_hidden_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=128_256,
)
MACHINE = Machine("ours", a_pass=1.0, a_token=0.01, a_learning=2.0, a_learned=0.03, operations=1e9)


def test_weights_are_counted_exactly_and_tokens_as_they_were_measured() -> None:
    needs = memory(skeleton(LLAMA), 32, torch.bfloat16)
    assert needs.weights == 2 * 8_030_261_248  # as published
    # docs/methods/gate.md: 23.7 GiB with 2,048 tokens, 15 of it weights
    assert 0.7 < needs.a_learned * 2048 / (8.7 * GIB) < 1.4
    assert needs.a_token < needs.a_learned


@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_every_family_has_a_need(tiny) -> None:
    model = build(tiny)
    needs = memory(model, 3, torch.float32)
    assert needs.weights == 4 * sum(p.numel() for p in model.parameters())
    assert needs.a_learned > needs.a_token > 0


def test_what_does_not_fit_is_told_with_what_would() -> None:
    needs = Memory(weights=140 * 10**9, a_token=1e6, a_learned=2e7)
    check_room("big", needs, torch.bfloat16, 2 * 139 * GIB, 2)
    with pytest.raises(CannotDo) as told:
        check_room("big", needs, torch.float32, 80 * GIB, 1)
    message = "big does not fit: 130.4 GiB of weights in float32 and 2.7 GiB beside them, but 1 GPU has 80.0 GiB: try"
    assert str(told.value) == f"{message} --gpus-per-job 2, --dtype bfloat16, --device cpu"
    with pytest.raises(CannotDo, match="but 1 GPU has 1.0 GiB: try --device cpu$"):
        check_room("big", needs, torch.bfloat16, GIB, 1)
    assert needs.largest(needs.weights + 2e7 * 300) == 300


def test_costs_add_up() -> None:
    lm = LM(build(TINY[0]), None, "tiny")
    bundles = [make_bundle([TokenExample((1, 2, 3), (4,)), TokenExample((1, 2, 5), (4, 6))])]
    assert reading(lm, bundles, gates=2) == Cost(tokens=2 * bundles[0].size, passes=1)
    assert answering(lm, [TokenExample((1, 2, 3), (4, 5))], 10).tokens == 2 + 10 * 2
    assert answering(lm, [TokenExample((1, 2, 3), (4, 5))], 10, everywhere=True).tokens == 10 * 4
    one = make_bundle([TokenExample((1,) * 32, (2,))])
    both = 3 * learning(lm, [one], 128) + Cost(operations=2e9, seconds=1)
    assert both == Cost(learned=3 * 4096, learning=6, operations=2e9, seconds=1)  # 2,048 tokens at once
    assert learning(lm, [one], 128, tokens=4096).learning == 1
    assert MACHINE.seconds(both) == pytest.approx(6 * 2 + 3 * 4096 * 0.03 + 2 + 1)
    launching = replace(MACHINE, launches=True)  # the longer of both; of reading, half the shorter
    assert launching.seconds(both) == pytest.approx(3 * 4096 * 0.03 + 2 + 1)
    assert launching.seconds(Cost(tokens=10, passes=5)) == 5 + 0.05
    assert reading(lm, []) == answering(lm, [], 10) == changing_cost(lm, [], [0], 100) == Cost()
    wide = reading(lm, [make_bundle([TokenExample((1,) * 1000, (2,))])])
    assert wide.wide == 1000 * (1000 - 256) / lm.d_model
    assert MACHINE.seconds(wide) > 2 * MACHINE.seconds(replace(wide, wide=0))


PROMPTS = [TokenExample(tuple(range(1, n)), (4,) * k) for n, k in ((9, 1), (5, 2), (12, 1), (7, 3), (30, 1))]
BUDGETS = [60, 400, 10**5]


@contextmanager
def counting(lm: LM) -> Iterator[list[int]]:
    """Tokens of every block that is run."""
    made: list[int] = []
    with ExitStack() as stack:
        for i in range(lm.n_layers):
            block = lm.model.get_submodule(f"{lm.anatomy.blocks}.{i}.mlp")
            hook = block.register_forward_hook(lambda _, args, output: made.append(output.shape[:2].numel()))
            stack.callback(hook.remove)
        yield made


def check(lm: LM, cost: Cost, work: Callable[[], object]) -> None:
    """That work makes the passes it was said to, and about as many tokens: rows of a pass are of one width."""
    work()  # whether the model can be packed is tried once
    with counting(lm) as made:
        work()
    assert lm.n_layers * cost.passes == pytest.approx(len(made))
    assert lm.n_layers * cost.tokens == pytest.approx(sum(made), rel=0.15)


def plainly(cost: Cost) -> Cost:
    """Each pass as one, although it takes the host longer."""
    return replace(cost, passes=cost.passes / CHANGED)


@pytest.mark.parametrize("budget", BUDGETS)
def test_passes_and_tokens_are_those_made(budget) -> None:
    lm = LM(build(TINY[0]), None, "tiny")
    bundles, gates = [make_bundle([a]) for a in PROMPTS], torch.ones(7, lm.n_layers, lm.n_heads)
    check(lm, reading(lm, bundles, 7, tokens=budget), lambda: batched_log_probs(lm, bundles, gates, budget))
    changes = [Change(gate) for gate in gates]
    answered = answering(lm, PROMPTS, 7, tokens=budget)
    check(lm, plainly(answered), lambda: answers_under(lm, PROMPTS, changes, tokens=budget))
    twice = [*changes, *changes]
    cost = answering(lm, PROMPTS, 14, rounds=2, tokens=budget)
    assert cost == 2 * answering(lm, PROMPTS, 7, tokens=budget)
    everywhere = partial(answers_under, lm, PROMPTS, twice, everywhere=True, tokens=budget)
    check(lm, plainly(answering(lm, PROMPTS, 14, everywhere=True, tokens=budget)), everywhere)
    z = torch.zeros(len(PROMPTS), lm.n_layers, lm.n_heads, lm.d_head)
    patched = partial(log_probs_patched, lm, PROMPTS, z, 2, tokens=budget)
    check(lm, patching_cost(lm, PROMPTS, 2, tokens=budget), patched)
    theta = torch.zeros(7, lm.n_layers, lm.n_heads)
    learned = learning(lm, bundles, 7, tokens=budget)
    update = partial(loss_and_gradient, lm, theta, [(bundle,) for bundle in bundles], negative_log_p, budget)
    check(lm, Cost(tokens=learned.learned, passes=learned.learning), update)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("layers", [[0, 1, 2], [1]])
def test_passes_and_tokens_of_heads_changed_one_by_one_are_those_made(layers, budget) -> None:
    lm = LM(build(TINY[0]), None, "tiny")
    bundles = [make_bundle([a]) for a in PROMPTS]
    check(
        lm,
        changing_cost(lm, bundles, layers, budget=budget),
        lambda: ablate_heads(lm, PROMPTS, layers=layers, tokens=budget),
    )


def test_copies_that_do_not_fit_are_told(folder, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("headatlas.models.cost._times", full)
    config = load_skeleton(folder, "float32", "cpu")[0].model.config
    with pytest.raises(CannotDo, match="the time cannot be estimated: a copy of .* with 3 layers does not fit"):
        measure_machine(config, 3, torch.device("cpu"), torch.float32)


def test_a_machine_is_timed(folder) -> None:
    config = load_skeleton(folder, "float32", "cpu")[0].model.config
    machine = measure_machine(config, 3, torch.device("cpu"), torch.float32)
    assert machine.a_token > 0 < machine.a_learned
    assert machine.operations > 1e8

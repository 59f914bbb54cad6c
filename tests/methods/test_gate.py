"""gate: the roles it gives, the gradients it follows, and that nothing but the question changes the answer."""

import logging
from dataclasses import replace
from itertools import repeat

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

import headatlas as ha
from headatlas.errors import BadArgument, CannotDo
from headatlas.methods import get_method
from headatlas.methods.contrast.compute import capped_gap
from headatlas.methods.gate import compute
from headatlas.methods.gate.compute import (
    Schedule,
    draw_theta,
    fit_gates,
    fit_task,
    loss_and_gradient,
    negative_log_p,
    split_seeds,
)
from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs, log_probs, score_targets
from headatlas.models.memory import skeleton
from headatlas.models.tokens import TokenExample, make_bundle
from headatlas.results.store import load
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.used import row_id
from tests.models.handmade import CARRIER, HEADS, LAYERS, SPOILER, handmade, repeat_the_word
from tests.models.tiny import TINY, VOCABULARY, build, tokenizer

BY_ID = {t.id: t for t in TINY}
FOUR = Schedule(4, 0.2, 0.1)


def random_examples(lm: LM, lengths=((3, 1), (1, 2), (5, 1)), beginning: int = 0, seed: int = 0) -> list[TokenExample]:
    """Random prompts and targets of the given lengths, behind the same beginning."""
    generator = torch.Generator().manual_seed(seed)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(1, 50, (n,), generator=generator).tolist())

    first = draw(beginning)
    return [TokenExample(first + draw(p), draw(t)) for p, t in lengths]


def words(n: int = 30, name: str = "words") -> Task:
    """A task in the tiny tokenizer's words."""
    examples = [Example(f"w{i} w{(3 * i) % 40}", f" w{(i + 1) % 40}", ("odd", "even")[i % 2]) for i in range(n)]
    return Task(name, tuple(examples[: 2 * n // 3]), tuple(examples[2 * n // 3 :]))


@pytest.fixture
def tiny() -> LM:
    return LM(build(BY_ID["llama"]).float(), tokenizer(), "tiny")


@pytest.fixture
def brief(monkeypatch):
    """The quick preset, quicker."""
    presets = get_method("gate").presets
    few = {"updates": (3, 4), "free_lr": (0.4, 0.1), "pressed_lr": (0.4, 0.1)}
    monkeypatch.setitem(presets, "quick", {**presets["quick"], **few})


def test_roles_of_heads_known_by_construction() -> None:
    fitting = {"updates": (60, 150), "free_lr": (0.2, 0.05), "pressed_lr": (0.3, 0.1), "strength": 0.05, "batch": 8}
    options = {**fitting, "seeds": 5, "held_out": 16}
    result = ha.gate(handmade(), repeat_the_word(), preset="full", **options).sel(task="repeat")
    idle = [(i, j) for i in range(LAYERS) for j in range(HEADS) if (i, j) not in (CARRIER, SPOILER)]
    for seed in range(5):
        one = result.sel(seed=seed)
        assert one.facilitation.values[CARRIER] >= 0.9
        assert one.interference.values[SPOILER] >= 0.9
        assert all(one.irrelevance.values[head] >= 0.9 for head in idle)
        assert one.facilitation.values[SPOILER] < 0.1
        assert one.interference.values[CARRIER] < 0.1
    assert result.share.sel(role="facilitation", share_over="any").item() == 1 / 8
    assert result.share.sel(role="irrelevance", share_over="always").item() == 6 / 8
    assert (result.nll.sel(fit=["retain", "remove"]) < -result.baseline - 0.5).all()  # better off without the spoiler


def test_the_map_is_of_training_rows_and_claims_what_heads_do() -> None:
    task = replace(words(), shots=0)
    lm = LM(build(BY_ID["llama"]).float(), tokenizer(), "tiny")
    work = get_method("gate").function(lm, task, seeds=1)
    assert work.used is not None
    assert work.used.rows == {row_id(example) for example in task.train}
    assert work.subjects == {"words": task}
    claims = {measure.name: measure.claim for measure in get_method("gate").measures}
    assert claims == {"facilitation": "needed", "interference": "harmful", "irrelevance": ""}


def test_updates_are_one_number_or_one_for_each_stage(tiny) -> None:
    few = {"seeds": 1, "batch": 2}
    both, each, other = (ha.gate(tiny, words(), updates=updates, **few) for updates in (3, (3, 3), (3, 4)))
    assert each.gate.equals(both.gate)
    assert other.gate.sel(fit="free").equals(both.gate.sel(fit="free"))
    assert not other.gate.sel(fit="retain").equals(both.gate.sel(fit="retain"))
    assert (other.attrs["free_updates"], other.attrs["pressed_updates"]) == (3, 4)


@pytest.mark.parametrize("options", [{}, {"halves": True}])
def test_every_variable_says_what_it_is(tiny, brief, options) -> None:
    result = ha.gate(tiny, words(), seeds=1, **options)
    for name, variable in result.data_vars.items():
        assert {"long_name", "units", "description"} <= set(variable.attrs), name


def test_contrastive_gating_loses_what_is_to_be_lost() -> None:
    """One head carries the first half of the words, another the second half."""
    lm = handmade({(0, 3): range(7), (1, 0): range(7, 14)}, spoiler=False)
    first, second = repeat_the_word(range(7), "first"), repeat_the_word(range(7, 14), "second")
    result = ha.contrast(lm, keep=first, lose=second, seeds=3, updates=200)
    assert result.task.values.tolist() == ["first kept, second lost"]
    assert (result.lost.values[0, :, 1, 0] >= 0.9).all()
    assert (result.lost.values[0, :, 0, 3] <= 0.1).all()
    accuracy = result.accuracy.mean("seed")
    assert accuracy.sel(side="keep", gates="rounded") == 1
    assert accuracy.sel(side="lose", gates="rounded") == 0
    assert accuracy.sel(gates="whole").values.tolist() == [1, 1]
    gain = result.nll.sel(side="lose", gates="fitted") - result.nll.sel(side="keep", gates="fitted")
    assert (gain > 1).all()


def test_the_contrast_stops_paying_at_five() -> None:
    keep = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    lose = torch.tensor([[-9.0, -3.0]], requires_grad=True)
    value = capped_gap([keep, lose])
    assert value.tolist() == [[-5.0, -1.0]]
    value.sum().backward()
    assert keep.grad.tolist() == [[0.0, -1.0]]


def test_gradients_equal_finite_differences() -> None:
    lm = LM(build(BY_ID["gpt2"]), None, "gpt2")  # float64 throughout
    matched = [(make_bundle(random_examples(lm, beginning=4)),), (make_bundle(random_examples(lm, seed=1)),)]
    theta = draw_theta(lm, [0, 1]).double()
    _, gradient = loss_and_gradient(lm, theta, matched, negative_log_p, 10**6)
    for gate, layer, head in [(0, 0, 1), (1, 1, 2), (1, 0, 0)]:
        step = torch.zeros_like(theta)
        step[gate, layer, head] = 1e-5
        up, down = (loss_and_gradient(lm, theta + s, matched, negative_log_p, 10**6)[0].double() for s in (step, -step))
        assert (up - down)[gate].item() / 2e-5 == pytest.approx(gradient[gate, layer, head].item(), rel=1e-5, abs=1e-8)
        assert (up - down)[1 - gate].item() == 0  # one gate's θ is nothing to another


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text", "bloom", "qwen3_next"])
def test_batches_padding_and_sharing_change_nothing(family) -> None:
    lm = LM(build(BY_ID[family]), None, family)
    groups = [random_examples(lm, beginning=6, seed=s) for s in range(4)]
    theta = draw_theta(lm, [0, 1, 2])
    alone = [(make_bundle([a]),) for group in groups for a in group]
    together = [(make_bundle(group),) for group in groups]
    loss, gradient = loss_and_gradient(lm, theta, alone, negative_log_p, 10**6)
    for matched, tokens in [(alone, 1), (alone, 40), (together, 10**6), (together, 60), (together, 1)]:
        again = loss_and_gradient(lm, theta, matched, negative_log_p, tokens)
        torch.testing.assert_close(again[0], loss, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(again[1], gradient, rtol=1e-4, atol=1e-6)


def test_a_seed_comes_out_the_same_in_any_company(tiny) -> None:
    few = {"free": FOUR, "pressed": FOUR, "strength": 0.05, "batch": 8, "low": 0.0}
    three, alone = (fit_task(tiny, words(), seeds, **few) for seeds in ([5, 6, 7], [6]))
    torch.testing.assert_close(three[:, 1:2], alone, rtol=1e-4, atol=1e-4)


def test_one_update_is_adam_on_the_published_loss(tiny) -> None:
    """Oracle: the loss as METHODS writes it, through autograd, text by text, and torch's own clipping and Adam."""
    bundles = [(make_bundle([TokenExample((1, 2, 3), (4,))]),), (make_bundle([TokenExample((5, 6), (7, 8))]),)]
    pressure = torch.tensor([0.3, -0.3])
    first = draw_theta(tiny, [0, 1]) * 3  # some beyond ± 4
    result = fit_gates(tiny, first, pressure, repeat(bundles), Schedule(2, 0.1, 0.05))
    for s in range(2):
        theta = first[s].clone().requires_grad_()
        adam = torch.optim.Adam([theta], lr=0.1)
        for rate in (0.1, 0.075):
            adam.param_groups[0]["lr"] = rate
            losses = []
            for (bundle,) in bundles:
                (a,) = bundle.examples
                with tiny.gated(theta.sigmoid()):
                    log_p = tiny.model(torch.tensor([a.prompt + a.target])).logits[0].log_softmax(-1)
                losses.append(-sum(log_p[len(a.prompt) - 1 + i, t] for i, t in enumerate(a.target)))
            loss = torch.stack(losses).mean() - pressure[s] * theta.clamp(-4, 4).mean()
            (theta.grad,) = torch.autograd.grad(loss, theta)
            torch.nn.utils.clip_grad_norm_([theta], 1.0)
            adam.step()
        torch.testing.assert_close(result[s], theta.detach(), rtol=1e-4, atol=1e-4)


def test_roles_are_what_the_gates_say(tiny, brief, tmp_path) -> None:
    result = ha.gate(tiny, words(), seeds=3, out=tmp_path)
    stored = load(tmp_path / "gate.nc")
    retain, remove = (result.gate.sel(fit=f).values for f in ("retain", "remove"))
    np.testing.assert_array_equal(stored.facilitation, remove)
    np.testing.assert_allclose(stored.interference, 1 - retain)
    np.testing.assert_allclose(stored.irrelevance, retain * (1 - remove))
    np.testing.assert_array_equal(stored["always"], remove.min(1))
    np.testing.assert_array_equal(stored["any"], remove.max(1))
    assert stored["always"].dims == stored["any"].dims == ("task", "layer", "head")
    assert stored.gate.dims == ("fit", "task", "seed", "layer", "head")
    assert stored.facilitation.dims == ("task", "seed", "layer", "head")
    assert stored.nll.dims == ("fit", "task", "seed")
    share = stored.share.sel(task="words", role="interference", share_over="any").item()
    assert share == ((1 - retain).max(1) >= 0.5).mean()
    np.testing.assert_allclose(stored.summary.sel(role="facilitation", over="spread"), remove.std(1), atol=1e-7)


def test_the_same_seed_gives_the_same_file(tiny, brief, tmp_path) -> None:
    for folder in ("a", "b"):
        ha.gate(tiny, words(), seeds=2, out=tmp_path / folder)
    assert (tmp_path / "a" / "gate.nc").read_bytes() == (tmp_path / "b" / "gate.nc").read_bytes()
    other = ha.gate(tiny, words(), seeds=[2, 3])
    assert not np.array_equal(other.gate, load(tmp_path / "a" / "gate.nc").gate)


def test_an_interrupted_fit_goes_on_at_the_last_finished_stage(tiny, brief, tmp_path) -> None:
    complete = ha.gate(tiny, words(), seeds=2)

    def stop_in(stage):
        def progress(items, label):
            for i, item in enumerate(items):
                if label == stage and i == 2:
                    raise KeyboardInterrupt
                yield item

        return progress

    for stage in ("words: free", "words: retain and remove"):
        with pytest.raises(KeyboardInterrupt):
            ha.gate(tiny, words(), seeds=2, out=tmp_path, progress=stop_in(stage))
        assert not (tmp_path / "gate.nc").exists()
    worked: list[str] = []

    def count(items, label):
        worked.append(label)
        return items

    again = ha.gate(tiny, words(), seeds=2, out=tmp_path, progress=count)
    assert "words: free" not in worked
    assert "words: retain and remove" in worked
    np.testing.assert_array_equal(again.gate, complete.gate)
    assert {p.name for p in tmp_path.iterdir()} == {"atlas.json", "gate.nc"}


def test_a_loss_that_is_not_a_number_says_where_and_keeps_what_was_done(tiny, brief, tmp_path, monkeypatch) -> None:
    calls: list[int] = []
    plain = compute.log_probs

    def spoiled(*args, **options):
        calls.append(1)
        log_p, right = plain(*args, **options)
        return (log_p * torch.nan if len(calls) > 5 else log_p), right

    monkeypatch.setattr(compute, "log_probs", spoiled)
    with pytest.raises(CannotDo, match=r"words: retain and remove: loss is nan at update \d of 4"):
        ha.gate(tiny, words(), seeds=1, batch=4, out=tmp_path)
    assert [p.name for p in (tmp_path / ".gate").glob("*.npz")] == ["words%2C seed 0%3A free.npz"]


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_running_out_of_memory_names_the_flag(tiny, brief, monkeypatch, error) -> None:
    def full(*args, **options):
        raise error

    monkeypatch.setattr(compute, "log_probs", full)
    with pytest.raises(CannotDo, match="out of memory, even with batch_tokens=64: "):
        ha.gate(tiny, words(), seeds=1, batch_tokens=512)


def test_running_out_of_memory_halves_what_is_run_at_once_and_changes_nothing(tiny, brief, monkeypatch, caplog) -> None:
    fresh = LM(build(TINY[0]), tokenizer(), "tiny")
    complete = ha.gate(fresh, words(), seeds=2, batch=16, batch_tokens=512)
    plain, sizes = compute.log_probs, []

    def small(lm, bundles, gate, **options):
        sizes.append(len(gate) * sum(len(s.examples) * (s.shared + s.rest) for s in bundles))
        if sizes[-1] > 100:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(lm, bundles, gate, **options)

    monkeypatch.setattr(compute, "log_probs", small)
    halved = ha.gate(fresh, words(), seeds=2, batch=16, batch_tokens=512)
    np.testing.assert_allclose(halved.gate, complete.gate, atol=1e-5)
    told = [r.getMessage() for r in caplog.records if "out of memory" in r.getMessage()]
    assert told == [
        f"out of memory with batch_tokens={n}: retrying with batch_tokens={n // 2}" for n in (512, 256, 128)
    ]
    assert max(sizes) > 100
    assert sizes[-1] <= 100


def test_other_runtime_errors_are_not_about_memory(tiny, brief, monkeypatch) -> None:
    monkeypatch.setattr(compute, "log_probs", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        ha.gate(tiny, words(), seeds=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds is 0, expected a whole number from 1"),
        ({"seeds": [1, 1]}, "seeds is \\[1, 1\\]"),
        ({"strength": -0.1}, "strength is -0.1, expected a number above 0"),
        ({"strength": 0.0}, "strength is 0.0, expected a number above 0"),
        ({"strength": float("nan")}, "strength is nan"),
        ({"preset": "quik"}, "preset is 'quik', expected one of quick, full. Did you mean 'quick'?"),
        ({"updates": 0}, "updates is 0, expected a whole number from 1"),
        ({"updates": (3, 0)}, "updates is 0, expected a whole number from 1"),
        ({"updates": (3, 4, 5)}, r"updates is \(3, 4, 5\), expected one number, or two: for the free fit"),
        ({"updates": "3"}, "updates is '3', expected a whole number from 1"),
        ({"free_lr": 0.1}, "free_lr is 0.1, expected two numbers: the learning rate at start and end"),
        ({"pressed_lr": (0.1, 0)}, "pressed_lr is 0, expected a number above 0"),
        ({"low": 1}, "low is 1, expected a number from 0 to below 1"),
        ({"held_out": 0}, "held_out is 0, expected a whole number from 1"),
        ({"batch": 0}, "batch is 0, expected a whole number from 1"),
        ({"batch_tokens": 0}, "batch_tokens is 0, expected at least 1"),
        ({"shots": -1}, "shots is -1, expected 0 or more"),
        ({"shots": 50}, "too few for shots=50"),
        ({"strength": float("inf")}, "strength is inf"),
        ({"strength": "much"}, "strength is 'much'"),
        ({"seeds": [0.5]}, "seeds is \\[0.5\\]"),
        ({"batch": 1.5}, "batch is 1.5"),
        ({"tasks": 5}, "tasks is 5, expected names of built-in tasks"),
        ({"tasks": [5]}, "tasks is 5, expected names of built-in tasks"),
        ({"tasks": "x" * 300}, "is neither built in"),
        ({"tasks": Task("two", words().train[:1], words().train[1:2]), "halves": True}, "too few for two halves"),
        ({"tasks": replace(words(), shots=5), "halves": True}, "too few for shots=5"),
    ],
)
def test_bad_settings(tiny, options, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.gate(tiny, **({"tasks": words()} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lose": words(21, "b")}, "keep has 20 train examples and lose has 14: they must match, example by example"),
        ({"lose": words(30)}, "keep and lose have the same examples"),
        ({"keep": [words(30), words(20, "b")]}, "keep has 2 tasks, expected one"),
        ({"lose": ["math", "syntax"]}, "lose has 2 tasks, expected one"),
        ({"keep": "maths"}, "task 'maths' is neither built in"),
        ({"seeds": 0}, "seeds is 0, expected a whole number from 1"),
        ({"strength": -0.1}, "strength is -0.1, expected a number above 0"),
        ({"updates": (3, 4)}, r"updates is \(3, 4\), expected a whole number"),
        ({"lr": 0.1}, "lr is 0.1, expected two numbers: the learning rate at start and end"),
        ({"held_out": 0}, "held_out is 0, expected a whole number from 1"),
    ],
)
def test_bad_contrasts(tiny, options, message) -> None:
    with pytest.raises(BadArgument, match=message):
        ha.contrast(tiny, **({"keep": words(), "lose": words(name="b")} | options))


@pytest.mark.parametrize("missing", ["keep", "lose"])
def test_a_contrast_needs_both_tasks(tiny, missing) -> None:
    tasks = {"keep": words(), "lose": words(name="b")}
    del tasks[missing]
    with pytest.raises(TypeError, match=missing):
        ha.contrast(tiny, **tasks)


def test_a_task_the_model_cannot_do_is_warned_about(tiny, brief, caplog) -> None:
    with caplog.at_level(logging.INFO, "headatlas"):
        ha.gate(tiny, words(), seeds=1)
    told = [r.getMessage() for r in caplog.records]
    assert any("words: the whole model gets 10 % of 10 held-out prompts right" in m for m in told)
    assert any("shows little" in m for m in told)
    caplog.clear()
    with caplog.at_level(logging.INFO, "headatlas"):
        ha.gate(handmade(spoiler=False), repeat_the_word(), seeds=1)
    assert not any("shows little" in r.getMessage() for r in caplog.records)
    caplog.clear()
    same = [Example((w, 15), (w,)) for w in range(14)]
    with caplog.at_level(logging.INFO, "headatlas"):
        ha.taylor(handmade(spoiler=False), Task("mostly", tuple(same), tuple(same[:1])), limit=2)
    assert not any("shows little" in r.getMessage() for r in caplog.records)  # all right, though guessing would be too


def test_layers_without_heads_are_nan(brief) -> None:
    lm = LM(build(BY_ID["qwen3_next"]), tokenizer(), "hybrid")
    result = ha.gate(lm, words(), seeds=1)
    assert result.facilitation.isel(layer=lm.layers_without_heads).isnull().all()
    others = lm.layers_with_heads
    assert result.facilitation.isel(layer=others).notnull().all()
    assert 0 <= result.share.min() <= result.share.max() <= 1


def test_numbers_of_numpy_are_numbers(tiny, brief, tmp_path) -> None:
    result = ha.gate(tiny, words(), seeds=np.int64(2), updates=np.int64(2), batch=np.int64(3), out=tmp_path)
    assert result.seed.values.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["a/b.c d", "ü" * 60, "x" * 250, "[red]"])
def test_any_name_can_be_kept(tiny, brief, tmp_path, name) -> None:
    result = ha.gate(tiny, words(name=name), seeds=1, out=tmp_path)
    assert load(tmp_path / "gate.nc").task.values.tolist() == [name]
    assert result.task.values.tolist() == [name]


def test_a_damaged_part_is_fitted_again(tiny, brief, tmp_path) -> None:
    complete = ha.gate(tiny, words(), seeds=1)

    def stop(*args, **options):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(compute, "evaluate_tasks", stop)
        ha.gate(tiny, words(), seeds=1, out=tmp_path)
    (damaged,) = (tmp_path / ".gate").glob("*pressed.npz")
    damaged.write_bytes(b"PK not really")
    np.testing.assert_array_equal(ha.gate(tiny, words(), seeds=1, out=tmp_path).gate, complete.gate)


def test_folders_that_cannot_be(tiny, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    for call in (ha.gate, ha.ablate, ha.taylor):
        with pytest.raises(BadArgument, match="which is a file: give a folder"):
            call(tiny, words(), out=tmp_path / "file")
        with pytest.raises(CannotDo, match="cannot make the folder"):
            call(tiny, words(), out=tmp_path / "file" / "below")


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "qwen2", "gpt_oss", "cohere2", "gpt_neo"])
def test_packing_never_hides_a_window(family) -> None:
    """Short texts fit a window and pack; longer ones after them, in rows no wider, must not be believed to."""
    lm = LM(build(BY_ID[family]), None, family)
    short = [make_bundle(random_examples(lm, ((1, 1), (2, 1)), beginning=1, seed=s)) for s in range(6)]
    long = [make_bundle(random_examples(lm, ((3, 1), (4, 1)), beginning=9))]
    shut = torch.zeros(1, lm.n_layers, lm.n_heads)
    batched_log_probs(lm, long, shut)  # behind shut heads nothing would be seen to go wrong
    for bundles in (short, long, [*short, *long]):
        expected = torch.cat([log_probs(lm, [make_bundle([a])])[0] for s in bundles for a in s.examples], dim=1)
        torch.testing.assert_close(batched_log_probs(lm, bundles)[0], expected, check_dtype=False, rtol=1e-4, atol=1e-4)


def test_halves_are_fitted_too(tiny, brief) -> None:
    result = ha.gate(tiny, words(), seeds=1, halves=True)
    assert result.facilitation_half.dims == ("half", "task", "layer", "head")
    assert not np.array_equal(*result.facilitation_half.values)


def test_weights_are_as_they_were(tiny, brief) -> None:
    tiny.model.requires_grad_(True)
    before = tiny.fingerprint()
    ha.gate(tiny, words(), seeds=1)
    assert tiny.fingerprint() == before
    assert all(p.requires_grad and p.grad is None for p in tiny.model.parameters())
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in tiny.model.modules())


@pytest.mark.parametrize(("wide", "together"), [(64, 10), (4096, 1)])
def test_a_large_model_is_cut_by_seed(wide, together) -> None:
    shape = {
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "intermediate_size": 3 * wide,
    }
    lm = LM(skeleton(LlamaConfig(hidden_size=wide, vocab_size=VOCABULARY, **shape)), tokenizer(), "a shape")
    task = Task("words", tuple(Example(" ".join([f"w{i}"] * 40), f" w{i + 1}") for i in range(80)), (), shots=0)
    blocks = split_seeds(lm, task, range(10), batch=64)
    assert [len(block) for block in blocks] == [together] * (10 // together)


def test_targets_are_summed_one_by_one() -> None:
    """And one that is not a number does not spoil the others."""
    bundles = [make_bundle([TokenExample((1, 2), (3,) * n) for n in (1, 4)]), make_bundle([TokenExample((1,), (5, 6))])]
    logits = torch.randn(2 * 7, 9, generator=torch.Generator().manual_seed(0))
    logits[0] = torch.nan
    tokens = torch.tensor([3, 3, 3, 3, 3, 5, 6])
    each = logits.view(2, 7, 9).log_softmax(-1)[:, torch.arange(7), tokens]
    right = logits.view(2, 7, 9).argmax(-1) == tokens
    parts = [slice(0, 1), slice(1, 5), slice(5, 7)]
    log_p, all_right = score_targets(logits, bundles)
    torch.testing.assert_close(log_p, torch.stack([each[:, p].sum(1) for p in parts], 1), equal_nan=True)
    assert log_p.isnan().sum() == 1
    assert torch.equal(all_right, torch.stack([right[:, p].all(1) for p in parts], 1))

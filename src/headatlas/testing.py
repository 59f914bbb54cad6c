"""Check that a method keeps the contract on which figures, resuming, workers and other people's scripts rely.

    from headatlas.testing import check_method
    check_method(my_method, limit=8)

runs all checks on tiny random models, as scikit-learn's `check_estimator` does. In a test suite, each can be a test:

    @pytest.mark.parametrize("check", CHECKS)
    def test_contract(check, case): check(case)

with one fixture `case = MethodCase(my_method, limit=8)` for all, so that its result is computed once.
"""

import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import xarray as xr
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from headatlas.methods.method import PRESETS, record_of
from headatlas.models.lm import LM
from headatlas.progress import Progress, silent
from headatlas.results.store import load
from headatlas.runs.plan import Plan
from headatlas.runs.run import compute
from headatlas.runs.where import Where
from headatlas.runs.worker import ModelWorker
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.relations import Relation

# Tokens of the tiny models, 4 special ones included.
VOCABULARY_SIZE = 61
_TINY_CONFIG = {
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 56,
    "max_position_embeddings": 64,
    # 6 heads × 10 are not 48: code that takes d_model / n_heads for d_head fails.
    "head_dim": 10,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_HYBRID_CONFIG = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}


def tiny_lm(hybrid: bool = False, context: int = 64) -> LM:
    """Make a random model of three layers with grouped-query attention.

    Args:
        hybrid: give the second layer linear attention, which has no heads.
        context: length of the context in tokens.
    """
    if hybrid:
        name, config_class, extra = "hybrid", "Qwen3NextConfig", _HYBRID_CONFIG
    else:
        name, config_class, extra = "tiny", "LlamaConfig", {"attention_bias": True, "mlp_bias": True}
    config = getattr(transformers, config_class)(**_TINY_CONFIG | extra | {"max_position_embeddings": context})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, experts_implementation="eager")
        with torch.no_grad():
            # Initial values such as 0 for biases and 1 for norms would hide errors.
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
    return LM(model.float().eval().requires_grad_(False), tiny_tokenizer(), name)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token per word (w0 … w56) and four special tokens."""
    words = ["<bos>", "<eos>", "<pad>", "<unk>"] + [f"w{i}" for i in range(VOCABULARY_SIZE - 4)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def _random_words(generator: np.random.Generator, n: int) -> str:
    return " ".join(f"w{i}" for i in generator.integers(VOCABULARY_SIZE - 4, size=n))


def tiny_task(name: str, seed: int) -> Task:
    """Make a task with prompts of many lengths, so that batches are padded or packed."""
    generator = np.random.default_rng(seed)
    examples = tuple(
        Example(_random_words(generator, 3 + i % 7), f" {_random_words(generator, 1 + i % 2)}") for i in range(24)
    )
    return Task(name, examples[:12], examples[12:])


def tiny_relations() -> list[Relation]:
    """Make two relations between the words of `tiny_tokenizer`: the next word, and a shuffled one."""
    order = np.random.default_rng(2).permutation(VOCABULARY_SIZE - 4)
    following = tuple((f"w{i}", f"w{(i + 1) % len(order)}") for i in range(len(order)))
    return [
        Relation("next", "Algorithmic", following),
        Relation("shuffled", "Knowledge", tuple((f"w{i}", f"w{order[i]}") for i in range(40))),
    ]


def tiny_questions(n: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Make main questions of four steps. The first word of a step's answer depends on its function."""
    generator = np.random.default_rng(seed)
    questions = []
    for i in range(n):
        steps = []
        for function in generator.choice(8, 4, replace=False):
            step = {"subquestion": _random_words(generator, 3)}
            first_word = f"w{5 * function + generator.integers(3)}"
            step["answer"] = f"{first_word} {_random_words(generator, int(generator.integers(8)))}"
            steps.append(step | {"cognitive_skill": FUNCTIONS[function]})
        main = f"w{i % 57} w{i // 57} {_random_words(generator, 3)}"
        questions.append({"question": main, "answer": "w1", "generated": steps})
    return questions


class MethodCase:
    """A method to check, with the options of its calls and its result on a tiny model.

    Options named `tasks`, `relations` and `questions` are filled in; without any in the call, only the first that the
    method has.

    Attributes:
        method: record of the method.
        options: options of the calls.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.method = record_of(function)
        data = {
            "tasks": [tiny_task("first", 0), tiny_task("second", 1)],
            "relations": tiny_relations(),
            "questions": tiny_questions(),
        }
        accepted = [name for name in data if name in self.method.options]
        filled_in = [name for name in accepted if name in options] or accepted[:1]
        self.options = {name: data[name] for name in filled_in} | options

    def __repr__(self) -> str:
        return self.method.name

    @cached_property
    def lm(self) -> LM:
        """The tiny model on which the method is checked."""
        return tiny_lm()

    @cached_property
    def result(self) -> xr.Dataset:
        """The result on that model, computed once."""
        return self.compute(self.lm)

    def compute(self, lm: LM, *, out: Path | None = None, progress: Progress = silent, **options: Any) -> xr.Dataset:
        """Compute the result on a model; `options` replace those of the case."""
        return compute(self.method, lm, self.options | options, out=out, progress=progress)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the work on that model."""
        worker = ModelWorker(self.lm, Where())
        plan = worker.plan([(self.method, self.method.in_preset(PRESETS[0], self.options))]).plans[self.method.name]
        if not isinstance(plan, Plan):
            raise plan
        return plan


def check_method(function: Callable[..., Any], **options: Any) -> None:
    """Run all checks on a function that is declared with `@headatlas.method`.

    Args:
        function: the declared function.
        options: options of its calls, such as small limits that make them quick.

    Raises:
        AssertionError: a check failed; the message names the method and what is wrong.
    """
    case = MethodCase(function, **options)
    for check in CHECKS:
        check(case)


def check_declaration(case: MethodCase) -> None:
    """Check for a title, a docstring, help for every option, and a meaning and repeats for every measure."""
    method = case.method
    assert method.title, f"{method.name} has no title"
    assert (method.function.__doc__ or "").strip(), f"{method.name} has no docstring"
    for option in method.options.values():
        assert option.help, (
            f"{method.name}: option {option.name} has no help: annotate it, Annotated[int, 'what it is']"
        )
    for measure in method.measures:
        assert measure.meaning, f"{method.name}: measure {measure.name} has no meaning"
        assert measure.repeats, (
            f"{method.name}: measure {measure.name} has no repeats: declare (variable, dimension) with repeats of the"
            " map, or a sentence that says why there are none"
        )
    unknown = {name for options in method.presets.values() for name in options} - set(method.options)
    assert not unknown, f"{method.name}: presets name options that the method does not have: {sorted(unknown)}"


def check_shapes(case: MethodCase) -> None:
    """Check that every layer and head is present, that no subject occurs twice, and that no score is missing."""
    result = case.result
    lm = case.lm
    name = case.method.name
    assert result.layer.values.tolist() == list(range(lm.n_layers)), f"{name}: layer is not 0 to {lm.n_layers - 1}"
    assert result["head"].values.tolist() == list(range(lm.n_heads)), f"{name}: head is not 0 to {lm.n_heads - 1}"
    assert [v for v in result.data_vars.values() if {"layer", "head"} <= set(v.dims)], f"{name}: no variable over heads"
    for measure in case.method.measures:
        assert {measure.over, "layer", "head"} <= set(result[measure.name].dims), f"{name}: dims of {measure.name}"
        labels = result[measure.over].values.tolist()
        assert len(set(labels)) == len(labels) > 0, f"{name}: {measure.over} has repeated labels, or none"
        assert all(isinstance(label, str) for label in labels), f"{name}: labels of {measure.over} are not text"
        assert np.isfinite(result[measure.name]).all(), f"{name}: {measure.name} is not finite everywhere"
    if lists := case.method.lists:
        for variable in (lists.tokens, lists.value):
            assert result[variable].dims == ("layer", "head", "rank"), f"{name}: dims of {variable}"
        for variable in (lists.written, lists.demoted):
            assert result[variable].dims == ("layer", "head", "rank", "output"), f"{name}: dims of {variable}"
        assert np.isfinite(result[lists.value]).all(), f"{name}: {lists.value} is not finite everywhere"


def check_variables(case: MethodCase) -> None:
    """Check that every variable has a readable name, units ('' for a plain number) and a description."""
    for name, values in case.result.data_vars.items():
        missing = [key for key in ("long_name", "description") if not values.attrs.get(key)]
        missing += ["units"] * ("units" not in values.attrs)
        assert not missing, (
            f"{case}: variable {name} has no {', '.join(missing)}: declare it, variables={{{name!r}: Variable(…)}}"
        )


def check_repeatable(case: MethodCase) -> None:
    """Check that results do not depend on the global random generators, and that these and the model are unchanged."""
    lm = tiny_lm()
    parameters_before = {n: p.clone() for n, p in lm.model.named_parameters()}
    torch.manual_seed(7)
    np.random.seed(7)
    numpy_state = str(np.random.get_state(legacy=False))
    torch_state = torch.random.get_rng_state()
    _assert_same(case.compute(lm), case.result)
    assert torch.equal(torch.random.get_rng_state(), torch_state), f"{case}: torch's global generator was used"
    assert str(np.random.get_state(legacy=False)) == numpy_state, f"{case}: numpy's global generator was used"
    changed = [n for n, p in lm.model.named_parameters() if not torch.equal(p, parameters_before[n])]
    assert not changed, f"{case}: the model was changed, first {changed[0]}"
    hooks = [h for m in lm.model.modules() for h in (*m._forward_pre_hooks.values(), *m._forward_hooks.values())]
    leftover = [h for h in hooks if not h.__module__.startswith(("transformers", "accelerate", "torch"))]
    assert not leftover, f"{case}: left a hook on the model"
    assert not lm.model.training, f"{case}: left the model in training mode"


def check_provenance(case: MethodCase) -> None:
    """Check that the result's attributes record how it was made."""
    attributes = case.result.attrs
    assert attributes["method"] == case.method.name
    assert attributes["fingerprint"] == case.lm.fingerprint()
    missing = {"model", "data", "key", "headatlas", "torch", "transformers", "n_kv_heads"} - set(attributes)
    assert not missing, f"{case}: attributes missing: {sorted(missing)}"
    # Raises a TypeError for an attribute that the page could not show.
    json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in attributes.items()})


def check_stored(case: MethodCase) -> None:
    """Check that a written result reads back unchanged, leaves no other files, and is not computed again."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{case.method.name}.nc"
        case.compute(case.lm, out=Path(folder))
        _assert_same(load(file), case.result)
        others = {p.name for p in Path(folder).iterdir()} - {file.name, "atlas.json"}
        assert not others, f"{case}: left {sorted(others)} in the folder of its result"
        modified = file.stat().st_mtime_ns
        _assert_same(case.compute(case.lm, out=Path(folder)), case.result)
        assert file.stat().st_mtime_ns == modified, f"{case}: computed again although nothing had changed"


class _Interrupted(BaseException):
    pass


def check_resumable(case: MethodCase) -> None:
    """Check that interrupted work resumes and gives the same result."""
    for stop_at in (3, 6):
        with tempfile.TemporaryDirectory() as folder:
            n_left = [stop_at]

            def interrupt(items: Sequence[Any], label: str, n_left: list[int] = n_left) -> Iterable[Any]:
                for item in items:
                    n_left[0] -= 1
                    if n_left[0] == 0:
                        raise _Interrupted
                    yield item

            try:
                case.compute(case.lm, out=Path(folder), progress=interrupt)
            except _Interrupted:
                assert not (Path(folder) / f"{case.method.name}.nc").exists()
            _assert_same(case.compute(case.lm, out=Path(folder)), case.result)


def check_parts(case: MethodCase) -> None:
    """Check that the work can be sent to another process and done there part by part in any order."""
    plan: Plan = pickle.loads(pickle.dumps(case.plan))  # noqa: S301  # pickled in this line
    worker = ModelWorker(case.lm, Where())
    done: dict[str, tuple[np.ndarray, ...]] = {}
    waiting = list(plan.work.parts)[::-1]
    while waiting:
        # The last part that is ready, as workers may finish in any order.
        part = next(p for p in waiting if set(p.inputs) <= set(done))
        waiting.remove(part)
        inputs = {name: done[name] for name in part.inputs}
        outputs = worker.do(part.do, part.arguments, part.outputs, inputs, plan.stamp)
        assert set(outputs) == set(part.outputs), f"{case}: part {part.name!r} returned {sorted(outputs)}"
        done |= outputs
    work = plan.work
    result = worker.do(work.combine, work.arguments, (), done, plan.stamp)
    _assert_same(plan.finish(result), case.result)


def check_layers_without_heads(case: MethodCase) -> None:
    """Check that layers without heads are present and NaN."""
    hybrid = tiny_lm(hybrid=True)
    layers = hybrid.layers_without_heads
    result = case.compute(hybrid)
    assert result.sizes["layer"] == hybrid.n_layers, f"{case}: layers without heads are missing"
    for measure in case.method.measures:
        score = result[measure.name]
        assert np.isnan(score.sel(layer=layers)).all(), f"{case}: {measure.name} of a layer without heads is not NaN"
        assert np.isfinite(score.drop_sel(layer=layers)).all(), f"{case}: {measure.name} is not finite everywhere"
    if lists := case.method.lists:
        value = result[lists.value]
        assert np.isnan(value.sel(layer=layers)).all(), f"{case}: {lists.value} of a layer without heads is not NaN"
        assert np.isfinite(value.drop_sel(layer=layers)).all(), f"{case}: {lists.value} is not finite everywhere"


def check_batches(case: MethodCase) -> None:
    """Check that the number of tokens per batch only changes rounding."""
    if "batch_tokens" not in case.method.options:
        return
    unbatched = case.compute(case.lm, batch_tokens=1)
    for name, values in case.result.data_vars.items():
        # rounding decides which of several equal heads are in the top of a bootstrap
        is_number = values.dtype.kind == "f" and not str(name).startswith("inclusion")
        if {"layer", "head"} <= set(values.dims) and is_number:
            np.testing.assert_allclose(unbatched[name], values, rtol=2e-3, atol=2e-5, err_msg=str(name))


CHECKS: tuple[Callable[[MethodCase], None], ...] = (
    check_declaration,
    check_shapes,
    check_variables,
    check_repeatable,
    check_provenance,
    check_stored,
    check_resumable,
    check_parts,
    check_layers_without_heads,
    check_batches,
)


def _assert_same(a: xr.Dataset, b: xr.Dataset) -> None:
    xr.testing.assert_identical(a.drop_attrs(), b.drop_attrs())

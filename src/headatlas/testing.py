"""Check that a method keeps the contract: what figures, resuming, workers and other people's scripts rely on.

    from headatlas.testing import check_method
    check_method(my_method, limit=8)

runs every check on tiny random models, as scikit-learn's `check_estimator` does. In a test suite, each can be a test:

    @pytest.mark.parametrize("check", CHECKS)
    def test_contract(check, subject): check(subject)

with one subject = Subject(my_method, limit=8) for all, so that its result is computed once.
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
from headatlas.results.used import with_used_rows
from headatlas.runs.plan import Plan
from headatlas.runs.run import compute
from headatlas.runs.where import Where
from headatlas.runs.worker import ModelWorker
from headatlas.tasks.built_in import FUNCTIONS
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.relations import Relation

VOCABULARY = 61
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 56,
    "max_position_embeddings": 64,
    "head_dim": 10,  # 6 heads × 10 ≠ 48
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
HYBRID = {
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
    """A random model of three layers with grouped heads. hybrid: the second layer has none. context: in tokens."""
    kind, name = ("Qwen3NextConfig", "hybrid") if hybrid else ("LlamaConfig", "tiny")
    own = HYBRID if hybrid else {"attention_bias": True, "mlp_bias": True}
    config = getattr(transformers, kind)(**SHAPE | own | {"max_position_embeddings": context})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, experts_implementation="eager")
        with torch.no_grad():
            for parameter in model.parameters():  # initial values such as 0 and 1 would hide errors
                parameter.add_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
    return LM(model.float().eval().requires_grad_(False), tiny_tokenizer(), name)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word: w0 … w56, and four special ones."""
    words = ["<bos>", "<eos>", "<pad>", "<unk>"] + [f"w{i}" for i in range(VOCABULARY - 4)]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", unk_token="<unk>"
    )


def _words(generator: np.random.Generator, n: int) -> str:
    return " ".join(f"w{i}" for i in generator.integers(VOCABULARY - 4, size=n))


def tiny_task(name: str, seed: int) -> Task:
    """Prompts of many lengths, so that batches are padded or packed."""
    generator = np.random.default_rng(seed)
    examples = tuple(Example(_words(generator, 3 + i % 7), f" {_words(generator, 1 + i % 2)}") for i in range(24))
    return Task(name, examples[:12], examples[12:])


def tiny_relations() -> list[Relation]:
    """Two relations between the words of `tiny_tokenizer`: the following word, and a shuffled one."""
    order = np.random.default_rng(2).permutation(VOCABULARY - 4)
    following = tuple((f"w{i}", f"w{(i + 1) % len(order)}") for i in range(len(order)))
    return [
        Relation("next", "Algorithmic", following),
        Relation("shuffled", "Knowledge", tuple((f"w{i}", f"w{order[i]}") for i in range(40))),
    ]


def tiny_questions(n: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    """Main questions of four steps; a step's function shows in the first word of its answer."""
    generator = np.random.default_rng(seed)
    questions = []
    for i in range(n):
        steps = [
            {
                "subquestion": _words(generator, 3),
                "answer": f"w{5 * c + generator.integers(3)} {_words(generator, int(generator.integers(8)))}",
                "cognitive_skill": FUNCTIONS[c],
            }
            for c in generator.choice(8, 4, replace=False)
        ]
        main = f"w{i % 57} w{i // 57} {_words(generator, 3)}"
        questions.append({"question": main, "answer": "w1", "generated": steps})
    return questions


class Subject:
    """A method to be checked, its options, and its result. Data is filled in by the argument's name.

    Attributes:
        method: its record.
        options: of its calls.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.method = record_of(function)
        data = {
            "tasks": [tiny_task("first", 0), tiny_task("second", 1)],
            "relations": tiny_relations(),
            "questions": tiny_questions(),
        }
        taken = [name for name in data if name in self.method.options]
        chosen = [name for name in taken if name in options] or taken[:1]
        self.options = {name: data[name] for name in chosen} | options

    def __repr__(self) -> str:
        return self.method.name

    @cached_property
    def lm(self) -> LM:
        """The tiny model it is checked on."""
        return tiny_lm()

    @cached_property
    def result(self) -> xr.Dataset:
        """Its result on that model, computed once."""
        return self.compute(self.lm)

    def compute(self, lm: LM, *, out: Path | None = None, progress: Progress = silent, **options: Any) -> xr.Dataset:
        """Its result on a model, with these options instead of its own."""
        return compute(self.method, lm, self.options | options, out=out, progress=progress)

    @cached_property
    def plan(self) -> Plan:
        """Its work, planned but not done."""
        worker = ModelWorker(self.lm, Where())
        plan = worker.plan([(self.method, self.method.in_preset(PRESETS[0], self.options))]).plans[self.method.name]
        if not isinstance(plan, Plan):
            raise plan
        return plan


def check_method(function: Callable[..., Any], **options: Any) -> None:
    """Run all checks on a function declared with `@headatlas.method`. options: of its calls, to make them quick."""
    subject = Subject(function, **options)
    for check in CHECKS:
        check(subject)


def check_declaration(subject: Subject) -> None:
    """It has a title, a docstring, help for every option and a meaning for every measure."""
    method = subject.method
    assert method.title, f"{method.name} has no title"
    assert (method.function.__doc__ or "").strip(), f"{method.name} has no docstring"
    for option in method.options.values():
        assert option.help, (
            f"{method.name}: option {option.name} has no help: annotate it, Annotated[int, 'what it is']"
        )
    for measure in method.measures:
        assert measure.meaning, f"{method.name}: measure {measure.name} has no meaning"
    unknown = {o for options in method.presets.values() for o in options} - set(method.options)
    assert not unknown, f"{method.name}: presets name options that it does not have: {sorted(unknown)}"


def check_shapes(subject: Subject) -> None:
    """Every layer and head is present, subjects have names of their own, no score is missing."""
    result, lm, name = subject.result, subject.lm, subject.method.name
    assert result.layer.values.tolist() == list(range(lm.n_layers)), f"{name}: layer is not 0 to {lm.n_layers - 1}"
    assert result["head"].values.tolist() == list(range(lm.n_heads)), f"{name}: head is not 0 to {lm.n_heads - 1}"
    assert [v for v in result.data_vars.values() if {"layer", "head"} <= set(v.dims)], f"{name}: no variable over heads"
    for measure in subject.method.measures:
        assert {measure.over, "layer", "head"} <= set(result[measure.name].dims), f"{name}: dims of {measure.name}"
        labels = result[measure.over].values.tolist()
        assert len(set(labels)) == len(labels) > 0, f"{name}: {measure.over} has labels twice, or none"
        assert all(isinstance(label, str) for label in labels), f"{name}: labels of {measure.over} are not text"
        assert np.isfinite(result[measure.name]).all(), f"{name}: {measure.name} is not finite everywhere"
    if lists := subject.method.lists:
        for variable in (lists.tokens, lists.value):
            assert result[variable].dims == ("layer", "head", "rank"), f"{name}: dims of {variable}"
        for variable in (lists.written, lists.demoted):
            assert result[variable].dims == ("layer", "head", "rank", "output"), f"{name}: dims of {variable}"
        assert np.isfinite(result[lists.value]).all(), f"{name}: {lists.value} is not finite everywhere"


def check_variables(subject: Subject) -> None:
    """Every variable has a name for people, units ('' for a plain number) and a sentence that says what it is."""
    for name, values in subject.result.data_vars.items():
        missing = [key for key in ("long_name", "description") if not values.attrs.get(key)]
        missing += ["units"] * ("units" not in values.attrs)
        assert not missing, (
            f"{subject}: variable {name} has no {', '.join(missing)}: declare it, variables={{{name!r}: Variable(…)}}"
        )


def check_repeatable(subject: Subject) -> None:
    """The same twice, whatever the state of the global generators. It changes neither them nor the model."""
    lm = tiny_lm()
    before = {n: p.clone() for n, p in lm.model.named_parameters()}
    torch.manual_seed(7)
    np.random.seed(7)
    numbers, expected = np.random.get_state(legacy=False), torch.random.get_rng_state()
    _same(subject.compute(lm), subject.result)
    assert torch.equal(torch.random.get_rng_state(), expected), f"{subject}: torch's global generator was used"
    assert str(np.random.get_state(legacy=False)) == str(numbers), f"{subject}: numpy's global generator was used"
    changed = [n for n, p in lm.model.named_parameters() if not torch.equal(p, before[n])]
    assert not changed, f"{subject}: the model was changed, first {changed[0]}"
    hooks = [h for m in lm.model.modules() for h in (*m._forward_pre_hooks.values(), *m._forward_hooks.values())]
    ours = [h for h in hooks if not h.__module__.startswith(("transformers", "accelerate", "torch"))]
    assert not ours, f"{subject}: left a hook on the model"
    assert not lm.model.training, f"{subject}: left the model in training mode"


def check_provenance(subject: Subject) -> None:
    """The result's attributes tell how it was made."""
    attributes = subject.result.attrs
    assert attributes["method"] == subject.method.name
    assert attributes["fingerprint"] == subject.lm.fingerprint()
    missing = {"model", "data", "key", "headatlas", "torch", "transformers", "n_kv_heads"} - set(attributes)
    assert not missing, f"{subject}: attributes missing: {sorted(missing)}"
    json.dumps({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in attributes.items()})


def check_stored(subject: Subject) -> None:
    """Written, it reads back as it was, leaves nothing else behind, and is not computed again."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{subject.method.name}.nc"
        subject.compute(subject.lm, out=Path(folder))
        _same(load(file), subject.result)
        others = {p.name for p in Path(folder).iterdir()} - {file.name, "atlas.json"}
        assert not others, f"{subject}: left {sorted(others)} in the folder of its result"
        written = file.stat().st_mtime_ns
        _same(subject.compute(subject.lm, out=Path(folder)), subject.result)
        assert file.stat().st_mtime_ns == written, f"{subject}: computed again although nothing had changed"


class _Interrupted(BaseException):
    pass


def check_resumable(subject: Subject) -> None:
    """Interrupted anywhere, it goes on to the same result."""
    for stop_at in (3, 6):
        with tempfile.TemporaryDirectory() as folder:
            left = [stop_at]

            def stops(items: Sequence[Any], label: str, left: list[int] = left) -> Iterable[Any]:
                for item in items:
                    left[0] -= 1
                    if left[0] == 0:
                        raise _Interrupted
                    yield item

            try:
                subject.compute(subject.lm, out=Path(folder), progress=stops)
            except _Interrupted:
                assert not (Path(folder) / f"{subject.method.name}.nc").exists()
            _same(subject.compute(subject.lm, out=Path(folder)), subject.result)


def check_parts(subject: Subject) -> None:
    """Its work can be sent elsewhere, and done there part by part in any order."""
    plan: Plan = pickle.loads(pickle.dumps(subject.plan))  # noqa: S301  # our own, a line ago
    worker = ModelWorker(subject.lm, Where())
    done: dict[str, tuple[np.ndarray, ...]] = {}
    waiting = list(plan.work.parts)[::-1]
    while waiting:
        part = next(p for p in waiting if set(p.inputs) <= set(done))
        waiting.remove(part)
        inputs = {name: done[name] for name in part.inputs}
        left = worker.do(part.do, part.arguments, part.outputs, inputs, plan.stamp)
        assert set(left) == set(part.outputs), f"{subject}: part {part.name!r} left {sorted(left)}"
        done |= left
    work = plan.work
    result = worker.do(work.combine, work.arguments, (), done, plan.stamp)
    _same(result if work.used is None else with_used_rows(result, work.used), subject.result)


def check_layers_without_heads(subject: Subject) -> None:
    """Layers without heads are present, and NaN."""
    hybrid = tiny_lm(hybrid=True)
    without = hybrid.layers_without_heads
    result = subject.compute(hybrid)
    assert result.sizes["layer"] == hybrid.n_layers, f"{subject}: layers without heads are missing"
    for measure in subject.method.measures:
        score = result[measure.name]
        assert np.isnan(score.sel(layer=without)).all(), (
            f"{subject}: {measure.name} of a layer without heads is not NaN"
        )
        assert np.isfinite(score.drop_sel(layer=without)).all(), f"{subject}: {measure.name} is not finite everywhere"
    if lists := subject.method.lists:
        value = result[lists.value]
        assert np.isnan(value.sel(layer=without)).all(), f"{subject}: {lists.value} of a layer without heads is not NaN"
        assert np.isfinite(value.drop_sel(layer=without)).all(), f"{subject}: {lists.value} is not finite everywhere"


def check_batches(subject: Subject) -> None:
    """How many tokens are run at once changes rounding only."""
    if "batch_tokens" not in subject.method.options:
        return
    one_by_one = subject.compute(subject.lm, batch_tokens=1)
    for name, values in subject.result.data_vars.items():
        if {"layer", "head"} <= set(values.dims) and values.dtype.kind == "f":
            np.testing.assert_allclose(one_by_one[name], values, rtol=2e-3, atol=2e-5, err_msg=str(name))


CHECKS: tuple[Callable[[Subject], None], ...] = (
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


def _same(a: xr.Dataset, b: xr.Dataset) -> None:
    xr.testing.assert_identical(a.drop_attrs(), b.drop_attrs())

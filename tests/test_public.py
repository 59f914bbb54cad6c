"""The names other people's scripts rely on."""

import inspect

import pytest

import headatlas as ha
from tests.models.tiny import TINY, build, tokenizer


def test_public_names() -> None:
    nouns = ["LM", "Atlas", "HeadAtlasError", "Measure", "Part", "Truth", "Weights", "Work"]
    verbs = ["compare", "edit", "evaluate", "export", "figures", "import_scores"]
    verbs += ["load", "method", "open", "run", "test", "transfer", "view"]
    methods = ["ablate", "contrast", "dissociate", "gate", "ig", "maps", "pattern", "probe", "salient"]
    methods += ["copying", "function_vector", "influence", "retrieval", "streaming", "taylor"]
    assert ha.__all__ == nouns + verbs
    assert all(getattr(ha, name) is not None for name in (*ha.__all__, *methods))
    assert set(dir(ha)) == {*nouns, *verbs, *methods, "__version__"}


def test_what_a_loaded_model_offers() -> None:
    lm = ha.load(build(TINY[0]), tokenizer=tokenizer())
    shape = ["n_layers", "n_heads", "n_kv_heads", "d_head", "d_model"]
    assert [getattr(lm, name) for name in shape] == [3, 6, 2, 10, 48]
    for name in (
        "name",
        "tokenizer",
        "model",
        "weights",
        "gated",
        "patched",
        "head_outputs",
        "generate",
        "fingerprint",
    ):
        assert hasattr(lm, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(ha, "loda")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("m", "x"), {}, r"pattern\(\) takes model by position: give 'x' by its argument's name"),
        (("m",), {"sequenses": 3}, r"pattern\(\) has no argument 'sequenses'. Did you mean 'sequences'"),
    ],
)
def test_a_wrong_argument_is_named(arguments, options, message) -> None:
    with pytest.raises(TypeError, match=message):
        ha.pattern(*arguments, **options)


def test_every_public_callable_says_what_it_does() -> None:
    public = [getattr(ha, name) for name in ha.__all__]
    methods = [m for c in (ha.LM, ha.Weights) for n, m in vars(c).items() if not n.startswith("_") and callable(m)]
    undocumented = [f.__qualname__ for f in public + methods if not f.__doc__]
    assert not undocumented
    untyped = [f.__qualname__ for f in methods if inspect.signature(f).return_annotation is inspect.Signature.empty]
    assert not untyped


def test_every_method_takes_a_precision(folder) -> None:
    assert (
        ha.pattern(folder, dtype="bfloat16", device="cpu").attrs["fingerprint"]
        != ha.pattern(folder).attrs["fingerprint"]
    )
    with pytest.raises(ha.HeadAtlasError, match="dtype is 'floaty'"):
        ha.pattern(folder, dtype="floaty")
    with pytest.raises(ha.HeadAtlasError, match="dtype is 'float32', but model is an LM: it has torch.float64 already"):
        ha.pattern(ha.load(folder, dtype="float64"), dtype="float32")

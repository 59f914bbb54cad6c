"""kvpress reads what `export` writes, and compresses the default model's cache by it. Skipped where it is missing.

kvpress requires an older transformers than HeadAtlas: docs/how-to/export.md shows how to install both.
"""

import json
import warnings

import numpy as np
import pytest
import torch
import xarray as xr
from transformers import DynamicCache

import headatlas as ha

SINK, RECENT = 4, 16


@pytest.fixture(scope="module")
def press_class():
    """DuoAttentionPress, whose import patches transformers' attention functions; they are put back."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = dict(ALL_ATTENTION_FUNCTIONS.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kvpress = pytest.importorskip("kvpress", exc_type=ImportError)
    yield kvpress.DuoAttentionPress
    for name, function in before.items():
        ALL_ATTENTION_FUNCTIONS[name] = function


@pytest.mark.filterwarnings("ignore")
def test_the_heads_that_need_least_stream(tmp_path, default_lm, press_class) -> None:
    lm = default_lm
    need = np.random.default_rng(0).normal(size=(1, lm.n_layers, lm.n_kv_heads))
    coords = {"task": ["passkeys"], "layer": range(lm.n_layers), "head": range(lm.n_heads)}
    spread = np.repeat(need, lm.n_heads // lm.n_kv_heads, axis=-1)
    attributes = {"method": "streaming", "n_kv_heads": lm.n_kv_heads, "sink": SINK, "recent": RECENT}
    maps = xr.Dataset({"need": (("task", "layer", "head"), spread)}, coords=coords, attrs=attributes)
    ha.export(maps, "duo-attention", tmp_path / "duo")

    class OurPattern(press_class):
        @staticmethod
        def load_attention_pattern(model):
            config = json.loads((tmp_path / "duo" / "config.json").read_text())
            scores = np.loadtxt(tmp_path / "duo" / "full_attention_heads.tsv", delimiter="\t")
            return config["sink_size"], config["recent_size"], scores

    ids = torch.tensor([lm.encode("The sky is blue and the grass is green, so we went on to the next town. " * 4)[0]])
    question_ids = torch.tensor([lm.encode(" The sky is")[0]])

    def answer(ratio: float) -> torch.Tensor:
        press, cache = OurPattern(head_compression_ratio=ratio), DynamicCache()
        with torch.no_grad():
            with press(lm.model):
                lm.model(ids, past_key_values=cache, cache_position=torch.arange(ids.shape[1]))
            logits = lm.model(question_ids, past_key_values=cache).logits[0, -1]
        lowest = np.argsort(need[0], axis=None)[: round(need.size * ratio)]
        assert set(np.flatnonzero(press.streaming_mask.numpy())) == set(lowest.tolist())
        assert (press.sink_size, press.recent_size) == (SINK, RECENT)
        masked_share = 1 - (SINK + RECENT) / ids.shape[1]
        assert press.compression_ratio == pytest.approx(len(lowest) / need.size * masked_share)
        return logits

    full_logits = lm.model(torch.cat([ids, question_ids], 1)).logits[0, -1]
    torch.testing.assert_close(answer(0.0), full_logits, rtol=1e-3, atol=1e-3)  # a cache adds in another order
    assert (answer(0.5) - full_logits).abs().max() > 0.01

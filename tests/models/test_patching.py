"""Patching one head at one token, many heads at once: against a run of the whole prompt for every head."""

import pytest
import torch

from headatlas.models.lm import LM
from headatlas.models.log_probs import batched_log_probs
from headatlas.models.patching import log_probs_patched
from headatlas.models.tokens import TokenExample, make_bundle
from tests.models.tiny import TINY, build, texts, tokenizer

EXAMPLES = [TokenExample(tuple(ids[:-2]), tuple(ids[-2:][: 1 + i % 2])) for i, ids in enumerate(texts((9, 6, 9)))]


@torch.no_grad()
@pytest.mark.parametrize("tiny", TINY, ids=lambda t: t.id)
def test_patching_equals_a_whole_run_for_every_head(tiny) -> None:
    lm = LM(build(tiny), tokenizer(), tiny.id)
    z = torch.randn(len(EXAMPLES), lm.n_layers, lm.n_heads, lm.d_head, generator=torch.Generator().manual_seed(0))
    z = z.to(lm.model.dtype)
    close = max(tiny.tolerance, 1e-6) * 10
    with_heads = lm.layers_with_heads
    for back, tokens in ((0, None), (1, 25)):
        result, full = log_probs_patched(lm, EXAMPLES, z, back, tokens=tokens)
        bundles = [make_bundle([a]) for a in EXAMPLES]
        torch.testing.assert_close(full, batched_log_probs(lm, bundles)[0][0], rtol=close, atol=close)
        assert torch.isnan(result[:, lm.layers_without_heads]).all()
        assert torch.isfinite(result[:, with_heads]).all()
        for e, (layer, head) in enumerate(
            [(with_heads[0], 0), (with_heads[-1], 5), (with_heads[len(with_heads) // 2], 3)]
        ):
            a = EXAMPLES[e]
            with lm.patched((layer, head), z[e], positions=[len(a.prompt) - 1 - back]):
                logits = lm.model(**lm.batch([a.prompt + a.target])).logits[0].float().log_softmax(-1)
            expected = sum(logits[len(a.prompt) - 1 + i, t].item() for i, t in enumerate(a.target))
            assert result[e, layer, head].item() == pytest.approx(expected, rel=close, abs=close)


@torch.no_grad()
def test_a_heads_own_output_changes_nothing() -> None:
    lm = LM(build(TINY[0]), tokenizer(), "llama")
    z = lm.head_outputs([a.prompt for a in EXAMPLES], "last")[:, 0]
    same, full = log_probs_patched(lm, EXAMPLES, z)
    torch.testing.assert_close(same, full[:, None, None].expand_as(same), rtol=1e-6, atol=1e-6)

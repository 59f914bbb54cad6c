"""Time a gate update and an ablation, compared with lower bounds and with the published code.

    python benchmarks/gate.py update        one update, compared with a bare forward and backward pass on its tokens
    python benchmarks/gate.py published     updates and held-out −log P of the PyPI package nam-causal-head-gating on
                                            the same data (pip install --no-deps nam-causal-head-gating einops)
    python benchmarks/gate.py ablate        all heads, replayed from their layer, compared with one pass per head
    python benchmarks/gate.py shape         an update of models of the shapes of Llama-3.1-8B and Qwen2.5-1.5B, with
                                            random weights, on a GPU
    python benchmarks/gate.py single-head   quality: how the quick gate maps of math and syntax correlate with those
                                            of ablate, taylor and ig
    python benchmarks/gate.py presets       quality: how the quick preset's maps correlate with the full preset's (use
                                            a GPU)

Each pair alternates in one process, after a warm-up, and medians are compared; only ratios are meaningful. On a CPU,
models are in float32.
"""

import random
from contextlib import nullcontext
from itertools import combinations
from unittest.mock import patch

import torch
from common import llama_8b, make_parser, median_seconds, profile_kernels, qwen_1_5b, time_call

import headatlas as ha
from headatlas.methods.ablate.compute import ablate_heads
from headatlas.methods.gate.compute import FITS, Schedule, draw_theta, fit_task, loss_and_gradient, negative_log_p
from headatlas.models.gradients import frozen_float32_stream
from headatlas.models.log_probs import batched_log_probs, log_probs
from headatlas.models.tokens import Bundle, TokenExample, encode_target, make_bundle
from headatlas.tasks.prompts import Example, Task
from headatlas.tasks.relations import load_relations

N_GATES = 4


def capitals(lm: ha.LM) -> list[TokenExample]:
    """Make examples such as 'The capital of France is' → ' Paris', in a fixed random order."""
    (relation,) = (r for r in load_relations() if r.name == "country_to_capital")
    pairs = list(relation.pairs)
    random.Random(0).shuffle(pairs)
    return [encode_target(lm, f"The capital of {s} is", f" {t}", "capitals") for s, t in pairs]


def random_bundles(lm: ha.LM, count: int, tokens: int) -> list[Bundle]:
    """Make texts that share no prefix, with a target of one token."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.model.get_input_embeddings().num_embeddings, (count, tokens + 1), generator=generator)
    return [make_bundle([TokenExample(tuple(i[:-1]), tuple(i[-1:]))]) for i in ids.tolist()]


def compare_update(lm: ha.LM, rounds: int, examples: int = 8, tokens: int = 16) -> None:
    """Compare gradients of the loss at the last token: in gates, and in embeddings with bare passes."""
    bundles = random_bundles(lm, examples, tokens)
    theta = draw_theta(lm, range(N_GATES))
    ids = torch.tensor([s.examples[0].prompt for s in bundles], device=lm.device).repeat(N_GATES, 1)
    embeddings = lm.model.get_input_embeddings()(ids).detach()

    def bare() -> None:
        leaf = embeddings.clone().requires_grad_()
        logits = lm.model(inputs_embeds=leaf, use_cache=False, logits_to_keep=1).logits[:, -1].float()
        torch.autograd.grad(logits.log_softmax(-1)[:, 0].sum(), leaf)

    def gated() -> None:
        with frozen_float32_stream(lm):
            loss_and_gradient(lm, theta, [(s,) for s in bundles], negative_log_p, 10**9)

    bare_seconds, gated_seconds = median_seconds(rounds, bare, gated)
    print(f"update, {N_GATES} gates × {examples} texts of {tokens} tokens")
    ratio = gated_seconds / bare_seconds
    print(f"  bare forward and backward {bare_seconds:.3f} s, gated {gated_seconds:.3f} s: {ratio:.2f} ×")


def compare_published(lm: ha.LM, updates: int) -> None:
    """Compare with the published code on the same data and settings, in float32 (its autocast is switched off)."""
    from causal_head_gating.core.trainer import CHGTrainer
    from causal_head_gating.data.datasets import MaskedSequenceDataset

    examples = capitals(lm)
    train, held_out = examples[:64], [make_bundle([a]) for a in examples[64:]]
    width = max(map(len, train)) + 1
    pad = 0
    ids, mask = torch.full((64, width), pad), torch.zeros(64, width, dtype=torch.bool)
    for i, a in enumerate(train):
        ids[i, : len(a)] = torch.tensor(a.prompt + a.target)
        mask[i, len(a.prompt) : len(a)] = True
    schedule = Schedule(updates, 0.3, 0.1)
    data = MaskedSequenceDataset(pad, input_ids=ids, loss_masks=mask)
    torch.manual_seed(0)
    with patch("torch.amp.autocast", lambda *a, **k: nullcontext()):
        trainer = CHGTrainer(
            lm.model,
            data,
            num_masks=N_GATES,
            batch_size=8,
            l1_weight=0.1,
            lr=0.3,
            lr_end=0.1,
            lr_reg=0.3,
            lr_reg_end=0.1,
        )
        seconds = [time_call(lambda: list(trainer.fit(updates, updates, verbose=False)))]
    masks = trainer.get_final_masks()
    fits = ("unregularized", "necessary", "sufficient")
    nll = [[-batched_log_probs(lm, held_out, masks[k])[0].mean().item() for k in fits]]

    task = Task("capitals", *(tuple(Example(a.prompt, a.target) for a in part) for part in (train, examples[64:])))
    fit_options = {"free": schedule, "pressed": schedule, "strength": 0.1, "batch": 8, "low": 0.0}
    fitted: list[torch.Tensor] = []

    def fit_ours() -> None:
        fitted.extend(fit_task(lm, task, range(N_GATES), **fit_options))

    seconds.append(time_call(fit_ours))
    nll.append([-batched_log_probs(lm, held_out, theta.sigmoid())[0].mean().item() for theta in fitted])
    baseline = -batched_log_probs(lm, held_out)[0].mean().item()
    print(f"capitals: 64 prompts, batch 8, {N_GATES} masks, {updates} updates per fit")
    print(f"  ungated: held-out −log P {baseline:.2f} on {len(held_out)} prompts")
    for name, s, n in zip(("published", "headatlas"), seconds, nll, strict=True):
        fits = ", ".join(f"{f} {v:.2f}" for f, v in zip(FITS, n, strict=True))
        print(f"  {name}: {s / updates / 3:.3f} s per update, held-out −log P: {fits}")
    print(f"  {seconds[0] / seconds[1]:.2f} × faster")


def compare_ablation(lm: ha.LM, prompts: int) -> None:
    """Compare replayed ablation with one forward pass per head."""
    examples = capitals(lm)[:prompts]
    bundles = [make_bundle([a]) for a in examples]
    inputs = lm.pad([(a.prompt + a.target)[:-1] for a in examples], "right")
    effects: list[torch.Tensor] = []

    def replayed() -> None:
        effects[:] = [ablate_heads(lm, examples)[0].mean(0)]

    @torch.no_grad()
    def one_by_one(logits_everywhere: bool, heads: int = 9) -> None:
        """Run some of the heads, spread over the layers; all heads take the same time."""
        for i in range(heads):
            gate = torch.ones(1, lm.n_layers, lm.n_heads)
            gate[0, i * lm.n_layers // heads, 0] = 0
            if logits_everywhere:
                with lm.gated(gate[0]):
                    lm.model(**inputs, use_cache=False)
            else:
                log_probs(lm, bundles, gate)

    replayed_seconds, per_head_seconds, target_logits_seconds = median_seconds(
        1, replayed, lambda: one_by_one(True), lambda: one_by_one(False)
    )
    per_head_seconds, target_logits_seconds = (
        t * lm.n_layers * lm.n_heads / 9 for t in (per_head_seconds, target_logits_seconds)
    )
    strongest = divmod(int(effects[0].argmax()), lm.n_heads)
    print(f"ablate, {lm.n_layers * lm.n_heads} heads, {len(examples)} prompts: {replayed_seconds:.1f} s")
    print(f"  one forward pass per head: {per_head_seconds:.1f} s ({per_head_seconds / replayed_seconds:.2f} ×)")
    ratio = target_logits_seconds / replayed_seconds
    print(f"  the same with logits at targets only: {target_logits_seconds:.1f} s ({ratio:.2f} ×)")
    print(f"  hurts capitals most: L{strongest[0]}.H{strongest[1]}")


def measure_shapes(rounds: int, longest: int) -> None:
    """Time an update of large models. longest: number of kernels to list."""
    compare_streams(llama_8b(), rounds, longest, texts=32, tokens=64, seeds=1)
    torch.cuda.empty_cache()
    compare_streams(qwen_1_5b(), rounds, longest, texts=64, tokens=20, seeds=10)


def compare_streams(lm: ha.LM, rounds: int, longest: int, texts: int, tokens: int, seeds: int) -> None:
    """Time updates with the stream in bfloat16 and in float32 (as in fits), and with bare hooks as published."""
    bundles = [(s,) for s in random_bundles(lm, texts, tokens)]
    theta = draw_theta(lm, range(seeds))
    ids = torch.tensor([s[0].examples[0].prompt for s in bundles], device="cuda").repeat(seeds, 1)

    def hooks() -> None:
        """Run bare hooks, with the logits of the whole vocabulary at every position."""
        leaf = theta.cuda().requires_grad_()
        with lm.gated(leaf.sigmoid().repeat_interleave(texts, dim=0)):
            logits = lm.model(input_ids=ids, use_cache=False).logits
        torch.autograd.grad(logits[:, -1].float().log_softmax(-1)[:, 0].sum(), leaf)

    def run_update() -> None:
        loss_and_gradient(lm, theta, bundles, negative_log_p, 10**9)

    lm.model.requires_grad_(False)
    (hooks_seconds,) = median_seconds(rounds, hooks)
    print(f"{lm.name}: {seeds} × {texts} × {tokens} tokens, bare hooks and all logits {hooks_seconds:.4f} s")
    for stream, context in (("bfloat16", nullcontext), ("float32", frozen_float32_stream)):
        with context(lm):
            torch.cuda.reset_peak_memory_stats()
            (update_seconds,) = median_seconds(rounds, run_update)
            memory = torch.cuda.max_memory_allocated() / 2**30
            profiles = [profile_kernels(run_update, longest)] if longest else []
        print(f"  stream in {stream}: update {update_seconds:.4f} s, {memory:.1f} GiB", *profiles, sep="\n", flush=True)


def compare_single_heads(lm: ha.LM) -> None:
    """Print the correlation of gate maps with maps of single-head effects."""
    tasks = ("math", "syntax")
    gates = ha.gate(lm, tasks)
    maps = {
        "facilitation": gates.facilitation.mean("seed"),
        "ablate zero": ha.ablate(lm, tasks, limit=8).contribution,
        "ablate mean": ha.ablate(lm, tasks, kind="mean", limit=8).contribution,
        "taylor": ha.taylor(lm, tasks, limit=8).contribution,
        "ig": ha.ig(lm, tasks, limit=8).contribution,
    }
    stability = ha.compare(gates.facilitation, over="seed").spearman.values.round(2)
    print(f"stability of facilitation over seeds: Spearman {stability} ({tasks})")
    for a, b in combinations(maps, 2):
        agreement = ha.compare(maps[a], maps[b])
        rows = ((t, agreement.sel(task=t)) for t in tasks)
        cells = (
            f"{t} {values.spearman:.2f} (p {values.p:.4f}), top 5 % {values.shared / values.top:.2f}"
            for t, values in rows
        )
        print(f"  {a} and {b}: {'; '.join(cells)}")


def compare_presets(lm: ha.LM) -> None:
    """Print the correlation of quick and full gate maps."""
    tasks = ("math", "syntax")
    quick, full = (ha.gate(lm, tasks, preset=name) for name in ("quick", "full"))
    for role in ("facilitation", "interference", "irrelevance"):
        agreement = ha.compare(quick[role].mean("seed"), full[role].mean("seed")).spearman.values.round(3).tolist()
        print(f"{role}: Spearman of quick and full {dict(zip(tasks, agreement, strict=True))}")


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", rounds=7, updates=60, prompts=64)
    parser.add_argument("what", choices=["update", "published", "ablate", "shape", "single-head", "presets"])
    parser.add_argument(
        "--profile",
        type=int,
        default=0,
        metavar="N",
        help="shape: also print GPU time by kernel, and the N longest kernels",
    )
    options = parser.parse_args()
    if options.what == "shape":
        return measure_shapes(options.rounds, options.profile)
    lm = ha.load(options.model, options.device)
    print(lm)
    return {
        "update": lambda: compare_update(lm, options.rounds),
        "published": lambda: compare_published(lm, options.updates),
        "ablate": lambda: compare_ablation(lm, options.prompts),
        "single-head": lambda: compare_single_heads(lm),
        "presets": lambda: compare_presets(lm),
    }[options.what]()


if __name__ == "__main__":
    main()

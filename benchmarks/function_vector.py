"""Time the effects of all heads on few-shot prompts, compared with one run of the model per head.

    python benchmarks/function_vector.py            the default model, 10 shots
    python benchmarks/function_vector.py --shape    the shape of Llama-3.1-8B with random weights, on a GPU

Both put a head's mean output into the last token of the same prompts. They alternate in one process, after a warm-up,
and their medians are compared; only ratios are meaningful. One run per head is timed on some heads, spread over the
layers, because all heads take the same time.
"""

from unittest.mock import patch

import torch
from common import llama_8b, make_parser, median_seconds

import headatlas as ha
from headatlas.methods.function_vector import compute
from headatlas.methods.function_vector.compute import mean_outputs, rises
from headatlas.models.tokens import TokenExample
from headatlas.tasks.few_shot import few_shot_prompts, few_shot_tasks

N_TIMED_HEADS = 9


def compare(lm: ha.LM, prompts: list[TokenExample], rounds: int) -> None:
    means = mean_outputs(lm, prompts)[0]
    timed_heads = [(i * lm.n_layers // N_TIMED_HEADS, i % lm.n_heads) for i in range(N_TIMED_HEADS)]
    inputs = lm.pad([a.prompt for a in prompts], "left")
    answers = torch.tensor([a.target[0] for a in prompts], device=lm.device)
    results: dict[str, torch.Tensor] = {}

    def packed() -> None:
        results["ours"] = rises(lm, prompts, means)[0]

    def replayed() -> None:
        with patch.object(compute, "shares", lambda *_: False):
            results["replayed"] = rises(lm, prompts, means)[0]

    @torch.no_grad()
    def run_per_head(last_only: int) -> None:
        """Run all prompts in one batch per head. last_only: compute logits only at the last token."""
        rise = []
        for head in [None, *timed_heads]:
            with lm.patched(head or (0, 0), torch.nan if head is None else means, positions="last"):
                logits = lm.model(**inputs, use_cache=False, logits_to_keep=last_only).logits[:, -1].float()
            rise.append(logits.softmax(-1).gather(1, answers[:, None])[:, 0].cpu())
        results["one by one"] = torch.stack(rise[1:], dim=1) - rise[0][:, None]

    packed_seconds, replayed_seconds, per_head_seconds, last_logits_seconds = median_seconds(
        rounds, packed, replayed, lambda: run_per_head(0), lambda: run_per_head(1)
    )
    # The run without a changed head is timed too.
    all_runs = (lm.n_layers * lm.n_heads + 1) / (N_TIMED_HEADS + 1)
    per_head_seconds *= all_runs
    last_logits_seconds *= all_runs
    tokens = sum(len(a.prompt) for a in prompts) / len(prompts)
    print(f"{lm.n_layers * lm.n_heads} heads, {len(prompts)} prompts of {tokens:.0f} tokens: {packed_seconds:.2f} s")
    print(f"  one run per head: {per_head_seconds:.2f} s, {per_head_seconds / packed_seconds:.1f} × as long")
    ratio = last_logits_seconds / packed_seconds
    print(f"  the same with logits at the last token only: {last_logits_seconds:.2f} s, {ratio:.1f} × as long")
    ratio = per_head_seconds / replayed_seconds
    print(f"  replayed from each head's layer, where prompts cannot be shared: {replayed_seconds:.2f} s, {ratio:.1f} ×")
    layers, heads = torch.tensor(timed_heads).T
    for name in ("ours", "replayed"):
        worst = (results[name][:, layers, heads] - results["one by one"]).abs().max()
        print(f"  {name}: largest difference from one run per head {worst:.1e} (rise of P)")


def random_prompts(lm: ha.LM, count: int, tokens: int) -> list[TokenExample]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.model.get_input_embeddings().num_embeddings, (count, tokens + 1), generator=generator)
    return [TokenExample(tuple(i[:-1]), tuple(i[-1:])) for i in ids.tolist()]


def main() -> None:
    parser = make_parser(__doc__, model="smollm2", device="auto", rounds=1, prompts=8)
    parser.add_argument("--shape", action="store_true")
    options = parser.parse_args()
    if options.shape:
        lm = llama_8b()
        compare(lm, random_prompts(lm, options.prompts, 100), options.rounds)
        return
    lm = ha.load(options.model, options.device)
    (task,) = few_shot_tasks(lm, ["word_to_antonym"], shots=10)
    compare(lm, few_shot_prompts(lm, task, task.train[: options.prompts], 0, shuffled=True), options.rounds)


if __name__ == "__main__":
    main()

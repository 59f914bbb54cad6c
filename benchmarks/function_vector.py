"""What the effects of all heads on few-shot prompts cost, against one run of the model for every head.

    python benchmarks/function_vector.py            the default model, 10 shots
    python benchmarks/function_vector.py --shape    the shape of Llama-3.1-8B with random weights, on a GPU

Both put a head's mean output into the last token of the same prompts. They run in one process, in turn, after a
warm-up; medians are compared. Only ratios mean anything. One run per head is timed on some heads, spread over the
layers: they all cost the same.
"""

from unittest.mock import patch

import torch
from common import arguments, in_turn, llama_8b

import headatlas as ha
from headatlas.methods.function_vector import compute
from headatlas.methods.function_vector.compute import mean_outputs, rises
from headatlas.models.tokens import TokenExample
from headatlas.tasks.few_shot import few_shot_prompts, few_shot_tasks

HEADS = 9  # run one by one


def compare(lm: ha.LM, prompts: list[TokenExample], rounds: int) -> None:
    means = mean_outputs(lm, prompts)[0]
    chosen = [(i * lm.n_layers // HEADS, i % lm.n_heads) for i in range(HEADS)]
    inputs = lm.pad([a.prompt for a in prompts], "left")
    answers = torch.tensor([a.target[0] for a in prompts], device=lm.device)
    results: dict[str, torch.Tensor] = {}

    def ours() -> None:
        results["ours"] = rises(lm, prompts, means)[0]

    def replayed() -> None:
        with patch.object(compute, "shares", lambda *_: False):
            results["replayed"] = rises(lm, prompts, means)[0]

    @torch.no_grad()
    def one_by_one(last_only: int) -> None:
        """All prompts in one batch; last_only: logits at the last token alone."""
        rise = []
        for head in [None, *chosen]:
            with lm.patched(head or (0, 0), torch.nan if head is None else means, positions="last"):
                logits = lm.model(**inputs, use_cache=False, logits_to_keep=last_only).logits[:, -1].float()
            rise.append(logits.softmax(-1).gather(1, answers[:, None])[:, 0].cpu())
        results["one by one"] = torch.stack(rise[1:], dim=1) - rise[0][:, None]

    fast, replay, plain, lean = in_turn(rounds, ours, replayed, lambda: one_by_one(0), lambda: one_by_one(1))
    plain, lean = (t * (lm.n_layers * lm.n_heads + 1) / (HEADS + 1) for t in (plain, lean))
    tokens = sum(len(a.prompt) for a in prompts) / len(prompts)
    print(f"{lm.n_layers * lm.n_heads} heads, {len(prompts)} prompts of {tokens:.0f} tokens: {fast:.2f} s")
    print(f"  one run per head: {plain:.2f} s, {plain / fast:.1f} × as long")
    print(f"  the same with logits at the last token only: {lean:.2f} s, {lean / fast:.1f} × as long")
    print(f"  replayed from each head's layer, where prompts cannot be shared: {replay:.2f} s, {plain / replay:.1f} ×")
    layers, heads = torch.tensor(chosen).T
    for name in ("ours", "replayed"):
        worst = (results[name][:, layers, heads] - results["one by one"]).abs().max()
        print(f"  {name}: largest difference from one run per head {worst:.1e} (rise of P)")


def random_prompts(lm: ha.LM, count: int, tokens: int) -> list[TokenExample]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(lm.model.get_input_embeddings().num_embeddings, (count, tokens + 1), generator=generator)
    return [TokenExample(tuple(i[:-1]), tuple(i[-1:])) for i in ids.tolist()]


def main() -> None:
    parser = arguments(__doc__, model="smollm2", device="auto", rounds=1, prompts=8)
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

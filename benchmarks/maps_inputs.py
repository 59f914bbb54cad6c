"""Compare the inputs of `maps`, and openings of the stream, on a real model.

    python benchmarks/maps_inputs.py inputs MODEL     published input compared with stream: scores, real runs
    python benchmarks/maps_inputs.py openings MODEL   texts before the word (use a GPU)

Scores are shares of pairs hit by the best head of each relation; chance is the same with targets shuffled. r is
Pearson's correlation over heads × templates with scores in real runs, in context and with attention to the word alone.
"""

import numpy as np
import torch
from common import make_parser

import headatlas as ha
from headatlas.methods.maps.compute import drop_small, shares, single_token_pairs
from headatlas.methods.maps.real_runs import dynamic_scores, find_hits
from headatlas.models.lm import LM
from headatlas.tasks.relations import load_relations
from headatlas.tasks.words import find_opening
from headatlas.terminal import bar

DEFAULT_RELATIONS = (
    "name_copying",
    "country_to_capital",
    "country_to_language",
    "object_superclass",
    "adj_to_comparative",
    "verb_to_past_tense",
    "word_to_antonym",
    "english_to_spanish",
)
OPENINGS = (
    "<|endoftext|>",
    "<|im_start|>",
    "\n",
    "the",
    "The word is",
    "This is a document about",
    "A short text about",
)


def compare_inputs(lm: LM, relations: list[str], dynamic: int) -> None:
    """Print a row for each relation and input."""
    columns = "relation, input, best head, score (chance), r alone, r in context"
    print(columns.replace(", ", " | "))
    for input in ("stream", "published"):
        result = ha.maps(lm, relations, input=input, held_out=0.0, dynamic=dynamic, progress=bar)
        for name in relations:
            scores_of_relation = result.sel(relation=name)
            if np.isnan(scores_of_relation.score).all():
                continue
            best_head = scores_of_relation.score.argmax(("layer", "head"))
            chance = scores_of_relation.baseline_score.sel(control="targets")
            r = scores_of_relation.dynamic_correlation
            print(
                f"{name} | {input} | L{best_head['layer'].item()}.H{best_head['head'].item()}"
                f" | {scores_of_relation.score.max().item():.2f} ({chance.max().item():.2f})"
                f" | {r.sel(context='without').item():.2f} | {r.sel(context='with').item():.2f}",
                flush=True,
            )


def compare_openings(lm: LM, dynamic: int) -> None:
    """Print a row for each input and opening, over all relations."""
    relations = load_relations()
    tokenizer = lm.tokenizer
    n = len(relations)
    size = lm.weights.unembedding().shape[1]
    pairs = drop_small(single_token_pairs(relations, tokenizer, size, "auto"), n, 30)
    sampled_pairs = pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))]
    sampled_pairs = sampled_pairs[(sampled_pairs.relation[:, None] == sampled_pairs.relation).tril(-1).sum(1) < dynamic]
    vocabulary = tokenizer.get_vocab()
    texts = [t for t in OPENINGS if not t.startswith("<") or t in vocabulary]
    readings = {name: {"input": name, "opening": ()} for name in ("published", "embedding")}
    readings |= {"stream, nothing": {"input": "stream", "opening": ()}}
    readings |= {f"stream, {t!r}": {"input": "stream", "opening": find_opening(tokenizer, t)} for t in texts}
    print("input | best score | chance | r alone | r in context")
    for name, reading in readings.items():
        score, chance = (
            shares(find_hits(lm, p, **reading)[0], p, n, lm.anatomy) for p in (pairs, pairs.with_targets_shuffled(0))
        )
        static, _ = find_hits(lm, sampled_pairs, **reading)
        names = [x.name for x in relations]
        result = dynamic_scores(lm, sampled_pairs, static, names, input=reading["input"])
        r = result.dynamic_correlation.mean("relation")
        best, best_chance = (np.nanmean(np.nanmax(a, (1, 2))) for a in (score, chance))
        alone, context = (r.sel(context=c).item() for c in ("without", "with"))
        print(f"{name} | {best:.2f} | {best_chance:.2f} | {alone:.2f} | {context:.2f}", flush=True)


def main() -> None:
    parser = make_parser(__doc__, device="auto")
    parser.add_argument("what", choices=["inputs", "openings"])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument(
        "--relations", default=",".join(DEFAULT_RELATIONS), help="inputs: comma-separated names of relations"
    )
    parser.add_argument("--dynamic", type=int, default=10, help="pairs per relation in real runs")
    options = parser.parse_args()
    lm = ha.load(options.model, options.device, dtype="float32")
    if options.what == "inputs":
        compare_inputs(lm, options.relations.split(","), options.dynamic)
    else:
        compare_openings(lm, options.dynamic)


if __name__ == "__main__":
    main()

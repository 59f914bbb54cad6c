"""Do heads carry the answer? Put what they give in one prompt into another, compare with random heads, say p.

1. Pairs (X, Y) of prompts that call for the same function: some with another answer, some with the same.
2. X is run, and z of all heads at its last token is kept. Y is run with z of the tested heads, at its last token,
   replaced by those of X.
3. Where the answer is another one, it should follow: `follows` is the mean change of log P(X's answer) − log P(Y's), in
   nats; `followed`, how often X's answer becomes likelier than Y's. Where it is the same, it should stay: `disturbs` is
   the mean change of log P(answer); below 0 is worse.
4. The same with random heads that are matched to them (`evidence.matching`). p: how often the answer follows these as
   much. low and high: the 95 % interval of `follows` beyond random heads; pairs with the same X are not independent.
5. outcome: supported, not supported or undecided.

Heads whose removal hurts need not carry an answer: they may relay, or keep the model in order. An answer is its first
token here. Tokens that all answers begin with, such as a space before digits, are counted to the prompts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from headatlas.errors import BadArgument, brief, check_count
from headatlas.evidence.control import TOP_SHARE, Heads, cached_by_heads, compare_with_random, top_heads
from headatlas.evidence.decide import UNDECIDED, decide_one
from headatlas.evidence.fresh_prompts import answers_apart, text_prompts
from headatlas.evidence.inference import detectable, interval
from headatlas.evidence.matching import match
from headatlas.evidence.replacing import generic_influence
from headatlas.models.hooks import head_mask, hooked
from headatlas.models.interventions import can_share
from headatlas.models.lm import LM
from headatlas.models.loading import load
from headatlas.models.log_probs import batches
from headatlas.models.memory import halve_batch_on_oom, tokens_at_once
from headatlas.models.packing import ROW, lay_out, logits_of
from headatlas.models.tokens import Bundle, TokenExample
from headatlas.tasks.bundles import held_out_bundles
from headatlas.tasks.labelled import named_task
from headatlas.tasks.prompts import list_tasks

PAIRS = 16  # maximum number of pairs of each kind
DRAWS = 59  # maximum number of draws of random heads
TEXTS = 40  # plain texts for generic influence
EXPECTED = "heads such as ['L12.H5', (3, 1)], a bool mask [layer, head], or a map as a labelled array (layer, head)"

RESULTS = ("follows", "followed", "disturbs", "low", "high", "p", "outcome", "reason", "matched")
Pairs = list[tuple[int, int]]
"""Numbers of the examples X and Y."""


@dataclass(frozen=True)
class Transferred:
    """What putting heads' outputs from one prompt into another did; NaN where there are no such pairs."""

    follows: float
    followed: float
    disturbs: float
    random_follows: np.ndarray  # [draw]
    random_disturbs: np.ndarray  # [draw]
    low: float
    high: float
    p: float
    outcome: str
    reason: str
    matched: str
    other_pairs: int
    same_pairs: int


def transfer(
    model: LM | str | Path,
    heads: Any,
    task: Any,
    *,
    n: int = PAIRS,
    draws: int = DRAWS,
    top: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_tokens: int | None = None,
) -> xr.Dataset:
    """Do heads carry the answer? Their outputs from one prompt are put into another that calls for another answer.

    Args:
        model: what `load` returned, or what it takes.
        heads: heads such as ['L12.H5', (3, 1)], a bool mask [layer, head], or a map: a labelled array (layer, head), of
            which the best heads are taken.
        task: a built-in task or relation, a file, or your examples. Its held-out examples are used.
        n: pairs of prompts with another answer, and with the same, at most so many each.
        draws: maximum number of draws of matched random heads. Drawing ends once five of them do as much.
        top: how many of a map's heads; by default 5 %.
        seed: of the pairs and the random heads.

    Returns:
        follows: mean change of log P(answer of the prompt they come from) − log P(the prompt's own answer), where these
        differ; followed: how often the first becomes likelier than the second. disturbs: mean change of log P(answer)
        where both have the same answer, NaN where no two have. random_follows and random_disturbs(draw): the same with
        random heads; low and high: the 95 % interval over pairs of follows beyond random heads; p: how often the answer
        follows these as much; outcome and reason: supported, not supported or undecided; matched: what random heads
        share with the moved ones. other_pairs, same_pairs: how many pairs. moved: names of the heads. Only the first
        token of an answer is looked at (docs/concepts/evidence.md).

    Example:
        >>> ha.transfer("smollm2", ["L12.H5", "L20.H3"], "math").follows
    """
    check_count("n", n, 1)
    check_count("draws", draws, 1)
    check_count("seed", seed, 0, 2**63 - 1)
    listed = list_tasks("task", task)
    if len(listed) != 1:
        raise BadArgument(f"task is {brief(task)}, {len(listed)} tasks, expected one")
    lm = model if isinstance(model, LM) else load(model, device)
    chosen = choose_heads(lm, heads, top)
    asked = named_task(lm, *listed[0])
    examples = [a for bundle in held_out_bundles(lm, asked, 2 * n) for a in bundle.examples]
    result = transfer_heads(lm, examples, chosen, n=n, draws=draws, seed=seed, tokens=batch_tokens)
    if not result.other_pairs:
        raise BadArgument(
            f"task {asked.name!r}: its {len(examples)} held-out answers begin alike, expected some that differ"
        )
    values = {name: getattr(result, name) for name in RESULTS}
    random = {name: ("draw", getattr(result, name)) for name in ("random_follows", "random_disturbs")}
    pairs = {name: getattr(result, name) for name in ("other_pairs", "same_pairs")}
    moved = [f"L{layer}.H{head}" for layer, head in chosen]
    attrs = {
        "model": lm.name,
        "fingerprint": lm.fingerprint(),
        "task": asked.name,
        "n": n,
        "draws": draws,
        "seed": seed,
    }
    return xr.Dataset(values | random | pairs, coords={"moved": moved}, attrs=attrs)


def transfer_heads(
    lm: LM,
    examples: Sequence[TokenExample],
    heads: Heads,
    *,
    n: int = PAIRS,
    draws: int = DRAWS,
    seed: int = 0,
    tokens: int | None = None,
    influence: np.ndarray | None = None,
) -> Transferred:
    """Move the outputs of heads between prompts, and those of random heads, a few draws at a time.

    influence: generic influence of each head [layer, head], which random heads are matched by (default: measured).
    """
    generator = np.random.default_rng(seed)
    examples = answers_apart(examples)
    other, same = draw_pairs(examples, n, generator)
    if not other:
        nothing = np.empty(0)
        missing = (np.nan,) * 3
        reason = "no two answers differ"
        return Transferred(*missing, nothing, nothing, *missing, UNDECIDED, reason, "", 0, len(same))
    if influence is None:
        influence = generic_influence(lm, text_prompts(lm, TEXTS).examples or examples, tokens)
    matched = match(heads, influence, lm.n_kv_heads, generator)
    z = last_outputs(lm, [a.prompt for a in examples], tokens)
    log_p = cached_by_heads(lambda sets: log_p_moved(lm, examples, [*other, *same], z, sets, tokens))
    before, after = log_p([[], heads])

    def changes(sets: Sequence[Heads]) -> np.ndarray:
        return np.asarray(log_p(sets) - before)

    drawn: list[Heads] = []

    def draw(_: Heads) -> Heads:
        drawn.append(matched.draw(generator))
        return drawn[-1]

    def effects(sets: Sequence[Heads]) -> np.ndarray:
        return _follows_and_disturbs(changes(sets), len(other))

    control = compare_with_random(effects, [heads], draw, draws=draws, direction="higher", draws_per_round=10)
    [(follows, disturbs)] = control.effect
    random = control.random_effect[0, : control.n_drawn[0]]
    ahead = [(values[:, 1] > values[:, 0])[: len(other)] for values in (before, after)]
    followed = (ahead[1] & ~ahead[0]).mean()
    beyond = (_leads(changes([heads]), len(other)) - _leads(changes(drawn), len(other)).mean(0))[0]
    # Pairs with the same prompt X put the same outputs into others.
    sources = [x for x, _ in other]
    low, high = map(float, interval(beyond, sources))
    p = float(control.p[0])
    seen = detectable(beyond, sources)
    outcome, reason = decide_one(p, low, len(random), n_sets=matched.n_sets, seen=seen)
    measured = (float(follows), float(followed), float(disturbs), random[:, 0], random[:, 1], low, high, p)
    return Transferred(*measured, outcome, reason, matched.text, len(other), len(same))


def _leads(change: np.ndarray, n_other: int) -> np.ndarray:
    """Return the change of log P(X's answer) − log P(Y's), [set, pair], for the pairs with another answer."""
    return np.asarray(change[:, :n_other, 1] - change[:, :n_other, 0])


def _follows_and_disturbs(change: np.ndarray, n_other: int) -> np.ndarray:
    """Return the means over pairs, [set, (follows, disturbs)], from the changes of log P [set, pair, (Y, X)]."""
    same = change[:, n_other:, 0]
    disturbs = same.mean(1) if same.shape[1] else np.full(len(change), np.nan)
    return np.stack([_leads(change, n_other).mean(1), disturbs], axis=1)


def draw_pairs(examples: Sequence[TokenExample], n: int, generator: np.random.Generator) -> tuple[Pairs, Pairs]:
    """Up to n pairs whose answers begin with another token, and up to n of other prompts with the same answer."""
    numbers = range(len(examples))
    every = [(x, y) for x in numbers for y in numbers if examples[x].prompt != examples[y].prompt]
    other = [(x, y) for x, y in every if examples[x].target[0] != examples[y].target[0]]
    same = [(x, y) for x, y in every if examples[x].target == examples[y].target]
    return _some(other, n, generator), _some(same, n, generator)


def _some(pairs: Pairs, n: int, generator: np.random.Generator) -> Pairs:
    return [pairs[i] for i in sorted(generator.permutation(len(pairs))[:n])]


def last_outputs(lm: LM, prompts: Sequence[tuple[int, ...]], tokens: int | None = None) -> Tensor:
    """z of all heads at the last token of each prompt: [prompt, layer, head, d_head]."""
    at_once = max(1, tokens_at_once(lm, tokens) // max(map(len, prompts)))
    return lm.head_outputs(prompts, "last", batch_size=at_once)[:, 0]


@torch.no_grad()
def log_p_moved(
    lm: LM,
    examples: Sequence[TokenExample],
    pairs: Pairs,
    z: Tensor,
    sets: Sequence[Heads],
    tokens: int | None = None,
) -> np.ndarray:
    """log P after prompt Y of the first answer token of Y, and of X, [set, pair, 2], with each set of heads giving at
    Y's last token what z [example, layer, head, d_head] has for X.

    A prompt is the same for all sets and all pairs it is in, so models that can be packed run it once, with a last
    token for each.
    """
    budget = tokens_at_once(lm, tokens)
    bundles: list[Bundle] = []
    places: list[Pairs] = []  # of each bundle's texts: set and pair
    for y in dict.fromkeys(y for _, y in pairs):
        example, shared = replace(examples[y], target=examples[y].target[:1]), len(examples[y].prompt) - 1
        wide = max(2 * ROW, 2 * shared)  # not wider: attention looks over all of a row
        together = max(1, min(wide, budget) - shared if can_share(lm, example, shared) else budget // len(example))
        texts = [(s, p) for p, (_, at) in enumerate(pairs) if at == y for s in range(len(sets))]
        for first in range(0, len(texts), together):
            places.append(texts[first : first + together])
            bundles.append(Bundle((example,) * len(places[-1]), shared))
    result = np.empty((len(sets), len(pairs), 2))
    for _, chosen in batches(bundles, 1, budget):
        texts = [place for i in chosen for place in places[i]]
        sources = [pairs[p][0] for _, p in texts]
        wanted = [[examples[i].target[0] for i in reversed(pairs[p])] for _, p in texts]
        with halve_batch_on_oom(lm, budget):
            logits = _logits(lm, [bundles[i] for i in chosen], z, sources, [sets[s] for s, _ in texts])
            log_p = logits.gather(1, torch.tensor(wanted, device=logits.device)) - logits.logsumexp(1, keepdim=True)
        result[tuple(np.transpose(texts))] = log_p.double().cpu().numpy()
    return result


def _logits(lm: LM, bundles: Sequence[Bundle], z: Tensor, sources: Sequence[int], sets: Sequence[Heads]) -> Tensor:
    """[text, vocabulary], after texts in which sets[n] give z[sources[n]] at the last token of text n."""
    layout = lay_out(lm, bundles)
    row, place, source = (torch.tensor(numbers) for numbers in (layout.rows, layout.places, sources))
    moved: dict[int, Pairs] = {}  # in each layer: text and head
    for text, heads in enumerate(sets):
        for layer, head in heads:
            moved.setdefault(layer, []).append((text, head))

    def edit(layer: int, now: Tensor) -> Tensor | None:
        if layer not in moved:
            return None
        text, head = torch.tensor(moved[layer]).T
        at = (row[text].to(now.device), place[text].to(now.device), head.to(now.device))
        return now.index_put(at, z[source[text], layer, head].to(now))

    with hooked(lm.model, lm.anatomy, edit):
        return logits_of(lm, layout, None)


def choose_heads(lm: LM, heads: Any, top: int | None) -> Heads:
    """The heads that are listed or marked, or the best of a map, best first."""
    is_map = isinstance(heads, xr.DataArray) and heads.dtype != bool
    if isinstance(heads, xr.DataArray):
        if set(heads.dims) != {"layer", "head"}:
            raise BadArgument(f"heads has dimensions {heads.dims}, expected a map with layer and head alone")
        heads = heads.transpose("layer", "head").values
    if not is_map:
        if top is not None:
            raise BadArgument(f"top is {brief(top)}, but heads is no map, a labelled array of scores: expected None")
        if not isinstance(heads, Iterable):
            raise BadArgument(f"heads is {brief(heads)}, expected {EXPECTED}")
        marked = head_mask(heads, lm.anatomy).nonzero().tolist()
        if not marked:
            raise BadArgument(f"heads is {brief(heads)}, which names none, expected {EXPECTED}")
        return [(layer, head) for layer, head in marked]
    if heads.shape != (lm.n_layers, lm.n_heads):
        raise BadArgument(f"heads has shape {heads.shape}, expected [layer, head] = {(lm.n_layers, lm.n_heads)}")
    known = int(np.isfinite(heads).sum())
    if not known:
        raise BadArgument("heads is a map without any finite score, expected at least one")
    number = max(1, round(TOP_SHARE * known)) if top is None else check_count("top", top, 1, known)
    return top_heads(heads, number)

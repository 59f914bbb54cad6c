"""streaming: measure what is lost when a KV head sees only the first and the last tokens.

1. Take texts whose end depends on tokens far back: passkeys in filler text, or the user's prompts and targets.
2. A KV head that streams sees the first `sink` tokens and the last `recent` ones. loss = the fall of log P per scored
   token when it alone streams (kind "one").
3. Or every KV head outputs α · full + (1 − α) · streaming attention, and α is fitted to be small while the last hidden
   states change little (kind "learned", as published).
4. Test: on other texts, the half of the KV heads that needs full attention least streams. So do random halves with the
   same number of KV heads in every layer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from headatlas.errors import check_choice, check_count, check_positive
from headatlas.methods._arguments import BatchTokens
from headatlas.methods._seeds import MAX_EXAMPLES, MAX_UPDATES
from headatlas.methods.method import Measure, Part, Truth, Variable, Work, lazily, method

if TYPE_CHECKING:
    from headatlas.methods.streaming.texts import Texts, Window
    from headatlas.models.lm import LM

KINDS = ("one", "learned")
DEFAULT_LIMITS = {"one": 2, "learned": 8}  # texts of each task, by kind
MAX_KEYS = 104  # passkeys in a text: combinations of a colour and a door
# option, minimum, maximum, reason for the maximum
LIMITS = (
    ("sink", 0, None, ""),
    ("recent", 1, None, ""),
    ("length", 1, None, ""),
    ("keys", 1, MAX_KEYS, "there are no more different doors"),
    ("limit", 2, MAX_EXAMPLES, "the map's reliability is measured between halves of them"),
    ("updates", 1, MAX_UPDATES, ""),
    ("held_out", 0, MAX_EXAMPLES, ""),
    ("draws", 1, MAX_EXAMPLES, ""),
)
MEANING = (
    "How much a head needs to see far back. Kind one: the log P per token that is lost when its KV head alone sees only"
    " the first and the last tokens. Kind learned: α of its KV head, 1 if it must see everything, 0 if it can stream."
    " Query heads that share a KV head have the same value."
)


@method(
    title="Streaming",
    measures=[
        Measure(
            "need",
            over="task",
            meaning=MEANING,
            label="need of full attention",
            repeats=("by_text", "text"),
            examples=("examples", "limit"),
            shared=True,
        )
    ],
    variables={
        "loss": Variable("loss", "nats", "Fall of log P per scored token when this KV head alone streams."),
        "gate": Variable("α", "", "Fitted α of a KV head: 1 must see everything, 0 can stream."),
        "distance": Variable(
            "distance", "", "Squared relative change of the last hidden states at each update of the fit."
        ),
        "baseline": Variable("log P per token", "nats", "Mean log P per scored token of the whole model."),
        "whole_accuracy": Variable(
            "accuracy", "share", "Share of scored tokens that the whole model finds most likely."
        ),
        "examples": Variable("texts", "texts", "Number of texts that the map is measured on."),
        "effect": Variable(
            "change", "nats", "Change of log P per token on other texts while the half with the lowest need streams."
        ),
        "random_effect": Variable("random halves", "nats", "The same change for each draw of random KV heads."),
        "rest_effect": Variable("other half", "nats", "The same change while the other half of the KV heads streams."),
        "all_effect": Variable("all", "nats", "The same change while all KV heads stream."),
        "p": Variable("p", "", "Share of random halves that lose as little, the tested half included."),
        "beyond_low": Variable(
            "lower end", "nats", "Lower end of the 95 % interval over texts of the change beyond random halves."
        ),
        "beyond_high": Variable("upper end", "nats", "Upper end of the same interval."),
        "detectable": Variable("detectable", "nats", "Change that the test would have seen with 80 % probability."),
        "outcome": Variable("outcome", "", "Whether the half loses less than random ones: supported, not supported, …"),
        "reason": Variable("reason", "", "The reason for the outcome."),
        "n_removed": Variable("heads", "KV heads", "Number of KV heads that stream in the test."),
    },
    presets={"full": {"length": 2048, "limit": 8, "held_out": 4, "draws": 99}},
    finds="which KV heads must see far back, and which need only the first and the last tokens",
    misses="what they read there; other texts may need other heads",
    cites=("DuoAttention, Xiao et al., ICLR 2025, arXiv 2410.10819",),
    sentences=lazily("headatlas.methods.streaming.halves:sentences"),
    truths={"streaming": Truth("copying", "need", {"limit": 8, "held_out": 0})},
    seconds=130,
    exports=("duo-attention",),
    in_parts=True,
)
def streaming(
    lm: LM,
    tasks: Annotated[
        Any, "your long texts: tasks with prompt and target (default: built-in texts with passkeys)"
    ] = None,
    *,
    kind: Annotated[
        Literal["one", "learned"], "let each KV head stream alone, or fit α of all of them together, as published"
    ] = "one",
    sink: Annotated[
        int | None, "number of first tokens that a streaming head sees (default: a quarter of recent)"
    ] = None,
    recent: Annotated[
        int | None, "number of last tokens that a streaming head sees (default: an eighth of the longest text)"
    ] = None,
    length: Annotated[int, "tokens of a text with passkeys, at most the model's context"] = 384,
    keys: Annotated[int, "maximum number of passkeys in a text; short texts have fewer"] = 8,
    limit: Annotated[
        int | None, "maximum number of texts of each task (default: 2 for kind one, 8 for kind learned)"
    ] = None,
    updates: Annotated[int, "number of updates of the fit of kind learned, each on one text"] = 40,
    strength: Annotated[float, "λ of kind learned, the pressure on α"] = 0.05,
    lr: Annotated[float, "learning rate of α in kind learned"] = 0.1,
    held_out: Annotated[int, "maximum number of other texts of each task to test the map on; 0: no test"] = 2,
    draws: Annotated[int, "number of random halves of the KV heads that the test compares with"] = 20,
    batch_tokens: BatchTokens = None,
) -> Work:
    """Measure what is lost when KV heads see only the first and the last tokens.

    Returns:
        need(task, layer, head), how much the head's KV head needs to see far back. Kind one: loss(task, layer,
        kv_head), the fall of log P per scored token when it alone streams, and the reliability of need.
        Kind learned: gate(task, layer, kv_head), α; distance(task, update), the relative change of the last hidden
        states. baseline(task) and whole_accuracy(task), the whole model's log P of scored tokens, and the share of them
        that it finds most likely; examples(task). On held-out texts, changes of log P per scored token: effect(task)
        while the half of the KV heads that needs full attention least streams, and n_removed(task), their number;
        random_effect(task, draw), with random halves; rest_effect(task), with the other half; all_effect(task), with
        all; p(task), the share of random halves that lose as little, and p_corrected(task);
        beyond_low and beyond_high(task), the 95 % interval over texts beyond random halves; outcome and reason(task).

    Example:
        >>> ha.streaming("smollm2", kind="learned").gate.sel(task="passkeys")
    """
    from headatlas.methods.streaming import compute, halves
    from headatlas.methods.streaming.texts import load_texts

    check_choice("kind", kind, KINDS)
    fitting = {"updates": updates, "strength": strength, "lr": lr}
    sizes: dict[str, Any] = {"length": length, "keys": keys, "sink": sink, "recent": recent, "held_out": held_out}
    sizes["limit"] = DEFAULT_LIMITS[kind] if limit is None else limit
    _check_numbers({**sizes, **fitting, "draws": draws})
    all_texts, window, used = load_texts(lm, tasks, **sizes)
    common = {"window": window, "batch_tokens": batch_tokens}
    parts: list[Part] = []
    maps: dict[str, dict[str, list[int]]] = {}
    tests: dict[str, str] = {}
    for texts in all_texts:
        maps[texts.name] = compute.layers_by_array(lm, texts.name, kind)
        parts += compute.map_parts(kind, maps[texts.name], {**common, "texts": texts.measured}, fitting)
        if held_out:
            test = halves.test_part(texts.name, maps[texts.name], draws, {**common, "texts": texts.held_out})
            tests[texts.name] = test.name
            parts.append(test)
    return Work(
        summary=_summary(all_texts, window, kind),
        combine=compute.combine,
        arguments={"maps": maps, "tests": tests, "learned": kind == "learned"},
        parts=parts,
        data=hashlib.sha256(repr(all_texts).encode()).hexdigest()[:16],
        settings={"kind": kind, **asdict(window), **(fitting if kind == "learned" else {})},
        result_settings={"held_out": held_out, "draws": draws},
        used=used,
    )


def _summary(texts: Sequence[Texts], window: Window, kind: str) -> str:
    longest = max(t.longest for t in texts)
    return (
        f"{', '.join(t.name for t in texts)}: {len(texts[0].measured)} texts of up to {longest} tokens, {kind},"
        f" streaming heads see the first {window.sink} and last {window.recent} tokens"
    )


def _check_numbers(options: Mapping[str, Any]) -> None:
    for name, *limits in LIMITS:
        if options[name] is not None:
            check_count(name, options[name], *limits)
    for name in ("strength", "lr"):
        check_positive(name, options[name])

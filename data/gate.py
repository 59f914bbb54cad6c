"""Write the gate tasks: mathematics, syntax and common sense, one JSON Lines file each.

Every line holds a prompt, its only right target, the kind and the split. Examples that share a key (a content word; the
operands in arithmetic; the question in common sense) are in the same split.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from word_lists import capital, read_lists, rows

words = read_lists("gate")
SEED = 2026
HELD_OUT = 0.25
LETTERS = "ABCD"
SPLITS = ("train", "held_out")
Rng = random.Random


@dataclass(frozen=True)
class Example:
    """One example. form: the sentence pattern within the kind. keys: what must not occur in both splits."""

    kind: str
    form: str
    prompt: str
    target: str
    keys: frozenset[str]
    split: str = ""


def split_pairs(text: str) -> list[list[str]]:
    """Split 'walk/walked eat/ate' into [['walk', 'walked'], ['eat', 'ate']]."""
    return [item.split("/") for item in text.split()]


# ---------------------------------------------------------------------------------------------------------------- math


def arithmetic(kind: str, prompt: str, value: int, numbers: Iterable[int]) -> Example:
    return Example(kind, kind, f"{prompt} =", f" {value}", frozenset([" ".join(map(str, sorted(numbers)))]))


def one_digit() -> Iterator[Example]:
    digits = range(1, 10)
    for a in digits:
        for b in digits:
            yield arithmetic("sum_1", f"{a} + {b}", a + b, (a, b))
            if a >= b:
                yield arithmetic("difference_1", f"{a} - {b}", a - b, (a, b))
            if min(a, b) > 1:
                yield arithmetic("product", f"{a} * {b}", a * b, (a, b))


def two_digits(rng: Rng, count: int) -> Iterator[Example]:
    pairs = [(a, b) for a in range(11, 90) for b in range(11, a)]
    sums = rng.sample([(a, b) for a, b in pairs if a + b < 100], count)
    for a, b in sums:
        a, b = rng.sample((a, b), 2)
        yield arithmetic("sum_2", f"{a} + {b}", a + b, (a, b))
    for a, b in rng.sample([(a, b) for a, b in pairs if a - b >= 10], count):
        yield arithmetic("difference_2", f"{a} - {b}", a - b, (a, b))


def two_step(rng: Rng, count: int) -> Iterator[Example]:
    seen: set[tuple[int, ...]] = set()
    while len(seen) < count:
        a, b, c = (rng.randint(1, 9) for _ in range(3))
        first, second = rng.choice(("+-", "-+", "++"))
        half = a + b if first == "+" else a - b
        value = half - c if second == "-" else half + c
        triple = tuple(sorted((a, b, c)))
        if half > 0 and value > 0 and triple not in seen:
            seen.add(triple)
            yield arithmetic("two_step", f"{a} {first} {b} {second} {c}", value, triple)


def evaluate(formula: str, numbers: dict[str, int]) -> int | None:
    """Evaluate the formula of a word problem. Returns None unless every intermediate result is a positive integer."""
    if formula == "(a+b)/2":
        half, rest = divmod(numbers["a"] + numbers["b"], 2)
        return half if rest == 0 and numbers["a"] != numbers["b"] else None
    value, sign = 0, 1
    for term in formula.replace("-", "+-").split("+"):
        sign, names = (-1, term[1:]) if term.startswith("-") else (1, term)
        if "/" in names:
            part, rest = divmod(numbers[names[0]], numbers[names[2]])
            if rest or part < 2:
                return None
        elif "*" in names:
            part = numbers[names[0]] * numbers[names[2]]
        else:
            part = numbers[names]
        value += sign * part
        if value <= 0:
            return None
    return value


def word_problems(kind: str, templates: dict[str, str], rng: Rng, count: int) -> Iterator[Example]:
    """Make word problems whose sentences, people, objects and numbers all differ between the splits."""
    seen: set[tuple[int, ...]] = set()
    for split, share in zip(SPLITS, (1 - HELD_OUT, HELD_OUT), strict=True):
        lines = [line.split("|") for line in templates[split].strip().splitlines()]
        names, objects = words.NAMES[split].split(), words.OBJECTS[split].split()
        n_made = 0
        while n_made < count * share:
            sentence, formula = lines[n_made % len(lines)]
            factors = "*" in formula or "/" in formula
            numbers = {name: rng.randint(2, 9 if factors else 15) for name in "abc" if f"{{{name}}}" in sentence}
            if formula == "a/b":
                numbers["a"] = numbers["b"] * rng.randint(2, 9)
            value = evaluate(formula, numbers)
            operands = tuple(sorted(numbers.values()))
            if value is None or operands in seen:
                continue
            seen.add(operands)
            n_made += 1
            person, other = rng.sample(names, 2)
            text = sentence.format(n=person, m=other, o=rng.choice(objects), **numbers)
            yield Example(
                kind, formula, f"{text} Answer:", f" {value}", frozenset([" ".join(map(str, operands))]), split
            )


def math(rng: Rng) -> Iterator[Example]:
    yield from one_digit()
    yield from two_digits(rng, 80)
    yield from two_step(rng, 80)
    yield from word_problems("word_1", words.WORD_1, rng, 88)
    yield from word_problems("word_2", words.WORD_2, rng, 88)


# -------------------------------------------------------------------------------------------------------------- syntax


def sentence(kind: str, form: str, prompt: str, target: str, extra_keys: Iterable[str] = ()) -> Example:
    """Make an example. Its keys are its words, without those of the sentence patterns, and those of `extra_keys`."""
    keys = set(re.findall(r"[a-z']+", f"{prompt} {target}".lower())) - set(words.FRAME.split())
    return Example(kind, form, prompt, f" {target}", frozenset({*keys, *extra_keys}))


def choice_text(first: str, second: str, swap: bool) -> str:
    """Format the two forms to choose from, at the start of a prompt: 'is/are:'."""
    return f"{second}/{first}:" if swap else f"{first}/{second}:"


def agreement(rng: Rng) -> Iterator[Example]:
    forms = [("is", "are"), ("was", "were"), ("has", "have")]
    for number, (heads, preposition, other_nouns) in enumerate(rows(words.AGREEMENT_NOUNS)):
        head, other = heads.split("/"), other_nouns.split("/")
        for is_plural in (0, 1):
            # The distractor has the other number, so the nearest noun misleads.
            subject = f"The {head[is_plural]} {preposition} the {other[1 - is_plural]}"
            pair = forms[(number + is_plural) % len(forms)]
            prompt = f"{choice_text(*pair, swap=rng.random() < 0.5)} {subject}"
            yield sentence("agreement", "attractor", prompt, pair[is_plural], extra_keys=(head[0], other[0]))
    for number, (verbs, nouns) in enumerate(rows(words.AGREEMENT_VERBS)):
        (base, third), (singular, plural_form) = verbs.split("/"), nouns.split("/")
        first, second = (
            ((plural_form, base), (singular, third)) if number % 2 else ((singular, third), (plural_form, base))
        )
        prompt = f"The {first[0]} often {first[1]}. The {second[0]} often"
        yield sentence("agreement", "verb", prompt, second[1], extra_keys=(base, singular))


def tense() -> Iterator[Example]:
    for number, (base, past) in enumerate(split_pairs(words.PAST)):
        subject = ("I", "they", "we")[number % 3]
        yield sentence("tense", "past", f"Today {subject} {base}. Yesterday {subject}", past)


def plural() -> Iterator[Example]:
    for singular, plural_form in split_pairs(words.PLURALS):
        yield sentence("plural", "plural", f"one {singular}, two", plural_form)


OBJECT = {"I": "me", "he": "him", "she": "her", "we": "us", "they": "them"}


def pronoun(rng: Rng) -> Iterator[Example]:
    genders = [
        (words.FEMALE, "herself her hers"),
        (words.MALE, "himself him his"),
        (words.MANY, "themselves them theirs"),
    ]
    solitary_acts = [act for (act,) in rows(words.ALONE)]
    belongings = words.BELONGINGS.split()
    reactions = [r for (r,) in rows(words.REACTIONS)]
    for nouns, pronouns in genders:
        reflexive, accusative, possessive = pronouns.split()
        for noun in nouns.split():
            subject = f"{'my' if noun in words.RELATIVES.split() else 'the'} {noun}"
            reaction = rng.choice(reactions)
            if nouns == words.MANY:
                reaction = reaction.replace("was ", "were ")
            # "girls" and "girl" are one key: a plural made by rule or by a changed vowel is the same word.
            keys = frozenset([{"men": "man", "women": "woman"}.get(noun, noun.removesuffix("s"))])
            texts = {
                "reflexive": (f"{capital(subject)} {rng.choice(solitary_acts)} all by", reflexive),
                "object": (f"{capital(subject)} {reaction}", accusative),
                "possessive": (
                    f"It is not my {rng.choice(belongings)}. {capital(subject)} said it was",
                    possessive,
                ),
            }
            # Two of the three for each noun, or the kind would outgrow the others.
            for form in rng.sample(sorted(texts), 2):
                text, target = texts[form]
                yield Example("pronoun", form, text, f" {target}", keys)
    people = [(a, b) for a in OBJECT for b in OBJECT if a != b]
    rng.shuffle(people)
    for (base, third), (a, b) in zip(split_pairs(words.MUTUAL), people, strict=False):
        first, second = (third if who in ("he", "she") else base for who in (a, b))
        text = f"{capital(a)} {first} {OBJECT[b]} and {b} {second}"
        yield Example("pronoun", "mutual", text, f" {OBJECT[a]}", frozenset([base]))


def negation() -> Iterator[Example]:
    for form, text in (("be", words.NEGATION_BE), ("auxiliary", words.NEGATION_AUX)):
        for subject, auxiliary, rest in rows(text):
            prompt = f"Yes: {subject} {auxiliary} {rest}. No: {subject}"
            yield sentence("negation", form, prompt, f"{auxiliary} not")
    for subject, verb, base, rest in rows(words.NEGATION_DO):
        third = subject in ("She", "He", "It") or (
            subject not in ("I", "You", "We", "They") and not subject.endswith("s")
        )
        auxiliary = "does" if verb != base and verb.endswith("s") and third else "do" if verb == base else "did"
        prompt = f"Yes: {subject} {verb} {rest}. No: {subject}"
        yield sentence("negation", "do", prompt, f"{auxiliary} not", extra_keys=[base])


def question() -> Iterator[Example]:
    for subject, auxiliary, rest in rows(words.QUESTION_INVERSION):
        prompt = f"{capital(subject)} {auxiliary} {rest}. {capital(auxiliary)}"
        yield sentence("question", "inversion", prompt, f"{subject} {rest}")
    for subject, verb, rest, opening, base in rows(words.QUESTION_DO):
        prompt = f"{capital(subject)} {verb} {rest}. {opening} {subject}"
        yield sentence("question", "do", prompt, base)
    for subject, verb, tag, answer in rows(words.QUESTION_TAG):
        yield sentence("question", "tag", f"{subject} {verb}, {tag}", answer)
    for subject, auxiliary, rest in rows(words.QUESTION_WHETHER):
        prompt = f"I ask whether {subject} {auxiliary} {rest}:"
        yield sentence("question", "whether", prompt, f"{capital(auxiliary)} {subject} {rest}?")


def minimal_pair_forms() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the phenomenon, the two forms, and the two texts that require the first and the second form."""
    for forms, start, first_end, second_end in rows(words.PAIR_DETERMINER):
        yield "determiner", *forms.split("/"), f"{start} {first_end}", f"{start} {second_end}"
    for name, text in (("modal", words.PAIR_MODAL), ("gerund", words.PAIR_GERUND), ("adverb", words.PAIR_ADVERB)):
        for forms, start, first_end, second_end in rows(text):
            yield name, *forms.split("/"), f"{start} {first_end}", f"{start} {second_end}"
    for name, text in (("participle", words.PAIR_PARTICIPLE), ("degree", words.PAIR_DEGREE), ("case", words.PAIR_CASE)):
        for forms, context in rows(text):
            start, _, ends = context.rpartition(" ")
            first_end, second_end = ends.split("/")
            yield name, *forms.split("/"), f"{start} {first_end}", f"{start} {second_end}"
    for verb in words.PAIR_POLARITY.split():
        yield "polarity", "something", "anything", f"Everybody {verb}", f"Nobody {verb}"
    for mass, count in split_pairs(words.PAIR_COUNT):
        yield "count", "much", "many", f"{mass}? Not too", f"{count}? Not too"


def minimal_pair(rng: Rng) -> Iterator[Example]:
    for phenomenon, first, second, first_text, second_text in minimal_pair_forms():
        start = choice_text(first, second, swap=rng.random() < 0.5)
        for form, text in ((first, first_text), (second, second_text)):
            yield sentence(
                "minimal_pair", phenomenon, f"{start} {text}", form, extra_keys=[f"{first_text} {second_text}"]
            )
    for nouns, start, rest in rows(words.PAIR_ANAPHOR):
        reflexives = ("himself", "themselves" if nouns.endswith("s") and "ess" not in nouns else "herself")
        for noun, form in zip(nouns.split("/"), reflexives, strict=True):
            yield sentence("minimal_pair", "anaphor", f"{start} {noun} {rest}", form, extra_keys=[nouns])


def syntax(rng: Rng) -> Iterator[Example]:
    yield from agreement(rng)
    yield from tense()
    yield from plural()
    yield from pronoun(rng)
    yield from negation()
    yield from question()
    yield from minimal_pair(rng)


# --------------------------------------------------------------------------------------------------------- commonsense


@dataclass(frozen=True)
class Question:
    kind: str
    form: str
    text: str
    right: str
    wrong: tuple[str, ...]
    key: str


def questions_from_groups(
    kind: str, pattern: str, groups: dict[str, str], clash: dict[str, str], rng: Rng
) -> Iterator[Question]:
    """Make a question for each item, with wrong options drawn from the answers that do not clash with the right one."""
    for answer, items in groups.items():
        clashing = [other for (other,) in rows(clash.get(answer, ""))]
        if not groups.keys() >= set(clashing):
            raise ValueError(f"{kind}: {answer} clashes with {clashing}, not all of them answers")
        allowed = [other for other in groups if other not in (answer, *clashing)]
        similar = [other for other in allowed if other.split()[0] == answer.split()[0] in ("it", "you")]
        for (item,) in rows(items):
            # Options that begin like the right one come first: for a thing, "you laugh" is too easily ruled out.
            first = rng.sample(similar, len(similar))
            count = len(LETTERS) - 1
            wrong = [*first, *rng.sample([o for o in allowed if o not in similar], len(allowed) - len(similar))][:count]
            yield Question(kind, pattern, pattern.format(item), answer, tuple(wrong), item)


def sequence_neighbours(rng: Rng) -> Iterator[Question]:
    for noun, text in words.SEQUENCES.items():
        names = text.split()
        for index, name in enumerate(names):
            for step, word in ((1, "after"), (-1, "before")):
                right = names[(index + step) % len(names)]
                wrong = rng.sample([n for n in names if n not in (name, right)], len(LETTERS) - 1)
                yield Question("order", noun, f"Which {noun} comes right {word} {name}?", right, tuple(wrong), name)


def processes() -> Iterator[Question]:
    for line in words.PROCESSES.strip().splitlines():
        title, _, text = line.partition(": ")
        steps = [step for (step,) in rows(text)]
        yield Question("order", "process", f"{title}: what comes first?", steps[0], tuple(steps[1:]), title)
        yield Question("order", "process", f"{title}: what comes last?", steps[-1], tuple(steps[:-1]), title)


def questions(rng: Rng) -> Iterator[Question]:
    yield from questions_from_groups("place", "Where do you usually find {}?", words.PLACE, words.PLACE_CLASH, rng)
    yield from questions_from_groups("purpose", "What is the use of {}?", words.PURPOSE, words.PURPOSE_CLASH, rng)
    yield from questions_from_groups("property", "What is {} like?", words.PROPERTY, words.PROPERTY_CLASH, rng)
    yield from questions_from_groups("cause", "What happens if you {}?", words.CAUSE, words.CAUSE_CLASH, rng)
    yield from sequence_neighbours(rng)
    yield from processes()
    yield from questions_from_groups("social", "What do you say when {}?", words.SAYING, words.SAYING_CLASH, rng)
    yield from questions_from_groups("social", "How do you feel when {}?", words.FEELING, words.FEELING_CLASH, rng)
    yield from questions_from_groups("material", "What is {} made of?", words.MATERIAL, words.MATERIAL_CLASH, rng)
    yield from questions_from_groups("part", "What is {} a part of?", words.PART, words.PART_CLASH, rng)


def commonsense(rng: Rng) -> Iterator[Example]:
    """Make questions with four options; right letters are spread evenly within each kind and split."""
    all_questions = list(questions(rng))
    # Split before the letters are dealt, so that both splits are balanced.
    split_examples = split([Example(q.kind, q.form, q.text, q.right, frozenset([q.key])) for q in all_questions], rng)
    decks: dict[tuple[str, str], list[str]] = {}
    for question, example in zip(all_questions, split_examples, strict=True):
        deck = decks.setdefault((example.kind, example.split), [])
        if not deck:
            deck += rng.sample(LETTERS, len(LETTERS))
        letter = deck.pop()
        options = rng.sample(question.wrong, len(question.wrong))
        options.insert(LETTERS.index(letter), question.right)
        option_lines = "\n".join(f"{name}. {option}" for name, option in zip(LETTERS, options, strict=True))
        prompt = f"{question.text}\n{option_lines}\nAnswer:"
        yield Example(example.kind, example.form, prompt, f" {letter}", example.keys, example.split)


# --------------------------------------------------------------------------------------------------- splits and output


def split(examples: list[Example], rng: Rng) -> list[Example]:
    """Hold out a quarter of every form of every kind; examples with a common key stay together."""
    parent = {key: key for e in examples for key in ((e.kind, k) for k in e.keys)}

    def root(key: tuple[str, str]) -> tuple[str, str]:
        while parent[key] != key:
            key = parent[key]
        return key

    for e in examples:
        first_key, *other_keys = sorted(e.keys)
        for key in other_keys:
            parent[root((e.kind, key))] = root((e.kind, first_key))
    roots = [root((e.kind, min(e.keys))) for e in examples]
    size = Counter((e.kind, e.form) for e in examples)
    held_out_counts: Counter[tuple[str, str]] = Counter()
    split_of_root: dict[tuple[str, str], str] = {}
    roots_in_order = sorted(set(roots))
    rng.shuffle(roots_in_order)
    members: dict[tuple[str, str], Counter[tuple[str, str]]] = {r: Counter() for r in roots_in_order}
    for e, r in zip(examples, roots, strict=True):
        members[r][e.kind, e.form] += 1
    for r in roots_in_order:
        has_room = all(
            held_out_counts[form] + count <= round(HELD_OUT * size[form]) for form, count in members[r].items()
        )
        split_of_root[r] = "held_out" if has_room else "train"
        if has_room:
            held_out_counts.update(members[r])
    return [
        Example(e.kind, e.form, e.prompt, e.target, e.keys, e.split or split_of_root[r])
        for e, r in zip(examples, roots, strict=True)
    ]


TASKS: dict[str, Callable[[Rng], Iterator[Example]]] = {"math": math, "syntax": syntax, "commonsense": commonsense}


def build(name: str) -> list[Example]:
    """Build the examples of a task, each with its split."""
    # A separate generator for each task, so that one can grow without changing the others.
    rng = Rng(f"{SEED} {name}")
    examples = split(list(TASKS[name](rng)), rng)
    check(name, examples)
    return examples


def check(name: str, examples: list[Example]) -> None:
    """Check that prompts are unique and end without a space, targets begin with one, and splits share no key."""
    repeated = [prompt for prompt, count in Counter(e.prompt for e in examples).items() if count > 1]
    spaces = [e.prompt for e in examples if e.prompt != e.prompt.strip() or e.target != f" {e.target.strip()}"]
    keys = {s: {(e.kind, key) for e in examples if e.split == s for key in e.keys} for s in SPLITS}
    leaked_keys = keys["train"] & keys["held_out"]
    if repeated or spaces or leaked_keys:
        raise ValueError(
            f"{name}: repeated prompts {repeated}, wrong spaces {spaces}, keys in both splits {leaked_keys}"
        )


def to_json_lines(examples: list[Example]) -> str:
    fields = ("prompt", "target", "kind", "split")
    lines = (json.dumps({field: getattr(e, field) for field in fields}, ensure_ascii=False) for e in examples)
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    """Return the text of each file by name."""
    return {f"{name}.jsonl": to_json_lines(build(name)) for name in TASKS}

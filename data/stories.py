"""The stories: main questions broken into sub-questions, one cognitive function each.

A probe of cognitive functions is worth nothing if the function can be read off the wording, so every sub-question is a
form ("How many pens does Ann have?") that several functions share; the main question decides which function it calls
for: a stated number is retrieved, "three boxes of twelve" is calculated, "as many as a spider has legs" is recalled, "a
dozen" is understood. Names, numbers and things are drawn; what is drawn next is what makes functions and forms most
even.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from word_lists import Person, capital, read_lists, rows

words = read_lists("stories")
# What many forms have in common stands there by its name.
words.FORMS = {n: {k: getattr(words, v, v) for k, v in form.items()} for n, form in words.FORMS.items()}

SEED = 2026
MAIN = 416
HELD_OUT = 0.25
TRIES = 2500  # draws for one main question at most; most are too long or ask a slot for what it cannot carry
ENOUGH = 30  # of which so many that fit are compared
DRESSED = 0.9  # of the facts are told as something someone knows or says
WAY_WEIGHT = 0.15  # ways of reasoning are far fewer than forms, so their counts are larger
MAIN_WORDS = (15, 65)
FACT_WORDS = 43  # all facts together
FULL_WORDS = 39  # up to this length of all facts they are dressed up and asides are added
SUB_WORDS = (4, 16)
ANSWER_WORDS = (1, 9)

R, K, SEM, SYN = "Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding"
M, INF, LOG, DEC = "Math Calculation", "Inference", "Logical Reasoning", "Decision-making"
LOWER = (R, K, SEM, SYN)
HIGHER = (M, INF, LOG, DEC)
FUNCTIONS = LOWER + HIGHER

Rng = random.Random
Row = list[str]

# What the weather or a person does decides in rules: if | it happens | it does not.
CONDITIONS = [
    ("it rains", "It is raining", "It stays dry"),
    ("the bell rings", "The bell rings", "The bell stays silent"),
    ("it snows", "It is snowing", "There is no snow"),
]
# Forms whose D question may be asked as a plain "does", because the verb is itself a choice.
ACTS = ("buy", "bus", "vehicle", "food", "animal", "pay")


# "Whose tent should they use?" asks for a choice; after a mere clue one can only say whose they will use.
AUXILIARIES = {INF: ["will"], DEC: ["should", "should", "should", "will"]}


@dataclass(frozen=True)
class Item:
    """What one slot adds: a sentence or two to the main question, and the sub-question it answers.

    `ask` is the same question in the open wording, for the end of the main question.
    """

    function: str
    form: str
    text: str
    question: str
    short: str
    sentence: str
    ask: str
    ask_short: str
    turned: tuple[str, str, str] | None = None  # a yes/no question put the other way: question, short, sentence


@dataclass
class Scene:
    """The people of one main question."""

    rng: Rng
    a: Person
    b: Person
    c: Person
    relation: str

    def pair(self) -> tuple[Person, Person]:
        return (self.a, self.b) if self.rng.random() < 0.5 else (self.b, self.a)


def stop(text: str) -> str:
    text = capital(text.strip())
    return text if text[-1] in ".?!" else text + "."


def articles(text: str) -> str:
    """'a emerald' to 'an emerald'."""
    return re.sub(r"\b([Aa]) (?=[aeiou])(?!one\b|uni|use|eu)", r"\1n ", text)


def count_words(text: str) -> int:
    return len(text.split())


def calculated(formula: str, a: int, b: int) -> int:
    return {"a+b": a + b, "a-b": a - b, "a*b": a * b}[formula]


def operands(rng: Rng, formula: str, low: int, high: int) -> tuple[int, int] | None:
    """Two small numbers whose result lies between the limits; None where the draw found none."""
    for _ in range(60):
        if formula == "a*b":
            a, b = rng.randint(2, 12), rng.randint(2, 5)
        elif formula == "a+b":
            a, b = rng.randint(2, 40), rng.randint(2, 15)
        else:
            a, b = rng.randint(5, 50), rng.randint(2, 15)
        if low <= calculated(formula, a, b) <= high and a != b:
            return a, b
    return None


# -------------------------------------------------------------------------------------------------- one person's value

KNOWN_NUMBERS = [int(row[0]) for row in rows(words.NUMBERS_KNOWN) + rows(words.NUMBERS_SENSE)]


def draw_number(rng: Rng, low: int, high: int) -> int:
    """Half of the numbers are such as knowledge and word meaning give too, or a 12 would tell the function."""
    known = [n for n in KNOWN_NUMBERS if low <= n <= high]
    return rng.choice(known) if known and rng.random() < 0.5 else rng.randint(low, high)


def other_number(rng: Rng, v: int, low: int, high: int) -> int:
    return rng.choice([n for n in range(max(low, v - 7), min(high, v + 7) + 1) if n != v])


def value_item(scene: Scene, name: str, fill: str, function: str) -> Item | None:
    """A question about one person's value, the value hidden in the way the function asks for."""
    form, rng = words.FORMS[name], scene.rng
    p, q = scene.pair()
    x, _, x3 = fill.partition("/")
    numeric = "low" in form
    low, high = map(int, form["low"].split()) if numeric else (0, 0)
    values = [row[0] for row in rows(form.get("values", ""))]
    must = "open_s" in form and function in (R, SYN, LOG, K, SEM, DEC) and rng.random() < 0.5
    if function == DEC:
        must = name not in ACTS or rng.random() < 0.7
    if function in (K, SEM) and name in ("place",):
        must = False

    def fmt(template: str, **more: object) -> str:
        return template.format(p=p, q=q, x=x, x3=x3, **more)

    def says(v: object, third: str = "third", base: str = "base") -> str:
        """'has 12 pens', or 'should have 12 pens'."""
        template = form.get(third, form["third"]), form.get(base, form["base"])
        return "should " + fmt(template[1], v=v) if must else fmt(template[0], v=v)

    v: object = draw_number(rng, low, high) if numeric else rng.choice(values)
    w: object = other_number(rng, int(str(v)), low, high) if numeric else rng.choice([o for o in values if o != v])
    if function == R:
        text = rng.choice(rows(words.STATED))[0].format(p=p, q=q, v=says(v), w=says(w)) + "."
    elif function == SYN:
        text = rng.choice(
            [
                "{p}, whose {rel} {q} {w}, {v}.",
                "{q} tells {p} that {p.she} {v} and {q.she} {w}.",
                "{p}, who knows that {q} {w}, {v}.",
                "{q} is told by {p} that {p.she} {v} and {q.she} {w}.",
                "{q} tells {p} that {q.she} {w} and {p.she} {v}.",
                "{p} and {q} know that {p.she} {v} and {q.she} {w}.",
                "{p} knows {q}: {q.she} {w}, {p.she} {v}.",
            ]
        ).format(p=p, q=q, v=says(v), w=says(w), rel=scene.relation)
    elif function == LOG:
        group = rng.choice([row[0] for row in rows(words.GROUPS)])
        kind = rng.choice(["all", "all", "or", "if", "if", "if"] if "cond" in form else ["all", "all", "or"])
        if kind == "all":
            text = rng.choice(rows(words.ALL))[0].format(p=p, q=q, group=group, v=says(v)) + "."
        elif kind == "or":
            either = " or ".join(map(str, rng.sample([v, w], 2)))
            neg = fmt(form.get("neg", "but not {w}"), w=w)
            neg = neg.replace("but not", rng.choice(["but not", "and not", "and certainly not"]))
            text = f"{p} {says(either)}, {neg}."
        else:
            when, yes, no = rng.choice(CONDITIONS)
            first, second, is_so = (v, w, yes) if rng.random() < 0.5 else (w, v, no)
            text = f"If {when}, {p} {says(first)}; otherwise {p.she} {says(second)}. {is_so}."
    elif function in (K, SEM):
        key = "know" if function == K else "sense"
        table = [row for row in rows(form.get(key, "")) if not numeric or low <= int(row[0]) <= high]
        if not table:
            return None
        v, phrase = rng.choice(table)
        text = f"{p} {says(phrase, key + '_third', key + '_base' if key + '_base' in form else 'base')}."
        if must and key + "_third" in form and key + "_base" not in form:
            return None
        owned = re.fullmatch(r"(.+) (has|have) (\w+)", phrase)
        if owned and name != "floor" and rng.random() < 0.6:
            text = rng.choice(rows(words.COUNTED))[0].format(
                p=p, q=q, owner=owned[1], has=owned[2], parts=owned[3], v=says("that many")
            )
            text = stop(text)
    elif function == INF:
        if "clue" not in form:
            return None
        fits, clue = rng.choice(rows(form["clue"]))
        v = v if fits == "*" else fits
        text = stop(fmt(clue, v=v))
    elif function == M:
        if "more" not in form:
            return None
        sentence, formula = rng.choice(rows(form["more"]))
        drawn = operands(rng, formula, low, high)
        if drawn is None or (name == "clock" and drawn[0] > 12):
            return None
        v = calculated(formula, *drawn)
        text = stop(fmt(sentence, a=drawn[0], b=drawn[1]))
    else:
        if "pick" not in form:
            return None
        if numeric:
            v = max(int(str(v)), low + 3)
            lo, hi = rng.randint(max(low, v - 9), v - 2), v + rng.randint(4, 15)
            if name == "clock":
                v = rng.randint(3, 8)
                lo, hi = v - rng.randint(1, 2), v + rng.randint(1, 3)
            wrong, sentence = rng.choice(rows(form["pick"]))
            w = lo if wrong == "lo" else hi
            text = stop(goals(rng, fmt(sentence, v=v, lo=lo, hi=hi, need=v - 1)))
        else:
            good, bad, sentence = rng.choice(rows(form["pick"]))
            if good != "*":
                v, w = good, bad
            text = stop(goals(rng, fmt(sentence, v=v, w=w)))
    if str(v) == str(w) or (numeric and function in (K, SEM, M)):
        w = other_number(rng, int(str(v)), low, high) if numeric else rng.choice([o for o in values if o != v])

    ask = fmt(form["open_s"] if must else form["open"])
    short = capital(fmt(form.get("short", "{v}"), v=v))
    statement = f"{p} {says(v)}."
    variant = rng.choice(["open", "open", "open", "open", "yes", "no", "or", "or"])

    def closed(value: object) -> str:
        if must:
            return f"Should {p} {fmt(form['base'], v=value)}?"
        if form["third"].startswith("is "):
            return f"Is {p} {fmt(form['third'], v=value)[3:]}?"
        return f"Does {p} {fmt(form['base'], v=value)}?"

    turned = None
    if variant == "open":
        question, answer, sentence = ask, short, statement
    elif variant == "or":
        question, answer, sentence = closed(" or ".join(map(str, rng.sample([v, w], 2)))), short, statement
    else:
        question = closed(v if variant == "yes" else w)
        answer = capital(variant)
        sentence = f"{answer}, {statement}"
        other = "No" if variant == "yes" else "Yes"
        turned = closed(w if variant == "yes" else v), other, f"{other}, {statement}"
    wording = ("should-" if must else "") + ("yes/no" if variant in ("yes", "no") else variant)
    return Item(function, f"{name}:{wording}", text, question, answer, sentence, ask, short, turned)


# ------------------------------------------------------------------------------------------------ which of two people


def which(
    scene: Scene, right: Person, form: str, function: str, text: str, wordings: list[tuple[str, str, str]]
) -> Item:
    """An item whose answer is a person; every wording is (question, short answer, sentence), the first one open.

    A wording whose short answer is empty is a yes/no question about {one}; the sentence then follows the yes or no.
    """
    rng = scene.rng
    number = rng.randrange(len(wordings))
    question, short, sentence = wordings[number]
    if not short:
        answers = []
        for one, two in rng.sample([(scene.a, scene.b), (scene.b, scene.a)], 2):
            about = question.replace("{one}", str(one)).replace("{two}", str(two))
            short = "Yes" if one == right else "No"
            answers.append((about, short, f"{short}, {sentence}"))
        (question, short, sentence), turned = answers
    else:
        turned = None
    return Item(function, f"{form}:{number}", text, question, short, sentence, wordings[0][0], wordings[0][1], turned)


def goals(rng: Rng, text: str) -> str:
    """The same goal in other words: 'wants' alone would tell a choice."""
    text = re.sub(r"\bwants to\b", lambda _: rng.choice(words.WANTS_TO.split("; ")), text)
    text = re.sub(r"\bwants (?=an? |the |some |one )", lambda _: rng.choice(words.WANTS.split("; ")) + " ", text)
    return re.sub(r"\b(They|they) want to\b", lambda m: f"{m[1]} {rng.choice(words.WANT_TO.split('; '))}", text)


def two_orders(rng: Rng, first: str, second: str, middle: str) -> str:
    one, two = rng.sample([first, second], 2)
    return f"{one}{middle}{two}."


def compare_item(scene: Scene, name: str, fill: str, function: str) -> Item | None:
    """Whose thing is heavier; {p}'s always is the one that is more, the question may ask for either."""
    table, rng = words.COMPARE[fill], scene.rng
    thing, comp, inverse = table["head"].split("|")
    p, q = scene.pair()
    r = scene.c

    def own(person: Person) -> str:
        return f"{person}'s {thing}" if thing else str(person)

    def rest(person: Person) -> str:
        return f"{person}'s" if thing else str(person)

    adjective, right, less = (comp, p, q) if rng.random() < 0.6 else (inverse, q, p)
    if function == R:
        text = f"{own(right)} is {adjective} than {rest(less)}."
    elif function == SYN:
        if thing:
            told = f"{less} tells {right} that {right.his} {thing} is {adjective} than {less.hers}."
            tells = f"{right} tells {less} that {right.his} {thing} is {adjective} than {less.hers}."
        else:
            told = f"{less} tells {right} that {right.she} is {adjective} than {less.she} is."
            tells = f"{right} tells {less} that {right.she} is {adjective} than {less.she} is."
        cleft = f"It is {own(less)} that {rest(right)} is {adjective} than."
        text = rng.choice([told, tells, cleft] if thing else [told, tells])
    elif function == LOG:
        text = rng.choice(
            [
                f"{own(p)} is {comp} than {rest(r)}, and {rest(r)} is {comp} than {rest(q)}.",
                f"{own(q)} is {inverse} than {rest(r)}, and {rest(r)} is {inverse} than {rest(p)}.",
                f"{own(r)} is {inverse} than {rest(p)} but {comp} than {rest(q)}.",
            ]
        )
    elif function in (K, SEM):
        key = "know" if function == K else "sense"
        if key not in table:
            return None
        high, low = rng.choice(rows(table[key]))
        one, two = rng.sample([(p, high), (q, low)], 2)
        text = f"{own(one[0])} {one[1]}, and {rest(two[0])} {two[1]}."
    elif function == INF:
        text = stop(rng.choice(rows(table["clue"]))[0].format(p=p, q=q))
    elif function == M:
        sentence, formula = rng.choice(rows(table["more"]))
        drawn = operands(rng, formula, 12, 60)
        if drawn is None:
            return None
        total = calculated(formula, *drawn)
        # {p} has more or less than {q}, or the sum would always belong to the one who has more
        if rng.random() < 0.5:
            c = total - rng.randint(1, 6)
        else:
            c = total + rng.randint(1, 6)
            p, q = q, p
            adjective, right, less = (comp, p, q) if adjective == comp else (inverse, q, p)
        first, second = (p, q) if c < total else (q, p)
        text = stop(sentence.format(p=first, q=second, a=drawn[0], b=drawn[1], c=c))
    else:
        return None
    a, b = scene.pair()
    is_so = f"{own(right)} is {adjective}."
    if thing:
        wordings = [(f"Whose {thing} is {adjective}, {a}'s or {b}'s?", f"{right}'s", is_so)]
        if " " not in adjective:
            wordings.append((f"Who has the {adjective} {thing}, {a} or {b}?", str(right), is_so))
        wordings.append((f"Is {{one}}'s {thing} {adjective} than {{two}}'s?", "", is_so))
    else:
        wordings = [
            (f"Who is {adjective}, {a} or {b}?", str(right), is_so),
            (f"Which of the two is {adjective}, {a} or {b}?", str(right), is_so),
            (f"Is {{one}} {adjective} than {{two}}?", "", is_so),
        ]
    return which(scene, right, "compare" if thing else "compare people", function, text, wordings)


def rule(scene: Scene, first: tuple[str, str], second: tuple[str, str]) -> str:
    """'If it rains, <first>; otherwise <second>. It is raining.', the first being what follows.

    Either is given in full, and as it is said when the other went before.
    """
    when, yes, no = scene.rng.choice(CONDITIONS)
    if scene.rng.random() < 0.5:
        return f"If {when}, {first[0]}; otherwise {second[1]}. {yes}."
    return f"If {when}, {second[0]}; otherwise {first[1]}. {no}."


def whose_item(scene: Scene, name: str, thing: str, function: str) -> Item | None:
    """Whose of two things they take."""
    rng = scene.rng
    p, q = scene.pair()
    aux = rng.choice(AUXILIARIES.get(function, ["should", "will"]))
    verb, goal, good, bad = rng.choice(rows(words.WHOSE[thing]))
    if function == R:
        text = f"They {aux} {verb} {p}'s {thing}."
    elif function == SYN:
        text = rng.choice(
            [
                f"{q} tells {p} that they {aux} {verb} {p.his} {thing}, not {q.hers}.",
                f"{p} tells {q} that they {aux} {verb} {p.his} {thing}, not {q.hers}.",
            ]
        )
    elif function == LOG:
        text = rng.choice(
            [
                rule(
                    scene,
                    (f"they {aux} {verb} {p}'s {thing}", f"{p}'s"),
                    (f"they {aux} {verb} {q}'s {thing}", f"{q}'s"),
                ),
                f"They {aux} {verb} {p}'s {thing} or {q}'s, but not {q}'s.",
            ]
        )
    elif function == SEM:
        text = rng.choice(
            [
                f"{q}'s {thing} gets the thumbs down, and {p}'s gets the thumbs up.",
                f"They turn up their noses at {q}'s {thing} but jump at {p}'s.",
                f"{p}'s {thing} gets the green light, and {q}'s is ruled out.",
            ]
        )
    elif function == INF:
        text = rng.choice(
            [
                f"{q} puts {q.his} {thing} aside while {p} gets {p.hers} ready.",
                f"{p} grins, while {q} sulks and takes {q.his} {thing} home.",
            ]
        )
        if thing in ("car", "room", "boat", "plan", "song", "story"):
            text = f"{p} grins and gets {p.his} {thing} ready, while {q} sulks about {q.hers}."
    elif function == DEC:
        text = two_orders(rng, f"{p}'s {thing} {good}", f"{q}'s {thing} {bad}", ", and ")
        text = goals(rng, f"They want to {goal}: {text}")
    else:
        return None
    a, b = scene.pair()
    is_so = f"They {aux} {verb} {p}'s {thing}."
    wordings = [
        (f"Whose {thing} {aux} they {verb}, {a}'s or {b}'s?", f"{p}'s", is_so),
        (f"{capital(aux)} they {verb} {a}'s or {b}'s {thing}?", f"{p}'s", is_so),
        (f"{capital(aux)} they {verb} {{one}}'s {thing}?", "", "they" + is_so[4:]),
    ]
    return which(scene, p, "whose", function, text, wordings)


def did_item(scene: Scene, name: str, deed: str, function: str) -> Item | None:
    """Which of two people did something."""
    rng = scene.rng
    p, q = scene.pair()
    past, base, passive, clue, sense = rows(words.DID[deed])[0]
    if function == R:
        text = rng.choice([f"{p} {past}.", f"{p} {past} while {q} was out."])
    elif function == SYN:
        text = rng.choice(
            [
                f"{q} says that {passive} by {p}.",
                f"{q} tells {p} that {p.she} {past}, not {q.she}.",
                f"{p} tells {q} that {p.she} {past}, not {q.she}.",
                f"{capital(passive)} by {p}, whom {q} watched.",
            ]
        )
    elif function == LOG:
        text = rng.choice(
            [
                f"{scene.a} or {scene.b} {past}, but it was not {q}.",
                f"{rng.choice([f'{p} or {q}', f'{q} or {p}'])} {past}, and {q} was away all day.",
            ]
        )
    elif function == INF:
        text = stop(clue.format(p=p, q=q))
    elif function == SEM:
        text = stop(sense.format(p=p, q=q))
    else:
        return None
    a, b = scene.pair()
    is_so = f"{p} {past}."
    wordings = [
        (f"Who {past}, {a} or {b}?", str(p), is_so),
        (f"Was it {a} or {b} who {past}?", str(p), is_so),
        (f"Did {{one}} {base}?", "", is_so),
    ]
    return which(scene, p, "did", function, text, wordings)


def task_item(scene: Scene, name: str, task: str, function: str) -> Item | None:
    """Which of two people does a task."""
    rng = scene.rng
    p, q = scene.pair()
    aux = rng.choice(AUXILIARIES.get(function, ["should", "will"]))
    base, goal, good, bad, clue = rows(words.TASK[task])[0]
    if function == R:
        text = f"{p} {aux} {base}."
    elif function == SYN:
        text = rng.choice(
            [
                f"{q} tells {p} that {p.she} {aux} {base}, not {q.she}.",
                f"{p} tells {q} that {p.she} {aux} {base}, not {q.she}.",
                f"It is {p} who {q} says {aux} {base}.",
            ]
        )
    elif function == LOG:
        text = rng.choice(
            [
                rule(scene, (f"{p} {aux} {base}", f"{p} {aux}"), (f"{q} {aux} {base}", f"{q} {aux}")),
                f"{scene.a} or {scene.b} {aux} {base}, but not {q}.",
            ]
        )
    elif function == SEM:
        text = rng.choice(
            [
                f"It falls to {p} to {base}, and {q} is off the hook.",
                f"To {base} is {p}'s lot, as {q} wriggled out of it.",
                f"{p} got the nod to {base}, and {q} was passed over.",
            ]
        )
    elif function == INF:
        text = stop(clue.format(p=p, q=q))
    elif function == DEC:
        text = two_orders(rng, f"{p} {good}", f"{q} {bad}", ", and ")
        text = goals(rng, f"They want to {goal}: {text}")
    else:
        return None
    a, b = scene.pair()
    is_so = f"{p} {aux} {base}."
    wordings = [
        (f"Who {aux} {base}, {a} or {b}?", str(p), is_so),
        (f"Which of them {aux} {base}, {a} or {b}?", str(p), is_so),
        (f"{capital(aux)} {{one}} {base}?", "", is_so),
    ]
    if count_words(wordings[2][0]) < SUB_WORDS[0]:
        wordings.pop()
    return which(scene, p, "task", function, text, wordings)


def point_item(scene: Scene, name: str, fill: str, function: str) -> Item | None:
    """Which of two players gets the point: the one whose answer is right, or the one the text names."""
    rng = scene.rng
    p, q = scene.pair()
    prize = rng.choice(words.PRIZES.split())
    aux = rng.random() < 0.5
    gets = "should get" if aux else "gets"
    if function in (K, SEM, SYN, M) and not (function == SYN and rng.random() < 0.4):
        if function == M:
            a, b = rng.randint(3, 9), rng.randint(3, 9)
            wanted, right, wrong = f"{a} times {b}", str(a * b), str(a * b + rng.choice([-4, -2, -1, 1, 2, 3]))
            if rng.random() < 0.5:
                a, b = rng.randint(12, 60), rng.randint(5, 29)
                wanted, right, wrong = f"{a} plus {b}", str(a + b), str(a + b + rng.choice([-10, -2, -1, 1, 2, 10]))
        else:
            table = {K: words.QUIZ_KNOW, SEM: words.QUIZ_SENSE, SYN: words.QUIZ_SYNTAX}[function]
            wanted, right, wrong = rng.choice(rows(table))
        text = f"for the {prize} they must name {wanted}: " + two_orders(
            rng, f"{p} says {right}", f"{q} says {wrong}", ", "
        )
        text = capital(text)
    elif function == SYN:
        text = rng.choice(
            [
                f"{q} tells {p} that {p.she} {gets} the {prize}, not {q.she}.",
                f"{p} tells {q} that {p.she} {gets} the {prize}, not {q.she}.",
            ]
        )
    elif function == R:
        text = rng.choice([f"{p} {gets} the {prize}, although {q} is quicker.", f"{p} {gets} the {prize}."])
    elif function == LOG:
        text = rng.choice(
            [
                f"Whoever answers last {gets} the {prize}. {q} answers before {p}.",
                f"{scene.a} or {scene.b} {gets} the {prize}, but not {q}.",
                rule(
                    scene,
                    (f"{p} {gets} the {prize}", f"{p} {gets} it"),
                    (f"{q} {gets} the {prize}", f"{q} {gets} it"),
                ),
            ]
        )
    elif function == INF:
        aux, gets = False, "gets"
        text = f"When the {prize} is given away, {p} jumps for joy and {q} hangs {q.his} head."
    else:
        aux, gets = True, "should get"
        text = rng.choice(
            [
                f"The {prize} is to honour fair play: {p} keeps the rules, and {q} cheats.",
                f"The {prize} is to honour hard work: {q} never tries, and {p} always does.",
                f"The {prize} is to cheer up a loser: {q} wins often, and {p} never.",
            ]
        )
    a, b = scene.pair()
    is_so = f"{p} {gets} the {prize}."
    wordings = [
        (f"Who {gets} the {prize}, {a} or {b}?", str(p), is_so),
        (f"To whom {'should' if aux else 'does'} the {prize} go, {a} or {b}?", str(p), is_so),
        (f"{'Should' if aux else 'Does'} {{one}} get the {prize}?", "", is_so),
    ]
    return which(scene, p, "point", function, text, wordings)


NAMES = frozenset((words.GIRLS + " " + words.BOYS).split())

PERSON_SLOTS: dict[str, Callable[[Scene, str, str, str], Item | None]] = {
    "cmp": compare_item,
    "whose": whose_item,
    "did": did_item,
    "task": task_item,
    "point": point_item,
}


NEEDS = {K: "know", SEM: "sense", INF: "clue", M: "more", DEC: "pick"}


def carries(slot: str, function: str) -> bool:
    """Whether the words for this function are there."""
    name, _, fill = slot.partition(":")
    if name in ("whose", "task"):
        return function not in (K, M)
    if name == "did":
        return function not in (K, M, DEC)
    table = words.COMPARE[fill] if name == "cmp" else words.FORMS.get(name, {})
    return name == "point" or function not in NEEDS or NEEDS[function] in table


def slot_item(scene: Scene, slot: str, function: str) -> Item | None:
    name, _, fill = slot.partition(":")
    return PERSON_SLOTS.get(name, value_item)(scene, name, fill, function)


# ---------------------------------------------------------------------------------------------------- main questions


@dataclass(frozen=True)
class Main:
    text: str
    answer: str
    items: tuple[Item, ...]


def new_scene(rng: Rng) -> Scene:
    girl, boy = rng.choice(words.GIRLS.split()), rng.choice(words.BOYS.split())
    a, b = rng.sample([Person(girl, True), Person(boy, False)], 2)
    name = rng.choice([n for n in (words.GIRLS + " " + words.BOYS).split() if n not in (girl, boy)])
    return Scene(rng, a, b, Person(name, name in words.GIRLS.split()), rng.choice(words.RELATIONS.split()))


def within(text: str, limits: tuple[int, int]) -> bool:
    return limits[0] <= count_words(text) <= limits[1]


def dressed(scene: Scene, item: Item) -> str:
    """The fact as someone knows or says it, as retrieval and syntax have it anyway; what is asked stays the same."""
    rng, text = scene.rng, item.text
    if rng.random() > DRESSED:
        return text
    if item.function == SYN:
        return rng.choice(rows(words.DRESS_PLAIN))[0] + " " + inside(text)
    others = [person for person in (scene.a, scene.b, scene.c) if not re.search(rf"\b{person}\b", text)]
    o = rng.choice(others or [scene.c])
    p = next((p for p in (scene.a, scene.b) if text.startswith(f"{p} ")), None)
    if item.function == R or p is None or p == o or re.match(r"\w+ (or|and|tells|knows) ", text) or rng.random() < 0.3:
        return (
            rng.choice(rows(words.DRESS + ";" + words.DRESS_PLAIN))[0].format(o=o, rel=scene.relation)
            + " "
            + inside(text)
        )
    table = words.DRESS_SUBJECT + (";" + words.DRESS_TELLS if o.girl != p.girl else "")
    return rng.choice(rows(table))[0].format(p=p, o=o, rel=scene.relation) + text[len(str(p)) :]


def joinable(text: str) -> bool:
    """Whether a clause may follow: not after a list, a rule or a second sentence."""
    return not re.search(r"[:;]|\. ", text)


def inside(text: str) -> str:
    """A sentence as it begins behind 'and'."""
    first = re.split(r"\W", text)[0]
    return text if first in NAMES else text[0].lower() + text[1:]


def sentences(scene: Scene, facts: list[str]) -> list[str]:
    """The facts, two to a sentence, some joined to an aside about a third person: no sentence shows one function."""
    rng = scene.rng
    asides = rng.sample(rows(words.ASIDES), len(facts))
    length = sum(map(count_words, facts))
    for (aside,) in asides:
        text = stop(aside.format(r=scene.c, q=scene.b, p=scene.a, rel=scene.relation))
        if length + count_words(text) <= FULL_WORDS:
            facts = [*facts, text]
            length += count_words(text)
    facts = rng.sample(facts, len(facts))
    firsts = [fact for fact in facts if joinable(fact)]
    lasts = [fact for fact in facts if not joinable(fact)]
    while len(lasts) < len(firsts):
        lasts.append(firsts.pop())
    made = []
    for number, last in enumerate(lasts):
        if number < len(firsts):
            first = firsts[number]
            apart = "while" not in first and first.split()[0] != last.split()[0]
            made.append(first[:-1] + (", while " if apart and rng.random() < 0.25 else ", and ") + inside(last))
        else:
            made.append(last)
    return rng.sample(made, len(made))


def try_main(rng: Rng, theme: str, counts: Counter[str], size: int) -> Main | None:
    """One draw: functions that are behind, slots that can carry them, all of it within the limits of length."""
    scene = new_scene(rng)
    openings, slots = words.THEMES[theme].split("|")
    wanted = sorted(FUNCTIONS, key=lambda f: counts[f] + rng.random() * 8)[:size]
    if not set(wanted) & set(HIGHER):
        return None
    free = re.split(r",\s*", slots)
    items: list[Item] = []
    for function in rng.sample(wanted, size):
        able = [slot for slot in free if carries(slot, function)]
        if not able:
            return None
        slot = rng.choice(able)
        free.remove(slot)
        item = slot_item(scene, slot, function)
        if item is None or not within(item.question, SUB_WORDS):
            return None
        items.append(replace(item, text=articles(item.text), question=articles(item.question)))
        if sum(count_words(i.text) for i in items) > FACT_WORDS:
            return None
    rng.shuffle(items)
    length = sum(count_words(item.text) for item in items)
    for number, item in enumerate(items):
        text = articles(dressed(scene, item))
        if length + count_words(text) - count_words(item.text) <= FULL_WORDS:
            length += count_words(text) - count_words(item.text)
            items[number] = replace(item, text=text)
    opening = rng.choice(rows(openings))[0].format(a=scene.a, b=scene.b)
    goal = rng.choice([item for item in items if item.function in HIGHER])
    facts = [item.text for item in items]
    text = " ".join([*sentences(scene, facts), goal.ask])
    if count_words(text) + count_words(opening) <= MAIN_WORDS[1]:
        text = f"{stop(opening)} {text}"
    elif not all(re.search(rf"\b{person}\b", text) for person in (scene.a, scene.b)):
        return None
    if not within(text, MAIN_WORDS):
        return None
    rng.shuffle(items)
    return Main(text, goal.ask_short, tuple(items))


def build(rng: Rng) -> list[Main]:
    """Of many draws, the one whose pairs of form and function are rarest so far: forms must not tell the function."""
    mains: list[Main] = []
    counts: Counter[str] = Counter()
    pairs: Counter[tuple[str, ...]] = Counter()
    answers: Counter[tuple[str, str]] = Counter()
    seen: set[str] = set()
    themes = list(words.THEMES)
    for number in range(MAIN):
        theme = themes[number % len(themes)]
        drawn: list[Main] = []
        for size in (5, 4) if number % 8 == 0 else (4,):
            if not drawn:
                draws = (try_main(rng, theme, counts, size) for _ in range(TRIES))
                drawn = list(islice((m for m in draws if m and m.text not in seen), ENOUGH))
        if not drawn:
            raise SystemExit(f"no main question fits the limits in {theme}")
        best = min(
            drawn,
            key=lambda m: (
                sum(pairs[k] * (1 if len(k) == 2 else WAY_WEIGHT) for i in m.items for k in kinds(i)) / len(m.items)
            ),
        )
        best = Main(best.text, best.answer, tuple(evened(item, answers) for item in best.items))
        for item in best.items:
            counts[item.function] += 1
            answers[item.function, item.short] += 1
            pairs.update(kinds(item))
        seen.add(best.text)
        mains.append(best)
    return mains


def evened(item: Item, answers: Counter[tuple[str, str]]) -> Item:
    """A yes/no question the other way round, where its answer is the commoner one of its function."""
    if item.turned is None or answers[item.function, item.short] <= answers[item.function, item.turned[1]]:
        return item
    question, short, sentence = item.turned
    return replace(item, question=question, short=short, sentence=sentence)


def base_form(item: Item) -> str:
    return item.form.partition(":")[0]


def kinds(item: Item) -> list[tuple[str, ...]]:
    """What is to be even: the form and the function, and the ways of reasoning, of which the shortest would win."""
    even: list[tuple[str, ...]] = [(base_form(item), item.function)]
    if item.function == LOG:
        marks = [mark for mark in ("If ", "everyone", "but not") if mark in item.text]
        even.append((LOG, "way", marks[0] if marks else "other"))
    return even


def split(rng: Rng, mains: list[Main]) -> tuple[list[Main], list[Main]]:
    """Held out: a quarter of the main questions, of many draws the one whose share of every function is most even."""
    total = Counter(i.function for m in mains for i in m.items)

    def uneven(chosen: list[int]) -> float:
        part = Counter(i.function for n in chosen for i in mains[n].items)
        return max(abs(part[f] / total[f] - HELD_OUT) for f in FUNCTIONS)

    draws = [rng.sample(range(len(mains)), round(HELD_OUT * len(mains))) for _ in range(400)]
    held = set(min(draws, key=uneven))
    return [m for n, m in enumerate(mains) if n not in held], [m for n, m in enumerate(mains) if n in held]


def as_json(rng: Rng, mains: list[Main]) -> list[dict[str, Any]]:
    """Half of the answers are short, the same for every function: they take turns within a function."""
    turn: Counter[str] = Counter()
    entries = []
    for main in mains:
        subs = []
        for item in main.items:
            turn[item.function] += 1
            short = turn[item.function] % 2 == 0
            answer = item.short if short else capital(item.sentence)
            if not within(answer, ANSWER_WORDS):
                answer = item.short
            subs.append({"subquestion": item.question, "answer": answer, "cognitive_skill": item.function})
        entries.append({"question": main.text, "answer": main.answer, "generated": subs})
    return entries


def files() -> dict[str, str]:
    """The text of each file by its name."""
    rng = random.Random(SEED)
    mains = build(rng)
    rng.shuffle(mains)
    texts = {}
    for name, part in zip(("train", "test"), split(rng, mains), strict=True):
        texts[f"{name}.json"] = json.dumps(as_json(rng, part), indent=1, ensure_ascii=False) + "\n"
    return texts

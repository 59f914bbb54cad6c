"""Write the stories: main questions with sub-questions, each of which requires one cognitive function.

A probe of cognitive functions is worthless if the wording reveals the function. So every sub-question has a form ("How
many pens does Ann have?") that several functions share, and the main question decides which function it requires: a
stated number is retrieved, "three boxes of twelve" is calculated, "the number of legs of a spider" is recalled, "a
dozen" is understood. Names, numbers and things are drawn at random; among several draws, the one is used that keeps
functions and forms most balanced.
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
# Forms refer to shared texts by name.
words.FORMS = {n: {k: getattr(words, v, v) for k, v in form.items()} for n, form in words.FORMS.items()}

SEED = 2026
N_MAIN_QUESTIONS = 416
HELD_OUT = 0.25
# Draws for one main question. Most are too long, or need a function that the slot has no words for.
MAX_DRAWS = 2500
# Valid draws that are compared.
MAX_CANDIDATES = 30
# Share of the facts that are phrased as something that someone knows or says.
DRESSED_SHARE = 0.9
# There are far fewer ways of reasoning than forms, so their counts are larger.
REASONING_WEIGHT = 0.15
MAIN_WORD_RANGE = (15, 65)
# All facts together.
MAX_FACT_WORDS = 43
# Facts are rephrased and asides added up to this total length.
MAX_DRESSED_WORDS = 39
SUB_WORD_RANGE = (4, 16)
ANSWER_WORD_RANGE = (1, 9)

R, K, SEM, SYN = "Retrieval", "Knowledge Recall", "Semantic Understanding", "Syntactic Understanding"
M, INF, LOG, DEC = "Math Calculation", "Inference", "Logical Reasoning", "Decision-making"
LOWER_FUNCTIONS = (R, K, SEM, SYN)
HIGHER_FUNCTIONS = (M, INF, LOG, DEC)
FUNCTIONS = LOWER_FUNCTIONS + HIGHER_FUNCTIONS

Rng = random.Random
Row = list[str]

# Conditions of rules: if | it happens | it does not.
CONDITIONS = [
    ("it rains", "It is raining", "It stays dry"),
    ("the bell rings", "The bell rings", "The bell stays silent"),
    ("it snows", "It is snowing", "There is no snow"),
]
# Forms whose decision may be asked with "does" instead of "should", because the verb is itself a choice.
CHOICE_FORMS = ("buy", "bus", "vehicle", "food", "animal", "pay")


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
    # The reversed yes/no question: question, short answer, sentence.
    opposite: tuple[str, str, str] | None = None


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


def end_sentence(text: str) -> str:
    text = capital(text.strip())
    return text if text[-1] in ".?!" else text + "."


def correct_articles(text: str) -> str:
    """Turn 'a emerald' into 'an emerald'."""
    return re.sub(r"\b([Aa]) (?=[aeiou])(?!one\b|uni|use|eu)", r"\1n ", text)


def count_words(text: str) -> int:
    return len(text.split())


def calculate(formula: str, a: int, b: int) -> int:
    return {"a+b": a + b, "a-b": a - b, "a*b": a * b}[formula]


def draw_operands(rng: Rng, formula: str, low: int, high: int) -> tuple[int, int] | None:
    """Draw two small numbers whose result lies between the limits; None if 60 draws found none."""
    for _ in range(60):
        if formula == "a*b":
            a, b = rng.randint(2, 12), rng.randint(2, 5)
        elif formula == "a+b":
            a, b = rng.randint(2, 40), rng.randint(2, 15)
        else:
            a, b = rng.randint(5, 50), rng.randint(2, 15)
        if low <= calculate(formula, a, b) <= high and a != b:
            return a, b
    return None


# -------------------------------------------------------------------------------------------------- one person's value

RECALLED_NUMBERS = [int(row[0]) for row in rows(words.NUMBERS_KNOWN) + rows(words.NUMBERS_SENSE)]


def draw_number(rng: Rng, low: int, high: int) -> int:
    """Draw a number; half are numbers that knowledge and word meaning yield too, or a 12 would reveal the function."""
    recalled = [n for n in RECALLED_NUMBERS if low <= n <= high]
    return rng.choice(recalled) if recalled and rng.random() < 0.5 else rng.randint(low, high)


def other_number(rng: Rng, v: int, low: int, high: int) -> int:
    return rng.choice([n for n in range(max(low, v - 7), min(high, v + 7) + 1) if n != v])


def value_item(scene: Scene, name: str, fill: str, function: str) -> Item | None:
    """Make a question about one person's value, which the text gives in the way that the function requires."""
    form, rng = words.FORMS[name], scene.rng
    p, q = scene.pair()
    x, _, x3 = fill.partition("/")
    numeric = "low" in form
    low, high = map(int, form["low"].split()) if numeric else (0, 0)
    values = [row[0] for row in rows(form.get("values", ""))]
    with_should = "open_s" in form and function in (R, SYN, LOG, K, SEM, DEC) and rng.random() < 0.5
    if function == DEC:
        with_should = name not in CHOICE_FORMS or rng.random() < 0.7
    if function in (K, SEM) and name in ("place",):
        with_should = False

    def fmt(template: str, **fields: object) -> str:
        return template.format(p=p, q=q, x=x, x3=x3, **fields)

    def state_value(v: object, third: str = "third", base: str = "base") -> str:
        """Format 'has 12 pens', or 'should have 12 pens'."""
        template = form.get(third, form["third"]), form.get(base, form["base"])
        return "should " + fmt(template[1], v=v) if with_should else fmt(template[0], v=v)

    v: object = draw_number(rng, low, high) if numeric else rng.choice(values)
    w: object = other_number(rng, int(str(v)), low, high) if numeric else rng.choice([o for o in values if o != v])
    if function == R:
        text = rng.choice(rows(words.STATED))[0].format(p=p, q=q, v=state_value(v), w=state_value(w)) + "."
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
        ).format(p=p, q=q, v=state_value(v), w=state_value(w), rel=scene.relation)
    elif function == LOG:
        group = rng.choice([row[0] for row in rows(words.GROUPS)])
        kind = rng.choice(["all", "all", "or", "if", "if", "if"] if "cond" in form else ["all", "all", "or"])
        if kind == "all":
            text = rng.choice(rows(words.ALL))[0].format(p=p, q=q, group=group, v=state_value(v)) + "."
        elif kind == "or":
            either = " or ".join(map(str, rng.sample([v, w], 2)))
            neg = fmt(form.get("neg", "but not {w}"), w=w)
            neg = neg.replace("but not", rng.choice(["but not", "and not", "and certainly not"]))
            text = f"{p} {state_value(either)}, {neg}."
        else:
            when, yes, no = rng.choice(CONDITIONS)
            first, second, outcome = (v, w, yes) if rng.random() < 0.5 else (w, v, no)
            text = f"If {when}, {p} {state_value(first)}; otherwise {p.she} {state_value(second)}. {outcome}."
    elif function in (K, SEM):
        key = "know" if function == K else "sense"
        table = [row for row in rows(form.get(key, "")) if not numeric or low <= int(row[0]) <= high]
        if not table:
            return None
        v, phrase = rng.choice(table)
        text = f"{p} {state_value(phrase, key + '_third', key + '_base' if key + '_base' in form else 'base')}."
        if with_should and key + "_third" in form and key + "_base" not in form:
            return None
        owned = re.fullmatch(r"(.+) (has|have) (\w+)", phrase)
        if owned and name != "floor" and rng.random() < 0.6:
            text = rng.choice(rows(words.COUNTED))[0].format(
                p=p, q=q, owner=owned[1], has=owned[2], parts=owned[3], v=state_value("that many")
            )
            text = end_sentence(text)
    elif function == INF:
        if "clue" not in form:
            return None
        clue_value, clue = rng.choice(rows(form["clue"]))
        v = v if clue_value == "*" else clue_value
        text = end_sentence(fmt(clue, v=v))
    elif function == M:
        if "more" not in form:
            return None
        sentence, formula = rng.choice(rows(form["more"]))
        numbers = draw_operands(rng, formula, low, high)
        if numbers is None or (name == "clock" and numbers[0] > 12):
            return None
        v = calculate(formula, *numbers)
        text = end_sentence(fmt(sentence, a=numbers[0], b=numbers[1]))
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
            text = end_sentence(vary_goals(rng, fmt(sentence, v=v, lo=lo, hi=hi, need=v - 1)))
        else:
            good, bad, sentence = rng.choice(rows(form["pick"]))
            if good != "*":
                v, w = good, bad
            text = end_sentence(vary_goals(rng, fmt(sentence, v=v, w=w)))
    if str(v) == str(w) or (numeric and function in (K, SEM, M)):
        w = other_number(rng, int(str(v)), low, high) if numeric else rng.choice([o for o in values if o != v])

    ask = fmt(form["open_s"] if with_should else form["open"])
    short = capital(fmt(form.get("short", "{v}"), v=v))
    statement = f"{p} {state_value(v)}."
    variant = rng.choice(["open", "open", "open", "open", "yes", "no", "or", "or"])

    def closed(value: object) -> str:
        if with_should:
            return f"Should {p} {fmt(form['base'], v=value)}?"
        if form["third"].startswith("is "):
            return f"Is {p} {fmt(form['third'], v=value)[3:]}?"
        return f"Does {p} {fmt(form['base'], v=value)}?"

    opposite = None
    if variant == "open":
        question, answer, sentence = ask, short, statement
    elif variant == "or":
        question, answer, sentence = closed(" or ".join(map(str, rng.sample([v, w], 2)))), short, statement
    else:
        question = closed(v if variant == "yes" else w)
        answer = capital(variant)
        sentence = f"{answer}, {statement}"
        other = "No" if variant == "yes" else "Yes"
        opposite = closed(w if variant == "yes" else v), other, f"{other}, {statement}"
    wording = ("should-" if with_should else "") + ("yes/no" if variant in ("yes", "no") else variant)
    return Item(function, f"{name}:{wording}", text, question, answer, sentence, ask, short, opposite)


# ------------------------------------------------------------------------------------------------ which of two people


def person_item(
    scene: Scene, right: Person, form: str, function: str, text: str, wordings: list[tuple[str, str, str]]
) -> Item:
    """Make an item whose answer is a person. Wordings are (question, short answer, sentence); the first is open.

    A wording whose short answer is empty is a yes/no question about {one}; the sentence then follows the yes or no.
    """
    rng = scene.rng
    number = rng.randrange(len(wordings))
    question, short, sentence = wordings[number]
    if not short:
        answers = []
        for first, second in rng.sample([(scene.a, scene.b), (scene.b, scene.a)], 2):
            asked_question = question.replace("{one}", str(first)).replace("{two}", str(second))
            short = "Yes" if first == right else "No"
            answers.append((asked_question, short, f"{short}, {sentence}"))
        (question, short, sentence), opposite = answers
    else:
        opposite = None
    return Item(function, f"{form}:{number}", text, question, short, sentence, wordings[0][0], wordings[0][1], opposite)


def vary_goals(rng: Rng, text: str) -> str:
    """Rephrase goals: 'wants' alone would reveal a choice."""
    text = re.sub(r"\bwants to\b", lambda _: rng.choice(words.WANTS_TO.split("; ")), text)
    text = re.sub(r"\bwants (?=an? |the |some |one )", lambda _: rng.choice(words.WANTS.split("; ")) + " ", text)
    return re.sub(r"\b(They|they) want to\b", lambda m: f"{m[1]} {rng.choice(words.WANT_TO.split('; '))}", text)


def join_in_any_order(rng: Rng, first: str, second: str, middle: str) -> str:
    start, end = rng.sample([first, second], 2)
    return f"{start}{middle}{end}."


def compare_item(scene: Scene, name: str, fill: str, function: str) -> Item | None:
    """Ask whose thing is heavier. {p}'s thing always has more; the question may ask for either."""
    table, rng = words.COMPARE[fill], scene.rng
    thing, comp, inverse = table["head"].split("|")
    p, q = scene.pair()
    r = scene.c

    def possessive(person: Person) -> str:
        return f"{person}'s {thing}" if thing else str(person)

    def elided(person: Person) -> str:
        return f"{person}'s" if thing else str(person)

    adjective, right, other_person = (comp, p, q) if rng.random() < 0.6 else (inverse, q, p)
    if function == R:
        text = f"{possessive(right)} is {adjective} than {elided(other_person)}."
    elif function == SYN:
        if thing:
            said_to_owner = (
                f"{other_person} tells {right} that {right.his} {thing} is {adjective} than {other_person.hers}."
            )
            said_by_owner = (
                f"{right} tells {other_person} that {right.his} {thing} is {adjective} than {other_person.hers}."
            )
        else:
            said_to_owner = f"{other_person} tells {right} that {right.she} is {adjective} than {other_person.she} is."
            said_by_owner = f"{right} tells {other_person} that {right.she} is {adjective} than {other_person.she} is."
        cleft = f"It is {possessive(other_person)} that {elided(right)} is {adjective} than."
        text = rng.choice([said_to_owner, said_by_owner, cleft] if thing else [said_to_owner, said_by_owner])
    elif function == LOG:
        text = rng.choice(
            [
                f"{possessive(p)} is {comp} than {elided(r)}, and {elided(r)} is {comp} than {elided(q)}.",
                f"{possessive(q)} is {inverse} than {elided(r)}, and {elided(r)} is {inverse} than {elided(p)}.",
                f"{possessive(r)} is {inverse} than {elided(p)} but {comp} than {elided(q)}.",
            ]
        )
    elif function in (K, SEM):
        key = "know" if function == K else "sense"
        if key not in table:
            return None
        high, low = rng.choice(rows(table[key]))
        first_pair, second_pair = rng.sample([(p, high), (q, low)], 2)
        text = f"{possessive(first_pair[0])} {first_pair[1]}, and {elided(second_pair[0])} {second_pair[1]}."
    elif function == INF:
        text = end_sentence(rng.choice(rows(table["clue"]))[0].format(p=p, q=q))
    elif function == M:
        sentence, formula = rng.choice(rows(table["more"]))
        numbers = draw_operands(rng, formula, 12, 60)
        if numbers is None:
            return None
        total = calculate(formula, *numbers)
        # {p} has more or less than {q}, or the sum would always belong to the one who has more
        if rng.random() < 0.5:
            c = total - rng.randint(1, 6)
        else:
            c = total + rng.randint(1, 6)
            p, q = q, p
            adjective, right, other_person = (comp, p, q) if adjective == comp else (inverse, q, p)
        first, second = (p, q) if c < total else (q, p)
        text = end_sentence(sentence.format(p=first, q=second, a=numbers[0], b=numbers[1], c=c))
    else:
        return None
    a, b = scene.pair()
    statement = f"{possessive(right)} is {adjective}."
    if thing:
        wordings = [(f"Whose {thing} is {adjective}, {a}'s or {b}'s?", f"{right}'s", statement)]
        if " " not in adjective:
            wordings.append((f"Who has the {adjective} {thing}, {a} or {b}?", str(right), statement))
        wordings.append((f"Is {{one}}'s {thing} {adjective} than {{two}}'s?", "", statement))
    else:
        wordings = [
            (f"Who is {adjective}, {a} or {b}?", str(right), statement),
            (f"Which of the two is {adjective}, {a} or {b}?", str(right), statement),
            (f"Is {{one}} {adjective} than {{two}}?", "", statement),
        ]
    return person_item(scene, right, "compare" if thing else "compare people", function, text, wordings)


def conditional(scene: Scene, first: tuple[str, str], second: tuple[str, str]) -> str:
    """Make a rule such as 'If it rains, <first>; otherwise <second>. It is raining.', of which the first holds.

    Both are given in full, and in the short form that is used after the other.
    """
    when, yes, no = scene.rng.choice(CONDITIONS)
    if scene.rng.random() < 0.5:
        return f"If {when}, {first[0]}; otherwise {second[1]}. {yes}."
    return f"If {when}, {second[0]}; otherwise {first[1]}. {no}."


def whose_item(scene: Scene, name: str, thing: str, function: str) -> Item | None:
    """Ask whose of two things they take."""
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
                conditional(
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
        text = join_in_any_order(rng, f"{p}'s {thing} {good}", f"{q}'s {thing} {bad}", ", and ")
        text = vary_goals(rng, f"They want to {goal}: {text}")
    else:
        return None
    a, b = scene.pair()
    statement = f"They {aux} {verb} {p}'s {thing}."
    wordings = [
        (f"Whose {thing} {aux} they {verb}, {a}'s or {b}'s?", f"{p}'s", statement),
        (f"{capital(aux)} they {verb} {a}'s or {b}'s {thing}?", f"{p}'s", statement),
        (f"{capital(aux)} they {verb} {{one}}'s {thing}?", "", "they" + statement[4:]),
    ]
    return person_item(scene, p, "whose", function, text, wordings)


def did_item(scene: Scene, name: str, deed: str, function: str) -> Item | None:
    """Ask which of two people did something."""
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
        text = end_sentence(clue.format(p=p, q=q))
    elif function == SEM:
        text = end_sentence(sense.format(p=p, q=q))
    else:
        return None
    a, b = scene.pair()
    statement = f"{p} {past}."
    wordings = [
        (f"Who {past}, {a} or {b}?", str(p), statement),
        (f"Was it {a} or {b} who {past}?", str(p), statement),
        (f"Did {{one}} {base}?", "", statement),
    ]
    return person_item(scene, p, "did", function, text, wordings)


def task_item(scene: Scene, name: str, task: str, function: str) -> Item | None:
    """Ask which of two people does a task."""
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
                conditional(scene, (f"{p} {aux} {base}", f"{p} {aux}"), (f"{q} {aux} {base}", f"{q} {aux}")),
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
        text = end_sentence(clue.format(p=p, q=q))
    elif function == DEC:
        text = join_in_any_order(rng, f"{p} {good}", f"{q} {bad}", ", and ")
        text = vary_goals(rng, f"They want to {goal}: {text}")
    else:
        return None
    a, b = scene.pair()
    statement = f"{p} {aux} {base}."
    wordings = [
        (f"Who {aux} {base}, {a} or {b}?", str(p), statement),
        (f"Which of them {aux} {base}, {a} or {b}?", str(p), statement),
        (f"{capital(aux)} {{one}} {base}?", "", statement),
    ]
    if count_words(wordings[2][0]) < SUB_WORD_RANGE[0]:
        wordings.pop()
    return person_item(scene, p, "task", function, text, wordings)


def point_item(scene: Scene, name: str, fill: str, function: str) -> Item | None:
    """Ask which of two players gets the point: the one whose answer is right, or the one that the text names."""
    rng = scene.rng
    p, q = scene.pair()
    prize = rng.choice(words.PRIZES.split())
    aux = rng.random() < 0.5
    gets = "should get" if aux else "gets"
    if function in (K, SEM, SYN, M) and not (function == SYN and rng.random() < 0.4):
        if function == M:
            a, b = rng.randint(3, 9), rng.randint(3, 9)
            quiz_subject, right, wrong = f"{a} times {b}", str(a * b), str(a * b + rng.choice([-4, -2, -1, 1, 2, 3]))
            if rng.random() < 0.5:
                a, b = rng.randint(12, 60), rng.randint(5, 29)
                quiz_subject, right, wrong = (
                    f"{a} plus {b}",
                    str(a + b),
                    str(a + b + rng.choice([-10, -2, -1, 1, 2, 10])),
                )
        else:
            table = {K: words.QUIZ_KNOW, SEM: words.QUIZ_SENSE, SYN: words.QUIZ_SYNTAX}[function]
            quiz_subject, right, wrong = rng.choice(rows(table))
        text = f"for the {prize} they must name {quiz_subject}: " + join_in_any_order(
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
                conditional(
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
    statement = f"{p} {gets} the {prize}."
    wordings = [
        (f"Who {gets} the {prize}, {a} or {b}?", str(p), statement),
        (f"To whom {'should' if aux else 'does'} the {prize} go, {a} or {b}?", str(p), statement),
        (f"{'Should' if aux else 'Does'} {{one}} get the {prize}?", "", statement),
    ]
    return person_item(scene, p, "point", function, text, wordings)


NAMES = frozenset((words.GIRLS + " " + words.BOYS).split())

PERSON_SLOTS: dict[str, Callable[[Scene, str, str, str], Item | None]] = {
    "cmp": compare_item,
    "whose": whose_item,
    "did": did_item,
    "task": task_item,
    "point": point_item,
}


TABLE_BY_FUNCTION = {K: "know", SEM: "sense", INF: "clue", M: "more", DEC: "pick"}


def can_carry(slot: str, function: str) -> bool:
    """Check that a slot has words for a function."""
    name, _, fill = slot.partition(":")
    if name in ("whose", "task"):
        return function not in (K, M)
    if name == "did":
        return function not in (K, M, DEC)
    table = words.COMPARE[fill] if name == "cmp" else words.FORMS.get(name, {})
    return name == "point" or function not in TABLE_BY_FUNCTION or TABLE_BY_FUNCTION[function] in table


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


def is_within(text: str, limits: tuple[int, int]) -> bool:
    return limits[0] <= count_words(text) <= limits[1]


def dress_fact(scene: Scene, item: Item) -> str:
    """Rephrase a fact as known or said by someone, as in retrieval and syntax; the question stays the same."""
    rng, text = scene.rng, item.text
    if rng.random() > DRESSED_SHARE:
        return text
    if item.function == SYN:
        return rng.choice(rows(words.DRESS_PLAIN))[0] + " " + lower_start(text)
    others = [person for person in (scene.a, scene.b, scene.c) if not re.search(rf"\b{person}\b", text)]
    o = rng.choice(others or [scene.c])
    p = next((p for p in (scene.a, scene.b) if text.startswith(f"{p} ")), None)
    if item.function == R or p is None or p == o or re.match(r"\w+ (or|and|tells|knows) ", text) or rng.random() < 0.3:
        return (
            rng.choice(rows(words.DRESS + ";" + words.DRESS_PLAIN))[0].format(o=o, rel=scene.relation)
            + " "
            + lower_start(text)
        )
    table = words.DRESS_SUBJECT + (";" + words.DRESS_TELLS if o.is_girl != p.is_girl else "")
    return rng.choice(rows(table))[0].format(p=p, o=o, rel=scene.relation) + text[len(str(p)) :]


def is_joinable(text: str) -> bool:
    """Check that a clause may follow: not after a list, a rule or a second sentence."""
    return not re.search(r"[:;]|\. ", text)


def lower_start(text: str) -> str:
    """Write the start of a sentence as after 'and'."""
    first = re.split(r"\W", text)[0]
    return text if first in NAMES else text[0].lower() + text[1:]


def join_facts(scene: Scene, facts: list[str]) -> list[str]:
    """Join facts in pairs, some with an aside about a third person, so that no sentence shows a single function."""
    rng = scene.rng
    asides = rng.sample(rows(words.ASIDES), len(facts))
    length = sum(map(count_words, facts))
    for (aside,) in asides:
        text = end_sentence(aside.format(r=scene.c, q=scene.b, p=scene.a, rel=scene.relation))
        if length + count_words(text) <= MAX_DRESSED_WORDS:
            facts = [*facts, text]
            length += count_words(text)
    facts = rng.sample(facts, len(facts))
    firsts = [fact for fact in facts if is_joinable(fact)]
    lasts = [fact for fact in facts if not is_joinable(fact)]
    while len(lasts) < len(firsts):
        lasts.append(firsts.pop())
    joined = []
    for number, last in enumerate(lasts):
        if number < len(firsts):
            first = firsts[number]
            can_contrast = "while" not in first and first.split()[0] != last.split()[0]
            joined.append(
                first[:-1] + (", while " if can_contrast and rng.random() < 0.25 else ", and ") + lower_start(last)
            )
        else:
            joined.append(last)
    return rng.sample(joined, len(joined))


def draw_main(rng: Rng, theme: str, counts: Counter[str], size: int) -> Main | None:
    """Draw a main question of the rarest functions; None if the slots cannot carry them or it is too long."""
    scene = new_scene(rng)
    openings, slots = words.THEMES[theme].split("|")
    functions = sorted(FUNCTIONS, key=lambda f: counts[f] + rng.random() * 8)[:size]
    if not set(functions) & set(HIGHER_FUNCTIONS):
        return None
    free_slots = re.split(r",\s*", slots)
    items: list[Item] = []
    for function in rng.sample(functions, size):
        possible_slots = [slot for slot in free_slots if can_carry(slot, function)]
        if not possible_slots:
            return None
        slot = rng.choice(possible_slots)
        free_slots.remove(slot)
        item = slot_item(scene, slot, function)
        if item is None or not is_within(item.question, SUB_WORD_RANGE):
            return None
        items.append(replace(item, text=correct_articles(item.text), question=correct_articles(item.question)))
        if sum(count_words(i.text) for i in items) > MAX_FACT_WORDS:
            return None
    rng.shuffle(items)
    length = sum(count_words(item.text) for item in items)
    for number, item in enumerate(items):
        text = correct_articles(dress_fact(scene, item))
        if length + count_words(text) - count_words(item.text) <= MAX_DRESSED_WORDS:
            length += count_words(text) - count_words(item.text)
            items[number] = replace(item, text=text)
    opening = rng.choice(rows(openings))[0].format(a=scene.a, b=scene.b)
    goal = rng.choice([item for item in items if item.function in HIGHER_FUNCTIONS])
    facts = [item.text for item in items]
    text = " ".join([*join_facts(scene, facts), goal.ask])
    if count_words(text) + count_words(opening) <= MAIN_WORD_RANGE[1]:
        text = f"{end_sentence(opening)} {text}"
    elif not all(re.search(rf"\b{person}\b", text) for person in (scene.a, scene.b)):
        return None
    if not is_within(text, MAIN_WORD_RANGE):
        return None
    rng.shuffle(items)
    return Main(text, goal.ask_short, tuple(items))


def build(rng: Rng) -> list[Main]:
    """Build main questions from draws with the rarest pairs of form and function: forms must not reveal functions."""
    mains: list[Main] = []
    counts: Counter[str] = Counter()
    pairs: Counter[tuple[str, ...]] = Counter()
    answers: Counter[tuple[str, str]] = Counter()
    seen_texts: set[str] = set()
    themes = list(words.THEMES)
    for number in range(N_MAIN_QUESTIONS):
        theme = themes[number % len(themes)]
        candidates: list[Main] = []
        for size in (5, 4) if number % 8 == 0 else (4,):
            if not candidates:
                draws = (draw_main(rng, theme, counts, size) for _ in range(MAX_DRAWS))
                candidates = list(islice((m for m in draws if m and m.text not in seen_texts), MAX_CANDIDATES))
        if not candidates:
            raise SystemExit(f"no main question fits the limits in {theme}")
        rarest = min(
            candidates,
            key=lambda m: (
                sum(pairs[k] * (1 if len(k) == 2 else REASONING_WEIGHT) for i in m.items for k in balance_keys(i))
                / len(m.items)
            ),
        )
        rarest = Main(rarest.text, rarest.answer, tuple(balance_answer(item, answers) for item in rarest.items))
        for item in rarest.items:
            counts[item.function] += 1
            answers[item.function, item.short] += 1
            pairs.update(balance_keys(item))
        seen_texts.add(rarest.text)
        mains.append(rarest)
    return mains


def balance_answer(item: Item, answers: Counter[tuple[str, str]]) -> Item:
    """Reverse a yes/no question if its answer is the more common one of its function."""
    if item.opposite is None or answers[item.function, item.short] <= answers[item.function, item.opposite[1]]:
        return item
    question, short, sentence = item.opposite
    return replace(item, question=question, short=short, sentence=sentence)


def base_form(item: Item) -> str:
    return item.form.partition(":")[0]


def balance_keys(item: Item) -> list[tuple[str, ...]]:
    """Return what must be balanced: form and function, and ways of reasoning, of which the shortest would dominate."""
    keys: list[tuple[str, ...]] = [(base_form(item), item.function)]
    if item.function == LOG:
        marks = [mark for mark in ("If ", "everyone", "but not") if mark in item.text]
        keys.append((LOG, "way", marks[0] if marks else "other"))
    return keys


def split(rng: Rng, mains: list[Main]) -> tuple[list[Main], list[Main]]:
    """Hold out a quarter of the main questions, by the draw with the most equal share of every function."""
    total = Counter(i.function for m in mains for i in m.items)

    def unevenness(held_indices: list[int]) -> float:
        part = Counter(i.function for n in held_indices for i in mains[n].items)
        return max(abs(part[f] / total[f] - HELD_OUT) for f in FUNCTIONS)

    draws = [rng.sample(range(len(mains)), round(HELD_OUT * len(mains))) for _ in range(400)]
    held_out = set(min(draws, key=unevenness))
    return [m for n, m in enumerate(mains) if n not in held_out], [m for n, m in enumerate(mains) if n in held_out]


def to_entries(rng: Rng, mains: list[Main]) -> list[dict[str, Any]]:
    """Make entries. Short answers and sentences alternate within every function."""
    n_answers: Counter[str] = Counter()
    entries = []
    for main in mains:
        subs = []
        for item in main.items:
            n_answers[item.function] += 1
            short = n_answers[item.function] % 2 == 0
            answer = item.short if short else capital(item.sentence)
            if not is_within(answer, ANSWER_WORD_RANGE):
                answer = item.short
            subs.append({"subquestion": item.question, "answer": answer, "cognitive_skill": item.function})
        entries.append({"question": main.text, "answer": main.answer, "generated": subs})
    return entries


def files() -> dict[str, str]:
    """Return the text of each file by name."""
    rng = random.Random(SEED)
    mains = build(rng)
    rng.shuffle(mains)
    texts = {}
    for name, part in zip(("train", "test"), split(rng, mains), strict=True):
        texts[f"{name}.json"] = json.dumps(to_entries(rng, part), indent=1, ensure_ascii=False) + "\n"
    return texts

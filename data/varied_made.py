"""Questions of varied.py that are drawn and worked out: passages, rules, choices and sums.

A kind is a function of a draw, the wording (0 and 1; 2 is of the test split) and which of the questions in this wording
it is. It returns a letter for the sub-question, the main question, the sub-question and the answer.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from word_lists import Person, capital, read_lists

words = read_lists("varied")

SPLITS = ("train", "validation", "test")
Made = tuple[str, str, str, str]


@dataclass(frozen=True)
class Asked:
    """A question: its template by name, and what it is about."""

    main: str
    sub: str
    answer: str
    template: str
    material: tuple[str, ...]


@dataclass
class Draw:
    """Draws from what belongs to a split, and remembers what was drawn. numbers: pairs used before."""

    rng: random.Random
    split: str
    numbers: set[tuple[int, int]] = field(default_factory=set)
    material: list[str] = field(default_factory=list)
    drawn: set[tuple[int, int]] = field(default_factory=set)

    def some(self, pool: str, n: int = 1) -> list[str]:
        """So many different ones. Of 'lamp/on/off', the material is all three but single words that only describe."""
        listed = words.POOLS[pool].split(" | ")[SPLITS.index(self.split)].split(", ")
        chosen = self.rng.sample(listed, n)
        for one in chosen:
            self.material += one.split("/") if pool == "triples" else [one.split("/")[0]]
        return chosen

    def one(self, pool: str) -> str:
        return self.some(pool)[0]

    def people(self, n: int) -> list[str]:
        """Names in any order."""
        both = self.some("girls", n) + self.some("boys", n)
        chosen = self.rng.sample(both, n)
        self.material = [m for m in self.material if m not in both or m in chosen]
        return chosen

    def person(self) -> Person:
        name = self.people(1)[0]
        return Person(name, name in re.split(", | \\| ", words.POOLS["girls"]))

    def pair(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        """Two numbers within limits that no other question has."""
        while True:
            a, b = self.rng.randint(*first), self.rng.randint(*second)
            key = (min(a, b), max(a, b))
            if a != b and key not in self.numbers:
                self.drawn.add(key)
                self.material.append(f"{key[0]} and {key[1]}")
                return a, b


Kind = Callable[[Draw, int, int], Made]


def either(options: Sequence[str], word: str = "or") -> str:
    """'a, b or c'."""
    return f"{', '.join(options[:-1])} {word} {options[-1]}"


def a(noun: str) -> str:
    """With its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def clock(rng: random.Random, hour: int | None = None) -> str:
    return f"{hour or rng.randint(7, 12)}:{rng.choice(['05', '10', '15', '20', '25', '35', '40', '45', '50', '55'])}"


def two_times(rng: random.Random) -> tuple[str, str]:
    hours = sorted(rng.sample(range(7, 13), 2))
    return clock(rng, hours[0]), clock(rng, hours[1])


def ask(turn: int, main: str, *subs: tuple[str, object]) -> Made:
    """One of the sub-questions, in turn."""
    chosen = turn % len(subs)
    sub, answer = subs[chosen]
    return "abc"[chosen] if len(subs) > 1 else "", main, sub, str(answer)


# --- Retrieval: the answer is in a passage


def timetable(d: Draw, wording: int, i: int) -> Made:
    (here, there), (soon, later) = d.some("towns", 2), two_times(d.rng)
    p, q = d.rng.sample(range(1, 15), 2)
    if wording == 0:
        main = f"The train to {here} leaves at {soon} from platform {p}. The train to {there} leaves at {later} from"
        main += f" platform {q}."
        return ask(
            i,
            main,
            (f"From which platform does the train to {there} leave?", f"Platform {q}"),
            (f"When does the train to {here} leave?", soon),
        )
    if wording == 1:
        main = f"Departures: {soon}, {here}, platform {p}; {later}, {there}, platform {q}."
        return ask(
            i,
            main,
            (f"Which town does the {later} train go to?", there),
            (f"At what time is the train to {there}?", later),
        )
    main = f"Passengers for {here} wait on platform {p} until {soon}, those for {there} on platform {q} until {later}."
    return ask(
        i,
        main,
        (f"Where do the passengers for {here} wait?", f"Platform {p}"),
        (f"Until when must the passengers for {there} wait?", later),
    )


def museum(d: Draw, wording: int, i: int) -> Made:
    (x, y), (p, q), town, room = d.some("relics", 2), d.people(2), d.one("towns"), d.rng.randint(2, 19)
    if wording == 0:
        main = (
            f"Room {room} of the museum shows {a(x)} that {p} found in {town}. Beside it lies {a(y)}, a gift from {q}."
        )
        return ask(i, main, (f"Who found the {x}?", p), (f"Who gave the {y} to the museum?", q))
    if wording == 1:
        main = f"The {x} came to light near {town} and is in room {room}. {q} sold the {y} to the museum."
        return ask(i, main, (f"Near which town did the {x} come to light?", town), (f"Who sold the {y}?", q))
    main = f"The guide, {p}, begins with the {x}, which was dug up at {town}, and ends with the {y} in room {room}."
    return ask(i, main, (f"Where was the {x} dug up?", town), ("With what does the guide end?", f"The {y}"))


def note(d: Draw, wording: int, i: int) -> Made:
    (p, q), (place, other), pet, time = d.people(2), d.some("hideouts", 2), d.one("pets"), clock(d.rng)
    if wording == 0:
        main = f"Dear {p}, the key is under the {place} and the rent is under the {other}. Please feed the {pet} at"
        main += f" {time}. Yours, {q}."
        return ask(i, main, ("Under what is the key?", f"The {place}"), ("Which animal is to be fed?", f"The {pet}"))
    if wording == 1:
        main = (
            f"Message from {q}: the {pet} gets its food at {time}; the spare key is behind the {place}, not behind the"
        )
        main += f" {other}."
        return ask(i, main, ("When does the animal get its food?", time), ("Who has left the message?", q))
    main = (
        f"{p} reads the slip: 'Back on Sunday. Money is in the {place}, the medicine for the {pet} in the {other}. {q}'"
    )
    return ask(i, main, ("In what is the medicine?", f"The {other}"), ("Whose signature is on it?", q))


def race(d: Draw, wording: int, i: int) -> Made:
    (p, q, r), kind, (m, n) = d.people(3), d.one("races"), sorted(d.rng.sample(range(11, 59), 2))
    if wording == 0:
        main = f"{p} won the {kind} in {m} minutes. {q} came second in {n} minutes, and {r} gave up."
        return ask(i, main, (f"Who came second in the {kind}?", q), (f"Who won the {kind}?", p))
    if wording == 1:
        main = f"Result of the {kind}: gold for {p}, {m} minutes; silver for {q}, {n} minutes; bronze for {r}."
        return ask(i, main, ("Who got bronze?", r), (f"What was {q}'s time?", f"{n} minutes"))
    main = f"In the {kind} {r} fell, {q} needed {n} minutes, and {p} was in front after {m} minutes."
    return ask(i, main, (f"Who fell in the {kind}?", r), (f"How long did {q} need?", f"{n} minutes"))


def recipe(d: Draw, wording: int, i: int) -> Made:
    dish, (x, y), grams = d.one("dishes"), d.some("ingredients", 2), 50 * d.rng.randint(2, 12)
    spoons, minutes = d.rng.randint(2, 9), 5 * d.rng.randint(2, 10)
    if wording == 0:
        main = (
            f"For the {dish}, mix {grams} grams of {x} with {spoons} spoons of {y} and bake them for {minutes} minutes."
        )
        return ask(i, main, (f"How many grams of {x} are needed?", grams), (f"How many spoons of {y} go in?", spoons))
    if wording == 1:
        main = f"Ingredients of the {dish}: {x} ({grams} grams), {y} ({spoons} spoons). In the oven: {minutes} minutes."
        return ask(
            i,
            main,
            (f"How long do the {dish} stay in the oven?", f"{minutes} minutes"),
            (f"Which ingredient is given as {spoons} spoons?", y),
        )
    main = f"The {dish} are ready after {minutes} minutes. They need {spoons} spoons of {x} and {grams} grams of {y}."
    return ask(
        i, main, ("After how many minutes are they ready?", minutes), (f"Of what do they need {grams} grams?", y)
    )


def neighbours(d: Draw, wording: int, i: int) -> Made:
    (p, q), (x, y), (s, t), (g, h) = d.people(2), d.some("towns", 2), d.some("sounds", 2), d.some("hobbies", 2)
    if wording == 0:
        main = f"{p} lives in {x}, plays the {s} and likes {g}. {q} lives in {y}, plays the {t} and likes {h}."
        return ask(i, main, (f"Which town does {q} live in?", y), (f"What does {p} play?", f"The {s}"))
    if wording == 1:
        main = f"New in the club: {p} from {x} ({s}, {g}) and {q} from {y} ({t}, {h})."
        return ask(i, main, (f"Which instrument is listed for {q}?", t), (f"Where is {p} from?", x))
    main = f"{q} has moved from {y} to {x} because of {h}. {p}, who owns the {s}, still goes in for {g}."
    return ask(i, main, (f"What has {q} moved for?", h), (f"Which instrument does {p} own?", f"The {s}"))


RETRIEVAL: dict[str, Kind] = {
    "timetable": timetable,
    "museum": museum,
    "note": note,
    "race": race,
    "recipe": recipe,
    "neighbours": neighbours,
}


# --- Logical Reasoning: rules, orders, cases


def rule(d: Draw, wording: int, i: int) -> Made:
    (k, m), p, (c, e) = d.some("nonsense", 2), d.people(1)[0], d.rng.sample(words.COLOURS, 2)
    own, colour = ((k, c), (m, e))[i % 3 == 0]
    main = (
        f"All {k}s are {c}, and all {m}s are {e}. {p} is {a(own)}.",
        f"Every {k} is {c}. Every {m} is {e}. We know that {p} is {a(own)}.",
        f"Whoever is {a(k)} is {c}; whoever is {a(m)} is {e}. {p} belongs to the {own}s.",
    )[wording]
    sub = (f"What colour is {p}?", f"Which colour must {p} have?", f"What follows for {p}'s colour?")[wording]
    return ask(i, main, (sub, colour))


def condition(d: Draw, wording: int, i: int) -> Made:
    """The one follows from the other, or is excluded because the other is not so."""
    (x, on, off), (y, up, down) = (s.split("/") for s in d.some("switches", 2))
    forward = i % 2 == 0
    fact = f"the {x} is {on}" if forward else f"the {y} is {down}"
    main = (
        f"If the {x} is {on}, the {y} is {up}. {capital(fact)}.",
        f"Whenever the {x} is {on}, the {y} is {up}. Now {fact}.",
        f"The {x} is never {on} unless the {y} is {up}. At present {fact}.",
    )[wording]
    asked, states = (y, (up, down)) if forward else (x, (on, off))
    answer = states[0] if forward else states[1]
    shown = either(states if (i // 2) % 2 else states[::-1])
    sub = (f"Is the {asked} {shown}?", f"So is the {asked} {shown}?", f"What must the {asked} be, {shown}?")[wording]
    return ask(i, main, (sub, answer))


def order(d: Draw, wording: int, i: int) -> Made:
    (p, q, r), (more, most, least) = d.people(3), d.one("comparisons").split("/")
    told = [f"{p} is {more} than {q}", f"{q} is {more} than {r}"]
    if i % 3 == 0:
        told.reverse()
    main = (f"{told[0]}. {told[1]}.", f"{told[0]}, and {told[1]}.", f"We know two things: {told[0]}; {told[1]}.")[
        wording
    ]
    subs = (
        (f"Who is the {least}?", f"Who is the {most}?"),
        (f"Which of the three is the {most}?", f"Which of the three is the {least}?"),
        (f"Who must be the {least} of them all?", f"Who must be the {most} of them all?"),
    )[wording]
    return ask(i, main, *((sub, r if least in sub else p) for sub in subs))


def exclusion(d: Draw, wording: int, i: int) -> Made:
    thing, (x, y, z), (p, q) = d.one("hidden"), d.rng.sample(words.COLOURS, 3), d.people(2)
    listed = either(d.rng.sample([x, y, z], 3))
    main = (
        f"The {thing} is in the {listed} box. It is not in the {x} one. It is not in the {y} one.",
        f"{p} hid the {thing} in the {listed} box. The {x} box is empty, and so is the {y} box.",
        f"One of the three boxes, {listed}, holds the {thing}. {p} rules out the {x} one and {q} the {y} one.",
    )[wording]
    if wording == 0:
        d.material = [m for m in d.material if m not in (p, q)]
    sub = (
        f"In which box is the {thing}?",
        f"What is the colour of the box with the {thing}?",
        f"Which box is left for the {thing}?",
    )[wording]
    return ask(i, main, (sub, f"The {z} box" if wording != 1 else z))


def chain(d: Draw, wording: int, i: int) -> Made:
    (k, m), p, verb, can = d.some("nonsense", 2), d.people(1)[0], d.one("abilities"), i % 2 == 0
    main = (
        f"Every {k} is {a(m)}. {'All' if can else 'No'} {m}s can {verb}. {p} is {a(k)}.",
        f"{p} is {a(k)}. All {k}s are {m}s. {'Every' if can else 'No'} {m} can {verb}.",
        f"{'Each' if can else 'Not one'} of the {m}s can {verb}. The {k}s are all {m}s, and {p} is one of the {k}s.",
    )[wording]
    sub = (f"Can {p} {verb}?", f"Is {p} able to {verb}?", f"Does it follow that {p} can {verb}?")[wording]
    return ask(i, main, (sub, "Yes" if can else "No"))


def matching(d: Draw, wording: int, i: int) -> Made:
    """p has the third of the things, q the first, r the second."""
    (p, q, r), (x, y, z) = d.people(3), d.rng.sample(d.one("triples").split("/"), 3)
    listed = either(d.rng.sample([a(x), a(y), a(z)], 3))
    main = (
        f"{p}, {q} and {r} each have something different: {listed}. {p} has neither the {x} nor the {y}. {q} does not"
        f" have the {y}.",
        f"Three children share {listed}. {q} did not take the {y}, and {p} took neither the {y} nor the {x}. {r} took"
        f" what was left.",
        f"There are {listed}, one for each of {p}, {q} and {r}. {p} refuses the {x} and the {y}; {q} refuses the {y}.",
    )[wording].replace(" or ", " and " if wording else " or ", 1)
    subs = (
        ((f"Who has the {y}?", r), (f"What does {p} have?", f"The {z}")),
        ((f"Who took the {z}?", p), (f"What did {q} take?", f"The {x}")),
        ((f"Who must get the {x}?", q), (f"What is left for {r}?", f"The {y}")),
    )[wording]
    return ask(i, main, *subs)


LOGIC: dict[str, Kind] = {
    "rule": rule,
    "condition": condition,
    "order": order,
    "exclusion": exclusion,
    "chain": chain,
    "matching": matching,
}


# --- Decision-making: the best that fits


def budget(d: Draw, wording: int, i: int) -> Made:
    """Most stars for the money. Two times in three the best of all is too dear."""
    p, thing, makes = d.people(1)[0], d.one("goods"), d.some("makes", 3)
    stars, limit = d.rng.sample([2, 3, 4, 5], 3), 10 * d.rng.randint(3, 9)
    best = makes[stars.index(max(stars))]
    dear = i % 3 != 0
    prices = {m: limit - d.rng.randint(2, 25) for m in makes} | ({best: limit + d.rng.randint(3, 30)} if dear else {})
    offers = [(m, prices[m], s) for m, s in zip(makes, stars, strict=True)]
    answer = max((s, m) for m, price, s in offers if price <= limit)[1]
    main = (
        f"{p} wants the {thing} with the most stars for at most {limit} euros. "
        + "; ".join(f"{m} costs {c} euros and has {s} stars" for m, c, s in offers)
        + ".",
        f"On sale: {', '.join(f'{m} ({c} euros, {s} stars)' for m, c, s in offers)}. {p} has {limit} euros for a good"
        f" {thing}: the more stars the better.",
        f"A test of {thing}s: {'; '.join(f'{m}, {s} stars, {c} euros' for m, c, s in offers)}."
        f" {p} cannot pay more than {limit} euros and wants the best.",
    )[wording]
    sub = (f"Which {thing} should {p} buy?", f"Which make should {p} choose?", f"Which one is the right one for {p}?")
    return ask(i, main, (sub[wording], answer))


def journey(d: Draw, wording: int, i: int) -> Made:
    """The cheapest that is in time. Two times in three the cheapest of all is too slow."""
    p, town, vehicles, limit = d.people(1)[0], d.one("towns"), d.some("vehicles", 3), 10 * d.rng.randint(3, 9)
    costs = d.rng.sample(range(2, 40), 3)
    cheapest = vehicles[costs.index(min(costs))]
    late = {cheapest: limit + d.rng.randint(5, 40)} if i % 3 else {}
    times = {v: limit - d.rng.randint(3, 22) for v in vehicles} | late
    offers = [(v, times[v], c) for v, c in zip(vehicles, costs, strict=True)]
    answer = min((c, v) for v, t, c in offers if t <= limit)[1]
    main = (
        f"{p} must be in {town} within {limit} minutes and wants to pay as little as possible. "
        + " ".join(f"The {v} takes {t} minutes and costs {c} euros." for v, t, c in offers),
        f"Ways to {town}: {', '.join(f'{v} ({t} minutes, {c} euros)' for v, t, c in offers)}. {p} has {limit} minutes"
        " and likes to save money.",
        f"{p} looks for the cheapest way to {town} that takes no longer than {limit} minutes. "
        + "; ".join(f"{c} euros and {t} minutes by {v}" for v, t, c in offers)
        + ".",
    )[wording]
    sub = ("What should {p} take?", "How should {p} travel?", "Which way to travel is best for {p}?")[wording].format(
        p=p
    )
    return ask(i, main, (sub, f"The {answer}" if wording == 0 else answer))


def room(d: Draw, wording: int, i: int) -> Made:
    """One room is too small, one lacks what is needed."""
    p, (x, y, z), (f, g), n = d.people(1)[0], d.some("rooms", 3), d.some("features", 2), 5 * d.rng.randint(4, 16)
    few, enough, many = n - d.rng.randint(3, 14), n + d.rng.randint(1, 9), n + d.rng.randint(10, 40)
    offers = d.rng.sample([(x, few, f), (y, many, g), (z, enough, f)], 3)
    main = (
        f"{p} needs a room for {n} people with {a(f)}. "
        + " ".join(f"The {r} has {k} seats and {a(h)}." for r, k, h in offers),
        f"To be had: {', '.join(f'{r} ({k} seats, {h})' for r, k, h in offers)}. {p} expects {n} guests and cannot do"
        f" without {a(f)}.",
        f"For {n} listeners and {a(f)}, {p} can rent "
        + either([f"the {r} with {k} seats and {a(h)}" for r, k, h in offers])
        + ".",
    )[wording]
    sub = ("Which room should {p} book?", "Which room is right?", "Which of them should {p} rent?")[wording].format(p=p)
    return ask(i, main, (sub, f"The {z}"))


def helper(d: Draw, wording: int, i: int) -> Made:
    """Only one can do both things."""
    (p, x, y, z), (s, t, u) = d.people(4), d.some("skills", 3)
    offers = d.rng.sample([(x, s, u), (y, u, t), (z, *d.rng.sample([s, t], 2))], 3)
    main = (
        f"{p} looks for somebody who can {s} and {t}. " + " ".join(f"{w} can {k} and {m}." for w, k, m in offers),
        " ".join(f"{w} can {k} and {m}." for w, k, m in offers) + f" The job is to {s} and to {t}.",
        f"{p} has to hire one person, to {s} and to {t}. Of the three who applied, "
        + either([f"{w} can {k} and {m}" for w, k, m in offers], "and")
        + ".",
    )[wording]
    if wording == 1:
        d.material.remove(p)
    sub = ("Whom should {p} take?", "Who should get the job?", "Who is the best choice?")[wording].format(p=p)
    return ask(i, main, (sub, z))


def date(d: Draw, wording: int, i: int) -> Made:
    """One day suits both."""
    (p, q), plan, days = d.people(2), d.one("plans"), d.rng.sample(words.DAYS, 5)
    both = days[0]
    first, second = (sorted(s, key=words.DAYS.index) for s in ((both, *days[1:3]), (both, *days[3:5])))
    one, other = either(first, "and"), either(second, "and")
    main = (
        f"{p} and {q} plan {a(plan)} together. {p} is free on {one}. {q} is free on {other}.",
        f"{p} has time on {one}; {q} has time on {other}. Both must come to the {plan}.",
        f"The {plan} needs {p}, who can come on {one}, and {q}, who can come on {other}.",
    )[wording]
    sub = (f"On which day should the {plan} be?", "Which day should they choose?", f"Which day is best for the {plan}?")
    return ask(i, main, (sub[wording], both))


def priority(d: Draw, wording: int, i: int) -> Made:
    """What matters most decides; between those that have it, what matters next."""
    p, home, (x, y, z) = d.people(1)[0], d.one("homes"), d.some("makes", 3)
    (good, bad), (fine, poor) = (v.split("/") for v in d.some("virtues", 2))
    offers = d.rng.sample([(x, good, poor), (y, bad, fine), (z, good, fine)], 3)
    if i % 3 == 0:
        offers = [(n, first, poor if n == z else second) for n, first, second in offers if n != x]
    listed = [f"{n} is {first} and {second}" for n, first, second in offers]
    if i % 3 == 0:
        d.material.remove(x)
    main = (
        f"{p} wants {a(home)} that is {good} above all, and {fine} if possible. {'; '.join(listed)}.",
        f"{capital(home)}s to let: {'; '.join(listed)}. For {p} it must be {good} and should be {fine}.",
        f"When {p} looks for {a(home)}, {good} comes first and {fine} second. {'; '.join(listed)}.",
    )[wording]
    sub = ("Which should {p} take?", "Which one should {p} rent?", "What is the best choice for {p}?")[wording].format(
        p=p
    )
    return ask(i, main, (sub, z))


DECISION: dict[str, Kind] = {
    "budget": budget,
    "journey": journey,
    "room": room,
    "helper": helper,
    "date": date,
    "priority": priority,
}


# --- Math Calculation


def plain(d: Draw, wording: int, i: int) -> Made:
    """A sum, or a difference."""
    low, high = sorted(d.pair((11, 60), (3, 39)))
    added = i % 2 == 0
    term, value = (f"{low} + {high}", low + high) if added else (f"{high} - {low}", high - low)
    main = (f"The task on the board is {term}.", f"Please calculate: {term}.", f"Somebody types {term} =")[wording]
    sub = ("What is the result?", "What does it come to?", "What does the calculator show?")[wording]
    return ask(i, main, (sub, value))


def more(d: Draw, wording: int, i: int) -> Made:
    (m, n), p, things = d.pair((5, 60), (3, 39)), d.people(1)[0], d.one("things")
    main = (
        f"{p} has {m} {things} and finds {n} more.",
        f"{p} puts {m} {things} on one shelf and {n} on the other.",
        f"{p} got {m} {things} last week and {n} this week.",
    )[wording]
    sub = (
        f"How many {things} does {p} have now?",
        f"How many {things} are there in all?",
        f"What is the total number of {things}?",
    )[wording]
    return ask(i, main, (sub, m + n))


def less(d: Draw, wording: int, i: int) -> Made:
    (n, m), p, things = sorted(d.pair((20, 70), (3, 40))), d.people(1)[0], d.one("things")
    main = (
        f"{p} had {m} {things} and lost {n} of them.",
        f"Of the {m} {things} in the drawer, {p} gives away {n}.",
        f"{p} needs {m} {things} and already has {n}.",
    )[wording]
    sub = (
        f"How many {things} does {p} still have?",
        f"How many {things} are left?",
        f"How many {things} are still missing?",
    )[wording]
    return ask(i, main, (sub, m - n))


def times(d: Draw, wording: int, i: int) -> Made:
    (m, n), p, things = d.pair((3, 9), (10, 25)), d.people(1)[0], d.one("things")
    main = (
        f"{p} has {m} boxes with {n} {things} in each.",
        f"There are {n} {things} in a bag, and {p} buys {m} bags.",
        f"{p} lays {things} in {m} rows of {n}.",
    )[wording]
    sub = (
        f"How many {things} are in the boxes?",
        f"How many {things} does {p} buy?",
        f"How many {things} are in the rows altogether?",
    )[wording]
    return ask(i, main, (sub, m * n))


def shared(d: Draw, wording: int, i: int) -> Made:
    (each, n), p, things = d.pair((11, 29), (2, 8)), d.people(1)[0], d.one("things")
    main = (
        f"{p} shares {each * n} {things} fairly among {n} friends.",
        f"{p} fills {n} jars with {each * n} {things}, the same number in each.",
        f"{p} deals out {each * n} {things} to {n} players until none is left.",
    )[wording]
    sub = (
        f"How many {things} does each friend get?",
        f"How many {things} are in one jar?",
        f"With how many {things} does every player end up?",
    )[wording]
    return ask(i, main, (sub, each))


def steps(d: Draw, wording: int, i: int) -> Made:
    (m, n), p, things = d.pair((31, 60), (5, 30)), d.people(1)[0], d.one("things")
    k = d.rng.choice([k for k in range(2, 21) if k != n])
    main = (
        f"{p} had {m} {things}, sold {n} and then bought {k}.",
        f"{p} collects {m} {things}, then {k} more, and gives {n} to a friend.",
        f"From a heap of {m} {things}, {p} takes {n} and later puts {k} back.",
    )[wording]
    sub = (
        f"How many {things} has {p} at the end?",
        f"How many {things} does {p} keep?",
        f"How many {things} are in the heap then?",
    )[wording]
    return ask(i, main, (sub, m - n + k))


MATH: dict[str, Kind] = {"plain": plain, "more": more, "less": less, "times": times, "shared": shared, "steps": steps}

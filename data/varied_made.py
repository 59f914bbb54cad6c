"""Computed questions of varied.py: passages, rules, choices and sums.

A kind is a function of a draw, the wording (0 and 1; 2 for the test split) and the index of the question among those
with this wording. It returns a letter for the sub-question, the main question, the sub-question and the answer.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from word_lists import Person, capital, read_lists

words = read_lists("varied")

SPLITS = ("train", "validation", "test")
ComputedQuestion = tuple[str, str, str, str]


@dataclass(frozen=True)
class VariedQuestion:
    """A question with its answer, the name of its template, and the words it is about."""

    main: str
    sub: str
    answer: str
    template: str
    material: tuple[str, ...]


@dataclass
class SplitDraw:
    """Draws from the words of one split, with a record of them. numbers: pairs that other questions use."""

    rng: random.Random
    split: str
    used_numbers: set[tuple[int, int]] = field(default_factory=set)
    material: list[str] = field(default_factory=list)
    new_numbers: set[tuple[int, int]] = field(default_factory=set)

    def sample(self, pool: str, n: int = 1) -> list[str]:
        """Draw n different items. Of 'lamp/on/off', only the first word is material, except in triples."""
        pool_words = words.POOLS[pool].split(" | ")[SPLITS.index(self.split)].split(", ")
        sampled = self.rng.sample(pool_words, n)
        for item in sampled:
            self.material += item.split("/") if pool == "triples" else [item.split("/")[0]]
        return sampled

    def sample_one(self, pool: str) -> str:
        return self.sample(pool)[0]

    def people(self, n: int) -> list[str]:
        """Draw n names of girls and boys, in random order."""
        names = self.sample("girls", n) + self.sample("boys", n)
        sampled = self.rng.sample(names, n)
        self.material = [m for m in self.material if m not in names or m in sampled]
        return sampled

    def person(self) -> Person:
        name = self.people(1)[0]
        return Person(name, name in re.split(", | \\| ", words.POOLS["girls"]))

    def pair(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        """Draw two numbers within limits that no other question has."""
        while True:
            a, b = self.rng.randint(*first), self.rng.randint(*second)
            key = (min(a, b), max(a, b))
            if a != b and key not in self.used_numbers:
                self.new_numbers.add(key)
                self.material.append(f"{key[0]} and {key[1]}")
                return a, b


Kind = Callable[[SplitDraw, int, int], ComputedQuestion]


def join_options(options: Sequence[str], word: str = "or") -> str:
    """Join options: 'a, b or c'."""
    return f"{', '.join(options[:-1])} {word} {options[-1]}"


def with_article(noun: str) -> str:
    """Put the article before a noun."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def clock_time(rng: random.Random, hour: int | None = None) -> str:
    return f"{hour or rng.randint(7, 12)}:{rng.choice(['05', '10', '15', '20', '25', '35', '40', '45', '50', '55'])}"


def two_clock_times(rng: random.Random) -> tuple[str, str]:
    hours = sorted(rng.sample(range(7, 13), 2))
    return clock_time(rng, hours[0]), clock_time(rng, hours[1])


def pick_sub_question(turn: int, main: str, *subs: tuple[str, object]) -> ComputedQuestion:
    """Pick one of the sub-questions, in turn."""
    index = turn % len(subs)
    sub, answer = subs[index]
    return "abc"[index] if len(subs) > 1 else "", main, sub, str(answer)


# --- Retrieval: the answer is in a passage


def timetable(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (town, other), (early, later) = d.sample("towns", 2), two_clock_times(d.rng)
    p, q = d.rng.sample(range(1, 15), 2)
    if wording == 0:
        main = f"The train to {town} leaves at {early} from platform {p}."
        main += f" The train to {other} leaves at {later} from platform {q}."
        return pick_sub_question(
            i,
            main,
            (f"From which platform does the train to {other} leave?", f"Platform {q}"),
            (f"When does the train to {town} leave?", early),
        )
    if wording == 1:
        main = f"Departures: {early}, {town}, platform {p}; {later}, {other}, platform {q}."
        return pick_sub_question(
            i,
            main,
            (f"Which town does the {later} train go to?", other),
            (f"At what time is the train to {other}?", later),
        )
    main = f"Passengers for {town} wait on platform {p} until {early}, those for {other} on platform {q} until {later}."
    return pick_sub_question(
        i,
        main,
        (f"Where do the passengers for {town} wait?", f"Platform {p}"),
        (f"Until when must the passengers for {other} wait?", later),
    )


def museum(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (x, y), (p, q), town, room = d.sample("relics", 2), d.people(2), d.sample_one("towns"), d.rng.randint(2, 19)
    if wording == 0:
        main = f"Room {room} of the museum shows {with_article(x)} that {p} found in {town}."
        main += f" Beside it lies {with_article(y)}, a gift from {q}."
        return pick_sub_question(i, main, (f"Who found the {x}?", p), (f"Who gave the {y} to the museum?", q))
    if wording == 1:
        main = f"The {x} came to light near {town} and is in room {room}. {q} sold the {y} to the museum."
        return pick_sub_question(
            i, main, (f"Near which town did the {x} come to light?", town), (f"Who sold the {y}?", q)
        )
    main = f"The guide, {p}, begins with the {x}, which was dug up at {town}, and ends with the {y} in room {room}."
    return pick_sub_question(
        i, main, (f"Where was the {x} dug up?", town), ("With what does the guide end?", f"The {y}")
    )


def note(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    # The order of the draws decides the data.
    p, q = d.people(2)
    place, other = d.sample("hideouts", 2)
    pet = d.sample_one("pets")
    feeding_time = clock_time(d.rng)
    if wording == 0:
        main = f"Dear {p}, the key is under the {place} and the rent is under the {other}. Please feed the {pet} at"
        main += f" {feeding_time}. Yours, {q}."
        return pick_sub_question(
            i, main, ("Under what is the key?", f"The {place}"), ("Which animal is to be fed?", f"The {pet}")
        )
    if wording == 1:
        main = f"Message from {q}: the {pet} gets its food at {feeding_time};"
        main += f" the spare key is behind the {place}, not behind the {other}."
        return pick_sub_question(
            i, main, ("When does the animal get its food?", feeding_time), ("Who has left the message?", q)
        )
    main = (
        f"{p} reads the slip: 'Back on Sunday. Money is in the {place}, the medicine for the {pet} in the {other}. {q}'"
    )
    return pick_sub_question(i, main, ("In what is the medicine?", f"The {other}"), ("Whose signature is on it?", q))


def race(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (p, q, r), kind, (m, n) = d.people(3), d.sample_one("races"), sorted(d.rng.sample(range(11, 59), 2))
    if wording == 0:
        main = f"{p} won the {kind} in {m} minutes. {q} came second in {n} minutes, and {r} gave up."
        return pick_sub_question(i, main, (f"Who came second in the {kind}?", q), (f"Who won the {kind}?", p))
    if wording == 1:
        main = f"Result of the {kind}: gold for {p}, {m} minutes; silver for {q}, {n} minutes; bronze for {r}."
        return pick_sub_question(i, main, ("Who got bronze?", r), (f"What was {q}'s time?", f"{n} minutes"))
    main = f"In the {kind} {r} fell, {q} needed {n} minutes, and {p} was in front after {m} minutes."
    return pick_sub_question(i, main, (f"Who fell in the {kind}?", r), (f"How long did {q} need?", f"{n} minutes"))


def recipe(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    dish, (x, y), grams = d.sample_one("dishes"), d.sample("ingredients", 2), 50 * d.rng.randint(2, 12)
    spoons, minutes = d.rng.randint(2, 9), 5 * d.rng.randint(2, 10)
    if wording == 0:
        main = (
            f"For the {dish}, mix {grams} grams of {x} with {spoons} spoons of {y} and bake them for {minutes} minutes."
        )
        return pick_sub_question(
            i, main, (f"How many grams of {x} are needed?", grams), (f"How many spoons of {y} go in?", spoons)
        )
    if wording == 1:
        main = f"Ingredients of the {dish}: {x} ({grams} grams), {y} ({spoons} spoons). In the oven: {minutes} minutes."
        return pick_sub_question(
            i,
            main,
            (f"How long do the {dish} stay in the oven?", f"{minutes} minutes"),
            (f"Which ingredient is given as {spoons} spoons?", y),
        )
    main = f"The {dish} are ready after {minutes} minutes. They need {spoons} spoons of {x} and {grams} grams of {y}."
    return pick_sub_question(
        i, main, ("After how many minutes are they ready?", minutes), (f"Of what do they need {grams} grams?", y)
    )


def neighbours(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (p, q), (x, y), (s, t), (g, h) = d.people(2), d.sample("towns", 2), d.sample("sounds", 2), d.sample("hobbies", 2)
    if wording == 0:
        main = f"{p} lives in {x}, plays the {s} and likes {g}. {q} lives in {y}, plays the {t} and likes {h}."
        return pick_sub_question(i, main, (f"Which town does {q} live in?", y), (f"What does {p} play?", f"The {s}"))
    if wording == 1:
        main = f"New in the club: {p} from {x} ({s}, {g}) and {q} from {y} ({t}, {h})."
        return pick_sub_question(i, main, (f"Which instrument is listed for {q}?", t), (f"Where is {p} from?", x))
    main = f"{q} has moved from {y} to {x} because of {h}. {p}, who owns the {s}, still goes in for {g}."
    return pick_sub_question(i, main, (f"What has {q} moved for?", h), (f"Which instrument does {p} own?", f"The {s}"))


RETRIEVAL: dict[str, Kind] = {
    "timetable": timetable,
    "museum": museum,
    "note": note,
    "race": race,
    "recipe": recipe,
    "neighbours": neighbours,
}


# --- Logical Reasoning: rules, orders, cases


def category_rule(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (k, m), p, (c, e) = d.sample("nonsense", 2), d.people(1)[0], d.rng.sample(words.COLOURS, 2)
    member_of, colour = ((k, c), (m, e))[i % 3 == 0]
    main = (
        f"All {k}s are {c}, and all {m}s are {e}. {p} is {with_article(member_of)}.",
        f"Every {k} is {c}. Every {m} is {e}. We know that {p} is {with_article(member_of)}.",
        f"Whoever is {with_article(k)} is {c}; whoever is {with_article(m)} is {e}. {p} belongs to the {member_of}s.",
    )[wording]
    sub = (f"What colour is {p}?", f"Which colour must {p} have?", f"What follows for {p}'s colour?")[wording]
    return pick_sub_question(i, main, (sub, colour))


def condition(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Ask for a state that follows from the other, or that is excluded because the other does not hold."""
    (x, on_state, off_state), (y, up_state, down_state) = (s.split("/") for s in d.sample("switches", 2))
    forward = i % 2 == 0
    fact = f"the {x} is {on_state}" if forward else f"the {y} is {down_state}"
    main = (
        f"If the {x} is {on_state}, the {y} is {up_state}. {capital(fact)}.",
        f"Whenever the {x} is {on_state}, the {y} is {up_state}. Now {fact}.",
        f"The {x} is never {on_state} unless the {y} is {up_state}. At present {fact}.",
    )[wording]
    device, states = (y, (up_state, down_state)) if forward else (x, (on_state, off_state))
    answer = states[0] if forward else states[1]
    options = join_options(states if (i // 2) % 2 else states[::-1])
    sub = (f"Is the {device} {options}?", f"So is the {device} {options}?", f"What must the {device} be, {options}?")[
        wording
    ]
    return pick_sub_question(i, main, (sub, answer))


def ranking(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (p, q, r), (comparative, highest, lowest) = d.people(3), d.sample_one("comparisons").split("/")
    statements = [f"{p} is {comparative} than {q}", f"{q} is {comparative} than {r}"]
    if i % 3 == 0:
        statements.reverse()
    main = (
        f"{statements[0]}. {statements[1]}.",
        f"{statements[0]}, and {statements[1]}.",
        f"We know two things: {statements[0]}; {statements[1]}.",
    )[wording]
    subs = (
        (f"Who is the {lowest}?", f"Who is the {highest}?"),
        (f"Which of the three is the {highest}?", f"Which of the three is the {lowest}?"),
        (f"Who must be the {lowest} of them all?", f"Who must be the {highest} of them all?"),
    )[wording]
    return pick_sub_question(i, main, *((sub, r if lowest in sub else p) for sub in subs))


def exclusion(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    thing, (x, y, z), (p, q) = d.sample_one("hidden"), d.rng.sample(words.COLOURS, 3), d.people(2)
    colours = join_options(d.rng.sample([x, y, z], 3))
    main = (
        f"The {thing} is in the {colours} box. It is not in the {x} one. It is not in the {y} one.",
        f"{p} hid the {thing} in the {colours} box. The {x} box is empty, and so is the {y} box.",
        f"One of the three boxes, {colours}, holds the {thing}. {p} rules out the {x} one and {q} the {y} one.",
    )[wording]
    if wording == 0:
        d.material = [m for m in d.material if m not in (p, q)]
    sub = (
        f"In which box is the {thing}?",
        f"What is the colour of the box with the {thing}?",
        f"Which box is left for the {thing}?",
    )[wording]
    return pick_sub_question(i, main, (sub, f"The {z} box" if wording != 1 else z))


def syllogism(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (k, m), p, verb, is_able = d.sample("nonsense", 2), d.people(1)[0], d.sample_one("abilities"), i % 2 == 0
    main = (
        f"Every {k} is {with_article(m)}. {'All' if is_able else 'No'} {m}s can {verb}. {p} is {with_article(k)}.",
        f"{p} is {with_article(k)}. All {k}s are {m}s. {'Every' if is_able else 'No'} {m} can {verb}.",
        f"{'Each' if is_able else 'Not one'} of the {m}s can {verb}."
        f" The {k}s are all {m}s, and {p} is one of the {k}s.",
    )[wording]
    sub = (f"Can {p} {verb}?", f"Is {p} able to {verb}?", f"Does it follow that {p} can {verb}?")[wording]
    return pick_sub_question(i, main, (sub, "Yes" if is_able else "No"))


def matching(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Give p the third of the things, q the first, r the second."""
    (p, q, r), (x, y, z) = d.people(3), d.rng.sample(d.sample_one("triples").split("/"), 3)
    things = join_options(d.rng.sample([with_article(x), with_article(y), with_article(z)], 3))
    main = (
        f"{p}, {q} and {r} each have something different: {things}. {p} has neither the {x} nor the {y}. {q} does not"
        f" have the {y}.",
        f"Three children share {things}. {q} did not take the {y}, and {p} took neither the {y} nor the {x}. {r} took"
        f" what was left.",
        f"There are {things}, one for each of {p}, {q} and {r}. {p} refuses the {x} and the {y}; {q} refuses the {y}.",
    )[wording].replace(" or ", " and " if wording else " or ", 1)
    subs = (
        ((f"Who has the {y}?", r), (f"What does {p} have?", f"The {z}")),
        ((f"Who took the {z}?", p), (f"What did {q} take?", f"The {x}")),
        ((f"Who must get the {x}?", q), (f"What is left for {r}?", f"The {y}")),
    )[wording]
    return pick_sub_question(i, main, *subs)


LOGIC: dict[str, Kind] = {
    "rule": category_rule,
    "condition": condition,
    "order": ranking,
    "exclusion": exclusion,
    "chain": syllogism,
    "matching": matching,
}


# --- Decision-making: the best permitted option


def budget(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Ask for the most stars within a budget. In two of three questions the best of all is too expensive."""
    p, thing, makes = d.people(1)[0], d.sample_one("goods"), d.sample("makes", 3)
    stars, limit = d.rng.sample([2, 3, 4, 5], 3), 10 * d.rng.randint(3, 9)
    best = makes[stars.index(max(stars))]
    is_too_dear = i % 3 != 0
    prices = {m: limit - d.rng.randint(2, 25) for m in makes} | (
        {best: limit + d.rng.randint(3, 30)} if is_too_dear else {}
    )
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
    return pick_sub_question(i, main, (sub[wording], answer))


def journey(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Ask for the cheapest option in time. In two of three questions the cheapest of all is too slow."""
    p, town, vehicles, limit = d.people(1)[0], d.sample_one("towns"), d.sample("vehicles", 3), 10 * d.rng.randint(3, 9)
    costs = d.rng.sample(range(2, 40), 3)
    cheapest = vehicles[costs.index(min(costs))]
    too_slow = {cheapest: limit + d.rng.randint(5, 40)} if i % 3 else {}
    minutes = {v: limit - d.rng.randint(3, 22) for v in vehicles} | too_slow
    offers = [(v, minutes[v], c) for v, c in zip(vehicles, costs, strict=True)]
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
    return pick_sub_question(i, main, (sub, f"The {answer}" if wording == 0 else answer))


def room(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Offer three rooms: one is too small, one lacks the feature."""
    p, (x, y, z), (f, g), n = d.people(1)[0], d.sample("rooms", 3), d.sample("features", 2), 5 * d.rng.randint(4, 16)
    too_few_seats = n - d.rng.randint(3, 14)
    sufficient_seats = n + d.rng.randint(1, 9)
    ample_seats = n + d.rng.randint(10, 40)
    offers = d.rng.sample([(x, too_few_seats, f), (y, ample_seats, g), (z, sufficient_seats, f)], 3)
    main = (
        f"{p} needs a room for {n} people with {with_article(f)}. "
        + " ".join(f"The {r} has {k} seats and {with_article(h)}." for r, k, h in offers),
        f"To be had: {', '.join(f'{r} ({k} seats, {h})' for r, k, h in offers)}. {p} expects {n} guests and cannot do"
        f" without {with_article(f)}.",
        f"For {n} listeners and {with_article(f)}, {p} can rent "
        + join_options([f"the {r} with {k} seats and {with_article(h)}" for r, k, h in offers])
        + ".",
    )[wording]
    sub = ("Which room should {p} book?", "Which room is right?", "Which of them should {p} rent?")[wording].format(p=p)
    return pick_sub_question(i, main, (sub, f"The {z}"))


def helper(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Offer three people, of whom only one can do both things."""
    (p, x, y, z), (s, t, u) = d.people(4), d.sample("skills", 3)
    offers = d.rng.sample([(x, s, u), (y, u, t), (z, *d.rng.sample([s, t], 2))], 3)
    main = (
        f"{p} looks for somebody who can {s} and {t}. " + " ".join(f"{w} can {k} and {m}." for w, k, m in offers),
        " ".join(f"{w} can {k} and {m}." for w, k, m in offers) + f" The job is to {s} and to {t}.",
        f"{p} has to hire one person, to {s} and to {t}. Of the three who applied, "
        + join_options([f"{w} can {k} and {m}" for w, k, m in offers], "and")
        + ".",
    )[wording]
    if wording == 1:
        d.material.remove(p)
    sub = ("Whom should {p} take?", "Who should get the job?", "Who is the best choice?")[wording].format(p=p)
    return pick_sub_question(i, main, (sub, z))


def meeting_day(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Ask for the one day that suits both."""
    (p, q), plan, days = d.people(2), d.sample_one("plans"), d.rng.sample(words.DAYS, 5)
    shared_day = days[0]
    first, second = (sorted(s, key=words.DAYS.index) for s in ((shared_day, *days[1:3]), (shared_day, *days[3:5])))
    first_days, second_days = join_options(first, "and"), join_options(second, "and")
    main = (
        f"{p} and {q} plan {with_article(plan)} together. {p} is free on {first_days}. {q} is free on {second_days}.",
        f"{p} has time on {first_days}; {q} has time on {second_days}. Both must come to the {plan}.",
        f"The {plan} needs {p}, who can come on {first_days}, and {q}, who can come on {second_days}.",
    )[wording]
    sub = (f"On which day should the {plan} be?", "Which day should they choose?", f"Which day is best for the {plan}?")
    return pick_sub_question(i, main, (sub[wording], shared_day))


def priority(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Ask for the option with the first priority, and with the second among those."""
    p, home, (x, y, z) = d.people(1)[0], d.sample_one("homes"), d.sample("makes", 3)
    (good, bad), (fine, poor) = (v.split("/") for v in d.sample("virtues", 2))
    offers = d.rng.sample([(x, good, poor), (y, bad, fine), (z, good, fine)], 3)
    if i % 3 == 0:
        offers = [(n, first, poor if n == z else second) for n, first, second in offers if n != x]
    descriptions = [f"{n} is {first} and {second}" for n, first, second in offers]
    if i % 3 == 0:
        d.material.remove(x)
    main = (
        f"{p} wants {with_article(home)} that is {good} above all, and {fine} if possible. {'; '.join(descriptions)}.",
        f"{capital(home)}s to let: {'; '.join(descriptions)}. For {p} it must be {good} and should be {fine}.",
        f"When {p} looks for {with_article(home)}, {good} comes first and {fine} second. {'; '.join(descriptions)}.",
    )[wording]
    sub = ("Which should {p} take?", "Which one should {p} rent?", "What is the best choice for {p}?")[wording].format(
        p=p
    )
    return pick_sub_question(i, main, (sub, z))


DECISION: dict[str, Kind] = {
    "budget": budget,
    "journey": journey,
    "room": room,
    "helper": helper,
    "date": meeting_day,
    "priority": priority,
}


# --- Math Calculation


def bare_sum(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    """Ask for a sum or a difference."""
    low, high = sorted(d.pair((11, 60), (3, 39)))
    added = i % 2 == 0
    term, value = (f"{low} + {high}", low + high) if added else (f"{high} - {low}", high - low)
    main = (f"The task on the board is {term}.", f"Please calculate: {term}.", f"Somebody types {term} =")[wording]
    sub = ("What is the result?", "What does it come to?", "What does the calculator show?")[wording]
    return pick_sub_question(i, main, (sub, value))


def addition(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (m, n), p, things = d.pair((5, 60), (3, 39)), d.people(1)[0], d.sample_one("things")
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
    return pick_sub_question(i, main, (sub, m + n))


def subtraction(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (n, m), p, things = sorted(d.pair((20, 70), (3, 40))), d.people(1)[0], d.sample_one("things")
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
    return pick_sub_question(i, main, (sub, m - n))


def multiplication(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (m, n), p, things = d.pair((3, 9), (10, 25)), d.people(1)[0], d.sample_one("things")
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
    return pick_sub_question(i, main, (sub, m * n))


def division(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (quotient, n), p, things = d.pair((11, 29), (2, 8)), d.people(1)[0], d.sample_one("things")
    main = (
        f"{p} shares {quotient * n} {things} fairly among {n} friends.",
        f"{p} fills {n} jars with {quotient * n} {things}, the same number in each.",
        f"{p} deals out {quotient * n} {things} to {n} players until none is left.",
    )[wording]
    sub = (
        f"How many {things} does each friend get?",
        f"How many {things} are in one jar?",
        f"With how many {things} does every player end up?",
    )[wording]
    return pick_sub_question(i, main, (sub, quotient))


def two_steps(d: SplitDraw, wording: int, i: int) -> ComputedQuestion:
    (m, n), p, things = d.pair((31, 60), (5, 30)), d.people(1)[0], d.sample_one("things")
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
    return pick_sub_question(i, main, (sub, m - n + k))


MATH: dict[str, Kind] = {
    "plain": bare_sum,
    "more": addition,
    "less": subtraction,
    "times": multiplication,
    "shared": division,
    "steps": two_steps,
}

"""The shipped gate tasks, read as files: what is right in them is worked out here again, not asked of the generator."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import headatlas

ROOT = Path(__file__).parents[2]
FOLDER = Path(headatlas.__file__).parent / "tasks" / "data" / "gate"
KINDS = {
    "math": "difference_1 difference_2 product sum_1 sum_2 two_step word_1 word_2",
    "syntax": "agreement minimal_pair negation plural pronoun question tense",
    "commonsense": "cause material order part place property purpose social",
}
SPLITS = ("train", "held_out")
Row = dict[str, str]


def load(task: str) -> list[Row]:
    return [json.loads(line) for line in (FOLDER / f"{task}.jsonl").read_text(encoding="utf-8").splitlines()]


def of_kind(task: str, kind: str) -> list[Row]:
    rows = [row for row in load(task) if row["kind"] == kind]
    assert rows, kind
    return rows


@pytest.mark.parametrize("task", KINDS)
def test_counts_and_splits(task: str) -> None:
    rows = load(task)
    assert 480 <= len(rows) <= 640
    assert all(list(row) == ["prompt", "target", "kind", "split"] for row in rows)
    assert {row["split"] for row in rows} == set(SPLITS)
    assert " ".join(sorted({row["kind"] for row in rows})) == KINDS[task]
    count = Counter((row["kind"], row["split"]) for row in rows)
    for kind in KINDS[task].split():
        train, held_out = (count[kind, split] for split in SPLITS)
        assert train >= 24, kind
        assert held_out >= 8, kind
        assert 0.2 <= held_out / (train + held_out) <= 0.3, kind


@pytest.mark.parametrize("task", KINDS)
def test_texts(task: str) -> None:
    rows = load(task)
    assert [p for p, n in Counter(row["prompt"] for row in rows).items() if n > 1] == []
    for row in rows:
        assert row["prompt"] == row["prompt"].strip(), row
        assert re.fullmatch(r" \S+( \S+)*", row["target"]), row
        assert "\n\n" not in row["prompt"], row  # it stands between examples
        assert "  " not in row["prompt"] + row["target"], row


# ---------------------------------------------------------------------------------------------------------------- math

OPERANDS = {"sum_1": 1, "difference_1": 1, "product": 1, "sum_2": 2, "difference_2": 2}
OPERATORS = {"sum_1": "+", "difference_1": "-", "product": "*", "sum_2": "+", "difference_2": "-"}


def work_out(terms: list[str]) -> int:
    """'3 + 4 - 2' from left to right; '*' only stands alone."""
    value = int(terms[0])
    for operator, number in zip(terms[1::2], terms[2::2], strict=True):
        value = {"+": value + int(number), "-": value - int(number), "*": value * int(number)}[operator]
    return value


@pytest.mark.parametrize("kind", [*OPERANDS, "two_step"])
def test_arithmetic(kind: str) -> None:
    for row in of_kind("math", kind):
        *terms, equals = row["prompt"].split()
        assert equals == "="
        assert row["target"] == f" {work_out(terms)}", row
        if kind == "two_step":
            assert len(terms) == 5
            assert set(terms[1::2]) <= {"+", "-"}
            assert all(len(number) == 1 for number in terms[::2])
        else:
            assert terms[1::2] == [OPERATORS[kind]]
            assert all(len(number) == OPERANDS[kind] for number in terms[::2])


# Every word problem is to match one of these and no other; the numbers are the sentence's, in its order.
PROBLEMS = {
    r"has # \w+ and buys # more\. .* in all\?": lambda a, b: a + b,
    r"finds # \w+, then # more\. .* in all\?": lambda a, b: a + b,
    r"# \w+ are in a box and # in a bag\. .* in all\?": lambda a, b: a + b,
    r"has # \w+ and \w+ has #\. .* together\?": lambda a, b: a + b,
    r"packs # \w+ and adds #\. .* in all\?": lambda a, b: a + b,
    r"saw # \w+ on Monday and # on Friday\. .* in all\?": lambda a, b: a + b,
    r"has # \w+ and (loses|gives away) #\. .* left\?": lambda a, b: a - b,
    r"had # \w+ and sold #\. .* left\?": lambda a, b: a - b,
    r"had # \w+ and gave \w+ #\. .* left\?": lambda a, b: a - b,
    r"There were # \w+, but \w+ took #\. .* left\?": lambda a, b: a - b,
    r"has # \w+ and \w+ has #\. How many more has \w+\?": lambda a, b: a - b,
    r"has # bags of # \w+\. .* in all\?": lambda a, b: a * b,
    r"Each box holds # \w+\. How many \w+ in # boxes\?": lambda a, b: a * b,
    r"fills # jars with # \w+ each\. .* in all\?": lambda a, b: a * b,
    r"shares # \w+ among # friends\. How many for each\?": lambda a, b: a / b,
    r"puts # \w+ into # equal piles\. How many in each\?": lambda a, b: a / b,
    r"has # \w+, buys # more and loses #\. .* left\?": lambda a, b, c: a + b - c,
    r"had # \w+, sold # and lost #\. .* left\?": lambda a, b, c: a - b - c,
    r"finds # \w+, gives away # and finds # more\. .* now\?": lambda a, b, c: a - b + c,
    r"had # \w+, gave \w+ # and then got #\. .* now\?": lambda a, b, c: a - b + c,
    r"buys # bags of # \w+ and gives away #\. .* left\?": lambda a, b, c: a * b - c,
    r"filled # jars with # \w+ each and ate #\. .* left\?": lambda a, b, c: a * b - c,
    r"has # \w+ and # bags of # \w+\. .* in all\?": lambda a, b, c: a + b * c,
    r"sold # \w+ on Monday, # on Tuesday and # on Friday\. .* in all\?": lambda a, b, c: a + b + c,
    r"has # \w+ and \w+ has # more than \w+\. .* together\?": lambda a, b: a + a + b,
    r"packs # \w+, and \w+ packs # fewer than \w+\. .* together\?": lambda a, b: a + a - b,
    r"has # \w+, \w+ has #, and they share them equally\. How many for each\?": lambda a, b: (a + b) / 2,
}


@pytest.mark.parametrize("kind", ["word_1", "word_2"])
def test_word_problems(kind: str) -> None:
    for row in of_kind("math", kind):
        matching = [
            (rule, [int(n) for n in re.findall(r"\d+", row["prompt"])])
            for pattern, rule in PROBLEMS.items()
            if re.fullmatch(rf"(\w+ )?{pattern.replace('#', '[0-9]+')} Answer:", row["prompt"])
        ]
        assert len(matching) == 1, row
        rule, numbers = matching[0]
        assert float(row["target"]) == rule(*numbers), row
        assert rule(*numbers) > 0, row


@pytest.mark.parametrize("kind", KINDS["math"].split())
def test_held_out_numbers_are_not_in_train(kind: str) -> None:
    rows = of_kind("math", kind)
    numbers = {s: {tuple(sorted(re.findall(r"\d+", r["prompt"]))) for r in rows if r["split"] == s} for s in SPLITS}
    assert numbers["train"] & numbers["held_out"] == set()


@pytest.mark.parametrize("kind", ["word_1", "word_2"])
def test_held_out_word_problems_have_their_own_people_and_sentences(kind: str) -> None:
    rows = of_kind("math", kind)
    people = {s: {n for r in rows if r["split"] == s for n in re.findall(r"[A-Z]\w+", r["prompt"])} for s in SPLITS}
    shared = {"How", "Answer", "There", "Each", "Monday", "Tuesday", "Friday"}
    assert people["train"] & people["held_out"] <= shared
    assert people["held_out"] - shared


# -------------------------------------------------------------------------------------------------------------- syntax

# The words of the sentence patterns; no other word of a held-out example may be in a train example of its kind.
FRAMES = {
    "agreement": "the often is are was were has have to on of from about in near by behind over for",
    "tense": "today yesterday i we they",
    "plural": "one two",
    "pronoun": "all and by did got i is it my not said so the we were was left without he she him her them they us me"
    " his hers theirs himself herself themselves"
    # what the people do and own: these are drawn anew for every one of them
    " cooked dinner went home built lived sang worked ate lunch cleaned up moved in called met fell helped thanked"
    " lost found won praised sad hugged late kind liked hat car house bag coat phone cup bike room desk key ball",
    "negation": "yes no not am is are was were do does did has have had will would could should must"
    " i you he she it we they a the in at here me him her us"
    " tom anna ben lucy sam mary rosa leo max boys girls",  # subjects
    "question": "i ask whether is are was were do does did has have will can could should must he she it they a the my"
    " what when where why how isn't wasn't weren't aren't didn't doesn't don't can't couldn't shouldn't hasn't won't"
    " here there boys girls",
    "minimal_pair": "this that these those every several many the has have had soon can must will should"
    " may might could often always enjoys likes loves very much too far so even is are was were it i we he she they"
    " everybody nobody something anything not all by because with when at himself herself themselves my"
    " tom anna ben lucy leo me him them us",
}


@pytest.mark.parametrize("kind", KINDS["syntax"].split())
def test_held_out_words_are_not_in_train(kind: str) -> None:
    words: dict[str, set[str]] = {split: set() for split in SPLITS}
    for row in of_kind("syntax", kind):
        words[row["split"]] |= set(re.findall(r"[a-z']+", (row["prompt"] + row["target"]).lower()))
    assert words["train"] & words["held_out"] - set(FRAMES[kind].split()) == set()
    assert len(words["held_out"] - set(FRAMES[kind].split())) >= 8


def test_a_choice_holds_its_target() -> None:
    """'is/are: The keys to the cabinet': the target is one of the two, and not always in the same place."""
    places = Counter()
    for row in load("syntax"):
        if match := re.match(r"([\w]+)/([\w]+): ", row["prompt"]):
            assert row["kind"] in ("agreement", "minimal_pair"), row
            places[match.groups().index(row["target"].strip())] += 1
    assert min(places[0], places[1]) > 0.4 * sum(places.values())


def test_attractors_have_the_other_number() -> None:
    """The target follows the first noun, and the second noun has the other number."""
    irregular = {"shelves": "shelf"}
    rows = [row for row in of_kind("syntax", "agreement") if "/" in row["prompt"]]
    assert len(rows) >= 40
    for row in rows:
        _, _, head, _, _, other = row["prompt"].split()
        plural = [irregular.get(noun, noun).endswith("s") or noun in irregular for noun in (head, other)]
        assert plural == [row["target"] in (" are", " were", " have"), row["target"] in (" is", " was", " has")], row


def test_verbs_agree() -> None:
    """'The dogs often bark. The dog often' -> ' barks': one of the two forms is the other with an s."""
    rows = [row for row in of_kind("syntax", "agreement") if " often" in row["prompt"]]
    assert len(rows) >= 30
    for row in rows:
        _, first, _, verb, _, second, _ = row["prompt"].replace(".", "").split()
        target = row["target"].strip()
        longer, base = (target, verb) if len(target) > len(verb) else (verb, target)
        assert longer in (f"{base}s", f"{base}es", f"{base.removesuffix('y')}ies"), row
        one = second if longer == target else first
        assert one in ({first, second} - {"mice", "men", "women", "children"}), row
        assert not one.endswith("s"), row


def test_minimal_pairs_come_in_pairs() -> None:
    """Every prompt has another in its split that differs in one word and has another target."""
    rows = of_kind("syntax", "minimal_pair")
    for row in rows:
        mine = row["prompt"].split()
        partners = [
            other
            for other in rows
            if other["split"] == row["split"]
            and len(theirs := other["prompt"].split()) == len(mine)
            and sum(a != b for a, b in zip(mine, theirs, strict=True)) == 1
            and other["target"] != row["target"]
        ]
        assert partners, row


def test_negation_keeps_the_auxiliary() -> None:
    auxiliaries = {"am", "is", "are", "was", "were", "has", "have", "had"}
    auxiliaries |= {"will", "would", "could", "should", "must"}
    for row in of_kind("syntax", "negation"):
        sentence, subject = re.fullmatch(r"Yes: (.+)\. No: (.+)", row["prompt"]).groups()
        assert sentence.startswith(f"{subject} "), row
        verb = sentence.removeprefix(f"{subject} ").split()[0]
        auxiliary, negation = row["target"].split()
        assert negation == "not"
        if verb in auxiliaries:
            assert auxiliary == verb, row
        else:
            singular = subject not in ("I", "You", "We", "They") and not re.fullmatch(r"The \w+s", subject)
            present = verb.endswith("s") if singular else auxiliary == "do"
            assert auxiliary == ("does" if singular and present else "do" if present else "did"), row


MALE = "boy man king gentleman prince monk waiter father brother uncle son grandfather husband nephew groom"
PERSONS = {"he": "him", "she": "her", "they": "them", "we": "us", "i": "me"}


def test_pronouns_agree() -> None:
    """Gender and number from word lists of the test's own; 'I love him and he loves' from the sentence."""
    mutual = 0
    for row in of_kind("syntax", "pronoun"):
        target = row["target"].strip()
        if match := re.fullmatch(r"(\w+) \w+ (\w+) and (\w+) \w+", row["prompt"]):
            subject, accusative, second = match.groups()
            assert PERSONS[second.lower()] == accusative, row
            assert PERSONS[subject.lower()] == target, row
            mutual += 1
            continue
        noun = re.findall(r"\b(?:The|My) (\w+)", row["prompt"])[-1]
        many = (noun.endswith("s") and not noun.endswith("ss")) or noun in ("men", "women", "children")
        person = "they" if many else "he" if noun in MALE.split() else "she"
        forms = {"they": "themselves them theirs", "he": "himself him his", "she": "herself her hers"}[person].split()
        place = 0 if row["prompt"].endswith("all by") else 2 if row["prompt"].endswith("said it was") else 1
        assert target == forms[place], row
    assert mutual >= 12


def test_some_forms() -> None:
    answers = {row["prompt"]: row["target"] for row in load("syntax")}
    assert answers["one mouse, two"] == " mice"
    assert [t for p, t in answers.items() if p.startswith("Today") and " go." in p] == [" went"]
    assert next(t for p, t in answers.items() if p.endswith("The keys to the cabinet")) in (" are", " were", " have")


# --------------------------------------------------------------------------------------------------------- commonsense


def options(row: Row) -> tuple[str, dict[str, str]]:
    """The question, and the text of every letter."""
    text, *listed, last = row["prompt"].split("\n")
    assert last == "Answer:"
    assert text.endswith("?"), row
    return text, dict(line.split(". ", 1) for line in listed)


def test_options() -> None:
    for row in load("commonsense"):
        _, texts = options(row)
        assert list(texts) == list("ABCD"), row
        assert len(set(texts.values())) == 4, row
        assert row["target"] in (" A", " B", " C", " D"), row
        assert all(1 <= len(text.split()) <= 5 for text in texts.values()), row


@pytest.mark.parametrize("split", SPLITS)
def test_the_right_letters_are_balanced(split: str) -> None:
    rows = [row for row in load("commonsense") if row["split"] == split]
    for kind in KINDS["commonsense"].split():
        count = Counter(row["target"] for row in rows if row["kind"] == kind)
        assert len(count) == 4, kind
        assert max(count.values()) - min(count.values()) <= 1, kind


def test_held_out_questions_are_not_in_train() -> None:
    things: dict[str, set[tuple[str, str]]] = {split: set() for split in SPLITS}
    for row in load("commonsense"):
        text, _ = options(row)
        # First and last, before and after are questions about the same thing, so the question is the name here.
        thing = re.sub(r": what comes \w+\?|right (after|before) ", "", text)
        things[row["split"]].add((row["kind"], thing))
    assert things["train"] & things["held_out"] == set()


def test_no_answer_gives_itself_away() -> None:
    """An answer to several questions of a kind is offered where it is wrong as well."""
    right: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for row in load("commonsense"):
        for letter, text in options(row)[1].items():
            (right if row["target"] == f" {letter}" else wrong)[row["kind"], text] += 1
    assert [answer for answer, count in right.items() if count > 1 and not wrong[answer]] == []


DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "January February March April May June July August September October November December"


def test_calendar() -> None:
    seen = 0
    for row in of_kind("commonsense", "order"):
        text, texts = options(row)
        if match := re.fullmatch(r"Which (day|month) comes right (after|before) (\w+)\?", text):
            names = (DAYS if match[1] == "day" else MONTHS).split()
            step = 1 if match[2] == "after" else -1
            assert texts[row["target"].strip()] == names[(names.index(match[3]) + step) % len(names)], row
            seen += 1
    assert seen == 2 * (7 + 12)


def test_some_facts() -> None:
    answers = {}
    for row in load("commonsense"):
        text, texts = options(row)
        answers[text] = texts[row["target"].strip()]
    assert answers["Where do you usually find milk?"] == "fridge"
    assert answers["What is the use of a knife?"] == "cutting"
    assert answers["What is lava like?"] == "hot"
    assert answers["What is a petal a part of?"] == "a flower"

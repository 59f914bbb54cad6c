"""The hand-written part of the CogQA questions; build_cogqa.py turns it into files.

Notations:
  "a|b; c|d"     rows split on semicolons, fields on bars
  {p} {q} {r}    people: the one asked about, the other, a third; {p.she} {p.her} {p.his} {p.hers} their pronouns
  {v} {w}        the right value and a wrong one
  {x} {x3}       what the family puts in: a thing, or a verb in its base form ({x}) and in the third person ({x3})

FORMS hold questions about one person ("How many pens does Ann have?"). The same question is answered out of a stated
fact, a sum, a rule, a clue, a word's meaning ..., and only the main question tells which. What a form holds for one
function:
  know   value|words that stand for the value to one who knows a fact of the world
  sense  value|words that mean the value
  clue   value|a sentence that makes the value likely; * fits every value
  more   sentences to calculate with; {a} {b} {c} are numbers, what is computed stands behind the bar
  pick   value|other value|a sentence with a goal and the options; in numbers {lo} < {v} < {hi}
Retrieval, Syntactic Understanding and Logical Reasoning are written by the same few sentences in all forms.
"""

GIRLS = """Ann Mara Lucy Emma Nina Rosa Ella Clara Julia Sara Hanna Olga Vera Ida Lena Mona Tina Amy Zoe Kate Lily Ruth
Alice Eva Nora Dora Greta Holly Iris Jane"""
BOYS = """Bo Tom Ben Max Leo Paul Karl Omar Jack Adam Eric Finn Hugo Ivan Jonas Luke Noah Nick Otto Peter Rob Simon Tim
Victor Felix Abel Carl Dan Fred George"""
RELATIONS = "friend neighbour cousin classmate colleague"
GROUPS = """choir; band; chess club; drama club; book club; swimming team; hockey team; night class; scout group;
gardening club"""

# Wordings that all functions share, so that no word belongs to one. {v}, {w}: "has 12 pens".
STATED = """
    {p} {v}; {p} {v}; {p} {v}, while {q} {w}; {q} {w} and {p} {v}; {p} {v}, but not {q}, who {w}; It is {q} who {w},
    and {p} {v}; {q} {w}, but {p} {v}"""
ALL = """
    {p} is in the {group}, and everyone there {v}; {p} is in the {group}, where each of them {v}; Each member of the
    {group} {v}, and {p} is one of them; As {q} knows, everyone in the {group} {v}, and {p} is in it; {p} has joined
    the {group}, a group whose every member {v}"""
COUNTED = """
    {p} knows how many {parts} {owner} {has}, and {p.she} {v}; {q} says how many {parts} {owner} {has}, and {p} {v};
    the {parts} {owner} {has} can be counted, and {p} {v}; {p}, who counted the {parts} {owner} {has}, {v}"""
# Before a whole fact, and in place of its subject {p}; {o} is someone else.
DRESS = """
    As {o} knows,; {o} says that; {o} tells everyone that; {o}, who wants to help, knows that; {o} wants it known
    that; {o} wants to add that; {o} writes in {o.his} diary that; {o} says with a smile that; {o} tells {o.his}
    {rel} that; As {o} said three times,; {o} says once more that; {o}, whose word counts, says that; {o} hears
    that; As {o} says to each of them,; {o} says more than once that"""
DRESS_PLAIN = """
    Everyone there knows that; As everyone there knows,; If anyone asks,; As many people know,; Believe it or not,;
    Like it or not,; To be exact,; To tell the truth,; As one can see,; What is more,; Strange but true,; As a dozen
    people know,; Needless to say,; As they tell each other,; Rain or not,"""
DRESS_SUBJECT = """
    {p} says that {p.she}; {p}, who knows {o},; {p}, whose {rel} is {o},; It is clear that {p}; {p} says to {o} that
    {p.she}; {p}, who wants to help {o},"""
DRESS_TELLS = "{p} tells {o} that {p.she}; {o} is told by {p} that {p.she}; {o} hears from {p} that {p.she}"
WANTS_TO = "wants to; wants to; would like to; hopes to; plans to"
WANTS = "wants; wants; would like; hopes for; looks for"
WANT_TO = "want to; want to; would like to; hope to; plan to"
# Asides about a third person {r}, in the ways of all functions.
ASIDES = """
    as {q} knows, {r} is late; {r} should rest; {r} will wait, as {p} knows; {r} has a goldfish; {r} is shorter than
    {r.his} sister; {r} will sleep while {p} talks; {r} knows the way; {r} should smile more; {r} has as many
    cousins as a week has days; {r} has a door the colour of grass; {r} comes from the capital of Peru; {r} was born
    on the day before Christmas; {r} owns as many hens as a spider has legs; {r} sings as many do; {r} dreams of the
    largest desert; {r} knows the first letter of the alphabet; {r} has a dozen cousins; {r} is green with envy; {r}
    owns half a dozen hens; {r} owns a score of hens; {r} has a pair of skis; {r} has an emerald ring; {r} has put
    on a crimson tie; {r} is out of sorts; {r}, whose {rel} sings, hums; {r} tells {q} that {r.his} {rel} is late;
    it is {r} who whistles; {r} says that {r.she} saw it; {r}, whose {rel} is a twin, sneezes; {r} is told by {p}
    that tea is ready; {r}, who knows {q}, waves; {r} tells {p} that the tea is hers, not his; {r} hears that
    {r.she} is invited; {r} had 9 hens and sold 4; {r} has 3 boxes of 5 buttons each; {r} called 4 times, then 2
    more; {r} is 6 years older than {r.his} {rel}; {r} had 20 hens but lost 2; {r} sneezes 3 times an hour, 12 hours
    a day; {r} slept 2 hours, then 5 more; {r} has 7 plus 5 buttons; {r} looks at {r.his} receipt; {r} puts {r.his}
    diary aside; {r} smiles and hides {r.his} key; {r} hums with all {r.his} might; {r} stands beside {r.his} box;
    {r} comes in with wet hair; {r} has kept all {r.his} lists; {r} rubs {r.his} hands and grins; {r} likes tea or
    milk, but not both; {r} is in the choir, and everyone there hums; if it rains, {r} will nap; {r} or {q} sneezed,
    but it was not loud; {r} is thinner than {q} but not thin; {r} asks if it is late or not; everyone there likes
    {r}; if the bell rings, {r} nods; {r} was away all day; {r} wants to nap; {r} wants a kite or a ball; {r} needs
    only one nap; {r} wants one more try; {r} should nap or walk; {r} wants to stay; {r} hopes to win; {r} would
    like a rest, which costs little"""

# ------------------------------------------------------------------------------------------------ one person's value

NUMBERS_KNOWN = """
8|a spider has legs; 7|a week has days; 12|a year has months; 4|a horse has legs; 6|an insect has legs;
3|a triangle has sides; 24|a day has hours; 60|an hour has minutes; 5|a foot has toes; 4|a square has corners;
26|the English alphabet has letters; 11|a football team has players; 2|a bicycle has wheels; 8|an octopus has arms;
30|April has days; 52|a year has weeks; 10|two hands have fingers; 6|a cube has faces"""
NUMBERS_SENSE = "12|a dozen; 6|half a dozen; 20|a score of; 2|a pair of; 13|a baker's dozen of"

FORMS: dict[str, dict[str, str]] = {
    "have": {
        "third": "has {v} {x}",
        "base": "have {v} {x}",
        "open": "How many {x} does {p} have?",
        "low": "2 60",
        "know": NUMBERS_KNOWN,
        "know_third": "has as many {x} as {v}",
        "sense": NUMBERS_SENSE,
        "clue": """*|{p} paid for {v} {x} and took them all home; *|{p}'s receipt lists {v} {x};
            *|{p} wrote '{v} {x}' on the label of {p.his} box; *|{q} counted {v} {x} in {p}'s box""",
        "more": """{p} has {b} boxes of {a} {x} each.|a*b; {q} has {a} {x}, and {p} has {b} more.|a+b;
            {p} had {a} {x} and gave {b} to {q}.|a-b; {q} has {a} {x}, and {p} has {b} times as many.|a*b;
            {p} had {a} {x}, and {q} gave {p.her} {b} more.|a+b; {p} had {a} {x} but lost {b}.|a-b""",
    },
    "buy": {
        "third": "buys {v} {x}",
        "base": "buy {v} {x}",
        "open": "How many {x} does {p} buy?",
        "open_s": "How many {x} should {p} buy?",
        "low": "2 40",
        "know": NUMBERS_KNOWN,
        "know_third": "buys as many {x} as {v}",
        "know_base": "buy as many {x} as {v}",
        "sense": NUMBERS_SENSE,
        "clue": """*|{p} walks into the shop with '{v} {x}' on {p.his} list;
            *|{p} comes out of the shop with {v} {x}""",
        "more": """{p} buys {b} bags of {a} {x} each.|a*b; {q} buys {a} {x}, and {p} buys {b} more.|a+b;
            {p} buys {a} large and {b} small {x}.|a+b; {p} needs {a} {x}, has {b}, and buys the rest.|a-b;
            {p} buys {a} {x} for each of {b} children.|a*b""",
        "pick": """lo|Packs hold {lo}, {v} or {hi} {x}. {p} wants one pack with at least {need}, but little waste;
            hi|{p} needs {need} {x} and hates leftovers, and they only come in sets of {v} or {hi};
            lo|{p} needs {need} {x} or a few more: one pack has {lo}, the other {v}""",
    },
    "age": {
        "third": "is {v} years old",
        "base": "be {v} years old",
        "open": "How old is {p}?",
        "low": "5 40",
        "know": NUMBERS_KNOWN,
        "know_third": "is as many years old as {v}",
        "sense": "10|a decade; 12|a dozen years; 20|a score of years",
        "sense_third": "is {v} old",
        "clue": "*|{p} blew out {v} candles on {p.his} birthday cake; *|{p} got a birthday card with a big {v} on it",
        "more": """{q} is {a} years old, and {p} is {b} years older.|a+b; {q} is {a}, and {p} is {b} times as old.|a*b;
            {q} is {a} years old, and {p} is {b} years younger.|a-b; In {b} years {p} will be {a}.|a-b;
            {b} years ago {p} was {a}.|a+b""",
    },
    "pay": {
        "third": "pays {v} euros",
        "base": "pay {v} euros",
        "open": "How much does {p} pay?",
        "open_s": "How much should {p} pay?",
        "short": "{v} euros",
        "low": "2 60",
        "know": NUMBERS_KNOWN,
        "know_third": "pays as many euros as {v}",
        "know_base": "pay as many euros as {v}",
        "sense": "12|a dozen; 6|half a dozen; 20|a score of",
        "clue": """*|{p} leaves the till with a receipt that says {v} euros; *|{p} takes the {x} with a price tag of
            {v} euros to the till""",
        "more": """
            {p} pays {a} euros for each of {b} {x}s.|a*b; {q} pays {a} euros, and {p} pays {b} euros more.|a+b;
            {q} pays {a} euros, and {p} pays {b} times as much.|a*b; The {x} costs {a} euros, but {p} gets {b}
            off.|a-b; {p} pays {a} euros for a {x} and {b} for a drink.|a+b""",
        "pick": """lo|{p} wants the cheapest {x} that works: those for {v} and {hi} euros do, that for {lo} does not;
            hi|{p} wants a {x} and to save money: two equal ones cost {v} and {hi} euros;
            lo|{p} wants a good {x}, whatever it costs: the poor one is {lo} euros, the fine one {v}""",
    },
    "floor": {
        "third": "stays on floor {v}",
        "base": "stay on floor {v}",
        "open": "On which floor does {p} stay?",
        "open_s": "On which floor should {p} stay?",
        "short": "Floor {v}",
        "low": "2 20",
        "know": "8|a spider has legs; 7|a week has days; 12|a year has months; 6|an insect has legs; 3|a triangle "
        "has sides",
        "know_third": "stays as many floors up as {v}",
        "clue": """*|{p} gets into the lift and presses button {v}; *|{p}'s key says 'floor {v}';
            *|{p} leaves the lift at floor {v} in slippers""",
        "more": """{q} stays on floor {a}, and {p} stays {b} floors higher.|a+b; {q} stays on floor {a}, and {p} {b}
            floors lower.|a-b; {p} was on floor {a} but moved up {b} floors.|a+b""",
        "pick": """lo|{p} wants a quiet room low down: floor {lo} is loud, {v} and {hi} are quiet;
            hi|{p} hates stairs and there is no lift: floors {v} and {hi} are free;
            lo|{p} wants a sea view: floor {v} has one, floor {lo} faces a wall""",
    },
    "bus": {
        "third": "takes bus {v}",
        "base": "take bus {v}",
        "open": "Which bus does {p} take?",
        "open_s": "Which bus should {p} take?",
        "short": "Bus {v}",
        "low": "2 60",
        "cond": "1",
        "clue": "*|{p} holds a ticket for bus {v}; *|{p} waves and runs as bus {v} comes; *|{p} gets up as bus {v} "
        "pulls in",
        "more": """{p}'s bus number is {a} plus {b}.|a+b; {p} takes the bus whose number is {a} times {b}.|a*b;
            {q} takes bus {a}, and {p}'s bus number is {b} higher.|a+b""",
        "pick": """lo|{p} must arrive by noon: bus {v} arrives at eleven, bus {lo} at one;
            hi|{p} wants to sit: bus {hi} is packed, bus {v} is almost empty;
            lo|{p} has little money: bus {v} is free, bus {lo} costs nine euros""",
    },
    "walk": {
        "third": "walks for {v} minutes",
        "base": "walk for {v} minutes",
        "open": "How long does {p} walk?",
        "open_s": "How long should {p} walk?",
        "short": "{v} minutes",
        "low": "5 60",
        "know": NUMBERS_KNOWN,
        "know_third": "walks for as many minutes as {v}",
        "know_base": "walk for as many minutes as {v}",
        "sense": "12|a dozen; 20|a score of; 6|half a dozen",
        "clue": """*|{p} starts {p.his} watch, walks, and stops it at {v} minutes;
            *|{p} walks along a path signed '{v} minutes'""",
        "more": """
            {q} walks for {a} minutes, and {p} walks {b} minutes longer.|a+b; {p} walks {b} laps of {a} minutes
            each.|a*b; {p} walks {a} minutes there and {b} minutes back.|a+b; {q} walks for {a} minutes, and {p}
            {b} times as long.|a*b""",
        "pick": """lo|{p} wants the shortest safe path: {lo} minutes over ice, {v} or {hi} on dry ground;
            hi|{p} is tired and wants the shorter path: one takes {v} minutes, one {hi}""",
    },
    "points": {
        "third": "gets {v} points",
        "base": "get {v} points",
        "open": "How many points does {p} get?",
        "open_s": "How many points should {p} get?",
        "low": "2 60",
        "know": NUMBERS_KNOWN,
        "know_third": "gets as many points as {v}",
        "know_base": "get as many points as {v}",
        "sense": NUMBERS_SENSE,
        "clue": """*|The board shows {v} beside {p}'s name when the game ends; *|At the end {p} holds up a card that
            says {v}""",
        "more": """{p} gets {a} points in each of {b} rounds.|a*b; {q} gets {a} points, and {p} gets {b} more.|a+b;
            {p} gets {a} points but loses {b} again.|a-b; {p} gets {a} points, then {b} more.|a+b""",
    },
    "clock": {
        "third": "{x3} at {v} o'clock",
        "base": "{x} at {v} o'clock",
        "open": "At what time does {p} {x}?",
        "open_s": "At what time should {p} {x}?",
        "short": "At {v} o'clock",
        "low": "2 11",
        "cond": "1",
        "clue": "*|{p}'s diary says '{x}' beside {v} o'clock; *|{p} has set an alarm called '{x}' for {v} o'clock",
        "more": """
            {q} {x3} at {a} o'clock, and {p} {x3} {b} hours later.|a+b; {q} {x3} at {a} o'clock, and {p} {b}
            hours earlier.|a-b; {p} woke up at {a} o'clock and {x3} {b} hours later.|a+b""",
        "pick": """lo|{p} wants to {x} late, but before the rain at {hi}: {lo} or {v} o'clock;
            hi|{p} wants to {x} early and can do so at {v} or {hi} o'clock""",
    },
    "day": {
        "third": "{x3} on {v}",
        "base": "{x} on {v}",
        "open": "On which day does {p} {x}?",
        "open_s": "On which day should {p} {x}?",
        "short": "On {v}",
        "neg": "but not on {w}",
        "values": "Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday",
        "cond": "1",
        "know": """Sunday|the day after Saturday; Monday|the day after Sunday; Tuesday|the day before Wednesday;
            Friday|the day before Saturday; Thursday|the day after Wednesday; Wednesday|the day before Thursday;
            Saturday|the day between Friday and Sunday""",
        "clue": "*|{p} has put '{x}' beside {v} on {p.his} calendar; *|{p} has kept all of {v} free to {x}",
        "pick": """*|*|{p} wants a dry day to {x}: {w} looks wet, {v} looks dry;
            *|*|{p} wants to {x} undisturbed: {w} is always busy, {v} is quiet;
            *|*|{p} wants to {x} with {q}, who is away on {w} and free on {v}""",
    },
    "month": {
        "third": "{x3} in {v}",
        "base": "{x} in {v}",
        "open": "In which month does {p} {x}?",
        "open_s": "In which month should {p} {x}?",
        "short": "In {v}",
        "neg": "but not in {w}",
        "values": "January; February; March; April; May; June; July; August; September; October; November; December",
        "know": """January|the first month of the year; December|the month of Christmas; February|the shortest month;
            June|the month after May; October|the month of Halloween; April|the month before May;
            September|the month after August; March|the third month of the year; November|the month before December""",
        "clue": "*|{p} has put '{x}' beside {v} on {p.his} calendar; *|{p} has kept all of {v} free to {x}",
        "pick": """*|*|{p} wants a calm month to {x}: {w} is full of work, {v} is free;
            *|*|{p} wants to {x} with {q}, who is away in {w} and back in {v}""",
    },
    "colour": {
        "third": "has a {v} {x}",
        "base": "have a {v} {x}",
        "open": "What colour is {p}'s {x}?",
        "open_s": "What colour of {x} should {p} have?",
        "neg": "but not a {w} one",
        "values": "red; green; blue; white; black; yellow; brown; grey",
        "know": """green|grass; white|fresh snow; black|coal; yellow|a ripe lemon; red|blood; blue|a clear sky;
            yellow|a canary; red|a ripe strawberry; green|a pea; grey|an elephant; white|milk; brown|coffee beans""",
        "know_third": "has a {x} the colour of {v}",
        "know_base": "have a {x} the colour of {v}",
        "sense": """red|scarlet; red|crimson; blue|navy; green|emerald; red|ruby; blue|sapphire; black|jet-black;
            white|ivory; brown|chestnut; green|olive""",
        "clue": """
            white|In the snow {p}'s {x} can hardly be seen; green|Among the summer leaves {p}'s {x} cannot be
            seen; black|In the dark night {p}'s {x} cannot be seen at all; yellow|{p}'s {x} vanishes in a field
            of ripe wheat; brown|{p}'s {x} still looks clean after a day in the mud; red|{p}'s {x} cannot be
            seen among the ripe tomatoes; blue|{p}'s {x} seems to vanish against the clear sky; grey|{p}'s {x}
            cannot be told from the wet rocks""",
        "pick": """yellow|black|{p} wants a {x} that shows up at night: a black or a yellow one;
            black|white|{p} wants a {x} that hides dirt: a white or a black one;
            green|red|{p} wants a {x} that hides in the woods: a red or a green one;
            white|black|{p} wants a {x} that stays cool in the sun: a black or a white one;
            red|grey|{p} wants a {x} that stands out in fog: a grey or a red one;
            blue|brown|{p} dislikes dull colours and can get a brown or a blue {x}""",
    },
    "place": {
        "third": "is {v}",
        "base": "be {v}",
        "open": "Where is {p}?",
        "open_s": "Where should {p} be?",
        "neg": "but not {w}",
        "values": """
            at the beach; in the library; in the kitchen; at the station; at the hospital; in the garden; at the
            cinema; at the airport; at the bakery; in the church; at the gym; at the farm; in bed; at the school""",
        "sense": """at the beach|at the seaside; in bed|between the sheets; at the cinema|at the pictures;
            at the gym|at the fitness studio; in the garden|among the flower beds; at the farm|at the homestead;
            at the airport|at the terminal for flights; in bed|in the land of nod""",
        "clue": """
            at the beach|{p} has sand between {p.his} toes and hears waves; in the library|{p} whispers between
            long shelves of books; in the kitchen|{p} stirs a pot and chops onions; at the station|{p} stands on
            a platform and looks along the rails; at the hospital|A nurse takes {p}'s temperature and checks the
            chart; at the cinema|The lights go out, and {p} eats popcorn before a big screen; at the bakery|{p}
            smells warm loaves and queues for rolls; at the gym|{p} lifts weights beside rows of treadmills; at
            the farm|{p} hears cows and smells fresh hay; at the school|The bell rings, and {p} closes {p.his}
            maths book""",
        "pick": """*|*|{p} wants some quiet: it is loud {w} and calm {v};
            *|*|{p} wants to keep warm: it is freezing {w} but warm {v};
            *|*|{p} wants company: nobody is {w}, while all friends are {v}""",
    },
    "city": {
        "third": "{x3} in {v}",
        "base": "{x} in {v}",
        "open": "In which city does {p} {x}?",
        "open_s": "In which city should {p} {x}?",
        "short": "In {v}",
        "neg": "but not in {w}",
        "values": "Paris; Rome; London; Berlin; Madrid; Tokyo; Athens; Cairo; Moscow; Lisbon; Vienna; Dublin; Oslo",
        "know": """Paris|the capital of France; Rome|the capital of Italy; London|the capital of England;
            Berlin|the capital of Germany; Madrid|the capital of Spain; Tokyo|the capital of Japan;
            Athens|the capital of Greece; Cairo|the capital of Egypt; Moscow|the capital of Russia;
            Lisbon|the capital of Portugal; Vienna|the capital of Austria; Dublin|the capital of Ireland;
            Oslo|the capital of Norway; Paris|the city of the Eiffel Tower; Rome|the city of the Colosseum""",
        "clue": "*|{p}'s letters all bear a postmark from {v}; *|{p} carries a city map of {v} every day",
        "pick": """*|*|{p} must {x} cheaply: a room in {w} costs twice what it costs in {v};
            *|*|{p} wants to {x} near {p.his} aunt, who lives in {v} and not in {w};
            *|*|{p} wants to {x} near {p.his} parents: {w} is nine hours from them, {v} one""",
    },
    "animal": {
        "third": "draws {v}",
        "base": "draw {v}",
        "open": "What animal does {p} draw?",
        "open_s": "What animal should {p} draw?",
        "neg": "but not {w}",
        "values": """
            a giraffe; an elephant; a sheep; a dog; a cat; a horse; a pig; a zebra; a tortoise; a rabbit; a
            lion; a bear; a penguin; a bee; a cow; a whale""",
        "cond": "1",
        "know": """
            a giraffe|the tallest animal on earth; an elephant|the largest land animal; a sheep|the animal that
            gives us wool; a bee|the insect that makes honey; a whale|the largest animal in the sea; a cow|the
            animal that gives us most of our milk""",
        "sense": """a dog|a hound; a cat|a kitten; a horse|a foal; a pig|a piglet; a sheep|a lamb; a dog|a puppy;
            a rabbit|a bunny; a horse|a steed; a cat|a pussycat; a cow|a calf; a bear|a teddy""",
        "clue": """
            an elephant|{p} adds a long trunk and huge ears to {p.his} drawing; a zebra|{p} fills in black and
            white stripes and a mane; a giraffe|{p} needs a tall sheet for the long, spotted neck; a
            tortoise|{p} draws a hard shell and four short legs; a rabbit|{p} draws long ears, a fluffy tail and
            a carrot; a lion|{p} draws a big cat with a thick mane; a penguin|{p} draws a black and white bird
            on an ice floe""",
        "pick": """an elephant|a lion|{p} has only grey paint for {p.his} animal: a lion or an elephant;
            a pig|a zebra|{p} has only pink paint for {p.his} animal: a zebra or a pig;
            a cat|a whale|{p} wants to draw a pet from life: a whale or a cat;
            a bear|a bee|{p} wants to draw something large with fur: a bee or a bear;
            a sheep|a lion|{p} must draw a tame animal: a lion or a sheep;
            a penguin|a lion|{p} has only black and white paint for {p.his} animal: a lion or a penguin""",
    },
    "food": {
        "third": "eats {v}",
        "base": "eat {v}",
        "open": "What does {p} eat?",
        "open_s": "What should {p} eat?",
        "neg": "but not {w}",
        "values": "soup; salad; cherries; spaghetti; potatoes; honey; bananas; sausages; rice; eggs; chocolate; cheese",
        "cond": "1",
        "know": """
            honey|what bees make; eggs|what hens lay; cheese|the food that Gouda and Cheddar are kinds of;
            chocolate|the sweet made from cocoa beans; rice|the grain that sushi is made with; potatoes|what
            chips are cut from""",
        "sense": """soup|broth; potatoes|spuds; sausages|bangers; spaghetti|long thin strings of pasta; salad|a bowl of
            dressed raw leaves""",
        "clue": """
            soup|{p} lifts a hot spoon from a bowl and blows on it; cherries|{p} spits small stones into a bowl,
            and {p.his} lips are dark red; spaghetti|{p} winds long strands round {p.his} fork; bananas|{p}
            leaves long yellow skins on the plate; eggs|{p} leaves cracked shells and a tiny cup; chocolate|{p}
            has brown, sweet smears round {p.his} mouth; cheese|{p} picks around the holes and cuts off a yellow
            rind""",
        "pick": """
            salad|sausages|{p} wants no meat and can have sausages or salad; soup|chocolate|{p} wants something
            hot and can have chocolate or soup; bananas|soup|{p} wants to eat on the run: soup or bananas;
            rice|cheese|{p} must not have milk products and can have cheese or rice; cherries|potatoes|{p} wants
            some fresh fruit and can have potatoes or cherries; eggs|honey|{p} wants something that is not
            sweet: honey or eggs""",
    },
    "vehicle": {
        "third": "travels by {v}",
        "base": "travel by {v}",
        "open": "How does {p} travel?",
        "open_s": "How should {p} travel?",
        "short": "By {v}",
        "neg": "but not by {w}",
        "values": "train; plane; ship; bicycle; car; taxi; bus; tram",
        "cond": "1",
        "sense": "plane|jet; bicycle|bike; taxi|cab; car|automobile; ship|ocean liner",
        "clue": """
            plane|{p} fastens {p.his} belt and looks down on the clouds; train|{p} gets on at platform 3 and
            shows the guard a ticket; ship|{p} stands on deck and feels seasick; bicycle|{p} pumps up two tyres
            and puts on a helmet; taxi|{p} tells the driver the address and watches the meter; car|{p} turns the
            key, steers out of the garage and drives off""",
        "pick": """*|*|{p} must be there by noon: the {v} arrives at eleven, the {w} at one;
            *|*|{p} wants the cheaper way: nine euros by {v}, twenty by {w};
            *|*|{p} wants to be safe from the strike, which stops every {w} but no {v}""",
    },
    "play": {
        "third": "plays the {v}",
        "base": "play the {v}",
        "open": "Which instrument does {p} play?",
        "open_s": "Which instrument should {p} play?",
        "short": "The {v}",
        "neg": "but not the {w}",
        "values": "flute; drums; piano; violin; trumpet; harp; guitar; cello",
        "cond": "1",
        "sense": "violin|fiddle; piano|grand; drums|percussion kit; guitar|six-string",
        "know": """piano|instrument with 88 keys; violin|smallest string instrument of an orchestra; piano|instrument
            Chopin wrote most for; guitar|instrument most used in flamenco""",
        "clue": """
            drums|{p} packs two sticks, and the neighbours hear loud beats; violin|{p} tucks it under {p.his}
            chin and lifts the bow; piano|{p} sits down, opens the lid and touches the keys; trumpet|{p} purses
            {p.his} lips and presses three brass valves; harp|{p} plucks the tall golden frame's strings;
            guitar|{p} tunes six strings and strums a chord""",
        "pick": """flute|harp|{p} wants an instrument for {p.his} pocket: the harp or the flute;
            guitar|trumpet|{p} wants to sing while playing: the trumpet or the guitar;
            violin|drums|{p} wants the softer instrument: the drums or the violin;
            trumpet|piano|{p} wants to march while playing: the piano or the trumpet""",
    },
    "state": {
        "third": "is {v}",
        "base": "be {v}",
        "open": "How does {p} feel?",
        "neg": "but not {w}",
        "values": "tired; happy; sad; angry; hungry; ill; afraid; cold; thirsty; bored",
        "sense": """tired|worn out; happy|over the moon; sad|down in the dumps; angry|hopping mad; hungry|famished;
            ill|under the weather; afraid|scared stiff; cold|chilled to the bone; thirsty|parched; angry|furious;
            happy|on cloud nine; tired|exhausted""",
        "clue": """
            tired|{p} yawns and rubs {p.his} eyes; happy|{p} beams and hums a cheerful tune; sad|{p} wipes tears
            from {p.his} cheeks and sighs; angry|{p} slams the door and stamps {p.his} foot; hungry|{p}'s
            stomach rumbles, and {p.she} eyes the bread; afraid|{p} trembles and hides behind {q}; cold|{p}
            shivers and pulls {p.his} scarf tight; thirsty|{p} licks {p.his} dry lips and eyes the water jug;
            bored|{p} looks at the clock again and again and yawns""",
    },
    "job": {
        "third": "works as {v}",
        "base": "work as {v}",
        "open": "What is {p}'s job?",
        "open_s": "What job should {p} do?",
        "neg": "but not as {w}",
        "values": "a doctor; a lawyer; a teacher; a baker; a farmer; a pilot; a nurse; a cook; a painter; a tailor",
        "sense": "a doctor|a physician; a lawyer|a solicitor; a cook|a chef; a teacher|an educator; a pilot|an aviator",
        "clue": """
            a doctor|{p} hangs up {p.his} stethoscope after seeing the last patient; a teacher|{p} marks forty
            exercise books every night; a baker|{p} gets up at three, and {p.his} sleeves are floury; a
            farmer|{p} milks the cows and drives the tractor; a pilot|{p} hangs up a cap with wings after each
            flight; a tailor|{p} always has pins and a tape measure on {p.her}""",
        "pick": """a baker|a pilot|{p} wants to stay on the ground and could be a pilot or a baker;
            a farmer|a lawyer|{p} wants to work outdoors and could be a lawyer or a farmer;
            a teacher|a baker|{p} hates getting up at night and could be a baker or a teacher;
            a doctor|a painter|{p} wants to heal people and could be a painter or a doctor;
            a cook|a tailor|{p} loves hot kitchens and could be a tailor or a cook""",
    },
    "late": {
        "third": "is {x} because of {v}",
        "base": "be {x} because of {v}",
        "open": "Why is {p} {x}?",
        "short": "Because of {v}",
        "neg": "but not because of {w}",
        "values": "the snow; the rain; the traffic; the wind; the noise; the heat; a fire; the dog",
        "sense": "the snow|the blizzard; the rain|the downpour; the wind|the gale; the dog|the hound",
        "clue": """
            the snow|{p} is {x} and brushes white flakes off {p.his} boots; the rain|{p} is {x} and shakes a
            dripping umbrella; the wind|{p} is {x}, and {p.his} hair and scarf are blown about; the heat|{p} is
            {x}, mops {p.his} brow and asks for ice; the dog|{p} is {x} and has paw prints all over {p.his} coat""",
    },
}

# ---------------------------------------------------------------------------------------------- which of two people

# thing | comparative | its opposite; an empty thing compares the people themselves.
# know, sense: what is said of the one | of the other; clue: {p} has more of it than {q}; more: {a}, {b} make up {p}'s
# number, {c} is {q}'s.
COMPARE: dict[str, dict[str, str]] = {
    "bag": {
        "head": "bag|heavier|lighter",
        "know": "is full of sand|is full of feathers; is packed with bricks|is packed with cotton wool; is filled "
        "with iron "
        "nails|is filled with dry leaves; is stuffed with stones|is stuffed with paper tissues",
        "sense": "weighs a ton|is light as a feather; is hefty|is featherweight; is leaden|is weightless",
        "clue": "{p} drags {p.his} bag along, while {q} swings {q.hers} on one finger; {p} groans under {p.his} bag, "
        "while "
        "{q} skips along with {q.hers}",
        "more": "{p}'s bag holds {b} books of {a} kilos, {q}'s weighs {c} kilos.|a*b; {p}'s bag holds {a} plus {b} "
        "kilos, "
        "{q}'s {c} kilos.|a+b",
    },
    "animal_big": {
        "head": "animal|bigger|smaller",
        "know": "is an elephant|is a mouse; is a whale|is a frog; is a horse|is a rabbit; is a cow|is a hen; is a "
        "bear|is a "
        "bee; is a camel|is a cat; is a giraffe|is a hamster",
        "sense": "is colossal|is tiny; is enormous|is minute; is gigantic|is teeny; is massive|is dinky",
        "clue": "{p}'s animal needs a whole barn, {q}'s sleeps in a shoebox; {p}'s animal cannot get through the "
        "door, and "
        "{q}'s sits on a hand",
        "more": "{p}'s animal is {b} times {a} cm long, {q}'s is {c} cm.|a*b; {p}'s animal is {a} cm plus a tail of "
        "{b} cm, "
        "{q}'s {c} cm in all.|a+b",
    },
    "animal_fast": {
        "head": "animal|faster|slower",
        "know": "is a cheetah|is a tortoise; is a hare|is a snail; is a horse|is a worm; is a falcon|is a hen; is a "
        "greyhound"
        "|is a hedgehog; is a deer|is a toad",
        "sense": "is swift|is sluggish; is quick as lightning|is a slowcoach; is nimble and fleet|is plodding",
        "clue": "{q}'s animal starts first, yet {p}'s is home long before it; {p}'s animal is soon out of sight, and "
        "{q}'s "
        "is left behind",
        "more": "{p}'s animal runs {b} times {a} metres a minute, {q}'s {c} metres.|a*b; {p}'s animal used to run "
        "{a} km an "
        "hour, now {b} more, and {q}'s runs {c}.|a+b",
    },
    "trip": {
        "head": "trip|longer|shorter",
        "know": "goes from London to Sydney|goes from London to Paris; goes from Rome to Tokyo|goes from Rome to "
        "Venice; goes "
        "round the world|goes round the block; goes to the Moon|goes to the corner shop",
        "sense": "takes an age|is over in the blink of an eye; is endless|is brief; drags on forever|is over in a "
        "flash",
        "clue": "{p} reads three novels on {p.his} trip, {q} barely a page on {q.hers}; {p} packs food for {p.his} "
        "trip, "
        "while {q} does not even sit down on {q.hers}",
        "more": "{p}'s trip has {b} parts of {a} km, {q}'s is {c} km.|a*b; {p}'s trip takes {a} minutes plus {b}, "
        "{q}'s "
        "{c}.|a+b",
    },
    "vehicle": {
        "head": "vehicle|faster|slower",
        "know": "is a jet plane|is a tractor; is a racing car|is a donkey cart; is a motorbike|is a scooter for "
        "toddlers; is "
        "an express train|is a rowing boat; is a rocket|is a bicycle",
        "sense": "is speedy|is sluggish; goes like a bullet|goes at a snail's pace; is lightning-quick|crawls along",
        "clue": "{q} sets off first, but {p}'s vehicle gets there an hour before {q}'s; {p} waves from {p.his} "
        "vehicle and "
        "leaves {q}'s far behind",
        "more": "{p}'s vehicle does {b} times {a} km an hour, {q}'s {c}.|a*b; {p}'s vehicle did {a} km an hour and "
        "now does "
        "{b} more, {q}'s {c}.|a+b",
    },
    "mountain": {
        "head": "mountain|higher|lower",
        "know": "is Mount Everest|is Mount Fuji; is Mont Blanc|is Vesuvius; is Mount Everest|is Mount Etna; is "
        "Kilimanjaro|is "
        "Vesuvius",
        "sense": "is towering|is a mere mound; is sky-high|is a gentle bump; soars|is squat",
        "clue": "{p}'s mountain keeps its snow all summer, while {q}'s has cows on its green top; {p} needs three "
        "days to "
        "climb {p.his} mountain, {q} half an hour for {q.hers}",
        "more": "{p}'s mountain is {b} times {a}00 metres, {q}'s is {c}00 metres.|a*b; {p}'s mountain rises {a}00 "
        "metres, "
        "then {b}00 more, and {q}'s has {c}00.|a+b",
    },
    "snack": {
        "head": "snack|sweeter|less sweet",
        "know": "is honey|is a raw lemon; is a sugar lump|is a pickle; is toffee|is a radish; is milk chocolate|is "
        "plain toast",
        "sense": "is sugary|is tart; is syrupy|is savoury; is full of sugar|is sour",
        "clue": "{q} pulls a sour face at {q.his} snack, while {p}'s draws all the wasps; {p}'s teeth hurt from "
        "{p.his} snack, "
        "and {q} reaches for sugar",
        "more": "{p}'s snack has {b} times {a} grams of sugar, {q}'s {c} grams.|a*b; {p}'s snack has {a} plus {b} "
        "spoons of "
        "sugar, {q}'s {c}.|a+b",
    },
    "instrument": {
        "head": "instrument|bigger|smaller",
        "know": "is a tuba|is a recorder; is a double bass|is a violin; is a grand piano|is a harmonica; is a "
        "cello|is a "
        "triangle; is a church organ|is a flute",
        "sense": "is huge|is tiny; is gigantic|is minute; is massive|is dinky; is bulky|is pocket-sized",
        "clue": "{p}'s instrument needs its own van, {q}'s slips into a coat; {p} needs two men to carry {p.his} "
        "instrument, "
        "but {q} tucks {q.hers} away",
        "more": "{p}'s instrument is {b} times {a} cm long, {q}'s is {c} cm.|a*b; {p}'s instrument has parts of {a} "
        "and {b} cm, "
        "{q}'s is {c} cm long.|a+b",
    },
    "gift": {
        "head": "gift|dearer|cheaper",
        "know": "is a diamond ring|is a rubber band; is a gold watch|is a paper hat; is a new car|is a pencil; is a "
        "grand "
        "piano|is a comb; is a house|is a balloon",
        "sense": "cost an arm and a leg|was dirt cheap; cost a fortune|was a bargain; cost the earth|went for a song",
        "clue": "{p} saved up two years for {p.his} gift, while {q} emptied {q.his} pockets for {q.hers}; {p} took "
        "out a loan "
        "for {p.his} gift, {q} used loose change",
        "more": "{p}'s gift cost {a} euros a month for {b} months, {q}'s {c} euros in all.|a*b; "
        "{p}'s gift cost {a} euros plus {b} for the box, {q}'s {c}.|a+b",
    },
    "older": {
        "head": "|older|younger",
        "sense": "is a pensioner|is a toddler; is elderly|is an infant; is an octogenarian|is a teenager; is getting "
        "on in "
        "years|is a tot",
        "clue": "{p} has grey hair and grown-up children, while {q} learns to read; {p} drives a lorry, and {q} goes "
        "to nursery; "
        "{p} was {q}'s babysitter",
        "more": "{p} is {b} times {a} years old, {q} is {c}.|a*b; {p} was {a} years old {b} years ago, {q} is {c} "
        "now.|a+b",
    },
    "drink": {
        "head": "drink|hotter|colder",
        "sense": "is piping hot|is chilled; is scalding|is lukewarm; is boiling|is tepid",
        "clue": "{p} blows on {p.his} drink and waits, while {q} gulps {q.hers} down; steam rises from {p}'s drink, "
        "ice floats "
        "in {q}'s",
        "more": "{p}'s drink was {a} degrees and rose by {b}, {q}'s is {c} degrees.|a+b; {p}'s drink is {b} times "
        "{a} degrees "
        "warm, {q}'s {c} degrees.|a*b",
    },
    "home": {
        "head": "home|farther away|nearer",
        "sense": "is miles off|is a stone's throw away; is remote|is round the corner; is at the back of beyond|is "
        "close at hand",
        "clue": "{q} pops home for lunch, while {p} takes two trains to get home; {p} is home by midnight, though "
        "{q}, leaving "
        "too, was home at six",
        "more": "{p}'s home is {b} times {a} km away, {q}'s is {c} km.|a*b; {p}'s home is {a} km and {b} more away, "
        "{q}'s {c} "
        "km.|a+b",
    },
    "planet": {
        "head": "planet|bigger|smaller",
        "know": "is Jupiter|is Mercury; is Saturn|is Mars; is Jupiter|is Earth; is Earth|is Mercury; is Saturn|is "
        "Venus; is "
        "Neptune|is Mars",
        "sense": "is a giant|is a dwarf; is colossal|is tiny; is immense|is minute",
        "clue": "{p}'s planet fills the telescope, though as far off as {q}'s dot; {p}'s planet covers {q}'s "
        "completely on the "
        "same photo",
        "more": "{p}'s planet is {b} times {a}00 km wide, {q}'s is {c}00.|a*b; {p}'s planet is {a}00 and {b}00 km "
        "wide, added "
        "up, and {q}'s is {c}00.|a+b",
    },
    "river": {
        "head": "river|longer|shorter",
        "know": "is the Nile|is the Thames; is the Amazon|is the Rhine; is the Mississippi|is the Seine; is the "
        "Nile|is the Tiber",
        "sense": "is never-ending|is little; goes on and on|is stubby; is extensive|is brief",
        "clue": "{p} needs weeks to row down {p.his} river, {q} one morning for {q.hers}; {p}'s river crosses six "
        "countries, "
        "and {q}'s stays in one valley",
        "more": "{p}'s river has {b} parts of {a} km, {q}'s is {c} km long.|a*b; {p}'s river runs {a} km, then {b} "
        "more, and {q}'s "
        "runs {c}.|a+b",
    },
    "island": {
        "head": "island|bigger|smaller",
        "know": "is Greenland|is Malta; is Great Britain|is Capri; is Madagascar|is Malta; is Cuba|is Manhattan; is "
        "Iceland|is "
        "Capri",
        "sense": "is vast|is tiny; is immense|is a mere speck; is huge|is titchy",
        "clue": "{p} drives all day to cross {p.his} island, {q} walks round {q.hers} before lunch; {p}'s island has "
        "four "
        "airports, {q}'s a single hut",
        "more": "{p}'s island has {b} parts of {a} square km, {q}'s has {c}.|a*b; {p}'s island has {a} plus {b} "
        "square km, {q}'s "
        "{c}.|a+b",
    },
}

# thing: verb | goal | what is good about the one | bad about the other. "They want to <goal>: Ann's map <good>, ..."
WHOSE: dict[str, str] = {
    "map": "use|find small paths|shows every path|shows only motorways; use|read in the rain|is waterproof|is of "
    "thin paper",
    "tent": "use|stay dry|keeps rain out|leaks; use|sleep four in it|has room for four|has room for one",
    "torch": "use|light the dark cave|is strong|flickers; use|have light all night|is fully charged|is nearly empty",
    "recipe": "use|bake without eggs|needs no eggs|needs six eggs; use|eat within the hour|takes ten minutes|takes "
    "all day",
    "car": "take|carry six people|has seven seats|has two seats; take|get up the icy hill|has winter tyres|has bald "
    "tyres",
    "boat": "take|cross rough water|is sturdy|has a hole; take|fish in silence|has oars|has a loud motor",
    "plan": "choose|finish by Friday|takes two days|takes two weeks; choose|spend little|costs nothing|costs thousands",
    "ladder": "use|reach the roof|is six metres long|is one metre long; use|stand safely|is steady|wobbles",
    "song": "choose|put the baby to sleep|is a lullaby|is a loud march; choose|sing at once|is easy|is hard",
    "room": "use|work in peace|is quiet|is beside a drum school; use|seat thirty guests|seats forty|seats eight",
    "camera": "use|film under water|is waterproof|is not watertight; use|photograph far birds|zooms well|does not zoom",
    "story": "choose|make the children laugh|is funny|is very sad; choose|read it in five minutes|is short|is endless",
    "rope": "use|pull the heavy cart|is thick|is thin and frayed; use|reach the well's bottom|is long|is too short",
    "shovel": "use|dig in hard soil|is of steel|is a plastic toy; use|work without splinters|has a smooth grip|is "
    "rough",
}

# deed: past | base | passive | clues | what means the same
DID: dict[str, str] = {
    "cake": "ate the cake|eat the cake|the cake was eaten|The cake is gone, and {p} has crumbs on {p.his} chin|{p} "
    "polished off the cake",
    "jug": "broke the jug|break the jug|the jug was broken|{p} hides bits of the jug under {p.his} coat|{p} smashed "
    "the jug",
    "door": "painted the door|paint the door|the door was painted|The door is wet, and {p} has paint on {p.his} "
    "hands|{p} gave "
    "the door a lick of colour",
    "dog": "fed the dog|feed the dog|the dog was fed|The dog licks its bowl, and {p} closes a meat tin|{p} gave the "
    "dog its grub",
    "poem": "wrote the poem|write the poem|the poem was written|{p} blushes when the poem is read, and {p.his} "
    "fingers are inky|{p} penned the "
    "poem",
    "window": "opened the window|open the window|the window was opened|The window is open, and {p} fans {p.his} hot "
    "face beside "
    "it|{p} flung the window wide",
    "ball": "caught the ball|catch the ball|the ball was caught|{p} holds the ball up and grins|{p} snatched the "
    "ball from the air",
    "bread": "baked the bread|bake the bread|the bread was baked|The bread is still warm, and {p} has flour on "
    "{p.his} nose|{p} made the loaf",
    "fence": "mended the fence|mend the fence|the fence was mended|{p} puts away hammer and nails by the new "
    "fence|{p} put the "
    "fence right again",
    "secret": "told the secret|tell the secret|the secret was told|{p} blushes when the secret comes up|{p} spilled "
    "the beans",
    "lamp": "switched off the lamp|switch off the lamp|the lamp was switched off|{p}'s hand is still on the lamp in "
    "the dark|{p} "
    "put out the lamp",
    "money": "found the money|find the money|the money was found|{p} suddenly waves a muddy purse full of money|{p} "
    "stumbled upon the money",
}

# task: base | goal | good | bad | clue
TASK: dict[str, str] = {
    "drive": "drive|get home safely|slept well|is very tired|{p} already has the car key in {p.his} hand",
    "cook": "cook|have a good dinner|cooks well|burns everything|{p} ties on the apron and lights the stove",
    "sing": "sing first|start with a strong voice|is in good voice|has a sore throat|{p} steps up to the microphone",
    "goal": "keep goal|have a tall keeper|is very tall|is very short|{p} pulls on the goalkeeper's gloves",
    "paint": "paint the roof|avoid accidents|likes heights|gets dizzy on chairs|{p} climbs the ladder with a brush",
    "guide": "lead the way|not get lost|knows the area|has never been there|{p} opens the map and walks ahead",
    "pay": "pay the bill|pay it now|has cash|has no money left|{p} takes out {p.his} purse and waves to the waiter",
    "speak": "give the speech|hear a calm speaker|stays calm|stammers with fear|{p} sorts {p.his} notes and clears "
    "{p.his} throat",
    "water": "water the plants|help them daily|is always at home|is away|{p} fills the can and turns to the plants",
    "shop": "do the shopping|have it before noon|is free now|works until night|{p} takes the basket and the list",
    "sew": "sew the curtain|get neat seams|sews neatly|cannot sew|{p} threads a needle and sits down by the curtain",
    "call": "call the doctor|explain it in French|speaks French|speaks no French|{p} picks up the phone and looks up "
    "the number",
}

# What the quiz asks for | right answer | wrong answer. {a}, {b} are numbers.
QUIZ_KNOW = """
the capital of Italy|Rome|Milan; the capital of Spain|Madrid|Barcelona; the capital of Japan|Tokyo|Kyoto; the
largest ocean|the Pacific|the Atlantic; the planet nearest the Sun|Mercury|Saturn; the colour of
emeralds|green|blue; the number of days in a week|seven|six; the metal that rusts|iron|gold; the author of
'Hamlet'|Shakespeare|Goethe; the highest mountain|Mount Everest|Mont Blanc; the painter of the Mona
Lisa|Leonardo|Picasso; the gas we need to breathe|oxygen|helium; the number of legs of an ant|six|ten; the
capital of Germany|Berlin|Munich; the organ that pumps blood|the heart|the liver; the number of strings on a
violin|four|seven; the country of the pyramids of Giza|Egypt|Norway; the boiling point of water|100 degrees|50
degrees; the language of Brazil|Portuguese|Dutch; a bird that cannot fly|the ostrich|the eagle"""
QUIZ_SENSE = """
a word like 'glad'|'happy'|'grim'; the opposite of 'generous'|'stingy'|'kind'; a word like
'big'|'large'|'narrow'; the opposite of 'ancient'|'modern'|'old'; a word like 'begin'|'start'|'stay'; the
opposite of 'brave'|'cowardly'|'bold'; a word like 'quick'|'fast'|'late'; the opposite of
'noisy'|'silent'|'loud'; a word like 'rich'|'wealthy'|'greedy'; the opposite of 'scarce'|'plentiful'|'rare'; a
word like 'weep'|'cry'|'sweep'; the opposite of 'victory'|'defeat'|'success'; a word like
'error'|'mistake'|'terror'; a word like 'gift'|'present'|'lift'; the opposite of 'rough'|'smooth'|'tough'"""
QUIZ_SYNTAX = """
the plural of 'mouse'|'mice'|'mouses'; the past of 'go'|'went'|'goed'; the subject in 'Cats fear
dogs'|'cats'|'dogs'; the object in 'Bees like roses'|'roses'|'bees'; the plural of 'child'|'children'|'childs';
the past of 'bring'|'brought'|'bringed'; the verb in 'Old men sleep'|'sleep'|'old'; the plural of
'foot'|'feet'|'foots'; the past of 'teach'|'taught'|'teached'; the doer in 'Tea was made by Kim'|'Kim'|'tea';
the adjective in 'Tall trees fall'|'tall'|'trees'; the plural of 'knife'|'knives'|'knifes'; the object in 'Him
they saw'|'him'|'they'; the past of 'swim'|'swam'|'swimmed'; the subject in 'Here comes Kim'|'Kim'|'here'"""
PRIZES = "point star sticker medal prize"

# --------------------------------------------------------------------------------------------------------- families

# opening sentences | slots: form:what the family puts in (a verb as base/third person)
THEMES: dict[str, str] = {
    "camping": "{a} and {b} are camping; {a} and {b} go camping|have:tent pegs, whose:tent, whose:torch, cmp:bag, "
    "colour:tent, "
    "day:leave/leaves, task:cook, did:lamp, state, bus",
    "shopping": "{a} and {b} are at the shop; {a} and {b} go shopping|buy:apples, pay:lamp, colour:jacket, cmp:gift, "
    "task:pay, "
    "whose:car, bus, did:money, clock:leave/leaves",
    "zoo": "{a} and {b} visit the zoo; {a} and {b} work at the zoo|animal, cmp:animal_big, cmp:animal_fast, "
    "pay:ticket, "
    "have:photos, whose:camera, colour:cap, day:come/comes, state, point",
    "kitchen": "{a} and {b} are cooking; {a} and {b} share a kitchen|buy:eggs, food, whose:recipe, cmp:snack, "
    "did:jug, task:cook, "
    "colour:jacket, have:spoons, cmp:drink",
    "school": "{a} and {b} are at school; {a} and {b} share a desk|point, have:pencils, age, animal, colour:schoolbag, "
    "day:read aloud/reads "
    "aloud, did:window, task:speak, late:late, points",
    "football": "{a} and {b} play football; {a} and {b} are in one team|task:goal, did:ball, points, age, "
    "colour:shirt, "
    "day:train/trains, state, whose:plan, bus",
    "travel": "{a} and {b} plan a journey; {a} and {b} like to travel|vehicle, city:stay/stays, cmp:trip, "
    "month:travel/travels, "
    "pay:ticket, floor, bus, cmp:mountain, whose:car, late:late",
    "music": "{a} and {b} make music; {a} and {b} love music|play, cmp:instrument, whose:song, task:sing, "
    "clock:practise/practises, "
    "have:records, pay:record, late:tired, day:perform/performs",
    "garden": "{a} and {b} are in the garden; {a} and {b} love gardening|buy:bulbs, have:roses, task:water, "
    "whose:shovel, did:fence, "
    "colour:hat, month:dig/digs, walk, state",
    "hotel": "{a} and {b} spend a week at a hotel; {a} and {b} are on holiday|floor, pay:room, clock:get up/gets up, "
    "food, place, cmp:drink, "
    "whose:room, did:lamp, colour:sunhat",
    "office": "{a} and {b} share an office; {a} and {b} work together|floor, clock:start/starts, whose:plan, "
    "task:speak, did:window, "
    "buy:folders, job, vehicle, late:late, cmp:home",
    "family": "{a} and {b} are at a family party; {a} and {b} meet at a party|age, did:cake, cmp:gift, "
    "have:presents, state, "
    "whose:story, food, colour:balloon, task:sing",
    "space": "{a} and {b} watch the stars; {a} and {b} like astronomy|cmp:planet, point, have:star maps, "
    "whose:camera, clock:go "
    "out/goes out, state, buy:lenses, month:watch Mars/watches Mars, pay:poster",
    "geography": "{a} and {b} study maps; {a} and {b} are in a geography class|cmp:river, cmp:island, cmp:mountain, "
    "point, "
    "city:live/lives, whose:map, points, have:atlases, month:travel/travels",
    "games": "{a} and {b} play a game; {a} and {b} like board games|points, point, age, cmp:animal_fast, "
    "colour:cap, have:cards, "
    "did:secret, animal, clock:stop/stops",
    "art": "{a} and {b} are painting; {a} and {b} take an art class|animal, colour:smock, did:door, buy:brushes, "
    "pay:frame, task:paint, "
    "state, cmp:animal_big, whose:story, clock:paint/paints",
    "boats": "{a} and {b} are at the lake; {a} and {b} live by the sea|whose:boat, whose:rope, cmp:island, clock:set "
    "sail/sets sail, "
    "have:hooks, colour:boat, task:guide, vehicle, cmp:vehicle, pay:net",
    "hiking": "{a} and {b} are hiking; {a} and {b} love the hills|walk, cmp:mountain, cmp:bag, task:guide, "
    "whose:map, state, "
    "have:maps, day:set off/sets off, buy:plasters, colour:scarf",
    "books": "{a} and {b} are readers; {a} and {b} love books|have:novels, pay:novel, whose:story, did:poem, place, "
    "month:read/reads, buy:comics, point, colour:rucksack",
    "farm": "{a} and {b} live on a farm; {a} and {b} help on a farm|have:eggs, cmp:animal_big, clock:get up/gets up, "
    "did:dog, did:fence, "
    "food, whose:ladder, vehicle, buy:buckets",
    "weather": "{a} and {b} talk about the weather; {a} and {b} note the weather|late:cross, place, day:go out/goes "
    "out, "
    "colour:umbrella, month:rest/rests, walk, cmp:drink, whose:car",
    "health": "{a} and {b} want to keep fit; {a} and {b} exercise a lot|walk, food, task:call, cmp:drink, "
    "day:swim/swims, points, "
    "have:weights, place, cmp:older, buy:oranges",
    "money": "{a} and {b} count their savings; {a} and {b} save money|have:coins, pay:clock, cmp:gift, did:money, "
    "task:pay, "
    "buy:stamps, month:save/saves, whose:plan, age",
    "tools": "{a} and {b} mend a shed; {a} and {b} are in the workshop|have:nails, buy:screws, whose:ladder, "
    "whose:shovel, did:fence, "
    "task:paint, colour:toolbox, pay:drill, clock:stop/stops",
    "furniture": "{a} and {b} furnish a flat; {a} and {b} move house|pay:chair, colour:van, buy:chairs, floor, "
    "task:sew, whose:car, "
    "did:lamp, cmp:home, cmp:bag, day:move/moves",
    "theatre": "{a} and {b} are at the theatre; {a} and {b} put on a play|clock:arrive/arrives, colour:cloak, "
    "task:speak, age, "
    "pay:seat, did:secret, state, city:act/acts, whose:song, play",
    "racing": "{a} and {b} are at a race; {a} and {b} love races|cmp:vehicle, cmp:animal_fast, points, "
    "colour:helmet, bus, "
    "day:race/races, age, point, state, pay:ticket",
    "train": "{a} and {b} are at the station; {a} and {b} wait for a train|city:live/lives, clock:depart/departs, "
    "pay:ticket, cmp:trip, "
    "cmp:bag, late:angry, task:shop, colour:case, buy:rolls",
    "picnic": "{a} and {b} have a picnic; {a} and {b} sit in the park|food, cmp:snack, buy:plums, did:cake, walk, "
    "colour:blanket, "
    "task:drive, whose:recipe, day:rest/rests, cmp:drink",
    "work": "{a} and {b} talk about work; {a} and {b} meet after work|job, bus, clock:finish/finishes, "
    "city:work/works, cmp:home, "
    "month:travel/travels, place, pay:meal, play",
    "quiz": "{a} and {b} are at a quiz; {a} and {b} love quizzes|point, points, cmp:planet, cmp:river, cmp:island, "
    "animal, age, "
    "day:play/plays, colour:shirt, cmp:instrument",
}

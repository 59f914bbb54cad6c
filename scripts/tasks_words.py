"""The hand-written part of the gate tasks; build_tasks.py turns it into files.

Notations:
  "walk/walked eat/ate"             words split on white space, forms on slashes
  "girl|cooked dinner; boy|..."     rows split on semicolons, fields on bars
  {"glass": "a window; a jar"}      every item on the right has the right answer on the left
  *_CLASH                           where the answer on the left is right, those on the right are not offered as wrong
                                    ones: for some item they might be right as well
"""

# ---------------------------------------------------------------------------------------------------------------- math

NAMES = {
    "train": "Tom Anna Ben Lucy Sam Mia Leo Emma Jack Ella Max Rosa",
    "held_out": "Paul Nina Karl Julia Omar Sara",
}
OBJECTS = {
    "train": "apples pens books eggs coins cards cups shirts stamps plums toys stones nuts hats balls pears",
    "held_out": "shells spoons lemons photos keys cookies",
}

# What is computed stands behind the bar; {a}, {b}, {c} are the numbers, {n} and {m} the people, {o} the objects.
WORD_1 = {
    "train": """
{n} has {a} {o} and buys {b} more. How many in all?|a+b
{n} finds {a} {o}, then {b} more. How many in all?|a+b
{a} {o} are in a box and {b} in a bag. How many in all?|a+b
{n} has {a} {o} and {m} has {b}. How many together?|a+b
{n} has {a} {o} and loses {b}. How many are left?|a-b
{n} had {a} {o} and sold {b}. How many are left?|a-b
{n} has {a} {o} and gives away {b}. How many are left?|a-b
{n} has {a} {o} and {m} has {b}. How many more has {n}?|a-b
{n} has {a} bags of {b} {o}. How many {o} in all?|a*b
Each box holds {a} {o}. How many {o} in {b} boxes?|a*b
{n} shares {a} {o} among {b} friends. How many for each?|a/b
""",
    "held_out": """
{n} packs {a} {o} and adds {b}. How many in all?|a+b
{n} saw {a} {o} on Monday and {b} on Friday. How many in all?|a+b
{n} had {a} {o} and gave {m} {b}. How many are left?|a-b
There were {a} {o}, but {n} took {b}. How many are left?|a-b
{n} fills {a} jars with {b} {o} each. How many in all?|a*b
{n} puts {a} {o} into {b} equal piles. How many in each?|a/b
""",
}
WORD_2 = {
    "train": """
{n} has {a} {o}, buys {b} more and loses {c}. How many are left?|a+b-c
{n} had {a} {o}, sold {b} and lost {c}. How many are left?|a-b-c
{n} finds {a} {o}, gives away {b} and finds {c} more. How many now?|a-b+c
{n} buys {a} bags of {b} {o} and gives away {c}. How many are left?|a*b-c
{n} has {a} {o} and {b} bags of {c} {o}. How many in all?|a+b*c
{n} has {a} {o} and {m} has {b} more than {n}. How many together?|a+a+b
{n} has {a} {o}, {m} has {b}, and they share them equally. How many for each?|(a+b)/2
""",
    "held_out": """
{n} had {a} {o}, gave {m} {b} and then got {c}. How many now?|a-b+c
{n} sold {a} {o} on Monday, {b} on Tuesday and {c} on Friday. How many in all?|a+b+c
{n} filled {a} jars with {b} {o} each and ate {c}. How many are left?|a*b-c
{n} packs {a} {o}, and {m} packs {b} fewer than {n}. How many together?|a+a-b
""",
}

# -------------------------------------------------------------------------------------------------------------- syntax

# The words of the sentence patterns, and those that many sentences begin with: only these may be in both splits.
FRAME = """
a the my i you he she it we they me him her us is are am was were do does did has have had will would can could should
must may might not no yes today yesterday one two often always soon to on of from about in near by behind over for at
with because when what where why how whether ask this that these those every several many much very too far so even all
here there enjoys likes loves everybody nobody something anything herself himself themselves isn't wasn't weren't aren't
didn't doesn't don't can't couldn't shouldn't hasn't won't tom anna ben lucy sam mary rosa leo max boys girls
"""

# Head, preposition, distractor; both nouns in the singular and the plural.
AGREEMENT_NOUNS = """
key/keys|to|cabinet/cabinets; book/books|on|shelf/shelves; window/windows|of|house/houses; teacher/teachers|of|boy/boys;
picture/pictures|on|wall/walls; road/roads|to|village/villages; label/labels|on|bottle/bottles;
flower/flowers|in|garden/gardens; letter/letters|from|lawyer/lawyers; door/doors|of|shop/shops;
chair/chairs|near|desk/desks; bird/birds|in|tree/trees; report/reports|about|storm/storms; cake/cakes|for|guest/guests;
gift/gifts|from|friend/friends; cup/cups|on|table/tables; car/cars|behind|truck/trucks; song/songs|about|river/rivers;
box/boxes|by|bed/beds; friend/friends|of|singer/singers; button/buttons|on|coat/coats; bridge/bridges|over|canal/canals;
owner/owners|of|horse/horses; page/pages|of|magazine/magazines
"""
# Base form, third person, a subject in the singular and the plural.
AGREEMENT_VERBS = """
sit/sits|boy/boys; bark/barks|dog/dogs; sing/sings|girl/girls; sleep/sleeps|cat/cats; swim/swims|duck/ducks;
jump/jumps|frog/frogs; dance/dances|guest/guests; cry/cries|baby/babies; smile/smiles|nurse/nurses;
walk/walks|man/men; laugh/laughs|child/children; work/works|farmer/farmers; wait/waits|driver/drivers;
fly/flies|plane/planes; ring/rings|bell/bells; shine/shines|star/stars; grow/grows|plant/plants; fall/falls|leaf/leaves;
speak/speaks|actor/actors; read/reads|student/students; cook/cooks|chef/chefs; drive/drives|worker/workers;
run/runs|horse/horses; win/wins|team/teams; write/writes|poet/poets; hide/hides|mouse/mice; bloom/blooms|rose/roses;
march/marches|soldier/soldiers; teach/teaches|woman/women; float/floats|boat/boats; break/breaks|cup/cups;
stop/stops|train/trains; dream/dreams|king/kings; paint/paints|artist/artists
"""

PAST = """
walk/walked talk/talked jump/jumped play/played cook/cooked clean/cleaned laugh/laughed work/worked help/helped
call/called wait/waited dance/danced smile/smiled travel/traveled study/studied cry/cried rest/rested paint/painted
listen/listened shout/shouted arrive/arrived argue/argued complain/complained practice/practiced vote/voted
shop/shopped stop/stopped plan/planned climb/climbed march/marched pray/prayed stay/stayed answer/answered
agree/agreed relax/relaxed exercise/exercised wash/washed cough/coughed
go/went eat/ate sing/sang run/ran write/wrote bring/brought drive/drove sleep/slept swim/swam speak/spoke teach/taught
fly/flew drink/drank buy/bought sell/sold think/thought fight/fought win/won lose/lost leave/left fall/fell rise/rose
ride/rode steal/stole choose/chose forget/forgot begin/began come/came see/saw know/knew sit/sat stand/stood draw/drew
grow/grew hide/hid feel/felt build/built spend/spent catch/caught wake/woke meet/met pay/paid dig/dug
"""

PLURALS = """
mouse/mice child/children foot/feet tooth/teeth man/men woman/women goose/geese wolf/wolves leaf/leaves knife/knives
wife/wives shelf/shelves loaf/loaves thief/thieves sheep/sheep baby/babies city/cities lady/ladies story/stories
fly/flies party/parties cherry/cherries berry/berries puppy/puppies pony/ponies body/bodies army/armies spy/spies
box/boxes bus/buses fox/foxes dish/dishes church/churches watch/watches class/classes kiss/kisses brush/brushes
bench/benches peach/peaches witch/witches dress/dresses beach/beaches potato/potatoes tomato/tomatoes hero/heroes
dog/dogs book/books car/cars tree/trees cat/cats house/houses chair/chairs bird/birds apple/apples king/kings
day/days boy/boys toy/toys key/keys monkey/monkeys donkey/donkeys river/rivers egg/eggs hat/hats spoon/spoons
table/tables flower/flowers window/windows horse/horses doctor/doctors bridge/bridges orange/oranges bottle/bottles
shirt/shirts pencil/pencils star/stars snake/snakes ring/rings door/doors
"""

FEMALE = "girl woman queen lady princess actress waitress mother sister aunt daughter grandmother wife niece nun"
MALE = "boy man king gentleman prince monk waiter father brother uncle son grandfather husband nephew groom"
MANY = "boys girls men women children students dogs parents friends teachers soldiers neighbors"
RELATIVES = "mother sister aunt daughter grandmother wife niece father brother uncle son grandfather husband nephew"
RELATIVES += " parents friends neighbors"
# What someone does alone ("all by" -> " herself"), and what makes me act on someone (", so I fed" -> " them").
ALONE = "cooked dinner; did it; went home; built it; lived; sang; worked; ate lunch; cleaned up; moved in"
REACTIONS = "called, so I met; fell, so I helped; sang, so we thanked; got lost, so we found; won, so we praised"
REACTIONS += "; was sad, so I hugged; was late, so we left without; was kind, so we liked"
BELONGINGS = "hat car house bag coat phone cup bike room desk key ball"
# Verbs for "I love him and he loves" -> " me".
MUTUAL = """
love/loves help/helps know/knows see/sees hate/hates trust/trusts miss/misses like/likes call/calls need/needs
follow/follows thank/thanks respect/respects visit/visits admire/admires teach/teaches remember/remembers hear/hears
"""

# Subject, auxiliary, the rest. No adjective with an everyday opposite, which would be an answer too, and no "can".
NEGATION_BE = """
She|is|a nurse; He|is|at work; They|are|singing; We|are|in Paris; Tom|was|hungry; The boys|were|busy; Anna|is|a doctor;
It|was|raining; The dog|is|barking; They|were|students; He|was|a farmer; We|were|lost; Ben|is|a lawyer;
The girls|are|dancing; She|was|cooking; I|am|tired; The train|is|moving; They|are|married; Lucy|was|a teacher;
He|is|sleeping; We|are|brothers; The king|was|angry; She|is|Italian; I|am|thirsty; They|were|swimming; It|is|snowing
"""
NEGATION_AUX = """
She|will|come; He|must|stay; They|should|wait; Tom|has|left; Mary|had|called; We|have|eaten; Anna|will|win;
He|would|help; They|could|fly; I|have|finished; Sam|will|agree; We|should|leave; You|must|wait here;
The bus|has|arrived; She|had|forgotten; The men|have|voted; It|will|break; He|could|walk; I|would|pay; You|should|worry
"""
# Subject, verb, its base form, the rest.
NEGATION_DO = """
She|likes|like|tea; He|plays|play|chess; They|want|want|rice; We|know|know|him; I|need|need|help; Tom|saw|see|us;
Anna|made|make|bread; You|read|read|books; Mary|sings|sing|jazz; She|slept|sleep|here; He|drives|drive|trucks;
They|sold|sell|cars; We|live|live|here; I|speak|speak|French; Ben|bought|buy|milk; The cat|eats|eat|fish;
The girls|love|love|music; Lucy|wrote|write|poems; He|owns|own|land; They|found|find|gold; She|teaches|teach|math;
We|lost|lose|money; I|drink|drink|coffee; Sam|grew|grow|corn; The man|sells|sell|shoes; You|believe|believe|me;
Rosa|took|take|it; They|use|use|oil; He|builds|build|boats; She|chose|choose|red; The boys|wear|wear|hats;
We|sent|send|flowers; I|remember|remember|her; Leo|stole|steal|it; Max|watches|watch|movies; It|works|work|well
"""

# "He is loud. Is" -> " he loud": pronouns, because a name would be one, and no "I", which would turn into "you".
QUESTION_INVERSION = """
he|is|loud; she|was|angry; it|is|barking; they|are|sad; she|has|paid; he|will|stay; it|was|hiding;
they|were|sleeping; she|can|swim; it|is|dark; it|is|hot; he|must|go; they|should|wait; she|was|crying;
it|is|open; they|are|late; he|could|sing; it|is|deep; they|have|arrived; she|will|win;
it|was|empty; he|is|ill; they|were|wet; it|is|ready
"""
# "Tom left early. When did Tom" -> " leave": subject, past or present, the rest, question word and auxiliary, base.
QUESTION_DO = """
Tom|left|early|When did|leave; Anna|lives|here|Where does|live; the boys|sang|loudly|How did|sing;
Lucy|went|home|Where did|go; Ben|sleeps|well|How does|sleep; the dogs|ran|away|Why did|run;
Mary|bought|milk|What did|buy; Sam|eats|fish|What does|eat; the girls|swam|there|Where did|swim;
Rosa|broke|it|How did|break; the train|came|slowly|Why did|come; Leo|speaks|French|Why does|speak;
the men|built|it|When did|build; Emma|drew|a cat|What did|draw; Max|plays|chess|When does|play;
the army|fought|them|Why did|fight; Nina|found|gold|Where did|find; Jack|teaches|math|Why does|teach;
the nurse|drove|fast|Why did|drive; Karl|wrote|a poem|What did|write; the baby|fell|down|Where did|fall;
Ella|works|alone|Why does|work; Paul|grew|corn|Where did|grow; Sara|forgot|it|How did|forget
"""
# "The boy can dance, can't" -> " he"; the tag's auxiliary and the pronoun stand last.
QUESTION_TAG = """
The boy|can dance|can't|he; My aunt|is rich|isn't|she; The girls|lied|didn't|they; The book|was cheap|wasn't|it;
My father|smokes|doesn't|he; The queen|has won|hasn't|she; The cars|are new|aren't|they; The bus|will stop|won't|it;
My sister|cooks|doesn't|she; The king|died|didn't|he; The birds|were singing|weren't|they;
The soup|tastes good|doesn't|it; The woman|could hear|couldn't|she; My uncle|was shy|wasn't|he;
The eggs|broke|didn't|they; The house|is old|isn't|it; My brother|should rest|shouldn't|he; The lady|called|didn't|she;
The shoes|fit|don't|they; The plan|worked|didn't|it
"""
# "I ask whether he is late:" -> " Is he late?"
QUESTION_WHETHER = """
he|is|late; she|was|invited; it|is|locked; they|are|bright; she|has|eaten; he|will|help; it|is|fresh;
they|were|playing; he|can|drive; it|was|burning; she|should|apply; they|are|clean; he|has|slept;
it|will|land; she|is|famous; they|were|broken
"""

# Minimal pairs: the two forms, then two prompts that differ in one word; the first asks for the first form.
PAIR_DETERMINER = """
key/keys|I want|this|these; spoon/spoons|We need|that|those; shirt/shirts|She likes|this|these;
horse/horses|He rides|that|those; lamp/lamps|They sold|this|these; picture/pictures|I took|that|those;
stone/stones|He threw|this|these; letter/letters|She wrote|that|those; bottle/bottles|I filled|every|several;
window/windows|She opened|every|many
"""
PAIR_PARTICIPLE = """
eaten/ate|She has/soon; gone/went|He has/soon; broken/broke|It has/soon; sung/sang|They have/soon;
drunk/drank|He had/soon; written/wrote|I had/soon; spoken/spoke|We have/soon; flown/flew|They had/soon
"""
PAIR_MODAL = """
go/goes|She|can|often; play/plays|He|must|always; cook/cooks|Anna|will|often; run/runs|The dog|should|always;
read/reads|Tom|may|often; wash/washes|She|might|always; cry/cries|The baby|will|often
"""
PAIR_GERUND = """
swim/swimming|He|must|enjoys; dance/dancing|She|can|enjoys; paint/painting|Tom|will|likes;
travel/traveling|Anna|should|loves; climb/climbing|Ben|could|enjoys
"""
PAIR_DEGREE = """
tall/taller|He is very/much; cheap/cheaper|It is very/much; old/older|She is too/far; small/smaller|They are very/much;
warm/warmer|It was so/even; rich/richer|He was very/much; long/longer|It is too/far
"""
PAIR_ADVERB = """
quick/quickly|She|was|ran; quiet/quietly|He|is|spoke; slow/slowly|They|were|walked; brave/bravely|She|is|fought;
careful/carefully|He|was|drove
"""
# The forms are the reflexives of the two subjects.
PAIR_ANAPHOR = """
prince/princess|The|made lunch all by; monk/nun|The|prayed all by; waiter/waitress|The|tidied up all by;
nephew/niece|My|came here all by;
actor/actors|The famous|arrived all by; duke/dukes|The old|traveled all by; groom/bride|The|danced all by;
grandson/granddaughter|Her|walked home all by
"""
PAIR_POLARITY = "bought heard found said"
PAIR_CASE = (
    "he/him|She left because/with; I/me|They laughed when/at; they/them|He smiled because/at; we/us|Ben ran when/with"
)
PAIR_COUNT = "Rice/Eggs Salt/Coins Water/Chairs Sugar/Nails"

# --------------------------------------------------------------------------------------------------------- commonsense

PLACE = {
    "fridge": "milk; butter; yogurt; fresh cream; cold leftovers",
    "bathroom": "a toothbrush; shampoo; a bathtub; toilet paper; a shower",
    "ocean": "a shark; a whale; a coral reef; an octopus; a submarine",
    "desert": "sand dunes; wild camels; a cactus; an oasis",
    "hospital": "a surgeon; an operating room; sick patients; a maternity ward",
    "school": "pupils; a blackboard; a classroom; a math teacher",
    "farm": "a tractor; a barn; dairy cows; a scarecrow; a chicken coop",
    "airport": "a runway; boarding gates; a control tower; a passport check",
    "church": "an altar; pews; a priest; a choir",
    "theater": "a stage; actors; a curtain call; an audience",
    "bank": "a vault; a money teller; a loan officer",
    "bedroom": "a pillow; a mattress; a blanket; a nightstand",
    "gym": "a treadmill; dumbbells; a fitness coach",
    "court": "a judge; a jury; a witness stand",
    "restaurant": "a waiter; a menu; a wine list",
    "office": "a photocopier; a stapler; a meeting room",
    "toolbox": "a hammer; a wrench; a screwdriver",
    "sky": "clouds; a rainbow; the moon",
}
PLACE_CLASH = {
    "fridge": "hospital; school; farm; restaurant",
    "bathroom": "hospital; school; bedroom; gym; restaurant; office",
    "ocean": "sky",
    "desert": "farm; sky",
    "hospital": "fridge; bathroom; school; church; bedroom; gym; restaurant; office",
    "school": "fridge; bathroom; hospital; church; theater; bedroom; gym; court; office; toolbox",
    "farm": "fridge; desert; toolbox",
    "airport": "bank; bedroom; court; restaurant; office; sky",
    "church": "hospital; school; theater; court; office",
    "theater": "school; church; court; restaurant; office",
    "bank": "airport; office",
    "bedroom": "bathroom; hospital; school; airport; gym",
    "gym": "bathroom; hospital; school; bedroom; office",
    "court": "school; airport; church; theater; office; toolbox",
    "restaurant": "fridge; bathroom; hospital; airport; theater; office",
    "office": "bathroom; hospital; school; airport; church; theater; bank; gym; court; restaurant; toolbox",
    "toolbox": "school; farm; court; office",
    "sky": "ocean; desert; airport",
}

PURPOSE = {
    "cutting": "a knife; scissors; a saw; an ax; a razor blade",
    "writing": "a pen; a pencil; chalk; a typewriter",
    "telling time": "a clock; a watch; a sundial; an hourglass",
    "cleaning": "a broom; a mop; a sponge; soap; a vacuum",
    "sitting": "a chair; a bench; a stool; a sofa",
    "sleeping": "a bed; a hammock; a crib; a bunk",
    "giving light": "a lamp; a candle; a flashlight; a lantern",
    "drinking": "a mug; a straw; a teacup; a wine glass",
    "baking": "an oven; a rolling pin; a cake tin",
    "travel": "a train; a bicycle; a bus; a taxi; a ferry",
    "keeping dry": "an umbrella; a raincoat; rubber boots",
    "measuring": "a ruler; a thermometer; a tape measure; a scale",
    "digging": "a shovel; a spade; a pickaxe",
    "making music": "a piano; a violin; a trumpet; a drum",
    "locking": "a padlock; a latch; a key",
    "calling people": "a telephone; a cell phone",
    "seeing better": "glasses; a microscope; binoculars; a telescope",
    "healing": "medicine; a bandage; an ointment",
}
PURPOSE_CLASH = {
    "cutting": "cleaning; baking; digging; healing",
    "writing": "calling people",
    "telling time": "giving light; measuring; calling people",
    "cleaning": "cutting; keeping dry; digging; healing",
    "sitting": "sleeping; travel",
    "sleeping": "sitting; travel; keeping dry",
    "giving light": "telling time; calling people; seeing better",
    "drinking": "measuring; seeing better; healing",
    "baking": "cutting; measuring",
    "travel": "sitting; sleeping; keeping dry; calling people",
    "keeping dry": "cleaning; sleeping; travel",
    "measuring": "telling time; drinking; baking; making music; seeing better",
    "digging": "cutting; cleaning",
    "making music": "measuring; calling people",
    "locking": "calling people",
    "calling people": "writing; telling time; giving light; travel; making music; locking",
    "seeing better": "giving light; drinking; measuring",
    "healing": "cutting; cleaning; drinking",
}

PROPERTY = {
    "hot": "lava; boiling water; a flame; a burning coal; steam",
    "cold": "ice; snow; a glacier; a snowman; an icicle",
    "sharp": "a razor; a needle; a thorn; a broken bottle",
    "soft": "a feather; a kitten's fur; a silk scarf; a teddy bear",
    "heavy": "an elephant; a truck; an anvil; a grand piano",
    "sweet": "honey; candy; sugar; chocolate cake; jam",
    "sour": "a lemon; vinegar; a lime; an unripe plum",
    "salty": "sea water; a pretzel; soy sauce; a potato chip",
    "sticky": "glue; chewing gum; syrup; tree sap",
    "fast": "a race car; a rocket; a cheetah; a bullet",
    "slow": "a snail; a turtle; a sloth; a slug",
    "loud": "thunder; a siren; an explosion; a jackhammer",
    "round": "a ball; a coin; a wheel; a marble",
    "hard": "a rock; a diamond; a brick; concrete",
    "dark": "a cave; a moonless night; a deep cellar",
    "expensive": "a gold ring; a mansion; a private jet",
    "bitter": "black coffee; raw cocoa; strong medicine",
}
PROPERTY_CLASH = {
    "hot": "heavy; sticky; fast; slow; loud; hard; dark; bitter",
    "cold": "sharp; soft; heavy; salty; slow; round; hard; dark",
    "sharp": "cold; fast; loud; hard; expensive",
    "soft": "hot; cold; sweet; slow; round; expensive",
    "heavy": "cold; fast; slow; loud; round; hard; dark; expensive",
    "sweet": "soft; sticky; slow; round; hard; dark; expensive; bitter",
    "sour": "sharp; soft; salty; sticky; round; hard; bitter",
    "salty": "cold; sharp; heavy; sour; sticky; round; hard; dark; bitter",
    "sticky": "soft; sweet; slow; dark; bitter",
    "fast": "hot; sharp; soft; heavy; loud; round; hard; dark; expensive",
    "slow": "cold; soft; heavy; sticky; round; hard",
    "loud": "hot; sharp; heavy; fast; hard; dark; expensive",
    "round": "cold; soft; heavy; fast; hard; expensive",
    "hard": "cold; sharp; heavy; slow; round; dark; expensive",
    "dark": "cold; heavy; slow; hard",
    "expensive": "cold; soft; heavy; sweet; fast; loud; round; hard",
    "bitter": "hot; heavy; sour; sticky; hard; dark; expensive",
}

CAUSE = {
    "it breaks": "drop a glass; hit a vase hard; throw a plate; step on an egg; hammer a mirror",
    "it melts": "leave ice cream in the sun; warm up butter; hold a snowball; heat a candle",
    "it freezes": "leave water in the frost; cool a pond below zero; put juice in a freezer",
    "it burns": "light dry paper; put wood in a fire; drop a match on hay; throw a log in flames",
    "it boils": "heat water to 100 degrees; leave a kettle on; keep heating soup",
    "it sinks": "drop a stone in a lake; throw a coin in a well; drop an anchor at sea",
    "it pops": "prick a balloon; poke a soap bubble; overfill a balloon",
    "it rusts": "leave iron in rain; keep a wet nail outside; never dry a steel bike",
    "it grows": "plant a seed; water a young tree; feed a puppy well",
    "it bounces": "drop a rubber ball; throw a tennis ball down; dribble a basketball",
    "it rings": "press a doorbell; set an alarm clock; swing a church bell",
    "you get wet": "walk in the rain; jump in a pool; stand under a shower; fall in a river",
    "you get tired": "run a marathon; stay up all night; work all day long; climb a mountain",
    "you get sick": "eat spoiled meat; drink dirty water; catch the flu",
    "you get sunburned": "lie in the sun all day; skip the sunscreen",
    "you get hungry": "skip lunch; eat nothing all day; fast for two days",
    "you bleed": "cut your finger; scrape your knee badly; step on broken glass",
    "you laugh": "hear a good joke; get tickled; watch a funny clown",
    "you arrive late": "miss the bus; oversleep before work; get stuck in traffic",
    "you get fined": "park illegally; drive far too fast; ride without a ticket",
}
CAUSE_CLASH = {
    "it breaks": "it rusts; it melts; it freezes; it burns; it sinks; it pops; it bounces; it rings; you bleed",
    "it melts": "it breaks; it burns; it boils; it sinks",
    "it freezes": "it breaks; it rusts",
    "it burns": "it breaks; it melts; it boils; it pops",
    "it boils": "it melts; it burns; it pops",
    "it sinks": "it bounces; it breaks; it melts; it rings; you get wet",
    "it pops": "it breaks; it burns; it boils; it grows; it bounces",
    "it rusts": "it breaks; it freezes",
    "it grows": "it pops",
    "it bounces": "it sinks; it breaks; it pops; it rings; you get tired",
    "it rings": "it breaks; it sinks; it bounces",
    "you get wet": "it sinks; you get tired; you get sick; you get sunburned; you bleed; you laugh; you arrive late",
    "you get tired": """it bounces; you get wet; you get sick; you get sunburned; you get hungry; you bleed;
        you arrive late""",
    "you get sick": """you get wet; you get tired; you get sunburned; you get hungry; you bleed; you arrive late;
        you get fined""",
    "you get sunburned": "you get wet; you get tired; you get sick; you get hungry",
    "you get hungry": "you get tired; you get sick; you get sunburned; you arrive late",
    "you bleed": "it breaks; you get wet; you get tired; you get sick; you get fined",
    "you laugh": "you get wet; you get tired",
    "you arrive late": "you get wet; you get tired; you get sick; you get hungry; you get fined",
    "you get fined": "you get sick; you bleed; you arrive late",
}

MATERIAL = {
    "glass": "a window pane; a light bulb; a jam jar; a mirror; an aquarium",
    "wood": "a log cabin; a pencil shaft; a picnic table; a baseball bat; a match",
    "metal": "a sword; a nail; a horseshoe; a railway track; a paper clip",
    "paper": "a newspaper; an envelope; a book page; a bank receipt; a map",
    "leather": "a cowboy boot; a saddle; a wallet; a dog collar",
    "wool": "a winter sweater; yarn; a knitted scarf; a warm mitten",
    "rubber": "a car tire; an eraser; a bath duck; an elastic band",
    "clay": "a flower pot; a red brick; a pottery bowl; a roof tile",
    "stone": "a statue; a castle wall; a pyramid; a gravestone",
    "cotton": "a T-shirt; a bed sheet; denim; a towel",
    "gold": "a wedding ring; a king's crown",
    "flour": "bread; pasta; a pancake; pizza dough",
    "milk": "cheese; butter; yogurt; whipped cream",
    "wax": "a candle; a honeycomb; a crayon",
    "ice": "an igloo; a hockey rink; an iceberg; a glacier",
    "grapes": "wine; a raisin",
}
MATERIAL_CLASH = {
    "glass": "wood; metal; clay; stone; gold",
    "wood": "glass; metal; paper; leather; rubber; clay; stone; gold; wax; ice",
    "metal": "glass; wood; paper; leather; wool; rubber; clay; stone; gold",
    "paper": "wood; metal; leather; cotton",
    "leather": "wood; metal; paper; wool; rubber; cotton; gold",
    "wool": "metal; leather; rubber; cotton",
    "rubber": "wood; metal; leather; wool; clay; stone; cotton",
    "clay": "glass; wood; metal; rubber; stone; wax",
    "stone": "glass; wood; metal; rubber; clay; gold; wax; ice",
    "cotton": "paper; leather; wool; rubber",
    "gold": "glass; wood; metal; leather; stone; milk",
    "flour": "milk; grapes",
    "milk": "gold; flour; wax",
    "wax": "wood; clay; stone; milk",
    "ice": "wood; stone",
    "grapes": "flour",
}

PART = {
    "a tree": "a branch; bark; a treetop; a twig",
    "a car": "a windshield; a bumper; a steering wheel; a gas tank",
    "a bird": "a beak; a feather; plumage",
    "a fish": "a fin; a gill",
    "a book": "a chapter; a page; a table of contents",
    "a house": "a roof; a chimney; an attic; a front porch",
    "a hand": "a thumb; a palm; a little finger",
    "a face": "a nose; a cheek; a chin; a forehead",
    "a computer": "a hard drive; a keyboard; a processor",
    "a shirt": "a sleeve; a collar; a cuff",
    "a shoe": "a sole; a lace; an insole",
    "a bicycle": "a pedal; a handlebar; a bike chain",
    "a guitar": "a fret; a tuning peg; a sound hole",
    "a ship": "a mast; an anchor; a rudder",
    "an eye": "an iris; a retina; an eyelash",
    "a door": "a hinge; a doorknob; a keyhole",
    "a week": "Monday; Tuesday; the weekend",
    "a year": "March; winter; August",
    "a sentence": "a verb; a word; a comma",
    "a flower": "a petal; a stamen; pollen",
    "a foot": "a toe; a toenail",
    "a bed": "a headboard; a mattress; a bed frame",
}
PART_CLASH = {
    "a tree": "a house; a hand; a flower",
    "a car": "a house; a bicycle; a ship; a door",
    "a bird": "a fish; a hand; a face; a foot",
    "a fish": "a car; a bird; a shoe; a ship",
    "a book": "a computer; a sentence",
    "a house": "a tree; a car; a ship; a door; a bed",
    "a hand": "a tree; a bird; a shirt; a foot",
    "a face": "a bird; an eye",
    "a computer": "a book; a guitar",
    "a shirt": "a hand; a shoe",
    "a shoe": "a fish; a shirt; a foot",
    "a bicycle": "a guitar; a car",
    "a guitar": "a computer",
    "a ship": "a car; a fish; a house; a door",
    "an eye": "a face; a flower",
    "a door": "a computer; a car; a house; a ship",
    "a week": "a year",
    "a year": "a week",
    "a sentence": "a book",
    "a flower": "a tree; an eye",
    "a foot": "a bird; a hand; a shoe",
    "a bed": "a house",
}

# Situation -> what one says, and situation -> what one feels.
SAYING = {
    "thank you": "someone helps you; you get a gift; a stranger holds the door",
    "I am sorry": "you break a friend's cup; you step on a foot; you arrive very late",
    "hello": "you meet a friend; you enter a small shop; you answer the phone",
    "goodbye": "you leave a party; your guests drive off; you end a phone call",
    "congratulations": "a friend wins a prize; a couple gets married; a pupil passes the exam",
    "good luck": "a friend faces a test; a runner goes to the start; someone has a job interview",
    "happy birthday": "a child turns ten; a friend turns thirty; grandma turns ninety",
    "good night": "your child goes to bed; your roommate goes to sleep",
    "get well soon": "a friend has the flu; a neighbor is in the hospital; a classmate breaks an arm",
    "bless you": "someone sneezes; a baby sneezes",
    "enjoy your meal": "you serve dinner; your guests begin to eat",
    "welcome home": "your son returns from war; mom is back from a trip",
}
SAYING_CLASH = {
    "thank you": "I am sorry; hello; goodbye; congratulations; happy birthday; enjoy your meal; welcome home",
    "I am sorry": "thank you; hello; goodbye; get well soon",
    "hello": "thank you; I am sorry; happy birthday; bless you; enjoy your meal; welcome home",
    "goodbye": "thank you; I am sorry; good luck; good night",
    "congratulations": "thank you; good luck; happy birthday; bless you; welcome home",
    "good luck": "goodbye; congratulations; get well soon; bless you",
    "happy birthday": "thank you; hello; congratulations; bless you",
    "good night": "goodbye; bless you",
    "get well soon": "I am sorry; good luck; bless you",
    "bless you": "hello; congratulations; good luck; happy birthday; good night; get well soon",
    "enjoy your meal": "thank you; hello",
    "welcome home": "thank you; hello; congratulations",
}
FEELING = {
    "sad": "your dog dies; your best friend moves away; you fail the final exam",
    "happy": "you win a prize; an old friend visits; you get good news",
    "angry": "someone steals your bike; a liar blames you; a vandal scratches your car",
    "scared": "a bear chases you; you hear steps in the dark; you hang off a cliff",
    "bored": "you wait three hours; nothing happens all day; a lecture never ends",
    "thirsty": "you walk in the desert; you ate salty chips; you drank nothing all day",
    "cold": "you walk in snow barefoot; you forget your coat in winter; the heating fails in January",
    "proud": "your child graduates; your painting wins first prize; you finish a marathon",
    "lonely": "nobody ever visits; everyone you know is gone; all your friends ignore you",
    "ashamed": "you are caught stealing; your lie comes out; you cheat and get caught",
}
FEELING_CLASH = {
    "sad": "angry; scared; bored; cold; lonely; ashamed",
    "happy": "proud",
    "angry": "sad; scared; lonely; ashamed",
    "scared": "sad; angry; cold; lonely; ashamed",
    "bored": "sad; angry; thirsty; cold; lonely",
    "thirsty": "scared; bored; proud; lonely",
    "cold": "sad; angry; scared; lonely",
    "proud": "happy; scared; thirsty",
    "lonely": "sad; angry; scared; bored; ashamed",
    "ashamed": "sad; angry; scared; lonely",
}

# Ordered lists of which the neighbours are asked for, with the question's noun.
SEQUENCES = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "month": "January February March April May June July August September October November December",
}
# What is done, then its steps from the first to the last.
PROCESSES = """
Baking bread: mix the dough; let it rise; put it in the oven; slice the loaf
Sending a letter: write it; put it in an envelope; add a stamp; mail it
Growing tomatoes: sow the seeds; water the seedlings; pick the fruit; eat it
Washing clothes: load the machine; start it; hang them up; fold them
Going to work: wake up; get dressed; leave the house; reach the office
Eating out: take a seat; order food; eat; pay the bill
Making tea: boil water; pour it over leaves; take out the leaves; drink it
Building a house: dig the ground; build walls; add the roof; move in
Painting a wall: buy paint; open the can; brush it on; let it dry
Flying abroad: buy a ticket; check in; board the plane; land
Watching a movie: buy a ticket; find a seat; watch it; go home
Driving: open the car door; start the engine; drive off; park
Brushing teeth: get the brush; add toothpaste; scrub; rinse
Seeing a doctor: make an appointment; sit waiting; be examined; get medicine
Making an omelet: crack the eggs; beat them; fry them; serve it
Reading a book: open it; read page one; reach the middle; finish it
Life of a butterfly: egg; caterpillar; cocoon; butterfly
Life of a person: baby; child; adult; old person
Life of an oak: acorn; sprout; young tree; tall tree
Taking a bath: fill the tub; get in; wash; dry off
Giving a gift: buy it; wrap it; hand it over; see it opened
Fishing: put on bait; cast the line; reel in a fish; cook it
Making wine: plant vines; pick grapes; press them; fill bottles
Getting married: meet; fall in love; get engaged; have the wedding
"""

"""More words for build_varied.py: sentences to be looked at as grammar, and scenes to infer something from.

Written for HeadAtlas. The layout is that of varied_words.py.
"""

from typing import Any

SYNTAX: dict[str, dict[str, Any]] = {
    "plural": {
        "columns": "x answer",
        "material": "x",
        "wordings": [
            ("The noun is '{x}'.", "What is its plural?"),
            ("One {x} is in the picture; next to it there are two.", "What is the form of '{x}' after 'two'?"),
            ("Fill the gap: one {x}, many ___.", "Which form of the noun goes into the gap?"),
        ],
        "rows": """
            child|children
            mouse|mice
            tooth|teeth
            goose|geese
            man|men
            woman|women
            ox|oxen
            wolf|wolves
            leaf|leaves
            loaf|loaves
            box|boxes
            fox|foxes
            city|cities
            party|parties
            key|keys
            toy|toys
            branch|branches
            brush|brushes
            tomato|tomatoes
            hero|heroes
            shelf|shelves
            calf|calves
            dish|dishes
            sheep|sheep
            deer|deer""",
    },
    "past": {
        "columns": "x answer",
        "material": "x",
        "wordings": [
            ("The verb is 'to {x}'.", "What is its simple past?"),
            ("Today they {x}. Yesterday they ___ too.", "Which form of '{x}' is missing?"),
            ("A sentence with 'to {x}' is moved from the present to last week.", "What does the verb become?"),
        ],
        "rows": """
            go|went
            see|saw
            eat|ate
            take|took
            bring|brought
            think|thought
            sing|sang
            swim|swam
            write|wrote
            drive|drove
            speak|spoke
            break|broke
            run|ran
            know|knew
            grow|grew
            teach|taught
            catch|caught
            sleep|slept
            feel|felt
            walk|walked
            stop|stopped
            carry|carried
            play|played
            wear|wore
            give|gave""",
    },
    "agreement": {  # the noun of the other number stands nearer to the gap
        "columns": "one many of_one of_many adjective",
        "material": "one",
        "wordings": [
            ("The {subject} ___ {adjective}.", "Does 'is' or 'are' go into the gap?"),
            ("Last year the {subject} ___ {adjective}.", "Is the missing verb 'were' or 'was'?"),
            ("To us the {subject} ___ {adjective}.", "Which is grammatical there, 'seem' or 'seems'?"),
        ],
        "rows": """
            picture|pictures|on the wall|on the walls|crooked
            parcel|parcels|from the shop|from the shops|heavy
            boy|boys|behind the tree|behind the trees|shy
            road|roads|to the village|to the villages|narrow
            label|labels|on the bottle|on the bottles|red
            singer|singers|beside the dancer|beside the dancers|nervous
            cup|cups|near the spoon|near the spoons|clean
            path|paths|along the canal|along the canals|muddy
            house|houses|behind the hill|behind the hills|empty
            wheel|wheels|of the cart|of the carts|broken
            colour|colours|of the banner|of the banners|bright
            guard|guards|at the entrance|at the entrances|tired
            roof|roofs|of the barn|of the barns|green
            driver|drivers|of the truck|of the trucks|late
            strap|straps|on the bag|on the bags|loose
            girl|girls|next to the clown|next to the clowns|happy
            poster|posters|above the counter|above the counters|new
            candle|candles|in the niche|in the niches|wet
            voice|voices|of the speaker|of the speakers|loud
            goat|goats|behind the fence|behind the fences|thin
            joke|jokes|about the pirate|about the pirates|funny
            hat|hats|of the tourist|of the tourists|yellow
            rope|ropes|around the crate|around the crates|wet
            stain|stains|on the curtain|on the curtains|dark
            statue|statues|by the fountain|by the fountains|old""",
    },
    "verb": {
        "columns": "x answer",
        "material": "x",
        "wordings": [
            ("Read this sentence: '{x}'", "Which word in it is the verb?"),
            ("On the board stands: '{x}'", "What is the verb of the sentence?"),
            ("The pupils underline one word in '{x}'", "If it is the verb, which word is it?"),
        ],
        "rows": """
            Tall waves hit the old pier.|hit
            The tired nurse drinks cold tea.|drinks
            Two brown badgers crossed our garden.|crossed
            My neighbour paints his fence every spring.|paints
            The heavy snow covers the quiet valley.|covers
            Our team lost the final match.|lost
            A small beetle climbs the white wall.|climbs
            The proud king bought a golden crown.|bought
            Several guests praised the spicy curry.|praised
            The young captain steered the ship home.|steered
            Her little sister hates loud music.|hates
            The courier rang the bell twice.|rang
            Dark clouds gather over the bay.|gather
            The clever student solved the last puzzle.|solved
            Strong winds shook the wooden hut.|shook
            The old tailor mends torn jackets.|mends
            A friendly clerk showed us the way.|showed
            The hungry puppy chewed my left slipper.|chewed
            Many visitors admire the famous tower.|admire
            The new machine peels forty potatoes.|peels
            Bright stars fill the winter sky.|fill
            His grandfather built this stone bridge.|built
            The noisy parrot repeats every word.|repeats
            The careful gardener trimmed the tall hedge.|trimmed
            Fresh bread smells wonderful.|smells""",
    },
    "object": {  # the sentence is 'The SUBJECT VERB the OBJECT.'
        "columns": "subject verb object",
        "material": "subject object",
        "wordings": [
            (
                "Look at this sentence: 'The {subject} {verb} the {object}.'",
                "Which noun is the object of the verb? = {object}",
                "Which noun is the subject of the verb? = {subject}",
            ),
            (
                "The grammar book has the example 'The {subject} {verb} the {object}.'",
                "What is the grammatical subject, in one word? = {subject}",
                "What is the direct object, in one word? = {object}",
            ),
            (
                "Somebody analyses 'The {subject} {verb} the {object}.'",
                "Which noun is in the subject position? = {subject}",
                "Which noun is in the object position? = {object}",
            ),
        ],
        "rows": """
            blacksmith|sold|foal
            jury|freed|prisoner
            hurricane|damaged|chapel
            goalkeeper|stopped|penalty
            cook|burned|gravy
            thief|dropped|wallet
            mayor|opened|tunnel
            beaver|built|dam
            captain|lowered|anchor
            judge|scolded|witness
            hunter|followed|trail
            toddler|hugged|teddy
            knight|drew|sword
            squirrel|hid|walnut
            poet|tore|page
            doctor|washed|wound
            tenant|paid|rent
            miller|ground|corn
            swimmer|reached|shore
            editor|changed|headline
            monk|copied|chart
            lizard|swallowed|cricket
            decorator|filled|crack
            queen|signed|treaty
            crew|repaired|mast""",
    },
    "class": {
        "columns": "x y answer",
        "material": "x",
        "even": "y",
        "wordings": [
            ("Look for a part of speech in '{x}'", "Which word is the {y}?"),
            ("A pupil reads aloud: '{x}'", "Which {y} does the sentence contain?"),
            ("The exercise gives '{x}'", "Which of these words do dictionaries mark as '{y}'?"),
        ],
        "rows": """
            The clumsy waiter fell.|adjective|clumsy
            She answered politely.|adverb|politely
            The cat slept under the sofa.|preposition|under
            He owns a purple kite.|adjective|purple
            The procession moved slowly.|adverb|slowly
            The boat drifted towards the rocks.|preposition|towards
            The judges reached a fair verdict.|adjective|fair
            The engine stopped suddenly.|adverb|suddenly
            The coin rolled into the drain.|preposition|into
            A giant turtle appeared.|adjective|giant
            The baby laughed loudly.|adverb|loudly
            The coat hung beside the door.|preposition|beside
            The rusty hinge squeaked.|adjective|rusty
            The soprano sang beautifully.|adverb|beautifully
            The hikers walked through the gorge.|preposition|through
            Everyone admired the elegant handwriting.|adjective|elegant
            The clerk smiled kindly.|adverb|kindly
            The glider flew over the roofs.|preposition|over
            The stubborn mule refused.|adjective|stubborn
            The visitors arrived punctually.|adverb|punctually
            The ladder leaned against the shed.|preposition|against
            They rented a cheap tent.|adjective|cheap
            The lion roared fiercely.|adverb|fiercely
            The bus waited behind the lorry.|preposition|behind
            I saw a strange footprint.|adjective|strange""",
    },
}

INFERENCE: dict[str, dict[str, Any]] = {
    "place": {
        "columns": "x answer",
        "material": "answer",
        "options": 3,
        "wordings": [
            ("{x}", "Where is {p}: at the {o}?"),
            ("{x}", "Which place is {p} in, the {o}?"),
            ("{x}", "From what we are told, has {p} come to the {o}?"),
        ],
        "rows": """
            {p} hears waves, and sand gets into {p.his} shoes.|beach
            {p} whispers and takes a novel down from a long shelf.|library
            {p} buys a token and waits for the roller coaster.|fairground
            {p} pushes a trolley past the cereals to the till.|supermarket
            {p} shows a boarding card and looks for the gate.|airport
            {p} smells fresh loaves and orders six rolls.|bakery
            {p} lies in bed with a name tag around {p.his} wrist while nurses pass.|hospital
            {p} walks between cages and watches a keeper feed the seals.|zoo
            {p} sits in the dark with popcorn and looks at a huge screen.|cinema
            {p} hangs {p.his} coat beside thirty others and opens an exercise book.|school
            {p} dives from the board and hears the lifeguard's whistle.|swimming pool
            {p} walks between thick trunks and hears a woodpecker.|forest
            {p} feeds the hens and shuts the cowshed.|farm
            {p} lights a candle and sits down in a pew.|church
            {p} reads the menu and waves to the waiter.|restaurant
            {p} looks at old paintings and must not touch the frames.|museum
            {p} unrolls a sleeping bag and hammers in the last tent peg.|campsite
            {p} stands on the platform and reads the departure board.|railway station
            {p} fills the tank and checks the tyres.|petrol station
            {p} signs for a key card and takes the lift to number 212.|hotel
            {p} feeds coins into a machine and waits for the socks to dry.|launderette
            {p} lifts weights and wipes the treadmill.|gym
            {p} asks for two stamps and has a parcel weighed.|post office
            {p} kicks off while thousands sing on the stands.|stadium
            {p} stands before the judge and swears to tell the truth.|courtroom""",
    },
    "job": {
        "columns": "x answer",
        "material": "answer",
        "options": 3,
        "wordings": [
            ("{x}", "What is {p} by trade: {o}?"),
            ("{x}", "What does {p} work as: {o}?"),
            ("{x}", "Which occupation may {p} have, {o}?"),
        ],
        "rows": """
            {p} checks teeth all day and tells people to brush better.|dentist
            {p} carries trays of food to tables and hopes for tips.|waiter
            {p} gets up at three to knead dough.|baker
            {p} sprays water on burning houses.|firefighter
            {p} brings letters to every door in the street.|postal worker
            {p} marks homework and has thirty children in front of {p.her}.|teacher
            {p} cuts fringes and sweeps up curls.|hairdresser
            {p} steers a jet and speaks to the control tower.|pilot
            {p} ploughs fields and milks cows.|farmer
            {p} mends leaking pipes under sinks.|plumber
            {p} stands on a stage and speaks lines learnt by heart.|actor
            {p} looks after sick pets and gives a hamster an injection.|vet
            {p} designs houses and draws floor plans.|architect
            {p} arrests thieves and wears a badge.|police officer
            {p} sells roses and ties bouquets.|florist
            {p} paints portraits and cleans brushes.|painter
            {p} fixes engines and has oil on {p.his} hands.|mechanic
            {p} saws boards and builds cupboards.|carpenter
            {p} lends out books and stamps return dates.|librarian
            {p} takes strangers across town and looks at the meter.|taxi driver
            {p} floats inside a space station and repairs a solar panel.|astronaut
            {p} speaks for the accused in court.|lawyer
            {p} counts pills and reads prescriptions.|pharmacist
            {p} digs up old pots and brushes off the dust.|archaeologist
            {p} interviews the mayor and hurries to meet the deadline.|journalist""",
    },
    "feeling": {
        "columns": "x answer wrong",
        "material": "x",
        "wordings": [
            ("{x}", "How does {p} feel, {o}?"),
            ("{x}", "What is {p}'s mood: {o}?"),
            ("{x}", "Judging by this, would you call {p} {o}?"),
        ],
        "rows": """
            {p}'s dog has run away, and {p.she} cannot stop crying.|sad|proud
            {p} has won first prize and holds the cup up high.|proud|ashamed
            Somebody has scratched {p}'s new car, and {p.she} shouts and stamps.|angry|calm
            {p} hears steps behind {p.her} in the dark alley and begins to run.|frightened|bored
            {p} has worked two shifts without sleep and can hardly keep {p.his} eyes open.|tired|lively
            {p} has read every magazine in the waiting room and yawns at the clock.|bored|excited
            Friends jump out from behind the sofa, and {p}'s jaw drops.|surprised|sleepy
            {p} bites {p.his} nails before the driving test.|nervous|relaxed
            {p} sees a classmate get the scooter {p.she} always wanted and frowns.|jealous|amused
            {p} trips in front of the whole school and blushes.|embarrassed|delighted
            All of {p}'s friends have moved away, and nobody calls any more.|lonely|thankful
            {p} has eaten nothing since yesterday and stares at the sandwich.|hungry|full
            {p} comes in from the desert walk and drains three glasses of water.|thirsty|lazy
            The trip {p} had looked forward to for months is cancelled.|disappointed|cheerful
            A stranger brings back {p}'s lost purse, and {p} shakes the stranger's hand for a long time.|grateful|bitter
            The doctor says the lump is harmless, and {p} breathes out slowly.|relieved|worried
            {p} finds a locked chest in the attic and tries every key.|curious|indifferent
            {p} shivers at the bus stop and rubs {p.his} hands.|cold|warm
            {p} has spilt ink on a borrowed book and does not dare to own up.|guilty|carefree
            {p} hums and skips all the way home with the good report.|happy|gloomy
            The map makes no sense, and {p} turns it round and round.|confused|certain
            {p} reads old letters and wishes {p.she} were back in {p.his} village.|homesick|satisfied
            The same door sticks for the tenth time today, and {p} groans and kicks it.|annoyed|charmed
            {p} cannot sit still: tomorrow the circus comes.|excited|weary
            {p} pushes the plate away and pulls a face at the smell.|disgusted|tempted""",
    },
    "cause": {
        "columns": "x answer wrong",
        "material": "x",
        "wordings": [
            ("{x}", "What is the likely cause: {o}?"),
            ("{x}", "What explains this best, {o}?"),
            ("{x}", "What lies behind it, {o}?"),
        ],
        "rows": """
            The street is wet, and people shake out their umbrellas.|rain|fire
            The lights have gone out in the whole street at once.|a power cut|a party
            The kitchen smells of smoke, and the stew in the pot is black.|too much heat|too little salt
            The front tyre of the bicycle is flat, and a nail sticks in it.|a puncture|a loose chain
            The ice cream on the table has turned into a puddle.|warmth|hunger
            The vase lies in pieces, and the cat sits beside it with a wet tail.|the cat|the wind
            {p}'s eyes water while {p.she} chops vegetables for the soup.|an onion|a carrot
            The plants on the sill hang their heads, and the soil is like dust.|lack of water|lack of noise
            {p}'s nose is red and peels after a cloudless day on the beach.|sunburn|frost
            Half of the class has red spots and stays in bed.|an illness|a holiday
            The snowman is only half as tall as yesterday.|a thaw|a blizzard
            There are muddy paw prints all over the hall.|a dog|a bird
            The river has covered the fields on both sides.|a flood|a drought
            There are tiny tooth marks in the cheese.|a mouse|a horse
            Broken branches lie all over the road this morning.|a storm|a parade
            {p} limps, and {p.his} stiff new shoes stand by the door.|blisters|a cough
            The milk smells sour, and the fridge stood open all night.|a warm fridge|a broken glass
            The car will not start, and its lights were on all night.|a flat battery|a full boot
            {p} sneezes whenever {p.she} walks through the meadow in May.|pollen|thirst
            The clock on the wall says noon, but outside it is getting dark.|a stopped clock|an early supper
            The bath has run over, and water drips through the ceiling.|an open tap|a cracked mirror
            The letter has come back with a note that says 'unknown here'.|a wrong address|a missing page
            The football lies in the living room among bits of window pane.|a bad kick|a bad smell
            The sheep dash to the far end of the field as something grey creeps out of the wood.|a wolf|a snail
            The train stands still, and a tree lies across the rails.|a blocked track|a lost ticket""",
    },
    "next": {
        "columns": "x y answer wrong",
        "material": "x",
        "wordings": [
            ("{x}", "What will {y} do next: {o}?"),
            ("{x}", "Will {y} soon {o}?"),
            ("{x}", "What can we expect {y} to do, {o}?"),
        ],
        "rows": """
            The glass slides over the edge of the table above a stone floor.|the glass|break|bounce
            {p} lets go of a balloon full of helium.|the balloon|rise|drop
            {p} throws a pebble into the pond.|the pebble|sink|float
            An ice cube lies in the hot pan.|the ice cube|melt|grow
            {p} holds a lighter to dry paper.|the paper|burn|freeze
            {p} puts a bowl of water outdoors on a night of hard frost.|the water|freeze|boil
            The kettle has been on the flame for ten minutes.|the water in it|boil|shrink
            {p} throws a cork into a bucket of water.|the cork|float|dissolve
            {p} stirs a spoonful of sugar into hot tea.|the sugar|dissolve|explode
            A snowball rolls down a long snowy slope.|the snowball|get bigger|get warmer
            {p} pricks a toy balloon with a needle.|the balloon|burst|swell
            {p} throws a ball straight up into the air.|the ball|come down|stay up
            The candle stands in a strong draught.|the flame|go out|turn green
            The wet shirt hangs in sun and wind.|the shirt|dry|rot
            Nobody has watered the young fern for a month.|the fern|wither|bloom
            The dough with yeast stands in a warm corner.|the dough|swell|evaporate
            An iron nail lies in wet grass for months.|the nail|rust|sprout
            The bath is full to the rim, and {p} gets in.|the water|overflow|disappear
            The phone shows one percent, and {p} plays on.|the phone|switch off|speed up
            The milk stands in the sun for two days.|the milk|turn sour|turn sweet
            One yellow leaf is left on the tree, and a gale blows.|the leaf|fall|ripen
            The cart rolls down a steep hill without brakes.|the cart|go faster|turn round
            The egg has been in boiling water for ten minutes.|the egg|get hard|get lighter
            A slice of apple lies on the table for hours.|the slice|turn brown|turn blue
            A loaf lies in a damp bag for three weeks.|the loaf|get mouldy|get fresher""",
    },
    "moment": {
        "columns": "x answer wrong",
        "material": "x",
        "wordings": [
            ("{x}", "Which moment is this: {o}?"),
            ("{x}", "Is this {o}?"),
            ("{x}", "Which caption fits the scene, {o}?"),
        ],
        "rows": """
            Street lamps go on, and small children are put to bed.|evening|morning
            The cock crows, and the first light touches the roofs.|dawn|dusk
            People unpack sandwiches at their desks, and the sun stands high.|noon|midnight
            Snow lies on the fields, and the lake is frozen.|winter|summer
            Lambs are born, and the first crocuses open.|spring|autumn
            Children build sandcastles, and the ice cream van comes every day.|summer|winter
            Red leaves whirl through the park, and squirrels bury nuts.|autumn|spring
            The moon is up, owls call, and all windows are dark.|night|noon
            {p} rubs {p.his} eyes, opens the curtains and makes the bed.|morning|evening
            A decorated fir stands in the room, and presents lie under it.|Christmas|Easter
            Children look for painted eggs in the garden.|Easter|Christmas
            Fireworks go off at midnight, and people put up a new calendar.|New Year|Easter
            Small pupils with new satchels meet their teacher and ask her name.|school start|school end
            The office is empty, the church bells ring, and the shops are closed.|Sunday|Monday
            Workers wish each other two good free days and lock the office.|Friday|Monday
            The sun sinks into the sea, and the sky turns red.|sunset|midday
            Carved pumpkins glow at the doors, and children in masks ask for sweets.|Halloween|Easter
            Farmers cut the ripe wheat and bring it in.|harvest time|sowing time
            {p} blows out nine candles on a cake.|a birthday|a funeral
            Guests throw rice, and the bride throws her bouquet.|a wedding|a funeral
            People in black stand in silence around an open grave.|a funeral|a wedding
            The whistle blows, and the players rest before they swap ends.|half-time|kick-off
            The credits roll, and people reach for their coats.|the film's end|the film's start
            Passengers fasten their belts as the ground comes nearer.|landing|take-off
            The starter lifts the pistol, and the runners crouch.|the race's start|the race's finish""",
    },
}

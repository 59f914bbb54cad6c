"""Words for build_varied.py: facts, sentences, scenes and names, all written for HeadAtlas or plain facts.

Facts are plain ones, written down from general knowledge and read over by hand. They can be looked up: capitals in the
CIA World Factbook, symbols in the IUPAC periodic table, authors, artists, years and numbers in any encyclopaedia,
plurals, tenses, synonyms and opposites in any dictionary of English.

A table has three wordings (the third is of the test split alone), its columns, and a row a line. A wording is a main
question and a sub-question, or several of these in turn. {p} is a person, {o} the options.
"""

from typing import Any

POOLS = {  # what is drawn, for train | validation | test: none is in two of them
    "girls": "Anna, Clara, Emma, Grace, Hannah, Kate, Laura, Nora, Rosa, Sarah | Dora, Edith, Fiona, Greta"
    " | Irene, Julia, Lena, Nadia, Petra, Sonia",
    "boys": "Adam, Ben, David, Felix, Henry, Jack, Liam, Noah, Paul, Simon | Boris, Dario, Frank, Hassan"
    " | Ivan, Karim, Marco, Omar, Ravi, Tim",
    "towns": "Ashby, Brinley, Calderton, Dunmore, Elmsby, Fairwick, Glenby, Harwood, Ivydale, Kelmore"
    " | Larkham, Millbury, Norwell, Oakvale | Penfold, Quarrington, Redmoor, Stanwick, Thornby, Upwell",
    "relics": "clay jar, wooden mask, glass bowl, stone lion, ivory comb, marble bust, bronze bell"
    " | leather shield, jade cup, painted fan | amber brooch, feather cloak, coral pipe, velvet glove, wax tablet",
    "hideouts": "doormat, flowerpot, garden bench, woodpile, birdhouse, rain barrel | dustbin, stone frog, doghouse"
    " | watering can, wheelbarrow, old boot, beehive",
    "pets": "parrot, rabbit, hamster, tortoise, kitten, goldfish | canary, ferret, llama | gecko, budgie, snake, swan",
    "races": "sack race, rowing race, ski race, bike race, swimming race | hurdle race, egg race"
    " | sledge race, canoe race, obstacle race",
    "dishes": "pancakes, biscuits, muffins, scones, meatballs | waffles, dumplings | pretzels, crackers, buns",
    "ingredients": "flour, sugar, butter, oats, rice, honey, raisins, almonds | yeast, syrup, cream, lentils"
    " | maize, sesame, figs, yoghurt, rye",
    "sounds": "cello, banjo, accordion, clarinet, oboe | tuba, ukulele, zither"
    " | bagpipes, trombone, mandolin, xylophone",
    "hobbies": "fencing, archery, pottery, gardening, diving | judo, knitting, baking"
    " | sailing, carving, juggling, skating",
    "things": "pens, eggs, coins, marbles, shells, stickers, photos, beads | badges, pebbles, ribbons, magnets"
    " | stamps, acorns, tiles, postcards, pins",
    "nonsense": "wug, dap, fep, zorb, lorp, tove, gim, nar, pilk, sneed | blick, murl, quib, rull"
    " | vab, kurn, hest, jolb, yort, crig",
    "switches": "lamp/on/off, gate/open/shut, flag/up/down, engine/running/still, tank/full/empty,"
    " cupboard/locked/unlocked, oven/hot/cold | valve/open/closed, siren/on/off, blind/up/down, bridge/raised/lowered"
    " | signal/green/red, hatch/open/closed, pump/working/idle, lift/free/busy, screen/bright/dark",
    "comparisons": "taller/tallest/shortest, older/oldest/youngest, faster/fastest/slowest, stronger/strongest/weakest"
    " | richer/richest/poorest, louder/loudest/quietest | heavier/heaviest/lightest, smaller/smallest/biggest",
    "hidden": "medal, diary, compass, locket, whistle | torch, dice, crayon | thimble, pearl, penknife, feather",
    "abilities": "glow, hum, float, shrink, spin | melt, hop, purr | bounce, stretch, vanish, sparkle",
    "triples": "kite/doll/scooter, scarf/cap/mitten, peach/melon/lime, vase/frame/basket"
    " | puzzle/robot/kazoo, tent peg/lantern/hatchet | spade/rake/hoe, teapot/jug/mug, globe/ruler/stapler",
    "goods": "tent, backpack, radio, toaster, umbrella | suitcase, printer, freezer | blender, razor, camera, hammock",
    "makes": "Alto, Bravo, Corso, Delta, Estro, Forte | Gala, Halo, Ionic, Jazz | Kappa, Lyra, Mira, Nexus, Onda",
    "vehicles": "bus, train, taxi, bike | tram, coach, moped | ferry, minibus, cable car, helicopter",
    "rooms": "Swan Room, Bear Room, Lynx Room, Otter Room, Heron Room | Badger Room, Falcon Room, Stork Room"
    " | Raven Room, Bison Room, Moose Room, Panda Room",
    "features": "projector, balcony, stage, dance floor | whiteboard, fireplace, bar"
    " | loudspeaker, terrace, webcam, skylight",
    "skills": "drive a van, bake bread, read maps, speak Polish, fix bikes, take photos"
    " | type fast, sew curtains, speak Hindi, use a lathe"
    " | climb ropes, speak Greek, tune guitars, keep accounts, lay bricks",
    "plans": "picnic, rehearsal, meeting, lesson, ride | barbecue, quiz, sauna | workshop, interview, hike, debate",
    "homes": "flat, cabin, houseboat, attic | caravan, loft | studio, bungalow, villa",
    "virtues": "peaceful/noisy, cheap/costly, sunny/gloomy, spacious/tiny | roomy/cramped, tidy/shabby"
    " | central/remote, warm/draughty, sturdy/flimsy",
}
COLOURS = ["red", "blue", "green", "white", "black", "brown"]  # answers to choose from: in all splits
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

KNOWLEDGE: dict[str, dict[str, Any]] = {
    "capital": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("Think of the country {x}.", "What is its capital?"),
            ("A pupil points to {x} on the map.", "Which city is the capital of this country?"),
            ("A plane lands in the capital of {x}.", "In which city does it land?"),
        ],
        "rows": """
            France|Paris
            Italy|Rome
            Spain|Madrid
            Germany|Berlin
            Portugal|Lisbon
            Greece|Athens
            Norway|Oslo
            Sweden|Stockholm
            Finland|Helsinki
            Poland|Warsaw
            Austria|Vienna
            Hungary|Budapest
            Ireland|Dublin
            Denmark|Copenhagen
            Belgium|Brussels
            Egypt|Cairo
            Kenya|Nairobi
            Japan|Tokyo
            China|Beijing
            India|New Delhi
            Russia|Moscow
            Turkey|Ankara
            Canada|Ottawa
            Cuba|Havana
            Peru|Lima""",
    },
    "author": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("Somebody is reading '{x}'.", "Who wrote it?"),
            ("'{x}' stands on the shelf.", "Who is the author of this book?"),
            ("The next quiz card says '{x}'.", "Which writer does this work come from?"),
        ],
        "rows": """
            Hamlet|William Shakespeare
            Pride and Prejudice|Jane Austen
            Oliver Twist|Charles Dickens
            War and Peace|Leo Tolstoy
            Crime and Punishment|Fyodor Dostoevsky
            Don Quixote|Miguel de Cervantes
            The Old Man and the Sea|Ernest Hemingway
            The Odyssey|Homer
            The Divine Comedy|Dante Alighieri
            Moby-Dick|Herman Melville
            The Adventures of Tom Sawyer|Mark Twain
            Frankenstein|Mary Shelley
            Dracula|Bram Stoker
            Brave New World|Aldous Huxley
            Alice's Adventures in Wonderland|Lewis Carroll
            Peter Pan|J. M. Barrie
            The Jungle Book|Rudyard Kipling
            Treasure Island|Robert Louis Stevenson
            Robinson Crusoe|Daniel Defoe
            Gulliver's Travels|Jonathan Swift
            Animal Farm|George Orwell
            The Hobbit|J.R.R. Tolkien
            The Trial|Franz Kafka
            The Great Gatsby|F. Scott Fitzgerald
            The Picture of Dorian Gray|Oscar Wilde""",
    },
    "symbol": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("The chemistry class talks about {x}.", "What is the symbol of this element?"),
            ("Look up {x} in the periodic table.", "Which chemical symbol does it have?"),
            ("A label in the laboratory says '{x}'.", "How do chemists abbreviate its name?"),
        ],
        "rows": """
            hydrogen|H
            helium|He
            lithium|Li
            carbon|C
            nitrogen|N
            oxygen|O
            fluorine|F
            neon|Ne
            sodium|Na
            magnesium|Mg
            aluminium|Al
            silicon|Si
            phosphorus|P
            sulfur|S
            chlorine|Cl
            potassium|K
            calcium|Ca
            iron|Fe
            nickel|Ni
            copper|Cu
            zinc|Zn
            silver|Ag
            tin|Sn
            gold|Au
            lead|Pb""",
    },
    "artist": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("The programme is about {x}.", "Who created it?"),
            ("Many people know {x}.", "Which artist made it?"),
            ("A new book praises {x}.", "Whose work is it?"),
        ],
        "rows": """
            the Mona Lisa|Leonardo da Vinci
            the painting Guernica|Pablo Picasso
            the painting The Starry Night|Vincent van Gogh
            the painting Girl with a Pearl Earring|Johannes Vermeer
            the painting The Night Watch|Rembrandt
            the painting The Scream|Edvard Munch
            the ceiling of the Sistine Chapel|Michelangelo
            the fresco The School of Athens|Raphael
            the Water Lilies paintings|Claude Monet
            the painting American Gothic|Grant Wood
            the painting Nighthawks|Edward Hopper
            the print The Great Wave|Hokusai
            the painting The Hay Wain|John Constable
            the opera The Magic Flute|Wolfgang Amadeus Mozart
            the violin concertos The Four Seasons|Antonio Vivaldi
            the ballet Swan Lake|Pyotr Tchaikovsky
            the oratorio Messiah|George Frideric Handel
            the opera Carmen|Georges Bizet
            the opera Aida|Giuseppe Verdi
            the opera Tosca|Giacomo Puccini
            the ballet The Rite of Spring|Igor Stravinsky
            the Brandenburg Concertos|Johann Sebastian Bach
            the Moonlight Sonata|Ludwig van Beethoven
            the tone poem Finlandia|Jean Sibelius
            the orchestral suite The Planets|Gustav Holst""",
    },
    "year": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("The history lesson is about {x}.", "In which year was that?"),
            ("A film tells of {x}.", "What year did it happen?"),
            ("The plaque recalls {x}.", "Which date in history belongs on it, as a year?"),
        ],
        "rows": """
            the first landing of people on the Moon|1969
            the fall of the Berlin Wall|1989
            the end of the Second World War|1945
            the start of the First World War|1914
            the sinking of the Titanic|1912
            the storming of the Bastille|1789
            the American Declaration of Independence|1776
            the first voyage of Columbus to America|1492
            the Battle of Hastings|1066
            the Battle of Waterloo|1815
            the Great Fire of London|1666
            the sealing of Magna Carta|1215
            the great San Francisco earthquake|1906
            the launch of Sputnik 1|1957
            the October Revolution|1917
            the Wall Street crash|1929
            the start of the Second World War|1939
            the assassination of John F. Kennedy|1963
            the Chernobyl disaster|1986
            the attack on Pearl Harbor|1941
            the end of the First World War|1918
            the fall of Constantinople|1453
            the defeat of the Spanish Armada|1588
            the first modern Olympic Games|1896
            the first flight of the Wright brothers|1903""",
    },
    "number": {
        "columns": "x y answer",
        "material": "x",
        "wordings": [
            ("A quiz question is about {x}.", "How many {y} does {x} have?"),
            ("A child wants to know the number of {y} of {x}.", "How many {y} are there?"),
            ("Somebody bets that nobody can count the {y} of {x}.", "What is the right number of {y}?"),
        ],
        "rows": """
            a spider|legs|8
            a violin|strings|4
            a standard piano|keys|88
            a chessboard|squares|64
            a leap year|days|366
            an hour|minutes|60
            the English alphabet|letters|26
            a soccer team on the pitch|players|11
            the Olympic flag|rings|5
            the Solar System|planets|8
            the adult human body|bones|206
            the flag of the United States|stars|50
            a hexagon|sides|6
            an octagon|sides|8
            a cube|faces|6
            a metre|centimetres|100
            a kilometre|metres|1000
            a foot|inches|12
            a pound|ounces|16
            a century|years|100
            a decade|years|10
            a deck of cards without jokers|cards|52
            an octopus|arms|8
            a fortnight|days|14
            a sonnet|lines|14""",
    },
}

SEMANTIC: dict[str, dict[str, Any]] = {
    "synonym": {
        "columns": "x answer",
        "material": "x answer",
        "options": 3,
        "wordings": [
            ("Here is a word: '{x}'.", "Which word means nearly the same: {o}?"),
            ("Somebody wants to replace the word '{x}' in a text.", "Which word can stand in for it: {o}?"),
            ("A crossword clue says '{x}'.", "Which word has that meaning: {o}?"),
        ],
        "rows": """
            happy|glad
            large|big
            begin|start
            rapid|quick
            ill|sick
            shut|close
            wealthy|rich
            tale|story
            error|mistake
            gift|present
            stone|rock
            assist|help
            weep|cry
            silent|quiet
            brave|courageous
            odd|strange
            choose|pick
            repair|fix
            infant|baby
            journey|trip
            scent|smell
            purchase|buy
            clever|smart
            afraid|scared
            slim|thin""",
    },
    "opposite": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("Take the word '{x}'.", "What is its opposite?"),
            ("One card of a pair says '{x}', the other says the contrary.", "What does the other card say?"),
            ("A child calls out '{x}', and another must answer with the reverse.", "Which word is wanted?"),
        ],
        "rows": """
            hot|cold
            tall|short
            up|down
            left|right
            early|late
            full|empty
            hard|soft
            wet|dry
            day|night
            win|lose
            push|pull
            true|false
            strong|weak
            wide|narrow
            deep|shallow
            clean|dirty
            north|south
            summer|winter
            question|answer
            friend|enemy
            love|hate
            rough|smooth
            ancient|modern
            import|export
            guilty|innocent""",
    },
    "odd": {
        "columns": "x answer",
        "material": "x answer",
        "wordings": [
            ("Four words: {o4}.", "Which of them does not belong with the rest?"),
            ("The list reads {o4}.", "Which word is the odd one out?"),
            ("On the slips stand {o4}.", "Which slip should be taken away because it does not fit?"),
        ],
        "rows": """
            apple, pear, plum|hammer
            dog, cat, horse|chair
            carrot, onion, cabbage|violin
            car, lorry, van|banana
            shirt, trousers, jacket|lake
            rose, tulip, daisy|bucket
            eagle, sparrow, crow|pencil
            shark, salmon, trout|sofa
            piano, guitar, flute|potato
            tailor, banker, sailor|cloud
            oak, pine, birch|mirror
            bread, cake, pudding|ladder
            milk, juice, tea|helmet
            nose, ear, knee|ticket
            ant, bee, wasp|kettle
            football, tennis, hockey|blanket
            circle, square, triangle|pepper
            rain, snow, hail|button
            uncle, aunt, cousin|tractor
            knife, fork, plate|monkey
            novel, poem, essay|carpet
            shoe, sandal, slipper|window
            lion, tiger, leopard|envelope
            necklace, bracelet, earring|volcano
            hut, castle, cottage|lemon""",
    },
    "category": {
        "columns": "x answer",
        "material": "x answer",
        "options": 3,
        "wordings": [
            ("These go together: {x}.", "What are they: {o}?"),
            ("Three names on a label: {x}.", "Which heading fits them: {o}?"),
            ("Somebody has filed {x} in one folder.", "What should be written on the folder: {o}?"),
        ],
        "rows": """
            mango, cherry, grape|fruit
            spinach, leek, turnip|vegetables
            cow, pig, donkey|mammals
            owl, robin, pigeon|birds
            cod, herring, tuna|fish
            beetle, moth, mosquito|insects
            saw, drill, pliers|tools
            trumpet, drum, harp|instruments
            coat, skirt, sweater|clothes
            desk, stool, armchair|furniture
            lily, orchid, daffodil|flowers
            maple, willow, elm|trees
            cashier, butcher, surgeon|jobs
            purple, pink, yellow|colours
            dollar, yen, rupee|currencies
            French, Arabic, Dutch|languages
            March, July, October|months
            Mars, Venus, Saturn|planets
            brother, niece, grandmother|relatives
            ketchup, mustard, mayonnaise|sauces
            rugby, golf, boxing|sports
            ruby, emerald, sapphire|gems
            coffee, lemonade, cocoa|drinks
            lung, liver, kidney|organs
            kitchen, bedroom, bathroom|rooms""",
    },
    "sentiment": {
        "columns": "x answer",
        "material": "x",
        "even": "answer",
        "wordings": [
            ("A customer writes: '{x}'", "Is this opinion positive or negative?"),
            ("The review says: '{x}'", "Is the writer's view negative or positive?"),
            ("Somebody posts: '{x}'", "Does that sound positive or negative?"),
        ],
        "rows": """
            The soup was rich, fresh and simply delicious.|positive
            The hotel room was filthy, and nobody answered the bell.|negative
            I laughed from the first scene of the film to the last.|positive
            The chair broke on the second day, and the shop refused to help.|negative
            Our guide was patient, funny and knew every corner of the town.|positive
            The concert began an hour late, and the singer could not hold a note.|negative
            The phone is light, fast and worth every cent.|positive
            The lecture dragged on, and half of the audience fell asleep.|negative
            What a lovely garden: we did not want to leave.|positive
            The pizza arrived cold, greasy and with the wrong topping.|negative
            The nurse was gentle and made my son smile.|positive
            This dictionary is full of mistakes and falls apart.|negative
            The boat ride was smooth, and the view took our breath away.|positive
            The museum was overpriced, crowded and badly lit.|negative
            My new bicycle rides like a dream.|positive
            The jacket leaked in the first shower, and the zip jammed.|negative
            The play was brilliant, and the applause would not end.|positive
            The driver was rude and took the longest way.|negative
            The bakery sells the best rolls I have ever eaten.|positive
            The game is dull, slow and full of bugs.|negative
            The course explains everything clearly and cheers everyone up.|positive
            The campsite was noisy, muddy and infested with wasps.|negative
            This pillow gave me the best sleep in years.|positive
            The paint peeled off after a week and smelt awful.|negative
            The choir sang beautifully, and I went home full of joy.|positive""",
    },
    "sense": {
        "columns": "x y answer wrong",
        "material": "x y",
        "wordings": [
            ("{x}", "What does '{y}' mean here: {o}?"),
            ("In a book we read: '{x}'", "In which sense is '{y}' used: {o}?"),
            ("A translator is stuck at this: '{x}'", "What is meant by '{y}', {o}?"),
        ],
        "rows": """
            They fished from the bank until dark.|bank|river edge|money office
            A bat hung from the roof of the cave.|bat|flying animal|wooden club
            The bark of the old beech is smooth and grey.|bark|tree skin|dog sound
            She drank from the spring at the foot of the hill.|spring|water source|time of year
            He struck a match to light the stove.|match|fire stick|sports game
            He gave her a ring with a small jewel.|ring|jewellery|phone call
            He hit his thumb instead of the nail.|nail|metal pin|finger tip
            The seal dived under the ice for fish.|seal|sea animal|wax stamp
            The children gave us a wave from the train.|wave|hand sign|sea water
            The elephant lifted the log with its trunk.|trunk|long nose|big case
            The crane lifted steel beams to the tenth floor.|crane|machine|bird
            The pitcher threw the ball past the batter.|pitcher|player|jug
            Coconuts fell from the palm.|palm|tree|hand
            She ate a sweet brown date after dinner.|date|fruit|day
            The waiter brought the bill on a saucer.|bill|payment slip|bird beak
            He joined a club for stamp collectors.|club|group|stick
            She smoothed the rough edge with a file.|file|tool|folder
            He posted a letter to his aunt.|letter|message|alphabet sign
            She played a hymn on the organ.|organ|instrument|body part
            The tie did not go with his shirt.|tie|neckwear|equal score
            They pulled up water from the well.|well|deep hole|good health
            Dirty plates stood in the sink.|sink|basin|downward movement
            He sat in the second row at the concert.|row|line|quarrel
            The scale showed that the parcel weighed two kilos.|scale|weighing device|fish skin
            The pupil of her eye grew wide.|pupil|eye part|school child""",
    },
}

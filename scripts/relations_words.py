"""The hand-written part of the word relations; build_relations.py turns it into files.

Three notations, all split on white space:
  PAIRS strings    "hot/cold up/down"        source/target
  GROUPS dicts     {"animal": "dog cat"}     every word on the right has the target on the left
  COMPOUNDS        "air|port sun|light"      the first part is the source, the whole word the target
"""

NAMES = """
Aaron Abraham Adrian Alan Alex Alexandra Alice Allen Amanda Anderson Andrew Anna Annie Antonio Arthur Barbara Benjamin
Bernard Billy Bradley Bruce Calvin Campbell Carlos Caroline Catherine Charles Charlotte Christina Christopher Clarence
Clarke Cohen Collins Cooper Cunningham Daniel David Davies Deborah Diana Donald Douglas Edgar Edmund Edwards Eleanor
Elizabeth Ellen Ellis Emma Erik Ernest Ethan Evans Ferdinand Fernando Fletcher Frances Frank Fraser Frederick Gabriel
Gary Gerald Gilbert Glenn Graham Hannah Hansen Harriet Harrison Harvey Helena Henri Herbert Howard Hughes Isaac
Isabella Jack Jackson Jacobs Jake Jamie Janet Jean Jefferson Jenkins Jenny Jeremy Jerry Jessica Jimmy Joel John
Johnson Jonathan Jorge Josh Joyce Judith Julia Julie Justin Karl Katherine Katie Kelly Kenneth Larry Lauren Leonard
Leslie Linda Lopez Louise Lucy Luis Malcolm Marcus Maria Mario Mark Martha Martinez Mason Maurice Melissa Michael
Miguel Miller Miriam Molly Moore Morris Murphy Nancy Nathan Neil Newman Nicole Noah Oliver Oscar Otto Pablo Parker
Patrick Paul Pedro Peter Philip Pierre Ralph Rebecca Richard Riley Roberts Robin Rodriguez Rogers Ronald Ross Russell
Ryan Samantha Sandra Sarah Scott Sebastian Shaw Sidney Simpson Sofia Sophie Stefan Stephen Steven Stuart Susan Teresa
Theodore Thompson Todd Tony Tucker Tyler Victoria Virginia Wallace Warren Wayne Williams
"""

COMPARATIVES = """
angry bad big bold brave brief bright broad busy calm cheap clean clear clever close cold cool crazy dark deep dense dry
early easy fair fancy far fast fat few fine firm flat fresh friendly full funny gentle good great green happy hard
healthy heavy high hot hungry kind large late lazy light little long loud low lucky many mild narrow near neat new nice
noisy old pale poor pretty proud pure quick quiet rare rich rough sad safe sharp short shy sick simple slow small smart
smooth soft soon steep strange strict strong sunny sweet tall thick thin tight tiny tough ugly warm weak wealthy wet
wide wild wise young
"""

SUPERLATIVES = """
angry bad big bold brave brief bright broad busy calm cheap clean clear clever close cold cool crazy dark deadly deep
dense dry early easy fair far fast few fine fresh full funny good great happy hard healthy heavy high hot kind large
late lazy light little long loud low lucky many mild narrow near neat new nice noisy old pale poor pretty proud pure
quick quiet rare rich rough sad safe sharp short sick simple slight slow small smart smooth soft steep strange strict
strong sweet tall thick thin tight tiny tough ugly warm weak wealthy wet wide wild wise young
"""

VERBS = """
accept achieve act add agree answer appear apply argue arrive ask avoid be become begin believe belong bite blow break
bring build buy call carry catch cause change choose claim clean climb close collect come compare complete consider
continue cook count cover create cry dance decide deliver deny describe destroy develop die discover discuss do draw
drink drive drop eat enjoy enter escape exist expect explain fail fall feed feel fight fill find finish fix fly follow
forget gain gather get give go grow happen hate have hear help hold hope imagine include increase invite join jump keep
kick kill kiss know laugh launch lead leave lift like listen live look lose love make marry mean measure meet miss move
need notice obtain offer open paint pass pick plan plant play point prefer prepare prevent produce promise protect prove
provide pull push raise reach receive reduce refuse remain remember remove repeat replace reply return ride ring rise
run save say see seek seem sell send serve shake share shoot show sing sink sit sleep smile speak spend stand start stay
steal step stick stop strike study succeed suffer suggest survive swear swim take talk teach tear tell thank think throw
touch travel try turn understand use visit wait wake walk want warn wash watch wear win wish work worry write
"""

ANTONYMS = """
up/down hot/cold big/small large/small good/bad old/young new/old fast/slow high/low long/short tall/short rich/poor
hard/soft easy/difficult light/dark heavy/light strong/weak happy/sad open/closed full/empty clean/dirty wet/dry
early/late left/right right/wrong true/false first/last black/white day/night inside/outside in/out on/off over/under
above/below before/after always/never all/none everything/nothing everyone/nobody more/less most/least many/few
near/far love/hate life/death war/peace win/lose buy/sell give/take push/pull start/stop begin/end come/go rise/fall
increase/decrease accept/reject agree/disagree ask/answer attack/defend arrive/depart borrow/lend build/destroy
create/destroy laugh/cry live/die remember/forget succeed/fail teach/learn find/lose enter/exit include/exclude
appear/disappear connect/disconnect import/export expand/contract raise/lower throw/catch husband/wife man/woman
boy/girl king/queen brother/sister father/mother son/daughter uncle/aunt male/female north/south east/west
summer/winter morning/evening past/future friend/enemy hero/villain heaven/hell beginning/end birth/death
success/failure strength/weakness victory/defeat profit/loss top/bottom front/back entrance/exit question/answer
truth/lie danger/safety hope/despair joy/sorrow pride/shame presence/absence advantage/disadvantage ancient/modern
alive/dead asleep/awake beautiful/ugly bright/dim broad/narrow wide/narrow cheap/expensive deep/shallow different/same
equal/unequal fair/unfair famous/unknown fat/thin thick/thin fresh/stale generous/selfish guilty/innocent healthy/sick
honest/dishonest interesting/boring internal/external kind/cruel legal/illegal loose/tight loud/quiet major/minor
maximum/minimum natural/artificial normal/abnormal positive/negative possible/impossible polite/rude private/public
public/private proud/ashamed rough/smooth safe/dangerous sharp/dull simple/complex smooth/rough sweet/bitter
visible/invisible warm/cool young/old optimistic/pessimistic upper/lower forward/backward upward/downward
together/apart often/rarely quickly/slowly yes/no with/without plus/minus
"""

SYNONYMS = """
big/large small/little fast/quick rapid/fast happy/glad sad/unhappy smart/clever clever/smart intelligent/smart
beautiful/pretty pretty/beautiful ugly/hideous rich/wealthy wealthy/rich poor/needy angry/mad furious/angry
afraid/scared scared/afraid frightened/afraid brave/courageous calm/peaceful tired/weary sick/ill ill/sick
strong/powerful powerful/strong weak/feeble hard/difficult difficult/hard easy/simple simple/easy strange/odd
odd/strange weird/strange funny/humorous silly/foolish foolish/silly kind/nice nice/pleasant mean/cruel cruel/mean
quiet/silent silent/quiet loud/noisy noisy/loud wet/damp damp/moist moist/damp cold/chilly old/ancient ancient/old
new/recent modern/contemporary famous/renowned important/significant significant/important huge/enormous enormous/huge
giant/huge tiny/small massive/huge vast/huge whole/entire entire/whole complete/total total/complete correct/right
accurate/correct wrong/incorrect incorrect/wrong true/real real/genuine genuine/real false/untrue fake/false
near/close close/near far/distant distant/far empty/vacant vacant/empty begin/start start/begin commence/begin
end/finish finish/end stop/halt halt/stop cease/stop help/assist assist/help aid/help buy/purchase purchase/buy
get/obtain obtain/get acquire/get choose/select select/choose pick/choose make/create create/make construct/build
build/construct speak/talk talk/speak say/state tell/inform shout/yell yell/shout scream/yell cry/weep weep/cry
watch/observe observe/watch think/believe answer/reply reply/answer respond/answer ask/inquire show/display
display/show demonstrate/show hide/conceal conceal/hide fix/repair repair/fix mend/repair break/shatter destroy/ruin
ruin/destroy damage/harm harm/damage hurt/harm need/require require/need want/desire desire/want wish/desire
like/enjoy adore/love hate/detest allow/permit permit/allow let/allow forbid/ban prohibit/ban gather/collect
collect/gather keep/retain retain/keep leave/depart depart/leave fall/drop drop/fall grow/increase reduce/decrease
decrease/reduce attempt/try try/attempt happen/occur occur/happen job/work task/job road/street street/road house/home
home/house car/automobile automobile/car ship/boat boat/ship rock/stone stone/rock sea/ocean ocean/sea forest/woods
woods/forest child/kid kid/child infant/baby baby/infant friend/companion enemy/foe foe/enemy doctor/physician
physician/doctor lawyer/attorney attorney/lawyer teacher/instructor instructor/teacher student/pupil pupil/student
boss/manager author/writer writer/author gift/present present/gift error/mistake mistake/error fault/mistake
idea/thought goal/aim aim/goal purpose/aim anger/rage rage/anger fury/rage fear/terror sorrow/sadness sadness/sorrow
joy/happiness happiness/joy speed/velocity velocity/speed power/strength strength/power story/tale tale/story
picture/image image/picture photo/picture illness/disease disease/illness battle/fight fight/battle trip/journey
journey/trip voyage/trip couch/sofa sofa/couch autumn/fall trash/garbage garbage/trash quickly/rapidly rapidly/quickly
often/frequently frequently/often maybe/perhaps perhaps/maybe nearly/almost almost/nearly also/too usually/normally
"""

# Groups that sound the same in General American speech; each word's target is the group's first other word.
HOMOPHONES = """
add/ad allowed/aloud alter/altar our/hour hours/ours idol/idle band/banned bore/boar board/bored by/buy bite/byte
bear/bare berry/bury be/bee beat/beet blue/blew bread/bred break/brake breaking/braking breaks/brakes die/dye
died/dyed discrete/discreet dear/deer do/due dual/duel their/there air/heir eight/ate for/four fourth/forth find/fined
fair/fare fur/fir feet/feat flower/flour flare/flair flee/flea guest/guessed gate/gait great/grate hall/haul high/hi
hair/hare heard/herd hey/hay him/hymn heal/heel here/hear whole/hole holy/wholly genes/jeans canon/cannon cast/caste
cash/cache core/corps cord/chord course/coarse council/counsel colonel/kernel clause/claws cruise/crews lesson/lessen
lead/led least/leased loan/lone mind/mined minor/miner might/mite made/maid male/mail maze/maize missed/mist meet/meat
muscles/mussels morning/mourning not/knot none/nun night/knight nights/knights no/know knows/nose new/knew oh/owe
packed/pact past/passed pour/pore pause/paws pair/pear pain/pane peer/pier peak/peek piece/peace plane/plain
please/pleas poll/pole profit/prophet pray/prey principal/principle pros/prose wrap/rap right/write/rite read/red
rain/reign raise/rays road/rode role/roll rose/rows root/route some/sum son/sun sore/soar sign/sine site/sight/cite
sell/cell sent/cent/scent sale/sail sink/sync see/sea ceiling/sealing seem/seam seen/scene sees/seas/seize so/sew
soul/sole stare/stair stake/steak steel/steal sweet/suite sheer/shear tied/tide tail/tale tea/tee toe/tow to/two/too
thrown/throne through/threw vein/vain one/won war/wore worn/warn whether/weather where/wear way/weigh waste/waist
wait/weight which/witch week/weak would/wood yoke/yolk guys/guise bin/been
"""

COMPOUNDS = """
after|noon air|port any|thing back|ground band|width bank|note bare|foot base|ball basket|ball bath|room battle|field
bed|room bee|hive bench|mark birth|day black|smith blood|stream blue|print book|store border|line bottle|neck
brain|storm break|fast broad|cast business|man butter|fly camp|fire card|board cat|fish cell|phone chair|man
check|list child|birth class|room coast|line common|place copy|right corner|stone country|side court|room cross|roads
cup|board day|light dead|line desk|top door|way down|town draw|back drop|out dust|bin ear|ring earth|quake egg|plant
else|where eye|sight farm|land feed|back finger|print fire|place first|hand fisher|man flash|light flood|plain
foot|ball frame|work free|lance fresh|water front|line game|play gate|way gentle|man girl|friend gold|fish good|bye
grand|father grass|land green|house ground|water guide|line gun|powder hair|cut half|way hand|book head|ache
heart|beat high|way home|work honey|moon horse|back house|hold ice|berg in|side key|board knee|cap lady|bug land|mark
lap|top law|suit lay|out life|time light|house lime|stone live|stock lock|down long|time look|out lunch|time mail|box
main|land market|place master|piece mean|while mile|stone mind|set moon|light mother|board motor|cycle neck|lace
net|work new|born news|paper night|time north|west note|book nut|shell off|spring out|side over|night paper|work
pass|word path|way pay|roll pine|apple pipe|line play|ground pop|corn pot|hole rail|road rain|bow river|side road|side
roof|top run|way safe|guard sales|man salt|water sand|stone school|children screen|shot sea|food share|holder
shell|fish ship|wreck short|cut show|case side|walk smart|phone snap|shot snow|fall some|times south|east space|craft
spot|light spread|sheet stake|holder stand|point star|fish steam|boat story|telling straw|berry stream|line
strong|hold sun|light table|spoon tax|payer tea|spoon team|work text|book thumb|nail thunder|storm time|line tool|box
tooth|brush trade|mark trust|worthy turn|over under|ground view|point wall|paper war|fare waste|water water|fall
wave|length web|site week|end wheel|chair white|board whole|sale wide|spread wild|life wind|mill wood|land work|shop
world|wide worth|while
"""

PRONOUNS = {
    "he": """man boy father brother son uncle king prince husband grandfather grandson nephew gentleman waiter
        monk priest duke emperor businessman fisherman chairman lad groom bachelor wizard bull rooster knight lord
        guy dad sir""",
    "she": """woman girl mother sister daughter aunt queen princess wife grandmother niece lady actress waitress nun
        duchess empress heroine bride witch goddess mom maid hen madam widow ballerina""",
    "they": """men women boys girls people children parents students teachers friends dogs cats birds books cars houses
        trees flowers brothers sisters sons daughters kings queens soldiers doctors farmers workers neighbors players
        scientists families animals horses countries cities stars shoes apples computers""",
    "it": """car house book table chair tree river mountain city country computer phone door window box ball bridge
        road train plane boat school hospital building garden kitchen idea song story picture rock stone stick
        knife bottle cup paper pencil key clock lamp machine engine island ocean desert cloud storm fire coin""",
}

SUPERCLASSES = {
    "animal": "dog cat horse cow pig sheep goat lion tiger bear wolf fox rabbit mouse rat elephant monkey camel deer",
    "bird": "eagle owl chicken duck goose swan crow pigeon turkey hawk penguin parrot robin",
    "fish": "salmon trout tuna cod shark sardine herring",
    "insect": "bee ant butterfly mosquito beetle wasp moth ",
    "reptile": "snake lizard turtle crocodile",
    "fruit": "apple banana orange lemon grape peach pear cherry mango strawberry pineapple",
    "vegetable": "carrot potato onion cabbage spinach broccoli lettuce cucumber",
    "flower": "rose lily tulip daisy orchid lotus",
    "tree": "oak pine maple willow cedar palm birch",
    "color": "red blue green yellow purple pink brown black white",
    "metal": "iron gold silver copper zinc lead tin aluminum",
    "gas": "oxygen hydrogen nitrogen helium methane",
    "drink": "water milk coffee tea beer wine juice soda",
    "country": "France Germany Italy Spain Japan China India Brazil Canada Egypt Mexico Russia",
    "city": "Paris London Berlin Madrid Rome Moscow Tokyo Chicago Boston Toronto",
    "continent": "Africa Asia Europe Antarctica",
    "language": "Spanish French German Italian Russian Arabic Chinese Japanese English Latin Greek Hindi",
    "planet": "Mars Venus Jupiter Saturn Mercury Neptune Uranus",
    "month": "January February March April June July August September October November December",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "season": "winter spring summer autumn",
    "sport": "football basketball baseball tennis hockey soccer golf rugby",
    "game": "chess poker bingo",
    "instrument": "piano guitar violin flute drum trumpet",
    "vehicle": "car truck bus bicycle motorcycle van taxi",
    "tool": "hammer drill saw screwdriver shovel wrench",
    "weapon": "gun sword rifle bomb spear pistol",
    "furniture": "table chair desk sofa bed bookcase",
    "disease": "cancer malaria influenza diabetes tuberculosis measles",
    "emotion": "anger fear joy sadness happiness love",
    "religion": "Islam Christianity Hinduism Judaism",
    "shape": "circle square triangle rectangle",
    "number": "one two three seven ten hundred",
    "meal": "breakfast lunch dinner",
    "organ": "heart liver brain kidney lung stomach",
    "building": "house church castle hotel tower barn",
    "science": "physics chemistry biology astronomy geology",
    "spice": "pepper cinnamon ginger",
    "grain": "wheat rice corn barley",
}

PRODUCTS = {
    "Apple": "iPhone iPad iPod Mac Safari Siri iOS iTunes MacBook iMac AirPods Macintosh",
    "Microsoft": """Windows Office Excel Word PowerPoint Outlook Bing Azure Skype Surface Access Teams Edge LinkedIn
        GitHub Vista Paint Publisher Exchange Xbox OneDrive SharePoint""",
    "Google": """Android Chrome YouTube Nest TensorFlow Gemini Bard Dart Classroom Scholar Sheets Drive Earth Maps
        Analytics Gmail Pixel Chromebook Fitbit""",
    "Amazon": "Kindle Alexa Echo AWS Prime Twitch Audible",
    "Meta": "Facebook Instagram Messenger PyTorch Quest WhatsApp",
    "Nintendo": "Switch Mario Pokémon Wii Zelda GameCube",
    "Sony": "PlayStation Walkman",
    "Samsung": "Galaxy",
    "Adobe": "Photoshop Flash Reader Illustrator Acrobat Lightroom",
    "Oracle": "Java MySQL",
    "IBM": "Watson",
    "SpaceX": "Falcon Dragon Starlink Starship",
    "Ford": "Explorer Ranger Focus Transit Fusion Mustang Fiesta Bronco",
    "Honda": "Civic Accord Odyssey",
    "Toyota": "Corolla Camry Prius",
    "Volkswagen": "Golf Polo Beetle Passat Jetta",
    "Nissan": "Leaf Altima",
    "Chevrolet": "Corvette Camaro Malibu",
    "Porsche": "Cayenne",
    "Boeing": "Dreamliner",
    "Intel": "Pentium Xeon",
    "Nvidia": "GeForce CUDA",
    "AMD": "Ryzen Radeon",
    "Pfizer": "Paxlovid ",
    "Bayer": "aspirin",
    "Disney": "Frozen",
    "Twitter": "Vine",
    "Mattel": "Barbie",
    "Mozilla": "Firefox",
    "MathWorks": "MATLAB",
    "Autodesk": "AutoCAD",
    "OpenAI": "ChatGPT",
}

WORKPLACES = {
    "hospital": "doctor nurse surgeon physician midwife cardiologist",
    "clinic": "dentist therapist psychologist",
    "school": "teacher principal tutor",
    "university": "professor lecturer scholar",
    "college": "dean",
    "farm": "farmer farmhand",
    "bakery": "baker",
    "restaurant": "waiter waitress chef",
    "kitchen": "cook",
    "court": "judge lawyer attorney prosecutor",
    "church": "priest pastor minister organist",
    "monastery": "monk",
    "convent": "nun",
    "synagogue": "rabbi",
    "mosque": "imam",
    "cathedral": "bishop",
    "plane": "pilot stewardess",
    "ship": "sailor captain",
    "laboratory": "scientist chemist biologist researcher",
    "library": "librarian",
    "bank": "banker teller",
    "theater": "actor actress",
    "stage": "dancer comedian performer musician singer",
    "mine": "miner",
    "pharmacy": "pharmacist",
    "garden": "gardener",
    "garage": "mechanic",
    "prison": "warden",
    "newspaper": "editor reporter journalist columnist",
    "senate": "senator",
    "palace": "king queen emperor",
    "store": "clerk cashier salesman",
    "shop": "shopkeeper butcher",
    "salon": "hairdresser",
    "bar": "bartender",
    "museum": "curator",
    "studio": "artist painter sculptor photographer",
    "forest": "ranger lumberjack hunter",
    "sea": "fisherman",
    "pool": "lifeguard swimmer",
    "observatory": "astronomer",
    "stadium": "athlete",
    "gym": "trainer",
    "bus": "driver",
    "orchestra": "conductor violinist",
    "space": "astronaut",
    "office": "secretary accountant manager programmer consultant executive administrator",
    "circus": "clown acrobat",
    "hotel": "porter receptionist",
    "factory": "worker machinist",
    "workshop": "carpenter",
    "forge": "blacksmith",
    "zoo": "zookeeper",
    "ranch": "cowboy rancher",
    "brewery": "brewer",
    "market": "merchant vendor trader",
    "station": "detective policeman firefighter",
    "ambulance": "paramedic",
    "embassy": "ambassador diplomat",
    "castle": "knight",
    "battlefield": "soldier warrior",
    "cemetery": "gravedigger",
    "field": "coach shepherd",
    "vineyard": "winemaker",
}

SPANISH = """
of/de the/el in/en that/que with/con for/para by/por without/sin two/dos if/si already/ya be/ser see/ver each/cada
against/contra says/dice go/ir greater/mayor such/tal badly/mal person/persona end/fin give/dar thousand/mil month/mes
south/sur main/principal current/actual art/arte value/valor alive/vivo sea/mar sun/sol previous/anterior
military/militar pair/par networks/redes network/red channel/canal foot/pie feet/pies faith/fe court/tribunal
bread/pan coffee/café brain/cerebro salt/sal academy/academia goal/meta workshop/taller crown/corona flower/flor
partner/socio driver/conductor fuel/combustible sensitive/sensible steam/vapor sleeve/manga thirst/sed monkey/mono
builder/constructor serious/grave lower/inferior upper/superior outer/exterior inner/interior usual/habitual
fresh/fresco mild/leve basis/base engine/motor shepherd/pastor sand/arena necklace/collar eleven/once royal/real
Europe/Europa plans/planes my/mi your/tu his/su was/era is/es nor/ni only/solo so/tan a/un are/son subway/metro
opium/opio scent/aroma mistake/error cocoa/cacao car/auto likely/probable defend/defender house/casa water/agua
dog/perro cat/gato book/libro table/mesa day/día night/noche man/hombre woman/mujer boy/niño friend/amigo father/padre
mother/madre brother/hermano son/hijo daughter/hija hand/mano head/cabeza eye/ojo heart/corazón red/rojo blue/azul
green/verde white/blanco world/mundo life/vida love/amor time/tiempo year/año city/ciudad street/calle school/escuela
door/puerta window/ventana milk/leche wine/vino fire/fuego earth/tierra sky/cielo moon/luna king/rey queen/reina
war/guerra peace/paz light/luz word/palabra voice/voz name/nombre three/tres four/cuatro five/cinco ten/diez
good/bueno bad/malo big/grande small/pequeño new/nuevo old/viejo
"""

FRENCH = """
the/le and/et is/est in/dans a/un of/de that/que not/pas he/il for/pour I/je who/qui this/ce on/sur by/par more/plus
his/son or/ou if/si do/faire my/mon no/non years/ans say/dire good/bon before/avant your/ton big/grand country/pays
day/jour how/comment first/premier thing/chose badly/mal end/fin towards/vers name/nom place/lieu gender/genre nor/ni
together/ensemble agreement/accord low/bas center/centre body/corps boss/chef strong/fort help/aide March/mars
word/mot yesterday/hier middle/milieu program/programme road/route such/tel training/formation sea/mer dear/cher
hands/mains hand/main bed/lit seven/sept blood/sang hard/dur back/dos trip/voyage trade/commerce crazy/fou iron/fer
thread/fil gas/gaz raw/cru bag/sac wind/vent wine/vin coffee/café corner/coin bridge/pont field/champ kitchen/cuisine
delay/retard insurance/assurance exhibition/exposition reading/lecture wall/mur green/vert empty/vide universe/univers
increase/augmentation feeling/sentiment lake/lac sentence/phrase dress/robe proud/fier hole/trou dish/plat
attempt/tentative ridiculous/ridicule quarter/quart rest/repos pure/pur neck/cou salt/sel canvas/toile axis/axe
throat/gorge song/chant sailor/marin wise/sage cats/chats cat/chat tiredness/fatigue disaster/catastrophe tooth/dent
fiber/fibre snake/serpent beak/bec feather/plume balcony/balcon garlic/ail volcano/volcan bread/pain flesh/chair
because/car oven/four pine/pin bear/ours dirty/sale gold/or newspaper/journal grape/raisin plum/prune novel/roman
cellar/cave slow/lent fashion/mode sixteen/seize short/court ugly/laid wide/large forehead/front luck/chance
tower/tour death/mort blow/coup all/tout too/trop under/sous house/maison water/eau dog/chien book/livre man/homme
woman/femme boy/garçon girl/fille friend/ami father/père mother/mère brother/frère sister/sœur head/tête eye/œil
heart/cœur red/rouge blue/bleu white/blanc black/noir world/monde life/vie love/amour time/temps year/année city/ville
street/rue school/école door/porte window/fenêtre milk/lait fire/feu earth/terre sky/ciel moon/lune sun/soleil
king/roi queen/reine war/guerre peace/paix light/lumière night/nuit three/trois five/cinq ten/dix small/petit
new/nouveau old/vieux bird/oiseau fish/poisson cheese/fromage
"""

ORDERED = """A B C D E F G H I J K L M N O P Q R S T U V W X Y Z
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
Monday Tuesday Wednesday Thursday Friday Saturday Sunday
January February March April May June July August September October November December"""

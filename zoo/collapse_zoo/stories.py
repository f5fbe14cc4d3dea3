"""Children's stories from a seeded generator: text for training and measuring offline.

A story has a hero, a friend, a place, a thing and a wish; something goes wrong, somebody helps, and there is a small
lesson. Words are drawn with Zipf-like weights, so that a few tokens are frequent and many are rare, as in real text.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random

from collapse.stores.writing import replacing

_NAMES = (
    "Mia Ben Lily Tom Anna Sam Zoe Max Ella Leo Nora Finn Ruby Jack Clara Theo Ivy Oscar Rosa Hugo Maya Felix Ada Otto "
    "Lena Kai June Milo Tess Emil Nina Bruno Pearl Ravi Sana Pablo Yuki Omar Greta Ines Jonas Wren "
    "Basil Dora Ezra Fern "
    "Gus Hazel Iris Jude Kit Luna Moss Nell Opal Piet Quinn Rory Sage Tilda Una Vera Wim Xenia Yara Zeke Arlo Bea Cleo "
    "Dario Edda Flora Goran Hilde Ilya Jasper Katya Lars Mabel Nico"
).split()
_ANIMALS = (
    "dog cat rabbit fox bear duck mouse frog owl hen pony goat turtle squirrel hedgehog otter "
    "sparrow snail beetle crow "
    "badger lamb kitten puppy goose mole robin seal whale donkey bee ant deer swan parrot lizard "
    "penguin camel moth crab"
).split()
_PEOPLE = (
    "mother father grandmother grandfather sister brother teacher baker farmer gardener neighbour aunt uncle captain "
    "librarian painter postman doctor fisherman shepherd tailor miller potter sailor carpenter cook"
).split()
_PLACES = (
    "garden,forest,park,river,kitchen,beach,school,hill,market,barn,meadow,lake,attic,village,harbour,bakery,library,"
    "orchard,bridge,mountain,playground,cellar,field,island,cave,station,castle,pond,workshop,lighthouse,greenhouse,"
    "valley,windmill,stable,museum,tower,courtyard,tent,quarry,vineyard"
).split(",")
_THINGS = (
    "ball,kite,book,hat,boat,drum,lamp,basket,apple,cake,shell,key,map,bell,blanket,button,candle,cup,feather,flute,"
    "jar,ladder,marble,mirror,mitten,pebble,pencil,pillow,puppet,ribbon,ring,rope,scarf,seed,shoe,spoon,star,stone,"
    "sweater,teapot,train,umbrella,wagon,whistle,acorn,balloon,bottle,bucket,compass,crown,doll,fan,flag,glove,hammer,"
    "jacket,lantern,magnet,necklace,paintbrush,puzzle,quilt,sail,shovel,telescope,trumpet,vase,violin,wheel,xylophone"
).split(",")
_QUALITIES = (
    "little,red,old,big,shiny,blue,small,pretty,soft,golden,green,round,warm,tiny,yellow,brave,"
    "quiet,bright,heavy,broken,"
    "striped,wooden,silver,secret,clean,dusty,funny,gentle,hollow,lost,magic,new,orange,pink,plain,purple,rough,rusty,"
    "smooth,square,strange,sweet,tall,thin,velvet,wide,white,woolen,crooked,curly,enormous,freckled,glittering,icy,"
    "lopsided,muddy,patchwork,sparkling,wobbly,tangled"
).split(",")
_FEELINGS = "happy,sad,proud,excited,scared,curious,tired,surprised,lonely,glad,worried,grateful,shy,angry,calm".split(
    ","
)
_WISHES = (
    "fly like a bird,find a new friend,learn to swim,bake a cake,see the sea,build a house in a tree,sing a song,"
    "climb to the very top,catch a cloud,plant a flower,ride a horse,read every book,win the race,paint the sky,"
    "sleep under the stars,make it snow,talk with the animals,sail around the world,grow as tall as a door,"
    "dance in the rain,fix the clock,visit the moon,write a letter,cook soup for everyone,hear the wind speak"
).split(",")
_MISHAPS = (
    "The {thing} fell into the water,A strong wind took the {thing} away,The {thing} broke in two,"
    "It began to rain and the {thing} got wet,The {thing} rolled down the hill,Nobody could find the {thing},"
    "A {animal} ran off with the {thing},The {thing} got stuck in a tall tree,{hero} slipped and dropped the {thing},"
    "The {thing} was too heavy to carry,Somebody had locked the door,The path was full of mud,"
    "A cloud of bees came out of the {thing},The bridge was gone,It became dark very early"
).split(",")
_HELPS = (
    "{friend} had an idea and fetched a long stick,Together they pulled as hard as they could,"
    "The {person} came and showed them how to mend it,{friend} looked under every leaf until it was found,"
    "They asked the {animal} and the {animal} knew the way,{hero} counted to ten and tried once more,"
    "They tied a rope around it and waited for the wind,The {person} gave them a new one and a piece of bread,"
    "{friend} held the ladder while {hero} climbed up,They worked all afternoon and did not stop"
).split(",")
_LESSONS = (
    "it is good to share,friends make hard things easy,you must never give up,it is fine to ask for help,"
    "small hands can do big work,being kind costs nothing,every mistake teaches something,waiting can be worth it,"
    "telling the truth feels light,a promise is a promise"
).split(",")
_OPENINGS = (
    "Once upon a time there was a {quality} {animal} named {hero}.",
    "One day {hero} went to the {place} with {friend}.",
    "{hero} was a {quality} child who lived near the {place}.",
    "There once lived a {person} who had a {quality} {thing}.",
    "It was a sunny morning and {hero} was very {feeling}.",
    "Long ago, in a {quality} {place}, {hero} found a {thing}.",
)
_MIDDLES = (
    "{hero} loved the {quality} {thing} more than anything.",
    "Every day {hero} wanted to {wish}.",
    "In the {place} they saw a {quality} {animal} next to a {thing}.",
    '"Look at this {thing}!" said {hero}. "It is so {quality}!"',
    '"Can we {wish}?" asked {friend}. "Yes, but be careful," said the {person}.',
    "{friend} was {feeling}, because the {thing} was {quality}.",
    "They put the {thing} in a {quality} {thing2} and walked to the {place}.",
    '"I wish I could {wish}," said {hero} to the {animal}.',
    "The {animal} sat in the {place} and ate {number} apples.",
    "{number2} birds flew over the {place} and sang.",
    "{hero} {deed} {manner} past the {plant} and {deed2}.",
    "They ate {food} with {food2} and drank some {food3} tea.",
    "It was a {weather} day in {time}, and {friend} wore a {quality} {garment}.",
    "{friend} {deed} and played {game} until {time}.",
    "The {animal} had a {quality} {part} and a {material} {garment}.",
    "Under the {plant} lay a {thing2} made of {material}.",
    "{hero} {deed} {manner}, for the {weather} night smelled of {food} and {plant}.",
)
_ENDS = (
    "{hero} was {feeling} again and hugged {friend}.",
    "From that day on {hero} knew that {lesson}. The end.",
    '"Thank you," said {hero}. "Now I know that {lesson}."',
    "They went home, ate cake and slept well.",
    "And the {animal} lived happily in the {place}.",
)
_FOODS = (
    "bread cheese soup jam honey milk pie pear plum cherry berry nut carrot pumpkin pancake cookie muffin rice noodle "
    "tomato potato onion garlic pepper lemon grape peach melon fig walnut almond butter cream yogurt egg biscuit toast "
    "porridge salad bean pea corn mushroom spinach radish turnip cabbage waffle pudding custard caramel "
    "cinnamon ginger "
    "vanilla chocolate raisin apricot coconut mango papaya dumpling pretzel sandwich omelette"
).split()
_PLANTS = (
    "rose daisy tulip lily oak pine willow birch maple ivy clover fern moss sunflower poppy violet thistle reed bamboo "
    "cactus lavender mint thyme sage basil hazel elm ash cedar spruce bramble heather orchid marigold dandelion "
    "primrose "
    "bluebell foxglove nettle buttercup juniper hawthorn chestnut holly"
).split()
_DEEDS = (
    "walked ran jumped laughed waited whispered danced climbed looked listened shouted stumbled wandered hopped "
    "crawled "
    "skipped galloped tiptoed marched hurried rested smiled cried sneezed yawned nodded waved clapped hummed giggled "
    "blinked shivered trembled paused knelt bowed rushed raced strolled splashed paddled drifted floated "
    "bounced tumbled "
    "twirled wriggled leaped limped sighed coughed grinned frowned gasped muttered mumbled chuckled snored dreamed"
).split()
_MANNERS = (
    "slowly quickly softly loudly bravely gently sadly happily quietly carefully suddenly eagerly proudly shyly kindly "
    "warmly boldly calmly clumsily cheerfully politely patiently nervously lazily merrily silently swiftly sweetly "
    "angrily anxiously awkwardly briskly curiously fiercely gladly gracefully honestly lightly neatly playfully "
    "promptly roughly safely seriously sleepily solemnly steadily thoughtfully wildly wisely"
).split()
_GARMENTS = (
    "coat cap dress shirt sock boot belt apron cloak hood vest skirt sandal slipper cape bonnet tie sash shawl jersey "
    "trousers pajamas raincoat helmet mask veil robe tunic brooch bracelet pocket collar sleeve buckle"
).split()
_WEATHERS = (
    "sunny rainy windy snowy cloudy foggy stormy frosty misty cold hot dark clear humid breezy chilly drizzly hazy "
    "freezing mild gloomy thundery golden grey silent"
).split()
_GAMES = (
    "tag chess hopscotch marbles dominoes cards football tennis dice riddles charades checkers skittles juggling "
    "leapfrog jigsaw hide-and-seek blind-man's-buff tug-of-war pirates knights explorers detectives astronauts wizards"
).split()
_TIMES = (
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August "
    "September October November December spring summer autumn winter Christmas Easter midnight noon dawn dusk"
).split()
_PARTS = (
    "nose ear tail paw wing beak eye foot hand knee elbow thumb cheek chin belly shoulder whisker hoof feather claw "
    "finger toe ankle back neck tooth tongue fur shell horn"
).split()
_MATERIALS = (
    "wood stone glass paper clay wool silk straw copper iron tin gold leather cotton wax sand chalk ice rubber brass "
    "marble ivory linen felt bark pearl amber jade"
).split()
_NUMBERS = "two three four five six seven eight nine ten eleven twelve twenty".split()


def stories(n: int, seed: int = 0) -> Iterator[str]:
    """Generate n stories; the same seed gives the same stories.

    >>> next(stories(1, seed=1)) == next(stories(1, seed=1))
    True
    """
    draw = Random(seed)
    for _ in range(n):
        yield _story(draw)


def write_stories(path: Path, n: int, seed: int = 0) -> None:
    """Write n stories as JSON lines of ``{"text": …}``, atomically."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        for story in stories(n, seed):
            file.write(json.dumps({"text": story}) + "\n")


def _story(draw: Random) -> str:
    hero, friend = _some(draw, _NAMES), _some(draw, _NAMES)
    fixed = {"hero": hero, "friend": friend, "thing": _some(draw, _THINGS), "animal": _some(draw, _ANIMALS)}
    middles = [draw.choice(_MIDDLES) for _ in range(draw.randint(3, 7))]
    plan = [draw.choice(_OPENINGS), *middles, f"But then something went wrong. {draw.choice(_MISHAPS)}."]
    plan += [f"{hero} was {_some(draw, _FEELINGS)}.", f"{draw.choice(_HELPS)}."]
    plan += draw.sample(_ENDS, k=draw.randint(1, 3))
    return " ".join(_filled(draw, sentence, fixed) for sentence in plan)


def _filled(draw: Random, sentence: str, fixed: dict[str, str]) -> str:
    """Fill the blanks of a sentence: ``fixed`` words stay the same in the whole story, others are drawn."""
    drawn = {
        "place": _some(draw, _PLACES),
        "person": _some(draw, _PEOPLE),
        "quality": _some(draw, _QUALITIES),
        "feeling": _some(draw, _FEELINGS),
        "thing2": _some(draw, _THINGS),
        "wish": _some(draw, _WISHES),
        "lesson": _some(draw, _LESSONS),
        "deed": _some(draw, _DEEDS),
        "deed2": _some(draw, _DEEDS),
        "manner": _some(draw, _MANNERS),
        "plant": _some(draw, _PLANTS),
        "food": _some(draw, _FOODS),
        "food2": _some(draw, _FOODS),
        "food3": _some(draw, _FOODS),
        "weather": _some(draw, _WEATHERS),
        "time": _some(draw, _TIMES),
        "garment": _some(draw, _GARMENTS),
        "game": _some(draw, _GAMES),
        "part": _some(draw, _PARTS),
        "material": _some(draw, _MATERIALS),
        "number": draw.choice(_NUMBERS),
        "number2": draw.choice(_NUMBERS).capitalize(),
    }
    return sentence.format(**fixed, **drawn)


def _some(draw: Random, words: Sequence[str]) -> str:
    """Draw a word; the k-th has weight 1/k."""
    return draw.choices(words, cum_weights=_weights(len(words)))[0]


@cache
def _weights(n: int) -> tuple[float, ...]:
    return tuple(accumulate(1 / (k + 1) for k in range(n)))

"""Five tasks of lm-evaluation-harness in the layouts of public ones, as YAML and made-up data; and the real harness."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

HOWTO = [
    ("cool hot soup quickly", "Blow on it and stir it.", "Put it back on the stove."),
    ("dry wet shoes", "Stuff them with newspaper overnight.", "Leave them out in the rain."),
    ("open a stuck jar", "Run the lid under hot water.", "Paint the lid another colour."),
    ("keep bread fresh", "Wrap it in a cloth.", "Leave it on a sunny window sill – uncovered."),
    ("find a lost phone", "Call it from another phone.", "Wait until winter."),
    ("clean a muddy window", "Wipe it with a wet sponge.", "Wipe it with a muddy sponge."),
    ("carry eggs safely", "Use a padded box.", "Throw them into a bag with stones."),
    ("sharpen a pencil", "Turn it in a sharpener.", "Dip it into water, then freeze it."),
    ("warm cold hands", "Rub them together.", "Hold them in snow."),
    ("stop a door from squeaking", "Oil its hinges.", "Sing louder than the door."),
]
FACTS = [
    ("What do lungs take in?", ["air", "food", "light", "sound"], "A"),
    ("Which is a metal?", ["wood", "iron", "glass"], "B"),
    ("What freezes at zero degrees Celsius?", ["oil", "petrol", "water", "air", "sand"], "3"),
    ("Which animal lays eggs?", ["a dog", "a cow", "a hen", "a horse"], "C"),
    ("What does a plant need to grow?", ["light and water", "salt", "plastic", "noise"], "A"),
    ("Where does the sun rise?", ["in the west", "in the north", "in the east", "nowhere"], "C"),
    ("What pumps blood?", ["the liver", "the heart", "the knee"], "B"),
    ("Which planet do we live on?", ["Mars", "the Earth", "Venus", "Jupiter"], "B"),
    ("What is ice made of?", ["water", "sand", "smoke", "cotton"], "A"),
    ("Which is the largest?", ["an ant", "a mouse", "a cat", "an elephant"], "D"),
]
SCENES = [
    (
        "Cooking",
        "A woman cracks two eggs into a bowl.",
        "she",
        ["whisks them with a fork.", "drives home.", "sings.", "paints the eggs blue and leaves the room."],
        0,
    ),
    (
        "Gardening",
        "A man digs a hole in the lawn.",
        "he",
        ["eats it.", "puts a small tree into it. [title] Then water it.", "flies away.", "reads the hole."],
        1,
    ),
    (
        "Washing a car",
        "A boy fills a bucket with soap.",
        "the boy",
        ["drinks the bucket.", "buys a horse.", "wipes the doors with a sponge.", "sleeps on the roof."],
        2,
    ),
    (
        "Skiing",
        "Two people stand on a snowy hill.",
        "they",
        ["swim.", "cook dinner on the lift.", "vanish.", "push off and glide down to the valley."],
        3,
    ),
    (
        "Painting",
        "A girl opens a tin of green paint.",
        "she",
        ["dips her brush into it.", "drops the house.", "calls a whale.", "melts."],
        0,
    ),
    (
        "Chess",
        "An old man moves his queen.",
        "his friend",
        [
            "boils the board.",
            "thinks, and takes it with a knight.",
            "leaves for Mars.",
            "sings to the rook for hours and hours.",
        ],
        1,
    ),
    (
        "Baking",
        "The dough has doubled in size.",
        "the baker",
        ["sells the oven.", "hides.", "shapes it into loaves.", "sends it to school."],
        2,
    ),
    (
        "Cycling",
        "The chain has come off.",
        "the rider",
        ["cheers.", "buys milk.", "eats it.", "stops and puts it back on the ring."],
        3,
    ),
    (
        "Sailing",
        "The wind turns suddenly.",
        "the crew",
        ["lets out the sail.", "paints the wind.", "knits.", "goes by train."],
        0,
    ),
    (
        "Sewing",
        "A button has fallen off a coat.",
        "the tailor",
        ["burns the coat.", "threads a needle.", "weighs the shop.", "barks."],
        1,
    ),
]
GAPS = [
    ("The trophy did not fit into the suitcase because the _ was too large.", "trophy", "suitcase", "1"),
    ("The trophy did not fit into the suitcase because the _ was too small.", "trophy", "suitcase", "2"),
    ("Ann asked Mary a question, but _ did not answer it.", "Ann", "Mary", "2"),
    ("The ball broke the table because the _ was made of steel.", "ball", "table", "1"),
    ("The man could not lift his son because the _ was so weak.", "man", "son", "1"),
    ("Tom thanked Ben for the help that _ had given.", "Tom", "Ben", "2"),
    ("The fish ate the worm; the _ was hungry.", "fish", "worm", "1"),
    ("The sculpture rolled off the shelf because the _ was not level.", "sculpture", "shelf", "2"),
    ("Paul lent Eric money because _ was broke.", "Paul", "Eric", "2"),
    ("The drain is full of hair; the _ has to be cleaned.", "drain", "hair", "1"),
]  # fmt: skip
PASSAGES = [
    ("Iron is a metal that rusts in wet air. It is found in many rocks.", "does iron rust", 1),
    ("Penguins are birds that swim well but cannot fly.", "can penguins fly", 0),
    ("The Nile flows north through Egypt to the sea.", "does the nile flow through egypt", 1),
    ("Tomatoes are botanically berries, though cooks call them vegetables.", "is a tomato a root", 0),
    ("Bees make honey from nectar and store it in combs.", "do bees make honey", 1),
    ("The moon has no air, so sound does not travel there.", "is there air on the moon", 0),
    ("Bats are mammals; they hang upside down to sleep.", "are bats birds", 0),
    ("Salt dissolves in water, sand does not.", "does salt dissolve in water", 1),
    ("Glass is made of molten sand.", "is glass made of sand", 1),
    ("Snails carry their shells all their lives.", "do snails leave their shells", 0),
]

YAML = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{train: {train}, test: {test}}}
training_split: train
test_split: test
output_type: multiple_choice
{body}
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
metadata: {{version: 1.5}}
"""
LAYOUTS = {
    "like_hellaswag": """process_docs: !function docs.hellaswag
doc_to_text: "{{query}}"
doc_to_target: "{{label}}"
doc_to_choice: choices""",
    "like_piqa": """doc_to_text: "Question: {{goal}}\\nAnswer:"
doc_to_target: label
doc_to_choice: "{{[sol1, sol2]}}\"""",
    "like_arc": """doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{choices.label.index(answerKey)}}"
doc_to_choice: "{{choices.text}}\"""",
    "like_winogrande": """doc_to_text: !function docs.gap_gold
doc_to_target: !function docs.gap_rest
doc_to_choice: !function docs.gap_choices""",
    "like_boolq": """doc_to_text: "{{passage}}\\nQuestion: {{question}}?\\nAnswer:"
doc_to_target: label
doc_to_choice: ["no", "yes"]""",
}
FUNCTIONS = """
import re

def preprocess(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub("\\\\[.*?\\\\]", "", text).replace("  ", " ")

def hellaswag(dataset):
    def one(doc):
        query = preprocess(doc["activity_label"] + ": " + doc["ctx_a"] + " " + doc["ctx_b"].capitalize())
        return {"query": query, "choices": [preprocess(e) for e in doc["endings"]], "gold": int(doc["label"])}
    return dataset.map(one)

def gap_gold(doc):
    return {"1": 0, "2": 1}[doc["answer"]]

def gap_rest(doc):
    return doc["sentence"][doc["sentence"].index("_") + 1:].strip()

def gap_choices(doc):
    return [doc["sentence"][:doc["sentence"].index("_")] + o for o in (doc["option1"], doc["option2"])]
"""


def rows_of(layout: str) -> list[dict[str, Any]]:
    if layout == "like_hellaswag":
        return [
            {"activity_label": a, "ctx_a": c, "ctx_b": b, "endings": e, "label": str(g)} for a, c, b, e, g in SCENES
        ]
    if layout == "like_piqa":
        flip = [(g, b, a, 1) if i % 3 == 1 else (g, a, b, 0) for i, (g, a, b) in enumerate(HOWTO)]
        return [{"goal": g, "sol1": a, "sol2": b, "label": gold} for g, a, b, gold in flip]
    if layout == "like_arc":
        names = ["ABCDE", "12345"]
        return [
            {"question": q, "choices": {"text": c, "label": list(names[k.isdigit()][: len(c)])}, "answerKey": k}
            for q, c, k in FACTS
        ]
    if layout == "like_winogrande":
        return [{"sentence": s, "option1": a, "option2": b, "answer": k} for s, a, b, k in GAPS]
    return [{"passage": p, "question": q, "label": k} for p, q, k in PASSAGES]


def write_tasks(folder: Path) -> dict[str, Path]:
    """Write all layouts; return their YAML files. The test split is the train split in another order."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "docs.py").write_text(FUNCTIONS)
    made = {}
    for name, body in LAYOUTS.items():
        rows = rows_of(name)
        files = {"train": folder / f"{name}_train.jsonl", "test": folder / f"{name}_test.jsonl"}
        files["train"].write_text("".join(json.dumps(row) + "\n" for row in rows[:6]))
        files["test"].write_text("".join(json.dumps(row) + "\n" for row in rows[6:] + rows[:2]))
        made[name] = folder / f"{name}.yaml"
        made[name].write_text(YAML.format(name=name, body=body, **files))
    return made


def write_suite(folder: Path, fewshot: int = 0, **more: str) -> Path:
    """A suite of all layouts, with `like_piqa` as its train set."""
    write_tasks(folder)
    text = 'schema = 1\nname = "local"\n'
    text += '\n[[train_sets]]\nname = "like_piqa"\nsource = { lm_eval = "like_piqa.yaml", split = "train" }\n'
    for name in LAYOUTS:
        text += f'\n[[test_sets]]\nname = "{name}"\nsource = {{ lm_eval = "{name}.yaml", fewshot = {fewshot} }}\n'
        text += more.get(name, "")
    (folder / "local.toml").write_text(text)
    return folder / "local.toml"


def evaluate(model: Any, tokenizer: Any, files: dict[str, Path], fewshot: int, batch_size: int = 4) -> dict[str, Any]:
    """What the real harness says of these tasks, with every choice's log-probability."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    wrapped = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    return lm_eval.simple_evaluate(
        wrapped,
        tasks=[str(path) for path in files.values()],
        num_fewshot=fewshot,
        task_manager=TaskManager(include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )


# the sets of `commonsense` in the layout of the hub's repositories; the rows are made up


def write_hub(folder: Path, rows: int = 48, **faults: str) -> None:
    """Write all repositories that `commonsense` names, with a fault (`longest`, `first` or `same`) in some of them."""
    for repository, config, splits in HUB:
        name = {"ARC-Easy": "arc_easy", "ARC-Challenge": "arc_challenge"}.get(config, repository.partition("/")[2])
        for split in splits:
            file = folder / repository / config / f"{split}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            rng = random.Random(f"{repository} {config} {split}")
            made = [
                _hub_row(name, _question(rng, number, CHOICES[name], faults.get(name, ""))) for number in range(rows)
            ]
            file.write_text("".join(json.dumps(row) + "\n" for row in made))
    for repository in {repository for repository, config, _ in HUB if config}:
        text = "---\nconfigs:\n"
        for _, config, splits in (entry for entry in HUB if entry[0] == repository):
            files = ", ".join(f"{{split: {split}, path: {config}/{split}.jsonl}}" for split in splits)
            text += f"- config_name: {config}\n  data_files: [{files}]\n"
        (folder / repository / "README.md").write_text(f"{text}---\n")


HUB = [
    ("Rowan/hellaswag", "", ("train", "validation")),
    ("baber/piqa", "", ("train", "validation")),
    ("allenai/ai2_arc", "ARC-Easy", ("train", "validation", "test")),
    ("allenai/ai2_arc", "ARC-Challenge", ("train", "validation", "test")),
    ("allenai/openbookqa", "main", ("train", "validation", "test")),
    ("allenai/winogrande", "winogrande_xl", ("train", "validation")),
    ("lighteval/siqa", "", ("train", "validation")),
    ("tau/commonsense_qa", "", ("train", "validation")),
    ("aps/super_glue", "copa", ("train", "validation")),
]
CHOICES = {
    **{"hellaswag": 4, "piqa": 2, "arc_easy": 4, "arc_challenge": 4, "openbookqa": 4},
    **{"winogrande": 2, "siqa": 3, "commonsense_qa": 5, "super_glue": 2},
}
NOUNS = ("bridge", "candle", "drawer", "engine", "feather", "garden", "hammer", "island", "jacket", "kettle", "ladder")


def _question(rng: random.Random, number: int, choices: int, fault: str) -> tuple[str, list[str], int]:
    """A made-up question, its choices in random lengths, and the right one, by turns."""
    question = f"{' '.join(rng.choices(NOUNS, k=6))} {number}"
    own = [f"{' '.join(rng.choices(NOUNS, k=rng.randint(1, 4)))} {letter}" for letter in "vwxyz"[:choices]]
    gold = 0 if fault == "first" else number % choices
    if fault == "longest":
        own[gold] += " and everything that belongs to it, as one would expect"
    if fault == "same" and number % 4 == 0:
        own[(gold + 1) % choices] = own[gold].upper()
    return question, own, gold


def _hub_row(name: str, made: tuple[str, list[str], int]) -> dict[str, Any]:
    """A question with the columns that the repository of a set has."""
    question, own, gold = made
    listed = {"text": own, "label": list("ABCDE"[: len(own)])}
    if name == "hellaswag":
        told = {"activity_label": "Made up", "ctx_a": f"{question}.", "ctx_b": "", "source_id": f"film~{question[-1]}"}
        return {**told, "endings": own, "label": str(gold)}
    if name == "piqa":
        return {"goal": question, "sol1": own[0], "sol2": own[1], "label": gold}
    if name == "openbookqa":
        return {"question_stem": question, "choices": listed, "answerKey": "ABCD"[gold]}
    if name == "winogrande":
        sentence = f"{question}, so the _ was there."
        return {"sentence": sentence, "option1": own[0], "option2": own[1], "answer": str(gold + 1)}
    if name == "siqa":
        answers = dict(zip(("answerA", "answerB", "answerC"), own, strict=True))
        return {"context": question, "question": "Why?", **answers, "label": str(gold + 1)}
    if name == "super_glue":
        return {"premise": f"{question}.", "choice1": own[0], "choice2": own[1], "question": "cause", "label": gold}
    return {"question": question, "choices": listed, "answerKey": "ABCDE"[gold]}

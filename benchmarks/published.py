"""Published results -> the long tables that ship with oodles; the figures are their authors', only reshaped.

    python -m benchmarks.published FOLDER     FOLDER has the files as published (see docs/findings.md)

Writes src/oodles/api/published/*.parquet. `findings.toml` beside them says where each comes from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

TARGET = Path(__file__).parent.parent / "src" / "oodles" / "api" / "published"
HEURISTICS = {"l": "lexical overlap", "s": "subsequence", "c": "constituent"}
CATEGORIES = {"Lexical": "lexical overlap", "Subseq": "subsequence", "Constituent": "constituent"}
LABELS = {"e": "entailed", "n": "non-entailed", "entailed": "entailed", "nonent": "non-entailed"}
PYTHIA_SIZES = {"lambada_openai": 5153, "piqa": 1838, "winogrande": 1267, "wsc": 104, "arc_easy": 2376}
PYTHIA_SIZES |= {"arc_challenge": 1172, "sciq": 1000, "logiqa": 651}
CHOICES = {"piqa": 2, "winogrande": 2, "wsc": 2, "arc_easy": 4, "arc_challenge": 4, "sciq": 4, "logiqa": 4}


def bert_hans(folder: Path) -> pd.DataFrame:
    """100 BERTs: MNLI, six categories of HANS (heuristic x label), and their 30 subcases."""
    wide = pd.read_csv(folder / "berts_of_a_feather.csv")
    parts = [_column(wide, "MNLI dev acc.", "mnli", 9815, role="in_domain", chance=1 / 3)]
    for heading, heuristic in CATEGORIES.items():
        for label in ("entailed", "nonent"):
            name = f"{heuristic}, {LABELS[label]}"
            parts.append(_column(wide, f"{heading} ({label})", name, 5000))
    for column in wide.columns:
        if column[:1] in HEURISTICS and column[2:3] == "_":
            parent = f"{HEURISTICS[column[0]]}, {LABELS[column[1]]}"
            parts.append(_column(wide, column, column, 1000, slice_of=parent))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(step=0, model="bert-base", train_set="mnli", metric="accuracy")


def _column(
    wide: pd.DataFrame, column: str, name: str, n: int, *, role: str = "ood", slice_of: str = "", chance: float = 0.5
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "run": wide["Run"],
            "test_set": name,
            "value": wide[column],
            "n": n,
            "role": role,
            "slice_of": slice_of or None,
            "chance": chance,
        }
    )


def pythia(folder: Path) -> pd.DataFrame:
    """Zero-shot accuracy through pretraining; `size` is what runs share that are not independent."""
    table = pd.read_csv(folder / "pythia_evals.csv")
    table = table[table["prompting"] == "zero-shot"].drop_duplicates(["version", "model", "step", "task"])
    chance = 1 / table["task"].map(CHOICES)
    size = table["model"].str.removesuffix("-deduped").str.removesuffix("-bf16")
    return pd.DataFrame(
        {
            "run": table["model"] + "-" + table["version"],
            "size": size,
            "step": table["step"],
            "test_set": table["task"].str.removesuffix("_openai"),
            "value": table["acc"],
            "n": table["task"].map(PYTHIA_SIZES),
            "role": table["task"].eq("lambada_openai").map({True: "in_domain", False: "ood"}),
            "chance": chance.fillna(0.0),  # LAMBADA: any word
            "train_set": "the Pile",
            "metric": "accuracy",
        }
    ).sort_values(["run", "step", "test_set"], ignore_index=True)


def olmo(folder: Path) -> pd.DataFrame:
    """The OLMo scaling ladder."""
    table = pd.read_csv(folder / "olmo_ladder.csv.gz").rename(columns={"model": "size"})
    return table.assign(train_set="OLMo mix", metric="accuracy")


def clip(folder: Path) -> pd.DataFrame:
    """CLIP fine-tuned on ImageNet; the points of WiSE-FT's interpolation are left out."""
    table = pd.read_csv(folder / "clip_finetune_wiseft.csv")
    return table[table["part"] == "finetune"].drop(columns=["part", "aug"]).assign(metric="accuracy")


def timm(folder: Path) -> pd.DataFrame:
    """Image models with all six scores, one checkpoint each."""
    table = pd.read_csv(folder / "timm_imagenet_6sets.csv").dropna(subset=["value"])
    complete = table.groupby("run")["test_set"].transform("nunique") == table["test_set"].nunique()
    architecture = table["run"].str.extract(r"^(?:tf_)?([a-z]+)", expand=False)  # tf_efficientnet_b0.in1k: efficientnet
    chance = table["role"].map({"in_domain": 1 / 1000})  # some of the other sets have fewer classes
    return table.assign(metric="accuracy", architecture=architecture, chance=chance)[complete]


MADE = {"bert-hans": bert_hans, "pythia": pythia, "olmo": olmo, "clip": clip, "timm": timm}


def main() -> int:
    folder = Path(sys.argv[1])
    for name, make in MADE.items():
        path = TARGET / f"{name}.parquet"
        make(folder).reset_index(drop=True).to_parquet(path, compression="zstd", compression_level=19, index=False)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The demo, repeated with other seeds: does its finding stand, and what does it cost?

    oodles demo --out runs/demo-4                                     a repetition; others with --set "grid.seeds=..."
    python -m benchmarks.demo --keep 4 --out runs/demo-4 --cpu 1100 --wall 600 --peak 1.6
                                                                      its scores and cost into benchmarks/demo/
    python -m benchmarks.demo --power                                 how many runs it takes, from the first round
    python -m benchmarks.demo --table                                 what was kept, into docs/opinions.md

The seeds are those of `demo_seeds.json`, which was committed before a run with any of them was started; the demo was
tuned with others.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import oodles as oo
from benchmarks.statistics import put_into, save
from oodles.stats.analysis import Analysis

FOLDER = Path(__file__).parent
KEPT = FOLDER / "demo"
PAGE = FOLDER.parent / "docs" / "opinions.md"
MARKS = ("<!-- {}: begin -->", "<!-- {}: end -->")
COLUMNS = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n", "chance"]
METRICS = ("accuracy", "auc", "share:Yes", "share:No")
CLEAR = 0.05
SIZES, DRAWS = (6, 8, 9, 10, 12), 100
TFLOP = 4.93  # of one run, by the dry run
NO_RECORDS = "no per-example records"  # true of what is kept here, not of the demo


def seeds(which: str = "") -> dict[int, list[int]]:
    """Of each repetition, of one round or of both."""
    told = json.loads((FOLDER / "demo_seeds.json").read_text())
    rounds = [which] if which else ["first_round", "second_round"]
    return {int(number): list(each) for name in rounds for number, each in told[name].items()}


def keep(number: int, out: Path, cost: dict[str, float]) -> None:
    """Scores and cost of a finished repetition."""
    table = oo.read_runs(out)
    found = sorted(int(seed) for seed in table["seed"].unique())
    if found != seeds()[number]:
        raise SystemExit(f"{out} has the seeds {found}, expected {seeds()[number]} of repetition {number}")
    scored = table.loc[table["metric"] == "accuracy"].groupby("run").size()
    if scored.min() < table["step"].nunique() * table["test_set"].nunique():
        raise SystemExit(f"{out}: {scored.idxmin()} is not finished; run the demo there again, then keep it")
    KEPT.mkdir(exist_ok=True)
    table.loc[table["metric"].isin(METRICS), COLUMNS].to_csv(KEPT / f"{number}.csv", index=False)
    save(KEPT / f"{number}.json", {"seeds": found, **cost})


def kept(which: str = "") -> list[int]:
    """The repetitions that are here."""
    return [number for number in seeds(which) if (KEPT / f"{number}.csv").is_file()]


def power(draws: int = DRAWS, seed: int = 0) -> dict[str, float]:
    """How often some of the first round's runs, drawn together, find at least one clear pair; by their number."""
    table = pd.concat([scores(number) for number in kept("first_round")])
    table, runs = table[table["metric"] != "auc"], table["run"].unique()
    draw, found = np.random.default_rng(seed), {}
    for size in SIZES:
        chosen = [table[table["run"].isin(draw.choice(runs, size, replace=False))] for _ in range(draws)]
        hits = [(oo.partial_correlations(one, within=("pooled",)).table["p_holm"] < CLEAR).any() for one in chosen]
        found[str(size)] = float(np.mean(hits))
        print(size, found[str(size)], flush=True)
    return found


def scores(number: int) -> pd.DataFrame:
    """The long table of one repetition."""
    return pd.read_csv(KEPT / f"{number}.csv")


def analysed(number: int) -> Analysis:
    """What the demo would say of one repetition."""
    return oo.analyse(scores(number))


def ends(number: int, metric: str) -> dict[str, float]:
    """Mean score of each set at the last step."""
    table = scores(number)
    last = table[(table["metric"] == metric) & (table["step"] == table["step"].max())]
    return {str(name): float(value) for name, value in last.groupby("test_set", sort=False)["value"].mean().items()}


def clear_pairs(analysis: Analysis) -> pd.DataFrame:
    """The pooled pairs that the verdict counts."""
    pairs = analysis.result.table
    return pairs[(pairs["within"] == "pooled") & (pairs["p_holm"] < CLEAR)]


def markdown(which: str) -> str:
    """The repetitions of a round: verdicts, the clear pairs, the last step and the cost."""
    parts = []
    for number in kept(which):
        analysis = analysed(number)
        own = ", ".join(map(str, seeds()[number]))
        parts.append(f"**Repetition {number}** (seeds {own}). {analysis.verdicts[0].sentence}")
        parts.append(_pairs_told(analysis))
    return "\n\n".join([*parts, _last_step(kept(which)), _costs(kept(which))]) + "\n" if parts else "None yet.\n"


def power_markdown() -> str:
    """What `power` found, with the arithmetic of so many runs."""
    told = json.loads((KEPT / "power.json").read_text())
    rows = [f"| {size} | {share:.2f} | {int(size) * TFLOP:.0f} |" for size, share in told.items()]
    return "\n".join(["| runs | draws with a clear pair | TFLOP |", "|---|---|---|", *rows]) + "\n"


def together() -> str:
    """All runs of the first round in one analysis."""
    table = pd.concat([scores(number) for number in kept("first_round")])
    return f"{_pairs_told(oo.analyse(table))}\n"


def blocks() -> dict[str, str]:
    """Name of a block of the page -> its text."""
    rounds = {name: markdown(name) for name in ("first_round", "second_round")}
    return {**rounds, "power": power_markdown(), "together": together()}


def _pairs_told(analysis: Analysis) -> str:
    """The clear pairs with their own caveats; those that all pairs share are said once, below."""
    pairs = clear_pairs(analysis)
    shared = set.intersection(*map(set, analysis.result.table["caveats"]))
    shared = {said for said in shared if NO_RECORDS not in said}
    rows = [
        f"| `{row.a}` and `{row.b}` | {row.r:.2f} [{row.low:.2f}, {row.high:.2f}] | {row.p_holm:.3f} "
        f"| {'; '.join(said for said in row.caveats if said not in shared and NO_RECORDS not in said) or 'none'} |"
        for row in pairs.itertuples()
    ]
    head = ["| pair | r and interval | p, adjusted | caveats |", "|---|---|---|---|"] if rows else []
    common = f"Of all pairs: {'; '.join(sorted(shared))}." if shared else ""
    return "\n".join([*head, *rows, *([""] if rows else []), common]).strip()


def _last_step(numbers: list[int]) -> str:
    names = list(ends(numbers[0], "accuracy"))
    rows = []
    for number in numbers:
        accuracy, auc = ends(number, "accuracy"), ends(number, "auc")
        rows.append(f"| {number} | " + " | ".join(f"{accuracy[name]:.2f} ({auc[name]:.2f})" for name in names) + " |")
    head = "| repetition | " + " | ".join(f"`{name}`" for name in names) + " |"
    return "\n".join(["Mean accuracy (AUC) at the last step:", "", head, "|---" * (len(names) + 1) + "|", *rows])


def _costs(numbers: list[int]) -> str:
    rows = []
    for number in numbers:
        told: dict[str, Any] = json.loads((KEPT / f"{number}.json").read_text())
        rows.append(f"| {number} | {told['cpu'] / 60:.1f} | {told['wall'] / 60:.1f} | {told['peak']:.2f} |")
    head = "| repetition | CPU minutes | minutes, two cores shared with others | peak memory, GB |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=int, choices=seeds(), help="a finished repetition")
    parser.add_argument("--out", type=Path, help="its folder")
    for name, unit in (("cpu", "seconds"), ("wall", "seconds"), ("peak", "GB")):
        parser.add_argument(f"--{name}", type=float, help=unit)
    parser.add_argument("--power", action="store_true", help="draw from the first round")
    parser.add_argument("--table", action="store_true", help="write the table into docs/opinions.md")
    chosen = parser.parse_args(arguments)
    if chosen.keep:
        keep(chosen.keep, chosen.out, {name: getattr(chosen, name) for name in ("cpu", "wall", "peak")})
    if chosen.power:
        save(KEPT / "power.json", power())
    if chosen.table:
        for name, text in blocks().items():
            put_into(PAGE, text, *(mark.format(name) for mark in MARKS))
    return 0


if __name__ == "__main__":
    sys.exit(main())

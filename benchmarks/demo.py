"""The demo, repeated with other seeds: does its finding stand, and what does it cost?

    oodles demo --out runs/demo-2 --set "grid.seeds=[10, 11, 12, 13, 14, 15]"            a repetition
    python -m benchmarks.demo --keep 2 --out runs/demo-2 --cpu 1500 --wall 800 --peak 1.6
                                                                      its scores and cost into benchmarks/demo/
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

import pandas as pd

import oodles as oo
from benchmarks.statistics import put_into, save
from oodles.stats.analysis import Analysis

FOLDER = Path(__file__).parent
KEPT = FOLDER / "demo"
PAGE = FOLDER.parent / "docs" / "opinions.md"
MARKS = ("<!-- repetitions: begin -->", "<!-- repetitions: end -->")
COLUMNS = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n", "chance"]
METRICS = ("accuracy", "auc", "share:Yes", "share:No")
CLEAR = 0.05
NO_RECORDS = "no per-example records"  # true of what is kept here, not of the demo


def seeds() -> dict[int, list[int]]:
    """Of each repetition."""
    told = json.loads((FOLDER / "demo_seeds.json").read_text())["repetitions"]
    return {int(number): list(each) for number, each in told.items()}


def keep(number: int, out: Path, cost: dict[str, float]) -> None:
    """Scores and cost of a finished repetition."""
    table = oo.read_runs(out)
    found = sorted(int(seed) for seed in table["seed"].unique())
    if found != seeds()[number]:
        raise SystemExit(f"{out} has the seeds {found}, expected {seeds()[number]} of repetition {number}")
    KEPT.mkdir(exist_ok=True)
    table.loc[table["metric"].isin(METRICS), COLUMNS].to_csv(KEPT / f"{number}.csv", index=False)
    save(KEPT / f"{number}.json", {"seeds": found, **cost})


def kept() -> list[int]:
    """The repetitions that are here."""
    return [number for number in seeds() if (KEPT / f"{number}.csv").is_file()]


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


def markdown() -> str:
    """All repetitions: verdicts, the clear pairs, the last step and the cost."""
    parts = []
    for number in kept():
        analysis = analysed(number)
        own = ", ".join(map(str, seeds()[number]))
        parts.append(f"**Repetition {number}** (seeds {own}). {analysis.verdicts[0].sentence}")
        parts.append(_pairs_told(analysis))
    return "\n\n".join([*parts, _last_step(), _costs()]) + "\n"


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


def _last_step() -> str:
    names = list(ends(kept()[0], "accuracy"))
    rows = []
    for number in kept():
        accuracy, auc = ends(number, "accuracy"), ends(number, "auc")
        rows.append(f"| {number} | " + " | ".join(f"{accuracy[name]:.2f} ({auc[name]:.2f})" for name in names) + " |")
    head = "| repetition | " + " | ".join(f"`{name}`" for name in names) + " |"
    return "\n".join(["Mean accuracy (AUC) at the last step:", "", head, "|---" * (len(names) + 1) + "|", *rows])


def _costs() -> str:
    rows = []
    for number in kept():
        told: dict[str, Any] = json.loads((KEPT / f"{number}.json").read_text())
        rows.append(f"| {number} | {told['cpu'] / 60:.1f} | {told['wall'] / 60:.1f} | {told['peak']:.2f} |")
    head = "| repetition | CPU minutes | minutes on a busy machine, one thread | peak memory, GB |"
    return "\n".join([head, "|---|---|---|---|", *rows])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=int, choices=seeds(), help="a finished repetition")
    parser.add_argument("--out", type=Path, help="its folder")
    for name, unit in (("cpu", "seconds"), ("wall", "seconds"), ("peak", "GB")):
        parser.add_argument(f"--{name}", type=float, help=unit)
    parser.add_argument("--table", action="store_true", help="write the table into docs/opinions.md")
    chosen = parser.parse_args(arguments)
    if chosen.keep:
        keep(chosen.keep, chosen.out, {name: getattr(chosen, name) for name in ("cpu", "wall", "peak")})
    if chosen.table:
        put_into(PAGE, markdown(), *MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())

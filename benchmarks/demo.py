"""The demo, repeated with other seeds: does its finding stand, and what does it cost?

    oodles demo --out runs/demo-4                                     a repetition; others with --set "grid.seeds=..."
    python -m benchmarks.demo --keep 4 --out runs/demo-4 --cpu 1100 --wall 600 --peak 1.6
                                                                      its scores, records and cost into benchmarks/demo/
    python -m benchmarks.demo --power                                 how many runs and rows it takes
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
from oodles.stats.doubts import NOISE
from oodles.stats.resample import SIGNIFICANT, holm
from oodles.stats.verdict import DUE
from oodles.store.table import read_records

FOLDER = Path(__file__).parent
KEPT = FOLDER / "demo"
PAGE = FOLDER.parent / "docs" / "opinions.md"
MARKS = ("<!-- {}: begin -->", "<!-- {}: end -->")
ROUNDS = ("first_round", "second_round")
COLUMNS = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n", "chance"]
OUTCOMES = ["run", "step", "test_set", "example", "correct", "item", "stratum"]
METRICS = ("accuracy", "auc", "share:Yes", "share:No")
SIZES, DRAWS = (6, 8, 10, 12), 25
OPENINGS = {"films": (30, 60), "others": (8, 16)}  # of the 60 and the 16 that are scored
COST = {"cpu": "seconds", "wall": "seconds", "peak": "GB", "timed": "runs of which these are; default: all"}
TFLOP = 4.93  # of one run, by the dry run
NO_RECORDS = "no per-example records"  # true of what is kept of the first round, not of the demo


def told() -> dict[str, Any]:
    """What was chosen before."""
    return dict(json.loads((FOLDER / "demo_seeds.json").read_text()))


def seeds(which: str = "") -> dict[int, list[int]]:
    """Of each repetition, of one round or of both."""
    rounds = [which] if which else ROUNDS
    return {int(number): list(each) for name in rounds for number, each in told()[name].items()}


def keep(number: int, out: Path, cost: dict[str, float]) -> None:
    """Scores, per-example outcomes and cost of a finished repetition."""
    table = oo.read_runs(out)
    found = sorted(int(seed) for seed in table["seed"].unique())
    if found != seeds()[number]:
        raise SystemExit(f"{out} has the seeds {found}, expected {seeds()[number]} of repetition {number}")
    scored = table.loc[table["metric"] == "accuracy"].groupby("run").size()
    if scored.min() < table["step"].nunique() * table["test_set"].nunique():
        raise SystemExit(f"{out}: {scored.idxmin()} is not finished; run the demo there again, then keep it")
    KEPT.mkdir(exist_ok=True)
    table.loc[table["metric"].isin(METRICS), COLUMNS].to_csv(KEPT / f"{number}.csv", index=False)
    read_records(out)[OUTCOMES].to_parquet(KEPT / f"{number}.parquet", index=False, compression="zstd")
    save(KEPT / f"{number}.json", {"seeds": found, **cost})


def kept(which: str = "") -> list[int]:
    """The repetitions that are here."""
    return [number for number in seeds(which) if (KEPT / f"{number}.csv").is_file()]


def scores(number: int) -> pd.DataFrame:
    """The long table of one repetition."""
    return pd.read_csv(KEPT / f"{number}.csv")


def outcomes(number: int) -> pd.DataFrame | None:
    """Which examples were answered correctly, run by run and step by step; not kept of the first round."""
    path = KEPT / f"{number}.parquet"
    return pd.read_parquet(path) if path.is_file() else None


def analysed(number: int, without: list[int] | None = None) -> Analysis:
    """What the demo says of one repetition, or of its runs without those of some seeds."""
    table = scores(number)
    return _analysed(table[~table["seed"].isin(without or [])], outcomes(number))


def _analysed(table: pd.DataFrame, records: pd.DataFrame | None) -> Analysis:
    if records is not None:
        records = records[records["run"].isin(table["run"].unique())]
    return oo.analyse(table, records=records)


def pooled(analysis: Analysis) -> pd.DataFrame:
    """The pairs over all runs and steps, which the verdict is about first."""
    pairs = analysis.result.table
    return pairs[pairs["within"] == "pooled"]


def all_together() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores and outcomes of all runs of the second round."""
    numbers = kept("second_round")
    found = [one for one in map(outcomes, numbers) if one is not None]
    return pd.concat([scores(number) for number in numbers]), pd.concat(found)


def power(draws: int = DRAWS, seed: int = 0) -> dict[str, dict[str, float]]:
    """How often some of the second round's runs, drawn together, have a clear pair; by their number.

    `noiseless` is how often they would, had `films` no noise: what more rows of it can give at most.
    """
    table, records = all_together()
    table, runs = table[table["metric"] != "auc"], table["run"].unique()
    draw, found = np.random.default_rng(seed), {}
    for size in SIZES:
        chosen = [table[table["run"].isin(draw.choice(runs, size, replace=False))] for _ in range(draws)]
        results = [_analysed(one, records) for one in chosen]
        found[str(size)] = {
            "clear": float(np.mean([pooled(one)["clear"].any() for one in results])),
            "noiseless": float(np.mean([_without_noise(one).any() for one in results])),
        }
        print(size, found[str(size)], flush=True)
    return found


def _without_noise(analysis: Analysis) -> pd.Series[bool]:
    """The pooled pairs that would be clear if the in-domain scores had no noise."""
    pairs = analysis.result.table
    other = pairs["doubt"].isin([*DUE.keys() - {NOISE}])
    clear = (pd.Series(holm(pairs["p_val"].to_numpy(float)), index=pairs.index) < SIGNIFICANT) & ~other
    return clear[pairs["within"] == "pooled"]


def rows(draws: int = 3, seed: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """Clear pairs and the smallest adjusted p of a repetition, were fewer openings scored; means and medians."""
    draw, found = np.random.default_rng(seed), {}
    for kind, sizes in OPENINGS.items():
        of_kind = {}
        for size in sizes:
            again = 1 if size == sizes[-1] else draws
            cases = [_thinned(number, kind, size, draw) for number in kept("second_round") for _ in range(again)]
            pairs = [pooled(_analysed(*case)) for case in cases]
            of_kind[str(size)] = {
                "clear": float(np.mean([one["clear"].sum() for one in pairs])),
                "some": float(np.mean([one["clear"].any() for one in pairs])),
                "p": float(np.median([one["p_said"].min() for one in pairs])),
            }
            print(kind, size, of_kind[str(size)], flush=True)
        found[kind] = of_kind
    return found


def halves(splits: int = 4, seed: int = 1) -> dict[str, dict[str, float]]:
    """Of each repetition: clear pairs with all openings of `films` and with each half of them, and mean |r|.

    `apart` takes the two residuals of a pair from different halves, which share no noise of `films`; the sign is that
    with all openings.
    """
    draw, found = np.random.default_rng(seed), {}
    for number in kept("second_round"):
        table, records = scores(number), outcomes(number)
        assert records is not None, f"repetition {number} has no records"
        whole = _analysed(table, records)
        own = pooled(whole).set_index(["a", "b"])
        items = records.loc[records["test_set"] == "films", "item"].unique()
        clear, halved, apart = [], [], []
        for _ in range(splits):
            order = draw.permutation(items)
            parts = [_of_items(table, records, half) for half in (order[:30], order[30:])]
            results = [_analysed(*part) for part in parts]
            left = [_residuals(one) for one in results]
            clear += [int(pooled(one)["clear"].sum()) for one in results]
            for (a, b), row in own.iterrows():
                crossed = np.mean([one[a].corr(other[b]) for one, other in (left, left[::-1])])
                within = np.mean([one[a].corr(one[b]) for one in left])
                halved.append(float(np.sign(row["r"]) * within))
                apart.append(float(np.sign(row["r"]) * crossed))
        found[str(number)] = {
            "all": int(own["clear"].sum()),
            "half": float(np.mean(clear)),
            "least": min(clear),
            "most": max(clear),
            "r": float(own["r"].abs().mean()),
            "r_half": float(np.mean(halved)),
            "r_apart": float(np.mean(apart)),
        }
        print(number, found[str(number)], flush=True)
    return found


def _residuals(analysis: Analysis) -> pd.DataFrame:
    """Of the pooled fits: runs and steps down, sets across."""
    residuals = analysis.result.residuals
    return residuals[residuals["within"] == "pooled"].pivot(
        index=["run", "step"], columns="test_set", values="residual"
    )


def _thinned(number: int, kind: str, size: int, draw: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One repetition, with some openings (both twins of each) of `films` or of every other set."""
    table, records = scores(number), outcomes(number)
    assert records is not None, f"repetition {number} has no records"
    parts = []
    for name, own in records.groupby("test_set", sort=False):
        items = own["item"].unique()
        some = draw.choice(items, size, replace=False) if (name == "films") == (kind == "films") else items
        parts.append(own[own["item"].isin(some)])
    return _counted_anew(table, pd.concat(parts))


def _of_items(table: pd.DataFrame, records: pd.DataFrame, items: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One repetition with these openings of `films`."""
    return _counted_anew(table, records[(records["test_set"] != "films") | records["item"].isin(items)])


def _counted_anew(table: pd.DataFrame, records: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Accuracy as these records have it."""
    means = records.groupby(["run", "step", "test_set"])["correct"].agg(value="mean", n="size").reset_index()
    accuracy = table[table["metric"] == "accuracy"].drop(columns=["value", "n"])
    accuracy = accuracy.merge(means, on=["run", "step", "test_set"], validate="one_to_one")
    return pd.concat([accuracy, table[table["metric"].str.startswith("share")]]), records


def ends(number: int, metric: str) -> dict[str, float]:
    """Mean score of each set at the last step."""
    table = scores(number)
    last = table[(table["metric"] == metric) & (table["step"] == table["step"].max())]
    return {str(name): float(value) for name, value in last.groupby("test_set", sort=False)["value"].mean().items()}


def markdown(which: str) -> str:
    """The repetitions of a round: verdicts, the pairs that stand out, the last step and the cost."""
    parts = []
    for number in kept(which):
        analysis = analysed(number)
        own = ", ".join(map(str, seeds()[number]))
        parts.append(f"**Repetition {number}** (seeds {own}). {analysis.verdicts[0].sentence}")
        parts.append(_pairs_told(analysis))
    return "\n\n".join([*parts, _last_step(kept(which)), _costs(kept(which))]) + "\n" if parts else "None yet.\n"


def summary() -> str:
    """The clear pairs of the second round: of all runs of a repetition, and of those not analysed early."""
    early, lines = told()["analysed_early"], []
    for number in kept("second_round"):
        new = [seed for seed in seeds()[number] if seed not in early]
        rest = int(pooled(analysed(number, early))["clear"].sum())
        lines.append(f"| {number} | {_clear(analysed(number))} | {rest} ({len(new)} runs) |")
    head = ["| repetition | clear pairs, r and interval | clear without the runs analysed early |", "|---|---|---|"]
    legend = (
        f"Last column: {len(early)} of the {sum(len(own) for own in seeds('second_round').values())} runs were analysed"
        " before the others were begun (why: [second round](#second-round-twelve-runs)). They are not quite blind, so"
        " this is how many pairs are clear without them."
    )
    return "\n".join([*head, *lines, "", legend]) + "\n" if lines else "None yet.\n"


def _clear(analysis: Analysis) -> str:
    pairs = pooled(analysis)
    return "; ".join(f"`{row.a}` and `{row.b}` {_r(row)}" for row in pairs[pairs["clear"]].itertuples()) or "none"


def _p(value: float) -> str:
    return "not tested" if np.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def _r(row: Any) -> str:
    return f"{row.r:.2f} [{row.low:.2f}, {row.high:.2f}]"


def power_markdown() -> str:
    """What `power` found, with the arithmetic of so many runs."""
    found = json.loads((KEPT / "power.json").read_text())["runs"]
    lines = [
        f"| {size} | {one['clear']:.2f} | {one['noiseless']:.2f} | {int(size) * TFLOP:.0f} |"
        for size, one in found.items()
    ]
    head = "| runs | draws with a clear pair | the same, had `films` no noise | TFLOP |"
    return "\n".join([head, "|---|---|---|---|", *lines]) + "\n"


def rows_markdown() -> str:
    """What `rows` found."""
    found = json.loads((KEPT / "power.json").read_text())["rows"]
    lines = [
        f"| {2 * int(size)} of {'`films`' if kind == 'films' else 'each other set'} | {one['some']:.2f} "
        f"| {one['clear']:.1f} | {one['p']:.4f} |"
        for kind, of_kind in found.items()
        for size, one in of_kind.items()
    ]
    head = "| rows scored | share with a clear pair | clear pairs, mean | smallest p, adjusted, median |"
    return "\n".join([head, "|---|---|---|---|", *lines]) + "\n"


def halves_markdown() -> str:
    """What `halves` found."""
    found = json.loads((KEPT / "power.json").read_text())["halves"]
    lines = [
        f"| {number} | {one['all']} | {one['half']:.1f} ({one['least']} to {one['most']}) | {one['r']:.2f} "
        f"| {one['r_half']:.2f} | {one['r_apart']:.2f} |"
        for number, one in found.items()
    ]
    columns = ("repetition", "clear, 120 rows", "clear, 60 rows", "mean r, 120 rows", "60 rows", "halves apart")
    head = f"| {' | '.join(columns)} |"
    return "\n".join([head, "|---|---|---|---|---|---|", *lines]) + "\n"


def together() -> str:
    """All runs of the second round in one analysis."""
    return f"{_pairs_told(_analysed(*all_together()))}\n"


def blocks() -> dict[str, str]:
    """Name of a block of the page -> its text."""
    found = {"summary": summary(), **{name: markdown(name) for name in ROUNDS}}
    return {
        **found,
        "power": power_markdown(),
        "rows": rows_markdown(),
        "halves": halves_markdown(),
        "together": together(),
    }


def _pairs_told(analysis: Analysis) -> str:
    """The significant pairs with their own caveats; those that all pairs share are said once, below."""
    pairs = pooled(analysis)
    pairs = pairs[(pairs["p_holm"] < SIGNIFICANT) | (pairs["p_said"] < SIGNIFICANT)]
    shared = set.intersection(*map(set, analysis.result.table["caveats"]))
    shared = {said for said in shared if NO_RECORDS not in said}
    lines = [
        f"| `{row.a}` and `{row.b}` | {_r(row)} | {_p(row.p_holm)} | {_p(row.p_said)} | {'yes' if row.clear else 'no'} "
        f"| {'; '.join(said for said in row.caveats if said not in shared and NO_RECORDS not in said) or 'none'} |"
        for row in pairs.itertuples()
    ]
    columns = (
        "pair",
        "r and interval",
        "p, over pairs",
        "p, beyond noise, over all tests",
        "clear",
        "caveats",
    )
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"] if lines else []
    common = f"Of all pairs: {'; '.join(sorted(shared))}." if shared else ""
    return "\n".join([*head, *lines, *([""] if lines else []), common]).strip()


def _last_step(numbers: list[int]) -> str:
    names = list(ends(numbers[0], "accuracy"))
    lines = []
    for number in numbers:
        accuracy, auc = ends(number, "accuracy"), ends(number, "auc")
        lines.append(f"| {number} | " + " | ".join(f"{accuracy[name]:.2f} ({auc[name]:.2f})" for name in names) + " |")
    head = "| repetition | " + " | ".join(f"`{name}`" for name in names) + " |"
    return "\n".join(["Mean accuracy (AUC) at the last step:", "", head, "|---" * (len(names) + 1) + "|", *lines])


def _costs(numbers: list[int]) -> str:
    lines = []
    for number in numbers:
        cost: dict[str, Any] = json.loads((KEPT / f"{number}.json").read_text())
        runs, timed = len(cost["seeds"]), int(cost.get("timed", len(cost["seeds"])))
        lines.append(
            f"| {number} | {timed} of {runs} | {cost['cpu'] / 60:.1f} | {cost['wall'] / 60:.1f} | {cost['peak']:.2f} |"
        )
    head = "| repetition | runs timed | CPU minutes | minutes, two cores shared with others | peak memory, GB |"
    return "\n".join([head, "|---|---|---|---|---|", *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=int, choices=seeds(), help="a finished repetition")
    parser.add_argument("--out", type=Path, help="its folder")
    for name, unit in COST.items():
        parser.add_argument(f"--{name}", type=float, help=unit)
    parser.add_argument("--power", action="store_true", help="draw runs and rows from the second round")
    parser.add_argument("--table", action="store_true", help="write the tables into docs/opinions.md")
    chosen = parser.parse_args(arguments)
    if chosen.keep:
        cost = {name: getattr(chosen, name) for name in COST if getattr(chosen, name) is not None}
        keep(chosen.keep, chosen.out, cost)
    if chosen.power:
        save(KEPT / "power.json", {"runs": power(), "rows": rows(), "halves": halves()})
    if chosen.table:
        for name, text in blocks().items():
            put_into(PAGE, text, *(mark.format(name) for mark in MARKS))
    return 0


if __name__ == "__main__":
    sys.exit(main())

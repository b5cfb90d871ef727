"""The numbers of docs/findings.md, from the figures that ship.

python -m benchmarks.findings            writes them into docs/findings.md, and the figures beside it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import oodles as oo
from oodles.api.findings import findings
from oodles.stats.analysis import Analysis
from oodles.stats.answers import Answer

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "findings.md"


def pairs(analysis: Analysis, least: float = 0.0, within: str = "") -> str:
    """The pairs with their interval and adjusted p, strongest first; weaker ones than `least` are counted."""
    table = analysis.result.table
    table = table[table["within"] == (within or table["within"].iloc[0])]
    table = table.loc[table["r"].abs().sort_values(ascending=False, kind="stable").index]
    rows = ["| pair | r | 95 % interval | p (Holm) | runs |", "|---|---:|---|---:|---:|"]
    told = 0
    for row in table.to_dict("records"):
        if abs(row["r"]) >= least:
            told += 1
            p_val = "<0.001" if row["p_holm"] < 0.001 else f"{row['p_holm']:.3f}"
            span = f"{row['low']:+.2f} to {row['high']:+.2f}"
            rows.append(f"| {row['a']} ~ {row['b']} | {row['r']:+.2f} | {span} | {p_val} | {row['n_runs']} |")
    rest = len(table) - told
    return "\n".join(rows) + (f"\n\nThe other {rest} pairs: |r| below {least:g}." if rest else "")


def one(analysis: Analysis, a: str, b: str, within: str = "run") -> str:
    """One pair in words."""
    table = analysis.result.table
    rows = table[(table["within"] == within) & (table["a"].isin([a, b])) & (table["b"].isin([a, b]))]
    row = rows.iloc[0]
    return f"{row['r']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}]"


def spaced(table: Any, count: int, log: bool) -> Any:
    """`count` steps of every run, spaced evenly or by their logarithm."""
    kept = []
    for _, run in table.groupby("run"):
        steps = np.sort(run["step"].unique())
        at = np.geomspace(1, len(steps), count) - 1 if log else np.linspace(0, len(steps) - 1, count)
        kept.append(run[run["step"].isin(steps[np.unique(at.round().astype(int))])])
    return pd.concat(kept)


def blocks() -> dict[str, str]:
    """Every generated block of the page by its name."""
    bert, pythia = oo.analyse("bert-hans"), oo.analyse("pythia")
    made = {"bert-hans": _said(bert) + pairs(bert), "pythia": _said(pythia) + pairs(pythia, least=0.1)}
    runs = oo.analyse("pythia", unit="run")
    made["pythia-runs"] = _said(runs) + pairs(runs, least=0.1)
    olmo = findings()["olmo"].table()
    chosen: dict[str, Any] = {"by": (), "test_sets": ["arc_challenge", "piqa"]}
    late = olmo[olmo["step"] > 0.2 * olmo.groupby("run")["step"].transform("max")]
    rows = [
        (
            "14 steps, spaced by their logarithm",
            one(oo.analyse(spaced(olmo, 14, True), **chosen), "arc_challenge", "piqa", "pooled"),
        ),
        (
            "14 steps, spaced evenly",
            one(oo.analyse(spaced(olmo, 14, False), **chosen), "arc_challenge", "piqa", "pooled"),
        ),
        ("all steps", one(oo.analyse(olmo, **chosen), "arc_challenge", "piqa", "pooled")),
        ("the last 80 % of the steps, within runs", one(oo.analyse(late, **chosen), "arc_challenge", "piqa", "run")),
    ]
    made["olmo"] = _rows("steps evaluated", "ARC-challenge ~ PIQA, given HellaSwag", rows)
    same = {"test_sets": ["ImageNetA", "ImageNetR"], "within": ["run"]}
    made["clip"] = _rows(
        "the step 0 that runs share",
        "ImageNet-A ~ ImageNet-R within runs",
        [
            (how, one(oo.analyse("clip", shared_start=how, **same), "ImageNetA", "ImageNetR"))
            for how in ("keep", "drop")
        ],
    )
    made["timm"] = _rows(
        "method, unit",
        "ImageNet-A ~ ImageNet-ReaL",
        [
            (
                f"{method}, {unit}",
                one(oo.analyse("timm", method=method, unit=unit), "imagenet-a", "imagenet-real", "pooled"),
            )
            for method in ("gam", "probit-linear")
            for unit in ("run", "architecture")
        ],
    )
    made |= further()
    made["coverage"] = _coverage(json.loads((ROOT / "benchmarks" / "results.json").read_text())["real_coverage"])
    return made


def further() -> dict[str, str]:
    """The claim on timm, and what other choices make of the findings."""
    answer = oo.analyse("timm", across="architecture").claim
    assert answer is not None
    told = "".join(f"> {sentence}\n\n" for sentence in answer.sentences)
    rows = [
        f"| {row['a']} ~ {row['b']} | {row['r']:+.2f} | {row['tau']:.2f} [{row['tau_low']:.2f}, {row['tau_high']:.2f}] "
        f"| {row['predicted_low']:+.2f} to {row['predicted_high']:+.2f} | {_p(row['p_holm'])} | {row['levels']} |"
        for row in answer.tables["claim"].to_dict("records")
    ]
    head = ["| pair | mean r | sd of z over architectures | a new architecture | p (Holm) | architectures |"]
    made = {"timm-claim": told + "\n".join([*head, "|---|---:|---|---|---:|---:|", *rows])}
    said = []
    for name in ("clip", "olmo", "pythia", "timm"):
        found = oo.analyse(name, sensitivity=True).answers["sensitivity"]
        said.append(f"- `{name}`: {' '.join(found.sentences)}{_arc_and_piqa(found) if name == 'olmo' else ''}")
    made["sensitivity"] = "\n".join(said)
    return made


def _arc_and_piqa(found: Answer) -> str:
    """The pair of the table above, under all choices."""
    rows = found.tables["sensitivity_pairs"]
    row = rows[(rows["a"] == "arc_challenge") & (rows["b"] == "piqa")].iloc[0]
    return (
        f" arc_challenge ~ piqa: {row['r']:+.2f} by default, {row['lowest']:+.2f} by {row['lowest_by']},"
        f" {row['highest']:+.2f} by {row['highest_by']}; clear with the sign of the default in {row['same_clear']},"
        f" of the other sign in {row['other_sign']}."
    )


def _p(value: float) -> str:
    return "not tested" if np.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def _said(analysis: Analysis) -> str:
    return "".join(f"> {verdict.sentence}\n\n" for verdict in analysis.verdicts)


def _rows(first: str, second: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {first} | {second} |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def _coverage(found: dict[str, Any]) -> str:
    head = "| runs drawn | as given, % | finite population, % | lowest and highest pair, % | half width |"
    rows = [
        f"| {size} | {100 * c['covered']:.1f} | {100 * c['covered_finite']:.1f} | {100 * c['lowest_pair']:.1f} to "
        f"{100 * c['highest_pair']:.1f} | {c['half_width']:.2f} |"
        for size, c in found["cells"].items()
    ]
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def filled(page: str, made: dict[str, str]) -> str:
    """The page with its generated blocks replaced."""
    for name, text in made.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        assert rest, f"docs/findings.md has no block {name}"
        page = f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
    return page


def main() -> int:
    PAGE.write_text(filled(PAGE.read_text(), blocks()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

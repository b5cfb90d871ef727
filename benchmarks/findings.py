"""The numbers and figures of docs/findings.md and docs/findings/, from the tables that ship.

python -m benchmarks.findings            writes them into the pages, and the figures beside them
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba, to_rgba_array
from matplotlib.figure import Figure
from PIL import Image

import oodles as oo
from oodles.api.findings import findings
from oodles.show.answers import plot_specifications
from oodles.stats.analysis import Analysis
from oodles.stats.answers import Answer
from oodles.stats.verdict import DUE, WAYS, Verdict, in_doubt

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "findings.md"
PAGES = PAGE.with_suffix("")  # a folder with a page for each finding

Blocks = dict[str, str]


def pairs(analysis: Analysis, least: float = 0.0, within: str = "") -> str:
    """The pairs with their interval and both adjusted p, strongest first; weaker ones than `least` are counted."""
    table = analysis.result.table
    within = within or str(table["within"].iloc[0])
    table = table[table["within"] == within]
    table = table.loc[table["r"].abs().sort_values(ascending=False, kind="stable").index]
    head = f"| pair | r, {WAYS[within]} | 95 % interval | p over pairs | p of the verdict | counted | runs |"
    rows = [head, "|---|---:|---|---:|---:|---|---:|"]
    told = 0
    for row in table.to_dict("records"):
        if abs(row["r"]) >= least:
            told += 1
            span = f"{row['low']:+.2f} to {row['high']:+.2f}"
            tests = f"{_p(row['p_holm'])} | {_p(row['p_said'])} | {'yes' if row['clear'] else 'no'}"
            rows.append(f"| {row['a']} ~ {row['b']} | {row['r']:+.2f} | {span} | {tests} | {row['n_runs']} |")
    rest = len(table) - told
    legend = (
        "*p over pairs*: Holm's adjustment. *p of the verdict*: beyond noise of the in-domain set, adjusted over all"
    )
    text = [f"The other {rest} pairs: |r| below {least:g}."] if rest else []
    return (
        "\n".join(rows)
        + "\n\n"
        + " ".join([*text, f"{legend} [tests reported](../statistics.md#intervals-and-tests)."])
    )


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


# the pages


def index() -> Blocks:
    """A line for each finding: what it is, and its verdict's first sentence."""
    rows = ["| finding | question | answer |", "|---|---|---|"]
    for name, finding in findings().items():
        page = f"findings/{name}.md" if (PAGES / f"{name}.md").is_file() else f"{name}.md"
        told = oo.analyse(name).verdicts
        short = told[0].short if len(told) == 1 else " ".join(f"*{_group(one)}*: {one.short}" for one in told)
        if finding.packed:
            short = f"By accuracy: {short} {_by_auc(name)}"
        rows.append(f"| [`{name}`]({page}) | {finding.question} | {short} |")
    return {"index": "\n".join(rows)}


def _by_auc(name: str) -> str:
    """How many pairs the verdict counts by AUC, which does not know how often an answer is given."""
    analysis = oo.analyse(name, metric="auc")
    table = analysis.result.table
    pairs = table[table["within"] == "pooled"]
    by = [str(column) for column in pairs.columns[: list(pairs.columns).index("a")]]
    counted = [
        f"{row['a']} ~ {row['b']} in *{', '.join(str(row[column]) for column in by)}*"
        for row in pairs[pairs["clear"]].to_dict("records")
    ]
    named = f" ({'; '.join(counted)})" if counted else ""
    verb = "is" if len(counted) == 1 else "are"
    return f"By AUC, of the {len(pairs)} pairs of all groups, pooled, {len(counted)} {verb} counted{named}."


def _group(verdict: Verdict) -> str:
    return ", ".join(verdict.group.values())


def bert_hans() -> Blocks:
    bert = oo.analyse("bert-hans")
    found = json.loads((ROOT / "benchmarks" / "results.json").read_text())["real_coverage"]
    return {"bert-hans": _said(bert) + pairs(bert), "coverage": _coverage(found)}


def pythia() -> Blocks:
    sizes, runs = oo.analyse("pythia"), oo.analyse("pythia", unit="run")
    made = {"pythia": _said(sizes) + pairs(sizes, least=0.1), "pythia-runs": _said(runs) + pairs(runs, least=0.1)}
    return made | {"pythia-sensitivity": _choices("pythia")}


def olmo() -> Blocks:
    table, everything = findings()["olmo"].table(), oo.analyse("olmo")
    chosen: dict[str, Any] = {"by": (), "test_sets": ["arc_challenge", "piqa"]}
    late = table[table["step"] > 0.2 * table.groupby("run")["step"].transform("max")]
    ways = {
        "14 steps, spaced by their logarithm": (spaced(table, 14, True), "pooled"),
        "14 steps, spaced evenly": (spaced(table, 14, False), "pooled"),
        "all steps": (table, "pooled"),
        "the last 80 % of the steps": (late, "pooled"),
        "all steps, within runs": (table, "run"),
        "the last 80 % of the steps, within runs": (late, "run"),
    }
    rows = []
    for name, (kept, way) in ways.items():
        analysis = oo.analyse(kept, **chosen)
        rows.append((name, f"{one(analysis, 'arc_challenge', 'piqa', way)} | {_counted(analysis, way)}"))
    head = ["| steps evaluated | ARC-challenge ~ PIQA, given HellaSwag | counted by the verdict |", "|---|---|---|"]
    answer = sensitivity("olmo")
    said = " ".join(answer.sentences) + _arc_and_piqa(answer)
    return {
        "olmo": "\n".join([*head, *(f"| {a} | {b} |" for a, b in rows)]),
        "olmo-pairs": _said(everything) + pairs(everything, least=0.3),
        "olmo-levels": _levels_of_olmo(table),
        "olmo-unit": _units(everything, oo.analyse("olmo", unit="size")),
        "olmo-sensitivity": said,
    }


def _units(*analyses: Analysis) -> str:
    """What becomes of all pairs under one unit and another."""
    columns = "significant | in doubt | counted"
    rows = [f"| unit | units | pooled: {columns} | within runs: {columns} |"]
    rows += ["|---|" + "---:|" * 7]
    for analysis in analyses:
        cells = [str(analysis.result.settings["unit"] or "run"), str(analysis.result.table["n_units"].max())]
        for way in ("pooled", "run"):
            own = analysis.result.table[analysis.result.table["within"] == way]
            cells += [str(count) for count in ((own["p_holm"] < 0.05).sum(), in_doubt(own).sum(), own["clear"].sum())]
        rows.append(f"| {' | '.join(cells)} |")
    legend = "*Significant*: after Holm's adjustment over the pairs. *In doubt*: another explanation is named."
    return "\n".join([*rows, "", legend])


def _counted(analysis: Analysis, within: str) -> str:
    """Whether the verdict counts the only pair, and if not, why."""
    table = analysis.result.table
    row = table[table["within"] == within].iloc[0]
    return "yes" if row["clear"] else f"no, may be due to {DUE[row['doubt']]}" if row["doubt"] else "no"


def _levels_of_olmo(table: pd.DataFrame) -> str:
    """Mean accuracy by the part of the training that is done."""
    shown = {"hellaswag": "HellaSwag", "piqa": "PIQA", "arc_challenge": "ARC-challenge"}
    done = table["step"] / table.groupby("run")["step"].transform("max")
    parts = {"the first 1 %": (0, 0.01), "1 to 10 %": (0.01, 0.1), "10 to 50 %": (0.1, 0.5), "50 to 100 %": (0.5, 1)}
    rows = ["| steps done | " + " | ".join(shown.values()) + " |", "|---|---:|---:|---:|"]
    for name, (low, high) in parts.items():
        mean = table[(done > low) & (done <= high)].groupby("test_set")["value"].mean()
        rows.append(f"| {name} | " + " | ".join(f"{mean[key]:.3f}" for key in shown) + " |")
    return "\n".join(rows)


def clip() -> Blocks:
    rows = []
    for how in ("keep", "drop"):
        analysis = oo.analyse("clip", shared_start=how, test_sets=["ImageNetA", "ImageNetR"])
        rows.append((how, " | ".join(one(analysis, "ImageNetA", "ImageNetR", way) for way in ("run", "pooled"))))
    head = ["| the step 0 that runs share | ImageNet-A ~ ImageNet-R within runs | pooled |", "|---|---|---|"]
    everything, table = oo.analyse("clip"), findings()["clip"].table()
    means = table[table["step"] <= 1].groupby(["step", "test_set"])["value"].mean().unstack()
    levels = [f"| | {' | '.join(means.columns)} |", "|---|" + "---:|" * len(means.columns)]
    levels += [f"| step {step} | {' | '.join(f'{value:.3f}' for value in row)} |" for step, row in means.iterrows()]
    return {
        "clip": "\n".join([*head, *(f"| {a} | {b} |" for a, b in rows)]),
        "clip-pairs": _said(everything) + pairs(everything, within="run"),
        "clip-levels": "\n".join(levels),
        "clip-sensitivity": _choices("clip"),
    }


def timm() -> Blocks:
    everything = oo.analyse("timm")
    rows = [
        (
            f"{method}, {unit}",
            one(oo.analyse("timm", method=method, unit=unit), "imagenet-a", "imagenet-real", "pooled"),
        )
        for method in ("gam", "probit-linear")
        for unit in ("run", "architecture")
    ]
    return {
        "timm": _rows("method, unit", "ImageNet-A ~ ImageNet-ReaL", rows),
        "timm-pairs": _said(everything) + pairs(everything),
        "timm-claim": _claim_of_timm(),
        "timm-sensitivity": _choices("timm"),
    }


def _claim_of_timm() -> str:
    answer = oo.analyse("timm", across="architecture").claim
    assert answer is not None
    told = "".join(f"> {sentence}\n\n" for sentence in answer.sentences)
    rows = [
        f"| {row['a']} ~ {row['b']} | {row['r']:+.2f} | {row['tau']:.2f} [{row['tau_low']:.2f}, {row['tau_high']:.2f}] "
        f"| {row['predicted_low']:+.2f} to {row['predicted_high']:+.2f} | {_p(row['p_holm'])} | {row['levels']} |"
        for row in answer.tables["claim"].to_dict("records")
    ]
    head = ["| pair | mean r | sd of z over architectures | a new architecture | p (Holm) | architectures |"]
    return told + "\n".join([*head, "|---|---:|---|---|---:|---:|", *rows])


@cache
def sensitivity(name: str) -> Answer:
    """What all choices make of a finding."""
    return oo.analyse(name, sensitivity=True).answers["sensitivity"]


def _choices(name: str) -> str:
    return " ".join(sensitivity(name).sentences)


def _arc_and_piqa(found: Answer) -> str:
    """The pair of the table above, under all choices."""
    rows = found.tables["sensitivity_pairs"]
    row = rows[(rows["a"] == "arc_challenge") & (rows["b"] == "piqa")].iloc[0]
    return (
        f" arc_challenge ~ piqa: {row['r']:+.2f} by default, {row['lowest']:+.2f} by {row['lowest_by']},"
        f" {row['highest']:+.2f} by {row['highest_by']}; significant with the sign of the default in"
        f" {row['same_clear']}; of the other sign in {row['other_sign']}, {row['other_clear']} of them significant."
    )


def _p(value: float) -> str:
    return "not tested" if np.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def _said(analysis: Analysis) -> str:
    return "".join(f"> {verdict.sentence}\n\n" for verdict in analysis.verdicts)


def _rows(first: str, second: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([f"| {first} | {second} |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def _coverage(found: dict[str, Any]) -> str:
    head = "| runs drawn | draws | as given, % | finite population, % | lowest and highest pair, % | half width |"
    rows = [
        f"| {size} | {c['draws']:,} | {100 * c['covered']:.1f} | {100 * c['covered_finite']:.1f} | "
        f"{100 * c['lowest_pair']:.1f} to {100 * c['highest_pair']:.1f} | {c['half_width']:.2f} |"
        for size, c in found["cells"].items()
    ]
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


NUMBERS: dict[Path, Callable[[], Blocks]] = {
    PAGE: index,
    PAGES / "bert-hans.md": bert_hans,
    PAGES / "pythia.md": pythia,
    PAGES / "olmo.md": olmo,
    PAGES / "clip.md": clip,
    PAGES / "timm.md": timm,
}


def filled(page: str, made: Blocks) -> str:
    """The page with its generated blocks replaced."""
    for name, text in made.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        assert rest, f"the page has no block {name}"
        page = f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
    return page


# the figures; that of bert-hans is a screenshot of its report, made by tests/test_page.py


def _pythia_figure() -> Figure:
    return oo.plot_correlations(oo.analyse("pythia").result, within="run")


def _olmo_figure() -> Figure:
    return plot_specifications(sensitivity("olmo"), ("arc_challenge", "piqa"))[0][0]


def _clip_figure(how: str) -> Figure:
    analysis = oo.analyse("clip", shared_start=how, test_sets=["ImageNetA", "ImageNetR"], within=["run"])
    return oo.plot_residuals(analysis.result, "ImageNetA", "ImageNetR")


def _timm_figure() -> Figure:
    analysis = oo.analyse("timm", test_sets=["imagenet-a", "imagenet-real"])
    return oo.plot_fits(analysis.result, findings()["timm"].table())


FIGURES: dict[Path, Callable[[], Figure]] = {
    PAGES / "pythia.png": _pythia_figure,
    PAGES / "olmo.png": _olmo_figure,
    PAGES / "clip-keep.png": lambda: _clip_figure("keep"),
    PAGES / "clip-drop.png": lambda: _clip_figure("drop"),
    PAGES / "timm.png": _timm_figure,
}


def drawn(figure: Figure) -> dict[str, list[Any]]:
    """What a figure shows: its words, the points of its lines and shapes to three digits, and their colours."""
    words: list[str] = []
    numbers: list[float] = []
    colours: list[float] = []
    for ax in figure.axes:
        words += [ax.get_title(loc="left"), ax.get_title(), ax.get_xlabel(), ax.get_ylabel()]
        words += [text.get_text() for text in ax.texts]
        for line in ax.lines:
            numbers += [round(float(value), 3) for axis in line.get_data() for value in np.asarray(axis, dtype=float)]
            colours += _rounded(to_rgba(line.get_color()))
        for patch in ax.patches:
            corners = patch.get_path().transformed(patch.get_patch_transform()).vertices
            numbers += [round(float(value), 3) for value in np.ravel(corners)]
            colours += _rounded(to_rgba(patch.get_facecolor()))
        for collection in ax.collections:
            places, values = collection.get_offsets(), collection.get_array()
            numbers += [round(float(value), 3) for value in np.ravel(places)]
            numbers += [] if values is None else [round(float(value), 3) for value in np.ravel(values)]
            colours += [part for colour in to_rgba_array(collection.get_facecolor()) for part in _rounded(colour)]
    return {"words": [word for word in words if word], "numbers": numbers, "colours": colours}


def _rounded(colour: Iterable[float]) -> list[float]:
    return [round(float(part), 2) for part in colour]


DRAWN = "oodles"  # the key of a PNG file under which `drawn` is kept, with `pixels`


def pixels(picture: Path | BytesIO) -> str:
    """What a picture looks like, whatever it says of itself: a hash of its size and pixels."""
    with Image.open(picture) as image:
        shown = np.asarray(image.convert("RGBA"))
    return hashlib.sha256(str(shown.shape).encode() + shown.tobytes()).hexdigest()


def save(figures: Mapping[Path, Callable[[], Figure]]) -> None:
    """Write figures as PNG files that say what they show, so that a test notices a stale or an edited one."""
    for path, draw in figures.items():
        figure, picture = draw(), BytesIO()
        figure.savefig(picture, dpi=130, bbox_inches="tight")
        said = {DRAWN: json.dumps({**drawn(figure), "pixels": pixels(picture)}), "Software": None}
        figure.savefig(path, dpi=130, bbox_inches="tight", metadata=said)


def main() -> int:
    for page, made in NUMBERS.items():
        page.write_text(filled(page.read_text(), made()))
    save(FIGURES)
    return 0


if __name__ == "__main__":
    sys.exit(main())

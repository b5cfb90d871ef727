"""Results -> files for a paper: every figure as PDF, SVG and PNG, every table as LaTeX and CSV, under stable names.

>>> from oodles.show.assets import write_assets
>>> write_assets(analysis, "assets")  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from oodles.outputs import begins_with, check_target, write_aside
from oodles.show import answers, data, figures, groups, heatmap, overview, scatter, tables
from oodles.show.latex import fitted
from oodles.show.tables import Cell, Column, Sheet
from oodles.stats.analysis import SEPARATOR, Analysis
from oodles.stats.correlate import PartialCorrelations
from oodles.stats.longtable import disarmed
from oodles.stats.series import grouped
from oodles.stats.verdict import Verdict

TEXT, COLUMN = 6.3, 3.03  # inches, the widths of the ACL style
FORMATS = ("pdf", "svg", "png")
MARK = "% made by oodles"  # the first line of README.tex, by which a folder of assets is known
EMBEDDED: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "oodles",
}  # never Type 3


def write_assets(analysis: Analysis, folder: Path | str) -> list[Path]:
    """Write every figure and table of an analysis; returns the files.

    Parameters
    ----------
    analysis
        What `analyse` returned.
    folder
        Made where absent. Assets of the same name are replaced if the folder holds assets of oodles.

    Notes
    -----
    `README.tex` shows them all: each figure at the width it is made for (a column where it fits, else both), and each
    table in its one-column and its two-column form. LaTeX tables need the package booktabs only.
    """
    folder = Path(folder)
    held = (folder / "README.tex").is_file() and begins_with(folder / "README.tex", MARK.encode())
    drawn, sheets = dict(_figures(analysis)), dict(_sheets(analysis))
    frames = data.tables_of(analysis)
    names = [f"{name}.{kind}" for name in drawn for kind in FORMATS]
    names += [f"{name}-{form}.tex" for name in sheets for form in ("column", "text")]
    for name in [*names, *(f"{name}.csv" for name in frames), "README.tex"]:
        check_target(folder / name, lambda _: held)
    readme = "\n".join([MARK, *_readme(drawn, list(sheets))]) + "\n"
    written = [write_aside(folder / "README.tex", partial(_write, readme))]
    for name, figure in drawn.items():
        for kind in FORMATS:
            written.append(write_aside(folder / f"{name}.{kind}", partial(_save, figure, kind)))
    for name, sheet in sheets.items():
        for form, starred in (("column", False), ("text", True)):
            text = fitted(sheet, starred=starred, label=f"tab:{name}")
            written.append(write_aside(folder / f"{name}-{form}.tex", partial(_write, text)))
    for name, frame in frames.items():
        written.append(write_aside(folder / f"{name}.csv", partial(_plain(frame).to_csv, index=False)))
    return written


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _save(figure: Figure, kind: str, path: Path) -> None:
    date: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with matplotlib.rc_context(EMBEDDED):
        figure.savefig(path, format=kind, dpi=300, metadata=date)


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Caveats as text; nothing that a spreadsheet would run."""
    if "caveats" in frame.columns:
        frame = frame.assign(caveats=[SEPARATOR.join(said) for said in frame["caveats"]])
    texts = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    return frame.assign(**{column: disarmed(frame[column]) for column in texts})


def slug(text: str) -> str:
    """A part of a file's name.

    >>> slug("Pythia/410m, trained on MNLI")
    'pythia-410m-trained-on-mnli'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:80] or "x"


def _places(verdicts: Sequence[Verdict]) -> list[tuple[Verdict, str]]:
    """Each group with the end of its files' names; none where there is one group; a number where two are alike."""
    if len(verdicts) < 2:
        return [(verdict, "") for verdict in verdicts]
    names = [slug("-".join(verdict.group.values())) for verdict in verdicts]
    return [
        (verdict, f"-{name}" if names.count(name) == 1 else f"-{name}-{i + 1}")
        for i, (verdict, name) in enumerate(zip(verdicts, names, strict=True))
    ]


def _figures(analysis: Analysis) -> Iterator[tuple[str, Figure]]:
    result, table = analysis.result, analysis.long_table
    ways = [str(way) for way in dict.fromkeys(result.table["within"])]
    metric = str(result.settings.get("metric") or "accuracy")
    for way in ways:
        if len(analysis.verdicts) > 1:
            yield f"overview-{way}", _overview(result, way)
    for verdict, end in _places(analysis.verdicts):
        own = groups.of_group(result.table, verdict.group)
        for way in dict.fromkeys(own["within"]):
            yield f"correlations-{way}{end}", heatmap.plot_correlations(result, group=verdict.group, within=way)
            narrow = heatmap.plot_correlations(result, group=verdict.group, within=way, width=COLUMN)
            yield f"correlations-{way}-column{end}", narrow
            yield f"network-{way}{end}", overview.plot_network(result, group=verdict.group, within=way)
        if len(table) and table["step"].nunique() > 1:
            yield f"accuracy-by-step{end}", figures.plot_trajectories(table, group=verdict.group, metric=metric)
        changed = groups.of_group(analysis.changes, verdict.group)
        if len(changed) and changed["change"].notna().any():
            yield f"changes{end}", figures.plot_changes(analysis.changes, group=verdict.group)
        if len(table) and len(groups.of_group(result.residuals, verdict.group)):
            yield f"fits{end}", scatter.plot_fits(result, table, group=verdict.group)
    for answer in analysis.answers.values():
        for i, (figure, _) in enumerate(answers.plot_answer(answer)):
            yield f"{answer.name}-{i + 1}", figure


def _overview(result: PartialCorrelations, way: str) -> Figure:
    """As wide as a column where its groups are few, so that it is legible there; else as wide as the text."""
    drawn = overview.plot_overview(result, within=way, width=COLUMN)
    fits = drawn.get_figwidth() <= COLUMN + 0.01 and drawn.axes[0].texts  # with its numbers
    return drawn if fits else overview.plot_overview(result, within=way, width=TEXT)


def _sheets(analysis: Analysis) -> Iterator[tuple[str, Sheet]]:
    result = analysis.result
    if len(analysis.verdicts) > 1:
        yield "groups", tables.groups_sheet(result, analysis.every_verdict)
        for way in dict.fromkeys(result.table["within"]):
            yield f"sign-agreement-{way}", agreement_sheet(result.table, str(way))
    for verdict, end in _places(analysis.verdicts):
        for way in dict.fromkeys(groups.of_group(result.table, verdict.group)["within"]):
            yield f"pairs-{way}{end}", tables.pairs_sheet(result, group=verdict.group, within=str(way))
        if len(groups.of_group(analysis.changes, verdict.group)):
            yield f"final-accuracy{end}", tables.changes_sheet(analysis.changes, group=verdict.group)
        if len(groups.of_group(result.fits, verdict.group)):
            yield f"r2{end}", tables.fits_sheet(result.fits, group=verdict.group)
    for answer in analysis.answers.values():
        sheet = answers.answer_sheet(answer, brief=True)
        if sheet.rows:
            yield answer.name, sheet


def agreement_sheet(pairs: pd.DataFrame, within: str) -> Sheet:
    """In how many pairs of test sets two groups have the same sign."""
    by = groups.columns_before(pairs, "a")
    rows = pairs[(pairs["within"] == within) & pairs["r"].notna()]
    found = {", ".join(group.values()): own.set_index(["a", "b"])["r"] for group, own in grouped(rows, by)}
    columns = [Column(title="group", number=False), Column(title="group", number=False)]
    columns += [Column(title="same sign"), Column(title="pairs")]
    lines = []
    for (one, first), (other, second) in combinations(found.items(), 2):
        both = pd.concat([first, second], axis=1, keys=["x", "y"]).dropna()
        same = int((both["x"] * both["y"] > 0).sum())
        cells = [Cell(text=one, order=one), Cell(text=other, order=other)]
        lines.append((*cells, *(Cell(text=str(n), order=float(n)) for n in (same, len(both)))))
    return Sheet(columns=tuple(columns), rows=tuple(lines), notes=())


def _readme(drawn: Mapping[str, Figure], sheets: Sequence[str]) -> list[str]:
    lines = [r"\documentclass[twocolumn]{article}", r"\usepackage[T1]{fontenc}", r"\usepackage{booktabs,graphicx}"]
    lines.append(r"\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{\usepackage{mathptmx}}")  # no bitmaps of letters
    lines += [r"\usepackage[a4paper,left=25mm,right=25mm]{geometry}\setlength{\columnsep}{6mm}", r"\begin{document}"]
    for name, figure in drawn.items():
        wide = figure.get_figwidth() > 0.75 * TEXT
        star, width = ("*", r"\textwidth") if wide else ("", r"\columnwidth")
        lines.append(
            rf"\begin{{figure{star}}}\centering\includegraphics[width={width},height=.8\textheight,keepaspectratio]"
            rf"{{{name}.pdf}}\end{{figure{star}}}\clearpage"
        )
    for name in sheets:
        lines += [rf"\input{{{name}-column}}\clearpage", rf"\input{{{name}-text}}\clearpage"]
    return [*lines, r"\end{document}"]

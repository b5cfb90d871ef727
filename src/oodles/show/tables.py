"""Results -> LaTeX or Markdown strings. Numbers are rounded here and nowhere earlier; nothing is written to disk.

>>> from oodles.show.tables import latex_table
>>> print(latex_table(result))  # doctest: +SKIP

Both renderings, and the report's, come from one `Sheet`: columns, rows of cells, notes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from oodles.errors import DataError
from oodles.show import glyphs, words
from oodles.show.groups import Group, columns_before, heads_of, of_group
from oodles.show.numbers import MISSING, p_value, signed
from oodles.stats.cautions import raw_matters
from oodles.stats.resample import DESCRIPTIVE
from oodles.stats.verdict import Verdict, first_way, in_doubt, noise_known

if TYPE_CHECKING:
    from oodles.stats.correlate import PartialCorrelations

LONGEST_TABLE = 45  # rows that fit on a page; a longer table breaks over pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a sheet; neighbours with the same `over` share a heading above theirs."""

    title: str
    over: str = ""
    number: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is shown, what sorting compares, and the notes that qualify it."""

    text: str
    order: float | str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A table before it is LaTeX, Markdown or HTML."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[tuple[str, str], ...]  # mark and text; the mark is empty for what holds throughout

    @property
    def overs(self) -> list[tuple[str, int]]:
        """The upper heading as runs of equal text: ("", 2), ("pooled", 3), ..."""
        runs: list[tuple[str, int]] = []
        for column in self.columns:
            if runs and runs[-1][0] == column.over:
                runs[-1] = (column.over, runs[-1][1] + 1)
            else:
                runs.append((column.over, 1))
        return runs


def latex_table(
    result: PartialCorrelations | pd.DataFrame,
    *,
    group: Group | None = None,
    within: str | None = None,
    caption: str | None = None,
    label: str | None = None,
) -> str:
    """A booktabs table of the pairs, with their intervals and, as footnotes, their caveats.

    Parameters
    ----------
    result
        What `partial_correlations` returned, or the frame that `changes` returned.
    group
        Show this group only; all of them by default.
    within
        Show this kind of fit only; all of them by default, side by side.
    caption
        As LaTeX has it; plain text, which is escaped.
    label
        As LaTeX has it.

    Notes
    -----
    Needs the package booktabs; a table of more than a page also needs longtable. A first line says so.
    """
    sheet = sheet_of(result, group=group, within=within)
    head = [rf"\caption{{{escape_latex(caption)}}}"] if caption else []
    head += [rf"\label{{{label}}}"] if label else []
    render = _latex_long if len(sheet.rows) > LONGEST_TABLE else _latex_page
    return "\n".join(render(sheet, head)) + "\n"


def markdown_table(
    result: PartialCorrelations | pd.DataFrame, *, group: Group | None = None, within: str | None = None
) -> str:
    """The same table for a README or an issue; parameters are those of `latex_table`."""
    sheet = sheet_of(result, group=group, within=within)
    titles = [f"{c.title}, {c.over}" if c.over else c.title for c in sheet.columns]
    lines = [
        "| " + " | ".join(titles) + " |",
        "|" + "|".join("---:" if c.number else "---" for c in sheet.columns) + "|",
        *("| " + " | ".join(map(_markdown_cell, row)) + " |" for row in sheet.rows),
    ]
    notes = [(f"<sup>{mark}</sup> " if mark else "") + escape_markdown(text) for mark, text in sheet.notes]
    return "\n".join([*lines, "", *(f"{note}  " for note in notes)]).rstrip() + "\n"


# sheets


def sheet_of(
    result: PartialCorrelations | pd.DataFrame, *, group: Group | None = None, within: str | None = None
) -> Sheet:
    """The sheet of a result or of a frame of changes."""
    if isinstance(result, pd.DataFrame):
        return changes_sheet(result, group=group)
    return pairs_sheet(result, group=group, within=within)


def pairs_sheet(
    result: PartialCorrelations, *, group: Group | None = None, within: str | None = None, full: bool = False
) -> Sheet:
    """A row per pair of test sets, the kinds of fit side by side.

    `full` has a row per pair and kind of fit and adds, where there are any, the plain p-value and the corrected r.
    """
    by = columns_before(result.table, "a")
    rows = of_group(result.table, group)
    rows = rows if within is None else rows[rows["within"] == within]
    if rows.empty:
        raise DataError(f"nothing to show: the result holds no pair for group={group}, within={within}")
    several = [c for c in by if rows[c].astype(str).nunique() > 1]
    stacked = ["within"] if full and rows["within"].nunique() > 1 else []
    kinds = [""] if full else list(dict.fromkeys(rows["within"]))
    fields = _pair_fields(rows, full=full)
    counts = [c for c in ("n_runs", "n_steps") if rows[c].nunique(dropna=False) > 1]
    marks, notes = _footnotes(rows["caveats"], {*rows["a"], *rows["b"]})
    lines = []
    for fits in _fits_by_pair(rows, [*several, "a", "b", *stacked], full=full):
        first = next(iter(fits.values()))
        cells = [name_cell(first[c]) for c in (*several, "a", "b", *stacked)]
        cells += [_pair_cell(fits.get(kind), field, marks) for kind in kinds for field in fields]
        lines.append((*cells, *(number_cell(first[c]) for c in counts)))
    columns = [Column(title=_words(c), number=False) for c in (*several, "test_set", "test_set", *stacked)]
    columns += [Column(title=PAIR_TITLES[f], over=kind if len(kinds) > 1 else "") for kind in kinds for f in fields]
    columns += [Column(title={"n_runs": "runs", "n_steps": "points"}[c]) for c in counts]
    return Sheet(columns=tuple(columns), rows=tuple(lines), notes=(("", _pairs_note(rows, result.settings)), *notes))


def _fits_by_pair(rows: pd.DataFrame, keys: Sequence[str], *, full: bool) -> list[dict[str, dict[Any, Any]]]:
    """The fits of every pair by their kind; `full`: one fit each."""
    found: dict[tuple[str, ...], dict[str, dict[Any, Any]]] = {}
    for fit in rows.to_dict("records"):
        found.setdefault(tuple(str(fit[key]) for key in keys), {})["" if full else fit["within"]] = fit
    return list(found.values())


PAIR_TITLES = {
    "r": "r",
    "r_raw": "r raw",
    "interval": "interval",
    "p_val": "p",
    "p_holm": "p (Holm)",
    "p_said": "p (adjusted)",
    "r_corrected": "r corrected",
}


def _pair_fields(rows: pd.DataFrame, *, full: bool) -> list[str]:
    """Columns that hold nothing are left out: below five runs there are no p-values.

    Raw correlations stand beside partial ones where little was regressed out, and of models with one checkpoint each.
    """
    adjusted = "p_said" if "p_said" in rows else "p_holm"  # as the verdict has it
    optional = ("p_val", adjusted) if full else (adjusted,)
    corrected = (
        ["r_corrected"] if full and any(_corrected(row).text != MISSING for row in rows.to_dict("records")) else []
    )
    raw = ["r_raw"] if "r_raw" in rows and raw_matters(rows) else []
    return ["r", *raw, "interval", *(c for c in optional if rows[c].notna().any()), *corrected]


def _pair_cell(fit: Mapping[Any, Any] | None, field: str, marks: Mapping[str, str]) -> Cell:
    if fit is None:
        return Cell(text=MISSING, order=math.nan)
    if field == "interval":
        return _interval(fit["low"], fit["high"])
    if field == "r_corrected":
        return _corrected(fit)
    value = float(fit[field])
    if field.startswith("p_"):
        return Cell(text=p_value(value), order=value)
    noted = _noted(fit["caveats"], marks) if field == "r" else ()
    return Cell(text=signed(value), order=value, marks=noted)


def _corrected(fit: Mapping[Any, Any]) -> Cell:
    """One number, or the range in which it lies; a range of no width is no knowledge."""
    value, low, high = (float(fit.get(c, math.nan)) for c in ("r_corrected", "r_corrected_low", "r_corrected_high"))
    if math.isfinite(value):
        return Cell(text=signed(value), order=value)
    if math.isfinite(low) and math.isfinite(high) and low != high:
        return Cell(text=f"{signed(low)} to {signed(high)}", order=low)
    return Cell(text=MISSING, order=math.nan)


def _pairs_note(rows: pd.DataFrame, settings: Mapping[str, Any]) -> str:
    """What holds for the whole table, in a sentence."""
    runs, points = (_range(rows[c]) for c in ("n_runs", "n_steps"))
    level = float(settings.get("level", math.nan))
    interval = f"{100 * level:g} % interval" if math.isfinite(level) else "Interval"
    units = _range(rows["n_units"]) if "n_units" in rows else runs
    independent = f" ({units} independent)" if units != runs else ""
    if points == runs:
        counted = f"{runs} {'model' if runs == '1' else 'models'}{independent}, one checkpoint each"
    else:
        counted = f"{runs} {'run' if runs == '1' else 'runs'}{independent}, {points} points (a run at a step)"
    adjusted = "p_said" in rows and rows["p_said"].notna().any()
    tested = f" p, {words.INSIDE[noise_known(rows)]}, is adjusted over all tests reported." if adjusted else ""
    return (
        f"{counted}. In-domain performance regressed out by {words.in_words(rows['method'], words.METHODS)}. "
        f"{interval}: {words.in_words(rows['interval'], words.INTERVALS)}. "
        f"Correlation: {words.in_words(rows['correlation'], words.CORRELATIONS)}.{tested}"
    )


def groups_sheet(result: PartialCorrelations, verdicts: Sequence[Verdict]) -> Sheet:
    """A row per group: the short answer, and how many pairs rise together, move apart, are in doubt and open."""
    titles = ("rise together", "move apart", "in doubt", "open")
    columns = [Column(title=title, number=False) for title in ("group", "answer")]
    columns += [Column(title=title) for title in (*titles, "runs")]
    lines = []
    for label, verdict in zip(heads_of([verdict.group for verdict in verdicts]), verdicts, strict=True):
        rows = of_group(result.table, verdict.group) if len(result.table) else result.table
        counts = told_counts(rows[rows["within"] == first_way(rows)]) if len(rows) else (0, 0, 0, 0)
        lines.append((name_cell(label), name_cell(verdict.head), *(number_cell(n) for n in (*counts, verdict.n_runs))))
    return Sheet(columns=tuple(columns), rows=tuple(lines), notes=())


def told_counts(pairs: pd.DataFrame) -> tuple[int, int, int, int]:
    """Pairs that are up, down, in doubt and open, as the verdict counts them; signs where nothing was tested.

    A pair without a correlation is none of these.
    """
    pairs = pairs[pairs["r"].notna()]
    r = pairs["r"]
    if (pairs["n_units"] < DESCRIPTIVE).all():
        return int((r > 0).sum()), int((r < 0).sum()), 0, 0
    clear = pairs["clear"].astype(bool)
    doubt = pairs["doubt"].astype(str).where(in_doubt(pairs), "") != ""
    counts = (int((clear & (r > 0)).sum()), int((clear & (r < 0)).sum()), int(doubt.sum()))
    return *counts, len(pairs) - sum(counts)


def changes_sheet(changes: pd.DataFrame, *, group: Group | None = None) -> Sheet:
    """A row per test set: first and last value, change and interval."""
    by = columns_before(changes, "test_set")
    rows = of_group(changes, group)
    if rows.empty:
        raise DataError(f"nothing to show: there is no change for group={group}")
    several = [c for c in by if rows[c].astype(str).nunique() > 1]
    counts = [c for c in ("n_runs", "n") if rows[c].nunique(dropna=False) > 1]
    marks, notes = _footnotes(rows["caveats"])
    columns = [Column(title=_words(c), number=False) for c in (*several, "test_set", "role")]
    columns += [Column(title=t) for t in (_at_step(rows, "first"), _at_step(rows, "last"), "change", "interval")]
    columns += [Column(title={"n_runs": "runs", "n": "n"}[c]) for c in counts]
    lines = tuple(_change_cells(row, several, counts, marks) for row in rows.to_dict("records"))
    return Sheet(columns=tuple(columns), rows=lines, notes=(*_constants(rows, counts), *notes))


def _change_cells(
    row: Mapping[Any, Any], several: Sequence[str], counts: Sequence[str], marks: Mapping[str, str]
) -> tuple[Cell, ...]:
    noted = _noted(row["caveats"], marks)
    return (
        *(name_cell(row[c]) for c in several),
        name_cell(row["test_set"]),
        name_cell({"in_domain": "in-domain", "ood": "OOD"}.get(row["role"], row["role"])),
        _plain(row["first"]),
        _plain(row["last"]),
        Cell(text=signed(row["change"]), order=float(row["change"]), marks=noted),
        _interval(row["low"], row["high"]),
        *(number_cell(row[c]) for c in counts),
    )


def _constants(rows: pd.DataFrame, counts: Sequence[str]) -> list[tuple[str, str]]:
    """Counts that are the same everywhere need no column."""
    said = []
    for column, unit in (("n_runs", "runs"), ("n", "examples per test set")):
        if column not in counts and rows[column].notna().all():
            count = _range(rows[column])
            said.append(f"{count} {unit.replace('runs', 'run') if count == '1' else unit}")
    return [("", ", ".join(said) + ".")] if said else []


def _at_step(rows: pd.DataFrame, which: str) -> str:
    steps = rows[f"{which}_step"].dropna().unique()
    return f"step {steps[0]:g}" if len(steps) == 1 else f"{which} step"


FIT_TITLES = {"r2": "R²", "edf": "edf", "residual_sd": "residual sd", "reliability": "reliability"}


def fits_sheet(fits: pd.DataFrame, *, group: Group | None = None) -> Sheet:
    """A row per test set and kind of fit: how much in-domain performance explains."""
    rows = of_group(fits, group)
    shown = [c for c in FIT_TITLES if c in rows and rows[c].notna().any()]
    names = [c for c in ("test_set", "within") if c in rows]
    columns = [Column(title=_words(c), number=False) for c in names] + [Column(title=FIT_TITLES[c]) for c in shown]
    lines = [(*(name_cell(row[c]) for c in names), *(_fit(row, c) for c in shown)) for row in rows.to_dict("records")]
    return Sheet(columns=tuple(columns), rows=tuple(lines), notes=())


def _fit(row: Mapping[Any, Any], column: str) -> Cell:
    """A reliability estimated below 0 is none, as its caveat says."""
    value = float(row[column])
    return _plain(max(value, 0.0) if column == "reliability" and math.isfinite(value) else value)


def _footnotes(caveats: pd.Series[Any], names: Collection[str] = ()) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The mark of each caveat, and the notes. A caveat of every row needs no mark."""
    texts = fold((c for row in caveats for c in row), names)
    counted = Counter(text for row in caveats for text in {texts[c] for c in row})
    everywhere = {text for text, rows in counted.items() if rows == len(caveats)}
    ordered = list(dict.fromkeys(texts.values()))
    letters = {text: _letter(i) for i, text in enumerate(t for t in ordered if t not in everywhere)}
    marks = {caveat: letters[text] for caveat, text in texts.items() if text in letters}
    return marks, [*(("", t) for t in ordered if t in everywhere), *((mark, t) for t, mark in letters.items())]


def caveat_lines(pairs: pd.DataFrame, changes: pd.DataFrame | None = None) -> tuple[list[str], list[str]]:
    """Each caveat once: those of all pairs (or of no pair), and the others with how many pairs they concern."""
    changes = pairs[:0] if changes is None else changes
    names = {*pairs["a"], *pairs["b"]} if len(pairs) else set(changes["test_set"])
    texts = fold((c for frame in (pairs, changes) for row in frame["caveats"] for c in row), names)
    concerned: dict[str, set[tuple[str, str]]] = {text: set() for text in texts.values()}
    for pair in pairs.to_dict("records"):
        for caveat in pair["caveats"]:
            concerned[texts[caveat]].add((pair["a"], pair["b"]))
    total = len({(p["a"], p["b"]) for p in pairs.to_dict("records")})
    common = [text for text, of in concerned.items() if len(of) in (0, total)]
    own = [f"{text} ({len(of)} of {total} pairs)" for text, of in concerned.items() if 0 < len(of) < total]
    return common, own


_UNIT = re.compile(r"(.+?) ((?:carries \d|stands out ).*)", re.DOTALL)  # what a caveat says of one run


# A number with its sign, after a space or a bracket; digits inside the name of a run or a model are none.
_NUMBER = re.compile(r"(?:(?<![^\s(\[])[-−+]|(?<![\w.−+-]))\d+(?:\.\d+)?(?![\w-])")
_INTERVAL = re.compile(rf" \({_NUMBER.pattern} to {_NUMBER.pattern}\)")  # after an estimate; of several it says nothing
_SPAN = re.compile(rf"{_NUMBER.pattern}(?: to {_NUMBER.pattern})?")
_PART = re.compile(r"without steps? \S+(?: to \S+)? ")  # of training: another part is another caveat


def fold(caveats: Iterable[str], names: Collection[str] = ()) -> dict[str, str]:
    """Each caveat and the text that stands for it and for those that differ only in their numbers or their test set.

    >>> texts = fold(["hans: sd 0.05", "paws: sd 0.31", "3 runs"], names=["hans", "paws"])
    >>> texts["paws: sd 0.31"]
    'hans, paws: sd 0.05 to 0.31'
    >>> set(fold(["r is +0.21 (-0.48 to +0.57)", "r is -0.54 (-0.83 to -0.22)"]).values())
    {'r is -0.54 to +0.21'}
    """
    alike: dict[tuple[bool, str, str], dict[str, tuple[str, str]]] = {}
    for caveat in dict.fromkeys(caveats):
        unit = _UNIT.match(caveat)
        name, _, rest = caveat.partition(": ")
        name, rest = (name, rest) if name in names and rest else (unit[1], unit[2]) if unit else ("", caveat)
        part = _PART.match(rest)
        kind = (bool(name), part[0] if part else "", _NUMBER.sub("#", rest))
        alike.setdefault(kind, {})[caveat] = (name, rest)
    return {caveat: _together(same.values(), len(names)) for same in alike.values() for caveat in same}


def _together(same: Collection[tuple[str, str]], of: int) -> str:
    """The names, then the text of the first, with a range where the numbers differ."""
    texts = list(dict.fromkeys(rest for _, rest in same))
    texts = [_INTERVAL.sub("", text) for text in texts] if len(texts) > 1 else texts
    shown = iter(map(_span, zip(*map(_SPAN.findall, texts), strict=True)))
    named = list(dict.fromkeys(name for name, _ in same if name))
    told = _SPAN.sub(lambda _: next(shown), texts[0])
    if named and _UNIT.match(f"{named[0]} {told}"):
        return f"{named[0]} {told}" if len(named) == 1 else f"{_some(named)}: one of them {told}"
    names = f"all {of} test sets" if 2 < of == len(named) else ", ".join(named)
    return (f"{names}: " if names else "") + told


def _span(found: Sequence[str]) -> str:
    """Numbers or ranges of numbers as one.

    >>> _span(["3", "3"]), _span(["3", "-1"]), _span(["1 to 4", "2 to 9"])
    ('3', '-1 to 3', '1 to 9')
    """
    if len(set(found)) == 1:
        return found[0]
    ends = sorted((n for one in found for n in one.split(" to ")), key=lambda n: float(n.replace("−", "-")))
    return f"{ends[0]} to {ends[-1]}"


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


def _noted(caveats: Sequence[str], marks: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted({marks[c] for c in caveats if c in marks}, key=lambda mark: (len(mark), mark)))


def _letter(index: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    return (_letter(index // 26 - 1) if index >= 26 else "") + "abcdefghijklmnopqrstuvwxyz"[index % 26]


# numbers


def _plain(value: float) -> Cell:
    return Cell(text=f"{value:.3f}".replace("-", "−") if math.isfinite(value) else MISSING, order=float(value))


def number_cell(value: Any) -> Cell:
    known = value is not None and math.isfinite(float(value))
    return Cell(text=f"{float(value):g}" if known else MISSING, order=float(value) if known else math.nan)


def _interval(low: float, high: float) -> Cell:
    known = math.isfinite(low) and math.isfinite(high)
    return Cell(text=f"[{signed(low)}, {signed(high)}]" if known else MISSING, order=float(low))


def _range(values: pd.Series[Any]) -> str:
    low, high = values.min(), values.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def name_cell(value: Any) -> Cell:
    return Cell(text=str(value), order=str(value))


def _words(column: str) -> str:
    return column.replace("_", " ")


# LaTeX

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"{\char34}",  # \textquotedbl needs T1 fonts
    "–": "--",
    "…": r"\ldots{}",
    **glyphs.FORMULAS,
    # A row that begins with one of these would be read as an argument of the \\ before it.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
}


def escape_latex(text: str) -> str:
    r"""Text that pdflatex prints as it is, on one line; what it has no letters for as codes that may break.

    >>> print(escape_latex("50 % of R&D_x"))
    50 \% of R\&D\_x
    """
    return "".join(
        "".join(_LATEX.get(c, c) for c in shown).replace(".", r".\allowbreak{}" if shown.startswith("<U+") else ".")
        for shown in glyphs.shown_parts(text, glyphs.settable)
    )


def latex_comments(sheet: Sheet) -> list[str]:
    """What stands for what, where pdflatex cannot set a name."""
    texts = [cell.text for row in sheet.rows for cell in row] + [text for _, text in sheet.notes]
    titles = [title for column in sheet.columns for title in (column.title, column.over)]
    found = glyphs.replaced([*titles, *texts], glyphs.settable)
    return [f"% {shown} stands for {part}, which pdflatex has no letters for" for part, shown in found.items()]


def _latex_page(sheet: Sheet, head: Sequence[str]) -> list[str]:
    return [
        r"% needs \usepackage{booktabs}",
        *latex_comments(sheet),
        r"\begin{table}[t]",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        *head,
        rf"\begin{{tabular}}{{{_alignment(sheet)}}}",
        r"\toprule",
        *_latex_heading(sheet),
        r"\midrule",
        *map(_latex_row, sheet.rows),
        r"\bottomrule",
        r"\end{tabular}",
        *_latex_notes(sheet),
        r"\end{table}",
    ]


def _latex_long(sheet: Sheet, head: Sequence[str]) -> list[str]:
    return [
        r"% needs \usepackage{booktabs,longtable}",
        *latex_comments(sheet),
        rf"\begin{{longtable}}{{{_alignment(sheet)}}}",
        *([*head[:-1], head[-1] + r"\\"] if head else []),
        r"\toprule",
        *_latex_heading(sheet),
        r"\midrule",
        r"\endhead",
        *map(_latex_row, sheet.rows),
        r"\bottomrule",
        r"\end{longtable}",
        *_latex_notes(sheet),
    ]


def _alignment(sheet: Sheet) -> str:
    return "".join("r" if c.number else "l" for c in sheet.columns)


def _latex_heading(sheet: Sheet) -> list[str]:
    titles = " & ".join(_latex_title(c.title) for c in sheet.columns) + r" \\"
    if not any(c.over for c in sheet.columns):
        return [titles]
    upper, rules, at = [], [], 1
    for over, width in sheet.overs:
        upper.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(over)}}}" if over else " & ".join([""] * width))
        rules += [rf"\cmidrule(lr){{{at}-{at + width - 1}}}"] if over else []
        at += width
    return [" & ".join(upper) + r" \\", " ".join(rules), titles]


def _latex_title(title: str) -> str:
    """Statistics in italics, words as they are."""
    symbol, _, rest = title.partition(" ")
    return f"${symbol}$ {escape_latex(rest)}".strip() if symbol in ("r", "p", "n") else escape_latex(title)


def _latex_row(row: Sequence[Cell]) -> str:
    return " & ".join(_latex_cell(cell) for cell in row) + r" \\"


def _latex_cell(cell: Cell) -> str:
    marks = rf"\textsuperscript{{{','.join(cell.marks)}}}" if cell.marks else ""
    return escape_latex(cell.text) + marks


def _latex_notes(sheet: Sheet) -> list[str]:
    if not sheet.notes:
        return []
    return [
        r"\par\smallskip\noindent",
        r"\begin{minipage}{\linewidth}",
        r"\footnotesize",
        *(
            (rf"\textsuperscript{{{mark}}} " if mark else "") + rf"{escape_latex(text)}\par"
            for mark, text in sheet.notes
        ),
        r"\end{minipage}",
    ]


# Markdown


def escape_markdown(text: str) -> str:
    """Text that Markdown prints as it is, on one line of a table."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>|#~$" else "&amp;" if c == "&" else c for c in plain)


def _markdown_cell(cell: Cell) -> str:
    marks = f"<sup>{','.join(cell.marks)}</sup>" if cell.marks else ""
    return escape_markdown(cell.text) + marks

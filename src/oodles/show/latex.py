"""A sheet as a LaTeX table that fits: one column, or the whole width, of a two-column page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oodles.show import glyphs, tables, words
from oodles.show.tables import Cell, Sheet

COLUMN, TEXT = 219.0, 455.0  # points, of the ACL style
ROWS = 40  # of one float; more are continued in the next
SIZES = ((r"\small", 9.4, 7.0), (r"\footnotesize", 8.7, 5.0), (r"\scriptsize", 8.1, 3.0))  # points of an em, gap
LONG, SHORT, SHORTEST = 14, 6, 3  # characters that may not break: as a rule, and where there is no other way
BREAK = r"\\"


def fitted(sheet: Sheet, *, starred: bool, label: str = "") -> str:
    """The table as floats (`table*` if starred); names are wrapped where the width asks for it, numbers never."""
    room = TEXT if starred else COLUMN
    said = tables.latex_comments(sheet)
    sheet = _settable(sheet if starred else _joined(sheet))
    found = _widths(sheet, room)
    if found is None:
        sheet = _in_front(sheet)
        found = _widths(sheet, room, last=True)
    assert found is not None
    size, gap, widths, most = found
    star = "*" if starred else ""
    parts = list(_parts(sheet.rows))
    lines = [r"% needs \usepackage{booktabs}", *said]
    for i, rows in enumerate(parts):
        last = i == len(parts) - 1
        alignment = "".join(
            "r" if column.number else "l" if width is None else rf"p{{{width:.0f}pt}}"
            for column, width in zip(sheet.columns, widths, strict=True)
        )
        lines += [
            rf"\begin{{table{star}}}[t]",
            rf"\centering{size}\setlength{{\tabcolsep}}{{{gap / 2:g}pt}}",
            *([rf"\label{{{label}}}"] if label and not i else []),
            rf"\begin{{tabular}}{{@{{}}{alignment}@{{}}}}",
            r"\toprule",
            *_heading(sheet),
            r"\midrule",
            *(_row(row, widths, most) for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(_notes(sheet) if last else []),
            rf"\end{{table{star}}}",
        ]
    return "\n".join(lines) + "\n"


def _joined(sheet: Sheet) -> Sheet:
    """Two neighbouring columns of names of one kind as one: a column of a page has little room."""
    titles = [column.title for column in sheet.columns]
    at = next((k for k in range(len(titles) - 1) if titles[k] == titles[k + 1] and not sheet.columns[k].number), None)
    if at is None:
        return sheet
    rows = [
        (*row[:at], replace(row[at], text=f"{row[at].text} – {row[at + 1].text}"), *row[at + 2 :]) for row in sheet.rows
    ]
    columns = (*sheet.columns[:at], replace(sheet.columns[at], title="pair"), *sheet.columns[at + 2 :])
    return replace(sheet, columns=columns, rows=tuple(rows))


def _settable(sheet: Sheet) -> Sheet:
    """The sheet as it is set: what stands for a character may be longer."""
    rows = [
        tuple(replace(cell, text=glyphs.stand_in(cell.text, glyphs.settable)) for cell in row) for row in sheet.rows
    ]
    return replace(sheet, rows=tuple(rows))


def _parts(rows: Sequence[tuple[Cell, ...]]) -> Iterator[Sequence[tuple[Cell, ...]]]:
    for start in range(0, max(len(rows), 1), ROWS):
        yield rows[start : start + ROWS]


def _in_front(sheet: Sheet) -> Sheet:
    """Names that come first as one: a model, its train set and a pair in a column of their own have no room."""
    count = next((k for k, column in enumerate(sheet.columns) if column.number), len(sheet.columns))
    if count < 2:
        return sheet
    first = replace(sheet.columns[0], title=", ".join(column.title for column in sheet.columns[:count]))
    rows = [(replace(row[0], text=", ".join(cell.text for cell in row[:count])), *row[count:]) for row in sheet.rows]
    return replace(sheet, columns=(first, *sheet.columns[count:]), rows=tuple(rows))


def _notes(sheet: Sheet) -> list[str]:
    """Notes below the table, in which a long name may break."""
    if not sheet.notes:
        return []
    lines = [
        (rf"\textsuperscript{{{mark}}} " if mark else "") + rf"{_broken(words.readable(text), LONG)}\par"
        for mark, text in sheet.notes
    ]
    return [
        r"\par\smallskip\noindent",
        r"\begin{minipage}{\linewidth}",
        r"\footnotesize\raggedright",
        *lines,
        r"\end{minipage}",
    ]


def _row(row: Sequence[Cell], widths: Sequence[float | None], most: int) -> str:
    cells = [
        tables._latex_cell(cell) if width is None else rf"\raggedright {_breakable(cell, most)}"
        for cell, width in zip(row, widths, strict=True)
    ]
    return " & ".join(cells) + r" \tabularnewline"  # \\ means another thing in ragged cells


def _breakable(cell: Cell, most: int) -> str:
    """A name that may break after its punctuation, and anywhere if it is one long word."""
    return _broken(cell.text, most) + tables._latex_cell(replace(cell, text=""))


def _broken(text: str, most: int) -> str:
    text = glyphs.stand_in(text, glyphs.settable)
    return " ".join(r"\hspace{0pt}".join(map(tables.escape_latex, _pieces(word, most))) for word in text.split())


def _pieces(text: str, most: int) -> list[str]:
    """What may not break."""
    parts = [part for word in text.split() for part in re.findall(r"[^-_/.,]+[-_/.,]*|[-_/.,]+", word)]
    return [
        piece
        for part in parts
        for piece in ([part] if len(part) <= most else re.findall(rf".{{1,{min(most, SHORT)}}}", part))
    ]


def _heading(sheet: Sheet) -> list[str]:
    """Titles, those of numbers a word a line."""
    *upper, last = tables._latex_heading(sheet)
    titles = last.removesuffix(r" \\").split(" & ")
    stacked = [
        rf"\shortstack[r]{{{title.replace(' ', BREAK)}}}" if column.number and " " in title else title
        for title, column in zip(titles, sheet.columns, strict=True)
    ]
    return [*upper, " & ".join(stacked) + r" \\"]


Widths = tuple[str, float, list[float | None], int]


def _widths(sheet: Sheet, room: float, *, last: bool = False) -> Widths | None:
    """The largest type in which numbers fit beside names, or nothing; a width of None: as wide as it is.

    `last` always finds one: words are broken where they must be.
    """
    named = [k for k, column in enumerate(sheet.columns) if not column.number]
    texts = [[row[k].text + ",".join(row[k].marks) for row in sheet.rows] for k in range(len(sheet.columns))]
    titles = [max(column.title.split() or [""], key=_ems) for column in sheet.columns]
    natural = [
        max(map(_ems, [titles[k] if column.number else column.title, *texts[k]]))
        for k, column in enumerate(sheet.columns)
    ]
    for most in (LONG, SHORT, SHORTEST):
        least = {
            k: max(map(_ems, [titles[k], *(piece for text in texts[k] for piece in _pieces(text, most))]))
            for k in named
        }
        for size, em, gap in SIZES:
            numbers = sum(em * n for k, n in enumerate(natural) if k not in least)
            left = room - gap * (len(natural) - 1) - numbers - 3.0 * len(named)
            if sum(em * natural[k] for k in named) <= left:
                return size, gap, [None] * len(natural), most
            if sum(em * least[k] for k in named) <= left or (last and most == SHORTEST and size == SIZES[-1][0]):
                # Every name has its longest word; what is left goes to the long ones.
                spare = max(left - sum(em * least[k] for k in named), 0.0)
                share = spare / (em * max(sum(natural[k] - least[k] for k in named), 1e-9))
                share = min(share, 1.0)
                widths = [
                    3 + em * (least[k] + share * (natural[k] - least[k])) if k in least else None
                    for k in range(len(natural))
                ]
                return size, gap, widths, most
    return None


def _ems(text: str) -> float:
    """The width of a line in LaTeX's own font, which is wider than Times; signs are those of formulas."""
    return sum(0.78 if c in "+−<>=~" else 0.45 if c in ",.:;' " else glyphs.roman(c) for c in text)

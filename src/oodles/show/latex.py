"""A sheet as a LaTeX table that fits: one column, or the whole width, of a two-column page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from oodles.show import glyphs, tables, words
from oodles.show.tables import Cell, Sheet

COLUMN, TEXT = 219.0, 455.0  # points, of the ACL style
ROWS = 40  # of one float; more are continued in the next
SIZES = ((r"\small", 5.3, 7.0), (r"\footnotesize", 4.7, 5.0), (r"\scriptsize", 4.2, 3.0))  # width of a digit, gap
LONG = 14  # characters of a word that may not break
BREAK = r"\\"


def fitted(sheet: Sheet, *, starred: bool, label: str = "") -> str:
    """The table as floats (`table*` if starred); names are wrapped where the width asks for it, numbers never."""
    room = TEXT if starred else COLUMN
    said = tables.latex_comments(sheet)
    sheet = _settable(sheet if starred else _joined(sheet))
    size, gap, widths = _widths(sheet, room)
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
            *(_row(row, widths) for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            *(tables._latex_notes(_in_words(sheet)) if last else []),
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


def _in_words(sheet: Sheet) -> Sheet:
    return replace(sheet, notes=tuple((mark, words.readable(text)) for mark, text in sheet.notes))


def _row(row: Sequence[Cell], widths: Sequence[float | None]) -> str:
    cells = [
        tables._latex_cell(cell) if width is None else rf"\raggedright {_breakable(cell)}"
        for cell, width in zip(row, widths, strict=True)
    ]
    return " & ".join(cells) + r" \tabularnewline"  # \\ means another thing in ragged cells


def _breakable(cell: Cell) -> str:
    """A name that may break after its punctuation, and anywhere if it is one long word."""
    words_ = [r"\hspace{0pt}".join(map(tables.escape_latex, _pieces(word))) for word in cell.text.split()]
    return " ".join(words_) + tables._latex_cell(replace(cell, text=""))


def _pieces(text: str) -> list[str]:
    """What may not break."""
    parts = [part for word in text.split() for part in re.findall(r"[^-_/.,]+[-_/.,]*|[-_/.,]+", word)]
    return [piece for part in parts for piece in ([part] if len(part) <= LONG else re.findall(r".{1,6}", part))]


def _heading(sheet: Sheet) -> list[str]:
    """Titles, those of numbers a word a line."""
    *upper, last = tables._latex_heading(sheet)
    titles = last.removesuffix(r" \\").split(" & ")
    stacked = [
        rf"\shortstack[r]{{{title.replace(' ', BREAK)}}}" if column.number and " " in title else title
        for title, column in zip(titles, sheet.columns, strict=True)
    ]
    return [*upper, " & ".join(stacked) + r" \\"]


def _widths(sheet: Sheet, room: float) -> tuple[str, float, list[float | None]]:
    """The largest type in which numbers fit beside names; None: as wide as it is."""
    natural, least = [], []
    for k, column in enumerate(sheet.columns):
        texts = [row[k].text + ",".join(row[k].marks) for row in sheet.rows]
        title = max(column.title.split() or [""], key=len)
        pieces = [piece for text in texts for piece in _pieces(text)]
        natural.append(max(map(len, [title if column.number else column.title, *texts])))
        least.append(max(map(len, [title, *pieces])))
    named = [k for k, column in enumerate(sheet.columns) if not column.number]
    for size, digit, gap in SIZES:
        numbers = 3.0 * len(named) + sum(digit * n for k, n in enumerate(natural) if k not in named)
        left = room - gap * (len(natural) - 1) - numbers
        if sum(digit * natural[k] for k in named) <= left:
            return size, gap, [None] * len(natural)
        if sum(digit * least[k] for k in named) <= left:
            break
    # Every name has its longest word; what is left goes to the long ones.
    spare = max(left - sum(digit * least[k] for k in named), 0.0)
    wish = {k: natural[k] - least[k] for k in named}
    share = spare / (digit * max(sum(wish.values()), 1))
    return size, gap, [3 + digit * (least[k] + share * wish[k]) if k in wish else None for k in range(len(natural))]

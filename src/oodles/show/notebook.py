"""Results as text and as HTML, for `print` and for notebooks."""

from __future__ import annotations

import io
from collections.abc import Sequence

from markupsafe import Markup

from oodles.show import answers, tables
from oodles.show.terminal import render_terminal
from oodles.stats.analysis import Analysis
from oodles.stats.correlate import PartialCorrelations
from oodles.stats.verdict import verdicts
from oodles.terminal import PlainConsole

MANY_ROWS = 20  # a longer table is folded


def as_text(result: Analysis | PartialCorrelations, width: int) -> str:
    """What `oodles analyse` prints, without colours."""
    out = io.StringIO()
    render_terminal(_analysis(result), PlainConsole(file=out, width=width, color_system=None))
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def verdict_of(result: Analysis | PartialCorrelations) -> str:
    """The answer in a sentence."""
    return _analysis(result).verdict


def as_html(result: Analysis | PartialCorrelations) -> str:
    """Verdicts, and the table of pairs of every group."""
    analysis = _analysis(result)
    parts = []
    if len(analysis.every_verdict) > 1:
        parts.append(Markup("<p><strong>{}</strong></p>").format(analysis.verdict))
    for verdict in analysis.verdicts:
        label = ", ".join(verdict.group.values())
        parts += [Markup("<h4>{}</h4>").format(label)] if label else []
        parts.append(Markup("<p>{}</p>").format(verdict.sentence))
        parts.append(_sheet(tables.pairs_sheet(analysis.result, group=verdict.group)))
    for answer in analysis.answers.values():
        parts.append(Markup("<h4>{}</h4>").format(answers.title_of(answer)))
        parts += [Markup("<p>{}</p>").format(sentence) for sentence in answer.sentences]
        parts.append(_sheet(answers.answer_sheet(answer)))
    parts += [Markup("<p>Caveat: {}</p>").format(one) for one in analysis.caveats]
    return str(Markup("\n").join(parts))


def _analysis(result: Analysis | PartialCorrelations) -> Analysis:
    """Correlations alone have verdicts, too."""
    if isinstance(result, Analysis):
        return result
    empty = result.table[:0]
    told = verdicts(result) if len(result.table) else ()
    return Analysis(result=result, changes=empty, verdicts=told, long_table=empty)


def _sheet(sheet: tables.Sheet) -> Markup:
    head = _row("th", [column.title for column in sheet.columns])
    body = Markup("").join(_row("td", [cell.text for cell in row]) for row in sheet.rows)
    table = Markup("<table><thead>{}</thead><tbody>{}</tbody></table>").format(head, body)
    notes = Markup("").join(Markup("<br>{} {}").format(mark, text) for mark, text in sheet.notes)
    shown = Markup("{}<p><small>{}</small></p>").format(table, notes)
    if len(sheet.rows) <= MANY_ROWS:
        return shown
    return Markup("<details><summary>{} rows</summary>{}</details>").format(len(sheet.rows), shown)


def _row(tag: str, cells: Sequence[str]) -> Markup:
    opening, closing = Markup(f"<{tag}>"), Markup(f"</{tag}>")
    return Markup("<tr>{}</tr>").format(Markup("").join(opening + cell + closing for cell in cells))

"""A table as people have it -> a DataFrame: CSV, TSV, `;`-separated text, JSON lines, JSON, Parquet, Excel.

Numbers may have decimal commas and per cent signs, names may be padded, the text may begin with a byte order mark.
What could mean two things is refused with the cell that does.
"""

from __future__ import annotations

import csv
import io
import numbers
import re
import sys
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oodles.errors import DataError, MissingExtraError, first_line, shown, some
from oodles.files import ABSENT, read_frame, read_json_lines
from oodles.imports.columns import SYNONYMS
from oodles.imports.keys import flat
from oodles.shapes import load_json
from oodles.stats.longtable import ARMED, NAMES, OPTIONAL, is_beyond, is_missing, refuse_levels, to_numbers

TEXT = (".csv", ".tsv", ".txt", ".tab")
SUFFIXES = (*TEXT, ".parquet", ".jsonl", ".ndjson", ".json", ".xlsx")
DELIMITERS = ",;\t|"
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".bin", ".rds")
SEPARATOR = re.compile(r"sep=(.)\r?\n")  # how Excel says it
MANY, SPOILT = 5, 0.2  # cells of a column of numbers, and the share of others that may have slipped in
COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
NUMBER = r"[+-]?[0-9]*[.,]?[0-9]+"  # pandas reads no other digits
SPREAD = re.compile(rf"\W*{NUMBER}\s*%?\s*(?:±|\+/?-|\(|\[)\s*{NUMBER}.*")  # 80.1 ± 0.3, 80.1 (0.3)
MARKED = re.compile(rf"[*_†‡§−\s]*{NUMBER}\s*%?[*_†‡§\s]*")  # **80.1**, 80.1†
DOTTED = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
MOSTLY = 0.5  # of a column's cells that are plainly scores
MEASURES = {name for field in ("step", "value", "n") for name in SYNONYMS[field]}
LABELS = {  # columns of a program's table that stay text where they are text, as a run that is called 007
    *(name for field in NAMES for name in SYNONYMS.get(field, (field,))),
    *(name for name in OPTIONAL if name != "chance"),
}


def read_cells(path: Path, where: str | None = None, wanted: Iterable[str] = ()) -> pd.DataFrame:
    """The table in a file, names of columns as text; columns that hold numbers only are numbers.

    `wanted` are columns that a user calls test sets, which Parquet may hold as text.
    """
    where, kind = where or str(path), path.suffix.lower()
    if not path.is_file():
        raise DataError(f"{where}: no such file; expected a table such as .csv or .parquet")
    if kind in PICKLES:
        raise DataError(
            f"{where}: a pickle runs any code that its author put into it, so it is not loaded; where you trust it,"
            " write a table there: python -c \"import pandas; pandas.read_pickle('FILE').to_parquet('table.parquet')\""
        )
    if kind not in SUFFIXES:
        raise DataError(f"{where}: cannot read '{path.suffix}'; expected {', '.join(SUFFIXES)}")
    try:
        return cells_of(read_frame(path), where, wanted) if kind == ".parquet" else _read(path, kind, where)
    except UnicodeDecodeError:
        raise DataError(f"{where}: a text is not UTF-8; save the file as UTF-8") from None
    except (ValueError, OSError, csv.Error) as error:  # pandas' parse errors are ValueErrors
        raise DataError(f"{where}: cannot be read as {kind[1:]}: {first_line(error)}") from None


def cells_of(frame: pd.DataFrame, where: str, wanted: Iterable[str] = ()) -> pd.DataFrame:
    """The same of a table in memory, whose index may hold runs and steps, and whose texts are texts unless scores.

    A program's text `1.10` may be a version, and `007` a name: groups and units are made of them.
    """
    refuse_levels(frame, where)
    table = _named(_with_index(frame), where)
    for name in table.columns:
        if isinstance(table[name].dtype, pd.CategoricalDtype):
            table[name] = table[name].astype(object)
        if pd.api.types.is_string_dtype(table[name]):
            list(table[name].unique())  # Parquet does not look at the bytes of its texts; this does
    others = [c for c in table.columns if _key(c) not in LABELS]
    known = [c for c in others if _key(c) in SYNONYMS["value"] or _key(c) not in MEASURES]
    alone = not any(_key(c) in SYNONYMS["value"] or pd.api.types.is_numeric_dtype(table[c]) for c in known)
    texts = {c for c in table.columns if not (c in others and (alone or _holds_scores(table[c], c in wanted)))}
    return _numbered(table, where, texts)


def _key(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _holds_scores(column: pd.Series, wanted: bool) -> bool:
    """Whether texts or objects of a frame are plainly numbers: by their name, their signs or their decimals."""
    if wanted or _key(str(column.name)) in MEASURES:
        return True
    cells = column[~is_missing(column)]
    if not len(cells) or not (column.dtype == object or pd.api.types.is_string_dtype(column)):
        return False
    if cells.map(_is_plain).all() or cells.map(lambda cell: isinstance(cell, float) and cell % 1 != 0).mean() > MOSTLY:
        return True
    if not cells.map(lambda cell: isinstance(cell, str)).all():
        return False
    texts = cells.astype(str).str.strip()
    shares = texts.str.fullmatch(r"[01]?\.\d+|[01]").all() and texts.str.fullmatch(r"[01]?\.\d{3,}").mean() > MOSTLY
    return bool(shares or texts.str.fullmatch(rf"{NUMBER}\s*%", flags=re.ASCII).all())


def _read(path: Path, kind: str, where: str) -> pd.DataFrame:
    if kind in TEXT:
        return _read_text(path, kind, where)
    if kind == ".xlsx":
        return _numbered(_read_excel(path, where), where)
    rows = _rows(load_json(path), where) if kind == ".json" else read_json_lines(path, where)
    if not rows:
        raise DataError(f"{where}: no rows; expected one JSON object per row")
    rows = [dict(flat(row, "/", only_scores=True)) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_cell(row.get(name, ABSENT)) for row in rows] for name in names}
    return _numbered(_named(pd.DataFrame(columns, dtype=object).infer_objects(), where), where)


def _with_index(table: pd.DataFrame) -> pd.DataFrame:
    """An index that says something, as where a user made the runs one, is a column as well."""
    plain = table.index.names == [None] and pd.api.types.is_integer_dtype(table.index)
    again = [level for level, name in enumerate(table.index.names) if name in table.columns]
    if plain or len(again) == len(table.index.names):
        return table.reset_index(drop=True)
    return table.reset_index(again, drop=True).reset_index()


def _rows(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise DataError(f"{where}: expected a list of objects, one per row (of pandas: to_json(orient='records'))")
    return value


def _cell(value: Any) -> Any:
    return None if value is ABSENT else value


def _read_text(path: Path, kind: str, where: str) -> pd.DataFrame:
    """Text stays text; whether a column holds numbers is decided once it is known how they are written."""
    text = _decode(path.read_bytes(), where)
    if "\n" not in text:
        text = text.replace("\r", "\n")  # lines as old Macs ended them
    told = SEPARATOR.match(text)
    text = text[told.end() :] if told else text
    tabs = kind in (".tsv", ".tab") and "\t" in text  # some only say that they have them
    delimiter = told[1] if told else "\t" if tabs else _delimiter(text)
    header = _check_shape(text, delimiter, where)
    raw = pd.read_csv(
        io.StringIO(text), sep=delimiter, dtype=str, keep_default_na=False, na_filter=False, skipinitialspace=True
    )
    raw.columns = pd.Index(header)
    raw = raw[(raw != "").any(axis=1)].reset_index(drop=True)  # a line of nothing but separators
    for column in raw.columns:
        raw[column] = raw[column].str.strip()
        if raw[column].str.startswith("'").any():  # as `disarmed` wrote it
            raw[column] = raw[column].str.replace(ARMED, "", n=1, regex=True)
    return _numbered(raw, where)


def _decode(data: bytes, where: str) -> str:
    """UTF-8 with or without a byte order mark; UTF-16 with one, as Excel writes it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) and not data.startswith(b"\xff\xfe\0\0"):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{where} line {line}: byte {data[error.start]:#04x} is not UTF-8 text; save the file as UTF-8"
        ) from None


def _delimiter(text: str) -> str:
    """What separates most names of the header."""
    first = text.lstrip("\r\n").partition("\n")[0]
    return max(DELIMITERS, key=lambda d: (len(next(csv.reader([first], delimiter=d), [])), d == ","))


def _check_shape(text: str, delimiter: str, where: str) -> list[str]:
    """The header; pandas would rename a second `value`, and shift or fill rows of another length."""
    csv.field_size_limit(sys.maxsize)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    rows = (row for row in lines if row)
    names = next(rows, [])
    header = [name.strip() for name in names]
    if not header:
        raise ValueError("the file is empty; expected a header and at least one row")
    _refuse_twins(names, where)
    first: set[bool] = set()  # whether rows begin with a `#`
    for number, row in enumerate(rows, start=1):
        hashed = _begins_with_hash(row)
        if len(row) != len(header) and any(cell.strip() for cell in row):
            cause = "the file cut off, or a cell with a comma not in quotation marks"
            cause = f"'{shown(header[0])}' a title? remove the line" if len(header) == 1 else f"{cause}?"
            cause = "it a comment? remove the line" if hashed else cause
            raise DataError(f"{where} row {number}: {len(row)} cells, the header has {len(header)}; is {cause}")
        _refuse_header_again(row, header, where, number)
        first.add(hashed)
        if len(first) > 1 and hashed:
            raise _comment(row, where, number)
    if len(header) == 1:
        separated = "separated by commas, semicolons, tabs or |"
        raise DataError(f"{where}: one column, '{shown(header[0])}'; expected several, {separated}")
    _refuse_title(header, where)
    return [name or f"column {place}" for place, name in enumerate(header, start=1)]


def _begins_with_hash(row: Sequence[Any]) -> bool:
    return bool(row) and str(row[0]).startswith("#")


def _comment(row: Sequence[Any], where: str, number: int) -> DataError:
    return DataError(f"{where} row {number}: begins with '{shown(row[0], 20)}', a comment? remove the line")


def _refuse_header_again(row: Sequence[Any], header: Sequence[str], where: str, number: int) -> None:
    """Files that were put under each other, each with its header."""
    if row[0] == header[0] and [str(cell).strip() for cell in row] == [*header]:
        raise DataError(f"{where} row {number}: the header again; remove the line")


def _refuse_title(header: Sequence[str], where: str) -> None:
    if len(header) > 2 and header[0] and not any(header[1:]):
        raise DataError(f"{where}: only the first column has a name; is '{shown(header[0])}' a title? remove the line")


def _refuse_twins(names: Sequence[object], where: str) -> None:
    owners: dict[str, str] = {}
    for name in map(str, names):
        other = owners.setdefault(name.strip(), name) if name.strip() else None
        if other not in (None, name):
            raise DataError(f"{where}: columns '{shown(other)}' and '{shown(name)}' differ in blanks only; rename one")
    repeated = [name for name, count in Counter(map(str, names)).items() if name.strip() and count > 1]
    if repeated:
        raise DataError(f"{where}: column '{shown(repeated[0])}' appears more than once; keep one")


def _named(table: pd.DataFrame, where: str) -> pd.DataFrame:
    _refuse_twins(list(table.columns), where)
    names = [str(name).strip() or f"column {place}" for place, name in enumerate(table.columns, start=1)]
    table.columns = pd.Index(names)
    return table


def _read_excel(path: Path, where: str) -> pd.DataFrame:
    """The only sheet with anything in it."""
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise MissingExtraError(f"{where}: Excel", "imports") from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: [list(row) for row in sheet.iter_rows(values_only=True)] for sheet in book.worksheets}
        book.close()
    except Exception as error:  # of a damaged file the library says so in many ways
        raise ValueError(first_line(error)) from None
    sheets = {title: [row for row in rows if any(cell is not None for cell in row)] for title, rows in sheets.items()}
    filled = {title: rows for title, rows in sheets.items() if rows}
    if len(filled) != 1:
        found = f"sheets {some(filled)}" if filled else "no sheet with cells"
        raise DataError(f"{where}: {found}; expected one: save it alone, as .xlsx or .csv")
    header, *rows = next(iter(filled.values()))
    width = max((i for i, name in enumerate(header, start=1) if name is not None), default=0)
    if any(cell is not None for row in rows for cell in row[width:]):
        hint = "name every column in the first row, and leave no merged cells or titles above it"
        raise DataError(f"{where}: cells beyond the header, which has {width} names; {hint}")
    if any(cell is None for row in rows for cell in row[:width]):
        _refuse_uncomputed(path, next(iter(filled)), where)
    names = [str(name).strip() if name is not None else f"column {i}" for i, name in enumerate(header[:width], start=1)]
    _refuse_twins(names, where)
    hashed = [_begins_with_hash(row) for row in rows]
    for number, row in enumerate(rows, start=1):
        _refuse_header_again(row, names, where, number)
        if hashed[number - 1] and not all(hashed):
            raise _comment(row, where, number)
    return pd.DataFrame([row[:width] for row in rows], columns=names, dtype=object).infer_objects()


def _refuse_uncomputed(path: Path, title: str, where: str) -> None:
    """A formula whose result was never stored would read as an empty cell."""
    import openpyxl

    stored = openpyxl.load_workbook(path, read_only=True, data_only=True)
    typed = openpyxl.load_workbook(path, read_only=True, data_only=False)
    try:
        for values, cells in zip(stored[title].iter_rows(values_only=True), typed[title].iter_rows(), strict=False):
            for value, cell in zip(values, cells, strict=False):
                if value is None and getattr(cell, "data_type", "") == "f":
                    found = f"{cell.coordinate} is a formula ({shown(cell.value, 40)}) without a stored result"
                    raise DataError(f"{where}: {found}; open and save the file in a spreadsheet, or export it as .csv")
    finally:
        stored.close()
        typed.close()


def _refuse_thousands(table: pd.DataFrame, where: str) -> None:
    """`1.000` is a thousand to some, and pandas would read 1."""
    for name in (c for c in ("step", "n") if c in table.columns and pd.api.types.is_string_dtype(table[c])):
        dotted = table[name][table[name].astype(str).str.fullmatch(DOTTED)]
        if len(dotted):
            found = f"{name} is '{dotted.iloc[0]}'"
            raise DataError(f"{where} row {int(dotted.index[0]) + 1}: {found}: thousands? write it as 1000, or as 1")


def _numbered(table: pd.DataFrame, where: str, labels: Container[str] = NAMES) -> pd.DataFrame:
    """Columns whose every cell is a number, as numbers; names stay text."""
    _refuse_thousands(table, where)
    columns = {}
    for name in table.columns:
        column = table[name]
        is_text = column.dtype == object or pd.api.types.is_string_dtype(column)
        columns[name] = _as_numbers(column, name, where) if is_text and name not in labels else column
    return pd.DataFrame(columns, index=table.index)


def _as_numbers(column: pd.Series, name: str, where: str) -> pd.Series:
    if column.dtype == object:
        _refuse_others(column, name, where)
        if not column.map(lambda cell: cell is None or cell is pd.NA or _is_plain(cell) or isinstance(cell, str)).all():
            return column
    missing = is_missing(column)
    cells = column.mask(missing)
    found = to_numbers(cells)
    if found.notna().sum() == (~missing).sum():
        return found
    texts = cells.dropna().astype(str).str.strip()
    odd = texts[texts.str.contains(r"[%,]", regex=True)]
    if odd.empty or not odd.str.fullmatch(r"[+-]?[\d.,]+(?:[eE][+-]?\d+)?\s*%?").all():
        _refuse_spoilt(texts, found, name, where)
        return column
    return _respelt(column, texts, name, where)


def _is_plain(cell: object) -> bool:
    return isinstance(cell, (numbers.Real, Decimal)) and not isinstance(cell, bool)


def _refuse_others(column: pd.Series, name: str, where: str) -> None:
    """Truths, dates and huge ones among numbers: `true` would be 1, and a column with a date in it no test set."""
    if not column.dropna().map(_is_plain).any():  # a gap may be a float
        return
    for place, cell in enumerate(column):
        if (isinstance(cell, (bool, date)) and not pd.isna(cell)) or is_beyond(cell):
            raise DataError(
                f"{where} row {place + 1}: {shown(name)} is {shown(cell, 40)}, other cells are numbers; correct the"
                " cell, or leave it empty"
            )


def _refuse_spoilt(texts: pd.Series, numbers: pd.Series, name: str, where: str) -> None:
    """A column of numbers with a few other cells: left as text, it would silently be no test set."""
    for pattern, what in ((SPREAD, "a score and its spread"), (MARKED, "a score with a mark")):
        marked = texts[texts.str.fullmatch(pattern) & numbers[texts.index].isna()]
        if len(marked) * 2 > len(texts):
            raise DataError(
                f"{where} row {int(marked.index[0]) + 1}: {shown(name)} is '{shown(marked.iloc[0])}', {what}; keep the"
                f" score alone, and a spread in a column of its own, such as {shown(name)}_stderr"
            )
    spoilt = texts[numbers[texts.index].isna() & ~texts.str.fullmatch(rf"{NUMBER}\s*%?")]
    if len(texts) >= MANY and 0 < len(spoilt) <= SPOILT * len(texts):
        raise DataError(
            f"{where} row {int(spoilt.index[0]) + 1}: {shown(name)} is '{shown(spoilt.iloc[0])}', the other cells are"
            " numbers; correct the cell, or leave it empty"
        )


def _respelt(column: pd.Series, texts: pd.Series, name: str, where: str) -> pd.Series:
    """Cells with decimal commas or per cent signs as numbers; the column itself if they are none."""
    percent = texts.str.endswith("%")
    plain = texts.str.removesuffix("%").str.strip()
    with_comma = plain[plain.str.contains(",")]
    if len(with_comma):
        place = f"{where} row {int(with_comma.index[0]) + 1}: {shown(name)} is '{shown(with_comma.iloc[0])}'"
        if plain.str.fullmatch(POINT).any() or with_comma.str.fullmatch(THOUSANDS).all():
            raise DataError(f"{place}: a decimal comma, or thousands? write it as 0.713 or 1000")
        if not with_comma.str.fullmatch(COMMA).all():
            return column
        plain = plain.str.replace(",", ".")
    found = pd.to_numeric(plain, errors="coerce")
    if found.isna().any():
        _refuse_spoilt(texts, found, name, where)
        return column
    if percent.any():
        if not percent.all():
            row = int(percent.index[int(np.argmin(percent.to_numpy()))]) + 1
            raise DataError(f"{where} row {row}: {shown(name)} has no per cent sign, other rows have; write all alike")
        found = pd.to_numeric(plain + "e-2")
    return found.reindex(column.index)

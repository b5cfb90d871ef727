"""Results -> the data that the report's page draws from: every table as it is, scores and residuals by run.

Numbers are those of the results, at ten digits; what is drawn as points only is rounded to a ten-thousandth.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from oodles.show.groups import label_of, size_of
from oodles.stats.analysis import Analysis
from oodles.stats.longtable import chance_level
from oodles.stats.series import grouped
from oodles.stats.stability import split_tags
from oodles.stats.verdict import DUE, WAYS, Verdict

DIGITS = 10
MOST_SCORES = 900_000  # values; beyond, only the analysed metric and the answers' shares are drawn
FACTS = ("model", "train_set", "shots", "seed", "pattern", "family", "size")  # what tells runs apart


def page_data(analysis: Analysis, verdicts: Sequence[Verdict], *, answer: str | None, with_table: bool) -> Markup:
    """JSON that can stand inside a script element."""
    result = analysis.result
    metric = str(result.settings.get("metric") or "accuracy")
    found: dict[str, Any] = {
        "metric": metric,
        "answer": answer,
        "level": result.settings.get("level", 0.95),
        "by": list(verdicts[0].group) if verdicts else [],
        "ways": {way: WAYS.get(way, way) for way in dict.fromkeys(result.table["within"])},
        "due": DUE,
        "groups": [_group(verdict) for verdict in verdicts],
        "sets": list(dict.fromkeys([*result.table["a"], *result.table["b"]])),
        "kinds": kinds_of(analysis.long_table),
        "tables": {name: encoded(frame) for name, frame in tables_of(analysis).items()},
    }
    if with_table:
        found |= _Scores.of(analysis, metric).told(verdicts)
    return as_json(found)


def kinds_of(table: pd.DataFrame) -> dict[str, list[str]]:
    """The kinds of shift of every test set that has some."""
    if "tags" not in table.columns:
        return {}
    first = table.drop_duplicates("test_set")
    told = {str(name): split_tags(tags) for name, tags in zip(first["test_set"], first["tags"], strict=True)}
    return {name: kinds for name, kinds in told.items() if kinds}


def tables_of(analysis: Analysis) -> dict[str, pd.DataFrame]:
    """Every table that the page shows, by the name of its file in a folder of results."""
    further = {name: frame for answer in analysis.answers.values() for name, frame in answer.tables.items()}
    own = {"correlations": analysis.result.table, "fits": analysis.result.fits, "changes": analysis.changes}
    return {name: frame for name, frame in {**own, **further}.items() if len(frame)}


def as_json(value: Any) -> Markup:
    """JSON in which nothing ends the script element that holds it, whatever names and texts contain."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def encoded(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Columns; text as the different texts and which of them each row has."""
    return [{"name": str(name), **_column(frame[name])} for name in frame.columns]


def _column(column: pd.Series[Any]) -> dict[str, Any]:
    if pd.api.types.is_bool_dtype(column):
        return {"flags": [int(value) for value in column]}
    if pd.api.types.is_numeric_dtype(column):
        return {"values": [_number(value, DIGITS) for value in column.to_numpy(float)]}
    texts = pd.Series(["; ".join(c) if isinstance(c, list | tuple | np.ndarray) else _text(c) for c in column])
    codes, levels = pd.factorize(texts)
    return {"levels": [str(level) for level in levels], "codes": codes.tolist()}


def _text(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _number(value: float, digits: int) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _group(verdict: Verdict) -> dict[str, Any]:
    return {
        "label": label_of(verdict.group) or "all runs",
        "of": dict(verdict.group),
        "descriptive": verdict.descriptive,
        "runs": verdict.n_runs,
        "size": _number(size_of(verdict.group), 6),
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Scores:
    """Scores and residuals as rows of a run's steps."""

    table: pd.DataFrame
    residuals: pd.DataFrame
    metric: str
    plain: bool  # residuals are of the scores themselves, not of their ranks

    @classmethod
    def of(cls, analysis: Analysis, metric: str) -> _Scores:
        table = analysis.long_table
        if len(table) > MOST_SCORES:
            table = table[(table["metric"] == metric) | table["metric"].astype(str).str.startswith("share:")]
        plain = analysis.result.settings.get("correlation", "pearson") == "pearson"
        return cls(table=table, residuals=analysis.result.residuals, metric=metric, plain=plain)

    def told(self, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        runs = self._runs(verdicts)
        names = [run["run"] for run in runs]
        grids = {str(name): sorted(set(rows["step"])) for name, rows in self.table.groupby("run", observed=True)}
        inside = self.table[self.table["role"].astype(str) == "in_domain"]
        outside = self.table[self.table["role"].astype(str) != "in_domain"]
        mean = inside.groupby(["metric", "run", "step"], observed=True)["value"].mean().reset_index()
        sets = list(dict.fromkeys(outside["test_set"]))
        residuals = {
            str(way): _by_run(rows, "test_set", "residual", names, grids)
            for way, rows in self.residuals.groupby("within", observed=True, sort=False)
        }
        return {
            "runs": runs,
            "grids": [[_number(float(step), 12) for step in grids[name]] for name in names],
            "scores": {
                str(m): _by_run(rows, "test_set", "value", names, grids)
                for m, rows in outside.groupby("metric", observed=True, sort=False)
            },
            "inside": _by_run(mean, "metric", "value", names, grids),
            "residuals": residuals,
            "chance": {s: _number(chance_level(self.table, s, self.metric), 6) for s in sets},
            "curves": self.plain,
        }

    def _runs(self, verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
        """What is known of every run, and its group."""
        place = {tuple(verdict.group.items()): i for i, verdict in enumerate(verdicts)}
        by = list(verdicts[0].group) if verdicts else []
        first = self.table.drop_duplicates("run")
        facts = [name for name in FACTS if name in first and first[name].notna().any()]
        runs = []
        for group, rows in grouped(first, by):
            at = place.get(tuple(group.items()))
            for row in rows.to_dict("records"):
                told = {name: _text(_plain(row[name])) for name in facts}
                runs.append({"run": str(row["run"]), "group": at, **told})
        return [run for run in runs if run["group"] is not None]


def _plain(value: Any) -> Any:
    """A whole number as one: columns with gaps hold 16.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _by_run(
    rows: pd.DataFrame, key: str, value: str, names: Iterable[str], grids: Mapping[str, Sequence[Any]]
) -> dict[str, list[list[float | int | None] | None]]:
    """By test set, or metric: for every run its values at its steps."""
    places = {name: i for i, name in enumerate(names)}
    at: dict[tuple[str, str], dict[Any, float]] = {}
    for name, run, step, score in zip(*(rows[c].tolist() for c in (key, "run", "step", value)), strict=True):
        at.setdefault((str(name), str(run)), {})[step] = score
    found: dict[str, list[list[float | int | None] | None]] = {}
    for (name, run), own in at.items():
        if run in places:
            of = found.setdefault(name, [None] * len(places))
            of[places[run]] = [_rounded(own.get(step)) for step in grids[run]]
    return found


def _rounded(value: Any) -> float | int | None:
    """A ten-thousandth, or four digits of what is larger than 1."""
    if value is None or not math.isfinite(value):
        return None
    short = round(float(value), 4) if abs(value) < 10 else float(f"{value:.5g}")
    return int(short) if short == int(short) else short

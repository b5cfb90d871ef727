"""The whole analysis as one value: compute it, write it, read it back.

Try it::

    analysis = analyse_table(table, records)
    write_results(analysis, Path("results"))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oodles import __version__
from oodles.display import Displayed
from oodles.errors import DataError, StoreError, first_line, shown
from oodles.files import read_frame
from oodles.outputs import check_target, write_aside
from oodles.shapes import load_json, misfit
from oodles.stats.answers import Answer
from oodles.stats.changes import changes
from oodles.stats.correlate import UNTESTED_GROUPS, PartialCorrelations, partial_correlations
from oodles.stats.longtable import as_names, check_table, disarmed, with_sizes
from oodles.stats.outcomes import Examples
from oodles.stats.questions import SHAPE as ANSWERS
from oodles.stats.questions import TABLES as ANSWER_TABLES
from oodles.stats.questions import ask, read_answer, settle, split
from oodles.stats.questions import summary as answer_summary
from oodles.stats.sensitivity import holding
from oodles.stats.threads import one_thread
from oodles.stats.verdict import Verdict, first_way, overall, silent_verdicts, verdicts

SCHEMA = 1
TABLES = ("correlations", "fits", "residuals", "changes", "table")
SEPARATOR = "; "
AGAIN = "write the results again with oodles analyse"
SHAPE = {
    "oodles": str,
    "settings": {"by": [str], "metric?": str, "level?": (int, float), "in_domain?": ([str], str, None)},
    "caveats": [str],
    "verdicts": [{"group": {...: str}, "n_runs": int, "descriptive": bool, "sentence": str}],
    "answers?": ANSWERS,
}
NEEDED: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # columns that hold text, and numbers
    "correlations": (
        ("a", "b", "corrected_by", "method", "within", "interval", "correlation"),
        (
            *("r", "low", "high", "p_val", "p_holm", "p_bh", "r_corrected", "r_corrected_low", "r_corrected_high"),
            *("n_runs", "n_units", "n_steps"),
        ),
    ),
    "fits": (
        ("test_set", "method", "within", "reliability_from"),
        ("r2", "edf", "residual_sd", "reliability", "n_runs", "n_steps"),
    ),
    "residuals": (("run", "test_set", "within"), ("step", "value", "fitted", "residual", "low", "high")),
    "changes": (
        ("test_set", "role"),
        ("first_step", "last_step", "first", "last", "change", "low", "high", "n", "n_runs"),
    ),
    "table": (("run", "test_set", "role", "metric"), ("step", "value")),
}
SHARED = ("by", "unit", "metric", "level", "in_domain")  # options of correlations and of changes
SCALARS = (bool, int, float, np.generic)
SUMMARY, UNFINISHED = "results.json", ".results.part"  # written last; there until then


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Analysis(Displayed):
    """Everything that follows from a long table; `print` shows a summary of it, and Jupyter its tables."""

    result: PartialCorrelations
    changes: pd.DataFrame
    verdicts: tuple[Verdict, ...]
    long_table: pd.DataFrame  # the scores themselves, as checked: for whoever draws trajectories
    version: str = __version__  # of oodles, when it was computed
    runs: tuple[Mapping[str, Any], ...] = ()  # what was run, where a study's folder says so
    notes: tuple[str, ...] = ()  # what was left out, or is not finished
    title: str = ""
    question: str = ""
    source: str = ""  # of published figures: whose they are, and under which licence
    audit: Mapping[str, Any] = field(default_factory=dict)  # sets and findings, where a study's folder has an audit
    answers: Mapping[str, Answer] = field(default_factory=dict)  # to what was asked beyond correlations

    @classmethod
    def of(cls, table: pd.DataFrame, result: PartialCorrelations) -> Analysis:
        """Changes and verdicts for correlations that were computed by themselves."""
        settings: Mapping[str, Any] = {"by": (), **result.settings}
        options = {name: settings[name] for name in SHARED if settings.get(name) is not None}
        checked, _ = check_table(table, in_domain=settings.get("in_domain"))
        said = verdicts(result) if len(result.table) else ()
        return cls(result=result, changes=changes(table, **options), verdicts=tuple(said), long_table=_plain(checked))

    @property
    def robustness(self) -> pd.DataFrame:
        """Effective robustness: the residuals with their intervals."""
        return self.result.residuals

    @property
    def every_verdict(self) -> tuple[Verdict, ...]:
        """The verdicts, and one for each group in which there is no pair to compare."""
        return (*self.verdicts, *silent_verdicts(self.verdicts, self.changes))

    @property
    def verdict(self) -> str:
        """The answer in a sentence; of several groups, whether it depends on the group, where that was asked."""
        return overall(self.every_verdict, self.claim)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of the whole analysis; what a later question did test is not said to be untested."""
        asked = self.claim is not None
        return tuple(caveat for caveat in self.result.caveats if not (asked and caveat == UNTESTED_GROUPS))

    @property
    def claim(self) -> Answer | None:
        """Whether correlations depend on the model, or on whatever `across` named; None where it was not asked."""
        return self.answers.get("claim")


@one_thread
def analyse_table(table: pd.DataFrame, records: pd.DataFrame | Examples | None = None, **options: Any) -> Analysis:
    """Partial correlations, changes over training and a verdict per group.

    Parameters
    ----------
    table : pandas.DataFrame
        A long table.
    records : pandas.DataFrame or Examples, optional
        Per-example outcomes.
    **options
        As for `partial_correlations`; `n`, by test set how many examples are behind its scores, where the table does
        not say; and questions beyond it: `across`, `sensitivity`, `windows`, `redundancy`, `stability`, `skill`,
        `averages`.

    Returns
    -------
    Analysis
    """
    asked, options = split(options)
    table = with_sizes(
        table, options.pop("n", None) or {}, options.get("metric") or "accuracy", options.get("in_domain")
    )
    result = partial_correlations(table, records, **options)
    shared = {name: options[name] for name in SHARED if name in options}
    checked, _ = check_table(table, in_domain=options.get("in_domain"))
    asked = settle(asked, result.table, checked)
    answers = ask(checked, records, result.settings, asked)
    told = verdicts(result)
    if "sensitivity" in answers:
        told = tuple(_with_sensitivity(verdict, answers["sensitivity"], result) for verdict in told)
    return Analysis(
        result=result,
        changes=changes(table, **shared),
        verdicts=told,
        long_table=_plain(checked),
        answers=answers,
    )


def write_results(analysis: Analysis, out: Path) -> list[Path]:
    """Write every result as CSV and Parquet beside a `results.json`, which is written last.

    Parameters
    ----------
    analysis : Analysis
        What to write.
    out : Path
        A folder, made where absent. Each file is written aside and renamed, so a reader sees whole files only. Earlier
        results are replaced; other files are not.

    Returns
    -------
    list of Path
        The files.
    """
    out = Path(out)
    check_results(out)
    written = [write_aside(out / UNFINISHED, lambda path: path.touch())]
    further = {name: frame for answer in analysis.answers.values() for name, frame in answer.tables.items()}
    for name, frame in {**_frames(analysis), **further}.items():
        written.append(write_aside(out / f"{name}.csv", partial(_as_csv(frame).to_csv, index=False)))
        written.append(write_aside(out / f"{name}.parquet", partial(frame.to_parquet, index=False)))
    text = json.dumps(_summary(analysis), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    written.append(write_aside(out / SUMMARY, lambda path: path.write_text(text, encoding="utf-8")))
    (out / UNFINISHED).unlink(missing_ok=True)
    return written[1:]


def check_results(out: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a folder in which results would take the place of other files."""
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out}: is there and is no folder; choose another --out")
    held = (out / UNFINISHED).is_file() or all((out / name).is_file() for name in (SUMMARY, "correlations.parquet"))
    for name in (SUMMARY, *(f"{table}.{kind}" for table in (*TABLES, *ANSWER_TABLES) for kind in ("csv", "parquet"))):
        check_target(out / name, lambda _: held, inputs)


def read_results(path: Path) -> Analysis:
    """Read back what `write_results` wrote, exactly.

    Parameters
    ----------
    path : Path
        The folder, or its `results.json`.
    """
    folder = Path(path).parent if Path(path).name == SUMMARY else Path(path)
    summary = _read_summary(folder)
    frames = {name: _read_frame(folder / f"{name}.parquet", name, summary["settings"]["by"]) for name in TABLES}
    result = PartialCorrelations(
        table=frames["correlations"],
        fits=frames["fits"],
        residuals=frames["residuals"],
        settings=summary["settings"],
        caveats=tuple(summary["caveats"]),
    )
    compared = _compared(folder, summary, frames)
    try:
        told = tuple(_read_verdict(verdict) for verdict in compared)
    except TypeError:
        raise DataError(f"{folder / SUMMARY}: a verdict has other keys than this version writes; {AGAIN}") from None
    return Analysis(
        result=result,
        changes=frames["changes"],
        verdicts=told,
        long_table=_plain(frames["table"]),
        version=summary["oodles"],
        answers={one["name"]: read_answer(folder, one, AGAIN) for one in summary.get("answers", ())},
    )


def _read_verdict(told: Mapping[str, Any]) -> Verdict:
    """A verdict as it was written; those of earlier versions have the whole sentence only."""
    return Verdict(**{"short": told.get("sentence", ""), **told, "points": tuple(told.get("points", ()))})


def _with_sensitivity(verdict: Verdict, sensitivity: Answer, result: PartialCorrelations) -> Verdict:
    """The verdict, with in how many choices the pairs that it counts hold."""
    rows = result.table[result.table["within"] == first_way(result.table)]
    for name, value in verdict.group.items():
        rows = rows[rows[name].astype(str) == value]
    clear = rows[rows["clear"].astype(bool)]
    held = holding(sensitivity, verdict.group, set(zip(clear["a"], clear["b"], strict=True)))
    points = (*verdict.points, held.strip()) if held else verdict.points
    return replace(verdict, sentence=verdict.sentence + held, points=points)


def _compared(folder: Path, summary: Any, frames: Mapping[str, pd.DataFrame]) -> list[Any]:
    """The verdicts about groups that have pairs; a group without any has changes at least."""
    by = summary["settings"]["by"]
    paired, known = (
        set(map(tuple, frames[name][by].astype(str).to_numpy())) if by else {()} for name in ("correlations", "changes")
    )
    compared = []
    for verdict in summary["verdicts"]:
        group = tuple(verdict["group"].get(name) for name in by)
        if set(verdict["group"]) != set(by) or group not in paired | known:
            raise DataError(f"{folder / SUMMARY}: a verdict about a group that has no scores; {AGAIN}")
        if group in paired:
            compared.append(verdict)
    return compared


def _frames(analysis: Analysis) -> dict[str, pd.DataFrame]:
    result = analysis.result
    tables = (result.table, result.fits, result.residuals, analysis.changes, analysis.long_table)
    return dict(zip(TABLES, tables, strict=True))


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Names as text or None: a column of mixed kinds has no place in Parquet, and kinds differ between pandas."""
    table = table.copy()
    for column in table.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]]:
        table[column] = as_names(table[column])
    return table


def _as_csv(frame: pd.DataFrame) -> pd.DataFrame:
    """Caveats as text, and no text that a spreadsheet would take for a formula."""
    if "caveats" in frame.columns:
        frame = frame.assign(caveats=[SEPARATOR.join(said) for said in frame["caveats"]])
    texts = [column for column in frame.columns if not pd.api.types.is_numeric_dtype(frame[column])]
    return frame.assign(**{column: disarmed(frame[column]) for column in texts})


def _summary(analysis: Analysis) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "oodles": analysis.version,
        "settings": dict(analysis.result.settings),
        "caveats": list(analysis.caveats),
        "verdicts": [asdict(verdict) for verdict in analysis.every_verdict],
        "tables": {name: f"{name}.parquet" for name in TABLES},
        "answers": [answer_summary(answer) for answer in analysis.answers.values()],
    }


def _read_summary(folder: Path) -> Any:
    file = folder / SUMMARY
    if not file.is_file():
        raise DataError(f"{folder}: no {SUMMARY}; expected a folder written by oodles analyse")
    try:
        summary = load_json(file)
        found = misfit(summary, {"schema": int})
    except (OSError, ValueError) as error:
        found = first_line(error)
    if found:
        raise DataError(f"{file}: not a results file ({found}); {AGAIN}")
    if summary["schema"] != SCHEMA:
        raise DataError(f"{file}: schema {summary['schema']}, this version reads {SCHEMA}; {AGAIN}")
    if found := misfit(summary, SHAPE):
        raise DataError(f"{file}: {found}; {AGAIN}")
    return summary


def _is_cell(value: object) -> bool:
    return value is None or isinstance(value, (str, *SCALARS))


def _read_frame(file: Path, name: str, by: list[str]) -> pd.DataFrame:
    """A table of results, if it has the columns that whoever shows it needs."""
    try:
        frame = read_frame(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({first_line(error)}); {AGAIN}") from None
    texts, numbers = NEEDED[name]
    for column in (*by, *texts, *numbers):
        if column not in frame.columns:
            raise DataError(f"{file}: no column '{shown(column)}'; {AGAIN}")
        if column in numbers and not pd.api.types.is_numeric_dtype(frame[column]):
            raise DataError(f"{file}: column '{column}' holds {frame[column].dtype}, expected numbers; {AGAIN}")
        if column in texts and not all(isinstance(cell, str) for cell in frame[column]):
            raise DataError(f"{file}: column '{column}' holds {frame[column].dtype}, expected text; {AGAIN}")
    if name == "table":
        for column in frame.columns:
            if frame[column].dtype == object and not all(map(_is_cell, frame[column])):
                raise DataError(f"{file}: column '{shown(column)}' holds lists, expected text or numbers; {AGAIN}")
        return frame
    if "caveats" not in frame.columns:
        raise DataError(f"{file}: no column 'caveats'; {AGAIN}")
    if not all(isinstance(said, np.ndarray) and all(isinstance(s, str) for s in said) for said in frame["caveats"]):
        raise DataError(f"{file}: column 'caveats' holds {frame['caveats'].dtype}, expected lists of text; {AGAIN}")
    return frame.assign(caveats=pd.Series([list(map(str, s)) for s in frame["caveats"]], dtype=object))

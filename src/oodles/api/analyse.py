"""analyse(): from whatever holds scores to an `Analysis`.

>>> import oodles as oo
>>> analysis = oo.analyse("runs/demo")  # doctest: +SKIP
>>> print(analysis.verdicts[0].sentence)  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.api.findings import Finding, findings
from oodles.api.records import StoredRecords
from oodles.errors import ConfigError, nearest, shown
from oodles.stats.analysis import SUMMARY, Analysis, analyse_table, read_results
from oodles.stats.longtable import pick_sets, read_table
from oodles.stats.outcomes import Examples
from oodles.store.archive import is_packed, opened
from oodles.store.facts import describe_runs
from oodles.store.folder import StudyFolder
from oodles.store.table import DamageWarning, read_runs

KEPT = ("by", "unit", "metric", "level", "in_domain", "within", "method", "correlation", "shared_start")
TEXTS = ("method", "interval", "correlation", "metric", "unit", "shared_start")
NAMES = ("by", "within", "in_domain", "test_sets")  # a name, or several
NUMBERS = ("level", "chance")
ANEW = "analysed again from the results' table, without per-example records"


def analyse(
    source: str | Path | pd.DataFrame,
    *,
    records: pd.DataFrame | Examples | None = None,
    test_sets: Sequence[str] | None = None,
    **options: Any,
) -> Analysis:
    """Partial correlations between OOD test sets, changes over training and a verdict per group.

    Parameters
    ----------
    source
        The folder of a study, a packed study, a long table (a `DataFrame`, .csv or .parquet), or the folder that
        `oodles analyse --out` wrote; or the name of a finding that ships with oodles (``"bert-hans"``).
    records
        With a table: per-example outcomes, columns run, step, test_set, example, correct. A study's folder brings its
        own.
    test_sets
        Only these test sets and slices, beside the in-domain ones.
    **options
        As for `partial_correlations`: method, within, interval, correlation, metric, by, unit, in_domain, chance,
        shared_start, level; and what is asked beyond it: `across` (columns, e.g. ``"model"``: does it depend on the
        model whether test sets agree?), `sensitivity` (in how many defensible analyses does a conclusion hold?),
        `windows` (over training), `redundancy` (which sets are needed?), `stability` and `skill`.

    Returns
    -------
    Analysis
        What `write_report`, and the command line, show.
    """
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if v is not None}
    _check_types({**given, "test_sets": test_sets})
    if isinstance(given.get("in_domain"), str):
        given["in_domain"] = (given["in_domain"],)
    if given.get("by") in ("none", ("none",)):
        given["by"] = ()
    test_sets = [test_sets] if isinstance(test_sets, str) else test_sets
    if not isinstance(source, (str, Path, pd.DataFrame)):
        raise ConfigError(f"analyse: got {type(source).__name__}, expected a path, a finding's name or a DataFrame")
    if isinstance(source, pd.DataFrame):
        return _of_table(source, records, test_sets, given)
    path = Path(source)
    if records is not None and (str(source) in findings() or is_packed(path)):
        raise ConfigError(f"{source}: brings its own records, or has none; give records with a table only")
    if str(source) in findings() and not path.exists():
        return _of_finding(findings()[str(source)], test_sets, given)
    if records is not None and path.is_dir():
        raise ConfigError(f"{path}: a folder brings its own records; give records with a table only")
    if is_packed(path):
        with opened(path) as unpacked:
            return _of_study(unpacked, test_sets, given)
    if StudyFolder(path).is_study:
        return _of_study(path, test_sets, given)
    if (path / SUMMARY).is_file():
        return _of_results(path, test_sets, given)
    if path.is_dir():
        raise ConfigError(f"{path}: neither a study (no study.json) nor results (no {SUMMARY}); give one of them")
    if not path.suffix and not path.exists():
        raise ConfigError(f"{path}: no such file, folder or finding; {nearest(str(source), findings())}")
    return _of_table(read_table(path), records, test_sets, given)


def _check_types(given: Mapping[str, Any]) -> None:
    """Options of a wrong type are refused by name, not by what they break later."""
    for name, value in given.items():
        if value is None:
            continue
        if name in TEXTS and not isinstance(value, str):
            raise ConfigError(f"analyse: {name} is {shown(repr(value))}, expected text")
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"analyse: {name} is {shown(repr(value))}, expected a number")
        names = [value] if isinstance(value, str) else value
        if name in NAMES and not (isinstance(names, Sequence) and all(isinstance(n, str) for n in names)):
            raise ConfigError(f"analyse: {name} is {shown(repr(value))}, expected a name or a list of names")


def _of_table(
    table: pd.DataFrame,
    records: pd.DataFrame | Examples | None,
    test_sets: Sequence[str] | None,
    given: dict[str, Any],
) -> Analysis:
    return analyse_table(pick_sets(table, test_sets, given.get("in_domain")), records, **given)


def _of_finding(finding: Finding, test_sets: Sequence[str] | None, given: dict[str, Any]) -> Analysis:
    chosen, options = test_sets or finding.test_sets, finding.given(given)
    if finding.packed:
        with opened(finding.packed) as study:
            analysis = _of_study(study, chosen or None, options)
    else:
        analysis = _of_table(finding.table(), None, chosen, options)
    return replace(
        analysis,
        title=finding.title,
        question=finding.question,
        source=finding.provenance,
        notes=(*finding.remarks, *analysis.notes),
    )


def _of_study(path: Path, test_sets: Sequence[str] | None, given: dict[str, Any]) -> Analysis:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)  # kept as notes, once
        table, records = read_runs(path, test_sets), StoredRecords.read(path, test_sets)
    analysis = analyse_table(table, records, **given)
    runs = describe_runs(path)
    unfinished = [
        f"run {run['name']} is not finished ({run['status']}); its scores so far are analysed"
        for run in runs
        if run["status"] != "done"
    ]
    notes = dict.fromkeys([*table.attrs["notes"], *records.notes.texts, *unfinished])
    return replace(analysis, runs=tuple(runs), notes=tuple(notes))


def _of_results(path: Path, test_sets: Sequence[str] | None, given: dict[str, Any]) -> Analysis:
    analysis = read_results(path)
    if test_sets:
        raise ConfigError("--test-set needs the folder of the study, or a long table; results have been computed")
    if not given:
        return analysis
    stored = _stored(analysis)
    if "within" in given:
        stored.pop("interval", None)  # each way of pooling has its own
    return replace(analyse_table(analysis.long_table, None, **{**stored, **given}), notes=(ANEW,))


def _stored(analysis: Analysis) -> dict[str, Any]:
    """The options that results were computed with."""
    settings = analysis.result.settings
    stored = {name: settings[name] for name in KEPT if settings.get(name) is not None}
    kept = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    intervals = settings.get("interval")
    ways = set(intervals.values()) if isinstance(intervals, dict) else {intervals}
    return kept | ({"interval": ways.pop()} if len(ways) == 1 and None not in ways else {})

"""analyse(): from whatever holds scores to an `Analysis`.

>>> import oodles as oo
>>> analysis = oo.analyse("runs/demo")  # doctest: +SKIP
>>> print(analysis.verdicts[0].sentence)  # doctest: +SKIP
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.api.findings import Finding, findings
from oodles.api.imports import gather, gather_frame, home_sets, options_of
from oodles.api.records import StoredRecords
from oodles.errors import ConfigError, DataError, nearest, shown
from oodles.imports.contract import NO_TEST_SETS, Imported, Options
from oodles.imports.tables import is_long
from oodles.stats.analysis import SUMMARY, Analysis, analyse_table, read_results
from oodles.stats.correlate import NEEDS_TWO, partial_correlations
from oodles.stats.longtable import SOURCE, pick_sets
from oodles.stats.outcomes import Examples
from oodles.stats.questions import QUESTIONS
from oodles.store.archive import is_packed, opened
from oodles.store.facts import describe_audit, describe_runs, tags_of, unmade_runs
from oodles.store.folder import StudyFolder
from oodles.store.table import DamageWarning, read_runs

KEPT = ("by", "unit", "metric", "level", "in_domain", "within", "method", "correlation", "shared_start", "exact")
TEXTS = ("method", "interval", "correlation", "metric", "unit", "shared_start")
NAMES = ("by", "within", "in_domain", "test_sets")  # a name, or several
NUMBERS = ("level", "chance")
IMPORT = ("format", "maps", "names", "keys", "preset", "refresh")  # options about files of other tools
ANEW = "analysed again from the results' table, without per-example records"


def analyse(
    source: str | Path | Iterable[str | Path] | pd.DataFrame,
    *,
    records: pd.DataFrame | Examples | None = None,
    test_sets: Sequence[str] | None = None,
    **options: Any,
) -> Analysis:
    """Partial correlations between OOD test sets, changes over training and a verdict per group.

    Parameters
    ----------
    source
        The folder of a study, a packed study, a table of scores (a `DataFrame`, .csv, .parquet, ...), or the folder
        that `oodles analyse --out` wrote; the name of a finding that ships with oodles (``"bert-hans"``); or files and
        folders that other tools wrote, one or several: all that `import_scores` reads.
    records
        With a table: per-example outcomes, columns run, step, test_set, example, correct. A study's folder brings its
        own.
    test_sets
        Only these test sets and slices, beside the in-domain ones.
    **options
        As for `partial_correlations`: method, within, interval, correlation, metric, by, unit, in_domain, chance,
        shared_start, level, exact. `n`: how many examples a test set has, where scores come without that, such as
        ``{"mnli": 9815}``. Further questions: `across` (columns, e.g. ``"model"``: does it depend on the model
        whether test sets agree?), `sensitivity` (in how many defensible analyses does a conclusion hold?), `windows`
        (over training), `redundancy` (which sets are needed?), `stability`, `skill` and `averages` (by model size and
        shots). For other tools' files also the options of `import_scores`: format, maps, names, keys, preset, refresh.

    Returns
    -------
    Analysis
        What `write_report`, and the command line, show.
    """
    _check_names(options)
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if v is not None}
    _check_types({**given, "test_sets": test_sets})
    if isinstance(given.get("in_domain"), str):
        given["in_domain"] = (given["in_domain"],)
    if given.get("by") in ("none", ("none",)):
        given["by"] = ()
    test_sets = [test_sets] if isinstance(test_sets, str) else test_sets
    about_files = {name: given.pop(name) for name in IMPORT if name in given}
    if isinstance(source, pd.DataFrame):
        if not about_files and is_long(source):
            return _of_table(source, records, test_sets, given)
        about = _import_options(given, test_sets, about_files)
        return _of_imported(gather_frame(source, about), about, records, given)
    paths = _paths(source)
    whole = _of_path(paths[0], records, test_sets, given) if len(paths) == 1 and not about_files else None
    return whole or _of_files(paths, records, test_sets, given, about_files)


def _check_names(options: Mapping[str, Any]) -> None:
    known = {*signature(partial_correlations).parameters, "n", *QUESTIONS, *IMPORT} - {"table"}
    for name in options:
        if name not in known:
            raise ConfigError(f"analyse: no option '{shown(name)}'; {nearest(name, known)}")


def _paths(source: object) -> list[Path]:
    """What was given, as paths; a finding's name is one, too."""
    if isinstance(source, (str, Path)):
        return [Path(source)]
    given = list(source) if isinstance(source, Iterable) and not isinstance(source, Mapping) else []
    if not given or not all(isinstance(one, (str, Path)) for one in given):
        raise ConfigError(f"analyse: got {type(source).__name__}, expected a path, a finding's name or a DataFrame")
    return [Path(one) for one in given]


def _of_path(
    path: Path, records: pd.DataFrame | Examples | None, test_sets: Sequence[str] | None, given: dict[str, Any]
) -> Analysis | None:
    """What oodles wrote itself, or ships; None for all else."""
    if records is not None and (str(path) in findings() or is_packed(path)):
        raise ConfigError(f"{path}: brings its own records, or has none; give records with a table only")
    if str(path) in findings() and not path.exists():
        return _of_finding(findings()[str(path)], test_sets, given)
    if records is not None and path.is_dir():
        raise ConfigError(f"{path}: a folder brings its own records; give records with a table only")
    if is_packed(path):
        with opened(path) as unpacked:
            return _of_study(unpacked, test_sets, given, called=str(path))
    if StudyFolder(path).is_study:
        return _of_study(path, test_sets, given)
    if (path / SUMMARY).is_file():
        return _of_results(path, test_sets, given)
    if not path.suffix and not path.exists() and ":" not in str(path):
        raise ConfigError(f"{path}: no such file, folder or finding; {nearest(str(path), findings())}")
    return None


def _of_files(
    paths: Sequence[Path],
    records: pd.DataFrame | Examples | None,
    test_sets: Sequence[str] | None,
    given: dict[str, Any],
    about_files: dict[str, Any],
) -> Analysis:
    """Scores that other tools wrote, or a table."""
    for path in paths:
        if is_packed(path) or StudyFolder(path).is_study or (path / SUMMARY).is_file():
            raise ConfigError(f"{path}: a study or results of oodles; analyse it alone, without options of import")
    options = _import_options(given, test_sets, about_files)
    return _of_imported(gather(paths, options), options, records, given)


def _import_options(
    given: Mapping[str, Any], test_sets: Sequence[str] | None, about_files: Mapping[str, Any]
) -> Options:
    return options_of(in_domain=given.get("in_domain"), test_sets=test_sets, **about_files)


def _of_imported(
    imported: Imported, options: Options, records: pd.DataFrame | Examples | None, given: dict[str, Any]
) -> Analysis:
    if options.in_domain:
        given = {**given, "in_domain": home_sets(imported, options)}
    if "n" in given:
        given = {**given, "n": _sizes(given["n"], imported.aliases)}
    found = imported.records if records is None else records
    try:
        return replace(_of_table(imported.table, found, None, given), notes=imported.notes)
    except DataError as error:
        left_out = [note for note in imported.notes if note.startswith(NO_TEST_SETS)]
        if NEEDS_TWO not in str(error) or not left_out:
            raise
        raise DataError(f"{error}; {left_out[0]}; choose test sets with --test-set") from None


def _sizes(given: Mapping[str, int], aliases: Mapping[str, str]) -> dict[str, int]:
    """Numbers of examples by the sets' own names; a user may call them as their columns are called."""
    found: dict[str, int] = {}
    for called, size in given.items():
        name = aliases.get(called, called)
        if name in found and found[name] != size:
            raise ConfigError(f"n of {name} is {found[name]} and, called {called}, {size}; leave one out")
        found[name] = size
    return found


def _check_types(given: Mapping[str, Any]) -> None:
    """Options of a wrong type are refused by name, not by what they break later."""
    for name, value in given.items():
        if value is None:
            continue
        if name in TEXTS and not isinstance(value, str):
            raise ConfigError(f"analyse: {name} is {shown(repr(value))}, expected text")
        if name in NUMBERS and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"analyse: {name} is {shown(repr(value))}, expected a number")
        if name == "exact" and not isinstance(value, bool):
            raise ConfigError(f"analyse: exact is {shown(repr(value))}, expected True or False")
        if name == "n" and not isinstance(value, Mapping):
            raise ConfigError(f"analyse: n is {shown(repr(value))}, expected examples by test set: {{'mnli': 9815}}")
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
        with opened(finding.packed, called=finding.name) as study:
            analysis = _of_study(study, chosen or None, options, called=finding.name)
    else:
        table = finding.table()
        table.attrs[SOURCE] = finding.name
        analysis = _of_table(table, None, chosen, options)
    return replace(
        analysis,
        title=finding.title,
        question=finding.question,
        source=finding.provenance,
        notes=(*finding.remarks_on(options), *analysis.notes),
    )


def _of_study(
    path: Path, test_sets: Sequence[str] | None, given: dict[str, Any], called: str | None = None
) -> Analysis:
    """A study's folder; one that was unpacked is `called` in messages what the user named."""
    called = called or str(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)  # kept as notes, once
        table, records = read_runs(path, test_sets), StoredRecords.read(path, test_sets)
    if tags := tags_of(path):
        whole = table["slice_of"].fillna(table["test_set"]) if "slice_of" in table.columns else table["test_set"]
        table["tags"] = whole.map(tags).fillna("")
    table.attrs[SOURCE] = called
    analysis = analyse_table(table, records, **given)
    runs = describe_runs(path)
    unfinished = [
        f"run {run['name']} is not finished ({run['status']}); its scores so far are analysed"
        for run in runs
        if run["status"] != "done"
    ]
    damage = [text.replace(str(path), called) for text in (*table.attrs["notes"], *records.notes.texts)]
    notes = dict.fromkeys([*damage, *unfinished, *unmade_runs(path)])
    return replace(analysis, runs=tuple(runs), notes=tuple(notes), audit=describe_audit(path))


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

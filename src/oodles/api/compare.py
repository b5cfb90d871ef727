"""Two studies of the same test sets: which correlations changed, beyond noise or not?

>>> from oodles.api.compare import compare
>>> compare("results/first", "results/second").sentences  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.api.analyse import analyse
from oodles.errors import ConfigError, DataError
from oodles.stats.analysis import Analysis
from oodles.stats.answers import Answer, counted
from oodles.stats.longtable import check_table
from oodles.stats.questions import ask
from oodles.stats.series import grouped

STUDY = "study"  # the column that tells the two apart
SAME = ("metric", "by", "unit", "method", "correlation", "level")  # what both must have been analysed with


def compare(first: str | Path, second: str | Path, **options: Any) -> Answer:
    """Test pair by pair whether two studies differ, in every group that both have.

    Parameters
    ----------
    first, second
        Folders of results or studies, tables, findings: all that `analyse` reads.
    **options
        As for `analyse`, for both.

    Returns
    -------
    Answer
        A `claim` across studies: a sentence per group; tables `claim`, a row per pair, and `claim_levels`, a row per
        pair and study, those of the first study first.

    Raises
    ------
    ConfigError
        Both are the same, or were analysed in different ways.
    DataError
        No group with a pair of test sets is in both.
    """
    labels = _labels(Path(first), Path(second))
    both = [analyse(path, **options) for path in (first, second)]
    settings = _settings(both, labels)
    groups, left_out = _groups(both, labels)
    marked = [_marked(one, label, groups) for one, label in zip(both, labels, strict=True)]
    table = pd.concat(marked, ignore_index=True)
    checked, _ = check_table(table, in_domain=settings.get("in_domain") or None)
    answer = ask(checked, None, {**settings, "unit": settings.get("unit")}, {"across": (STUDY,)})["claim"]
    sentences = tuple(sentence.replace("studys", "studies") for sentence in answer.sentences)
    levels = answer.tables["claim_levels"]
    given = levels.sort_values("level", key=lambda names: names.map(labels.index), kind="stable", ignore_index=True)
    return replace(
        answer,
        sentences=sentences,
        caveats=(*left_out, *_shared_runs(both), *answer.caveats),
        tables={**answer.tables, "claim_levels": given},
    )


def _groups(both: Sequence[Analysis], labels: Sequence[str]) -> tuple[list[Mapping[str, str]], list[str]]:
    """The groups of both; other models or train sets are not compared with one another."""
    one, other = ([verdict.group for verdict in analysis.verdicts] for analysis in both)
    shared = [group for group in one if group in other]
    if not shared:
        found = [", ".join(groups[0].values()) for groups in (one, other)]
        raise DataError(
            f"{labels[0]}, {labels[1]}: no group is in both ({found[0]}; {found[1]}); name what they share with --by"
        )
    lone = len(one) + len(other) - 2 * len(shared)
    return shared, [f"{counted(lone, 'group')} in one of the two only: left out"] * bool(lone)


def _labels(first: Path, second: Path) -> tuple[str, str]:
    """Names that tell the two apart."""
    if first.resolve() == second.resolve():
        raise ConfigError(f"{first}: given twice; oodles compare needs two studies")
    names = (first.stem or str(first), second.stem or str(second))
    return names if names[0] != names[1] else (str(first), str(second))


def _settings(both: Sequence[Analysis], labels: Sequence[str]) -> dict[str, Any]:
    one, other = (dict(analysis.result.settings) for analysis in both)
    for name in SAME:
        if one.get(name) != other.get(name):
            told = f"{labels[0]} has {one.get(name)}, {labels[1]} has {other.get(name)}"
            raise ConfigError(f"oodles compare: {name} differs: {told}; analyse both in one way, e.g. with --{name}")
    return one


def _marked(analysis: Analysis, label: str, groups: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """The runs of these groups, named by their study."""
    table = analysis.long_table
    by = list(groups[0])
    rows = pd.concat([own for group, own in grouped(table, by) if group in groups]) if by else table
    rows = rows.assign(run=label + ": " + rows["run"].astype(str))
    rows[STUDY] = label
    return rows


def _shared_runs(both: Sequence[Analysis]) -> list[str]:
    """Runs of one name in both may be the same runs, which a comparison takes for independent ones."""
    one, other = (set(analysis.long_table["run"].astype(str)) for analysis in both)
    shared = len(one & other)
    return [f"same name in both: {counted(shared, 'run')}; if they are the same runs, the test is too strict"] * bool(
        shared
    )

"""What can be asked of scores beyond their correlations, and who answers it; answers on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from oodles.errors import DataError, first_line
from oodles.files import read_frame
from oodles.stats.answers import Answer
from oodles.stats.averages import averages, has_averages
from oodles.stats.claim import LEVEL_COLUMNS, PAIR_COLUMNS, claim
from oodles.stats.clusters import Scores
from oodles.stats.grouping import refuse_names
from oodles.stats.outcomes import Examples, Records
from oodles.stats.redundancy import COLUMNS as CHOSEN
from oodles.stats.redundancy import SETS, TREE, redundancy
from oodles.stats.sensitivity import COLUMNS as TRIED
from oodles.stats.sensitivity import SUMMARY, sensitivity
from oodles.stats.skill import COLUMNS as OF_SKILL
from oodles.stats.skill import skill
from oodles.stats.stability import COLUMNS as STEADY
from oodles.stats.stability import stability
from oodles.stats.windows import CHANGE, windows
from oodles.stats.windows import COLUMNS as SPANS

AUTO = "auto"  # across the first column that makes several groups, if any
# by its option: the name of the answer, and who gives it
QUESTIONS: Mapping[str, tuple[str, Callable[..., Answer]]] = {
    "across": ("claim", claim),
    "sensitivity": ("sensitivity", lambda scores, _: sensitivity(scores)),
    "windows": ("windows", lambda scores, _: windows(scores)),
    "redundancy": ("redundancy", lambda scores, _: redundancy(scores)),
    "stability": ("stability", lambda scores, _: stability(scores)),
    "skill": ("skill", lambda scores, _: skill(scores)),
    "averages": ("averages", lambda scores, _: averages(scores)),
}
OWN: Mapping[str, tuple[str, ...]] = {  # by option: columns that stand beside those of the groups
    "across": ("across", *PAIR_COLUMNS, *LEVEL_COLUMNS),
    "sensitivity": (*TRIED, *SUMMARY),
    "windows": (*SPANS, *CHANGE),
    "redundancy": (*CHOSEN, *SETS, *TREE),
    "stability": STEADY,
    "skill": OF_SKILL,
}
TABLES: Mapping[str, tuple[str, ...]] = {  # of all answers, with the columns that whoever shows them needs
    "claim": ("across", "a", "b", "r", "tau", "predicted_low", "predicted_high", "p_holm", "levels"),
    "claim_levels": ("across", "level", "a", "b", "r", "low", "high", "units"),
    "sensitivity": ("a", "b", "steps", "method", "within", "metric", "default", "r", "low", "high", "p_holm"),
    "sensitivity_pairs": ("a", "b", "r", "conclusion", "specifications", "same_clear", "other_sign"),
    "windows": ("a", "b", "within", "window", "r", "low", "high"),
    "windows_change": ("a", "b", "within", "early", "middle", "late", "change_p_holm", "told"),
    "redundancy": ("test_set", "chosen", "error", "error_in_domain", "noise", "reduction"),
    "redundancy_sets": ("test_set", "cluster"),
    "redundancy_tree": ("merge", "left", "left_merge", "right", "right_merge", "r"),
    "averages": ("size", "shots", "within", "r", "positive", "pairs", "groups", "runs"),
    "shots": ("shots", "a", "b", "within", "r", "low", "high", "n_units"),
    "stability": ("what", "sd", "low", "high", "units"),
    "stability_trends": ("what", "p_differ", "per_tenfold"),
    "stability_kinds": ("kinds", "difference"),
    "skill": ("a", "b", "within", "r_accuracy", "r_auc", "r_share", "told"),
}
SHAPE = [{"name": str, "sentences": [str], "brief?": [str], "caveats": [str], "tables": [str]}]  # in results.json


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that ask a question, and the others."""
    asked = {name: value for name, value in options.items() if name in QUESTIONS and value}
    return asked, {name: value for name, value in options.items() if name not in QUESTIONS}


def settle(asked: Mapping[str, Any], pairs: pd.DataFrame, table: pd.DataFrame) -> dict[str, Any]:
    """What is asked where it was left open: averages of runs that differ in shots, and the first column of groups."""
    if asked.get("averages") == AUTO and not has_averages(table):
        asked = {name: value for name, value in asked.items() if name != "averages"}
    return _settle_across(asked, pairs)


def _settle_across(asked: Mapping[str, Any], pairs: pd.DataFrame) -> dict[str, Any]:
    """Which column is compared where the first that makes groups was meant; none where there is one group."""
    if tuple(asked.get("across") or ()) != (AUTO,):
        return dict(asked)
    several = [str(c) for c in pairs.columns[: list(pairs.columns).index("a")] if pairs[c].astype(str).nunique() > 1]
    rest = {name: value for name, value in asked.items() if name != "across"}
    return {"across": (several[0],), **rest} if several else rest


def ask(
    table: pd.DataFrame,
    records: pd.DataFrame | Examples | None,
    settings: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> dict[str, Answer]:
    """Answer what is asked, with the settings of `partial_correlations`; `table` has been checked."""
    if not asked:
        return {}
    items = Records.read(records).about(table["run"]) if isinstance(records, pd.DataFrame) else records
    scores = Scores.of(table, settings, items)
    for name in asked:
        refuse_names(scores.by, OWN.get(name, ()))
    across = asked.get("across")
    given = {**asked, **({"across": (across,)} if isinstance(across, str) else {})}
    return {QUESTIONS[name][0]: QUESTIONS[name][1](scores, value) for name, value in given.items()}


def summary(answer: Answer) -> dict[str, Any]:
    """An answer as `results.json` has it; its tables are files of their own."""
    return {
        "name": answer.name,
        "sentences": list(answer.sentences),
        **({"brief": list(answer.brief)} if answer.brief else {}),
        "caveats": list(answer.caveats),
        "tables": list(answer.tables),
        "settings": dict(answer.settings),
    }


def read_answer(folder: Path, told: Mapping[str, Any], again: str) -> Answer:
    """An answer back from disk."""
    tables = {}
    for name in told["tables"]:
        if name not in TABLES:
            raise DataError(f"{folder}: an answer with the unknown table '{name}'; {again}")
        tables[name] = _read(folder / f"{name}.parquet", TABLES[name], again)
    return Answer(
        name=told["name"],
        sentences=tuple(told["sentences"]),
        tables=tables,
        caveats=tuple(told["caveats"]),
        settings=told.get("settings") or {},
        brief=tuple(told.get("brief", ())),
    )


def _read(file: Path, needed: tuple[str, ...], again: str) -> pd.DataFrame:
    try:
        frame = read_frame(file)
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({first_line(error)}); {again}") from None
    for column in needed:
        if column not in frame.columns:
            raise DataError(f"{file}: no column '{column}'; {again}")
        number = pd.api.types.is_numeric_dtype(frame[column])
        if len(frame) and number != (column in NUMBERS):
            expected = "numbers" if column in NUMBERS else "text"
            raise DataError(f"{file}: column '{column}' holds {frame[column].dtype}, expected {expected}; {again}")
    return frame


NUMBERS = {
    *("r", "low", "high", "tau", "predicted_low", "predicted_high", "p_holm", "levels", "units", "default"),
    *("specifications", "same_clear", "other_sign", "early", "middle", "late", "change_p_holm", "chosen", "error"),
    *("error_in_domain", "noise", "reduction", "cluster", "sd", "p_differ", "per_tenfold", "difference"),
    *("r_accuracy", "r_auc", "r_share", "merge", "left_merge", "right_merge", "positive", "pairs", "groups", "runs"),
    "n_units",
}

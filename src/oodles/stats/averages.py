"""Correlations by model size and number of shots: every pair at every number of shots, and means over pairs.

The study's averages. They describe: pairs of one run depend on each other, so no mean over pairs has a test here, and
the correlations of one number of shots rest on few runs. Whether models differ is what `claim` tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from oodles.errors import ConfigError
from oodles.stats.answers import Answer
from oodles.stats.clusters import Scores, without_gaps
from oodles.stats.correlate import for_group
from oodles.stats.estimates import estimate
from oodles.stats.longtable import as_names
from oodles.stats.pairs import shares_examples
from oodles.stats.series import Series
from oodles.stats.stability import size_of

ALL = "all"  # shots of a row over all runs
COLUMNS = ("size", "parameters", "shots", "within", "r", "positive", "pairs", "groups", "runs")
PAIRS = ("shots", "a", "b", "within", "r", "low", "high", "n_runs", "n_units")


def has_averages(table: pd.DataFrame) -> bool:
    """Whether runs differ in shots."""
    return "shots" in table.columns and table["shots"].nunique() > 1


def averages(scores: Scores) -> Answer:
    """Correlations at every number of shots, and their means by size and shots.

    Returns
    -------
    Answer
        Tables `shots`, a row per group, number of shots, way of pooling and pair; `averages`, a row per size, number of
        shots and way of pooling: mean r over pairs and groups, and the share of positive ones.
    """
    if not has_averages(scores.table):
        raise ConfigError("--averages: runs do not differ in shots; the table needs a column shots with two values")
    inner = tuple(name for name in scores.by if name != "shots")
    runs = scores.table.drop_duplicates("run")
    shots = dict(zip(runs["run"].astype(str), as_names(runs["shots"]), strict=True))
    rows: list[dict[str, Any]] = []
    whole: list[dict[str, Any]] = []
    for series in scores.groups(by=inner):
        whole += _of_series(series, scores, runs)
        for part in _by_shots(series, shots):
            rows += _of_series(part, scores, runs)
    pairs = pd.DataFrame(rows, columns=[*inner, "size", "parameters", *PAIRS])
    every = pd.DataFrame(whole, columns=[*inner, "size", "parameters", *PAIRS[1:]]).assign(shots=ALL)
    found = _means(pd.concat([pairs, every], ignore_index=True), inner)
    return Answer(
        name="averages",
        sentences=tuple(filter(None, (_sentence(found, way) for way in scores.ways[:1]))),
        tables={"averages": found, "shots": pairs[[*inner, *PAIRS]]},
        caveats=("means over pairs describe: pairs share runs and test sets, so they have no test and no interval",),
    )


def _by_shots(series: Series, shots: Mapping[str, str | None]) -> Iterator[Series]:
    """The runs of a group by their number of shots, the smallest first."""
    of_run = [shots.get(str(name)) for name in series.run_names]
    for value in sorted({one for one in of_run if one is not None}, key=_order):
        inside = np.array([one == value for one in of_run])[series.runs]
        yield replace(series.at(inside), group={**series.group, "shots": value})


def _of_series(series: Series, scores: Scores, runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    group = {name: value for name, value in series.group.items() if name != "shots"}
    parameters = size_of(series, runs)
    told = {**series.group, "size": size_in_words(parameters) or ", ".join(group.values()), "parameters": parameters}
    for way in scores.ways:
        recipe = for_group(replace(scores.recipe, within=way, interval="jackknife"), series, None)
        for part in without_gaps(series, way):
            found = estimate(part, recipe)
            names = part.test_sets
            for i in range(len(names)):
                for j in range(i + 1, len(names)):
                    r = float(found.r[i, j])
                    if shares_examples(names[i], names[j], scores.overlapping) or not math.isfinite(r):
                        continue
                    ends = {"low": float(found.interval.low[i, j]), "high": float(found.interval.high[i, j])}
                    counts = {"n_runs": len(part.run_names), "n_units": int(found.counted[i, j])}
                    yield {**told, "a": names[i], "b": names[j], "within": way, "r": r, **ends, **counts}


def size_in_words(parameters: float) -> str:
    """Parameters as names of models have them.

    >>> size_in_words(1.4e9), size_in_words(125e6), size_in_words(float("nan"))
    ('1.4B', '125M', '')
    """
    if not math.isfinite(parameters):
        return ""
    unit, word = next(((u, w) for u, w in ((1e9, "B"), (1e6, "M"), (1e3, "k")) if parameters >= u), (1.0, ""))
    return f"{parameters / unit:.3g}{word}"


def _means(pairs: pd.DataFrame, inner: Sequence[str]) -> pd.DataFrame:
    """By size and shots, then over all sizes; sizes and shots in their order."""
    rows = []
    for way in dict.fromkeys(pairs["within"]):
        own = pairs[pairs["within"] == way]
        sizes = own[["size", "parameters"]].drop_duplicates("size").sort_values("parameters", kind="stable")
        known = [(str(s), float(p), own[own["size"] == s]) for s, p in sizes.itertuples(index=False)]
        for size, parameters, part in [*known, *([(ALL, math.nan, own)] if len(known) > 1 else [])]:
            for shots in sorted(dict.fromkeys(part["shots"]), key=_order):
                at = part[part["shots"] == shots]
                groups = at.groupby(list(inner), sort=False, dropna=False) if inner else [((), at)]
                counts = [int(one["n_runs"].max()) for _, one in groups]
                told = {"size": size, "parameters": parameters, "shots": shots, "within": way}
                means = {"r": float(at["r"].mean()), "positive": float((at["r"] > 0).mean())}
                rows.append({**told, **means, "pairs": len(at), "groups": len(counts), "runs": sum(counts)})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _order(shots: str) -> float:
    try:
        return float(shots)
    except ValueError:
        return np.inf


def _sentence(found: pd.DataFrame, way: str) -> str:
    """Means by shots over all sizes, then by size over all shots."""
    own: Sequence[Mapping[Any, Any]] = found[found["within"] == way].to_dict("records")
    whole = ALL if any(row["size"] == ALL for row in own) else None
    by_shots = [row for row in own if row["shots"] != ALL and (whole is None or row["size"] == whole)]
    sized = [row for row in own if row["shots"] == ALL and row["size"] != ALL]
    if not by_shots:
        return ""
    parts = [", ".join(f"{row['r']:+.2f} at {row['shots']} shots" for row in by_shots)]
    if len(sized) > 1:
        low, high = min(sized, key=lambda row: row["r"]), max(sized, key=lambda row: row["r"])
        parts.append(
            f"from {low['r']:+.2f} ({low['size']}) to {high['r']:+.2f} ({high['size']}) over {len(sized)} sizes"
        )
    return f"Mean r of the pairs, {way}: {'; '.join(parts)}.".replace("-0.", "−0.")

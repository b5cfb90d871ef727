"""Does a conclusion survive the choices behind it? Every pair under every defensible choice.

A specification is a choice of steps, of the way in which steps count, of method, pooling and metric. All of them are
computed; none is better than the others by itself, so what is told is in how many the sign is the same and clear.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oodles.errors import quoted
from oodles.stats.answers import Answer, counted, several
from oodles.stats.clusters import Scores, without_gaps
from oodles.stats.correlate import for_group
from oodles.stats.estimates import as_correlations, estimate
from oodles.stats.pairs import shares_examples
from oodles.stats.resample import DESCRIPTIVE, SIGNIFICANT, holm
from oodles.stats.residuals import Ints
from oodles.stats.series import Series

METHODS = ("gam", "linear", "probit-linear")
METRICS = ("accuracy", "balanced_accuracy", "auc")
AS_EVALUATED = "as evaluated"
ALIKE = 0.95  # share of points above which two choices of steps are the same choice
CHOICES = ("steps", "method", "within", "metric")
POOLING = {"within": "pooling"}  # what a column is called in words
COLUMNS = (
    *("a", "b", *CHOICES, "default", "r", "low", "high", "p_val", "p_holm"),
    *("r_least", "r_most", "turned_without", "n_units", "n_points"),
)
SUMMARY = (
    *("a", "b", "r", "conclusion", "specifications", "same_sign", "same_clear", "other_sign", "other_clear"),
    *("lowest", "lowest_by", "highest", "highest_by", "turned_without"),
)
MEANT = (
    "significant here: after Holm's adjustment over the pairs of a group, in each choice by itself; the verdict adjusts"
    " over all tests reported and allows for noise and doubts, so the two can differ"
)
UP, DOWN, OPEN = "significant, positive", "significant, negative", "not significant"  # no verdict: it knows no caveats


def sensitivity(scores: Scores) -> Answer:
    """Every pair of every group under every specification.

    Parameters
    ----------
    scores : Scores
        The table and the choices of the analysis, which are the default specification.

    Returns
    -------
    Answer
        A sentence per group; tables `sensitivity`, a row per specification and pair, and `sensitivity_pairs`, a row per
        pair.
    """
    rows: list[dict[str, Any]] = []
    for metric in _metrics(scores):
        for series in replace(scores, metric=metric).groups():
            rows += _of_group(series, scores, metric)
    table = pd.DataFrame(rows, columns=[*scores.by, *COLUMNS])
    pairs, sentences = [], []
    groups = table.groupby(list(scores.by), sort=False) if scores.by else [((), table)]
    for names, own in groups:
        group = dict(zip(scores.by, map(str, names), strict=True))
        summary = [_summary(pair) for _, pair in own.groupby(["a", "b"], sort=False)]
        pairs += [{**group, **one} for one in summary]
        sentences.append(_sentence(summary, group, own))
    return Answer(
        name="sensitivity",
        sentences=tuple(sentences),
        tables={"sensitivity": table, "sensitivity_pairs": pd.DataFrame(pairs, columns=[*scores.by, *SUMMARY])},
        caveats=(MEANT,) if pairs else (),
        settings={"metrics": list(_metrics(scores))},
    )


def _metrics(scores: Scores) -> list[str]:
    return list(dict.fromkeys([scores.metric, *(m for m in METRICS if scores.metric in METRICS and scores.has(m))]))


def _of_group(series: Series, scores: Scores, metric: str) -> list[dict[str, Any]]:
    bounded = bool((series.covariates >= 0).all() and (series.covariates <= 1).all())
    bounded = bounded and not bool(((series.scores < 0) | (series.scores > 1)).any())
    methods = dict.fromkeys([scores.recipe.method, *(m for m in METHODS if bounded or m != "probit-linear")])
    one_each = int(np.bincount(series.runs).max()) == 1
    ways = ("pooled",) if one_each else tuple(dict.fromkeys([scores.ways[0], "pooled", "run"]))
    rows = []
    for steps, part in step_choices(series):
        for method in methods:
            for within in ways:
                chosen = {"steps": steps, "method": method, "within": within, "metric": metric}
                rows += _specification(part, scores, chosen)
    return rows


def _specification(series: Series, scores: Scores, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    plain = replace(scores.recipe, method=chosen["method"], within=chosen["within"], interval="jackknife")
    recipe = for_group(plain, series, None)
    default = (AS_EVALUATED, scores.recipe.method, scores.ways[0], scores.metric)
    rows = []
    for part in without_gaps(series, recipe.within):
        found = estimate(part, recipe)
        without = as_correlations(found.left_out)
        for i in range(len(part.test_sets)):
            for j in range(i + 1, len(part.test_sets)):
                names = (part.test_sets[i], part.test_sets[j])
                if shares_examples(*names, scores.overlapping):
                    continue
                r, own = float(found.r[i, j]), without[:, i, j]
                turned = np.flatnonzero(own * r < 0)
                tested = int(found.counted[i, j]) >= DESCRIPTIVE
                rows.append(
                    {
                        **series.group,
                        "a": names[0],
                        "b": names[1],
                        **chosen,
                        "default": tuple(chosen[c] for c in CHOICES) == default,
                        "r": r,
                        "low": found.interval.low[i, j],
                        "high": found.interval.high[i, j],
                        "p_val": found.interval.p_val[i, j] if tested else float("nan"),
                        "r_least": np.nanmin(own) if np.isfinite(own).any() else float("nan"),
                        "r_most": np.nanmax(own) if np.isfinite(own).any() else float("nan"),
                        "turned_without": part.unit_names[turned[0]] if len(turned) else "",
                        "n_units": int(found.counted[i, j]),
                        "n_points": len(part.scores),
                    }
                )
    adjusted = holm(np.array([row["p_val"] for row in rows], dtype=float))
    return [{**row, "p_holm": p} for row, p in zip(rows, adjusted, strict=True)]


# steps


def step_choices(series: Series) -> Iterator[tuple[str, Series]]:
    """The points under every choice of steps; choices that share nearly all points count once.

    A step that counts for the training time around it is taken as often as it is the nearest evaluated step of an even
    grid with as many points as the run has steps.
    """
    points = [np.flatnonzero(series.runs == run) for run in range(len(series.run_names))]
    points = [own[np.argsort(series.steps[own].astype(float), kind="stable")] for own in points]
    seen: list[Ints] = []
    for name, choose in STEPS.items():
        rows = np.concatenate([own[choose(series.steps[own].astype(float))] for own in points])
        counts = np.bincount(rows, minlength=len(series.runs))
        alike = any(np.minimum(counts, one).sum() > ALIKE * max(counts.sum(), one.sum()) for one in seen)
        if len(rows) and not alike:
            seen.append(counts)
            yield name, taken(series, rows)


def taken(series: Series, rows: Ints) -> Series:
    """These points, in this order; a point may be taken several times."""
    run_codes, runs = np.unique(series.runs[rows], return_inverse=True)
    unit_codes, units = np.unique(series.units[rows], return_inverse=True)
    return replace(
        series,
        run_names=tuple(series.run_names[c] for c in run_codes),
        unit_names=tuple(series.unit_names[c] for c in unit_codes),
        runs=runs.astype(np.int64),
        units=units.astype(np.int64),
        steps=series.steps[rows],
        covariates=series.covariates[rows],
        scores=series.scores[rows],
        covariate_sizes=series.covariate_sizes[rows],
        sizes=series.sizes[rows],
    )


def _all(steps: NDArray[np.float64]) -> Ints:
    return np.arange(len(steps))


def _nearest(places: NDArray[np.float64], grid: NDArray[np.float64]) -> Ints:
    return np.asarray(np.abs(places[None, :] - grid[:, None]).argmin(axis=1), dtype=np.int64)


def _even(steps: NDArray[np.float64]) -> Ints:
    return _nearest(steps, np.linspace(steps[0], steps[-1], len(steps)))


def _log(steps: NDArray[np.float64]) -> Ints:
    trained = np.flatnonzero(steps > 0)
    if len(trained) < 2:
        return _all(steps)
    places = np.log(steps[trained])
    return np.asarray(trained[_nearest(places, np.linspace(places[0], places[-1], len(trained)))], dtype=np.int64)


def _late(steps: NDArray[np.float64]) -> Ints:
    return np.flatnonzero(steps >= (steps[0] + steps[-1]) / 2)


STEPS: dict[str, Callable[[NDArray[np.float64]], Ints]] = {
    AS_EVALUATED: _all,
    "spaced by logarithm": lambda steps: np.unique(_log(steps)),
    "spaced evenly": lambda steps: np.unique(_even(steps)),
    "weighted by logarithm": _log,
    "weighted evenly": _even,
    "late half": _late,
    "without step 0": lambda steps: np.flatnonzero(steps > 0) if len(steps) > 1 else _all(steps),
}


# in words


def _summary(pair: pd.DataFrame) -> dict[str, Any]:
    """What becomes of one pair over all specifications."""
    default = pair[pair["default"]]
    r = float(default["r"].iloc[0]) if len(default) else float("nan")
    values, p_values = pair["r"].to_numpy(float), pair["p_holm"].to_numpy(float)
    known = np.isfinite(values)
    clear = known & (p_values < SIGNIFICANT)
    same = known & (values * r > 0)
    other = known & (values * r < 0)
    told = OPEN
    if len(default) and float(default["p_holm"].iloc[0]) < SIGNIFICANT:
        told = UP if r > 0 else DOWN
    ends: dict[str, Any] = {}
    for name, place in (("lowest", np.nanargmin), ("highest", np.nanargmax)):
        row = pair.iloc[int(place(values))] if known.any() else None
        ends[name] = float("nan") if row is None else float(row["r"])
        ends[f"{name}_by"] = "" if row is None else _named(row, default)
    return {
        "a": pair["a"].iloc[0],
        "b": pair["b"].iloc[0],
        "r": r,
        "conclusion": told,
        "specifications": int(known.sum()),
        "same_sign": int(same.sum()),
        "same_clear": int((same & clear).sum()),
        "other_sign": int(other.sum()),
        "other_clear": int((other & clear).sum()),
        **ends,
        "turned_without": str(default["turned_without"].iloc[0]) if len(default) else "",
    }


def _named(row: pd.Series, default: pd.DataFrame) -> str:
    """A specification by what it does differently."""
    usual: Any = default.iloc[0] if len(default) else {}
    return ", ".join(str(row[choice]) for choice in CHOICES if row[choice] != usual.get(choice)) or "default"


def _sentence(pairs: Sequence[Mapping[str, Any]], group: Mapping[str, str], tried: pd.DataFrame) -> str:
    where = f"{', '.join(group.values())}: " if group else ""
    if not pairs:
        return f"{where}no pair has a correlation under any choice."
    most = max(pair["specifications"] for pair in pairs)
    if most < 2:
        return f"{where}there is no choice to vary."
    clear = [pair for pair in pairs if pair["conclusion"] != OPEN]
    text = f"{where}Under {most} choices of {_choices(tried)}, "
    if clear:
        held = [f"{_pair(p)} {p['same_clear']} (other sign in {p['other_sign']})" for p in clear]
        text += f"pairs that are significant by default have the same sign and stay significant in: {several(held, 6)}."
    else:
        text += "nothing is significant by default."
    turned = sorted((pair for pair in pairs if _turns(pair)), key=lambda p: float(p["lowest"] - p["highest"]))
    if turned:
        signs = [f"{_pair(p)} ({_ends(p)})" for p in turned]
        text += f" A choice turns the sign, and clearly, in {counted(len(turned), 'pair')}: {several(signs, 3)}."
    open_ = [p for p in pairs if p["conclusion"] == OPEN and p["same_clear"] and not _turns(p)]
    if open_:
        text += (
            f" {counted(len(open_), 'pair')} not significant by default would be, with the same sign, by some choice."
        )
    return text


def _ends(pair: Mapping[str, Any]) -> str:
    """The default and the extremes."""
    ends = [f"{pair[end]:+.2f} by {pair[f'{end}_by']}" for end in ("lowest", "highest")]
    return "; ".join(dict.fromkeys([f"{pair['r']:+.2f} by default", *ends]))


def _turns(pair: Mapping[str, Any]) -> bool:
    """Whether some choice says clearly the opposite of the default, or of another choice."""
    return bool(pair["other_clear"])


def _pair(pair: Mapping[Any, Any]) -> str:
    return f"{quoted(pair['a'])} ~ {quoted(pair['b'])}"


def _values(tried: pd.DataFrame) -> dict[str, list[str]]:
    """What was varied, in words, with its values."""
    values = {POOLING.get(choice, choice): list(dict.fromkeys(tried[choice].astype(str))) for choice in CHOICES}
    return {choice: several for choice, several in values.items() if len(several) > 1}


def _choices(tried: pd.DataFrame) -> str:
    *first, last = _values(tried)
    return f"{', '.join(first)} and {last}" if first else last


def _varied(tried: pd.DataFrame) -> str:
    return "; ".join(f"{choice}: {', '.join(several)}" for choice, several in _values(tried).items())


def holding(answer: Answer, group: Mapping[str, str], counted: Collection[tuple[str, str]]) -> str:
    """For a verdict: in how many choices the pairs that it counts hold; nothing where it counts none."""
    pairs = answer.tables["sensitivity_pairs"]
    for name, value in group.items():
        pairs = pairs[pairs[name].astype(str) == value]
    clear = pairs[[pair in counted for pair in zip(pairs["a"], pairs["b"], strict=True)]]
    if clear.empty or int(clear["specifications"].max()) < 2:
        return ""
    most = int(clear["specifications"].max())
    least, middle = int(clear["same_clear"].min()), int(clear["same_clear"].median())
    tried = answer.tables["sensitivity"]
    for name, value in group.items():
        tried = tried[tried[name].astype(str) == value]
    choices = f"{most} choices tried ({_varied(tried)})"
    if least == most:
        return f" What would change it: none of the {choices}; every clear pair stays significant, with its sign."
    weakest = _pair(clear.sort_values("same_clear", kind="stable").to_dict("records")[0])
    before = f" What would change it: of {choices}, "
    if len(clear) == 1:
        return f"{before}{weakest} stays significant, with its sign, in {least}."
    rest = "(median and least)" if least == middle else f"(median); {weakest} only in {least}"
    return f"{before}clear pairs stay significant, with their sign, in {middle} {rest}."

"""Does it depend on the model whether two test sets agree? The study's claim, as a test with its evidence.

`claim` compares the correlations of the levels of a factor (models, families, train sets, shots), pair by pair: a
test of equality, the spread over levels with its interval, where a new level would be, and whether signs reverse. One
sentence says what follows: yes, no, or that it cannot be told, why, and what would settle it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from oodles.errors import ConfigError, nearest, some
from oodles.stats import effects
from oodles.stats.answers import Answer, counted, plural, several
from oodles.stats.clusters import ClusterValues, Pair, Scores, cluster_values
from oodles.stats.effects import Sample
from oodles.stats.longtable import as_names
from oodles.stats.pairs import shares_examples
from oodles.stats.resample import DESCRIPTIVE, SIGNIFICANT, holm
from oodles.stats.series import NO_NAME, OF_POINTS, OF_SETS, of_runs

TESTED = 9  # units of a level below which the test of equality rejects too often
FEWEST = 3  # units of a level below which it is not described either
SMALL = 0.2  # sd over levels of Fisher's z that is no difference to speak of
NAMED = 5  # levels that are left out and named
SCORES = "it tells scores of one run apart, and levels consist of whole runs"  # why a column is no factor
STEPS = " (--windows asks whether correlations change during training)"
DRAW = "draw"  # column that names the data a run was trained on
PAIR_COLUMNS = (
    *("a", "b", "within", "levels", "fewest_units", "r", "low", "high", "tau", "tau_low", "tau_high"),
    *("predicted_low", "predicted_high", "other_sign", "other_sign_low", "other_sign_high"),
    *("p_val", "p_holm", "p_observed", "p_corrected", "p_reversal", "p_reversal_holm", "above", "below"),
    *("corrected_by", "left_out"),
)
LEVEL_COLUMNS = ("level", "a", "b", "within", "r", "low", "high", "r_corrected", "units", "effective_units")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How runs fall into levels of the factor, strata in which levels are compared, and independent units."""

    across: str
    strata: tuple[str, ...]
    unit: str
    caveats: tuple[str, ...] = ()


def claim(scores: Scores, across: Sequence[str]) -> Answer:
    """Compare the correlations of the levels of a factor, or of several factors one after the other.

    Parameters
    ----------
    scores : Scores
        The table and the choices of the analysis.
    across : sequence of str
        Columns whose values are compared: `model`, `family`, `train_set`, `shots`, ...

    Returns
    -------
    Answer
        A sentence per factor and stratum (the other columns that make groups); tables `claim`, a row per pair, and
        `claim_levels`, a row per level and pair.
    """
    parts = [_of_factor(scores, factor) for factor in across]
    return Answer(
        name="claim",
        sentences=tuple(sentence for part in parts for sentence in part.sentences),
        brief=tuple(sentence for part in parts for sentence in part.brief),
        tables={name: _joined([part.tables[name] for part in parts]) for name in ("claim", "claim_levels")},
        caveats=tuple(dict.fromkeys(said for part in parts for said in part.caveats)),
        settings={"across": list(across), "factors": [part.settings for part in parts]},
    )


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    joined = pd.concat([frame for frame in frames if len(frame)] or frames, ignore_index=True)
    where = list(joined.columns[: list(joined.columns).index("across")])
    return joined.assign(**{name: joined[name].fillna("") for name in where})


def _of_factor(scores: Scores, across: str) -> Answer:
    scores, layout = _layout(scores, across)
    within = _within(scores)
    rows, levels, sentences, brief, caveats = [], [], [], [], list(layout.caveats)
    every: list[ClusterValues] = []
    if _method(scores, within) != scores.recipe.method:
        caveats.append(f"one checkpoint per run: a straight line is fitted in each {_noun(across)}, not a curve")
    for stratum, clusters in _clusters(scores, layout, within):
        every += clusters
        found = compare(clusters, level=scores.recipe.level, overlapping=scores.overlapping)
        if found.empty:
            caveats.append(f"{_where(stratum) or 'the table'}: no pair of test sets has two levels of {across}")
            continue
        sentences.append(_sentence(found, clusters, across, stratum))
        brief.append(_sentence(found, clusters, across, stratum, brief=True))
        told = {**stratum, "across": across, "within": within}
        rows.append(found.assign(**told))
        levels.append(_level_rows(clusters, scores.recipe.level).assign(**told))
    if not rows:
        asked = f"Depends on the {across.replace('_', ' ')}: cannot be told"
        noun = _noun(across)
        none = f"No pair of test sets has two {plural(noun)} to compare."
        sentences = [f"{asked}. {none}{_left_out(every, noun)}"]
    strata = list(layout.strata)
    return Answer(
        name="claim",
        sentences=tuple(sentences),
        brief=tuple(brief or sentences),
        tables={
            "claim": _frame(rows, [*strata, "across", *PAIR_COLUMNS]),
            "claim_levels": _frame(levels, [*strata, "across", *LEVEL_COLUMNS]),
        },
        caveats=tuple(dict.fromkeys(caveats)),
        settings={"across": across, "unit": layout.unit, "within": within, "strata": strata},
    )


def _frame(frames: Sequence[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _noun(across: str) -> str:
    """What one level is called: a model, a train set, a value of shots."""
    name = across.replace("_", " ")
    return f"value of {name}" if name.endswith("s") else name


def _where(stratum: Mapping[str, str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in stratum.items())


# which runs are compared


def _layout(scores: Scores, across: str) -> tuple[Scores, _Layout]:
    """Levels, strata and units; a column that names a run's data is added where runs share it."""
    table = scores.table
    _refuse(table, across)
    runs = table.drop_duplicates("run")
    level = as_names(runs[across], NO_NAME)
    unit = "run" if scores.unit in (None, across) else str(scores.unit)
    said: list[str] = []
    strata = []
    for column in scores.by:
        if column == across:
            continue
        inside = as_names(runs[column], NO_NAME)
        if level.groupby(inside).nunique().max() > 1 or inside.nunique() == 1:
            strata.append(column)
        elif inside.nunique() > level.nunique() and unit == "run":
            unit = column
            said.append(f"the units of a {_noun(across)} are its {plural(_noun(column))}")
    strata = [column for column in strata if runs[column].nunique() > 1]
    scores, unit, shared = _with_draws(scores, unit)
    return scores, _Layout(across=across, strata=tuple(strata), unit=unit, caveats=(*said, *shared))


def _refuse(table: pd.DataFrame, across: str) -> None:
    """Refuse a column whose values are no levels of runs: say why, and which columns can be compared."""
    known = [column for column in of_runs(table) if column != "run"]
    able = [column for column in known if not _no_factor(table, column)]
    if across not in (*known, "run", *OF_POINTS, *OF_SETS):
        near = nearest(across, able or known)
        told = near if able or near.startswith("did") else "the table has no column that can be compared"
        raise ConfigError(f"--across {across}: no such column; {told}")
    if why := _no_factor(table, across):
        raise ConfigError(f"--across {across}: cannot be compared: {why}; columns that can: {some(able) or 'none'}")


def _no_factor(table: pd.DataFrame, column: str) -> str:
    """Why the values of a column are no levels; empty if they are."""
    if column == "run":
        return "runs are the units, not levels"
    if column in (*OF_POINTS, *OF_SETS) or _differs_within_runs(table[column], table["run"]):
        return SCORES + STEPS * (column == "step")
    values = as_names(table[column], NO_NAME)
    return "" if table[column].nunique() > 1 else f"the table has one value of it, {values.iloc[0]}"


def _differs_within_runs(column: pd.Series, run: pd.Series) -> bool:
    return bool(column.groupby(run).nunique(dropna=False).max() > 1)


def _with_draws(scores: Scores, unit: str) -> tuple[Scores, str, list[str]]:
    """Runs on the same data are one unit, where the table says which data it was."""
    table = scores.table
    if unit != "run" or "data_seed" not in table.columns or table["data_seed"].isna().any():
        return scores, unit, []
    columns = [c for c in ("model", "train_set", "shots", "data_seed") if c in table.columns]
    names = [as_names(table[column], NO_NAME) for column in columns]
    draw = pd.Series(list(map(" ".join, zip(*names, strict=True))), index=table.index, dtype=object)
    if draw.groupby(table["run"]).first().nunique() == table["run"].nunique():
        return scores, unit, []
    told = "runs that were trained on the same draw of data are one unit"
    return replace(scores, table=table.assign(**{DRAW: draw})), DRAW, [told]


def _within(scores: Scores) -> str:
    """Within runs where runs have steps: levels of runs would drown what happens in them."""
    several_steps = scores.table.groupby("run")["step"].nunique().max() > 1
    return "run" if several_steps and "run" in scores.ways else scores.ways[0] if several_steps else "pooled"


def _method(scores: Scores, within: str) -> str:
    """A line where runs have one checkpoint each: a curve would use up the points of a level."""
    one_each = within == "pooled" and scores.table.groupby("run")["step"].nunique().max() == 1
    return "linear" if one_each and scores.recipe.method == "gam" else scores.recipe.method


def _clusters(scores: Scores, layout: _Layout, within: str) -> list[tuple[dict[str, str], list[ClusterValues]]]:
    recipe = replace(
        scores.recipe, within=within, interval="jackknife", correlation="pearson", method=_method(scores, within)
    )
    found: dict[tuple[tuple[str, str], ...], list[ClusterValues]] = {}
    for series in scores.groups(by=(*layout.strata, layout.across), unit=layout.unit):
        stratum = tuple((name, series.group[name]) for name in layout.strata)
        name = series.group[layout.across]
        values = cluster_values(series, recipe, scores.items, name=name, metric=scores.metric, exact=scores.exact)
        found.setdefault(stratum, []).append(values)
    return [(dict(stratum), clusters) for stratum, clusters in found.items()]


# pair by pair


def compare(
    clusters: Sequence[ClusterValues],
    *,
    level: float = 0.95,
    overlapping: Mapping[str, set[str]] | None = None,
    draws: int = effects.DRAWS,
) -> pd.DataFrame:
    """A row per pair of test sets: the test, the spread over levels, a new level, and signs that reverse.

    Without records the noise is only known to lie between none and that of the number of examples. A difference is then
    claimed only if it is there at both ends: the p-value is the larger one.
    """
    pairs = list(dict.fromkeys(pair for cluster in clusters for pair in cluster.observed))
    rows = []
    for pair in pairs:
        if not shares_examples(*pair, overlapping or {}):
            rows += _compare_pair(pair, clusters, level, draws)
    found = pd.DataFrame(rows)
    if len(found):
        for name in ("p_val", "p_reversal"):
            adjusted = holm(found[name].to_numpy(float))
            found["p_holm" if name == "p_val" else "p_reversal_holm"] = adjusted
    return found


def _compare_pair(pair: Pair, clusters: Sequence[ClusterValues], level: float, draws: int) -> list[dict[str, Any]]:
    ends = {"observed": _units_of(pair, clusters, "observed"), "corrected": _units_of(pair, clusters, "corrected")}
    measured = all(cluster.measured for cluster in clusters) and len(ends["corrected"]) > 1
    shown = ends["corrected" if measured else "observed"]
    if len(shown) < 2:
        return []
    tested = {end: {name: v for name, v in units.items() if v.units >= TESTED} for end, units in ends.items()}
    p_vals = {end: effects.equal_means(list(units.values())).p_val for end, units in tested.items()}
    p_val = p_vals["corrected"] if measured else _larger(*p_vals.values())
    used = tested["corrected" if measured else "observed"]
    used = used if len(used) > 1 else {name: v for name, v in shown.items() if v.units >= FEWEST}
    if not used:
        return []
    spread = effects.random_effects(list(used.values()), level=level, draws=draws)
    reversal = _reversal(ends, measured, level)
    return [
        {
            "a": pair[0],
            "b": pair[1],
            "levels": len(used),
            "fewest_units": min(sample.units for sample in used.values()),
            "r": np.tanh(spread.mean),
            **_limits("low", "high", np.tanh(spread.mean_interval)),
            "tau": spread.tau,
            **_limits("tau_low", "tau_high", spread.tau_interval),
            **_limits("predicted_low", "predicted_high", np.tanh(spread.prediction)),
            "other_sign": spread.other_sign,
            **_limits("other_sign_low", "other_sign_high", spread.other_sign_interval),
            "p_val": p_val,
            "p_observed": p_vals["observed"],
            "p_corrected": p_vals["corrected"],
            **reversal,
            "corrected_by": "records" if measured else "range",
            "left_out": len(clusters) - len(used),
        }
    ]


def _limits(low: str, high: str, values: Any) -> dict[str, float]:
    return {low: float(values[0]), high: float(values[1])}


def _units_of(pair: Pair, clusters: Sequence[ClusterValues], end: str) -> dict[str, Sample]:
    every = {cluster.name: getattr(cluster, end).get(pair) for cluster in clusters}
    return {name: sample for name, sample in every.items() if sample is not None and np.isfinite(sample.square)}


def _larger(*p_values: float) -> float:
    """The larger of all ends; nan where one is not known."""
    return float(np.max(p_values))


def _reversal(ends: Mapping[str, Mapping[str, Sample]], measured: bool, level: float) -> dict[str, Any]:
    """Signs that reverse: at both ends where the noise is only known to lie between them."""
    p_values, above, below = [], set[str](), set[str]()
    for place, end in enumerate(("corrected",) if measured else ("corrected", "observed")):
        names = [name for name, sample in ends[end].items() if sample.units >= DESCRIPTIVE]
        found = effects.sign_reversal([ends[end][name] for name in names], level=level)
        p_values.append(found.p_val)
        up, down = {names[i] for i in found.above}, {names[i] for i in found.below}
        above, below = (above & up, below & down) if place else (up, down)
    return {
        "p_reversal": _larger(*p_values),
        "above": ", ".join(sorted(above)),
        "below": ", ".join(sorted(below)),
    }


def _level_rows(clusters: Sequence[ClusterValues], level: float) -> pd.DataFrame:
    """Estimate and interval of every level, for the forest."""
    rows = []
    for cluster in clusters:
        end = cluster.corrected if cluster.measured else cluster.observed
        for pair, sample in end.items():
            corrected = cluster.corrected.get(pair)
            rows.append(
                {
                    "level": cluster.name,
                    "a": pair[0],
                    "b": pair[1],
                    "r": np.tanh(sample.mean),
                    **_limits("low", "high", np.tanh(sample.interval(level))),
                    "r_corrected": float("nan") if corrected is None else np.tanh(corrected.mean),
                    "units": sample.units,
                    "effective_units": sample.effective,
                }
            )
    return pd.DataFrame(rows, columns=[name for name in LEVEL_COLUMNS if name != "within"])


# in words


def _sentence(
    found: pd.DataFrame,
    clusters: Sequence[ClusterValues],
    across: str,
    stratum: Mapping[str, str],
    *,
    brief: bool = False,
) -> str:
    """What was found; `brief`: without the names of the pairs and without what was left out."""
    noun = _noun(across)
    where = f" ({_where(stratum)})" if stratum else ""
    p_values = found["p_val"].to_numpy(float)
    omnibus = float(found["p_holm"].min())
    asked = f"Depends on the {across.replace('_', ' ')}{where}"
    if not np.isfinite(omnibus):
        return f"{asked}: cannot be told. {_untested(found, clusters, noun, brief=brief)}"
    tested = int(np.isfinite(p_values).sum())
    rest = "" if brief else _left_out(clusters, noun)
    rest += "" if brief or tested == len(found) else f" {_noisy(found, clusters, noun)}"
    of = "" if tested == len(found) else f" of {len(found)}"
    basis = f"{_levels(found, noun)} and {tested}{of} pairs that could be tested"
    if omnibus < SIGNIFICANT:
        return f"{asked}: yes. {_differ(found, noun, basis, omnibus, brief=brief)}{rest}"
    if float(found["tau_high"].max()) < SMALL:
        return (
            f"{asked}: no. With {basis}, no difference was found (all pairs together p {_p(omnibus)}), and the sd of "
            f"Fisher's z over {plural(noun)} is below {SMALL} in every pair.{rest}"
        )
    return f"{asked}: cannot be told. {_open(found, noun, basis, omnibus, clusters, brief=brief)}{rest}"


def _p(value: float) -> str:
    return "< .001" if value < 0.001 else f"= {value:.3f}".replace("0.", ".")


def _levels(found: pd.DataFrame, noun: str) -> str:
    low, high = int(found["levels"].min()), int(found["levels"].max())
    many = counted(high, noun) if low == high else f"{low} to {counted(high, noun)}"
    return f"{many} of {int(found['fewest_units'].min())} or more independent units"


def _untested(found: pd.DataFrame, clusters: Sequence[ClusterValues], noun: str, *, brief: bool) -> str:
    if np.isfinite(found["p_observed"].to_numpy(float)).any():
        return _noisy(found, clusters, noun, brief=brief)
    counts = sorted({sample.units for cluster in clusters for sample in cluster.observed.values()})
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"A {noun} has {span} independent units here, and a test needs {TESTED} of each of two or more {plural(noun)}: "
        "what is shown is descriptive."
    )


def _noisy(found: pd.DataFrame, clusters: Sequence[ClusterValues], noun: str, *, brief: bool = False) -> str:
    """Why pairs that are there as observed were not tested: their noise."""
    clusters = [one for one in clusters if _units(one) >= TESTED]
    if not all(cluster.known for cluster in clusters):
        return (
            "Noise of the test sets is not known (records, or n of accuracies in 0..1, tell it with gam or linear: see"
            f" --n), and unequal noise alone makes correlations differ between {plural(noun)}."
        )
    if brief:
        return "Noise of so few examples is nearly all of the residuals."
    open_ = found[found["p_val"].isna()]
    pairs = list(zip(open_["a"], open_["b"], strict=True))
    lacking = [one for one in clusters if any(pair in one.observed and pair not in one.corrected for pair in pairs)]
    more = "Larger test sets" if all(one.measured for one in lacking) else "Larger test sets, or records,"
    return (
        f"Not tested, because noise of so few examples is nearly all of the residuals in "
        f"{several([one.name for one in lacking], 3)}: {several([f'{a} ~ {b}' for a, b in pairs], 3)}. {more} would "
        "tell."
    )


def _units(cluster: ClusterValues) -> int:
    """Independent units of a level; 0 where there are too few for any value."""
    return max((sample.units for sample in cluster.observed.values()), default=0)


def _left_out(clusters: Sequence[ClusterValues], noun: str) -> str:
    """The levels that are too small to be tested, by name if they are few."""
    small = [one for one in clusters if _units(one) < TESTED]
    few = list(dict.fromkeys(f"{one.name} ({_units(one) or 'none with a correlation'})" for one in small))
    told = ", ".join(few) if len(few) <= NAMED else counted(len({one.name for one in small}), noun)
    return f" Left out, with fewer than {TESTED} independent units: {told}." if few else ""


def _predicted(row: Mapping[Any, Any], noun: str) -> str:
    """The range of a new level, where there are enough to tell."""
    if not np.isfinite(row["predicted_low"]):
        return ""
    return f" (a new {noun}: {row['predicted_low']:+.2f} to {row['predicted_high']:+.2f})"


def _differ(found: pd.DataFrame, noun: str, basis: str, omnibus: float, *, brief: bool) -> str:
    clear = found[found["p_holm"] < SIGNIFICANT].sort_values("p_val")
    names = [f"{row['a']} ~ {row['b']}{_predicted(row, noun)}" for row in clear.to_dict("records")]
    verb = "carries" if len(clear) == 1 else "carry"
    text = (
        f"With {basis}, correlations differ between {plural(noun)} (all pairs together p {_p(omnibus)}); "
        f"{counted(len(clear), 'pair')} {verb} it (5 % level, adjusted for testing all pairs)"
    )
    text += "." if brief else f": {several(names)}."
    turned = found[found["p_reversal_holm"] < SIGNIFICANT]
    if turned.empty:
        return f"{text} No pair is shown to reverse its sign."
    signs = [
        f"{row['a']} ~ {row['b']} (above 0 in {several(row['above'].split(', '), 3)};"
        f" below in {several(row['below'].split(', '), 3)})"
        for row in turned.to_dict("records")
    ]
    return f"{text} The sign reverses in {counted(len(turned), 'pair')}{'' if brief else f': {several(signs)}'}."


def _open(
    found: pd.DataFrame, noun: str, basis: str, omnibus: float, clusters: Sequence[ClusterValues], *, brief: bool
) -> str:
    spread = float(found["tau_high"].median())
    bound = (
        f"an sd of Fisher's z over {plural(noun)} of up to {spread:.2f} (median pair) is not excluded"
        if np.isfinite(spread)
        else f"with two {plural(noun)} nothing bounds how much others would differ"
    )
    none = f"no difference between {plural(noun)} was found (all pairs together p {_p(omnibus)})"
    text = f"With {basis}, {none}, but {bound}."
    if brief:
        return text
    spreads = [sample.units * sample.square for cluster in clusters for sample in cluster.observed.values()]
    ratio = SMALL / float(np.sqrt(np.nanmedian(spreads)))
    needed = effects.units_needed(ratio, int(found["levels"].median()))
    wanted = f"about {needed} units per {noun}" if needed else f"more {plural(noun)}"
    return f"{text} To find an sd of {SMALL} in a pair in 80 % of studies would take {wanted}."

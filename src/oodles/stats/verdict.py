"""One sentence per group that answers: do these generalisation results generalise?

It claims no more than the number of independent runs allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oodles.stats.answers import Answer
from oodles.stats.cautions import hardly_differ
from oodles.stats.correlate import PartialCorrelations
from oodles.stats.doubts import AS_EXACT, CURVE, EXAMPLES, NOISE, NOT_KNOWN, ONE_PART, UNKNOWN
from oodles.stats.resample import DESCRIPTIVE, SIGNIFICANT
from oodles.stats.series import grouped

NOTHING = "Nothing to compare"  # of a group in which no pair has a correlation
NO_PAIR = f"{NOTHING}: no pair of OOD test sets can be correlated, as the caveats say."
NAMED = 3  # pairs of one kind that a sentence names
DUE = {  # what else could explain a correlation, in words
    NOISE: NOISE,
    UNKNOWN: "noise of the in-domain set, which is not known",
    "answers": "how often an answer is given, not skill",
    "shared examples": "examples that both sets share",
    ONE_PART: "one part of training alone",
    CURVE: "what the curve misses",
    EXAMPLES: "which examples were drawn",
}
WAYS = {"pooled": "pooled", "run": "within runs", "separate": "one fit per run"}
ALIKE = 0.1  # a median difference of raw and partial correlations up to this is none to speak of


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one group."""

    group: Mapping[str, str]
    n_runs: int
    descriptive: bool  # there are correlations, of too few runs for a test
    sentence: str  # the whole answer
    short: str = ""  # its first part, without names
    points: tuple[str, ...] = ()  # the rest of it: which pairs, with their intervals, and on what it rests

    @property
    def head(self) -> str:
        """The answer in a few words, for a line among other groups."""
        return f"{self.sentence.partition(':')[0]}{', not tested' * self.descriptive}"


def verdicts(result: PartialCorrelations) -> tuple[Verdict, ...]:
    """Answer the question for every group of a result.

    The pooled correlations are summarised where they were asked for, otherwise the first way of pooling. Where the
    correlations within runs were asked for too, a second sentence gives them: the two can differ.

    Parameters
    ----------
    result : PartialCorrelations
        From `partial_correlations`.

    Returns
    -------
    tuple of Verdict
        In the order of the groups in the table.
    """
    by = [str(column) for column in _listed(result.settings.get("by"))]
    way = first_way(result.table)
    groups = list(result.table.groupby(by, sort=False)) if by else [((), result.table)]
    over = _over(result.table, len(groups))
    return tuple(_verdict(dict(zip(by, map(str, names), strict=True)), pairs, way, over) for names, pairs in groups)


def silent_verdicts(told: Sequence[Verdict], changes: pd.DataFrame) -> tuple[Verdict, ...]:
    """A verdict for each group that has scores, and so changes, but no pair: it is not among those told."""
    if changes.empty:
        return ()
    by = [str(column) for column in changes.columns[: list(changes.columns).index("test_set")]]
    return tuple(
        Verdict(group=group, n_runs=int(own["n_runs"].max()), descriptive=False, sentence=NO_PAIR, short=NO_PAIR)
        for group, own in grouped(changes, by)
        if all(group != verdict.group for verdict in told)
    )


def first_way(rows: pd.DataFrame) -> str:
    """The way of pooling that a verdict begins with."""
    ways = [str(way) for way in dict.fromkeys(rows["within"])]
    return "pooled" if "pooled" in ways else ways[0]


def in_doubt(pairs: pd.DataFrame) -> NDArray[np.bool_]:
    """Pairs that would be significant, but that something else than a relation could explain."""
    p_values = pairs[["p_holm", "p_said"]].to_numpy(float)
    tested = np.isfinite(pairs["p_corrected"].to_numpy(float)) & ~pairs["clear"].to_numpy(bool)
    return np.asarray(tested & (p_values < SIGNIFICANT).any(axis=1) & (pairs["doubt"].astype(str) != ""), dtype=bool)


def overall(told: Sequence[Verdict], claim: Answer | None = None) -> str:
    """One answer for all groups: the claim across them where it was asked, else how many say what."""
    if claim is not None and claim.sentences and len(told) > 1:
        return " ".join(claim.sentences)
    if len(told) == 1:
        return told[0].sentence
    heads = Counter(verdict.head for verdict in told)
    counts = [f"{head} ({count})" for head, count in heads.most_common()]
    return f"{len(told)} groups, each by itself: {'; '.join(counts)}." if told else NO_PAIR


def _listed(by: object) -> list[object]:
    return list(by) if isinstance(by, list | tuple) else []


def _verdict(group: Mapping[str, str], found: pd.DataFrame, way: str, over: str) -> Verdict:
    pairs, inside = found[found["within"] == way], found[found["within"] == "run"]
    n_runs, n_units = int(pairs["n_runs"].max()), int(pairs["n_units"].max())
    some, some_inside = (bool(np.isfinite(one["r"].to_numpy(float)).any()) for one in (pairs, inside))
    descriptive = some and n_units < DESCRIPTIVE
    if not some:
        left = "enough points, or enough variation left, once in-domain performance is held fixed"
        sentence = short = f"{NOTHING}: no pair of test sets has {left}."
        points: tuple[str, ...] = ()
    elif descriptive:
        sentence, short, points = _described(pairs), _short_described(pairs), _signs(pairs)
    else:
        sentence, short, points = _tested(pairs, over), _short(pairs), _points(pairs, over)
    if way == "pooled" and some and some_inside and n_runs > 1:  # of one run it is the same number
        within = _within_runs(inside, pairs, descriptive)
        sentence += within
        points += (within.strip(),)
    if not_known := _not_known(found):
        sentence += not_known
        points += (not_known.strip(),)
    return Verdict(group=group, n_runs=n_runs, descriptive=descriptive, sentence=sentence, short=short, points=points)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Pairs by name that rise together, move apart and are in doubt, and how many are open, untested or empty."""

    up: tuple[str, ...]
    down: tuple[str, ...]
    doubted: Mapping[str, tuple[str, ...]]  # by what could explain them
    open_: int
    untested: int
    empty: int

    @classmethod
    def of(cls, pairs: pd.DataFrame) -> _Counts:
        r = pairs["r"].to_numpy(float)
        names = (pairs["a"].astype(str) + " ~ " + pairs["b"].astype(str)).to_numpy()
        clear, tested = pairs["clear"].to_numpy(bool), np.isfinite(pairs["p_corrected"].to_numpy(float))
        doubt = np.where(in_doubt(pairs), pairs["doubt"].astype(str), "")
        doubted = {str(why): tuple(names[doubt == why]) for why in dict.fromkeys(doubt) if why}
        known = np.isfinite(r)
        return cls(
            up=tuple(names[clear & (r > 0)]),
            down=tuple(names[clear & (r < 0)]),
            doubted=doubted,
            open_=int((tested & ~clear).sum()) - sum(map(len, doubted.values())),
            untested=int((known & ~tested).sum()),
            empty=int((~known).sum()),
        )

    @property
    def tested(self) -> int:
        return len(self.up) + len(self.down) + self.open_ + sum(map(len, self.doubted.values()))

    def told(self) -> str:
        if not self.tested:
            return "none could be tested"
        up, down = (len(names) for names in (self.up, self.down))
        counts = f"{_rise(up)}{_named(self.up)}, {_part(down)}{_named(self.down)}"
        for why, names in self.doubted.items():
            counts += f", {len(names)}{_named(names)} may be due to {DUE[why]}"
        return f"{counts}, and {self.open_} cannot be told from no relation"

    def rest(self) -> str:
        said = ""
        if self.untested and self.tested:
            said += f"; {_pairs(self.untested)} could not be tested, as the caveats say"
        if self.empty:
            said += f"; {_pairs(self.empty)} {'has' if self.empty == 1 else 'have'} no correlation, as the caveats say"
        return said


def _rise(count: int) -> str:
    return f"{count} {'rises' if count == 1 else 'rise'} together"


def _part(count: int) -> str:
    return f"{count} {'moves' if count == 1 else 'move'} apart"


def _named(names: tuple[str, ...]) -> str:
    """The first pairs by name."""
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f" ({'; '.join(names[:NAMED])}{more})"


def _within_runs(pairs: pd.DataFrame, pooled: pd.DataFrame, descriptive: bool) -> str:
    """The same counts once each run's own level is taken out as well."""
    of_runs = "" if _units(pairs) == _units(pooled) else f" ({_units(pairs)})"
    fixed = " and with hardly anything to hold fixed" if _is_flat(pairs) else ""
    before = f" That pools all runs; within runs{of_runs}, each run's own level taken out{fixed},"
    after = "" if _is_flat(pooled) else _flat(pairs, "within runs")
    if descriptive:
        r = pairs["r"].to_numpy(float)
        return f"{before} {_rise(int((r > 0).sum()))} and {_part(int((r < 0).sum()))}{_empty(pairs)}.{after}"
    counts = _Counts.of(pairs)
    return f"{before} {counts.told()}{counts.rest()}.{after}"


def _described(pairs: pd.DataFrame) -> str:
    r = pairs["r"].to_numpy(float)
    up, down = int((r > 0).sum()), int((r < 0).sum())
    return (
        f"Open: with {_units(pairs)}, of {_pairs(len(r))} of test sets {_rise(up)} and {_part(down)} "
        f"{_given(pairs)}, but such signs also differ by chance, so this describes these runs and "
        f"nothing was tested; {DESCRIPTIVE} or more independent runs would allow a test{_empty(pairs)}."
        f"{_flat(pairs)}"
    )


def _empty(pairs: pd.DataFrame) -> str:
    """Pairs without a correlation, which has no sign."""
    return _Counts.of(pairs).rest()


def _tested(pairs: pd.DataFrame, over: str) -> str:
    counts = _Counts.of(pairs)
    level = f"(5 % level, Holm's adjustment over {over})"
    return (
        f"{_answer(counts)}: with {_units(pairs)} and {_given(pairs)}, of {_pairs(len(pairs))} of test sets "
        f"{counts.told()}{f' {level}' if counts.tested else ', as the caveats say'}{counts.rest()}."
        f"{_flat(pairs)}{_raw(pairs)}"
    )


def _short(pairs: pd.DataFrame) -> str:
    """How many pairs of each kind."""
    counts = _Counts.of(pairs)
    if not counts.tested:
        return f"No answer: none of {_pairs(len(pairs))} of test sets could be tested, as the caveats say."
    doubted = sum(map(len, counts.doubted.values()))
    kinds = [_rise(len(counts.up)), _part(len(counts.down))]
    kinds += [f"{doubted} may be due to something else"] * bool(doubted)
    told = f"{', '.join(kinds)}, and {counts.open_} cannot be told from no relation"
    return f"{_answer(counts)}: of {_pairs(len(pairs))} of test sets {told}{counts.rest()}."


def _points(pairs: pd.DataFrame, over: str) -> tuple[str, ...]:
    """Which pairs, with their intervals, and on what the answer rests."""
    counts = _Counts.of(pairs)
    rows = {f"{row['a']} ~ {row['b']}": row for row in pairs.to_dict("records")}
    kinds = {"Rise together": counts.up, "Move apart": counts.down}
    kinds |= {f"May be due to {DUE[why]}": names for why, names in counts.doubted.items()}
    told = [f"{kind}: {_with_intervals(names, rows)}." for kind, names in kinds.items() if names]
    if counts.tested:
        told.append(f"Rests on {_units(pairs).removesuffix(',')}; 5 % level, Holm's adjustment over {over}.")
    return (*told, *(text.strip() for text in (_flat(pairs), _raw(pairs)) if text))


def _with_intervals(names: tuple[str, ...], rows: Mapping[str, Mapping[Hashable, Any]]) -> str:
    """The strongest pairs first."""
    order = sorted(names, key=lambda name: -abs(rows[name]["r"]))
    shown = order if len(order) <= NAMED + 1 else order[:NAMED]  # no "1 more"
    told = [f"{n} ({rows[n]['r']:+.2f}, {rows[n]['low']:+.2f} to {rows[n]['high']:+.2f})" for n in shown]
    return "; ".join(told) + (f"; {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _short_described(pairs: pd.DataFrame) -> str:
    return f"Open: with {_units(pairs)} nothing was tested; {DESCRIPTIVE} or more independent runs would allow a test."


def _signs(pairs: pd.DataFrame) -> tuple[str, ...]:
    r = pairs["r"].to_numpy(float)
    signs = (
        f"Of {_pairs(len(r))} of test sets {_rise(int((r > 0).sum()))} and {_part(int((r < 0).sum()))} "
        f"{_given(pairs)}, but such signs also differ by chance: this describes these runs{_empty(pairs)}."
    )
    return tuple(text.strip() for text in (signs, _flat(pairs)) if text)


def _over(table: pd.DataFrame, n_groups: int) -> str:
    """Over what p-values are adjusted: all tests that a result reports."""
    tested = table[np.isfinite(table["p_corrected"].to_numpy(float))]
    ways = [WAYS[way] for way in dict.fromkeys(tested["within"])]
    of = [" and ".join(ways)] if len(ways) > 1 else []
    of += [f"{n_groups} groups"] if n_groups > 1 else []
    every = "the one test reported" if len(tested) == 1 else f"all {len(tested)} tests reported"
    return every + (f": {', '.join(of)}" if of else "")


def _raw(pairs: pd.DataFrame) -> str:
    """Of models with one checkpoint each: where raw and partial correlations part, which is a finding of its own."""
    if not _one_each(pairs) or _is_flat(pairs):
        return ""
    moved = (pairs["r"] - pairs["r_raw"]).abs().to_numpy(float)
    if not np.isfinite(moved).any():
        return ""
    most = pairs.iloc[int(np.nanargmax(moved))]
    return (
        f" Raw and partial r differ by {np.nanmedian(moved):.2f} in the median, most in {most['a']} ~ {most['b']} "
        f"({most['r_raw']:+.2f} raw, {most['r']:+.2f} partial)."
    )


def noise_known(pairs: pd.DataFrame) -> str:
    """What is known of noise of in-domain scores: known, unknown, in part; exact where they are taken as that."""
    known = pairs[np.isfinite(pairs["r"].to_numpy(float))]
    unknown, exact = (
        np.array([any(text.startswith(begin) for text in said) for said in known["caveats"]], dtype=bool)
        for begin in (NOT_KNOWN, AS_EXACT)
    )
    if unknown.any():
        return "unknown" if unknown.all() else "in part"
    return "exact" if exact.any() else "known"


def _not_known(pairs: pd.DataFrame) -> str:
    """Why noise of the in-domain set keeps pairs from being counted without being known, and what to do."""
    doubted = pairs[in_doubt(pairs) & (pairs["doubt"] == UNKNOWN)]
    said = dict.fromkeys(text for caveats in doubted["caveats"] for text in caveats if text.startswith(NOT_KNOWN))
    told = "".join(f" Noise of the in-domain set is not known: {text.removeprefix(f'{NOT_KNOWN}: ')}." for text in said)
    exact = any(text.startswith(AS_EXACT) for caveats in pairs["caveats"] for text in caveats)
    return told + " In-domain scores are taken as exact." * exact


def _given(pairs: pd.DataFrame) -> str:
    """What was held fixed, if anything."""
    return "with hardly anything to hold fixed" if _is_flat(pairs) else "once in-domain performance is held fixed"


def _is_flat(pairs: pd.DataFrame) -> bool:
    known = pairs[np.isfinite(pairs["r"].to_numpy(float))]
    return bool(len(known)) and all(hardly_differ(said) for said in known["caveats"])


def _flat(pairs: pd.DataFrame, where: str = "here") -> str:
    """Where in-domain scores hardly differ, what that does to the correlations."""
    if not _is_flat(pairs):
        return ""
    moved = np.abs(pairs["r"].to_numpy(float) - pairs["r_raw"].to_numpy(float))
    if not np.isfinite(moved).any():
        return ""
    middle, most = float(np.nanmedian(moved)), float(np.nanmax(moved))
    so = " and explains next to nothing" if most <= ALIKE else ""
    return (
        f" In-domain performance hardly differs {where}{so}: raw and partial r differ by {middle:.2f} in the median"
        f" and by {most:.2f} at most."
    )


def _answer(counts: _Counts) -> str:
    if not counts.tested:
        return "No answer"
    if not counts.up and not counts.down:
        return "No evidence either way"
    if counts.up and counts.down:
        return "It depends on the pair"
    answer = "No" if counts.down else "Yes"
    all_clear = len(counts.up) + len(counts.down) == counts.tested and not counts.untested and not counts.empty
    return answer if all_clear else f"{answer}, where it can be told"


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _units(pairs: pd.DataFrame) -> str:
    """How many runs the pairs rest on, as a range where pairs differ."""
    pairs = pairs[np.isfinite(pairs["r"].to_numpy(float))] if np.isfinite(pairs["r"].to_numpy(float)).any() else pairs
    runs, units = (_span(pairs[column]) for column in ("n_runs", "n_units"))
    one_each = _one_each(pairs)
    told = "1 run" if runs == "1" else f"{runs} models, one checkpoint each," if one_each else f"{runs} runs"
    return told if units == runs else f"{told.removesuffix(',')} ({units} independent){',' * one_each}"


def _one_each(pairs: pd.DataFrame) -> bool:
    """Whether every run is a model with one checkpoint."""
    return bool((pairs["n_steps"] == pairs["n_runs"]).all()) and int(pairs["n_runs"].max()) > 1


def _span(counts: pd.Series) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low} to {high}"

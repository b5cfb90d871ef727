"""Runs that are copies of another run: a folder copied under another name, a table joined twice. They count once.

Try it::

    copied_runs(rows)    # {"run_3_backup": "run_3"}
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from scipy.stats import binom

from oodles.errors import some
from oodles.stats.residuals import Ints
from oodles.stats.splines import Array

ROUNDING = 9  # decimals to which scores must agree to be one and the same
MOST_DECIMALS = 6  # scores with more are taken as not rounded
SHARES = ((100_000, 6e-10), (3_000, 4e-8))  # examples at most, and what rounding to nine decimals or a float32 is off
FEWEST_SHARES = 6  # different scores that tell of how many examples they are shares
MANY_SHARES = 1_000_000  # examples that a test set has at most
MOST_PARTS, RARELY = 100, 1e-3  # prime parts that are looked at, and the chance below which they are too frequent
PLAINLY = 4.0  # powers of ten by which chance must fall short of making scores shares of few examples
BRAIN, HALF = 8, 11  # bits of a bfloat16 and of a float16
ODD = 0.05  # share of a set's scores that may be no share of n examples before it is said
CERTAIN = 3.0  # powers of ten by which chance must fall short of making two equal runs
MANY_STEPS = 6  # of which a set's early and late scores count apart
FINEST = 1e-6  # chance that two scores agree where nothing rounds them


def copied_runs(rows: pd.DataFrame) -> dict[str, str]:
    """Runs whose every point is a point of another run, and the run they are a copy of.

    A copy agrees with the other run from its first step to its last on all test sets, after rounding; the other may go
    on. Of equal runs the first by name is the original. Coarse scores agree by chance, so a run is a copy only where
    such a coincidence is expected less than once in a thousand tables. Scores of a set at neighbouring steps are not
    independent, so a set counts once, or twice if there are many steps: at the point at which other runs agree least,
    with the share of pairs of runs that do (at least the chance that follows from its resolution and spread). The first
    of several points, which runs may share, does not count.

    Parameters
    ----------
    rows : pandas.DataFrame
        The rows of one group and one metric, in the order of `check_table`.

    Examples
    --------
    >>> draw = np.random.default_rng(0)
    >>> cells = [(run, step, name, draw.normal()) for run in "ab" for step in range(3) for name in ("mnli", "hans")]
    >>> cells += [("c", *cell[1:]) for cell in cells if cell[0] == "a"]
    >>> table = pd.DataFrame(cells, columns=["run", "step", "test_set", "value"]).assign(n=np.nan)
    >>> copied_runs(table)
    {'c': 'a'}
    """
    if rows["run"].nunique() < 2:
        return {}
    paths = _Paths.of(rows)
    equal = paths.equal_runs()
    agreed = paths.agreement([run for run in range(len(paths.names)) if run not in equal])
    needed = CERTAIN + np.log10(len(paths.names) * (len(paths.names) - 1) / 2)
    sure = {run: original for run, original in equal.items() if paths.evidence(run, agreed) >= needed}
    return dict(sorted((paths.names[run], paths.names[original]) for run, original in sure.items()))


def copies_caveat(copies: Mapping[str, str]) -> str:
    """What was left out.

    >>> copies_caveat({"b": "a"})
    'run b has the scores of run a at every step: counted once'
    >>> copies_caveat({"b": "a", "d": "c"})
    '2 runs have the scores of another run at every step (b of a, d of c): counted once'
    """
    if len(copies) == 1:
        ((copy, original),) = copies.items()
        return f"run {copy} has the scores of run {original} at every step: counted once"
    listed = some([f"{copy} of {original}" for copy, original in copies.items()], 4)
    return f"{len(copies)} runs have the scores of another run at every step ({listed}): counted once"


def resolution(values: Array, sizes: Array) -> float:
    """The smallest difference the scores can show: one example, else their last decimal; 0 where they show none.

    >>> resolution(np.array([0.25, 0.75]), np.array([4.0, 4.0]))
    0.25
    >>> resolution(np.array([0.7133, 0.65]), np.full(2, np.nan))
    0.0001
    >>> resolution(np.arange(60, 70) / 128, np.full(10, np.nan)) == 1 / 128
    True
    """
    if np.isfinite(sizes).all() and values.min(initial=0.0) >= 0 and values.max(initial=0.0) <= 1:
        return float(1.0 / sizes.min(initial=np.inf))
    scale = max(1.0, float(np.abs(values).max(initial=0.0)))
    shown = (d for d in range(MOST_DECIMALS + 1) if np.abs(values - np.round(values, d)).max() < 1e-12 * scale)
    decimals = next((10.0**-d for d in shown), 0.0)
    examples = _examples_of(values) if scale <= 1 and len(values) else 0
    return max(decimals, 1.0 / examples) if examples else decimals


def _examples_of(values: Array) -> int:
    """The smallest number of examples of which all scores are shares, up to rounding; 0 if there is none.

    Few different scores are shares of many numbers, so they do not tell.
    """
    different = np.unique(values)
    if len(different) < FEWEST_SHARES:
        return 0
    for most, off in SHARES:
        examples = 1
        for value in different.tolist():
            share = Fraction(value).limit_denominator(most)
            examples = math.lcm(examples, share.denominator) if abs(float(share) - value) <= off else most + 1
            if examples > most:
                break
        else:
            return examples
    return 0


def apparent_examples(values: Array, sizes: Array | None = None) -> int:
    """The number of examples that scores of 0..1 are plainly shares of; 0 where rounding, or chance, explains it.

    With `sizes`, a number that is told: whether scores are plainly shares of fewer.

    >>> shares = np.arange(100, 112) / 200
    >>> apparent_examples(shares), apparent_examples(shares.round(2)), apparent_examples(shares, np.full(12, 200.0))
    (200, 0, 0)
    >>> apparent_examples(shares, np.full(12, 9842.0))
    200
    >>> apparent_examples(np.concatenate([np.arange(61, 91) / 100, np.arange(121, 180, 2) / 300]))  # two sizes
    0
    >>> apparent_examples(np.arange(700, 712).astype(np.float16) / np.float16(1024))  # half floats are shares of 2,048
    0
    """
    own = np.unique(values[np.isfinite(values)]).astype(float)
    if not len(own) or own[0] < 0 or own[-1] > 1:
        return 0
    examples = _examples_of(own)
    if not examples or _of_fewer(own, examples):
        return 0
    most = float(MANY_SHARES if sizes is None else np.nanmax(sizes))
    decimals = next((d for d in range(MOST_DECIMALS + 1) if np.abs(own - np.round(own, d)).max() < 1e-9), None)
    if decimals is not None:
        most = min(most, 10.0**decimals)
    for bits in (HALF, BRAIN):
        if not np.mod(np.frexp(own)[0] * 2.0**bits, 1).any():
            most = min(most, 2.0**bits)
    return examples if len(own) * np.log10(max(most / examples, 1.0)) >= PLAINLY else 0


def _of_fewer(values: Array, examples: int) -> bool:
    """Whether too many of these scores are shares of a part of the examples: n differs from score to score."""
    shares = np.round(values * examples)
    for prime in (
        p for p in range(2, min(examples, MOST_PARTS) + 1) if examples % p == 0 and all(p % q for q in range(2, p))
    ):
        hits = int((shares % prime == 0).sum())
        if binom.sf(hits - 1, len(shares), 1 / prime) < RARELY:
            return True
    return False


def no_shares(values: Array, sizes: Array) -> bool:
    """Whether scores (of 0..1) are no shares of n examples, beyond their rounding: n, or what they are, is another.

    A score may be off by one in its own last decimal, since scores are rounded twice on their way through percentages,
    or in the last bit of a half float, which printing hides.

    >>> no_shares(np.array([0.3333, 0.6667]), np.full(2, 3.0)), no_shares(np.array([0.3412, 0.6667]), np.full(2, 3.0))
    (False, True)
    """
    known = np.isfinite(values) & np.isfinite(sizes) & (values >= 0) & (values <= 1)
    if not known.any():
        return False
    own = values[known]
    brain = not np.mod(np.frexp(own)[0] * 2.0**BRAIN, 1).any()
    decimals = np.max([10.0**-d * (np.abs(own - np.round(own, d)) < 1e-9) for d in range(MOST_DECIMALS + 1)], axis=0)
    rounding = np.maximum(decimals, own * 2.0 ** -(BRAIN if brain else HALF)) + 10.0**-MOST_DECIMALS
    return bool(np.mean(np.abs(own - _whole_examples(own, sizes[known])) > rounding) > ODD)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Paths:
    """Scores in the order of runs, steps and test sets, and where each point and each run begins."""

    names: tuple[str, ...]
    sets: Ints
    values: Array
    steps: Array
    points: Ints  # where each point begins, and the end
    bounds: Ints  # of each run among the points
    digits: Array  # per set: how unlikely it is that two scores agree, as a power of ten

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Paths:
        runs, names = pd.factorize(rows["run"])
        sets, _ = pd.factorize(rows["test_set"])
        steps, sizes = rows["step"].to_numpy(float), rows["n"].to_numpy(float)
        values = _whole_examples(rows["value"].to_numpy(float), sizes).round(ROUNDING) + 0.0
        begins = (np.diff(runs, prepend=-1) != 0) | (np.diff(steps, prepend=np.nan) != 0)
        starts = np.flatnonzero(begins)
        return cls(
            names=tuple(map(str, names)),
            sets=sets.astype(np.int64),
            values=values,
            steps=steps,
            points=np.append(starts, len(rows)),
            bounds=np.searchsorted(runs[starts], np.arange(len(names) + 1)),
            digits=_digits(sets, values, sizes),
        )

    def digests(self, run: int) -> Iterator[bytes]:
        """Of a run up to each of its points."""
        told = hashlib.blake2b(digest_size=16)
        for point in range(self.bounds[run], self.bounds[run + 1]):
            cells = slice(self.points[point], self.points[point + 1])
            told.update(self.steps[cells][:1].tobytes() + self.sets[cells].tobytes() + self.values[cells].tobytes())
            yield told.copy().digest()

    def equal_runs(self) -> dict[int, int]:
        """Runs that agree with another from their first point to their last, and that other."""
        known: dict[bytes, int] = {}
        found = {}
        for run in map(int, np.argsort(-np.diff(self.bounds), kind="stable")):  # the longest first, then by name
            digests = list(self.digests(run))
            if digests[-1] in known:
                found[run] = known[digests[-1]]
                continue
            for digest in digests if len(digests) == 1 else digests[1:]:  # one point in common is a shared start
                known.setdefault(digest, run)
        return found

    def agreement(self, runs: Sequence[int]) -> Mapping[tuple[float, int], float]:
        """For each step and set the share of pairs of these runs that have the same score there."""
        kept = [slice(self.points[self.bounds[run]], self.points[self.bounds[run + 1]]) for run in runs]
        cells = np.concatenate([np.arange(one.start, one.stop) for one in kept])
        steps = np.repeat(self.steps[self.points[:-1]], np.diff(self.points))
        table = pd.DataFrame({"step": steps[cells], "set": self.sets[cells], "value": self.values[cells]})
        counts = table.groupby(["step", "set", "value"]).size().to_numpy()
        keys = table.drop_duplicates().sort_values(["step", "set", "value"])
        same: dict[tuple[float, int], float] = {}
        sizes: dict[tuple[float, int], int] = {}
        for step, one, count in zip(keys["step"], keys["set"], counts, strict=True):
            key = (float(step), int(one))
            same[key] = same.get(key, 0.0) + count * (count - 1)
            sizes[key] = sizes.get(key, 0) + int(count)
        return {key: pairs / max(sizes[key] * (sizes[key] - 1), 1) for key, pairs in same.items()}

    def evidence(self, run: int, agreed: Mapping[tuple[float, int], float]) -> float:
        """How unlikely it is that another run has the same scores, as a power of ten."""
        first, last = self.bounds[run], self.bounds[run + 1]
        points = np.arange(first + (last - first > 1), last)
        parts = np.array_split(points, 2) if len(points) >= MANY_STEPS else [points]
        found = 0.0
        for part in parts:
            least: dict[int, float] = {}
            for point in part:
                step = float(self.steps[self.points[point]])
                for one in map(int, self.sets[self.points[point] : self.points[point + 1]]):
                    least[one] = min(least.get(one, 1.0), agreed.get((step, one), 1.0))
            found += sum(min(self.digits[one], -np.log10(max(share, FINEST))) for one, share in least.items())
        return float(found)


def _whole_examples(values: Array, sizes: Array) -> Array:
    """Scores as shares of whole examples where n is known: half precision, or a few decimals, make no other run.

    >>> _whole_examples(np.array([0.3333, 0.5, 7.0]), np.array([3.0, np.nan, 3.0])).round(6).tolist()
    [0.333333, 0.5, 7.0]
    """
    known = np.isfinite(sizes) & (sizes > 0) & (values >= 0) & (values <= 1)
    n = np.where(known, sizes, 1.0)
    return np.asarray(np.where(known, np.round(values * n) / n, values), dtype=float)


def coincidence(rows: Array, resolutions: Array) -> float:
    """How unlikely it is that two rows of independent scores agree in all columns, as a power of ten.

    Scores spread as they do over the different rows; a column without two different scores says nothing.
    """
    different = np.unique(rows, axis=0)
    found = 0.0
    for values, finest in zip(different.T, resolutions, strict=True):
        known = values[~np.isnan(values)]
        if len(known) > 1 and (spread := float(known.std(ddof=1))) > 0:
            found += _as_digits(finest, spread)
    return found


def _as_digits(finest: float, spread: float) -> float:
    """Two draws from a normal distribution agree with a chance of about resolution / (2 sqrt(pi) sd)."""
    return float(-np.log10(min(max(finest / (2 * np.sqrt(np.pi) * spread), FINEST), 1.0)))


def _digits(sets: Ints, values: Array, sizes: Array) -> Array:
    """Per set, how unlikely it is that two scores agree, as a power of ten."""
    found = np.zeros(int(sets.max()) + 1)
    for one in range(len(found)):
        own = sets == one
        spread = float(values[own].std())
        if spread > 0:
            found[one] = _as_digits(resolution(values[own], sizes[own]), spread)
    return found

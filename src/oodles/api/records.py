"""The records of a study's folder, for the statistics: read for one test set at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oodles.stats.outcomes import NO_MARGIN, SCORE, Outcomes, checked_outcomes, placed_outcomes
from oodles.stats.series import Series
from oodles.store.folder import RunFolder
from oodles.store.scores import Score
from oodles.store.table import Layout, Notes, Wanted, committed_runs, read_record

MOST_MARGINS = 2**26  # kept in memory, about 256 MB


@dataclass(frozen=True, slots=True)
class _Kept:
    """The records of one evaluation, or of a slice of it."""

    folder: RunFolder
    score: Score
    inside: Any  # array, or None for the whole set


@dataclass(frozen=True, slots=True, eq=False)
class StoredRecords:
    """The records of a study's folder, read for one test set at a time: who was right, and nothing else.

    Try it::

        records = StoredRecords.read("runs/paper")
        partial_correlations(read_runs("runs/paper"), records)

    Outcomes are kept as bits once they were read, an eighth of a byte per example and step.
    """

    wanted: Wanted
    kept: Mapping[str, Mapping[tuple[str, float], _Kept]]  # test set -> (run, step)
    notes: Notes
    bits: dict[tuple[str, int, str], Any] = field(default_factory=dict)  # (run, step, test set): packed outcomes
    margins: dict[tuple[str, int, str], Any] = field(default_factory=dict)  # as far as there is room: `MOST_MARGINS`

    @classmethod
    def read(cls, root: str | Path, test_sets: Sequence[str] | None = None) -> StoredRecords:
        """Look at the committed lines of a study's folder; records are read when they are asked for."""
        notes = Notes()
        wanted = Wanted.read(Path(root), test_sets, notes)
        kept: dict[str, dict[tuple[str, float], _Kept]] = {}
        for run, _, scores in committed_runs(Path(root), notes):
            for score in scores.scores:
                place = (run.name, float(score.step))
                if wanted.whole(score):
                    kept.setdefault(score.test_set, {})[place] = _Kept(run, score, None)
                for one, inside, _ in wanted.slices_of(score):
                    kept.setdefault(one.name, {})[place] = _Kept(run, score, inside)
        return cls(wanted, kept, notes)

    def outcomes(
        self, series: Series, name: str, values: Any, metric: str = "accuracy", /
    ) -> tuple[Outcomes | None, str]:
        """Outcomes of a test set at the points of a group, or why they cannot be used."""
        own = self.kept.get(name, {})
        places = [(series.run_names[run], float(step)) for run, step in zip(series.runs, series.steps, strict=True)]
        rows = [(point, own[place]) for point, place in enumerate(places) if place in own]
        if metric != "accuracy":
            for _, one in rows:
                self._margin(one)  # reads the outcomes as well
        read = [(point, one, self._correct(one)) for point, one in rows]
        placed = [(point, one, outcome, self._layout(one)) for point, one, outcome in read if outcome is not None]
        known = [(point, one, outcome, layout) for point, one, outcome, layout in placed if layout is not None]
        if not known:
            return None, f"{name}: no records"
        layouts = {id(layout): layout for *_, layout in known}
        whole = Layout.joined(list(layouts.values()))
        column = {identity: place for place, identity in enumerate(whole.ids)}
        columns = {key: np.array([column[identity] for identity in one.ids]) for key, one in layouts.items()}
        correct = np.full((len(series.runs), len(whole.ids)), -1, dtype=np.int8)
        for point, _, outcome, layout in known:
            correct[point, columns[id(layout)]] = outcome
        if metric == "accuracy":
            outcomes, why = checked_outcomes(correct, whole.items, whole.strata, series.runs, values)
            return outcomes, f"{name}: {why}" if why else ""
        margin = np.zeros(correct.shape, dtype=np.float32)
        for point, one, _, layout in known:
            own_margin = self._margin(one)
            if own_margin is None:
                return None, f"{name}: {NO_MARGIN}"
            margin[point, columns[id(layout)]] = own_margin
        outcomes, why = placed_outcomes(margin, correct, whole.items, whole.strata, series.runs, values)
        return outcomes, f"{name}: {why}" if why else ""

    def _layout(self, one: _Kept) -> Layout | None:
        def ids() -> Iterable[str]:
            frame = read_record(one.folder, one.score, self.notes, ["example"])
            return () if frame is None else frame["example"]

        return self.wanted.layout(one.score, one.inside, ids)

    def _margin(self, one: _Kept) -> Any:
        """The first answer's score less the second's; None where there are not two answers."""
        key = (one.folder.name, one.score.step, one.score.test_set)
        if key in self.margins:
            margin = self.margins[key]
        else:
            frame = read_record(one.folder, one.score, self.notes)
            self.bits[key] = None if frame is None else np.packbits(frame["correct"].to_numpy(np.bool_))
            scores = [] if frame is None else [name for name in frame.columns if str(name).startswith(SCORE)]
            margin = None
            if frame is not None and len(scores) == 2:
                margin = frame[scores[0]].to_numpy(np.float32) - frame[scores[1]].to_numpy(np.float32)
            if len(self.margins) * one.score.n < MOST_MARGINS:
                self.margins[key] = margin
        if margin is None:
            return None
        return margin if one.inside is None else margin[one.inside]

    def _correct(self, one: _Kept) -> Any:
        """Who was right, as an array of 0 and 1; None, and a note, where the records are damaged."""
        key = (one.folder.name, one.score.step, one.score.test_set)
        if key not in self.bits:
            frame = read_record(one.folder, one.score, self.notes, ["correct"])
            self.bits[key] = None if frame is None else np.packbits(frame["correct"].to_numpy(np.bool_))
        if self.bits[key] is None:
            return None
        outcome = np.unpackbits(self.bits[key], count=one.score.n)
        return outcome if one.inside is None else outcome[one.inside]

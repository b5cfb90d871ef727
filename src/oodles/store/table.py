"""Read run folders into one long table, and the records behind it; runs may be finished, running or failed.

Damaged files are reported, with what was lost, and the others are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.contracts import Predictions, Role, role_of
from oodles.errors import StoreError, first_line, no_test_set, some
from oodles.files import frame_of
from oodles.store.claim import slices_of
from oodles.store.folder import RunFolder, StudyFolder, study_folder
from oodles.store.members import keys_of, read_members
from oodles.store.metrics import metrics
from oodles.store.records import RIGHT, fits, records_bytes, records_file, score_columns
from oodles.store.scores import Score, Scores, read_scores, scan_scores
from oodles.store.sidecars import sidecar
from oodles.store.spec import read_spec
from oodles.suite.choices import chance_of
from oodles.suite.slices import Members, Slice, is_slice, resolve_slice, strata_of

if TYPE_CHECKING:  # slow to load, and most commands only list the folder
    import pandas as pd

COLUMNS = ("run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n")


class DamageWarning(UserWarning):
    """A file of a run is damaged; the text names the file and what was lost."""


def read_runs(root: str | Path, test_sets: Sequence[str] | None = None) -> pd.DataFrame:
    """Return all committed scores of a study folder, or of a packed study, as one long table.

    Parameters
    ----------
    root
        The folder of a study, or a packed file.
    test_sets
        Only these, besides the in-domain ones; a slice such as ``hans/lexical_overlap`` counts as a test set. Default:
        all test sets and slices that the study evaluates.

    Returns
    -------
    pandas.DataFrame
        One row per run x step x test set x metric, with the columns of docs/design.md. Each file that cannot be read
        gives a warning and is listed in ``table.attrs["notes"]``.
    """
    from oodles.store.archive import opened

    with opened(root) as folder:
        notes = Notes()
        wanted = Wanted.read(folder, test_sets, notes)
        abouts, parts, owners = [], [], []
        for number, (run, about, scores) in enumerate(committed_runs(folder, notes)):
            abouts.append(about)
            for score in scores.scores:
                own = list(wanted.parts(run, score, notes))
                parts += own
                owners += [number] * len(own)
        wanted.complain()
    notes.rename(folder, root)
    if not parts:
        raise notes.nothing(Path(root), "scores")
    table = _table(abouts, np.array(owners), parts)
    table.attrs["notes"] = notes.tell()
    return table


def _table(abouts: Sequence[Mapping[str, Any]], owners: Any, parts: Sequence[_Part]) -> pd.DataFrame:
    """Build the table column by column: a study has hundreds of thousands of rows."""
    import pandas as pd

    counts = np.array([len(part.metrics) for part in parts])
    which = np.repeat(np.arange(len(parts)), counts)
    columns: dict[str, Any] = {
        name: pd.Series([about[name] for about in abouts]).take(owners[which]).array for name in abouts[0]
    }
    columns["step"] = np.array([part.step for part in parts])[which]
    for name in ("test_set", "role"):
        columns[name] = pd.Series([getattr(part, name) for part in parts]).take(which).array
    columns["metric"] = [metric for part in parts for metric in part.metrics]
    values = [np.nan if value is None else value for part in parts for value in part.metrics.values()]
    columns["value"] = np.array(values, dtype=np.float64)
    columns["n"] = np.array([part.n for part in parts])[which]
    guessed = np.array([part.chance for part in parts])[which]  # chance applies to accuracy only
    if np.isfinite(guessed).any():
        columns["chance"] = np.where(np.array(columns["metric"]) == "accuracy", guessed, np.nan)
    for name in ("slice_of", "slice"):
        if any(part.about for part in parts):
            columns[name] = pd.Series([part.about.get(name) for part in parts]).take(which).array
    table: pd.DataFrame = pd.DataFrame(columns)[[*COLUMNS, *(c for c in columns if c not in COLUMNS)]]
    return table


def read_records(root: str | Path, test_sets: Sequence[str] | None = None) -> pd.DataFrame:
    """Return the per-example records of all committed evaluations.

    The columns are run, step, test_set, example, one score per answer, correct, and the item and the stratum of the
    example, which the noise correction needs.

    `test_sets` and damage work as in `read_runs`; the records of a slice are those of its set, under the slice's name.
    This function holds all records in memory; `oodles.api.records.StoredRecords` reads them set by set.
    """
    import pandas as pd

    from oodles.store.archive import opened

    frames = []
    with opened(root) as folder:
        notes = Notes()
        wanted = Wanted.read(folder, test_sets, notes)
        for run, _, scores in committed_runs(folder, notes):
            for score in scores.scores:
                whole = wanted.whole(score)
                parts = [(subset.name, inside) for subset, inside, _ in wanted.slices_of(score)]
                frame = read_record(run, score, notes) if whole or parts else None
                if frame is None:
                    continue
                parts = [(n, inside) for n, inside in parts if len(inside) == len(frame)]  # read_runs reports it
                for name, inside in [(score.test_set, None)] * whole + parts:
                    layout = wanted.layout(score, inside, partial(tuple, frame["example"]))
                    if layout is None:
                        continue
                    part = frame if inside is None else frame[inside]
                    own = {"run": run.name, "step": score.step, "test_set": name, "item": layout.items}
                    frames.append(part.assign(**own, stratum=layout.strata))
    notes.rename(folder, root)
    if not frames and not notes.missing and not wanted.unknown:
        raise notes.nothing(Path(root), "records")
    first = ["run", "step", "test_set", "example"]
    table: pd.DataFrame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*first, "correct"])
    table = table.loc[:, [*first, *(c for c in table.columns if c not in first)]]
    table.attrs["notes"] = notes.tell()
    return table


def committed_runs(root: Path, notes: Notes) -> Iterator[tuple[RunFolder, dict[str, Any], Scores]]:
    """Yield every readable run with its columns of the long table and its committed lines."""
    study = study_folder(root)
    for folder in map(study.run, study.run_names):
        if not folder.spec.is_file():
            if folder.has_results:
                notes.add(f"{folder.path}: skipped: it has scores but no spec.json; restore the file")
            continue
        try:
            about, scores = run_columns(folder), scan_scores(folder)
        except StoreError as error:
            notes.add(f"{folder.path}: skipped: its spec or scores cannot be read ({error})")
            continue
        notes.lost += scores.lost
        yield folder, about, scores


def run_columns(folder: RunFolder) -> dict[str, Any]:
    """Return the columns of the long table that describe a run."""
    spec = read_spec(folder)
    return {
        "run": folder.name,
        "model": spec.model.label,
        "train_set": spec.train_set,
        "shots": spec.shots,
        "seed": spec.seed,
        "pattern": spec.pattern.name,
        "data_seed": spec.data_seed,
        "suite": spec.suite,
    }


@dataclass(slots=True)
class Notes:
    """Notes about files that could not be read."""

    lost: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # number of evaluations without records, by run

    def add(self, text: str) -> None:
        self.lost.append(text)

    def add_missing(self, folder: RunFolder) -> None:
        """Count all missing records of a run, including those that are not requested, e.g. of a shared step 0."""
        if folder.name not in self.missing:
            scores = read_scores(folder)
            absent = sum(not records_file(folder, score).exists() for score in scores)
            self.missing[folder.name] = f"{absent} of {len(scores)}"

    def rename(self, folder: Path, root: str | Path) -> None:
        """Name the packed file, not the folder that it was unpacked to."""
        self.lost[:] = [text.replace(str(folder), str(root)) for text in self.lost]

    def nothing(self, root: Path, what: str) -> StoreError:
        """Return the error for an empty result, with the reason."""
        if self.lost:
            return StoreError(f"{root}: no {what} that can be read; {self.lost[0]}")
        return StoreError(f"{root}: no {what} yet; run `oodles status {root}` to see what is there")

    @property
    def texts(self) -> list[str]:
        """One line for each loss."""
        missing = [
            f"run {run}: {how_many} evaluations have no records; `oodles run --verify` recomputes them"
            for run, how_many in self.missing.items()
        ]
        return [*self.lost, *missing]

    def tell(self) -> list[str]:
        for text in self.texts:
            warnings.warn(text, DamageWarning, stacklevel=3)
        return self.texts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """An evaluation, or a slice of one."""

    step: int
    test_set: str
    role: Role
    n: int
    metrics: Mapping[str, float | None]
    chance: float = float("nan")  # accuracy of the best constant answer; nan if the gold answers are not stored
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The examples behind a score, in the order of the records: ids, slice columns and items."""

    ids: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]
    items: Any  # array with the item of each example

    @classmethod
    def of(cls, members: Members, inside: Any) -> Layout:
        places = np.arange(len(members.ids)) if inside is None else np.flatnonzero(inside)
        items = np.array(members.items, dtype=np.int64) if members.items else np.arange(len(members.ids))
        columns = {name: tuple(cells[i] for i in places) for name, cells in members.columns.items()}
        return cls(ids=tuple(members.ids[i] for i in places), columns=columns, items=items[places])

    @classmethod
    def joined(cls, layouts: Sequence[Layout]) -> Layout:
        """Combine several samples of one set; each example occurs once."""
        if len(layouts) == 1:
            return layouts[0]
        rows: dict[str, tuple[Layout, int]] = {}
        for layout in layouts:
            for place, identity in enumerate(layout.ids):
                rows.setdefault(identity, (layout, place))
        names = set.intersection(*(set(layout.columns) for layout in layouts))
        return cls(
            ids=tuple(rows),
            columns={n: tuple(own.columns[n][i] for own, i in rows.values()) for n in layouts[0].columns if n in names},
            items=np.array([own.items[i] for own, i in rows.values()], dtype=np.int64),
        )

    @property
    def strata(self) -> Any:
        """The stratum of each example; None if labels are not known."""
        return strata_of(self.columns, self.items) if self.columns else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested test sets and slices, and the members of their sets."""

    study: StudyFolder
    names: tuple[str, ...] | None  # None: every set
    slices: tuple[str, ...]
    notes: Notes
    members: dict[str, Members | None] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)  # prompts whose members the study keeps, but cannot be read
    layouts: dict[tuple[str, bytes | None], Layout | None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, root: Path, names: Sequence[str] | None, notes: Notes) -> Wanted:
        study = StudyFolder(root)
        if names is not None:
            return cls(study, tuple(n for n in names if not is_slice(n)), tuple(filter(is_slice, names)), notes)
        return cls(study, None, slices_of(study), notes)

    def parts(self, folder: RunFolder, score: Score, notes: Notes) -> Iterator[_Part]:
        """Yield the set itself if requested, and every requested slice of it."""
        self.seen.add(score.test_set)
        if self.whole(score):
            yield _Part(
                step=score.step,
                test_set=score.test_set,
                role=score.role,
                n=score.n,
                metrics=score.metrics,
                chance=self._chance(score),
            )
        for subset, inside, members in self.slices_of(score):
            frame = read_record(folder, score, notes)
            if frame is None:
                return
            if len(frame) != len(inside):
                path = self.study.members(score.test_set, score.prompts)
                notes.add(f"{path}: belongs to another test set; lost: {subset.name}")
                return
            predictions = _predictions(subset.name, frame[inside], np.array(members.gold, dtype=np.int64)[inside])
            train_set = score.test_set if score.role == "in_domain" else ""
            yield _Part(
                step=score.step,
                test_set=subset.name,
                role=role_of(subset.name, train_set),
                n=int(inside.sum()),
                metrics={
                    k: v for k, v in metrics(predictions).items() if not np.isnan(v)
                },  # with a single label, some metrics are undefined
                chance=_chance_of(members, inside),
                about={"slice_of": subset.parent, "slice": str(subset)},
            )

    def whole(self, score: Score) -> bool:
        """Whether the whole set is needed; the in-domain set always is, because the others are compared with it."""
        return self.names is None or score.test_set in self.names or score.role == "in_domain"

    def slices_of(self, score: Score) -> Iterator[tuple[Slice, Any, Members]]:
        """Yield the requested slices of an evaluation, each with its examples."""
        for name in self.slices:
            if name.partition("/")[0] != score.test_set:
                continue
            members = self._members(score)
            if members is None:
                continue
            subset = resolve_slice(name, members.columns)
            inside = subset.mask(members)
            if inside.any():
                yield subset, inside, members

    def _members(self, score: Score) -> Members | None:
        """Return the members of an evaluation's set; None if the study keeps none, or, with a note, if they are lost.

        A set whose members are lost has no items, labels and slices, so that its records cannot be used.
        """
        key = score.prompts
        if key not in self.members:
            keeps = bool(keys_of(sidecar(self.study.file) or {}, score.test_set, score.prompts))
            self.members[key] = None
            if keeps or self.study.members(score.test_set, score.prompts).is_file():
                try:
                    self.members[key] = read_members(self.study, score.test_set, score.prompts)
                except StoreError as error:
                    self.unknown.add(key)
                    lost = f"test set '{score.test_set}' is analysed without records and slices"
                    self.notes.add(f"{error}; {lost}")
        return self.members[key]

    def layout(self, score: Score, inside: Any, ids: Callable[[], Iterable[str]]) -> Layout | None:
        """Return the examples of an evaluation, or of a slice, with their items; `ids` come from the records.

        None if the study kept the items, but they are lost.
        """
        key = (score.prompts, None if inside is None else inside.tobytes())
        if key not in self.layouts:
            members = self._members(score)
            if members is not None:
                self.layouts[key] = Layout.of(members, inside)
            elif score.prompts in self.unknown:
                self.layouts[key] = None
            else:  # the run's shots, or an older folder: every example is an item
                alone = tuple(ids())
                self.layouts[key] = Layout(ids=alone, columns={}, items=np.arange(len(alone)))
        return self.layouts[key]

    def _chance(self, score: Score) -> float:
        """Return chance on a whole set; nan if its members are missing or only one answer occurs."""
        members = self._members(score)
        best = float("nan") if members is None else _chance_of(members)
        return best if best < 1 else float("nan")

    def complain(self) -> None:
        """Raise an error for a name that no run has evaluated, instead of returning an empty table."""
        for name in (*(self.names or ()), *self.slices):
            if name.partition("/")[0] not in self.seen and self.seen:
                raise StoreError(no_test_set(self.study, name, self.seen))


def _chance_of(members: Members, inside: Any = slice(None)) -> float:
    """Chance on a set, or on a part of it."""
    return chance_of(np.array(members.gold)[inside], np.array(members.choices)[inside] if members.choices else ())


def _predictions(name: str, frame: pd.DataFrame, gold: Any) -> Predictions:
    """Read predictions back from records."""
    scores = score_columns(frame.columns)
    forms = [column for column in frame.columns if column.startswith(RIGHT)]
    return Predictions(
        test_set=name,
        answers=tuple(column.removeprefix("score:") for column in scores if column.startswith("score:")),
        ids=tuple(frame["example"]),
        scores=frame[scores].to_numpy(np.float64),
        gold=gold,
        chosen=frame["chosen"].to_numpy(np.int64) if "chosen" in frame.columns else None,
        right={column.removeprefix(RIGHT): frame[column].to_numpy(bool) for column in forms},
    )


def read_record(folder: RunFolder, score: Score, notes: Notes, columns: list[str] | None = None) -> pd.DataFrame | None:
    """Read the records of an evaluation, or some columns; None, with a note, if they are damaged."""
    path = records_file(folder, score)
    try:
        data = records_bytes(path)
        if data is None:
            notes.add_missing(folder)
            return None
        if not fits(score, data):
            raise StoreError(f"{path}: damaged or missing; `oodles run --verify` evaluates it again")
        frame = _frame(path, data, "`oodles run --verify` evaluates it again", columns)
        if problem := _misfit_records(frame, score.n, columns):
            raise StoreError(f"{path}: {problem}; `oodles run --verify` evaluates it again")
        return frame
    except StoreError as error:
        notes.add(f"{error}; lost: the records of step {score.step}, test set '{score.test_set}'")
        return None


def _misfit_records(frame: pd.DataFrame, n: int, columns: Sequence[str] | None = None) -> str:
    """Describe what is wrong with records, or with some columns; empty if they are as `commit` writes them."""
    kinds = {name: frame[name].dtype.kind for name in frame.columns}
    scores = score_columns(kinds)
    if not set(columns or ("example", "correct")) <= kinds.keys() or (columns is None and len(scores) < 2):
        return f"columns {some(kinds)}, expected example, correct and a score for each answer"
    if kinds.get("correct", "b") != "b" or any(kinds[name] != "f" for name in scores):
        return "unexpected column types"
    if "example" in kinds and frame["example"].isna().any():
        return "unexpected column types"
    return "" if len(frame) == n else f"{len(frame)} records, expected {n}"


def _frame(path: Path, data: bytes, advice: str, columns: list[str] | None = None) -> pd.DataFrame:
    try:
        return frame_of(data, columns)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({first_line(error)}); {advice}") from None

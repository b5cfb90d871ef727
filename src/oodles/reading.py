"""Run folders -> one long table, and the records behind it; from any mix of finished, running and failed runs.

What is damaged is named, with what was lost, and the rest is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oodles.errors import StoreError, first_line, nearest, some
from oodles.files import read_frame
from oodles.metrics import metrics
from oodles.records import Predictions, Role, role_of
from oodles.slices import Members, Slice, is_slice, resolve_slice
from oodles.store import (
    RunFolder,
    Scores,
    members_file,
    read_json,
    records_are_whole,
    records_file,
    run_folders,
    scan_scores,
)

if TYPE_CHECKING:  # slow to load, and most commands only look at the folder
    import pandas as pd

COLUMNS = ("run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n")


class DamageWarning(UserWarning):
    """A file of a run is damaged; says which, and what was lost."""


def read_runs(root: str | Path, test_sets: Sequence[str] | None = None) -> pd.DataFrame:
    """All committed scores below a study's folder, or in a packed one, as one long table.

    Parameters
    ----------
    test_sets : only these, beside the in-domain ones; a slice such as ``hans/lexical_overlap`` is one, too. Default:
        all that the study evaluates.

    Returns
    -------
    One row per run x step x test set x metric, with the columns of docs/design.md. What could not be read is told by a
    warning each, and listed in ``table.attrs["notes"]``.
    """
    from oodles.packed import opened

    with opened(root) as folder:
        wanted, notes = _Wanted.read(folder, test_sets), _Notes()
        abouts, parts, owners = [], [], []
        for number, (run, about, scores) in enumerate(_runs(folder, notes)):
            abouts.append(about)
            for line in scores.lines:
                found = list(wanted.parts(run, line, notes))
                parts += found
                owners += [number] * len(found)
        wanted.complain()
    if not parts:
        raise StoreError(f"{root}: no scores yet; run `oodles status {root}` to see what is there")
    table = _table(abouts, np.array(owners), parts)
    table.attrs["notes"] = notes.tell()
    return table


def _table(abouts: Sequence[Mapping[str, Any]], owners: Any, parts: Sequence[_Part]) -> pd.DataFrame:
    """Column by column: a study has hundreds of thousands of rows."""
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
    for name in ("slice_of", "slice"):
        if any(part.about for part in parts):
            columns[name] = pd.Series([part.about.get(name) for part in parts]).take(which).array
    table: pd.DataFrame = pd.DataFrame(columns)[[*COLUMNS, *(c for c in columns if c not in COLUMNS)]]
    return table


def read_records(root: str | Path, test_sets: Sequence[str] | None = None) -> pd.DataFrame:
    """Per-example records of all committed evaluations: run, step, test_set, example, one score per answer, correct.

    `test_sets` and damage as in `read_runs`; the records of a slice are those of its set, under the slice's name.
    """
    import pandas as pd

    from oodles.packed import opened

    frames = []
    with opened(root) as folder:
        wanted, notes = _Wanted.read(folder, test_sets), _Notes()
        for run, _, scores in _runs(folder, notes):
            for line in scores.lines:
                whole = wanted.whole(line)
                parts = [(one.name, inside) for one, inside, _ in wanted.slices_of(line)]
                frame = _record(run, line, notes) if whole or parts else None
                if frame is None:
                    continue
                parts = [
                    (name, inside) for name, inside in parts if len(inside) == len(frame)
                ]  # else told by read_runs
                for name, inside in [(line["test_set"], slice(None))] * whole + parts:
                    frames.append(frame[inside].assign(run=run.name, step=line["step"], test_set=name))
    if not frames:
        raise StoreError(f"{root}: no records yet; run `oodles status {root}` to see what is there")
    table: pd.DataFrame = pd.concat(frames, ignore_index=True)
    first = ["run", "step", "test_set", "example"]
    table = table.loc[:, [*first, *(c for c in table.columns if c not in first)]]
    table.attrs["notes"] = notes.tell()
    return table


def _runs(root: Path, notes: _Notes) -> Iterator[tuple[RunFolder, dict[str, Any], Scores]]:
    """Every run that can be read, what the long table says of it, and its committed lines."""
    for folder in run_folders(root):
        try:
            about = run_columns(folder)
        except (StoreError, KeyError) as error:
            notes.add(f"{folder.path}: left out, its spec cannot be read ({error})")
            continue
        scores = scan_scores(folder)
        notes.lost += scores.lost
        yield folder, about, scores


def run_columns(folder: RunFolder) -> dict[str, Any]:
    """What the long table says of a run."""
    spec = read_json(folder.spec)
    return {
        "run": folder.name,
        "model": spec["model"]["label"],
        "train_set": spec["train_set"],
        "shots": spec["shots"],
        "seed": spec["seed"],
        "pattern": spec["pattern"]["name"],
        "data_seed": spec["data_seed"],
        "suite": spec["suite"],
    }


@dataclass(slots=True)
class _Notes:
    """What could not be read."""

    lost: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.lost.append(text)

    def tell(self) -> list[str]:
        for text in self.lost:
            warnings.warn(text, DamageWarning, stacklevel=3)
        return self.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One evaluation, or a slice of one."""

    step: int
    test_set: str
    role: Role
    n: int
    metrics: Mapping[str, float | None]
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which test sets and slices are read, and the members they are read with."""

    root: Path
    names: tuple[str, ...] | None  # None: every set
    slices: tuple[str, ...]
    members: dict[str, Members] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, root: Path, names: Sequence[str] | None) -> _Wanted:
        if names is not None:
            return cls(root, tuple(n for n in names if not is_slice(n)), tuple(filter(is_slice, names)))
        held = read_json(root / "study.json") if (root / "study.json").is_file() else {}
        return cls(root, None, tuple(held.get("slices", ())))

    def parts(self, folder: RunFolder, line: Mapping[str, Any], notes: _Notes) -> Iterator[_Part]:
        """The set itself if it is wanted, and every wanted slice of it."""
        self.seen.add(line["test_set"])
        step = line["step"]
        if self.whole(line):
            yield _Part(step=step, test_set=line["test_set"], role=line["role"], n=line["n"], metrics=line["metrics"])
        for one, inside, members in self.slices_of(line):
            frame = _record(folder, line, notes)
            if frame is None:
                return
            if len(frame) != len(inside):
                notes.add(
                    f"{members_file(self.root, line['test_set'], line['prompts'])}: of another set; lost: {one.name}"
                )
                return
            scores = [c for c in frame.columns if c.startswith("score:")]
            found = Predictions(
                test_set=one.name,
                answers=tuple(c.removeprefix("score:") for c in scores),
                ids=tuple(frame["example"][inside]),
                scores=frame.loc[inside, scores].to_numpy(np.float64),
                gold=np.array(members.gold, dtype=np.int64)[inside],
            )
            train_set = line["test_set"] if line["role"] == "in_domain" else ""
            yield _Part(
                step=step,
                test_set=one.name,
                role=role_of(one.name, train_set),
                n=int(inside.sum()),
                metrics={
                    k: v for k, v in metrics(found).items() if not np.isnan(v)
                },  # of one label, some are undefined
                about={"slice_of": one.parent, "slice": str(one)},
            )

    def whole(self, line: Mapping[str, Any]) -> bool:
        """Whether the whole set is wanted; the in-domain one always is, because the others are compared with it."""
        return self.names is None or line["test_set"] in self.names or line["role"] == "in_domain"

    def slices_of(self, line: Mapping[str, Any]) -> Iterator[tuple[Slice, Any, Members]]:
        """The wanted slices of an evaluation, each with the examples that belong to it."""
        for name in self.slices:
            if name.partition("/")[0] != line["test_set"]:
                continue
            members = self._members(line["test_set"], line["prompts"])
            one = resolve_slice(name, members.columns)
            inside = one.mask(members)
            if inside.any():
                yield one, inside, members

    def _members(self, test_set: str, prompts: str) -> Members:
        if prompts not in self.members:
            self.members[prompts] = read_members(members_file(self.root, test_set, prompts), test_set, prompts)
        return self.members[prompts]

    def complain(self) -> None:
        """A name that no run has evaluated is an error, not an empty answer."""
        for name in (*(self.names or ()), *self.slices):
            if name.partition("/")[0] not in self.seen and self.seen:
                raise StoreError(f"{self.root}: no scores of test set '{name}'; {nearest(name, self.seen)}")


def read_members(path: Path, test_set: str, prompts: str) -> Members:
    """Who belongs to a rendered set."""
    frame = _frame(path, "its slices cannot be read; run the study again to write it anew")
    if found := _misfit_members(frame):
        raise StoreError(f"{path}: {found}; run the study again to write it anew")
    columns = [c for c in frame.columns if c.startswith("slice:")]
    return Members(
        test_set=test_set,
        prompts=prompts,
        ids=tuple(frame["example"]),
        gold=tuple(map(int, frame["gold"])),
        columns={c.removeprefix("slice:"): tuple(map(str, frame[c])) for c in columns},
    )


def _record(folder: RunFolder, line: Mapping[str, Any], notes: _Notes) -> pd.DataFrame | None:
    """The records of an evaluation; None, and a note, if they are damaged."""
    try:
        path = records_file(folder, line)
        if not records_are_whole(folder, line):
            raise StoreError(f"{path}: damaged or missing; `oodles run --verify` makes it anew")
        frame = _frame(path, "`oodles run --verify` makes it anew")
        if found := _misfit_records(frame, line["n"]):
            raise StoreError(f"{path}: {found}; `oodles run --verify` makes it anew")
        return frame
    except StoreError as error:
        notes.add(f"{error}; lost: the records of step {line['step']}, test set '{line['test_set']}'")
        return None


def _misfit_records(frame: pd.DataFrame, n: int) -> str:
    """What is wrong with the columns of records; nothing if they are as `commit` writes them."""
    kinds = {name: frame[name].dtype.kind for name in frame.columns}
    scores = [name for name in kinds if str(name).startswith("score:")]
    if not {"example", "correct"} <= kinds.keys() or len(scores) < 2:
        return f"columns {some(kinds)}, expected example, correct and a score for each answer"
    if kinds["correct"] != "b" or any(kinds[name] != "f" for name in scores) or frame["example"].isna().any():
        return "columns of other kinds than records have"
    return "" if len(frame) == n else f"{len(frame)} records, expected {n}"


def _misfit_members(frame: pd.DataFrame) -> str:
    if not {"example", "gold"} <= set(frame.columns):
        return f"columns {some(frame.columns)}, expected example and gold"
    return "" if frame["gold"].dtype.kind in "iu" else f"column gold holds {frame['gold'].dtype}, expected numbers"


def _frame(path: Path, advice: str) -> pd.DataFrame:
    try:
        return read_frame(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read ({first_line(error)}); {advice}") from None

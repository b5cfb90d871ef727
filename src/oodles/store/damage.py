"""Detect damage in a run's files, report it, and drop what can be recomputed."""

from __future__ import annotations

from pathlib import Path

from oodles.disk import damage_of
from oodles.errors import StoreError
from oodles.store.folder import RunFolder
from oodles.store.records import records_are_whole, records_file
from oodles.store.scores import scan_scores, write_scores


def check_adapter(folder: Path) -> None:
    """Refuse a kept adapter whose files have changed."""
    problem = damage_of(folder)
    if problem:
        raise StoreError(
            f"{folder}: the adapter is damaged: {problem}; restore it, or remove this folder: the run is trained again"
            " when the step is needed"
        )


def is_damaged(folder: RunFolder) -> bool:
    """Whether a line or a record of a run is missing or damaged; reads all of them.

    A damaged adapter cannot be recomputed here, so it raises an error.
    """
    for path in folder.adapters:
        check_adapter(path)
    read = scan_scores(folder)
    return bool(read.lost) or not all(records_are_whole(folder, score) for score in read.scores)


def mend_scores(folder: RunFolder, missing: bool = False) -> list[str]:
    """Before a run resumes, drop lines that are torn or damaged, or whose records are; return a message for each.

    Dropped evaluations are computed again, so no wrong score stays and none is counted twice. Users may delete records
    they do not need: missing records count as damage only on request.
    """
    read = scan_scores(folder)
    whole = [records_are_whole(folder, score, absent=not missing) for score in read.scores]
    lost = read.lost + [
        f"{records_file(folder, score)}: damaged; step {score.step}, test set '{score.test_set}' is evaluated again"
        for score, is_whole in zip(read.scores, whole, strict=True)
        if not is_whole
    ]
    if lost:
        write_scores(folder, (score for score, is_whole in zip(read.scores, whole, strict=True) if is_whole))
    return lost

"""Damage in a run: detected, reported, and dropped where it can be recomputed."""

from __future__ import annotations

from pathlib import Path

from oodles.disk import damage_of
from oodles.errors import StoreError
from oodles.store.folder import RunFolder
from oodles.store.records import records_are_whole, records_file
from oodles.store.scores import scan_scores, write_scores


def check_adapter(folder: Path) -> None:
    """Refuse a kept adapter that is not as it was written."""
    problem = damage_of(folder)
    if problem:
        raise StoreError(
            f"{folder}: the adapter is damaged: {problem}; restore it, or remove this folder: the run is trained again"
            " when the step is needed"
        )


def is_damaged(folder: RunFolder) -> bool:
    """Whether a line or a record of a run is missing, or not as it was written; reads them all.

    A damaged adapter cannot be recomputed from here, and is refused.
    """
    for path in folder.adapters:
        check_adapter(path)
    read = scan_scores(folder)
    return bool(read.lost) or not all(records_are_whole(folder, score) for score in read.scores)


def mend_scores(folder: RunFolder, missing: bool = False) -> list[str]:
    """Before a run resumes: drop lines that are torn or damaged, or whose records are; say which.

    What is dropped is evaluated again, so nothing wrong stays and nothing is counted twice. Records may be removed by
    who does not need them: that they are missing is damage only if asked for.
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

"""Which errors are the disk's, and whether a study's folder is still where it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from oodles import trouble
from oodles.disk import make_folder, write_json
from oodles.errors import DiskError, ModelError
from oodles.trouble import disk_errors, disk_trouble, is_watched, staying


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """An error as somebody catches it who has not seen its cause."""
    try:
        try:
            raise cause or error
        except Exception:
            if cause is None:
                raise
            raise error from None
    except Exception as caught:
        return caught


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE])
def test_a_disk_error_is_found_however_deep(tmp_path: Path, number: int) -> None:
    cause = OSError(number, os.strerror(number))
    assert disk_trouble(raised(cause), tmp_path) is not None
    assert disk_trouble(raised(ModelError("model 'm' cannot be loaded"), cause), tmp_path) is not None
    assert disk_trouble(RuntimeError(f"Error while serializing: I/O error (os error {number})"), tmp_path) is not None
    assert disk_trouble(RuntimeError(f"open file failed with strerror: {os.strerror(number)}"), tmp_path) is not None


def test_a_run_s_own_fault_is_none_of_the_disk(tmp_path: Path) -> None:
    for error in (RuntimeError("shapes do not match"), FileNotFoundError(2, "No such file"), KeyError("x")):
        assert disk_trouble(raised(error), tmp_path) is None
    with pytest.raises(KeyError), disk_errors(tmp_path / "file"):
        raise KeyError("x")


def test_a_folder_that_is_moved_is_not_made_again(tmp_path: Path) -> None:
    root = tmp_path / "study"
    root.mkdir()
    with pytest.raises(DiskError, match="was moved, replaced or removed"), staying(root):  # noqa: PT012
        write_json(root / "runs" / "a" / "spec.json", {"a": 1})
        root.rename(tmp_path / "moved")
        for attempt in (lambda: write_json(root / "runs" / "b" / "spec.json", {}), lambda: make_folder(root / "runs")):
            with pytest.raises(DiskError, match="was moved, replaced or removed"):
                attempt()
        assert not root.exists()
        root.mkdir()  # another of the same name
        with pytest.raises(DiskError, match="was moved, replaced or removed"):
            write_json(root / "study.json", {})
    assert not list(root.iterdir())
    write_json(root / "study.json", {})  # over: nobody cares any more
    assert not trouble._PLACES


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "no space left on the disk, or no inodes); free some"),
        (errno.EACCES, "Permission denied); make the folder writable"),
        (errno.EIO, "Input/output error); check the folder and its disk"),
    ],
)
def test_the_advice_is_that_of_the_trouble(tmp_path: Path, number: int, advice: str) -> None:
    with pytest.raises(DiskError) as caught, disk_errors(tmp_path / "locks" / "r.json", "choose another --pin"):
        raise OSError(number, os.strerror(number))
    assert str(caught.value).startswith(f"{tmp_path}: cannot be written (")  # a user has never seen a lock
    assert advice in str(caught.value)
    assert str(caught.value).endswith("or choose another --pin")


def test_a_folder_is_watched_while_it_is_written_to(tmp_path: Path) -> None:
    assert not is_watched(tmp_path)
    with staying(tmp_path):
        with staying(tmp_path):
            assert is_watched(tmp_path)
        assert is_watched(tmp_path)
        assert not is_watched(tmp_path / "runs")
    assert not is_watched(tmp_path)

"""The JSON files of a study and its runs: read with their checksum and checked for their structure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodles.disk import read_sealed, unsealed
from oodles.errors import StoreError, first_line
from oodles.shapes import ANY, RUN_JSON, load_json, misfit
from oodles.store.folder import AUDIT_FILE, SPEC_FILE, STUDY_FILE


def read_json(path: Path, *, strictly: bool = False) -> dict[str, Any]:
    """Read an object from a JSON file of a study or a run, and check its structure."""
    advice = _advice(path)
    value = read_sealed(path, strictly=strictly, advice=advice)
    try:
        return _shaped(path, value)
    except ValueError as error:
        raise StoreError(f"{path}: {first_line(error)}; {advice}") from None


def sidecar(path: Path) -> dict[str, Any] | None:
    """Read a file that can be rewritten or ignored; None if it is missing or damaged."""
    try:
        return _shaped(path, unsealed(load_json(path)))
    except (FileNotFoundError, ValueError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); check the file") from None


def _shaped(path: Path, value: dict[str, Any]) -> dict[str, Any]:
    """Return the value if it has the structure of its file; otherwise raise ValueError."""
    if problem := misfit(value, RUN_JSON.get(path.name, ANY)):
        raise ValueError(problem)
    return value


def _advice(path: Path) -> str:
    """Return advice about a damaged file."""
    if path.name in (STUDY_FILE, AUDIT_FILE):
        return "run the study again (oodles run), which rewrites it"
    if path.name == SPEC_FILE:
        return restore(path.parent)
    return "the file is damaged or missing: restore it, or remove it and run the study again"


def restore(run: Path) -> str:
    """Return advice about a run whose spec is lost."""
    return f"restore the file, or remove {run} to train the run again"

"""The page of the project's own study has the numbers of its packed scores."""

from __future__ import annotations

from benchmarks.findings import filled
from benchmarks.real_study import PACKED, PAGE, blocks


def test_the_page_has_the_numbers_of_the_packed_scores() -> None:
    """If this fails on purpose: python -m benchmarks.real_study, and read the prose of the page again."""
    page = PAGE.read_text()
    assert filled(page, blocks()) == page


def test_the_packed_scores_hold_no_texts_and_no_weights() -> None:
    import zipfile

    with zipfile.ZipFile(PACKED) as archive:
        names, audit = archive.namelist(), archive.read("audit.json").decode()
    assert '"shown"' not in audit
    assert '"/' not in audit
    assert not [name for name in names if "adapter" in name or "checkpoint" in name or name.endswith(".safetensors")]
    assert sum("/records/" in name for name in names) >= 64  # eight sets at eight steps

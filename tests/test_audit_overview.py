"""A suite in plain data."""

from __future__ import annotations

from pathlib import Path

import pytest

from oodles.audit.overview import describe_slices, describe_suite
from oodles.suite.load import load_suite


def test_sets_are_described_by_their_rows(toy_suite: Path) -> None:
    rows = describe_suite(load_suite(toy_suite))
    assert [(row["kind"], row["set"]) for row in rows] == [
        ("train", "home"),
        ("test", "home"),
        ("test", "away"),
        ("test", "far"),
    ]
    away = rows[2]
    assert (away["examples"], away["labels"], away["dropped"]) == (11, "c 5, e 6", "n")  # 16 rows, a third dropped
    assert away["chance"] == pytest.approx(6 / 11)
    assert "baseline" not in away
    assert "baseline" in describe_suite(load_suite(toy_suite), baseline=True)[2]


def test_a_set_that_is_not_here_is_described_by_its_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OODLES_DATA", raising=False)
    monkeypatch.setenv("OODLES_CACHE", str(tmp_path))
    suite = load_suite("nli")
    hans = next(row for row in describe_suite(suite) if row["set"] == "hans")
    assert not hans["here"]
    assert hans["examples"] == sum(
        n for k, n in suite.test_sets["hans"].expect.items() if k in suite.test_sets["hans"].labels
    )
    assert hans["origin"].startswith("hub ")
    assert hans["chance"] == pytest.approx(0.5)


def test_slices_are_listed_with_their_column_and_size() -> None:
    suite = load_suite("mini")
    rows = describe_slices(suite)
    assert rows
    name = rows[0]["slice"].partition("/")[0]
    assert rows[0]["column"] in (*suite.test_sets[name].slices, "label")
    by_column: dict[tuple[str, str], int] = {}
    for row in rows:
        key = (row["slice"].partition("/")[0], row["column"])
        by_column[key] = by_column.get(key, 0) + row["n"]
    sizes = {row["set"]: row["examples"] for row in describe_suite(suite) if row["kind"] == "test"}
    assert all(n == sizes[name] for (name, _), n in by_column.items())  # every example has one value of a column

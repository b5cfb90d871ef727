"""Results are written whole, read back exactly and shown on a terminal."""

from __future__ import annotations

import io
import json

import pandas as pd
import pytest
from rich.console import Console

from oodles import __version__
from oodles.analysis import analyse, read_results, render_terminal, write_results
from oodles.errors import DataError, StoreError
from oodles.longtable import read_table
from test_correlate import simulated


def test_round_trip_is_exact(tmp_path):
    found = analyse(simulated(runs=3), within=("pooled", "run", "separate"))
    files = write_results(found, tmp_path / "results")
    names = sorted(f.name for f in files)
    assert names == sorted(
        [f"{n}.{e}" for n in ("correlations", "fits", "residuals", "changes", "table") for e in ("csv", "parquet")]
        + ["results.json"]
    )
    assert sorted(p.name for p in (tmp_path / "results").iterdir()) == names
    for path in (tmp_path / "results", tmp_path / "results" / "results.json"):
        again = read_results(path)
        pd.testing.assert_frame_equal(again.result.table, found.result.table)
        pd.testing.assert_frame_equal(again.result.fits, found.result.fits)
        pd.testing.assert_frame_equal(again.robustness, found.robustness)
        pd.testing.assert_frame_equal(again.changes, found.changes)
        pd.testing.assert_frame_equal(again.long_table, found.long_table)
        assert again.verdicts == found.verdicts
        assert again.result.settings == found.result.settings
        assert again.result.caveats == found.result.caveats


def test_tables_of_mixed_kinds_are_written(tmp_path):
    table = simulated(runs=3)
    table["note"] = [1 if i % 2 else "text" for i in range(len(table))]
    table["done"] = True
    write_results(analyse(table.assign(pattern=None)), tmp_path)
    assert set(read_results(tmp_path).long_table["note"]) == {"1", "text"}
    assert len(read_table(tmp_path / "table.csv")) == len(table)


def test_csv_joins_caveats_and_json_says_what_was_done(tmp_path):
    found = analyse(simulated(runs=3))
    write_results(found, tmp_path)
    table = pd.read_csv(tmp_path / "correlations.csv")
    assert table["caveats"].iloc[0] == "; ".join(found.result.table["caveats"].iloc[0])
    summary = json.loads((tmp_path / "results.json").read_text())
    assert (summary["schema"], summary["oodles"]) == (1, __version__)
    assert summary["settings"]["method"] == "gam"
    assert summary["verdicts"][0]["descriptive"] is True


def test_results_may_be_written_twice(tmp_path):
    write_results(analyse(simulated(runs=3)), tmp_path)
    write_results(analyse(simulated(runs=4)), tmp_path)
    assert read_results(tmp_path).verdicts[0].n_runs == 4


def test_bad_folders_are_one_line(tmp_path):
    with pytest.raises(DataError, match=r"no results\.json; expected a folder written by oodles analyse"):
        read_results(tmp_path)
    write_results(analyse(simulated(runs=3)), tmp_path)
    (tmp_path / "fits.parquet").unlink()
    with pytest.raises(DataError, match=r"fits\.parquet: cannot be read"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(DataError, match="not a results file"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text('{"schema": 99}')
    with pytest.raises(DataError, match="schema 99, this version reads 1"):
        read_results(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is there and is no folder"):
        write_results(analyse(simulated(runs=3)), tmp_path / "file")


@pytest.mark.parametrize("colour", [True, False])
def test_terminal_shows_numbers_verdict_and_caveats(colour):
    out = io.StringIO()
    found = analyse(simulated(runs=3))
    render_terminal(
        found, Console(file=out, width=120, force_terminal=colour, color_system="truecolor" if colour else None)
    )
    text = out.getvalue()
    assert ("\x1b[" in text) == colour
    for words in ("m, mnli", "hans ~ paws", "no test", "rise together", "3 runs: descriptive"):
        assert words in text


def test_options_reach_the_changes():
    table = simulated(runs=3).assign(metric="accuracy")
    found = analyse(table, by=("train_set",), level=0.9, in_domain="mnli")
    assert list(found.changes.columns[:2]) == ["train_set", "test_set"]
    assert found.result.settings["level"] == 0.9

"""Results are written whole, read back exactly and shown on a terminal."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import oodles as oo
from conftest import missing, oodles
from oodles import __version__
from oodles.errors import DataError, StoreError
from oodles.imports.tables import read_table
from oodles.show.report import write_report
from oodles.show.tables import latex_table
from oodles.show.terminal import render_terminal
from oodles.stats.analysis import analyse_table, read_results, write_results
from test_correlate import from_one_model, simulated


def test_round_trip_is_exact(tmp_path):
    found = analyse_table(simulated(runs=3), within=("pooled", "run", "separate"))
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
    write_results(analyse_table(table.assign(pattern=None)), tmp_path)
    assert set(read_results(tmp_path).long_table["note"]) == {"1", "text"}
    assert len(read_table(tmp_path / "table.csv")) == len(table)


def test_csv_joins_caveats_and_json_says_what_was_done(tmp_path):
    found = analyse_table(simulated(runs=3))
    write_results(found, tmp_path)
    table = pd.read_csv(tmp_path / "correlations.csv")
    assert table["caveats"].iloc[0] == "; ".join(found.result.table["caveats"].iloc[0])
    summary = json.loads((tmp_path / "results.json").read_text())
    assert (summary["schema"], summary["oodles"]) == (1, __version__)
    assert summary["settings"]["method"] == "gam"
    assert summary["verdicts"][0]["descriptive"] is True


def test_results_may_be_written_twice(tmp_path):
    write_results(analyse_table(simulated(runs=3)), tmp_path)
    write_results(analyse_table(simulated(runs=4)), tmp_path)
    assert read_results(tmp_path).verdicts[0].n_runs == 4


def test_bad_folders_are_one_line(tmp_path):
    with pytest.raises(DataError, match=r"no results\.json; expected a folder written by oodles analyse"):
        read_results(tmp_path)
    write_results(analyse_table(simulated(runs=3)), tmp_path)
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
        write_results(analyse_table(simulated(runs=3)), tmp_path / "file")


@pytest.mark.parametrize("colour", [True, False])
def test_terminal_shows_numbers_verdict_and_caveats(colour):
    out = io.StringIO()
    found = analyse_table(simulated(runs=3))
    render_terminal(
        found, Console(file=out, width=120, force_terminal=colour, color_system="truecolor" if colour else None)
    )
    text = out.getvalue()
    assert ("\x1b[" in text) == colour
    for words in ("m, mnli", "hans ~ paws", "no test", "rise together", "3 runs: descriptive"):
        assert words in text


def test_options_reach_the_changes():
    table = simulated(runs=3).assign(metric="accuracy")
    found = analyse_table(table, by=("train_set",), level=0.9, in_domain="mnli")
    assert list(found.changes.columns[:2]) == ["train_set", "test_set"]
    assert found.result.settings["level"] == 0.9


def test_raw_correlations_are_shown_where_in_domain_scores_hardly_differ(tmp_path):
    table = simulated(runs=6, rho=0.9)
    flat = analyse_table(table.assign(value=table["value"].where(table["test_set"] != "mnli", 0.8)))
    shown = {}
    for name, found in (("flat", flat), ("plain", analyse_table(table))):
        console = Console(file=io.StringIO(), width=160)
        render_terminal(found, console)
        write_report(found.long_table, found, tmp_path / f"{name}.html")
        text = (tmp_path / f"{name}.html").read_text()
        shown[name] = ("r raw" in console.file.getvalue(), "r raw" in text, "raw" in latex_table(found.result))
    assert shown == {"flat": (True, True, True), "plain": (False, False, False)}
    assert "In-domain performance hardly differs here" in (tmp_path / "flat.html").read_text()


def test_the_terminal_names_identical_test_sets_and_never_shows_a_p_of_0():
    table = simulated(runs=9, rho=0.95, level=0.0)
    twin = table[table["test_set"] == "hans"].assign(test_set="twin")
    shown = {}
    for name, one in (("twin", pd.concat([table, twin])), ("plain", table)):
        console = Console(file=io.StringIO(), width=200)
        render_terminal(analyse_table(one), console)
        shown[name] = console.file.getvalue()
    said = "! m, mnli: hans and twin have the same scores: one test set by two names?"
    assert said in shown["twin"]
    assert "have the same scores" not in shown["plain"]
    assert "<.001" in shown["plain"]
    assert " 0.000 " not in shown["plain"]


def test_changes_have_the_same_unit_as_correlations():
    found = analyse_table(simulated(runs=6), unit="seed")
    assert set(found.changes["n_units"]) == set(found.result.table["n_units"]) == {3}


def test_shared_points_stay_in_trajectories_and_changes():
    table = from_one_model()
    found = analyse_table(table)
    assert (found.long_table["step"] == 0).sum() == 27
    assert (found.changes["first_step"] == 0).all()
    assert 0 not in set(found.robustness["step"])


def test_berts_of_a_feather_stand_though_nothing_could_be_held_fixed():
    """McCoy et al. 2020: MNLI accuracy of 100 BERTs varies less than its binomial error, HANS varies a lot."""
    file = Path(os.environ.get("OODLES_DATA", "")) / "real" / "berts_of_a_feather.csv"
    if not file.is_file():
        missing("the published accuracies of 100 BERTs: set OODLES_DATA")
    sets = {"MNLI dev acc.": 9815, "Lexical (nonent)": 5000, "Subseq (nonent)": 5000, "Constituent (nonent)": 5000}
    table = pd.read_csv(file).melt("Run", list(sets), "test_set").rename(columns={"Run": "run"}).assign(step=0)
    found = analyse_table(table.assign(n=table["test_set"].map(sets)), in_domain="MNLI dev acc.", within="pooled")
    pair = found.result.table.set_index(["a", "b"]).loc["Lexical (nonent)", "Subseq (nonent)"]
    assert (pair["r"], pair["r_raw"]) == pytest.approx((0.767, 0.781), abs=0.001)
    assert pair["p_holm"] < 0.001
    said = "in-domain scores hardly differ (sd 0.0024, sampling error 0.0037 of 9815 examples)"
    assert said in pair["caveats"]
    (verdict,) = found.verdicts
    assert "performance is held fixed" not in verdict.sentence
    assert "hardly differs here: raw and partial r differ by 0.07 in the median and by 0.15 at most" in verdict.sentence


def test_results_without_a_column_that_is_shown_are_refused(tmp_path: Path) -> None:
    write_results(analyse_table(simulated(runs=5)), tmp_path)
    file = tmp_path / "changes.parquet"
    pd.read_parquet(file).drop(columns="n").to_parquet(file)
    with pytest.raises(DataError, match=r"changes\.parquet: no column 'n'"):
        read_results(tmp_path)


def test_differences_that_the_claim_tested_are_not_said_to_be_untested() -> None:
    said = "differences between groups are not tested"
    assert said in oo.analyse("smollm2-nli", test_sets=["hans", "paws"]).caveats
    asked = oo.analyse("smollm2-nli", test_sets=["hans", "paws"], across="model")
    assert said not in asked.caveats
    assert said in asked.result.caveats


def test_a_claim_without_anything_to_compare_is_reported(tmp_path: Path) -> None:
    """Noise of 128 examples leaves nothing of either set's residuals."""
    asked = oo.analyse("smollm2-nli", test_sets=["hans", "paws"], across="model")
    assert asked.claim is not None
    assert asked.claim.tables["claim_levels"].empty
    assert "Larger test sets would tell." in asked.claim.sentences[0]
    assert "Larger test sets would tell." in write_report(asked, tmp_path / "report.html").read_text()


def test_json_has_a_verdict_for_every_group_that_the_sentence_counts(tmp_path: Path) -> None:
    """One group has a single OOD set, so no pair."""
    table = simulated(runs=5)
    alone = table[table["test_set"].isin(["mnli", "hans"])].assign(model="n", run=lambda t: t["run"] + "n")
    pd.concat([table, alone]).to_csv(tmp_path / "two.csv", index=False)
    found = json.loads(oodles("analyse", tmp_path / "two.csv", "--json").stdout)
    assert found["verdict"].startswith("2 groups, each by itself")
    assert [verdict["group"]["model"] for verdict in found["verdicts"]] == ["m", "n"]
    assert found["verdicts"][1]["sentence"].startswith("Nothing to compare")
    assert oodles("analyse", tmp_path / "two.csv", "--out", tmp_path / "results").returncode == 0
    kept = json.loads((tmp_path / "results" / "results.json").read_text())
    assert kept["verdicts"] == found["verdicts"]
    again = read_results(tmp_path / "results")
    assert [verdict.group["model"] for verdict in again.verdicts] == ["m"]
    assert [verdict.group["model"] for verdict in again.every_verdict] == ["m", "n"]

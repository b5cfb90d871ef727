"""Results show themselves: short in a terminal, as tables in a notebook, and never as markup of their data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oodles as oo
from oodles.stats.analysis import Analysis, analyse_table
from oodles.stats.correlate import PartialCorrelations
from oodles.study.grid import expand
from oodles.study.worker import Outcome
from test_correlate import simulated


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    table = simulated(runs=6, rho=0.9)
    table["test_set"] = table["test_set"].replace("hans", "<script>alert(1)</script>\x1b[31m")
    return analyse_table(table)


@pytest.mark.parametrize("whole", [True, False])
def test_print_is_short_and_says_the_verdict(analysis: Analysis, whole: bool) -> None:
    shown: Analysis | PartialCorrelations = analysis if whole else analysis.result
    text = str(shown)
    assert text == shown.summary() == repr(shown)
    assert shown.verdict == analysis.verdicts[0].sentence
    assert shown.verdict.partition(":")[0] in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("whole", [True, False])
def test_notebooks_show_tables_in_which_data_are_text(analysis: Analysis, whole: bool) -> None:
    html = (analysis if whole else analysis.result)._repr_html_()
    assert html.count("<table>") == 1
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    for row in analysis.result.table.itertuples():
        assert f"{row.r:+.2f}".replace("-", "−") in html


def outcome(**more: Any) -> Outcome:
    return Outcome(out=Path("runs/x"), done=("a", "b"), skipped=("c",), **more)


def test_suites_studies_and_outcomes_print_a_line_per_fact() -> None:
    suite, study = oo.load_suite("nli"), oo.load_study("quick")
    for shown in (suite, study, outcome()):
        assert max(map(len, str(shown).splitlines())) <= 80
        assert "\n" in str(shown)
    assert str(suite).startswith("suite nli\n")
    assert all(name in str(suite) for name in suite.test_sets)
    assert f"{len(expand(study).jobs)}" == study.told()[1]["runs"]
    assert str(outcome()) == "runs in runs/x: all done\n  done         2\n  done before  1"
    assert "failed       r: no memory" in str(outcome(failed=(("r", "no memory"),)))
    assert str(outcome(stopped=15)).startswith("runs in runs/x: not all done")


def test_their_tables_in_notebooks_hold_data_as_text() -> None:
    odd = "<script>alert(1)</script>\x1b[31m"
    suite, study = replace(oo.load_suite("mini"), name=odd, description=odd), replace(oo.load_study("quick"), name=odd)
    for shown in (suite, study, outcome(failed=((odd, odd),))):
        html = shown._repr_html_()
        assert html.count("<table>") == 1
        assert "<script>" not in html
        assert "&lt;script&gt;" in html
        assert "\x1b" not in html + str(shown)

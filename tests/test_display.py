"""Results show themselves: short in a terminal, as tables in a notebook, and never as markup of their data."""

from __future__ import annotations

import pytest

from oodles.stats.analysis import Analysis, analyse_table
from oodles.stats.correlate import PartialCorrelations
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
    assert " ".join(shown.verdict.split())[:60] in " ".join(text.split())
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

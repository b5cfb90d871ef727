"""Tables are compared whole: with a golden file for LaTeX, with their text for Markdown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oodles.errors import DataError
from oodles.show.tables import (
    changes_sheet,
    escape_latex,
    fits_sheet,
    fold,
    latex_table,
    markdown_table,
    p_value,
    pairs_sheet,
    signed,
)
from oodles.stats.correlate import PartialCorrelations

GOLDEN = Path(__file__).parent / "golden"
NAN = float("nan")
FEW = "3 runs: descriptive"


def make_pair(a: str, b: str, r: float, **more: Any) -> dict[str, Any]:
    pair = {
        "model": "m", "train_set": "t", "a": a, "b": b, "r": r, "low": r - 0.123, "high": r + 0.123, "p_val": 0.2,
        "p_holm": 0.4, "p_bh": 0.3, "r_corrected": NAN, "n_runs": 9, "n_steps": 54, "method": "linear",
        "within": "pooled", "interval": "jackknife", "correlation": "pearson", "caveats": [],
    }  # fmt: skip
    return pair | more


def make_result(*pairs: dict[str, Any]) -> PartialCorrelations:
    empty = pd.DataFrame()
    return PartialCorrelations(table=pd.DataFrame(list(pairs)), fits=empty, residuals=empty, settings={"level": 0.95})


def make_both() -> PartialCorrelations:
    """Two kinds of fit, a caveat of one pair and one of all."""
    pairs = []
    for within, shift in (("pooled", 0.0), ("run", -0.3)):
        pairs += [
            make_pair("word_order", "news", 0.5 + shift, within=within, p_holm=0.0004, caveats=[FEW]),
            make_pair(
                "word_order", "R&D 50 %", 0.1 + shift, within=within, caveats=[FEW, "R&D: in-domain explains 97 %"]
            ),
            make_pair("news", "R&D 50 %", NAN, low=NAN, high=NAN, p_holm=NAN, within=within, caveats=[FEW]),
        ]
    return make_result(*pairs)


def make_changes() -> pd.DataFrame:
    rows = [
        ("daily", "in_domain", 0.5, 0.8, 0.3, 0.1, 0.5, []),
        ("a_b", "ood", 0.52, 0.5, -0.02, NAN, NAN, ["one run"]),
    ]
    frame = pd.DataFrame(rows, columns=["test_set", "role", "first", "last", "change", "low", "high", "caveats"])
    frame.insert(0, "model", "m")
    return frame.assign(first_step=0, last_step=8, n_runs=3, n=[200, 100])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs", lambda: latex_table(make_both(), caption="Pairs of test sets & their r", label="tab:pairs")),
        ("pairs_pooled", lambda: latex_table(make_both(), within="pooled")),
        ("changes", lambda: latex_table(make_changes(), caption="Change")),
    ],
)
def test_latex_equals_its_golden(name: str, text: Any) -> None:
    assert text() == (GOLDEN / f"{name}.tex").read_text(encoding="utf-8")


def test_latex_of_many_pairs_breaks_over_pages() -> None:
    names = [f"s{i}" for i in range(11)]
    text = latex_table(
        make_result(*(make_pair(a, b, 0.1) for i, a in enumerate(names) for b in names[i + 1 :])), caption="Many"
    )
    assert text.startswith("% needs \\usepackage{booktabs,longtable}\n\\begin{longtable}{llrrr}\n\\caption{Many}\\\\\n")
    assert text.count("\\endhead") == 1
    assert len(re.findall(r"^s\d+ & ", text, flags=re.M)) == 55


def test_every_character_that_latex_reads_is_escaped() -> None:
    text = escape_latex("\\ { } $ & # % _ ^ ~ [x] *y\nz\x00")
    shown = r"\textbackslash{} \{ \} \$ \& \# \% \_ \textasciicircum{} \textasciitilde{} {[}x{]} {*}y z"
    assert text == shown + r"\textbackslash{}x00"
    row = next(
        line
        for line in latex_table(make_result(make_pair("[a]", "b&c", 0.1))).splitlines()
        if "b" in line and "&" in line and "c" in line
    )
    assert row.startswith("{[}a{]} & b\\&c & ")


def test_markdown_is_a_table_with_notes() -> None:
    assert markdown_table(make_both(), within="run").splitlines() == [
        "| test set | test set | r | interval | p (Holm) |",
        "|---|---|---:|---:|---:|",
        r"| word\_order | news | +0.20 | \[+0.08, +0.32\] | \<.001 |",
        r"| word\_order | R&amp;D 50 % | −0.20<sup>a</sup> | \[−0.32, −0.08\] | .400 |",
        "| news | R&amp;D 50 % | – | – | – |",
        "",
        "9 runs, 54 points (a run at a step). In-domain performance regressed out by a straight line. "
        "95 % interval: jackknife over runs. Correlation: Pearson.  ",
        "3 runs: descriptive  ",
        "<sup>a</sup> R&amp;D: in-domain explains 97 %",
    ]


def test_markdown_names_cannot_break_the_table() -> None:
    text = markdown_table(make_result(make_pair("a|b", "c\nd", 0.1)))
    assert r"| a\|b | c d |" in text


def test_empty_columns_are_left_out_and_the_full_sheet_has_the_rest() -> None:
    few = make_result(make_pair("x", "y", 0.5, p_val=NAN, p_holm=NAN, p_bh=NAN))
    assert [c.title for c in pairs_sheet(few, full=True).columns] == ["test set", "test set", "r", "interval"]
    many = make_result(make_pair("x", "y", 0.5, r_corrected=0.61))
    titles = [c.title for c in pairs_sheet(many, full=True).columns]
    assert titles[2:] == ["r", "interval", "p", "p (Holm)", "r corrected"]
    assert [c.text for c in pairs_sheet(many, full=True).rows[0]][4:] == [".200", ".400", "+0.61"]


def test_groups_and_counts_get_columns_only_where_they_differ() -> None:
    pairs = [make_pair("x", "y", 0.5, model="m1"), make_pair("x", "y", -0.5, model="m2", n_runs=4)]
    sheet = pairs_sheet(make_result(*pairs))
    assert [c.title for c in sheet.columns] == ["model", "test set", "test set", "r", "interval", "p (Holm)", "runs"]
    assert [row[0].text for row in sheet.rows] == ["m1", "m2"]
    assert len(pairs_sheet(make_result(*pairs), group={"model": "m2"}).rows) == 1


def test_a_pair_that_one_kind_of_fit_lacks_is_a_gap() -> None:
    result = make_result(make_pair("x", "y", 0.5), make_pair("x", "z", 0.4), make_pair("x", "y", 0.3, within="run"))
    texts = [[c.text for c in row] for row in pairs_sheet(result).rows]
    assert texts[1] == ["x", "z", "+0.40", "[+0.28, +0.52]", ".400", "–", "–", "–"]


def test_nothing_to_show_is_an_error() -> None:
    with pytest.raises(DataError, match="no pair"):
        latex_table(make_both(), within="separate")
    with pytest.raises(DataError, match="no change"):
        changes_sheet(make_changes(), group={"model": "other"})
    with pytest.raises(DataError, match="column 'size'"):
        markdown_table(make_both(), group={"size": 7})


def test_many_caveats_keep_distinct_marks() -> None:
    pairs = [make_pair(f"s{i}", "y", 0.1, caveats=["x" * (i + 1)]) for i in range(30)]
    marks = [row[2].marks[0] for row in pairs_sheet(make_result(*pairs)).rows]
    assert marks[0] == "a"
    assert marks[25:28] == ["z", "aa", "ab"]
    assert len(set(marks)) == 30


def test_caveats_that_differ_in_numbers_or_names_share_a_note() -> None:
    pairs = [
        make_pair("x", "y", 0.1, caveats=["x: noise 0.10", "y: noise 0.20", "biased by 0.3"]),
        make_pair("x", "z", 0.1, caveats=["x: noise 0.10", "biased by 0.1"]),
        make_pair("y", "z", 0.1, caveats=["y: noise 0.20"]),
    ]
    sheet = pairs_sheet(make_result(*pairs))
    assert sheet.notes[1:] == (("", "x, y: noise 0.10 to 0.20"), ("a", "biased by 0.1 to 0.3"))
    assert [row[2].marks for row in sheet.rows] == [("a",), ("a",), ()]


def test_a_corrected_correlation_known_as_a_range_is_shown_as_one() -> None:
    more = {"r_corrected_low": 0.5, "r_corrected_high": 0.72}
    pairs = [make_pair("x", "y", 0.5, **more), make_pair("x", "z", 0.1, r_corrected_low=0.1, r_corrected_high=0.1)]
    sheet = pairs_sheet(make_result(*pairs), full=True)
    assert [row[-1].text for row in sheet.rows] == ["+0.50 to +0.72", "–"]


def test_fits_show_what_is_known() -> None:
    rows = [("m", "pooled", "x", 0.912, 3.4, NAN, NAN), ("m", "run", "x", 0.95, 5.1, NAN, NAN)]
    fits = pd.DataFrame(rows, columns=["model", "within", "test_set", "r2", "edf", "lam", "reliability"])
    sheet = fits_sheet(fits, group={"model": "m"})
    assert [c.title for c in sheet.columns] == ["test set", "within", "R²", "edf"]
    assert [c.text for c in sheet.rows[0]] == ["x", "pooled", "0.912", "3.400"]


def test_numbers_are_rounded_without_lying() -> None:
    assert [signed(v) for v in (0.126, -0.004, 0.004, -1, NAN)] == ["+0.13", "0.00", "0.00", "−1.00", "–"]
    assert [p_value(v) for v in (0.0, 0.00099, 0.05, 1, NAN)] == ["<.001", "<.001", ".050", "1.000", "–"]


def test_a_reliability_below_nought_is_shown_as_its_caveat_says() -> None:
    rows = [("m", "pooled", "x", 0.9, 3.0, NAN, -24.8), ("m", "pooled", "y", 0.9, 3.0, NAN, 0.5)]
    fits = pd.DataFrame(rows, columns=["model", "within", "test_set", "r2", "edf", "lam", "reliability"])
    assert [row[-1].text for row in fits_sheet(fits, group={"model": "m"}).rows] == ["0.000", "0.500"]


def test_folded_caveats_keep_the_signs_of_their_numbers() -> None:
    said = ["hans: noise (reliability -1.78)", "paws: noise (reliability -1.54)", "rte: noise (reliability 0.20)"]
    texts = fold(said, names=["hans", "paws", "rte", "wnli"])
    assert set(texts.values()) == {"hans, paws, rte: noise (reliability -1.78 to 0.20)"}


def test_folded_caveats_with_an_interval_or_a_range_stay_readable() -> None:
    rest = "much of it rests on one part of training"
    said = [f"without step 1000 r is {r}: {rest}" for r in ("+0.21 (-0.48 to +0.74)", "+0.54 (-0.22 to +0.93)")]
    other = [f"without steps 0 to 64 r is {r}: {rest}" for r in ("-0.30 (-0.61 to +0.10)", "+0.12 (-0.20 to +0.41)")]
    assert set(fold([*said, *other]).values()) == {
        f"without step 1000 r is +0.21 to +0.54: {rest}",
        f"without steps 0 to 64 r is -0.30 to +0.12: {rest}",
    }
    assert fold(said[:1]) == {said[0]: said[0]}
    assert set(fold(["hans: n = 10 to 30", "rte: n = 20 to 90"], names=["hans", "rte"]).values()) == {
        "hans, rte: n = 10 to 90"
    }


def test_folded_caveats_keep_the_names_of_runs() -> None:
    said = ["m-125m_snli_0_2048 carries 44% of this pair", "m-125m_snli_2_2048 carries 58% of this pair"]
    assert set(fold(said).values()) == {
        "m-125m_snli_0_2048, m-125m_snli_2_2048: one of them carries 44 to 58% of this pair"
    }
    assert fold(said[:1]) == {said[0]: said[0]}
    assert len(set(fold(["a: 2-3 of m-125", "b: 2-3 of m-350"], names=["a", "b"]).values())) == 2
    many = [f"m_{seed} stands out from the other runs" for seed in range(9)]
    assert set(fold(many).values()) == {"m_0, m_1, m_2 and 6 more: one of them stands out from the other runs"}

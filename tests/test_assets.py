"""Figures and tables for a paper: stable names, embedded fonts, the results' numbers, LaTeX that compiles and fits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

import oodles as oo
from oodles.api.findings import findings
from oodles.errors import StoreError
from oodles.show.assets import _readme, _sheets, slug, write_assets
from oodles.show.latex import fitted
from oodles.show.numbers import p_value, signed
from oodles.stats.analysis import Analysis, analyse_table
from test_correlate import simulated

LATEX = shutil.which("pdflatex")
ODD = "a_b%&#$^~\\{}<script>=cmd|'x"


@pytest.fixture(scope="module")
def hans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    analysis, folder = oo.analyse("bert-hans"), tmp_path_factory.mktemp("assets")
    write_assets(analysis, folder)
    return analysis, folder


def several(odd: str = ODD, **asked: Any) -> Analysis:
    """Two models; a test set and a model have an odd name."""
    tables = []
    for i in range(2):
        table = simulated(runs=6, seed=i, rho=0.9).assign(model=f"model_{i}" if i else f"{odd}_{i}")
        tables.append(table.assign(run=table["model"] + table["run"], test_set=table["test_set"].replace("hans", odd)))
    return analyse_table(pd.concat(tables), method="linear", **asked)


def test_names_are_stable(hans: tuple[Analysis, Path]) -> None:
    names = {path.name for path in hans[1].iterdir()}
    figures = {
        f"{name}.{kind}" for name in ("correlations-pooled", "network-pooled", "fits") for kind in ("pdf", "svg", "png")
    }
    tables = {f"{name}-{form}.tex" for name in ("pairs-pooled", "r2", "final-accuracy") for form in ("column", "text")}
    assert figures | tables | {"correlations.csv", "fits.csv", "README.tex"} <= names
    assert slug("A b/c") == "a-b-c"


def test_numbers_in_latex_and_csv_are_those_of_the_results(hans: tuple[Analysis, Path]) -> None:
    analysis, folder = hans
    read = pd.read_csv(folder / "correlations.csv")
    pd.testing.assert_series_equal(read["r"], analysis.result.table["r"].reset_index(drop=True), rtol=1e-12)
    lines = [line for line in (folder / "pairs-pooled-column.tex").read_text().splitlines() if "tabularnewline" in line]
    assert len(lines) == len(analysis.result.table)
    for line, row in zip(lines, analysis.result.table.to_dict("records"), strict=True):
        shown = line.replace("$-$", "−").replace("{[}", "[").replace("{]}", "]").replace(r"\textless{}", "<")
        assert re.search(rf"& {re.escape(signed(row['r']))}(\\textsuperscript.*)? &", shown)
        assert f"[{signed(row['low'])}, {signed(row['high'])}]" in shown
        assert f"& {p_value(row['p_said'])} " in shown


def test_fonts_are_embedded_and_none_is_type_3(hans: tuple[Analysis, Path]) -> None:
    paths = sorted(hans[1].glob("*.pdf"))
    assert len(paths) == 4
    for path in paths:
        content = path.read_bytes()
        assert b"/Type3" not in content
        assert b"/FontFile2" in content


def test_names_in_csv_are_no_formulas(tmp_path: Path) -> None:
    table = simulated(runs=6)
    table["test_set"] = table["test_set"].replace("hans", "=cmd|'/c calc'!A1")
    write_assets(analyse_table(table, method="linear"), tmp_path)
    read = pd.read_csv(tmp_path / "correlations.csv")
    assert "'=cmd|'/c calc'!A1" in {*read["a"], *read["b"]}
    assert not any(
        str(cell).startswith("=") for path in tmp_path.glob("*.csv") for cell in pd.read_csv(path).to_numpy().ravel()
    )


def test_figures_are_xml_whatever_the_names(tmp_path: Path) -> None:
    odd = "$a_$\x00\x1b[31m\x7f\x85\ufffe\U0001ffff\u2028\u202e"
    asked = dict.fromkeys(("sensitivity", "redundancy"), True)
    write_assets(several(odd, across=("model",), **asked), tmp_path)
    figures = sorted(tmp_path.glob("*.svg"))
    assert len(figures) > 15
    for path in figures:
        comments = "".join(re.findall("<!--(.*?)-->", path.read_text(encoding="utf-8"), flags=re.DOTALL))
        ElementTree.parse(path)
        assert all(c.isprintable() or c == "\n" for c in comments), path.name


def test_figures_for_a_column_have_its_width(hans: tuple[Analysis, Path]) -> None:
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", (hans[1] / "correlations-pooled-column.pdf").read_bytes())
    assert box is not None
    assert float(box[1]) / 72 == pytest.approx(3.03, abs=0.35)


ACL = (
    subprocess.run(["kpsewhich", "acl.sty"], capture_output=True, check=False).returncode == 0
    if shutil.which("kpsewhich")
    else False
)


@pytest.mark.slow
@pytest.mark.skipif(not ACL, reason="the ACL style (acl.sty) is not installed; README.tex is compiled in plain article")
def test_all_of_it_compiles_in_the_acl_style(hans: tuple[Analysis, Path], tmp_path: Path) -> None:
    shutil.copytree(hans[1], tmp_path, dirs_exist_ok=True)
    text = (tmp_path / "README.tex").read_text()
    text = re.sub(r"\\documentclass.*", r"\\documentclass[11pt]{article}\n\\usepackage{acl}", text)
    text = re.sub(r"\\usepackage\[a4paper.*", "", text)
    (tmp_path / "acl.tex").write_text(text)
    command = [str(LATEX), "-interaction=nonstopmode", "-halt-on-error", "acl.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", done.stdout)]
    assert [points for points in wide if points > 3] == []


def test_other_files_are_not_replaced(hans: tuple[Analysis, Path], tmp_path: Path) -> None:
    write_assets(hans[0], hans[1])  # its own may be
    (tmp_path / "fits.csv").write_text("mine")
    with pytest.raises(StoreError, match=r"fits\.csv"):
        write_assets(hans[0], tmp_path)
    assert (tmp_path / "fits.csv").read_text() == "mine"


def compiled(folder: Path, name: str = "README") -> list[float]:
    """Points by which boxes are too wide, once LaTeX has taken it all."""
    command = [str(LATEX), "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in (folder / f"{name}.log").read_text(errors="replace")
    assert not re.search(r"\d+pk>", done.stdout)  # bitmaps of letters would be Type 3
    return [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide", done.stdout)]


NAMES = {
    "LaTeX": ODD,
    "Hebrew": "שלום עולם",
    "CJK": "自然言語推論データセット",
    "emoji": "👩‍🔬 lab",
    "control": "a\x00\x1b[31m\ufffeb",
    "mixed": "Đặng–Щерба αβ ≤ ½ «x» \u200f",
}


@pytest.mark.slow
@pytest.mark.skipif(LATEX is None and not os.environ.get("OODLES_NO_SKIP"), reason="no pdflatex here")
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.filterwarnings("error:Glyph")
def test_all_of_it_compiles_whatever_the_names(kind: str, tmp_path: Path) -> None:
    write_assets(several(NAMES[kind]), tmp_path)
    assert [points for points in compiled(tmp_path) if points > 1] == []
    read = pd.read_csv(tmp_path / "correlations.csv")
    assert NAMES[kind].strip() in {*read["a"], *read["b"]}
    for path in tmp_path.glob("*.svg"):
        ElementTree.parse(path)
    told = (tmp_path / "sign-agreement-pooled-text.tex").read_text(encoding="utf-8")
    if kind in ("Hebrew", "CJK", "emoji"):
        assert f"stands for {NAMES[kind].split()[0]}" in told


@pytest.mark.slow
@pytest.mark.skipif(LATEX is None and not os.environ.get("OODLES_NO_SKIP"), reason="no pdflatex here")
def test_all_of_it_compiles_and_fits_its_width(hans: tuple[Analysis, Path]) -> None:
    assert [points for points in compiled(hans[1]) if points > 1] == []


# The dimensions of the ACL style, which is not this style: A4, 25 mm margins, 11 pt, Times, columns of 77 mm.
LIKE_ACL = r"""\documentclass[11pt,twocolumn,a4paper]{article}
\usepackage[T1]{fontenc}\usepackage{mathptmx,booktabs,graphicx}\usepackage[font=small]{caption}
\usepackage[a4paper,margin=25mm]{geometry}\setlength{\textwidth}{455.24pt}\setlength{\columnsep}{17.08pt}
\begin{document}
"""


@pytest.mark.slow
@pytest.mark.skipif(LATEX is None and not os.environ.get("OODLES_NO_SKIP"), reason="no pdflatex here")
@pytest.mark.parametrize("name", [*findings(), "several"])
def test_no_box_of_a_finding_is_too_wide(name: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = dict.fromkeys(("sensitivity", "windows", "redundancy", "stability", "skill"), True)
    wide = "Heuristic Analysis for NLI Systems: matched, non-entailed"
    analysis = several(wide, across=("model",), sensitivity=True) if name == "several" else oo.analyse(name, **asked)
    sheets = dict(_sheets(analysis))
    for label, sheet in sheets.items():
        for form, starred in (("column", False), ("text", True)):
            text = fitted(sheet, starred=starred, label=f"tab:{label}")
            (tmp_path / f"{label}-{form}.tex").write_text(text, encoding="utf-8")
    lines = [line for line in _readme({}, list(sheets)) if line.startswith(r"\input")]
    head = "\n".join(_readme({}, [])).removesuffix(r"\end{document}")
    columns = [line.partition(r"\clearpage")[0] for line in lines if "-column}" in line]
    one = r"\documentclass{article}\usepackage{booktabs}\begin{document}"  # a plain article has room for these
    for kind, begin, body in (("article", head, lines), ("acl-like", LIKE_ACL, lines), ("one-column", one, columns)):
        text = "\n".join([begin, *(f"{line}\\clearpage" for line in body), r"\end{document}"])
        (tmp_path / f"{kind}.tex").write_text(text, encoding="utf-8")
        assert (kind, [points for points in compiled(tmp_path, kind) if points > 1]) == (kind, [])

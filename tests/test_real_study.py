"""The page of the project's own study has the numbers of its packed scores."""

from __future__ import annotations

import json

import pandas as pd
from benchmarks.findings import filled
from benchmarks.real_study import BEGUN, PACKED, PAGE, RESULTS, blocks

import oodles as oo


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


def test_the_prose_of_the_page_has_the_numbers_of_the_tables() -> None:
    """If this fails on purpose, read the prose again: what follows from a number may not follow from another."""
    tables = {metric: oo.analyse(PACKED, metric=metric).result.table for metric in ("accuracy", "auc")}

    def pair(metric: str, model: str, a: str, b: str, within: str) -> pd.Series:
        table = tables[metric]
        rows = table[table["model"].str.startswith(model) & (table["a"] == a) & (table["b"] == b)]
        return rows[rows["within"] == within].iloc[0]

    def short(value: float) -> str:
        return f"{value:.2f}".replace("0.", ".")

    def span(row: pd.Series) -> str:
        return f"{short(row.low)} to {short(row.high)}"

    paws = {
        (metric, model): pair(metric, model, "paws", "scitail", "pooled")
        for metric in tables
        for model in ("smollm2", "gemma3")
    }
    smollm2, gemma = paws["accuracy", "smollm2"], paws["accuracy", "gemma3"]
    anli = {metric: pair(metric, "gemma3", "anli", "scitail", "pooled") for metric in tables}
    wnli = pair("auc", "smollm2", "scitail", "wnli", "run")
    page = " ".join(PAGE.read_text().split())
    for said in (
        f"{short(smollm2.r)} pooled for SmolLM2 (interval {span(smollm2)}), {short(gemma.r)} for Gemma ({span(gemma)})",
        "PAWS with SciTail has " + " and ".join(f"{short(row.r)} ({span(row)})" for row in list(paws.values())[2:]),
        f"ANLI with SciTail is {short(anli['accuracy'].r)} by accuracy ({span(anli['accuracy'])}) and"
        f" {short(anli['auc'].r)} by AUC ({span(anli['auc'])})",
        f"(SmolLM2, {short(wnli.r)} within runs, interval {span(wnli)})",
    ):
        assert said in page


def test_the_prose_has_the_numbers_of_the_part_that_has_begun() -> None:
    """If this fails on purpose, read the prose again; from nine runs of each train set on, test the difference."""
    begun = oo.analyse(BEGUN)
    assert max(begun.result.table["n_runs"]) < 9
    table = begun.result.table[begun.result.table["within"] == "pooled"].set_index(["a", "b"])
    told, wnli = table.loc[("paws", "scitail")], table.loc[("scitail", "wnli")]
    before = oo.analyse(PACKED).result.table
    before = before[(before["model"] == "smollm2-135m-q4") & (before["within"] == "pooled")].set_index(["a", "b"])["r"]
    page = " ".join(PAGE.read_text().replace("0.", ".").split())
    for said in (
        f"PAWS with SciTail has {told.r:.2f} pooled, with an interval of {told.low:.2f} to {told.high:.2f}"
        f" ({before['paws', 'scitail']:.2f} on SNLI)",
        f"SciTail with WNLI {wnli.r:.2f} ({before['scitail', 'wnli']:.2f} on SNLI)",
    ):
        assert said.replace("0.", ".") in page
    assert not (begun.result.table["p_holm"] < 0.05).any()


def test_the_prose_has_the_simulation_with_the_values_of_this_study() -> None:
    """If this fails on purpose, docs/statistics-evidence.md has the new numbers in its table, and in a sentence."""
    cells = json.loads(RESULTS.read_text())["families"]["cells"]
    ways = {name: cell.values() for name, cell in cells.items() if name.startswith("study: ")}
    covered = [100 * one["covered"] for cell in ways.values() for one in cell]
    rejected = [100 * one["rejected"] for name, cell in ways.items() if "rho 0.0" in name for one in cell]
    sizes, coverage = (f"{min(values):.1f} to {max(values):.1f} %" for values in (rejected, covered))
    assert f"noise cover {coverage}, and a true null is rejected in {sizes}" in " ".join(PAGE.read_text().split())
    assert f"{sizes} and {coverage}" in " ".join(PAGE.with_name("statistics-evidence.md").read_text().split())

"""The page of the project's own study has the numbers of its packed scores."""

from __future__ import annotations

import json
import re
import zipfile
from io import BytesIO
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from benchmarks.findings import filled
from benchmarks.real_study import PACKED, PAGE, RESULTS, blocks

import oodles as oo
from oodles.stats.doubts import EXAMPLES
from oodles.stats.resample import holm


def test_the_page_has_the_numbers_of_the_packed_scores() -> None:
    """If this fails on purpose: python -m benchmarks.real_study, and read the prose of the page again."""
    page = PAGE.read_text()
    assert filled(page, blocks()) == page


def test_the_packed_scores_hold_no_texts(real_data: Path) -> None:
    with zipfile.ZipFile(PACKED) as archive:
        kept = [name for name in archive.namelist() if name.endswith(".json")]  # one string a line
        lines = {line for name in kept for line in archive.read(name).decode().splitlines()}
        held = "\n".join(line for line in lines if len(line) >= 30)
        scores = [archive.read(name) for name in archive.namelist() if name.endswith(".jsonl")]
        columns = {
            column
            for name in archive.namelist()
            if name.startswith("sets/")
            for column in pq.read_schema(BytesIO(archive.read(name))).names
        }
    assert columns - {"slice:heuristic", "slice:subcase", "slice:template"} == {
        "example",
        "gold",
        "item",
        "slice:label",
    }
    assert not [line for text in scores for line in text.splitlines() if re.search(rb'": "[^"]* ', line)]
    for file in sorted(real_data.glob("*/*.parquet")):
        table = pd.read_parquet(file)
        texts = table[[c for c in table if c.startswith(("premise", "hypothesis", "sentence"))]]
        assert texts.shape[1] >= 2, file
        beginnings = texts.stack().str[:30]
        assert not [text for text in beginnings[beginnings.str.len() == 30].unique() if text in held], file


def test_the_packed_scores_are_whole_and_hold_no_weights() -> None:
    with zipfile.ZipFile(PACKED) as archive:
        names, audit = archive.namelist(), archive.read("audit.json").decode()
    assert '"/' not in audit
    assert not [name for name in names if "adapter" in name or "checkpoint" in name or name.endswith(".safetensors")]
    assert sum("/records/" in name for name in names) >= 36 * 8 * 7  # runs, sets, steps after the first
    assert sum(name.endswith("/done.json") for name in names) == 36  # two models, two train sets, nine seeds


def test_the_prose_of_the_page_has_the_numbers_of_the_tables() -> None:
    """If this fails on purpose, read the prose again: what follows from a number may not follow from another."""
    tables = {metric: oo.analyse(PACKED, metric=metric).result.table for metric in ("accuracy", "auc")}

    def pair(metric: str, model: str, a: str, b: str, within: str, train_set: str = "snli") -> pd.Series:
        table = tables[metric][tables[metric]["train_set"] == train_set]
        rows = table[table["model"].str.startswith(model) & (table["a"] == a) & (table["b"] == b)]
        return rows[rows["within"] == within].iloc[0]

    def short(value: float) -> str:
        return re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}")

    def span(row: pd.Series) -> str:
        return f"{short(row.low)} to {short(row.high)}"

    def corrected(row: pd.Series) -> pd.Series:
        return pd.Series({"r": row.r_corrected, "low": row.r_corrected_low, "high": row.r_corrected_high})

    def without_noise(row: pd.Series) -> str:
        return f"{short(corrected(row).r)} ({span(corrected(row))})"

    paws = {
        (metric, model): pair(metric, model, "paws", "scitail", "pooled")
        for metric in tables
        for model in ("smollm2", "gemma3")
    }
    smollm2, gemma = paws["accuracy", "smollm2"], paws["accuracy", "gemma3"]
    anli = {metric: pair(metric, "gemma3", "anli", "scitail", "pooled") for metric in tables}
    on_mnli = [pair("accuracy", model, "paws", "scitail", "pooled", "mnli") for model in ("smollm2", "gemma3")]
    early = {metric: pair(metric, "gemma3", "scitail", "snli", "pooled", "mnli") for metric in tables}
    (without,) = (said for said in early["auc"].caveats if said.startswith("without step 8 r is "))
    without = without.removeprefix("without step 8 r is ").partition(":")[0].replace("+", "").replace("0.", ".")
    edge, edge_inside = (pair("auc", "smollm2", "anli", "snli", within, "mnli") for within in ("pooled", "run"))
    assert any("too little residual left" in said for said in edge.caveats)
    fits = oo.analyse(PACKED, metric="auc").result.fits
    fits = fits[fits["model"].str.startswith("smollm2") & (fits["train_set"] == "mnli") & (fits["test_set"] == "anli")]
    left = {within: fits[fits["within"] == within].iloc[0] for within in ("pooled", "run")}
    hans = [pair("accuracy", model, "hans", "scitail", "pooled", "mnli") for model in ("smollm2", "gemma3")]
    assert all(row.low < 0 < row.high for row in (*hans, *map(corrected, (edge, edge_inside))))
    assert not any(table["clear"].any() for table in tables.values())
    assert edge.doubt == edge_inside.doubt == EXAMPLES
    both = pd.concat(tables.values(), ignore_index=True)["p_corrected"]
    over_both = holm(both.to_numpy(float))[both.tolist().index(edge.p_corrected)]
    accuracies = tables["accuracy"]
    assert set(accuracies.loc[accuracies["p_holm"] < 0.05, "doubt"]) == {"answers"}
    assert not [said for said in early["accuracy"].caveats if "one part of training" in said]
    auc = (
        oo.read_runs(PACKED)
        .query("metric == 'auc'")
        .groupby(["train_set", "model", "test_set", "step"])["value"]
        .mean()
    )
    anli_auc, hans_auc = (auc.xs(("smollm2-135m-q4", name), level=["model", "test_set"]) for name in ("anli", "hans"))
    gemma_auc = auc.xs(("mnli", "gemma3-270m-q4"), level=["train_set", "model"])
    assert max(gemma_auc["scitail", 4], gemma_auc["snli", 4]) < 0.5 < min(gemma_auc["scitail", 8], gemma_auc["snli", 8])
    assert abs(gemma_auc["mnli", 4] - gemma_auc["mnli", 8]) < 0.02
    page = " ".join(PAGE.read_text().split())
    for said in (
        f"{short(smollm2.r)} pooled for SmolLM2 (interval {span(smollm2)}), {short(gemma.r)} for Gemma ({span(gemma)})",
        "PAWS with SciTail has " + " and ".join(f"{short(row.r)} ({span(row)})" for row in list(paws.values())[2:]),
        f"ANLI with SciTail is {short(anli['accuracy'].r)} by accuracy ({span(anli['accuracy'])}) and"
        f" {short(anli['auc'].r)} by AUC ({span(anli['auc'])})",
        "the same pair has " + " and ".join(f"{short(row.r)} ({span(row)})" for row in on_mnli),
        f"{short(early['auc'].r)} by AUC, pooled ({span(early['auc'])})",
        f"Without step 8 the correlation is {without}",
        f"By accuracy it is {short(early['accuracy'].r)} ({span(early['accuracy'])})",
        f"{short(edge.r)} (interval {span(edge)}), p = {edge.p_said:.3f}".replace("p = 0.", "p = ."),
        f"over the {len(tables['auc'])} tests by AUC, {over_both:.3f} over all {len(both)} with those".replace(
            " 0.", " ."
        ),
        f"a reliability of {short(left['pooled'].reliability)}, within runs of {short(left['run'].reliability)}",
        f"Without noise r would be {without_noise(edge)}, within runs {without_noise(edge_inside)}",
        "On MNLI, HANS with SciTail has "
        + " by accuracy for SmolLM2 and ".join(f"{short(row.r)} ({span(row)})" for row in hans),
        f"between {short(anli_auc['mnli'].min())} and {short(anli_auc['mnli'].max())} at every step",
        f"an AUC of {short(hans_auc['mnli', 0])} on HANS and ends with {short(hans_auc['mnli', 64])} (MNLI) and"
        f" {short(hans_auc['snli', 64])} (SNLI)",
    ):
        assert said in page


def test_the_prose_has_the_simulation_with_the_values_of_this_study() -> None:
    """If this fails on purpose, docs/statistics-evidence.md has the new numbers in its table, and in a sentence."""
    cells = json.loads(RESULTS.read_text())["families"]["cells"]
    ways = {name: cell.values() for name, cell in cells.items() if name.startswith("study: ")}
    covered = [100 * one["covered"] for cell in ways.values() for one in cell]
    rejected = [100 * one["rejected"] for name, cell in ways.items() if "rho 0.0" in name for one in cell]
    sizes, coverage = (f"{min(values):.1f} to {max(values):.1f} %" for values in (rejected, covered))
    assert f"noise cover {coverage}, and a true null is rejected in {sizes}" in " ".join(PAGE.read_text().split())
    assert f"{sizes} and {coverage}" in " ".join(PAGE.with_name("statistics-evidence.md").read_text().split())


def test_the_draw_of_examples_puts_a_pair_in_doubt_whatever_level_is_shown() -> None:
    for level in (0.8, 0.99):
        table = oo.analyse(PACKED, metric="auc", level=level).result.table
        pair = table.query("a == 'anli' and b == 'snli' and within == 'pooled' and model == 'smollm2-135m-q4'")
        assert pair["doubt"].tolist() == [EXAMPLES]

"""Numbers in the prose of docs/findings.md and docs/findings/ are those of the tables that ship.

Generated blocks and figures are compared in test_findings.py. Here a sentence is written with the number computed anew,
and must stand in its page. If this fails on purpose: correct the page.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks.findings import PAGE, PAGES, sensitivity

import oodles as oo
from oodles.api.findings import findings

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LEVEL = 0.05


def short(value: float, digits: int = 2) -> str:
    """.03: a number without its leading zero, as the pages have it."""
    return f"{value:.{digits}f}".replace("0.", ".", 1)


@cache
def prose(page: Path) -> str:
    """A page without its generated blocks, its lines joined."""
    parts = page.read_text().split(": begin -->")
    kept = [part.partition(": end -->")[2] if at else part for at, part in enumerate(parts)]
    return " ".join(" ".join(kept).split())


def text_of(name: str) -> str:
    return prose(PAGE if name == "findings" else PAGES / f"{name}.md")


def stands(name: str, *told: str) -> None:
    missing = [one for one in told if one not in text_of(name)]
    assert not missing, f"{name}.md does not say: {missing}"


@cache
def scores(name: str) -> pd.DataFrame:
    return findings()[name].table()


@cache
def pairs(name: str, unit: str | None = None) -> pd.DataFrame:
    return (oo.analyse(name) if unit is None else oo.analyse(name, unit=unit)).result.table


def choices(name: str) -> pd.DataFrame:
    return sensitivity(name).tables["sensitivity_pairs"]


def one(table: pd.DataFrame, a: str, b: str) -> pd.Series:
    (row,) = [row for _, row in table.iterrows() if {row["a"], row["b"]} == {a, b}]
    return row


def steps(table: pd.DataFrame) -> pd.Series:
    return table.groupby("run")["step"].nunique()


def in_domain(name: str) -> pd.DataFrame:
    table = scores(name)
    return table[table["role"] == "in_domain"]


def test_a_number_of_a_generated_block_is_no_prose() -> None:
    assert "p of the verdict" in (PAGES / "clip.md").read_text()
    assert "p of the verdict" not in text_of("clip")
    with pytest.raises(AssertionError, match=r"clip.md does not say: \['27 fine-tunings'\]"):
        stands("clip", "27 fine-tunings")


def test_the_hundred_berts() -> None:
    mnli = in_domain("bert-hans")
    runs, (n,) = mnli["run"].nunique(), mnli["n"].unique()
    error = np.sqrt(mnli["value"].mean() * (1 - mnli["value"].mean()) / n)
    assert mnli["value"].std() < error
    stands(
        "bert-hans",
        f"fine-tuned BERT on MNLI {runs} times and changed only the seed",
        f"(sd {short(mnli['value'].std(), 4)}) than the binomial error of {n:,} examples ({short(error, 4)})",
    )
    table = pairs("bert-hans")
    across = table[table["a"].str.contains(", entailed") != table["b"].str.contains(", entailed")]
    apart = across[across["r"] < 0]
    moved = (table["r"] - table["r_raw"]).abs()
    weak = one(table, "constituent, non-entailed", "subsequence, non-entailed")
    assert weak["p_holm"] < LEVEL < weak["p_corrected"]
    stands(
        "bert-hans",
        f"{len(apart)} of {len(across)} correlations are negative ({apart['clear'].sum()} of them clearly)",
        f"changes r by {short(moved.median())} in the median, and by {short(moved.max())} at most",
        f"{WORDS[table['clear'].sum()]} pairs are clear in both, and a {WORDS[table['clear'].sum() + 1]}th (constituent"
        f" with subsequence, non-entailed: {short(weak['r'])}, raw {short(weak['r_raw'])})",
    )


def test_the_subcases_of_the_hundred_berts_that_never_differ() -> None:
    table = scores("bert-hans")
    subcases = table[table["slice_of"].notna()].groupby("test_set")["value"]
    still = subcases.nunique()[subcases.nunique() == 1].index
    assert {*subcases.max()[still], *subcases.min()[still]} == {1.0}
    named = " and ".join(f"`{name}`" for name in sorted(still))
    stands(
        "bert-hans",
        f"{WORDS[len(still)].capitalize()} of the {len(subcases)} subcases, {named}, are constant at 1.0",
    )


def test_the_draws_of_the_hundred_berts() -> None:
    results = json.loads((Path(__file__).parent.parent / "benchmarks" / "results.json").read_text())
    cells = results["real_coverage"]["cells"]
    drawn = list(cells)
    shares = [(cell["lowest_pair"], cell["draws"]) for cell in cells.values()]
    error = max(100 * np.sqrt(share * (1 - share) / draws) for share, draws in shares)
    runs = scores("bert-hans")["run"].nunique()
    stands(
        "bert-hans",
        f"Draw {', '.join(drawn[:-1])} or {drawn[-1]} of the {runs} runs",
        f"covers the value of all {runs}, for each of the {len(pairs('bert-hans'))} pairs",
        f"(standard error of a pair: up to {short(error, 1)} points)",
    )


def test_clip() -> None:
    table = scores("clip")
    runs, count = table["run"].nunique(), steps(table)
    with_a = table.loc[table["test_set"] == "ImageNetA", "run"].nunique()
    models = table.groupby("model")["run"].nunique().sort_values()
    assert {"ViT-B-16"} == {*models[models == 2].index}
    stands(
        "clip",
        f"{runs} fine-tunings of CLIP",
        f"evaluated at {count.min()} to {count.max()} steps on ImageNet",
        f"up to {WORDS[table.loc[table['role'] == 'ood', 'test_set'].nunique()]} shifted versions",
        f"adjusted over all {len(pairs('clip'))} tests reported",
        "two runs are of another model, ViT-B-16",
        f"Only {with_a} of the {runs} runs have ImageNet-A",
        f"One model has {models.iloc[-1]} of the {runs} runs",
    )


def test_olmo() -> None:
    table = scores("olmo")
    runs, count = table["run"].nunique(), steps(table)
    sizes = table.groupby("size")["length"].nunique()
    assert sizes.nunique() == 1
    assert runs == len(sizes) * sizes.iloc[0]
    pair = one(choices("olmo"), "arc_challenge", "piqa")
    assert pair["lowest_by"].startswith("weighted by logarithm")
    assert pair["highest_by"].startswith("late half")
    chance = table.drop_duplicates("test_set").set_index("test_set")["chance"]
    stands(
        "olmo",
        f"trained {runs} language models, {WORDS[len(sizes)]} sizes for {WORDS[sizes.iloc[0]]} lengths each",
        f"evaluated {table['test_set'].nunique()} tasks at {count.min()} to {count.max()} steps",
        f"under {pair['specifications']} choices, sorted: from -{short(-pair['lowest'])} with early steps",
        f"to +{short(pair['highest'])} in the late half",
        f"adjusted over all {len(choices('olmo'))} pairs",
        f"HellaSwag is still near chance ({short(chance['hellaswag'])}) while PIQA leaves its own"
        f" ({short(chance['piqa'], 1)}), and ARC-challenge is below its chance ({short(chance['arc_challenge'])})",
        f"The {runs} runs share their data and their code",
        f"With the size as the unit there are {WORDS[pairs('olmo', 'size')['n_units'].max()]} units",
    )


def test_pythia() -> None:
    table, found, by_runs = scores("pythia"), pairs("pythia"), pairs("pythia", "run")
    runs, sizes = table["run"].nunique(), table.groupby("size")["run"].nunique()
    assert sizes.nunique() == 1
    before = findings()["pythia"].first_step - 1
    (n,) = in_domain("pythia")["n"].unique()
    strongest = found.loc[found["r"].abs().sort_values(ascending=False).index].head(4)
    assert (strongest["low"] > 0).all()
    assert {*strongest["a"], *strongest["b"]} == {"arc_challenge", "arc_easy", "piqa", "sciq"}
    clear = by_runs[by_runs["clear"]]
    assert {frozenset(pair) for pair in zip(clear["a"], clear["b"], strict=True)} == {
        frozenset({"sciq", "arc_easy"}),
        frozenset({"sciq", "piqa"}),
    }
    gone = by_runs[(by_runs["p_holm"] < LEVEL) & ~by_runs["clear"]]
    fits = oo.analyse("pythia").result.fits
    assert set(fits["reliability_from"]) == {"binomial"}
    stands(
        "pythia",
        f"published {WORDS[len(sizes)]} sizes of a language model",
        f"zero-shot accuracy on {WORDS[table['test_set'].nunique()]} tasks after step {before:,}",
        f"if all {runs} runs were independent",
        f"partial correlations of {WORDS[len(fits)]} tasks within runs",
        f"The {WORDS[sizes.iloc[0]]} runs of a size share their data",
        f"With {WORDS[found['n_units'].max()]} units and {len(found)} pairs, nothing is significant",
        f"If you treat all {runs} runs as independent",
        f"{WORDS[len(gone)].capitalize()} more pairs may be due to noise: LAMBADA's {n:,} examples",
        f"the residual of most tasks ({(fits['reliability'] <= 0).sum()} of {len(fits)})",
        "no interval of the four largest covers 0",
        f"Adjusted for {len(found)} pairs and {WORDS[found['n_units'].max()]} independent sizes, none is clear",
        f"each has {WORDS[sizes.iloc[0]]} runs, which are not independent",
    )
    assert not (found["p_holm"] < LEVEL).any()


def test_timm() -> None:
    table = scores("timm")
    models, members = table["run"].nunique(), table.groupby("architecture")["run"].nunique()
    (n,) = table.loc[table["test_set"] == "imagenet-v2", "n"].unique()
    others = table.loc[table["role"] == "ood", "test_set"].nunique()
    stands(
        "timm",
        f"# {models:,} image models",
        f"on ImageNet and on {WORDS[others]} other test sets, {WORDS[others - 1]} of them shifted",
        f"The {models:,} image models of `timm` belong to {len(members)} architectures, of which"
        f" {(members >= 9).sum()} have nine models or more",
        f"pairs with ImageNet-V2 ({n:,} images)",
    )


def test_what_the_findings_teach_together() -> None:
    by_runs, by_sizes = pairs("pythia", "run"), pairs("pythia")
    significant, counted = (by_runs["p_holm"] < LEVEL).sum(), by_runs["clear"].sum()
    runs, units = by_runs["n_units"].max(), by_sizes["n_units"].max()
    stands(
        "findings",
        f"{runs} runs of Pythia are {WORDS[units]} sizes. By run, {WORDS[significant]} pairs are significant and"
        f" {WORDS[counted]} are counted; by size, {WORDS[(by_sizes['p_holm'] < LEVEL).sum()]} is significant",
    )
    bert = pairs("bert-hans")
    assert one(bert, "lexical overlap, non-entailed", "subsequence, non-entailed")["clear"]
    assert not one(bert, "lexical overlap, non-entailed", "constituent, non-entailed")["clear"]
    timm, olmo = choices("timm"), choices("olmo")
    counted_of_timm = pairs("timm")[pairs("timm")["clear"]]
    turned = [
        pair["other_sign"] for pair in (one(timm, a, b) for a, b in counted_of_timm[["a", "b"]].itertuples(index=False))
    ]
    of_olmo = olmo[olmo["conclusion"].str.startswith("significant")]
    assert (of_olmo["same_clear"] < of_olmo["specifications"] / 2).mean() > 0.5
    stands(
        "findings",
        "models that resist one resist a second; for a third we cannot tell",
        "Most in `olmo` depend on how early and late steps are weighted",
        f"and {WORDS[sum(map(bool, turned))]} of the {WORDS[len(turned)]} of `timm` on whether the curve of accuracies",
    )


def test_how_many_pairs_of_the_own_study_are_counted_by_auc() -> None:
    table = oo.analyse("smollm2-nli", metric="auc").result.table
    counted = int((table["clear"] & (table["within"] == "pooled")).sum())
    told = re.findall(r"By AUC (\w+)(?: pairs?)? (?:is|are) counted", text_of("findings"))
    told += re.findall(r"(\w+)(?: pairs?)? of 84 (?:is|are) counted", prose(PAGE.with_name("smollm2-nli.md")))
    assert told
    assert {*told} <= ({"no", "none"} if not counted else {WORDS[counted]})

"""The findings that ship: their figures, their provenance, and the numbers that others have computed from them."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import real_study
from benchmarks.findings import DRAWN, FIGURES, NUMBERS, PAGE, PAGES, drawn, filled, pixels, sensitivity
from benchmarks.published import MADE
from PIL import Image

import oodles as oo
from conftest import missing, oodles
from oodles.api.findings import findings
from oodles.show import canvas
from oodles.show.answers import plot_specifications
from oodles.stats.longtable import chance_level


def pair(analysis: object, a: str, b: str) -> pd.Series:
    table = analysis.result.table  # type: ignore[attr-defined]
    rows = table[((table.a == a) & (table.b == b)) | ((table.a == b) & (table.b == a))]
    assert len(rows) == 1
    return rows.iloc[0]


def rounded(row: pd.Series) -> tuple[float, float, float]:
    return (round(row.r, 2), round(row.low, 2), round(row.high, 2))


def _filled(table: pd.DataFrame) -> pd.DataFrame:
    """Missing text as no text; Parquet may give it back as another kind of nothing."""
    return table.fillna(dict.fromkeys(table.select_dtypes(["object", "str"]), ""))


def test_every_finding_has_its_figures_its_source_and_its_licence() -> None:
    assert set(findings()) == {*MADE, "smollm2-nli"}
    for finding in findings().values():
        assert finding.source.startswith("https://") or finding.packed
        assert finding.licence in ("MIT", "Apache-2.0")
        assert finding.citation in finding.provenance or finding.packed
        assert finding.packed or finding.provenance.startswith("published scores: ")
        table = finding.table()
        assert set(table.role) == {"in_domain", "ood"}
        assert table.value.between(0, 1).all()
        assert np.isfinite(chance_level(table, table.test_set[table.role == "in_domain"].iloc[0], "accuracy"))


@pytest.mark.parametrize("name", sorted(MADE))
def test_the_shipped_figures_are_the_published_ones(name: str) -> None:
    folder = Path(os.environ.get("OODLES_DATA", "")) / "real"
    if not (folder / "SOURCES.md").is_file():
        missing("no published results: set OODLES_DATA to a folder with real/")
    made = MADE[name](folder).reset_index(drop=True)
    finding = findings()[name]
    made = made[made.step >= finding.first_step].reset_index(drop=True)
    pd.testing.assert_frame_equal(_filled(finding.table()), _filled(made), check_dtype=False)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["analyse", "bert-hans"], "bert-hans: no scores of test set 'hanss'; choose another --test-set (known: ce_"),
        *(
            (asked, "smollm2-nli: no scores of test set 'hanss'; choose another --test-set (did you mean 'hans'?)")
            for asked in (
                ["analyse", "smollm2-nli"],
                ["report", "smollm2-nli"],
                ["plan", "--pilot", "smollm2-nli"],
                ["compare", "smollm2-nli", "bert-hans"],
            )
        ),
    ],
    ids=lambda asked: " ".join(asked) if isinstance(asked, list) else "",
)
def test_a_test_set_that_a_finding_lacks_is_told_with_the_finding(asked: list[str], told: str, tmp_path: Path) -> None:
    done = oodles(*asked, "--test-set", "hanss", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["import", "--inspect", "bert-hans"], "bert-hans: a finding, not a file; oodles analyse, report and export"),
        (["analyse", "timm", "bert-hans"], "timm: a finding, not a file"),
        (
            ["analyse", "bert-hans", "--test-set", "ce_adverb"],  # the reason, and no other caveat
            "bert-hans: no pair of OOD test sets can be correlated; bert-base, mnli: 1 OOD test set; a correlation",
        ),
        (["analyse", "bert-hans", "--in-domain", "x"], "known: 'constituent, entailed', 'constituent, non-entailed', "),
    ],
    ids=["import", "two", "one set", "in-domain"],
)
def test_what_cannot_be_asked_of_a_finding_is_told(asked: list[str], told: str) -> None:
    done = oodles(*asked)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


def test_a_finding_tells_the_test_sets_that_its_own_analysis_leaves_out() -> None:
    assert len(findings()["bert-hans"].further_sets()) == 30
    assert "--test-set takes, too: ce_adverb, " in oodles("findings", "bert-hans").stdout
    assert "--test-set" not in oodles("findings", "timm").stdout


@pytest.mark.parametrize(
    ("name", "option", "other", "said"),
    [
        ("clip", {"shared_start": "drop"}, {"shared_start": "keep"}, "runs of one model share their step 0, which is"),
        ("pythia", {"unit": "size"}, {"unit": "run"}, "the unit is the size"),
    ],
    ids=["clip", "pythia"],
)
def test_a_remark_on_an_option_is_told_only_where_the_option_is_the_findings_own(
    name: str, option: dict[str, str], other: dict[str, str], said: str
) -> None:
    assert all(any(said in note for note in oo.analyse(name, **asked).notes) for asked in ({}, option))
    assert not any(said in note for note in oo.analyse(name, **other).notes)
    assert said in oodles("findings", name).stdout


def test_remarks_are_on_options_that_their_finding_has() -> None:
    for finding in findings().values():
        assert {*finding.option_remarks} <= {*finding.given({})}


def test_the_remark_on_clip_is_what_its_intervals_say() -> None:
    kept, dropped = (
        pair(oo.analyse("clip", shared_start=how, within=["run"]), "ImageNetA", "ImageNetR") for how in ("keep", "drop")
    )
    assert kept.low > 0.8
    assert dropped.low < 0 < dropped.high
    remark = "with it ImageNetA and ImageNetR are closely related within runs, without it that cannot be told"
    assert remark in findings()["clip"].option_remarks["shared_start"]


def test_what_is_known_of_the_hundred_berts() -> None:
    analysis = oo.analyse("bert-hans")
    lexical, subsequence = "lexical overlap, non-entailed", "subsequence, non-entailed"
    assert rounded(pair(analysis, lexical, subsequence)) == (0.77, 0.66, 0.85)
    assert rounded(pair(analysis, lexical, "constituent, non-entailed")) == (0.07, -0.11, 0.24)
    table = analysis.result.table
    across = table[table.a.str.contains(", entailed") != table.b.str.contains(", entailed")]
    assert len(across) == 9
    assert (across.r < 0).sum() == 8  # a trade of answers, not of skill
    (verdict,) = analysis.verdicts
    assert "with 100 models, one checkpoint each," in verdict.sentence
    assert "In-domain performance hardly differs here" in verdict.sentence
    # noise of MNLI is not known: a pair is clear only if it is so raw and partial
    weak = pair(analysis, "constituent, non-entailed", subsequence)
    assert weak.p_holm < 0.05 < weak.p_corrected
    assert (table.clear & (table.r > 0)).sum() == 2
    assert (table.clear & (table.r < 0)).sum() == 4
    constant = oo.analyse("bert-hans", test_sets=["ce_adverb", "ce_conjunction", "ln_passive"])
    assert constant.result.table.r.isna().all()


def test_what_is_known_of_pythia() -> None:
    runs = oo.analyse("pythia", unit="run")
    assert round(pair(runs, "arc_easy", "sciq").r, 2) == 0.40
    assert round(pair(runs, "arc_easy", "piqa").r, 2) == 0.33
    assert abs(pair(runs, "piqa", "sciq").r - 0.31) < 0.01
    clear = runs.result.table[runs.result.table.p_holm < 0.05]
    assert len(clear) == 4
    assert not {"winogrande", "wsc", "logiqa"} & {*clear.a, *clear.b}
    sizes = oo.analyse("pythia")  # what is independent decides
    assert set(sizes.result.table.n_units) == {8}
    assert (sizes.result.table.p_holm >= 0.05).all()


def test_the_pythia_page_says_which_tasks_leave_chance() -> None:
    table = oo.analyse("pythia").long_table
    last = table[table.step == table.groupby("run").step.transform("max")]
    mean = last.groupby(["test_set", "size"]).value.mean().round(2).unstack()
    chance = table.groupby("test_set").chance.first()
    below = (mean.lt(chance, axis=0)).sum(axis=1)
    assert (mean.shape[1], below["logiqa"], below["wsc"], below["winogrande"]) == (8, 8, 7, 0)
    spans = {name: f"{own.min():.2f} to {own.max():.2f}".replace("0.", ".") for name, own in mean.iterrows()}
    many = {4: "four"}[(mean.loc["winogrande"] >= 0.57).sum()]
    page = " ".join((PAGE.parent / "findings" / "pythia.md").read_text().split())
    assert f"all eight sizes on LogiQA ({spans['logiqa']}; chance {chance['logiqa']:.2f})".replace(" 0.", " .") in page
    examples = table[table.test_set == "wsc"].n.max()
    assert f"in seven on WSC ({spans['wsc']}; chance .5; {examples:g} examples)" in page
    assert f"Winogrande leaves chance ({spans['winogrande']}; .57 or more in {many} sizes)" in page


def test_the_timm_page_says_how_pooled_and_within_architectures_differ() -> None:
    analysis = oo.analyse("timm", across=("architecture",))
    assert analysis.claim is not None
    inside = analysis.claim.tables["claim"].set_index(["a", "b"]).r
    page = " ".join((PAGE.parent / "findings" / "timm.md").read_text().split())
    for other, name in (("imagenet-r", "ImageNet-R"), ("sketch", "Sketch")):
        pooled = pair(analysis, "imagenet-a", other).r
        assert f"ImageNet-A ~ {name} {pooled:+.2f} pooled, mean {inside['imagenet-a', other]:+.2f} within" in page


def test_a_finding_is_analysed_and_reported_by_its_name(tmp_path: Path) -> None:
    start = time.monotonic()
    done = oodles("analyse", "bert-hans", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 60
    assert "100 models, one checkpoint each" in " ".join(done.stdout.split())
    done = oodles("report", "bert-hans", "--out", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "r.html").read_text()
    assert "<h1>100 BERTs on HANS</h1>" in page
    assert "McCoy, Min and Linzen (2020)" in page
    assert "licence MIT" in page


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    findings()["clip"].table().to_parquet(tmp_path / "bert-hans")
    (tmp_path / "bert-hans").rename(tmp_path / "bert-hans.parquet")
    assert oo.analyse("bert-hans").title == "100 BERTs on HANS"
    assert oo.analyse("bert-hans.parquet").title == ""


def test_the_findings_are_listed_and_shown() -> None:
    done = oodles("findings")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in MADE)
    done = oodles("findings", "timm")
    assert "Wightman (2019)" in done.stdout
    rows = json.loads(oodles("findings", "--json").stdout)
    assert {row["name"]: row["licence"] for row in rows}["clip"] == "MIT"
    done = oodles("findings", "bert")
    assert (done.returncode, "'bert-hans'" in done.stderr) == (2, True)


@pytest.mark.parametrize("page", NUMBERS, ids=lambda page: page.stem)
def test_the_pages_have_the_numbers_of_the_shipped_tables(page: Path) -> None:
    """If this fails on purpose: python -m benchmarks.findings, and read the prose of the page again."""
    text = page.read_text()
    assert filled(text, NUMBERS[page]()) == text


FIGURES_OF_PAGES = {**FIGURES, **real_study.FIGURES}


@pytest.mark.parametrize("path", FIGURES_OF_PAGES, ids=lambda path: path.stem)
def test_the_figures_of_the_pages_show_the_shipped_tables(path: Path) -> None:
    """If this fails on purpose: python -m benchmarks.findings, and look at the figure."""
    with Image.open(path) as image:
        kept = json.loads(image.info[DRAWN])
    now = drawn(FIGURES_OF_PAGES[path]())
    assert now["numbers"]
    assert kept["words"] == now["words"]
    assert kept["numbers"] == pytest.approx(now["numbers"], abs=0.003)
    assert kept["colours"] == pytest.approx(now["colours"], abs=0.02)
    assert kept["pixels"] == pixels(path), "another picture than the one that says what it shows"


def test_the_remark_on_relabelled_images_is_told_and_the_pair_is_one_that_is_counted() -> None:
    analysis = oo.analyse("timm")
    assert pair(analysis, "imagenet-real", "imagenet-v2").clear
    assert any("no OOD set in the strict sense" in note for note in analysis.notes)
    assert "no OOD set in the strict sense" in (PAGES / "timm.md").read_text()


def test_the_clip_page_says_why_the_pooled_pair_is_not_counted() -> None:
    table = oo.analyse("clip").result.table
    row = table[(table["a"] == "ImageNetA") & (table["b"] == "ImageNetR") & (table["within"] == "pooled")].iloc[0]
    assert (row.clear, row.doubt) == (False, "")
    told = f"adjusted over all {len(table)} tests reported, p = {row.p_said:.3f}.".replace("0.", ".", 1)
    assert told in " ".join((PAGES / "clip.md").read_text().split())


@pytest.mark.parametrize("name", ["pythia", "olmo", "clip", "timm"])
def test_the_commands_of_a_page_are_valid_and_give_its_answers_and_its_pairs(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text()
    commands = [line.partition("#")[0].split()[1:] for line in re.findall(r"^oodles .*$", text, re.MULTILINE)]
    assert ["analyse", name] in commands
    assert ["analyse", name, "--sensitivity"] in commands
    assert ["report", name, "--out", f"{name}.html"] in commands
    options = {word for command in commands for word in command if word.startswith("--")}
    assert ("--unit" in options) == (name != "clip")
    assert ("--method" in options) == (name == "timm")
    told, pairs = set[str](), set[tuple[str, str]]()
    told |= {" ".join(sensitivity(name).sentences)}
    for _, _, *words in (command for command in commands if command[0] == "analyse" and "--sensitivity" not in command):
        analysis = oo.analyse(name, **asked(words))
        told |= {verdict.sentence for verdict in analysis.verdicts}
        told |= {*(analysis.claim.sentences if analysis.claim else ())}
        pairs |= {
            (f"{row.a} ~ {row.b}", f"{row.r:+.2f} | {row.low:+.2f} to {row.high:+.2f}")
            for row in analysis.result.table.itertuples()
        }
    quoted = re.findall(r"^> (.+)$", text, re.MULTILINE)
    (choices,) = re.findall(r"^(Under \d+ choices .+)$", text, re.MULTILINE)
    shown = re.findall(r"^\| (.+ ~ .+?) \| ([+-]\d\.\d\d \| [+-]\d\.\d\d to [+-]\d\.\d\d) \|", text, re.MULTILINE)
    assert quoted
    assert shown
    assert [said for said in quoted if said not in told] == []
    assert any(choices.startswith(said) for said in told)
    assert [row for row in shown if row not in pairs] == []


def asked(options: list[str]) -> dict[str, object]:
    """What the options of `oodles analyse` on a page are in Python; another option is an error."""
    names = {"--unit": "unit", "--method": "method", "--shared-start": "shared_start", "--across": "across"}
    given: dict[str, object] = {}
    rest = iter(options)
    for option in rest:
        if option == "--test-set":
            given["test_sets"] = [*given.get("test_sets", []), next(rest)]  # type: ignore[misc]
        else:
            given[names[option]] = next(rest)
    return given


def test_the_code_of_the_olmo_page_gives_the_numbers_of_its_table() -> None:
    text = (PAGES / "olmo.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, pd.DataFrame] = {}
    exec(code, names)
    for chosen, told in (("spaced", "14 steps, spaced by their logarithm"), ("late", "the last 80 % of the steps")):
        found = oo.analyse(names[chosen], by="none", test_sets=["arc_challenge", "piqa"]).result.table
        row = found[found["within"] == "pooled"].iloc[0]
        assert f"| {told} | {row.r:+.2f} [{row.low:+.2f}, {row.high:+.2f}] |" in text


def test_the_olmo_page_colours_its_pair_as_all_pairs_are_adjusted() -> None:
    """The default is drawn orange whether significant or not; the page says which."""
    answer = sensitivity("olmo")
    every = answer.tables["sensitivity"]
    own = every[(every["a"] == "arc_challenge") & (every["b"] == "piqa")]
    default = own[own["default"]].iloc[0]
    assert default["p_holm"] > 0.05
    assert "the orange square, which is not significant" in (PAGES / "olmo.md").read_text()
    assert "adjusted over all 66 pairs" in (PAGES / "olmo.md").read_text()
    ((figure, _),) = plot_specifications(answer, ("arc_challenge", "piqa"))
    colours = [line.get_color() for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert colours.count(canvas.OOD) == (own["p_holm"] < 0.05).sum() == 15


def test_every_finding_has_a_page_with_question_command_figure_table_and_limits() -> None:
    for name, finding in findings().items():
        page = PAGE.with_name(f"{name}.md") if finding.packed else PAGES / f"{name}.md"
        text = page.read_text()
        assert f"\noodles analyse {name}" in text
        assert re.search(r"^\|.*95 % interval.*\|$", text, re.MULTILINE)
        assert re.search(r"## What (can be concluded, and what )?cannot|cannot be told", text)
        shown = re.findall(r"!\[.+?\]\((\S+?\.png)\)", text)
        assert shown
        assert all((page.parent / one).is_file() for one in shown)
        assert f"]({page.relative_to(PAGE.parent)})" in PAGE.read_text()


def test_the_numbers_of_the_readme() -> None:
    analysis = oo.analyse("bert-hans")
    lexical = "lexical overlap, non-entailed"
    first = pair(analysis, lexical, "subsequence, non-entailed")
    second = pair(analysis, lexical, "constituent, non-entailed")
    told = f"(r = {first.r:.2f}); for a third we cannot tell ({second.r:.2f}, interval {second.low:.2f} to"
    told += f" {second.high:.2f})"
    readme = " ".join((PAGE.parent.parent / "README.md").read_text().split())
    assert told.replace("0.", ".") in readme
    apart = [
        pair(analysis, f"{shortcut}, entailed", f"{shortcut}, non-entailed")
        for shortcut in ("lexical overlap", "subsequence", "constituent")
    ]
    assert all(row.clear for row in apart)
    least, most = min(row.r for row in apart), max(row.r for row in apart)
    told = f"examples of each shortcut move apart ({least:.2f} to {most:.2f}, all clear)"
    assert told.replace("0.", ".") in readme


def test_the_evidence_has_the_coverage_on_real_runs() -> None:
    cells = json.loads((Path(__file__).parent.parent / "benchmarks" / "results.json").read_text())["real_coverage"][
        "cells"
    ]
    assert list(cells) == ["9", "18", "30"]
    shares = {key: [f"{100 * cell[key]:.1f}" for cell in cells.values()] for key in ("covered", "covered_finite")}
    page = " ".join((Path(__file__).parent.parent / "docs" / "statistics-evidence.md").read_text().split())
    plain, finite = (f"{', '.join(texts[:2])} and {texts[2]} %" for texts in shares.values())
    assert f"{plain} of the intervals cover the value of all 100, and {finite} once" in page

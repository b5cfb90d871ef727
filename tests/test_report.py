"""The report is parsed as a browser would: its sections, its numbers, and that it needs nothing but itself."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oodles.errors import DataError, StoreError
from oodles.show import report
from oodles.show.report import check_report, write_report
from oodles.show.words import readable
from oodles.stats.analysis import analyse_table
from oodles.stats.changes import changes
from oodles.stats.correlate import PartialCorrelations, partial_correlations
from oodles.stats.verdict import NO_PAIR, Verdict, verdicts
from test_correlate import simulated

VOID = {"meta", "br", "hr", "img", "link", "input"}
OODS = ("genre", "overlap", "news")
RUNS = [
    {
        "name": f"tiny_daily_{seed}_64",
        "model": "tiny",
        "train_set": "daily",
        "shots": 64,
        "seed": seed,
        "pattern": "{premise} Question: {hypothesis} Yes or No?",
        "answers": [" Yes", " No"],
        "recipe": {"epochs": 4, "learning_rate": 0.001},
        "steps": [0, 1, 2, 4],
        "seconds": 12.345 + seed,
        "caveats": ["stopped early"] if seed == 2 else [],
    }
    for seed in range(3)
]


class Page(HTMLParser):
    """What a page holds; fails on tags that are not closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(self.source.replace("<wbr>", ""))  # where a name may break, which is no text
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split()).replace(" :", ":")  # a bold word before a colon

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [str(attrs["id"]) for _, attrs in self.tags if "id" in attrs]


def make_table(
    oods: Sequence[str] = OODS, runs: int = 3, steps: Sequence[int] = (0, 1, 2, 4), model: str = "tiny"
) -> pd.DataFrame:
    draw = np.random.default_rng(3)
    rows: list[dict[str, Any]] = []
    for run in range(runs):
        for i, step in enumerate(steps):
            for test_set in ("daily", *oods):
                role = "in_domain" if test_set == "daily" else "ood"
                row = {"run": f"{model}_{run}", "step": step, "test_set": test_set, "role": role, "n": 200}
                row |= {"model": model, "train_set": "daily", "shots": 64, "seed": run}
                share = float(draw.uniform(0.4, 0.6))
                rows.append({**row, "metric": "accuracy", "value": 0.5 + 0.05 * i + float(draw.normal(0, 0.03))})
                rows += [{**row, "metric": f"share:{a}", "value": s} for a, s in (("Yes", share), ("No", 1 - share))]
    return pd.DataFrame(rows)


def make_page(path: Path, table: pd.DataFrame, result: Any = None, **more: Any) -> Page:
    return Page(
        write_report(table, result or partial_correlations(table, method="linear"), path / "report.html", **more)
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return make_page(tmp_path_factory.mktemp("report"), make_table(), runs=RUNS)


def test_the_sections_come_in_order(page: Page) -> None:
    ids = [i for i in page.ids if i in ("verdict", "caveats", "group-1", "reading", "runs", "cite", "settings")]
    assert ids == ["verdict", "caveats", "group-1", "reading", "runs", "cite", "settings"]
    assert len(page.all("h1")) == 1
    headings = [
        "Did fine-tuning help",
        "On the way there",
        "Do the test sets move together?",
        "How to read",
        "How to cite",
    ]
    places = [page.words.rindex(h) for h in headings]  # the contents name them first
    assert places == sorted(places)


def test_nothing_is_fetched(page: Page) -> None:
    assert not {"link", "img", "iframe", "object", "embed", "base", "image"} & {tag for tag, _ in page.tags}
    assert [a for a in page.all("script") if "src" in a] == []
    assert not re.search(r"@import|url\((?!#)", page.source)
    links = [a["href"] for tag, a in page.tags if "href" in a and not str(a["href"]).startswith("#")]
    assert links == ["https://arxiv.org/abs/2512.07832"]
    policies = [a.get("content") for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert str(policies[0]).startswith("default-src 'none'")


def test_verdict_numbers_and_caveats_are_those_of_the_statistics(page: Page) -> None:
    table = make_table()
    result = partial_correlations(table, method="linear")
    told = verdicts(result)[0]
    assert all(readable(text) in page.words for text in (told.short, *told.points))
    for row in changes(table).itertuples():
        assert f"{row.change:+.2f}".replace("-", "−") in page.words
    for pair in result.table.itertuples():
        assert f"{pair.r:+.2f}".replace("-", "−") in page.words
    shared = set.intersection(*(set(caveats) for caveats in result.table["caveats"]))
    assert shared
    assert all(readable(caveat) in page.words for caveat in shared)
    assert "r_corrected" not in page.words  # a name of the program


def test_every_figure_is_an_image_with_a_name_and_ids_of_its_own(page: Page) -> None:
    figures = [a for a in page.all("svg") if "aria-hidden" not in a]
    # changes, accuracy and share of each test set, fits, pooled and run, residuals of three pairs
    assert len(figures) == 1 + 2 * len(OODS) + 1 + 2 + 3
    assert all(f.get("role") == "img" and f.get("aria-label") for f in figures)
    assert len({f["aria-label"] for f in figures}) == len(figures)
    assert [i for i, count in Counter(page.ids).items() if count > 1] == []
    markup = re.sub(r"<script.*?</script>", "", page.source, flags=re.DOTALL)
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', markup))
    assert {a or b for a, b in used} <= set(page.ids)


def test_figures_follow_the_page_into_the_dark(page: Page) -> None:
    assert "prefers-color-scheme: dark" in page.source
    drawn = "".join(re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL))
    assert "var(--ood)" in drawn
    assert "var(--in-domain)" in drawn
    assert not any(colour in drawn for colour in report._VARIABLES)


def test_what_was_run_tells_shared_from_different(page: Page) -> None:
    words = page.words[page.words.index("What was run") :]
    assert words.count("{premise} Question: {hypothesis} Yes or No?") == 1
    assert "“ Yes”, “ No”" in words
    assert "recipe.learning_rate 0.001" in words
    assert all(f"tiny_daily_{seed}_64" in words for seed in range(3))
    assert "stopped early (tiny_daily_2_64)" in words


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    table = make_table(oods=OODS[:2])
    result = partial_correlations(table)
    first, second = (write_report(table, result, tmp_path / f"{i}.html", runs=RUNS).read_bytes() for i in range(2))
    assert first == second
    assert b"/tmp" not in first


def test_names_are_text_and_never_markup(tmp_path: Path) -> None:
    odd = ['<b>&"x', "<script>alert(1)</script>", "a$b$_c"]
    page = make_page(
        tmp_path, make_table(oods=odd), title="<i>mine</i>", runs=[{"name": "<u>run</u>", "note": "</td>"}]
    )
    assert not {"b", "i", "u"} & {tag for tag, _ in page.tags}
    assert [a.get("type") for a in page.all("script")] == ["application/json", None, None, None]
    assert "alert" not in page.source[page.source.rindex("<script>") :]
    held = page.source[page.source.index('id="data">') :].partition("</script>")[0]
    assert "\\u003cscript\\u003e" in held
    assert odd[1] in json.loads(held.removeprefix('id="data">'))["sets"]
    assert all(page.words.count(name) > 3 for name in odd)
    assert "<i>mine</i>" in page.words
    assert any(odd[0] in str(f["aria-label"]) for f in page.all("svg"))


def test_several_groups_get_a_section_each_and_contents(tmp_path: Path) -> None:
    two = OODS[:2]
    lone = make_table(oods=two[:1], model="lone")
    table = pd.concat([make_table(oods=two), make_table(oods=two, model="small", runs=5), lone])
    page = make_page(tmp_path, table, analyse_table(table, method="linear"))
    assert [i for i in page.ids if re.fullmatch(r"group-\d", i)] == ["group-1", "group-2", "group-3"]
    targets = {str(a["href"])[1:] for a in page.all("a") if str(a["href"]).startswith("#")}
    assert {"group-1", "group-2", "group-3", "reading", "runs", "cite", "settings"} <= targets <= set(page.ids)
    assert NO_PAIR in page.words
    assert "lone, trained on daily" in page.words


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        (make_table(oods=OODS[:2], runs=1), {}, "· 1 run ·"),
        (make_table(oods=OODS[:2], steps=(3,)), {"within": "pooled"}, "· step 3"),
        (make_table(oods=OODS[:2], steps=range(12)), {"within": "separate"}, "The pair"),
        (
            make_table(oods=OODS[:2]).query("metric == 'accuracy'")[["run", "step", "test_set", "value"]],
            {"in_domain": "daily"},
            "no share:",
        ),
        (
            make_table(oods=OODS[:2]).assign(value=lambda t: t["value"].mask(t.index % 7 == 0)),
            {},
            "finite value",
        ),
        (make_table(oods=OODS[:2]).assign(model=None), {}, "trained on daily"),
    ],
    ids=["one run", "one step", "two test sets", "foreign table", "gaps", "no model"],
)
def test_thin_tables_still_make_a_report(tmp_path: Path, table: pd.DataFrame, options: Any, expected: str) -> None:
    page = make_page(tmp_path, table, partial_correlations(table, **{"method": "linear", **options}))
    assert expected in page.words
    assert "nan" not in page.words.replace("NaN", "nan").split()


def test_results_without_their_table_make_a_report_without_trajectories(tmp_path: Path) -> None:
    table = make_table(oods=OODS[:2])
    found = analyse_table(table, method="linear")
    page = Page(write_report(None, found, tmp_path / "report.html"))
    told = found.verdicts[0]
    assert all(readable(text) in page.words for text in (told.short, *told.points))
    assert "trajectories need the table of scores" in page.words
    assert (
        len([a for a in page.all("svg") if "aria-hidden" not in a]) == 4
    )  # changes, two heatmaps, residuals of the pair
    with pytest.raises(DataError, match="needs an Analysis"):
        write_report(None, found.result, tmp_path / "other.html")


def test_unknown_numbers_are_dashes(tmp_path: Path) -> None:
    table = make_table(oods=OODS[:2])
    result = partial_correlations(table, method="linear", within="pooled")
    unknown = dict.fromkeys(("r", "low", "high", "p_val", "p_holm", "p_bh", "r_corrected"), np.nan)
    bare = PartialCorrelations(
        table=result.table.assign(**unknown), fits=result.fits[:0], residuals=result.residuals, settings=result.settings
    )
    page = make_page(tmp_path, table, bare)
    assert "–" in page.words
    assert "nan" not in page.words.split()


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, path = simulated(runs=3), tmp_path / "report.html"
    result = partial_correlations(table, method="linear")
    old = write_report(table, result, path).read_bytes()

    def full(self: Path, *_: Any, **__: Any) -> None:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match=r"report\.html: cannot be written \(no space left on the disk"):
        write_report(table, result, path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_missing_folder_is_made_and_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    table = simulated(runs=3)
    result = partial_correlations(table, method="linear")
    assert write_report(table, result, tmp_path / "a" / "b" / "report.html").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_report(table, result, tmp_path / "file" / "report.html")


def test_the_demo_stays_small(page: Page) -> None:
    """Of which half a megabyte is the plotting library."""
    assert len(page.source.encode()) < 1_000_000


def test_the_plotting_library_is_the_published_one() -> None:
    folder = Path(report.__file__).parent / "vendor"
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in folder.glob("*.js")}
    assert hashes == {"d3.min.js": "912111098ea99503", "plot.min.js": "4358086467740777"}
    assert all(name in (folder / "LICENCES.txt").read_text() for name in hashes)


def test_many_groups_have_one_overview_and_common_caveats_once(tmp_path: Path) -> None:
    tables = [make_table(oods=OODS[:2], model=f"m{i}") for i in range(6)]
    found = analyse_table(pd.concat(tables), method="linear", across=("model",))
    page = Page(write_report(found, tmp_path / "report.html"))
    assert len([a for a in page.all("svg") if "aria-hidden" not in a]) == 2 + len(
        [1 for a in page.all("svg") if "by level" in str(a.get("aria-label"))]
    )
    assert found.answers["claim"].sentences[0] in page.words
    assert page.source.count("<li>3 runs: descriptive") == 1
    told = [text for verdict in found.verdicts for text in (verdict.short, *verdict.points)]
    assert all(readable(text) in page.words for text in told)


def test_numbers_of_sets_pairs_steps_and_points_are_those_of_the_table(page: Page) -> None:
    assert "3 test sets make 3 pairs" in page.words
    assert "· 4 steps, 0 to 4" in page.words
    assert "12 points (a run at a step)" in page.words  # three runs
    assert "steps in all" not in page.words


def test_a_caveat_of_several_groups_is_said_once() -> None:
    groups = [Verdict(group={"model": m}, n_runs=3, descriptive=True, sentence="") for m in ("m", "n", "o")]
    said = [*(f"{m}: 9 runs have 3 seeds" for m in "mno"), "m: odd", "of all", "n: even", "o: even"]
    assert report._by_group(said, groups) == ["every group: 9 runs have 3 seeds", "m: odd", "of all", "n and o: even"]


def test_the_contents_lead_to_every_section(page: Page) -> None:
    targets = {str(a["href"])[1:] for a in page.all("a") if str(a["href"]).startswith("#")}
    sections = {str(a["id"]) for a in page.all("section") if "id" in a} - {"verdict", "caveats"}
    assert sections <= targets


def test_of_many_groups_answers_are_folded_and_none_contradicts_the_claim(tmp_path: Path) -> None:
    """Sixteen paragraphs that say nearly the same are no answer; what was tested is not said to be untested."""
    tables = [make_table(oods=OODS[:2], model=f"m-{size}m", runs=10) for size in (9000, 20, 100, 70, 3, 500, 40, 8, 5)]
    found = analyse_table(pd.concat(tables), method="linear", across=("model",), sensitivity=True)
    page = Page(write_report(found, tmp_path / "report.html"))
    section = page.source[page.source.index('<section id="sensitivity"') :].partition("</section>")[0]
    before, _, folded = section.partition("<details>")
    assert "keep their sign and stay significant under every choice" in before
    assert all(readable(sentence) not in before for sentence in found.answers["sensitivity"].sentences)
    assert folded.count("choices of steps") == len(found.answers["sensitivity"].sentences) == 9
    assert "differences between groups are not tested" in found.result.caveats
    assert "differences between groups are not tested" not in page.words
    assert "9 groups, each by itself: " in page.words
    order = re.findall(r'<h2 id="group-\d-title">m-(\d+)m', page.source)
    assert order == ["3", "5", "8", "20", "40", "70", "100", "500", "9000"]  # by size, not by name


def test_static_figures_of_many_points_stay_small(tmp_path: Path) -> None:
    """A point costs the page its place only: its style and three digits less are not repeated."""
    table = make_table(oods=OODS[:2], runs=9, steps=range(1, 301))
    page = make_page(tmp_path, table)
    fits = next(s for s in re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL) if "against in-domain" in s)
    points = fits.count("<use ")
    assert points > 2 * 9 * 299
    assert len(fits) < 70 * points
    paths = [s for s in re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL) if "over the steps" in s]
    assert all(len(s) < 25 * 3 * 9 * 300 for s in paths)
    assert not re.search(
        r' [dxy]="[^"]*[.][0-9]{3}', page.source[: page.source.index('<script type="application/json"')]
    )


def test_models_of_one_checkpoint_are_not_called_runs_at_a_step(tmp_path: Path) -> None:
    page = make_page(tmp_path, make_table(oods=OODS[:2], runs=12, steps=(3,)))
    assert "12 models, one checkpoint each." in page.words
    assert "a run at a step" not in page.words


def test_an_answer_without_rows_has_no_table(tmp_path: Path) -> None:
    found = analyse_table(make_table(oods=OODS[:2], runs=12, steps=(3,)), method="linear", windows=True)
    page = Page(write_report(found, tmp_path / "report.html"))
    assert found.answers["windows"].tables["windows_change"].empty
    assert "Numbers: Does it change" not in page.words


def test_the_tree_says_on_which_side_sets_are_put_together(tmp_path: Path) -> None:
    """r grows to the right, so what meets right of the line is alike."""
    found = analyse_table(make_table(runs=8), method="linear", redundancy=True)
    page = Page(write_report(found, tmp_path / "report.html"))
    assert "What meets to the right of the dotted line (r = .5) is put together." in page.words


def test_a_report_is_not_written_under_the_name_of_another_format(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"a report is one HTML file, which \.pdf is not; name it report\.html"):
        check_report(tmp_path / "report.pdf")
    check_report(tmp_path / "report")


def test_the_subtitle_counts_the_sets_that_a_run_has() -> None:
    """Runs of two train sets: each trains on a set that is an OOD set of the other."""
    names = ("snli", "mnli", "hans", "paws")
    rows = [
        {"run": run, "model": "m", "train_set": run, "step": 1, "test_set": name, "role": "ood"}
        for run in names[:2]
        for name in names
        if name != run
    ]
    table = pd.DataFrame(rows)
    assert " · 3 OOD test sets in each run · " in report._facts(table)
    assert " · up to 3 OOD test sets in a run · " in report._facts(table.iloc[:-1])
    assert " · 3 OOD test sets · " in report._facts(table[table["run"] == "snli"])

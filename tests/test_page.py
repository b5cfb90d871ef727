"""The report in a real browser: it draws, filters, shows intervals, hands out the results as CSV, and asks for nothing.

Screenshots are kept in build/screenshots, for whoever wants to look.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.findings import DRAWN
from benchmarks.report import paper_table
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import oodles as oo
from browser import CHROMIUM, Browser, Page
from conftest import missing
from oodles.show.report import write_report
from oodles.stats.analysis import Analysis, analyse_table

SHOTS = Path(__file__).parent.parent / "build" / "screenshots"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None and not os.environ.get("OODLES_NO_SKIP"), reason="no chromium here"),
]


def study(models: int = 3, odd: str = "hans") -> pd.DataFrame:
    """Three models x three seeds x two sizes, six steps; one set has a name that wants to be markup."""
    draw = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for model in range(models):
        for run in range(6):
            for step in range(6):
                common = draw.normal()
                for k, name in enumerate(("mnli", odd, "paws", "rte")):
                    value = (
                        0.5 + 0.05 * step + 0.02 * (common if model < 2 else (-1) ** k * common) + 0.01 * draw.normal()
                    )
                    about = {
                        "run": f"m{model}_{run}",
                        "model": f"m-{125 * 2**model}m",
                        "train_set": "mnli",
                        "seed": run % 3,
                    }
                    about |= {"shots": 16 * (1 + run // 3), "step": step, "test_set": name, "n": 500}
                    about |= {"role": "ood" if k else "in_domain"}
                    rows.append({**about, "metric": "accuracy", "value": value})
                    rows += [{**about, "metric": f"share:{a}", "value": s} for a, s in (("Yes", 0.4), ("No", 0.6))]
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def hans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    analysis = oo.analyse("bert-hans", sensitivity=True)
    return analysis, write_report(analysis, tmp_path_factory.mktemp("hans") / "report.html")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    asked = dict.fromkeys(("sensitivity", "windows", "redundancy", "stability", "averages"), True)
    kinds = {"hans": "syntax", "paws": "syntax, lexical", "rte": "domain"}
    table = study().assign(tags=lambda t: t["test_set"].map(kinds))
    analysis = analyse_table(table, method="linear", across=("model",), **asked)
    return analysis, write_report(analysis, tmp_path_factory.mktemp("several") / "report.html")


@pytest.fixture(scope="module")
def pythia(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    analysis = oo.analyse("pythia", sensitivity=True, windows=True, redundancy=True, stability=True)
    return analysis, write_report(analysis, tmp_path_factory.mktemp("pythia") / "report.html")


@pytest.fixture(scope="module")
def timm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    analysis = oo.analyse("timm", sensitivity=True, redundancy=True)
    return analysis, write_report(analysis, tmp_path_factory.mktemp("timm") / "report.html")


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    analysis = oo.analyse("smollm2-nli", sensitivity=True, across=("model",))
    return analysis, write_report(analysis, tmp_path_factory.mktemp("smollm2") / "report.html")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    """The study's grid with fewer steps: sixteen groups, 21 pairs."""
    analysis = analyse_table(paper_table(steps=8), method="linear", across=("model",), averages=True)
    return analysis, write_report(analysis, tmp_path_factory.mktemp("many") / "report.html")


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    """Steps from 50 to 201,524, most of them late."""
    table = study(1)
    table["step"] = table["step"].map(dict(enumerate((50, 5550, 11_700, 23_800, 99_000, 201_524))))
    analysis = analyse_table(table, method="linear")
    return analysis, write_report(analysis, tmp_path_factory.mktemp("ladder") / "report.html")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    """Forty test sets."""
    draw = np.random.default_rng(0)
    rows = [
        {"run": f"r{run}", "step": step, "test_set": f"set_{k:02d}", "role": role, "value": value}
        for run in range(5)
        for step in range(4)
        for k, value in enumerate(0.5 + 0.05 * step + 0.02 * draw.normal(size=41))
        for role in ["ood" if k else "in_domain"]
    ]
    analysis = analyse_table(pd.DataFrame(rows), method="linear", within="pooled")
    return analysis, write_report(analysis, tmp_path_factory.mktemp("crowd") / "report.html")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, Path]:
    """Long names, of which three differ only at the end."""
    names = {name: f"Heuristic Analysis for NLI Systems, MATCHED: {name}" for name in ("hans", "paws", "rte")}
    asked = dict.fromkeys(("sensitivity", "windows", "redundancy", "stability", "averages"), True)
    table = study().assign(tags=lambda t: t["test_set"].map({"hans": "a", "paws": "a", "rte": "b"}))
    table["model"] += "-instruct-of-a-long-name"
    table["test_set"] = table["test_set"].replace(names)
    analysis = analyse_table(table, method="linear", across=("model",), **asked)
    return analysis, write_report(analysis, tmp_path_factory.mktemp("long") / "report.html")


def marks(page: Page, view: str, name: str, shape: str = "*") -> int:
    """Marks of a view, once what is below the screen is drawn, too."""
    return int(page.evaluate(f"oodles.flush(), document.querySelectorAll('#{view} .m-{name} {shape}').length"))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["hans", "several"])
def test_it_opens_quietly_at_any_width(browser: Browser, request: Any, which: str, width: int, dark: bool) -> None:
    _, path = request.getfixturevalue(which)
    page = browser.open(path, width=width, dark=dark)
    assert page.troubles == []
    assert page.requests == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.evaluate("oodles.flush()")
    assert page.screenshot(SHOTS / f"{which}-{width}-{'dark' if dark else 'light'}.png").stat().st_size > 10_000
    page.close()


OUTSIDE = """[...document.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width).flatMap((svg) => {
  const own = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width && !text.closest("[aria-label=tip]") && (box.left < own.left - 1 || box.right > own.right + 1
      || box.top < own.top - 1 || box.bottom > own.bottom + 1);
  }).map((text) => [(svg.closest(".view, section") || svg).id, text.textContent]);
})"""


@pytest.mark.parametrize("how", ["1280", "390", "no script"])
@pytest.mark.parametrize("which", ["hans", "several", "long", "pythia", "timm"])
def test_every_label_lies_inside_its_figure(
    browser: Browser, request: pytest.FixtureRequest, which: str, how: str
) -> None:
    script = how != "no script"
    page = browser.open(request.getfixturevalue(which)[1], width=int(how) if script else 1280, script=script)
    page.send("Emulation.setScriptExecutionDisabled", value=False)
    page.evaluate("window.oodles && oodles.flush()")
    assert page.evaluate("document.querySelectorAll('svg text').length") > 50
    assert page.evaluate(OUTSIDE) == []
    page.close()


def test_names_that_differ_only_at_the_end_are_told_apart(browser: Browser, long: tuple[Analysis, Path]) -> None:
    page = browser.open(long[1])
    cells = "[...document.querySelectorAll('#overview .m-values rect')].map((r) => r.getAttribute('y'))"
    assert len(set(page.evaluate(cells))) == 3
    labels = (
        "[...document.querySelectorAll('#overview text')].map((t) => t.textContent).filter((t) => t.includes(' ~ '))"
    )
    assert len(set(page.evaluate(labels))) == 3
    page.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core, as a package of it brings it."""
    if importlib.util.find_spec("axe_playwright_python") is None:
        missing("no axe-core: `make test-all` installs axe-playwright-python into build/oracles")
    return (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["hans", "several"])
def test_axe_finds_no_violation(
    browser: Browser, request: pytest.FixtureRequest, axe: str, which: str, width: int, dark: bool
) -> None:
    page = browser.open(request.getfixturevalue(which)[1], width=width, dark=dark)
    page.evaluate("oodles.flush(), document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    page.evaluate(f"{axe}; 0")
    found = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then((r) => ({passed: r.passes.length, violations:"
        " r.violations.map((v) => [v.id, v.impact, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary])}))"
    )
    assert found["violations"] == []
    assert found["passed"] > 20
    page.close()


def test_every_figure_is_drawn_with_its_marks(browser: Browser, several: tuple[Analysis, Path]) -> None:
    analysis, path = several
    page = browser.open(path)
    pairs = analysis.result.table
    one = pairs[(pairs["model"] == pairs["model"].iloc[0]) & (pairs["within"] == "pooled")]
    assert marks(page, "overview", "values", "rect") == 3 * 3
    assert marks(page, "heatmap", "values", "rect") == len(one)
    assert marks(page, "forest", "estimates", "circle") == 3
    assert marks(page, "trajectories", "runs", "path") == 3 * 6
    assert marks(page, "trajectories", "mean", "path") == 3
    specified = analysis.answers["sensitivity"].tables["sensitivity"]
    known = specified[(specified["model"] == pairs["model"].iloc[0]) & specified["r"].notna()]
    assert marks(page, "specifications", "choices", "path") == len(known) / 3
    points = analysis.result.residuals
    own = points[(points["model"] == pairs["model"].iloc[0]) & (points["within"] == "pooled")]
    assert marks(page, "residuals", "points", "circle") == own["residual"].notna().sum() / 3
    assert marks(page, "fit-a", "fit", "path") == 1
    assert marks(page, "shots-view", "shots", "circle") == 2
    assert marks(page, "shots-view", "others", "path") == 2
    assert marks(page, "averages-view", "averages", "path") == 3
    assert marks(page, "kinds-view", "kinds", "circle") == 3
    assert marks(page, "tree-view", "tree", "path") == 3 * 2  # two merges of three lines
    assert marks(page, "tree-view", "leaves", "text") == 3
    shown = page.evaluate("[...document.querySelectorAll('.view:not([hidden])')].map((v) => v.id)")
    assert {"network", "windows-view", "sizes", "stability-view", "redundancy-view", "pair-trajectories"} <= set(shown)
    named = (
        "[...document.querySelectorAll('.view svg')].map((s) => s.closest('[aria-label]').getAttribute('aria-label'))"
    )
    names = page.evaluate(named)
    assert all(names)
    assert page.evaluate("document.querySelectorAll('g[aria-label]').length") == 0  # named groups need a role
    assert page.evaluate("[...document.querySelectorAll('button')].every((b) => b.textContent.trim())")
    page.close()


def test_filters_change_what_is_drawn_and_the_address_keeps_it(
    browser: Browser, several: tuple[Analysis, Path]
) -> None:
    _, path = several
    page = browser.open(path)
    choose = """(name, value) => {
      const select = document.querySelector(`[data-control="${name}"]`);
      select.value = value;
      const start = performance.now();
      select.dispatchEvent(new Event("change"));
      return performance.now() - start;
    }"""
    page.evaluate("oodles.flush()")
    page.evaluate(f"({choose})('shots', '16')")
    assert marks(page, "trajectories", "runs", "path") == 3 * 3
    page.evaluate(f"({choose})('only:model', 'm-500m')")
    assert marks(page, "overview", "values", "rect") == 3
    before = page.evaluate("document.getElementById('pair-sentence').textContent")
    taken = page.evaluate(f"({choose})('way', 'run')")
    assert page.evaluate("document.getElementById('pair-sentence').textContent") != before
    assert taken < 2000  # a loaded machine; `make bench` has the time of a quiet one
    answer = page.evaluate("document.getElementById('pair-answer').textContent")
    assert answer.startswith("m-500m, trained on mnli: ")
    assert page.evaluate("document.getElementById('pair-sentence').textContent") in answer
    fragment = page.evaluate("location.hash.slice(1)")
    again = browser.open(path, fragment=fragment)
    assert marks(again, "overview", "values", "rect") == 3
    assert again.evaluate("oodles.state.way") == "run"
    assert marks(again, "trajectories", "runs", "path") == 3 * 3
    again.close()
    page.close()


def test_pointing_at_a_cell_shows_its_interval_and_a_click_chooses_it(
    browser: Browser, hans: tuple[Analysis, Path]
) -> None:
    analysis, path = hans
    page = browser.open(path)
    first = analysis.result.table.iloc[0]
    page.hover("#overview .m-values rect")
    tip = page.evaluate("document.querySelector('#overview [aria-label=tip]').textContent")
    assert f"{first['r']:+.2f}".replace("-", "−") in tip
    assert f"[{first['low']:+.2f}, {first['high']:+.2f}]".replace("-", "−") in tip
    page.evaluate("document.querySelector('#overview .m-values rect').dispatchEvent(new Event('click'))")
    told = page.evaluate("document.getElementById('pair-sentence').textContent")
    assert told.startswith(f"{first['a']} and {first['b']} move apart: r = {first['r']:+.2f}".replace("-0", "−0"))
    page.close()


@pytest.mark.parametrize("which", ["hans", "several"])
def test_csv_downloads_are_the_results(browser: Browser, request: Any, which: str) -> None:
    analysis, path = request.getfixturevalue(which)
    page = browser.open(path)
    frames = {"correlations": analysis.result.table, "fits": analysis.result.fits, "changes": analysis.changes}
    for answer in analysis.answers.values():
        frames |= answer.tables
    for name, frame in frames.items():
        if frame.empty:
            continue
        read = pd.read_csv(io.StringIO(page.evaluate(f"oodles.csv({name!r})")))
        assert list(read.columns) == list(frame.columns)
        for column in frame.columns:
            if pd.api.types.is_numeric_dtype(frame[column]) and not pd.api.types.is_bool_dtype(frame[column]):
                np.testing.assert_allclose(
                    read[column].to_numpy(float), frame[column].to_numpy(float), rtol=1e-8, atol=1e-12
                )
    buttons = page.evaluate(
        "[...document.querySelectorAll('button[data-csv]:not([hidden])')].map((b) => b.dataset.csv)"
    )
    assert "correlations" in buttons
    page.close()


def test_tables_sort(browser: Browser, hans: tuple[Analysis, Path]) -> None:
    page = browser.open(hans[1])
    order = page.evaluate("""(() => {
      const tables = [...document.querySelectorAll("#group-1 table.sortable")];
      const table = tables.find((t) => t.caption.textContent === "Partial correlations");
      const heads = [...table.tHead.rows[0].cells];
      const place = heads.findIndex((c) => c.textContent === "r");
      heads[place].querySelector("button").click();
      return [...table.tBodies[0].rows].map((r) => +r.cells[place].dataset.order);
    })()""")
    assert order == sorted(order)
    assert len(order) == 15
    page.close()


@pytest.mark.parametrize("which", ["hans", "several", "pythia", "timm", "smollm2"])
def test_no_table_runs_off_at_1280_pixels_and_columns_stay_apart(
    browser: Browser, request: pytest.FixtureRequest, which: str
) -> None:
    page = browser.open(request.getfixturevalue(which)[1])
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    off = "[...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth + 1)"
    assert page.evaluate(f"{off}.map((s) => s.getAttribute('aria-label'))") == []
    glued = """[...document.querySelectorAll("td.number + td:not(.number), th.number + th:not(.number)")]
      .filter((c) => parseFloat(getComputedStyle(c).paddingLeft) < 8).length"""
    assert page.evaluate(glued) == 0
    page.close()


FIRST = """["overview", "pair-answer"].map((id) => document.getElementById(id))
  .concat(document.querySelector(".verdict")).map((e) => e.getBoundingClientRect())
  .map((box) => [Math.round(box.top), Math.round(box.bottom)])"""


@pytest.mark.parametrize("which", ["hans", "several", "pythia", "timm", "smollm2", "many"])
def test_the_first_screen_has_the_answer_and_all_of_the_overview(
    browser: Browser, request: pytest.FixtureRequest, which: str
) -> None:
    page = browser.open(request.getfixturevalue(which)[1])
    overview, pair, verdict = page.evaluate(FIRST)
    assert verdict[1] < 500
    assert overview[1] <= 800
    assert pair[0] < 820
    page.close()
    phone = browser.open(request.getfixturevalue(which)[1], width=390, height=844)
    overview, _, verdict = phone.evaluate(FIRST)
    assert verdict[1] < overview[0] < 700  # the figure follows the answer, before its details
    phone.close()


def test_the_pair_shown_first_is_the_clearest_of_all_groups(browser: Browser, smollm2: tuple[Analysis, Path]) -> None:
    analysis, path = smollm2
    rows = analysis.result.table.query("within == 'pooled'")
    away = rows["low"].where(rows["r"] > 0, -rows["high"])
    best = rows.loc[away.idxmax()]
    page = browser.open(path)
    answer = page.evaluate("document.getElementById('pair-answer').textContent")
    assert answer.startswith(f"{best['model']}, trained on snli: {best['a']} and {best['b']} ")
    assert page.evaluate("document.querySelectorAll('#pair-answer strong').length") == 2  # names may hold commas
    page.close()


def test_what_would_change_names_only_the_choices_that_were_made(browser: Browser, hans: tuple[Analysis, Path]) -> None:
    page = browser.open(hans[1])
    assert page.evaluate("document.getElementById('pair-change').textContent").startswith(
        "Under 3 choices of method the"
    )
    page.close()


TOUCHING = """[...document.querySelectorAll(SELECTOR)].flatMap((svg) => {
  const boxes = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()])
    .filter(([text, box]) => box.width && text.trim());
  return boxes.flatMap(([text, a], i) => boxes.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
    .map(([other]) => [text, other]));
})"""


@pytest.mark.parametrize(
    ("which", "views"),
    [
        ("many", ["averages-view", "trajectories", "forest"]),
        ("several", ["residuals", "fit-a", "windows-view", "sizes", "shots-view", "kinds-view", "tree-view"]),
        ("several", ["stability-view", "redundancy-view", "network", "specifications"]),
        ("smollm2", ["trajectories", "pair-trajectories"]),
        ("ladder", ["trajectories"]),
        ("crowd", ["overview"]),
    ],
)
def test_labels_do_not_touch(browser: Browser, request: pytest.FixtureRequest, which: str, views: list[str]) -> None:
    for width in (1280, 390) if which == "crowd" else (1280,):
        page = browser.open(request.getfixturevalue(which)[1], width=width)
        page.evaluate("oodles.flush()")
        for view in views:
            assert page.evaluate(f"document.querySelectorAll('#{view} svg').length") > 0
            assert page.evaluate(TOUCHING.replace("SELECTOR", f"'#{view} svg'")) == []
        page.close()


def test_without_scripts_the_static_figures_and_tables_stay(browser: Browser, hans: tuple[Analysis, Path]) -> None:
    page = browser.open(hans[1], script=False)
    page.screenshot(SHOTS / "hans-no-script.png")
    page.send("Emulation.setScriptExecutionDisabled", value=False)  # only to ask; the page was loaded without
    assert page.evaluate("document.documentElement.className") == ""
    shown = "[...document.querySelectorAll('.static svg')].filter((s) => s.getBoundingClientRect().width > 0).length"
    assert page.evaluate(shown) >= 3
    assert page.evaluate("document.getElementById('explore').hidden")
    page.close()


def test_print_has_every_section(browser: Browser, hans: tuple[Analysis, Path]) -> None:
    page = browser.open(hans[1])
    assert page.pdf().startswith(b"%PDF")
    page.send("Emulation.setEmulatedMedia", media="print")
    hidden = """[...document.querySelectorAll("main > section")]
      .filter((s) => s.getBoundingClientRect().height === 0).map((s) => s.id)"""
    assert page.evaluate(hidden) == []
    page.close()


def test_names_from_data_do_nothing(browser: Browser, tmp_path: Path) -> None:
    odd = "<script>window.owned=1</script></script>{{7*7}}<img src=x onerror=owned=2>"
    table = study(2, odd=odd)
    table["test_set"] = table["test_set"].replace("paws", "=cmd|'/c calc'!A1")
    analysis = analyse_table(table, method="linear")
    page = browser.open(write_report(analysis, tmp_path / "odd.html"))
    assert marks(page, "trajectories", "mean", "path") == 3  # no set is lost by its name
    read = pd.read_csv(io.StringIO(page.evaluate("oodles.csv('correlations')")))
    assert {"'=cmd|'/c calc'!A1", odd, "rte"} == {*read["a"], *read["b"]}
    assert page.troubles == []
    assert page.evaluate("window.owned === undefined && document.querySelectorAll('img').length === 0")
    assert odd in page.evaluate(
        "[...document.querySelectorAll('[data-control=pair] option')].map((o) => o.textContent).join()"
    )
    assert not re.search(r"(?<!\d)49(?!\d)", page.evaluate("document.querySelector('[data-control=pair]').textContent"))
    page.close()


PICTURES = {  # of docs/reading-the-report.md and README.md: what is looked at, and how high
    "bert-hans": ("#verdict", 0, 760),
    "report-pair": ("#explore", 10, 900),
    "report-network": ("#network", 130, 620),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_docs_are_of_this_report(browser: Browser, hans: tuple[Analysis, Path], name: str) -> None:
    """Made into build/screenshots; `OODLES_PICTURES=1` puts them into docs/, with the words that they show."""
    selector, above, height = PICTURES[name]
    page = browser.open(hans[1], height=height)
    page.evaluate("oodles.flush()")
    page.evaluate(
        f"document.documentElement.style.scrollBehavior = 'auto'; const e = document.querySelector('{selector}');"
        f" scrollTo(0, '{selector}' === '#verdict' ? 0 : e.getBoundingClientRect().top + scrollY - {above});"
    )
    made = page.screenshot(SHOTS / f"{name}.png", whole=False)
    words = page.evaluate(f"document.querySelector('{selector}').closest('main > *').innerText").split()
    docs = Path(__file__).parent.parent / "docs" / made.name
    if os.environ.get("OODLES_PICTURES"):
        says = PngInfo()
        says.add_text(DRAWN, json.dumps(words))
        with Image.open(made) as image:
            image.save(docs, pnginfo=says, optimize=True)
    with Image.open(docs) as kept, Image.open(made) as image:
        assert kept.size == image.size == (1280, height)
        assert json.loads(kept.info.get(DRAWN, "[]")) == words, "a stale picture: OODLES_PICTURES=1"
    assert len(words) > 100
    page.close()

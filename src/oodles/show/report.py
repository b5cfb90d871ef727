"""Results -> one self-contained HTML file. The report shows what the statistics found and computes nothing itself.

>>> from oodles.show.report import write_report
>>> write_report(analysis, "report.html")  # doctest: +SKIP

Equal input gives equal bytes: no date, no random ids. Nothing is fetched when the file is opened.
"""

from __future__ import annotations

import io
import math
import platform
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import jinja2
import matplotlib
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure

import oodles
from oodles.errors import DataError, StoreError
from oodles.outputs import begins_with, check_target, write_aside
from oodles.show import answers, canvas, card, data, figures, glyphs, groups, heatmap, overview, scatter, tables, words
from oodles.show.numbers import MISSING
from oodles.stats.analysis import Analysis
from oodles.stats.answers import Answer
from oodles.stats.longtable import check_table
from oodles.stats.verdict import Verdict, overall

if TYPE_CHECKING:
    from oodles.stats.correlate import PartialCorrelations

TITLE = "Do these generalisation results generalise?"
OTHER_FORMATS = (  # files that a report is not
    *(".pdf", ".png", ".svg", ".jpg", ".jpeg", ".gif", ".webp", ".eps", ".tex"),
    *(".csv", ".json", ".parquet", ".xlsx", ".docx", ".md", ".txt", ".zip"),
)
GENERATOR = b'name="generator" content="oodles '  # stands in the head of every report
MANY_ROWS = 60  # a longer table is folded; it opens with a click and in print
MANY_SENTENCES = 8  # of one answer; more are folded, too
FEW_GROUPS = 4  # groups up to which each has static figures; of more, the overview has all pairs


@overload
def write_report(analysis: Analysis, path: Path | str, /, *, title: str | None = None) -> Path: ...


@overload
def write_report(
    table: pd.DataFrame | None,
    result: PartialCorrelations | Analysis,
    path: Path | str,
    /,
    *,
    runs: Sequence[Mapping[str, Any]] = (),
    title: str | None = None,
) -> Path: ...


def write_report(
    analysis: Any, path: Any, /, *older: Any, runs: Sequence[Mapping[str, Any]] = (), title: str | None = None
) -> Path:
    """Write the report and return its path: `write_report(analysis, path)`.

    Parameters
    ----------
    analysis
        What `analyse` returned.
    path
        The HTML file; its folder is made if need be. A report that is there is replaced in one step; any other file
        is not.
    older
        The older form is `write_report(table, result, path, runs=...)`: a long table and what `partial_correlations`
        made of it. With an `Analysis` as the result the table may be None: then no trajectories are shown.
    runs
        With the older form: what was run, a mapping each: any of name, model, train_set, shots, seed, pattern, answers,
        recipe, steps, status, versions, seconds, caveats.
    title
        The heading.

    Raises
    ------
    DataError
        There is no table, and the result is no `Analysis`, which would bring its changes.
    StoreError
        The file cannot be written, or another file is in its place.
    """
    if older:
        table, analysis, path = analysis, _as_analysis(analysis, path), older[0]
    else:
        table, runs = analysis.long_table, analysis.runs
        title = title or analysis.title
    check_report(Path(path))
    with glyphs.in_a_browser():
        page = _template().render(_page(table, analysis, runs, title or TITLE))
    return write_aside(Path(path), lambda aside: aside.write_text(page, encoding="utf-8", newline="\n"))


def _as_analysis(table: pd.DataFrame | None, result: PartialCorrelations | Analysis) -> Analysis:
    if isinstance(result, Analysis):
        return result
    if table is None:
        raise DataError(
            "a report without a table of scores needs an Analysis, as analyse() returns or read_results() reads it"
        )
    return Analysis.of(table, result)


def check_report(path: Path) -> None:
    """Refuse to put a report in the place of another file, or under the name of another format."""
    check_target(path, lambda held: begins_with(held, GENERATOR))
    if path.suffix.lower() in OTHER_FORMATS:
        raise StoreError(
            f"{path}: a report is one HTML file, which {path.suffix} is not; name it {path.with_suffix('.html').name},"
            " or write figures and tables for a paper with --assets DIR"
        )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("oodles.show"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["readable"] = words.readable
    environment.filters["breakable"] = _breakable
    return environment.get_template("report.html")


# what the page holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One test set over the steps."""

    name: str
    accuracy: Markup
    share: Markup | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One group: everything that is shown about it."""

    anchor: str
    label: str
    verdict: str
    points: tuple[str, ...]
    descriptive: bool
    caveats: list[str]
    change_figure: Markup | None
    change_sheet: tables.Sheet | None
    cards: list[Card]
    one_step: bool  # many models, one checkpoint each
    fit_figure: Markup | None
    residual_figures: list[Markup]
    heatmaps: list[Markup]
    pairs: tables.Sheet | None
    n_pairs: int
    fits: tables.Sheet | None


def _page(
    table: pd.DataFrame | None, analysis: Analysis, runs: Sequence[Mapping[str, Any]], title: str
) -> dict[str, Any]:
    result = analysis.result
    settings: Mapping[str, Any] = result.settings
    metric = str(settings.get("metric") or "accuracy")
    checked = None if table is None else check_table(table, in_domain=settings.get("in_domain"))[0]
    answer = None if checked is None else _answer(checked, runs)
    verdicts = _verdicts(analysis)
    drawer = _Drawer(
        table=checked,
        found=result,
        changes=analysis.changes,
        metric=metric,
        answer=answer,
        few=len(verdicts) <= FEW_GROUPS,
    )
    sections = [_section(drawer, verdict, i) for i, verdict in enumerate(verdicts)]
    common = _common([section.caveats for section in sections])
    return {
        "title": title,
        "facts": "" if checked is None else _facts(checked),
        "question": analysis.question,
        "source": analysis.source,
        "overall": _overall(analysis, verdicts),
        "groups": tables.groups_sheet(result, verdicts) if len(verdicts) > 1 else None,
        "overviews": drawer.overviews() if len(verdicts) > 1 else [],
        "sections": [
            replace(section, caveats=[line for line in section.caveats if line not in common]) for section in sections
        ],
        "answers": [_further(drawer, further) for further in analysis.answers.values()],
        "caveats": [
            *_remarks(analysis),
            *_by_group(list(dict.fromkeys([*analysis.caveats, *common])), verdicts),
        ],
        "methods": words.methods(result.table, settings) if len(result.table) else "",
        "n_sets": len({*result.table["a"], *result.table["b"]}),
        "data_card": None if checked is None else card.sets_sheet(checked, metric),
        "audit": card.audited(analysis.audit),
        "data": data.page_data(analysis, verdicts, answer=answer, with_table=checked is not None),
        "scripts": [_own_file(f"vendor/{name}.min.js") for name in ("d3", "plot")] if len(result.table) else [],
        "script": _own_file("templates/report.js"),
        "csv": set(data.tables_of(analysis)),
        "answer": answer,
        "metric": metric.replace("_", " ").capitalize(),
        "runs": _what_was_run(runs),
        "settings": {key: _shown(value) for key, value in _flat(settings)},
        "versions": _versions(),
        "oodles_version": oodles.__version__,
        "many_rows": MANY_ROWS,
        "many_sentences": MANY_SENTENCES,
        "view_captions": answers.CAPTIONS,
    }


def _remarks(analysis: Analysis) -> list[str]:
    """What published figures need to be read with; the notes of a run of ours are said where it is told."""
    return list(analysis.notes) if analysis.source else []


def _overall(analysis: Analysis, verdicts: Sequence[Verdict]) -> list[str]:
    """Of several groups: what they say, then the claim across them, a sentence for each of its strata.

    Which pairs carry it is said where the claim has its own section.
    """
    if len(verdicts) < 2:
        return []
    claim = analysis.claim
    return [overall(verdicts), *((claim.brief or claim.sentences) if claim else ())]


def _common(caveats: Sequence[Sequence[str]]) -> list[str]:
    """Caveats of every group, which are said once."""
    return [line for line in caveats[0] if all(line in other for other in caveats)] if caveats else []


def _by_group(caveats: Sequence[str], verdicts: Sequence[Verdict]) -> list[str]:
    """What is said of several groups is said once, with their number or names."""
    names = [f"{', '.join(verdict.group.values())}: " for verdict in verdicts if verdict.group]
    said: dict[str, list[str]] = {}
    for caveat in caveats:
        name = next((name for name in names if caveat.startswith(name)), "")
        said.setdefault(caveat.removeprefix(name), []).append(name.removesuffix(": "))
    return [_of_groups(text, groups, len(names)) for text, groups in said.items()]


def _of_groups(text: str, groups: Sequence[str], every: int) -> str:
    if groups == [""]:
        return text
    if len(groups) <= 2:
        return f"{' and '.join(groups)}: {text}"
    return f"every group: {text}" if len(groups) == every else f"{len(groups)} of {every} groups: {text}"


def _breakable(text: object) -> Markup:
    """A name of the program that a narrow column may break after an underscore or a full stop."""
    return Markup(re.sub(r"([_.])(?=[^\W\d])", r"\1<wbr>", str(escape(text))))


def _own_file(name: str) -> Markup:
    """A file of this package that is part of the page as it is."""
    return Markup((Path(__file__).parent / name).read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Further:
    """The answer to one question beyond correlations."""

    anchor: str
    title: str
    summary: str
    sentences: list[str]
    caveats: list[str]
    figures: list[Markup]
    sheet: tables.Sheet
    tables: list[str]


def _further(drawer: _Drawer, answer: Answer) -> Further:
    return Further(
        anchor=answer.name,
        title=answers.title_of(answer),
        summary=answers.summary_of(answer),
        sentences=list(answer.sentences),
        caveats=list(answer.caveats),
        figures=[drawer.drawn_as(figure, label) for figure, label in answers.plot_answer(answer)],
        sheet=answers.answer_sheet(answer),
        tables=[name for name, frame in answer.tables.items() if len(frame)],
    )


def _verdicts(analysis: Analysis) -> list[Verdict]:
    """A verdict for every group, those without a pair included; models by their size, where it is known."""
    return sorted(analysis.every_verdict, key=lambda verdict: groups.by_size(verdict.group))


def _section(drawer: _Drawer, verdict: Verdict, number: int) -> Section:
    group = verdict.group
    pairs = drawer.rows(drawer.found.table, group)
    changed = drawer.rows(drawer.changes, group)
    fits = drawer.rows(drawer.found.fits, group)
    moved = bool(changed["change"].notna().any())
    one_step = len(pairs) > 0 and bool((pairs["n_steps"] == pairs["n_runs"]).all()) and verdict.n_runs > 1
    return Section(
        anchor=f"group-{number + 1}",
        label=groups.label_of(group),
        verdict=verdict.short,
        points=verdict.points,
        descriptive=verdict.descriptive,
        caveats=_caveats(pairs, changed, known=drawer.found.caveats),
        change_figure=drawer.changes_of(group) if moved and drawer.few else None,
        change_sheet=tables.changes_sheet(figures.by_change(changed.reset_index(drop=True))) if moved else None,
        cards=[] if one_step else list(drawer.cards(group)),
        one_step=one_step,
        fit_figure=drawer.fits(group),
        residual_figures=list(drawer.residuals(group)),
        heatmaps=[drawer.heatmap(group, kind) for kind in dict.fromkeys(pairs["within"])]
        if len(pairs) and drawer.few
        else [],
        pairs=tables.pairs_sheet(drawer.found, group=group, full=True) if len(pairs) else None,
        n_pairs=len(pairs[["a", "b"]].drop_duplicates()) if len(pairs) else 0,
        fits=tables.fits_sheet(drawer.found.fits, group=group) if len(fits) else None,
    )


def _caveats(pairs: pd.DataFrame, changes: pd.DataFrame, known: Sequence[str], most: int = 12) -> list[str]:
    """Each caveat once, with how many pairs it concerns; what the whole report says already is not repeated."""
    common, own = tables.caveat_lines(pairs, changes)
    lines = [line for line in [*common, *own] if line not in known]
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more, beside their numbers"]


def _facts(table: pd.DataFrame) -> str:
    """What was compared, in a line."""
    steps = sorted(table["step"].unique())
    facts = [
        _some(table["model"], "models"),
        _some(table["train_set"], "train sets", before="trained on "),
        _count(table["run"].nunique(), "run"),
        _ood_sets(table[table["role"] == "ood"]),
        _steps(steps),
    ]
    return " · ".join(filter(None, facts))


def _ood_sets(outside: pd.DataFrame) -> str:
    """How many; runs whose train sets differ may each have fewer than there are in all."""
    every, of_runs = outside["test_set"].nunique(), outside.groupby("run")["test_set"].nunique()
    if not every or of_runs.max() == every:
        return _count(every, "OOD test set")
    told = _count(int(of_runs.max()), "OOD test set")
    return f"{told} in each run" if of_runs.min() == of_runs.max() else f"up to {told} in a run"


def _steps(steps: Sequence[float]) -> str:
    if len(steps) > 1:
        return f"{len(steps)} steps, {steps[0]:g} to {steps[-1]:g}"
    return f"step {steps[0]:g}" if steps[0] else "one checkpoint each"  # a table without steps has step 0


def _some(names: pd.Series[Any], what: str, before: str = "") -> str:
    known = list(dict.fromkeys(map(str, names.dropna())))
    return before + ", ".join(known) if len(known) <= 3 and known else f"{len(known)} {what}" if known else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _answer(table: pd.DataFrame, runs: Sequence[Mapping[str, Any]]) -> str | None:
    """The first answer as the runs have it; the table alone does not tell which one is first."""
    answers = [str(a).strip() for run in runs[:1] for a in run.get("answers") or ()]
    return next((a for a in answers[:1] if (table["metric"] == f"share:{a}").any()), figures.first_answer(table))


# figures inside the page


@dataclass(slots=True, kw_only=True, eq=False)
class _Drawer:
    """Draws the figures of the page and numbers them, so that no two share an id."""

    table: pd.DataFrame | None
    found: PartialCorrelations
    changes: pd.DataFrame
    metric: str
    answer: str | None
    few: bool  # whether there is room for figures of every group
    drawn: int = 0

    def overviews(self) -> list[Markup]:
        """Pairs by groups, for every kind of fit."""
        return [
            self._svg(
                overview.plot_overview(self.found, within=kind),
                f"Partial correlations, {kind}: pairs of test sets by groups; the tables have the numbers.",
            )
            for kind in dict.fromkeys(self.found.table["within"])
        ]

    def fits(self, group: Mapping[str, Any]) -> Markup | None:
        """The method itself, if the table of scores is here."""
        if self.table is None or not self.few or not self._has_residuals(group):
            return None
        drawn = scatter.plot_fits(self.found, self.table, group=group)
        return self._svg(drawn, f"{self.metric} on each OOD test set against in-domain, with the fitted curve.")

    def residuals(self, group: Mapping[str, Any]) -> Iterator[Markup]:
        """The clearest pairs."""
        if not self.few or not self._has_residuals(group):
            return
        within = str(self.rows(self.found.residuals, group)["within"].iloc[0])
        for a, b in scatter.clearest(self.found, group, within):
            drawn = scatter.plot_residuals(self.found, a, b, group=group, within=within)
            yield self._svg(drawn, f"Residuals of {a} against those of {b}; the table has their correlation.")

    def _has_residuals(self, group: Mapping[str, Any]) -> bool:
        return len(self.found.residuals) > 0 and len(self.rows(self.found.residuals, group)) > 0

    def rows(self, frame: pd.DataFrame, group: Mapping[str, Any]) -> pd.DataFrame:
        return groups.of_group(frame, group) if len(frame) else frame

    def changes_of(self, group: Mapping[str, Any]) -> Markup:
        label = "Change from the first to the last step per test set, with intervals; the numbers are in the table."
        return self._svg(figures.plot_changes(self.changes, group=group), label)

    def heatmap(self, group: Mapping[str, Any], kind: str) -> Markup:
        pairs = len(self.rows(self.found.table, group)[["a", "b"]].drop_duplicates())
        label = (
            f"Heatmap of the partial correlations of {pairs} pairs of OOD test sets, {kind}; the table has the numbers."
        )
        return self._svg(heatmap.plot_correlations(self.found, group=group, within=kind), label)

    def cards(self, group: Mapping[str, Any]) -> Iterator[Card]:
        if self.table is None or not self.few:
            return
        rows = self.rows(self.table, group)
        shares = set(rows.loc[rows["metric"] == f"share:{self.answer}", "test_set"])
        scores = rows[rows["metric"] == self.metric]
        outside = scores.loc[scores["role"] == "ood", "test_set"].unique()
        for name in outside if len(outside) else scores["test_set"].unique():
            yield Card(
                name=name,
                accuracy=self._accuracy(self.table, group, name),
                share=self._share(self.table, group, name) if name in shares else None,
            )

    def _accuracy(self, table: pd.DataFrame, group: Mapping[str, Any], name: str) -> Markup:
        drawn = figures.plot_trajectories(table, group=group, metric=self.metric, test_sets=[name], bare=True)
        return self._svg(drawn, f"{self.metric} on {name} over the steps, beside in-domain.", wide=True)

    def _share(self, table: pd.DataFrame, group: Mapping[str, Any], name: str) -> Markup:
        drawn = figures.plot_shares(table, group=group, answer=self.answer, test_sets=[name], bare=True)
        return self._svg(drawn, f"Share of {self.answer} on {name} over the steps.", wide=True)

    def drawn_as(self, figure: Figure, label: str) -> Markup:
        return self._svg(figure, label)

    def _svg(self, figure: Figure, label: str, *, wide: bool = False) -> Markup:
        self.drawn += 1
        return _inline(figure, f"f{self.drawn}", label, fixed=not wide)


# Colours that follow the page from light to dark.
_VARIABLES = {
    canvas.INK: "ink",
    canvas.MUTED: "muted",
    canvas.GRID: "grid",
    canvas.OOD: "ood",
    canvas.IN_DOMAIN: "in-domain",
    canvas.SHARE: "share",
}


def _inline(figure: Figure, prefix: str, label: str, *, fixed: bool) -> Markup:
    """A figure as an SVG element that can stand in a page beside others."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "oodles"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's browser has the fonts
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = _compact(_own_ids(svg, prefix))
    for colour, name in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{name})")
    width, height = (72 * inches for inches in figure.get_size_inches())
    style = f"width:100%;min-width:{0.85 * width:.0f}px;max-width:{1.4 * width:.0f}px" if fixed else ""
    opening = Markup('<svg role="img" aria-label="{}" viewBox="0 0 {} {}" style="{}">').format(
        label, f"{width:g}", f"{height:g}", style
    )
    return Markup(re.sub(r"<svg[^>]*>", lambda _: str(opening), svg, count=1).strip())


_COORDINATES = re.compile(r'(?<= )(?:d|x|y)="[^"]*"')
_THOUSANDTHS = re.compile(r"(\.\d\d)\d+")
_STYLE = re.compile(r' style="([^"]*)"/>')
_POINTS = re.compile(r"(<g clip-path=[^>]*)>((?:\s*<use [^>]*/>)+)\s*</g>")


def _compact(svg: str) -> str:
    """The same drawing in fewer bytes: hundredths of a point, and the style of a curve's points said once."""

    def together(points: re.Match[str]) -> str:
        styles = set(_STYLE.findall(points[2]))
        return (
            f'{points[1]} style="{styles.pop()}">{_STYLE.sub("/>", points[2])}</g>' if len(styles) == 1 else points[0]
        )

    svg = _COORDINATES.sub(lambda found: _THOUSANDTHS.sub(r"\1", found[0]), svg)
    return re.sub(r"\n\s*", "\n", _POINTS.sub(together, svg))


def _own_ids(svg: str, prefix: str) -> str:
    """Keep the ids that something refers to, and tell them apart from those of the other figures."""
    svg = svg.replace("xlink:href", "href")
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", svg)


# what was run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    """What all runs share, what tells them apart, and their caveats."""

    count: int
    shared: dict[str, str]
    columns: list[str]
    rows: list[list[str]]
    caveats: list[str]


UNSHOWN = ("caveats", "seconds")  # of a run: told elsewhere; another machine takes another time


def _what_was_run(runs: Sequence[Mapping[str, Any]]) -> _Runs:
    told = [{key: _setting(key, value) for key, value in _flat(run) if key not in UNSHOWN} for run in runs]
    keys = list(dict.fromkeys(key for run in told for key in run))
    shared = [key for key in keys if len({run.get(key) for run in told}) == 1]
    apart = [key for key in keys if key not in shared]
    return _Runs(
        count=len(runs),
        shared={key: told[0][key] for key in shared},
        columns=apart,
        rows=[[run.get(key, MISSING) for key in apart] for run in told] if apart else [],
        caveats=_run_caveats(runs),
    )


def _run_caveats(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    of: dict[str, list[str]] = {}
    for i, run in enumerate(runs):
        for caveat in run.get("caveats") or ():
            of.setdefault(str(caveat), []).append(str(run.get("name", f"run {i + 1}")))
    return [c if len(names) == len(runs) else f"{c} ({', '.join(names)})" for c, names in of.items()]


def _flat(mapping: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """`recipe.epochs` from a mapping inside a mapping."""
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _setting(key: str, value: Any) -> str:
    """No target modules named: those that the model's own attention has."""
    return "the model's attention projections" if key.endswith("lora targets") and not value else _shown(value)


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_shown(v) for v in value) or "none"
    text = str(value)
    return text if text == text.strip() else f"“{text}”"  # a space before an answer matters


def _versions() -> dict[str, str]:
    names = ("numpy", "scipy", "pandas", "matplotlib")
    return {"oodles": oodles.__version__, "Python": platform.python_version(), **{n: _version(n) for n in names}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

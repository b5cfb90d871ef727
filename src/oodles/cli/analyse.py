"""oodles analyse, report: what the scores say."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodles.cli.options import AnalysisOptions, AsJson, ImportOptions, Out, sizes_of, spread
from oodles.cli.printing import answers, note, print_json, tell
from oodles.errors import ConfigError
from oodles.runs.progress import say

if TYPE_CHECKING:
    from oodles.stats.analysis import Analysis


WHAT = (
    "The folder of a study, a finding's name, a table (.csv, .parquet, .xlsx, ...), or other tools' files and folders."
)


@spread
def analyse(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help=WHAT)],
    out: Out = None,
    *,
    options: AnalysisOptions,
    files: ImportOptions,
    caveats: Annotated[
        bool, typer.Option("--caveats", help="Print all caveats, with the number of pairs they concern.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Partial correlations between OOD test sets, with intervals and caveats. No GPU, no torch.

    A table has one row per run x step x test set (columns run, step, test_set, value), or one column per test set;
    further columns such as model, train_set, shots, seed, role, metric and n are used where they are there. Files of
    other tools are recognised: trainer_state.json, TensorBoard, wandb, MLflow, trackio, lm-evaluation-harness,
    lighteval, Inspect, HELM; oodles import --inspect shows what is in them.

    Examples:
        oodles analyse runs/quick --out results
        oodles analyse scores.csv --in-domain mnli --by none
        oodles analyse timm --across architecture --sensitivity
    """
    from oodles.show.terminal import render_terminal
    from oodles.stats.analysis import check_results, write_results

    if out is not None:
        check_results(out, paths)  # before the work
    analysis = analyse_paths(paths, options, files)
    if out is not None:
        for written in write_results(analysis, out):
            say(f"wrote {written}")
    if as_json:
        print_json(_as_json(analysis))
    else:
        with answers() as console:
            render_terminal(analysis, console, caveats=caveats)


@spread
def report(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help=f"{WHAT} Analysis results, too.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; default report.html in the folder, or here.")
    ] = None,
    *,
    options: AnalysisOptions,
    files: ImportOptions,
    assets: Annotated[
        Path | None,
        typer.Option("--assets", metavar="DIR", help="Also write every figure and table for a paper into this folder."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Ask every further question: windows, redundancy, stability, skill.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML report: the answer, figures to look closer, tables, what was run.

    Beside correlations it asks whether they depend on the model, where there are several, and whether conclusions
    survive other choices. Results that oodles analyse --out wrote are shown as they are.

    Examples:
        oodles report runs/quick
        oodles report scores.csv --in-domain mnli --by none --out report.html
        oodles report results
    """
    from oodles.show.assets import write_assets
    from oodles.show.report import check_report, write_report

    target = out or (_own_folder(paths) / "report.html")
    check_report(target)  # before the work
    analysis = analyse_paths(paths, _asking(paths, options, full=full), files)
    made = [] if assets is None else write_assets(analysis, assets)
    written = write_report(analysis, target)
    if as_json:
        print_json({"report": str(written), "assets": [str(path) for path in made]})
        return
    tell(str(written))
    if assets is not None:
        tell(f"{assets}: {len(made)} files; README.tex shows them all")


def analyse_paths(paths: list[Path], options: AnalysisOptions, files: ImportOptions) -> Analysis:
    """The analysis of what was named; what was left out or assumed is told."""
    from oodles.api.analyse import analyse as analyse_source

    about = {name: value for name, value in asdict(files).items() if value}
    analysis = analyse_source(
        paths, **{**asdict(options), **about, "by": _groups(options.by), "n": sizes_of(options.n)}
    )
    note(analysis.notes)
    return analysis


def _asking(paths: list[Path], options: AnalysisOptions, *, full: bool) -> AnalysisOptions:
    """A report asks more than was named: across models, by shots, other choices. Results on disk stay as they are."""
    from oodles.stats.analysis import SUMMARY
    from oodles.stats.questions import AUTO

    if len(paths) == 1 and (paths[0] / SUMMARY).is_file():
        return options
    more: dict[str, Any] = {"sensitivity": True if options.sensitivity is None else options.sensitivity}
    more |= {"averages": AUTO if options.averages is None else options.averages}
    more |= dict.fromkeys(("windows", "redundancy", "stability", "skill"), True) if full else {}
    return replace(options, across=options.across or [AUTO], **more)


def _as_json(analysis: Analysis) -> Any:
    """Verdict, caveats, pairs, and what else was asked."""
    answers = {
        name: {
            "sentences": answer.sentences,
            "caveats": answer.caveats,
            **{table: json.loads(frame.to_json(orient="records")) for table, frame in answer.tables.items()},
        }
        for name, answer in analysis.answers.items()
    }
    return {
        "verdict": analysis.verdict,
        "verdicts": [asdict(verdict) for verdict in analysis.every_verdict],
        "caveats": list(analysis.caveats),
        "pairs": json.loads(analysis.result.table.to_json(orient="records")),
        "answers": answers,
    }


def _own_folder(paths: list[Path]) -> Path:
    """The folder, if oodles wrote it; other tools' folders are left as they are."""
    from oodles.stats.analysis import SUMMARY
    from oodles.store.folder import StudyFolder

    ours = len(paths) == 1 and (StudyFolder(paths[0]).is_study or (paths[0] / SUMMARY).is_file())
    return paths[0] if ours else Path()


def _groups(by: list[str] | None) -> list[str] | None:
    """`--by none`, or an empty one, is no grouping."""
    columns = [column for column in by or () if column not in ("", "none")]
    if by and columns and len(columns) < len(by):
        raise ConfigError(f"--by none: no grouping, but --by {columns[0]} is given, too; leave one of them out")
    return by if by is None else columns

"""oodles analyse, report: what the scores say."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodles.cli.options import AnalysisOptions, AsJson, Out, spread
from oodles.cli.printing import note, print_json, tell, wide_console
from oodles.errors import ConfigError
from oodles.runs.progress import say

if TYPE_CHECKING:
    from oodles.stats.analysis import Analysis


@spread
def analyse(
    path: Annotated[
        Path, typer.Argument(help="The folder of a study, a long table (.parquet or .csv), or a finding's name.")
    ],
    out: Out = None,
    *,
    options: AnalysisOptions,
    as_json: AsJson = False,
) -> None:
    """Partial correlations between OOD test sets, with intervals and caveats. No GPU, no torch.

    A long table has one row per run x step x test set: columns run, step, test_set, value; and model, train_set, shots,
    seed, role (in_domain or ood), metric, n where they are known.

    Examples:
        oodles analyse runs/quick --out results
        oodles analyse scores.csv --in-domain mnli --by none
        oodles analyse timm --across architecture --sensitivity
    """
    from oodles.show.terminal import render_terminal
    from oodles.stats.analysis import check_results, write_results

    if out is not None:
        check_results(out, [path])  # before the work
    analysis = analyse_path(path, options)
    if out is not None:
        for written in write_results(analysis, out):
            say(f"wrote {written}")
    if as_json:
        print_json(_as_json(analysis))
    else:
        render_terminal(analysis, wide_console())


@spread
def report(
    path: Annotated[
        Path,
        typer.Argument(
            help="The folder of a study, a long table (.parquet or .csv), analysis results, or a finding's name."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; default report.html in the folder, or here.")
    ] = None,
    *,
    options: AnalysisOptions,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML report: verdict, trajectories, correlations, how to read it, what was run.

    Examples:
        oodles report runs/quick
        oodles report scores.csv --in-domain mnli --by none --out report.html
        oodles report results
    """
    from oodles.show.report import check_report, write_report

    target = out or ((path if path.is_dir() else Path()) / "report.html")
    check_report(target)  # before the work
    written = write_report(analyse_path(path, options), target)
    if as_json:
        print_json({"report": str(written)})
    else:
        tell(str(written))


def analyse_path(path: Path, options: AnalysisOptions) -> Analysis:
    """The analysis of a path; what was left out is told."""
    from oodles.api.analyse import analyse as analyse_source

    analysis = analyse_source(path, **{**asdict(options), "by": _groups(options.by)})
    note(analysis.notes)
    return analysis


def _as_json(analysis: Analysis) -> Any:
    """The pairs; where more was asked, the pairs and the answers."""
    pairs = json.loads(analysis.result.table.to_json(orient="records"))
    if not analysis.answers:
        return pairs
    answers = {
        name: {
            "sentences": answer.sentences,
            "caveats": answer.caveats,
            **{table: json.loads(frame.to_json(orient="records")) for table, frame in answer.tables.items()},
        }
        for name, answer in analysis.answers.items()
    }
    return {"correlations": pairs, "answers": answers}


def _groups(by: list[str] | None) -> list[str] | None:
    """`--by none`, or an empty one, is no grouping."""
    columns = [column for column in by or () if column not in ("", "none")]
    if by and columns and len(columns) < len(by):
        raise ConfigError(f"--by none: no grouping, but --by {columns[0]} is given, too; leave one of them out")
    return by if by is None else columns

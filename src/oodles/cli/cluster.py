"""oodles run --where slurm, oodles cancel: a study on a cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodles.cli.options import AsJson, PlaceOptions, RunOptions
from oodles.cli.printing import left_out, print_json, say_left_out, tell
from oodles.cli.results import answering
from oodles.contracts import Study
from oodles.errors import ConfigError
from oodles.runs.progress import say

if TYPE_CHECKING:
    from oodles.study.grid import Grid
    from oodles.study.slurm import Choice
    from oodles.study.worker import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A study as it was named on the command line."""

    study: str
    override: list[str]
    data: Path | None

    def options(self) -> tuple[str, ...]:
        """What the scripts must repeat."""
        given = [word for one in self.override for word in ("--set", one)]
        return (*given, *(("--data", str(self.data.absolute())) if self.data else ()))


def run_on_slurm(
    study: Study, asked: Asked, root: Path, options: RunOptions, place: PlaceOptions, *, dry_run: bool, as_json: bool
) -> None:
    """Submit what is missing and not queued, or print the scripts."""
    from oodles.study.grid import expand, expand_for_costs, select
    from oodles.study.launch import begin, check_device_map, check_place
    from oodles.study.load import load_slurm
    from oodles.study.slurm import choose, submit
    from oodles.study.worker import Policy

    if options.workers > 1 or options.requeue is not None:
        raise ConfigError("--where slurm: --workers and --requeue are for runs made here; leave them out")
    study = replace(study, slurm=load_slurm(place.slurm, study.slurm)) if place.slurm else study
    how = Policy(options.retry, options.verify)
    grid = select(
        (expand_for_costs(study, root) if dry_run else expand(study)), options.only or (), options.shots or ()
    )
    if dry_run:
        check_place(grid, root)
        _print_scripts(grid, asked, root, choose(grid, root, how), how, as_json)
        return
    check_device_map(grid, root, how)
    begin(grid, root, options.allow or (), here=False)
    done = submit(grid, root, how)
    if as_json:
        arrays = [{"array": number, "jobs": len(a.shares), "runs": a.runs} for number, a in done.arrays]
        print_json({"out": str(root), "arrays": arrays, **_as_counts(done.choice)})
    else:
        for number, array in done.arrays:
            tell(f"array {number}: {len(array.shares)} jobs, {array.runs} runs")
        tell(f"{_counted(done.choice)}; next: oodles status {root}")
    say_left_out(done.choice)
    if done.choice.refused:
        raise typer.Exit(2)
    if done.choice.failed_before:
        raise typer.Exit(1)


def _print_scripts(grid: Grid, asked: Asked, root: Path, choice: Choice, how: Policy, as_json: bool) -> None:
    """What would be submitted; the scripts run the study's own file, and can be submitted by hand."""
    from oodles.study.load import find_study
    from oodles.study.slurm import Place, check_models, options_of, plan_arrays, script_of, tasks_of

    slurm = grid.study.slurm
    check_models(grid, slurm)
    here = Place(
        study=str(find_study(asked.study).absolute()),
        root=root,
        name=grid.study.name,
        options=(*asked.options(), *options_of(how)),
    )
    planned = plan_arrays(choice.submit, slurm)
    scripts = [(array, script_of(array, here, slurm, tasks=tasks_of(grid.study, array.asks))) for array in planned]
    if as_json:
        arrays = [{"jobs": len(a.shares), "runs": a.runs, "script": text} for a, text in scripts]
        print_json({"out": str(root), "arrays": arrays, **_as_counts(choice)})
        return
    for number, (array, text) in enumerate(scripts, start=1):
        say(f"array {number} of {len(scripts)}: {len(array.shares)} jobs, {array.runs} runs")
        with answering():
            print(text)
    say(f"{_counted(choice, 'would be submitted')}; nothing was submitted")
    if scripts:
        say(f"by hand: mkdir -p {root.absolute() / 'slurm'}, and sbatch a script")
    say_left_out(choice)


def _counted(choice: Choice, done: str = "submitted") -> str:
    told = f"{len(choice.submit)} runs {done}, {len(choice.done)} finished before, {len(choice.queued)} queued"
    return told + (f", {len(choice.failed_before)} failed before" if choice.failed_before else "")


def _as_counts(choice: Choice) -> dict[str, Any]:
    return {
        "submitted": [job.spec.name for job in choice.submit],
        "done": choice.done,
        "queued": [{"run": name, "job": job} for name, job in choice.queued],
        **left_out(choice),
    }


def cancel(
    folder: Annotated[Path, typer.Argument(help="The folder of a study.")],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only jobs with runs of these names, with * and ?. May be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Cancel the jobs of a study that wait or run on SLURM. What is committed stays; the same `run` resumes it.

    Examples:
        oodles cancel runs/quick
        oodles cancel runs/quick --only "*_0_8"
    """
    from oodles.store.folder import study_folder
    from oodles.study.slurm import cancel as cancel_jobs

    study_folder(folder)
    cancelled = cancel_jobs(folder, only or ())
    if as_json:
        print_json([{"job": job, "runs": runs} for job, runs in cancelled.items()])
    else:
        tell(f"{len(cancelled)} jobs cancelled, with {sum(map(len, cancelled.values()))} runs")

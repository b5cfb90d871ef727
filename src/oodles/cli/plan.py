"""oodles plan: how many runs for a wanted precision."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodles.cli.analyse import analyse_paths
from oodles.cli.options import AnalysisOptions, AsJson, ImportOptions, spread
from oodles.cli.printing import print_json, print_table, tell, waiting
from oodles.errors import ConfigError
from oodles.runs.progress import duration

if TYPE_CHECKING:
    import pandas as pd

    from oodles.stats.analysis import Analysis


PATIENCE = 3.0  # seconds in which the hub must answer


@spread
def plan(
    half_width: Annotated[float, typer.Option("--half-width", help="Wanted half width of an interval of r.")] = 0.2,
    pilot: Annotated[
        Path | None, typer.Option("--pilot", help="A study's folder, a long table or a finding's name.")
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="What the runs would cost: a study's file or name, as in a dry run.")
    ] = None,
    rho: Annotated[float, typer.Option("--rho", help="Without a pilot: the correlation.")] = 0.0,
    residual_sd: Annotated[float, typer.Option("--residual-sd", help="Without a pilot: sd of a residual.")] = 0.025,
    memory: Annotated[
        float, typer.Option("--memory", help="Without a pilot: how long a residual lasts, in runs.")
    ] = 0.1,
    spread_of_runs: Annotated[
        float, typer.Option("--spread", help="Without a pilot: sd over runs of Fisher's z.")
    ] = 0.3,
    steps: Annotated[int, typer.Option("--steps", help="Without a pilot: evaluated steps of a run.")] = 20,
    examples: Annotated[int, typer.Option("--examples", help="Without a pilot: examples per test set.")] = 2000,
    *,
    options: AnalysisOptions,
    as_json: AsJson = False,
) -> None:
    """How many runs does a wanted precision take? From a pilot, or from stated assumptions.

    Examples:
        oodles plan --pilot pythia --half-width .2
        oodles plan --half-width .2 --rho .5 --steps 40
        oodles plan --pilot pythia --study quick
    """
    if not 0 < half_width < 1:
        raise ConfigError(f"--half-width {half_width:g}: expected a number between 0 and 1, such as .2")
    if pilot is None:
        _assumed(half_width, as_json, study, rho, residual_sd, memory, spread_of_runs, steps, examples)
        return
    from oodles.api.plan import plan as plan_for

    analysis = analyse_paths([pilot], options, ImportOptions())
    answer = plan_for(analysis, half_width)
    table = answer.tables["plan"]
    costs = [] if study is None else _costs(study, _most_runs(table, _by(analysis)))
    if as_json:
        rows = json.loads(table.to_json(orient="records"))
        told = {"sentences": answer.sentences, "plan": rows, "seconds_per_run": _mean(_seconds(analysis).values())}
        print_json(told | ({} if study is None else {"cost": [asdict(cost) for cost in costs]}))
        return
    units = "runs" if answer.settings["unit"] == "run" else "units"
    told_costs = _study_costs(costs, units) if study else _pilot_costs(analysis, table)
    tell("\n".join([*answer.sentences, *told_costs, ""]))
    groups = [name for name in _by(analysis) if table[name].nunique() > 1]
    _print_pairs(table, groups, units)


def _most_runs(table: pd.DataFrame, by: list[str]) -> float:
    """Of the median pairs that the sentences name, the one that takes most; nan where the pilot cannot tell."""
    return float(table.groupby([*by, "within"], dropna=False)["runs"].median().max())


def _study_costs(costs: list[RunsCost], units: str) -> list[str]:
    if not costs:
        return ["What runs cost is not told: the pilot does not tell how many it takes."]
    several = ["A unit of the pilot may be several runs: these are the costs of one run for each."]
    return [*map(str, costs), *(several if units == "units" else [])]


def _print_pairs(table: pd.DataFrame, groups: list[str], units: str) -> None:
    shown = [
        [*(str(row[name]) for name in groups), f"{row['a']} ~ {row['b']}", row["within"], f"{row['r']:+.2f}"]
        + [str(row["units"]), f"{row['half_width']:.2f}"]
        + [_runs(row[name]) for name in ("runs", "runs_low", "runs_high")]
        for row in table.to_dict("records")
    ]
    columns = [*groups, "pair", "within", "r", f"pilot {units}", "half width now", f"{units} needed"]
    columns += ["at least", "at most"]
    print_table("", columns, shown)


def _by(analysis: Analysis) -> list[str]:
    return list(analysis.result.settings["by"])  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsCost:
    """What a number of runs of one group of a study would cost on this machine, by its dry run."""

    group: str
    runs: int
    tokens: int  # computed to score and to train
    arithmetic: float | None  # floating-point operations
    seconds_low: float | None
    seconds_high: float | None

    def __str__(self) -> str:
        text = f"{self.group}: {self.runs} runs compute {self.tokens:,} tokens"
        if self.arithmetic is None or self.seconds_low is None or self.seconds_high is None:
            return f"{text}; time is not estimated without the model"
        low, high = duration(self.seconds_low), duration(self.seconds_high)
        return f"{text}, {self.arithmetic / 1e12:,.0f} TFLOP, {low} to {high} on this machine (estimate)"


def _costs(name: str, runs: float) -> list[RunsCost]:
    """So many runs of each group of a study, counted and estimated as `oodles run --dry-run` does."""
    if not math.isfinite(runs):
        return []
    from oodles.model.load import require_training
    from oodles.study.grid import expand_for_costs
    from oodles.study.load import load_study
    from oodles.suite.hub import one_attempt

    require_training("oodles plan --study")
    from oodles.study.budget import budget_of, rows

    with one_attempt(PATIENCE), waiting() as show:
        study = load_study(name)
        budget = budget_of(expand_for_costs(study, Path("runs") / study.name), say=show)
    found = []
    for row in rows(budget):
        each, count = row.each, math.ceil(runs)
        known = None if math.isnan(each.arithmetic) else (each.arithmetic, each.seconds_low, each.seconds_high)
        arithmetic, low, high = (None,) * 3 if known is None else (count * one for one in known)
        model, train_set, _, shots = row.group
        tokens = count * (each.computed_tokens + each.training_tokens)
        found.append(
            RunsCost(
                group=f"{model}, {train_set}, {shots} shots",
                runs=count,
                tokens=tokens,
                arithmetic=arithmetic,
                seconds_low=low,
                seconds_high=high,
            )
        )
    return found


def _runs(number: float) -> str:
    return f"{number:.0f}" if math.isfinite(number) else "-"


def _seconds(analysis: Analysis) -> dict[str, float]:
    """How long the finished runs of the pilot took, where its folder says so."""
    finished = [run for run in analysis.runs if run.get("status") == "done" and run.get("seconds")]
    return {str(run["name"]): float(run["seconds"]) for run in finished}


def _mean(times: Iterable[float]) -> float | None:
    known = list(times)
    return sum(known) / len(known) if known else None


def _pilot_costs(analysis: Analysis, table: pd.DataFrame) -> list[str]:
    """What the runs of the median pair would take, each as long as a run of the pilot in its group."""
    from oodles.stats.series import grouped

    took, planned = _seconds(analysis), list(grouped(table, _by(analysis)))
    if not took:
        return ["What runs cost: --study STUDY estimates it from the study's file."]
    lines = []
    for group, scores in grouped(analysis.long_table, _by(analysis)):
        names = list(scores["run"].unique())
        each = _mean(took[name] for name in names if name in took)
        pairs = next((own for named, own in planned if named == group), None)
        if each is not None and pairs is not None:
            of_runs = int(pairs["units"].max()) == len(names)  # otherwise a unit is more than a run
            total = _total(pairs, each) if of_runs else ""
            where = ", ".join(group.values()) or "all runs"
            lines.append(f"{where}: a run of the pilot took {duration(each)} on its machine{total}.")
    return lines


def _total(pairs: pd.DataFrame, each: float) -> str:
    """How long the runs of the median pair take, over the ways of pooling."""
    medians = pairs.groupby("within")["runs"].median()
    if not medians.map(math.isfinite).all():
        return ""
    runs = sorted({math.ceil(number) for number in (medians.min(), medians.max())})
    times = [duration(each * number) for number in runs]
    return f"; {' to '.join(map(str, runs))} runs take {' to '.join(times)}, one after the other"


def _assumed(
    half_width: float,
    as_json: bool,
    study: str | None,
    rho: float,
    residual_sd: float,
    memory: float,
    spread_of_runs: float,
    steps: int,
    examples: int,
) -> None:
    from oodles.stats.planning import Assumed, assumed_runs, plain_number

    for name, value, fits in (
        ("--rho", rho, -1 < rho < 1),
        ("--residual-sd", residual_sd, 0 < residual_sd <= 1),
        ("--memory", memory, 0 <= memory <= 1),
        ("--spread", spread_of_runs, 0 <= spread_of_runs <= 10),
        ("--steps", steps, steps >= 1),
        ("--examples", examples, examples >= 1),
    ):
        if not fits:
            raise ConfigError(f"{name} {value:g}: out of range; see oodles plan --help")
    assumed = Assumed(
        rho=rho, residual_sd=residual_sd, memory=memory, spread=spread_of_runs, steps=steps, examples=examples
    )
    runs = assumed_runs(assumed, half_width)
    costs = [] if study is None else _costs(study, runs)
    if as_json:
        told = {"runs": runs if math.isfinite(runs) else None, "half_width": half_width, **asdict(assumed)}
        print_json(told | ({} if study is None else {"cost": [asdict(cost) for cost in costs]}))
        return
    answer = (
        f"A half width of {half_width:g} takes {plain_number(runs)} runs, if the correlation is {rho:g}, residuals"
        f" have an sd of {residual_sd:g} and last {memory:g} of a run, runs differ by {spread_of_runs:g} (sd of"
        f" Fisher's z), and a run has {steps} steps on test sets of {examples} examples. A pilot tells these: oodles"
        " plan --pilot FOLDER."
    )
    tell("\n".join([answer, *map(str, costs)]))

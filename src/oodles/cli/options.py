"""Options that several verbs share, and records of options that a command takes as one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from oodles.contracts import Study
from oodles.errors import ConfigError, shown

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key of the study, e.g. --set train.epochs=5. May be repeated."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder with copies of hub data sets, <test set>/<split>.parquet; default $OODLES_DATA."
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="CODE", help="Let the study continue despite this audit error. May be repeated."),
]

InDomain = Annotated[
    list[str] | None,
    typer.Option(
        "--in-domain", help="An in-domain test set, for tables without a role column. May be repeated: all of them."
    ),
]
TestSets = Annotated[
    list[str] | None,
    typer.Option(
        "--test-set",
        help="Only these test sets, beside the in-domain ones; a slice such as hans/lexical_overlap is one, too."
        " May be repeated.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisOptions:
    """How scores are analysed; None: the default of `oo.analyse`, whose keywords these are."""

    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="How in-domain scores are regressed out: gam (default), linear, probit-linear, logit-linear.",
        ),
    ] = None
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--within", help="pooled, run (own level per run) or separate (own fit per run); default pooled and run."
        ),
    ] = None
    interval: Annotated[
        str | None,
        typer.Option(
            "--interval",
            help="jackknife (default), t, run-mean, bootstrap, bootstrap-percentile, naive; see docs/statistics.md.",
        ),
    ] = None
    correlation: Annotated[str | None, typer.Option("--correlation", help="pearson (default) or spearman.")] = None
    metric: Annotated[str | None, typer.Option("--metric", help="Which metric of the table; default accuracy.")] = None
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            help="Column that makes a group; default model and train_set. May be repeated; none: one group of all"
            " runs.",
        ),
    ] = None
    unit: Annotated[str | None, typer.Option("--unit", help="Column that says what is independent; default run.")] = (
        None
    )
    in_domain: InDomain = None
    test_sets: TestSets = None
    chance: Annotated[
        float | None, typer.Option("--chance", help="Score of guessing in-domain; default the table's column chance.")
    ] = None
    n: Annotated[
        list[str] | None,
        typer.Option(
            "--n",
            metavar="TEST_SET=NUMBER",
            help="How many examples a test set has, for tables without a column n. May be repeated; the in-domain set"
            " matters most: its noise makes correlations.",
        ),
    ] = None
    exact: Annotated[
        bool | None,
        typer.Option("--exact", help="Take in-domain scores as free of noise where it is not known."),
    ] = None
    shared_start: Annotated[
        str | None,
        typer.Option(
            "--shared-start",
            help="drop (default) or keep the points that are identical in several runs: the untrained model at step 0.",
        ),
    ] = None
    across: Annotated[
        list[str] | None,
        typer.Option(
            "--across",
            help="Does it depend on this column, e.g. model, whether test sets agree? May be repeated.",
        ),
    ] = None
    sensitivity: Annotated[
        bool | None, typer.Option("--sensitivity", help="In how many defensible analyses does each conclusion hold?")
    ] = None
    windows: Annotated[
        bool | None, typer.Option("--windows", help="Do correlations change in the course of training?")
    ] = None
    redundancy: Annotated[bool | None, typer.Option("--redundancy", help="Which test sets are needed?")] = None
    stability: Annotated[bool | None, typer.Option("--stability", help="How steady are the models?")] = None
    skill: Annotated[bool | None, typer.Option("--skill", help="Do test sets agree in skill, or in answers?")] = None
    averages: Annotated[
        bool | None, typer.Option("--averages", help="Correlations by model size and number of shots.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What a user says about files of other tools; None: what the files say."""

    format: Annotated[
        str | None, typer.Option("--format", help="The format of other tools' files; default: recognised.")
    ] = None
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="FIELD=COLUMN|FILE",
            help="The column, or key of a run's config, that holds a field (run, step, test_set, value, model,"
            " train_set, shots, seed), e.g. --map run=Name; or a table with a column run and what is known of each run."
            " May be repeated.",
        ),
    ] = None
    names: Annotated[
        str | None,
        typer.Option("--names", help="How runs are named, e.g. '{model}_{train_set}_{seed}_{shots}'."),
    ] = None
    keys: Annotated[
        str | None, typer.Option("--keys", help="How metrics are named, e.g. 'eval/{test_set}_{metric}'.")
    ] = None
    preset: Annotated[
        str | None, typer.Option("--preset", help="paper: names of runs and metrics as in the study of the paper.")
    ] = None
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask wandb again, though its answer is cached.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Which runs are made, and how: the keywords of `oo.run`."""

    allow: Allow = None
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Only these runs: names of runs or models, with * and ?. May be repeated."),
    ] = None
    shots: Annotated[list[int] | None, typer.Option("--shots", help="Only runs of this size. May be repeated.")] = None
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Processes that share the runs; cores and GPUs are handed out.")
    ] = 1
    retry: Annotated[bool, typer.Option("--retry-failed", help="Try runs again that failed before.")] = False
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read all records and adapters of finished runs; recompute damaged records."),
    ] = False
    requeue: Annotated[
        float | None,
        typer.Option(
            "--requeue",
            metavar="SECONDS",
            min=0,
            help="In a SLURM job: told that it ends, stop resumably, for SECONDS at most, and queue the job again.",
        ),
    ] = None


class Where(StrEnum):
    """Where runs are made."""

    here = "here"
    slurm = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOptions:
    """Where the runs are made."""

    where: Annotated[
        Where, typer.Option("--where", help="here, or slurm: as job arrays of a cluster; see [slurm] of the study.")
    ] = Where.here
    slurm: Annotated[
        Path | None, typer.Option("--slurm", metavar="FILE", help="A TOML with the keys of [slurm], for your cluster.")
    ] = None


def names_of_suites(begun: str) -> list[str]:
    """Built-in suites, for shell completion."""
    from oodles.suite.load import list_suites

    return [name for name in list_suites() if name.startswith(begun)]


def names_of_studies(begun: str) -> list[str]:
    """Shipped studies, for shell completion."""
    from oodles.study.load import shipped_studies

    return [name for name in shipped_studies() if name.startswith(begun)]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes the fields of its parameters that are records as options of its own.

    typer reads a command's signature, which is replaced here; the command itself is called with the records.
    """
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    records: dict[str, Any] = {p.name: p.annotation for p in parameters if is_dataclass(p.annotation)}
    options = [option for p in parameters for option in (_fields(p.annotation) if p.name in records else [p])]

    @functools.wraps(command)
    def spread_out(**given: Any) -> None:
        for name, record in records.items():
            given[name] = record(**{field.name: given.pop(field.name) for field in fields(record)})
        command(**given)

    keywords = [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    spread_out.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    spread_out.__annotations__ = {option.name: option.annotation for option in options}
    return spread_out


def _fields(record: Callable[..., Any]) -> list[inspect.Parameter]:
    """The fields of a record, as parameters of a command."""
    return list(inspect.signature(record, eval_str=True).parameters.values())


def sizes_of(given: list[str] | None) -> dict[str, int] | None:
    """How many examples test sets have, from `--n snli=9842`."""
    sizes: dict[str, int] = {}
    for text in given or ():
        name, _, number = text.rpartition("=")
        if not name or not (number.isascii() and number.isdecimal()) or len(number) > 15:
            raise ConfigError(f"--n {shown(text)}: expected TEST_SET=NUMBER, such as --n snli=9842")
        if sizes.setdefault(name, int(number)) != int(number):
            raise ConfigError(f"--n {shown(text)}: {name} has {sizes[name]} examples already; give one number")
    return sizes or None


def study_of(study: str, override: list[str] | None, data: Path | None) -> Study:
    """The study of this name or file, with what --set and --data change."""
    from oodles.study.load import load_study

    loaded = load_study(study, override or ())
    return replace(loaded, data=str(data)) if data else loaded

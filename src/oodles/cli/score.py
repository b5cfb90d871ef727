"""oodles score: models that are trained already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from oodles.cli.options import Allow, AsJson, Data, Out, names_of_suites, spread
from oodles.cli.printing import interruptible, print_json, tell
from oodles.contracts import Suite
from oodles.errors import ConfigError
from oodles.runs.progress import say

if TYPE_CHECKING:
    from oodles.runs.checkpoints import Scored


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """What is scored, on what, and where it is written."""

    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="A preset, an embedded name, a folder or a hub id; may be left out for adapters that name it.",
        ),
    ] = None
    adapter: Annotated[Path | None, typer.Option("--adapter", help="A LoRA adapter on top of the model.")] = None
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoints", help="A folder of checkpoint-N or step-N: adapters or whole models, one step each."
        ),
    ] = None
    suite: Annotated[
        str | None,
        typer.Option("--suite", autocompletion=names_of_suites, help="A built-in suite or the path of a TOML."),
    ] = None
    in_domain: Annotated[
        str, typer.Option("--in-domain", help="The test set that is in-domain for what the model was trained on.")
    ] = ""
    test_set: Annotated[
        list[str] | None, typer.Option("--test-set", help="Only these test sets or slices. May be repeated.")
    ] = None
    pattern: Annotated[str, typer.Option("--pattern", help="Which pattern of the suite; default the first.")] = ""
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="A fixed sample of each OOD test set.")] = None
    precision: Annotated[
        str, typer.Option("--precision", help="auto (as the weights are published), fp32, bf16 or fp16.")
    ] = "auto"
    device_map: Annotated[
        str | None,
        typer.Option("--device-map", help="auto: spread a model that does not fit one GPU over those of this machine."),
    ] = None
    run: Annotated[
        str | None, typer.Option("--run", help="Name of the run; default from the model and its folder.")
    ] = None
    out: Out = None
    runs: Annotated[
        Path | None, typer.Option("--runs", help="The folder of a finished study, to which --add-test-set adds.")
    ] = None
    add_test_set: Annotated[
        list[str] | None,
        typer.Option("--add-test-set", help="With --runs: score this set from the kept adapters. May be repeated."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", help="lm-eval: also write the results as lm-evaluation-harness does, below --out."),
    ] = None
    data: Data = None
    allow: Allow = None


@spread
def score(*, options: ScoreOptions, as_json: AsJson = False) -> None:
    """Score trained models on a suite: one model, a folder of checkpoints, or further sets for finished runs.

    Writes an ordinary run folder, which analyse and report read; the same command resumes after an interruption.
    Several models may share one --out, each as a run of its own. Prints the scores of the last step as
    lm-evaluation-harness does.

    Examples:
        oodles score --model opt-125m --suite nli --in-domain mnli --out scored
        oodles score --checkpoints trained --suite nli --in-domain snli --out scored
        oodles score --runs runs/paper --add-test-set hans
    """
    if options.output not in (None, "lm-eval"):
        raise ConfigError(f"oodles score: --output is '{options.output}', expected lm-eval")
    if options.device_map not in (None, "auto"):
        raise ConfigError(f"oodles score: --device-map is '{options.device_map}', expected auto")
    if options.runs is None:
        scored = _score_model(options)
        _show_scores(scored, options, as_json)
        _print_scored([scored], as_json)
    else:
        _print_scored(_add_test_sets(options.runs, options), as_json)


def _score_model(options: ScoreOptions) -> Scored:
    """One run: a model, with an adapter, or its checkpoints."""
    if options.add_test_set:
        raise ConfigError("oodles score: --add-test-set goes with --runs, the folder of a finished study")
    if options.suite is None or options.out is None:
        lacking = "--suite is missing; e.g. --suite nli"
        if options.suite is not None:
            lacking = "--out is missing; e.g. --out scored"
        raise ConfigError(f"oodles score: {lacking}")
    if options.adapter is not None and options.checkpoints is not None:
        raise ConfigError("oodles score: give --adapter or --checkpoints, not both")
    if options.precision not in ("auto", "fp32", "bf16", "fp16"):
        raise ConfigError(f"oodles score: --precision is '{options.precision}', expected auto, fp32, bf16 or fp16")
    from oodles.model.load import require_training

    require_training("oodles score")
    from oodles.contracts import Evaluation
    from oodles.runs.checkpoints import Checkpoint, find_checkpoints, score_model
    from oodles.suite.load import load_suite

    points: tuple[Checkpoint, ...] = (Checkpoint(step=0),)
    if options.checkpoints is not None:
        points = find_checkpoints(options.checkpoints, say)
    elif options.adapter is not None:
        points = (Checkpoint.at(options.adapter),)
    with interruptible(f"stopped; the same command resumes from what is in {options.out}"):
        return score_model(
            load_suite(options.suite, data=options.data or ""),
            options.out,
            model=options.model or "",
            checkpoints=points,
            run=options.run,
            in_domain=options.in_domain,
            pattern=options.pattern,
            evaluation=Evaluation(test_sets=tuple(options.test_set or ()), limit=options.limit),
            precision=cast(Any, options.precision),  # one of the four, as was checked
            allow=options.allow or [],
            spread=options.device_map is not None,
        )


def _add_test_sets(runs: Path, options: ScoreOptions) -> list[Scored]:
    """Further test sets for the finished runs of a study."""
    for name in ("model", "adapter", "checkpoints", "out", "run", "output"):
        if getattr(options, name) is not None:
            raise ConfigError(f"oodles score: --{name} does not go with --runs, which knows its models")
    if not options.add_test_set:
        raise ConfigError("oodles score --runs: which test set? give --add-test-set NAME")
    from oodles.model.load import require_training

    suite = _suite_of(runs, options)
    require_training("oodles score")
    from oodles.runs.checkpoints import add_test_sets

    with interruptible(f"stopped; the same command resumes from what is in {runs}"):
        spread = options.device_map is not None
        return list(add_test_sets(runs, suite, options.add_test_set, limit=options.limit, spread=spread))


def _show_scores(scored: Scored, options: ScoreOptions, as_json: bool) -> None:
    """Print the scores of the last step as the harness does, and write those of all steps if asked."""
    from datetime import datetime

    from oodles.api.harness import results_of, results_table, write_results
    from oodles.store.table import read_runs

    if not scored.done and not scored.skipped:
        return  # no checkpoint could be scored
    table = read_runs(scored.out)
    own = table[(table["run"] == scored.run) & table["value"].notna()]
    steps = sorted(own["step"].unique())
    if not steps:
        return
    sets = _described(options)
    model = str(own["model"].iloc[0])
    for step in steps:
        several = int(step) if len(steps) > 1 else None
        results = results_of(own[own["step"] == step], sets, model=model, step=several)
        if options.output is not None:
            say(f"wrote {write_results(results, scored.out / 'lm-eval', datetime.now())}")
        if step == steps[-1] and not as_json:
            tell(results_table(results))


def _described(options: ScoreOptions) -> dict[str, Any]:
    """Sizes of the sets, and versions and examples in the prompt of those that are tasks."""
    from oodles.api.harness import Described
    from oodles.suite.load import load_suite, select_test_sets
    from oodles.suite.sources import load_examples
    from oodles.suite.tasks import load_task

    suite = load_suite(str(options.suite), data=options.data or "")
    sets = {}
    for data in select_test_sets(suite, tuple(options.test_set or ())):
        size = len(load_examples(suite, data))
        sets[data.name] = Described(size=size)
        if data.source.lm_eval is not None:
            task = load_task(suite, data)
            sets[data.name] = Described(size=size, version=task.version, shots=task.origin.shots)
    return sets


def _suite_of(runs: Path, options: ScoreOptions) -> Suite:
    """The suite of a study's folder: as given, built in, or where the study found it."""
    from oodles.store.claim import suite_file_of, suite_of
    from oodles.store.folder import study_folder
    from oodles.suite.load import list_suites, load_suite

    study = study_folder(runs)
    name, file = suite_of(study), suite_file_of(study)
    source = options.suite or (str(runs / file) if file else name)
    if options.suite is None and (not Path(source).is_file() if file else name not in list_suites()):
        why = f"was read from {source}, which is not there" if file else "is not built in"
        raise ConfigError(f"{runs}: its suite '{name}' {why}; say where its TOML is with --suite")
    loaded = load_suite(source, data=options.data or "")
    if loaded.name != name:
        raise ConfigError(f"{runs}: holds runs on suite '{name}', not '{loaded.name}'; give that suite's TOML")
    return loaded


def _print_scored(scored: list[Scored], as_json: bool) -> None:
    if as_json:
        rows = [{"out": str(s.out), "run": s.run, "done": s.done, "skipped": s.skipped} for s in scored]
        print_json([{**t, "broken": dict(s.broken)} for t, s in zip(rows, scored, strict=True)])
    else:
        for run in scored:
            tell(f"{run.run}: {run.done} evaluations scored, {run.skipped} scored earlier")
        tell(f"next: oodles analyse {scored[0].out}")
    for run in scored:
        for step, reason in run.broken:
            say(f"failed: {run.run} step {step}: {reason}")
    if any(run.broken for run in scored):
        raise typer.Exit(1)

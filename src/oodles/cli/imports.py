"""oodles import: scores that other tools wrote, as a long table."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodles.cli.options import AsJson, ImportOptions, InDomain, TestSets, spread
from oodles.cli.printing import note, print_json, print_table, tell
from oodles.errors import ConfigError, some

if TYPE_CHECKING:
    from oodles.api.imports import Contents


@spread
def import_(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files and folders; wandb:entity/project asks wandb.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="The table to write: .parquet or .csv.")] = None,
    inspect: Annotated[
        bool, typer.Option("--inspect", help="Show runs, steps, metrics and test sets, and what to type next.")
    ] = False,
    in_domain: InDomain = None,
    test_sets: TestSets = None,
    *,
    files: ImportOptions,
    as_json: AsJson = False,
) -> None:
    """Read the scores that other tools wrote into one long table, or show what is in them.

    Formats are recognised: tables (long, or one column per test set), trainer_state.json of transformers, TensorBoard,
    wandb, MLflow, trackio, lm-evaluation-harness, lighteval, Inspect, HELM. Files are only read; the network is asked
    for wandb:entity/project alone.

    Examples:
        oodles import --inspect scores.csv
        oodles import scores.csv --in-domain mnli --out table.parquet
        oodles import outputs/ --in-domain mnli --out runs.parquet
    """
    from oodles.api.imports import check_out, import_scores, inspect_scores, write_table

    if out is not None:
        check_out(out, paths)  # before the work
    elif not inspect:
        raise ConfigError("oodles import: nowhere to write to; give --out table.parquet, or --inspect to look first")
    imported = import_scores(paths, in_domain=in_domain, test_sets=test_sets, **asdict(files))
    contents = inspect_scores(imported, list(map(str, paths)), _told(in_domain, test_sets, files))
    written = str(write_table(imported.table, out)) if out is not None else None
    if as_json:
        print_json({**asdict(contents), "written": written})
        return
    if inspect:
        _show(contents)
    note(imported.notes)
    if written:
        shape = f"{len(contents.runs)} runs, {len(contents.test_sets)} test sets, {len(imported.table)} rows"
        tell(f"{written}: {shape} from {contents.format}")


import_.__name__ = "import"  # of the verb; in Python the word is taken


def _told(in_domain: list[str] | None, test_sets: list[str] | None, files: ImportOptions) -> list[str]:
    """The options that were given, for the command to type next."""
    lists = {"--in-domain": in_domain, "--test-set": test_sets, "--map": files.maps}
    words = [word for option, values in lists.items() for value in values or () for word in (option, value)]
    single = {"--format": files.format, "--names": files.names, "--keys": files.keys, "--preset": files.preset}
    return words + [word for option, value in single.items() if value for word in (option, value)]


def _show(contents: Contents) -> None:
    first, last, many = contents.steps
    tell(f"format: {contents.format}")
    tell(f"runs: {len(contents.runs)} ({some(contents.runs, 5)})")
    tell(f"steps: {first} to {last}, {many} different" if many > 1 else f"steps: {first} only")
    tell(f"metrics: {', '.join(f'{name} ({count} scores)' for name, count in list(contents.metrics.items())[:12])}")
    if contents.known:
        tell(f"known of the runs: {', '.join(f'{name} ({count})' for name, count in contents.known.items())}")
    if contents.records:
        tell(f"records: {contents.records} outcomes of single examples")
    rows = [
        [one["name"], one["role"], str(one["n"] or ""), str(one["runs"]), f"{one['low']:.3f}", f"{one['high']:.3f}"]
        for one in contents.test_sets
    ]
    print_table("", ["test set", "role", "n", "runs", "lowest", "highest"], rows)
    if not all(one["n"] for one in contents.test_sets):
        tell("where n is blank and you know it, add --n SET=NUMBER to what follows: for the in-domain set above all")
    tell(f"\nnext: {contents.command}")

"""oodles export: the scores of anything oodles reads, in other tools' formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodles.cli.options import AsJson
from oodles.cli.printing import note, print_json, tell


def export(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="As for oodles analyse: a study, a table, a finding, ...")
    ],
    kind: Annotated[
        str, typer.Option("--format", help="csv, parquet, every-eval-ever (JSON, 0.3) or wandb (offline runs).")
    ],
    out: Annotated[Path, typer.Option("--out", help="The file; a new folder for every-eval-ever and wandb.")],
    as_json: AsJson = False,
) -> None:
    """Write the scores of a study, a table or other tools' files in another format.

    Examples:
        oodles export runs/quick --format csv --out quick.csv
        oodles export bert-hans --format every-eval-ever --out records
    """
    from oodles.api.export import check_export, export_scores, read_scores
    from oodles.imports.contract import Options

    check_export(kind, out, paths)  # before the work
    table, notes = read_scores(paths, Options())
    written = export_scores(table, kind, out)
    note(notes)
    if as_json:
        print_json({"written": [str(path) for path in written]})
    else:
        tell(str(written[0]) if len(written) == 1 else f"{out}: {len(written)} {_what(kind)}")


def _what(kind: str) -> str:
    return "runs" if kind == "wandb" else "records"

"""oodles findings: published results that ship with oodles."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from oodles.cli.options import AsJson
from oodles.cli.printing import print_json, print_table, tell
from oodles.errors import ConfigError, nearest


def findings(
    name: Annotated[str | None, typer.Argument(help="One of them: its question, source, licence and citation.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the published results that ship with oodles, or show one. analyse and report take their names.

    Examples:
        oodles findings
        oodles findings bert-hans
        oodles analyse bert-hans
    """
    from oodles.api.findings import findings as shipped

    known = shipped()
    if name is not None and name not in known:
        raise ConfigError(f"oodles findings: '{name}' is not one of them; {nearest(name, known)}")
    chosen = known if name is None else {name: known[name]}
    if as_json:
        print_json([asdict(one) for one in chosen.values()])
    elif name is None:
        print_table("", ["name", "question"], [[one.name, one.question] for one in chosen.values()])
        tell("\nnext: oodles analyse bert-hans")
    else:
        one = known[name]
        lines = [one.title, "", one.question, one.rows, *one.remarks, "", one.provenance]
        tell("\n".join([*lines, "", f"next: oodles analyse {name}, oodles report {name}"]))

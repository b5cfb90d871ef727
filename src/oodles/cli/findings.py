"""oodles findings: published results that ship with oodles."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from oodles.cli.options import AsJson
from oodles.cli.printing import print_json, print_table, tell
from oodles.errors import ConfigError, nearest


def findings(
    name: Annotated[
        str | None, typer.Argument(help="Name of a finding; shows its question, source, licence and citation.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the published results that ship with oodles, or show one. analyse and report take their names.

    Examples:
        oodles findings
        oodles findings bert-hans
        oodles analyse bert-hans
    """
    from oodles.api.findings import findings as shipped

    published = shipped()
    if name is not None and name not in published:
        raise ConfigError(f"oodles findings: '{name}' is not one of them; {nearest(name, published)}")
    chosen = published if name is None else {name: published[name]}
    if as_json:
        print_json([asdict(finding) for finding in chosen.values()])
    elif name is None:
        print_table("", ["name", "question"], [[finding.name, finding.question] for finding in chosen.values()])
        tell("\nnext: oodles analyse bert-hans")
    else:
        finding = published[name]
        further = [f"--test-set takes, too: {', '.join(finding.further_sets())}"] * bool(finding.further_sets())
        remarks = finding.remarks_on(finding.given({}))
        lines = [finding.title, "", finding.question, finding.rows, *further, *remarks, "", finding.provenance]
        tell("\n".join([*lines, "", f"next: oodles analyse {name}, oodles report {name}"]))

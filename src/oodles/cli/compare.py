"""oodles compare: did anything change between two studies?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from oodles.cli.options import AnalysisOptions, AsJson, sizes_of, spread
from oodles.cli.printing import answers, print_json


@spread
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Results, a study's folder, a table or a finding.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another one, of the same test sets.")],
    *,
    options: AnalysisOptions,
    as_json: AsJson = False,
) -> None:
    """Which pairs of test sets changed from study A to study B, beyond noise or not.

    Examples:
        oodles compare results/first-recipe results/second-recipe
        oodles compare runs/seeds-0-9 runs/seeds-10-19 --method linear
    """
    import json

    from oodles.api.compare import compare as compare_studies
    from oodles.show.answers import print_comparison

    chosen = {**asdict(options), "n": sizes_of(options.n)}
    given = {name: value for name, value in chosen.items() if value is not None and name != "across"}
    answer = compare_studies(first, second, **given)
    if as_json:
        frames = {name: json.loads(frame.to_json(orient="records")) for name, frame in answer.tables.items()}
        print_json({"sentences": answer.sentences, "caveats": answer.caveats, **frames})
    else:
        with answers() as console:
            print_comparison(answer, console)

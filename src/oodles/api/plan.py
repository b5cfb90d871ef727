"""plan(): how many runs for a wanted precision, from a pilot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from oodles.api.analyse import analyse
from oodles.stats.analysis import Analysis
from oodles.stats.answers import Answer
from oodles.stats.clusters import Scores
from oodles.stats.longtable import check_table
from oodles.stats.planning import plan_from


def plan(pilot: str | Path | pd.DataFrame | Analysis, half_width: float, **options: Any) -> Answer:
    """Runs, steps and examples for a wanted half width of the intervals.

    Parameters
    ----------
    pilot
        Whatever `analyse` takes: the folder of a study, a long table, a finding's name; or an `Analysis`.
    half_width
        Of the interval of a correlation, such as .2.
    **options
        As for `analyse`.
    """
    analysis = pilot if isinstance(pilot, Analysis) else analyse(pilot, **options)
    table, _ = check_table(analysis.long_table, in_domain=analysis.result.settings.get("in_domain"))  # type: ignore[arg-type]
    return plan_from(Scores.of(table, analysis.result.settings), half_width, analysis.result.fits)

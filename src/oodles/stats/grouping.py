"""Which columns make the groups of an analysis: they are there, and no column of the results has their name.

Try it::

    by, caveats = chosen_groups(checked, ("model", "train_set"))
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from oodles.errors import ConfigError, nearest
from oodles.stats.pairs import FIT_COLUMNS, PAIR_COLUMNS
from oodles.stats.series import BY, of_runs, settle_by

RESIDUALS = ("fitted", "residual")
CHANGES = ("first_step", "last_step", "first", "last", "change")
SHOWN = ("pair",)  # a column of what is shown
RESULTS = frozenset((*PAIR_COLUMNS, *FIT_COLUMNS, *RESIDUALS, *CHANGES, *SHOWN))


def chosen_groups(table: pd.DataFrame, by: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns to group a checked table by, and caveats; only a default column may be absent.

    >>> table = pd.DataFrame({"run": ["a", "b"], "step": 0, "model": ["m", "m"], "seed": None})
    >>> chosen_groups(table, ("model",))
    (('model',), ())
    >>> chosen_groups(table, ("seed",))
    Traceback (most recent call last):
    oodles.errors.ConfigError: --by seed: no such column, or an empty one; known: model, run
    """
    asked = (by,) if isinstance(by, str) else tuple(by)
    found, said = settle_by(table, asked)
    for column in () if {*asked} == {*BY} else found:
        if table[column].isna().all():
            raise ConfigError(f"--by {column}: no such column, or an empty one; {nearest(column, of_runs(table))}")
    refuse_names(found, RESULTS)
    return found, said


def refuse_names(by: Sequence[str], taken: Collection[str]) -> None:
    """Refuse to group by a column that the results have, too: their tables would hold it twice."""
    for column in by:
        if column in taken:
            raise ConfigError(
                f"--by {column}: the results have a column of this name; "
                f"give that of the table another name, such as 'run_{column}'"
            )

"""The tree joins test sets at the correlation between them, and no branches cross."""

from __future__ import annotations

import pandas as pd
import pytest

from oodles.show.tree import leaves_of, plot_trees
from oodles.stats.analysis import analyse_table
from test_averages import study

MERGES = pd.DataFrame(
    [(1, "a", 0, "c", 0, 0.9), (2, "b", 0, "d", 0, 0.6), (3, "", 1, "", 2, -0.1)],
    columns=["merge", "left", "left_merge", "right", "right_merge", "r"],
)


def test_merges_are_drawn_where_they_meet() -> None:
    rows = MERGES.to_dict("records")
    assert leaves_of(rows) == ["a", "c", "b", "d"]
    ((figure, told),) = plot_trees(MERGES)
    lines = [line for line in figure.axes[0].lines if line.get_gid() == "merge"]
    assert [line.get_xdata()[1] for line in lines] == [0.9, 0.6, -0.1]
    assert [line.get_ydata()[0] for line in lines] == [0, 2, 0.5]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "c", "b", "d"]
    assert "4 test sets" in told


def test_the_table_is_the_linkage_of_the_correlations() -> None:
    """With average linkage the first merge is the largest correlation, the second the mean over its two sets."""
    table = study().query("model == 'm-125m'")
    found = analyse_table(table, method="linear", redundancy=True)
    tree = found.answers["redundancy"].tables["redundancy_tree"]
    pairs = found.result.table.query("within == 'pooled'")
    r = {frozenset((row.a, row.b)): row.r for row in pairs.itertuples()}
    first = tree.iloc[0]
    joined = frozenset((first["left"], first["right"]))
    assert first["r"] == pytest.approx(max(r.values()), abs=0.02)
    assert joined == max(r, key=lambda pair: r[pair])
    rest = [value for pair, value in r.items() if pair != joined]
    assert tree.iloc[1]["r"] == pytest.approx(sum(rest) / 2, abs=0.02)
    assert list(tree["merge"]) == [1, 2]

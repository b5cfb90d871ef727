"""Many groups in one figure, and the network of test sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from oodles.errors import DataError
from oodles.show.canvas import colour_of
from oodles.show.overview import by_agreement, plot_network, plot_overview
from oodles.stats.correlate import PartialCorrelations, partial_correlations
from test_correlate import simulated

SETS = ("mnli", "hans", "paws", "rte")


@pytest.fixture(scope="module")
def result() -> PartialCorrelations:
    tables = [simulated(runs=6, seed=i, rho=0.9, sets=SETS).assign(model=f"m{i}") for i in range(3)]
    return partial_correlations(pd.concat([t.assign(run=t["model"] + t["run"]) for t in tables]), method="linear")


def test_a_cell_per_pair_and_group_sorted_by_agreement(result: PartialCorrelations) -> None:
    (axes,) = plot_overview(result, within="run").axes
    assert len(axes.patches) == 3 * 3
    order = by_agreement(result.table[result.table["within"] == "run"])
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"{a} ~ {b}" for a, b in order]
    with pytest.raises(DataError, match="within=separate"):
        plot_overview(result, within="separate")


def test_cells_without_an_estimate_are_hatched_and_open_ones_fade(result: PartialCorrelations) -> None:
    gone = result.table.copy()
    gone.loc[gone.index[0], ["r", "low", "high"]] = np.nan
    bare = PartialCorrelations(table=gone, fits=result.fits, residuals=result.residuals, settings=result.settings)
    (axes,) = plot_overview(bare, within=str(gone["within"].iloc[0])).axes
    assert sum(bool(patch.get_hatch()) for patch in axes.patches) == 1
    settled, open_ = (colour_of(0.8, pale=pale) for pale in (False, True))
    assert all(light > dark for light, dark in zip(open_, settled, strict=True))


def test_the_network_has_a_link_per_pair_dashed_where_open(result: PartialCorrelations) -> None:
    group = {"model": "m0", "train_set": "mnli"}
    rows = result.table[(result.table["model"] == "m0") & (result.table["within"] == "pooled")]
    (axes,) = plot_network(result, group=group).axes
    links = [line for line in axes.lines if line.get_gid() == "link"]
    assert len(links) == (rows["r"].abs() >= 0.1).sum()
    covers = ((rows["low"] <= 0) & (rows["high"] >= 0) & (rows["r"].abs() >= 0.1)).sum()
    assert sum(line.is_dashed() for line in links) == covers
    (strong,) = plot_network(result, group=group, words=True).axes
    assert (
        len([1 for line in strong.lines if line.get_gid() == "link"]) == ((rows["r"] > 0.5) | (rows["r"] < -0.3)).sum()
    )
    with pytest.raises(DataError, match="several groups"):
        plot_network(result)


def test_heads_name_only_what_differs_and_models_come_by_size(result: PartialCorrelations) -> None:
    named = {"m0": "m-2000m", "m1": "m-125m", "m2": "m-500m"}
    table = result.table.assign(model=result.table["model"].map(named), train_set="a set of a long name")
    other = PartialCorrelations(
        table=table[["model", "train_set", *(c for c in table.columns if c not in ("model", "train_set"))]],
        fits=result.fits,
        residuals=result.residuals,
        settings=result.settings,
    )
    (axes,) = plot_overview(other).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["m-125m", "m-500m", "m-2000m"]

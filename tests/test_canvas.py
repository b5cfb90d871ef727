"""Colours that figures share."""

from __future__ import annotations

import matplotlib
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from oodles.show import canvas
from oodles.show.assets import _figures
from oodles.stats.analysis import analyse_table
from test_correlate import simulated


def test_colours_that_follow_the_page_are_no_cell_colours() -> None:
    palette = {to_hex(c) for c in matplotlib.colormaps[canvas.PALETTE](range(256))}
    assert not palette & {canvas.INK, canvas.MUTED, canvas.GRID, canvas.OOD, canvas.IN_DOMAIN, canvas.SHARE}


def margins(figure: Figure) -> float:
    """How far what is drawn reaches beyond the figure, in inches; below 0: it lies inside."""
    figure.set_dpi(300)  # as assets have it; at few dots letters are wider than they are
    drawn = FigureCanvasAgg(figure)
    drawn.draw()
    box, (width, height) = figure.get_tightbbox(drawn.get_renderer()), figure.get_size_inches()
    return float(max(-box.x0, -box.y0, box.x1 - width, box.y1 - height))


@pytest.mark.parametrize(
    "name", ["x", "Heuristic Analysis for NLI Systems: matched", "WWWWWWWWWWWWWWWWWWWWWWWWWWWWW", "中文数据集测试"]
)
def test_every_label_lies_inside_its_figure(name: str) -> None:
    tables = []
    for i in range(3):
        table = simulated(runs=5, seed=i, rho=0.9).assign(model=f"{name}-{i}")
        sets = {"hans": f"{name} 1", "rte": f"{name} 2"}
        tables.append(table.assign(run=table["model"] + table["run"], test_set=table["test_set"].replace(sets)))
    found = analyse_table(pd.concat(tables), method="linear", across=("model",), sensitivity=True, redundancy=True)
    drawn = dict(_figures(found))
    assert len(drawn) > 20
    assert {name: margin for name, figure in drawn.items() if (margin := margins(figure)) > 0.01} == {}


def test_long_names_keep_both_ends() -> None:
    one, other = (canvas.short(f"Heuristic Analysis for NLI Systems: {end}") for end in ("entailed", "neutral"))
    assert one == "Heuristic Ana…ms: entailed"
    assert one != other
    assert len(one) <= canvas.LONGEST_NAME
    assert canvas.folded("short") == "short"
    assert canvas.folded("lexical overlap, entailed") == "lexical overlap,\nentailed"

"""The heatmap shows the numbers it was given: these tests read them back from what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from oodles.errors import DataError
from oodles.show import canvas
from oodles.show.heatmap import plot_correlations
from oodles.stats.correlate import PartialCorrelations

NAN = float("nan")


def make_pair(a: str, b: str, r: float, **more: Any) -> dict[str, Any]:
    pair = {
        "model": "m", "train_set": "t", "a": a, "b": b, "r": r, "low": r - 0.1, "high": r + 0.1, "p_val": 0.2,
        "p_holm": 0.4, "p_bh": 0.3, "r_corrected": NAN, "n_runs": 9, "n_steps": 54, "method": "linear",
        "within": "pooled", "interval": "jackknife", "correlation": "pearson", "caveats": [],
    }  # fmt: skip
    return pair | more


def make_result(pairs: Sequence[dict[str, Any]]) -> PartialCorrelations:
    empty = pd.DataFrame()
    return PartialCorrelations(table=pd.DataFrame(pairs), fits=empty, residuals=empty, settings={"level": 0.95})


def texts(ax: Axes) -> dict[tuple[int, int], list[str]]:
    """What stands in each cell, by column and row."""
    found: dict[tuple[int, int], list[str]] = {}
    for text in ax.texts:
        x, y = text.get_position()
        found.setdefault((round(x), round(y)), []).append(text.get_text())
    return found


def cells(ax: Axes, *, hatched: bool) -> dict[tuple[int, int], Rectangle]:
    patches = [p for p in ax.patches if isinstance(p, Rectangle) and bool(p.get_hatch()) is hatched]
    return {(round(p.get_x() + 0.5), round(p.get_y() + 0.5)): p for p in patches}


def key_text(figure: Figure) -> str:
    return "\n".join(t.get_text() for t in figure.texts)


def test_heatmap_prints_and_colours_every_pair() -> None:
    figure = plot_correlations(
        make_result([make_pair(*pair, p_holm=0.01) for pair in (("x", "y", 0.5), ("x", "z", -0.25), ("y", "z", 1))])
    )
    ax = figure.axes[0]
    found = texts(ax)
    assert found[0, 1] == ["+0.50*", "[+.40, +.60]"]
    assert found[0, 2] == ["−0.25*", "[−.35, −.15]"]
    assert found[1, 2][0] == "+1.00*"
    drawn = {place: to_hex(cell.get_facecolor()) for place, cell in cells(ax, hatched=False).items()}
    palette = matplotlib.colormaps["RdBu"]
    assert drawn == {(0, 1): to_hex(palette(0.75)), (0, 2): to_hex(palette(0.375)), (1, 2): to_hex(palette(1.0))}
    assert [t.get_text() for t in ax.get_xticklabels()] == ["x", "y"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["y", "z"]


def test_colours_of_the_heatmap_do_not_depend_on_its_range() -> None:
    narrow, wide = (
        [make_pair("x", "y", 0.1), make_pair("x", "z", other), make_pair("y", "z", 0)] for other in (0.12, -0.9)
    )
    first, second = (cells(plot_correlations(make_result(p)).axes[0], hatched=False)[0, 1] for p in (narrow, wide))
    assert first.get_facecolor() == second.get_facecolor()


def test_heatmap_marks_significance_and_descriptive_pairs() -> None:
    pairs = [
        make_pair("x", "y", 0.9, p_holm=0.01),
        make_pair("x", "z", 0.4),
        make_pair("y", "z", 0.3, p_val=NAN, p_holm=NAN),
    ]
    figure = plot_correlations(make_result(pairs))
    found = texts(figure.axes[0])
    assert [found[0, 1][0], found[0, 2][0], found[1, 2][0]] == ["+0.90*", "+0.40", "+0.30°"]
    assert key_text(figure) == "* clear: p < .05, adjusted\n° descriptive: no p-value\npale: cannot be told from 0"


def test_a_caveat_of_one_pair_is_in_its_corner_and_one_of_all_is_beside_the_title() -> None:
    shared = ["one prompt only"]
    pairs = [
        make_pair("x", "y", 0.5, caveats=shared),
        make_pair("x", "z", 0.4, caveats=[*shared, "z is small"]),
        make_pair("y", "z", 0.4, caveats=shared),
    ]
    figure = plot_correlations(make_result(pairs))
    corners = [p.get_xy() for p in figure.axes[0].patches if p.get_gid() == "caveat"]
    assert [(round(xy[0][0]), round(xy[0][1])) for xy in corners] == [(0, 2)]
    assert cells(figure.axes[0], hatched=True) == {}
    assert figure.axes[0].get_title(loc="left").endswith("†")
    assert key_text(figure) == "pale: cannot be told from 0\ncorner: see its caveat\n† all pairs: see caveats"


def test_an_unknown_correlation_is_hatched_and_no_digit_is() -> None:
    pairs = [make_pair("x", "y", NAN), make_pair("x", "z", 0.0), make_pair("y", "z", 0.2, low=NAN, high=NAN)]
    figure = plot_correlations(make_result(pairs))
    found = texts(figure.axes[0])
    assert set(cells(figure.axes[0], hatched=True)) == {(0, 1)}
    assert (0, 1) not in found
    assert found[0, 2][0] == "0.00"
    assert found[1, 2] == ["+0.20"]
    assert key_text(figure) == "pale: cannot be told from 0\nhatched: no estimate"


def test_nothing_is_drawn_over_digits() -> None:
    """Whatever lies in a cell beside its colour keeps clear of its text."""
    pairs = [make_pair("x", "y", -0.88, caveats=["odd"], p_holm=0.01), make_pair("x", "z", 0.4)]
    for width in (None, 3.03):
        figure = plot_correlations(make_result([*pairs, make_pair("y", "z", NAN)]), width=width)
        canvas_of = FigureCanvasAgg(figure)
        canvas_of.draw()
        ax = figure.axes[0]
        boxes = [text.get_window_extent() for text in ax.texts]
        over = [p for p in ax.patches if p.get_hatch() or p.get_gid() == "caveat"]
        assert len(over) == 2
        assert not any(patch.get_window_extent().overlaps(box) for patch in over for box in boxes)


def test_colours_fade_where_a_pair_is_not_clear() -> None:
    pairs = [make_pair("x", "y", 0.5, p_holm=0.01), *(make_pair(one, "z", 0.5, p_holm=0.2) for one in "xy")]
    drawn = cells(plot_correlations(make_result(pairs)).axes[0], hatched=False)
    bright = {place: canvas.luminance(cell.get_facecolor()) for place, cell in drawn.items()}
    assert bright[0, 2] == bright[1, 2] > bright[0, 1] + 0.1


def test_without_a_test_colours_fade_where_the_interval_covers_nought() -> None:
    spans = {("x", "y"): {}, ("x", "z"): {"low": -0.1}, ("y", "z"): {"low": NAN, "high": NAN}}
    pairs = [make_pair(a, b, 0.5, p_val=NAN, **span) for (a, b), span in spans.items()]
    drawn = cells(plot_correlations(make_result(pairs)).axes[0], hatched=False)
    bright = {place: canvas.luminance(cell.get_facecolor()) for place, cell in drawn.items()}
    assert bright[0, 2] == bright[1, 2] > bright[0, 1] + 0.1


def test_at_the_width_of_a_column_digits_are_large_enough_and_fit_their_cells() -> None:
    names = ["lexical overlap", "subsequence", "constituent", "passive", "conjunction", "negation", "numbers"]
    pairs = [make_pair(a, b, -0.62, p_holm=0.01) for i, a in enumerate(names) for b in names[i + 1 :]]
    figure = plot_correlations(make_result(pairs), width=3.03)
    assert figure.get_figwidth() == pytest.approx(3.03)
    FigureCanvasAgg(figure).draw()
    ax = figure.axes[0]
    cell = ax.get_window_extent().width / 6
    assert all(text.get_fontsize() >= 5.8 for text in [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels()])
    assert all(text.get_window_extent().width < cell for text in ax.texts)
    assert len(ax.texts) == 21
    assert all(text.get_window_extent().x0 >= 0 for text in ax.get_yticklabels())


def test_kinds_of_fit_stand_side_by_side_and_groups_below_one_another() -> None:
    pairs = [
        make_pair("x", "y", 0.5, model=model, within=within) for model in ("m1", "m2") for within in ("pooled", "run")
    ]
    panels = plot_correlations(make_result(pairs)).axes[:4]
    corners = [(round(ax.get_position().x0, 3), round(ax.get_position().y0, 3)) for ax in panels]
    assert corners[0][1] == corners[1][1] > corners[2][1]
    assert corners[0][0] == corners[2][0] < corners[1][0]
    assert panels[3].get_title(loc="left").startswith("m2, trained on t · run")
    one = plot_correlations(make_result(pairs), group={"model": "m2"}, within="run")
    assert len(one.axes) == 2  # a panel and the key


def test_a_group_that_is_not_there_is_an_error() -> None:
    with pytest.raises(DataError, match="no pair"):
        plot_correlations(make_result([make_pair("x", "y", 0.5)]), group={"model": "other"})
    with pytest.raises(DataError, match="column 'size'"):
        plot_correlations(make_result([make_pair("x", "y", 0.5)]), group={"size": 7})


def test_thirty_test_sets_fit() -> None:
    names = [f"a rather long test set name {i}" for i in range(30)]
    pairs = [make_pair(a, b, 0.1) for i, a in enumerate(names) for b in names[i + 1 :]]
    figure = plot_correlations(make_result(pairs))
    assert len(cells(figure.axes[0], hatched=False)) == 435
    assert all(len(t.get_text()) <= canvas.LONGEST_NAME for t in figure.axes[0].get_yticklabels())
    assert max(figure.get_size_inches()) < 16


def test_names_are_shown_as_they_are_spelt() -> None:
    odd = "a$x$_b"
    ax = plot_correlations(make_result([make_pair(odd, "<b>&", 0.5)])).axes[0]
    label = ax.get_xticklabels()[0]
    assert (label.get_text(), label.get_parse_math()) == (odd, False)

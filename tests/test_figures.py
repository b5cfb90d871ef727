"""Figures show the numbers they were given: these tests read them back from what was drawn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from oodles.errors import DataError
from oodles.show.figures import plot_changes, plot_shares, plot_trajectories

NAN = float("nan")


def make_table(runs: int = 3, steps: Sequence[int] = (0, 1, 2, 4, 8)) -> pd.DataFrame:
    rows = []
    for run in range(runs):
        for i, step in enumerate(steps):
            for test_set, value in (("daily", 0.5 + 0.07 * i), ("genre", 0.5 + 0.01 * i * run), ("news", 0.45)):
                role = "in_domain" if test_set == "daily" else "ood"
                row = {
                    "run": f"r{run}",
                    "step": step,
                    "test_set": test_set,
                    "role": role,
                    "model": "m",
                    "train_set": "daily",
                }
                share = 0.9 - 0.1 * i
                rows.append({**row, "metric": "accuracy", "value": value})
                rows.append({**row, "metric": "share:No", "value": 1 - share})
                rows.append({**row, "metric": "share:Yes", "value": share})
    return pd.DataFrame(rows)


def lines(ax: Axes, gid: str) -> list[Line2D]:
    return [line for line in ax.lines if line.get_gid() == gid]


def test_trajectories_draw_the_runs_their_mean_and_the_in_domain_curve() -> None:
    figure = plot_trajectories(make_table())
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["genre", "news"]
    genre = figure.axes[0]
    assert len(lines(genre, "run")) == 3
    np.testing.assert_allclose(lines(genre, "run")[2].get_ydata(), [0.5, 0.52, 0.54, 0.56, 0.58])
    np.testing.assert_allclose(
        lines(genre, "mean")[0].get_xydata(), [[0, 0.5], [1, 0.51], [2, 0.52], [4, 0.53], [8, 0.54]]
    )
    for ax in figure.axes:
        np.testing.assert_allclose(lines(ax, "in_domain")[0].get_ydata(), [0.5, 0.57, 0.64, 0.71, 0.78])
        assert lines(ax, "chance")[0].get_ydata()[0] == 0.5
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == ["mean of the runs", "each run", "in-domain, mean", "chance"]


def test_the_mean_stops_where_a_run_stops() -> None:
    table = make_table()
    table = table[~((table["run"] == "r2") & (table["step"] > 2))]
    ax = plot_trajectories(table).axes[0]
    assert list(lines(ax, "mean")[0].get_xdata()) == [0, 1, 2]
    assert list(lines(ax, "run")[0].get_xdata()) == [0, 1, 2, 4, 8]


def test_chance_is_taken_from_the_table_or_left_out() -> None:
    plain = make_table().query("metric == 'accuracy'")
    assert lines(plot_trajectories(plain).axes[0], "chance") == []
    shares = [plain[plain["test_set"] == "genre"].assign(metric=f"share:{answer}") for answer in "abcde"]
    genre, news = plot_trajectories(pd.concat([plain, *shares])).axes
    assert lines(genre, "chance")[0].get_ydata()[0] == 0.2
    assert lines(news, "chance") == []  # the answers of one set say nothing of another
    told = plain.assign(chance=np.where(plain["test_set"] == "genre", 0.25, NAN))
    genre, news = plot_trajectories(told).axes
    assert lines(genre, "chance")[0].get_ydata()[0] == 0.25
    assert lines(news, "chance") == []


def test_log_spaced_steps_get_a_log_axis_and_even_ones_do_not() -> None:
    assert plot_trajectories(make_table(steps=(0, 1, 2, 4, 8, 16))).axes[0].get_xscale() == "symlog"
    assert plot_trajectories(make_table(steps=(0, 10, 20, 30, 40))).axes[0].get_xscale() == "linear"
    ticks = plot_trajectories(make_table(steps=range(0, 500, 10))).axes[0].get_xticks()
    assert (len(ticks) < 9, ticks[0], ticks[-1]) == (True, 0, 490)


def test_shares_show_the_first_answer_between_nought_and_one() -> None:
    figure = plot_shares(make_table())
    ax = figure.axes[0]
    assert ax.get_ylabel() == "share of Yes"
    np.testing.assert_allclose(lines(ax, "mean")[0].get_ydata(), [0.9, 0.8, 0.7, 0.6, 0.5])
    assert ax.get_ylim() == (-0.03, 1.03)
    other = plot_shares(make_table(), answer="No").axes[0]
    np.testing.assert_allclose(lines(other, "mean")[0].get_ydata(), [0.1, 0.2, 0.3, 0.4, 0.5])
    with pytest.raises(DataError, match="share: rows"):
        plot_shares(make_table().query("metric == 'accuracy'"))


def test_a_mean_over_models_is_never_drawn_unasked() -> None:
    table = pd.concat([make_table(), make_table().assign(model="other", run="else")])
    with pytest.raises(DataError, match="several groups"):
        plot_trajectories(table)
    ax = plot_trajectories(table, group={"model": "m"}).axes[0]
    assert len(lines(ax, "run")) == 3


def test_a_table_without_roles_models_or_metrics_can_be_drawn() -> None:
    plain = make_table(runs=1, steps=(5,)).query("metric == 'accuracy'")[["run", "step", "test_set", "value"]]
    figure = plot_trajectories(plain)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["daily", "genre", "news"]
    assert lines(figure.axes[0], "in_domain") == []
    with pytest.raises(DataError, match=r"'f1'; known: accuracy"):
        plot_trajectories(plain, metric="f1")
    with pytest.raises(DataError, match="'else' is not in the table"):
        plot_trajectories(plain, test_sets=["else"])


def make_changes() -> pd.DataFrame:
    rows = [("low", "ood", -0.1, -0.2, 0.0), ("high", "ood", 0.3, 0.1, 0.5), ("daily", "in_domain", 0.2, NAN, NAN)]
    frame = pd.DataFrame(rows, columns=["test_set", "role", "change", "low", "high"])
    frame.insert(0, "model", "m")
    return frame.assign(first_step=0, last_step=8, first=0.5, last=0.6, n_runs=3, n=100, caveats=[[], [], []])


def test_changes_draw_each_dot_at_its_value_with_its_interval() -> None:
    ax = plot_changes(make_changes()).axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["daily", "high", "low"]
    assert [(d.get_xdata()[0], d.get_marker()) for d in lines(ax, "change")] == [(0.2, "s"), (0.3, "o"), (-0.1, "o")]
    assert [list(i.get_xdata()) for i in lines(ax, "interval")] == [[0.1, 0.5], [-0.2, 0.0]]
    assert [t.get_text() for t in ax.texts] == ["+0.20", "+0.30  [+0.10, +0.50]", "−0.10  [−0.20, 0.00]"]


def test_a_change_that_is_not_known_is_not_drawn_as_nought() -> None:
    unknown = make_changes().assign(change=[NAN, 0.3, 0.2])
    texts_drawn = [t.get_text() for t in plot_changes(unknown).axes[0].texts]
    assert texts_drawn[-1].startswith("–")
    with pytest.raises(DataError, match="several groups"):
        plot_changes(pd.concat([unknown, unknown.assign(model="other")]))


def test_a_users_matplotlibrc_changes_nothing() -> None:
    plain = plot_trajectories(make_table()).axes[0].spines["left"].get_edgecolor()
    with matplotlib.rc_context({"axes.edgecolor": "red", "axes.facecolor": "black"}):
        assert plot_trajectories(make_table()).axes[0].spines["left"].get_edgecolor() == plain


def test_importing_figures_starts_no_pyplot() -> None:
    code = "import sys, oodles.show.figures; sys.exit('matplotlib.pyplot' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""The method as figures: fits against in-domain, residual against residual."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import oodles as oo
from oodles.errors import DataError
from oodles.show.scatter import clearest
from test_api import long_table


def marks(ax: object, gid: str) -> list[object]:
    return [line for line in ax.lines if line.get_gid() == gid]  # type: ignore[attr-defined]


def test_points_and_curve_are_those_of_the_fit() -> None:
    table = long_table()
    analysis = oo.analyse(table)
    figure = oo.plot_fits(analysis.result, analysis.long_table)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["a", "b", "c"]
    residuals = analysis.result.residuals
    for ax in figure.axes:
        name = ax.get_title(loc="left")
        own = residuals[(residuals.test_set == name) & (residuals.within == "pooled")]
        (points,), (curve,) = marks(ax, "points"), marks(ax, "fit")
        inside = table[table.test_set == "home"].set_index(["run", "step"]).value
        at = inside.loc[list(zip(own.run, own.step, strict=True))]
        assert np.allclose(np.sort(points.get_xdata()), np.sort(at))  # type: ignore[attr-defined]
        assert np.allclose(np.sort(points.get_ydata()), np.sort(own.value))  # type: ignore[attr-defined]
        assert np.allclose(np.sort(curve.get_ydata()), np.sort(own.fitted))  # type: ignore[attr-defined]
    by_run = oo.plot_fits(analysis.result, analysis.long_table, within="run")
    assert len(marks(by_run.axes[0], "fit")) == 6  # a level for each run


def test_the_correlation_of_the_points_is_the_number() -> None:
    result = oo.analyse(long_table()).result
    figure = oo.plot_residuals(result, "a", "b", within="pooled")
    (points,) = marks(figure.axes[0], "points")
    r = np.corrcoef(points.get_xdata(), points.get_ydata())[0, 1]  # type: ignore[attr-defined]
    row = result.table[(result.table.a == "a") & (result.table.b == "b") & (result.table.within == "pooled")].iloc[0]
    assert r == pytest.approx(row.r, abs=1e-9)
    assert figure.axes[0].get_title(loc="left").startswith(f"r = {row.r:+.2f}")


def test_the_clearest_pairs_come_first() -> None:
    result = oo.analyse("bert-hans").result
    first, *rest = clearest(result, None, "pooled")
    assert first == ("lexical overlap, non-entailed", "subsequence, non-entailed")
    assert len(rest) == 2


def test_what_cannot_be_drawn_says_so() -> None:
    analysis = oo.analyse(long_table())
    with pytest.raises(DataError, match=r"'d' has no residuals; known: a, b, c"):
        oo.plot_residuals(analysis.result, "a", "d")
    with pytest.raises(DataError, match="no fits within 'separate'"):
        oo.plot_fits(analysis.result, analysis.long_table, within="separate")
    twice = pd.concat([long_table(), long_table().assign(model="other", run=lambda t: t.run + "x")])
    several = oo.analyse(twice)
    with pytest.raises(DataError, match="several groups"):
        oo.plot_fits(several.result, several.long_table)
    assert oo.plot_fits(several.result, several.long_table, group={"model": "other", "train_set": "home"}).axes


def test_the_report_shows_the_method_and_many_models_get_no_trajectories(tmp_path: object) -> None:
    page = oo.write_report(oo.analyse("bert-hans"), f"{tmp_path}/r.html").read_text()
    assert "What does in-domain performance predict?" in page
    assert "Each point is a model." in page
    assert "On the way there" not in page
    assert page.count("Residuals of ") >= 3  # the page's script names them, too
    page = oo.write_report(oo.analyse(long_table()), f"{tmp_path}/s.html").read_text()
    assert "Each point is a run at a step." in page
    assert "On the way there" in page

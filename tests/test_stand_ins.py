"""Rows that stand in for a set that is not here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from oodles.contracts import DataSet, Source
from oodles.suite.stand_ins import MOST_SHOTS, STAND_IN, make_rows, stand_in_for

DATA = DataSet(
    name="far",
    source=Source(hub="org/far", split="test"),
    labels={"e": 0, "c": 1},
    drop=("n",),
    expect={"e": 300, "c": 500, "n": 7},
    characters={"premise": 80.0, "hypothesis": 30.0},
    columns={"premise": "sentence1"},
    slices=("kind",),
)


def test_as_many_rows_of_every_kept_label_as_declared() -> None:
    data = stand_in_for(DATA)
    assert data is not None
    assert (data.source.generator, data.columns) == (STAND_IN, {})
    rows = make_rows(data)
    assert Counter(row["label"] for row in rows) == {"e": 300, "c": 500}
    assert set(rows[0]) == {"label", "premise", "hypothesis", "kind"}


def test_lengths_vary_around_the_declared_mean() -> None:
    rows = make_rows(DATA)
    for field, mean in DATA.characters.items():
        lengths = np.array([len(row[field]) for row in rows])
        assert lengths.mean() == pytest.approx(mean, rel=0.01)
        assert 0.2 < np.log(lengths).std() < 0.6
        assert lengths.min() > 0


def test_the_same_set_gives_the_same_rows_and_another_others() -> None:
    assert make_rows(DATA) == make_rows(DATA)
    assert make_rows(DATA) != make_rows(replace(DATA, name="near"))


def test_a_train_set_has_no_more_than_shots_are_drawn_from() -> None:
    data = stand_in_for(replace(DATA, expect={"e": 10 * MOST_SHOTS, "c": 5}), train=True)
    assert data is not None
    assert data.expect == {"e": MOST_SHOTS, "c": 5}


@pytest.mark.parametrize("change", [{"expect": {}}, {"characters": {}}])
def test_nothing_stands_in_for_a_set_that_declares_nothing(change: dict[str, object]) -> None:
    assert stand_in_for(replace(DATA, **change)) is None  # type: ignore[arg-type]

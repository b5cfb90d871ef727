"""Rows of a group are chosen by names as the analysis writes them."""

from __future__ import annotations

import pandas as pd
import pytest

from oodles.errors import DataError
from oodles.show.groups import columns_before, label_of, of_group, one_group

FRAME = pd.DataFrame({"model": ["m", "m", None], "shots": [16.0, 64.0, None], "a": ["x", "y", "z"]})


def test_numbers_with_gaps_and_missing_names_are_found_by_their_text() -> None:
    assert list(of_group(FRAME, {"model": "m", "shots": "16"})["a"]) == ["x"]
    assert list(of_group(FRAME, {"shots": 64})["a"]) == ["y"]
    assert list(of_group(FRAME, {"model": "(none)"})["a"]) == ["z"]
    assert len(of_group(FRAME, None)) == len(of_group(FRAME, {})) == 3


def test_several_groups_are_never_mixed_unasked() -> None:
    with pytest.raises(DataError, match=r"several groups \(model\)"):
        one_group(FRAME, None)
    assert len(one_group(FRAME, {})) == 3
    with pytest.raises(DataError, match="the column 'size'"):
        of_group(FRAME, {"size": 1})


def test_a_group_is_named_in_words_by_the_columns_before_its_own() -> None:
    assert columns_before(FRAME, "a") == ["model", "shots"]
    assert label_of({"model": "m", "train_set": "mnli", "shots": "16"}) == "m, trained on mnli, shots 16"

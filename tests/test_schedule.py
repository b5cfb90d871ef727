from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodles.contracts import Recipe
from oodles.errors import ConfigError
from oodles.runs.schedule import schedule, step_count


@given(st.sampled_from(["log", "linear"]), st.integers(1, 5000), st.integers(1, 50))
def test_first_and_last_are_always_there(kind: str, last: int, points: int) -> None:
    steps = schedule(kind, last, points)
    assert steps[0] == 0
    assert steps[-1] == last
    assert list(steps) == sorted(set(steps))


def test_lists_get_both_ends_and_refuse_what_is_beyond() -> None:
    assert schedule([3], 8) == (0, 3, 8)
    with pytest.raises(ConfigError, match="holds 9, but the run has 8 steps"):
        schedule([3, 9], 8)
    with pytest.raises(ConfigError, match='"weekly"'):
        schedule("weekly", 8)


def test_step_count() -> None:
    assert step_count(64, Recipe(epochs=3, batch_size=16)) == 12
    assert step_count(10, Recipe(epochs=3, batch_size=4)) == 9

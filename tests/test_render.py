"""Test sets as a run evaluates them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oodles.contracts import SHOTS, Evaluation, Suite
from oodles.errors import ConfigError
from oodles.study.grid import expand
from oodles.study.load import load_study
from oodles.suite.load import load_suite, pattern_of
from oodles.suite.render import Renderer, characters, check_slices, render_sets, sampled_alike
from oodles.suite.sources import load_examples


@pytest.fixture
def suite(toy_suite: Path) -> Suite:
    return load_suite(toy_suite)


def test_limits_are_those_of_the_role(suite: Suite) -> None:
    evaluation = Evaluation(limit=4, limit_in_domain=6)
    sizes = {r.prompts.name: len(r.prompts) for r in render_sets(suite, pattern_of(suite, ""), "home", evaluation)}
    assert sizes == {"home": 6, "away": 4, "far": 4}
    sizes = {r.prompts.name: len(r.prompts) for r in render_sets(suite, pattern_of(suite, ""), "away", evaluation)}
    assert sizes == {"home": 4, "away": 6, "far": 4}


def test_prompts_and_members_speak_of_the_same_examples(suite: Suite) -> None:
    for test_set in render_sets(suite, pattern_of(suite, ""), "home", Evaluation()):
        assert test_set.members.ids == tuple(prompt.id for prompt in test_set.prompts.prompts)
        assert test_set.members.gold == tuple(prompt.gold for prompt in test_set.prompts.prompts)
        assert test_set.hash == test_set.prompts.hash


def test_runs_share_what_is_equal(suite: Suite) -> None:
    renderer, pattern = Renderer(suite), pattern_of(suite, "")
    first = renderer.sets(pattern, "home", Evaluation())
    assert all(a is b for a, b in zip(first, renderer.sets(pattern, "away", Evaluation()), strict=True))
    other = renderer.sets(replace(pattern, text="{premise} {hypothesis}?"), "home", Evaluation())
    assert not {r.hash for r in first} & {r.hash for r in other}


def test_shots_come_last_and_only_if_asked_for(suite: Suite) -> None:
    shots = load_examples(suite, suite.train_sets["home"])[:4]
    renderer, pattern = Renderer(suite), pattern_of(suite, "")
    assert renderer.sets(pattern, "home", Evaluation(shots=True), shots)[-1].prompts.name == SHOTS
    assert SHOTS not in [r.prompts.name for r in renderer.sets(pattern, "home", Evaluation(), shots)]


def test_the_train_set_matters_only_if_its_test_set_has_a_limit(toy_study: Path) -> None:
    spec = expand(load_study(toy_study)).jobs[0].spec
    assert sampled_alike(spec) == ""
    assert sampled_alike(replace(spec, evaluation=Evaluation(limit=4))) == "home"


def test_work_is_counted_in_characters(suite: Suite) -> None:
    prompts = render_sets(suite, pattern_of(suite, ""), "home", Evaluation(test_sets=("far",)))[0].prompts
    assert characters(prompts) == sum(len(prompt.text) for prompt in prompts.prompts) > 0


def test_a_slice_that_does_not_exist_is_refused() -> None:
    suite = load_suite("mini")
    name = next(name for name, data in suite.test_sets.items() if data.slices)
    check_slices(suite, (name,))
    with pytest.raises(ConfigError, match="no such slice"):
        check_slices(suite, (f"{name}/nowhere",))

"""Study -> runs: names, seeds, draws, functions as patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from oodles.errors import ConfigError
from oodles.study.grid import expand
from oodles.study.load import load_study
from oodles.suite.load import load_suite


def jobs(study: Path, *overrides: str) -> dict[str, set[str]]:
    """Run names and the ids of their shots."""
    return {j.spec.name: {e.id for e in j.draw.examples} for j in expand(load_study(study, overrides)).jobs}


def test_data_seeds_are_apart_from_training_seeds(toy_study: Path) -> None:
    found = jobs(toy_study, "grid.data_seed=5")
    assert list(found) == ["tiny-llama-untrained_home_0_8", "tiny-llama-untrained_home_1_8"]
    assert len({frozenset(ids) for ids in found.values()}) == 1  # the same shots, whatever the training seed
    several = jobs(toy_study, "grid.data_seed=[5, 6]")
    assert [name.removeprefix("tiny-llama-untrained_home_") for name in several] == [
        "0_8_d5",
        "0_8_d6",
        "1_8_d5",
        "1_8_d6",
    ]
    assert several["tiny-llama-untrained_home_0_8_d5"] == found["tiny-llama-untrained_home_0_8"]
    assert several["tiny-llama-untrained_home_0_8_d6"] != found["tiny-llama-untrained_home_0_8"]
    own = jobs(toy_study)
    assert own["tiny-llama-untrained_home_0_8"] != own["tiny-llama-untrained_home_1_8"]


def test_draws_are_nested_only_if_asked(toy_study: Path) -> None:
    sizes = "grid.shots=[4, 8]"
    nested = jobs(toy_study, sizes, 'grid.draw="nested"')
    assert nested["tiny-llama-untrained_home_0_4"] < nested["tiny-llama-untrained_home_0_8"]
    plain = [jobs(toy_study, sizes, f"grid.seeds=[{s}]") for s in range(4)]
    assert not all(
        found[f"tiny-llama-untrained_home_{s}_4"] < found[f"tiny-llama-untrained_home_{s}_8"]
        for s, found in enumerate(plain)
    )
    with pytest.raises(ConfigError, match="expected one of independent, nested"):
        load_study(toy_study, ['grid.draw="nestd"'])
    with pytest.raises(ConfigError, match="data_seed is empty"):
        load_study(toy_study, ["grid.data_seed=[]"])


def ask(fields: Mapping[str, str]) -> str:
    return f"{fields['premise']} So: {fields['hypothesis']} Yes or No?"


def test_a_suite_with_a_function_goes_into_a_study(toy_study: Path, toy_suite: Path) -> None:
    suite = load_suite(toy_suite).with_pattern("ask", ask, (" Yes", " No"))
    grid = expand(replace(load_study(toy_study), suite=suite))
    assert {j.spec.pattern.name for j in grid.jobs} == {"ask"}
    plain = expand(load_study(toy_study))
    assert {j.spec.run_id for j in grid.jobs}.isdisjoint(j.spec.run_id for j in plain.jobs)


def test_functions_that_write_otherwise_are_other_runs(toy_study: Path, toy_suite: Path) -> None:
    """Also where their source is the same: a closure's value is not in it."""

    def asker(end: str) -> Callable[[Mapping[str, str]], str]:
        return lambda fields: f"{fields['premise']} So: {fields['hypothesis']} {end}"

    ids = []
    for end in ("Yes or No?", "True?"):
        suite = load_suite(toy_suite).with_pattern("ask", asker(end), (" Yes", " No"))
        ids.append({j.spec.run_id for j in expand(replace(load_study(toy_study), suite=suite)).jobs})
    assert ids[0].isdisjoint(ids[1])
    with pytest.raises(ConfigError, match="answers is the text 'True', expected several"):
        load_suite(toy_suite).with_pattern("ask", ask, "True")  # type: ignore[arg-type]


def test_a_train_set_with_its_own_pattern_trains_with_it(toy_study: Path, toy_suite: Path) -> None:
    text = toy_suite.read_text().replace(
        "[[train_sets]]",
        '[patterns.own]\ntext = "{hypothesis}?"\nanswers = [" Yes", " No"]\n\n[[train_sets]]\npattern = "own"',
    )
    toy_suite.write_text(text)
    assert {j.spec.pattern.name for j in expand(load_study(toy_study)).jobs} == {"own"}

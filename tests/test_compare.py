"""Two studies: a change beyond noise is found, seeds alone are none, and what cannot be compared says so."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from conftest import oodles
from oodles.api.compare import compare
from oodles.errors import ConfigError, DataError
from test_correlate import simulated

SETS = ("mnli", "hans", "paws")


def written(path: Path, rho: float, seed: int, flip: bool = False) -> Path:
    table = simulated(runs=12, steps=12, rho=rho, seed=seed, sets=SETS, n=100_000, level=0.0)
    if flip:
        is_paws = table["test_set"] == "paws"
        table["value"] = table["value"].where(~is_paws, 1.2 - table["value"])
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("studies")
    return {
        "first": written(folder / "first.csv", 0.6, 0),
        "again": written(folder / "again.csv", 0.6, 1),
        "other": written(folder / "other.csv", 0.6, 2, flip=True),
    }


def test_a_pair_that_turns_is_found_and_other_seeds_are_no_change(studies: dict[str, Path]) -> None:
    changed = compare(studies["first"], studies["other"], method="linear")
    assert changed.sentences[0].startswith("Depends on the study: yes.")
    assert "hans ~ paws" in changed.sentences[0]
    same = compare(studies["first"], studies["again"], method="linear")
    assert "no difference" in same.sentences[0]
    levels = same.tables["claim_levels"]
    assert set(levels["level"]) == {"first", "again"}


def test_the_command(studies: dict[str, Path]) -> None:
    done = oodles("compare", studies["first"], studies["other"], "--method", "linear")
    assert done.returncode == 0, done.stderr
    assert "Depends on the study: yes." in done.stdout
    for words in ("r in first", "r in other", "difference"):
        assert words in " ".join(done.stdout.split())
    found = json.loads(oodles("compare", studies["first"], studies["other"], "--method", "linear", "--json").stdout)
    assert set(found) == {"sentences", "caveats", "claim", "claim_levels"}
    assert "same name in both: 12 runs" in found["caveats"][0]


def test_a_difference_is_that_from_the_first_to_the_second(studies: dict[str, Path]) -> None:
    """Whatever the studies are called: other rises where first falls, and first is named first."""
    for one, two, sign in (("first", "other", "−"), ("other", "first", "+")):
        said = oodles("compare", studies[one], studies[two], "--method", "linear").stdout
        row = next(line for line in said.splitlines() if line.startswith("hans ~ paws")).split()
        assert row[5][0] == sign, said
        assert f"difference: {two} minus {one}" in " ".join(said.split())
        levels = compare(studies[one], studies[two], method="linear").tables["claim_levels"]
        assert list(dict.fromkeys(levels["level"])) == [one, two]


def test_what_cannot_be_compared_says_so(studies: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="given twice"):
        compare(studies["first"], studies["first"])
    table = pd.read_csv(studies["again"])
    table.assign(model="another").to_csv(tmp_path / "another.csv", index=False)
    with pytest.raises(DataError, match=r"no group is in both \(m, mnli; another, mnli\)"):
        compare(studies["first"], tmp_path / "another.csv")
    done = oodles("compare", studies["first"], tmp_path / "gone.csv")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)


def test_studies_that_do_not_tell_n_are_compared_as_exact_or_with_it(studies: dict[str, Path], tmp_path: Path) -> None:
    for name in ("first", "other"):
        table = pd.read_csv(studies[name])
        table.assign(n=table["n"].mask(table["test_set"] == "mnli")).to_csv(tmp_path / f"{name}.csv", index=False)
    two = tmp_path / "first.csv", tmp_path / "other.csv"
    silent = compare(*two, method="linear")
    assert "cannot be told" in silent.sentences[0]
    for options in ({"exact": True}, {"n": {"mnli": 100_000}}):
        assert compare(*two, method="linear", **options).sentences[0].startswith("Depends on the study: yes.")
    known = compare(studies["first"], studies["other"], method="probit-linear", exact=True)  # n is there: not exact
    assert "cannot be told" in known.sentences[0]
    done = oodles("compare", *two, "--method", "linear", "--n", "mnli=100000")
    assert done.stdout.startswith("Depends on the study: yes."), done.stderr


def test_studies_without_a_pair_to_compare_get_their_sentence(studies: dict[str, Path], tmp_path: Path) -> None:
    table = pd.read_csv(studies["again"])
    table[table["step"] == table["step"].max()].to_csv(tmp_path / "last.csv", index=False)
    done = oodles("compare", studies["first"], tmp_path / "last.csv")
    assert done.returncode == 0, done.stderr
    assert "cannot be told" in done.stdout
    assert "difference:" not in done.stdout

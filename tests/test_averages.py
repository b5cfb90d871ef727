"""Correlations by size and shots are those of the runs with that size and those shots."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import oodles as oo
from oodles.errors import ConfigError
from oodles.stats.analysis import Analysis, analyse_table, read_results, write_results
from oodles.stats.averages import size_in_words


def study() -> pd.DataFrame:
    """Two sizes, two numbers of shots, three runs each; sets agree at 16 shots and part at 64."""
    draw = np.random.default_rng(0)
    frames = []
    for model in ("m-125m", "m-1.4b"):
        for shots in (16, 64):
            for seed in range(3):
                at = np.arange(12)
                inside = 0.5 + 0.02 * at + 0.01 * draw.normal(size=12)
                common = 0.03 * draw.normal(size=12)
                for k, name in enumerate(("in", "x", "y", "z")):
                    sign = -1.0 if name == "y" and shots == 64 else 1.0
                    own = inside if k == 0 else 0.3 + 0.5 * inside + sign * common + 0.01 * draw.normal(size=12)
                    about = {"run": f"{model}_{shots}_{seed}", "model": model, "train_set": "in", "shots": shots}
                    about |= {"test_set": name, "role": "ood" if k else "in_domain", "n": 1000}
                    frames.append(pd.DataFrame({**about, "step": at, "value": own}))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyse_table(study(), method="linear", averages=True)


def test_every_pair_is_that_of_the_runs_with_these_shots(analysis: Analysis) -> None:
    shots = analysis.answers["averages"].tables["shots"]
    assert len(shots) == 2 * 2 * 2 * 3  # models, shots, ways, pairs
    table = study()
    for row in shots.to_dict("records"):
        own = table[(table["model"] == row["model"]) & (table["shots"] == int(row["shots"]))]
        alone = oo.partial_correlations(own, method="linear").table.set_index(["within", "a", "b"])
        assert row["r"] == pytest.approx(alone.loc[(row["within"], row["a"], row["b"]), "r"], abs=1e-9)
        assert row["n_runs"] == 3


def test_means_are_those_of_the_pairs(analysis: Analysis) -> None:
    answer = analysis.answers["averages"]
    means, pairs = answer.tables["averages"], answer.tables["shots"]
    rows = means[(means["size"] == "125M") & (means["shots"] == "64") & (means["within"] == "run")]
    own = pairs[(pairs["model"] == "m-125m") & (pairs["shots"] == "64") & (pairs["within"] == "run")]
    assert rows["r"].iloc[0] == pytest.approx(own["r"].mean())
    assert rows["positive"].iloc[0] == pytest.approx(1 / 3)
    assert rows[["pairs", "groups", "runs"]].values.tolist() == [[3, 1, 3]]
    whole = means[(means["size"] == "all") & (means["shots"] == "16") & (means["within"] == "pooled")]
    assert whole[["pairs", "groups", "runs"]].values.tolist() == [[6, 2, 6]]
    assert list(dict.fromkeys(means["size"])) == ["125M", "1.4B", "all"]
    assert "at 16 shots" in answer.sentences[0]
    assert "no test" in answer.caveats[0]


def test_they_are_read_back(analysis: Analysis, tmp_path: object) -> None:
    write_results(analysis, tmp_path / "out")  # type: ignore[operator]
    again = read_results(tmp_path / "out").answers["averages"]  # type: ignore[operator]
    pd.testing.assert_frame_equal(again.tables["averages"], analysis.answers["averages"].tables["averages"])


def test_one_number_of_shots_is_an_error_where_asked_and_left_out_where_not() -> None:
    table = study().query("shots == 16")
    with pytest.raises(ConfigError, match="do not differ in shots"):
        analyse_table(table, method="linear", averages=True)
    assert analyse_table(table, method="linear", averages="auto").answers == {}


def test_groups_may_be_made_by_shots() -> None:
    found = analyse_table(study(), method="linear", by=("model", "shots"), averages=True).answers["averages"]
    assert list(found.tables["shots"].columns[:2]) == ["model", "shots"]


def test_sizes_in_words() -> None:
    assert [size_in_words(n) for n in (6.9e9, 70e6, float("nan"))] == ["6.9B", "70M", ""]

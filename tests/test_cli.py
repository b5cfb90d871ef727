from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import oodles
from oodles import __version__
from oodles.disk import write_json
from oodles.store.sidecars import read_json

VERBS = ["demo", "suites", "models", "fetch", "check", "run", "status", "analyse", "report"]


def test_version_and_help() -> None:
    assert oodles("--version").stdout.strip() == f"oodles {__version__}"
    text = oodles("--help").stdout
    for verb in VERBS:
        assert verb in text
    assert "Start with: oodles demo" in text


@pytest.mark.parametrize("verb", [*VERBS, "analyze"])
def test_every_verb_teaches(verb: str) -> None:
    done = oodles(verb, "--help")
    assert done.returncode == 0
    assert "--json" in done.stdout


def test_suites_lists_and_shows() -> None:
    assert "mini" in [s["name"] for s in json.loads(oodles("suites", "--json").stdout)]
    shown = json.loads(oodles("suites", "mini", "--json", "--baseline").stdout)
    assert len([s for s in shown["sets"] if s["kind"] == "test"]) == 8
    assert all(s["baseline"] < 0.7 for s in shown["sets"])
    assert "hypothesis-only" in oodles("suites", "mini", "--baseline").stdout


def test_check_shows_runs_and_prompts(toy_study: Path) -> None:
    facts = json.loads(oodles("check", toy_study, "--json").stdout)
    assert len(facts["runs"]) == 2
    assert facts["runs"][0]["steps"] == [0, 1, 2, 4]
    home = next(s for s in facts["sets"] if (s["set"], s["kind"]) == ("home", "test"))
    shown = home["rendered"]["question"]["tiny-llama-untrained"]["shown"]
    assert len(shown) == 2
    assert shown[0]["text"] == "A home person number 0 sits down today. Question: Somebody e sits. Yes or No?"
    assert shown[0]["answer"] == " Yes"
    assert shown[0]["answer_tokens"] == ["ĠYes"]
    assert shown[0]["tokens"][-1] == "?"
    assert "Yes or No?" in oodles("check", toy_study).stdout


def test_a_sampled_in_domain_set_is_a_caveat(toy_study: Path) -> None:
    assert "caveat" not in oodles("check", toy_study).stdout
    assert "the in-domain set is a sample of 8" in oodles("check", toy_study, "--set", "eval.limit_in_domain=8").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run", "STUDY", "--set", "train.learning_rat=1"],
            "[train]: unknown key 'learning_rat'; did you mean 'learning_rate'?",
        ),
        (["run", "STUDY", "--set", "train.epochs=five"], "epochs is 'five', expected whole number"),
        (["run", "none.toml"], "ConfigError: none.toml: no such file"),
        (["check", "STUDY", "--set", "suite=mii"], "did you mean 'mini'?"),
        (["check", "STUDY", "--set", 'eval.test_sets=["home", "awai", "far"]'], "did you mean 'away'?"),
        (["check", "STUDY", "--set", "grid.shots=[7]"], "not divisible"),
        (["check", "STUDY", "--set", "grid.shots=[64]"], "lower shots"),
        (["check", "STUDY", "--set", 'grid.models=["HERE"]'], "no config.json; expected a model folder"),
        (["check", "STUDY", "--set", "train.schedule=weird"], "schedule is 'weird', expected one of linear, cosine"),
        (["run", "STUDY", "--dry-run", "--out", "."], "holds files that are not an oodles study"),
        (["suites", "mni"], "did you mean 'mini'?"),
        (["fetch", "smolm2-135m-q4"], "did you mean 'smollm2-135m-q4'?"),
        (["status", "HERE"], "no study.json"),
        (["analyse", "none.csv"], "none.csv"),
        (["report", "none.parquet"], "none.parquet"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], message: str, toy_study: Path, tmp_path: Path) -> None:
    here = tmp_path / "empty"
    here.mkdir()
    filled = [a.replace("STUDY", str(toy_study)).replace("HERE", str(here)) for a in arguments]
    before = sorted(tmp_path.rglob("*"))
    done = oodles(*filled, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert message in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_data_errors_name_the_place(toy_study: Path, toy_suite: Path) -> None:
    toy_suite.write_text(toy_suite.read_text().replace('drop = ["n"]', "drop = []"))
    done = oodles("check", toy_study)
    assert done.returncode == 2
    assert "home_train.csv row 3: label 'n' has no mapping (13 rows have it); mapped: e, c" in done.stderr


def test_unknown_verbs_and_flags_exit_2() -> None:
    assert oodles("analize").returncode == 2
    assert oodles("run").returncode == 2
    assert oodles("suites", "--jsn").returncode == 2


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """A table without roles: two in-domain sets, two models, three OOD sets."""
    from test_correlate import simulated

    table = simulated(runs=6, sets=("mnli", "hans", "paws", "rte", "snli")).drop(columns=["role", "train_set"])
    table["model"] = table["run"].map(lambda run: "small" if int(run[-1]) < 3 else "large")
    table.to_csv(tmp_path / "scores.csv", index=False)
    return tmp_path / "scores.csv"


@pytest.mark.parametrize("nothing", ["none", ""])
def test_no_grouping_by_command_line(scores: Path, nothing: str) -> None:
    done = oodles("analyse", scores, "--in-domain", "mnli", "--by", nothing, "--json")
    assert done.returncode == 0, done.stderr
    pairs = json.loads(done.stdout)["pairs"]
    assert all("model" not in pair and pair["n_runs"] == 6 for pair in pairs)
    grouped = json.loads(oodles("analyse", scores, "--in-domain", "mnli", "--by", "model", "--json").stdout)["pairs"]
    assert {(pair["model"], pair["n_runs"]) for pair in grouped} == {("small", 3), ("large", 3)}
    report = oodles("report", scores, "--in-domain", "mnli", "--by", nothing, "--out", scores.parent / "report.html")
    assert report.returncode == 0, report.stderr
    both = oodles("analyse", scores, "--in-domain", "mnli", "--by", "none", "--by", "model")
    assert both.returncode == 2
    assert (
        both.stderr.strip()
        == "ConfigError: --by none: no grouping, but --by model is given, too; leave one of them out"
    )


def test_every_in_domain_set_that_is_named_counts(scores: Path) -> None:
    done = oodles("analyse", scores, "--in-domain", "mnli", "--in-domain", "snli", "--by", "none", "--json")
    pairs = json.loads(done.stdout)["pairs"]
    assert {name for pair in pairs for name in (pair["a"], pair["b"])} == {"hans", "paws", "rte"}
    done = oodles(
        "analyse", scores, "--in-domain", "mnli", "--test-set", "hans", "--test-set", "rte", "--by", "none", "--json"
    )
    assert {(pair["a"], pair["b"]) for pair in json.loads(done.stdout)["pairs"]} == {("hans", "rte")}


def test_options_about_chance_and_shared_points(scores: Path) -> None:
    plain = oodles("analyse", scores, "--in-domain", "mnli").stdout
    assert "chance is not known for mnli" in plain
    told = oodles("analyse", scores, "--in-domain", "mnli", "--chance", "0.5", "--shared-start", "keep").stdout
    assert "chance is not known" not in told
    for arguments, message in (
        (["--chance", "5"], "chance is 5; expected the score of guessing, from 0 to below 1"),
        (["--shared-start", "once"], "shared_start 'once' is not known; known: drop, keep"),
    ):
        done = oodles("analyse", scores, "--in-domain", "mnli", *arguments)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
        assert message in done.stderr


def test_examples_of_a_test_set_are_told_where_a_table_has_no_n(tmp_path: Path) -> None:
    """The plainest table, one column per test set: without n noise of the in-domain set could be all there is."""
    from test_correlate import simulated

    long = simulated(runs=9, rho=0.9, level=0.0)
    long.drop(columns=["role", "n"]).to_csv(tmp_path / "long.csv", index=False)
    wide = long.pivot_table(index=["run", "step"], columns="test_set", values="value").reset_index()
    wide.to_csv(tmp_path / "wide.csv", index=False)
    for name in ("long.csv", "wide.csv"):
        silent = oodles("analyse", tmp_path / name, "--in-domain", "mnli")
        assert "noise of the in-domain set, which is not known" in " ".join(silent.stdout.split())
        assert "missing (--n mnli=2000 if that is it, as its scores suggest)" in " ".join(silent.stdout.split())
        assert not any(
            pair["clear"]
            for pair in json.loads(oodles("analyse", tmp_path / name, "--in-domain", "mnli", "--json").stdout)["pairs"]
        )
        for option in (["--n", "mnli=2000"], ["--exact"]):
            done = oodles("analyse", tmp_path / name, "--in-domain", "mnli", *option, "--json")
            assert all(pair["clear"] for pair in json.loads(done.stdout)["pairs"])
        assert "taken as exact" in done.stdout  # of --exact
    for given, told in (
        (["mnli"], "--n mnli: expected TEST_SET=NUMBER, such as --n snli=9842"),
        (["mnli=1e3"], "--n mnli=1e3: expected TEST_SET=NUMBER"),
        (["mnli=0"], "n of mnli is 0; expected its number of examples"),
        (["mnlj=9"], "choose another --n (did you mean 'mnli'?)"),
        (["mnli=9", "mnli=8"], "--n mnli=8: mnli has 9 examples already; give one number"),
    ):
        options = [text for one in given for text in ("--n", one)]
        done = oodles("analyse", tmp_path / "long.csv", "--in-domain", "mnli", *options)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
        assert told in done.stderr


def test_a_run_without_a_step_has_none_in_its_status(toy_study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert oodles("run", toy_study, "--out", out, "--only", "*_0_8").returncode == 0
    known = read_json(out / "study.json")
    write_json(out / "study.json", {**known, "runs": [*known["runs"], "not_begun"]})
    steps = {row["run"]: row["step"] for row in json.loads(oodles("status", out, "--json").stdout)}
    assert steps == {"tiny-llama-untrained_home_0_8": 4, "not_begun": None}
    row = next(line for line in oodles("status", out).stdout.splitlines() if line.startswith("not_begun"))
    assert row.split() == ["not_begun", "missing", "0"]

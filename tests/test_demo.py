"""The demo as a newcomer runs it: quick on the tiny model every day, whole on the real one in the long tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from benchmarks import demo as repetitions

from conftest import missing, oodles
from oodles.api.analyse import analyse
from oodles.store.folder import run_folders
from oodles.store.table import read_records, read_runs
from oodles.study.load import load_study
from oodles.suite.load import load_suite

OODLES = [sys.executable, "-c", "from oodles.cli import main; main()"]


class Text(HTMLParser):
    """The visible text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_quick_demo_without_a_network(tmp_path: Path, tiny_model: Path) -> None:
    """With the network off: an empty network namespace, not a promise."""
    probe = subprocess.run(["unshare", "--net", "--map-root-user", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        missing(f"no network namespace here: {probe.stderr.strip()[:100]}")
    env = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"} | {"OMP_NUM_THREADS": "1"}
    command = [
        "unshare",
        "--net",
        "--map-root-user",
        *OODLES,
        "demo",
        "--quick",
        "--out",
        str(tmp_path / "q"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "the numbers mean nothing" in done.stderr
    opening, _, _ = done.stderr.partition("\nReport, to look at while the demo runs: ")  # something true meanwhile
    assert "100 BERTs on HANS, published runs:\nIt depends on the pair: of 15 pairs" in opening
    assert "\n - Move apart: " in opening
    assert max(map(len, opening.partition("published runs:")[2].splitlines())) <= 80
    assert "<h1>100 BERTs on HANS</h1>" in (tmp_path / "bert-hans.html").read_text()
    found = json.loads(done.stdout)
    page = (tmp_path / "q" / "report.html").read_text()
    assert found["report"] == str(tmp_path / "q" / "report.html")
    text = " ".join(Text(page).words)
    assert found["verdicts"][0]["descriptive"]
    assert "Open:with3runsnothingwastested;5ormoreindependentrunswouldallowatest." in "".join(text.split())
    assert found["verdicts"][0]["verdict"].startswith("Open: with 3 runs")
    for name in ("daily", "genre", "science", "coreference", "overlap", "word_order", "news", "negation"):
        assert name in text
    assert "tiny-llama-untrained" in text
    assert "sample of 200" in text  # the in-domain set is sampled: said wherever the numbers are
    assert (tmp_path / "q" / "results" / "results.json").is_file()
    again = oodles("demo", "--quick", "--out", tmp_path / "q", "--json")
    assert again.returncode == 0
    assert (tmp_path / "q" / "report.html").read_text() == page


def wait_for(condition: object, process: subprocess.Popen[str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.2)


@pytest.mark.long
def test_the_demo_repeats_to_the_bit_also_after_a_kill(tmp_path: Path) -> None:
    """Two empty folders, one killed in its second run and started again: the same table and records, and a finding."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert subprocess.run([*OODLES, "demo", "--out", str(whole)], check=False).returncode == 0
    process = subprocess.Popen([*OODLES, "demo", "--out", str(cut)], text=True)
    wait_for(lambda: len(list(cut.glob("runs/*_41_24/records/4/*.parquet"))) > 2, process, 1800)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [f.status for f in run_folders(cut)] == ["done", "started"]
    assert subprocess.run([*OODLES, "demo", "--out", str(cut)], check=False).returncode == 0
    pd.testing.assert_frame_equal(read_runs(whole), read_runs(cut), check_exact=True)
    pd.testing.assert_frame_equal(read_records(whole), read_records(cut), check_exact=True)
    table = read_runs(whole)
    assert table["run"].nunique() >= 5
    assert table.step.nunique() >= 7
    assert table[table.role == "in_domain"].n.min() == 120
    assert table[table.role == "ood"].n.min() >= 32
    assert_leaves_chance(table)
    assert not analyse(whole).verdicts[0].descriptive


def assert_leaves_chance(table: pd.DataFrame) -> None:
    """At the last step at least four OOD sets are .1 or more from guessing, in both directions."""
    last = table[(table.step == table.step.max()) & (table.role == "ood") & table.metric.isin(["accuracy", "auc"])]
    means = last.groupby(["metric", "test_set"])["value"].mean() - 0.5
    assert max(int((means[metric].abs() >= 0.1).sum()) for metric in ("accuracy", "auc")) >= 4
    assert means.min() <= -0.1
    assert means.max() >= 0.1


@pytest.mark.parametrize("number", repetitions.kept())
def test_each_repetition_is_the_demo_with_the_seeds_that_were_chosen_before(number: int) -> None:
    table, study = repetitions.scores(number), load_study("demo")
    assert sorted(table.seed.unique()) == repetitions.seeds()[number]
    assert sorted(table.step.unique()) == sorted({0, *study.evaluation.steps, study.recipe.steps})
    assert set(table.test_set) == set(load_suite(study.suite).test_sets)
    assert tuple(table.shots.unique()) == study.shots
    assert set(table.loc[table.role == "ood", "n"]) == {study.evaluation.limit}
    assert_leaves_chance(table)


def test_the_demo_is_the_first_repetition_of_its_round() -> None:
    assert list(load_study("demo").seeds) == next(iter(repetitions.seeds("second_round").values()))


def test_no_seed_is_used_twice() -> None:
    told = repetitions.told()
    every = [*told["tuned_on"], *(seed for each in repetitions.seeds().values() for seed in each)]
    assert len(set(every)) == len(every)
    assert set(told["analysed_early"]) < {seed for each in repetitions.seeds("second_round").values() for seed in each}


@pytest.mark.parametrize("number", repetitions.kept("second_round"))
def test_the_kept_outcomes_are_those_of_the_kept_scores(number: int) -> None:
    """So that a repetition's verdict is that of the demo's own report, with noise measured rather than bounded."""
    table, records = repetitions.scores(number), repetitions.outcomes(number)
    assert records is not None
    means = records.groupby(["run", "step", "test_set"])["correct"].agg(value="mean", n="size").reset_index()
    accuracy = table[table.metric == "accuracy"]
    both = accuracy.merge(means, on=["run", "step", "test_set"], suffixes=("", "_counted"), validate="one_to_one")
    assert len(both) == len(accuracy) == len(means)
    assert (both.n == both.n_counted).all()
    assert (both.value - both.value_counted).abs().max() < 1e-12
    assert set(repetitions.pooled(repetitions.analysed(number)).corrected_by) == {"records"}


def test_two_of_three_repetitions_have_a_clear_pair() -> None:
    clear = [repetitions.pooled(repetitions.analysed(n)).clear.any() for n in repetitions.kept("second_round")]
    assert sum(clear) >= 2


def test_the_page_shows_all_repetitions() -> None:
    page = repetitions.PAGE.read_text()
    assert repetitions.kept("first_round") == [1, 2, 3]
    for name, text in repetitions.blocks().items():
        assert f"<!-- {name}: begin -->\n\n{text}\n<!-- {name}: end -->" in page


def test_the_prose_on_half_the_rows_is_what_was_computed() -> None:
    """If this fails on purpose (python -m benchmarks.demo --power), read the paragraph again."""
    found = json.loads((repetitions.KEPT / "power.json").read_text())["halves"].values()
    page = " ".join(repetitions.PAGE.read_text().split())
    assert max(abs(one["r_half"] - one["r"]) for one in found) < 0.03
    assert f"a half has {min(one['least'] for one in found)} to {max(one['most'] for one in found)} clear pairs" in page
    more = [one["half"] > one["all"] for one in found]
    assert (sum(more), len(more)) == (2, 3)
    less = sorted(f"{one['r_half'] - one['r_apart']:.2f}"[1:] for one in found)
    assert f"they are {less[0]} to {less[-1]} smaller than with one half" in page
    assert not re.search(r"\| 0\.000 ", page)


def test_the_demo_fits_its_budget(smollm2_tokenizer: object) -> None:
    """Twelve minutes of two cores are about 340 thousand scored tokens; to train on a token costs as much as three."""
    done = oodles("run", "demo", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    total = json.loads(done.stdout)["total"]
    assert total["computed_tokens"] + 3 * total["training_tokens"] < 340_000

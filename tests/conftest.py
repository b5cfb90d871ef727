"""Shared fixtures. What needs the fetched model skips with a reason, or fails where nothing may be skipped."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

SLOW = {  # several processes, real training, whole sets: run by `make test-all`
    "test_budget.py": ["test_memory_of_a_real_model_is_near_what_is_measured", "test_the_dry_run_of_a_grown_study"],
    "test_cluster.py": ["test_ten_thousand", "test_the_same_command_submits", "test_one_run_as_a_file"],
    "test_correlate.py": ["test_a_million_rows", "test_strange_tables_give_an_answer"],
    "test_damage.py": [
        "test_what_may_be_deleted_stops_nothing",
        "test_a_run_without_its_spec",
        "test_a_damaged_adapter",
    ],
    "test_demo.py": ["test_quick_demo"],
    "test_disk.py": ["test_a_log_fails_no_run", "test_what_the_libraries_make_of_a_full_disk", "test_a_read_only_disk"],
    "test_docs.py": [
        "test_the_shell_example_runs",
        "test_the_study_from_python_runs",
        "test_the_callback_example_runs",
    ],
    "test_doors.py": [
        *("test_a_user_without_a_name", "test_passwords_of_addresses", "test_torch_without_proc"),
        *("test_terminals_of_few", "test_a_full_cache"),
    ],
    "test_examples.py": [""],
    "test_families.py": [""],
    "test_faults.py": [""],
    "test_fuzz.py": [""],
    "test_growing.py": [
        *("test_workers_share", "test_ctrl_c_stops", "test_two_commands", "test_more_steps", "test_more_test_sets"),
        *("test_two_trainings_never_meet", "test_filters", "test_damaged_records", "test_a_step_that_is_no_longer"),
        *("test_a_kept_checkpoint_does_not", "test_status_shows", "test_a_packed_study"),
    ],
    "test_launch.py": ["test_a_killed_study"],
    "test_locks.py": ["test_a_taker_that_dies", "test_of_four_takers"],
    "test_model_load.py": ["test_a_hub_out_of_reach_is_told"],
    "test_help.py": ["test_examples_run"],
    "test_nli.py": ["test_the_whole_audit", "test_the_real_data_have_no_errors"],
    "test_own_loop.py": ["test_of_two_processes"],
    "test_overlap.py": ["test_the_search_equals", "test_every_character"],
    "test_progress.py": ["test_a_redirected_run", "test_progress_ends"],
    "test_results.py": ["test_json_is_all"],
    "test_resume.py": [
        "test_a_polite_signal",
        "test_a_killed_run",
        "test_named_seeds",
        "test_a_half_written",
        "test_failures_say_why",
    ],
    "test_checkpoints.py": ["test_a_killed_scorer"],
    "test_scoring.py": ["test_memory_does_not_grow", "test_a_real_shortage", "test_two_processes"],
    "test_slurm.py": [""],
    "test_trackers.py": ["test_every_evaluation_once", "test_mlflow", "test_trackio"],
    "test_trl.py": [""],
    "test_tutorial.py": [""],
}

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the network for a model or a data set

TINY_SUITE = """
schema = 1
name = "toy"

[patterns.question]
text = "{premise} Question: {hypothesis} Yes or No?"
answers = [" Yes", " No"]
truncate = "premise"

[[train_sets]]
name = "home"
source = { file = "home_train.csv" }
labels = { e = 0, c = 1 }
drop = ["n"]
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones, before -m chooses."""
    for item in items:
        if item.name.startswith(tuple(SLOW.get(item.path.name, ()))) and not item.get_closest_marker("long"):
            item.add_marker("slow")


def missing(reason: str) -> None:
    """Skip, unless everything must run (OODLES_NO_SKIP, set by the continuous integration)."""
    if os.environ.get("OODLES_NO_SKIP"):
        pytest.fail(f"may not be skipped here: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the real sets."""
    folder = os.environ.get("OODLES_DATA", "")
    for path in (Path(folder) / "nli", Path(folder)):
        if folder and (path / "hans" / "validation.parquet").is_file():
            return path
    missing("no real data: set OODLES_DATA to a folder with <test set>/<split>.parquet")
    raise AssertionError


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """A folder with a tiny Llama and a tokenizer, laid out like the hub."""
    from oodles.model.embedded import fetch

    return fetch("tiny-llama-untrained", lambda _: None)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of the real model."""
    from oodles.model.embedded import is_fetched, model_folder

    if not is_fetched("smollm2-135m-q4"):
        missing("the model is not in the cache: oodles fetch smollm2-135m-q4")
    return model_folder("smollm2-135m-q4")


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2: Path) -> Any:
    from oodles.model.load import load_tokenizer, resolve_model

    return load_tokenizer(resolve_model("smollm2-135m-q4"))


@pytest.fixture
def toy_suite(tmp_path: Path) -> Path:
    """A suite of small CSV files in its own folder; returns its TOML."""
    text = TINY_SUITE
    for name in ("home", "away", "far"):
        text += f'\n[[test_sets]]\nname = "{name}"\nsource = {{ file = "{name}.csv" }}\n'
        text += 'labels = { e = 0, c = 1 }\ndrop = ["n"]\n'
    for name, rows in (("home_train", 40), ("home", 24), ("away", 16), ("far", 20)):
        write_rows(tmp_path / f"{name}.csv", name, rows)
    (tmp_path / "toy.toml").write_text(text)
    return tmp_path / "toy.toml"


def write_rows(path: Path, name: str, rows: int) -> None:
    """Labels e, c, n in turn; every premise has all three."""
    lines = ["id,premise,hypothesis,label"]
    for index in range(rows):
        label = "ecn"[index % 3]
        lines.append(f"{index},A {name} person number {index // 3} sits down today.,Somebody {label} sits.,{label}")
    path.write_text("\n".join(lines) + "\n")


STUDY = """
schema = 1
name = "toy"
suite = "toy.toml"

[grid]
models = ["tiny-llama-untrained"]
train_sets = ["home"]
shots = [8]
seeds = [0, 1]

[train]
epochs = 2
batch_size = 4
learning_rate = 1e-2
"""


@pytest.fixture
def toy_study(toy_suite: Path, tiny_model: Path) -> Path:
    path = toy_suite.parent / "study.toml"
    path.write_text(STUDY)
    return path


def oodles(*arguments: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line as a user calls it; in this process, to save loading torch, unless the environment differs."""
    command = list(map(str, arguments))
    return _in_a_process(command, cwd, env) if env else _here(command, cwd)


def _in_a_process(command: list[str], cwd: Path | None, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from oodles.cli import main; main()", *command],
        capture_output=True,
        encoding=env.get("PYTHONIOENCODING", "utf-8").partition(":")[0],
        cwd=cwd,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
    )


def _here(command: list[str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
    from oodles.cli import main

    out, err, arguments, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["oodles", *command]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.chdir(cwd or "."):
            main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except Exception:  # a traceback, as a user would see it
        code = 1
        err.write(traceback.format_exc())
    finally:
        sys.argv = arguments
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

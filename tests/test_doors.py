"""What comes from outside: terminals, environments, weights, templates, passwords. One line, or harmless."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import missing, oodles
from oodles.errors import masked, plain
from test_correlate import simulated

if TYPE_CHECKING:
    from packaging.requirements import Requirement

MAIN = "from oodles.cli import main; main()"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    simulated(runs=3).to_csv(path, index=False)
    return path


def one_line(done: subprocess.CompletedProcess[str], *words: str) -> str:
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("study ")]  # but for what it is doing
    assert len(errors) == 1, done.stderr
    for word in words:
        assert word in done.stderr
    return done.stderr


def apart(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A shell command in namespaces of its own: root there, whoever it is here."""
    outer = ["unshare", "--mount", "--map-root-user", "sh", "-c", command]
    environment = {k: v for k, v in {**os.environ, "OMP_NUM_THREADS": "1", **env}.items() if v}
    if shutil.which("unshare") is None:
        missing("no unshare")
    done = subprocess.run(outer, capture_output=True, text=True, check=False, env=environment)
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        missing(f"no namespaces here: {done.stderr.strip()[:100]}")
    return done


# terminals


def test_escape_codes_in_names_are_shown_as_text(table: Path, tmp_path: Path) -> None:
    text = table.read_text().replace("hans", "\x1b]0;owned\x07\x1b[31mhans").replace("paws", "\x9b2Jpaws\u202e")
    table.write_text(text)
    done = oodles("analyse", table)
    assert done.returncode == 0
    assert "\\x1b]0;owned\\x07\\x1b[31mhans" in done.stdout
    for output in (done, oodles("analyse", table, "--json"), oodles("analyse", table, "--in-domain", "\x1b[2J")):
        assert not set("\x1b\x07\x9b\u202e") & set(output.stdout + output.stderr)
    named = json.loads(oodles("analyse", table, "--json").stdout)["pairs"]
    assert {"\x1b]0;owned\x07\x1b[31mhans", "\x9b2Jpaws\u202e"} <= {row["a"] for row in named} | {
        row["b"] for row in named
    }
    odd = tmp_path / "\x1b[31mfolder"
    odd.mkdir()
    assert "\x1b" not in one_line(oodles("status", odd))
    assert "\x1b" not in one_line(oodles("\x1b[31m"))


def test_escape_codes_in_a_suite(toy_suite: Path) -> None:
    text = toy_suite.read_text().replace('name = "toy"', 'name = "toy"\ndescription = "\\u001b[31mred"', 1)
    toy_suite.write_text(text)
    done = oodles("suites", toy_suite)
    assert "\\x1b[31mred" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_terminals_of_few_characters(table: Path, encoding: str) -> None:
    table.write_text(table.read_text().replace("hans", "日本🙂").replace("paws", "ж"))
    done = oodles("analyse", table, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found = json.loads(oodles("analyse", table, "--json", PYTHONIOENCODING=encoding).stdout)["pairs"]
    assert {"日本🙂", "ж"} <= {row["a"] for row in found} | {row["b"] for row in found}
    one_line(oodles("analyse", table, "--in-domain", "日本語", PYTHONIOENCODING=encoding), "in-domain set")


def test_bytes_that_are_no_text_on_the_command_line(table: Path) -> None:
    for arguments in (["analyse", "\udcff.csv"], ["analyse", str(table), "--in-domain", "\udcff"], ["\udcff"]):
        one_line(oodles(*arguments, HOME=os.environ.get("HOME", "/")))


def test_usage_is_one_line_and_help_is_help() -> None:
    one_line(oodles("nope"), "oodles: No such command 'nope'; see oodles --help")
    one_line(oodles("run"), "oodles run: Missing argument")
    one_line(oodles("run", "x", "--workers", "0"), "--workers")
    one_line(
        oodles("analyse", "x", "--by"), "oodles analyse: Option '--by' requires an argument; see oodles analyse --help"
    )
    assert "Start with: oodles demo" in oodles().stdout


def test_a_full_disk_behind_the_output() -> None:
    command = [sys.executable, "-c", MAIN, "suites"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr == "StoreError: the output could not be written (No space left on device)\n"
        done = subprocess.run([*command[:3], "nope"], stdout=subprocess.PIPE, stderr=full, text=True, check=False)
        assert done.returncode == 2


def test_plain_text_is_left_alone() -> None:
    for text in ("plain", "日本🙂", "a\tb\nc", "👩‍👩‍👧"):
        assert plain(text) == text


# environments


def test_a_user_without_a_name_or_home(table: Path, toy_study: Path, tmp_path: Path) -> None:
    start = "exec unshare --user --map-user=4321 --map-group=4321"
    python = f"{start} {sys.executable} -c '{MAIN}'"
    done = apart(f"{python} analyse {table}", HOME="", XDG_CACHE_HOME="")
    assert done.returncode == 0, done.stderr
    done = apart(f"{python} run {toy_study} --out {tmp_path / 'out'}", HOME="", XDG_CACHE_HOME="", OODLES_CACHE="")
    one_line(done, "no home folder; set HOME, or set OODLES_CACHE to a folder for models")


def test_a_full_cache(tmp_path: Path) -> None:
    fill = f"mount -t tmpfs -o size=40k none {tmp_path}"
    done = apart(f"{fill} && exec {sys.executable} -c '{MAIN}' fetch tiny-llama-untrained", OODLES_CACHE=str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "no space left on the disk" in done.stderr.splitlines()[-1]


def test_torch_without_proc_is_another_environment() -> None:
    """Where /proc/cpuinfo is hidden torch computes without AVX: the record says so, and step 0 is not taken over."""
    code = "import torch; from oodles.store.environment import environment; print(environment())"
    tell = f"exec {sys.executable} -c '{code}'"
    seen, hidden = apart(tell), apart(f"mount -t tmpfs none /proc && {tell}")
    assert "'instructions': 'DEFAULT'" in hidden.stdout, hidden.stderr
    if "'instructions': 'DEFAULT'" not in seen.stdout:
        assert seen.stdout.replace("\n", "") != hidden.stdout.replace("\n", "")


# weights and templates


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch /tmp/oodles-was-here",))


def test_a_pickled_adapter_is_refused(toy_suite: Path, tiny_model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(
        json.dumps(
            {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": str(tiny_model)}
        )
    )
    (adapter / "adapter_model.bin").write_bytes(pickle.dumps(Payload()))
    given = ("score", "--suite", toy_suite, "--in-domain", "home", "--out", tmp_path / "out", "--adapter", adapter)
    one_line(oodles(*given), "no adapter_model.safetensors; pickled adapters are not loaded")
    assert not Path("/tmp/oodles-was-here").exists()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": 3}')
    one_line(oodles(*given), "base_model_name_or_path is 3, expected text")


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__[1].__subclasses__() }}", "{% if", "{{ raise_exception('no') }}"]
)
def test_an_unsafe_chat_template_is_refused(toy_suite: Path, tiny_model: Path, tmp_path: Path, template: str) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    for file in model.glob("chat_template*"):
        file.unlink()
    (model / "chat_template.jinja").write_text(template)
    toy_suite.write_text(toy_suite.read_text().replace('truncate = "premise"', 'truncate = "premise"\nchat = true'))
    given = ("score", "--suite", toy_suite, "--in-domain", "home", "--out", tmp_path / "out", "--model", model)
    one_line(oodles(*given, "--allow", "answer-space"), "the tokenizer's chat template fails")


# passwords


def test_passwords_of_addresses_are_masked(toy_suite: Path, tmp_path: Path) -> None:
    text = toy_suite.read_text().replace('{ file = "far.csv" }', '{ hub = "org/far", split = "test" }')
    toy_suite.write_text(text)
    place = {"HF_ENDPOINT": "http://me:s3cret@127.0.0.1:9", "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf")}
    for command in (["fetch", toy_suite], ["models", "org/name"]):
        done = oodles(*command, OODLES_CACHE=str(tmp_path / "cache"), **place)
        assert done.returncode == 2
        assert "s3cret" not in done.stderr + done.stdout
    for text in ("http://a:b@c/d", "https://u:p@ss@host:80/x", "s3://key:secret@b"):
        assert ":b@" not in masked(text)
        assert "p@ss" not in masked(text)
        assert "secret" not in masked(text)
    assert masked("mail me@example.org or http://a.b/c@d") == "mail me@example.org or http://a.b/c@d"


def test_a_log_holds_no_password(tmp_path: Path) -> None:
    from oodles.store.folder import RunFolder, log_line

    folder = RunFolder(tmp_path / "runs" / "r")
    folder.path.mkdir(parents=True)
    log_line(folder, "Traceback: ConnectionError: http://me:s3cret@127.0.0.1:9/api")
    assert "s3cret" not in folder.log.read_text()


# versions


def test_every_version_that_make_installs_is_pinned() -> None:
    """All packages that oodles with its extras brings here, and what builds it; the indirect ones too."""
    from packaging.requirements import Requirement

    root = Path(__file__).parent.parent
    pinned = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", (root / "constraints.txt").read_text(), flags=re.MULTILINE))
    assert pinned["torch"] == "2.13.0"
    project = tomllib.loads((root / "pyproject.toml").read_text())
    named = ["build", *project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in ("train", "data", "dev", "docs"):
        named += project["project"]["optional-dependencies"][extra]
    waiting, seen = [_name_and_extras(Requirement(one)) for one in named], set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        waiting += [_name_and_extras(needed) for needed in _needs(name, wanted)]
    names = {name for name, _ in seen}
    assert len(names) > 60
    assert names <= pinned.keys(), sorted(names - pinned.keys())
    commands = (root / "Makefile").read_text()
    assert "PIP_CONSTRAINT=constraints.txt" in commands


def _name_and_extras(needed: Requirement) -> tuple[str, tuple[str, ...]]:
    return re.sub(r"[-_.]+", "-", needed.name).lower(), tuple(sorted(needed.extras))


def _needs(name: str, extras: tuple[str, ...]) -> list[Requirement]:
    """What a package needs here; nothing if it is not installed itself (`build`, for one)."""
    from packaging.requirements import Requirement

    found = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        for needed in map(Requirement, metadata.requires(name) or ()):
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or ("",)):
                found.append(needed)
    return found


# tables


def test_no_step_with_both_an_in_domain_and_an_ood_score(table: Path, tmp_path: Path) -> None:
    import pandas as pd

    found = pd.read_csv(table)
    found["step"] += 1000 * (found["test_set"] == "mnli")
    found.to_csv(table, index=False)
    for command in (["analyse", table], ["report", table, "--out", tmp_path / "r.html"], ["analyse", table, "--json"]):
        one_line(oodles(*command), "no step has both an in-domain and an OOD score; score both at the same steps")
    found.loc[found["run"] == found["run"].iloc[0], "step"] %= 1000  # one run has them all
    found.to_csv(table, index=False)
    assert oodles("analyse", table, "--method", "linear").returncode == 0


def test_test_sets_are_picked_from_a_table_without_roles(table: Path) -> None:
    import pandas as pd

    pd.read_csv(table).drop(columns=["role", "train_set"], errors="ignore").to_csv(table, index=False)
    one_line(oodles("analyse", table, "--test-set", "hans"), "no test set is in-domain")
    found = pd.read_csv(table)
    found.loc[0, "test_set"] = None
    found.to_parquet(table.with_suffix(".parquet"))
    one_line(oodles("analyse", table.with_suffix(".parquet"), "--test-set", "x"), "no scores of test set 'x'")

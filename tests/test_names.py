"""Names that become paths: one rule at every door, and nothing written when a name is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import oodles
from oodles.errors import ConfigError
from oodles.names import LONGEST, as_name, check_name, is_name

BAD = ["../../up", "a/b", "..", ".", "", "a b", "a\\b", "\x1b[31m", "x\x00", "\ud800", ".hidden", "n" * 300]


def everything(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


def assert_refused(done, before: set[str], folder: Path, *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert everything(folder) == before


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_a_name(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ConfigError, match=r"^the name is '") as told:
        check_name(name, "the name")
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 250
    assert is_name(as_name(name))


def test_ordinary_names() -> None:
    for name in ("pythia-1.4b", "smollm2_135m", "hans", "mnli,long", "Qwen2.5-0.5B", "été", "n" * LONGEST):
        assert check_name(name, "a") == name == as_name(name)


def test_the_length_of_a_name_is_told_in_bytes() -> None:
    with pytest.raises(ConfigError, match=r"180 bytes; expected at most 150 bytes$"):
        check_name("é" * 90, "the name")


@pytest.mark.parametrize("name", ["../../x", "a/b", "n" * 300, "a b", ""])
def test_the_name_of_a_scored_run(toy_suite: Path, tiny_model: Path, name: str) -> None:
    folder = toy_suite.parent
    before = everything(folder)
    given = ("score", "--model", "tiny-llama-untrained", "--suite", toy_suite, "--in-domain", "home")
    done = oodles(*given, "--out", folder / "out", "--run", name)
    assert_refused(done, before, folder, "--run is '")


@pytest.mark.parametrize("label", ["../../up", "a/b", "\\u001b[31m"])
def test_the_label_of_a_model(toy_study: Path, label: str) -> None:
    folder = toy_study.parent
    text = toy_study.read_text().replace('models = ["tiny-llama-untrained"]', f'models = ["{label}"]')
    toy_study.write_text(text + f'\n[models."{label}"]\nsource = "tiny-llama-untrained"\n')
    before = everything(folder)
    assert_refused(oodles("run", toy_study, "--out", folder / "out"), before, folder, "[models]: a label is '")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "toy"', 'name = "../../x"', "name is '../../x'"),
        ("[patterns.question]", '[patterns."../q"]', "the name of a pattern is '../q'"),
        ('name = "away"', 'name = "../away"', "a name in test sets is '../away'"),
        ('source = { file = "far.csv" }', 'source = { hub = "org/far", split = "../../x" }', "split is '../../x'"),
    ],
)
def test_the_names_in_a_suite(toy_suite: Path, old: str, new: str, words: str) -> None:
    toy_suite.write_text(toy_suite.read_text().replace(old, new, 1))
    before = everything(toy_suite.parent)
    for verb in ("suites", "fetch"):
        assert_refused(oodles(verb, toy_suite), before, toy_suite.parent, words)


def test_the_name_of_a_study_and_of_a_run(toy_study: Path) -> None:
    folder = toy_study.parent
    before = everything(folder)
    assert_refused(oodles("run", toy_study, "--set", "name=.."), before, folder, "name is '..'")
    long = f"[models.{'m' * 145}]\nsource = 'tiny-llama-untrained'\n"
    toy_study.write_text(toy_study.read_text().replace("tiny-llama-untrained", "m" * 145) + long)
    assert_refused(oodles("run", toy_study, "--out", folder / "out"), before, folder, "the name of a run is 'mmm")


def test_parts_of_a_split_are_no_door(toy_suite: Path) -> None:
    from oodles.names import check_split

    for split in ("train", "train[:10%]", "train+test", "test_r3", "train[:10%] + test[5:]"):
        assert check_split(split, "split") == split
    for split in ("../x", "a/b", "", "[]", ".x"):
        with pytest.raises(ConfigError, match="split is"):
            check_split(split, "split")


def test_a_model_folder_may_have_any_name(tiny_model: Path, tmp_path: Path) -> None:
    from oodles.model.load import resolve_model

    (tmp_path / "my model (1)").symlink_to(tiny_model)
    copy = tmp_path / "a b"
    copy.mkdir()
    for file in tiny_model.iterdir():
        (copy / file.name).symlink_to(file)
    assert resolve_model(str(copy)).label == "a-b"

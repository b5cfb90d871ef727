from __future__ import annotations

from pathlib import Path

import pytest

from oodles.errors import ConfigError
from oodles.stats.resample import DESCRIPTIVE
from oodles.study.load import load_study, shipped_studies

GOOD = """
schema = 1
name = "mine"
suite = "mini"
[grid]
models = ["tiny-llama-untrained"]
train_sets = ["daily"]
shots = [8]
seeds = [0, 1]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


def test_a_study_file_becomes_a_record(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, GOOD + "[train]\nlearning_rate = 1\n[eval]\nsteps = [1, 2]\nlimit = 10\n"))
    assert (study.models, study.seeds, study.shots) == (("tiny-llama-untrained",), (0, 1), (8,))
    assert study.recipe.learning_rate == 1.0
    assert isinstance(study.recipe.learning_rate, float)
    assert study.evaluation.steps == (1, 2)
    assert study.out == "runs/mine"


def test_models_table_names_sources(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, GOOD + '[models.big]\nsource = "org/big"\nrevision = "abc"\n'))
    assert study.sources["big"].source == "org/big"
    assert study.sources["big"].revision == "abc"


def test_overrides_are_toml_and_win(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    study = load_study(path, ["train.epochs=5", "grid.seeds=[3]", "eval.steps=linear", 'train.loss="answers"'])
    assert (study.recipe.epochs, study.seeds, study.evaluation.steps) == (5, (3,), "linear")
    assert study.recipe.loss == "answers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            GOOD + "[train]\nlearning_rat = 1\n",
            r"study.toml \[train\]: unknown key 'learning_rat'; did you mean 'learning_rate'\?",
        ),
        (GOOD + "[trian]\nepochs = 1\n", r"study.toml: unknown key 'trian'; did you mean 'train'\?"),
        (GOOD + '[train]\nepochs = "five"\n', r"study.toml \[train\]: epochs is 'five', expected whole number"),
        (GOOD + "[train]\nepochs = true\n", r"epochs is True, expected whole number"),
        (GOOD + "[train]\nepochs = 0\n", r"epochs is 0, expected at least 1"),
        (GOOD + '[train]\nloss = "vocabulary"\n', r"loss is 'vocabulary', expected one of vocab, answers"),
        (GOOD + '[eval]\nsteps = "logg"\n', r'steps is "logg", expected "log", "linear" or a list'),
        (GOOD + "[eval]\nlimit = 0\n", r"limit must be positive"),
        (GOOD.replace("schema = 1", "schema = 2"), r"schema is 2, expected 1"),
        (GOOD.replace("schema = 1\n", ""), r"schema is none, expected 1"),
        (GOOD.replace('suite = "mini"\n', ""), r"missing key 'suite'"),
        (GOOD.replace("seeds = [0, 1]", "seeds = 0"), r"\[grid\]: seeds is 0, expected a list of whole numbers"),
        (GOOD.replace("seeds = [0, 1]", 'seeds = [0, "x"]'), r"seeds\[1\] is 'x', expected whole number"),
        (GOOD.replace("seeds = [0, 1]", "seeds = []"), r"seeds is empty"),
        (GOOD.replace("[0, 1]", "[0, -1]"), r"\[grid\]: seeds holds -1, expected 0 to 4294967295"),
        (GOOD.replace("[0, 1]", "[0, 4294967296]"), r"\[grid\]: seeds holds 4294967296, expected 0 to 4294967295"),
        (GOOD.replace("[0, 1]", f"[{2**63}]"), r"\[grid\]: seeds holds 9223372036854775808, expected 0 to"),
        (GOOD + "[train]\norder_seed = -3\n", r"\[train\]: order_seed is -3, expected 0 to 4294967295"),
        (GOOD + "[train]\nlearning_rate = inf\n", r"\[train\]: learning_rate is inf, expected more than 0 and less"),
        (GOOD + "[train]\nlearning_rate = nan\n", r"\[train\]: learning_rate is nan, expected more than 0"),
        (
            GOOD + '[train]\nlearning_rate = 1e-8\nschedule = "polynomial"\n',
            r"learning_rate is 1e-08, expected more than 1e-07 with this schedule",
        ),
        (GOOD + "[train]\nweight_decay = -1.0\n", r"weight_decay is -1.0, expected 0 or more"),
        (GOOD + "[train]\nmax_grad_norm = nan\n", r"max_grad_norm is nan, expected 0 \(no limit\) or more"),
        (GOOD + "[lora]\nalpha = 0\n", r"\[lora\]: alpha is 0, expected at least 1"),
        (GOOD + '[lora]\nbias = "some"\n', r"bias is 'some', expected one of none, all, lora_only"),
        (GOOD.replace('name = "mine"', 'name = "a/b"'), r"name is 'a/b'"),
        ("schema = 1\nname = ", r"not valid TOML"),
    ],
)
def test_bad_files_get_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_study(write(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("override", ["train.epochs", "=5", "name.x=1"])
def test_bad_overrides(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        load_study(write(tmp_path, GOOD), [override])


def test_missing_files_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_study(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="did you mean 'demo'"):
        load_study("demoo")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_study(binary)


def test_shipped_studies_load() -> None:
    assert {"demo", "quick"} <= set(shipped_studies())
    demo = load_study("demo")
    assert len(demo.seeds) >= DESCRIPTIVE  # as many as a test needs
    assert demo.evaluation.limit is not None
    assert demo.evaluation.limit >= 32
    assert demo.evaluation.limit_in_domain is None


def test_a_data_seed_of_more_than_64_bits_is_refused(tmp_path: Path) -> None:
    for seeds in (str(2**63), f"[1, {2**63}]"):
        with pytest.raises(ConfigError, match="data_seed is 9223372036854775808, expected 64 bits at most"):
            load_study(write(tmp_path, GOOD), [f"grid.data_seed={seeds}"])

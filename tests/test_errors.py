"""Messages: one line, not too long, no passwords, no powers over a terminal."""

from __future__ import annotations

import pytest

from oodles.errors import (
    LONG,
    LONGEST,
    ConfigError,
    DataError,
    DiskError,
    MissingExtraError,
    ModelError,
    OodlesError,
    StoreError,
    first_line,
    listed,
    masked,
    nearest,
    plain,
    shown,
    some,
)


@pytest.mark.parametrize("kind", [ConfigError, DataError, ModelError, StoreError, DiskError])
def test_every_error_is_caught_as_one_and_masks_passwords(kind: type[OodlesError]) -> None:
    error = kind("http://me:secret@example.org is away")
    assert isinstance(error, OodlesError)
    assert str(error) == "http://***@example.org is away"


def test_a_long_message_keeps_its_ends() -> None:
    text = str(OodlesError("where: " + "x" * 5000 + "; do that"))
    assert LONGEST <= len(text) <= LONGEST + 5
    assert text.startswith("where: x")
    assert text.endswith("x; do that")


def test_a_missing_extra_names_its_install_line() -> None:
    assert "pip install 'oodles[train]'" in str(MissingExtraError("training", "train"))


def test_the_nearest_name_is_offered_or_a_few() -> None:
    assert nearest("hanz", ["hans", "snli"]) == "did you mean 'hans'?"
    assert nearest("snli", ["SNLI", "mnli"]) == nearest("SNLI", ["SNLI", "mnli"]) == "did you mean 'SNLI'?"
    assert nearest("snli", ["SNLI (ID)", "mnli", "anli"]) == "did you mean 'SNLI (ID)'?"
    assert nearest("SNLI_acc", ["snli_accc", "mnli"]) == "did you mean 'snli_accc'?"
    assert nearest("x", ["b", "a"]) == "known: a, b"
    assert nearest("x", []) == "known: none"
    assert nearest("x", [f"n{i}" for i in range(10)]).endswith(" and 2 more")


def test_some_and_all_of_many() -> None:
    assert some(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert some(range(10), most=2) == "0, 1 and 8 more"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"


def test_values_are_shown_on_one_line() -> None:
    assert shown("a\nb\x1b[2J") == "a\\nb\\x1b[2J"
    assert shown("x" * LONG) == "x" * LONG
    assert shown("x" * (LONG + 1)) == "x" * (LONG - 3) + "..."


def test_control_characters_are_spelt_out_and_lines_kept() -> None:
    assert plain("a\tb\nc\x07\u202e\u2028\uffff") == "a\tb\nc\\x07\\u202e\\u2028\\uffff"


def test_every_password_of_an_address_is_masked() -> None:
    assert masked("s3://key:p@ss@b/x and ftp://u@h") == "s3://***@b/x and ftp://***@h"
    assert masked("mail me@example.org") == "mail me@example.org"


def test_the_first_line_of_a_library_s_error() -> None:
    assert first_line(ValueError("\n  first\nsecond")) == "first"
    assert first_line(ValueError()) == "ValueError"
    assert len(first_line(ValueError("x" * 999))) == 200

"""What is known of the runs in a study's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.archive import pack
from oodles.store.claim import plan_runs
from oodles.store.facts import describe_runs, describe_status, joined_audit, pace_of, unmade_runs
from oodles.store.locks import release, take
from oodles.store.outcome import fail_run, finish_run
from oodles.store.sidecars import sidecar
from test_store import folder_with_scores


def test_the_status_of_every_run_there_is_or_should_be(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    plan_runs(folder.study, ["r", "later"])
    assert describe_status(tmp_path) == [
        {"run": "r", "status": "started", "step": 4, "scores": 4, "reason": ""},
        {"run": "later", "status": "missing", "step": None, "scores": 0, "reason": ""},
    ]
    fail_run(folder, "too hot")
    assert [(row["status"], row["reason"]) for row in describe_status(tmp_path, ["r"])] == [("failed", "too hot")]
    folder.failed.write_text("{")
    assert describe_status(tmp_path, ["r"])[0]["reason"] == "failed.json is damaged; oodles run tries it again"
    folder.spec.unlink()
    assert describe_status(tmp_path, ["r"])[0]["status"] == "damaged"
    with pytest.raises(StoreError, match=r"no study\.json"):
        describe_status(tmp_path / "runs")


def test_a_locked_run_is_running(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    take(folder.lock)
    try:
        row = describe_status(tmp_path)[0]
    finally:
        release(folder.lock)
    assert row["status"] == "running"
    assert row["reason"]
    assert describe_status(tmp_path)[0]["status"] == "started"


def test_the_rest_takes_as_long_as_the_runs_that_are_done(tmp_path: Path) -> None:
    for name, seconds in (("a", 10.0), ("b", 30.0)):
        finish_run(folder_with_scores(tmp_path, name), 4, seconds=seconds)
    rows = [{"run": name, "status": "done"} for name in ("a", "b")]
    rows += [{"run": f"m{i}", "status": status} for i, status in enumerate(["missing"] * 2 + ["running"] * 2)]
    pace = pace_of(tmp_path, rows)
    assert pace.counts == {"done": 2, "missing": 2, "running": 2}
    assert (pace.seconds_per_run, pace.seconds_left) == (20.0, 40.0)  # four runs, two at a time
    assert pace_of(tmp_path, rows[2:]).seconds_left is None


def test_planned_runs_without_a_folder_are_told_in_one_line(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path, "a")
    assert unmade_runs(tmp_path) == []
    plan_runs(folder.study, ["a", *"bcdefg"])
    (told,) = unmade_runs(tmp_path)
    assert told == "6 of 7 planned runs have no scores (not made yet, or gone): b, c, d, e and 2 more"
    folder.spec.unlink()
    assert unmade_runs(tmp_path) == [told]  # of `a`, the reader of the scores says what is missing


def test_a_run_is_described_with_what_a_reader_must_know(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    (run,) = describe_runs(tmp_path)
    assert (run["name"], run["model"], run["steps"], run["status"]) == ("r", "m", [0, 4], "started")
    assert run["caveats"] == [
        "run r is not finished (started)",
        "run r: env.json is missing or damaged, so its versions are not known",
    ]
    write_json(folder.env, {"oodles": "1", "python": "3", "packages": {"torch": "2"}})
    finish_run(folder, 4, seconds=9.0)
    error = {"severity": "error", "code": "same-rows", "where": "a, b", "text": "equal"}
    write_json(folder.study.audit, {"findings": [error, {**error, "code": "other"}], "allowed": ["same-rows"]})
    (run,) = describe_runs(tmp_path)
    assert run["seconds"] == 9.0
    assert run["versions"] == {"oodles": "1", "python": "3", "torch": "2"}
    assert run["caveats"] == ["audit error allowed: a, b: equal [same-rows]"]
    folder.study.audit.write_text("{")
    assert "which audit errors were allowed is not known" in describe_runs(tmp_path)[0]["caveats"][0]
    folder.spec.write_text("{")
    assert describe_runs(tmp_path) == []


def audit(
    *findings: tuple[str, str, str], sets: tuple[str, ...] = ("rte",), model: str = "a", allowed: tuple[str, ...] = ()
) -> dict[str, Any]:
    rows = [{"set": name, "kind": "test", "rendered": {"question": {model: {"n": 3}}}} for name in sets]
    told = [{"severity": "error", "code": code, "where": where, "text": text} for code, where, text in findings]
    return {"sets": rows, "findings": told, "allowed": list(allowed)}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("shots-in-test", "snli (train), rte", "1 example (24 shots)"), ("balance", "rte", "even")),  # other shots
        (("answer-tokens", "rte, a", "two tokens"), ("answer-tokens", "rte, b", "two tokens")),  # another model
        (("answer-space", "rte, pattern q", "no space"), ("answer-tokens", "rte, b", "two tokens")),  # another pattern
    ],
)
def test_a_grown_audit_says_what_each_of_its_parts_said(
    first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    both = joined_audit(audit(first, allowed=(first[0],)), audit(second, model="b"))
    assert [(one["code"], one["where"]) for one in both["findings"]] == [first[:2], second[:2]]
    assert both["allowed"] == [first[0]]
    assert both["counts"]["error"] == 2
    assert both["sets"] == [{"set": "rte", "kind": "test", "rendered": {"question": {"a": {"n": 3}, "b": {"n": 3}}}}]
    assert joined_audit(both, audit(second, model="b")) == both
    third = joined_audit(both, audit(("balance", "wnli", "even"), sets=("wnli",), model="c"))
    assert [one["where"] for one in third["findings"]] == [first[1], second[1], "wnli"]
    assert [row["set"] for row in third["sets"]] == ["rte", "wnli"]


def test_a_finding_about_several_sets_is_not_said_twice() -> None:
    told = "answer-space", "snli (train), pattern q; rte, pattern q", "no space"
    fewer = "answer-space", "rte, pattern q", "no space"
    assert joined_audit(audit(fewer), audit(told))["findings"] == audit(told)["findings"]
    both = joined_audit(audit(told), audit(fewer))  # snli is not audited now: what was said of it is kept
    assert [one["where"] for one in both["findings"]] == [told[1], fewer[1]]


@pytest.mark.parametrize("rendered", [[], None, {"q": None}, {"q": ["m"]}, {"q": {"m": "text"}}])
def test_an_audit_of_another_form_is_as_good_as_none(tmp_path: Path, rendered: object) -> None:
    folder_with_scores(tmp_path / "study")
    record = {"sets": [{"set": "rte", "rendered": rendered}], "findings": [], "allowed": []}
    write_json(tmp_path / "study" / "audit.json", record)
    assert sidecar(tmp_path / "study" / "audit.json") is None
    assert pack(tmp_path / "study").runs == 1

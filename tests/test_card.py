"""The data card: what was scored, what the audit read and found, and nothing of examples or of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import oodles as oo
from oodles.disk import sealed
from oodles.show.card import audited, sets_sheet
from oodles.show.report import write_report
from oodles.store.facts import describe_audit


def test_sets_have_their_examples_and_chance() -> None:
    rows = [("r", 0, "in", "in_domain", 0.5, 100, 0.5), ("r", 0, "x", "ood", 0.4, 50, 1 / 3)]
    columns = ["run", "step", "test_set", "role", "value", "n", "chance"]
    sheet = sets_sheet(pd.DataFrame(rows, columns=columns).assign(metric="accuracy"), "accuracy")
    assert [[cell.text for cell in row] for row in sheet.rows] == [
        ["in", "in-domain", "100", "0.500", "1", "1"],
        ["x", "OOD", "50", "0.333", "1", "1"],
    ]


def test_the_report_of_a_study_has_its_audit(tmp_path: Path) -> None:
    analysis = oo.analyse("smollm2-nli", within="run", test_sets=["hans", "paws"])
    page = write_report(analysis, tmp_path / "report.html").read_text()
    card = page[page.index('id="data-card"') : page.index('id="runs"')]
    found = audited(analysis.audit)
    assert found is not None
    assert "5 examples occur with different right answers [duplicate-conflict]" in card
    assert len(found.findings) == 8  # of both train sets: the study has grown by one
    assert len(found.notes) == 50
    snli = next(row for row in found.sheet.rows if row[0].text == "snli" and row[1].text == "test")
    assert [cell.text for cell in snli][2:6] == [
        "6605",
        "contradiction 3237, entailment 3368",
        "neutral 3219, no gold 176",
        "0.510",
    ]
    assert "9c3966ae5b182a4a" in card
    assert "Japan" not in page  # texts of examples stay in the audit
    assert "the model&#39;s attention projections" in page  # of LoRA without named targets
    assert "lora targets</dt><dd>none" not in page


def test_folders_of_this_machine_and_damage_are_left_out(tmp_path: Path) -> None:
    assert describe_audit(tmp_path) == {}
    row = {"set": "<b>x", "kind": "test", "n": 3, "origin": "/home/me/data/x.csv", "labels": {}, "dropped": {}}
    record = {
        "sets": [row],
        "findings": [{"severity": "error", "code": "c", "where": "x", "text": "t", "items": ["secret"]}],
    }
    (tmp_path / "audit.json").write_text(json.dumps(sealed(record)))
    told = describe_audit(tmp_path)
    assert told["sets"][0]["origin"] == "x.csv"
    assert "secret" not in str(told)
    found = audited(told)
    assert found is not None
    assert found.findings == ("error: x: t [c]",)
    (tmp_path / "audit.json").write_text(json.dumps(sealed({**record, "sets": [{"set": 3}]})))
    assert describe_audit(tmp_path) == {}

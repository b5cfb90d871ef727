"""What oodles writes for other tools, read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import oodles as oo
from conftest import oodles
from scores import same, study

TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def record_of(**keys: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(keys), "properties": keys}


# the shape of Every Eval Ever 0.3.0: required keys, kinds and choices; its whole schema is in its package
SHAPE = {
    **record_of(
        schema_version={"const": "0.3.0"},
        evaluation_id=TEXT,
        retrieved_timestamp={"type": "string", "pattern": "^[0-9]+$"},
        source_metadata=record_of(
            source_type={"enum": ["documentation", "evaluation_run"]},
            source_organization_name=TEXT,
            evaluator_relationship={"enum": ["first_party", "third_party", "collaborative", "other"]},
        ),
        model_info=record_of(
            name=TEXT,
            id=TEXT,
            additional_details={
                **record_of(
                    deployment_type={"enum": ["self_deployed", "externally_managed", "unknown"]},
                    model_availability={"enum": ["open_weights", "closed_weights", "unknown"]},
                ),
                "additionalProperties": TEXT,
            },
        ),
        eval_library=record_of(name=TEXT, version=TEXT),
        evaluation_results={
            "type": "array",
            "items": record_of(
                evaluation_name=TEXT,
                source_data=record_of(dataset_name=TEXT, source_type={"const": "other"}),
                metric_config={
                    **record_of(lower_is_better={"type": "boolean"}),
                    "if": {"required": ["score_type"]},
                    "then": {"required": ["min_score", "max_score"]},
                },
                score_details={
                    **record_of(score=NUMBER),
                    "properties": {
                        "score": NUMBER,
                        "details": {"type": "object", "additionalProperties": TEXT},
                        "uncertainty": {
                            "type": "object",
                            "properties": {
                                "num_samples": {"type": "integer"},
                                "standard_error": record_of(value=NUMBER),
                            },
                        },
                    },
                },
            ),
        },
    ),
    "additionalProperties": False,
}


def given(tmp_path: Path) -> Path:
    table = study().assign(n=100, role=lambda t: t["test_set"].eq("snli").map({True: "in_domain", False: "ood"}))
    seeds = table["run"].str.extract(r"_(\d+)_")[0].astype(int)
    table.assign(seed=seeds, model="m").to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def test_records_of_every_eval_ever(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    out = tmp_path / "records"
    done = oodles("export", given(tmp_path), "--format", "every-eval-ever", "--out", out)
    assert done.returncode == 0, done.stderr
    files = sorted(out.rglob("*.json"))
    assert len(files) == 24
    rows = []
    for file in files:
        record = json.loads(file.read_text())
        jsonschema.validate(record, SHAPE)
        about = record["model_info"]["additional_details"]
        for one in record["evaluation_results"]:
            assert one["score_details"]["uncertainty"] == {"num_samples": 100}
            rows.append((about["run"], int(about["step"]), one["evaluation_name"], one["score_details"]["score"]))
    import pandas as pd

    same(pd.DataFrame(rows, columns=["run", "step", "test_set", "value"]), study())
    again = oodles("export", given(tmp_path), "--format", "every-eval-ever", "--out", out)
    assert (again.returncode, "not empty" in again.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables(tmp_path: Path, kind: str) -> None:
    done = oodles("export", given(tmp_path), "--format", kind, "--out", tmp_path / f"out.{kind}")
    assert done.returncode == 0, done.stderr
    same(oo.import_scores(tmp_path / f"out.{kind}").table, study())
    wrong = oodles("export", given(tmp_path), "--format", kind, "--out", tmp_path / "out.txt")
    assert (wrong.returncode, f"ends in .{kind}" in wrong.stderr) == (2, True)
    assert oodles("export", given(tmp_path), "--format", "cvs", "--out", tmp_path / "x").returncode == 2


def test_a_finding(tmp_path: Path) -> None:
    done = oodles("export", "bert-hans", "--format", "csv", "--out", tmp_path / "b.csv")
    assert done.returncode == 0, done.stderr
    assert oo.import_scores(tmp_path / "b.csv").table["run"].nunique() == 100


def test_offline_runs_of_wandb(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    done = oodles("export", given(tmp_path), "--format", "wandb", "--out", tmp_path / "wb", WANDB_MODE="offline")
    assert done.returncode == 0, done.stderr
    imported = oo.import_scores(tmp_path / "wb")
    same(imported.table, study())
    assert sorted(imported.table["seed"].unique()) == list(range(6))

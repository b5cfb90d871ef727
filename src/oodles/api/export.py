"""export_scores(): the long table of anything oodles reads, in other tools' formats."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oodles import __version__
from oodles.api.findings import findings
from oodles.api.imports import KINDS, check_out, gather, write_table
from oodles.disk import write_text
from oodles.errors import ConfigError, MissingExtraError, StoreError, nearest
from oodles.imports.contract import Options
from oodles.names import as_name
from oodles.stats.analysis import SUMMARY, read_results
from oodles.stats.longtable import EXPECTED
from oodles.store.archive import is_packed
from oodles.store.folder import StudyFolder
from oodles.store.table import DamageWarning, read_runs

FORMATS = ("csv", "parquet", "every-eval-ever", "wandb")
SCHEMA = "0.3.0"  # of Every Eval Ever
LOWER = ("loss", "perplexity", "ppl", "brier", "ece")  # metrics that are better the lower they are
UNKNOWN = {"deployment_type": "unknown", "model_availability": "unknown"}  # which that format requires
SHARES = ("accuracy", "balanced_accuracy", "f1", "auc", "exact_match", "acc_norm")


def read_scores(paths: Sequence[Path], options: Options) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The long table of a study, a finding, results or other tools' files, and notes on what was left out."""
    if len(paths) == 1:
        path = paths[0]
        if str(path) in findings() and not path.exists():
            return findings()[str(path)].table(), ()
        if is_packed(path) or StudyFolder(path).is_study:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DamageWarning)  # kept as notes
                table = read_runs(path)
            return table, tuple(table.attrs["notes"])
        if (path / SUMMARY).is_file():
            return read_results(path).long_table, ()
    imported = gather(paths, options)
    return imported.table, imported.notes


def check_export(kind: str, out: Path, inputs: Sequence[Path]) -> None:
    """Refuse an unknown format, and a place where something else is."""
    if kind not in FORMATS:
        raise ConfigError(f"--format {kind}: no such format; {nearest(kind, FORMATS)}")
    if f".{kind}" in KINDS:
        if out.suffix.lower() != f".{kind}":
            raise ConfigError(f"--out {out}: expected a name that ends in .{kind}")
        check_out(out, inputs)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StoreError(f"{out}: is there and not empty; choose another --out")


def export_scores(table: pd.DataFrame, kind: str, out: Path) -> list[Path]:
    """Write a long table in one of `FORMATS`; the files, or folders, that were written."""
    if f".{kind}" in KINDS:
        return [write_table(table, out)]
    filled = _filled(table)
    if kind == "wandb":
        return _to_wandb(filled, out)
    return [_write_record(record, out) for record in _records(filled)]


def _filled(table: pd.DataFrame) -> pd.DataFrame:
    """With all expected columns, and without scores that are no number."""
    absent = {name: None for name in EXPECTED if name not in table.columns}
    table = table.assign(**absent)[np.isfinite(table["value"].to_numpy(float))]
    return table.assign(metric=table["metric"].where(table["metric"].notna(), "accuracy"))


def _records(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """One record of Every Eval Ever per run and step."""
    now = f"{time.time():.0f}"
    for (run, at), rows in table.groupby(["run", "step"], sort=True):
        first, step = rows.iloc[0], int(str(at))
        known = {name: first[name] for name in ("train_set", "shots", "seed") if not pd.isna(first[name])}
        model = str(run) if pd.isna(first["model"]) else str(first["model"])
        details = {**{k: _text(v) for k, v in known.items()}, "run": str(run), "step": str(step)}
        yield {
            "schema_version": SCHEMA,
            "evaluation_id": f"oodles/{run}/step-{step}/{now}",
            "retrieved_timestamp": now,
            "source_metadata": {
                "source_name": "oodles",
                "source_type": "evaluation_run",
                "source_organization_name": "unknown",
                "evaluator_relationship": "other",
            },
            "eval_library": {"name": "oodles", "version": __version__},
            "model_info": {"name": model, "id": model, "additional_details": {**UNKNOWN, **details}},
            "evaluation_results": [_result(row) for row in rows.to_dict("records")],
        }


def _result(row: dict[Any, Any]) -> dict[str, Any]:
    metric = str(row["metric"])
    share = metric in SHARES or metric.startswith("share:")
    uncertainty: dict[str, Any] = {}
    if not pd.isna(row.get("stderr", math.nan)):
        uncertainty["standard_error"] = {"value": float(row["stderr"])}
    if not pd.isna(row["n"]):
        uncertainty["num_samples"] = int(row["n"])
    details = {} if pd.isna(row["role"]) else {"role": str(row["role"])}
    return {
        "evaluation_name": str(row["test_set"]),
        "source_data": {"dataset_name": str(row["test_set"]), "source_type": "other"},
        "metric_config": {
            "metric_id": metric,
            "metric_name": metric,
            "lower_is_better": metric in LOWER,
            **({"score_type": "continuous", "min_score": 0.0, "max_score": 1.0} if share else {}),
        },
        "score_details": {
            "score": float(row["value"]),
            **({"details": details} if details else {}),
            **({"uncertainty": uncertainty} if uncertainty else {}),
        },
    }


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _write_record(record: dict[str, Any], out: Path) -> Path:
    about = record["model_info"]["additional_details"]
    path = out / as_name(about["run"]) / f"step-{about['step']}.json"
    write_text(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _to_wandb(table: pd.DataFrame, out: Path) -> list[Path]:
    """Offline runs, as `wandb sync` uploads them; nothing is sent."""
    try:
        import wandb
    except ModuleNotFoundError:
        raise MissingExtraError("export to wandb", "wandb") from None
    with tempfile.TemporaryDirectory(prefix="oodles-") as scratch:
        for run, rows in table.groupby("run", sort=True):
            names = ("model", "train_set", "shots", "seed")
            config = {n: _plain(rows[n].iloc[0]) for n in names if not pd.isna(rows[n].iloc[0])}
            settings = wandb.Settings(console="off", silent=True, x_disable_stats=True)
            live = wandb.init(
                project="oodles", name=str(run), config=config, dir=scratch, mode="offline", settings=settings
            )
            for step, own in rows.groupby("step", sort=True):
                keys = "eval/" + own["test_set"] + "_" + own["metric"]
                scores = dict(zip(keys, map(float, own["value"]), strict=True))
                live.log({**scores, "train/global_step": int(str(step))})
            live.finish()
        wandb.teardown()  # only now every file is whole
        made = sorted((Path(scratch) / "wandb").glob("offline-run-*"))
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copytree(folder, out / folder.name)) for folder in made]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value

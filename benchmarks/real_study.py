"""The numbers of docs/smollm2-nli.md, from the packed scores of the project's own study.

python -m benchmarks.real_study          writes them into docs/smollm2-nli.md
python -m benchmarks.real_study --count  first counts the study's tokens anew, which needs the data and the model
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import oodles as oo
from benchmarks.findings import filled, save
from oodles.stats.analysis import Analysis
from oodles.store.archive import opened

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "smollm2-nli.md"
TESTABLE = 5  # runs
MODELS = {"smollm2-135m-q4": "smollm2", "gemma3-270m-q4": "gemma3"}
COUNTS = ROOT / "studies" / "smollm2-nli" / "counts.json"
STUDY = COUNTS.with_name("snli.toml")
RESULTS = ROOT / "benchmarks" / "results.json"
PACKED = ROOT / "src" / "oodles" / "api" / "published" / "smollm2-nli.oodles.zip"


def pair_rows(accuracy: Analysis, auc: Analysis, within: str) -> str:
    """Every pair by accuracy and by AUC, strongest first."""
    chosen = {name: a.result.table[a.result.table["within"] == within] for name, a in (("acc", accuracy), ("auc", auc))}
    rows = [
        "| pair | r, accuracy | 95 % interval | p (Holm) | r, AUC | 95 % interval |",
        "|---|---:|---|---:|---:|---|",
    ]
    merged = chosen["acc"].merge(chosen["auc"], on=["a", "b"], suffixes=("", "_auc"), how="left")
    merged = merged.loc[merged["r"].abs().sort_values(ascending=False, kind="stable").index]
    for row in merged.to_dict("records"):
        cells = [f"{row['a']} ~ {row['b']}", _number(row["r"]), _span(row["low"], row["high"]), _p(row["p_holm"])]
        cells += [_number(row["r_auc"]), _span(row["low_auc"], row["high_auc"])]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:+.2f}"


def _span(low: float, high: float) -> str:
    return "-" if np.isnan(low) else f"{low:+.2f} to {high:+.2f}"


def _p(value: float) -> str:
    return "-" if np.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def levels(table: pd.DataFrame) -> str:
    """Accuracy before training and at the end, AUC and the share of Yes at the end: mean over runs, and range."""
    last = table.loc[table["step"] == table["step"].max()]
    first = table.loc[table["step"] == 0]
    rows = [
        "| test set | examples | accuracy, step 0 | accuracy, last step | AUC, last step | share of Yes, last step |"
    ]
    rows += ["|---|---:|---:|---|---|---|"]
    for name in dict.fromkeys(table["test_set"]):
        begin = first[(first["test_set"] == name) & (first["metric"] == "accuracy")]["value"]
        cells = [name, f"{table.loc[table['test_set'] == name, 'n'].iloc[0]:,.0f}", f"{begin.mean():.2f}"]
        for metric in ("accuracy", "auc", "share:Yes"):
            values = last[(last["test_set"] == name) & (last["metric"] == metric)]["value"]
            cells.append(f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def behaviour(analysis: Analysis, records: pd.DataFrame) -> str:
    """What the simulations assume, measured: size and memory of residuals, and how stable examples are."""
    residuals = analysis.robustness
    residuals = residuals[residuals["within"] == "run"].sort_values(["test_set", "run", "step"])
    rows = ["| test set | residual sd | lag-1 autocorrelation | correct at one point and at the next | phi |"]
    rows += ["|---|---:|---:|---:|---:|"]
    for name, part in residuals.groupby("test_set"):
        before, after = _lagged(part)
        memory = float((before * after).sum() / np.sqrt((before**2).sum() * (after**2).sum()))
        same, phi = _stability(records[records["test_set"] == name])
        rows.append(f"| {name} | {part['residual'].std():.3f} | {memory:+.2f} | {same:.2f} | {phi:.2f} |")
    return "\n".join(rows)


def _lagged(part: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and their successors, each run about its own mean."""
    wide = part.pivot_table(index="run", columns="step", values="residual").to_numpy()
    centred = wide - np.nanmean(wide, axis=1, keepdims=True)
    before, after = centred[:, :-1].ravel(), centred[:, 1:].ravel()
    both = ~(np.isnan(before) | np.isnan(after))
    return before[both], after[both]


def _stability(records: pd.DataFrame) -> tuple[float, float]:
    """How often an example is answered alike at two points in a row after the first, and its phi coefficient."""
    before, after = [], []
    for _, run in records[records["step"] > 0].groupby("run"):
        wide = run.pivot_table(index="example", columns="step", values="correct").to_numpy()
        before.append(wide[:, :-1].ravel())
        after.append(wide[:, 1:].ravel())
    first, second = np.concatenate(before), np.concatenate(after)
    return float((first == second).mean()), float(np.corrcoef(first, second)[0, 1])


def count() -> None:
    """Tokens and arithmetic of one run, as the dry run counts them."""
    from oodles.study.budget import budget_of, rows
    from oodles.study.grid import expand
    from oodles.study.load import load_study

    each = rows(budget_of(expand(load_study(STUDY))))[0].each
    kept = ("prompts", "prompt_tokens", "computed_tokens", "training_tokens", "arithmetic")
    COUNTS.write_text(json.dumps({name: getattr(each, name) for name in kept}, indent=1) + "\n")


def cost(study: Path) -> str:
    """What the finished runs cost, and what the published study's way of scoring would have cost."""
    counts, ratio = json.loads(COUNTS.read_text()), json.loads(RESULTS.read_text())["scoring"]["ratio_study"]
    done = [json.loads(file.read_text())["seconds"] / 60 for file in sorted(study.glob("runs/*/done.json"))]
    share = counts["computed_tokens"] / (counts["computed_tokens"] + 2 * counts["training_tokens"])
    longer = 1 + share * (ratio - 1)
    rows = [
        "| | per run of SmolLM2 |",
        "|---|---:|",
        f"| wall time, {len(done)} runs of both models on one core, one of them on two, of a busy machine |"
        f" {np.mean(done):.0f} min ({min(done):.0f} to {max(done):.0f}) |",
        f"| prompts scored | {counts['prompts']:,} |",
        f"| tokens of these prompts | {counts['prompt_tokens']:,} |",
        f"| tokens computed to score them | {counts['computed_tokens']:,} |",
        f"| tokens trained on | {counts['training_tokens']:,} |",
        f"| arithmetic | {counts['arithmetic'] / 1e12:,.0f} TFLOP |",
        f"| share of evaluation (a trained token counts twice: backward, too) | {share:.0%} |",
        f"| with the published study's way of scoring, {ratio:.1f} times the time ([benchmark](performance.md)) |"
        f" {longer:.1f} times the whole |",
    ]
    return "\n".join(rows)


def blocks() -> dict[str, str]:
    """Every generated block of the page by its name; a model's blocks begin with its short name."""
    accuracy, auc = oo.analyse(PACKED), oo.analyse(PACKED, metric="auc")
    with opened(PACKED) as study:
        table, records = oo.read_runs(study), oo.read_records(study)
        made = {"cost": cost(study)}
    records["correct"] = records["correct"].astype(float)
    for label in dict.fromkeys(table["model"]):
        own = table[table["model"] == label]
        theirs = records[records["run"].isin(own["run"])]
        texts = {"levels": levels(own), **_tested(of_model(accuracy, label), of_model(auc, label), theirs)}
        made |= {f"{MODELS[label]}-{name}": text for name, text in texts.items()}
    if table["model"].nunique() > 1:
        made["across"] = _across()
    return made


def of_model(analysis: Analysis, label: str) -> Analysis:
    """The part of an analysis that concerns one model."""
    frames = {
        name: frame[frame["model"] == label]
        for name in ("table", "residuals")
        if "model" in (frame := getattr(analysis.result, name))
    }
    said = tuple(verdict for verdict in analysis.verdicts if verdict.group["model"] == label)
    return replace(analysis, result=replace(analysis.result, **frames), verdicts=said)


def _tested(accuracy: Analysis, auc: Analysis, records: pd.DataFrame) -> dict[str, str]:
    if max((verdict.n_runs for verdict in accuracy.verdicts), default=0) < TESTABLE:
        waits = f"Fewer than {TESTABLE} runs are finished: the numbers follow when there is something to test."
        return dict.fromkeys(("verdict", "pooled", "run", "behaviour"), waits)
    said = [f"> {verdict.sentence}" for verdict in accuracy.verdicts]
    said += [f"> By AUC: {verdict.sentence}" for verdict in auc.verdicts]
    return {
        "verdict": "\n\n".join(said),
        "pooled": pair_rows(accuracy, auc, "pooled"),
        "run": pair_rows(accuracy, auc, "run"),
        "behaviour": behaviour(accuracy, records),
    }


def _across() -> str:
    """Whether it depends on the model, by accuracy and by AUC."""
    said = []
    for metric, begin in (("accuracy", ""), ("auc", "By AUC: ")):
        claim = oo.analyse(PACKED, metric=metric, across="model").claim
        assert claim is not None
        said += [f"> {begin}{sentence}" for sentence in claim.sentences]
    return "\n\n".join(said)


def figure(label: str, metric: str) -> Figure:
    """Heatmap of all pairs of a model, pooled."""
    result = oo.analyse(PACKED, metric=metric).result
    group = {"model": label, "train_set": "snli"}
    return oo.plot_correlations(result, group=group, within="pooled")


FIGURES: dict[Path, Callable[[], Figure]] = {
    PAGE.with_name(f"{PAGE.stem}-{MODELS[label]}-{metric}.png"): partial(figure, label, metric)
    for label in MODELS
    for metric in ("accuracy", "auc")
}


def main(arguments: Sequence[str] = ()) -> int:
    if "--count" in arguments:
        count()
    made: dict[str, Any] = blocks()
    PAGE.write_text(filled(PAGE.read_text(), made))
    save(FIGURES)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

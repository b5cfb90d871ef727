"""The numbers of docs/smollm2-nli.md, from the packed scores of the project's own study.

python -m benchmarks.real_study          writes them into docs/smollm2-nli.md
python -m benchmarks.real_study --count  first counts the study's tokens anew, which needs the data and the model
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import oodles as oo
from benchmarks.findings import Blocks, filled, save
from oodles.stats.analysis import Analysis
from oodles.stats.resample import SIGNIFICANT
from oodles.stats.verdict import Verdict
from oodles.store.archive import opened

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "smollm2-nli.md"
MODELS = {"smollm2-135m-q4": "SmolLM2", "gemma3-270m-q4": "Gemma 3"}
TRAIN_SETS = ("snli", "mnli")
COUNTS = ROOT / "studies" / "smollm2-nli" / "counts.json"
RESULTS = ROOT / "benchmarks" / "results.json"
PACKED = ROOT / "src" / "oodles" / "api" / "published" / "smollm2-nli.oodles.zip"


@dataclass(frozen=True, slots=True)
class Group:
    """The runs of one model on one train set."""

    model: str
    train_set: str

    @property
    def name(self) -> str:
        return f"{MODELS[self.model].lower().replace(' ', '')}-{self.train_set}"

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame[(frame["model"] == self.model) & (frame["train_set"] == self.train_set)]

    def verdicts(self, analysis: Analysis) -> list[Verdict]:
        """Its verdicts, none where it is not tested."""
        mine = {"model": self.model, "train_set": self.train_set}
        return [verdict for verdict in analysis.verdicts if dict(verdict.group) == mine]


@cache
def analysed(metric: str) -> Analysis:
    """The packed study by one metric, as a user gets it."""
    return oo.analyse(PACKED, metric=metric)


GROUPS = [Group(model, train_set) for train_set in TRAIN_SETS for model in MODELS]


def summary(groups: Sequence[Group], accuracy: Analysis, auc: Analysis, table: pd.DataFrame) -> str:
    """A row for each group: how well it learns, and what becomes of its pairs."""
    rows = [
        "| train set | model | runs | in-domain accuracy, last step | significant by accuracy | of these clear |"
        " clear by AUC |",
        "|---|---|---:|---:|---|---|---|",
    ]
    for group in groups:
        own = group.of(table)
        last = own[(own["step"] == own["step"].max()) & (own["metric"] == "accuracy") & (own["role"] == "in_domain")]
        by_accuracy = group.of(accuracy.result.table)
        cells = [group.train_set, MODELS[group.model], str(own["run"].nunique()), f"{last['value'].mean():.2f}"]
        cells += [_pairs(by_accuracy[by_accuracy["p_holm"] < SIGNIFICANT]), _pairs(by_accuracy[by_accuracy["clear"]])]
        by_auc = group.of(auc.result.table)
        cells.append(_pairs(by_auc[by_auc["clear"]]))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _pairs(rows: pd.DataFrame) -> str:
    """Pairs with the way in which they are so: pooled, within runs, or both."""
    ways: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        ways.setdefault(f"{row['a']} ~ {row['b']}", []).append("within runs" if row["within"] == "run" else "pooled")
    return "; ".join(f"{pair} ({' and '.join(way)})" for pair, way in ways.items()) or "none"


def pair_rows(groups: Sequence[Group], accuracy: Analysis, auc: Analysis, within: str) -> str:
    """Every pair by accuracy and by AUC, for each model; strongest in any of them first."""
    tables = {
        (group.model, metric): (lambda own: own[own["within"] == within].set_index(["a", "b"]))(
            group.of(analysis.result.table)
        )
        for group in groups
        for metric, analysis in (("accuracy", accuracy), ("AUC", auc))
    }
    head = [f"{MODELS[model]}: {metric}, 95 % interval" for model, metric in tables]
    rows = [f"| pair | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    size = pd.concat([own["r"].abs() for (_, metric), own in tables.items() if metric == "accuracy"]).groupby(
        level=[0, 1]
    )
    for pair in size.max().sort_values(ascending=False, kind="stable").index:
        cells = [_cell(own.loc[pair]) if pair in own.index else "-" for own in tables.values()]
        rows.append(f"| {pair[0]} ~ {pair[1]} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(row: pd.Series) -> str:
    star = "\\*" if row["clear"] else ""
    return f"{_number(row['r'])}{star} ({_span(row['low'], row['high'])})"


def _number(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:+.2f}"


def _span(low: float, high: float) -> str:
    return "-" if np.isnan(low) else f"{low:+.2f} to {high:+.2f}"


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


def behaviour(groups: Sequence[Group], analysis: Analysis, records: pd.DataFrame) -> str:
    """What the simulations assume, measured: size and memory of residuals, and how stable examples are."""
    residuals = analysis.robustness
    residuals = residuals[residuals["within"] == "run"].sort_values(["test_set", "run", "step"])
    head = ["train set", "model", "test set", "residual sd", "lag-1 autocorrelation", "alike", "phi"]
    rows = [f"| {' | '.join(head)} |", "|---|---|---|---:|---:|---:|---:|"]
    for group in groups:
        theirs = records[records["run"].isin(set(group.of(residuals)["run"]))]
        for name, part in group.of(residuals).groupby("test_set"):
            before, after = _lagged(part)
            memory = float((before * after).sum() / np.sqrt((before**2).sum() * (after**2).sum()))
            same, phi = _stability(theirs[theirs["test_set"] == name])
            numbers = f"{part['residual'].std():.3f} | {memory:+.2f} | {same:.2f} | {phi:.2f}"
            rows.append(f"| {group.train_set} | {MODELS[group.model]} | {name} | {numbers} |")
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
    """Tokens and arithmetic of a run of each group, as the dry run counts them."""
    from oodles.study.budget import budget_of, rows
    from oodles.study.grid import expand
    from oodles.study.load import load_study

    kept = ("prompts", "prompt_tokens", "computed_tokens", "training_tokens", "arithmetic")
    counts = {}
    for train_set in TRAIN_SETS:
        for row in rows(budget_of(expand(load_study(COUNTS.with_name(f"{train_set}.toml"))))):
            model, trained_on, *_ = row.group
            counts[Group(model, trained_on).name] = {name: getattr(row.each, name) for name in kept}
    COUNTS.write_text(json.dumps(counts, indent=1) + "\n")


def cost(study: Path) -> str:
    """What a run of each group cost, and what the published study's way of scoring would have cost."""
    counts, ratio = json.loads(COUNTS.read_text()), json.loads(RESULTS.read_text())["scoring"]["ratio_study"]
    columns = [_costs(group, study, counts[group.name], ratio) for group in GROUPS]
    head = [f"{MODELS[group.model]}, {group.train_set}" for group in GROUPS]
    rows = [f"| a run of | {' | '.join(head)} |", "|---|" + "---:|" * len(head)]
    return "\n".join(rows + [f"| {name} | {' | '.join(each[name] for each in columns)} |" for name in columns[0]])


def _costs(group: Group, study: Path, counts: dict[str, float], ratio: float) -> dict[str, str]:
    finished = sorted(study.glob(f"runs/{group.model}_{group.train_set}_*/done.json"))
    minutes = [json.loads(file.read_text())["seconds"] / 60 for file in finished]
    share = counts["computed_tokens"] / (counts["computed_tokens"] + 2 * counts["training_tokens"])
    return {
        "wall time, one core": f"{np.mean(minutes):.0f} min ({min(minutes):.0f} to {max(minutes):.0f})",
        "prompts scored": f"{counts['prompts']:,}",
        "tokens of these prompts": f"{counts['prompt_tokens']:,}",
        "tokens computed to score them": f"{counts['computed_tokens']:,}",
        "tokens trained on": f"{counts['training_tokens']:,}",
        "arithmetic": f"{counts['arithmetic'] / 1e12:,.0f} TFLOP",
        "share of evaluation (a trained token counts twice: backward, too)": f"{share:.0%}",
        f"with the published study's way of scoring, {ratio:.1f} times the time ([benchmark](performance.md))": (
            f"{1 + share * (ratio - 1):.1f} times the whole"
        ),
    }


def blocks() -> Blocks:
    """Every generated block of the page by its name."""
    accuracy, auc = analysed("accuracy"), analysed("auc")
    with opened(PACKED) as study:
        table, records = oo.read_runs(study), oo.read_records(study)
        made = {"cost": cost(study)}
    records["correct"] = records["correct"].astype(float)
    made["summary"] = summary(GROUPS, accuracy, auc, table)
    for train_set in TRAIN_SETS:
        made |= _part(train_set, table, accuracy, auc)
    made["behaviour"] = behaviour(GROUPS, accuracy, records)
    made["across-model"] = _across("model")
    made["across-train-set"] = _across("train_set")
    return made


def _part(train_set: str, table: pd.DataFrame, accuracy: Analysis, auc: Analysis) -> Blocks:
    """What was found with one train set."""
    groups = [group for group in GROUPS if group.train_set == train_set]
    made = {f"{train_set}-{within}": pair_rows(groups, accuracy, auc, within) for within in ("pooled", "run")}
    for group in groups:
        made[f"{group.name}-levels"] = levels(group.of(table))
        made[f"{group.name}-verdict"] = _verdicts(group, accuracy, auc)
    return made


def _verdicts(group: Group, accuracy: Analysis, auc: Analysis) -> str:
    said = [f"> {verdict.sentence}" for verdict in group.verdicts(accuracy)]
    said += [f"> By AUC: {verdict.sentence}" for verdict in group.verdicts(auc)]
    return "\n\n".join(said)


def _across(factor: str) -> str:
    """Whether it depends on the model, or on the train set, by accuracy and by AUC."""
    said = []
    for metric, begin in (("accuracy", ""), ("auc", "By AUC: ")):
        claim = oo.analyse(PACKED, metric=metric, across=(factor,)).claim
        assert claim is not None
        said += [f"> {begin}{sentence}" for sentence in claim.sentences]
    return "\n\n".join(said)


def figure(model: str, train_set: str, metric: str) -> Figure:
    """Heatmap of all pairs of a group, pooled."""
    return oo.plot_correlations(
        analysed(metric).result, group={"model": model, "train_set": train_set}, within="pooled"
    )


FIGURES: dict[Path, Callable[[], Figure]] = {
    PAGE.with_name(f"{PAGE.stem}-{group.name}-{metric}.png"): partial(figure, group.model, group.train_set, metric)
    for group in GROUPS
    for metric in ("accuracy", "auc")
}


def main(arguments: Sequence[str] = ()) -> int:
    if "--count" in arguments:
        count()
    PAGE.write_text(filled(PAGE.read_text(), blocks()))
    save(FIGURES)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""trainer_state.json, written by the real Trainer: runs, folders of runs, checkpoints, resumed runs, damage."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import oodles as oo
from conftest import oodles
from oodles.errors import ConfigError, DataError
from scores import SETS, STEPS, same, same_correlations, study

FILE = "trainer_state.json"
torch = pytest.importorskip("torch")


def train(folder: Path, table: pd.DataFrame, run: str, *, until: int | None = None, **arguments: Any) -> None:
    """A real Trainer whose metrics are the scores of a table; `until` stops it early, as a kill would."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(1, 2)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            logits = self.linear(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == until

    rows = [{"x": torch.tensor([float(i)]), "labels": i % 2} for i in range(4)]
    own = table[table["run"] == run].set_index(["step", "test_set"])["value"]
    trainer: Any = None
    asked: list[str] = []

    def metrics(_: Any) -> dict[str, float]:
        asked.append(SETS[len(asked) % len(SETS)])
        return {"accuracy": own[trainer.state.global_step, asked[-1]], "macro_f1": 0.25}

    options: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": max(STEPS),
        "eval_strategy": "steps",
        "eval_steps": STEPS[0],
        "save_strategy": "steps",
        "save_steps": 4,
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "per_device_train_batch_size": 2,
    }
    resume = arguments.pop("resume", None)
    trainer = Trainer(
        model=Model(),
        args=TrainingArguments(**options | arguments),
        train_dataset=rows,
        eval_dataset=dict.fromkeys(SETS, rows),
        compute_metrics=metrics,
        callbacks=[Stop()],
    )
    trainer.train(resume_from_checkpoint=resume)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six runs; the last was killed after step 6 and resumed from step 4."""
    folder = tmp_path_factory.mktemp("hf") / "outputs"
    table = study()
    *runs, last = table["run"].unique()
    for run in runs:
        train(folder / run, table, run)
    stale = table.assign(value=table["value"].where(table["step"] != 6, 0.123))
    train(folder / last, stale, last, until=6)
    train(folder / last, table, last, resume=str(folder / last / "checkpoint-4"))
    return folder


def test_round_trip(outputs: Path) -> None:
    imported = oo.import_scores(outputs)
    same(imported.table, study())
    assert imported.format == "trainer"
    assert set(imported.table["metric"]) == {"accuracy", "macro_f1", "loss"}
    assert set(imported.table["test_set"]) == set(SETS)  # rte_x too: what a Trainer times is a set
    same_correlations(outputs, study())
    assert any(note.startswith("not told of the runs: model, train_set, seed") for note in imported.notes)


def test_names_tell_what_the_runs_were(outputs: Path) -> None:
    analysis = oo.analyse(outputs, names="{model}_{train_set}_{seed}_{shots}")
    assert set(analysis.result.table["train_set"]) == {"snli"}  # so the in-domain set needs no option


def test_one_run_and_one_file(outputs: Path) -> None:
    run = study()["run"].unique()[0]
    for path in (outputs / run, outputs / run / "checkpoint-8" / "trainer_state.json"):
        table = oo.import_scores(path).table
        assert table["run"].unique().tolist() == [run]
        same(table, study()[study()["run"] == run])
    paths = [outputs / run for run in study()["run"].unique()]
    same(oo.import_scores(paths).table, study())


def test_the_command_line_reads_a_folder_and_writes_nothing_into_it(outputs: Path, tmp_path: Path) -> None:
    before = sorted(outputs.rglob("*"))
    done = oodles("report", outputs, "--in-domain", "snli", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").is_file()
    assert sorted(outputs.rglob("*")) == before


def state(*rows: dict[str, Any], **others: Any) -> str:
    return json.dumps({"global_step": 9, "log_history": list(rows), **others})


def row(step: Any, **scores: Any) -> dict[str, Any]:
    return {"step": step, "epoch": 1.0, **{f"eval_{name}_accuracy": value for name, value in scores.items()}}


def test_what_a_config_says(tmp_path: Path) -> None:
    """LLaMA-Factory's folder: its log has no scores of sets, its YAML says what was run."""
    run = tmp_path / "lf"
    run.mkdir()
    (run / "trainer_state.json").write_text(state(row(1, snli=0.5, hans=0.4)))
    (run / "trainer_log.jsonl").write_text('{"current_steps": 1, "loss": 0.3, "accuracy": 0.9}\n')
    (run / "training_args.yaml").write_text(
        "seed: 42\ndataset: snli  # train\nmodel_name_or_path: 'org/m'\nlora:\n  x: 1\n"
    )
    (run / "training_args.bin").write_bytes(b"a pickle that nobody opens")
    table = oo.import_scores(tmp_path).table
    assert table[["run", "model", "train_set", "seed"]].drop_duplicates().to_numpy().tolist() == [
        ["lf", "org/m", "snli", 42]
    ]


def test_a_checkpoint_later_than_the_final_state_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-8").mkdir()
    (tmp_path / "trainer_state.json").write_text(state(row(4, snli=0.5, hans=0.4), global_step=4))
    (tmp_path / "checkpoint-8" / "trainer_state.json").write_text(state(row(8, snli=0.6, hans=0.5), global_step=8))
    imported = oo.import_scores(tmp_path)
    assert set(imported.table["step"]) == {8}
    assert "checkpoint-8 is later than trainer_state.json beside it: the checkpoint is read" in imported.notes[0]


def test_the_last_of_repeated_points_counts_and_missing_sets_are_gaps(tmp_path: Path) -> None:
    text = state(row(1, snli=0.5, hans=0.4), row(2, snli=0.9), row(2, snli=0.6, hans=float("nan")), row(1, hans=0.4))
    assert "NaN" in text
    (tmp_path / "trainer_state.json").write_text(text)
    imported = oo.import_scores(tmp_path)
    found = imported.table.dropna(subset="value").set_index(["step", "test_set"])["value"].to_dict()
    assert found == {(1, "snli"): 0.5, (1, "hans"): 0.4, (2, "snli"): 0.6}
    assert "1 points are logged more than once: the last counts (a resumed run)" in imported.notes


DAMAGE: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "truncated": (lambda text: text[:-20], "not JSON"),
    "another shape": (lambda _: "[1, 2]", "expected an object"),
    "no history": (lambda _: '{"global_step": 1}', "'log_history' is missing"),
    "history of text": (lambda _: '{"log_history": ["x"]}', "expected an object"),
    "no step": (lambda _: '{"log_history": [{"eval_x_accuracy": 0.5}]}', "step' is missing"),
    "a step of text": (lambda _: state(row("1", snli=0.5)), "expected a whole number"),
    "half a step": (lambda _: state(row(1.5, snli=0.5)), "step is 1.5; expected a whole number"),
    "a step that is no number": (lambda _: state(row(float("nan"), snli=0.5)), "expected a whole number"),
    "values of text": (lambda _: state(row(1, snli="high", hans=[1])), "nothing is logged"),
    "no scores": (lambda _: state({"step": 1, "loss": 0.3}), "no metric is named like a score; found: loss"),
    "bytes": (lambda _: b"\xff\xfe\x00", "not JSON"),
    "empty": (lambda _: "", "not JSON"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(tmp_path: Path, damage: str) -> None:
    spoil, said = DAMAGE[damage]
    content = spoil(state(row(1, snli=0.5, hans=0.4)))
    path = tmp_path / "trainer_state.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        oo.import_scores(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_line(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(state(row(1, snli=0.5, hans=0.4), trial_name="x" * 10_000_000))
    assert len(oo.import_scores(tmp_path).table) == 2


def test_values_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"step": 1, "eval_snli_accuracy": "0.5", "eval_hans_accuracy": 0.4, "eval_best_accuracy": 0.9},
        {"step": 2, "eval_snli_accuracy": 0.6, "eval_hans_accuracy": True, "note": "x"},
    ]
    (tmp_path / FILE).write_text(json.dumps({"global_step": 2, "log_history": rows}))
    imported = oo.import_scores(tmp_path)
    assert len(imported.table) == 2
    told = " ".join(imported.notes)
    for name in ("snli", "hans"):
        assert f"eval_{name}_accuracy: left out where it is no number (text, true or a list), 1 times" in told
    assert "eval_best_accuracy; see --keys" in told


def test_per_cent_of_logs(tmp_path: Path) -> None:
    """Divided where all sets are; left where sets differ; refused where runs do."""

    def write(run: str, snli: float, hans: float) -> None:
        (tmp_path / run).mkdir(exist_ok=True)
        rows = [{"step": s, "eval_snli_accuracy": snli + s, "eval_hans_accuracy": hans + s / 100} for s in (1, 2)]
        (tmp_path / run / FILE).write_text(json.dumps({"global_step": 2, "log_history": rows}))

    write("a", 60, 40)
    write("b", 70, 50)
    imported = oo.import_scores(tmp_path)
    assert imported.table["value"].max() == 0.72
    assert "scores above 1 are taken as per cent and divided by 100" in imported.notes
    write("a", 60, 0.4)
    write("b", 70, 0.5)
    imported = oo.import_scores(tmp_path)
    assert imported.table["value"].max() == 72
    assert "accuracy of snli goes beyond 1, of hans not: left as logged" in imported.notes
    rows = [{"step": 1, "eval_snli_accuracy": 0.7, "eval_hans_accuracy": 0.5}]
    (tmp_path / "b" / FILE).write_text(json.dumps({"global_step": 1, "log_history": rows}))
    with pytest.raises(DataError, match=r"snli goes up to 62 in run 'a' and to 0\.7 in run 'b': per cent and shares"):
        oo.import_scores(tmp_path)


@pytest.mark.parametrize(
    ("runs", "advice"),
    [
        (["seed0", "seed1"], "seed{seed}"),
        (["pythia/seed0", "opt/seed1"], "{model}/seed{seed}"),
        (["m_snli_0_64", "m_snli_1_64"], "{model}_{train_set}_{seed}_{shots}"),
        (["pythia-70m-s1", "pythia-70m-s2"], "{model}-s{seed}"),
        (["first", "second"], None),
    ],
)
def test_the_advice_on_names_works_when_it_is_pasted(tmp_path: Path, runs: list[str], advice: str | None) -> None:
    for run in runs:
        (tmp_path / run).mkdir(parents=True)
        rows = [{"step": 1, "eval_snli_accuracy": 0.7, "eval_hans_accuracy": 0.5}]
        (tmp_path / run / FILE).write_text(json.dumps({"global_step": 1, "log_history": rows}))
    (note,) = [note for note in oo.import_scores(tmp_path).notes if note.startswith("not told of the runs")]
    found = re.findall("--names '(.+?)'", note)
    assert found == ([advice] if advice else [])
    if advice:
        assert oo.import_scores(tmp_path, names=advice).table["seed"].notna().all()
        with pytest.raises(ConfigError, match=r"is named otherwise; e\.g\. --names") as caught:
            oo.import_scores(tmp_path, names="{model}:{seed}")
        (again,) = re.findall("--names '([^:]+?)'", str(caught.value))
        oo.import_scores(tmp_path, names=again)
    else:
        (tmp_path / "runs.csv").write_text("run,model,train_set,seed\nfirst,m,snli,0\nsecond,m,snli,1\n")
        assert "--map runs.csv, columns run,model,train_set,seed" in note
        table = oo.import_scores(tmp_path, format="trainer", maps=str(tmp_path / "runs.csv")).table
        assert sorted(table["seed"].unique()) == [0, 1]


@pytest.mark.parametrize("seed", ["9" * 5000, "\u00b2", "\u0661"])
def test_a_seed_that_is_no_number_is_not_known(tmp_path: Path, seed: str) -> None:
    rows = [{"step": 1, "eval_snli_accuracy": 0.7, "eval_hans_accuracy": 0.5}]
    (tmp_path / FILE).write_text(json.dumps({"global_step": 1, "log_history": rows}))
    (tmp_path / "training_args.yaml").write_text(f"seed: {seed}\n", encoding="utf-8")
    assert "seed" not in oo.import_scores(tmp_path).table

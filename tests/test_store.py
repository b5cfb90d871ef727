from __future__ import annotations

import ast
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodles
from oodles.contracts import ModelSpec, Pattern, Predictions, Prompt, PromptSet
from oodles.disk import write_json
from oodles.errors import StoreError
from oodles.store.claim import claim_folder
from oodles.store.commit import commit, copy_score
from oodles.store.damage import mend_scores
from oodles.store.folder import RunFolder, StudyFolder, run_folders
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json
from oodles.store.spec import StoredSpec, read_spec, write_spec
from oodles.store.table import DamageWarning, read_records, read_runs

SPEC = {
    "run_id": "1-x",
    "model": {"label": "m"},
    "train_set": "home",
    "shots": 8,
    "seed": 3,
    "pattern": {"name": "q"},
    "data_seed": 3,
    "suite": "toy",
}


def folder_with_scores(root: Path, name: str = "r") -> RunFolder:
    claim_folder(StudyFolder(root), "toy", "toy")
    folder = RunFolder(root / "runs" / name)
    write_json(folder.spec, SPEC)
    for step in (0, 4):
        for test_set in ("home", "away"):
            keep(folder, step, test_set)
    return folder


def keep(folder: RunFolder, step: int, test_set: str, gold: int = 1) -> None:
    prompts = PromptSet(
        name=test_set, answers=(" Yes", " No"), prompts=tuple(Prompt(id=f"e{i}", text="t", gold=gold) for i in range(3))
    )
    scores = np.array([[0.5, 1.5], [2.0, 1.0], [0.0, 0.25]])
    predictions = Predictions(
        test_set=test_set, answers=prompts.answers, ids=("e0", "e1", "e2"), scores=scores, gold=np.full(3, gold)
    )
    commit(folder, step, prompts, predictions, "in_domain" if test_set == "home" else "ood")


def test_the_long_table_has_the_contract_columns(tmp_path: Path) -> None:
    folder_with_scores(tmp_path)
    table = read_runs(tmp_path)
    columns = ["run", "model", "train_set", "shots", "seed", "step", "test_set", "role", "metric", "value", "n"]
    assert list(table.columns[:11]) == columns
    assert not table.duplicated(["run", "step", "test_set", "metric"]).any()
    accuracy = table[(table.metric == "accuracy") & (table.step == 4) & (table.test_set == "away")].iloc[0]
    assert accuracy.value == 2 / 3
    assert (accuracy.n, accuracy.role, accuracy.model, accuracy.seed) == (3, "ood", "m", 3)
    shares = table[(table.metric == "share:Yes") & (table.test_set == "home")]
    assert shares.value.tolist() == [1 / 3, 1 / 3]
    assert table[table.metric == "auc"].value.isna().all()  # one gold answer only: unknown is nan


def test_records_hold_every_score(tmp_path: Path) -> None:
    folder_with_scores(tmp_path)
    records = read_records(tmp_path)
    assert len(records) == 2 * 2 * 3
    one = records[(records.step == 0) & (records.test_set == "home")]
    assert one["score:Yes"].tolist() == [0.5, 2.0, 0.0]
    assert one["correct"].tolist() == [True, False, True]
    assert one["example"].tolist() == ["e0", "e1", "e2"]


def test_records_come_before_their_line(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    for line in read_scores(folder):
        assert folder.records(line.step, line.test_set).is_file()
    assert not list(folder.path.rglob("*.part"))


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    whole = folder.scores.read_bytes()
    folder.scores.write_bytes(whole[:-20])
    assert len(read_scores(folder)) == 3
    with pytest.warns(DamageWarning, match="the last line is torn; it was never committed"):
        assert len(read_runs(tmp_path).groupby(["step", "test_set"])) == 3
    assert "torn" in mend_scores(folder)[0]  # what follows it must not be glued to it
    assert mend_scores(folder) == []
    assert folder.scores.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("place", [9, 60, 150, 300])
def test_a_flipped_bit_is_seen_and_the_rest_is_read(place: int, tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    whole = bytearray(folder.scores.read_bytes())
    whole[place] ^= 1
    folder.scores.write_bytes(whole)
    with pytest.warns(DamageWarning, match=r"scores\.jsonl: line 1 is damaged; lost: one evaluation"):
        table = read_runs(tmp_path)
    assert len(table.groupby(["step", "test_set"])) == 3
    assert "line 1 is damaged" in table.attrs["notes"][0]


def test_damaged_records_are_evaluated_again(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    path = folder.records(4, "away")
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    assert "away.parquet: damaged; step 4, test set 'away' is evaluated again" in mend_scores(folder)[0]
    assert (4, "away") not in {(line.step, line.test_set) for line in read_scores(folder)}
    assert len(read_scores(folder)) == 3


def test_a_damaged_record_names_itself(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    folder.records(4, "away").write_bytes(b"PAR1")
    with pytest.warns(DamageWarning, match=r"4/away\.parquet: damaged or missing.*lost: the records of step 4"):
        records = read_records(tmp_path)
    assert set(zip(records.step, records.test_set, strict=True)) == {(0, "home"), (0, "away"), (4, "home")}


def test_a_copied_score_is_the_same(tmp_path: Path) -> None:
    donor = folder_with_scores(tmp_path)
    heir = RunFolder(tmp_path / "runs" / "s")
    write_json(heir.spec, SPEC)
    for line in read_scores(donor):
        copy_score(donor, heir, line, line.role)
    assert heir.scores.read_bytes() == donor.scores.read_bytes()
    assert heir.records(0, "home").read_bytes() == donor.records(0, "home").read_bytes()


def test_a_folder_of_another_study_is_refused(tmp_path: Path) -> None:
    claim_folder(StudyFolder(tmp_path / "a"), "one", "mini")
    claim_folder(StudyFolder(tmp_path / "a"), "one", "mini")
    with pytest.raises(StoreError, match="holds study 'one' on suite 'mini', not 'two' on 'mini'"):
        claim_folder(StudyFolder(tmp_path / "a"), "two", "mini")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("do not touch")
    with pytest.raises(StoreError, match="not empty and no oodles study"):
        claim_folder(StudyFolder(tmp_path / "b"), "one", "mini")
    with pytest.raises(StoreError, match=r"no study\.json"):
        run_folders(tmp_path / "b")


def test_status(tmp_path: Path) -> None:
    folder = folder_with_scores(tmp_path)
    assert folder.status == "started"
    write_json(folder.failed, {"reason": "x"})
    assert folder.status == "failed"
    write_json(folder.done, {})
    assert folder.status == "done"
    assert RunFolder(tmp_path / "runs" / "none").status == "missing"


def test_no_scores_yet_says_so(tmp_path: Path) -> None:
    claim_folder(StudyFolder(tmp_path), "toy", "toy")
    with pytest.raises(StoreError, match="no scores yet"):
        read_runs(tmp_path)


FULL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_store import folder_with_scores, keep
from oodles.errors import StoreError
from oodles.store.scores import read_scores
from oodles.disk import write_json
root = Path(sys.argv[1])
folder = folder_with_scores(root)
before = read_scores(folder)
with open(root / "filler", "wb", buffering=0) as f:
    try:
        while True:
            f.write(b"x" * 4096)
    except OSError:
        pass
for call in (lambda: keep(folder, 8, "home"), lambda: write_json(folder.done, {"a": "b" * 9000})):
    try:
        call()
        print("WRITTEN")
    except StoreError as error:
        print(error)
print(read_scores(folder) == before, folder.done.exists(), list(root.rglob("*.part")))
"""


def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A real full disk: a tmpfs of a few pages in its own mount namespace."""
    from conftest import missing

    (tmp_path / "disk").mkdir()
    script = tmp_path / "full.py"
    script.write_text(FULL_DISK)
    command = f"{sys.executable} {script} {tmp_path}/disk {Path(__file__).parent}"
    inner = f"mount -t tmpfs -o size=128k none {tmp_path}/disk && {command}"
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", inner], capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        missing(f"no mount namespace here: {done.stderr.strip()[:100]}")
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert "no space left on the disk" in lines[0]
    assert "no space left on the disk" in lines[1]
    assert lines[2] == "True False []"


def test_files_state_their_schema(tmp_path: Path) -> None:
    claim_folder(StudyFolder(tmp_path), "toy", "toy")
    assert json.loads((tmp_path / "study.json").read_text())["schema"] == 1


def test_runs_are_told_apart(tmp_path: Path) -> None:
    folder_with_scores(tmp_path, "a")
    folder_with_scores(tmp_path, "b")
    assert read_runs(tmp_path).groupby("run").size().tolist() == [24, 24]


# typed lines and specs


OLD = [  # as earlier versions wrote them: without the number of shortened prompts, ties, records and checksums
    b'{"step": 0, "test_set": "home", "role": "in_domain", "n": 3, "limit": null, "prompts": "p", "ties": 0, "metrics":'
    b' {"accuracy": 0.5}}',
    b'{"step": 0, "test_set": "away", "role": "ood", "n": 3, "limit": 3, "prompts": "p", "metrics": {"auc": null}}',
    '{"step": 1, "test_set": "höhe", "role": "ood", "n": 3, "limit": null, "prompts": "p", "shortened": 2, "ties": 1,'
    ' "metrics": {"accuracy": 0.1, "share:Yes": 1.0}, "records": "a.parquet", "records_crc": 7, "later": [1]}'.encode(),
]


def sealed_line(text: bytes) -> bytes:
    body = text.removesuffix(b"}")
    return body + b', "crc": %d}\n' % zlib.crc32(body)


def test_lines_of_every_version_are_written_back_as_they_were(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    folder.path.mkdir(parents=True)
    whole = b"".join(map(sealed_line, OLD))
    folder.scores.write_bytes(whole + b'{"step": 2, "torn')
    assert mend_scores(folder) == [f"{folder.scores}: the last line is torn; it was never committed, and is left out"]
    assert folder.scores.read_bytes() == whole
    scores = read_scores(folder)
    assert [(s.ties, s.shortened, s.records, s.records_crc) for s in scores] == [
        (0, None, None, None),
        (None, None, None, None),
        (1, 2, "a.parquet", 7),
    ]
    assert scores[2].key == (1, "höhe", "p")


@pytest.mark.parametrize(
    "wrong", ['"ties": "many"', '"limit": "all"', '"shortened": null', '"records": "../x"', '"n": -1', '"step": 1.5']
)
def test_a_line_of_other_kinds_is_damaged(tmp_path: Path, wrong: str) -> None:
    folder = folder_with_scores(tmp_path)
    lines = folder.scores.read_text().splitlines(keepends=True)
    key, _, value = wrong.partition(": ")
    told = json.loads(lines[0])
    del told["crc"]
    told[key.strip('"')] = json.loads(value)
    folder.scores.write_text(json.dumps(told) + "\n" + "".join(lines[1:]))
    assert len(read_scores(folder)) == 3


def test_specs_of_other_trainings_say_what_is_known(tmp_path: Path) -> None:
    """A run of one's own loop, and scored checkpoints; what they do not know is left out."""
    pattern = Pattern(name="q", text="{a}", answers=(" Yes", " No"), truncate="a")
    known: dict[str, Any] = {"name": "r", "suite": "toy", "train_set": "home", "pattern": pattern}
    common = {
        "schema": 1,
        "run_id": None,
        "name": "r",
        "suite": "toy",
        "train_set": "home",
        "pattern": {"name": "q", "text": "{a}", "answers": [" Yes", " No"]},
        "shots": None,
        "seed": None,
        "data_seed": None,
    }
    folder = RunFolder(tmp_path / "runs" / "r")
    loop = StoredSpec(**known, model=ModelSpec(label="m", source=""), seed=3)
    write_spec(folder, loop)
    assert read_json(folder.spec) == {**common, "model": {"label": "m"}, "seed": 3}
    scored = StoredSpec(
        **known,
        model=ModelSpec(label="m", source="org/m"),
        precision="fp32",
        checkpoints={"0": None},
        evaluation={"limit": 4},
    )
    write_spec(folder, scored)
    assert read_json(folder.spec) == {
        **common,
        "model": {"label": "m", "source": "org/m", "revision": None},
        "precision": "fp32",
        "checkpoints": {"0": None},
        "evaluation": {"limit": 4},
    }
    assert read_spec(folder).checkpoints == {"0": None}
    assert read_spec(folder).as_json() == scored.as_json()


def test_only_one_module_knows_the_names_in_a_study() -> None:
    """`StudyFolder` and `RunFolder` own them; `shapes` says what the files hold."""
    own = {"study.json", "audit.json", ".study.lock", "scores.jsonl", "spec.json", "done.json", "failed.json"}
    source = Path(oodles.__file__).parent
    strange = [
        f"{path.relative_to(source)}: {node.value}"
        for path in source.rglob("*.py")
        if path.name not in ("folder.py", "shapes.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in own
    ]
    assert not strange


def test_an_edited_line_is_noticed_however_it_is_spelt(tmp_path: Path) -> None:
    """Compact JSON with the stale checksum, and a line whose checksum was taken off among others that have one."""
    folder = folder_with_scores(tmp_path)
    lines = folder.scores.read_text().splitlines()
    edited = json.loads(lines[0])
    edited["metrics"]["accuracy"] = 0.99
    compact = json.dumps(edited, separators=(",", ":"))
    edited.pop("crc")
    for text in (compact, json.dumps(edited)):
        folder.scores.write_text("\n".join([text, *lines[1:]]) + "\n")
        assert len(read_scores(folder)) == len(lines) - 1

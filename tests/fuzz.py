"""Fuzzed inputs for every reader: tables, TOML, data files, run folders, results, packed files, command lines.

    python tests/fuzz.py --inputs 100000 --seed 0            all kinds, in their shares
    python tests/fuzz.py --each 10000 --out build/each.json  as many of every importer; goes on where it was stopped
    python tests/fuzz.py --kind tables --first 17 --last 18  one input again

Each input comes from the seed, its kind and its number alone. An input passes if it is read, or refused by one of
oodles' own errors, or one of the operating system, in one line of at most 1,200 characters: anything else that escapes
is a traceback. Every input has
a time limit. Readers are called in this process, as the command line calls them; of each kind some inputs go through
the command line as a whole, which must exit with 0, 1 or 2, print at most a few lines of errors and no escape codes.
A parent watches the process: if it dies or stands still, the input at hand is counted, and the next one follows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SECONDS = 60.0  # for one input: the first command of a process loads transformers, slowly on a busy machine
STILL = 120.0  # without a new input the process is taken to hang
LONGEST, MOST_LINES = 1200, 3  # of a message

CELLS = [
    "", " ", "nan", "NaN", "inf", "-inf", "1e308", "-1e308", "1e-320", "1e400", "0", "-0", "-1", "1.5", "1_000",
    "0x10", "9" * 25, "١٢", "True", "None", "null", "NA", "#N/A", "=1+2", "@x", "-a", "+b", "'", '"', '""',
    "a,b", "a;b", "a\tb", "a\nb", "\r", "\x00", "\x1b[31mred", "\x9b2J", "\u202eabc", "é", "é", "日本", "🙂",
    "\ufeff", "\ufffe", "x" * 5000, "../../etc/passwd", "in_domain", "ood", "id", "other", "accuracy", "home",
    "far", "r0", "[1, 2]", "{}", '{"a": 1}', "%s%n", "{premise}", "<script>",
]  # fmt: skip
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63), 10**40, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", "x", "../up", "a/b", "\x1b[2J", "\ud800", "n" * 400, "1", "nan", "home", ".", "\x00", "日本"),
    *([], [None], [1, "a"], [[[]]], {}, {"a": 1}, {"": None}, [{}], {"label": {}}, "log", "linear", "auto"),
]


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Case:
    """One input: how it is read, and the command that reads it."""

    read: Callable[[], Any]
    command: list[str]
    whole: bool = False  # through the command line only


Make = Callable[[random.Random, Path, Path], Case]


# tables


def table_rows(rng: random.Random) -> list[dict[str, Any]]:
    """A small table that is sound in most ways."""
    sets = rng.choice([["home", "a", "b"], ["home", "a", "b", "a/x"], ["home", "a"], ["home"], ["a", "b"]])
    runs, steps = rng.choice([1, 2, 5, 6]), rng.choice([1, 2, 4, 5])
    apart = rng.random() < 0.05  # no step has both an in-domain and an OOD score
    rows = []
    for run in range(runs):
        for step in range(steps):
            for name in sets:
                inside = name == "home"
                row = {"run": f"r{run}", "step": step + (100 if apart and inside else 0), "test_set": name}
                row["value"] = round(rng.random(), rng.choice([1, 3, 15]))
                row |= {"role": "in_domain" if inside else "ood", "model": "m", "train_set": "home", "n": 100}
                rows.append(row)
    dropped = [c for c in ("role", "model", "train_set", "n") if rng.random() < 0.3]
    for row in rows:
        for column in dropped:
            del row[column]
        if rng.random() < 0.3:
            row["metric"] = rng.choice(["accuracy", "f1"])
    return rows


def spoil_rows(rng: random.Random, rows: list[dict[str, Any]], values: list[Any]) -> list[dict[str, Any]]:
    """Cells, columns and rows that should not be there, or not so."""
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        what = rng.randrange(8)
        if not rows:
            break
        column = rng.choice(list(rows[0]) or ["run"])
        if what == 0:
            rng.choice(rows)[column] = rng.choice(values)
        elif what == 1:
            value = rng.choice(values)
            rows = [{**row, column: value} for row in rows]
        elif what == 2:
            rows = [{k: v for k, v in row.items() if k != column} for row in rows]
        elif what == 3:
            name = rng.choice(
                [*("chance", "slice", "slice_of", "suite", "further", "metric", "seed"), *map(str, CELLS[:20])]
            )
            rows = [{**row, name: rng.choice(values)} for row in rows]
        elif what == 4:
            rows = rows + rng.sample(rows, min(3, len(rows)))
        elif what == 5:
            rows = [row for row in rows if rng.random() < 0.6]
        elif what == 6:
            rng.shuffle(rows)
        else:
            rows = [{**row, column: rng.choice(values)} for row in rows]
    return rows


def spoil_bytes(rng: random.Random, data: bytes) -> bytes:
    """Flipped, lost, doubled and inserted bytes."""
    raw = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        if not raw:
            break
        at, what = rng.randrange(len(raw)), rng.randrange(6)
        if what == 0:
            raw[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del raw[at:]
        elif what == 2:
            del raw[at : at + rng.randrange(1, 20)]
        elif what == 3:
            raw[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif what == 4:
            raw[at:at] = raw[at : at + rng.randrange(1, 60)]
        else:
            raw[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"])
    return bytes(raw)


def as_csv(rng: random.Random, rows: list[dict[str, Any]]) -> bytes:
    import csv
    import io

    names = list(dict.fromkeys(name for row in rows for name in row))
    if rng.random() < 0.05:
        names += [rng.choice(names or ["run"])]  # a name twice
    out = io.StringIO()
    writer = csv.writer(
        out, delimiter=rng.choice(",,,,,,,,,;\t"), lineterminator=rng.choice(["\n", "\n", "\r\n", "\r"])
    )
    if rng.random() < 0.97:
        writer.writerow(names)
    for row in rows:
        writer.writerow([row.get(name, "") for name in names])
    text = out.getvalue()
    encoding = rng.choice(["utf-8"] * 12 + ["utf-8-sig", "utf-16", "latin-1", "utf-32"])
    return text.encode(encoding, errors="surrogatepass" if encoding != "latin-1" and rng.random() < 0.5 else "replace")


def options(rng: random.Random) -> list[str]:
    """Options of analyse and report that a table may or may not bear."""
    found: list[str] = []
    known = {
        "--method": ["gam", "linear", "probit-linear", "logit-linear", "x"],
        "--within": ["pooled", "run", "separate", "x"],
        "--interval": ["jackknife", "run-mean", "naive", "bootstrap", "x"],
        "--correlation": ["pearson", "spearman", "x"],
        "--metric": ["accuracy", "f1", "x", ""],
        "--by": ["model", "step", "value", "run", "test_set", "x", ""],
        "--unit": ["run", "model", "seed", "step", "x", ""],
        "--in-domain": ["home", "a", "x", ""],
        "--test-set": ["a", "b", "a/x", "x", ""],
    }
    for name, values in known.items():
        if rng.random() < 0.12:
            found += [name, rng.choice(values)]
    return found


def read_a_table(path: Path) -> None:
    from oodles.imports.tables import read_table
    from oodles.stats.longtable import check_table

    check_table(read_table(path))


def tables(rng: random.Random, folder: Path, base: Path) -> Case:
    rows = spoil_rows(rng, table_rows(rng), CELLS)
    data = as_csv(rng, rows)
    if rng.random() < 0.25:
        data = spoil_bytes(rng, data)
    path = folder / "t.csv"
    path.write_bytes(data)
    return Case(lambda: read_a_table(path), ["analyse", str(path), *options(rng)])


def parquet_tables(rng: random.Random, folder: Path, base: Path) -> Case:
    import datetime as dt
    from decimal import Decimal

    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = spoil_rows(rng, table_rows(rng), ["x", 0.5, None, 3, True, "0.5", "\x1b[1m", 10**18, float("inf")]) or [
        {"run": "r"}
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    odd = [
        [[1]], [{"a": 1}], [b"\xff"], [dt.date(2020, 1, 1)], [dt.datetime(2020, 1, 1)], [Decimal("1.5")], [dt.time(1)],
        [dt.timedelta(1)], [None], [True], [2**63 - 1], ["x"], [1.5], [[]], [[("k", 1)]], [float("nan")],
    ]  # fmt: skip
    columns = {}
    for name in names:
        cells = [row.get(name) for row in rows]
        if rng.random() < 0.08:
            cells = rng.choice(odd) * len(rows)
        try:
            columns[name] = pa.array(cells)
            if rng.random() < 0.1:
                columns[name] = columns[name].dictionary_encode()
        except (pa.ArrowException, OverflowError):
            columns[name] = pa.array([None if c is None else str(c) for c in cells])
    path = folder / "t.parquet"
    table = pa.table(columns)
    if rng.random() < 0.05 and names:
        table = table.append_column(names[0], table.column(0))
    if rng.random() < 0.1:
        table = table.replace_schema_metadata(
            {b"pandas": rng.choice([b"{", b"[]", b'{"index_columns": ["x"], "columns": []}'])}
        )
    try:
        pq.write_table(table, path, compression=rng.choice(["none", "zstd"]))
    except pa.ArrowNotImplementedError:  # a dictionary of nulls
        path.write_bytes(b"PAR1")
    if rng.random() < 0.3:
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))
    return Case(lambda: read_a_table(path), ["analyse", str(path), *options(rng)])


# TOML

STUDY = """
schema = 1
name = "toy"
suite = "toy.toml"
[grid]
models = ["tiny-llama-untrained"]
train_sets = ["home"]
shots = [8]
seeds = [0, 1]
[train]
epochs = 2
batch_size = 4
learning_rate = 1e-2
[lora]
rank = 4
[eval]
steps = [0, 2]
limit = 8
test_sets = ["home", "a", "b"]
[models.mine]
source = "tiny-llama-untrained"
"""

SUITE = """
schema = 1
name = "toy"
description = "a toy"
[patterns.question]
text = "{premise} Question: {hypothesis} Yes or No?"
answers = [" Yes", " No"]
truncate = "premise"
max_tokens = 200
"""


def toml_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {toml_of(v)}" for k, v in value.items()) + "}"
    return json.dumps("" if value is None else str(value))


def spoil_toml(rng: random.Random, text: str) -> bytes:
    lines = text.splitlines()
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at, what = rng.randrange(len(lines)), rng.randrange(7)
        key = lines[at].partition("=")[0].strip() or "name"
        if what <= 2:
            lines[at] = f"{key} = {toml_of(rng.choice(VALUES))}"
        elif what == 3:
            del lines[at]
            lines = lines or [""]
        elif what == 4:
            (
                lines.insert(
                    at, rng.choice([*lines, f"further = {toml_of(rng.choice(VALUES))}", "[x]", "[[x]]", "= 3", '"'])
                ),
            )
        elif what == 5:
            lines[at] = lines[at].replace(rng.choice(list(lines[at]) or ["x"]), rng.choice(list("{}[]\"'=.\\#\n/")), 1)
        else:
            lines[at] = lines[at].replace(key, rng.choice(["nam", "models", '"a b"', "a.b", "schema", key + "s"]), 1)
    data = "\n".join(lines).encode(errors="replace")
    return spoil_bytes(rng, data) if rng.random() < 0.1 else data


def suite_text() -> str:
    text = SUITE
    for kind, name in (("train", "home"), ("test", "home"), ("test", "a"), ("test", "b")):
        text += f'[[{kind}_sets]]\nname = "{name}"\nsource = {{ file = "{name}.csv" }}\nlabels = {{ e = 0, c = 1 }}\n'
        text += 'drop = ["n"]\nslices = ["kind"]\n'
    return text


def write_suite(folder: Path) -> None:
    (folder / "toy.toml").write_text(suite_text())
    for name in ("home", "a", "b"):
        rows = [f"{i},A {name} text {i // 3}.,It is {i}.,{'ecn'[i % 3]},{'uv'[i % 2]}" for i in range(60)]
        (folder / f"{name}.csv").write_text("\n".join(["id,premise,hypothesis,label,kind", *rows]))


def studies(rng: random.Random, folder: Path, base: Path) -> Case:
    from oodles.study.grid import expand
    from oodles.study.load import load_study

    write_suite(folder)
    path = folder / "study.toml"
    path.write_bytes(spoil_toml(rng, STUDY))
    given = []
    if rng.random() < 0.3:
        key = rng.choice(
            ["train.epochs", "grid.seeds", "name", "eval.steps", "eval.limit", "x.y", "", "train", "models.mine"]
        )
        given = [f"{key}{rng.choice(['=', '=', ''])}{rng.choice([toml_of(rng.choice(VALUES)), rng.choice(CELLS)])}"]
    if any("\x00" in one for one in given):
        given = []
    chosen = [part for one in given for part in ("--set", one)]
    return Case(lambda: expand(load_study(path, given)), ["check", str(path), *chosen])


def suites(rng: random.Random, folder: Path, base: Path) -> Case:
    from oodles.audit.overview import describe_slices, describe_suite
    from oodles.suite.load import load_suite

    write_suite(folder)
    path = folder / "toy.toml"
    if rng.random() < 0.8:
        path.write_bytes(spoil_toml(rng, path.read_text()))

    def read() -> None:
        suite = load_suite(path)
        describe_suite(suite)
        describe_slices(suite)

    return Case(read, ["suites", str(path), *rng.choice([[], ["--slices"], ["--json"]])])


def data_files(rng: random.Random, folder: Path, base: Path) -> Case:
    """What a suite's sets are read from."""
    from oodles.suite.load import load_suite
    from oodles.suite.sources import load_examples

    write_suite(folder)
    name = rng.choice(["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
    toml = folder / "toy.toml"
    toml.write_text(suite_text().replace('file = "a.csv"', f'file = "{name}"'))
    rows: list[dict[str, Any]] = [
        {"id": str(i), "premise": f"A text {i}.", "hypothesis": "It is.", "label": "ec"[i % 2], "kind": "u"}
        for i in range(6)
    ]
    values = VALUES if name.endswith(("jsonl", "parquet")) else CELLS
    rows = spoil_rows(rng, rows, values)
    path = folder / name
    if name.endswith(".jsonl"):
        path.write_bytes("\n".join(json.dumps(row, default=str) for row in rows).encode())
    elif name.endswith(".parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            pq.write_table(pa.Table.from_pylist(rows), path)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError):
            pq.write_table(pa.table({"id": ["1"]}), path)
    else:
        path.write_bytes(as_csv(rng, rows))
    if rng.random() < 0.3:
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))

    def read() -> None:
        suite = load_suite(toml)
        load_examples(suite, suite.test_sets["a"])

    return Case(read, ["suites", str(toml)])


# folders


def base_runs(folder: Path) -> None:
    """A study of two runs, as the store writes it, without a model."""
    import numpy as np

    from oodles.contracts import Predictions, Prompt, PromptSet
    from oodles.disk import write_json
    from oodles.store.claim import claim_folder, plan_runs
    from oodles.store.commit import commit
    from oodles.store.folder import RunFolder, StudyFolder
    from oodles.store.members import keep_members
    from oodles.suite.slices import Members

    claim_folder(StudyFolder(folder), "toy", "toy")
    draws = np.random.default_rng(0)
    for number in range(2):
        run = RunFolder(folder / "runs" / f"m_home_{number}_8")
        spec: dict[str, Any] = {
            "schema": 1,
            "run_id": f"2-{number}",
            "name": run.name,
            "suite": "toy",
            "train_set": "home",
        }
        spec |= {
            "model": {"label": "m", "source": "m", "revision": None},
            "shots": 8,
            "seed": number,
            "data_seed": number,
        }
        spec |= {"pattern": {"name": "q", "text": "{premise}", "answers": [" Yes", " No"]}}
        spec |= {"evaluation": {"limit": None}, "recipe": {"epochs": 2, "precision": "fp32"}, "lora": {"rank": 8}}
        write_json(run.spec, spec)
        write_json(
            run.env, {"oodles": "0.1.0", "python": "3.11", "packages": {"torch": "2"}, "device": "cpu", "threads": 1}
        )
        write_json(run.draw, {"schema": 1, "ids": ["1"], "hash": "x"})
        for name in ("home", "a", "b"):
            ids = tuple(f"e{i}" for i in range(12))
            prompts = PromptSet(
                name=name,
                answers=(" Yes", " No"),
                prompts=tuple(Prompt(id=i, text=f"{name} {i}", gold=n % 2) for n, i in enumerate(ids)),
            )
            cells = {"label": tuple("ec"[n % 2] for n in range(12)), "kind": tuple("uv"[n % 3 == 0] for n in range(12))}
            gold = np.arange(12) % 2
            member = Members(
                test_set=name, prompts=prompts.hash, ids=ids, gold=tuple(map(int, gold)), columns=cells, key="q, all"
            )
            keep_members(run.study, [member], ["a/u"] if name == "a" else [])
            for step in (0, 4):
                scores = draws.normal(size=(12, 2))
                found = Predictions(test_set=name, answers=prompts.answers, ids=ids, scores=scores, gold=gold)
                commit(run, step, prompts, found, "in_domain" if name == "home" else "ood")
        write_json(run.done, {"schema": 1, "last_step": 4, "seconds": 3.0})
    plan_runs(StudyFolder(folder), [f"m_home_{n}_8" for n in range(3)])
    write_json(
        folder / "audit.json",
        {"findings": [{"severity": "error", "code": "x", "where": "a", "text": "t"}], "allowed": ["x"]},
    )


def spoil_json(rng: random.Random, value: Any) -> Any:
    """Something else somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.1:
            return {**value, rng.choice(["further", "", "schema", "\x1b"]): rng.choice(VALUES)}
        return {**value, key: spoil_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], spoil_json(rng, value[at]), *value[at + 1 :]]
    return rng.choice(VALUES)


def spoil_file(rng: random.Random, path: Path) -> None:
    """A file that is damaged, or of another kind, or not there."""
    what = rng.randrange(12)
    if what == 0:
        path.unlink()
    elif what == 1:
        path.write_bytes(b"")
    elif what == 2:
        path.unlink()
        path.mkdir()
    elif what == 3:
        path.write_bytes(
            rng.choice([b"[" * 100_000, b"null", b"3", b'"x"', b"[]", b"{}", b"\xff\xfe", b"{", b"NaN", b"9" * 5000])
        )
    elif what == 4:
        path.unlink()
        path.symlink_to(path.name)
    elif what <= 6 or path.suffix not in (".json", ".jsonl", ".parquet"):
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))
    elif path.suffix == ".json":
        path.write_text(json.dumps(spoil_json(rng, json.loads(path.read_text()))))
    elif path.suffix == ".jsonl":
        spoil_lines(rng, path)
    else:
        spoil_records(rng, path)


def spoil_lines(rng: random.Random, path: Path) -> None:
    """Lines that say something else, with a checksum that agrees."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for _ in range(rng.choice([1, 3])):
        at = rng.randrange(len(lines))
        lines[at] = spoil_json(rng, lines[at])
    texts = []
    for line in lines:
        body = json.dumps({k: v for k, v in line.items() if k != "crc"} if isinstance(line, dict) else line)
        if isinstance(line, dict) and rng.random() < 0.8:
            body = body.removesuffix("}")
            body = f'{body}, "crc": {zlib.crc32(body.encode())}}}'
        texts.append(body)
    path.write_text("\n".join(texts) + "\n")


def spoil_records(rng: random.Random, path: Path) -> None:
    """Records with other columns, under a line that agrees with them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    name, what = rng.choice(table.column_names), rng.randrange(4)
    if what == 0:
        table = table.drop_columns([name])
    elif what == 1:
        at = table.column_names.index(name)
        cells = rng.choice([["x"], [None], [1], [0.5], [[1]], [b"x"], [True], [float("nan")]]) * len(table)
        table = table.set_column(at, name, pa.array(cells))
    elif what == 2:
        table = table.slice(0, rng.randrange(len(table)))
    else:
        table = table.rename_columns([rng.choice([c, c, "x", "score:", "slice:"]) for c in table.column_names])
    pq.write_table(table, path)
    scores = path.parent.parent.parent / "scores.jsonl"
    if scores.is_file() and path.parent.name.isdigit():
        try:
            lines = [json.loads(line) for line in scores.read_text().splitlines()]
        except (ValueError, RecursionError):
            return  # spoilt before
        lines = [line for line in lines if isinstance(line, dict) and "records" in line and "step" in line]
        for line in lines:
            line.pop("crc", None)
            if line["records"] == path.name and str(line["step"]) == path.parent.name:
                line["records_crc"] = zlib.crc32(path.read_bytes())
        scores.write_text("".join(json.dumps(line) + "\n" for line in lines))


def copied(source: Path, folder: Path) -> Path:
    return Path(shutil.copytree(source, folder / "copy"))


def run_folders(rng: random.Random, folder: Path, base: Path) -> Case:
    from oodles.store.facts import describe_runs, describe_status, pace_of
    from oodles.store.table import read_records, read_runs

    root = copied(base / "runs", folder)
    files = sorted(p for p in root.rglob("*") if p.is_file())
    for path in rng.sample(files, rng.choice([1, 1, 1, 2, 4])):
        spoil_file(rng, path)
    if rng.random() < 0.1:
        (root / "locks").mkdir(exist_ok=True)
        held = json.dumps(spoil_json(rng, {"host": "x", "boot": "y", "space": "", "process": 3, "start": "1"}))
        (root / "locks" / "m_home_0_8.json").write_text(held)
    names = rng.choice([None, None, ["a"], ["a/u"], ["a/label=e"], ["x"], ["home/e/u"]])

    readers: list[Callable[[], Any]] = [lambda: read_runs(root, names), lambda: read_records(root, names)]
    readers += [lambda: pace_of(root, describe_status(root)), lambda: describe_runs(root)]
    chosen = rng.choice(readers)

    def read() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chosen()

    command = [rng.choice(["analyse", "analyse", "status", "pack", "report"]), str(root)]
    command += ["--out", str(folder / "p.zip")] if command[0] == "pack" else []
    command += ["--out", str(folder / "r.html")] if command[0] == "report" else []
    return Case(read, command)


def results(rng: random.Random, folder: Path, base: Path) -> Case:
    from oodles.show.terminal import render_terminal
    from oodles.stats.analysis import read_results
    from oodles.terminal import PlainConsole

    root = copied(base / "results", folder)
    files = sorted(p for p in root.glob("*") if p.suffix in (".json", ".parquet"))
    chosen = [root / "results.json"] if rng.random() < 0.5 else rng.sample(files, rng.choice([1, 2]))
    for path in chosen:
        spoil_file(rng, path)

    def read() -> None:
        found = read_results(root)
        with open(os.devnull, "w") as nothing:  # noqa: PTH123
            render_terminal(found, PlainConsole(file=nothing, width=100))

    return Case(read, ["report", str(root), "--out", str(folder / "r.html"), *options(rng)])


def packed(rng: random.Random, folder: Path, base: Path) -> Case:
    from oodles.store.table import read_runs

    path = folder / "p.oodles.zip"
    if rng.random() < 0.4:
        path.write_bytes(spoil_bytes(rng, (base / "packed.zip").read_bytes()))
    else:
        with zipfile.ZipFile(base / "packed.zip") as held, zipfile.ZipFile(path, "w") as made:
            for entry in held.infolist():
                data, name = held.read(entry), entry.filename
                if rng.random() < 0.05:
                    data = spoil_bytes(rng, data)
                if rng.random() < 0.03:
                    name = rng.choice(
                        [
                            "../x",
                            "/x",
                            "runs",
                            "runs/",
                            "study.json",
                            "sets/a.parquet",
                            "runs/r/records/x/a.parquet",
                            "a" * 300,
                            "",
                        ]
                    )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    how = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
                    made.writestr(name or "x", data, how)

    def read() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_runs(path)

    return Case(read, ["analyse", str(path)])


# other tools' files


def import_some(path: Path, kind: str) -> None:
    """As a user who names the format; as one who does not."""
    from oodles.api.imports import import_scores

    import_scores(path, format=kind)


def wide_tables(rng: random.Random, folder: Path, base: Path) -> Case:
    """A column per test set, in any of the ways people write numbers."""
    names = rng.sample(["snli", "hans_acc", "eval/rte_f1", "anli", "lr", "loss", "Name", "x y", "", "a" * 300], 5)
    decimal, mark = rng.choice([".", ".", ","]), rng.choice(["", "", "%", " %"])
    rows: list[dict[str, Any]] = []
    for run in range(rng.choice([1, 3, 6])):
        for step in range(rng.choice([1, 3])):
            row: dict[str, Any] = {rng.choice(["run", "run", "Run", "model"]): f"r{run}", "step": step}
            for name in names:
                row[name] = f"{rng.random() * rng.choice([1, 1, 100]):.3f}".replace(".", decimal) + mark
            rows.append(row)
    path = folder / rng.choice(["t.csv", "t.tsv", "t.txt", "t.jsonl", "t.json"])
    rows = spoil_rows(rng, rows, CELLS)
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_bytes(as_csv(rng, rows))
    if rng.random() < 0.25:
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))
    return Case(lambda: import_some(path, "table"), ["import", "--inspect", str(path), *options_of_import(rng)])


def options_of_import(rng: random.Random) -> list[str]:
    known = {
        "--map": ["run=Name", "run=row", "step=lr", "x", "=", "a=b,c=d", "run=", str(HERE)],
        "--names": ["{model}_{seed}", "{run}", "{", "x", "", "{model}{model}"],
        "--keys": ["eval/{test_set}_{metric}", "{test_set}", "{metric}", "", "{x"],
        "--in-domain": ["snli", "hans_acc", "x", ""],
        "--test-set": ["hans", "x"],
        "--format": ["table", "trainer", "x", ""],
        "--preset": ["paper", "x"],
    }
    return [word for name, values in known.items() if rng.random() < 0.08 for word in (name, rng.choice(values))]


def json_of(name: str, kind: str) -> Make:
    """A JSON file of a tool in which something is not as it should be."""

    def make(rng: random.Random, folder: Path, base: Path) -> Case:
        path = folder / name
        value = json.loads((base / "logs" / kind).read_text())
        for _ in range(rng.choice([1, 1, 3])):
            value = spoil_json(rng, value)
        path.write_text(json.dumps(value))
        if rng.random() < 0.2:
            spoil_file(rng, path)
        return Case(lambda: import_some(path, kind), ["import", "--inspect", str(path), *options_of_import(rng)])

    return make


def event_files(rng: random.Random, folder: Path, base: Path) -> Case:
    """TensorBoard's records; most damage is done inside them, with checksums that agree."""
    import struct

    from oodles.imports.wire import crc32c

    bodies = []
    for step in range(4):
        tag = rng.choice([b"eval/hans_accuracy", b"eval/snli_accuracy", b"x", b"\xff"])
        value = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", rng.random())
        summary = b"\x0a" + bytes([len(value)]) + value
        body = b"\x09" + struct.pack("<d", 1.0) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
        bodies.append(spoil_bytes(rng, body) if rng.random() < 0.3 else body)
    data = b""
    for body in bodies:
        head = struct.pack("<Q", len(body))
        data += head + struct.pack("<I", crc32c([head])[0]) + body + struct.pack("<I", crc32c([body])[0])
    path = folder / "events.out.tfevents.1.host"
    path.write_bytes(spoil_bytes(rng, data) if rng.random() < 0.4 else data)
    return Case(lambda: import_some(path, "tensorboard"), ["import", "--inspect", str(path)])


def wandb_files(rng: random.Random, folder: Path, base: Path) -> Case:
    """wandb's records, framed anew after they were damaged."""
    import struct
    import zlib

    from oodles.imports.wandb_files import _records

    source = base / "logs" / "run-x.wandb"
    data, whole = source.read_bytes()[:7], list(_records(source.read_bytes(), source, []))
    for body in rng.sample(whole, min(8, len(whole))):
        body = spoil_bytes(rng, body) if rng.random() < 0.3 else body
        data += struct.pack("<IHB", zlib.crc32(b"\x01" + body), len(body), 1) + body
    path = folder / "run-y.wandb"
    path.write_bytes(spoil_bytes(rng, data) if rng.random() < 0.4 else data)
    return Case(lambda: import_some(path, "wandb"), ["import", "--inspect", str(path)])


def databases(kind: str) -> Make:
    return lambda rng, folder, base: a_database(kind, rng, folder, base)


def a_database(kind: str, rng: random.Random, folder: Path, base: Path) -> Case:
    """A tracker's database: damaged bytes, or cells of another kind."""
    import sqlite3

    path = folder / "x.db"
    shutil.copyfile(base / "logs" / f"{kind}.db", path)
    if rng.random() < 0.5:
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))
    else:
        with contextlib.closing(sqlite3.connect(path)) as database, contextlib.suppress(sqlite3.Error, OverflowError):
            database.execute("PRAGMA ignore_check_constraints = 1")
            columns = ["value", "step", "key", "run_uuid"] if kind == "mlflow" else ["metrics", "step", "run_name"]
            values = [None, -1, 1.5, "x", b"\xff", 2**62, float("inf"), "{}", "[1]", '{"eval/a_accuracy": "x"}']
            column, value = rng.choice(columns), rng.choice(values)
            database.execute(f"UPDATE metrics SET {column} = ? WHERE rowid % 3 = 0", (value,))
            database.commit()
    return Case(lambda: import_some(path, kind), ["import", "--inspect", str(path)])


def mlflow_folders(rng: random.Random, folder: Path, base: Path) -> Case:
    """Files of lines, in folders: some of them spoilt, gone or of another kind."""
    root = copied(base / "logs" / "mlruns", folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in rng.sample(files, rng.choice([1, 1, 2, 5])):
        if path.parent.name == "metrics" and rng.random() < 0.5:
            lines = path.read_text().splitlines()
            lines[rng.randrange(len(lines))] = " ".join(rng.choice(["1", *CELLS]) for _ in range(rng.randrange(5)))
            path.write_text("\n".join(lines), errors="replace")
        else:
            spoil_file(rng, path)
    return Case(lambda: import_some(root, "mlflow"), ["import", "--inspect", str(root), *options_of_import(rng)])


def helm_stats(rng: random.Random, folder: Path, base: Path) -> Case:
    """What HELM writes of a run: two files in a folder."""
    spec: Any = {"name": "mmlu:subject=law,model=org_m", "adapter_spec": {"model": "org/m"}}
    stats: Any = [{"name": {"name": "exact_match", "split": "test"}, "count": 1, "mean": 0.5, "variance": 0.0}] * 2
    which = rng.random()
    (folder / "run").mkdir()
    (folder / "run" / "run_spec.json").write_text(json.dumps(spoil_json(rng, spec) if which < 0.5 else spec))
    (folder / "run" / "stats.json").write_text(json.dumps(spoil_json(rng, stats) if which > 0.3 else stats))
    if rng.random() < 0.2:
        spoil_file(rng, folder / "run" / rng.choice(["run_spec.json", "stats.json"]))
    return Case(lambda: import_some(folder, "helm"), ["import", "--inspect", str(folder), *options_of_import(rng)])


def wandb_answers(rng: random.Random, folder: Path, base: Path) -> Case:
    """What wandb's service might say, from the cache; simulated."""
    from oodles.disk import write_json

    rows = [{"train/global_step": s, "eval/hans_accuracy": 0.5, "eval/snli_accuracy": 0.6} for s in range(3)]
    runs: Any = [
        {"id": f"i{r}", "name": f"m_snli_{r}_8", "state": "finished", "config": {"seed": {"value": r}}, "rows": rows}
        for r in range(2)
    ]
    for _ in range(rng.choice([1, 1, 3])):
        runs = spoil_json(rng, runs)
    with contextlib.suppress(ValueError, TypeError):  # half a surrogate pair
        write_json(folder / "wandb" / "e" / "p.json", {"runs": runs})
    os.environ["OODLES_CACHE"], os.environ["WANDB_MODE"] = str(folder), "offline"
    return Case(lambda: import_some(Path("wandb:e/p"), "wandb-api"), ["import", "--inspect", "wandb:e/p"])


def excel_tables(rng: random.Random, folder: Path, base: Path) -> Case:
    """A sheet with cells of other kinds, in other places, or none."""
    import datetime as dt

    import openpyxl

    odd = ["x", "", None, 0.5, "0,5", "71 %", True, 3, -1, dt.datetime(2024, 5, 1), dt.time(1), "=1/2", "#N/A", 1e300]
    book = openpyxl.Workbook()
    rows: list[list[Any]] = [["run", "step", "snli", "hans"]]
    rows += [[f"r{r}", s, rng.random(), rng.random()] for r in range(3) for s in range(3)]
    for _ in range(rng.choice([0, 1, 1, 3])):
        rows[rng.randrange(len(rows))][rng.randrange(4)] = rng.choice(odd)
    if rng.random() < 0.1:
        rows.insert(0, [rng.choice(odd) for _ in range(rng.randrange(6))])
    for row in rows:
        book.active.append(row)
    if rng.random() < 0.1:
        book.active.merge_cells(rng.choice(["A2:A4", "C1:D1", "A1:D1"]))
    if rng.random() < 0.05:
        book.create_sheet("b").append(["x"])
    path = folder / "t.xlsx"
    book.save(path)
    if rng.random() < 0.3:
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))
    return Case(lambda: import_some(path, "table"), ["import", "--inspect", str(path), *options_of_import(rng)])


def wandb_charts(rng: random.Random, folder: Path, base: Path) -> Case:
    """What wandb exports from a chart."""
    runs, keys = ["r1", "a - b", "", "r2"], ["eval/hans_accuracy", "eval/snli_accuracy", "eval/x_f1", "custom", "_step"]
    rows = []
    for step in range(rng.choice([1, 3])):
        row: dict[str, Any] = {rng.choice(["Step", "Step", "train/global_step", "Relative Time (Process)"]): step}
        for run in rng.sample(runs, rng.choice([1, 1, 2])):
            for key in rng.sample(keys, 2):
                row |= {f"{run} - {key}{kind}": rng.choice([0.5, 0.6, "", 51.0]) for kind in ("", "__MIN", "__MAX")}
        rows.append(row)
    path = folder / "wandb_export.csv"
    path.write_bytes(as_csv(rng, spoil_rows(rng, rows, CELLS) if rng.random() < 0.6 else rows))
    if rng.random() < 0.2:
        path.write_bytes(spoil_bytes(rng, path.read_bytes()))
    return Case(lambda: import_some(path, "table"), ["import", "--inspect", str(path), *options_of_import(rng)])


def harness_samples(rng: random.Random, folder: Path, base: Path) -> Case:
    """Results with samples beside them, which are damaged."""
    root = copied(base / "logs" / "harness", folder)
    samples = sorted(root.rglob("samples_*.jsonl"))
    for path in rng.sample(samples, 1):
        if rng.random() < 0.6:
            spoil_lines(rng, path)
        else:
            spoil_file(rng, path)
    return Case(lambda: import_some(root, "lm-eval"), ["import", "--inspect", str(root)])


def json_logs(rng: random.Random, folder: Path, base: Path) -> Case:
    """A log of Inspect as JSON."""
    from oodles.imports.inspect_logs import _read_archive

    header, samples = _read_archive(base / "logs" / "x.eval")
    value = {**header, "samples": samples}
    for _ in range(rng.choice([1, 1, 3])):
        value = spoil_json(rng, value)
    path = folder / "x.json"
    path.write_text(json.dumps(value))
    if rng.random() < 0.2:
        spoil_file(rng, path)
    return Case(lambda: import_some(path, "inspect"), ["import", "--inspect", str(path), *options_of_import(rng)])


def inspect_logs(rng: random.Random, folder: Path, base: Path) -> Case:
    if rng.random() < 0.3:
        return json_logs(rng, folder, base)
    path = folder / "x.eval"
    whole = (base / "logs" / "x.eval").read_bytes()
    if rng.random() < 0.4:
        path.write_bytes(spoil_bytes(rng, whole))
    else:
        from oodles.imports.inspect_logs import _read_archive

        header, samples = _read_archive(base / "logs" / "x.eval")
        with zipfile.ZipFile(path, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
            archive.writestr("header.json", json.dumps(spoil_json(rng, header)))
            archive.writestr("summaries.json", json.dumps(spoil_json(rng, samples)))
    return Case(lambda: import_some(path, "inspect"), ["import", "--inspect", str(path)])


# scores that are known: whatever is done to a file, no other number may come out of it

Point = tuple[str, int, str]  # run, step, test set
PLACE = ("run", "step")
NOT_NUMBERS: list[Any] = ["x", True, [1], {"a": 1}]
TELLING = ("left out", "cut off", "not taken", "no test sets", "no scores in", "no number")


@dataclass(frozen=True)
class Known:
    """Scores as they are written, some of them before they were replaced, some as what is no number."""

    truth: dict[Point, float]
    points: list[tuple[Point, Any]]  # in the order of the log


def known_scores(rng: random.Random) -> Known:
    runs, steps = ["r0", "r1", "m_2"][: rng.randrange(1, 4)], rng.sample(range(1, 60), rng.randrange(1, 5))
    sets = rng.sample(["snli", "hans", "rte_x", "anli-r1", "Ax"], rng.randrange(2, 5))
    places = [(run, step, name) for run in runs for step in sorted(steps) for name in sets]
    values = rng.sample(range(1001, 9999), len(places))
    truth = {p: v / 10_000 for p, v in zip(places, values, strict=True) if rng.random() > rng.choice([0, 0, 0.3])}
    points: list[tuple[Point, Any]] = []
    for place, value in truth.items():
        if rng.random() < 0.05:
            points.append((place, rng.choice([float("nan"), None, *NOT_NUMBERS])))
            continue
        if rng.random() < 0.05:
            points.append((place, rng.choice([value, 0.0123])))  # logged twice: the last counts
        points.append((place, value))
    return Known(truth, points)


def as_rows_of(known: Known) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for (run, step, name), value in known.points:
        rows.setdefault((run, step), {"run": run, "step": step})[name] = value
    return list(rows.values())


def write_wide(rng: random.Random, folder: Path, known: Known) -> Path:
    rows, mark = as_rows_of(known), rng.choice([",", ";", "\t"])
    scale, sign, decimal = rng.choice([(1, "", "."), (1, "", ","), (100, "", "."), (100, "%", "."), (100, " %", ",")])

    def cell(value: Any) -> str:
        if not isinstance(value, float) or value != value:
            return "" if value is None else str(value)
        text = f"{value * scale:.4f}".replace(".", decimal) + sign
        return f'"{text}"' if decimal == mark else text

    names = list(dict.fromkeys(name for row in rows for name in row))
    if rng.random() < 0.3:
        rows = [{**row, "learning_rate": 1e-4, "note": rng.choice(["", "x", "best"])} for row in rows]
        names += ["learning_rate", "note"]
    rng.shuffle(rows) if rng.random() < 0.3 else None
    lines = [mark.join(names), *(mark.join(cell(row.get(name)) for name in names) for row in rows)]
    path = folder / "t.csv"
    path.write_text("\n".join(lines) + "\n", encoding=rng.choice(["utf-8", "utf-8-sig", "utf-16"]))
    return path


def write_lines(rng: random.Random, folder: Path, known: Known) -> Path:
    path = folder / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, as_rows_of(known))))
    return path


def write_long(rng: random.Random, folder: Path, known: Known) -> Path:
    path = folder / "t.csv"
    rows = [f"{run},{step},{name},{'' if value is None else value}" for (run, step, name), value in known.points]
    rows = [row.replace("[1]", "x").replace("{'a': 1}", "x") for row in rows]
    path.write_text("\n".join(["run,step,test_set,value", *rows]) + "\n")
    return path


def by_run(known: Known) -> dict[str, list[tuple[int, str, Any]]]:
    runs: dict[str, list[tuple[int, str, Any]]] = {}
    for (run, step, name), value in known.points:
        runs.setdefault(run, []).append((step, name, value))
    return runs


def write_states(rng: random.Random, folder: Path, known: Known) -> Path:
    for run, points in by_run(known).items():
        rows: list[dict[str, Any]] = []
        for step, name, value in points:
            rows.append({"step": step, f"eval_{name}_accuracy": value, f"eval_{name}_loss": 0.3, "epoch": 1.0})
            rows[-1] |= {f"eval_{name}_runtime": 1.0}
            rows.append({"step": step, "loss": 0.3})
        home = folder / run / rng.choice([".", f"checkpoint-{points[-1][0]}"])
        home.mkdir(parents=True)
        (home / "trainer_state.json").write_text(json.dumps({"global_step": points[-1][0], "log_history": rows}))
    return folder


def write_answers(rng: random.Random, folder: Path, known: Known) -> Path:
    from oodles.disk import write_json

    runs = []
    for run, points in by_run(known).items():
        rows = [{"train/global_step": step, f"eval/{name}_accuracy": value} for step, name, value in points]
        rows = [{**row, "_step": number, "train/loss": 0.1} for number, row in enumerate(rows)]
        runs.append({"id": f"i{run}", "name": run, "state": "finished", "config": {}, "rows": rows})
    write_json(folder / "wandb" / "e" / "p.json", {"runs": runs})
    os.environ["OODLES_CACHE"], os.environ["WANDB_MODE"] = str(folder), "offline"
    return Path("wandb:e/p")


def write_events(rng: random.Random, folder: Path, known: Known) -> Path:
    import struct

    from oodles.imports.wire import crc32c

    for run, points in by_run(known).items():
        (folder / run).mkdir()
        data = b""
        for step, name, value in points:
            if not isinstance(value, float):
                continue
            tag = f"eval/{name}_accuracy".encode()
            inner = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
            summary = b"\x0a" + bytes([len(inner)]) + inner
            body = (
                b"\x09" + struct.pack("<d", 1.0) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
            )
            head = struct.pack("<Q", len(body))
            data += head + struct.pack("<I", crc32c([head])[0]) + body + struct.pack("<I", crc32c([body])[0])
        (folder / run / "events.out.tfevents.1.host").write_bytes(data)
    return folder


def write_harness(rng: random.Random, folder: Path, known: Known) -> Path:
    for row in as_rows_of(known):
        scores = {
            name: {"acc,none": value, "acc_stderr,none": "N/A"} for name, value in row.items() if name not in PLACE
        }
        made = {
            "results": scores,
            "config": {"model_args": f"pretrained={row['run']}/checkpoint-{row['step']}"},
            "versions": {},
        }
        home = folder / f"{row['run']}-{row['step']}"
        home.mkdir()
        (home / "results_2026-01-01T00-00-00.000000.json").write_text(json.dumps(made))
    return folder


def write_lighteval(rng: random.Random, folder: Path, known: Known) -> Path:
    for row in as_rows_of(known):
        scores = {f"{name}|0": {"acc": value, "acc_stderr": 0.01} for name, value in row.items() if name not in PLACE}
        made = {"config_general": {"model_name": f"{row['run']}/checkpoint-{row['step']}"}, "results": scores}
        home = folder / f"{row['run']}-{row['step']}"
        home.mkdir()
        (home / "results_2026-01-01T00-00-00.json").write_text(json.dumps(made))
    return folder


def write_mlruns(rng: random.Random, folder: Path, known: Known) -> Path:
    for number, (run, points) in enumerate(by_run(known).items()):
        home = folder / "mlruns" / "1" / f"id{number}"
        (home / "metrics").mkdir(parents=True)
        (home / "meta.yaml").write_text(f"run_name: {run}\nlifecycle_stage: active\n")
        lines: dict[str, list[str]] = {}
        for time_, (step, name, value) in enumerate(points):
            lines.setdefault(name, []).append(
                f"{1700000000000 + time_} {'x' if isinstance(value, (dict, list)) else value} {step}\n"
            )
        for name, own in lines.items():
            (home / "metrics" / f"eval_{name}_accuracy").write_text("".join(own))
    return folder


def write_logs(rng: random.Random, folder: Path, known: Known) -> Path:
    for number, ((run, step, name), value) in enumerate(known.points):
        about = {"task": name, "task_id": "x", "model": "m", "metadata": {"run": run, "step": step}}
        scores = [{"name": "match", "metrics": {"accuracy": {"value": value}, "stderr": {"value": 0.1}}}]
        made = {"version": 2, "status": "success", "eval": about, "results": {"scores": scores, "completed_samples": 9}}
        (folder / f"log{number}.json").write_text(json.dumps(made))
    return folder


WRITERS: dict[str, Callable[[random.Random, Path, Known], Path]] = {
    "wide": write_wide, "lines": write_lines, "long": write_long, "trainer": write_states, "wandb": write_answers,
    "tensorboard": write_events, "lm-eval": write_harness, "lighteval": write_lighteval, "mlflow": write_mlruns,
    "inspect": write_logs,
}  # fmt: skip
BY_RECORD = ("lines", "tensorboard", "mlflow")  # cut off between two records, such a file is whole
WHOLE = ("wide", "long", "wandb")  # the last number of a table that is cut off may be another one: nobody can tell


def true_scores(rng: random.Random, folder: Path, base: Path) -> Case:
    """Every score that is read is one that was written; what is lost is told, or the whole is refused."""
    kind, known = rng.choice(list(WRITERS)), known_scores(rng)
    path = WRITERS[kind](rng, folder, known)
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    cut = kind not in WHOLE and files and rng.random() < 0.2
    if cut:
        victim = rng.choice(files)
        data = victim.read_bytes()
        victim.write_bytes(data[: rng.randrange(len(data))])
    return Case(lambda: check_true(path, kind, known, whole=not cut), ["import", "--inspect", str(path)])


def check_true(path: Path, kind: str, known: Known, *, whole: bool) -> None:
    from oodles.api.imports import import_scores
    from oodles.stats.longtable import check_table

    imported = import_scores(path)
    table, _ = check_table(imported.table, in_domain=str(imported.table["test_set"].iloc[0]))
    table = table[table["metric"].eq("accuracy")]
    found = {(r, s, t): v for r, s, t, v in table[["run", "step", "test_set", "value"]].itertuples(index=False)}
    assert len(found) == len(table), f"{kind}: a score is there twice"
    for point, value in found.items():
        assert point in known.truth, f"{kind}: {point} was never written; {known}"
        cut = not whole  # before the point was logged again
        said = [one for place, one in known.points if place == point] if cut else [known.truth[point]]
        assert any(abs(value - one) < 1e-6 for one in said), f"{kind}: {point} is {value}; {known}"
    written = {point for point, value in known.points if isinstance(value, float) and value == value}
    odd = {point for point, value in known.points if value in NOT_NUMBERS and not isinstance(value, float)}
    odd &= {point for point in odd if any(point[2] == other[2] for other in written)}  # a column of truths is no score
    silent = not any(word in note for note in imported.notes for word in TELLING)
    lost = written - set(found) if whole or kind not in BY_RECORD else set()
    odd = odd if whole or kind not in BY_RECORD else set()
    assert not (silent and lost), f"{kind}: {lost} lost silently; {imported.notes} {known}"
    assert not (silent and odd and kind != "tensorboard"), f"{kind}: {odd} left out silently; {imported.notes} {known}"


def base_logs(folder: Path) -> None:
    """One sound file of each tool."""
    folder.mkdir()
    rows = [{"step": s, "epoch": 1.0, "eval_hans_accuracy": 0.5, "eval_hans_runtime": 1.0} for s in range(3)]
    (folder / "trainer").write_text(json.dumps({"global_step": 3, "log_history": rows}))
    fixtures = HERE / "fixtures"
    whole = json.loads(next(iter(sorted((fixtures / "lm_eval").rglob("results_*.json")))).read_text())
    kept = ("results", "group_subtasks", "config", "versions", "n-samples", "n-shot", "model_name", "date")
    short = json.dumps({name: whole[name] for name in kept if name in whole})  # what is read of it
    (folder / "lm-eval").write_text(short)
    home = next(iter(sorted((fixtures / "lm_eval").rglob("samples_*")))).parent
    (folder / "harness").mkdir()
    for path in [*sorted(home.glob("results_*"))[:1], *sorted(home.glob("samples_*"))[:2]]:
        lines = path.read_text().splitlines(keepends=True)
        (folder / "harness" / path.name).write_text(short if path.suffix == ".json" else "".join(lines[:12]))
    with zipfile.ZipFile(fixtures / "trackers.zip") as held:
        held.extractall(folder, [name for name in held.namelist() if name.startswith("mlruns/")])
    for run in sorted(path.parent for path in (folder / "mlruns").glob("*/*/metrics"))[2:]:
        shutil.rmtree(run)  # two runs will do
    made = {"config_general": {"model_name": "a/step5"}, "results": {"x|0": {"acc": 0.5, "acc_stderr": 0.1}}}
    (folder / "lighteval").write_text(json.dumps(made))
    for archive, wanted in (("wandb.zip", {".wandb": "run-x.wandb"}), ("trackers.zip", {".eval": "x.eval", ".db": ""})):
        with zipfile.ZipFile(fixtures / archive) as held:
            for name in held.namelist():
                suffix = Path(name).suffix
                if suffix in wanted:
                    target = wanted[suffix] or ("mlflow.db" if name.startswith("mlflow") else "trackio.db")
                    (folder / target).write_bytes(held.read(name))
    shorten(folder / "mlflow.db", "run_uuid")
    shorten(folder / "trackio.db", "run_name")


def shorten(path: Path, column: str) -> None:
    """A database with the points of two runs: small files are quickly copied."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        names = [name for (name,) in database.execute(f"SELECT DISTINCT {column} FROM metrics ORDER BY 1")][:2]
        database.execute(f"DELETE FROM metrics WHERE {column} NOT IN (?, ?)", names)
        database.execute("VACUUM")


# the command line

VERBS = [
    "suites",
    "models",
    "fetch",
    "check",
    "run",
    "score",
    "status",
    "pack",
    "analyse",
    "analyze",
    "report",
    "import",
    "export",
    "demo",
    "nope",
    "",
]
FLAGS = [
    "--json", "--help", "--set", "--out", "--data", "--allow", "--in-domain", "--baseline", "--slices", "--to",
    "--file", "--suite", "--model", "--pin", "--only", "--shots", "--workers", "--retry-failed", "--verify",
    "--adapter", "--limit", "--checkpoints", "--test-set", "--pattern", "--precision", "--run", "--runs",
    "--add-test-set", "--all", "--method", "--within", "--interval", "--correlation", "--metric", "--by",
    "--unit", "--version", "-x", "--", "-h", "--out=", "--nope",
]  # fmt: skip


def command_lines(rng: random.Random, folder: Path, base: Path) -> Case:
    """Any verb with any flags and values. Nothing here trains or fetches: a study that is sound is only looked at."""
    write_suite(folder)
    (folder / "study.toml").write_text(STUDY)
    (folder / "t.csv").write_bytes(as_csv(random.Random(0), table_rows(rng)))
    paths = [
        str(folder / name) for name in ("toy.toml", "study.toml", "t.csv", "none.toml", "a.csv", "new", "new.html", "")
    ]
    words = [c for c in CELLS if "\x00" not in c]
    values = [
        *paths,
        *paths,
        *words,
        "mini",
        "nli",
        "3",
        "-3",
        "0",
        str(base / "runs"),
        str(base / "results"),
        "\udcff",
    ]
    values += ["tiny-llama-untrained", "/dev/null", "/", str(folder), "home", "x" * 300]
    command = [rng.choice(VERBS)]
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
        command.append(rng.choice(FLAGS if rng.random() < 0.5 else values))
    if command[0] in ("run", "demo"):
        command.insert(1, "--dry-run")  # which demo does not know
    if command[0] == "fetch" and len(command) > 1:
        command[1:] = ["--nope" if word in ("tiny-llama-untrained", "mini", "nli") else word for word in command[1:]]
    if command[0] == "score":
        command += ["--precision", "none"]  # nothing is scored
    return Case(lambda: None, command, whole=True)


KINDS: dict[str, tuple[Make, float, float]] = {  # how it is made, its share, and the share of whole commands in it
    "tables": (tables, 0.09, 0.02),
    "parquet tables": (parquet_tables, 0.08, 0.02),
    "studies": (studies, 0.09, 0.005),
    "suites": (suites, 0.09, 0.02),
    "data files": (data_files, 0.08, 0.02),
    "run folders": (run_folders, 0.05, 0.03),
    "results": (results, 0.04, 0.02),
    "packed files": (packed, 0.04, 0.02),
    "wide tables": (wide_tables, 0.06, 0.01),
    "excel tables": (excel_tables, 0.03, 0.01),
    "wandb charts": (wandb_charts, 0.03, 0.01),
    "trainer states": (json_of("trainer_state.json", "trainer"), 0.04, 0.01),
    "lm-eval results": (json_of("results_2026-01-01T00-00-00.json", "lm-eval"), 0.04, 0.01),
    "lm-eval samples": (harness_samples, 0.02, 0.01),
    "lighteval results": (json_of("results_1.json", "lighteval"), 0.03, 0.01),
    "event files": (event_files, 0.03, 0.01),
    "wandb files": (wandb_files, 0.03, 0.01),
    "wandb answers": (wandb_answers, 0.02, 0.01),
    "mlflow databases": (databases("mlflow"), 0.01, 0.01),
    "mlflow folders": (mlflow_folders, 0.01, 0.01),
    "trackio databases": (databases("trackio"), 0.01, 0.01),
    "inspect logs": (inspect_logs, 0.02, 0.01),
    "helm stats": (helm_stats, 0.01, 0.01),
    "true scores": (true_scores, 0.02, 0.0),
    "command lines": (command_lines, 0.03, 1.0),
}
IMPORTERS = [*list(KINDS)[11:-1], *list(KINDS)[8:11], "tables", "parquet tables"]  # the kinds that importers read


# one input


def judge(case: Case, whole: bool) -> str:
    """What is wrong with how an input was taken; nothing if all is well."""
    from oodles.errors import OodlesError

    if whole or case.whole:
        return judge_command(case.command)
    try:
        with limited():
            case.read()
    except (OodlesError, OSError) as error:  # both are shown in one line
        return judge_message(f"{type(error).__name__}: {error}")
    except Hang:
        return "hang"
    except Exception:
        return traceback.format_exc()
    return ""


def judge_message(text: str) -> str:
    if len(text) > LONGEST:
        return f"message of {len(text)} characters: {text[:300]}"
    if len(text.splitlines()) > MOST_LINES:
        return f"message of {len(text.splitlines())} lines: {text[:300]}"
    return ""


def judge_command(command: list[str]) -> str:
    from conftest import oodles

    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("always")
            done = oodles(*command)
    except Hang:
        return f"hang: {command}"
    if "Traceback" in done.stderr:
        return f"{command}\n{done.stderr}"
    if done.returncode not in (0, 1, 2):
        return f"{command}: exit {done.returncode}"
    if "\x1b" in done.stderr or "\x1b" in done.stdout:
        return f"{command}: an escape code"
    if "Warning" in done.stderr:
        return f"{command}: a warning: {done.stderr[:600]}"
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("note: ", "study "))]
    if len(done.stderr.splitlines()) > len(lines) + 9:
        return f"{command}: {len(done.stderr.splitlines())} lines"
    wrong = judge_message("\n".join(lines)) if done.returncode == 2 else ""
    return f"{command}: {wrong}" if wrong else ""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise Hang

    held = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, held)


def try_one(kind: str, number: int, seed: int, base: Path, scratch: Path) -> str:
    make, _, share = KINDS[kind]
    share = 1 / 500 if os.environ.get(EACH) else share
    rng = random.Random(f"{seed} {kind} {number}")
    folder = scratch / "input"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with contextlib.chdir(folder):
        case = make(rng, folder, base)
        return judge(case, rng.random() < share)


# the campaign


def make_base(base: Path) -> None:
    """What the inputs of some kinds are damaged copies of."""
    import pandas as pd

    from oodles.imports.tables import read_table
    from oodles.stats.analysis import analyse_table, write_results
    from oodles.store.archive import pack

    base_logs(base / "logs")
    base_runs(base / "runs")
    pack(base / "runs", base / "packed.zip")
    rows = [
        {"run": f"r{r}", "step": s, "test_set": t, "value": 0.5 + 0.01 * s + 0.001 * ((7 * r + 3 * s + len(t)) % 5)}
        for r in range(6) for s in range(4) for t in ("home", "a", "bc")
    ]  # fmt: skip
    pd.DataFrame(rows).assign(train_set="home").to_csv(base / "t.csv", index=False)
    write_results(analyse_table(read_table(base / "t.csv"), method="linear"), base / "results")


def work(kind: str, first: int, last: int, seed: int, base: Path, told: Path) -> None:
    """Inputs one after the other; the number at hand is told before it is tried, and what was wrong after it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory(dir=base.parent) as scratch, told.open("a") as out:
        for number in range(first, last):
            out.write(json.dumps({"at": number}) + "\n")
            out.flush()
            wrong = try_one(kind, number, seed, base, Path(scratch))
            if wrong:
                out.write(json.dumps({"kind": kind, "number": number, "wrong": wrong}) + "\n")
                out.flush()


def watch(kind: str, first: int, last: int, seed: int, base: Path) -> list[dict[str, Any]]:
    """Have inputs tried by a process of their own; if it dies or stands still, go on after the input at hand."""
    told, found = base.parent / "told.jsonl", []
    while first < last:
        told.write_text("")
        command = [sys.executable, __file__, "--kind", kind, "--first", str(first), "--last", str(last)]
        command += ["--seed", str(seed), "--base", str(base), "--told", str(told)]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        size, since, stuck = 0, time.monotonic(), False
        while child.poll() is None:
            time.sleep(0.1)
            if told.stat().st_size != size:
                size, since = told.stat().st_size, time.monotonic()
            elif time.monotonic() - since > STILL:
                stuck = True
                child.kill()
        ended = child.stderr.read() if child.stderr else ""
        lines = [json.loads(line) for line in told.read_text().splitlines()]
        found += [line for line in lines if "wrong" in line]
        at = [line["at"] for line in lines if "at" in line]
        if child.returncode == 0:
            break
        number = at[-1] if at else first
        found.append(
            {
                "kind": kind,
                "number": number,
                "wrong": "hang" if stuck else f"died ({child.returncode}): {ended[-2000:]}",
            }
        )
        first = number + 1
    return found


BLOCK = 2500  # inputs of a process
EACH = "OODLES_FUZZ_EACH"  # set in --each: readers in this process, hardly any command


def campaign_each(kinds: list[str], count: int, seed: int, out: Path) -> dict[str, Any]:
    """As many inputs of every kind; what is done is kept, block by block, and not done again."""
    done: dict[str, Any] = json.loads(out.read_text()) if out.is_file() else {"seed": seed, "by_kind": {}, "found": []}
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    os.environ[EACH] = "1"
    with tempfile.TemporaryDirectory(dir=fast, prefix="fuzz-") as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        make_base(base)
        for kind in kinds:
            while (first := done["by_kind"].get(kind, {}).get("inputs", 0)) < count:
                last, began = min(first + BLOCK, count), time.monotonic()
                done["found"] += watch(kind, first, last, seed, base)
                seconds = done["by_kind"].get(kind, {}).get("seconds", 0) + time.monotonic() - began
                wrong = sum(one["kind"] == kind for one in done["found"])
                done["by_kind"][kind] = {"inputs": last, "wrong": wrong, "seconds": round(seconds, 1)}
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text(json.dumps(done, indent=2))
                print(kind, done["by_kind"][kind], file=sys.stderr, flush=True)
    return done


def campaign(inputs: int, seed: int, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Inputs of all kinds, in their shares."""
    counts = {kind: max(1, round(inputs * share)) for kind, (_, share, _) in KINDS.items()}
    found: list[dict[str, Any]] = []
    began = time.monotonic()
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=fast, prefix="fuzz-") as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        make_base(base)
        for kind, count in counts.items():
            found += watch(kind, 0, count, seed, base)
            wrong = sum(one["kind"] == kind for one in found)
            say(f"{kind}: {count} inputs, {wrong} wrong, {time.monotonic() - began:.0f} s")
    sorts = Counter("hang" if one["wrong"].startswith("hang") else "other" for one in found)
    return {
        "inputs": sum(counts.values()),
        "seed": seed,
        "by_kind": counts,
        "hangs": sorts["hang"],
        "tracebacks_and_others": sorts["other"],
        "seconds": round(time.monotonic() - began),
        "found": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, help="as many inputs of every importer")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz-each.json"), help="with --each: what is done")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=100)
    parser.add_argument("--base", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--told", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.base is not None:
        work(chosen.kind, chosen.first, chosen.last, chosen.seed, chosen.base, chosen.told)
        return 0
    if chosen.each is not None:
        kinds = IMPORTERS if chosen.kind is None else [chosen.kind]
        return int(bool(campaign_each(kinds, chosen.each, chosen.seed, chosen.out)["found"]))
    if chosen.kind is None:
        told = campaign(chosen.inputs, chosen.seed, lambda text: print(text, file=sys.stderr, flush=True))
        print(json.dumps(told, indent=2))
        return int(bool(told["found"]))
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "base"
        base.mkdir()
        make_base(base)
        for number in range(chosen.first, chosen.last):
            wrong = try_one(chosen.kind, number, chosen.seed, base, Path(scratch))
            print(number, wrong or "well")
    return 0


if __name__ == "__main__":
    sys.path[:0] = [str(HERE)]
    sys.exit(main())

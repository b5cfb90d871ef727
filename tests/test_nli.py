"""The suite `nli` on the real data: exact counts, no errors, and every planted fault is found."""

from __future__ import annotations

import json
import shutil
import sys
import time
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from conftest import oodles
from oodles.audit.audit import Audit, audit_suite
from oodles.audit.pins import compare, pins_of, read_pins
from oodles.contracts import Suite
from oodles.suite import sources
from oodles.suite.load import load_suite
from oodles.suite.slices import resolve_slice, slice_columns
from oodles.suite.sources import load_examples

KEPT = {
    "snli": 6605,
    "mnli": 6692,
    "scitail": 2126,
    "rte": 2490,
    "wnli": 635,
    "hans": 30_000,
    "anli": 798,
    "paws": 8000,
}


@pytest.fixture
def nli(real_data: Path) -> Suite:
    return load_suite("nli", data=real_data)


def test_every_set_has_exactly_the_expected_rows(nli: Suite) -> None:
    found = {name: load_examples(nli, data) for name, data in nli.test_sets.items()}
    assert {name: len(examples) for name, examples in found.items()} == KEPT
    assert sum(map(len, found.values())) == 57_346
    for name, examples in found.items():
        data = nli.test_sets[name]
        kept = {label: n for label, n in data.expect.items() if label in data.labels}
        assert Counter(e.label for e in examples) == kept


def test_labels_mean_what_they_say(nli: Suite) -> None:
    """One known example of each answer per set, by its text."""
    known = {
        "snli": ("The church is filled with song.", 0),
        "hans": ("The doctor advised the president .", 1),
        "wnli": ("The carrot had a hole.", 0),
        "rte": ("Weapons of Mass Destruction Found in Iraq.", 1),
        "anli": ("The day of the passage is usually when Christians praise the lord together", 0),
    }
    for name, (hypothesis, answer) in known.items():
        found = [e for e in load_examples(nli, nli.test_sets[name]) if e.fields["hypothesis"] == hypothesis]
        assert found, name
        assert found[0].answer == answer, name


def test_hans_has_thirty_subcases_of_a_thousand(nli: Suite) -> None:
    examples = load_examples(nli, nli.test_sets["hans"])
    assert Counter(e.label for e in examples) == {"entailment": 15_000, "non-entailment": 15_000}
    assert Counter(e.slices["heuristic"] for e in examples) == dict.fromkeys(
        ("lexical_overlap", "subsequence", "constituent"), 10_000
    )
    subcases = Counter(e.slices["subcase"] for e in examples)
    assert len(subcases) == 30
    assert set(subcases.values()) == {1000}
    columns = slice_columns(examples)
    assert resolve_slice("hans/constituent/entailment", columns).values == {
        "heuristic": "constituent",
        "label": "entailment",
    }
    assert resolve_slice("hans/ln_subject/object_swap", columns).values == {"subcase": "ln_subject/object_swap"}


def test_the_pinned_rows_are_those_of_the_data(nli: Suite) -> None:
    pinned = read_pins(nli)
    for name, data in nli.test_sets.items():
        assert (pins_of(load_examples(nli, data)) == pinned[name]).all()


def test_a_second_loading_is_quick(nli: Suite) -> None:
    for data in nli.test_sets.values():
        load_examples(nli, data)
    sources._kept.clear()  # from the files again
    start = time.process_time()
    for data in nli.test_sets.values():
        load_examples(nli, data)
    assert time.process_time() - start < 2


def test_every_set_has_its_licence_citation_chance_and_tags() -> None:
    suite = load_suite("nli")
    for data in suite.test_sets.values():
        assert data.licence
        assert data.citation
        assert data.tags[0] in ("standard", "adversarial")
        assert set(data.tags[1:]) <= {"domain", "style", "difficulty", "adversarial"}
        gold = Counter(dict.fromkeys((0, 1), 0))
        for label, n in data.expect.items():
            if label in data.labels:
                gold[data.labels[label]] += n
        assert data.chance == pytest.approx(max(gold.values()) / sum(gold.values()), abs=5e-5)
    with_neutral = {n for n, d in suite.test_sets.items() if any("neutral" in c and "No" in c for c in d.caveats)}
    assert with_neutral >= {"scitail", "rte", "hans", "paws", "wnli"}


def test_suites_shows_which_negatives_include_neutral(real_data: Path) -> None:
    shown = oodles("suites", "nli", "--data", real_data)
    assert shown.returncode == 0, shown.stderr
    for name in ("scitail", "rte", "hans", "paws", "wnli"):
        lines = [line for line in shown.stdout.splitlines() if line.strip().startswith(f"{name}:")]
        assert any("neutral" in line for line in lines), name


# the audit


@pytest.fixture(scope="module")
def whole_audit(real_data: Path, smollm2_tokenizer: Any) -> dict[str, Any]:
    """`oodles check --suite nli` as a user calls it, with its time and memory."""
    start = time.perf_counter()
    code = (
        "import re, sys\nfrom pathlib import Path\nfrom oodles.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    print(re.findall(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[0], file=sys.stderr)\n"
    )
    import subprocess

    arguments = ["check", "--suite", "nli", "--model", "smollm2-135m-q4", "--data", str(real_data), "--json"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    took = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "took": took, "kilobytes": int(done.stderr.split()[-1])}


def test_the_whole_audit_is_quick_and_small(whole_audit: dict[str, Any]) -> None:
    assert whole_audit["took"] < 90
    assert whole_audit["kilobytes"] < 1_000_000


def test_the_real_data_have_no_errors_and_only_true_warnings(whole_audit: dict[str, Any]) -> None:
    assert whole_audit["counts"]["error"] == 0
    warnings = {(f["code"], f["where"]) for f in whole_audit["findings"] if f["severity"] == "warning"}
    train_samples = {w for w in warnings if w[0] == "train-differs" or w[1].endswith("(train)")}
    # each was looked at: the sets do repeat these pairs, and PAWS has five with both labels
    assert warnings - train_samples == {
        ("duplicate", "mnli"),
        ("duplicate", "scitail"),
        ("duplicate", "rte"),
        ("duplicate", "paws"),
        ("duplicate-conflict", "paws"),
    }


def test_every_set_shows_two_prompts_with_their_tokens(whole_audit: dict[str, Any]) -> None:
    tests = [s for s in whole_audit["sets"] if s["kind"] == "test"]
    assert len(tests) == 8
    for one in tests:
        entry = one["rendered"]["question"]["smollm2-135m-q4"]
        assert len(entry["shown"]) == 2
        assert entry["shown"][0]["tokens"][-1] == "?"
        assert entry["shortened"] == 0
        assert len(entry["hash"]) == len(one["hash"]) == 16
        assert 0 < one["hypothesis_only"] < 1


def planted(nli: Suite, tmp_path: Path, name: str, change: Any, kind: str = "test") -> Suite:
    """The suite with one file changed; only this set and what it is compared with are kept, to be quick."""
    data = (nli.test_sets if kind == "test" else nli.train_sets)[name]
    source = Path(nli.data) / name / f"{data.source.split}.parquet"
    target = tmp_path / "data" / name / source.name
    target.parent.mkdir(parents=True)
    pq.write_table(change(pq.read_table(source)), target)
    if kind == "train":
        other = nli.test_sets[name].source.split
        shutil.copy(Path(nli.data) / name / f"{other}.parquet", target.parent)
    return replace(
        nli,
        data=str(tmp_path / "data"),
        test_sets={name: nli.test_sets[name]},
        train_sets={name: nli.train_sets[name]} if kind == "train" else {},
    )


def codes(audit: Audit, where: str) -> set[str]:
    return {f.code for f in audit.findings if f.where.startswith(where) and f.severity != "note"}


def swap(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("label")
    flipped = pc.subtract(1, table["label"]).cast(table.schema.field("label").type)
    return table.set_column(at, table.schema.field("label"), flipped)


@pytest.mark.parametrize("name", ["hans", "rte", "wnli", "paws"])
def test_swapped_labels_are_found(nli: Suite, tmp_path: Path, name: str) -> None:
    audit = audit_suite(planted(nli, tmp_path, name, swap))
    assert "label-differs" in codes(audit, name)
    finding = next(f for f in audit.findings if f.code == "label-differs")
    assert len(finding.items) > 0.99 * KEPT[name]  # all but a few whose short hash another row has, too
    assert finding in audit.errors()


def test_a_swapped_label_map_is_found(nli: Suite) -> None:
    hans = replace(nli.test_sets["hans"], labels={"entailment": 1, "non-entailment": 0})
    audit = audit_suite(replace(nli, test_sets={"hans": hans}, train_sets={}))
    assert "label-differs" in codes(audit, "hans")


def test_swapped_label_names_are_found(nli: Suite) -> None:
    hans = replace(nli.test_sets["hans"], label_names={"1": "entailment", "0": "non-entailment"})
    audit = audit_suite(replace(nli, test_sets={"hans": hans}, train_sets={}))
    assert {"label-names", "label-differs"} <= codes(audit, "hans")


def test_an_unmapped_label_is_found(nli: Suite) -> None:
    scitail = replace(nli.test_sets["scitail"], label_names={}, labels={"entails": 0})
    audit = audit_suite(replace(nli, test_sets={"scitail": scitail}, train_sets={}))
    finding = next(f for f in audit.findings if f.code == "data-unreadable")
    assert "scitail/test.parquet row 1: label 'neutral' has no mapping (1284 rows have it)" in finding.text


@pytest.mark.parametrize("name", ["snli", "mnli", "anli"])
def test_neutral_that_is_kept_is_found(nli: Suite, name: str) -> None:
    data = nli.test_sets[name]
    kept = replace(data, labels={**data.labels, "neutral": 1}, drop=tuple(d for d in data.drop if d != "neutral"))
    audit = audit_suite(replace(nli, test_sets={name: kept}, train_sets={}))
    finding = next(f for f in audit.findings if f.code == "rows-differ")
    assert finding.text.startswith(f"{data.expect['neutral']} rows are not in the suite's copy")
    assert "neutral" in finding.items[0]
    assert "kept-differs" in codes(audit, name)


def test_neutral_that_is_missing_is_found(nli: Suite, tmp_path: Path) -> None:
    """A copy from which somebody removed the neutral rows has other counts than the published set."""
    suite = planted(nli, tmp_path, "anli", lambda t: t.filter(pc.not_equal(t["label"], 1)))
    assert "count-differs" in codes(audit_suite(suite), "anli")


def test_test_pairs_copied_into_the_train_split_are_found(nli: Suite, tmp_path: Path) -> None:
    test = pq.read_table(Path(nli.data) / "snli" / "test.parquet").slice(100, 40)
    pairs = [r for r in test.to_pylist() if r["label"] in (0, 2)][:20]
    shouted = [
        {**r, "premise": r["premise"].upper().replace(" ", "  "), "hypothesis": " " + r["hypothesis"].lower()}
        for r in pairs
    ]

    def add(table: pa.Table) -> pa.Table:
        return pa.concat_tables([table, pa.Table.from_pylist(shouted, schema=table.schema)])

    audit = audit_suite(planted(nli, tmp_path, "snli", add, kind="train"))
    finding = next(f for f in audit.findings if f.code == "train-in-test")
    assert len(pairs) == 20
    assert len(finding.items) == 20
    assert finding.text == "20 examples of snli are in the train split"
    assert "(normalised)" in finding.items[0]


@pytest.mark.parametrize("answers", [("Yes", " No"), (" Yes", "No")])
def test_an_answer_without_its_space_is_found(nli: Suite, answers: tuple[str, str]) -> None:
    pattern = replace(nli.patterns["question"], answers=answers)
    suite = replace(nli, patterns={"question": pattern}, test_sets={"wnli": nli.test_sets["wnli"]}, train_sets={})
    finding = next(f for f in audit_suite(suite).findings if f.code == "answer-space")
    assert "without a space; write ' " in finding.text


def test_a_prompt_over_the_limit_is_found(nli: Suite, tmp_path: Path, smollm2_tokenizer: Any) -> None:
    def lengthen(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[5]["sentence1"] = "A very long story. " * 4000
        rows[9]["sentence2"] = "A very long question. " * 4000
        return pa.Table.from_pylist(rows, schema=table.schema)

    suite = planted(nli, tmp_path, "wnli", lengthen)
    finding = next(f for f in audit_suite(suite, "smollm2-135m-q4").findings if f.code == "prompt-long")
    assert "id 9: " in " ".join(finding.items)
    assert "prompt 9 has over" in finding.text
    only_premise = planted(
        nli, tmp_path / "b", "wnli", lambda t: lengthen(t).filter(pa.array([i != 9 for i in range(t.num_rows)]))
    )
    finding = next(f for f in audit_suite(only_premise, "smollm2-135m-q4").findings if f.code == "prompt-shortened")
    assert finding.items == ("id 5",)


def test_a_differing_copy_is_counted_and_shown(nli: Suite, tmp_path: Path) -> None:
    def edit(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[3]["hypothesis"] = rows[3]["hypothesis"] + " Indeed."
        return pa.Table.from_pylist(rows, schema=table.schema)

    audit = audit_suite(planted(nli, tmp_path, "scitail", edit))
    finding = next(f for f in audit.findings if f.code == "rows-differ")
    assert finding.severity == "warning"
    assert finding.text == "1 row is not in the suite's copy, 1 of its rows is missing"
    assert "row 4 (id 3)" in finding.items[0]
    assert "Indeed." in finding.items[0]


def test_the_order_of_the_rows_is_no_difference(nli: Suite) -> None:
    examples = load_examples(nli, nli.test_sets["wnli"])
    assert not compare(examples[::-1], read_pins(nli)["wnli"])


def test_the_toml_holds_only_known_keys_and_the_wheel_its_rows() -> None:
    from importlib import resources

    folder = resources.files("oodles.suite") / "suites"
    assert tomllib.loads((folder / "nli.toml").read_text())["rows"] == "nli.rows"
    assert len((folder / "nli.rows").read_bytes()) < 300_000

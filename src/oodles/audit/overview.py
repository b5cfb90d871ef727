"""A suite as plain data: its sets with sizes, labels and chance, and its slices."""

from __future__ import annotations

from collections import Counter
from typing import Any

from oodles.contracts import DataSet, Suite
from oodles.suite.choices import chance_of
from oodles.suite.load import pattern_for, pattern_of
from oodles.suite.patterns import shared_field
from oodles.suite.slices import resolve_slice, slice_columns, slice_names
from oodles.suite.sources import load_examples, load_origin, locate
from oodles.suite.tasks import is_path


def describe_suite(suite: Suite, *, baseline: bool = False) -> list[dict[str, Any]]:
    """Return one mapping per train and test set."""
    sets = [("train", s) for s in suite.train_sets.values()] + [("test", s) for s in suite.test_sets.values()]
    return [_describe_set(suite, kind, data, baseline) for kind, data in sets]


def _describe_set(suite: Suite, kind: str, data: DataSet, baseline: bool) -> dict[str, Any]:
    away = data.source.hub is not None or (data.source.lm_eval is not None and not is_path(data.source))
    here = not away or locate(suite, data) is not None
    examples = load_examples(suite, data) if here else ()  # listing a suite must not download it
    counts = Counter(e.label for e in examples) or Counter({k: n for k, n in data.expect.items() if k in data.labels})
    chance = chance_of([e.answer for e in examples], [len(e.choices) for e in examples if e.choices]) if here else None
    if not here and not data.has_choices and counts:
        gold: Counter[int] = Counter()
        for label, count in counts.items():
            gold[data.labels[label]] += count
        chance = max(gold.values()) / gold.total()
    facts = {
        "set": data.name,
        "kind": kind,
        "here": here,
        "examples": counts.total() or data.expect.get("rows", 0),
        "labels": ", ".join(f"{label} {count}" for label, count in sorted(counts.items())),
        "dropped": ", ".join(data.drop) or "none",
        "chance": chance,
        "description": data.description,
        "tags": list(data.tags),
        "caveats": list(data.caveats),
        "licence": data.licence,
        "citation": data.citation,
        "origin": load_origin(suite, data).origin
        if here
        else f"hub {data.source.hub}"
        if data.source.hub
        else f"lm_eval {data.source.lm_eval}",
    }
    if baseline and here and not data.has_choices:
        from oodles.audit.checks import check_hypothesis_only  # loads scipy

        used = pattern_for(suite, data, pattern_of(suite, ""))
        facts["baseline"] = check_hypothesis_only(data, examples, shared_field(used, examples))[0]
    return facts


def describe_slices(suite: Suite) -> list[dict[str, Any]]:
    """Return every slice of every test set by one column, with its size."""
    rows = []
    for data in suite.test_sets.values():
        columns = slice_columns(load_examples(suite, data))
        for name, n in slice_names(data.name, columns).items():
            rows.append({"slice": name, "column": next(iter(resolve_slice(name, columns).values)), "n": n})
    return rows

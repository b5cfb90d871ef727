"""Models as plain data: the known labels, what a name would load, and what can be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oodles.contracts import ModelSpec, Precision
from oodles.errors import OodlesError
from oodles.model.embedded import EMBEDDED, is_fetched
from oodles.model.load import find_targets, load_config, outline_model, precision_of, resolve_model
from oodles.model.presets import LLAMA, PRESETS, preset_of, training_bytes, weight_bytes
from oodles.model.tokens import context_limit
from oodles.suite.load import list_suites, load_suite
from oodles.suite.sources import locate


def describe_fetchable() -> list[dict[str, Any]]:
    """Return the models and suites that `oodles fetch` installs, and whether they are present."""
    rows = [
        {"name": m.label, "kind": "model", "fetched": is_fetched(m.label), "about": m.about} for m in EMBEDDED.values()
    ]
    for suite in map(load_suite, list_suites()):
        sets = [d for d in (*suite.train_sets.values(), *suite.test_sets.values()) if d.source.hub is not None]
        here = sum(locate(suite, data) is not None for data in sets)
        about = f"{suite.description} {here} of {len(sets)} splits are here"
        if sets:
            rows.append({"name": suite.name, "kind": "suite", "fetched": here == len(sets), "about": about})
    return rows


def describe_models() -> list[dict[str, Any]]:
    """Return the models that have a label: presets and embedded ones."""
    rows = [
        {"model": p.label, "kind": "preset", "source": p.hub, "revision": p.revision}
        | _size(p.parameters, p.precision, p.targets)
        for p in PRESETS.values()
    ]
    for embedded in EMBEDDED.values():  # their projections are named as in Llama
        names = {"model": embedded.label, "kind": "embedded", "source": embedded.label, "revision": embedded.revision}
        rows.append(names | _size(embedded.parameters, "fp32", LLAMA))
    return rows


def describe_model(name: str) -> dict[str, Any]:
    """Describe what a name would load, from its config alone; no weights are downloaded."""
    spec = resolve_model(name)
    facts: dict[str, Any] = {"model": spec.label, "kind": "folder" if Path(spec.source).is_dir() else "hub"}
    facts |= {"source": spec.source, "revision": spec.revision}
    listed = preset_of(spec.source)
    label = listed.label if listed else spec.source
    for row in describe_models():
        if row["model"] == label:
            return {**row, **facts, "kind": row["kind"], **_context(spec), "page": listed.source if listed else ""}
    model = outline_model(spec)
    parameters = sum(p.numel() for p in model.parameters())
    size = _size(parameters, precision_of(spec), find_targets(model))
    return {**facts, **size, "context": context_limit(model.config), "page": ""}


def _size(parameters: int, precision: Precision, targets: Sequence[str]) -> dict[str, Any]:
    weights = weight_bytes(parameters, precision)
    sizes = {"weight_bytes": weights, "training_bytes": training_bytes(weights)}
    return {"dtype": precision, "parameters": parameters, **sizes, "targets": list(targets)}


def _context(spec: ModelSpec) -> dict[str, Any]:
    """Return the facts about a listed model that are known even without its config."""
    try:
        return {"context": context_limit(load_config(spec))}
    except OodlesError as error:
        return {"context": None, "note": str(error)}

"""HELM: `stats.json` beside `run_spec.json` in every run's folder; the test split, without perturbations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oodles.errors import DataError, first_line
from oodles.imports.contract import Imported, Options
from oodles.imports.found import files_below
from oodles.imports.identity import place_of
from oodles.imports.logs import Score, as_number, from_scores
from oodles.shapes import NUMBER, load_json, misfit

NAME = "helm"
FILE = "stats.json"
SHAPE = [{"name": {"name": str, "split?": (str, None)}, "count?": NUMBER, "mean?": (*NUMBER, None)}]
NO_SCORES = ("num_", "max_", "inference_", "training_", "estimated_", "batch_", "finish_reason", "logprob", "ci_")
WHERE = "expected what HELM writes"


def recognise(path: Path) -> bool:
    """A `stats.json` beside a `run_spec.json`, or a folder with one."""
    if path.is_dir():
        return any(_is_stats(file) for file in files_below(path))
    return _is_stats(path)


def _is_stats(file: Path) -> bool:
    return file.name == FILE and (file.parent / "run_spec.json").is_file()


def read(paths: Sequence[Path], options: Options) -> Imported:
    """Every run below these folders."""
    where = str(paths[0]) if len(paths) == 1 else f"{len(paths)} paths"
    notes: list[str] = []
    scores: list[Score] = []
    configs: dict[str, dict[str, Any]] = {}
    for file in [f for p in paths for f in (filter(_is_stats, files_below(p)) if p.is_dir() else [p])]:
        spec = _read(file.parent / "run_spec.json", {"name": str, "adapter_spec?": {"model?": (str, None)}})
        scenario, arguments = _named(spec["name"])
        model = (spec.get("adapter_spec") or {}).get("model") or arguments.pop("model", None)
        if not model:
            raise DataError(f"{file.parent}: run_spec.json names no model; {WHERE}")
        run, step = place_of(str(model), None, notes)
        configs[run] = {"model": run}
        told = ",".join(f"{k}={v}" for k, v in arguments.items() if k not in ("model", "model_deployment", "method"))
        scores += _scores(_read(file, SHAPE), run, step, f"{scenario}:{told}" if told else scenario, file)
    return from_scores(NAME, scores, configs, options, where, tuple(dict.fromkeys(notes)))


def _named(name: str) -> tuple[str, dict[str, str]]:
    """`mmlu:subject=anatomy,model=openai_gpt2` -> mmlu, and its arguments."""
    scenario, _, rest = name.partition(":")
    pairs = (part.partition("=") for part in rest.split(",") if "=" in part)
    return scenario, {key: value for key, _, value in pairs}


def _read(file: Path, shape: Any) -> Any:
    try:
        value = load_json(file)
        found = misfit(value, shape)
    except OSError as error:
        found = error.strerror or "cannot be read"
    except ValueError as error:
        found = f"not JSON ({first_line(error)})"
    if found:
        raise DataError(f"{file}: {found}; {WHERE}")
    return value


def _scores(stats: Sequence[Mapping[str, Any]], run: str, step: int, test_set: str, file: Path) -> Iterator[Score]:
    for stat in stats:
        name, value = stat["name"], as_number(stat.get("mean"))
        plain = name.get("split") == "test" and not name.get("perturbation") and not name.get("sub_split")
        if plain and value is not None and not name["name"].startswith(NO_SCORES):
            metric = "accuracy" if name["name"] == "exact_match" else name["name"]
            yield Score(run=run, step=step, test_set=test_set, metric=metric, value=value, origin=str(file))

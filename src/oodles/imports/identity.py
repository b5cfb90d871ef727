"""What a run was (model, train set, shots, seed): from its name by a pattern, from its config, or from a mapping file.

What a user says comes first, then what the config says; what nobody says stays missing, and a note tells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oodles.errors import ConfigError, DataError, nearest, shown, some
from oodles.imports.cells import read_cells
from oodles.imports.contract import Options
from oodles.imports.keys import template

FIELDS = ("model", "train_set", "shots", "seed")
TABLE = ("run", "step", "test_set", "value", *FIELDS, "metric", "n", "role")  # what --map may name
DIGITS = r"[0-9]{1,15}"  # of a whole number that is exact, and no attack
KINDS = {"model": ".+", **dict.fromkeys(("seed", "shots", "data_seed", "step"), DIGITS)}
CONFIG = {  # where trackers and trainers keep it, the surest first
    "model": ("model", "model_name_or_path", "base_model_name_or_path", "model_name", "_name_or_path"),
    "train_set": ("train_set", "train_ds", "train_dataset", "dataset_name", "train_dataset_name", "dataset"),
    "shots": ("shots", "shot", "num_shots", "n_shots", "max_train_samples", "max_samples"),
    "seed": ("seed", "random_seed", "train_seed"),
}
STEP = re.compile(r"(?:^|[/_.=-])(?:checkpoint|global_step|step|iter)[-_]?(\d{1,15})(?=$|[/_.-])")
TOKENS = re.compile(r"[-_]?tokens\d+\w*", flags=re.IGNORECASE)
EXAMPLE = "--names '{model}_{train_set}_{seed}_{shots}'"
USUAL = (  # how runs are named, what says most first
    *("{model}_{train_set}_{seed}_{shots}", "{model}_{train_set}_seed{seed}", "{model}_{train_set}_{seed}"),
    *("{model}/{train_set}/seed{seed}", "{model}/{train_set}/{seed}", "{model}-{train_set}-seed{seed}"),
    *(f"{{model}}{mark}{word}{{seed}}" for word in ("seed", "seed_", "seed-", "seed=", "s", "") for mark in "_/-"),
    *(f"{word}{{seed}}" for word in ("seed", "seed_", "seed-", "seed=", "run", "run_", "run-", "s", "")),
)
NAMELESS = "checkpoints"  # a run of which only these are named
NO_STEP = "no step in the model's name or revision: such models have one checkpoint, at step 0"
BARE = "taken as one run; if they are of several, evaluate them by a path that names the run's folder"
FILE = "a table with a line per run: --map runs.csv, columns run,model,train_set,seed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMap:
    """What `--map` and `--names` say."""

    columns: Mapping[str, str] = field(default_factory=dict)  # field -> column or config key
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # run -> what a file says of it
    names: re.Pattern[str] | None = None
    pattern: str = ""

    def about(self, run: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of a run; fields that nobody names are left out."""
        known = _of_config(config)
        for name, key in self.columns.items():
            if name in FIELDS or name not in TABLE:
                value = _inside(config, key)
                if value is None:
                    raise ConfigError(
                        f"--map {name}={key}: run '{shown(run)}' has no '{shown(key)}' in its config;"
                        f" {nearest(key, config)}"
                    )
                known[name] = value
        known |= self.by_name(run)
        return {name: value for name, value in {**known, **self.runs.get(run, {})}.items() if value is not None}

    def by_name(self, run: str) -> dict[str, Any]:
        """What the run's name says."""
        if self.names is None:
            return {}
        found = self.names.fullmatch(run)
        if found is None:
            fits = usual_pattern([run])
            cure = f"e.g. --names '{fits}'" if fits else f"or give {FILE}"
            raise ConfigError(f"--names '{self.pattern}': run '{shown(run)}' is named otherwise; {cure}")
        return {k: int(v) if KINDS.get(k) == DIGITS else v for k, v in found.groupdict().items()}

    def check_runs(self, runs: Iterable[str]) -> None:
        """A mapping file that names none of the runs is a mistake."""
        known = set(runs)
        if self.runs and known.isdisjoint(self.runs):
            raise DataError(
                f"--map: the file's runs ({some(self.runs, 3)}) are not those of the logs ({some(sorted(known), 3)});"
                " name them alike"
            )


def read_maps(options: Options) -> RunMap:
    """The options that say what runs are."""
    columns: dict[str, str] = {}
    runs: dict[str, Mapping[str, Any]] = {}
    for one in (part for given in options.maps for part in _parts(given)):
        name, equals, source = one.partition("=")
        if not equals:
            runs |= _read_runs(Path(one))
        elif not name.strip() or not source.strip():
            raise ConfigError(f"--map {shown(one)}: expected FIELD=COLUMN, e.g. --map run=Name")
        else:
            columns[name.strip()] = source.strip()
    names = template(options.names, KINDS, "--names") if options.names is not None else None
    return RunMap(columns=columns, runs=runs, names=names, pattern=options.names or "")


def place_of(name: str, revision: object, notes: list[str], base: str = "") -> tuple[str, int]:
    """The run and the step that a model's name and revision speak of; step 0, and a note, where they do not.

    A name of nothing but a checkpoint is that of a run whose folder was not named; `base` is the model it adapts.

    >>> place_of("EleutherAI/pythia-70m", "step1000", []), place_of("out/run1/checkpoint-250", None, [])
    (('EleutherAI/pythia-70m', 1000), ('out/run1', 250))
    """
    for text in (str(revision or ""), name):
        found = list(STEP.finditer(text))
        if found:
            left = (text[: found[-1].start()] + text[found[-1].end() :]).strip("/_-. ")
            if text is name and not left:
                notes.append(f"models named by their checkpoints alone, such as {shown(name)}: {BARE}")
                return f"{base}/{NAMELESS}".strip("/"), int(found[-1][1])
            if text is name:
                return left, int(found[-1][1])
            branch = TOKENS.sub("", left).strip("/_-. ")  # stage2-ingredient1-step2000: another run than stage 1
            return f"{name}@{branch}" if branch else name, int(found[-1][1])
    notes.append(NO_STEP)
    return name, 0


def told_apart(named: Sequence[tuple[str, str]], notes: list[str]) -> list[str]:
    """Names of runs, from pairs of name and id: a name that several runs have gets the id as well."""
    counts = Counter(name for name, _ in named)
    twins = [name for name, count in counts.items() if count > 1]
    if twins:
        notes.append(f"{counts[twins[0]]} runs are named '{shown(twins[0])}': their ids are added to the names")
    return [name if counts[name] == 1 else f"{name}-{identity}" for name, identity in named]


def usual_pattern(runs: Iterable[str]) -> str | None:
    """The first usual way to name runs that fits all of these, for an example that works; None if none does.

    >>> usual_pattern(["seed0", "seed1"]), usual_pattern(["pythia/seed0", "opt/seed1"]), usual_pattern(["a", "b"])
    ('seed{seed}', '{model}/seed{seed}', None)
    """
    runs = list(runs)
    return next((one for one in USUAL if all(template(one, KINDS, "").fullmatch(run) for run in runs)), None)


def untold(abouts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A note on what is known of no run, with what a user could type."""
    said = {name for about in abouts.values() for name in about}
    missing = [name for name in ("model", "train_set", "seed") if name not in said]
    if not missing:
        return []
    fits = usual_pattern(abouts)
    adds = fits is not None and any(f"{{{name}}}" in fits for name in missing)
    cure = f"the names of the runs may: --names '{fits}'" if adds else f"say it in {FILE}"
    alone = "; runs of one model and train set need neither" if {"model", "train_set"} <= {*missing} else ""
    return [f"not told of the runs: {', '.join(missing)}; {cure}{alone}"]


def _inside(config: Mapping[str, Any], key: str) -> Any:
    """What a config holds under a key, or under a path such as args.seed; None where there is nothing plain."""
    value: Any = config.get(key)
    if value is None and "." in key:
        value = config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, (str, int, float)) else None


def _parts(given: str) -> Sequence[str]:
    """`run=Name,step=Step` is two; a file's name may hold commas."""
    return re.split(r",(?=\s*\w+\s*=)", given) if "=" in given else [given]


def _of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, keys in CONFIG.items():
        for key in keys:
            value = config.get(key)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
                if name in ("shots", "seed") and not isinstance(value, int) and not re.fullmatch(DIGITS, value):
                    continue
                found[name] = int(value) if name in ("shots", "seed") else str(value)
                break
    return found


def _read_runs(path: Path) -> dict[str, Mapping[str, Any]]:
    if not path.is_file():
        raise ConfigError(f"--map {path}: no such file; expected FIELD=COLUMN, or a table with a column run")
    table = read_cells(path)
    if "run" not in table.columns:
        raise DataError(f"--map {path}: no column 'run'; found: {some(table.columns)}")
    names = table["run"].astype(str).str.strip()
    if names.duplicated().any():
        raise DataError(f"--map {path}: run '{shown(names[names.duplicated()].iloc[0])}' is there twice; keep one")
    rows = table.drop(columns="run").astype(object).where(table.drop(columns="run").notna(), None)
    return {
        name: dict(zip(map(str, rows.columns), row, strict=True))
        for name, row in zip(names, rows.to_numpy(), strict=True)
    }

"""import_scores(): the scores that other tools wrote, as a long table; and what `oodles import` shows and writes.

>>> import oodles as oo
>>> imported = oo.import_scores("outputs/", in_domain="snli")  # doctest: +SKIP
>>> imported.table.to_parquet("table.parquet")  # doctest: +SKIP
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from oodles.api.findings import findings
from oodles.errors import ConfigError
from oodles.imports.contract import Imported, Options
from oodles.imports.registry import read_paths, with_preset
from oodles.imports.tables import as_csv, read_frame
from oodles.outputs import check_target, write_aside
from oodles.stats.longtable import GUESSABLE, SOURCE, pick_sets, refuse_unknown_home
from oodles.stats.series import BY, one_step

MARK = b"oodles"  # in the metadata of a Parquet file: oodles wrote it
KINDS = (".parquet", ".csv")


def import_scores(
    paths: str | Path | Iterable[str | Path],
    *,
    format: str | None = None,  # noqa: A002
    in_domain: str | Sequence[str] | None = None,
    test_sets: str | Sequence[str] | None = None,
    maps: str | Sequence[str] | None = None,
    names: str | None = None,
    keys: str | None = None,
    preset: str | None = None,
    refresh: bool = False,
) -> Imported:
    """The scores in files and folders that other tools wrote, as one long table.

    Parameters
    ----------
    paths
        Files and folders: a table, long or wide; `trainer_state.json` or folders of runs; TensorBoard, wandb, MLflow,
        trackio; results of lm-evaluation-harness, lighteval, Inspect or HELM. ``"wandb:entity/project"`` asks wandb.
    format
        The format; default: recognised.
    in_domain
        The in-domain test sets, which get that role; the others are OOD.
    test_sets
        Only these test sets, beside the in-domain ones.
    maps
        ``"FIELD=COLUMN"``: which column, or key of a run's config, holds a field such as run, step or seed; or a file
        with a column run and what is known of each run.
    names
        How runs are named, e.g. ``"{model}_{train_set}_{seed}_{shots}"``.
    keys
        How metrics are named, e.g. ``"eval/{test_set}_{metric}"``.
    preset
        ``"paper"``: names and keys as in the study that oodles implements.
    refresh
        Ask wandb again, though its answer is cached.

    Returns
    -------
    Imported
        `table`, `records` (None where the format has none) and `notes` on what was assumed or left out.
    """
    options = options_of(
        format=format,
        in_domain=in_domain,
        test_sets=test_sets,
        maps=maps,
        names=names,
        keys=keys,
        preset=preset,
        refresh=refresh,
    )
    imported = gather([paths] if isinstance(paths, (str, Path)) else list(paths), options)
    home = home_sets(imported, options)
    if not home:
        return imported
    refuse_unknown_home(home, imported.table["test_set"])
    role = np.where(imported.table["test_set"].isin(home), "in_domain", "ood")
    return replace(imported, table=imported.table.assign(role=role))


def options_of(
    *,
    in_domain: str | Sequence[str] | None = None,
    test_sets: str | Sequence[str] | None = None,
    maps: str | Sequence[str] | None = None,
    preset: str | None = None,
    **others: Any,
) -> Options:
    """The options of `import_scores`, as importers take them."""
    options = Options(in_domain=_tuple(in_domain), test_sets=_tuple(test_sets), maps=_tuple(maps), **others)
    return with_preset(options, preset)


def gather(paths: Sequence[str | Path], options: Options) -> Imported:
    """The scores in files and folders, of the chosen test sets; roles as the files tell them."""
    if not paths:
        raise ConfigError("no path; give a file or a folder")
    for path in paths:
        _refuse_finding(Path(path))
    return _chosen(read_paths([Path(path) for path in paths], options), options)


def gather_frame(frame: pd.DataFrame, options: Options) -> Imported:
    """The same of a table in memory that is no long one."""
    return _chosen(read_frame(frame, options), options)


def _chosen(imported: Imported, options: Options) -> Imported:
    wanted = [imported.aliases.get(name, name) for name in options.test_sets]
    table = pick_sets(imported.table, wanted, home_sets(imported, options))
    table.attrs[SOURCE] = imported.table.attrs.get(SOURCE, "table")
    return replace(imported, table=table)


def _refuse_finding(path: Path) -> None:
    """A finding's name is no file; what takes it is said."""
    if str(path) in findings() and not path.exists():
        raise ConfigError(
            f"{path}: a finding, not a file; oodles analyse, report and export take it, alone and without options of "
            f"import (oodles export {path} --format csv --out {path}.csv makes a file of it)"
        )


def home_sets(imported: Imported, options: Options) -> tuple[str, ...]:
    """The in-domain sets by their own names; a user may call them as their columns are called."""
    return tuple(imported.aliases.get(name, name) for name in options.in_domain)


def _tuple(value: str | Sequence[str] | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())


def check_out(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over an input, or over a file that oodles did not write."""
    if out.suffix.lower() not in KINDS:
        raise ConfigError(f"--out {out}: expected a name that ends in {' or '.join(KINDS)}")
    check_target(out, _is_ours, [path for path in inputs if path.is_file()])


def write_table(table: pd.DataFrame, out: Path) -> Path:
    """Write a long table as Parquet or CSV, by the ending of its name; whole, or not at all."""
    plain = table.copy()
    plain.attrs = {}
    if out.suffix.lower() == ".csv":
        return write_aside(out, partial(as_csv(plain).to_csv, index=False))
    return write_aside(out, partial(_write_parquet, plain))


def _write_parquet(table: pd.DataFrame, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in table.columns:
        if table[name].dtype == object:
            cells = table[name].dropna()
            if cells.map(type).nunique() > 1:
                table[name] = table[name].map(str, na_action="ignore")
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    pq.write_table(arrow.replace_schema_metadata({MARK: b"long table"}), path, compression="zstd")


def _is_ours(path: Path) -> bool:
    import pyarrow.parquet as pq

    try:
        return MARK in (pq.read_schema(path).metadata or {})
    except Exception:  # of a file that is no Parquet Arrow says so in many ways
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What is in the files: for a user who has to decide what to ask."""

    format: str
    runs: tuple[str, ...]
    steps: tuple[int, int, int]  # first, last, how many
    metrics: dict[str, int]  # -> how many scores
    test_sets: tuple[dict[str, Any], ...]  # name, role, n, runs, lowest and highest score
    known: dict[str, int]  # model, train_set, shots, seed -> how many different
    records: int
    notes: tuple[str, ...]
    command: str  # to type next


def inspect_scores(imported: Imported, paths: Sequence[str], told: Sequence[str] = ()) -> Contents:
    """Runs, steps, metrics and test sets, and the command to type next; `told` are options that were given."""
    table = imported.table
    metrics = table["metric"].fillna("accuracy") if "metric" in table.columns else pd.Series("accuracy", table.index)
    counts = {str(name): int(count) for name, count in metrics.value_counts().items()}
    main = "accuracy" if "accuracy" in counts else next(iter(counts))
    steps = np.unique(table["step"])
    own = table[metrics.eq(main)]
    sets = tuple(_about_set(str(name), rows) for name, rows in own.groupby("test_set", sort=True))
    fields = [name for name in ("model", "train_set", "shots", "seed") if name in table.columns]
    known = {name: int(table[name].nunique()) for name in fields if table[name].notna().any()}
    return Contents(
        format=imported.format,
        runs=tuple(sorted(map(str, table["run"].unique()))),
        steps=(int(steps.min()), int(steps.max()), len(steps)),
        metrics=counts,
        test_sets=sets,
        known=known,
        records=0 if imported.records is None else len(imported.records),
        notes=imported.notes,
        command=_next_command(sets, main, paths, [*told, *_ungrouped(own)]),
    )


def _ungrouped(table: pd.DataFrame) -> list[str]:
    """`--by none` where every model and train set has one run: groups of one run answer nothing."""
    by = [name for name in BY if name in table.columns and table[name].notna().any()]
    runs = table.groupby(by, dropna=False)["run"].nunique() if by else pd.Series(dtype=int)
    return ["--by", "none"] if len(runs) > 1 and runs.max() == 1 and not one_step(table) else []


def _about_set(name: str, rows: pd.DataFrame) -> dict[str, Any]:
    trained = "train_set" in rows.columns and rows["train_set"].eq(name).any()
    roles = set(rows["role"].dropna()) if "role" in rows.columns else set()
    role = ", ".join(sorted(map(str, roles))) or ("in_domain" if trained else "")
    n = int(rows["n"].max()) if "n" in rows.columns and rows["n"].notna().any() else None
    low, high = float(rows["value"].min()), float(rows["value"].max())
    return {"name": name, "role": role, "n": n, "runs": int(rows["run"].nunique()), "low": low, "high": high}


def _next_command(sets: Sequence[dict[str, Any]], metric: str, paths: Sequence[str], told: Sequence[str]) -> str:
    """`oodles analyse` with what it needs; the in-domain set is the one with the highest score where nobody says."""
    words = ["oodles", "analyse", *(paths if len(paths) <= 3 else [*paths[:1], "..."]), *told]
    if not any("in_domain" in one["role"] for one in sets) and sets:
        best = max(sets, key=lambda one: (one["runs"], np.nan_to_num(one["high"]) if metric in GUESSABLE else 0))
        words += ["--in-domain", best["name"]]
    if metric != "accuracy":
        words += ["--metric", metric]
    return shlex.join(words).replace("'...'", "...")

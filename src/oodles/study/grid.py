"""Expand a study into runs: every run has its data drawn and its id fixed before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from oodles.contracts import (
    Draw,
    Example,
    ModelSpec,
    Pattern,
    PlannedRun,
    Recipe,
    RunSpec,
    Study,
    Suite,
    content_hash,
    role_of,
)
from oodles.errors import ConfigError
from oodles.model.load import precision_of, resolve_model
from oodles.names import check_name
from oodles.runs.schedule import schedule_of
from oodles.suite.draw import draw_from, group
from oodles.suite.load import check_pattern, load_suite, pattern_for, pattern_of, select_test_sets, train_set_of
from oodles.suite.patterns import render
from oodles.suite.render import Rendered, Renderer, check_slices
from oodles.suite.slices import is_slice
from oodles.suite.sources import load_examples, set_hash, with_stand_ins


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A resolved study: its suite and all its jobs."""

    study: Study
    suite: Suite
    jobs: tuple[PlannedRun, ...]
    caveats: tuple[str, ...]
    renderer: Renderer

    def test_sets(self, spec: RunSpec) -> tuple[Rendered, ...]:
        """Return the test sets that a run shares with others; each is rendered once per grid."""
        return self.renderer.sets(spec.pattern, spec.train_set, spec.evaluation)

    def rendered(self, job: PlannedRun) -> tuple[Rendered, ...]:
        """Return all sets that a run is evaluated on: the test sets, and its own shots if requested."""
        return self.renderer.sets(job.spec.pattern, job.spec.train_set, job.spec.evaluation, job.draw.examples)


def expand(study: Study) -> Grid:
    """Return all runs of a study in a fixed order. Reads the train sets but loads no model."""
    suite = load_suite(study.suite, study.folder, study.data)
    patterns = [pattern_of(suite, name) for name in study.patterns or ("",)]
    for pattern in suite.patterns.values():
        check_pattern(pattern, f"suite {suite.name} [patterns.{pattern.name}]")
    models = [resolve_model(m, study.folder, study.sources.get(m)) for m in study.models]
    train = {name: load_examples(suite, train_set_of(suite, name)) for name in study.train_sets}
    _check_test_sets(suite, study)
    data_seeds: tuple[int | None, ...] = (None,) if study.data_seeds == "seed" else study.data_seeds
    cells = product(models, study.train_sets, patterns, study.shots, study.seeds, data_seeds)
    planner = _Planner(
        study=study,
        suite=suite,
        groups={name: group(examples) for name, examples in train.items()},
        hashes={name: set_hash(examples) for name, examples in train.items()},
        recipes={m: replace(study.recipe, precision=precision_of(m, study.recipe.precision)) for m in models},
    )
    jobs = tuple(planner.job(_Cell(*cell)) for cell in cells)
    if study.run and len(jobs) > 1:
        raise ConfigError(f"study {study.name} [grid]: run names one run, but the grid has {len(jobs)}; remove it")
    repeated = {name for name, count in Counter(job.spec.name for job in jobs).items() if count > 1}
    if repeated:
        raise ConfigError(
            f"study {study.name}: two runs are named '{min(repeated)}'; list each model, seed and size once"
        )
    return Grid(study=study, suite=suite, jobs=jobs, caveats=_caveats(study), renderer=Renderer(suite))


def expand_for_costs(study: Study, root: Path) -> Grid:
    """Like `expand`; if the study has no folder yet, missing data are replaced by rows of the same size."""
    suite = load_suite(study.suite, study.folder, study.data)
    if root.exists() or any(map(is_slice, study.evaluation.test_sets)):
        return expand(study)  # existing runs can only be compared with the real data
    return expand(replace(study, suite=with_stand_ins(suite)))


class _Cell(NamedTuple):
    """The position of a run in the grid."""

    model: ModelSpec
    train_set: str
    pattern: Pattern
    shots: int
    seed: int
    data_seed: int | None  # None: the seed

    @property
    def draw(self) -> tuple[str, int, int]:
        """The values that determine the draw."""
        return self.train_set, self.shots, self.seed if self.data_seed is None else self.data_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planner:
    """Creates the runs of a study; data that several runs share are computed once."""

    study: Study
    suite: Suite
    groups: Mapping[str, Mapping[str, list[Example]]]  # train sets by label
    hashes: Mapping[str, str]  # hashes of whole train sets
    recipes: Mapping[ModelSpec, Recipe]
    draws: dict[tuple[str, int, int], Draw] = field(default_factory=dict)

    def job(self, cell: _Cell) -> PlannedRun:
        drawn = self._draw(cell)
        pattern = pattern_for(self.suite, self.suite.train_sets[cell.train_set], cell.pattern)
        if pattern.score == "minus_baseline" and self.study.recipe.loss == "answers":
            raise ConfigError(
                f"study {self.study.name}: the score of train set '{cell.train_set}' is minus_baseline, which [train]"
                " loss = answers cannot train on; choose another score, or loss = vocab"
            )
        draw_hash = drawn.hash
        if callable(pattern.text):  # the source of a function is not enough: include its output
            draw_hash = content_hash([drawn.hash, render(pattern, drawn.examples, cell.train_set).hash])
        spec = RunSpec(
            name=self._name(cell),
            model=cell.model,
            suite=self.suite.name,
            train_set=cell.train_set,
            train_hash=self.hashes[cell.train_set],
            draw_hash=draw_hash,
            pattern=pattern,
            shots=cell.shots,
            seed=cell.seed,
            data_seed=drawn.data_seed,
            lora=self.study.lora,
            recipe=self.recipes[cell.model],
            evaluation=self.study.evaluation,
        )
        schedule_of(spec)  # report a step beyond the end now, not after an hour
        return PlannedRun(spec=spec, draw=drawn)

    def _draw(self, cell: _Cell) -> Draw:
        """Return the shots; runs of several models share them."""
        key = cell.draw
        if key not in self.draws:
            self.draws[key] = draw_from(self.groups[cell.train_set], *key, nested=self.study.draw == "nested")
        return self.draws[key]

    def _name(self, cell: _Cell) -> str:
        study = self.study
        if study.run:
            return study.run
        parts = [cell.model.label, cell.train_set, cell.seed, cell.shots]
        parts += [cell.pattern.name] if len(study.patterns) > 1 else []
        parts += [f"d{cell.data_seed}"] if len(study.data_seeds) > 1 and cell.data_seed is not None else []
        return check_name("_".join(map(str, parts)), f"study {study.name}: the name of a run")


def select(grid: Grid, only: Sequence[str] = (), shots: Sequence[int] = ()) -> Grid:
    """Select runs by name or model pattern, and by number of shots."""
    for size in shots:
        if size not in grid.study.shots:
            raise ConfigError(f"--shots {size}: the study has {', '.join(map(str, grid.study.shots))}")
    for pattern in only:
        if not any(_matches(job, pattern) for job in grid.jobs):
            names = f"{grid.jobs[0].spec.name} ... {grid.jobs[-1].spec.name}"
            raise ConfigError(f"--only '{pattern}' matches none of the {len(grid.jobs)} runs of the study ({names})")
    jobs = tuple(
        job
        for job in grid.jobs
        if (not only or any(_matches(job, pattern) for pattern in only)) and (not shots or job.spec.shots in shots)
    )
    if not jobs:
        raise ConfigError(f"--only {' '.join(only)} --shots {' '.join(map(str, shots))}: no run has both")
    return replace(grid, jobs=jobs)


def _matches(job: PlannedRun, pattern: str) -> bool:
    return fnmatch(job.spec.name, pattern) or fnmatch(job.spec.model.label, pattern)


def _check_test_sets(suite: Suite, study: Study) -> None:
    names = {data.name for data in select_test_sets(suite, study.evaluation.test_sets)}
    check_slices(suite, study.evaluation.test_sets)
    for train_set in study.train_sets:
        if not any(role_of(name, train_set) == "in_domain" for name in names):
            raise ConfigError(
                f"{study.name}: no test set '{train_set}' is evaluated, so its runs lack an in-domain score; add it"
            )
    if len(names) < 3:
        raise ConfigError(
            f"study {study.name}: {len(names)} test sets; expected the in-domain one and at least two OOD sets"
        )


def _caveats(study: Study) -> tuple[str, ...]:
    sampled = study.evaluation.limit_in_domain
    if sampled is None:
        return ()
    return (f"the in-domain set is a sample of {sampled}: noise in it biases partial correlations upward",)


def describe_grid(grid: Grid) -> dict[str, Any]:
    """Describe the runs of a study."""
    runs = [{"run": j.spec.name, "run_id": j.spec.run_id, "steps": schedule_of(j.spec)} for j in grid.jobs]
    return {"study": grid.study.name, "suite": grid.suite.name, "runs": runs, "caveats": list(grid.caveats)}

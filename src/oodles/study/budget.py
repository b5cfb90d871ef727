"""The cost of a study before it runs: exact counts, and estimates with their assumptions.

Steps, evaluations, prompts and tokens are counted from the study's own data with the model's own tokenizer. Arithmetic,
time, memory and disk space are estimates; footprint.py derives them from the model's config.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from oodles.contracts import SHOTS, ModelSpec, PromptSet, RunSpec
from oodles.errors import ModelError
from oodles.model.load import load_tokenizer, outline_model, shipped_config
from oodles.model.scoring import BATCH_TOKENS, BATCH_TOKENS_ELSEWHERE
from oodles.model.tokens import context_limit
from oodles.runs.schedule import passes, schedule_of, step_count
from oodles.runs.train import Candidates
from oodles.study.devices import DEVICES, HALF, Hours, Load, hours_on
from oodles.study.footprint import Footprint, device_name, draw_footprint, resident_bytes, scoring_bytes, training_bytes
from oodles.study.grid import Grid
from oodles.study.preview import Would
from oodles.study.sizes import CHARACTERS_PER_TOKEN, Reader, Sizes
from oodles.suite.patterns import render
from oodles.suite.render import sampled_alike
from oodles.suite.sources import stand_ins_of
from oodles.suite.stand_ins import SPREAD

UTILISATION = (0.3, 0.8)  # share of the rate that matrix products alone reach
BY_CHARACTERS = (
    f"tokens are estimated, {CHARACTERS_PER_TOKEN} characters each (SmolLM2's tokenizer: 4.0 to 5.1 in the sets of nli"
    " and mini, so a set's tokens may be 8 % more or 16 % fewer; other tokenizers differ)"
)
NOT_HERE = f"the model is not available; {BY_CHARACTERS}, and arithmetic, time, memory and adapter size are unknown"
NO_TOKENIZER = f"{BY_CHARACTERS}, because the tokenizer is not available"
STAND_INS = (
    "{}: data not available; estimated from the suite's declared counts and average lengths (log-normal, standard"
    f" deviation {SPREAD} of the logarithm). Prefixes are shared only by chance, so the estimate is higher than with"
    " the data"
)
SHIPPED = (
    "arithmetic and memory are estimated from the config shipped with oodles, because the hub's config is not available"
)
GAPS = 0.75  # memory that glibc's heap keeps besides a training step's tensors: 0.6 to 0.8 of them, measured on a CPU
MOMENTS = {"adamw": 2, "adafactor": 0, "sgd": 0}  # numbers that an optimiser stores per trained number

# bytes around the numbers, as this version writes them
RECORD_FILE, SCORE_LINE, RUN_FILES = 1150, 265, 3500
ADAPTER_CONFIG, ADAPTER_TENSOR = 1400, 130

Group = tuple[str, str, str, int]  # model, train set, pattern, shots


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one run, or of several together."""

    steps: int  # optimiser steps
    evaluations: int  # step x test set pairs that are scored
    taken_over: int  # additional evaluations: scores of the untrained model reused from an earlier run
    prompts: int  # of the evaluations, like the tokens below
    prompt_tokens: int
    computed_tokens: int  # tokens that go through the model for them: a shared prefix counts once
    training_tokens: int  # without padding
    arithmetic: float  # floating-point operations; nan if the model is not available
    seconds_low: float  # the arithmetic at the higher utilisation
    seconds_high: float
    disk: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Peak memory of a run in bytes."""

    process: int  # Python, packages and data; 0 on a GPU
    weights: int
    adapter: int  # with the optimiser's state
    batch: int  # activations, gradients and logits of the largest training batch, or of scoring

    @property
    def total(self) -> int:
        return self.process + self.weights + self.adapter + self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """A run, its cost and its memory."""

    run: str
    group: Group
    cost: Cost  # the whole run
    left: Cost  # the missing part of the run
    would: str  # the planned action of `oodles run`
    memory: Memory | None  # None if the model is not available
    on_gpu: Memory | None = None  # the same on a GPU; also None if the run is not in half precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """All runs of a study, and the assumptions of the estimates."""

    runs: tuple[RunBudget, ...]
    device: str
    gpus: tuple[Hours, ...]  # empty if a run's arithmetic is unknown or not in half precision
    reported: float | None  # reported GPU-hours of the published study
    rates: Mapping[str, float]  # model -> operations per second of its matrix products, timed on this machine
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Runs that differ only in their seeds: their mean cost and their largest memory."""

    group: Group
    costs: tuple[Cost, ...]
    each: Cost
    memory: Memory | None


def total(costs: Iterable[Cost]) -> Cost:
    """Add the costs of several runs."""
    listed = list(costs)
    return Cost(**{f.name: sum(getattr(c, f.name) for c in listed) for f in fields(Cost)})


def rows(budget: Budget) -> list[Row]:
    """Return one row per model, train set, pattern and number of shots."""
    table = []
    for group in dict.fromkeys(run.group for run in budget.runs):
        runs = [run for run in budget.runs if run.group == group]
        memory = max((run.memory for run in runs if run.memory), key=lambda m: m.total, default=None)
        each = _share(total(run.cost for run in runs), len(runs))
        table.append(Row(group=group, costs=tuple(run.cost for run in runs), each=each, memory=memory))
    return table


def _share(cost: Cost, runs: int) -> Cost:
    values: dict[str, Any] = asdict(cost)
    for name, value in values.items():
        values[name] = value / runs if isinstance(value, float) else round(value / runs)
    return Cost(**values)


def budget_of(
    grid: Grid,
    done: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
    would: Sequence[Would] = (),
) -> Budget:
    """Count and estimate every run of a study, and its missing part; done runs share their scores at step 0.

    `would` describes the missing parts (see `preview`); without it, every run is missing entirely.
    """
    planned = {plan.run: plan for plan in would}
    models, notes = _look_up(grid, say)
    work = {run.spec.name: run for run in _work(grid, models, done, say)}
    process = resident_bytes() if device_name() == "cpu" else 0  # as in a run: packages and data are loaded
    memory: dict[str, tuple[Memory, Memory]] = {}
    for model, reader in models.items():
        say(f"a training step of {model.label}, without its weights")
        try:
            memory |= _memory(reader.footprint, [w for w in work.values() if w.spec.model == model], process)
        except RuntimeError as error:  # the model reads the content of its tensors
            notes.append(
                f"{model.label}: memory is not estimated, because the model cannot run without weights ({error})"
            )
    runs = tuple(
        RunBudget(
            run=name,
            group=work[name].group,
            cost=_cost(work[name], models[work[name].spec.model].footprint, _whole(work[name])),
            left=_cost(work[name], models[work[name].spec.model].footprint, _rest(work[name], planned.get(name))),
            would=str(planned.get(name, "train")),
            memory=memory[name][0] if name in memory else None,
            on_gpu=memory[name][1] if name in memory and work[name].spec.recipe.precision in HALF else None,
        )
        for name in (job.spec.name for job in grid.jobs)
    )
    return Budget(
        runs=runs,
        device=device_name(),
        gpus=_gpus(runs),
        reported=grid.study.reported_gpu_hours if _is_whole(grid) else None,
        rates={model.label: reader.footprint.rate for model, reader in models.items() if reader.footprint},
        notes=tuple(notes),
    )


def _is_whole(grid: Grid) -> bool:
    """Whether the grid has all runs of the study, with none filtered out."""
    study = grid.study
    parts = (study.models, study.train_sets, study.patterns or ("",), study.shots, study.seeds)
    draws = 1 if study.data_seeds == "seed" else len(study.data_seeds)
    return len(grid.jobs) == draws * math.prod(map(len, parts))


def _gpus(runs: Sequence[RunBudget]) -> tuple[Hours, ...]:
    loads = [Load(model=r.group[0], arithmetic=r.cost.arithmetic, memory=r.on_gpu.total) for r in runs if r.on_gpu]
    return tuple(hours_on(device, loads) for device in DEVICES) if len(loads) == len(runs) else ()


def _look_up(grid: Grid, say: Callable[[str], None]) -> tuple[dict[ModelSpec, Reader], list[str]]:
    """Return the tokenizer and footprint of every model, and notes about models that are not available."""
    models: dict[ModelSpec, Reader] = {}
    notes = [STAND_INS.format(", ".join(names))] if (names := stand_ins_of(grid.suite)) else []
    alike: dict[str, list[str]] = {}  # note -> models
    by_characters: Sizes = {}  # the same for every model
    for spec in {job.spec.model: job.spec for job in grid.jobs}.values():
        say(f"outlining {spec.model.label}")
        reader = Reader(batch_tokens=_batch_tokens(spec, device_name()), known=by_characters)
        try:
            outline, shipped = _outline(spec.model)
        except ModelError as error:
            notes.append(f"{spec.model.label}: {NOT_HERE} ({error})")
            models[spec.model] = reader
            continue
        reader = replace(reader, limit=context_limit(outline.config), footprint=draw_footprint(outline, spec))
        if shipped:
            alike.setdefault(SHIPPED, []).append(spec.model.label)
        try:
            reader = replace(reader, tokenizer=load_tokenizer(spec.model), known={})
        except ModelError:
            alike.setdefault(NO_TOKENIZER, []).append(spec.model.label)
        models[spec.model] = reader
    return models, notes + [f"{', '.join(labels)}: {note}" for note, labels in alike.items()]


def _outline(model: ModelSpec) -> tuple[torch.nn.Module, bool]:
    """Return a model without weights, and whether its config is the shipped one because the hub is unreachable."""
    try:
        return outline_model(model), False
    except ModelError:
        config = shipped_config(model)
        if config is None:
            raise
        return outline_model(model, config), True


def _batch_tokens(spec: RunSpec, device: str) -> int:
    return spec.evaluation.batch_tokens or BATCH_TOKENS.get(device, BATCH_TOKENS_ELSEWHERE)


# a single run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """A run measured in tokens."""

    spec: RunSpec
    shots: Candidates
    sets: Sizes
    taken: frozenset[tuple[str, str]]  # sets whose scores at step 0 come from another run

    @property
    def group(self) -> Group:
        return self.spec.model.label, self.spec.train_set, self.spec.pattern.name, self.spec.shots

    @property
    def batch(self) -> tuple[int, int, int]:
        """The largest training batch: sequences, tokens of the longest, and positions of the loss."""
        longest = sorted(self.shots.examples, key=lambda e: -max(len(tokens) for tokens, _ in e["sequences"]))
        inputs = self.shots.collate(longest[: self.spec.recipe.batch_size])
        return *inputs["tokens"].shape, len(inputs["row"])


def _work(
    grid: Grid, models: Mapping[ModelSpec, Reader], done: Collection[str], say: Callable[[str], None]
) -> Iterator[Work]:
    """Yield all runs in tokens, finished ones first; the first run of a model scores step 0, the others reuse it."""
    rendered: dict[tuple[str, str], dict[tuple[str, str], PromptSet]] = {}
    donors: dict[ModelSpec, Sizes] = {}
    for job in sorted(grid.jobs, key=lambda job: job.spec.name not in done):
        spec, reader, key = job.spec, models[job.spec.model], (job.spec.pattern.name, sampled_alike(job.spec))
        say(f"counting tokens of {spec.name}")
        if key not in rendered:
            rendered[key] = _keyed(test_set.prompts for test_set in grid.test_sets(spec))
        own = _keyed([render(spec.pattern, job.draw.examples, SHOTS)] if spec.evaluation.shots else [])
        sizes = {at: reader.size(at, prompts) for at, prompts in (rendered[key] | own).items()}
        taken = frozenset(donors.setdefault(spec.model, {}).keys() & sizes.keys())
        donors[spec.model] = donors[spec.model] or sizes
        shots = reader.shots(render(spec.pattern, job.draw.examples, spec.train_set), spec)
        yield Work(spec=spec, shots=shots, sets=sizes, taken=taken)


def _keyed(sets: Iterable[PromptSet]) -> dict[tuple[str, str], PromptSet]:
    return {(prompts.name, prompts.hash): prompts for prompts in sets}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A run, or a part of it."""

    kept: Mapping[tuple[str, str], int]  # number of steps at which each set is evaluated
    taken: frozenset[tuple[str, str]]  # sets among them whose scores at step 0 come from another run
    steps: int  # trained steps
    adapters: int  # kept adapters
    files: int  # bytes of the files that a run writes once


def _whole(work: Work) -> _Part:
    points, steps = len(schedule_of(work.spec)), step_count(work.spec.shots, work.spec.recipe)
    return _Part(kept=dict.fromkeys(work.sets, points), taken=work.taken, steps=steps, adapters=points, files=RUN_FILES)


def _rest(work: Work, would: Would | None) -> _Part:
    """Return the part of a run that `oodles run` would execute."""
    if would is None:
        return _whole(work)
    missing = Counter(name for _, name in would.missing)
    return _Part(
        kept={key: missing[key[0]] for key in work.sets},
        taken=frozenset(key for key in work.sets if key[0] in would.taken),
        steps=would.steps,
        adapters=len(would.untrained),
        files=RUN_FILES * (would.action == "train"),
    )


def _cost(work: Work, footprint: Footprint | None, part: _Part) -> Cost:
    recipe = work.spec.recipe
    times = {key: n - (key in part.taken) for key, n in part.kept.items()}  # how often each set is computed
    seen = passes(work.spec.shots, recipe, part.steps)
    computed = sum(work.sets[key].computed * n for key, n in times.items())
    sequences = [sequence for example in work.shots.examples for sequence in example["sequences"]]
    trained = seen * sum(len(tokens) for tokens, _ in sequences)
    answers = seen * sum(len(target) for _, target in sequences)
    arithmetic = footprint.scoring(computed) + footprint.training(trained, answers, recipe) if footprint else math.nan
    slow, fast = (arithmetic / footprint.rate / share if footprint else math.nan for share in UTILISATION)
    return Cost(
        steps=part.steps,
        evaluations=sum(times.values()),
        taken_over=len(part.taken),
        prompts=sum(work.sets[key].prompts * n for key, n in times.items()),
        prompt_tokens=sum(work.sets[key].tokens * n for key, n in times.items()),
        computed_tokens=computed,
        training_tokens=round(trained),
        arithmetic=arithmetic,
        seconds_low=fast,
        seconds_high=slow,
        disk=_disk(work, part, footprint),
    )


def _disk(work: Work, part: _Part, footprint: Footprint | None) -> int:
    """Estimate disk space: 4 bytes per score, 1 per example, the adapters, and file overhead."""
    evaluation = work.spec.evaluation
    records = sum(
        part.kept[key] * (s.prompts * (4 * s.answers + 1) + RECORD_FILE + SCORE_LINE) for key, s in work.sets.items()
    )
    adapter = _adapter_file(footprint) if footprint else 0
    checkpoint = adapter * (1 + MOMENTS[work.spec.recipe.optimiser]) * (evaluation.keep_checkpoints and part.steps > 0)
    return part.files + records + part.adapters * adapter * evaluation.keep_adapters + checkpoint


def _adapter_file(footprint: Footprint) -> int:
    return footprint.adapter_bytes + ADAPTER_TENSOR * footprint.adapter_tensors + ADAPTER_CONFIG


def _memory(footprint: Footprint | None, work: Sequence[Work], process: int) -> dict[str, tuple[Memory, Memory]]:
    """Return the memory of each run of a model, on this machine and on a GPU.

    The largest batch goes through a training step; smaller ones are scaled in proportion.
    """
    if footprint is None:
        return {}
    largest = max(work, key=lambda run: run.batch[0] * run.batch[1])
    recipe, shots = largest.spec.recipe, largest.shots
    training = plain = training_bytes(footprint, shots, largest.batch)
    if recipe.gradient_checkpointing:
        training = training_bytes(footprint, shots, largest.batch, checkpointing=True)
    batches = {size.batch for run in work for size in run.sets.values()}
    scoring = scoring_bytes(footprint, *max(batches, key=lambda batch: batch[0] * batch[1] ** 2))
    width = max(width for _, width in batches)
    there = scoring_bytes(footprint, max(1, _batch_tokens(largest.spec, "cuda") // width), width)
    here = training
    if device_name() == "cpu":  # the gaps are those of a plain step, also with checkpointing
        here += round(GAPS * plain)
        scoring *= torch.get_num_threads()  # one batch per core
    adapter = footprint.adapter_bytes * (1 + MOMENTS[recipe.optimiser])
    share = {run.spec.name: run.batch[0] * run.batch[1] / (largest.batch[0] * largest.batch[1]) for run in work}

    def memory_of(process: int, batch: int) -> Memory:
        return Memory(process=process, weights=footprint.weights, adapter=adapter, batch=batch)

    return {
        name: (memory_of(process, max(round(part * here), scoring)), memory_of(0, max(round(part * training), there)))
        for name, part in share.items()
    }

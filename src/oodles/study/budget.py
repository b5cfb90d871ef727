"""What a study costs, before anything is run: counts that are exact, and estimates that say what they rest on.

Steps, evaluations, prompts and tokens are counted from the study's own data with the model's own tokenizer. Arithmetic,
time, memory and bytes on disk are estimates: see footprint.py for what follows from the model's config.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch

from oodles.contracts import SHOTS, ModelSpec, PromptSet, RunSpec
from oodles.errors import ModelError
from oodles.model.load import load_tokenizer, outline_model, shipped_config
from oodles.model.prefix_trees import ROW_TOKENS, Sequences, pack_rows
from oodles.model.scoring import BATCH_TOKENS, BATCH_TOKENS_ELSEWHERE, sequences_of
from oodles.model.tokens import context_limit, encode_once
from oodles.runs.progress import duration
from oodles.runs.schedule import passes, schedule_of, step_count
from oodles.runs.train import Candidates, encode_shots
from oodles.study.devices import ASSUMED, DEVICES, HALF, USABLE, Hours, Load, hours_on
from oodles.study.footprint import Footprint, device_name, draw_footprint, resident_bytes, scoring_bytes, training_bytes
from oodles.study.grid import Grid
from oodles.study.preview import Would
from oodles.suite.patterns import render
from oodles.suite.render import sampled_alike
from oodles.suite.sources import stand_ins_of
from oodles.suite.stand_ins import SPREAD

UTILISATION = (0.3, 0.8)  # of the rate that matrix products alone reach
CHARACTERS_PER_TOKEN = 4.3  # of English prompts, where the tokenizer is not here
BY_CHARACTERS = (
    f"tokens are estimated, {CHARACTERS_PER_TOKEN} characters each (SmolLM2's tokenizer: 4.0 to 5.1 in the sets of nli"
    " and mini, so a set's tokens may be 8 % more or 16 % fewer; other tokenizers differ)"
)
NOT_HERE = f"{BY_CHARACTERS}, and nothing is said of arithmetic, time, memory and adapters on disk: it is not here"
NO_TOKENIZER = f"{BY_CHARACTERS}: its tokenizer is not here"
STAND_INS = (
    "{}: not here; as many prompts as the suite declares, of texts of the declared average length (log-normal, standard"
    f" deviation {SPREAD} of the logarithm); beginnings are shared by chance only, so more is computed than of the data"
)
SHIPPED = "arithmetic and memory follow from the config shipped with oodles: the hub's is not here"
GAPS = 0.75  # what glibc's heap holds on to beside a training step's tensors: 0.6 to 0.8 of them, measured on a CPU
MOMENTS = {"adamw": 2, "adafactor": 0, "sgd": 0}  # numbers an optimiser keeps for each one that is trained

# bytes around the numbers, as this version writes them
RECORD_FILE, SCORE_LINE, RUN_FILES = 1150, 265, 3500
ADAPTER_CONFIG, ADAPTER_TENSOR = 1400, 130

Group = tuple[str, str, str, int]  # model, train set, pattern, shots


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a run takes, or several together."""

    steps: int  # of the optimiser
    evaluations: int  # step x test set that are scored
    taken_over: int  # beside these: scores of the untrained model that an earlier run has made
    prompts: int  # of the evaluations, like the tokens below
    prompt_tokens: int
    computed_tokens: int  # what goes through the model for them: a shared beginning counts once
    training_tokens: int  # padding left out
    arithmetic: float  # floating-point operations; nan if the model is not here
    seconds_low: float  # the arithmetic, at the higher utilisation
    seconds_high: float
    disk: int  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that a run holds at its peak."""

    process: int  # Python, packages and data; none on a GPU
    weights: int
    adapter: int  # with what the optimiser keeps
    batch: int  # activations, gradients and logits of the largest training batch, or of scoring

    @property
    def total(self) -> int:
        return self.process + self.weights + self.adapter + self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudget:
    """A run, what it takes and what it needs."""

    run: str
    group: Group
    cost: Cost  # of the whole run
    left: Cost  # of what is missing of it
    would: str  # what `oodles run` would do
    memory: Memory | None  # None if the model is not here
    on_gpu: Memory | None = None  # the same on a GPU; None also if the run is not in half precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """All runs of a study, and what the estimates rest on."""

    runs: tuple[RunBudget, ...]
    device: str
    gpus: tuple[Hours, ...]  # none if a run's arithmetic is not known, or not in half precision
    reported: float | None  # GPU-hours that the study itself is said to have taken
    rates: Mapping[str, float]  # model -> operations per second of its matrix products, timed here
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Runs that differ by their seeds only: what they take, one on average, and the most memory of any."""

    group: Group
    costs: tuple[Cost, ...]
    each: Cost
    memory: Memory | None


def total(costs: Iterable[Cost]) -> Cost:
    """Several runs together."""
    listed = list(costs)
    return Cost(**{f.name: sum(getattr(c, f.name) for c in listed) for f in fields(Cost)})


def rows(budget: Budget) -> list[Row]:
    """One row per model, train set, pattern and number of shots."""
    found = []
    for group in dict.fromkeys(run.group for run in budget.runs):
        runs = [run for run in budget.runs if run.group == group]
        memory = max((run.memory for run in runs if run.memory), key=lambda m: m.total, default=None)
        each = _share(total(run.cost for run in runs), len(runs))
        found.append(Row(group=group, costs=tuple(run.cost for run in runs), each=each, memory=memory))
    return found


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
    """Counts and estimates of every run of a study, and of what is left of it; done runs pass on their step 0.

    `would` says what is left (see `preview`); without it, all is.
    """
    planned = {one.run: one for one in would}
    models, notes = _look_up(grid, say)
    work = {one.spec.name: one for one in _work(grid, models, done, say)}
    process = resident_bytes() if device_name() == "cpu" else 0  # as in a run: packages and data are loaded
    memory: dict[str, tuple[Memory, Memory]] = {}
    for model, reader in models.items():
        say(f"a training step of {model.label}, without its weights")
        try:
            memory |= _memory(reader.footprint, [w for w in work.values() if w.spec.model == model], process)
        except RuntimeError as error:  # it asks its tensors for their content
            notes.append(f"{model.label}: no memory, the model cannot be gone through without weights ({error})")
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
    """Whether all runs of the study are there: none is filtered out."""
    study = grid.study
    parts = (study.models, study.train_sets, study.patterns or ("",), study.shots, study.seeds)
    draws = 1 if study.data_seeds == "seed" else len(study.data_seeds)
    return len(grid.jobs) == draws * math.prod(map(len, parts))


def _gpus(runs: Sequence[RunBudget]) -> tuple[Hours, ...]:
    loads = [Load(model=r.group[0], arithmetic=r.cost.arithmetic, memory=r.on_gpu.total) for r in runs if r.on_gpu]
    return tuple(hours_on(device, loads) for device in DEVICES) if len(loads) == len(runs) else ()


def _look_up(grid: Grid, say: Callable[[str], None]) -> tuple[dict[ModelSpec, Reader], list[str]]:
    """Tokenizer and footprint of every model, and what is to be said of those that are not here."""
    models: dict[ModelSpec, Reader] = {}
    notes = [STAND_INS.format(", ".join(names))] if (names := stand_ins_of(grid.suite)) else []
    alike: dict[str, list[str]] = {}  # note -> models
    by_characters: Sizes = {}  # which are the same for every model
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
    """A model without weights, and whether its config is the shipped one, the hub's being out of reach."""
    try:
        return outline_model(model), False
    except ModelError:
        config = shipped_config(model)
        if config is None:
            raise
        return outline_model(model, config), True


def _batch_tokens(spec: RunSpec, device: str) -> int:
    return spec.evaluation.batch_tokens or BATCH_TOKENS.get(device, BATCH_TOKENS_ELSEWHERE)


# one run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """A run in tokens."""

    spec: RunSpec
    shots: Candidates
    sets: Sizes
    taken: frozenset[tuple[str, str]]  # sets whose scores at step 0 another run has

    @property
    def group(self) -> Group:
        return self.spec.model.label, self.spec.train_set, self.spec.pattern.name, self.spec.shots

    @property
    def batch(self) -> tuple[int, int, int]:
        """The largest training batch: sequences, tokens of the longest, and positions at which the loss is taken."""
        longest = sorted(self.shots.examples, key=lambda e: -max(len(tokens) for tokens, _ in e["sequences"]))
        inputs = self.shots.collate(longest[: self.spec.recipe.batch_size])
        return *inputs["tokens"].shape, len(inputs["row"])


def _work(
    grid: Grid, models: Mapping[ModelSpec, Reader], done: Collection[str], say: Callable[[str], None]
) -> Iterator[Work]:
    """All runs in tokens, finished ones first; the first run of a model scores it untrained, the others take over."""
    rendered: dict[tuple[str, str], dict[tuple[str, str], PromptSet]] = {}
    donors: dict[ModelSpec, Sizes] = {}
    for job in sorted(grid.jobs, key=lambda job: job.spec.name not in done):
        spec, reader, key = job.spec, models[job.spec.model], (job.spec.pattern.name, sampled_alike(job.spec))
        say(f"counting tokens of {spec.name}")
        if key not in rendered:
            rendered[key] = _keyed(one.prompts for one in grid.test_sets(spec))
        own = _keyed([render(spec.pattern, job.draw.examples, SHOTS)] if spec.evaluation.shots else [])
        sizes = {at: reader.size(at, prompts) for at, prompts in (rendered[key] | own).items()}
        taken = frozenset(donors.setdefault(spec.model, {}).keys() & sizes.keys())
        donors[spec.model] = donors[spec.model] or sizes
        shots = reader.shots(render(spec.pattern, job.draw.examples, spec.train_set), spec)
        yield Work(spec=spec, shots=shots, sets=sizes, taken=taken)


def _keyed(sets: Iterable[PromptSet]) -> dict[tuple[str, str], PromptSet]:
    return {(prompts.name, prompts.hash): prompts for prompts in sets}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A run, or a part of it."""

    kept: Mapping[tuple[str, str], int]  # at how many steps each set is evaluated
    taken: frozenset[tuple[str, str]]  # and those among them whose scores at step 0 another run has
    steps: int  # that are trained
    adapters: int  # that are kept
    files: int  # bytes of what a run writes once


def _whole(work: Work) -> _Asked:
    points, steps = len(schedule_of(work.spec)), step_count(work.spec.shots, work.spec.recipe)
    return _Asked(
        kept=dict.fromkeys(work.sets, points), taken=work.taken, steps=steps, adapters=points, files=RUN_FILES
    )


def _rest(work: Work, would: Would | None) -> _Asked:
    """What `oodles run` would do of a run."""
    if would is None:
        return _whole(work)
    missing = Counter(name for _, name in would.missing)
    return _Asked(
        kept={key: missing[key[0]] for key in work.sets},
        taken=frozenset(key for key in work.sets if key[0] in would.taken),
        steps=would.steps,
        adapters=len(would.untrained),
        files=RUN_FILES * (would.action == "train"),
    )


def _cost(work: Work, footprint: Footprint | None, asked: _Asked) -> Cost:
    recipe = work.spec.recipe
    times = {key: n - (key in asked.taken) for key, n in asked.kept.items()}  # how often each set is computed
    seen = passes(work.spec.shots, recipe, asked.steps)
    computed = sum(work.sets[key].computed * n for key, n in times.items())
    sequences = [sequence for example in work.shots.examples for sequence in example["sequences"]]
    trained = seen * sum(len(tokens) for tokens, _ in sequences)
    answers = seen * sum(len(target) for _, target in sequences)
    arithmetic = footprint.scoring(computed) + footprint.training(trained, answers, recipe) if footprint else math.nan
    slow, fast = (arithmetic / footprint.rate / share if footprint else math.nan for share in UTILISATION)
    return Cost(
        steps=asked.steps,
        evaluations=sum(times.values()),
        taken_over=len(asked.taken),
        prompts=sum(work.sets[key].prompts * n for key, n in times.items()),
        prompt_tokens=sum(work.sets[key].tokens * n for key, n in times.items()),
        computed_tokens=computed,
        training_tokens=round(trained),
        arithmetic=arithmetic,
        seconds_low=fast,
        seconds_high=slow,
        disk=_disk(work, asked, footprint),
    )


def _disk(work: Work, asked: _Asked, footprint: Footprint | None) -> int:
    """Records of 4 bytes per score and 1 per example, adapters, and what is written around them."""
    evaluation = work.spec.evaluation
    records = sum(
        asked.kept[key] * (s.prompts * (4 * s.answers + 1) + RECORD_FILE + SCORE_LINE) for key, s in work.sets.items()
    )
    adapter = _adapter_file(footprint) if footprint else 0
    checkpoint = adapter * (1 + MOMENTS[work.spec.recipe.optimiser]) * (evaluation.keep_checkpoints and asked.steps > 0)
    return asked.files + records + asked.adapters * adapter * evaluation.keep_adapters + checkpoint


def _adapter_file(footprint: Footprint) -> int:
    return footprint.adapter_bytes + ADAPTER_TENSOR * footprint.adapter_tensors + ADAPTER_CONFIG


def _memory(footprint: Footprint | None, work: Sequence[Work], process: int) -> dict[str, tuple[Memory, Memory]]:
    """Of each run of a model, here and on a GPU.

    The largest batch goes through a training step; smaller ones are taken in proportion.
    """
    if footprint is None:
        return {}
    largest = max(work, key=lambda one: one.batch[0] * one.batch[1])
    recipe, shots = largest.spec.recipe, largest.shots
    training = plain = training_bytes(footprint, shots, largest.batch)
    if recipe.gradient_checkpointing:
        training = training_bytes(footprint, shots, largest.batch, checkpointing=True)
    batches = {size.batch for one in work for size in one.sets.values()}
    scoring = scoring_bytes(footprint, *max(batches, key=lambda batch: batch[0] * batch[1] ** 2))
    width = max(width for _, width in batches)
    there = scoring_bytes(footprint, max(1, _batch_tokens(largest.spec, "cuda") // width), width)
    here = training
    if device_name() == "cpu":  # the gaps are those of a plain step, with checkpointing too
        here += round(GAPS * plain)
        scoring *= torch.get_num_threads()  # a batch per core
    adapter = footprint.adapter_bytes * (1 + MOMENTS[recipe.optimiser])
    share = {one.spec.name: one.batch[0] * one.batch[1] / (largest.batch[0] * largest.batch[1]) for one in work}

    def held(process: int, batch: int) -> Memory:
        return Memory(process=process, weights=footprint.weights, adapter=adapter, batch=batch)

    return {
        name: (held(process, max(round(part * here), scoring)), held(0, max(round(part * training), there)))
        for name, part in share.items()
    }


# tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSize:
    """A rendered set as a model reads it."""

    prompts: int
    answers: int
    tokens: int
    computed: int  # a shared beginning counts once
    batch: tuple[int, int]  # rows of the largest batch, and their length


Sizes = dict[tuple[str, str], SetSize]  # by name and hash of the rendered set


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reader:
    """Counts tokens with a model's tokenizer, or by characters if the model is not here; every set once."""

    batch_tokens: int
    tokenizer: Any = None
    limit: int | None = None  # of tokens
    footprint: Footprint | None = None
    known: Sizes = field(default_factory=dict)

    def size(self, key: tuple[str, str], prompts: PromptSet) -> SetSize:
        if key not in self.known:
            self.known[key] = self._measure(prompts)
        return self.known[key]

    def _measure(self, prompts: PromptSet) -> SetSize:
        if self.tokenizer is None:  # characters share beginnings as tokens would
            each, sequences = CHARACTERS_PER_TOKEN, _characters(prompts)
            tokens = len(sequences.tokens)
        else:
            encoded = encode_once(self.tokenizer, prompts, self.limit)
            each, sequences, tokens = 1.0, sequences_of(encoded), len(encoded.tokens)
        packing = pack_rows(sequences, round(self.batch_tokens * each), row_tokens=round(ROW_TOKENS * each))
        batches = [(len(batch), math.ceil(batch[0].length / each)) for batch in packing.batches]
        return SetSize(
            prompts=len(prompts),
            answers=len(prompts.answers),
            tokens=round(tokens / each),
            computed=round(packing.tokens / each),
            batch=max(batches, key=lambda batch: batch[0] * batch[1] ** 2),
        )

    def shots(self, prompts: PromptSet, spec: RunSpec) -> Candidates:
        if self.tokenizer is not None:
            return encode_shots(self.tokenizer, prompts, spec.recipe, self.limit)
        lengths = [math.ceil(len(prompt.text) / CHARACTERS_PER_TOKEN) for prompt in prompts.prompts]
        return Candidates(examples=[{"sequences": [([0] * n, [0])], "gold": 0} for n in lengths])


def _characters(prompts: PromptSet) -> Sequences:
    texts = [prompt.text for prompt in prompts.prompts]
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.int32)
    return Sequences(tokens=codes, starts=np.cumsum([0, *map(len, texts)], dtype=np.int64), reads=1)


# what is shown


def describe_budget(budget: Budget, status: Mapping[str, str]) -> dict[str, Any]:
    """All of it as plain data; what is not known is None."""
    left = total(run.left for run in budget.runs)
    names = ("model", "train_set", "pattern", "shots")
    runs = [
        {"run": r.run, "status": status[r.run], "would": r.would, "left": _plain(r.left)}
        | dict(zip(names, r.group, strict=True))
        | _plain(r.cost, r.memory)
        | ({"memory_on_gpu": _plain_memory(r.on_gpu)} if r.on_gpu else {})
        for r in budget.runs
    ]
    groups = [
        {**dict(zip(names, r.group, strict=True)), "runs": len(r.costs), **_plain(r.each, r.memory)}
        for r in rows(budget)
    ]
    return {
        "estimates": ["arithmetic", "seconds_low", "seconds_high", "disk", "memory"],
        "utilisation": list(UTILISATION),
        "device": budget.device,
        "rates": dict(budget.rates),
        "gpus": [_plain_hours(hours) for hours in budget.gpus],
        "gpu_utilisation": list(ASSUMED),
        "reported_gpu_hours": budget.reported,
        "notes": list(budget.notes),
        "runs": runs,
        "per_run": groups,
        "total": _plain(total(run.cost for run in budget.runs)),
        "left": _plain(left),
    }


def _plain_hours(found: Hours) -> dict[str, Any]:
    times = {"gpu_hours": found.hours, "low": found.low, "high": found.high, "gpu_hours_fitting": found.fitting}
    return {**asdict(found.device), **times, "too_large": dict(found.too_large)}


def _plain(cost: Cost, memory: Memory | None = None) -> dict[str, Any]:
    told = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(cost).items()}
    return {**told, "memory": _plain_memory(memory)} if memory else told


def _plain_memory(memory: Memory) -> dict[str, int]:
    return {**asdict(memory), "total": memory.total}


def table_of_counts(budget: Budget) -> tuple[list[str], list[list[str]]]:
    """Columns and cells: what is counted, per run."""
    columns = ["runs", "steps", "evaluations", "prompts", "prompt tokens", "computed", "training tokens"]
    cells = []
    for row in rows(budget):
        names = ("steps", "evaluations", "prompts", "prompt_tokens", "computed_tokens", "training_tokens")
        cells.append([f"{len(row.costs):,}", *(_range([getattr(c, name) for c in row.costs]) for name in names)])
    return _with_groups(budget, columns, cells)


def table_of_estimates(budget: Budget) -> tuple[list[str], list[list[str]]]:
    """Columns and cells: what is estimated, per run."""
    columns = ["arithmetic", "time", "memory", "disk"]
    cells = [
        [
            in_units(row.each.arithmetic, "FLOP"),
            time_range(row.each),
            in_units(row.memory.total, "B") if row.memory else "-",
            in_units(row.each.disk, "B"),
        ]
        for row in rows(budget)
    ]
    return _with_groups(budget, columns, cells)


def table_of_gpus(budget: Budget) -> tuple[list[str], list[list[str]]]:
    """Columns and cells: hours of each kind of GPU, and what does not fit; no rows where nothing can be said."""
    columns = ["GPU", "memory", "rate", "GPU-hours", "range", "of runs that fit", "do not fit on one device"]
    runs = Counter(run.group[0] for run in budget.runs)
    cells = [
        [
            found.name,
            f"{found.device.memory / 2**30:.0f} GiB",
            f"{in_units(found.device.rate, 'FLOP')}/s",
            _rounded(found.hours),
            f"{_rounded(found.low)} to {_rounded(found.high)}",
            _rounded(found.fitting),
            ", ".join(model if n == runs[model] else f"{model} ({n} of {runs[model]} runs)" for model, n in misfits)
            or "-",
        ]
        for found in budget.gpus
        for misfits in [found.too_large.items()]
    ]
    return columns, cells


def _rounded(hours: float) -> str:
    """Two digits: it is an estimate.

    >>> _rounded(1234.5), _rounded(0.0123), _rounded(0)
    ('1,200', '0.012', '0')
    """
    return f"{float(f'{hours:.2g}'):,.{max(0, 1 - math.floor(math.log10(hours)))}f}" if hours > 0 else "0"


def gpu_lines(budget: Budget) -> list[str]:
    """What the hours of GPUs rest on, and how they compare with what the study is said to have taken."""
    if not budget.gpus:
        return []
    low, assumed, high = (round(100 * share) for share in ASSUMED)
    lines = [
        f"GPU-hours, an estimate: the arithmetic of all runs at {assumed} % (range: {high} to {low} %) of the rate the"
        " maker publishes for dense matrix products in half precision; loading and writing are not counted, and small"
        " models come to less",
        f"fits: weights, adapter, optimiser and the largest batch take at most {USABLE:.0%} of the memory; the hours of"
        " a run that does not fit are counted as if it did; a smaller train.batch_size with train.accumulate, or"
        " train.gradient_checkpointing, takes less memory",
    ]
    if budget.reported:
        shares = ", ".join(f"{found.hours / budget.reported:.1%} on {found.name}" for found in budget.gpus)
        lines.append(
            f"the study is said to have taken about {budget.reported:,.0f} GPU-hours; this estimate of its grid is"
            f" {shares}: arithmetic alone, with this file's recipe and evaluation points, which are not the study's"
        )
    return lines


def _with_groups(budget: Budget, columns: list[str], cells: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Which runs a row is about, put before its cells; the pattern only if there are several."""
    groups = [row.group for row in rows(budget)]
    shown = [0, 1, 3] if len({group[2] for group in groups}) == 1 else [0, 1, 2, 3]
    names = [("model", "train set", "pattern", "shots")[k] for k in shown]
    return names + columns, [[str(g[k]) for k in shown] + row for g, row in zip(groups, cells, strict=True)]


def _range(numbers: Sequence[int]) -> str:
    """What runs have, exactly.

    >>> _range([20, 15, 15]), _range([1200, 1200])
    ('15 to 20', '1,200')
    """
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def sum_lines(budget: Budget) -> list[str]:
    """The whole study in one line; and what is left of it, if some of it is there."""
    lines = [f"whole study: {_sum([run.cost for run in budget.runs])}"]
    left = [run.left for run in budget.runs if run.left.evaluations or run.left.taken_over or run.left.steps]
    return lines + ([f"left to run: {_sum(left)}"] if left != [run.cost for run in budget.runs] else [])


def _sum(runs: Sequence[Cost]) -> str:
    cost = total(runs)
    over = f" (and {cost.taken_over:,} of step 0 taken over from another run)" if cost.taken_over else ""
    return (
        f"{len(runs)} run{'s' * (len(runs) != 1)}, {cost.steps:,} steps, {cost.evaluations:,} evaluations{over},"
        f" {cost.computed_tokens + cost.training_tokens:,} tokens; estimates:"
        f" {in_units(cost.arithmetic, 'FLOP')}, {time_range(cost)}, {in_units(cost.disk, 'B')} on disk"
    )


def basis_lines(budget: Budget) -> list[str]:
    """What the estimates rest on."""
    low, high = (round(100 * share) for share in UTILISATION)
    timed = "; ".join(f"{label} {in_units(rate, 'FLOP')}/s" for label, rate in budget.rates.items())
    process = " and the process with its packages and data" if budget.device == "cpu" else ""
    lines = [
        f"time, an estimate: the arithmetic at {high} to {low} % of the rate at which matrix products of the model's"
        f" shapes were timed just now on this {budget.device} ({timed}); loading and writing are not counted",
        f"memory, an estimate of the peak: weights, adapter, optimiser, the largest batch{process}",
    ]
    return lines * bool(timed) + list(budget.notes)


def time_range(cost: Cost) -> str:
    if math.isnan(cost.arithmetic):
        return "-"
    return f"{duration(cost.seconds_low)} to {duration(cost.seconds_high)}"


def in_units(value: float, unit: str) -> str:
    """Three digits with the unit's prefix.

    >>> in_units(1_234_567, "B"), in_units(12.3e12, "FLOP"), in_units(512, "B")
    ('1.23 MB', '12.3 TFLOP', '512 B')
    """
    if math.isnan(value):
        return "-"
    power = min(6, max(0, math.floor(math.log10(value) / 3))) if value >= 1 else 0
    short = value / 1000**power
    digits = 0 if power == 0 or short >= 100 else 1 if short >= 10 else 2
    return f"{short:.{digits}f} {('', 'k', 'M', 'G', 'T', 'P', 'E')[power]}{unit}"

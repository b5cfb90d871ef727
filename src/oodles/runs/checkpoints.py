"""Score models that are already trained: one model, a folder of checkpoints, or the kept adapters of finished runs.

    oodles score --model smollm2-135m-q4 --suite mini --in-domain daily --out runs/scored
    oodles score --model org/base --checkpoints my-training/ --suite nli --in-domain snli --out runs/scored
    oodles score --runs runs/study --add-test-set hans

The result is an ordinary run folder, which `analyse` and `report` read. Committed scores are not computed again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodles.audit.audit import audit_data, stop_on_errors
from oodles.contracts import Evaluation, Lora, ModelSpec, Pattern, Precision, Suite
from oodles.disk import MANIFEST, damage_of, read_sealed, write_json
from oodles.errors import ConfigError, ModelError, StoreError, first_line, nearest, shown
from oodles.model.load import (
    attach_lora,
    free_memory,
    load_model,
    load_tokenizer,
    offloaded,
    placed,
    precision_of,
    resolve_model,
)
from oodles.names import as_name, check_name
from oodles.runs.evaluate import StepEvaluator
from oodles.runs.events import Listener, show_on
from oodles.runs.progress import Progress
from oodles.runs.ranks import ALONE, Ranks
from oodles.shapes import RUN_JSON, misfit
from oodles.store.claim import check_folder, claim_folder, unclaim_folder
from oodles.store.damage import check_adapter, mend_scores
from oodles.store.environment import environment
from oodles.store.folder import RunFolder, StudyFolder, log_line, run_folders
from oodles.store.locks import holding
from oodles.store.members import check_members, keep_members
from oodles.store.outcome import fail_run, finish_run
from oodles.store.scores import read_scores
from oodles.store.spec import StoredSpec, check_identity, read_spec, write_spec
from oodles.suite.load import pattern_of
from oodles.suite.render import Rendered, Renderer, characters, check_slices, render_sets
from oodles.trouble import staying

if TYPE_CHECKING:
    import torch

SCORES = "scores"  # name of the study in a folder of scored models
CONFIGS = ("adapter_config.json", "config.json")  # config files of an adapter and of a model
STEP = re.compile(r"(?:checkpoint|step)[-_]?(\d+)$|^(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model at a step: an adapter, a whole model, or the base model itself."""

    step: int
    path: Path | None = None

    @classmethod
    def at(cls, path: Path) -> Checkpoint:
        """Return a single adapter or model folder as a checkpoint; its step is in its name, or 0."""
        if not any((path / name).is_file() for name in CONFIGS):
            raise ModelError(f"{path}: no {' and no '.join(CONFIGS)}; expected an adapter's folder")
        match = STEP.search(path.resolve().name)
        return cls(step=int(match[1] or match[2]) if match else 0, path=path)

    @property
    def is_adapter(self) -> bool:
        return self.path is not None and (self.path / CONFIGS[0]).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringJob:
    """A scoring task: a model at its checkpoints, rendered test sets, and the folder of a run."""

    folder: RunFolder
    model: ModelSpec
    precision: Precision
    checkpoints: Sequence[Checkpoint]
    rendered: Sequence[Rendered]
    in_domain: str
    evaluation: Evaluation
    spread: bool = False  # over all devices of this process

    def missing(self) -> list[tuple[Checkpoint, list[Rendered]]]:
        """Return the sets that are not committed yet, by checkpoint."""
        committed = {score.key for score in read_scores(self.folder)}
        todo = [
            (c, [r for r in self.rendered if (c.step, r.prompts.name, r.hash) not in committed])
            for c in self.checkpoints
        ]
        return [(checkpoint, sets) for checkpoint, sets in todo if sets]

    def characters(self) -> float:
        """Return the size of the missing sets in characters."""
        return sum(characters(test_set.prompts) for _, sets in self.missing() for test_set in sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The result of scoring: new evaluations, evaluations that existed before, and checkpoints that failed."""

    out: Path
    run: str
    done: int
    skipped: int
    broken: tuple[tuple[int, str], ...] = ()  # step and reason


def find_checkpoints(folder: Path, say: Callable[[str], None] = lambda _: None) -> tuple[Checkpoint, ...]:
    """Return the checkpoints in a folder by step: `checkpoint-N`, `step-N` or `N`; report those without a model."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; expected one with checkpoint-N or step-N folders")
    checkpoints: dict[int, Checkpoint] = {}
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        match = STEP.search(path.name)
        if match is None:
            continue
        if not any((path / name).is_file() for name in CONFIGS):
            say(f"note: {path}: left out, it has no {' and no '.join(CONFIGS)}")
            continue
        step = int(match[1] or match[2])
        if step in checkpoints:
            raise ModelError(f"{folder}: {checkpoints[step].path} and {path} are both step {step}; keep one of them")
        checkpoints[step] = Checkpoint(step=step, path=path)
    if not checkpoints:
        raise ModelError(f"{folder}: no checkpoint-N or step-N folder with an adapter or a model in it")
    return tuple(checkpoints[step] for step in sorted(checkpoints))


def base_of(checkpoint: Checkpoint) -> str:
    """Return the base model that an adapter names."""
    name = _adapter_config(Path(str(checkpoint.path))).get("base_model_name_or_path")
    if not name:
        raise ModelError(f"{checkpoint.path}: the adapter names no base model; say which with --model")
    return str(name)


def _adapter_config(folder: Path) -> dict[str, Any]:
    """Read the config of an adapter; refuse it if PEFT could not determine its kind."""
    from peft import PeftType

    file, advice = folder / CONFIGS[0], "restore the file, or remove the adapter's folder"
    try:
        config = read_sealed(file, advice=advice)
    except StoreError as error:
        raise ModelError(str(error)) from None
    if problem := misfit(config, RUN_JSON[CONFIGS[0]]):
        raise ModelError(f"{file}: {problem}; {advice}")
    kind, kinds = config.get("peft_type"), [member.value for member in PeftType]
    if kind not in kinds:
        statement = "has no peft_type" if kind is None else f"peft_type is {shown(kind)}"
        raise ModelError(f"{file}: {statement}; expected the kind of adapter, such as LORA; {advice}")
    return config


def score_model(
    suite: Suite,
    out: Path,
    *,
    model: str = "",
    checkpoints: Sequence[Checkpoint] = (Checkpoint(step=0),),
    run: str | None = None,
    in_domain: str = "",
    pattern: str = "",
    evaluation: Evaluation | None = None,
    precision: Precision = "auto",
    allow: Sequence[str] = (),
    spread: bool = False,
) -> Scored:
    """Score a suite with a model at one or several steps, into the run folder `<out>/runs/<run>`."""
    evaluation = _with_in_domain(evaluation or Evaluation(), in_domain)
    if run is not None:
        check_name(run, "oodles score: --run")
    if not model and not checkpoints[0].is_adapter:
        raise ConfigError("oodles score: which model? give --model, or checkpoints whose adapters name their base")
    spec = resolve_model(model or base_of(checkpoints[0]))
    precision = precision_of(spec, precision)
    if in_domain and in_domain not in suite.test_sets:
        raise ConfigError(
            f"--in-domain is '{in_domain}', expected a whole test set; {nearest(in_domain, suite.test_sets)}"
        )
    check_slices(suite, evaluation.test_sets)
    stop_on_errors(audit_data(suite, evaluation.test_sets), allow)
    used = pattern_of(suite, pattern)
    rendered = render_sets(suite, used, in_domain, evaluation)
    check_members(StudyFolder(out), [r.members for r in rendered])
    name = run or as_name("_".join(filter(None, [spec.label, in_domain, _label(checkpoints)])))
    study = StudyFolder(out)
    folder = study.run(name)
    scoring = ScoringJob(
        folder=folder,
        model=spec,
        precision=precision,
        checkpoints=checkpoints,
        rendered=rendered,
        in_domain=in_domain,
        evaluation=evaluation,
        spread=spread,
    )
    check_folder(study, SCORES, suite.name)  # before anything is written, including a lock
    with _no_new_folders(study), holding(folder.lock), staying(out), _left_as_it_was(folder):
        with study.locked():
            claim_folder(study, SCORES, suite.name, suite_file=suite.file)
        for lost in mend_scores(folder):
            log_line(folder, lost)
        _begin(scoring, suite, used)
        with study.locked():
            keep_members(study, [r.members for r in rendered], evaluation.test_sets)
        with Progress(scoring.characters(), folder.name) as progress:
            scored = score_missing(scoring, show_on(progress))
        _finish(folder, scored)
    return scored


def _with_in_domain(evaluation: Evaluation, in_domain: str) -> Evaluation:
    """Add the in-domain set to the chosen sets, because the others are compared with it."""
    if not in_domain or not evaluation.test_sets or in_domain in evaluation.test_sets:
        return evaluation
    return replace(evaluation, test_sets=(in_domain, *evaluation.test_sets))


def _finish(folder: RunFolder, scored: Scored) -> None:
    """Mark a run as done if it has scores, or as failed if no checkpoint could be scored."""
    steps = [score.step for score in read_scores(folder)]
    if steps:
        folder.failed.unlink(missing_ok=True)
        finish_run(folder, max(steps))
    elif scored.broken:
        step, reason = scored.broken[-1]
        fail_run(folder, f"step {step}: {reason}")


@contextmanager
def _left_as_it_was(folder: RunFolder) -> Iterator[None]:
    """Remove a new run, and its claim on the folder, if the call fails before any score is committed."""
    fresh = not folder.path.exists()
    try:
        yield
    except BaseException:
        if fresh and not read_scores(folder):
            with folder.study.locked():
                shutil.rmtree(folder.path, ignore_errors=True)
                unclaim_folder(folder)
        raise


@contextmanager
def _no_new_folders(study: StudyFolder) -> Iterator[None]:
    """Remove new empty folders if a call is refused: outermost last, after its lock is released."""
    fresh = [path for path in (study.locks, study.path, *study.path.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # keeps files that other processes have started to write
            for path in fresh:
                path.rmdir()
        raise


def add_test_sets(
    root: Path,
    suite: Suite,
    names: Sequence[str],
    *,
    limit: int | None = None,
    batch_tokens: int | None = None,
    spread: bool = False,
) -> tuple[Scored, ...]:
    """Score more test sets for the finished runs of a study, from their kept adapters."""
    check_slices(suite, tuple(names))
    stop_on_errors(audit_data(suite, tuple(names)), ())
    check_identity(StudyFolder(root))
    folders = [f for f in run_folders(root) if f.status == "done"]
    if not folders:
        raise StoreError(f"{root}: no finished run; `oodles status {root}` shows what is there")
    runs = [_kept(folder) for folder in folders]  # missing adapters are an error before anything is scored
    renderer, scored = Renderer(suite), []
    for folder, (spec, checkpoints) in zip(folders, runs, strict=True):
        with holding(folder.lock), staying(root):
            evaluation = _evaluation_of(spec, names, limit, batch_tokens)
            rendered = renderer.sets(spec.pattern, spec.train_set, evaluation)
            with folder.study.locked():
                keep_members(folder.study, [r.members for r in rendered], names)
            scoring = ScoringJob(
                folder=folder,
                model=spec.model,
                precision=(spec.recipe or {}).get("precision", "fp32"),
                checkpoints=checkpoints,
                rendered=rendered,
                in_domain=spec.train_set,
                evaluation=evaluation,
                spread=spread,
            )
            with Progress(scoring.characters(), folder.name) as progress:
                scored.append(score_missing(scoring, show_on(progress)))
    return tuple(scored)


def _evaluation_of(spec: StoredSpec, names: Sequence[str], limit: int | None, batch_tokens: int | None) -> Evaluation:
    """Evaluate further sets like the run's own sets, unless options are given."""
    stored = spec.evaluation or {}
    at_most = limit if limit is not None else stored.get("limit")
    return Evaluation(test_sets=tuple(names), limit=at_most, batch_tokens=batch_tokens or stored.get("batch_tokens"))


def _kept(folder: RunFolder) -> tuple[StoredSpec, tuple[Checkpoint, ...]]:
    """Return the spec and the adapters of a finished run."""
    spec = read_spec(folder)
    if spec.run_id is None:
        raise StoreError(f"{folder.path}: not made by `oodles run`, so its base model is not known here")
    if str(spec.pattern.text).startswith("function "):
        raise ConfigError(f"{folder.path}: its pattern is a Python {spec.pattern.text}; score it from Python")
    steps = sorted({score.step for score in read_scores(folder)})
    missing = [step for step in steps if not folder.adapter(step).is_dir()]
    if missing:
        raise StoreError(
            f"{folder.path}: the adapter of step {missing[0]} was not kept (keep_adapters), so no set can be added"
        )
    checkpoints = tuple(Checkpoint(step=step, path=folder.adapter(step)) for step in steps)
    for step in steps:
        check_adapter(folder.adapter(step))
    model = spec.model
    if (model.revision or "").startswith("folder:") and resolve_model(model.source).revision != model.revision:
        raise ModelError(f"{model.source}: holds other weights than run {folder.name} was trained from")
    return spec, checkpoints


def _label(checkpoints: Sequence[Checkpoint]) -> str:
    """Return a label that distinguishes runs of one base model: the folder of the checkpoints, or of the adapter."""
    path = checkpoints[0].path
    if path is None:
        return ""
    return as_name(path.resolve().parent.name if len(checkpoints) > 1 else path.resolve().name)


def _begin(scoring: ScoringJob, suite: Suite, pattern: Pattern) -> None:
    """Write the run's spec; refuse a run with this name that used another model, precision or pattern."""
    folder = scoring.folder
    spec = StoredSpec(
        name=folder.name,
        suite=suite.name,
        model=scoring.model,
        checkpoints={str(c.step): str(c.path) if c.path else None for c in scoring.checkpoints},
        precision=scoring.precision,
        train_set=scoring.in_domain,
        pattern=pattern,
        evaluation=asdict(scoring.evaluation),
    )
    if folder.spec.is_file() and read_scores(folder):
        spec = _continued(folder, spec)
    write_json(folder.env, environment())
    write_spec(folder, spec)


def _continued(folder: RunFolder, spec: StoredSpec) -> StoredSpec:
    """Add earlier scored checkpoints to the spec; the settings that determine the scores must be equal."""
    stored = read_spec(folder)
    now, before = spec.as_json(), stored.as_json()
    for key in ("model", "precision", "pattern", "train_set"):
        if before.get(key, now[key]) != now[key]:
            raise StoreError(f"{folder.path}: was scored with another {key}; choose another --run or --out")
    return replace(spec, checkpoints={**(stored.checkpoints or {}), **(spec.checkpoints or {})})


def score_missing(scoring: ScoringJob, listener: Listener, ranks: Ranks = ALONE, lora: Lora | None = None) -> Scored:
    """Score the missing sets. Each evaluation is committed separately, so a kill loses only the current one.

    A checkpoint that cannot be loaded or scored does not stop the others. A model that several processes shard needs
    to know its adapters' `lora`.
    """
    folder, todo = scoring.folder, ranks.from_first(scoring.missing)
    scored = Scored(
        out=folder.study.path,
        run=folder.name,
        done=0,
        skipped=len(scoring.checkpoints) * len(scoring.rendered) - sum(len(sets) for _, sets in todo),
    )
    if not todo:
        return scored
    names = {test_set.prompts.name for _, sets in todo for test_set in sets}
    evaluator = StepEvaluator(
        folder,
        [test_set for test_set in scoring.rendered if test_set.prompts.name in names],
        in_domain=scoring.in_domain,
        evaluation=scoring.evaluation,
        tokenizer=load_tokenizer(scoring.model),
        listener=listener,
        ranks=ranks,
    )
    evaluator.recall()
    broken = []
    sharded = lora is not None and ranks.splits_weights
    with _sharded(scoring, ranks, lora or Lora()) if sharded else _loaded(scoring) as load:
        for checkpoint, _ in todo:
            evaluator.tell(doing=f"{folder.name} step {checkpoint.step}")
            try:
                _score(evaluator, load, checkpoint, scoring.checkpoints[-1].step)
            except ModelError as error:
                if len(scoring.checkpoints) == 1 or not ranks.alone:
                    raise
                broken.append((checkpoint.step, str(error)))
                evaluator.log(f"step {checkpoint.step} failed: {error}")
    return replace(scored, done=evaluator.scored, broken=tuple(broken))


def _score(
    evaluator: StepEvaluator, load: Callable[[Checkpoint], torch.nn.Module], checkpoint: Checkpoint, last: int
) -> None:
    """Score a checkpoint; its model is released before the next one is loaded."""
    model = load(checkpoint)
    evaluator.prepare(model)
    evaluator.at(model, checkpoint.step, last=last)


@contextmanager
def _loaded(scoring: ScoringJob) -> Iterator[Callable[[Checkpoint], torch.nn.Module]]:
    """Yield a function that returns the model at a checkpoint; the base is loaded once, and adapters are swapped.

    Only one model is in memory at a time: the current one is released before another is loaded.
    """
    state: dict[str, Any] = {}
    model, precision = scoring.model, scoring.precision

    def load_alone(spec: ModelSpec) -> torch.nn.Module:
        state.clear()
        free_memory()
        if not scoring.spread:
            return load_model(spec, precision)
        spread = load_model(spec, precision, "auto")
        log_line(scoring.folder, f"device_map auto: {placed(spread)}")
        return spread

    def load(checkpoint: Checkpoint) -> torch.nn.Module:
        if checkpoint.path is not None and not checkpoint.is_adapter:
            return load_alone(replace(resolve_model(str(checkpoint.path)), label=model.label))
        if "base" not in state:
            state["base"] = load_alone(model)
        if checkpoint.path is None:
            return state["base"]
        problem = damage_of(checkpoint.path) if (checkpoint.path / MANIFEST).is_file() else ""
        if problem:
            raise ModelError(f"{checkpoint.path}: the adapter is damaged: {problem}; restore or remove it")
        if scoring.spread and (away := offloaded(state["base"])):
            raise ModelError(
                f"{model.label} does not fit the devices: device_map auto leaves {away} of its modules to main memory"
                ' or to the disk, where adapters cannot follow; use more devices, or engine = "fsdp2"'
            )
        try:
            state["peft"] = _with_adapter(state.get("peft"), state["base"], checkpoint)
        except ModelError:
            state.clear()  # a broken adapter may have changed the model
            raise
        return state["peft"]

    yield load
    state.clear()


@contextmanager
def _sharded(scoring: ScoringJob, ranks: Ranks, lora: Lora) -> Iterator[Callable[[Checkpoint], torch.nn.Module]]:
    """Like `_loaded`, for adapters of one shape and a base model that the processes share."""
    from safetensors.torch import load_file

    from oodles.runs.engines import load_adapter, release_model, share_model

    base = load_model(scoring.model, scoring.precision, "cpu" if ranks.is_first else "meta")
    model = attach_lora(base, lora, 0, scoring.model)
    log = share_model(model, ranks)
    if ranks.is_first:
        log_line(scoring.folder, log)

    def load(checkpoint: Checkpoint) -> torch.nn.Module:
        file = Path(str(checkpoint.path)) / "adapter_model.safetensors"
        load_adapter(model, ranks.from_first(lambda: load_file(file)), ranks)
        return model

    yield load
    release_model(model)


def _with_adapter(adapted: Any, base: Any, checkpoint: Checkpoint) -> Any:
    """Return the base model with only this adapter."""
    from peft import PeftModel

    name = f"step{checkpoint.step}"
    _adapter_config(Path(str(checkpoint.path)))
    if not (Path(str(checkpoint.path)) / "adapter_model.safetensors").is_file():
        raise ModelError(
            f"{checkpoint.path}: no adapter_model.safetensors; pickled adapters are not loaded, convert it"
        )
    try:
        if adapted is None:
            return PeftModel.from_pretrained(base, checkpoint.path, adapter_name=name)
        earlier = list(adapted.peft_config)
        adapted.load_adapter(checkpoint.path, adapter_name=name)
        adapted.set_adapter(name)
        for old in earlier:
            adapted.delete_adapter(old)
    except Exception as error:  # PEFT, torch and safetensors raise many kinds of errors
        raise ModelError(
            f"{checkpoint.path}: the adapter is damaged or does not fit the model ({type(error).__name__}:"
            f" {first_line(error)}); restore or remove it"
        ) from None
    return adapted

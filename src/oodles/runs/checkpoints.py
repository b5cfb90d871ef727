"""Score models that are already trained: one model, a folder of checkpoints, or the kept adapters of finished runs.

    oodles score --model smollm2-135m-q4 --suite mini --in-domain daily --out runs/scored
    oodles score --model org/base --checkpoints my-training/ --suite nli --in-domain snli --out runs/scored
    oodles score --runs runs/study --add-test-set hans

What is written is an ordinary run folder: `analyse` and `report` read it. What is there already is not scored again.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodles.audit.audit import audit_data, stop_on_errors
from oodles.contracts import Evaluation, ModelSpec, Pattern, Precision, PromptSet, Suite, describe_text, role_of
from oodles.disk import MANIFEST, damage_of, read_sealed, write_json
from oodles.errors import ConfigError, ModelError, StoreError, first_line, nearest, shown
from oodles.model.forward import Plan
from oodles.model.load import free_memory, load_model, load_tokenizer, precision_of, resolve_model
from oodles.model.scoring import predict, prepare_all
from oodles.model.shortcuts import signature
from oodles.names import as_name, check_name
from oodles.runs.events import Event, Listener, show_on
from oodles.runs.monitor import evaluation_line
from oodles.runs.progress import Progress
from oodles.store.environment import environment
from oodles.store.folder import (
    STORE_SCHEMA,
    RunFolder,
    check_adapter,
    check_folder,
    check_identity,
    check_members,
    claim_folder,
    commit,
    keep_members,
    log_line,
    mend_scores,
    read_scores,
    read_spec,
    run_folders,
    write_spec,
)
from oodles.store.locks import held_briefly, holding
from oodles.suite.load import pattern_of
from oodles.suite.render import Rendered, characters, check_slices, render_sets
from oodles.trouble import staying

if TYPE_CHECKING:
    import torch

SCORES = "scores"  # the study that a folder of scored models belongs to
CONFIGS = ("adapter_config.json", "config.json")  # of an adapter, of a model
STEP = re.compile(r"(?:checkpoint|step)[-_]?(\d+)$|^(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model at a step: an adapter, a whole model, or the base model itself."""

    step: int
    path: Path | None = None

    @classmethod
    def at(cls, path: Path) -> Checkpoint:
        """A single adapter or model folder; its step is in its name, or 0."""
        if not any((path / name).is_file() for name in CONFIGS):
            raise ModelError(f"{path}: no {' and no '.join(CONFIGS)}; expected an adapter's folder")
        match = STEP.search(path.resolve().name)
        return cls(step=int(match[1] or match[2]) if match else 0, path=path)

    @property
    def is_adapter(self) -> bool:
        return self.path is not None and (self.path / CONFIGS[0]).is_file()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What was done: evaluations scored now, those that were there before, and checkpoints that could not be scored."""

    out: Path
    run: str
    done: int
    skipped: int
    broken: tuple[tuple[int, str], ...] = ()  # step and reason


def find_checkpoints(folder: Path, say: Callable[[str], None] = lambda _: None) -> tuple[Checkpoint, ...]:
    """The checkpoints below a folder, by step: `checkpoint-N`, `step-N` or `N`; those without a model are told."""
    if not folder.is_dir():
        raise ModelError(f"{folder}: no such folder; expected one with checkpoint-N or step-N folders")
    found: dict[int, Checkpoint] = {}
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        match = STEP.search(path.name)
        if match is None:
            continue
        if not any((path / name).is_file() for name in CONFIGS):
            say(f"note: {path}: left out, it has no {' and no '.join(CONFIGS)}")
            continue
        step = int(match[1] or match[2])
        if step in found:
            raise ModelError(f"{folder}: {found[step].path} and {path} are both step {step}; keep one of them")
        found[step] = Checkpoint(step=step, path=path)
    if not found:
        raise ModelError(f"{folder}: no checkpoint-N or step-N folder with an adapter or a model in it")
    return tuple(found[step] for step in sorted(found))


def base_of(checkpoint: Checkpoint) -> str:
    """The base model that an adapter names."""
    name = _adapter_config(Path(str(checkpoint.path))).get("base_model_name_or_path")
    if not name:
        raise ModelError(f"{checkpoint.path}: the adapter names no base model; say which with --model")
    return str(name)


def _adapter_config(folder: Path) -> dict[str, Any]:
    """What an adapter says of itself; refused if PEFT could not tell its kind."""
    from peft import PeftType

    file, advice = folder / CONFIGS[0], "restore the file, or remove the adapter's folder"
    try:
        held = read_sealed(file, advice=advice)
    except StoreError as error:
        raise ModelError(str(error)) from None
    kind, known = held.get("peft_type"), [one.value for one in PeftType]
    if kind not in known:
        found = "has no peft_type" if kind is None else f"peft_type is {shown(kind)}"
        raise ModelError(f"{file}: {found}; expected the kind of adapter, such as LORA; {advice}")
    return held


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
    check_members(out, [r.members for r in rendered])
    name = run or as_name("_".join(filter(None, [spec.label, in_domain, _label(checkpoints)])))
    folder = RunFolder(out / "runs" / name)
    check_folder(out, SCORES, suite.name)  # before anything is written, a lock included
    with _no_new_folders(out), holding(folder.lock), staying(out), _left_as_it_was(folder):
        with held_briefly(out / ".study.lock"):
            claim_folder(out, SCORES, suite.name, suite_file=suite.file)
        for lost in mend_scores(folder):
            log_line(folder, lost)
        _begin(folder, spec, suite, used, in_domain, evaluation, checkpoints, precision)
        with held_briefly(out / ".study.lock"):
            keep_members(folder, [r.members for r in rendered], evaluation.test_sets)
        with Progress(_work(folder, checkpoints, rendered), folder.name) as progress:
            found = score_missing(
                folder, spec, checkpoints, rendered, in_domain, evaluation, precision, show_on(progress)
            )
        _finish(folder, found)
    return found


def _with_in_domain(evaluation: Evaluation, in_domain: str) -> Evaluation:
    """The in-domain set is scored whatever else is chosen: the others are compared with it."""
    if not in_domain or not evaluation.test_sets or in_domain in evaluation.test_sets:
        return evaluation
    return replace(evaluation, test_sets=(in_domain, *evaluation.test_sets))


def _finish(folder: RunFolder, found: Scored) -> None:
    """A run is done if it has scores; if no checkpoint could be scored it has failed."""
    steps = [line["step"] for line in read_scores(folder)]
    if steps:
        folder.failed.unlink(missing_ok=True)
        write_json(folder.done, {"schema": STORE_SCHEMA, "last_step": max(steps)})
    elif found.broken:
        step, reason = found.broken[-1]
        write_json(folder.failed, {"reason": f"step {step}: {reason}", "log": folder.log.name})


@contextmanager
def _left_as_it_was(folder: RunFolder) -> Iterator[None]:
    """A call that ends before anything is committed leaves no run, and no folder that belongs to its suite."""
    fresh = not folder.path.exists()
    try:
        yield
    except BaseException:
        if fresh and not read_scores(folder):
            with held_briefly(folder.root / ".study.lock"):
                shutil.rmtree(folder.path, ignore_errors=True)
                _unclaim(folder)
        raise


@contextmanager
def _no_new_folders(out: Path) -> Iterator[None]:
    """A call that is refused leaves no empty folder: the outermost last, once the lock in it is given back."""
    fresh = [path for path in (out / "locks", out, *out.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # what others have begun to write there stays
            for path in fresh:
                path.rmdir()
        raise


def _unclaim(folder: RunFolder) -> None:
    """Make the study's folder anybody's again, if nobody else has begun a run in it."""
    root = folder.root
    if any((root / "runs").glob("*")) or any(p != folder.lock for p in (root / "locks").glob("*.json")):
        return
    for path in (root / "runs", root / "sets"):
        shutil.rmtree(path, ignore_errors=True)
    (root / "study.json").unlink(missing_ok=True)


def add_test_sets(
    root: Path, suite: Suite, names: Sequence[str], *, limit: int | None = None, batch_tokens: int | None = None
) -> tuple[Scored, ...]:
    """Score further test sets for the finished runs of a study, from the adapters they kept."""
    check_slices(suite, tuple(names))
    stop_on_errors(audit_data(suite, tuple(names)), ())
    check_identity(root)
    folders = [f for f in run_folders(root) if f.status == "done"]
    if not folders:
        raise StoreError(f"{root}: no finished run; `oodles status {root}` shows what is there")
    jobs = [_kept(folder) for folder in folders]  # what is missing is an error before anything is scored
    scored = []
    for folder, (spec, pattern, checkpoints) in zip(folders, jobs, strict=True):
        with holding(folder.lock), staying(root):
            told = read_spec(folder)
            held = told.get("evaluation") or {}
            at_most = limit if limit is not None else held.get("limit")
            evaluation = Evaluation(
                test_sets=tuple(names), limit=at_most, batch_tokens=batch_tokens or held.get("batch_tokens")
            )
            rendered = render_sets(suite, pattern, told["train_set"], evaluation)
            with held_briefly(root / ".study.lock"):
                keep_members(folder, [r.members for r in rendered], names)
            precision = (told.get("recipe") or {}).get("precision", "fp32")
            with Progress(_work(folder, checkpoints, rendered), folder.name) as progress:
                found = score_missing(
                    folder, spec, checkpoints, rendered, told["train_set"], evaluation, precision, show_on(progress)
                )
            scored.append(found)
    return tuple(scored)


def _kept(folder: RunFolder) -> tuple[ModelSpec, Pattern, tuple[Checkpoint, ...]]:
    """Model, pattern and adapters of a finished run."""
    told = read_spec(folder)
    if told.get("run_id") is None:
        raise StoreError(f"{folder.path}: not made by `oodles run`, so its base model is not known here")
    held = told["pattern"]
    if held.get("text", "").startswith("function "):
        raise ConfigError(f"{folder.path}: its pattern is a Python {held['text']}; score it from Python")
    try:
        pattern = Pattern(**{**held, "answers": tuple(held.get("answers", ()))})
        spec = ModelSpec(**told["model"])
    except TypeError as error:
        raise StoreError(f"{folder.spec}: damaged ({first_line(error)}); no set can be added to this run") from None
    steps = sorted({line["step"] for line in read_scores(folder)})
    missing = [step for step in steps if not folder.adapter(step).is_dir()]
    if missing:
        raise StoreError(
            f"{folder.path}: the adapter of step {missing[0]} was not kept (keep_adapters), so no set can be added"
        )
    checkpoints = tuple(Checkpoint(step=step, path=folder.adapter(step)) for step in steps)
    for step in steps:
        check_adapter(folder.adapter(step))
    if (spec.revision or "").startswith("folder:") and resolve_model(spec.source).revision != spec.revision:
        raise ModelError(f"{spec.source}: holds other weights than run {folder.name} was trained from")
    return spec, pattern, checkpoints


def _label(checkpoints: Sequence[Checkpoint]) -> str:
    """What tells runs of one base model apart: the folder of the checkpoints, or the adapter's own."""
    path = checkpoints[0].path
    if path is None:
        return ""
    return as_name(path.resolve().parent.name if len(checkpoints) > 1 else path.resolve().name)


def _begin(
    folder: RunFolder,
    model: ModelSpec,
    suite: Suite,
    pattern: Pattern,
    in_domain: str,
    evaluation: Evaluation,
    checkpoints: Sequence[Checkpoint],
    precision: Precision,
) -> None:
    """The run's spec; a run of this name that was scored with another model, precision or pattern is refused."""
    spec: dict[str, Any] = {
        "schema": STORE_SCHEMA,
        "run_id": None,  # trained elsewhere: what decided it is not known here
        "name": folder.name,
        "suite": suite.name,
        "model": {"label": model.label, "source": model.source, "revision": model.revision},
        "checkpoints": {str(c.step): str(c.path) if c.path else None for c in checkpoints},
        "precision": precision,
        "train_set": in_domain,
        "pattern": {"name": pattern.name, "text": describe_text(pattern.text), "answers": list(pattern.answers)},
        "shots": None,
        "seed": None,
        "data_seed": None,
        "evaluation": asdict(evaluation),
    }
    if folder.spec.is_file() and read_scores(folder):
        held = read_spec(folder)
        for key in ("model", "precision", "pattern", "train_set"):
            if held.get(key, spec[key]) != spec[key]:
                raise StoreError(f"{folder.path}: was scored with another {key}; choose another --run or --out")
        spec["checkpoints"] = {**held.get("checkpoints", {}), **spec["checkpoints"]}
    write_json(folder.env, environment())
    write_spec(folder, spec)


def _work(folder: RunFolder, checkpoints: Sequence[Checkpoint], rendered: Sequence[Rendered]) -> float:
    todo = _todo(folder, checkpoints, [r.prompts for r in rendered])
    return sum(characters(prompts) for _, missing in todo for prompts in missing)


def _todo(
    folder: RunFolder, checkpoints: Sequence[Checkpoint], sets: Sequence[PromptSet]
) -> list[tuple[Checkpoint, list[PromptSet]]]:
    """The sets that are not committed yet, by checkpoint."""
    held = {(line["step"], line["test_set"], line["prompts"]) for line in read_scores(folder)}
    hashes = {prompts.name: prompts.hash for prompts in sets}
    todo = [(c, [p for p in sets if (c.step, p.name, hashes[p.name]) not in held]) for c in checkpoints]
    return [(checkpoint, missing) for checkpoint, missing in todo if missing]


def score_missing(
    folder: RunFolder,
    model: ModelSpec,
    checkpoints: Sequence[Checkpoint],
    rendered: Sequence[Rendered],
    in_domain: str,
    evaluation: Evaluation,
    precision: Precision,
    listen: Listener,
) -> Scored:
    """Score what is missing; one evaluation is committed at a time, so a kill loses at most the one in hand.

    A checkpoint that cannot be loaded or scored does not stop the others.
    """
    sets = [r.prompts for r in rendered]
    todo = _todo(folder, checkpoints, sets)
    skipped = len(checkpoints) * len(sets) - sum(len(missing) for _, missing in todo)
    if not todo:
        return Scored(out=folder.root, run=folder.name, done=0, skipped=skipped)
    names = {prompts.name for _, missing in todo for prompts in missing}
    plans = _Plans(load_tokenizer(model), [p for p in sets if p.name in names], evaluation.batch_tokens)
    done, broken = 0, []
    with _loaded(model, precision) as load:
        for checkpoint, missing in todo:
            listen(Event(doing=f"{folder.name} step {checkpoint.step}"))
            started, values = time.monotonic(), {}
            try:
                network = load(checkpoint)
                for name, metrics in _score_step(folder, network, checkpoint, missing, plans, in_domain, listen):
                    values[name] = metrics
            except ModelError as error:
                if len(checkpoints) == 1:
                    raise
                broken.append((checkpoint.step, str(error)))
                log_line(folder, f"step {checkpoint.step} failed: {error}")
                listen(Event(text=f"{folder.name}  step {checkpoint.step} failed: {error}"))
                continue
            finally:
                network = None  # before the next is loaded
                done += len(values)
            text = evaluation_line(checkpoint.step, checkpoints[-1].step, float("nan"), values, in_domain)
            log_line(folder, f"{text}  ({time.monotonic() - started:.1f} s)")
            listen(Event(text=f"{folder.name}  {text}"))
    return Scored(out=folder.root, run=folder.name, done=done, skipped=skipped, broken=tuple(broken))


def _score_step(
    folder: RunFolder,
    network: torch.nn.Module,
    checkpoint: Checkpoint,
    missing: Sequence[PromptSet],
    plans: _Plans,
    in_domain: str,
    listen: Listener,
) -> Iterator[tuple[str, Any]]:
    """Score and commit one set after the other; the model is not kept after the last."""
    made = plans.of(network)
    for prompts in missing:
        listen(Event(doing=f"{folder.name} step {checkpoint.step} {prompts.name}"))
        plan = made[prompts.name]
        predictions = predict(network, plan, prompts)
        role = role_of(prompts.name, in_domain)
        line = commit(folder, checkpoint.step, prompts, predictions, role, shortened=plan.shortened)
        listen(Event(work=characters(prompts)))
        yield prompts.name, line["metrics"]


@dataclass(slots=True, eq=False)
class _Plans:
    """The plans of the sets. Checkpoints of one model share them; for a model of another kind they are made anew."""

    tokenizer: Any
    sets: Sequence[PromptSet]
    batch_tokens: int | None
    made_for: str = ""
    made: dict[str, Plan] = field(default_factory=dict)

    def of(self, network: torch.nn.Module) -> Mapping[str, Plan]:
        if signature(network) != self.made_for:
            plans = prepare_all(network, self.tokenizer, self.sets, batch_tokens=self.batch_tokens)
            self.made_for, self.made = signature(network), {plan.name: plan for plan in plans}
        return self.made


@contextmanager
def _loaded(model: ModelSpec, precision: Precision) -> Iterator[Callable[[Checkpoint], torch.nn.Module]]:
    """A function that gives the model at a checkpoint; the base is loaded once, adapters change places on it.

    One model is in memory at a time: what is held here is let go before another is loaded.
    """
    state: dict[str, Any] = {}

    def load_alone(spec: ModelSpec) -> torch.nn.Module:
        state.clear()
        free_memory()
        return load_model(spec, precision)

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
        try:
            state["peft"] = _with_adapter(state.get("peft"), state["base"], checkpoint)
        except ModelError:
            state.clear()  # a broken adapter may have left its traces
            raise
        return state["peft"]

    yield load
    state.clear()


def _with_adapter(adapted: Any, base: Any, checkpoint: Checkpoint) -> Any:
    """The base model with this adapter, and no other."""
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
    except Exception as error:  # PEFT, torch and safetensors say so in many ways
        raise ModelError(
            f"{checkpoint.path}: the adapter is damaged or does not fit the model ({type(error).__name__}:"
            f" {first_line(error)}); restore or remove it"
        ) from None
    return adapted

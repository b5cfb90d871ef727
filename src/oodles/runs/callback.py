"""OODCallback: at the scheduled steps, score the suite and hand the scores to the store.

Our own training uses it; so can any transformers Trainer:

    callback = oo.OODCallback(suite="mini", in_domain="daily", run="my-run", out="runs/mine")
    Trainer(model, ..., processing_class=tokenizer, callbacks=[callback]).train()
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oodles.audit.audit import audit_data, stop_on_errors
from oodles.contracts import (
    Evaluation,
    Example,
    Pattern,
    Suite,
    describe_text,
    role_of,
)
from oodles.errors import ConfigError, MissingExtraError, ModelError, StoreError, nearest
from oodles.model.forward import Plan
from oodles.model.scoring import predict, prepare_all
from oodles.names import check_name
from oodles.runs.progress import duration, say
from oodles.runs.schedule import schedule
from oodles.store.environment import environment
from oodles.store.folder import (
    STORE_SCHEMA,
    RunFolder,
    check_adapter,
    check_folder,
    check_members,
    claim_folder,
    commit,
    copy_score,
    drop_scores,
    keep_members,
    log_line,
    put_folder,
    read_scores,
    records_are_whole,
    same_scores,
    supersede,
    write_json,
    write_spec,
)
from oodles.store.locks import held_briefly
from oodles.suite.load import load_suite, pattern_of
from oodles.suite.render import characters, check_slices, render_sets
from oodles.toml import build

try:
    from transformers import TrainerCallback
except ImportError:
    raise MissingExtraError("OODCallback", "train") from None


ADAPTER_WEIGHTS = "adapter_model.safetensors"
CALLBACKS = "callbacks"  # the study that a folder of callback runs belongs to


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a callback tells whoever listens."""

    text: str = ""  # a line that stays
    doing: str = ""  # what is being done now
    work: float = 0.0  # done since the last time, in prompt characters scored


Listener = Callable[[Heard], None]


class OODCallback(TrainerCallback):  # type: ignore[misc]
    """Evaluates all test sets of a suite during training and keeps every prediction.

    Parameters
    ----------
    suite
        A name, the path of a TOML file, or a `Suite`.
    in_domain
        The test set that is in-domain for what is being trained.
    run
        Name of the run.
    out
        Folder of the study; the run goes to ``<out>/runs/<run>``.
    pattern
        As in a study's TOML.
    tokenizer
        If the Trainer has no ``processing_class``.
    model
        What the long table says of the run, and so do `shots` and `seed`.
    shots
        Number of training examples.
    seed
        Seed of the training.
    allow
        Codes of audit errors that do not stop it; see ``oodles check``.
    quiet
        No line on stderr for each evaluation; the run's ``log.txt`` has them in any case.
    **options
        The keys of ``[eval]`` in a study's TOML: ``steps`` ("log", "linear" or a list; step 0 and the last are always
        added), ``test_sets``, ``limit``, ``limit_in_domain``, ``batch_tokens``, ``keep_adapters``.
    """

    def __init__(
        self,
        *,
        suite: str | Path | Suite,
        in_domain: str,
        run: str | RunFolder,
        out: str | Path = "",
        pattern: str | Pattern = "",
        evaluation: Evaluation | None = None,
        tokenizer: Any = None,
        listener: Listener | None = None,
        baseline: RunFolder | None = None,
        examples: Sequence[Example] = (),
        step_work: float = 0.0,
        model: str = "",
        shots: int | None = None,
        seed: int | None = None,
        allow: Sequence[str] = (),
        quiet: bool = False,
        **options: Any,
    ) -> None:
        self._suite = load_suite(suite)
        self._in_domain = in_domain
        if in_domain not in self._suite.test_sets:
            raise ConfigError(
                f"OODCallback: in_domain is '{in_domain}', expected a whole test set;"
                f" {nearest(in_domain, self._suite.test_sets)}"
            )
        self._pattern = pattern if isinstance(pattern, Pattern) else pattern_of(self._suite, pattern)
        self._evaluation = evaluation or build(Evaluation, _as_toml(options), "OODCallback")
        if not isinstance(run, RunFolder):  # our own runs are audited before they start
            check_slices(self._suite, self._evaluation.test_sets)
            stop_on_errors(audit_data(self._suite, self._evaluation.test_sets), allow)
        rendered = render_sets(self._suite, self._pattern, in_domain, self._evaluation, examples)
        self._sets = tuple(r.prompts for r in rendered)
        self._members = tuple(r.members for r in rendered)
        check_members(run.root if isinstance(run, RunFolder) else Path(out), self._members)
        self._tokenizer = tokenizer
        self._listener = listener or (_silent if quiet else _print_lines)
        self._baseline = baseline
        self._step_work = step_work
        self._about = {"model": {"label": model}, "shots": shots, "seed": seed}
        self._out = None if isinstance(run, RunFolder) else Path(out)  # somebody else's training: we make the folder
        self._folder = run if isinstance(run, RunFolder) else self._reserve(run, Path(out))
        self._plans: dict[str, Plan] = {}
        self._schedule: tuple[int, ...] = ()
        self._committed: dict[tuple[int, str, str], dict[str, Any]] = {}
        self._earlier: set[int] = set()  # steps that an earlier attempt at our own run has evaluated
        self._loss = float("nan")
        self._clock = Clock()

    def _reserve(self, run: str, out: Path) -> RunFolder:
        """The run's folder, if it is free; nothing is written before training begins."""
        check_name(run, "OODCallback: run")
        check_folder(out, CALLBACKS, self._suite.name)
        folder = RunFolder(out / "runs" / run)
        if folder.status == "done":
            raise StoreError(f"{folder.path}: a run of this name is done; choose another run name or remove it")
        return folder

    def _begin(self, out: Path, step: int) -> None:
        """A run folder for somebody else's training; it goes on where that goes on."""
        folder = self._folder
        if step and folder.spec.is_file():
            drop_scores(folder, step)  # of a branch that is trained again
            log_line(folder, f"training goes on from step {step}")
            return
        if not step and read_scores(folder):
            raise StoreError(
                f"{folder.path}: an unfinished run of this name is there, but training begins at step 0; resume it"
                " (resume_from_checkpoint=True), choose another run name or remove it"
            )
        with held_briefly(out / ".study.lock"):
            claim_folder(out, CALLBACKS, self._suite.name)
        spec = {
            "schema": STORE_SCHEMA,
            "run_id": None,  # somebody else's training: what decided it is not known here
            "name": folder.name,
            "suite": self._suite.name,
            "train_set": self._in_domain,
            "pattern": {
                "name": self._pattern.name,
                "text": describe_text(self._pattern.text),
                "answers": self._pattern.answers,
            },
            "data_seed": None,
            **self._about,
        }
        write_json(folder.env, environment())
        write_spec(folder, spec)

    # what transformers calls

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare every set, and score the model before training."""
        model, tokenizer = kwargs["model"], self._tokenizer or kwargs.get("processing_class")
        if tokenizer is None:
            raise ModelError("OODCallback: the Trainer has no processing_class; pass tokenizer=... to the callback")
        if state.is_world_process_zero:  # in a job of several processes all score, one writes
            if self._out is not None:
                self._begin(self._out, state.global_step)
            with held_briefly(self._folder.root / ".study.lock"):
                keep_members(self._folder, self._members, self._evaluation.test_sets)
        evaluation = self._evaluation
        self._schedule = schedule(evaluation.steps, state.max_steps, evaluation.points)
        with own_precision(model):
            plans = prepare_all(model, tokenizer, self._sets, batch_tokens=evaluation.batch_tokens)
        self._plans = {plan.name: plan for plan in plans}
        self._committed = {
            (line["step"], line["test_set"], line["prompts"]): line
            for line in read_scores(self._folder)
            if self._out is None or line["step"] <= state.global_step  # one that does not write may read too early
        }
        if self._out is None:
            self._earlier = {line["step"] for line in read_scores(self._folder)}
        self._clock = Clock(step=state.global_step)
        self._tell(work=self._step_work * state.global_step)
        self._reach(model, state)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        self._loss = (logs or {}).get("loss", self._loss)
        if "train_runtime" in (logs or {}):  # the last step, before the best checkpoint may be loaded in its place
            self._evaluate(kwargs["model"], state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Score at the scheduled steps."""
        self._tell(work=self._step_work)
        self._reach(kwargs["model"], state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The run is done when its last scheduled step is committed."""
        if state.is_world_process_zero:
            seconds = round(time.monotonic() - self._clock.begun, 1)  # of the last attempt
            told = {"schema": STORE_SCHEMA, "last_step": state.global_step, "seconds": seconds}
            write_json(self._folder.done, told)

    # the work

    def evaluates_at(self, step: int) -> bool:
        """Whether a step is scheduled."""
        return step in self._schedule

    def _reach(self, model: Any, state: Any) -> None:
        """What a step is due: a look at what was kept of it before, and the evaluation, if it is scheduled."""
        step = state.global_step
        if step in self._earlier and not self._repeats(model, step):
            supersede(self._folder, step)
            self._committed = {key: line for key, line in self._committed.items() if key[0] < step}
            self._earlier = set()
            text = f"step {step} is not what it was when it was trained before; evaluated anew from here on"
            log_line(self._folder, text)
            self._tell(text=f"{self._folder.name}  {text}")
        if step in self._schedule:
            self._evaluate(model, state)

    def _repeats(self, model: Any, step: int) -> bool:
        """Whether training came to the weights, or else to the scores, that an earlier attempt left at this step.

        Two trainings must not meet in one run, and on a GPU they may differ.
        """
        if self._folder.adapter(step).is_dir():
            check_adapter(self._folder.adapter(step))
            return is_adapter_of(model, self._folder.adapter(step))
        if step == 0:
            return True  # not trained yet
        held = [(p, self._committed[key]) for p in self._sets if (key := (step, p.name, p.hash)) in self._committed]
        if not held:
            return False  # nothing to compare with
        prompts, line = min(held, key=lambda pair: characters(pair[0]))
        with own_precision(model):
            return same_scores(self._folder, line, predict(model, self._plans[prompts.name], prompts))

    def _is_committed(self, step: int) -> bool:
        return all((step, prompts.name, prompts.hash) in self._committed for prompts in self._sets)

    def _evaluate(self, model: Any, state: Any) -> None:
        """Score what is not committed yet."""
        started, values = time.monotonic(), {}
        step, committed = state.global_step, self._is_committed(state.global_step)
        adapter = self._folder.adapter(step)
        if self._evaluation.keep_adapters and state.is_world_process_zero and not (committed and adapter.is_dir()):
            save_adapter(model, adapter)  # before the scores, which say that the step is there
        if committed:
            return
        donated = self._donated(step)
        for prompts in self._sets:
            self._tell(doing=f"{self._folder.name} step {step}/{state.max_steps} {prompts.name}")
            role = role_of(prompts.name, self._in_domain)
            key, work = (step, prompts.name, prompts.hash), 0.0
            line = self._committed.get(key) or donated.get((prompts.name, prompts.hash))
            if line is None:
                with own_precision(model):
                    predictions = predict(model, self._plans[prompts.name], prompts)
                cut, work = self._plans[prompts.name].shortened, characters(prompts)
                line = {"metrics": {}}
                if state.is_world_process_zero:
                    line = commit(self._folder, step, prompts, predictions, role, shortened=cut)
            elif key in self._committed:
                work = characters(prompts)
            elif self._baseline is not None:
                copy_score(self._baseline, self._folder, line, role)
            self._committed[key] = line
            values[prompts.name] = line["metrics"]
            self._tell(work=work)
        if not state.is_world_process_zero:
            return
        text = evaluation_line(step, state.max_steps, self._loss, values, self._in_domain)
        seconds = time.monotonic() - started
        self._clock.evaluated(seconds)
        left = self._clock.left(step, self._schedule)
        text = f"{text}  {seconds:.1f} s  {memory_gigabytes():.1f} GB" + (f"  {duration(left)} left" if left else "")
        log_line(self._folder, text)
        self._tell(text=f"{self._folder.name}  {text}")

    def _donated(self, step: int) -> dict[tuple[str, str], dict[str, Any]]:
        """Evaluations of the untrained model that another run has made already."""
        if step or self._baseline is None:
            return {}
        held = [line for line in read_scores(self._baseline) if line["step"] == 0]
        whole = [line for line in held if records_are_whole(self._baseline, line)]
        return {(line["test_set"], line["prompts"]): line for line in whole}

    def _tell(self, text: str = "", doing: str = "", work: float = 0.0) -> None:
        self._listener(Heard(text=text, doing=doing, work=work))


@contextmanager
def own_precision(model: Any) -> Iterator[None]:
    """Without the mixed precision that accelerate wraps around a forward pass: scores are made in that of the weights.

    Only the outermost module is wrapped, so the ways of scoring would not agree otherwise.
    """
    plain, wrapped = vars(model).get("_original_forward"), vars(model).get("forward")
    if plain is None:
        yield
        return
    model.forward = plain
    try:
        yield
    finally:
        model.forward = wrapped


def _print_lines(heard: Heard) -> None:
    if heard.text:
        say(heard.text)


def _silent(_: Heard) -> None:
    pass


@dataclass(slots=True)
class Clock:
    """How long a run's steps and evaluations take, for the time left."""

    step: int = 0  # where it began
    begun: float = field(default_factory=time.monotonic)
    evaluations: list[float] = field(default_factory=list)

    def evaluated(self, seconds: float) -> None:
        self.evaluations.append(seconds)

    def left(self, step: int, scheduled: Sequence[int]) -> float:
        """Seconds until the last scheduled step is evaluated; of the first evaluation nothing can be said."""
        if step <= self.step:
            return 0.0
        training = time.monotonic() - self.begun - sum(self.evaluations)
        to_come = [s for s in scheduled if s > step]
        each = sum(self.evaluations) / len(self.evaluations)
        return max(0.0, training) / (step - self.step) * (max(scheduled) - step) + each * len(to_come)


def memory_gigabytes() -> float:
    """The most memory used so far: of the GPU, or of this process."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated()) / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak / 1e6


def _as_toml(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as the study file would spell them, so that one loader checks both."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in options.items() if v is not None}


def evaluation_line(step: int, last: int, loss: float, values: Mapping[str, Mapping[str, Any]], in_domain: str) -> str:
    """One plain line per evaluation: in-domain accuracy, OOD accuracies, and how often the first answer is given."""
    firsts = [next((k, v) for k, v in found.items() if k.startswith("share:")) for found in values.values()]
    mean_share = sum(share for _, share in firsts) / len(firsts)
    names = list(dict.fromkeys(key.removeprefix("share:") for key, _ in firsts))
    order: Sequence[str] = sorted(values, key=lambda name: name != in_domain)
    accuracies = "  ".join(f"{name} {values[name]['accuracy']:.2f}" for name in order)
    shown = "-" if loss != loss else f"{loss:.3f}"  # no step was logged yet
    return f"step {step}/{last}  loss {shown}  {accuracies}  {'/'.join(names)} {mean_share:.2f}"


def save_adapter(model: Any, path: Path) -> None:
    """The adapter alone; a model without one is not kept."""
    if not hasattr(model, "peft_config"):
        return
    with put_folder(path) as aside:
        model.save_pretrained(aside)
        (aside / "README.md").unlink(missing_ok=True)  # a model card template with nothing filled in


def is_adapter_of(model: Any, path: Path) -> bool:
    """Whether a kept adapter is the model's own, to the bit."""
    import torch
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        now, kept = (load_file(folder / ADAPTER_WEIGHTS) for folder in (Path(scratch), path))
    return now.keys() == kept.keys() and all(torch.equal(now[name], kept[name]) for name in now)

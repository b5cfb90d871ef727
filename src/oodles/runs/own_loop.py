"""Evaluator: for custom training loops in bare PyTorch, Accelerate or Lightning.

evaluator = oo.Evaluator(suite="mini", in_domain="daily", run="mine", out="runs/mine", tokenizer=tokenizer)
for step, batch in enumerate(batches):
    if step in (0, 10, 100):
        evaluator.at(model, step)
    ...
evaluator.finish(len(batches))
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodles.audit.audit import audit_data, stop_on_errors
from oodles.contracts import Evaluation, ModelSpec, Pattern, Suite
from oodles.disk import write_json
from oodles.errors import ConfigError, StoreError, nearest
from oodles.names import check_name
from oodles.runs.evaluate import Metrics, StepEvaluator
from oodles.runs.events import ignore, print_lines
from oodles.store.claim import check_folder, claim_folder
from oodles.store.commit import supersede
from oodles.store.environment import environment
from oodles.store.folder import RunFolder, StudyFolder, log_line
from oodles.store.members import check_members
from oodles.store.outcome import finish_run
from oodles.store.scores import drop_scores, read_scores
from oodles.store.spec import StoredSpec, write_spec
from oodles.suite.load import load_suite, pattern_of
from oodles.suite.render import check_slices, render_sets
from oodles.toml import build

CALLBACKS = "callbacks"  # name of the study in a folder of such runs


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The description of an externally trained run in the long table."""

    model: str = ""
    shots: int | None = None
    seed: int | None = None


class Evaluator(StepEvaluator):
    """Evaluate all test sets of a suite during a custom training loop, and store every prediction.

    Parameters
    ----------
    suite
        Name, TOML path or `Suite`.
    in_domain
        The test set that is in-domain for what is being trained.
    run
        Name of the run.
    out
        Folder of the study; the run goes to ``<out>/runs/<run>``.
    tokenizer
        Tokenizer of the trained model.
    pattern
        Which pattern of the suite; its first by default.
    allow
        Codes of audit errors to ignore; see ``oodles check``.
    quiet
        Do not print a line on stderr for each evaluation; the run's ``log.txt`` always has them.
    **options
        The keys of ``[eval]`` in a study's TOML: ``test_sets``, ``limit``, ``limit_in_domain``, ``batch_tokens``,
        ``keep_adapters``; and ``model``, ``shots`` and ``seed``, which describe the run in the long table.

    Examples
    --------
    >>> evaluator = Evaluator(suite="mini", in_domain="daily", run="r0", out="runs/x")  # doctest: +SKIP
    >>> evaluator.at(model, step=0)["daily"]["accuracy"]  # doctest: +SKIP
    0.5
    """

    _who = "Evaluator"  # name in messages
    _scheduled = False  # whether a callback decides the steps

    def __init__(
        self,
        *,
        suite: str | Path | Suite,
        in_domain: str,
        run: str,
        out: str | Path,
        tokenizer: Any = None,
        pattern: str | Pattern = "",
        allow: Sequence[str] = (),
        quiet: bool = False,
        **options: Any,
    ) -> None:
        who = self._who
        loaded = load_suite(suite)
        if in_domain not in loaded.test_sets:
            raise ConfigError(
                f"{who}: in_domain is '{in_domain}', expected a whole test set; {nearest(in_domain, loaded.test_sets)}"
            )
        if not self._scheduled and (steps := {"steps", "points"} & options.keys()):
            raise ConfigError(f"Evaluator: {min(steps)} is for a Trainer; in your own loop call at(model, step)")
        about = {name: options.pop(name) for name in ("model", "shots", "seed") if name in options}
        evaluation = build(Evaluation, _as_toml(options), who)
        check_slices(loaded, evaluation.test_sets)
        stop_on_errors(audit_data(loaded, evaluation.test_sets), allow)
        self._suite = loaded
        self._pattern = pattern if isinstance(pattern, Pattern) else pattern_of(loaded, pattern)
        self._about = About(**about)
        self._study = StudyFolder(Path(out))
        self._began = False
        self._last = 0  # the latest scored step
        rendered = render_sets(loaded, self._pattern, in_domain, evaluation)
        check_members(self._study, [r.members for r in rendered])
        super().__init__(
            self._reserved(run),
            rendered,
            in_domain=in_domain,
            evaluation=evaluation,
            tokenizer=tokenizer,
            listener=ignore if quiet else print_lines,
        )

    def _reserved(self, run: str) -> RunFolder:
        """Return the run's folder if it is free; nothing is written before training begins."""
        check_name(run, f"{self._who}: run")
        check_folder(self._study, CALLBACKS, self._suite.name)
        folder = self._study.run(run)
        if folder.status == "done":
            raise StoreError(f"{folder.path}: a run of this name is done; choose another run name or remove it")
        return folder

    def at(self, model: Any, step: int, **for_log: Any) -> dict[str, Metrics]:
        """Score every test set with the current model, and commit the scores.

        An interrupted run resumes at the first step for which this is called. Scores of that step and later ones belong
        to a branch that is trained again, and are moved aside.
        """
        step = _whole(step, self._who)
        if step < self._last:
            raise ConfigError(
                f"{self._who}: step is {step}, but step {self._last} was scored before; steps count the training from"
                " its beginning, over all epochs"
            )
        if self._began and self.writes:
            self._check_alone()
        if not self._began:
            self.writes = self.writes and _is_first_process()
            if step and self.writes and self.folder.spec.is_file():
                supersede(self.folder, step)
            self.begin(step)
            self.recall()
        if self.is_complete(step) and not self.scores_repeat(model, step):
            raise StoreError(
                f"{self.folder.path}: step {step} was already scored with other weights; continue the step count, or"
                " use another run name"
            )
        if not self.folder.adapter(step).is_dir():
            self.keep_adapter(model, step)
        values = super().at(model, step, **for_log)
        self._last = step
        return values

    def _check_alone(self) -> None:
        """Refuse to mix two trainings in one run."""
        others = {score.key for score in read_scores(self.folder)} - self._committed.keys()
        if others:
            raise StoreError(
                f"{self.folder.path}: another {self._who} scored step {min(others)[0]} in the meantime; use a separate"
                " run name for each training"
            )

    def begin(self, step: int) -> None:
        """Create the run's folder, or resume the run at a step."""
        self._began = True
        if not self.writes:
            return
        if step and self.folder.spec.is_file():
            drop_scores(self.folder, step)  # scores of a branch that is trained again
            log_line(self.folder, f"training resumes from step {step}")
        else:
            self._begin_fresh()
        self.keep_members()

    def _begin_fresh(self) -> None:
        if read_scores(self.folder):
            raise StoreError(
                f"{self.folder.path}: an unfinished run with this name exists, but training begins at step 0; resume"
                " it from a later step (a Trainer: resume_from_checkpoint=True), choose another run name, or remove the"
                " run"
            )
        with self._study.locked():
            claim_folder(self._study, CALLBACKS, self._suite.name, suite_file=self._suite.file)
        write_json(self.folder.env, environment())
        write_spec(self.folder, self._spec())

    def _spec(self) -> StoredSpec:
        """Return the spec of an external training, whose settings are unknown."""
        return StoredSpec(
            name=self.folder.name,
            suite=self._suite.name,
            train_set=self._in_domain,
            pattern=self._pattern,
            model=ModelSpec(label=self._about.model, source=""),
            shots=self._about.shots,
            seed=self._about.seed,
        )

    def finish(self, last_step: int, **more: Any) -> None:
        """Mark the run as done: its last step is committed."""
        last_step = _whole(last_step, self._who)
        if last_step < self._last:
            raise ConfigError(f"{self._who}: last_step is {last_step}, but step {self._last} was scored")
        if self.writes and not read_scores(self.folder):
            raise StoreError(f"{self.folder.path}: nothing was scored; call at(model, step) before finish()")
        if self.writes:
            finish_run(self.folder, last_step, **more)


def _as_toml(options: Mapping[str, Any]) -> dict[str, Any]:
    """Spell keyword arguments as in a study file, so that one loader checks both."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in options.items() if v is not None}


def _whole(step: Any, who: str) -> int:
    """Return a step as a plain int; whole numbers of numpy and torch are accepted."""
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        raise ConfigError(f"{who}: step is {step!r}, expected a whole number, 0 or more")
    return number


def _is_first_process() -> bool:
    """Whether this is the first process: in a job of several processes all score, and the first writes."""
    import torch

    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return not together or torch.distributed.get_rank() == 0

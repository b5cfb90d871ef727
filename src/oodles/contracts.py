"""The records that cross module boundaries: plain, frozen data passed between stages."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from oodles.display import Listed
from oodles.errors import ConfigError

FloatArray = npt.NDArray[np.float64]
Role = Literal["in_domain", "ood", "other"]  # other: shown but not correlated (shots, slices of the in-domain set)
Precision = Literal["auto", "fp32", "bf16", "fp16"]  # auto: the dtype the weights are published in, see model/load.py

TrackerName = Literal["wandb", "tensorboard", "trackio", "mlflow"]
EngineName = Literal["single", "ddp", "fsdp2", "zero2", "zero3"]  # how the processes of a run share its work
ZERO: Mapping[EngineName, int] = {"zero2": 2, "zero3": 3}  # the engines of DeepSpeed, and their stages
LAYERS = "transformer_layer_cls_to_wrap"  # the setting of engine fsdp2: classes of the modules that are sharded

ScoreForm = Literal["sum", "per_character", "per_byte", "per_token", "minus_baseline"]  # see suite/choices.py

SHOTS = "shots"  # the name under which a run's own shots are evaluated
IDENTITY_VERSION = 3  # first part of every run id; raise it when the meaning of a run id changes


def _flat(record: Any) -> dict[str, Any]:
    """Return the fields of a flat record. `asdict` copies deeply, which is slow for ten thousand runs."""
    return {f.name: getattr(record, f.name) for f in fields(record)}


def content_hash(value: Any) -> str:
    """Return a short, stable hash of plain data; it is the same on every machine and Python version."""
    return _hash_text(_as_text(value))


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# test data


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One answer of an example that has its own: what is scored, after what, and the answer itself."""

    context: str
    continuation: str
    text: str  # its length may divide the score


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One row of a train or test set, with columns and labels already mapped."""

    id: str
    fields: Mapping[str, str]  # the fields a pattern may use, e.g. premise and hypothesis
    label: str  # the label's name if the suite names labels, else the label as the data spell it
    answer: int  # index of the right answer in the pattern's answers
    slices: Mapping[str, str] = field(default_factory=dict)
    choices: tuple[str, ...] = ()  # its own answers; empty: the pattern's
    rendered: tuple[Choice, ...] = ()  # its own answers, rendered by whoever made the task
    _content: str = field(default="", init=False, compare=False, repr=False)

    @property
    def parts(self) -> list[Any]:
        """Plain data that identify the example."""
        own: list[Any] = [[c.context, c.continuation, c.text] for c in self.rendered] or list(self.choices)
        return [self.id, dict(self.fields), self.label, self.answer] + [own] * bool(own)

    @property
    def content(self) -> str:
        """The example's part of a draw's hash; computed once, because an example is in many draws of a grid."""
        if not self._content:
            object.__setattr__(self, "_content", _as_text(self.parts))
        return self._content


PatternText = str | Callable[[Mapping[str, str]], str]  # "{premise} ...", or a function of the fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A text with {fields} and the answers a model chooses from; without answers, examples bring their own choices."""

    name: str
    text: PatternText
    answers: tuple[str, ...] = ()
    truncate: str | None = None  # the only field that may be shortened
    max_tokens: int | None = None  # longer prompts are shortened; the model's own limit always applies
    chat: bool = False  # the prompt is a user's turn in the tokenizer's chat template
    # only without answers:
    choice: str = " {choice}"  # the continuation that is scored for each choice
    blank: str = ""  # a mark in the text or the continuation that the choice replaces
    score: ScoreForm = "sum"  # what decides between the choices
    baseline: str | None = None  # a text after which the continuations are scored, too; empty: the start token

    @property
    def identity(self) -> list[Any]:
        """Plain data that determine the prompts. A function is identified by its name and source code."""
        parts: list[Any] = [describe_text(self.text), list(self.answers), self.truncate]
        parts += [{"max_tokens": self.max_tokens, "chat": self.chat}] * (self.chat or self.max_tokens is not None)
        return parts + [{name: getattr(self, name) for name in OF_CHOICES}] * (not self.answers)


OF_CHOICES = ("choice", "blank", "score", "baseline")  # fields of patterns without answers


def describe_text(text: PatternText) -> str:
    """Return a pattern's text; for a function, its name and a hash of its source."""
    if isinstance(text, str):
        return text
    name = f"{text.__module__}.{getattr(text, '__qualname__', type(text).__qualname__)}"
    try:
        code = inspect.getsource(text)
    except (OSError, TypeError):  # defined in a console, or a callable object
        code = repr(getattr(getattr(text, "__code__", None), "co_code", name))
    return f"function {name} {content_hash(code)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """A public file that replaces a hub data set that cannot be loaded; verified by its hash."""

    url: str
    sha256: str
    columns: Mapping[str, str]  # column of the hub's copy -> column of this file
    labels: Mapping[str, int] = field(default_factory=dict)  # label in this file -> the hub's label id


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The source of a set's rows: exactly one of generator, file, hub and lm_eval is set."""

    generator: str | None = None  # "mini" or "opinions"
    file: str | tuple[str, ...] | None = None  # .parquet, .csv, .tsv, .jsonl or a .zip of one; * or a list for several
    format: str | None = None  # of a file whose ending does not say it: parquet, csv, tsv or jsonl
    hub: str | None = None  # a dataset id
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    seed: int = 0  # generators only
    fallback: Fallback | None = None  # hub only
    lm_eval: str | None = None  # a task or group of lm-evaluation-harness, or the path of its YAML
    fewshot: int | None = None  # lm_eval only: examples in the prompt; None: as many as the task says
    fewshot_seed: int = 1234  # lm_eval only; the harness's default


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A train set or test set of a suite, as described in its TOML."""

    name: str
    source: Source
    labels: Mapping[str, int] = field(default_factory=dict)  # label -> index of an answer
    choices: str | tuple[str, ...] = ()  # column with a list of answers, or a column for each answer
    gold: str = "index"  # with choices: what a label is: index, text, or an entry of the list in this column
    score: ScoreForm | None = None  # with choices: what decides between them; None: as the pattern says
    label_names: Mapping[str, str] = field(default_factory=dict)  # label as the data spell it -> its name
    columns: Mapping[str, str] = field(default_factory=dict)  # field, label or id -> column
    drop: tuple[str, ...] = ()  # labels whose rows are left out
    expect: Mapping[str, int] = field(default_factory=dict)  # label -> number of rows, for kept and dropped labels
    characters: Mapping[str, float] = field(default_factory=dict)  # field -> average characters in the kept rows
    chance: float | None = None  # accuracy of the best constant answer
    pattern: str = ""  # this set's own pattern; empty: the run's
    tags: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()  # columns whose values name slices
    item: str = ""  # field or slice column; rows with equal values form one independent item; empty: the premise
    description: str = ""
    caveats: tuple[str, ...] = ()  # notes for readers of its scores
    licence: str = ""
    citation: str = ""

    @property
    def has_choices(self) -> bool:
        """Whether its examples bring their own answers."""
        return bool(self.choices) or self.source.lm_eval is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite(Listed):
    """Train sets, test sets and patterns that belong together."""

    name: str
    patterns: Mapping[str, Pattern]
    train_sets: Mapping[str, DataSet]
    test_sets: Mapping[str, DataSet]
    citation: str = ""
    description: str = ""
    folder: str = ""  # folder in which relative files are looked up
    data: str = ""  # a folder with copies of hub data sets, <test set>/<split>.parquet
    rows: str = ""  # file with a hash of every row, see pins.py
    file: str = field(default="", compare=False, repr=False)  # its TOML; empty if built in or made in Python

    def with_pattern(
        self,
        name: str,
        text: PatternText,
        answers: tuple[str, ...],
        *,
        truncate: str | None = None,
        max_tokens: int | None = None,
        chat: bool = False,
    ) -> Suite:
        """Return the suite with one more pattern, placed first; `text` may be a function of the fields.

        Examples
        --------
        >>> import oodles as oo
        >>> def shout(fields):
        ...     return fields["premise"].upper() + " So " + fields["hypothesis"] + " True or False?"
        >>> suite = oo.load_suite("mini").with_pattern("shout", shout, (" True", " False"))
        >>> list(suite.patterns)
        ['shout', 'question']
        """
        if isinstance(answers, str):
            raise ConfigError(f"with_pattern: answers is the text {answers!r}, expected several, e.g. (' Yes', ' No')")
        new = Pattern(name=name, text=text, answers=tuple(answers), truncate=truncate, max_tokens=max_tokens, chat=chat)
        patterns = {name: new, **{k: p for k, p in self.patterns.items() if k != name}}
        return replace(self, patterns=patterns, file="")

    def told(self) -> tuple[str, Mapping[str, str]]:
        """What `print` and Jupyter show."""
        return f"suite {self.name}", {
            "description": " ".join(self.description.split()),
            "train": ", ".join(self.train_sets),
            "test": ", ".join(self.test_sets),
            "patterns": ", ".join(self.patterns),
            "cite": " ".join(self.citation.split()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered example: the text before the answer, and the index of the right answer."""

    id: str
    text: str
    gold: int
    cut: tuple[int, int] | None = None  # where in the text the field that may be shortened begins and ends
    choices: tuple[Choice, ...] = ()  # its own answers, if the set has none; the text is then for people


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """A rendered train or test set."""

    name: str
    answers: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    limit: int | None = None  # the requested sample size, if any
    max_tokens: int | None = None
    chat: bool = False
    score: ScoreForm = "sum"  # for prompts with their own choices: what decides between them
    baseline: str | None = None

    @property
    def hash(self) -> str:
        """Hash of every text, their order, the answers and the gold labels."""
        if self.has_choices:
            return self._hash_of_choices
        parts: list[Any] = [list(self.answers), [[p.id, p.text, p.gold] for p in self.prompts]]
        extra = {"max_tokens": self.max_tokens, "chat": self.chat}
        return content_hash(parts + [extra] * (self.chat or self.max_tokens is not None))

    @property
    def _hash_of_choices(self) -> str:
        rows = [[p.id, p.gold, [[c.context, c.continuation, c.text] for c in p.choices]] for p in self.prompts]
        how = {"max_tokens": self.max_tokens, "chat": self.chat, "score": self.score, "baseline": self.baseline}
        return content_hash(["choices", rows, how])

    @property
    def has_choices(self) -> bool:
        """Whether every prompt has its own answers."""
        return bool(self.prompts) and bool(self.prompts[0].choices)

    @property
    def common_answers(self) -> tuple[str, ...]:
        """The answers of all prompts: the set's, or choices that are distinct and the same for all; else none."""
        if not self.has_choices:
            return self.answers
        texts = {tuple(choice.text for choice in prompt.choices) for prompt in self.prompts}
        common = texts.pop() if len(texts) == 1 else ()
        return common if len({text.strip() for text in common}) == len(common) else ()

    def __len__(self) -> int:
        return len(self.prompts)


# a single run


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model's weights: `label` names them, `source` says where they come from."""

    label: str
    source: str  # an embedded name, a folder or a hub id
    revision: str | None = None  # a commit, or a fingerprint of a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """The LoRA adapter. Empty `targets`: the model's attention projections, which are detected and recorded."""

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    bias: Literal["none", "all", "lora_only"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The training settings of a run."""

    epochs: int = 20
    steps: int | None = None  # optimiser steps; if set, it replaces the epochs
    batch_size: int = 16
    accumulate: int = 1  # batches per optimiser step
    optimiser: Literal["adamw", "adafactor", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    schedule: Literal[
        "linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt", "cosine_with_restarts"
    ] = "linear"  # of the learning rate, by its transformers name
    warmup: float = 0.1  # share of the steps; the k-th of w warm-up steps has k/(w+1) of the learning rate
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    loss: Literal["vocab", "answers"] = "vocab"  # at the answer's position, over all tokens or over the answers
    gradient_checkpointing: bool = False  # less memory, about a third more time
    adapter_seed: int | None = None  # seed of the adapter's first weights; None: the run's seed
    order_seed: int | None = None  # seed of the order of the batches
    dropout_seed: int | None = None
    precision: Precision = "auto"  # resolved in a run's spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """The seed of each source of randomness in a run."""

    draw: int  # the drawn shots
    adapter: int  # the adapter's first weights
    order: int  # the order of the batches
    dropout: int

    @classmethod
    def all(cls, seed: int) -> Seeds:
        """Return the same seed for every source."""
        return cls(draw=seed, adapter=seed, order=seed, dropout=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """When and on which test sets a run is evaluated. Not part of the run's identity."""

    steps: str | tuple[int, ...] = "log"  # "log", "linear" or a list; step 0 and the last step are always added
    points: int = 10  # for "linear"
    test_sets: tuple[str, ...] = ()  # empty: all test sets of the suite
    limit: int | None = None  # examples per OOD test set
    limit_in_domain: int | None = None  # a sample of the in-domain set biases the results and adds a caveat
    batch_tokens: int | None = None  # tokens per forward pass; None: 384 per core on a CPU, 8192 elsewhere
    keep_adapters: bool = True  # of the evaluated steps; test sets can then be added without training again
    keep_checkpoints: bool = False  # keep the last training state after the run is done
    shots: bool = False  # also evaluate the run's own shots, as the set "shots"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that determines a run. `run_id` covers the training; `evaluation` is not part of it."""

    name: str
    model: ModelSpec
    suite: str
    train_set: str
    train_hash: str  # hash of the whole train split
    draw_hash: str  # hash of the drawn shots
    pattern: Pattern
    shots: int
    seed: int
    data_seed: int
    lora: Lora
    recipe: Recipe
    evaluation: Evaluation

    @property
    def seeds(self) -> Seeds:
        """The run's seed, except where the recipe or the draw sets another one."""
        recipe = self.recipe
        own = {"adapter": recipe.adapter_seed, "order": recipe.order_seed, "dropout": recipe.dropout_seed}
        return Seeds(draw=self.data_seed, **{k: self.seed if v is None else v for k, v in own.items()})

    @property
    def run_id(self) -> str:
        """Versioned hash of everything that determines the training, and of nothing else."""
        return _run_id(
            IDENTITY_VERSION,
            model=_flat(self.model),
            train=[self.train_set, self.train_hash, self.draw_hash, self.shots],
            pattern=self.pattern.identity,
            lora=_flat(self.lora),
            recipe=_flat(self.recipe),
            seeds=[self.seed, self.data_seed],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run and the shots it is trained on."""

    spec: RunSpec
    draw: Draw


def _run_id(version: object, *, model: Mapping[str, Any], **decided: Any) -> str:
    identity = dict(model)
    if str(identity.get("revision")).startswith("folder:"):
        del identity["source"]  # a folder is identified by its content, not by its path
    return f"{version}-{content_hash({**decided, 'model': identity})}"


def run_id_of(spec: Mapping[str, Any]) -> str:
    """Return the run id that follows from a stored spec, in the version of the spec's own id."""
    return _run_id(
        str(spec["run_id"]).partition("-")[0],
        model=spec["model"],
        train=[spec["train_set"], spec["train_hash"], spec["draw_hash"], spec["shots"]],
        pattern=Pattern(**spec["pattern"]).identity,
        lora=spec["lora"],
        recipe=spec["recipe"],
        seeds=[spec["seed"], spec["data_seed"]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The shots of a run. They are stored with the run, not drawn again."""

    train_set: str
    shots: int
    data_seed: int
    examples: tuple[Example, ...]

    @property
    def hash(self) -> str:
        return _hash_text(f"[{','.join(example.content for example in self.examples)}]")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """One score per answer for every prompt of a set, in the order of the set.

    The fields after `gold` are for prompts with their own choices.
    """

    test_set: str
    answers: tuple[str, ...]  # empty: the choices differ between prompts
    ids: tuple[str, ...]
    scores: FloatArray  # (prompts, answers): log-probability up to a constant per prompt; nan: no such choice
    gold: npt.NDArray[np.int64]
    chosen: npt.NDArray[np.int64] | None = None  # index of the best choice, by the set's form of the score
    tied: int | None = None  # prompts with more than one best choice
    right: Mapping[str, npt.NDArray[np.bool_]] = field(
        default_factory=dict
    )  # whether it is right, by form of the score
    base: FloatArray | None = None  # scores of the same continuations after the baseline's text

    @property
    def choice(self) -> npt.NDArray[np.int64]:
        """Index of the best answer; ties go to the lowest index."""
        if self.chosen is not None:
            return self.chosen
        return np.asarray(np.argmax(self.scores, axis=1), dtype=np.int64)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.choice == self.gold)

    @property
    def ties(self) -> int:
        """Number of prompts with more than one best answer."""
        if self.tied is not None:
            return self.tied
        best = self.scores.max(axis=1, keepdims=True)
        return int(((self.scores == best).sum(axis=1) > 1).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """What a job of SLURM asks for; None: not said, so that the cluster or the next wider table decides."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None  # as sbatch takes it: 04:00:00, 2-00:00:00
    gpus: int | None = None
    cpus: int | None = None  # also the number of threads
    memory: str | None = None  # of the node: 64G
    constraint: str | None = None
    setup: tuple[str, ...] | None = None  # lines of the script before the command: modules, an environment
    python: str | None = None  # the command that starts Python in the job, e.g. in a container
    runs_per_job: int | None = None  # runs of one model that a job makes one after the other
    options: Mapping[str, str | int | bool] | None = None  # any other option of sbatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm(SlurmJob):
    """[slurm]: how a study is run on a cluster. Nothing of it decides a run's outcome."""

    width: int = 64  # jobs of an array that may run at a time
    warning: int = 120  # seconds before its end in which a job is told
    models: Mapping[str, SlurmJob] = field(default_factory=dict)  # by label, with * and ?


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Listed):
    """A resolved study file: a grid of runs over one suite."""

    name: str
    suite: str | Suite
    out: str
    models: tuple[str, ...]
    train_sets: tuple[str, ...]
    shots: tuple[int, ...]
    seeds: tuple[int, ...]
    patterns: tuple[str, ...] = ()
    data_seeds: Literal["seed"] | tuple[int, ...] = "seed"  # "seed": the data are drawn with the run's own seed
    draw: Literal["independent", "nested"] = "independent"  # nested: 64 shots contain the 32
    data: str = ""  # a folder with copies of hub data sets
    allow: tuple[str, ...] = ()  # codes of audit errors that do not stop the study
    sources: Mapping[str, ModelSpec] = field(default_factory=dict)  # models defined in [models.LABEL], by label
    lora: Lora = field(default_factory=Lora)
    recipe: Recipe = field(default_factory=Recipe)
    evaluation: Evaluation = field(default_factory=Evaluation)
    folder: str = ""  # of the study file; relative suites and models are looked up there
    reported_gpu_hours: float | None = None  # what a published study is said to have taken; compared with the estimate
    slurm: Slurm = field(default_factory=Slurm)
    report_to: tuple[TrackerName, ...] | None = None  # None: wandb, where it is set up
    run: str = ""  # the name of the only run; empty: as the grid names it
    engine: EngineName = "single"
    processes: int | None = None  # that make a run together; None: one per GPU
    engine_config: str = ""  # settings of DeepSpeed, as JSON
    device_map: Literal["auto"] | None = None  # auto: a model that is scored is spread over the devices of its process

    def told(self) -> tuple[str, Mapping[str, str]]:
        """What `print` and Jupyter show."""
        draws = 1 if self.data_seeds == "seed" else len(self.data_seeds)
        length = f"{self.recipe.epochs} epochs" if self.recipe.steps is None else f"{self.recipe.steps} steps"
        shape = (self.models, self.train_sets, self.shots, self.seeds, self.patterns or ("",))
        return f"study {self.name}", {
            "suite": self.suite if isinstance(self.suite, str) else self.suite.name,
            "models": ", ".join(self.models),
            "train sets": ", ".join(self.train_sets),
            "patterns": ", ".join(self.patterns) or "the suite's first",
            "shots": ", ".join(map(str, self.shots)),
            "seeds": ", ".join(map(str, self.seeds)),
            "runs": str(math.prod(map(len, shape)) * draws),
            "training": f"{length}, learning rate {self.recipe.learning_rate:g}",
            "results in": self.out,
        }


def role_of(test_set: str, train_set: str) -> Role:
    """Return the role of a test set for runs trained on a train set.

    The in-domain test set has the name of the train set. Its slices, and the shots, are neither in-domain nor OOD.

    >>> [role_of(name, "snli") for name in ("snli", "hans", "hans/constituent", "snli/entailment", "shots")]
    ['in_domain', 'ood', 'ood', 'other', 'other']
    """
    if test_set == SHOTS or test_set.startswith(f"{train_set}/"):
        return "other"
    return "in_domain" if test_set == train_set else "ood"

"""Every record that crosses a module boundary: plain, frozen data between stages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Role = Literal["in_domain", "ood"]

IDENTITY_VERSION = 1  # first part of every run id; raise it when the meaning of a run id changes


def content_hash(value: Any) -> str:
    """A short, stable hash of plain data; the same on every machine and Python version."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# what is tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One row of a train or test set, with its columns and labels already mapped."""

    id: str
    fields: Mapping[str, str]  # what a pattern may use, e.g. premise and hypothesis
    label: str  # as the data spells it
    answer: int  # index of the right answer in the pattern's answers
    slices: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A text with {fields} and the answers a model chooses from."""

    name: str
    text: str
    answers: tuple[str, ...]
    truncate: str | None = None  # the only field that may be shortened


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a set's rows come from: exactly one of generator, file and hub is given."""

    generator: str | None = None  # "mini"
    file: str | None = None  # .parquet, .csv, .tsv or .jsonl, relative to the suite file
    hub: str | None = None  # a dataset id
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    seed: int = 0  # generators only


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A train set or a test set of a suite, as its TOML describes it."""

    name: str
    source: Source
    labels: Mapping[str, int]  # raw label -> index of an answer
    columns: Mapping[str, str] = field(default_factory=dict)  # field, label or id -> column
    drop: tuple[str, ...] = ()  # raw labels left out
    expect: Mapping[str, int] = field(default_factory=dict)  # raw label -> rows kept
    tags: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()  # columns whose values name slices
    description: str = ""
    licence: str = ""
    citation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Train sets, test sets and patterns that belong together."""

    name: str
    patterns: Mapping[str, Pattern]
    train_sets: Mapping[str, DataSet]
    test_sets: Mapping[str, DataSet]
    citation: str = ""
    description: str = ""
    folder: str = ""  # where relative files are looked up

    def __str__(self) -> str:
        sets = ", ".join(self.test_sets)
        return (
            f"suite {self.name}: train {', '.join(self.train_sets)}; test {sets}; patterns {', '.join(self.patterns)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered example: the text before the answer, and which answer is right."""

    id: str
    text: str
    gold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """A rendered train or test set."""

    name: str
    answers: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    limit: int | None = None  # the sample size asked for, if any

    @property
    def hash(self) -> str:
        """Identifies every text, its order, the answers and the gold labels."""
        return content_hash([list(self.answers), [[p.id, p.text, p.gold] for p in self.prompts]])

    def __len__(self) -> int:
        return len(self.prompts)


# one run


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Which weights: `label` says what they are, `source` where they come from."""

    label: str
    source: str  # an embedded name, a folder or a hub id
    revision: str | None = None  # a commit, or a fingerprint of a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """The adapter. `targets` empty: the attention projections of the model, found and recorded."""

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0
    targets: tuple[str, ...] = ()
    bias: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a run is trained."""

    epochs: int = 10
    batch_size: int = 16
    learning_rate: float = 1e-3
    schedule: Literal[
        "linear", "cosine", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt", "cosine_with_restarts"
    ] = "linear"  # of the learning rate, by its transformers name
    warmup: float = 0.1  # share of the steps
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    loss: Literal["vocab", "answers"] = "vocab"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """When and on what a run is evaluated. Not part of the run's identity."""

    steps: str | tuple[int, ...] = "log"  # "log", "linear" or a list; 0 and the last are always added
    points: int = 10  # for "linear"
    test_sets: tuple[str, ...] = ()  # empty: all of the suite
    limit: int | None = None  # examples per OOD test set
    limit_in_domain: int | None = None  # a sample of the in-domain set biases the results: adds a caveat
    batch_tokens: int = 2048  # tokens per forward pass
    keep_adapters: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """All that decides a run. `run_id` covers what decides the training; `evaluation` does not."""

    name: str
    model: ModelSpec
    suite: str
    train_set: str
    train_hash: str  # content of the whole train split
    draw_hash: str  # content of the drawn shots
    pattern: Pattern
    shots: int
    seed: int
    data_seed: int
    lora: Lora
    recipe: Recipe
    evaluation: Evaluation

    @property
    def run_id(self) -> str:
        """Versioned hash of what decides the training and nothing else."""
        model = {"label": self.model.label, "source": self.model.source, "revision": self.model.revision}
        if self.model.revision is not None and self.model.revision.startswith("folder:"):
            del model["source"]  # a folder is known by its content, not by where it lies
        decided = {
            "model": model,
            "train": [self.train_set, self.train_hash, self.draw_hash, self.shots],
            "pattern": [self.pattern.text, list(self.pattern.answers), self.pattern.truncate],
            "lora": asdict(self.lora),
            "recipe": asdict(self.recipe),
            "seeds": [self.seed, self.data_seed],
        }
        return f"{IDENTITY_VERSION}-{content_hash(decided)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The shots of a run: stored with it, not derived again."""

    train_set: str
    shots: int
    data_seed: int
    examples: tuple[Example, ...]

    @property
    def hash(self) -> str:
        return content_hash([[e.id, dict(e.fields), e.label, e.answer] for e in self.examples])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """One score per answer for every prompt of a set, in the set's order."""

    test_set: str
    answers: tuple[str, ...]
    ids: tuple[str, ...]
    scores: FloatArray  # (prompts, answers): log-probability up to a constant per prompt
    gold: npt.NDArray[np.int64]

    @property
    def choice(self) -> npt.NDArray[np.int64]:
        """Index of the best answer; ties go to the lowest index."""
        return np.asarray(np.argmax(self.scores, axis=1), dtype=np.int64)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.choice == self.gold)

    @property
    def ties(self) -> int:
        """Prompts whose best score is reached by more than one answer."""
        best = self.scores.max(axis=1, keepdims=True)
        return int(((self.scores == best).sum(axis=1) > 1).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study file, resolved: a grid of runs over one suite."""

    name: str
    suite: str
    out: str
    models: tuple[str, ...]
    train_sets: tuple[str, ...]
    shots: tuple[int, ...]
    seeds: tuple[int, ...]
    patterns: tuple[str, ...] = ()
    data_seeds: Literal["seed"] | int = "seed"  # "seed": the data are drawn with the run's own seed
    sources: Mapping[str, ModelSpec] = field(default_factory=dict)  # labels the file defines in [models.LABEL]
    lora: Lora = field(default_factory=Lora)
    recipe: Recipe = field(default_factory=Recipe)
    evaluation: Evaluation = field(default_factory=Evaluation)
    folder: str = ""  # of the study file; relative suites and models are looked up there


def role_of(test_set: str, train_set: str) -> Role:
    """The in-domain test set carries the name of the train set."""
    return "in_domain" if test_set == train_set else "ood"

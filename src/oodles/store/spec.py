"""spec.json, draw.json and env.json: the settings of a run, its draw and its environment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oodles.contracts import (
    IDENTITY_VERSION,
    OF_CHOICES,
    Draw,
    ModelSpec,
    Pattern,
    Precision,
    RunSpec,
    describe_text,
    run_id_of,
)
from oodles.disk import UNLIKE, make_folder, write_json
from oodles.errors import StoreError
from oodles.store.folder import STORE_SCHEMA, RunFolder, StudyFolder, log_line, run_folders
from oodles.store.scores import read_scores
from oodles.store.sidecars import read_json, restore, sidecar
from oodles.trouble import disk_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSpec:
    """The known settings of a run: complete for our own runs, few for a training elsewhere.

    Mappings keep the spelling of the oodles version that wrote them.
    """

    name: str
    suite: str
    train_set: str
    model: ModelSpec  # no source if only its label is known
    pattern: Pattern
    shots: int | None = None
    seed: int | None = None
    data_seed: int | None = None
    run_id: str | None = None  # None: trained elsewhere, with unknown settings
    # our own runs only
    train_hash: str | None = None
    draw_hash: str | None = None
    lora: Mapping[str, Any] | None = None
    recipe: Mapping[str, Any] | None = None
    seeds: Mapping[str, int] | None = None
    adapted: Sequence[str] | None = None  # the layers that have an adapter
    # our own runs and scored checkpoints
    evaluation: Mapping[str, Any] | None = None
    # scored checkpoints only
    checkpoints: Mapping[str, str | None] | None = None  # folders by step
    precision: Precision | None = None

    @classmethod
    def of_run(cls, spec: RunSpec, adapted: Sequence[str] | None = None) -> StoredSpec:
        """Create the spec of our own run."""
        return cls(
            run_id=spec.run_id,
            name=spec.name,
            suite=spec.suite,
            train_set=spec.train_set,
            train_hash=spec.train_hash,
            draw_hash=spec.draw_hash,
            model=spec.model,
            pattern=spec.pattern,
            shots=spec.shots,
            seed=spec.seed,
            data_seed=spec.data_seed,
            lora=asdict(spec.lora),
            recipe=asdict(spec.recipe),
            seeds=asdict(spec.seeds),
            evaluation=asdict(spec.evaluation),
            adapted=adapted,
        )

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> StoredSpec:
        """Create a spec from the content of a file whose structure is checked."""
        model, pattern = stored["model"], stored["pattern"]
        own = {name: stored.get(name) for name in ("run_id", "shots", "seed", "data_seed", *PARTS)}
        return cls(
            name=stored.get("name", ""),
            suite=stored["suite"],
            train_set=stored["train_set"],
            model=ModelSpec(label=model["label"], source=model.get("source", ""), revision=model.get("revision")),
            pattern=Pattern(
                name=pattern["name"],
                text=pattern.get("text", ""),
                answers=tuple(pattern.get("answers", ())),
                **{key: pattern[key] for key in ("truncate", "max_tokens", "chat") if key in pattern},
            ),
            **own,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the content to write; unknown settings of a training elsewhere are omitted."""
        ours = self.run_id is not None
        pattern = {**asdict(self.pattern), "text": describe_text(self.pattern.text)}
        pattern = {key: value for key, value in pattern.items() if key not in OF_CHOICES or not self.pattern.answers}
        if not ours:
            pattern = {key: pattern[key] for key in ("name", "text", "answers")}
        parts = {name: value for name in PARTS if (value := getattr(self, name)) is not None}
        return {
            "schema": STORE_SCHEMA,
            "run_id": self.run_id,
            "name": self.name,
            "suite": self.suite,
            "train_set": self.train_set,
            "model": asdict(self.model) if self.model.source else {"label": self.model.label},
            "pattern": pattern,
            "shots": self.shots,
            "seed": self.seed,
            "data_seed": self.data_seed,
            **({"adapted": None} if ours else {}),
            **parts,
        }

    @property
    def test_sets(self) -> tuple[str, ...]:
        """The requested test sets and slices; empty: all test sets of the suite."""
        return tuple((self.evaluation or {}).get("test_sets", ()))

    @property
    def before_training(self) -> tuple[Any, ...]:
        """The settings that determine the scores of our own run at step 0, besides its environment."""
        recipe, evaluation = self.recipe or {}, self.evaluation or {}
        return self.model, recipe.get("precision"), evaluation.get("batch_tokens")


PARTS = (
    "train_hash", "draw_hash", "lora", "recipe", "seeds", "adapted", "evaluation", "checkpoints", "precision"
)  # fmt: skip


# writing


def begin_run(
    folder: RunFolder, spec: RunSpec, draw: Draw, env: Mapping[str, Any], adapted: Sequence[str] | None = None
) -> None:
    """Create a run folder with its spec, draw and environment.

    Scores and checkpoint of an unfinished attempt at the same run are kept. Remains of another run with this name are
    removed (`check_same_run` has made sure that it has no scores).
    """
    same = _known_id(folder) == spec.run_id
    if not same:
        check_spec(folder)
        check_same_run(folder, spec)
    with disk_errors(folder.path):
        if not same:
            shutil.rmtree(folder.path, ignore_errors=True)
        make_folder(folder.path)
        folder.failed.unlink(missing_ok=True)
    stored = sidecar(folder.env)
    if stored is None:
        write_json(folder.env, dict(env))
    elif stored != dict(env):
        log_line(folder, f"resumes in another environment: {json.dumps(dict(env), sort_keys=True)}")
    keep_draw(folder, draw)
    write_spec(folder, StoredSpec.of_run(spec, adapted))


def write_spec(folder: RunFolder, spec: StoredSpec) -> None:
    """Write the settings of a run."""
    write_json(folder.spec, spec.as_json())


def keep_draw(folder: RunFolder, draw: Draw) -> None:
    """Write the ids of a run's shots if they are missing or damaged."""
    header = {"schema": STORE_SCHEMA, "train_set": draw.train_set, "shots": draw.shots, "data_seed": draw.data_seed}
    record = {**header, "hash": draw.hash, "ids": [e.id for e in draw.examples]}
    if sidecar(folder.draw) != record:
        write_json(folder.draw, record)


# reading


def read_spec(folder: RunFolder) -> StoredSpec:
    """Read the settings of a run; the file must be intact and match its run id."""
    stored = read_json(folder.spec)
    version = str(stored.get("run_id") or "").partition("-")[0]
    if version not in ("", "1", "2"):
        stored = read_json(folder.spec, strictly=True)
    try:
        sound = version in ("", "1") or run_id_of(stored) == stored["run_id"]
        if sound:
            return StoredSpec.of_json(stored)
    except (KeyError, TypeError, AttributeError, ValueError):
        pass
    raise StoreError(f"{folder.spec}: {UNLIKE}; {restore(folder.path)}")


def glance_at_spec(folder: RunFolder) -> StoredSpec | None:
    """Read a spec without checking its id; None if it cannot be read."""
    stored = sidecar(folder.spec)
    return None if stored is None else StoredSpec.of_json(stored)


def _known_id(folder: RunFolder) -> str | None:
    """Return the id stated in a run's spec; None if it cannot be read."""
    try:
        return read_json(folder.spec).get("run_id")
    except StoreError:
        return None


# checks


def check_spec(folder: RunFolder) -> None:
    """Refuse a run that has scores but no valid spec: its training is unknown."""
    if folder.spec.is_file():
        if read_scores(folder):
            read_spec(folder)
    elif folder.has_results:
        raise StoreError(f"{folder.path}: has scores, but no spec.json; {restore(folder.path)}")


def check_same_run(folder: RunFolder, spec: RunSpec) -> None:
    """Refuse a run with this name whose scores belong to another run."""
    run_id = _known_id(folder) or spec.run_id  # see check_spec
    if run_id != spec.run_id and read_scores(folder):
        raise StoreError(
            f"{folder.path}: holds run {run_id}, but the study's run of this name is {spec.run_id} (model, data or"
            " recipe changed); choose another --out or remove the run"
        )


def check_identity(study: StudyFolder) -> None:
    """Refuse to add to runs of an older version, which trained differently under the same recipe."""
    if not study.is_study:
        return
    for folder in run_folders(study.path):
        version = str(_known_id(folder) or IDENTITY_VERSION).partition("-")[0]
        if version != str(IDENTITY_VERSION) and read_scores(folder):
            raise StoreError(
                f"{study}: run {folder.name} was trained by another version of oodles (run id of version {version},"
                f" here {IDENTITY_VERSION}), which trains differently with the same recipe. You can analyse and"
                " report it, but not add to it; choose another --out"
            )

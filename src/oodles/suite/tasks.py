"""Tasks of lm-evaluation-harness as sets: its own code renders them, and the rows are stored with their origin.

    source = { lm_eval = "hellaswag" }
    source = { lm_eval = "my_task.yaml", fewshot = 5, split = "train" }

A stored task is one Parquet file, `DIR/<set>/<split>.task.parquet` (`eval` for the split that the harness evaluates),
with the task's version, the harness's version and a hash of all rows. It is read without the harness. Tasks by name
are stored in the cache; tasks by path may change, and are stored only by `oodles fetch --to`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from oodles.contracts import Choice, DataSet, Example, Source, Suite, content_hash
from oodles.disk import cache_dir, put
from oodles.errors import DataError, MissingExtraError, first_line, nearest, shown
from oodles.suite.choices import METRICS, label_names, shown_text

ABOUT = b"oodles task"  # metadata key of a stored task
GROUP = "task"  # slice column of a group: the task of each example
EXTRA = "lm-eval"
KINDS = {
    "generate_until": "generates text",
    "loglikelihood": "scores a given text, without choices",
    "loglikelihood_rolling": "measures perplexity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrigin:
    """Where the rows of a stored task come from."""

    asked: str  # as the suite names the task
    split: str | None  # train, validation or test; None: the split that the harness evaluates
    fewshot: int | None  # as the suite says; None: as the task says
    fewshot_seed: int
    asked_revision: str | None
    slices: tuple[str, ...]  # columns of the documents that are kept
    shots: int  # examples in each prompt
    versions: Mapping[str, str]  # task -> its version
    metrics: Mapping[str, tuple[str, ...]]  # task -> the metrics that it lists
    configs: Mapping[str, str]  # task -> hash of its configuration
    harness: str  # version of lm-evaluation-harness
    rows: str  # hash of all rows
    file: str | None = None  # hash of the YAML of a task by path
    group: str | None = None  # version of a group, if it has one of its own
    revisions: Mapping[str, str] = field(default_factory=dict)  # task -> commit of its data on the hub, where known


@dataclass(frozen=True, slots=True)
class Task:
    """A rendered task."""

    examples: tuple[Example, ...]
    origin: TaskOrigin
    place: str  # the file it was read from, or what made it

    @property
    def version(self) -> str:
        """The version of a group, else the versions of its tasks, e.g. `1.0`."""
        return self.origin.group or ", ".join(dict.fromkeys(self.origin.versions.values()))

    @property
    def revision(self) -> str | None:
        """The commit of its data, if there is one and it is known."""
        asked, known = self.origin.asked_revision, set(self.origin.revisions.values())
        return known.pop() if len(known) == 1 else asked


def load_task(suite: Suite, data: DataSet) -> Task:
    """Read a stored task, or render it with the harness."""
    path = locate_task(suite, data)
    if path is not None:
        return _stored(str(path), path.stat().st_mtime_ns)
    if is_path(data.source):
        return _rendered(suite, data)
    return store_task(suite, data, task_file(replace(suite, data=""), data))


def store_task(suite: Suite, data: DataSet, path: Path) -> Task:
    """Store a task: as the cache has it, else rendered."""
    cached = locate_task(replace(suite, data=""), data)
    task = _rendered(suite, data) if cached is None else _stored(str(cached), cached.stat().st_mtime_ns)
    _write(task, path)
    return task


def _rendered(suite: Suite, data: DataSet) -> Task:
    where = f"{suite.name}/{data.name}"
    if not is_path(data.source):
        return _made(data.source, data.slices, str(data.source.lm_eval), 0, where)
    file = Path(suite.folder) / str(data.source.lm_eval)
    if not file.is_file():
        raise DataError(f"{where}: {file}: no such file; tasks are looked up beside the suite's TOML")
    return _made(data.source, data.slices, str(file), file.stat().st_mtime_ns, where)


def locate_task(suite: Suite, data: DataSet) -> Path | None:
    """Return the stored rows of a task, if there are any."""
    where, name = f"{suite.name}/{data.name}", file_name(data.source)
    if suite.data:
        for folder in (Path(suite.data) / suite.name, Path(suite.data)):
            path = folder / data.name / name
            if path.is_file():
                if not _fits(_read_origin(path), data):
                    raise DataError(
                        f"{where}: {path} holds another task or other examples in its prompts; fetch the suite again"
                    )
                _check_file(suite, data, path)
                return path
    if is_path(data.source):
        return None
    path = task_file(replace(suite, data=""), data)
    return path if path.is_file() and _fits(_read_origin(path), data) else None


def _check_file(suite: Suite, data: DataSet, path: Path) -> None:
    """Refuse stored rows of another YAML than the one beside the suite, if there is one."""
    yaml, stored = Path(suite.folder) / str(data.source.lm_eval), _read_origin(path)
    known = stored.file if stored is not None and is_path(data.source) else None
    if known is not None and yaml.is_file() and _file_hash(yaml) != known:
        raise DataError(
            f"{suite.name}/{data.name}: {path} was not made from {yaml} as it is now; fetch the suite again, or choose"
            " another --data"
        )


def _file_hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def floats(suite: Suite, data: DataSet) -> bool:
    """Whether the rows of a task are those that the hub has today: of no named commit, and of no copy of the user's."""
    source = data.source
    if source.lm_eval is None or is_path(source) or source.revision is not None:
        return False
    return is_cached(locate_task(suite, data), suite, data)


def is_cached(path: Path | None, suite: Suite, data: DataSet) -> bool:
    """Whether a stored task is in the cache, or nowhere yet."""
    return path is None or path == task_file(replace(suite, data=""), data)


def task_file(suite: Suite, data: DataSet) -> Path:
    """Where a task is stored: in the suite's folder of data, else in the cache."""
    folder = Path(suite.data) if suite.data else cache_dir() / "data" / suite.name
    return folder / data.name / file_name(data.source)


def file_name(source: Source) -> str:
    """The name of a stored task's file."""
    return f"{source.split or 'eval'}.task.parquet"


def is_path(source: Source) -> bool:
    """Whether a task is named by its YAML file."""
    return str(source.lm_eval).lower().endswith((".yaml", ".yml"))


def _fits(origin: TaskOrigin | None, data: DataSet) -> bool:
    """Whether stored rows are those that a set asks for."""
    source = data.source
    asked = (source.lm_eval, source.split, source.fewshot, source.fewshot_seed, source.revision, data.slices)
    if origin is None:
        return False
    stored = (origin.asked, origin.split, origin.fewshot, origin.fewshot_seed, origin.asked_revision, origin.slices)
    return stored == asked


# storing


def _write(task: Task, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [_as_row(example) for example in task.examples]
    table = pa.Table.from_pylist(rows)
    about = json.dumps(asdict(task.origin), ensure_ascii=False)
    with put(path) as aside:
        pq.write_table(
            table.replace_schema_metadata({ABOUT: about}), aside, compression="zstd", write_page_checksum=True
        )


def _as_row(example: Example) -> dict[str, Any]:
    contexts = [choice.context for choice in example.rendered]
    return {
        "id": example.id,
        "question": example.fields["question"],
        "contexts": contexts[:1] if len(set(contexts)) == 1 else contexts,
        "continuations": [choice.continuation for choice in example.rendered],
        "choices": list(example.choices),
        "gold": example.answer,
        **{f"slice:{name}": value for name, value in example.slices.items()},
    }


def _of_row(row: Mapping[str, Any]) -> Example:
    contexts = row["contexts"] if len(row["contexts"]) > 1 else row["contexts"] * len(row["choices"])
    parts = zip(contexts, row["continuations"], row["choices"], strict=True)
    return Example(
        id=row["id"],
        fields={"question": row["question"]},
        label="",
        answer=row["gold"],
        slices={name.removeprefix("slice:"): row[name] for name in row if name.startswith("slice:")},
        choices=tuple(row["choices"]),
        rendered=tuple(Choice(context=a, continuation=b, text=c) for a, b, c in parts),
    )


def _read_origin(path: Path) -> TaskOrigin | None:
    """What a file says of its rows; None if it is no stored task."""
    import pyarrow.parquet as pq

    try:
        about = json.loads((pq.read_schema(path).metadata or {})[ABOUT])
        lists = {name: tuple(about[name]) for name in ("slices",)}
        metrics = {task: tuple(names) for task, names in about["metrics"].items()}
        return TaskOrigin(**{**about, **lists, "metrics": metrics})
    except OSError:
        raise
    except Exception:  # damaged, or another file
        return None


@lru_cache(maxsize=32)
def _stored(path: str, _stamp: int) -> Task:
    import pyarrow.parquet as pq

    origin = _read_origin(Path(path))
    try:
        rows = pq.read_table(path, page_checksum_verification=True).to_pylist()
        examples = tuple(map(_of_row, rows))
    except Exception as error:  # Arrow raises many kinds of errors for a damaged file
        raise DataError(f"{path} cannot be read: {first_line(error)}; fetch the suite again") from None
    if origin is None or _hash(examples) != origin.rows:
        raise DataError(f"{path}: its rows are not those that were stored; remove it and fetch the suite again")
    return Task(_labelled(examples), origin, path)


def _hash(examples: Sequence[Example]) -> str:
    return content_hash([[e.id, e.answer, dict(e.slices), *e.parts[4:]] for e in examples])


def _labelled(examples: Sequence[Example]) -> tuple[Example, ...]:
    names = label_names([e.choices for e in examples], [e.answer for e in examples])
    return tuple(replace(example, label=name) for example, name in zip(examples, names, strict=True))


# the harness


@lru_cache(maxsize=32)
def _made(source: Source, slices: tuple[str, ...], named: str, _stamp: int, where: str) -> Task:
    """Render a task with the harness."""
    with _quiet(where):
        import lm_eval

        tasks, group = _tasks(source, named, where)
        examples: list[Example] = []
        shots = set()
        for name, task in tasks.items():
            _check_kind(name, task, where)
            shots.add(_set_shots(name, task, source, where))
            prefix = f"{name}/" if len(tasks) > 1 else ""
            examples += _render(name, task, source, slices, prefix, where)
    _check_weights(group, examples, where)
    if len(shots) > 1:
        raise DataError(
            f"{where}: tasks of '{shown(named)}' have different numbers of examples in their prompts; set fewshot"
        )
    origin = TaskOrigin(
        asked=str(source.lm_eval),
        split=source.split,
        fewshot=source.fewshot,
        fewshot_seed=source.fewshot_seed,
        asked_revision=source.revision,
        slices=slices,
        shots=shots.pop(),
        versions={name: str(task.VERSION) for name, task in tasks.items()},
        metrics={name: tuple(map(str, task._metric_fn_list)) for name, task in tasks.items()},
        configs={name: _config_hash(task) for name, task in tasks.items()},
        harness=str(getattr(lm_eval, "__version__", "unknown")),
        rows=_hash(examples),
        file=_file_hash(Path(named)) if is_path(source) else None,
        group=str(group.version) if group is not None and group.version != "N/A" else None,
        revisions={name: commit for name, task in tasks.items() if (commit := _commit(name, task, source, where))},
    )
    return Task(_labelled(examples), origin, f"lm-evaluation-harness {origin.harness}, task {source.lm_eval}")


@contextlib.contextmanager
def _quiet(where: str) -> Iterator[None]:
    """Silence the harness: its progress bars, and what it logs."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    try:
        import lm_eval  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"{where} from lm-evaluation-harness", EXTRA) from None
    from oodles.suite.hub import quiet_libraries

    try:
        logger.setLevel(logging.CRITICAL)
        with quiet_libraries(where), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


@lru_cache(maxsize=1)
def _all_tasks() -> Any:
    """The harness's index of its own tasks, which takes seconds to make."""
    from lm_eval.tasks import TaskManager

    return TaskManager()


def _tasks(source: Source, named: str, where: str) -> tuple[dict[str, Any], Any]:
    """The task, or the tasks of a group, with their data; and the group, if it is one."""
    try:
        if is_path(source):
            manager, spec = _found_at(Path(named))
        else:
            manager, spec = _all_tasks(), named
        if not is_path(source) and named not in manager.all_tasks:
            raise DataError(f"{where}: the harness has no task '{shown(named)}'; {_meant(named, manager.all_tasks)}")
        _check_entry(manager, named, where)
        loaded = manager.load([spec if source.revision is None else _pinned(manager, source, named)])
        return dict(loaded["tasks"]), next(iter(loaded["groups"].values()), None)  # its own groups come after it
    except DataError:
        raise
    except Exception as error:  # a task is a program: its data, its template or its code may fail in any way
        raise DataError(f"{where}: the harness cannot load task '{shown(named)}' ({first_line(error)})") from None


def _meant(named: str, known: Sequence[str]) -> str:
    """What may have been meant: names of about the same length first, because there are thousands."""
    alike = [name for name in known if abs(len(name) - len(named)) <= 2]
    meant = nearest(named, alike)
    return meant if meant.startswith("did you mean") else "a task of yours is named by its file, e.g. my_task.yaml"


def _check_entry(manager: Any, named: str, where: str) -> None:
    """Refuse a task of the harness that is no multiple choice before its data are loaded."""
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = manager.task_index.get(named)
    file = getattr(entry, "yaml_path", None)
    config = load_yaml(file, resolve_func=False) if file is not None else {}
    kind = config.get("output_type", "multiple_choice") if isinstance(config.get("task"), str) else "multiple_choice"
    if kind != "multiple_choice":
        raise _other_kind(named, kind, where)


def _other_kind(name: str, kind: str, where: str) -> DataError:
    does = KINDS.get(kind, "asks something else")
    return DataError(f"{where}: task '{shown(name)}' {does} ({kind}); expected multiple_choice")


def _found_at(file: Path) -> tuple[Any, str]:
    """A task by its path; a group by its name, among the tasks of its folder."""
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks._yaml_loader import load_yaml

    group = load_yaml(file, resolve_func=False).get("group")
    if not isinstance(group, str):
        return TaskManager(include_defaults=False), str(file)
    return TaskManager(include_defaults=False, include_path=str(file.parent)), group


def _pinned(manager: Any, source: Source, named: str) -> dict[str, Any]:
    """The configuration of a task with its data at a commit."""
    from lm_eval.tasks._yaml_loader import load_yaml

    entry = manager.task_index.get(named)
    file = named if entry is None else entry.yaml_path
    config: dict[str, Any] = dict(load_yaml(file)) if file is not None else {}
    if not isinstance(config.get("task"), str):
        raise DataError(
            f"task '{shown(named)}': revision goes with a single task; name the tasks of a group one by one"
        )
    return {**config, "dataset_kwargs": {**(config.get("dataset_kwargs") or {}), "revision": source.revision}}


def _commit(name: str, task: Any, source: Source, where: str) -> str | None:
    """The commit of a task's data; without the hub, `datasets` takes any that its cache holds."""
    from oodles.suite.hub import COMMIT, commit_of

    splits = task.dataset.values() if isinstance(task.dataset, dict) else ()
    found = {commit for split in splits if hasattr(split, "cache_files") and (commit := commit_of(split))}
    commit = found.pop() if len(found) == 1 else None
    asked = source.revision or ""
    if commit is not None and COMMIT.fullmatch(asked) and commit != asked:
        raise DataError(
            f"{where}: the data of task '{shown(name)}' are of commit {commit}, not of {asked}; fetch again"
        )
    return commit


def _check_weights(group: Any, examples: Sequence[Example], where: str) -> None:
    """Refuse a group that averages over tasks of different sizes: accuracy here is over examples."""
    sizes = {sum(e.slices.get(GROUP) == name for e in examples) for name in {e.slices.get(GROUP) for e in examples}}
    unweighted = [m.metric for m in getattr(group, "aggregate_metric_list", None) or () if not m.weight_by_size]
    if len(sizes) > 1 and unweighted:
        raise DataError(
            f"{where}: group '{shown(group.name)}' averages {unweighted[0]} over its tasks (weight_by_size: false), but"
            " accuracy here is over examples, and the tasks have different sizes; name them one by one"
        )


def _check_kind(name: str, task: Any, where: str) -> None:
    """Refuse tasks that are no multiple choice, with the reason."""
    kind = str(task.OUTPUT_TYPE)
    if kind != "multiple_choice":
        raise _other_kind(name, kind, where)
    for key, reason in (
        ("process_results", "computes its own scores (process_results)"),
        ("doc_to_image", "shows images"),
        ("doc_to_audio", "plays sounds"),
    ):
        if getattr(task.config, key, None) is not None:
            raise DataError(f"{where}: task '{shown(name)}' {reason}; expected the accuracy of choices")
    for metric, aggregation in getattr(task, "_aggregation_list", {}).items():
        if metric in METRICS.values() and getattr(aggregation, "__name__", "") != "mean":
            raise DataError(f"{where}: task '{shown(name)}' aggregates {metric} in its own way; expected the mean")


def _set_shots(name: str, task: Any, source: Source, where: str) -> int:
    """Set the number of examples in the prompt as the harness does, and their seed."""
    own = task.get_config("num_fewshot")
    if source.fewshot and own == 0:
        raise DataError(
            f"{where}: fewshot is {source.fewshot}, but task '{shown(name)}' says num_fewshot: 0, which the harness"
            " never changes; leave fewshot out"
        )
    if source.fewshot is not None:
        task.set_config(key="num_fewshot", value=source.fewshot)
    elif own is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=source.fewshot_seed)
    return int(task.get_config("num_fewshot"))


def _documents(name: str, task: Any, split: str | None, where: str) -> Any:
    if split is None:
        return task.eval_docs
    has: Callable[[], bool]
    has, docs = {
        "train": (task.has_training_docs, task.training_docs),
        "validation": (task.has_validation_docs, task.validation_docs),
        "test": (task.has_test_docs, task.test_docs),
    }[split]
    if not has():
        raise DataError(f"{where}: task '{shown(name)}' has no split for {split}; leave split out, or name another")
    return docs()


def _render(name: str, task: Any, source: Source, slices: Sequence[str], prefix: str, where: str) -> Iterator[Example]:
    leave_out = _leave_out(task) if source.split is not None else lambda _: None
    for number, document in enumerate(_documents(name, task, source.split, where)):
        place = f"{where}: task '{shown(name)}', document {number}"
        leave_out(document)
        try:
            context = task.fewshot_context(
                document, num_fewshot=task.config.num_fewshot, gen_prefix=task.doc_to_prefix(document)
            )
            requests = task.construct_requests(doc=document, ctx=context, metadata=(name, number, 1))
            texts = task.doc_to_choice(document)
            gold = task.doc_to_text(document) if task.multiple_input else task.doc_to_target(document)
            question = None if task.multiple_input else str(task.doc_to_text(document))
        except Exception as error:  # a task is a program
            raise DataError(f"{place}: cannot be rendered ({first_line(error)})") from None
        _check_texts(texts, place)
        pairs = [request.args for request in requests[: len(texts)]]  # later ones are its own baseline
        rendered = tuple(
            Choice(context=pair[0], continuation=pair[1], text=text) for pair, text in zip(pairs, texts, strict=True)
        )
        missing = [column for column in slices if column not in document]
        if missing:
            raise DataError(f"{place}: no column '{missing[0]}' for a slice; {nearest(missing[0], document)}")
        yield Example(
            id=f"{prefix}{number}",
            fields={"question": question if question is not None else _blanked(texts, rendered)},
            label="",
            answer=_gold(gold, texts, place),
            slices={**({GROUP: name} if prefix else {}), **{column: str(document[column]) for column in slices}},
            choices=tuple(texts),
            rendered=rendered,
        )


def _leave_out(task: Any) -> Callable[[Any], None]:
    """Let a task's sampler leave out a document; return the function that says which.

    The harness leaves a document out of its own prompt only in the split that it evaluates.
    """
    current: list[Any] = [None]
    sampler = getattr(task, "sampler", None)
    if sampler is not None:
        draw = sampler.sample

        def sample(n: int, eval_doc: Any = None, **more: Any) -> Any:
            return draw(n, eval_doc=current[0] if eval_doc is None else eval_doc, **more)

        sampler.sample = sample
    return lambda document: current.__setitem__(0, document)


def _check_texts(texts: Any, place: str) -> None:
    """Refuse choices that cannot be told apart by a model."""
    if (
        not isinstance(texts, (list, tuple))
        or len(texts) < 2
        or not all(isinstance(t, str) and t.strip() for t in texts)
    ):
        raise DataError(f"{place}: choices {shown(repr(texts))}, expected a list of at least two texts, none empty")


def _blanked(texts: Sequence[str], rendered: Sequence[Choice]) -> str:
    """The question of a task whose choices fill a gap: what they have in common, the gap, and the rest."""
    same = shown_text([Choice(context=text, continuation="", text="") for text in texts])
    return f"{same}_{rendered[0].continuation}"


def _gold(gold: Any, texts: Sequence[str], place: str) -> int:
    """The index of the right choice."""
    if isinstance(gold, list):
        if len(gold) != 1:
            raise DataError(f"{place}: {len(gold)} choices are right; expected one")
        gold = gold[0]
    index = texts.index(gold) if gold in texts else gold
    if not isinstance(index, int) or not 0 <= index < len(texts):
        why = f"expected an index from 0 to {len(texts) - 1}, or a choice's text"
        if gold in (-1, None, "", "-1"):
            why += "; a split without labels cannot be scored"
        elif isinstance(gold, str) and gold.isdigit():
            why += '; for an index, write doc_to_target: "{{label}}" with the column\'s name'
        raise DataError(f"{place}: the target {shown(repr(gold))} is none of the {len(texts)} choices; {why}")
    return int(index)


def _config_hash(task: Any) -> str:
    """Hash the configuration of a task, its functions by their source."""
    config = dict(task.dump_config())
    metadata = {k: v for k, v in (config.pop("metadata", None) or {}).items() if k != "config_source"}
    return content_hash([str(sorted(config.items(), key=lambda item: item[0])), str(sorted(metadata.items()))])

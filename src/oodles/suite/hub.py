"""Fetch a data set from the Hugging Face hub, or its fallback file, into one Parquet file with its provenance.

    DIR/hans/validation.parquet      all columns of the split, with the hub's names of the labels
    DIR/hans/validation.json         where the rows came from: see `Provenance`

Sources are tried in this order: the commit that the suite names, else the current commit; for a repository that is a
loading script, the hub's Parquet branch; if the hub does not answer, the cache of the Hugging Face libraries; the
fallback file. With HF_HUB_OFFLINE or HF_DATASETS_OFFLINE only the cache is used. The id may also be a folder that is
laid out like a hub repository. The libraries honour HF_HOME, HF_ENDPOINT and proxies as usual; `datasets` keeps its
tables in HF_CACHE_DIR, if that is set.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import logging
import os
import queue
import re
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from oodles.contracts import Fallback, Source
from oodles.disk import put, read_sealed, sync
from oodles.errors import DataError, DiskError, MissingExtraError, StoreError, masked, nearest
from oodles.suite.load import list_suites
from oodles.trouble import disk_errors

CONVERTED = "refs/convert/parquet"  # the branch with the hub's own Parquet copy of a repository
CONVERTED_FILE = re.compile(r"(?P<config>[^/]+)/(?P<split>[^/]+)/\d{4,}\.parquet")
PLAIN_SPLITS = {"train", "validation", "test"}  # splits that `datasets` recognises from folder names alone
SPLIT_NAME = re.compile(r"(?:^|\+)([\w.-]+)")  # the split names in train, train[:100] or train+test
COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
OFF_SWITCHES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")

PATIENCE = 10.0  # seconds to wait for the hub's first answer; by default the libraries retry for 23
STALL = 30.0  # seconds without data before a download is aborted
SAY_EVERY = 5.0  # seconds between two progress lines of a download
MAX_BYTES = 2**30  # limit for a fallback file

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of the rows of a Parquet file; stored as JSON beside it."""

    hub: str
    config: str | None
    split: str
    asked_revision: str | None  # the revision that the suite names
    revision: str | None  # commit on the hub; None for a fallback or a folder, or if the cache does not record it
    origin: str  # "hub", "hub refs/convert/parquet", the url of the fallback, or the folder
    rows: int
    sha256: str  # of the Parquet file


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows of a split as a `datasets.Dataset`, and their origin."""

    dataset: Any
    origin: str
    revision: str | None = None


_Way = tuple[str, Callable[[], _Rows]]  # a source of the rows: its name in messages, and a function that loads them


class _FailedError(Exception):
    """A source of the rows failed: the text gives the reason, `instead` the sources to try next."""

    def __init__(self, reason: str, *instead: _Way) -> None:
        super().__init__(reason)
        self.instead = instead


class _UnreachableError(_FailedError):
    """The hub did not answer."""


def bring(source: Source, target: Path, where: str, say: Say) -> Provenance:
    """Write the rows of a hub data set to `target`, with their provenance beside it; both are complete or absent.

    `where` names the set in messages, e.g. "nli/snli". If every source fails, one DataError lists all of them.
    """
    if not source.hub or not source.split:
        raise DataError(f"{where}: source has hub {source.hub!r} and split {source.split!r}; expected both")
    with quiet_libraries(where):
        return _keep(_find(source, source.hub, target, where, say), source, target)


def provenance_of(target: Path) -> Provenance | None:
    """Read the provenance stored beside a Parquet file; None if there is none."""
    path = target.with_suffix(".json")
    if not path.is_file():
        return None
    try:
        record = read_sealed(path, advice="remove it and fetch the set again")
    except StoreError as error:
        raise DataError(str(error)) from None
    kinds = {"str": str, "int": int, "str | None": str | None}
    expected = {f.name: kinds[str(f.type)] for f in fields(Provenance)}
    wrong = [name for name, kind in expected.items() if name not in record or not isinstance(record[name], kind)]
    wrong += sorted(set(record) - set(expected))
    if wrong:
        raise DataError(f"{path}: damaged at {', '.join(wrong)}; remove it and fetch the set again")
    return Provenance(**record)


def matches(provenance: Provenance, source: Source) -> bool:
    """Whether a stored file matches the requested source."""
    fetched = (provenance.hub, provenance.config, provenance.split, provenance.asked_revision)
    return fetched == (source.hub, source.config, source.split, source.revision)


# finding the rows


def _find(source: Source, hub: str, target: Path, where: str, say: Say) -> _Rows:
    """Load the rows from the first source that works; if all fail, raise one error that names them."""
    off = None if Path(hub).is_dir() else _switched_off()
    ways, failures = _ways(source, hub, target, where, say), []
    advice = "check the set's source in the suite"
    while ways:
        name, way = ways.pop(0)
        try:
            rows = way()
            if name == "cache":
                say(f"{where}: {hub} from the libraries' cache, commit {(rows.revision or 'unknown')[:12]}")
            return rows
        except _FailedError as failure:
            if off:
                raise DataError(f"{where}: {failure} and the hub is switched off ({off}); {_carry(where)}") from None
            if isinstance(failure, _UnreachableError):
                advice = f"check the network, or {_carry(where)}"
            failures.append(f"{name}: {failure}")
            ways[:0] = failure.instead
    raise DataError(f"{where}: '{hub}' cannot be loaded: {'; '.join(failures)}; {advice}")


def _ways(source: Source, hub: str, target: Path, where: str, say: Say) -> list[_Way]:
    """List the sources in the order they are tried; some add further sources when they fail."""
    off, fallback = _switched_off(), source.fallback
    ways: list[_Way] = []
    if Path(hub).is_dir():
        ways.append(("folder", lambda: _from_folder(source, hub)))
    elif off:
        ways.append(("cache", lambda: _from_cache(source, hub)))
    else:
        ways.append(("hub", lambda: _from_hub(source, hub, where, say)))
    if fallback is not None and not off:
        ways.append((f"fallback {fallback.url}", lambda: _from_fallback(fallback, target, where, say)))
    return ways


def _carry(where: str) -> str:
    name = where.split("/")[0]
    suite = name if name in list_suites() else f"TOML-OF-{name.upper()}"
    return (
        f"on a machine with network run `oodles fetch {suite} --to DIR`, copy DIR here and pass --data DIR"
        " (or set OODLES_DATA)"
    )


def _from_folder(source: Source, hub: str) -> _Rows:
    """Load a folder laid out like a repository; an absolute path cannot match one of the library's loaders."""
    return _Rows(dataset=_load(str(Path(hub).resolve()), source.config, source), origin=hub)


def _from_hub(source: Source, hub: str, where: str, say: Say) -> _Rows:
    """Load exactly one commit: the requested one, or the current one."""
    if not HUB_ID.fullmatch(hub):
        raise _FailedError("no such folder, and not an id such as org/name")
    commit, files = _ask(source, hub, source.revision)
    if f"{hub.split('/')[-1]}.py" in files:
        converted = (f"hub {CONVERTED}", lambda: _from_converted(source, hub, where, say))
        raise _FailedError("a loading script, which `datasets` no longer runs", converted)
    say(f"{where}: {hub} at commit {commit[:12]}")
    if source.revision and "README.md" not in files and any(map(CONVERTED_FILE.fullmatch, files)):
        dataset = _load_converted(source, hub, commit, files)  # the suite names a commit of the converted branch
    else:
        dataset = _load(hub, source.config, source, revision=commit)
    return _Rows(dataset=_at(commit, dataset), origin="hub", revision=commit)


def _from_converted(source: Source, hub: str, where: str, say: Say) -> _Rows:
    """Load the hub's own Parquet copy of a repository."""
    commit, files = _ask(source, hub, CONVERTED)
    say(f"{where}: {hub} is a loading script; its Parquet branch at commit {commit[:12]}")
    dataset = _load_converted(source, hub, commit, files)
    return _Rows(dataset=_at(commit, dataset), origin=f"hub {CONVERTED}", revision=commit)


def _load_converted(source: Source, hub: str, commit: str, files: Sequence[str]) -> Any:
    """Load <config>/<split>/0000.parquet ...: configurations are folders, whose names `datasets` does not know."""
    configs = sorted({path.split("/")[0] for path in files if path.endswith(".parquet")})
    config = source.config or (configs[0] if len(configs) == 1 else None)
    if config not in configs:
        mismatch = f"not '{config}'" if config else "and the suite names none"
        raise _FailedError(f"it holds the configurations {', '.join(configs) or '(none)'}, {mismatch}")
    parts = [m for m in map(CONVERTED_FILE.fullmatch, files) if m is not None and m["config"] == config]
    splits, wanted = {m["split"] for m in parts}, SPLIT_NAME.findall(str(source.split))
    if parts and not set(wanted) <= splits:
        raise _FailedError(f"it holds the splits {', '.join(sorted(splits))}, not '{source.split}'")
    if len(configs) == 1 and splits <= PLAIN_SPLITS:  # also covers the former layout, <config>/hans-validation.parquet
        return _load(hub, None, source, revision=commit)
    chosen = {name: [m[0] for m in parts if m["split"] == name] for name in wanted}
    return _load(hub, None, source, revision=commit, data_files=chosen)


def _from_cache(source: Source, hub: str) -> _Rows:
    """Load a data set from the libraries' cache, without network access."""
    # the cache stores a converted branch as "default", whatever the suite calls the configuration
    names = dict.fromkeys([source.config, source.config and "default"])
    reason = f"'{hub}' is not in the cache"
    for name in names:
        try:
            with _hub_off():
                dataset = _load_cached(hub, name, source)
        except _FailedError as failure:
            if name == source.config and not isinstance(failure.__cause__, ConnectionError):
                reason += f" ({failure})"
            continue
        commit = commit_of(dataset)
        converted = _is_converted(hub, commit, source.config)
        if not converted and name != source.config:
            continue
        if source.revision not in (None, commit):
            reason = f"'{hub}' is in the cache at commit {commit or 'unknown'}, not at {source.revision},"
            continue
        return _Rows(dataset=dataset, origin=f"hub {CONVERTED}" if converted else "hub", revision=commit)
    raise _FailedError(reason)


def _load_cached(hub: str, config: str | None, source: Source) -> Any:
    """Load the requested commit if it is cached; else the latest, which is the only one `load_dataset` looks for."""
    from datasets.packaged_modules.cache.cache import Cache

    if source.revision and COMMIT.fullmatch(source.revision):
        location = {"cache_dir": _tables(), "repo_id": hub, "dataset_name": hub.split("/")[-1], "version": "0.0.0"}
        try:
            return Cache(config_name=config, hash=source.revision, **location).as_dataset(split=source.split)
        except Exception as error:  # missing or incomplete
            logging.getLogger(__name__).debug("%s: %s", hub, error)
    return _load(hub, config, source)


def _is_converted(hub: str, commit: str | None, config: str | None) -> bool:
    """Whether a cached commit belongs to the hub's Parquet branch and holds this configuration only."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE) / f"datasets--{hub.replace('/', '--')}" / "snapshots" / str(commit)
    paths = (path.relative_to(folder).as_posix() for path in folder.glob("*/*/*.parquet"))
    configs = {m["config"] for m in map(CONVERTED_FILE.fullmatch, paths) if m is not None}
    return not (folder / "README.md").exists() and len(configs) == 1 and (config is None or configs == {config})


# the libraries


def _ask(source: Source, hub: str, revision: str | None) -> tuple[str, list[str]]:
    """Resolve a revision to its commit and files, with one request that fails fast if the hub is unreachable."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    api, cache = HfApi(), ("cache", lambda: _from_cache(source, hub))
    if _ONE_ATTEMPT and _ASKED.get(api.endpoint):
        raise _UnreachableError(_ASKED[api.endpoint], cache)
    try:
        info = within(_patience(), lambda: api.dataset_info(hub, revision=revision, timeout=_patience()))
    except GatedRepoError:
        raise _FailedError("access must be asked for on its page; then log in with `hf auth login`") from None
    except RepositoryNotFoundError:
        raise _FailedError("no such data set, or one that needs a login (`hf auth login`)") from None
    except RevisionNotFoundError:
        raise _FailedError(f"no revision '{revision or 'main'}'") from None
    except HFValidationError as error:
        raise _FailedError(_reason(error)) from None
    except HfHubHTTPError as error:
        raise _UnreachableError(f"{api.endpoint} answers {error.response.status_code}", cache) from None
    except Exception as error:  # network errors have different types in every version of the libraries
        away = f"{api.endpoint} cannot be reached ({_reason(error)})"
        if _ONE_ATTEMPT:
            _ASKED[api.endpoint] = away
        raise _UnreachableError(away, cache) from None
    if not info.sha:
        raise _FailedError(f"{api.endpoint} names no commit")
    return info.sha, [file.rfilename for file in info.siblings or []]


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return the result of a call, or raise TimeoutError: DNS lookups and address retries ignore timeouts."""
    answer: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answer.put((call(), None))
        except Exception as error:
            answer.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    if error is not None:
        raise error
    return value


_ASKED: dict[str, str] = {}  # by endpoint: why it does not answer; empty if it does
_ONE_ATTEMPT: list[float] = []  # timeouts in seconds, innermost last


def _patience() -> float:
    return _ONE_ATTEMPT[-1] if _ONE_ATTEMPT else PATIENCE


@contextmanager
def one_attempt(seconds: float) -> Iterator[None]:
    """Within this context, the first request to a hub decides for all others; it must be answered in `seconds`."""
    _ONE_ATTEMPT.append(seconds)
    try:
        yield
    finally:
        _ONE_ATTEMPT.pop()


def unreachable(model: str, revision: str) -> str:
    """Return why the hub does not answer, or an empty text. Asked only once, because the libraries retry for long."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi()
    if api.endpoint not in _ASKED:
        try:
            within(_patience(), lambda: api.model_info(model, revision=revision, timeout=_patience()))
            _ASKED[api.endpoint] = ""
        except HFValidationError:
            return ""  # the id is wrong; the loader reports it
        except HfHubHTTPError as error:
            status = error.response.status_code
            _ASKED[api.endpoint] = f"{api.endpoint} answers {status}" if status >= 500 else ""
        except Exception as error:  # network errors have different types in every version of the libraries
            _ASKED[api.endpoint] = f"{api.endpoint} cannot be reached ({_reason(error)})"
    return _ASKED[api.endpoint]


def _load(path: str, config: str | None, source: Source, **more: Any) -> Any:
    import datasets

    more |= {"split": source.split, "cache_dir": _tables(), "keep_in_memory": False}
    try:
        return datasets.load_dataset(path, config, **more)
    except Exception as error:  # the library raises many kinds of errors, from the network, the cache and the parser
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
                raise DiskError(
                    f"the cache of the Hugging Face libraries cannot be written ({cause.strerror}); free some space or"
                    " set HF_HOME and HF_CACHE_DIR to other folders"
                ) from None
            cause = cause.__cause__ or cause.__context__
        raise _FailedError(_reason(error)) from error


def _tables() -> str | None:
    return os.environ.get("HF_CACHE_DIR") or None


def _reason(error: BaseException) -> str:
    """Return an error in one line; if a library wraps another error, that of the inner error."""
    while type(error).__name__ == "DatasetGenerationError" and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300].rstrip(".") or type(error).__name__


def commit_of(dataset: Any) -> str | None:
    """Return the commit of a loaded data set; `datasets` stores its tables in a folder of that name."""
    folders = {Path(file["filename"]).parent.name for file in dataset.cache_files}
    return next((name for name in folders if COMMIT.fullmatch(name)), None)


def _at(commit: str, dataset: Any) -> Any:
    """Return the data set if it has this commit; when the hub fails, the library loads any commit from its cache."""
    cached = commit_of(dataset)
    if cached not in (commit, None):
        raise _FailedError(f"the connection broke off, and the cache holds commit {cached} instead of {commit}")
    return dataset


def _switched_off() -> str | None:
    """Return the environment variable that disables the network, if one is set."""
    import datasets
    from huggingface_hub import constants

    for name in OFF_SWITCHES:
        if os.environ.get(name, "").upper() in constants.ENV_VARS_TRUE_VALUES:
            return name
    return OFF_SWITCHES[0] if constants.HF_HUB_OFFLINE or datasets.config.HF_HUB_OFFLINE else None


@contextmanager
def _hub_off() -> Iterator[None]:
    """Prevent both libraries from using the network, whatever environment they read when they were loaded."""
    import datasets
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@contextmanager
def quiet_libraries(where: str) -> Iterator[None]:
    """Silence the libraries: progress bars only on a terminal, no warnings. Relevant problems are reported here."""
    try:
        import datasets
        from huggingface_hub import utils
    except ImportError:
        raise MissingExtraError(f"{where} from the hub", "data") from None
    libraries = datasets.utils, utils
    levels = [library.logging.get_verbosity() for library in libraries]
    bars = [x for x in libraries if not sys.stderr.isatty() and not x.are_progress_bars_disabled()]
    try:
        for library in libraries:
            library.logging.set_verbosity_error()
        for library in bars:
            library.disable_progress_bars()
        yield
    finally:
        for library, level in zip(libraries, levels, strict=True):
            library.logging.set_verbosity(level)
        for library in bars:
            library.enable_progress_bars()


# the fallback


def _from_fallback(fallback: Fallback, target: Path, where: str, say: Say) -> _Rows:
    """Load a public file with a known hash: tab-separated, with a header, quotation marks as plain text."""
    import datasets

    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    # a file without a name, so it disappears however this process ends
    with disk_errors(target), tempfile.TemporaryFile(dir=target.parent) as scratch:
        digest = _download(fallback.url, scratch, target, where, say)
        if digest != fallback.sha256.lower():
            raise _FailedError(f"its sha256 is {digest}, expected {fallback.sha256.lower()}; it was not kept")
        columns = _columns(scratch, fallback)
    kinds = {name: "int64" if name == "label" and fallback.labels else "string" for name in columns}
    features = datasets.Features({name: datasets.Value(kind) for name, kind in kinds.items()})
    return _Rows(dataset=datasets.Dataset.from_dict(columns, features=features), origin=masked(fallback.url))


def _download(url: str, scratch: IO[bytes], target: Path, where: str, say: Say) -> str:
    """Stream a file to disk; return its sha256."""
    if not url.startswith(("https://", "http://")):
        raise _FailedError("not an https:// address")
    request = urllib.request.Request(url, headers={"User-Agent": "oodles"})
    digest, done, reported = hashlib.sha256(), 0, time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=STALL) as answer:
            size = int(answer.headers.get("Content-Length") or 0)
            total = f" of {_megabytes(size)}" if size else ""
            say(f"{where}: downloading {masked(url)}{total.replace(' of', ',')}")
            _check_size(size)
            while chunk := answer.read(2**18):
                with disk_errors(target):
                    scratch.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                _check_size(done)
                if time.monotonic() - reported >= SAY_EVERY:
                    reported = time.monotonic()
                    say(f"{where}: {_megabytes(done)}{total}")
    except urllib.error.HTTPError as error:
        raise _FailedError(f"answers {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise _FailedError(f"cannot be downloaded ({_reason(error)})") from None
    if size and done != size:
        raise _FailedError(f"the download broke off after {_megabytes(done)}{total}")
    return digest.hexdigest()


def _check_size(count: int) -> None:
    if count > MAX_BYTES:
        raise _FailedError(f"larger than the limit of {_megabytes(MAX_BYTES)}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _columns(scratch: IO[bytes], fallback: Fallback) -> dict[str, list[Any]]:
    """Return the columns under the hub's names, with labels as the hub's numbers."""
    scratch.seek(0)
    try:
        with io.TextIOWrapper(scratch, encoding="utf-8-sig", newline="\n") as lines:  # only this character ends a line
            header, *rows = [line.rstrip("\r\n").split("\t") for line in lines if line.strip("\r\n")]
    except ValueError as error:
        raise _FailedError(f"not tab-separated text ({_reason(error)})") from None
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header):
            raise _FailedError(f"row {number} has {len(row)} cells, expected {len(header)} as in its header")
    columns: dict[str, list[Any]] = {}
    for name, column in fallback.columns.items():
        if column not in header:
            raise _FailedError(f"no column '{column}'; {nearest(column, header)}")
        place = header.index(column)
        columns[name] = [row[place] for row in rows]
    if fallback.labels:
        columns["label"] = _numbered(columns.get("label"), fallback.labels)
    return columns


def _numbered(labels: Sequence[str] | None, numbers: Mapping[str, int]) -> list[int]:
    if labels is None:
        raise _FailedError("its labels have numbers but none of its columns is named 'label'")
    unknown = sorted(set(labels) - set(numbers))
    if unknown:
        raise _FailedError(f"label '{unknown[0]}' has no number; known: {', '.join(numbers)}")
    return [numbers[label] for label in labels]


# keeping the rows


def _keep(rows: _Rows, source: Source, target: Path) -> Provenance:
    """Write both files aside, then rename them, provenance last, so that it never describes another file."""
    beside = target.with_suffix(".json")
    with put(beside) as note, put(target) as aside:
        with aside.open("wb") as handle:
            rows.dataset.to_parquet(handle)
        with aside.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        provenance = Provenance(
            hub=str(source.hub),
            config=source.config,
            split=str(source.split),
            asked_revision=source.revision,
            revision=rows.revision,
            origin=rows.origin,
            rows=rows.dataset.num_rows,
            sha256=digest,
        )
        note.write_text(json.dumps(asdict(provenance), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for part in (aside, note):
            sync(part)  # both are complete before either appears
        beside.unlink(missing_ok=True)
    return provenance

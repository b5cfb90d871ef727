"""The hub's data sets: local folders in the hub's layout, a simulated hub, the fallback file, no network, kills."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache as once
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from conftest import missing
from hub_server import CONVERTED, Files, HubServer, Repository
from oodles.contracts import Fallback, Source
from oodles.errors import DataError, StoreError
from oodles.suite import hub
from oodles.suite.hub import Provenance, bring, matches, provenance_of

datasets = pytest.importorskip("datasets")


@dataclass(frozen=True)
class Place:
    """Where one of the sets lies on the hub, and what it looks like there."""

    hub: str
    config: str
    split: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]  # none: the label is a text
    other_splits: tuple[str, ...]

    @property
    def source(self) -> Source:
        return Source(hub=self.hub, config=self.config, split=self.split)


NLI = ("entailment", "neutral", "contradiction")
PAIR = ("premise", "hypothesis", "label")
GLUE = ("sentence1", "sentence2", "label", "idx")
HANS = (*PAIR, "parse_premise", "parse_hypothesis", "binary_parse_premise", "binary_parse_hypothesis")
ROUNDS = tuple(f"{split}_r{n}" for n in (1, 2, 3) for split in ("train", "dev", "test"))
MATCHED = ("train", "validation_mismatched", "test_matched", "test_mismatched")
PLACES = {
    "snli": Place("stanfordnlp/snli", "plain_text", "test", PAIR, NLI, ("validation", "train")),
    "mnli": Place("nyu-mll/glue", "mnli", "validation_matched", (*PAIR, "idx"), NLI, MATCHED),
    "rte": Place("nyu-mll/glue", "rte", "train", GLUE, ("entailment", "not_entailment"), ("validation", "test")),
    "wnli": Place("nyu-mll/glue", "wnli", "train", GLUE, ("not_entailment", "entailment"), ("validation", "test")),
    "scitail": Place("allenai/scitail", "tsv_format", "test", PAIR, (), ("train", "validation")),
    "anli": Place("facebook/anli", "plain_text", "test_r3", ("uid", *PAIR, "reason"), NLI, ROUNDS[:-1]),
    "paws": Place(
        "google-research-datasets/paws",
        "labeled_final",
        "test",
        ("id", "sentence1", "sentence2", "label"),
        ("0", "1"),
        ("train", "validation"),
    ),
    "hans": Place(
        "jhu-cogsci/hans",
        "plain_text",
        "validation",
        (*HANS, "heuristic", "subcase", "template"),
        ("entailment", "non-entailment"),
        ("train",),
    ),
}
PARQUET_SETS = [name for name in PLACES if name != "hans"]


# the rows, and repositories made of them


def local_copy(name: str) -> Path | None:
    """The real rows of a set, where OODLES_DATA has them."""
    root, file = os.environ.get("OODLES_DATA"), f"{name}/{PLACES[name].split}.parquet"
    paths = [Path(root) / "nli" / file, Path(root) / file] if root else []
    return next((path for path in paths if path.is_file()), None)


@once
def rows_of(name: str) -> Any:
    """The real rows as a Dataset, or a few made-up ones of the same form."""
    path = local_copy(name)
    if path is not None:
        return datasets.Dataset(datasets.table.InMemoryTable(pq.read_table(path)))
    place, numbers = PLACES[name], range(30)
    kinds = {c: datasets.Value("int32" if c in ("id", "idx") else "string") for c in place.columns}
    if place.labels:
        kinds["label"] = datasets.ClassLabel(names=list(place.labels))
    texts = {c: [f'{c} {n} of {name}, "quoted' for n in numbers] for c in place.columns}
    made = {c: texts[c] if kinds[c].dtype == "string" else [n % 2 for n in numbers] for c in place.columns}
    return datasets.Dataset.from_dict(made, features=datasets.Features(kinds))


def parquet_bytes(dataset: Any) -> bytes:
    buffer = io.BytesIO()
    dataset.to_parquet(buffer)
    return buffer.getvalue()


@once
def repository(name: str) -> Files:
    """All files of a hub repository: one folder per configuration, and a README that tells `datasets` what is where."""
    configs, infos, files = [], [], {".gitattributes": b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"}
    for key, place in PLACES.items():
        if place.hub != name:
            continue
        whole = rows_of(key)
        parts = {place.split: whole} | {split: whole.select(range(5)) for split in place.other_splits}
        for split, part in parts.items():
            files[f"{place.config}/{split}-00000-of-00001.parquet"] = parquet_bytes(part)
        paths = [{"split": split, "path": f"{place.config}/{split}-*"} for split in parts]
        configs.append({"config_name": place.config, "data_files": paths})
        sizes = [{"name": s, "num_bytes": p.data.nbytes, "num_examples": len(p)} for s, p in parts.items()]
        infos.append({"config_name": place.config, "features": whole.features._to_yaml_list(), "splits": sizes})
    card = {"license": "other", "dataset_info": infos if len(infos) > 1 else infos[0], "configs": configs}
    files["README.md"] = f"---\n{yaml.safe_dump(card, sort_keys=False)}---\n\n# {name}\n".encode()
    return files


def hans_repository() -> Repository:
    """A loading script on the main branch, as on the hub; Parquet files on the branch that the hub converts it to."""
    script = {"README.md": b"---\nlicense: mit\n---\n", "hans.py": b"raise SystemExit\n", "dataset_infos.json": b"{}"}
    rows = rows_of("hans")
    return Repository(
        script,
        converted={
            ".gitattributes": b"",
            "plain_text/train/0000.parquet": parquet_bytes(rows.select(range(5))),
            "plain_text/validation/0000.parquet": parquet_bytes(rows),
        },
    )


def write_folder(folder: Path, files: Files) -> Path:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def assert_holds(target: Path, dataset: Any, provenance: Provenance) -> None:
    """The file has the rows, the columns and the label names, and its provenance is beside it."""
    table = pq.read_table(target)
    assert table.schema.metadata[b"huggingface"] == dataset.features.arrow_schema.metadata[b"huggingface"]
    assert table.equals(dataset.data.table.cast(dataset.features.arrow_schema), check_metadata=True)
    assert provenance.rows == len(dataset)
    assert provenance.sha256 == hashlib.sha256(target.read_bytes()).hexdigest()
    assert provenance_of(target) == provenance
    assert leftovers(target.parent) == sorted([target.name, target.with_suffix(".json").name])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_CACHE_DIR", str(tmp_path / "tables"))
    return tmp_path / "tables"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "data" / "set" / "test.parquet"


def silent(_: str) -> None:
    pass


# in another process, as the libraries read the environment when they are loaded

CLIENT = """
import json, sys, time
asked = []
def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        asked.append([event, str(arguments[1][:2])])
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        asked.append([event, str(arguments[:2])])
sys.addaudithook(watch)
from pathlib import Path
from dataclasses import asdict
from oodles.suite import hub
from oodles.errors import OodlesError
from oodles.contracts import Fallback, Source
order = json.load(sys.stdin)
for name, value in order["constants"].items():
    setattr(hub, name, value)
if order["die"]:
    import os, signal
    hub.sync = lambda part: os.kill(os.getpid(), signal.SIGKILL)
import datasets
for job in order["jobs"]:
    given, said, start = job["source"], [], time.monotonic()
    if given["fallback"]:
        given["fallback"] = Fallback(**given["fallback"])
    try:
        answer = asdict(hub.bring(Source(**given), Path(job["target"]), job["where"], said.append))
    except OodlesError as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps([answer, said, time.monotonic() - start]))
print(json.dumps(asked))
"""


@dataclass(frozen=True)
class Answer:
    """What `bring` did in another process."""

    result: dict[str, Any] | str  # a provenance, or an error
    said: list[str]
    seconds: float

    @property
    def provenance(self) -> Provenance:
        assert isinstance(self.result, dict), self.result
        return Provenance(**self.result)

    @property
    def error(self) -> str:
        assert isinstance(self.result, str), self.result
        assert "\n" not in self.result
        return self.result


def client(
    folder: Path,
    jobs: Mapping[str, Source],
    *,
    die: bool = False,
    constants: Mapping[str, float] | None = None,
    **env: str,
) -> tuple[dict[str, Answer], list[Any]]:
    """Bring sets to `folder/<name>/<split>.parquet`; also what was asked of the network."""
    order = {
        "jobs": [
            {"source": asdict(source), "target": str(folder / name / f"{source.split}.parquet"), "where": f"nli/{name}"}
            for name, source in jobs.items()
        ],
        "constants": dict(constants or {}),
        "die": die,
    }
    unset = (
        "HF_HUB_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_CACHE_DIR",
        "HF_HUB_CACHE",
        "HF_TOKEN",
    )
    held = {k: v for k, v in os.environ.items() if k not in unset and not k.lower().endswith("_proxy")}
    held |= {"HF_HOME": str(folder / "home"), "HF_UPDATE_DOWNLOAD_COUNTS": "0", **env}
    done = subprocess.run(
        [sys.executable, "-c", CLIENT], input=json.dumps(order), env=held, capture_output=True, text=True, check=False
    )
    assert done.returncode == (-9 if die else 0), done.stderr
    *lines, asked = [json.loads(line) for line in done.stdout.splitlines()] or [[]]
    assert done.stderr == "", "the libraries' bars and warnings"
    return {name: Answer(*line) for name, line in zip(jobs, lines, strict=False)}, asked


# 1. folders


@pytest.mark.parametrize("name", PARQUET_SETS)
def test_a_folder_laid_out_like_the_hub(name: str, tmp_path: Path, target: Path, cache: Path) -> None:
    place = PLACES[name]
    folder = write_folder(tmp_path / "repository", repository(place.hub))
    source = replace(place.source, hub=str(folder))
    provenance = bring(source, target, f"nli/{name}", silent)
    assert_holds(target, rows_of(name), provenance)
    assert (provenance.origin, provenance.revision, provenance.asked_revision) == (str(folder), None, None)
    assert matches(provenance, source)
    assert not matches(provenance, replace(source, revision="main"))
    assert not matches(provenance, replace(source, config=None))
    assert cache.is_dir()


def test_the_file_is_what_the_library_writes(tmp_path: Path, target: Path, cache: Path) -> None:
    folder = write_folder(tmp_path / "repository", repository("stanfordnlp/snli"))
    bring(replace(PLACES["snli"].source, hub=str(folder)), target, "nli/snli", silent)
    assert target.read_bytes() == parquet_bytes(rows_of("snli"))
    names = datasets.Dataset(datasets.table.InMemoryTable(pq.read_table(target))).features["label"].names
    assert names == ["entailment", "neutral", "contradiction"]


def test_a_folder_that_is_not_as_asked(tmp_path: Path, target: Path, cache: Path) -> None:
    folder = write_folder(tmp_path / "repository", repository("nyu-mll/glue"))
    source = replace(PLACES["rte"].source, hub=str(folder))
    with pytest.raises(DataError, match=r"^nli/rte: '.*' cannot be loaded: folder: BuilderConfig 'rta' not found.*rte"):
        bring(replace(source, config="rta"), target, "nli/rte", silent)
    with pytest.raises(DataError, match=r"folder: Config name is missing. Please pick one .*'mnli', 'rte', 'wnli'"):
        bring(replace(source, config=None), target, "nli/rte", silent)
    with pytest.raises(DataError, match=r'folder: Unknown split "dev". Should be one of'):
        bring(replace(source, split="dev"), target, "nli/rte", silent)
    with pytest.raises(DataError, match="split None; expected both"):
        bring(replace(source, split=None), target, "nli/rte", silent)
    (folder / "repository.py").write_text("raise SystemExit")
    with pytest.raises(DataError, match=r"folder: Dataset scripts are no longer supported, but found repository\.py"):
        bring(source, target, "nli/rte", silent)
    assert not target.parent.exists()


# 2. the simulated hub


@dataclass(frozen=True)
class Served:
    """One process that brought everything from the simulated hub, and what came of it."""

    folder: Path
    repositories: Mapping[str, Repository]
    answers: Mapping[str, Answer]
    requests: list[str]

    def commit(self, name: str, reference: str = "main") -> str:
        return self.repositories[name].references[reference]


OLD = {"README.md": b"# old\n", "data/test-00000-of-00001.csv": b"premise,hypothesis,label\nIt rains.,It is wet.,0\n"}
NEW = {"README.md": b"# new\n", "data/test-00000-of-00001.csv": b"premise,hypothesis,label\nIt snows.,It is cold.,0\n"}


def converted_files() -> Files:
    """Two configurations; in one, splits whose names `datasets` would mix up."""
    rows = rows_of("rte")
    parts = {"a/test/0000": range(3), "a/test_hard/0000": range(3, 7), "b/test/0000": range(7, 9)}
    return {f"{path}.parquet": parquet_bytes(rows.select(chosen)) for path, chosen in parts.items()}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("served")
    repositories = {name: Repository(repository(name)) for name in {PLACES[key].hub for key in PARQUET_SETS}}
    repositories["jhu-cogsci/hans"] = hans_repository()
    repositories["org/versions"] = Repository(NEW, older=OLD)
    repositories["org/script"] = Repository({"script.py": b""}, converted=converted_files())
    repositories["org/unconverted"] = Repository({"unconverted.py": b""})
    only = {path: content for path, content in converted_files().items() if path.startswith("a/")}
    repositories["org/rounds"] = Repository({"rounds.py": b""}, converted=only)
    former = {"a/former-test.parquet": only["a/test/0000.parquet"]}
    repositories["org/former"] = Repository({"former.py": b""}, converted=former)
    repositories["org/broken"] = Repository({**NEW, "more": b""}, older={**OLD, "more": b""})
    test = Source(hub="org/versions", split="test")
    script = Source(hub="org/script", config="a", split="test")
    jobs = {name: place.source for name, place in PLACES.items()}
    jobs |= {
        "new": test,
        "tag": replace(test, revision="v0"),
        "pinned": replace(test, revision=repositories["org/versions"].references["v0"]),
        "pinned hans": replace(jobs["hans"], revision=repositories["jhu-cogsci/hans"].references[CONVERTED]),
        "hans again": jobs["hans"],
        "one of two": script,
        "odd split": replace(script, split="test_hard"),
        "alike splits": Source(hub="org/rounds", split="test"),
        "former layout": Source(hub="org/former", config="a", split="test"),
        "before the break": Source(hub="org/broken", split="test", revision="v0"),
        "after the break": Source(hub="org/broken", split="test"),
        "no config": replace(script, config=None),
        "no such split": replace(script, split="train"),
        "unconverted": Source(hub="org/unconverted", split="test"),
        "no such set": Source(hub="org/nothing", split="test"),
        "no such revision": replace(test, revision="v7"),
        "no such config": replace(jobs["rte"], config="cola"),
        "no such folder": Source(hub="./some/where/else", split="test"),
    }
    with HubServer(repositories) as server:
        server.refused.add(repositories["org/broken"].references["main"])
        answers, _ = client(folder, jobs, HF_ENDPOINT=server.url)
        return Served(folder=folder, repositories=repositories, answers=answers, requests=list(server.asked))


@pytest.mark.parametrize("name", PARQUET_SETS)
def test_a_set_of_the_simulated_hub(name: str, served: Served) -> None:
    place, provenance = PLACES[name], served.answers[name].provenance
    assert_holds(served.folder / name / f"{place.split}.parquet", rows_of(name), provenance)
    assert (provenance.hub, provenance.origin) == (place.hub, "hub")
    assert provenance.revision == served.commit(place.hub)
    assert provenance.asked_revision is None
    assert served.answers[name].said == [f"nli/{name}: {place.hub} at commit {served.commit(place.hub)[:12]}"]


def test_a_loading_script_is_replaced_by_the_converted_branch(served: Served) -> None:
    for name, revision in (
        ("hans", None),
        ("hans again", None),
        ("pinned hans", served.commit("jhu-cogsci/hans", CONVERTED)),
    ):
        provenance = served.answers[name].provenance
        assert_holds(served.folder / name / "validation.parquet", rows_of("hans"), provenance)
        assert provenance.origin == ("hub" if revision else "hub refs/convert/parquet")
        assert provenance.revision == served.commit("jhu-cogsci/hans", CONVERTED)
        assert (provenance.config, provenance.asked_revision) == ("plain_text", revision)
    assert not any(request.startswith("GET") and request.endswith("hans.py") for request in served.requests)


def test_a_revision_is_resolved_and_is_what_is_loaded(served: Served) -> None:
    def premise(name: str) -> Any:
        return pq.read_table(served.folder / name / "test.parquet")["premise"].to_pylist()

    old, new = served.commit("org/versions", "v0"), served.commit("org/versions")
    found = {name: served.answers[name].provenance for name in ("new", "tag", "pinned")}
    assert {name: p.revision for name, p in found.items()} == {"new": new, "tag": old, "pinned": old}
    assert {name: p.asked_revision for name, p in found.items()} == {"new": None, "tag": "v0", "pinned": old}
    assert (premise("new"), premise("tag"), premise("pinned")) == (["It snows."], ["It rains."], ["It rains."])
    assert not any("/resolve/main/" in request for request in served.requests)  # it may move between two requests


def test_a_converted_branch_with_several_configurations(served: Served) -> None:
    rows = rows_of("rte")
    first, others = rows.select(range(3)), rows.select(range(3, 7))
    for name in ("one of two", "alike splits", "former layout"):
        assert_holds(served.folder / name / "test.parquet", first, served.answers[name].provenance)
    assert_holds(served.folder / "odd split" / "test_hard.parquet", others, served.answers["odd split"].provenance)
    script = "hub: a loading script, which `datasets` no longer runs; hub refs/convert/parquet: "
    assert f"{script}it holds the configurations a, b, and the suite names none;" in served.answers["no config"].error
    assert f"{script}it holds the splits test, test_hard, not 'train';" in served.answers["no such split"].error
    assert f"{script}no revision 'refs/convert/parquet';" in served.answers["unconverted"].error


def test_another_commit_of_the_cache_is_not_passed_off(served: Served) -> None:
    """When the hub fails it half-way, `datasets` takes whatever commit it has; that must not count as the new one."""
    old, new = served.commit("org/broken", "v0"), served.commit("org/broken")
    assert served.answers["before the break"].provenance.revision == old
    assert f"the cache holds commit {old} instead of {new};" in served.answers["after the break"].error
    assert not (served.folder / "after the break").exists()


def test_proxies_hold_for_the_hub_and_the_fallback(tmp_path: Path) -> None:
    text = b"label\ttext\n1\tIt rains.\n"
    digest = hashlib.sha256(text).hexdigest()
    fallback = Fallback(url="http://files.invalid/files/a.tsv", sha256=digest, columns={"text": "text"})
    jobs = {
        "hub": Source(hub="org/versions", split="test"),
        "fallback": Source(hub="org/nothing", split="test", fallback=fallback),
    }
    with HubServer({"org/versions": Repository(NEW)}, {"a.tsv": text}) as server:
        answers, _ = client(tmp_path, jobs, HF_ENDPOINT="http://hub.invalid", HTTP_PROXY=server.url)
    assert (answers["hub"].provenance.origin, answers["hub"].provenance.rows) == ("hub", 1)
    assert (answers["fallback"].provenance.origin, answers["fallback"].provenance.rows) == (fallback.url, 1)


def test_what_the_hub_does_not_have(served: Served) -> None:
    errors = {name: answer.error for name, answer in served.answers.items() if name.startswith("no such")}
    assert errors["no such set"] == (
        "DataError: nli/no such set: 'org/nothing' cannot be loaded: hub: no such data set, or one that needs a login"
        " (`hf auth login`); check the set's source in the suite"
    )
    assert "hub: no revision 'v7';" in errors["no such revision"]
    assert "hub: BuilderConfig 'cola' not found. Available: ['mnli', 'rte', 'wnli'];" in errors["no such config"]
    assert "hub: no such folder, and not an id such as org/name;" in errors["no such folder"]
    for name in errors:
        assert not (served.folder / name).exists()


# 3. the fallback

HANS_SHA256 = "c55b62feef9913070e88f38938dc2492018c945ac81f70139346472494124e79"
HANS_COLUMNS = {
    "premise": "sentence1",
    "hypothesis": "sentence2",
    "label": "gold_label",
    "heuristic": "heuristic",
    "subcase": "subcase",
    "template": "template",
}
HANS_LABELS = {"entailment": 0, "non-entailment": 1}


@once
def hans_text() -> bytes:
    """The authors' heuristics_evaluation_set.txt, from the hub's columns."""
    rows = rows_of("hans").to_dict()
    columns = {  # in the order of the file
        "gold_label": [list(HANS_LABELS)[label] for label in rows["label"]],
        "sentence1_binary_parse": rows["binary_parse_premise"],
        "sentence2_binary_parse": rows["binary_parse_hypothesis"],
        "sentence1_parse": rows["parse_premise"],
        "sentence2_parse": rows["parse_hypothesis"],
        "sentence1": rows["premise"],
        "sentence2": rows["hypothesis"],
        "pairID": [f"ex{number}" for number in range(len(rows["label"]))],
        **{name: rows[name] for name in ("heuristic", "subcase", "template")},
    }
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def test_the_text_file_of_hans_is_the_authors() -> None:
    if local_copy("hans") is None:
        missing("the rows of HANS: set OODLES_DATA")
    assert hashlib.sha256(hans_text()).hexdigest() == HANS_SHA256


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Answer]]:
    """HANS through its fallback, while the hub refuses every connection."""
    folder, text = tmp_path_factory.mktemp("fallen"), hans_text()
    digest = hashlib.sha256(text).hexdigest()
    flipped = bytearray(text)
    flipped[len(text) // 2] ^= 1
    with HubServer({}, {"good.txt": text, "flipped.txt": bytes(flipped)}) as server:
        good = Fallback(url=f"{server.url}/files/good.txt", sha256=digest, columns=HANS_COLUMNS, labels=HANS_LABELS)
        ways = {
            "good": good,
            "flipped": replace(good, url=good.url.replace("good", "flipped")),
            "absent": replace(good, url=good.url.replace("good", "absent")),
            "column": replace(good, columns={**HANS_COLUMNS, "premise": "sentence"}),
            "label": replace(good, labels={"entailment": 0}),
            "unlabelled": replace(good, columns={"premise": "sentence1"}),
            "file": replace(good, url="file:///etc/hostname"),
            "none": None,
        }
        jobs = {name: replace(PLACES["hans"].source, fallback=way) for name, way in ways.items()}
        answers, asked = client(folder, jobs, HF_ENDPOINT=f"http://127.0.0.1:{free_port()}", constants={"SAY_EVERY": 0})
    assert asked, "the watch over the network sees nothing"
    return folder, server.url, answers


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_fallback_has_the_rows_of_the_hub(fallen: tuple[Path, str, dict[str, Answer]]) -> None:
    folder, url, answers = fallen
    target, provenance = folder / "good" / "validation.parquet", answers["good"].provenance
    rows, table = rows_of("hans"), pq.read_table(target)
    assert table.column_names == list(HANS_COLUMNS)
    assert table.schema.field("label").type == pa.int64()
    for name in HANS_COLUMNS:
        assert table[name].to_pylist() == rows[name][:]
    assert (provenance.origin, provenance.revision, provenance.rows) == (f"{url}/files/good.txt", None, len(rows))
    assert provenance_of(target) == provenance
    size = f"{len(hans_text()) / 1e6:.1f} MB"
    assert answers["good"].said[0] == f"nli/good: downloading {url}/files/good.txt, {size}"
    assert answers["good"].said[-1] == f"nli/good: {size} of {size}"


def test_a_fallback_that_is_not_the_file(fallen: tuple[Path, str, dict[str, Answer]]) -> None:
    folder, url, answers = fallen
    right = hashlib.sha256(hans_text()).hexdigest()
    assert f"; fallback {url}/files/flipped.txt: its sha256 is " in answers["flipped"].error
    assert f", expected {right}; it was not kept;" in answers["flipped"].error
    found = answers["flipped"].error.split("its sha256 is ")[1][:64]
    assert len(bytes.fromhex(found)) == 32
    assert found != right
    assert f"fallback {url}/files/absent.txt: answers 404 Not Found;" in answers["absent"].error
    assert "no column 'sentence'; did you mean 'sentence1'?" in answers["column"].error
    assert "label 'non-entailment' has no number; known: entailment;" in answers["label"].error
    assert "none of its columns is named 'label'" in answers["unlabelled"].error
    assert "fallback file:///etc/hostname: not an https:// address;" in answers["file"].error
    for name in set(answers) - {"good"}:
        assert not leftovers(folder / name)


def test_a_hub_out_of_reach_is_said_at_once(fallen: tuple[Path, str, dict[str, Answer]]) -> None:
    answer = fallen[2]["none"]
    assert answer.error.startswith("DataError: nli/none: 'jhu-cogsci/hans' cannot be loaded: hub: http://127.0.0.1:")
    assert "Connection refused); cache: 'jhu-cogsci/hans' is not in the cache;" in answer.error
    assert "check the network, or on a machine with network run `oodles fetch nli --to DIR`" in answer.error
    assert answer.seconds < 3


def test_quotation_marks_are_plain_text(target: Path, cache: Path, online: None) -> None:
    text = b'label\ttext\r\nyes\t"It rains\r\nno\tIt \r"snows"\x0b \xc2\x85\r\n'
    with HubServer({}, {"a.tsv": text}) as server:
        fallback = Fallback(
            url=f"{server.url}/files/a.tsv",
            sha256=hashlib.sha256(text).hexdigest(),
            columns={"t": "text", "label": "label"},
        )
        provenance = bring(Source(hub="./none", split="test", fallback=fallback), target, "toy/a", silent)
    assert pq.read_table(target).to_pydict() == {"t": ['"It rains', 'It \r"snows"\x0b \x85'], "label": ["yes", "no"]}
    assert provenance.rows == 2


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no variable forbade the network."""
    monkeypatch.setattr(hub, "_switched_off", lambda: None)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_download_has_bounds(target: Path, online: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubServer({}, {"long.tsv": b"a\n" * 1000}) as server:
        fallback = Fallback(url=f"{server.url}/files/long.tsv", sha256="0" * 64, columns={"a": "a"})
        source = Source(hub="./none", split="test", fallback=fallback)
        monkeypatch.setattr(hub, "MAX_BYTES", 999)
        with pytest.raises(DataError, match=r"long.tsv: larger than the limit of 0.0 MB"):
            bring(source, target, "toy/a", silent)
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes the call and says nothing
        monkeypatch.setattr(hub, "STALL", 0.2)
        start = time.monotonic()
        slow = replace(fallback, url=f"http://127.0.0.1:{mute.getsockname()[1]}/a.tsv")
        with pytest.raises(DataError, match=r"a.tsv: cannot be downloaded \(timed out\)"):
            bring(replace(source, fallback=slow), target, "toy/a", silent)
    assert time.monotonic() - start < 5
    assert leftovers(target.parent) == []


def test_a_hub_that_does_not_answer_is_given_up_for_the_cache(tmp_path: Path, served: Served) -> None:
    jobs = {"snli": PLACES["snli"].source, "other": Source(hub="stanfordnlp/other", split="test")}
    home = str(served.folder / "home")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        answers, _ = client(tmp_path, jobs, HF_ENDPOINT=url, HF_HOME=home, constants={"PATIENCE": 0.5})
    assert answers["snli"].provenance == served.answers["snli"].provenance
    commit = served.commit("stanfordnlp/snli")
    assert answers["snli"].said == [f"nli/snli: stanfordnlp/snli from the libraries' cache, commit {commit[:12]}"]
    assert f"hub: {url} cannot be reached (" in answers["other"].error
    assert max(answer.seconds for answer in answers.values()) < 3


# 4. no network


def test_without_network_the_cache_is_used_and_nothing_is_asked(served: Served, tmp_path: Path) -> None:
    old, new = served.commit("org/versions", "v0"), served.commit("org/versions")
    jobs = {name: place.source for name, place in PLACES.items()}
    fallback = Fallback(url="http://127.0.0.1:9/x", sha256="0" * 64, columns={})
    jobs |= {
        "another commit": replace(jobs["snli"], revision="a" * 40),
        "another config": replace(jobs["rte"], config="cola"),
        "another hans": replace(jobs["hans"], config="other"),
        "hans elsewhere": replace(jobs["hans"], revision="a" * 40),
        "never fetched": Source(hub="stanfordnlp/other", config="plain_text", split="test", fallback=fallback),
        "latest": Source(hub="org/versions", split="test"),
        "new": Source(hub="org/versions", split="test", revision=new),
        "old": Source(hub="org/versions", split="test", revision=old),
        "tag": Source(hub="org/versions", split="test", revision="v0"),
    }
    answers, asked = client(tmp_path, jobs, HF_HUB_OFFLINE="1", HF_HOME=str(served.folder / "home"))
    assert asked == []
    for name, place in PLACES.items():
        target = tmp_path / name / f"{place.split}.parquet"
        assert_holds(target, rows_of(name), answers[name].provenance)
        assert answers[name].provenance == served.answers[name].provenance
    off = (
        " and the hub is switched off (HF_HUB_OFFLINE); on a machine with network run `oodles fetch nli --to DIR`, copy"
        " DIR here and pass --data DIR (or set OODLES_DATA)"
    )
    commit = served.commit("stanfordnlp/snli")
    assert answers["another commit"].error == (
        f"DataError: nli/another commit: 'stanfordnlp/snli' is in the cache at commit {commit}, not at {'a' * 40},{off}"
    )
    assert "'nyu-mll/glue' is not in the cache (Couldn't find cache for nyu-mll/glue for config 'cola'" in (
        answers["another config"].error
    )
    assert "'jhu-cogsci/hans' is not in the cache (" in answers["another hans"].error
    assert "'jhu-cogsci/hans' is in the cache at commit " in answers["hans elsewhere"].error
    assert answers["never fetched"].error == (
        f"DataError: nli/never fetched: 'stanfordnlp/other' is not in the cache{off}"
    )
    assert [answers[name].provenance.revision for name in ("old", "new")] == [old, new]
    assert answers["latest"].provenance.revision in (old, new)
    assert (
        "'org/versions' is in the cache at commit " in answers["tag"].error
    )  # which commit a tag is, only the hub knows


def test_the_other_switch_forbids_the_network_too(tmp_path: Path) -> None:
    fallback = Fallback(url="http://127.0.0.1:9/x", sha256="0" * 64, columns={})
    source = replace(PLACES["snli"].source, fallback=fallback)
    answers, asked = client(tmp_path, {"snli": source}, HF_DATASETS_OFFLINE="1")
    assert asked == []
    assert answers["snli"].error == (
        "DataError: nli/snli: 'stanfordnlp/snli' is not in the cache and the hub is switched off (HF_DATASETS_OFFLINE);"
        " on a machine with network run `oodles fetch nli --to DIR`, copy DIR here and pass --data DIR (or set"
        " OODLES_DATA)"
    )
    assert leftovers(tmp_path / "snli") == []


# 5. kills, full disks, damaged files


def test_a_kill_leaves_no_target(tmp_path: Path, cache: Path) -> None:
    folder = write_folder(tmp_path / "repository", repository("allenai/scitail"))
    source = replace(PLACES["scitail"].source, hub=str(folder))
    target = tmp_path / "scitail" / "test.parquet"
    client(tmp_path, {"scitail": source}, die=True)
    assert leftovers(target.parent), "it was killed before it wrote anything"
    assert all(name.startswith(".") and name.endswith(".part") for name in leftovers(target.parent))
    assert provenance_of(target) is None
    for part in target.parent.iterdir():
        part.unlink()
    assert_holds(target, rows_of("scitail"), bring(source, target, "nli/scitail", silent))


@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_what_was_there(
    failing: int, tmp_path: Path, target: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "repository", repository("allenai/scitail"))
    source = replace(PLACES["scitail"].source, hub=str(folder))
    calls: list[object] = []

    def full(handle: object) -> None:
        calls.append(handle)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(hub, "sync", full)
    with pytest.raises(StoreError, match="no space left on the disk"):
        bring(source, target, "nli/scitail", silent)
    assert leftovers(target.parent) == []
    monkeypatch.setattr(hub, "sync", lambda _: None)
    first = bring(source, target, "nli/scitail", silent)
    calls.clear()
    monkeypatch.setattr(hub, "sync", full)
    with pytest.raises(StoreError):
        bring(replace(source, split="train"), target, "nli/scitail", silent)
    assert_holds(target, rows_of("scitail"), first)


def test_an_exception_while_writing_leaves_nothing(
    tmp_path: Path, target: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "repository", repository("allenai/scitail"))

    def broken(self: object, handle: io.BufferedWriter) -> None:
        handle.write(b"PAR1")
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets.Dataset, "to_parquet", broken)
    with pytest.raises(KeyboardInterrupt):
        bring(replace(PLACES["scitail"].source, hub=str(folder)), target, "nli/scitail", silent)
    assert leftovers(target.parent) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, cache: Path) -> None:
    folder = write_folder(tmp_path / "repository", repository("allenai/scitail"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        bring(
            replace(PLACES["scitail"].source, hub=str(folder)),
            tmp_path / "file" / "test.parquet",
            "nli/scitail",
            silent,
        )


def test_a_full_cache_of_the_libraries_is_named(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise datasets.exceptions.DatasetGenerationError("An error occurred") from error

    monkeypatch.setattr(datasets, "load_dataset", full)
    with pytest.raises(StoreError, match=r"cache .* cannot be written \(No space left on device\); .*HF_HOME"):
        bring(Source(hub=str(tmp_path), split="test"), target, "toy/a", silent)


def test_a_damaged_provenance_is_refused(target: Path) -> None:
    whole = Provenance(
        hub="a/b", config=None, split="test", asked_revision=None, revision=None, origin="hub", rows=1, sha256="0" * 64
    )
    beside = target.with_suffix(".json")
    target.parent.mkdir(parents=True)
    assert provenance_of(target) is None
    beside.write_text(json.dumps(asdict(whole)))
    assert provenance_of(target) == whole
    damaged = {
        json.dumps(asdict(whole))[:-9]: "cannot be read",
        "[]": "not a JSON object",
        json.dumps({**asdict(whole), "rows": "1"}): "damaged at rows;",
        json.dumps({**asdict(whole), "more": 1}): "damaged at more;",
        "{}": "damaged at hub, config",
    }
    for text, reason in damaged.items():
        beside.write_text(text)
        with pytest.raises(DataError, match=f"{reason}.*fetch the set again"):
            provenance_of(target)

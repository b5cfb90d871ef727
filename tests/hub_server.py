"""A simulation of the Hugging Face hub on loopback: the part of its HTTP interface that the client libraries call.

It is not the hub. It lets the real `datasets` and `huggingface_hub` run end to end without a network:

    with HubServer({"org/name": Repository({"README.md": b"..."})}) as hub:
        subprocess.run([...], env={**os.environ, "HF_ENDPOINT": hub.url})

Simulated: what is in a repository at a revision (`/api/datasets/ID`, `.../revision/REV`, `.../tree/REV`), its files
(`/datasets/ID/resolve/REV/PATH`; Parquet files are redirected to another host name, as the hub does with its CDN) and
the error codes the libraries look at. Plain files are served at `/files/NAME`.
Left out: accounts and tokens, gated sets, rate limits, the Xet protocol, range requests, the data set viewer.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = Mapping[str, bytes]  # path in the repository -> content
CONVERTED = "refs/convert/parquet"


class Repository:
    """A data set repository: the files of its main branch, older commits, and a converted branch if there is one."""

    def __init__(self, main: Files, *, older: Files | None = None, converted: Files | None = None) -> None:
        self.commits: dict[str, Files] = {}
        self.references = {"main": self._commit(main)}
        if older is not None:
            self.references["v0"] = self._commit(older)  # a tag
        if converted is not None:
            self.references[CONVERTED] = self._commit(converted)

    def _commit(self, files: Files) -> str:
        listing = [[path, hashlib.sha1(content).hexdigest()] for path, content in sorted(files.items())]
        name = hashlib.sha1(json.dumps(listing).encode()).hexdigest()
        self.commits[name] = dict(files)
        return name

    def resolve(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a commit names."""
        name = self.references.get(revision, revision)
        return name if name in self.commits else None


class HubServer:
    """The simulated hub, while the `with` block lasts. `asked` holds every request as "METHOD /path"."""

    def __init__(self, repositories: Mapping[str, Repository], files: Files | None = None) -> None:
        self.repositories, self.files = dict(repositories), dict(files or {})
        self.asked: list[str] = []
        self.refused: set[str] = set()  # commits whose files answer 403, as if the connection broke after the listing
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.cdn = f"http://localhost:{self.port}/cdn"
        contents = (c for r in repositories.values() for held in r.commits.values() for c in held.values())
        self.stored = {_sha256(content): content for content in contents}

    def __enter__(self) -> HubServer:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _MissingError(Exception):
    """Answered with 404 and the code that tells the libraries what is missing."""


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            url = urlsplit(self.path)
            hub.asked.append(f"{self.command} {self.path}")
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            try:
                if parts[:2] == ["api", "datasets"]:
                    self._api("/".join(parts[2:4]), parts[4:], parse_qs(url.query))
                elif parts[0] == "datasets" and parts[3:4] == ["resolve"]:
                    self._resolve("/".join(parts[1:3]), parts[4], "/".join(parts[5:]))
                elif parts[0] == "cdn":
                    self._send(hub.stored[parts[1]], {"ETag": f'"{parts[1]}"'})
                elif parts[0] == "files" and parts[-1] in hub.files:
                    self._send(hub.files[parts[-1]])
                else:
                    raise _MissingError("EntryNotFound")
            except _MissingError as missing:
                self._send(b'{"error":"not found"}', {"X-Error-Code": str(missing)}, 404)

        def _api(self, name: str, rest: list[str], query: Mapping[str, list[str]]) -> None:
            repository = self._repository(name)
            verb, revision = rest[0] if rest else "", rest[1] if len(rest) > 1 else "main"
            commit, files = self._commit(repository, revision)
            if verb in ("", "revision"):
                listed = [{"rfilename": path} for path in files]
                self._json(
                    {"id": name, "sha": commit, "private": False, "tags": [], "downloads": 0, "siblings": listed}
                )
            elif verb == "tree":
                self._json(_tree(files, "/".join(rest[2:]), query.get("recursive") in (["true"], ["True"])))
            else:
                raise _MissingError("EntryNotFound")

        def _resolve(self, name: str, revision: str, path: str) -> None:
            commit, files = self._commit(self._repository(name), revision)
            if commit in hub.refused:
                self._send(b"", status=403)
                return
            if path not in files:
                self._send(b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}, 404)
                return
            content = files[path]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            if not path.endswith(".parquet"):
                self._send(content, headers)
                return
            digest = _sha256(content)
            headers |= {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
            self._send(b"", {**headers, "Location": f"{hub.cdn}/{digest}"}, 302)

        def _repository(self, name: str) -> Repository:
            if name not in hub.repositories:
                raise _MissingError("RepoNotFound")
            return hub.repositories[name]

        def _commit(self, repository: Repository, revision: str) -> tuple[str, Files]:
            commit = repository.resolve(revision)
            if commit is None:
                raise _MissingError("RevisionNotFound")
            return commit, repository.commits[commit]

        def _json(self, value: object) -> None:
            self._send(json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, content: bytes, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return Handler


@cache
def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _tree(files: Files, folder: str, recursive: bool) -> list[dict[str, Any]]:
    """The entries of a folder, as the hub lists them."""
    prefix = f"{folder}/" if folder else ""
    entries: dict[str, dict[str, Any]] = {}
    for path, content in files.items():
        if not path.startswith(prefix):
            continue
        parts = path[len(prefix) :].split("/")
        for depth in range(1, len(parts)):
            name = prefix + "/".join(parts[:depth])
            if recursive or depth == 1:
                entries[name] = {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
        if recursive or len(parts) == 1:
            entries[path] = {
                "type": "file",
                "path": path,
                "oid": hashlib.sha1(content).hexdigest(),
                "size": len(content),
            }
    if not entries:
        raise _MissingError("EntryNotFound")
    return list(entries.values())

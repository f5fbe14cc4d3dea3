"""A Hugging Face Hub on the loopback interface: as much of its protocol as the unmodified client speaks.

Repositories live in memory: commits, branches, tags and pull requests over files kept by content. It is started in a
thread. Requests are logged; ``fault`` may answer in its place.
"""

import base64
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

USERS = {"hf_owner": "owner", "hf_other": "other"}
LFS_FROM = 10_000  # bytes; smaller files travel inside the commit
PIECE = 1 << 22
LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".parquet")

Files = dict[str, str]
"""Path → sha256 of the content."""


@dataclass
class Repo:
    """A repository: its commits, each a tree of files, and what names them."""

    id: str
    private: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: int = 0

    def commit(self, files: Files, branch: str) -> str:
        """A new commit on a branch."""
        text = json.dumps([self.id, len(self.commits), sorted(files.items())])
        sha = hashlib.sha1(text.encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch, tag, pull request or sha."""
        name = unquote(revision).removeprefix("refs/heads/")
        return self.branches.get(name) or self.tags.get(name) or (name if name in self.commits else None)


class Refused(Exception):
    """An error that is sent as the Hub labels it: status, code, message."""


class Hub(ThreadingHTTPServer):
    """The server. ``requests`` has (method, path) of all that was asked, ``uploaded`` what was sent.

    ``pause``: seconds before each request and between the pieces of a body, so that something can happen meanwhile.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.RLock()
        self.empty()

    def empty(self) -> None:
        """Forget everything."""
        self.repos: dict[tuple[str, str], Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.uploaded: list[str] = []
        self.fault: Callable[[Handler, str, str], bool] | None = None
        self.pause = 0.0

    @property
    def url(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    def environment(self, home: Path, token: str | None = "hf_owner") -> dict[str, str]:
        """The environment of somebody with a home of their own; the client reads it when it is imported."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        kept |= {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "COLLAPSE_HOME": str(home / "collapse"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        }
        return kept | ({"HF_TOKEN": token} if token else {})

    def keep(self, content: bytes) -> str:
        """Keep a file's content; its sha256."""
        sha = hashlib.sha256(content).hexdigest()
        self.blobs[sha] = content
        return sha

    def add(self, repo: str, files: dict[str, bytes], *, kind: str = "models", private: bool = False) -> str:
        """Put files into a repository, made where it is not there; the commit's sha."""
        with self.lock:
            there = self.repos.setdefault((kind, repo), Repo(repo, private))
            now = there.commits.get(there.branches.get("main", ""), {})
            return there.commit(now | {path: self.keep(content) for path, content in files.items()}, "main")

    def handle_error(self, *_: Any) -> None:
        """Say nothing of a client that went away in the middle of a request."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*_)

    def start(self) -> "Hub":
        """Serve from a thread."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _route(self) -> None:
        method, parts = self.command, urlsplit(self.path)
        path, self.query = unquote(parts.path), parse_qs(parts.query)
        self.server.requests.append((method, path))
        self.__dict__.pop("body", None)
        time.sleep(self.server.pause)
        if self.server.fault is not None and self.server.fault(self, method, path):
            return
        _ = self.body  # the whole of it, before anything is done
        try:
            with self.server.lock:
                answer = self._answered(method, path)
        except Refused as error:
            self.fail(*error.args)
            return
        if answer is not None:
            self.answer(answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _route  # noqa: N815 - the standard library's names

    def _answered(self, method: str, path: str) -> Any:
        for verb, pattern, function in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method in verb.split():
                return function(self, **match.groupdict())
        raise Refused(404, "EntryNotFound", f"no such address: {method} {path}")

    @cached_property
    def body(self) -> bytes:
        """The body of the request; a fault may leave it unread."""
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunked()
        if len(body) < length:
            raise ConnectionResetError("the client went away: half a request is none")
        return body

    def _chunked(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return b""
        body = b""
        while line := self.rfile.readline():
            size = int(line.split(b";")[0], 16)
            body += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return body
        raise ConnectionResetError("the client went away: half a request is none")

    @property
    def user(self) -> str | None:
        """The owner of the request's token."""
        return USERS.get(self.headers.get("Authorization", "").removeprefix("Bearer ").strip())

    def json(self) -> Any:
        """The body."""
        return json.loads(self.body or b"{}")

    def answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send JSON."""
        self.send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def send(self, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send a body; of a HEAD only its length."""
        _ = self.body  # or it would be taken for the next request
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            for start in range(0, len(content), PIECE):
                self.wfile.write(content[start : start + PIECE])
                time.sleep(self.server.pause)

    def fail(self, status: int, code: str, message: str) -> None:
        """Send an error as the Hub labels it."""
        self.answer({"error": message}, status, {"X-Error-Code": code, "X-Error-Message": message})

    def repo(self, kind: str, repo: str) -> Repo:
        """Return a repository that the user may see."""
        found = self.server.repos.get((kind, repo))
        if found is None or (found.private and self.user != repo.split("/")[0]):
            raise Refused(404 if self.user else 401, "RepoNotFound", "Repository not found")
        return found

    def tree(self, kind: str, repo: str, revision: str) -> tuple[Repo, str]:
        """Return a repository and a commit of it."""
        found = self.repo(kind, repo)
        sha = found.resolve(revision)
        if sha is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return found, sha

    def check_owner(self, repo: str) -> None:
        """Refuse a token that is not the owner's."""
        if self.user is None:
            raise Refused(401, "Unauthorized", "Invalid username or password.")
        if self.user != repo.split("/")[0]:
            raise Refused(403, "Forbidden", f"{self.user} may not write to {repo}")


def whoami(ask: Handler) -> Any:
    """The token's owner."""
    if ask.user is None:
        raise Refused(401, "Unauthorized", "Invalid username or password.")
    return {"type": "user", "name": ask.user, "orgs": [], "auth": {"type": "access_token"}}


def create(ask: Handler) -> Any:
    """A new repository with an empty commit."""
    asked = ask.json()
    repo = f"{asked.get('organization') or ask.user}/{asked['name']}"
    ask.check_owner(repo)
    kind, url = f"{asked.get('type') or 'model'}s", f"{ask.server.url}/{repo}"
    if (kind, repo) in ask.server.repos:
        return ask.answer({"error": "You already created this repo", "url": url}, 409)
    made = ask.server.repos[kind, repo] = Repo(repo, bool(asked.get("private")) or asked.get("visibility") == "private")
    made.commit({}, "main")
    return {"url": url, "name": repo, "id": repo}


def info(ask: Handler, kind: str, repo: str, revision: str = "main") -> Any:
    """A repository at a revision."""
    return _about(ask, *ask.tree(kind, repo, revision))


def _about(ask: Handler, repo: Repo, sha: str) -> dict[str, Any]:
    files = repo.commits[sha]
    card = _card(ask.server.blobs[files["README.md"]]) if "README.md" in files else {}
    bases = card.get("base_model") or []
    tags = [*card.get("tags", []), *(f"base_model:{base}" for base in ([bases] if isinstance(bases, str) else bases))]
    tags += [f"dataset:{name}" for name in card.get("datasets", [])]
    return {
        "id": repo.id,
        "modelId": repo.id,
        "author": repo.id.split("/")[0],
        "sha": sha,
        "private": repo.private,
        "disabled": False,
        "gated": False,
        "downloads": 0,
        "likes": 0,
        "tags": tags + ([card["library_name"]] if "library_name" in card else []),
        "cardData": card,
        "siblings": [{"rfilename": path} for path in sorted(files)],
        "lastModified": "2026-01-01T00:00:00.000Z",
        "createdAt": "2026-01-01T00:00:00.000Z",
        "model-index": card.get("model-index"),
    }


def _card(content: bytes) -> dict[str, Any]:
    parts = content.decode().split("---\n")
    return (yaml.safe_load(parts[1]) or {}) if len(parts) > 2 else {}


def search(ask: Handler, kind: str) -> Any:
    """The repositories that have all tags."""
    wanted = {tag for value in ask.query.get("filter", []) for tag in value.split(",")}
    seen = [
        _about(ask, repo, repo.branches["main"])
        for (its_kind, name), repo in sorted(ask.server.repos.items())
        if its_kind == kind and (not repo.private or ask.user == name.split("/")[0])
    ]
    return [about for about in seen if wanted <= set(about["tags"])]


def tree(ask: Handler, kind: str, repo: str, revision: str, folder: str = "") -> Any:
    """The files in a folder."""
    found, sha = ask.tree(kind, repo, revision)
    prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
    files = {path: blob for path, blob in found.commits[sha].items() if path.startswith(prefix)}
    if prefix and not files:
        raise Refused(404, "EntryNotFound", f"{folder} does not exist")
    return [_entry(ask, path, blob) for path, blob in sorted(files.items())]


def paths_info(ask: Handler, kind: str, repo: str, revision: str) -> Any:
    """Some files."""
    found, sha = ask.tree(kind, repo, revision)
    body = ask.body.decode()
    wanted = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body).get("paths", [])
    files = found.commits[sha]
    return [_entry(ask, path, files[path]) for path in wanted if path in files]


def _entry(ask: Handler, path: str, sha: str) -> dict[str, Any]:
    content = ask.server.blobs[sha]
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _blob_id(content)}
    if _is_lfs(path, len(content)):
        entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 134}
    return entry


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _is_lfs(path: str, size: int) -> bool:
    return path.endswith(LFS_SUFFIXES) or size >= LFS_FROM


def preupload(ask: Handler, kind: str, repo: str, revision: str) -> Any:
    """Which files go through LFS."""
    ask.check_owner(repo)
    found, sha = ask.tree(kind, repo, revision)
    there = {path: _entry(ask, path, blob) for path, blob in found.commits[sha].items()}
    answers = []
    for each in ask.json()["files"]:
        path = each["path"]
        mode = "lfs" if _is_lfs(path, each["size"]) else "regular"
        oid = there[path].get("lfs", there[path])["oid"] if path in there else None
        answers.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return {"files": answers}


def lfs_batch(ask: Handler, repo: str) -> Any:
    """Where LFS files are to be sent; those that are there are not."""
    ask.check_owner(repo.removeprefix("datasets/"))
    objects = []
    for each in ask.json()["objects"]:
        href = f"{ask.server.url}/lfs/{each['oid']}?X-Amz-Signature=5ec2e7"
        there = each["oid"] in ask.server.blobs
        objects.append(each | ({} if there else {"actions": {"upload": {"href": href}}}))
    return {"transfer": "basic", "objects": objects}


def lfs_put(ask: Handler, sha: str) -> None:
    """The content of an LFS file, which must have this hash."""
    if ask.server.keep(ask.body) != sha:
        raise Refused(400, "BadRequest", "the content is not what its sha256 says")
    ask.server.uploaded.append(sha)
    ask.send(b"")


def commit(ask: Handler, kind: str, repo: str, revision: str) -> Any:
    """A commit, or with create_pr a pull request."""
    proposed = ask.query.get("create_pr", ["0"]) != ["0"]
    if not proposed:
        ask.check_owner(repo)
    found, sha = ask.tree(kind, repo, revision)
    files = dict(found.commits[sha])
    for line in ask.body.decode().splitlines():
        each = json.loads(line)
        value = each["value"]
        if each["key"] == "header" and value.get("parentCommit") not in (None, sha):
            raise Refused(412, "PreconditionFailed", "the parent commit is not the branch's head")
        if each["key"] == "file":
            files[value["path"]] = ask.server.keep(base64.b64decode(value["content"]))
            ask.server.uploaded.append(value["path"])
        elif each["key"] == "lfsFile":
            if value["oid"] not in ask.server.blobs:
                raise Refused(400, "BadRequest", f"{value['path']} was not uploaded")
            files[value["path"]] = value["oid"]
        elif each["key"] == "deletedFile":
            del files[value["path"]]
    branch, url = unquote(revision), None
    if proposed:
        found.pulls += 1
        branch, url = f"refs/pr/{found.pulls}", f"{ask.server.url}/{repo}/discussions/{found.pulls}"
    made = found.commit(files, branch)
    return {"commitUrl": f"{ask.server.url}/{repo}/commit/{made}", "commitOid": made, "pullRequestUrl": url}


def tag(ask: Handler, kind: str, repo: str, revision: str) -> Any:
    """A tag at a revision, or its removal."""
    ask.check_owner(repo)
    found = ask.repo(kind, repo)
    if ask.command == "DELETE":
        if found.tags.pop(revision, None) is None:
            raise Refused(404, "RevisionNotFound", f"no tag {revision}")
        return {}
    name, (_, sha) = ask.json()["tag"], ask.tree(kind, repo, revision)
    if name in found.tags:
        return ask.answer({"error": f"Tag {name} already exists"}, 409)
    found.tags[name] = sha
    return {}


def resolve(ask: Handler, repo: str, revision: str, path: str, kind: str | None = None) -> None:
    """A file, whole or a range of it."""
    found, commit_ = ask.tree(kind or "models", repo, revision)
    sha = found.commits[commit_].get(path)
    if sha is None:
        raise Refused(404, "EntryNotFound", f"{path} does not exist")
    content = ask.server.blobs[sha]
    etag = sha if _is_lfs(path, len(content)) else _blob_id(content)
    headers = {"X-Repo-Commit": commit_, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
    if _is_lfs(path, len(content)):
        headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", ask.headers.get("Range", ""))
    if not asked:
        ask.send(content, 200, headers)
        return
    start, stop = int(asked[1]), int(asked[2] or len(content) - 1) + 1
    headers["Content-Range"] = f"bytes {start}-{min(stop, len(content)) - 1}/{len(content)}"
    ask.send(content[start:stop], 206, headers)


_REPO = r"(?P<kind>models|datasets)/(?P<repo>[^/]+/[^/]+)"
_REVISION = r"(?P<revision>refs/pr/\d+|[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", r"/api/whoami-v2", whoami),
    ("POST", r"/api/repos/create", create),
    ("POST", r"/api/validate-yaml", lambda ask: {"errors": [], "warnings": []}),
    ("GET", r"/api/(?P<kind>models|datasets)", search),
    ("GET", rf"/api/{_REPO}", info),
    ("GET", rf"/api/{_REPO}/revision/(?P<revision>.+)", info),
    ("GET", rf"/api/{_REPO}/tree/{_REVISION}/?(?P<folder>.*)", tree),
    ("POST", rf"/api/{_REPO}/paths-info/(?P<revision>.+)", paths_info),
    ("POST", rf"/api/{_REPO}/preupload/(?P<revision>.+)", preupload),
    ("POST", rf"/api/{_REPO}/commit/(?P<revision>.+)", commit),
    ("POST DELETE", rf"/api/{_REPO}/tag/(?P<revision>.+)", tag),
    ("POST", r"/(?P<repo>.+)\.git/info/lfs/objects/batch", lfs_batch),
    ("PUT", r"/lfs/(?P<sha>[0-9a-f]{64})", lfs_put),
    ("GET HEAD", rf"/(?:(?P<kind>datasets)/)?(?P<repo>[^/]+/[^/]+)/resolve/{_REVISION}/(?P<path>.+)", resolve),
]

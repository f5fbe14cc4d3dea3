"""A Hugging Face Hub on the loopback interface, served from a thread.

Requests are logged; ``fault`` may answer in its place.
"""

import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hub_requests import ROUTES, Refused, Repo

USERS = {"hf_owner": "owner", "hf_other": "other"}
PIECE = 1 << 22


class Hub(ThreadingHTTPServer):
    """The server. ``requests`` has the (method, path) of each request, ``uploaded`` the content that was sent.

    ``pause``: seconds before each request and between the pieces of a body, so that something can happen meanwhile.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.RLock()
        self.empty()

    def empty(self) -> None:
        """Remove all repositories and recorded requests."""
        self.repos: dict[tuple[str, str], Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.uploaded: list[str] = []
        self.fault: Callable[[Handler, str, str], bool] | None = None
        self.pause = 0.0

    @property
    def url(self) -> str:
        """The value for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    def environment(self, home: Path, token: str | None = "hf_owner") -> dict[str, str]:
        """The environment of a user with an own home folder; the client reads it when it is imported."""
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
        """Store a file's content, and return its sha256."""
        sha = hashlib.sha256(content).hexdigest()
        self.blobs[sha] = content
        return sha

    def add(
        self, repo: str, files: dict[str, bytes], *, kind: str = "models", private: bool = False, branch: str = "main"
    ) -> str:
        """Commit files to a branch of a repository, which is created if it is missing; return the commit's sha."""
        with self.lock:
            there = self.repos.setdefault((kind, repo), Repo(repo, private))
            now = there.commits.get(there.branches.get(branch, ""), {})
            return there.commit(now | {path: self.keep(content) for path, content in files.items()}, branch)

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        """The files of a model's repository by path; none if there is no such repository."""
        there = self.repos.get(("models", repo))
        return {path: self.blobs[sha] for path, sha in there.commits[there.resolve(revision)].items()} if there else {}

    def handle_error(self, *_: Any) -> None:
        """Print nothing about a client that disconnects during a request."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*_)

    def start(self) -> "Hub":
        """Serve from a thread."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

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
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionResetError("the client went away: half a request is none")
        return body

    @property
    def user(self) -> str | None:
        """The owner of the request's token."""
        return USERS.get(self.headers.get("Authorization", "").removeprefix("Bearer ").strip())

    def json(self) -> Any:
        """The body of the request, parsed as JSON."""
        return json.loads(self.body or b"{}")

    def answer(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send JSON."""
        self.send(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def send(self, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """Send a body; for HEAD only its length."""
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

"""Answers of a Hugging Face Hub: the part of its protocol that the unmodified client uses.

Repositories live in memory: commits, branches, tags and pull requests over files kept by content.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import yaml

LFS_FROM = 10_000  # bytes; smaller files travel inside the commit
LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".parquet")

Files = dict[str, str]
"""Path → sha256 of the content."""


@dataclass
class Repo:
    """A repository: its commits, each a tree of files, and its branches, tags and pull requests."""

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


def whoami(ask: Any) -> Any:
    """The token's owner."""
    if ask.user is None:
        raise Refused(401, "Unauthorized", "Invalid username or password.")
    return {"type": "user", "name": ask.user, "orgs": [], "auth": {"type": "access_token"}}


def create(ask: Any) -> Any:
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


def info(ask: Any, kind: str, repo: str, revision: str = "main") -> Any:
    """A repository at a revision."""
    return _about(ask, *ask.tree(kind, repo, revision))


def _about(ask: Any, repo: Repo, sha: str) -> dict[str, Any]:
    files = repo.commits[sha]
    card = _card(ask.server.blobs[files["README.md"]]) if "README.md" in files else {}
    return {
        "id": repo.id,
        "sha": sha,
        "private": repo.private,
        "tags": card.get("tags", []),
        "cardData": card,
        "siblings": [{"rfilename": path} for path in sorted(files)],
        "model-index": card.get("model-index"),
    }


def _card(content: bytes) -> dict[str, Any]:
    parts = content.decode().split("---\n")
    return (yaml.safe_load(parts[1]) or {}) if len(parts) > 2 else {}


def search(ask: Any, kind: str) -> Any:
    """The repositories that have all tags."""
    wanted = {tag for value in ask.query.get("filter", []) for tag in value.split(",")}
    seen = [
        _about(ask, repo, repo.branches["main"])
        for (its_kind, name), repo in sorted(ask.server.repos.items())
        if its_kind == kind and (not repo.private or ask.user == name.split("/")[0])
    ]
    return [about for about in seen if wanted <= set(about["tags"])]


def refs(ask: Any, kind: str, repo: str) -> Any:
    """The branches and tags of a repository."""
    found = ask.repo(kind, repo)

    def listed(folder: str, names: dict[str, str]) -> list[dict[str, str]]:
        return [{"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": sha} for name, sha in names.items()]

    branches = {name: sha for name, sha in found.branches.items() if not name.startswith("refs/pr/")}
    return {"branches": listed("heads", branches), "tags": listed("tags", found.tags), "converts": []}


def tree(ask: Any, kind: str, repo: str, revision: str, folder: str = "") -> Any:
    """The files in a folder."""
    found, sha = ask.tree(kind, repo, revision)
    prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
    files = {path: blob for path, blob in found.commits[sha].items() if path.startswith(prefix)}
    if prefix and not files:
        raise Refused(404, "EntryNotFound", f"{folder} does not exist")
    return [_entry(ask, path, blob) for path, blob in sorted(files.items())]


def _entry(ask: Any, path: str, sha: str) -> dict[str, Any]:
    content = ask.server.blobs[sha]
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": _blob_id(content)}
    if _is_lfs(path, len(content)):
        entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 134}
    return entry


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _is_lfs(path: str, size: int) -> bool:
    return path.endswith(LFS_SUFFIXES) or size >= LFS_FROM


def preupload(ask: Any, kind: str, repo: str, revision: str) -> Any:
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


def lfs_batch(ask: Any, repo: str) -> Any:
    """The addresses to which LFS files are sent; existing files are not sent again."""
    ask.check_owner(repo.removeprefix("datasets/"))
    objects = []
    for each in ask.json()["objects"]:
        href = f"{ask.server.url}/lfs/{each['oid']}?X-Amz-Signature=5ec2e7"
        there = each["oid"] in ask.server.blobs
        objects.append(each | ({} if there else {"actions": {"upload": {"href": href}}}))
    return {"transfer": "basic", "objects": objects}


def lfs_put(ask: Any, sha: str) -> None:
    """The content of an LFS file, which must have this hash."""
    if ask.server.keep(ask.body) != sha:
        raise Refused(400, "BadRequest", "the content is not what its sha256 says")
    ask.server.uploaded.append(sha)
    ask.send(b"")


def commit(ask: Any, kind: str, repo: str, revision: str) -> Any:
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


def tag(ask: Any, kind: str, repo: str, revision: str) -> Any:
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


def resolve(ask: Any, repo: str, revision: str, path: str, kind: str | None = None) -> None:
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
    ("GET", rf"/api/{_REPO}/refs", refs),
    ("GET", rf"/api/{_REPO}/revision/(?P<revision>.+)", info),
    ("GET", rf"/api/{_REPO}/tree/{_REVISION}/?(?P<folder>.*)", tree),
    ("POST", rf"/api/{_REPO}/preupload/(?P<revision>.+)", preupload),
    ("POST", rf"/api/{_REPO}/commit/(?P<revision>.+)", commit),
    ("POST DELETE", rf"/api/{_REPO}/tag/(?P<revision>.+)", tag),
    ("POST", r"/(?P<repo>.+)\.git/info/lfs/objects/batch", lfs_batch),
    ("PUT", r"/lfs/(?P<sha>[0-9a-f]{64})", lfs_put),
    ("GET HEAD", rf"/(?:(?P<kind>datasets)/)?(?P<repo>[^/]+/[^/]+)/resolve/{_REVISION}/(?P<path>.+)", resolve),
]

"""Limits on the Hub client's requests: what it may take for an answer, how long it may wait, what it may write.

The client waits as long as a ``Retry-After`` says, reads a body that drips for ever, takes a web page with status 200
for a file, and names cached files by the ETag of the answer. All its requests go through one session of its HTTP
library; a response hook on that session refuses such answers for our requests and for those of transformers and
datasets alike.
"""

import logging
import re
import threading
import time
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

LONGEST_WAIT = 300.0
"""Seconds. The Hub's rate limits are counted over five minutes."""
_TOLD_FROM = 10  # seconds: shorter waits are not worth a line
_LEAST_SPEED = 1000  # bytes a second; below it a download would take a day for 100 MB
_WINDOW = 3  # read timeouts (HF_HUB_DOWNLOAD_TIMEOUT, 10 s) over which the speed is taken
_TIMEOUTS = (30.0, 300.0, 300.0, None)  # connect, read, write, pool: of requests for which the client sets none
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILE_NAME = re.compile(r"[\w+=.-]*[\w+=-]")

log = logging.getLogger("collapse")


class RefusedAnswer(OSError):
    """An answer that no Hub gives, or that would take too long; asking again would not help."""


def client_errors() -> tuple[type[Exception], ...]:
    """What a request raises that fails, or whose answer is not what the Hub promises."""
    from huggingface_hub import errors

    return (
        errors.HfHubHTTPError,
        errors.HTTPError,
        OSError,
        RuntimeError,
        ValueError,  # no JSON
        LookupError,  # JSON of another shape
        TypeError,
        AttributeError,
    )


def guard_client() -> None:
    """Set the limits on the client's session, which is another one after a fork or a lost connection."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return
    session: Any = get_session()
    hooks = session.event_hooks
    if _check not in hooks["response"]:
        session.event_hooks = hooks | {"response": [_check, *hooks["response"]]}
        if session.timeout.read is None:
            session.timeout = _TIMEOUTS


def _check(response: Any) -> None:
    _refuse_web_page(response)
    _refuse_strange_names(response)
    _refuse_long_wait(response)
    response.stream = _watched(type(response).__module__.split(".")[0])(response)


def _refuse_web_page(response: Any) -> None:
    kind = response.headers.get("Content-Type", "").lower()
    is_page = kind.startswith(("text/html", "application/xhtml"))
    if is_page and response.status_code == 200 and not _path(response).endswith((".html", ".htm", ".xhtml")):
        raise RefusedAnswer(
            f"{_host(response)} answers with a web page where a file or JSON is expected: is there a login page or "
            "a proxy between this machine and the Hub, or is HF_ENDPOINT wrong?"
        )


def _refuse_strange_names(response: Any) -> None:
    """The client makes names of files of these headers."""
    commit = response.headers.get("X-Repo-Commit")
    if commit is None:
        return
    etag = response.headers.get("X-Linked-Etag") or response.headers.get("ETag") or "none"
    if not _COMMIT.fullmatch(commit) or not _FILE_NAME.fullmatch(etag.lstrip("W/").strip('"')):
        raise RefusedAnswer(
            f"{_host(response)} sends a commit or an ETag that is none ({commit[:60]!r}, {etag[:60]!r}): "
            "nothing was written; is HF_ENDPOINT a Hub that you trust?"
        )


def _refuse_long_wait(response: Any) -> None:
    if response.status_code < 400:
        return
    wait = _asked_wait(response)
    if wait > LONGEST_WAIT:
        raise RefusedAnswer(
            f"{_host(response)} is busy ({response.status_code}) and asks to wait {wait:,} s, "
            f"which is longer than {LONGEST_WAIT:.0f} s: run the same command again then"
        )
    if wait >= _TOLD_FROM:
        log.warning("%s is busy (%d) and asks to wait %d s", _host(response), response.status_code, wait)


def _asked_wait(response: Any) -> int:
    """Seconds that an answer asks to wait, in either header that the client obeys."""
    asked = [response.headers.get("Retry-After", "").strip()]
    limit = re.search(r"\bt\s*=\s*(\d+)", response.headers.get("RateLimit", ""))
    if limit and response.status_code == 429:
        asked.append(limit[1])
    return max((int(each[:9]) for each in asked if each.isdigit()), default=0)


class _Pace:
    """Seconds waited for an address and bytes received: a download that is resumed goes on in its window."""

    def __init__(self) -> None:
        self.waited, self.received = 0.0, 0

    def add(self, seconds: float, received: int, response: Any) -> None:
        from huggingface_hub import constants

        self.waited += seconds
        self.received += received
        if self.waited < _WINDOW * constants.HF_HUB_DOWNLOAD_TIMEOUT:
            return
        if self.received < _LEAST_SPEED * self.waited:
            raise RefusedAnswer(
                f"{_host(response)} sent {self.received:,} bytes of {_path(response)} in {self.waited:.0f} s: the "
                "connection is too slow, and was given up; run the same command again"
            )
        self.waited, self.received = 0.0, 0


_paces: dict[str, _Pace] = {}
_paces_lock = threading.Lock()


@cache
def _watched(http: str) -> type:
    """A stream of bytes that is given up when it drips; of the client's HTTP library, httpx or httpx2."""
    library: Any = import_module(http)

    class Watched(library.SyncByteStream):
        def __init__(self, response: Any) -> None:
            self.response, self.stream = response, response.stream

        def __iter__(self) -> Iterator[bytes]:
            address = str(self.response.request.url)
            with _paces_lock:
                pace = _paces.setdefault(address, _Pace())
            pieces, piece = iter(self.stream), b""
            while True:
                began = time.monotonic()
                try:
                    piece = next(pieces)
                except StopIteration:
                    break
                except library.TransportError:  # the client resumes after this one
                    pace.add(time.monotonic() - began, 0, self.response)
                    raise
                pace.add(time.monotonic() - began, len(piece), self.response)
                yield piece
            with _paces_lock:
                _paces.pop(address, None)

        def close(self) -> None:
            self.stream.close()

    return Watched


def _host(response: Any) -> str:
    return str(urlsplit(str(response.request.url)).netloc.rpartition("@")[2])


def _path(response: Any) -> str:
    """The address without its query, which may be a signature."""
    return str(urlsplit(str(response.request.url)).path)

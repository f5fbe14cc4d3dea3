"""Limits on the Hub client's requests: which answers it accepts, how long it waits, which file names it writes.

By default the client waits as long as a ``Retry-After`` header says, reads a body however slowly it arrives, accepts a
web page with status 200 as a file, and names cached files after the ETag. All its requests go through one session of
its HTTP library. A response hook on that session rejects such answers, for our requests and for those of transformers
and datasets.
"""

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from collapse.errors import CollapseError, first_line

LONGEST_WAIT = 300.0
"""Seconds. The Hub's rate limits apply to windows of five minutes."""
_REPORTED_FROM = 10  # seconds: shorter waits are not reported
_LEAST_SPEED = 1000  # bytes per second: 100 MB would take more than a day
_WINDOW = 3  # the speed is averaged over this many read timeouts (HF_HUB_DOWNLOAD_TIMEOUT, 10 s)
_TIMEOUTS = (30.0, 300.0, 300.0, None)  # connect, read, write, pool: for requests for which the client sets none
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILE_NAME = re.compile(r"[\w+=.-]*[\w+=-]")

log = logging.getLogger("collapse")


class RefusedAnswer(OSError):
    """An answer that no Hub would send, or that would take too long; the request is not repeated."""


def client_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a request that fails or whose answer is malformed."""
    from huggingface_hub import errors

    return (
        errors.HfHubHTTPError,
        errors.HTTPError,
        OSError,
        RuntimeError,
        ValueError,  # not JSON
        LookupError,  # JSON of an unexpected structure
        TypeError,
        AttributeError,
    )


@contextmanager
def clear_errors(what: str, advice: str = "") -> Iterator[None]:
    """Convert the client's exceptions into a CollapseError that says what failed and why, and how to log in."""
    try:
        yield
    except client_errors() as error:
        status = getattr(getattr(error, "response", None), "status_code", 0)
        login = " (log in with: hf auth login)" if status in (401, 403) else ""
        raise CollapseError(f"{what}: {first_line(error)}{login}{advice}") from error


def guard_client() -> None:
    """Set the limits on the client's session; the client makes a new one after a fork or a lost connection."""
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
    """Reject a malformed commit or ETag, because the client makes file names from these headers."""
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
    if wait >= _REPORTED_FROM:
        log.warning("%s is busy (%d) and asks to wait %d s", _host(response), response.status_code, wait)


def _asked_wait(response: Any) -> int:
    """Return how many seconds an answer asks to wait, in either of the headers that the client obeys."""
    asked = [response.headers.get("Retry-After", "").strip()]
    limit = re.search(r"\bt\s*=\s*(\d+)", response.headers.get("RateLimit", ""))
    if limit and response.status_code == 429:
        asked.append(limit[1])
    return max((int(each[:9]) for each in asked if each.isdigit()), default=0)


class _Pace:
    """Seconds waited and bytes received for one address; a resumed download continues in the same window."""

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
    """Return a byte stream class that stops too slow downloads, for the client's HTTP library: httpx or httpx2."""
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
                except library.TransportError:  # the client resumes the download after this error
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
    """Return the path of the address without its query, which may hold a signature."""
    return str(urlsplit(str(response.request.url)).path)

"""What a Hub, or something in its place, answers wrongly, slowly or with a waiting time."""

import time

import pytest

import collapse

FOLDER = "collapse/x"


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    return collapse.collect(tiny.model, store=tmp_path_factory.mktemp("stored") / "s", max_chunks=8, **tiny.options())


@pytest.fixture
def published(hub, stored):
    files = {name: (stored.path / name).read_bytes() for name in [*stored.manifest["files"], "collapse.json"]}
    hub.add("owner/stats", {f"{FOLDER}/{name}": content for name, content in files.items()})


def page(content_type):
    def fault(ask, method, path):
        ask.send(b"<html><body>Log in to the network</body></html>", 200, {"Content-Type": content_type})
        return True

    return fault


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "application/json"])
def test_a_login_page_in_place_of_the_hub(hub, published, as_user, tiny, tmp_path, content_type):
    as_user("measure", "owner/stats", "--metrics", "nc3", home="warm")
    hub.fault = page(content_type)
    began = time.monotonic()
    cold = as_user("measure", "owner/stats", home="cold", ok=False)
    assert cold.returncode == 1
    assert "the Hub cannot be reached" in cold.stderr
    warm = as_user("measure", "owner/stats", "--metrics", "nc3", home="warm")
    assert "using the cached copy" in warm.stderr
    said = "answers with a web page" if "html" in content_type else "its answer is not JSON"
    assert said in cold.stderr
    assert said in warm.stderr
    assert time.monotonic() - began < 20
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"Log in to the network" not in file.read_bytes()


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"null", b'{"sha": 1}', b"[[[1]]]"])
def test_json_of_another_shape(hub, published, as_user, answer):
    for api in ("/api/models/owner/stats", "/tree/"):
        hub.fault = lambda ask, method, path, api=api: (
            (path.endswith(api) or ("/tree/" in path and api == "/tree/"))
            and not ask.send(answer, 200, {"Content-Type": "application/json"})
        )
        done = as_user("measure", "owner/stats", home="cold", ok=False)
        assert done.returncode in (1, 2)
        assert "owner/stats" in done.stderr


def test_a_login_page_that_comes_while_a_model_is_fetched_is_not_cached_as_its_files(hub, as_user, tiny, tmp_path):
    files = {file.name: file.read_bytes() for file in tiny.model.iterdir()}
    hub.add("owner/tiny", files)
    words = ("measure", "owner/tiny", *tiny.words()[1:], "--max-chunks", 8, "--metrics", "nc3")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):

        def fault(ask, method, path, name=name):
            if not path.endswith(f"/{name}"):
                return False
            length = len(files[name])
            ask.send(b"<html>".ljust(length), 200, {"Content-Type": "text/html", **headers(hub, path)})
            return True

        hub.fault = fault
        home = name.replace(".", "-")
        refused = as_user(*words, home=home, ok=False)
        assert refused.returncode == 1
        hub.fault = None
        as_user(*words, home=home)


def headers(hub, path):
    """Those of the right answer, as a proxy that replaces bodies would leave them."""
    sha = hub.repos["models", "owner/tiny"].branches["main"]
    return {"X-Repo-Commit": sha, "ETag": f'"{hash(path) & 0xFFFFFFFF:040x}"'}


def test_a_wait_of_an_hour_is_not_waited_for(hub, published, as_user):
    for where in ("/api/", "/tree/", "/resolve/"):
        hub.fault = lambda ask, method, path, where=where: (
            where in path and not ask.send(b"busy", 429, {"Retry-After": "3600"})
        )
        began = time.monotonic()
        done = as_user("measure", "owner/stats", home="cold", ok=False, timeout=60)
        assert time.monotonic() - began < 30
        assert done.returncode in (1, 2)
        assert "asks to wait 3,600 s" in done.stderr
    limited = {"RateLimit": '"api";r=0;t=4000', "RateLimit-Policy": '"fixed window";"api";q=500;w=4000'}
    hub.fault = lambda ask, method, path: "/tree/" in path and not ask.send(b"busy", 429, limited)
    assert "asks to wait 4,000 s" in as_user("measure", "owner/stats", home="cold", ok=False, timeout=60).stderr


FETCHES = """
from collapse.errors import CollapseError
from collapse.hub.requests import fetch_file

for name in ("403.json", "429.json", "500.json", "none.json"):
    for online in (True, False):
        try:
            print(name, fetch_file("owner/some", name, COMMIT, online=online))
        except CollapseError as error:
            print(error)
"""


def test_a_file_that_the_hub_does_not_send_is_not_one_that_is_not_there(hub, as_user):
    """Or a model with an adapter, or with code of its own, would pass for one without."""
    statuses = (403, 429, 500)
    commit = hub.add("owner/some", {f"{status}.json": b"{}" for status in statuses})
    hub.fault = lambda ask, method, path: (
        path.endswith(("403.json", "429.json", "500.json"))
        and not ask.send(b"no", int(path[-8:-5]), {"Retry-After": "400" if path.endswith("429.json") else "0"})
    )
    said = as_user(python=FETCHES.replace("COMMIT", repr(commit))).stdout.splitlines()
    for number, status in enumerate(statuses):
        assert said[2 * number].startswith(f"owner/some: {status}.json cannot be downloaded: ")
        assert str(status) in said[2 * number].partition("downloaded")[2]
        assert said[2 * number + 1] == f"{status}.json None"  # without the Hub, as it is not cached
        asked = sum(path.endswith(f"/{status}.json") for _, path in hub.requests)
        assert asked == 1 if status != 500 else asked >= 1
    assert "hf auth login" in said[0]
    assert said[6:] == ["none.json None"] * 2


def test_a_file_is_asked_for_again_where_the_hub_was_busy_once(hub, as_user, tiny):
    files = {file.name: file.read_bytes() for file in tiny.model.iterdir()}
    hub.add("owner/adapted", files | {"adapter_config.json": b"{}"})
    asked = []

    def fault(ask, method, path):
        if not path.endswith("adapter_config.json") or len(asked) == 1:
            return False
        asked.append(path)
        ask.send(b"busy", 429, {"Retry-After": "0"})
        return True

    hub.fault = fault
    refused = as_user("measure", "owner/adapted", *tiny.words()[1:], "--max-chunks", 8, ok=False)
    assert refused.returncode == 1
    assert asked
    assert "holds a PEFT adapter" in refused.stderr


@pytest.mark.parametrize("stalls", [False, True])
def test_a_body_that_drips_is_given_up(hub, published, as_user, stalls):
    """Drop by drop, or with a drop for each time that the client resumes."""

    def fault(ask, method, path):
        if method != "GET" or not path.endswith("train.safetensors"):
            return False
        ask.send_response(200)
        ask.send_header("Content-Length", "100000")
        ask.end_headers()
        for _ in range(1 if stalls else 200):
            ask.wfile.write(b"x")
            ask.wfile.flush()
            time.sleep(0.3)
        time.sleep(2 if stalls else 0)
        ask.close_connection = True
        return True

    hub.fault = fault
    began = time.monotonic()
    read_timeout = {"HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    done = as_user("measure", "owner/stats", "--metrics", "nc3", changes=read_timeout, ok=False)
    assert time.monotonic() - began < 40
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the connection is too slow" in done.stderr
    assert "train.safetensors" in done.stderr


@pytest.mark.parametrize(
    "header", [{"ETag": '"../../../../evil"'}, {"X-Linked-Etag": '"/tmp/../x/evil"'}, {"X-Repo-Commit": "../../evil"}]
)
def test_headers_of_an_answer_name_no_files_elsewhere(hub, published, as_user, tmp_path, header):
    def fault(ask, method, path):
        if "/resolve/" not in path:
            return False
        right = {"X-Repo-Commit": hub.repos["models", "owner/stats"].branches["main"], "ETag": '"0"'}
        if "X-Repo-Commit" in header:
            ask.answer({"error": "no"}, 404, right | header | {"X-Error-Code": "EntryNotFound"})
        else:
            ask.send(b"evil content", 200, right | header)
        return True

    hub.fault = fault
    done = as_user("measure", "owner/stats", home="deep/in/home", ok=False)
    assert done.returncode == 1
    assert "a commit or an ETag that is none" in done.stderr
    assert not list(tmp_path.rglob("*evil*"))


def test_a_link_out_of_the_cache_is_not_read(hub, published, as_user, tmp_path):
    as_user("info", "owner/stats", home="home")
    (manifest,) = (tmp_path / "home").rglob("collapse.json")
    (tmp_path / "elsewhere.json").write_bytes(manifest.read_bytes())
    manifest.unlink()
    manifest.symlink_to(tmp_path / "elsewhere.json")
    refused = as_user("info", "owner/stats", home="home", ok=False)
    assert refused.returncode == 1
    assert "a link out of the client's cache" in refused.stderr


def test_a_ref_is_written_whole_and_another_programs_half_ref_is_none(hub, published, as_user, tmp_path):
    as_user("info", "owner/stats", home="home")
    refs = next((tmp_path / "home").rglob("refs"))
    assert [file.name for file in refs.iterdir()] == ["main"]
    assert (refs / "main").read_text() == hub.repos["models", "owner/stats"].branches["main"]
    (refs / "main").write_text("0123")
    half = as_user("info", "owner/stats", home="home", offline=True, ok=False)
    assert half.returncode == 1
    assert "it is not cached" in half.stderr

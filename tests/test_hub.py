"""Pushing stores to the Hub and pulling them: the unmodified client against a server on the loopback interface."""

import json

import pytest
from reference import present

import collapse
from collapse.measurement.last_results import keep_row


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "store"
    store = collapse.collect(tiny.model, store=folder, max_chunks=24, layers="1", **tiny.options())
    keep_row(store, collapse.measure(store))
    return store


@pytest.fixture(scope="module")
def other(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other") / "store"
    return collapse.collect(tiny.model, store=folder, max_chunks=24, dtype="float64", **tiny.options())


def stores(hub, repo="owner/stats"):
    """Folder → digest of each store in a repository; its files are those that its manifest lists."""
    files, found = hub.files(repo), {}
    for path in files:
        if path.endswith("/collapse.json"):
            folder, manifest = path.removesuffix("/collapse.json"), json.loads(files[path])
            inside = {name.removeprefix(f"{folder}/") for name in files if name.startswith(f"{folder}/")}
            assert inside - {"results.json"} == {*manifest["files"], "collapse.json"}
            found[folder] = manifest["digest"]
    return found


def measured(as_user, name, **options):
    """The row of a store on the Hub."""
    (row,) = json.loads(as_user("measure", name, "--metrics", "nc2,nc3", "--json", **options).stdout)
    return row


def test_a_store_is_pushed_pulled_and_measured(hub, as_user, stored, tmp_path):
    said = as_user("push", stored.path, "owner/stats").stdout
    ((folder, digest),) = stores(hub).items()
    assert digest == stored.digest
    assert f"measure it with: collapse measure owner/stats/{folder}" in said
    assert str(tmp_path).encode() not in b"".join(hub.files("owner/stats").values())

    as_user("pull", "owner/stats", "--store", tmp_path / "pulled", token=None, home="reader")
    for name in stored.manifest["files"]:
        assert (tmp_path / "pulled" / name).read_bytes() == (stored.path / name).read_bytes()
    origin = f"owner/stats/{folder}@{hub.repos['models', 'owner/stats'].branches['main']}"
    assert collapse.measure(collapse.load(tmp_path / "pulled"), metrics=["nc3"]).origin == origin
    as_user("push", tmp_path / "pulled", "owner/again")
    assert stores(hub, "owner/again") == {folder: stored.digest}

    expected = present(collapse.measure(stored, metrics=["nc2", "nc3"]).measurements)
    hub.requests.clear()
    row = measured(as_user, "owner/stats", token=None, home="new")
    got = {path.rsplit("/", 1)[-1] for method, path in hub.requests if method == "GET" and "/resolve/" in path}
    assert "train.safetensors" in got
    assert "covariance.safetensors" not in got  # which these metrics do not need
    assert present(row["measurements"]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert stored.digest[:12] in as_user("info", "owner/stats").stdout


def test_the_card_shows_the_measurements_and_zoo_list_reads_them(hub, as_user, tiny, tmp_path):
    name = "rhubarbwu/TinyStories-01x0064_01d"
    hub.add(name, {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    as_user("measure", name, *tiny.words()[1:], "--max-chunks", 20, "--store", tmp_path / "s")
    as_user("push", tmp_path / "s", "owner/stats")
    card = hub.files("owner/stats")["README.md"].decode()
    samples = f"| training samples | {20 * 31:,} |"
    for said in ("library_name: linguistic-collapse", f"base_model: {name}", "model-index", samples, "nc3.self"):
        assert said in card
    (listed,) = json.loads(as_user("zoo", "list", "--hub", "--json").stdout)
    assert (listed["model"], listed["where"]) == ("TinyStories-01x0064_01d@0", "Hub: owner/stats")
    as_user("measure", tmp_path / "s", "--min-count", 3)
    as_user("push", tmp_path / "s", "owner/stats")
    card = hub.files("owner/stats")["README.md"].decode()
    assert "classes of at least 3 samples (`--min-count 3`)" in card
    assert "model-index" not in card  # it cannot record a minimum count


def test_a_push_replaces_the_store_of_the_same_identity_and_nothing_else(hub, as_user, stored, other, tiny, tmp_path):
    hub.add("owner/stats", {"NOTES.md": b"mine", "collapse/notes.txt": b"mine"})
    for store in (stored, other):
        as_user("push", store.path, "owner/stats")
    assert sorted(stores(hub).values()) == sorted((stored.digest, other.digest))
    hub.uploaded.clear()
    assert "nothing was sent" in as_user("push", other.path, "owner/stats").stdout
    assert not hub.uploaded
    less = collapse.collect(tiny.model, store=tmp_path / "s", max_chunks=24, without=["covariance"], **tiny.options())
    as_user("push", less.path, "owner/stats")
    found = stores(hub)
    assert sorted(found.values()) == sorted((less.digest, other.digest))
    assert {"NOTES.md", "collapse/notes.txt"} <= set(hub.files("owner/stats"))
    several = as_user("measure", "owner/stats", code=2)
    assert f"has several stores: give one of owner/stats/{min(found)}, owner/stats/{max(found)}" in several.stderr
    for folder, digest in found.items():
        assert measured(as_user, f"owner/stats/{folder}")["store"] == digest


def test_branches_and_pull_requests(hub, as_user, stored):
    hub.add("owner/stats", {"README.md": b"mine"})
    assert "has no revision 'dev'" in as_user("push", stored.path, "owner/stats", "--revision", "dev", code=None).stderr
    there = hub.repos["models", "owner/stats"]
    there.branches["dev"] = there.branches["main"]
    for more, revision in ((("--revision", "dev"), "dev"), (("--create-pr",), "refs/pr/1")):
        said = as_user("push", stored.path, "owner/stats", "--into-model-repo", *more).stdout
        name = said.split("collapse measure ")[1].strip()
        assert name.endswith(f"@{revision}")
        assert measured(as_user, name)["store"] == stored.digest
        assert hub.files("owner/stats", revision)["README.md"] == hub.files("owner/stats")["README.md"] == b"mine"
    assert not stores(hub)  # main is as it was


def test_a_private_repository_needs_its_token(hub, as_user, stored, tmp_path):
    as_user("push", stored.path, "owner/secret", "--private")
    assert hub.repos["models", "owner/secret"].private
    refused = as_user("pull", "owner/secret", "--store", tmp_path / "not", token="hf_other", home="other", code=2)
    assert "hf auth login" in refused.stderr
    assert not (tmp_path / "not" / "collapse.json").exists()
    assert "hf auth login" in as_user("push", stored.path, "owner/stats", token="hf_other", code=None).stderr


def test_a_push_fails_if_another_comes_in_between(hub, as_user, stored, other):
    as_user("push", stored.path, "owner/stats")
    moved = []

    def fault(ask, method, path):
        if "/preupload/" in path and not moved:
            moved.append(hub.add("owner/stats", {"collapse/b/x.txt": b"another push"}))
        return False

    hub.fault = fault
    assert "Run the same command again" in as_user("push", other.path, "owner/stats", code=None).stderr
    as_user("push", other.path, "owner/stats")
    assert len(stores(hub)) == 2


def test_an_interrupted_push_leaves_no_store_and_sends_nothing_twice(hub, as_user, stored):
    asked = []

    def fault(ask, method, path):
        if method != "PUT" and "/commit/" not in path:
            return False
        asked.append(path)
        return len(asked) > 2 and not ask.send(b"no", 507)

    hub.fault = fault
    refused = as_user("push", stored.path, "owner/stats", code=None).stderr
    assert "507" in refused
    assert "5ec2e7" not in refused  # the signature of an address
    assert hub.files("owner/stats") == {}
    hub.fault = None
    as_user("push", stored.path, "owner/stats")
    assert [*stores(hub).values()] == [stored.digest]
    assert len(set(hub.uploaded)) == len(hub.uploaded)


@pytest.mark.parametrize("damage", [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-9]])
def test_a_damaged_file_is_neither_pulled_nor_measured(hub, as_user, stored, tmp_path, damage):
    as_user("push", stored.path, "owner/stats")
    (name,) = (path for path in hub.files("owner/stats") if path.endswith("top/train.safetensors"))
    hub.add("owner/stats", {name: damage(hub.files("owner/stats")[name])})
    for words in (("pull", "owner/stats", "--store", tmp_path / "s"), ("measure", "owner/stats")):
        refused = as_user(*words, code=1)
        assert f"owner/stats: {name} is damaged" in refused.stderr
    assert not (tmp_path / "s" / "collapse.json").exists()


def test_what_the_hub_refuses_is_one_line(hub, as_user, tiny):
    hub.add("owner/some", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    words = ("measure", "owner/some", *tiny.words()[1:], "--max-chunks", 8)
    hub.fault = lambda ask, method, path: path.endswith("/config.json") and not ask.send(b"no", 403, {})
    refused = as_user(*words, home="forbidden", code=1)
    assert "owner/some: config.json cannot be downloaded: 403" in refused.stderr
    hub.fault = lambda ask, method, path: path.endswith("/config.json") and not ask.fail(403, "GatedRepo", "no access")
    gated = as_user(*words, home="gated", code=None).stderr
    assert "it is gated: accept the conditions on its page, then: hf auth login" in gated

"""Pushing stores to the Hub and pulling them: the unmodified client against a server on the loopback interface."""

import json
import shutil

import pytest
from reference import present

import collapse
from collapse.errors import CollapseError
from collapse.measurement.last_results import keep_row
from collapse.stores.origin import pulled_from


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "store"
    store = collapse.collect(tiny.model, store=folder, max_chunks=24, **tiny.options())
    keep_row(store, collapse.measure(store))
    return store


@pytest.fixture(scope="module")
def other(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other") / "store"
    return collapse.collect(tiny.model, store=folder, max_chunks=24, dtype="float64", **tiny.options())


def tree(hub, repo="owner/stats", branch="main"):
    there = hub.repos["models", repo]
    return {path: hub.blobs[sha] for path, sha in there.commits[there.resolve(branch)].items()}


def stores(hub, repo="owner/stats"):
    """Folder → digest of each store in a repository, whose files are those that its manifest names."""
    files, found = tree(hub, repo), {}
    for path, content in files.items():
        if path.endswith("/collapse.json"):
            folder, manifest = path.removesuffix("/collapse.json"), json.loads(content)
            inside = {name.removeprefix(f"{folder}/") for name in files if name.startswith(f"{folder}/")}
            assert inside - {"results.json"} == {*manifest["files"], "collapse.json"}
            found[folder] = manifest["digest"]
    return found


def test_pushed_pulled_and_measured(hub, as_user, stored, tmp_path):
    said = as_user("push", stored.path, "owner/stats").stdout
    ((folder, digest),) = stores(hub).items()
    assert digest == stored.digest
    assert f"measure it with: collapse measure owner/stats/{folder}" in said
    text = b"".join(tree(hub).values())
    assert str(tmp_path).encode() not in text
    assert b"/root" not in tree(hub)["README.md"]

    as_user("pull", "owner/stats", "--store", tmp_path / "pulled", token=None, home="reader")
    for file in stored.path.rglob("*.safetensors"):
        assert (tmp_path / "pulled" / file.relative_to(stored.path)).read_bytes() == file.read_bytes()
    origin = f"owner/stats/{folder}@{hub.repos['models', 'owner/stats'].branches['main']}"
    pulled = collapse.load(tmp_path / "pulled")
    assert (pulled.digest, pulled_from(pulled)) == (stored.digest, origin)
    assert collapse.measure(pulled, metrics=["nc3"]).origin == origin
    as_user("push", tmp_path / "pulled", "owner/again")
    assert not [path for path in tree(hub, "owner/again") if path.endswith("origin.json")]

    (row,) = json.loads(as_user("measure", "owner/stats", "--json", token=None, home="reader").stdout)
    assert present(row["measurements"]) == pytest.approx(
        present(collapse.measure(stored).measurements), rel=1e-9, abs=1e-12
    )
    assert "digest" in as_user("info", "owner/stats").stdout
    loaded = as_user(python="import collapse; print(collapse.load('owner/stats').digest)", home="python").stdout
    assert loaded.strip() == stored.digest


def test_the_card_says_what_was_measured_and_lists_in_the_zoo(hub, as_user, tiny, tmp_path):
    hub.add("rhubarbwu/TinyStories-01x0064_01d", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    words = ("measure", "rhubarbwu/TinyStories-01x0064_01d", *tiny.words()[1:], "--max-chunks", 20)
    as_user(*words, "--store", tmp_path / "s")
    as_user("push", tmp_path / "s", "owner/stats")
    card = tree(hub)["README.md"].decode()
    for said in (
        "library_name: linguistic-collapse",
        "- neural-collapse",
        "base_model: rhubarbwu/TinyStories-01x0064_01d",
        "model-index",
        "Over all classes (`--min-count 1`): C = ",
        f"| training samples | {20 * 31:,} |",
        "nc3.self",
    ):
        assert said in card
    listed = json.loads(as_user("zoo", "list", "--hub", "--json").stdout)
    assert [(each["model"], each["where"]) for each in listed] == [("TinyStories-01x0064_01d@0", "Hub: owner/stats")]
    as_user("measure", tmp_path / "s", "--min-count", 3)
    as_user("push", tmp_path / "s", "owner/stats")
    card = tree(hub)["README.md"].decode()
    assert "classes of at least 3 samples (`--min-count 3`)" in card
    assert "model-index" not in card  # it cannot record a minimum count


def test_a_store_at_the_root_of_a_repository_is_measured(hub, as_user, stored):
    """As ``hf upload user/repo stores/a`` leaves it."""
    folder = stored.path
    hub.add("owner/root", {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()})
    (row,) = json.loads(as_user("measure", "owner/root", "--metrics", "nc2", "--json").stdout)
    assert row["store"] == stored.digest
    hub.add("owner/root", {"config.json": b"{}"})  # now it holds a model
    assert as_user("measure", "owner/root", "--metrics", "nc2", ok=False).returncode != 0


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
    assert {"NOTES.md", "collapse/notes.txt"} <= set(tree(hub))
    several = as_user("measure", "owner/stats", ok=False)
    assert several.returncode == 2
    assert f"has several stores: name one of owner/stats/{min(found)}, owner/stats/{max(found)}" in several.stderr
    for folder, digest in found.items():
        (row,) = json.loads(as_user("measure", f"owner/stats/{folder}", "--metrics", "nc2", "--json").stdout)
        assert row["store"] == digest


def test_branches_and_pull_requests(hub, as_user, stored):
    assert as_user("push", stored.path, "owner/new", "--revision", "dev", ok=False).returncode == 2
    assert ("models", "owner/new") not in hub.repos  # nothing was made for it
    hub.add("owner/stats", {"README.md": b"mine"})
    refused = as_user("push", stored.path, "owner/stats", "--revision", "dev", ok=False)
    assert "has no revision 'dev'" in refused.stderr
    there = hub.repos["models", "owner/stats"]
    there.branches["dev"] = there.branches["main"]
    for more, revision in ((("--revision", "dev"), "dev"), (("--create-pr",), "refs/pr/1")):
        said = as_user("push", stored.path, "owner/stats", "--into-model-repo", *more).stdout
        name = said.split("collapse measure ")[1].strip()
        assert name.endswith(f"@{revision}")
        (row,) = json.loads(as_user("measure", name, "--metrics", "nc2", "--json").stdout)
        assert row["store"] == stored.digest
        assert set(tree(hub)) == {"README.md"}
        assert tree(hub, branch=revision)["README.md"] == b"mine"
    two = as_user("measure", name, "--revision", "main", ok=False)
    assert f"{name} and --revision main name two revisions" in two.stderr


def test_only_what_the_metrics_need_is_downloaded(hub, as_user, stored):
    as_user("push", stored.path, "owner/stats")
    hub.requests.clear()
    as_user("measure", "owner/stats", "--metrics", "nc2", home="new")
    got = {path.rsplit("/", 1)[-1] for method, path in hub.requests if method == "GET" and "/resolve/" in path}
    assert "train.safetensors" in got
    assert "covariance.safetensors" not in got


def test_a_private_repository_needs_its_token(hub, as_user, stored, tmp_path):
    as_user("push", stored.path, "owner/secret", "--private")
    assert hub.repos["models", "owner/secret"].private
    for token in (None, "hf_other"):
        refused = as_user("pull", "owner/secret", "--store", tmp_path / "not", token=token, home=f"h{token}", ok=False)
        assert refused.returncode == 2
        assert "hf auth login" in refused.stderr
    assert not (tmp_path / "not" / "collapse.json").exists()
    refused = as_user("push", stored.path, "owner/stats", token="hf_other", ok=False)
    assert refused.returncode == 1
    assert "hf auth login" in refused.stderr


def test_a_push_fails_where_another_came_in_between(hub, as_user, stored, other):
    as_user("push", stored.path, "owner/stats")
    moved = []

    def fault(ask, method, path):
        if "/preupload/" in path and not moved:
            moved.append(hub.add("owner/stats", {"collapse/b/x.txt": b"another push"}))
        return False

    hub.fault = fault
    refused = as_user("push", other.path, "owner/stats", ok=False)
    assert refused.returncode == 1
    assert "Run the same command again" in refused.stderr
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
    refused = as_user("push", stored.path, "owner/stats", ok=False)
    assert refused.returncode == 1
    assert "507" in refused.stderr
    assert "5ec2e7" not in refused.stderr  # the signature of an address
    assert tree(hub) == {}
    hub.fault = None
    as_user("push", stored.path, "owner/stats")
    assert [*stores(hub).values()] == [stored.digest]
    assert len(set(hub.uploaded)) == len(hub.uploaded)


def test_an_altered_file_never_opens(hub, as_user, stored, tmp_path):
    as_user("push", stored.path, "owner/stats")
    there = hub.repos["models", "owner/stats"]
    sha = next(sha for path, sha in there.commits[there.resolve("main")].items() if "train" in path)
    content = hub.blobs[sha]
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:-9]):
        hub.blobs[sha] = damaged
        refused = as_user("pull", "owner/stats", "--store", tmp_path / "s", home=f"home{len(damaged)}", ok=False)
        assert refused.returncode == 1
        assert not (tmp_path / "s" / "collapse.json").exists()
    hub.blobs[sha] = content
    as_user("pull", "owner/stats", "--store", tmp_path / "s", home=f"home{len(content)}")  # it is downloaded once more


def test_what_the_hub_refuses_is_said_in_one_line(hub, as_user, tiny):
    hub.add("owner/some", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    words = ("measure", "owner/some", *tiny.words()[1:], "--max-chunks", 8)
    hub.fault = lambda ask, method, path: path.endswith("/config.json") and not ask.send(b"no", 403, {})
    refused = as_user(*words, home="forbidden", ok=False)
    assert refused.returncode == 1
    assert "owner/some: config.json cannot be downloaded: 403" in refused.stderr
    assert "hf auth login" in refused.stderr
    hub.fault = lambda ask, method, path: path.endswith("/config.json") and not ask.fail(403, "GatedRepo", "no access")
    gated = as_user(*words, home="gated", ok=False).stderr
    assert "it is gated: accept the conditions on its page, then: hf auth login" in gated


def test_what_cannot_be_pushed(as_user, stored, tiny, tmp_path):
    part = collapse.collect(tiny.model, store=tmp_path / "part", part=(1, 4), max_chunks=40, **tiny.options())
    refused = as_user("push", part.path, "owner/stats", ok=False)
    assert "merge the parts: collapse merge" in refused.stderr
    damaged = tmp_path / "damaged"
    shutil.copytree(stored.path, damaged)
    file = next(damaged.rglob("train.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert as_user("push", damaged, "owner/stats", ok=False).returncode == 1
    assert as_user("push", stored.path, "not a name", ok=False).returncode == 2
    with pytest.raises(CollapseError):
        collapse.load("no-such-folder")

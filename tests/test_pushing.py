"""A push replaces exactly one store of a repository: the one of the same identity."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import collapse


@pytest.fixture(scope="module")
def collected(tiny, tmp_path_factory):
    """Stores of one text and chunk length, in which something differs."""
    folder = tmp_path_factory.mktemp("collected")
    other = folder / "model"
    shutil.copytree(tiny.model, other)
    weights = load_file(other / "model.safetensors")
    changed = {name: tensor + 0.01 * torch.ones_like(tensor) for name, tensor in weights.items()}
    save_file(changed, other / "model.safetensors", metadata={"format": "pt"})

    def collect(name, model=tiny.model, **options):
        return collapse.collect(model, store=folder / name, max_chunks=16, **tiny.options(), **options)

    return {
        "plain": collect("plain"),
        "other model": collect("model-store", other),
        "float64": collect("float64", dtype="float64"),
        "without": collect("without", without=["covariance"]),
    }


def tree(hub, repo):
    there = hub.repos["models", repo]
    return there.commits[there.branches["main"]]


def stores(hub, repo):
    """Folder → digest of each store in a repository, whose files are those that its manifest names."""
    files = tree(hub, repo)
    found = {}
    for path, sha in files.items():
        if path.endswith("/collapse.json"):
            folder = path.removesuffix("/collapse.json")
            manifest = json.loads(hub.blobs[sha])
            inside = {name.removeprefix(f"{folder}/") for name in files if name.startswith(f"{folder}/")}
            assert inside - {"results.json"} == {*manifest["files"], "collapse.json"}
            found[folder] = manifest["digest"]
    return found


def test_stores_of_other_identities_live_side_by_side(hub, as_user, collected):
    hub.add("owner/stats", {"NOTES.md": b"mine", "collapse/notes.txt": b"mine"})
    kept = ["plain", "other model", "float64"]
    for name in (*kept, *kept):  # the second time nothing moves
        done = as_user("push", collected[name].path, "owner/stats")
        found = stores(hub, "owner/stats")
        (folder,) = (each for each, digest in found.items() if digest == collected[name].digest)
        assert f"measure owner/stats/{folder}" in done.stdout or f"already, in {folder}" in done.stdout
    assert sorted(found.values()) == sorted(collected[name].digest for name in kept)
    assert found["collapse/text.jsonl-T32-16"] == collected["plain"].digest
    assert {"NOTES.md", "collapse/notes.txt"} <= set(tree(hub, "owner/stats"))
    for folder, digest in found.items():
        row = json.loads(as_user("measure", f"owner/stats/{folder}", "--metrics", "nc3", "--json").stdout)[0]
        assert row["store"] == digest


def test_a_store_of_the_same_identity_is_replaced_whole(hub, as_user, collected):
    folder = "collapse/text.jsonl-T32-16"
    as_user("push", collected["float64"].path, "owner/stats")
    as_user("push", collected["plain"].path, "owner/stats")
    (plain,) = (each for each in stores(hub, "owner/stats") if each != folder)
    assert f"{plain}/top/covariance.safetensors" in tree(hub, "owner/stats")
    hub.add("owner/stats", {f"{plain}/results.json": b"{}"})
    as_user("push", collected["without"].path, "owner/stats")
    there = tree(hub, "owner/stats")
    found = stores(hub, "owner/stats")
    assert found == {folder: collected["float64"].digest, plain: collected["without"].digest}
    assert f"{plain}/top/covariance.safetensors" not in there
    assert f"{plain}/results.json" not in there


def test_a_branch_is_named_where_a_store_was_pushed_to_one(hub, as_user, collected):
    missing = as_user("push", collected["plain"].path, "owner/new", "--revision", "dev", ok=False)
    assert missing.returncode == 2
    assert ("models", "owner/new") not in hub.repos  # nothing was made for it
    hub.add("owner/stats", {"NOTES.md": b"mine"})
    refused = as_user("push", collected["plain"].path, "owner/stats", "--revision", "dev", ok=False)
    assert refused.returncode == 2
    assert "'dev'" in refused.stderr
    there = hub.repos["models", "owner/stats"]
    there.branches["dev"] = there.branches["main"]
    said = as_user("push", collected["plain"].path, "owner/stats", "--revision", "dev").stdout
    name = said.split("collapse measure ")[1].strip()
    assert name == "owner/stats/collapse/text.jsonl-T32-16@dev"
    again = as_user("push", collected["plain"].path, "owner/stats", "--revision", "dev").stdout
    assert "holds this store already, in collapse/text.jsonl-T32-16 at dev" in again
    (row,) = json.loads(as_user("measure", name, "--metrics", "nc3", "--json").stdout)
    assert row["store"] == collected["plain"].digest
    assert set(tree(hub, "owner/stats")) == {"NOTES.md"}
    two = as_user("measure", name, "--revision", "main", ok=False)
    assert two.returncode == 2
    assert f"{name} and --revision main name two revisions" in two.stderr


def test_a_folder_whose_manifest_cannot_be_read_is_left_alone(hub, as_user, collected):
    folder = "collapse/text.jsonl-T32-16"
    hub.add("owner/stats", {f"{folder}/collapse.json": b'{"format": "collapse", "version": 99}'})
    as_user("push", collected["plain"].path, "owner/stats")
    files = tree(hub, "owner/stats")
    assert hub.blobs[files[f"{folder}/collapse.json"]] == b'{"format": "collapse", "version": 99}'
    assert sum(path.endswith("collapse.json") for path in files) == 2


def test_a_push_fails_where_another_came_in_between(hub, as_user, collected):
    as_user("push", collected["plain"].path, "owner/stats")
    moved = []

    def fault(ask, method, path):
        if "/preupload/" in path and not moved:
            moved.append(hub.add("owner/stats", {"collapse/b/x.txt": b"another push"}))
        return False

    hub.fault = fault
    refused = as_user("push", collected["float64"].path, "owner/stats", ok=False)
    assert refused.returncode == 1
    assert "Run the same command again" in refused.stderr
    as_user("push", collected["float64"].path, "owner/stats")
    assert len(stores(hub, "owner/stats")) == 2


@pytest.mark.parametrize(("after", "status"), [(0, 507), (2, 403), (4, 507)], ids=["first", "middle", "last"])
def test_an_interrupted_push_leaves_no_store_that_looks_whole(hub, as_user, collected, after, status):
    store, asked = collected["plain"], []
    assert len(store.manifest["files"]) == 4  # the commit comes after them

    def fault(ask, method, path):
        if method != "PUT" and "/commit/" not in path:
            return False
        asked.append(path)
        return len(asked) > after and not ask.send(b"no", status)

    hub.fault = fault
    refused = as_user("push", store.path, "owner/stats", ok=False)
    assert refused.returncode == 1
    assert str(status) in refused.stderr
    assert "Run the same command again" in refused.stderr
    assert tree(hub, "owner/stats") == {}
    hub.fault = None
    as_user("push", store.path, "owner/stats")
    assert [*stores(hub, "owner/stats").values()] == [store.digest]
    assert len(set(hub.uploaded)) == len(hub.uploaded)  # nothing was sent twice

"""Weights and tokenizers compared file by file, without a network: a folder with a repository, commits with commits."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from collapse.errors import CollapseError
from collapse.hub.fingerprints import tokenizer_fingerprint, weights_fingerprint
from collapse.hub.remote import Remote, reach
from collapse.hub.sameness import Comparison
from collapse.stores.files import canonical, sha256_of

FILES = {
    "config.json": "{}",
    "model.safetensors": "weights",
    "tokenizer.json": "tokens",
    "merges.txt": "a b",
    "README.md": "a card",
}
SHARDS = {"a.safetensors": "a", "b.safetensors": "b"}
ARGUMENTS = ("subfolder", "variant", "use_safetensors", "transformers_weights")


@pytest.fixture
def there(tmp_path, own_home, monkeypatch) -> Callable[..., Remote]:
    """Commits of repositories as the client's cache and the remembered listings hold them."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def there(number: int, files: dict[str, str], repo: str = "owner/model") -> Remote:
        commit = f"{number:040x}"
        snapshot = tmp_path / "hub" / f"models--{repo.replace('/', '--')}" / "snapshots" / commit
        snapshot.mkdir(parents=True, exist_ok=True)
        listed = {}
        for name, content in files.items():
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).write_text(content)
            data = content.encode()
            small = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            lfs = hashlib.sha256(data).hexdigest()
            listed[name] = [len(data), lfs if name.endswith((".safetensors", ".bin", ".gguf")) else small]
        listing = own_home / "listings" / f"{sha256_of([repo, commit])}.json"
        listing.parent.mkdir(parents=True, exist_ok=True)
        listing.write_bytes(canonical(listed))
        return reach(f"{repo}@{commit}")

    return there


def named(remote: Remote, **more: object) -> dict[str, object]:
    """The fields of an identity of a model at a commit."""
    return {"weights": f"commit:{remote.commit}", "tokenizer": f"commit:{remote.repo}:{remote.commit}", **more}


def local(folder: Path, files: dict[str, str], arguments: dict[str, object] | None = None) -> dict[str, str]:
    """The same fields of a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return {
        "weights": weights_fingerprint(folder, arguments),
        "tokenizer": tokenizer_fingerprint(folder, arguments),
    }


def differing(remote: Remote, held: dict[str, str], **more: object) -> list[str]:
    asked = named(remote, **more)
    found = Comparison(remote, asked).differences(held)
    for each in found:
        name = each.split(":")[0]
        assert each == f"{name}: {held[name]} and {asked[name]}"
    return [each.split(":")[0] for each in found]


SAME = {
    "as it is": FILES,
    "more files": FILES
    | {"training.pt": "state", "notes.txt": "", "deep/er.json": "", "collapse/x/y.safetensors": "s"},
    "pickled": {name: text for name, text in FILES.items() if "safe" not in name} | {"pytorch_model.bin": "w"},
    "pickled shards": {"config.json": "{}", "a.bin": "a", "b.pt": "b", "c.pth": "c"},
    "shards": SHARDS
    | {
        "config.json": "{}",
        "model.safetensors.index.json": json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}),
    },
}


@pytest.mark.parametrize("name", SAME)
def test_a_folder_and_a_commit_of_the_same_files_are_the_same(there, tmp_path, name):
    remote, held = there(1, SAME[name]), local(tmp_path / "folder", SAME[name])
    assert differing(remote, held) == []
    assert Comparison(remote, held).differences(named(remote)) == []  # the other way about


CHANGED = {
    "weights": ({"model.safetensors": "others"}, ["weights"]),
    "configuration": ({"config.json": '{"a": 1}'}, ["weights"]),
    "tokenizer": ({"tokenizer.json": "other"}, ["tokenizer"]),
    "more merges": ({"merges.txt": "a b\nc"}, ["tokenizer"]),
    "another tokenizer's file": ({"vocab.json": "{}"}, ["tokenizer"]),
    "more weights": ({"more.safetensors": "w"}, ["weights"]),
    "all": ({"model.safetensors": "o", "tokenizer.json": "o"}, ["weights", "tokenizer"]),
}


@pytest.mark.parametrize("name", CHANGED)
def test_any_other_file_of_weights_or_tokenizer_is_seen(there, tmp_path, name):
    change, expected = CHANGED[name]
    remote = there(1, FILES | change)
    assert differing(remote, local(tmp_path / "folder", FILES)) == expected
    both = {*expected, "tokenizer"} if "config.json" in change else {*expected}  # it may say the kind of tokenizer
    assert {*differing(remote, named(there(2, FILES)))} == both


@pytest.mark.parametrize(
    "files",
    [
        FILES | {"code.py": "x"},
        FILES | {"deep/code.py": "x"},
        FILES | {"adapter_config.json": "{}"},
        SHARDS | {"config.json": "{}"},
        SHARDS | {"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"x": "a.safetensors"}}'},
        SHARDS | {"config.json": "{}", "model.safetensors.index.json": "[]"},
        SHARDS | {"config.json": "{}", "model.safetensors.index.json": "{"},
        {"config.json": "{}", "other.safetensors": "w"},
    ],
    ids=["code", "deep code", "adapter", "no index", "part of an index", "no object", "no JSON", "no known name"],
)
def test_where_transformers_might_read_other_files_a_folder_is_not_the_same(there, tmp_path, files):
    # a folder with an adapter is refused
    readable = {name: text for name, text in files.items() if text != "{" and name != "adapter_config.json"}
    assert differing(there(1, files), local(tmp_path / "folder", readable)) == ["weights"]


@pytest.mark.parametrize("lacking", ["config.json", "model.safetensors"])
def test_a_repository_without_a_model_is_not_the_same_as_any(there, tmp_path, lacking):
    files = {name: text for name, text in FILES.items() if name != lacking}
    weights = "sha256:" + sha256_of({name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()})
    held = local(tmp_path / "folder", FILES) | {"weights": weights}
    assert differing(there(1, files), held) == ["weights"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_choose_among_files_make_a_folder_another(there, tmp_path, name):
    held = local(tmp_path / "folder", FILES)
    expected = ["weights", "tokenizer"] if name == "subfolder" else ["weights"]
    assert differing(there(1, FILES), held, model_args={name: "x"}) == expected
    assert differing(there(1, FILES), held, model_args={"attn_implementation": "eager"}) == []


def test_a_gguf_file_holds_weights_and_tokenizer(there, tmp_path):
    files, given = {"a.gguf": "a", "b.gguf": "b", "tokenizer.json": "t"}, {"gguf_file": "a.gguf"}
    remote, held = there(1, files), local(tmp_path / "a", files, given)
    assert differing(remote, held, model_args=given) == []
    assert differing(remote, held, model_args={"gguf_file": "b.gguf"}) == ["weights", "tokenizer"]
    assert differing(remote, held, model_args={"gguf_file": "c.gguf"}) == ["weights", "tokenizer"]
    assert differing(there(2, files | {"a.gguf": "c"}), held, model_args=given) == ["weights", "tokenizer"]
    alone = {"a.gguf": "a"}
    assert differing(there(4, alone), local(tmp_path / "alone", alone, given), model_args=given) == []
    deep = there(3, {f"deep/{name}": text for name, text in files.items()})
    assert differing(deep, held, model_args={"gguf_file": "deep/a.gguf"}) == ["weights", "tokenizer"]


def test_commits_are_compared_by_their_files_wherever_these_lie(there):
    files = FILES | {"deep/model.safetensors": "w", "deep/code.py": "x"}
    first = there(1, files)
    store = {"collapse/x/collapse.json": "{}", "collapse/x/top/train.safetensors": "t", "collapse/x/merges.txt": ""}
    for number, more in ((2, {"README.md": "another"}), (3, store), (4, {"notes.txt": "x"})):
        assert differing(there(number, files | more), named(first)) == []
    for number, more, expected in (
        (5, {"deep/model.safetensors": "v"}, ["weights"]),
        (6, {"deep/code.py": "y"}, ["weights", "tokenizer"]),
        (7, {"deep/merges.txt": "y"}, ["tokenizer"]),
        (8, {"model.safetensors.index.json": "{}"}, ["weights"]),
        (9, {"deep/config.json": "{}"}, ["weights", "tokenizer"]),
        (10, {"x/adapter_config.json": "{}"}, ["weights"]),
    ):
        assert differing(there(number, files | more), named(first)) == expected


def test_repositories_without_weights_are_not_the_same(there):
    tokenizer = {"tokenizer.json": "t"}
    assert differing(there(1, tokenizer), named(there(2, tokenizer))) == ["weights"]
    assert differing(there(3, {"README.md": ""}), named(there(4, {"LICENSE": ""}))) == ["weights"]


def test_another_repositorys_tokenizer_is_compared_by_its_files(there):
    tokens = {"tokenizer.json": "tokens", "merges.txt": "a b", "config.json": "{}"}
    model = there(1, FILES)
    for number, change, expected in (
        (2, {}, []),
        (3, {"merges.txt": "b a"}, ["tokenizer"]),
        (4, {"config.json": '{"model_type": "roberta"}'}, ["tokenizer"]),
    ):
        other = there(number, tokens | change, "other/tokens")
        assert differing(model, named(model, tokenizer=f"commit:other/tokens:{other.commit}")) == expected
    unsaid = there(5, {name: tokens[name] for name in tokens if name != "config.json"}, "other/tokens")
    assert differing(model, named(model, tokenizer=f"commit:other/tokens:{unsaid.commit}")) == ["tokenizer"]


def test_a_local_tokenizer_is_compared_with_another_repositorys(there, tmp_path):
    tokens = {"tokenizer.json": "tokens", "merges.txt": "a b", "config.json": "{}"}
    model, other = there(1, FILES), there(2, tokens, "other/tokens")
    for name, files, expected in (
        ("same", tokens, []),
        ("kind", tokens | {"config.json": '{"model_type": "roberta"}'}, ["tokenizer"]),
        ("unsaid", {name: tokens[name] for name in tokens if name != "config.json"}, ["tokenizer"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_text(content)
        held = named(model, tokenizer=tokenizer_fingerprint(folder, None, alone=True))
        asked = named(model, tokenizer=f"commit:other/tokens:{other.commit}")
        found = Comparison(model, asked).differences(held)
        assert [each.partition(":")[0] for each in found] == expected


def test_a_commit_is_the_same_under_the_repositorys_next_name(there):
    model = there(1, FILES, "owner/next")
    there(1, FILES, "owner/before")
    assert differing(model, named(model, tokenizer=f"commit:owner/before:{model.commit}")) == []


def test_what_is_equal_needs_no_files_and_folders_are_never_looked_for(there):
    remote = there(1, {})  # nothing is known of it
    assert differing(remote, named(remote)) == []
    held = {"weights": "sha256:a", "tokenizer": "sha256:b"}
    assert Comparison(remote, held).differences(held) == []
    assert len(Comparison(remote, held).differences({"weights": "sha256:c"})) == 2


def test_what_is_not_known_without_the_hub_is_an_error(there):
    known, unknown = there(1, FILES), there(2, {})
    with pytest.raises(CollapseError, match="without the Hub it is not known which files owner/model@0000"):
        differing(known, named(unknown))
    with pytest.raises(CollapseError, match="other/none"):
        differing(known, named(known) | {"tokenizer": f"commit:other/none:{'a' * 40}"})

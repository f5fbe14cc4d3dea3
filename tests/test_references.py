"""Which files a model's fingerprint covers, and what a name refers to, without loading anything."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from client_cache import A, B, offline_cache

from collapse.errors import CollapseError, UsageError
from collapse.hub.fingerprints import (
    TOKENIZER,
    Folder,
    code_fingerprint,
    tokenizer_files,
    tokenizer_fingerprint,
    weight_files,
    weights_fingerprint,
)
from collapse.hub.references import ModelReference, find_model, find_tokenizer
from collapse.hub.remote import Remote
from collapse.stores.files import sha256_of


def made(folder: Path, files: dict[str, str] | str) -> Path:
    """A folder of these files, or of empty JSON objects of these names."""
    files = dict.fromkeys(files.split(), "{}") if isinstance(files, str) else files
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def index(*files: str) -> str:
    return json.dumps({"weight_map": {str(number): file for number, file in enumerate(files)}})


SAFE, PICKLED, NAMED = "model.safetensors.index.json", "pytorch_model.bin.index.json", "transformers_weights"
ONE = "config.json model.safetensors "
SHARDS = {"config.json": "{}", "a.safetensors": "", "b.safetensors": ""}
CASES = [
    (ONE + "optimizer.pt pytorch_model.bin more.safetensors m.gguf", {}, "model.safetensors"),
    (ONE + "pytorch_model.bin", {"use_safetensors": False}, "pytorch_model.bin"),
    (ONE + "pytorch_model.fp16.bin", {"variant": "fp16"}, "pytorch_model.fp16.bin"),
    (ONE + "a.gguf b.gguf", {"gguf_file": "b.gguf"}, "b.gguf"),
    ("s/config.json s/model.safetensors " + ONE, {"subfolder": "s"}, "s/model.safetensors"),
    ("config.json extra.safetensors pytorch_model.bin", {}, "pytorch_model.bin"),
    (SHARDS | {SAFE: index("a.safetensors", "b.safetensors")}, {}, "a.safetensors b.safetensors"),
    (SHARDS | {SAFE: index("d/c.safetensors"), "d/c.safetensors": ""}, {}, "d/c.safetensors"),
    (SHARDS | {PICKLED: index("a.safetensors")}, {}, "a.safetensors"),
    (
        SHARDS | {SAFE: index("a.safetensors"), "model.safetensors.index.fp16.json": index("b.safetensors")},
        {"variant": "fp16"},
        "b.safetensors",
    ),
    (
        SHARDS | {"config.json": json.dumps({NAMED: "o/x.json"}), "o/x.json": index("o/c.bin"), "o/c.bin": ""},
        {},
        "o/c.bin",
    ),
]


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize(("files", "arguments", "expected"), CASES)
def test_the_files_of_weights_are_those_that_are_read(tmp_path, files, arguments, expected):
    folder = made(tmp_path, files)
    assert weight_files(Folder(folder), arguments) == expected.split()
    inner = folder / arguments.get("subfolder", "")
    names = expected.split() if "gguf_file" in arguments else [*expected.split(), str(inner / "config.json")]
    hashes = {
        "gguf" if name.endswith(".gguf") else os.path.relpath(folder / name, inner): sha256(folder / name)
        for name in names
    }
    before = weights_fingerprint(Folder(folder), arguments)
    assert before == "sha256:" + sha256_of(hashes)
    (folder / expected.split()[0]).write_text("trained on")
    assert weights_fingerprint(Folder(folder), arguments) != before


@pytest.mark.parametrize(
    ("files", "arguments", "error", "said"),
    [
        ("config.json", {}, CollapseError, r"nor a model \(no weights\)"),
        ("model.safetensors", {}, CollapseError, r"nor a model \(no config\.json\)"),
        ("config.json b.gguf a.gguf c.gguf", {}, UsageError, "only GGUF files: choose one with .*gguf_file=a.gguf$"),
        ("model.gguf", {"gguf_file": "modle.gguf"}, UsageError, "has no file modle.gguf; did you mean model.gguf"),
        (ONE + "adapter_config.json", {}, CollapseError, "holds both a model and a PEFT adapter"),
        (
            {"config.json": "{}", SAFE: index("a.safetensors")},
            {},
            CollapseError,
            f"is incomplete: it lacks a.safetensors, named in {SAFE}",
        ),
        ({"config.json": "{", "model.safetensors": ""}, {}, CollapseError, r"config\.json cannot be read as JSON"),
    ],
)
def test_folders_without_a_model_are_refused(tmp_path, files, arguments, error, said):
    with pytest.raises(error, match=said):
        weights_fingerprint(Folder(made(tmp_path, files)), arguments)


def test_the_files_of_a_tokenizer(tmp_path):
    every = [pattern.replace("*", "x") for pattern in TOKENIZER]
    folder = Folder(
        made(tmp_path, " ".join(every) + " config.json m.gguf deep/tokenizer.json notes.txt tokenizers.json")
    )
    assert tokenizer_files(folder, {}) == sorted(every)
    assert tokenizer_files(folder, {"gguf_file": "m.gguf"}) == [*sorted(every), "m.gguf"]
    assert tokenizer_files(folder, {"subfolder": "deep"}) == ["deep/tokenizer.json"]
    deep = Folder(made(tmp_path / "other", {"tokenizer.json": "{}"}))
    assert tokenizer_fingerprint(folder, {"subfolder": "deep"}) == tokenizer_fingerprint(deep, {})


def test_code_is_the_python_files_of_a_model(tmp_path):
    codes = [{"x.py": "1"}, {"x.py": "2"}, {"d/x.py": "1"}, {"y.py": "1"}, {"x.py": "1", "y.py": ""}]
    seen = {code_fingerprint(Folder(made(tmp_path / str(number), files))) for number, files in enumerate(codes)}
    assert len(seen) == len(codes)
    others = dict.fromkeys(["README.md", ".hidden", "__pycache__/x.pyc", "model.safetensors", "s/collapse.json"], "")
    assert code_fingerprint(Folder(made(tmp_path / "more", codes[0] | others))) in seen


def reference(folder: Path, **more: object) -> ModelReference:
    return ModelReference("m", Folder(folder), **more)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """The client's cache of owner/m and other/code, of which main is commit A, v1 is commit B; no network."""
    put = offline_cache(tmp_path, monkeypatch)
    model = {"config.json": '{"of": "a"}', "model.safetensors": "w", "tokenizer.json": "{}"}
    put("owner/m", model | {"s/config.json": '{"of": "s"}', "s/model.safetensors": "s"})
    put("owner/m", model, ref="v1", commit=B)
    put("other/code", {"c.py": "{}"})
    put("other/code", {"c.py": "{}"}, ref="v1", commit=B)
    return tmp_path


def test_a_name_on_the_hub_is_known_by_its_commit(hub):
    found = find_model("owner/m")
    assert (found.revision, found.files.online, found.is_local) == (A, False, False)
    assert find_model(name="owner/m", revision="v1").revision == find_model("owner/m@v1").revision == B
    assert find_model("owner/m@v1", revision="v1").revision == B
    with pytest.raises(UsageError, match=r"two revisions are given, v1 \(in owner/m@v1\) and main"):
        find_model("owner/m@v1", revision="main")
    assert found.json("config.json") == {"of": "a"}
    deep = find_model("owner/m", model_args={"subfolder": "s"})
    assert deep.json("config.json") == {"of": "s"}
    same = find_model(str(hub / "hub" / "models--owner--m" / "snapshots" / B))  # as if it were a folder
    for each in (found, find_model("owner/m@v1")):
        assert (each.weights, each.tokenizer) == (same.weights, same.tokenizer) != (deep.weights, deep.tokenizer)
    assert find_tokenizer("owner/m@v1").tokenizer == found.tokenizer
    local = find_tokenizer(str(made(hub / "tokens", "tokenizer.json")))
    assert local.tokenizer == tokenizer_fingerprint(Folder(hub / "tokens"), {})
    with pytest.raises(UsageError, match="is a local folder, which has no revisions: remove --revision"):
        find_model(str(hub / "tokens"), revision="v2")


def test_what_is_neither_a_folder_nor_on_the_hub_is_told_with_near_names(hub, monkeypatch):
    made(hub / "models" / "small-model", "config.json")
    monkeypatch.chdir(hub / "models")
    for name in ("smal-model", "./smal-model"):
        with pytest.raises(CollapseError, match=r"smal-model\b.*did you mean .*small-model\?"):
            find_model(name)
    with pytest.raises(UsageError, match=r"is called a/b/c$"):
        find_model("a/b/c")
    for suffix in (".safetensors", ".gguf", ".bin", ".json", ".csv"):
        with pytest.raises(UsageError, match=r"is called owner/m"):
            find_model(f"owner/m{suffix}")
    with pytest.raises(CollapseError, match=r"is called other/m; .*other/m is not in the cache"):
        find_model("other/m")


def test_code_that_may_run_is_named_by_where_it_lies(hub):
    named = {"auto_map": {"AutoConfig": "other/code--c.C", "More": ["x.M", None, {"deep": "owner/m--d.D"}]}}
    folder = made(hub / "coded", {"config.json": json.dumps(named), "x.py": "1"})
    plain = reference(made(hub / "plain", {"config.json": "{}", "x.py": "1"}))
    own = code_fingerprint(Folder(folder))
    repos = {"other/code": f"commit:{A}", "owner/m": f"commit:{A}"}
    assert plain.code == {}
    assert reference(folder).code == {**repos, "": own}
    assert reference(folder, model_args={"code_revision": "v1"}).code["other/code"] == f"commit:{B}"
    made(hub / "hub" / "models--owner--m" / "snapshots" / B, {"config.json": '{"auto_map": {"A": "x.M"}}'})
    code = code_fingerprint(Remote("owner/m", B, online=False))
    assert find_model("owner/m@v1").code == {"": code}

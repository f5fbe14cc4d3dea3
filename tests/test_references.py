"""Which files a model's fingerprint is of, and what a name stands for, without loading anything."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest

from collapse.errors import CollapseError, UsageError
from collapse.hub.fingerprints import (
    TOKENIZER,
    code_files,
    code_fingerprint,
    tokenizer_files,
    tokenizer_fingerprint,
    weight_files,
    weights_fingerprint,
)
from collapse.inputs.checkpoints import checkpoint_files
from collapse.inputs.references import (
    ModelReference,
    card_datasets,
    code_of,
    config_of,
    find_model,
    find_tokenizer,
    folder_name,
    watch_tokenizer,
    watch_weights,
)
from collapse.stores.files import sha256_of

A, B = "a" * 40, "b" * 40


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
FP16 = "pytorch_model.fp16.bin"
SHARDS = {"config.json": "{}", "a.safetensors": "", "b.safetensors": ""}
CASES = [
    ("config.json m.safetensors", {}, "config.json m.safetensors"),
    ("config.json m.safetensors optimizer.pt x.bin y.pth m.gguf", {}, "config.json m.safetensors"),
    ("config.json m.safetensors x.bin y.pt z.pth", {"use_safetensors": False}, "config.json x.bin y.pt z.pth"),
    ("config.json m.safetensors x.bin", {"use_safetensors": True}, "config.json m.safetensors"),
    ("config.json x.bin y.pt z.pth", {}, "config.json x.bin y.pt z.pth"),
    ("config.json m.safetensors a.gguf b.gguf", {"gguf_file": "b.gguf"}, "b.gguf"),
    ("s/config.json s/m.safetensors config.json x.bin", {"subfolder": "s"}, "s/config.json s/m.safetensors"),
    (SHARDS | {SAFE: index("a.safetensors", "b.safetensors")}, {}, "a.safetensors b.safetensors config.json"),
    (SHARDS | {SAFE: index("a.safetensors")}, {}, f"a.safetensors b.safetensors config.json {SAFE}"),
    (
        SHARDS | {SAFE: index("d/c.safetensors"), "d/c.safetensors": ""},
        {},
        f"a.safetensors b.safetensors config.json d/c.safetensors {SAFE}",
    ),
    (SHARDS | {SAFE: '{"weight_map": 1}'}, {}, f"a.safetensors b.safetensors config.json {SAFE}"),
    (SHARDS | {SAFE: "[]"}, {}, f"a.safetensors b.safetensors config.json {SAFE}"),
    (SHARDS | {PICKLED: index("a.safetensors")}, {}, f"a.safetensors b.safetensors config.json {PICKLED}"),
    (
        {"config.json": "{}", "x.bin": "", "y.bin": "", PICKLED: index("x.bin"), SAFE: index("x.bin")},
        {},
        f"config.json {SAFE} x.bin y.bin",
    ),
    ("config.json pytorch_model.bin", {}, "config.json pytorch_model.bin"),
    ("config.json x.safetensors pytorch_model.bin", {}, "config.json pytorch_model.bin x.safetensors"),
    ("config.json model.safetensors pytorch_model.bin", {}, "config.json model.safetensors"),
    (
        "config.json model.safetensors pytorch_model.fp16.bin",
        {"variant": "fp16"},
        "config.json model.safetensors pytorch_model.fp16.bin",
    ),
    (
        {"config.json": "{}", "x.safetensors": "", "a.bin": "", "b.bin": "", PICKLED: index("a.bin")},
        {},
        f"a.bin config.json {PICKLED} x.safetensors",
    ),
    (
        SHARDS | {SAFE: index("a.safetensors"), "model.safetensors.index.fp16.json": index("b.safetensors")},
        {"variant": "fp16"},
        "a.safetensors b.safetensors config.json model.safetensors.index.fp16.json",
    ),
    (
        SHARDS | {"config.json": json.dumps({NAMED: "o/x.json"}), "o/x.json": index("o/c.bin"), "o/c.bin": ""},
        {},
        "a.safetensors b.safetensors config.json o/c.bin o/x.json",
    ),
    (
        SHARDS | {"config.json": json.dumps({NAMED: "z.bin"}), "z.bin": ""},
        {},
        "a.safetensors b.safetensors config.json z.bin",
    ),
    (SHARDS | {"config.json": json.dumps({NAMED: "none"})}, {}, "a.safetensors b.safetensors config.json"),
]


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize(("files", "arguments", "expected"), CASES)
def test_the_files_of_weights_are_those_that_decide_what_is_read(tmp_path, files, arguments, expected):
    folder = made(tmp_path, files)
    found = weight_files(folder, arguments)
    assert [file.relative_to(folder).as_posix() for file in found] == sorted(expected.split())
    inner = folder / arguments.get("subfolder", "")
    hashes = {
        "gguf" if name.endswith(".gguf") else os.path.relpath(folder / name, inner): sha256(folder / name)
        for name in expected.split()
    }
    assert weights_fingerprint(folder, arguments) == "sha256:" + sha256_of(hashes)
    if not arguments:
        assert weight_files(folder, None) == found


ONLY = {"config.json": "{}", "pytorch_model.bin": "", "extra.safetensors": ""}


@pytest.mark.parametrize(
    ("files", "arguments", "expected"),
    [
        (ONLY, {}, ["pytorch_model.bin"]),
        ({"config.json": "{}", "model.safetensors": "", "pytorch_model.fp16.bin": ""}, {"variant": "fp16"}, [FP16]),
        (SHARDS | {SAFE: index("a.safetensors"), "pytorch_model.bin": ""}, {}, ["a.safetensors"]),
        (SHARDS | {"pytorch_model.bin": "", "z.gguf": ""}, {"gguf_file": "z.gguf"}, ["z.gguf"]),
    ],
)
def test_what_is_read_is_hashed(tmp_path, files, arguments, expected):
    folder = made(tmp_path, files)
    assert checkpoint_files(reference(folder), arguments) == expected
    before = weights_fingerprint(folder, arguments)
    (folder / expected[0]).write_text("trained on")
    assert weights_fingerprint(folder, arguments) != before


@pytest.mark.parametrize(
    ("files", "arguments", "error", "said"),
    [
        ("config.json", {}, CollapseError, r"nor a model \(no weights\)"),
        ("m.safetensors", {}, CollapseError, r"nor a model \(no config\.json\)"),
        ("notes.txt", {}, CollapseError, r"nor a model \(no config\.json\)"),
        ("config.json b.gguf a.gguf c.gguf", {}, UsageError, "GGUF files only: name one with .*gguf_file=a.gguf$"),
        ("model.gguf", {"gguf_file": "modle.gguf"}, UsageError, "holds no modle.gguf; did you mean model.gguf"),
        ("m.safetensors config.json", {"subfolder": "s"}, CollapseError, r"/s holds neither"),
    ],
)
def test_folders_without_a_model_are_refused(tmp_path, files, arguments, error, said):
    with pytest.raises(error, match=said):
        weight_files(made(tmp_path, files), arguments)


def test_a_configuration_that_is_no_json_is_refused(tmp_path):
    folder = made(tmp_path, {"config.json": "{", "m.safetensors": ""})
    for read in (lambda: weight_files(folder, {}), lambda: config_of(reference(folder))):
        with pytest.raises(CollapseError, match=r"config\.json cannot be read as JSON"):
            read()


def test_the_files_of_a_tokenizer(tmp_path):
    every = [pattern.replace("*", "x") for pattern in TOKENIZER]
    folder = made(tmp_path, " ".join(every) + " config.json m.gguf deep/tokenizer.json notes.txt tokenizers.json")
    assert [file.name for file in tokenizer_files(folder, None)] == sorted(every)
    assert [file.name for file in tokenizer_files(folder, {"gguf_file": "m.gguf"})] == [*sorted(every), "m.gguf"]
    assert [file.name for file in tokenizer_files(folder, {"subfolder": "deep"})] == ["tokenizer.json"]
    deep = made(tmp_path / "other", {"tokenizer.json": "{}"})
    assert tokenizer_fingerprint(folder, {"subfolder": "deep"}) == tokenizer_fingerprint(deep, None)
    assert tokenizer_fingerprint(tmp_path / "none", None) == "sha256:" + sha256_of({})


def test_a_tokenizers_configuration_is_hashed_once(tmp_path):
    """With the weights where they lie in the same folder, and else with the tokenizer."""
    folder = made(tmp_path / "m", "config.json m.safetensors tokenizer.json sub/config.json sub/m.safetensors q.gguf")
    own, alone = (tokenizer_fingerprint(folder, None, alone=each) for each in (False, True))
    assert own != alone
    assert [file.name for file in tokenizer_files(folder, None, alone=True)] == ["config.json", "tokenizer.json"]
    for arguments, expected in ((None, own), ({"subfolder": "sub"}, alone), ({"gguf_file": "q.gguf"}, alone)):
        model = find_model(str(folder), model_args=arguments)
        found = find_tokenizer(str(folder), model, arguments)
        assert found.tokenizer == expected
        assert found.weights == (model.weights if expected == own else "")
        watch = watch_tokenizer(found, None)
        watch.check()
        before = (folder / "config.json").read_text()
        (folder / "config.json").write_text('{"model_type": "other"}')
        if expected == alone:
            with pytest.raises(CollapseError, match="changed while they were read"):
                watch.check()
        else:
            watch.check()
        (folder / "config.json").write_text(before)
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (linked / name).symlink_to(folder / name)
    assert find_tokenizer(str(linked), find_model(str(folder))).tokenizer == alone
    (tmp_path / "again").symlink_to(folder)
    assert find_tokenizer(str(tmp_path / "again"), find_model(str(folder))).tokenizer == own
    assert find_tokenizer(str(folder)).tokenizer == alone


def test_a_tokenizers_configuration_that_names_others_is_refused(tmp_path):
    folder = made(tmp_path, {"tokenizer.json": "{}", "config.json": '{"configuration_files": ["config.4.json"]}'})
    with pytest.raises(CollapseError, match="names other files"):
        find_tokenizer(str(folder))
    assert tokenizer_files(folder, None) == [folder / "tokenizer.json"]


def test_code_is_every_python_file_with_its_place_and_what_it_may_read(tmp_path):
    seen = {code_fingerprint(made(tmp_path / name, files)) for name, files in CODE.items()}
    assert len(seen) == len(CODE)
    others = dict.fromkeys(["README.md", ".hidden", ".git/x", "__pycache__/x.pyc"], "")
    others |= {"s/collapse.json": "", "s/top/train": "", "t/.lock": "", "t/x": "", "u/partial/state.json": ""}
    more = made(tmp_path / "more", CODE["a"] | others)
    (more / "back").symlink_to(more)
    assert code_fingerprint(more) in seen


def test_what_is_hashed_as_weights_is_not_hashed_as_code_again(tmp_path):
    files = {"config.json": "{}", "x.py": "", "model.safetensors": "1", "q.gguf": "1"}
    beside = {"pytorch_model.bin": "1", "words.pt": "1", "sub/x.safetensors": "1"}
    folder = made(tmp_path / "m", files | beside)

    def names(model_args=None):
        return {file.relative_to(folder).as_posix() for file in code_files(folder, model_args)}

    every = {*files, *beside}
    assert names() == every - {"model.safetensors"}
    assert names({"use_safetensors": False}) == every - {"pytorch_model.bin", "words.pt"}
    assert names({"gguf_file": "q.gguf"}) == every - {"q.gguf"}
    assert names({"subfolder": "sub"}) == every  # no model there
    before = code_fingerprint(folder)
    (folder / "model.safetensors").write_text("2")
    assert code_fingerprint(folder) == before
    assert code_fingerprint(folder, {"use_safetensors": False}) != before


def test_code_may_read_through_a_link_to_a_folder(tmp_path):
    folder = made(tmp_path / "m", {"x.py": ""})
    made(tmp_path / "elsewhere", {"words": "1"})
    (folder / "w").symlink_to(tmp_path / "elsewhere")
    before = code_fingerprint(folder)
    (tmp_path / "elsewhere" / "words").write_text("2")
    assert code_fingerprint(folder) != before


def test_every_tokenizer_of_transformers_is_hashed(tmp_path):
    """By the source of the installed transformers: importing every tokenizer would take libraries of theirs."""
    import transformers

    sources = (file.read_text() for file in Path(transformers.__file__).parent.rglob("*token*.py"))
    tables = [each for text in sources for each in re.findall(r"(?i)vocab_files_names[^={]*= *{([^}]*)}", text)]
    named = {name for table in tables for name in re.findall(r': *"([^"]+)"', table)}
    assert {"vocab.json", "emoji.json"} <= named
    folder = made(tmp_path, dict.fromkeys(named, ""))
    assert {file.name for file in tokenizer_files(folder, None)} == named


CODE = {
    "a": {"x.py": "1"},
    "a word": {"x.py": "1", "words": "1"},
    "another word": {"x.py": "1", "words": "2"},
    "a word below": {"x.py": "1", "d/words": "1"},
    "another word below": {"x.py": "1", "d/words": "2"},
    "b": {"x.py": "2"},
    "c": {"d/x.py": "1"},
    "d": {"y.py": "1"},
    "e": {"x.py": "1", "d/y.py": ""},
}


def reference(folder: Path, **more: object) -> ModelReference:
    return ModelReference("m", str(folder), None, "", "", **more)


@pytest.mark.parametrize("which", ["weights", "tokenizer"])
def test_files_that_change_while_they_are_read_are_seen(tmp_path, which):
    folder = made(tmp_path / "m", "config.json m.safetensors tokenizer.json notes.txt")
    found, begin = find_model(str(folder)), watch_weights if which == "weights" else watch_tokenizer
    name, more = ("m.safetensors", "n.safetensors") if which == "weights" else ("tokenizer.json", "vocab.txt")
    file = folder / name
    changed = r"m: its files changed while they were read"

    def written() -> None:
        file.write_text("{}")

    def replaced() -> None:
        file.rename(folder / "kept")
        file.write_text("{}")

    for change in (written, replaced, lambda: (folder / more).write_text(""), (folder / more).unlink, file.unlink):
        watch = begin(find_model(str(folder)), None)
        made(folder, {"notes.txt": "of no matter"})
        watch.check()
        change()
        with pytest.raises(CollapseError, match=changed):
            watch.check()
    file.write_text("[]")
    with pytest.raises(CollapseError, match=changed):  # since it was hashed
        begin(found, None)
    hub = ModelReference("owner/m", "owner/m", A, f"commit:{A}", f"commit:owner/m:{A}")
    begin(hub, None).check()


def test_a_folder_is_known_by_its_files(tmp_path):
    folder = made(tmp_path / "small", "config.json m.safetensors tokenizer.json s/t/config.json s/t/x.bin README.md")
    found = find_model(str(folder))
    assert found == ModelReference(
        "small", str(folder), None, weights_fingerprint(folder, None), tokenizer_fingerprint(folder, None)
    )
    assert found.is_local
    assert found.online
    assert found.subfolder == ""
    deep = find_model(str(folder), model_args={"subfolder": "s/t/"})
    assert deep.subfolder == "s/t"
    assert deep.weights == weights_fingerprint(folder / "s" / "t", None) != found.weights
    assert deep.file("config.json") == folder / "s" / "t" / "config.json"
    assert deep.file("README.md") is None
    assert deep.file("README.md", top=True) == folder / "README.md"
    assert found.file(name="config.json") == folder / "config.json"
    assert found.file("none.json") is found.file("s") is None
    assert set(found.files()) == {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(AttributeError):
        found.weights = ""


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """The client's cache of owner/m, of which main is commit A, v1 is commit B; no network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    at = tmp_path / "hub" / "models--owner--m"
    made(at / "refs", {"main": A, "v1": B})
    made(at / "snapshots" / A, {"config.json": '{"of": "a"}', "s/config.json": '{"of": "s"}'})
    made(at / "snapshots" / B, "README.md")
    return tmp_path


def test_a_name_on_the_hub_is_known_by_its_commit(hub):
    found = find_model("owner/m")
    assert found == ModelReference("owner/m", "owner/m", A, f"commit:{A}", f"commit:owner/m:{A}", False)
    assert not found.is_local
    assert find_model(name="owner/m", revision="v1").revision == find_model("owner/m@v1").revision == B
    assert find_model("owner/m@v1", revision="v1").revision == B
    with pytest.raises(UsageError, match="owner/m@v1 and --revision main name two revisions"):
        find_model("owner/m@v1", revision="main")
    assert config_of(found) == {"of": "a"}
    assert config_of(find_model("owner/m", model_args={"subfolder": "s"})) == {"of": "s"}
    assert config_of(find_model("owner/m@v1")) == {}
    assert sorted(found.files()) == ["config.json", "s/config.json"]
    tokenizer = find_tokenizer("owner/m@v1")
    assert tokenizer.tokenizer == f"commit:owner/m:{B}"
    local = find_tokenizer(str(made(hub / "tokens", "tokenizer.json")))
    assert (local.name, local.weights) == ("tokens", "")
    assert local.tokenizer == tokenizer_fingerprint(hub / "tokens", None)


def test_what_is_neither_a_folder_nor_on_the_hub_is_told_with_near_names(hub, monkeypatch):
    made(hub / "models" / "small-model", "config.json")
    monkeypatch.chdir(hub / "models")
    for name in ("smal-model", "./smal-model"):
        with pytest.raises(CollapseError, match=r"smal-model\b.*did you mean .*small-model\?") as raised:
            find_model(name)
        assert "smal-model@main" not in str(raised.value)
    with pytest.raises(UsageError, match=r"is called a/b/c$"):
        find_model("a/b/c")
    for suffix in (".safetensors", ".gguf", ".bin", ".json", ".csv"):
        with pytest.raises(UsageError, match=r"is called owner/m"):
            find_model(f"owner/m{suffix}")
    with pytest.raises(CollapseError, match=r"is called other/m; .*it is not cached"):
        find_model("other/m")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/runs/2x64", "2x64"),
        ("/runs/2x64/checkpoints/checkpoint-25", "2x64/checkpoint-25"),
        ("/runs/2x64/best", "2x64/best"),
        ("/home/model", "model"),
        ("/home/ann/model", "model"),
        ("/ann/final", "final"),
        ("/final", "final"),
        (f"/x/cache/models--a--b/snapshots/{A}", f"models--a--b/{A}"),
    ],
)
def test_a_folders_name_says_the_run(folder, expected):
    assert folder_name(Path(folder)) == expected


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\ndatasets: owner/data\n---\n", ["owner/data"]),
        ("---\ndatasets: [a/b, c, 3, a/b/c, 'd//e', {x: y}]\n---\n", ["a/b", "c"]),
        ("---\ndatasets:\n---\n", []),
        ("---\nlicense: mit\n---\n", []),
        ("no card", []),
        ("---\n: [\n---\n", []),
        ("---\ndatasets: [a/b]\n---\n" + "x" * ((1 << 20) - 24), ["a/b"]),
        ("---\ndatasets: [a/b]\n---\n" + "x" * ((1 << 20) - 23), []),
    ],
)
def test_a_card_names_data_sets(tmp_path, card, expected):
    folder = made(tmp_path, {"README.md": card, "s/README.md": ""})
    assert card_datasets(reference(folder, subfolder="s")) == expected


def test_no_card_names_no_data_set(tmp_path):
    assert card_datasets(reference(tmp_path)) == []


def test_code_that_may_run_is_named_by_where_it_lies(hub):
    at = hub / "hub" / "models--other--code"
    made(at / "refs", {"main": A, "v2": B})
    made(at / "snapshots", f"{A}/c.py {B}/c.py")
    named = {"auto_map": {"AutoConfig": "other/code--c.C", "More": ["x.M", None, {"deep": "owner/m--d.D"}]}}
    folder = made(hub / "coded", {"config.json": json.dumps(named), "x.py": "1"})
    plain = made(hub / "plain", {"config.json": "{}", "x.py": "1"})
    elsewhere = made(
        hub / "elsewhere", {"tokenizer_config.json": '{"auto_map": {"T": "other/code--t.T"}}', "x.py": "1"}
    )
    model, tokenizer = reference(folder), reference(plain)
    repos = {"other/code": f"commit:{A}", "owner/m": f"commit:{A}"}
    assert code_of(tokenizer, tokenizer) == {}
    assert code_of(model, tokenizer) == {**repos, "model": code_fingerprint(folder)}
    assert code_of(tokenizer, model) == {**repos, "tokenizer": code_fingerprint(folder)}
    read = {"tokenizer": code_fingerprint(elsewhere)}  # by the code that lies elsewhere
    assert code_of(tokenizer, reference(elsewhere)) == {"other/code": f"commit:{A}", **read}
    assert code_of(tokenizer, reference(elsewhere), {"code_revision": "v2"}) == {"other/code": f"commit:{B}", **read}
    assert code_of(find_model("owner/m"), find_model("owner/m")) == {}
    made(hub / "hub" / "models--owner--m" / "snapshots" / B, {"config.json": '{"auto_map": {"A": "x.M"}}'})
    assert code_of(find_model("owner/m@v1"), tokenizer) == {}  # the commit says which code it is

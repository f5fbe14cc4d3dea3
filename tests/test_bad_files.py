"""Files that are none, and JSON that harms its parser: refused in a line, at once, wherever a file is read."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

import collapse
from collapse.cli import _add_commands, _run
from collapse.errors import CollapseError, shortened
from collapse.inputs.collection_spec import CollectionSpec, typed
from collapse.inputs.folders import check_folder
from collapse.inputs.option import key_value
from collapse.reading import DEPTH_LIMIT, Nesting, parse_json, read_bounded

SECONDS = 30
DEEP = "[" * 100_000 + "]" * 100_000
LONG = "1" * 4_001


@pytest.fixture
def told(capsys) -> Callable[..., str]:
    """Run a command line in this process, for a while at most; returns what it told on stderr."""
    _add_commands()

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    def told(code: int, *words: object) -> str:
        capsys.readouterr()
        before = signal.signal(signal.SIGALRM, hangs)
        signal.alarm(SECONDS)
        try:
            assert _run([str(word) for word in words]) == code, capsys.readouterr().err
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return said

    return told


@pytest.fixture(scope="module")
def store(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "store"
    collapse.collect(tiny.model, store=folder, max_chunks=24, **tiny.options())
    return folder


def irregular(path: Path, kind: str) -> None:
    """Put a FIFO, or a link to a device that never ends, in a file's place."""
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["fifo", "zero"])
@pytest.mark.parametrize(
    "name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
def test_model_files_that_are_none(told, tiny, tmp_path, kind, name):
    model = shutil.copytree(tiny.model, tmp_path / "model")
    irregular(model / name, kind)
    said = told(1, "collect", model, *tiny.words("--store", tmp_path / "s")[1:])
    assert f"{name}: not a regular file" in said
    if name.startswith("tokenizer"):
        said = told(1, "collect", *tiny.words("--store", tmp_path / "s", "--tokenizer", model))
        assert f"{name}: not a regular file" in said


@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_files_of_a_store_that_are_none(told, store, tmp_path, kind):
    for name in ("results.json", "top/train.safetensors", "collapse.json"):
        made = shutil.copytree(store, tmp_path / name.replace("/", "-"))
        irregular(made / name, kind)
        told(0 if name == "results.json" else 1, "info", made)
        said = told(0 if name == "results.json" else 1, "measure", made, "--metrics", "nc1")
        assert name == "results.json" or name in said


@pytest.mark.parametrize("kind", ["fifo", "zero"])
def test_tables_features_and_plugins_that_are_none(told, tmp_path, kind):
    for name in ("t.csv", "t.json", "t.parquet"):
        irregular(tmp_path / name, kind)
        assert "not a regular file" in told(1, "analyze", "permutation", tmp_path / name)
    irregular(tmp_path / "f.safetensors", kind)
    assert "not a regular file" in told(1, "measure", tmp_path / "f.safetensors")


def test_state_of_a_collection_that_is_none(told, tiny, tmp_path):
    (tmp_path / "s" / "partial").mkdir(parents=True)
    (tmp_path / "s" / "partial" / "state.json").write_text(DEEP)
    assert "state.json is damaged" in told(1, "collect", *tiny.words("--store", tmp_path / "s"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_models_json_that_is_nested_deeply(told, tiny, tmp_path, name):
    model = shutil.copytree(tiny.model, tmp_path / "model")
    content = (model / name).read_text()
    (model / name).write_text(content.rstrip()[:-1] + f', "more": {DEEP}}}')
    said = told(1, "collect", model, *tiny.words("--store", tmp_path / "s")[1:])
    assert f"{name} cannot be read: it is nested more than 100 levels deep" in said


@pytest.mark.parametrize("absurd", [DEEP, LONG], ids=["deep", "long"])
def test_json_of_others_that_is_absurd(told, store, tmp_path, absurd):
    made = Path(shutil.copytree(store, tmp_path / "s"))
    manifest = (made / "collapse.json").read_text()
    (made / "collapse.json").write_text(manifest.replace('"version": 1', f'"version": {absurd}'))
    assert "was altered or is damaged" in told(1, "info", made)
    row = collapse.measure(collapse.load(store), metrics=["nc1"]).to_dict()
    text = json.dumps([row]).replace('"classes": ', f'"classes": {absurd}, "x": ')
    (tmp_path / "t.json").write_text(text)
    said = told(1, "analyze", "permutation", tmp_path / "t.json")
    assert "nested more than 100 levels" in said or "an integer of 4,001 digits" in said


def test_megabytes_of_a_name_are_not_printed(told, tmp_path):
    long = "m" * 2**20
    for code, *words in ((1, "measure", f"x/{long}"), (2, "measure", tmp_path, "--metrics", long), (2, long)):
        assert 0 < len(told(code, *words)) < 5_000
    assert shortened("a" * 100, 100) == "a" * 100
    assert shortened("a" * 400 + "b" * 400, 100) == "a" * 73 + " … " + "b" * 24


def test_depth_is_counted_outside_strings_and_across_blocks():
    for value in ([], {"a": ["\\", '"', '[{"\\"[', "\\\\"]}, "[" * 500, ['\\"' * 300, "[" * 300]):
        data = json.dumps(value).encode()
        nesting = Nesting()
        for i in range(len(data)):
            nesting.add(data[i : i + 1])
        assert parse_json(data) == value
    for deep in (DEPTH_LIMIT, DEPTH_LIMIT + 1):
        for opens, closes in (("[", "]"), ('{"a":', "}"), ('["\\\\",', "]"), ('["\\"",', "]")):
            data = (opens * deep + "0" + closes * deep).encode()
            for step in (1, 3, len(data)):
                nesting = Nesting()
                blocks = [data[i : i + step] for i in range(0, len(data), step)]
                if deep > DEPTH_LIMIT:
                    with pytest.raises(ValueError, match="nested more than 100 levels"):
                        [nesting.add(block) for block in blocks]
                else:
                    [nesting.add(block) for block in blocks]


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "a").write_bytes(b"1" * 10)
    assert read_bounded(tmp_path / "a", 10) == b"1" * 10
    with pytest.raises(ValueError, match=r"too large \(10 bytes\)"):
        read_bounded(tmp_path / "a", 9)
    with pytest.raises(IsADirectoryError):
        read_bounded(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="socket"):
            read_bounded(tmp_path / "socket")


def test_an_argument_that_is_nested_deeply_is_a_text():
    deep = "[" * 5_000 + "]" * 5_000
    assert key_value(f"x={deep}") == ("x", deep)
    assert "x=#" in typed(CollectionSpec(model_args={"x": deep}), shown=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_files_after_one_that_may_not_be_read_are_checked(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "a.json").chmod(0)
    os.mkfifo(tmp_path / "b.json")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.chdir(tmp_path)  # the folders above are root's own
            tmp_path.chmod(0o755)
            os.setuid(65534)
            check_folder(Path("."))
            os.write(write, b"nothing said")
        except CollapseError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as said:
        assert "b.json: not a regular file" in said.read()

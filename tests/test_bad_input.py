"""A user's mistakes: each is answered with what is wrong, where, and what to do; never with a traceback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import collapse
from collapse.testing import random_features


@pytest.fixture
def store(tiny, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bad") / "store"
    collapse.collect(tiny.model, store=folder, max_chunks=24, **tiny.options())
    return folder


def features(folder: Path, **changes: torch.Tensor | None) -> Path:
    tensors = {**random_features(6, 4, 60), **changes}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / "f.safetensors")
    return folder / "f.safetensors"


def test_a_features_file_without_dimensions_is_refused_and_costs_itself_alone(told, tmp_path):
    for name, dim in (("f0", 4), ("d0", 0), ("f1", 3)):
        save_file(random_features(6, max(dim, 1), 60), tmp_path / f"{name}.safetensors")
    d0 = tmp_path / "d0.safetensors"
    tensors = {name: value[:, :0] if value.dim() == 2 else value for name, value in load_file(d0).items()}
    save_file({name: value.contiguous() for name, value in tensors.items()}, d0)
    assert "d0.safetensors: classifier has shape (6, 0): embeddings need at least one dimension" in told(
        1, "measure", d0
    )
    table = tmp_path / "t.json"
    said = told(1, "measure", *(tmp_path / f"{name}.safetensors" for name in ("f0", "d0", "f1")), "--output", table)
    assert "d0.safetensors is not measured: " in said
    assert "1 of 3 models are not measured" in said
    assert [row.model for row in collapse.Results.read(table)] == ["f0", "f1"]


def test_an_unforeseen_error_costs_its_own_model(told, tmp_path, monkeypatch, capsys):
    import collapse.inputs.features

    files = [tmp_path / f"f{number}.safetensors" for number in range(3)]
    for file in files:
        save_file(random_features(6, 4, 60), file)
    read = collapse.inputs.features.load_tensors

    def fails(path):
        if path == files[1]:
            raise RuntimeError("what nobody thought of\nand more")
        return read(path)

    monkeypatch.setattr(collapse.inputs.features, "load_tensors", fails)
    said = told(1, "measure", *files, "--metrics", "nc1.cdnv", "--output", tmp_path / "t.json")
    line = next(each for each in said.splitlines() if str(files[1]) in each)
    assert "RuntimeError: what nobody thought of" in line
    assert "-v" in line
    assert "1 of 3 models are not measured" in said
    assert [row.model for row in collapse.Results.read(tmp_path / "t.json")] == ["f0", "f2"]
    from collapse.cli import _run

    assert _run(["-v", "measure", *map(str, files), "--metrics", "nc1.cdnv"]) == 1
    assert "Traceback" in capsys.readouterr().err


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    "card",
    [BOMB + "datasets: *a11", "datasets: [/etc/passwd]", "datasets: [1, {a: b}]", "datasets: [", "x: " + "y" * 2**21],
    ids=["aliases", "path", "numbers", "broken", "large"],
)
def test_a_models_card_is_anybodys_text(told, tiny, tmp_path, card):
    model = shutil.copytree(tiny.model, tmp_path / "model")
    (model / "README.md").write_text(f"---\n{card}\n---\n")
    assert "model names no data set" in told(2, "measure", model)


def test_unknown_names_are_answered_with_near_ones(told, tiny, tmp_path):
    (tmp_path / "storees").mkdir()
    assert "did you mean nc1.cdnv" in told(2, "measure", features(tmp_path), "--metrics", "nc1.cdvn")
    assert "did you mean gnc2" in told(2, "metrics", "gncc2")
    assert "did you mean measure" in told(2, "measur")
    assert "no model, store or features file is called" in told(2, "measure", tmp_path / "nothing.safetensors")
    assert f"did you mean {tmp_path / 'storees'}?" in told(2, "measure", tmp_path / "stores")
    assert "--dtype must be float32 or bfloat16" in told(
        2, "collect", *tiny.words("--store", tmp_path / "s", "--dtype", "float23")
    )
    assert "no device 'tpu'" in told(2, "collect", *tiny.words("--store", tmp_path / "s", "--device", "tpu"))
    assert "did you mean text" in told(2, "collect", *tiny.words("--store", tmp_path / "s", "--text-column", "txt"))
    assert "no file matches" in told(2, "measure", tiny.model, "--text", tmp_path / "none.jsonl")
    assert "did you mean permutation" in told(2, "analyze", "permutatoin", tmp_path / "r.csv")


def test_a_tokenizer_that_is_not_found_is_told_with_its_option(told, tiny, tmp_path):
    absent = tmp_path / "absent.json"
    assert f"--tokenizer {absent}" in told(2, "measure", *tiny.words("--tokenizer", absent))


def test_no_corpus_is_exit_2_with_an_example(told, tiny):
    said = told(2, "measure", tiny.model)
    assert "model names no data set" in said
    assert "--text roneneldan/TinyStories" in said


def test_a_model_on_the_hub_that_cannot_be_reached(run, tmp_path):
    done = run("measure", "user/model", ok=False, changes={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)})
    assert done.returncode == 1
    assert "HF_HUB_OFFLINE=1 is set" in done.stderr
    assert "hf download user/model" in done.stderr


def test_options_that_make_no_sense(told, tiny, tmp_path):
    for words, message in (
        (("--chunk-length", 1), "--chunk-length must be at least 2, got 1"),
        (("--max-chunks", 0), "--max-chunks must be at least 1, got 0"),
        (("--batch-size", "many"), "--batch-size must be a number of chunks or auto, got 'many'"),
        (("--model-arg", "gguf"), "--model-arg must be key=value"),
        (("--part", "3/2"), "--part must be k/n with 1 ≤ k ≤ n"),
        (("--part", "1/9999"), "at most"),
    ):
        assert message in told(2, "collect", *tiny.words("--store", tmp_path / "s", *words)), words
    said = told(2, "measure", tiny.model, "--output", "results.xls")
    assert all(each in said for each in ("results.xls", ".csv", ".json", ".parquet"))


def test_features_files_that_are_none(told, tmp_path):
    labels = random_features(6, 4, 60)["train_labels"]
    cases = (
        ({"train_labels": labels + 3}, "train_labels run from 3 to 8, but the classifier has rows 0 to 5"),
        ({"train_labels": labels - 1}, "train_labels run from -1"),
        ({"classifier": None}, "lacks classifier"),
        ({"train_labels": labels[:-1]}, "60 rows for 59 labels"),
        ({"validation_labels": None}, "validation_features and validation_labels together"),
        ({"classifier": torch.zeros(6, 5)}, "d = 4, the classifier 5"),
        ({"train_features": torch.zeros(60)}, "not 2 dimensions"),
    )
    for changes, message in cases:
        assert message in told(1, "measure", features(tmp_path, **changes)), message
    h = random_features(6, 4, 60)["train_features"]
    for bad in (float("nan"), float("inf")):
        h[41, 2] = bad
        assert "train_features row 41 is NaN or infinite" in told(1, "measure", features(tmp_path, train_features=h))
    (tmp_path / "text.safetensors").write_text("this is no tensor file")
    assert "cannot be read as safetensors" in told(1, "measure", tmp_path / "text.safetensors")


def test_labels_and_classifiers_of_other_dtypes(told, tmp_path):
    plain = random_features(6, 4, 60)
    expected = collapse.measure(collapse.collect(features(tmp_path))).measurements
    for dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int16):
        labels = {name: plain[name].to(dtype) for name in ("train_labels", "validation_labels")}
        assert collapse.measure(collapse.collect(features(tmp_path, **labels))).measurements == expected, dtype
    above = (plain["train_labels"] + 65_000).to(torch.uint16)
    assert "run from 65000 to 65005" in told(1, "measure", features(tmp_path, train_labels=above))
    huge = torch.tensor([2**64 - 1] * len(plain["train_labels"]), dtype=torch.uint64)
    assert "train_labels run from -1 to" in told(1, "measure", features(tmp_path, train_labels=huge))
    real = plain["train_labels"].float()
    assert "labels must be integers" in told(1, "measure", features(tmp_path, train_labels=real))
    for name in ("classifier", "train_features", "validation_features"):
        for dtype in (torch.int32, torch.float8_e4m3fn, torch.complex64):
            path = features(tmp_path, **{name: plain[name].to(dtype)})
            said = told(1, "collect", path, "--store", tmp_path / "s")
            assert f"{name} is {str(dtype).removeprefix('torch.')}: convert it to one of float64, float32" in said
    assert not (tmp_path / "s").exists()


def test_a_store_that_names_no_folder(told, tmp_path, monkeypatch):
    path = features(tmp_path)
    monkeypatch.chdir(tmp_path)
    said = told(1, "collect", path, "--store", "~nosuchuser/x")
    assert "~nosuchuser/x: no home folder is called ~nosuchuser: write the path of --store in full" in said
    assert [each.name for each in tmp_path.iterdir()] == ["f.safetensors"]


def test_what_is_no_model_is_said_to_be_what_it_is(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told(0, "collect", features(tmp_path), "--store", "stores/a")
    assert "stores is a folder of 1 store: name them, stores/*" in told(2, "measure", "stores")


def test_a_table_without_the_column_that_is_asked_for(told, tmp_path):
    (tmp_path / "r.csv").write_text("a,b\n1,2\n3,4\n5,6\n")
    assert "no column is called 'val_loss'; known: a, b" in told(2, "analyze", "permutation", tmp_path / "r.csv")
    (tmp_path / "r.csv").write_text(f"model,val_loss\na,{'9' * 5000}\nb,2\n")
    said = told(2, "analyze", "permutation", tmp_path / "r.csv")
    assert "column 'val_loss' is not of numbers: it holds" in said
    (tmp_path / "r.csv").write_text("x" * 1_000_000 + "\n1\n")
    said = told(2, "analyze", "permutation", tmp_path / "r.csv")
    assert len(said) < 5000


def test_texts_that_cannot_be_used(told, tiny, tmp_path):
    for name, data, message in (
        ("empty.jsonl", b"", "is empty"),
        ("latin.txt", "caf\xe9 ol\xe9 ".encode("latin1"), "is not UTF-8"),
        ("short.txt", b"one two three", "too short for one chunk of T = 32"),
        ("broken.jsonl", b'{"text": "a"}\n{"text": \n', "line 2 of broken.jsonl is not JSON"),
    ):
        (tmp_path / name).write_bytes(data)
        words = ("--text", tmp_path / name, "--chunk-length", 32, "--store", tmp_path / "s")
        assert message in told(1, "collect", tiny.model, *words), name
    assert not (tmp_path / "s" / "collapse.json").exists()


def copied(tiny, tmp_path, change: Callable[[dict[str, torch.Tensor]], None]) -> Path:
    folder = Path(shutil.copytree(tiny.model, tmp_path / "changed"))
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_nan_weights_stop_with_chunk_and_sample(told, tiny, tmp_path):
    def poison(weights):
        weights["transformer.wpe.weight"][20] = float("nan")

    model = copied(tiny, tmp_path, poison)
    said = told(1, "collect", model, *tiny.words()[1:], "--store", tmp_path / "s")
    assert "embedding of sample 0 of train chunk 0 is NaN or infinite" in said  # attention spreads it


@pytest.mark.parametrize("subfolder", [False, True])
def test_a_model_without_a_tokenizer(told, tiny, tmp_path, subfolder):
    folder = tmp_path / "m" / "sub" if subfolder else tmp_path / "m"
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny.model / name, folder)
    more = ["--model-arg", "subfolder=sub"] if subfolder else []
    said = told(1, "measure", tmp_path / "m", *tiny.words()[1:], *more)
    assert f"{folder} has no tokenizer" in said
    assert "--tokenizer" in said


def test_a_tokenizer_larger_than_the_embedding(told, tiny, tmp_path):
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    folder = Path(shutil.copytree(tiny.model, tmp_path / "small"))
    config = GPTNeoConfig.from_pretrained(folder)
    config.vocab_size = 300
    GPTNeoForCausalLM(config).save_pretrained(folder)
    said = told(1, "collect", folder, *tiny.words()[1:], "--store", tmp_path / "s")
    assert "but small embeds 300 tokens: its tokenizer (of 500)" in said
    assert "--tokenizer" in said


def test_validation_labels_never_seen_are_counted(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", max_chunks=3, **tiny.options())
    s = store.statistics()
    unseen = int(s.validation.counts[~torch.isin(s.validation.classes, s.classes)].sum())
    assert unseen > 0
    row = collapse.measure(store)
    assert any(f"{unseen:,} have a label that has no mean" in note.text for note in row.notes)
    assert any(note.kind == "singletons" for note in row.notes)


def test_too_few_classes_are_left(told, store):
    assert "lower --min-count" in told(1, "measure", store, "--min-count", 100_000)


def test_a_folder_that_is_no_store(told, tiny, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "holds other things than a store (notes.txt)" in told(1, "collect", *tiny.words("--store", tmp_path))
    assert "no collapse.json" in told(1, "verify", tmp_path)
    assert "neither a store" in told(1, "measure", tmp_path)
    assert "is a file" in told(1, "collect", *tiny.words("--store", tmp_path / "notes.txt"))


def test_no_place_to_write(told, tiny, tmp_path):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in told(1, "collect", *tiny.words("--store", tmp_path / "file" / "store"))
    (tmp_path / "a.csv").mkdir()
    (tmp_path / "a.md").mkdir()
    for output in ("file/r.csv", "file/below/r.md", "a.csv", "a.md", f"{'long' * 80}.csv"):  # before it is measured
        message = told(2, "measure", features(tmp_path), "--output", tmp_path / output)
        assert message.startswith("collapse: cannot write"), output
        assert "Choose another --output" in message


def test_no_metric_is_named(told, tmp_path):
    assert "no metric is named" in told(2, "measure", features(tmp_path), "--metrics", ",")
    for nothing in ("", [], ()):
        with pytest.raises(collapse.CollapseError, match="no metric is named"):
            collapse.measure(collapse.collect(features(tmp_path)), metrics=nothing)


def test_a_name_that_is_not_utf8_as_csv(told, tmp_path):
    file = features(tmp_path).rename(tmp_path / os.fsdecode(b"f\xff.safetensors"))
    assert "a name in the table is not UTF-8: use --format json" in told(1, "measure", file, "--format", "csv")


def test_a_file_of_another_kind_is_no_model(told, tiny, tmp_path):
    (tmp_path / "a.npz").write_text("x")
    assert "a.npz is a .npz file, not a model, store or features file" in told(2, "measure", tmp_path / "a.npz")
    message = told(2, "collect", *tiny.words("--store", tmp_path / "s", "--tokenizer", tmp_path / "a.npz"))
    assert "a.npz is a .npz file, not a tokenizer" in message
    assert told(2, "measure", "absent.npz") == "collapse: no model, store or features file is called absent.npz\n"


def test_a_device_of_another_name(told, tmp_path):
    assert "use auto, cpu, cuda, cuda:1 or mps" in told(2, "measure", features(tmp_path), "--device", "gpu")


def await_second_slice(store):
    """Wait until the state of the second slice is written, which replaces that of the first one."""
    deadline, file = time.monotonic() + 100, store / "shards" / "train-1.safetensors"
    first = None
    while first is None or file.stat().st_mtime_ns == first:
        if first is None and file.exists():
            first = file.stat().st_mtime_ns
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_interrupt_says_how_to_go_on(run, tiny, tmp_path):
    """A fresh process, because the forked ones of the tests may be started in the background, too."""
    words = ["collect", *tiny.words("--store", tmp_path / "s", "--batch-size", 1)]
    command = [sys.executable, "-m", "collapse", *words]
    # a shell that started the tests in the background may have had them ignore interrupts
    listening = {"start_new_session": True, "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **listening)
    await_second_slice(tmp_path / "s")
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "interrupted. Finished work is kept: run the same command to resume" in said
    assert "Traceback" not in said
    assert "resuming after slice" in run(*words).stderr


def test_another_request_for_the_same_folder_names_field_and_values(told, tiny, store, tmp_path):
    words = tiny.words("--store", store, "--max-chunks", 24)
    assert "dtype: float32 and bfloat16" in told(1, "collect", *words, "--dtype", "bfloat16")
    assert "max_chunks: 24 and 9" in told(1, "collect", *tiny.words("--store", store, "--max-chunks", 9))
    other = copied(tiny, tmp_path, lambda weights: weights["transformer.wpe.weight"].add_(1))
    assert "weights: sha256:" in told(1, "collect", other, *words[1:])
    tokenizer = Path(shutil.copytree(tiny.model, tmp_path / "tokenizer"))
    config = json.loads((tokenizer / "tokenizer_config.json").read_text())
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 77}))
    assert "tokenizer: sha256:" in told(1, "collect", *words, "--tokenizer", tokenizer)


def test_an_unfinished_collection_of_something_else_is_not_gone_on_with(told, warm_here, tiny, tmp_path):
    store = tmp_path / "s"
    words = ["collect", *tiny.words("--store", store, "--batch-size", 1)]
    pid = warm_here.start(words, tmp_path / "log", environment=dict(os.environ))
    await_second_slice(store)
    assert warm_here.kill(pid)
    said = told(1, "collect", *tiny.words("--store", store, "--batch-size", 1, "--eos-between"))
    assert "unfinished collection that differs in" in said
    assert "eos_between: false and true" in said
    assert "unfinished" not in told(0, "collect", *tiny.words("--store", store, "--batch-size", 1))


def test_a_trained_store_asks_for_its_validation_text(told, tiny, tmp_path):
    collapse.collect(tiny.model, store=tmp_path / "s", batch_size=4, part=(1, 1), **tiny.options())
    said = told(2, "collect", tiny.model, "--store", tmp_path / "s", "--chunk-length", 32)
    assert "name it again with --validation-text" in said


def test_a_model_that_caps_its_logits_is_refused(told, tiny, tmp_path):
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=64, final_logit_softcapping=0.5,
        query_pre_attn_scalar=16, initializer_range=0.5,
    )  # fmt: skip
    folder = Path(shutil.copytree(tiny.model, tmp_path / "gemma"))
    Gemma2ForCausalLM(config).save_pretrained(folder)
    said = told(1, "collect", folder, *tiny.words()[1:], "--store", tmp_path / "s")
    assert "are not ⟨w, h⟩ + b" in said


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_model_that_scales_its_logits_by_little_is_refused(told, tiny, tmp_path, dtype):
    from transformers import GraniteConfig, GraniteForCausalLM

    config = GraniteConfig(
        vocab_size=512, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, logits_scaling=1.02,
    )  # fmt: skip
    folder = Path(shutil.copytree(tiny.model, tmp_path / "granite"))
    GraniteForCausalLM(config).save_pretrained(folder)
    said = told(1, "collect", folder, *tiny.words()[1:], "--store", tmp_path / "s", "--dtype", dtype)
    assert "are not ⟨w, h⟩ + b" in said

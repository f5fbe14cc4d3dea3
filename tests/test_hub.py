"""Stores on the Hub: the unmodified client against a server on the loopback interface."""

import json
import shutil
import socket
import subprocess
import sys
import time

import pytest
from reference import present
from safetensors.torch import load_file, save_file

import collapse
from collapse.errors import CollapseError
from collapse.measurement.last_results import keep_row


@pytest.fixture(scope="module")
def stored(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "store"
    store = collapse.collect(tiny.model, store=folder, max_chunks=60, **tiny.options())
    keep_row(store, collapse.measure(store))
    return folder


def files_of(hub, repo, branch="main"):
    there = hub.repos["models", repo]
    return {path: hub.blobs[sha] for path, sha in there.commits[there.resolve(branch)].items()}


def test_pushed_pulled_and_measured(hub, as_user, stored, tmp_path):
    pushed = as_user("push", stored, "owner/stats")
    assert "6 files sent" in pushed.stdout or "7 files sent" in pushed.stdout
    assert len(hub.repos["models", "owner/stats"].commits) == 2  # the empty one, and this
    files = files_of(hub, "owner/stats")
    (manifest,) = (path for path in files if path.endswith("collapse.json"))
    assert manifest.startswith("collapse/text.jsonl-T32-60/")
    card = files["README.md"].decode()
    samples = f"| training samples | {60 * 31:,} |"
    library = "library_name: linguistic-collapse"
    for said in (library, "- neural-collapse", "collapse measure owner/stats/", "nc3.self", samples):
        assert said in card
    text = b"".join(files.values())
    assert str(tmp_path).encode() not in text
    assert b"/root" not in card.encode()

    as_user("pull", "owner/stats", "--store", tmp_path / "pulled", token=None, home="reader")
    for file in stored.rglob("*.safetensors"):
        assert (tmp_path / "pulled" / file.relative_to(stored)).read_bytes() == file.read_bytes()
    assert collapse.load(tmp_path / "pulled").digest == collapse.load(stored).digest

    commit = hub.repos["models", "owner/stats"].branches["main"]
    origin = f"owner/stats/{manifest.removesuffix('/collapse.json')}@{commit}"
    assert collapse.measure(collapse.load(tmp_path / "pulled"), metrics=["nc3"]).origin == origin
    assert origin in as_user("info", tmp_path / "pulled").stdout.replace("\n", "")
    assert collapse.measure(collapse.load(stored), metrics=["nc3"]).origin is None
    as_user("push", tmp_path / "pulled", "owner/again")
    assert not [path for path in files_of(hub, "owner/again") if path.endswith("origin.json")]
    for kept in ({"store": "0" * 64, "origin": origin}, {"store": collapse.load(stored).digest, "origin": "a\nb"}, []):
        (tmp_path / "pulled" / "origin.json").write_text(json.dumps(kept))
        assert collapse.load(tmp_path / "pulled").pulled_from is None

    expected = collapse.measure(collapse.load(stored)).measurements
    row = json.loads(as_user("measure", "owner/stats", "--json", token=None, home="reader").stdout)[0]
    assert present(row["measurements"]) == pytest.approx(present(expected), rel=1e-9, abs=1e-12)
    assert row["store"] == collapse.load(stored).digest
    loaded = as_user(python="import collapse; print(collapse.load('owner/stats').digest)", home="python").stdout
    assert loaded.strip() == collapse.load(stored).digest
    assert "digest" in as_user("info", "owner/stats").stdout


def test_a_store_at_the_root_of_a_repository_is_measured(hub, as_user, stored):
    """As ``hf upload user/repo stores/a`` leaves it."""
    files = {f.relative_to(stored).as_posix(): f.read_bytes() for f in stored.rglob("*") if f.is_file()}
    hub.add("owner/root", files)
    (row,) = json.loads(as_user("measure", "owner/root", "--metrics", "nc2", "--json").stdout)
    assert row["store"] == collapse.load(stored).digest
    hub.add("owner/root", {"config.json": b"{}"})  # now it holds a model
    assert as_user("measure", "owner/root", "--metrics", "nc2", ok=False).returncode != 0


def test_what_is_there_is_not_sent_again(hub, as_user, stored, tiny, tmp_path):
    as_user("push", stored, "owner/stats")
    hub.uploaded.clear()
    again = as_user("push", stored, "owner/stats")
    assert "nothing was sent" in again.stdout
    assert not hub.uploaded
    other = collapse.collect(tiny.model, store=tmp_path / "other", max_chunks=40, **tiny.options())
    as_user("push", other.path, "owner/stats")
    files = files_of(hub, "owner/stats")
    assert sum(path.endswith("collapse.json") for path in files) == 2  # side by side
    assert b"- `collapse measure owner/stats/collapse/text.jsonl-T32-60`" in files["README.md"]
    several = as_user("measure", "owner/stats", ok=False)
    assert several.returncode == 2
    assert "has several stores: name one of owner/stats/collapse/text.jsonl-T32-40" in several.stderr
    as_user("measure", "owner/stats/collapse/text.jsonl-T32-40", "--metrics", "nc3")


def test_only_what_the_metrics_need_is_downloaded(hub, as_user, stored):
    as_user("push", stored, "owner/stats")
    hub.requests.clear()
    as_user("measure", "owner/stats", "--metrics", "nc2", home="new")
    got = {path.rsplit("/", 1)[-1] for method, path in hub.requests if method == "GET" and "/resolve/" in path}
    assert "train.safetensors" in got
    assert "covariance.safetensors" not in got


def test_a_private_repository_needs_its_token(hub, as_user, stored, tmp_path):
    as_user("push", stored, "owner/secret", "--private")
    assert hub.repos["models", "owner/secret"].private
    as_user("pull", "owner/secret", "--store", tmp_path / "mine")
    for token in (None, "hf_other"):
        refused = as_user("pull", "owner/secret", "--store", tmp_path / "not", token=token, home=f"h{token}", ok=False)
        assert refused.returncode == 2
        assert "hf auth login" in refused.stderr
    assert not (tmp_path / "not" / "collapse.json").exists()
    refused = as_user("push", stored, "owner/stats", token="hf_other", ok=False)
    assert refused.returncode == 1
    assert "hf auth login" in refused.stderr


def test_a_pull_that_is_killed_before_its_last_file_still_says_where_it_is_from(hub, as_user, stored, tmp_path):
    as_user("push", stored, "owner/stats")
    words = ["collapse", "pull", "owner/stats", "--store", str(tmp_path / "pulled")]
    code = (
        "import os, sys\n"
        "def stop(event, given):\n"
        "    if event == 'os.rename' and str(given[1]).endswith('/pulled/collapse.json'):\n"
        "        os._exit(9)\n"
        "sys.addaudithook(stop)\n"
        f"sys.argv = {words!r}\n"
        "from collapse.cli import main\n"
        "main()\n"
    )
    assert as_user(ok=False, python=code).returncode == 9
    assert not (tmp_path / "pulled" / "collapse.json").exists()
    assert (tmp_path / "pulled" / "origin.json").exists()  # once the store is whole, nothing is pulled again
    as_user(*words[1:])
    assert collapse.load(tmp_path / "pulled").pulled_from.startswith("owner/stats/collapse/text.jsonl-T32-60@")


def test_a_pull_request_leaves_main_alone(hub, as_user, stored):
    hub.add("owner/model", {"README.md": b"mine"})
    made = as_user("push", stored, "owner/model", "--into-model-repo", "--create-pr")
    assert "discussions/1" in made.stdout
    name = made.stdout.split("collapse measure ")[1].strip()
    assert name.endswith("@refs/pr/1")
    (row,) = json.loads(as_user("measure", name, "--metrics", "nc2", "--json").stdout)
    assert row["store"] == collapse.load(stored).digest
    assert set(files_of(hub, "owner/model")) == {"README.md"}
    proposed = files_of(hub, "owner/model", "refs/pr/1")
    assert proposed["README.md"] == b"mine"
    assert any(path.endswith("collapse.json") for path in proposed)


def test_a_pull_request_whose_answer_is_lost_is_not_opened_twice(hub, as_user, stored):
    hub.add("owner/model", {"README.md": b"mine"})

    def lost(ask, method, path):
        return method == "POST" and "/commit/" in path and not ask.send(b"lost", 502)

    hub.fault = lost
    refused = as_user("push", stored, "owner/model", "--into-model-repo", "--create-pr", ok=False)
    assert refused.returncode == 1
    assert sum(method == "POST" and "/commit/" in path for method, path in hub.requests) == 1


def test_a_models_own_store_is_found(hub, as_user, tiny, tmp_path):
    files = {file.name: file.read_bytes() for file in tiny.model.iterdir()}
    commit = hub.add("owner/tiny", files)
    texts = [*tiny.words()[1:], "--max-chunks", 40]
    first = as_user("measure", "owner/tiny", *texts, "--store", tmp_path / "s", "--json")
    assert collapse.load(tmp_path / "s").revision == commit
    as_user("push", tmp_path / "s", "owner/tiny", "--into-model-repo")
    hub.requests.clear()
    second = as_user("measure", "owner/tiny", *texts, "--json", home="reader")
    assert json.loads(second.stdout)[0]["measurements"] == json.loads(first.stdout)[0]["measurements"]
    assert "published store" in second.stderr
    assert not any(path.endswith("model.safetensors") for _, path in hub.requests)
    third = as_user("measure", "owner/tiny", "--json", home="reader")  # no text: the one that is published
    assert "published store" in third.stderr
    # other weights under the same name: the store is not theirs
    weights = load_file(tiny.model / "model.safetensors")
    changed = {name: tensor * 1.5 for name, tensor in weights.items()}
    save_file(changed, tmp_path / "changed.safetensors", metadata={"format": "pt"})
    hub.add("owner/tiny", {"model.safetensors": (tmp_path / "changed.safetensors").read_bytes()})
    fourth = as_user("measure", "owner/tiny", *texts, "--json", home="reader")
    assert "published store" not in fourth.stderr
    assert json.loads(fourth.stdout)[0]["measurements"] != json.loads(first.stdout)[0]["measurements"]


def test_a_text_on_the_hub_gives_the_card_its_licence_and_the_zoo_lists_the_store(hub, as_user, tiny, tmp_path):
    text = {"train.jsonl": tiny.text.read_bytes(), "README.md": b"---\nlicense: cdla-sharing-1.0\n---\n"}
    hub.add("roneneldan/TinyStories", text, kind="datasets")
    hub.add("rhubarbwu/TinyStories-01x0064_01d", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    words = ("rhubarbwu/TinyStories-01x0064_01d", "--text", "roneneldan/TinyStories", "--chunk-length", 32)
    as_user("measure", *words, "--max-chunks", 20, "--store", tmp_path / "s")
    as_user("push", tmp_path / "s", "owner/stats")
    card = files_of(hub, "owner/stats")["README.md"].decode()
    assert "license: cdla-sharing-1.0" in card
    assert "| text's licence | cdla-sharing-1.0 |" in card
    listed = json.loads(as_user("zoo", "list", "--hub", "--json").stdout)
    assert [(each["model"], each["where"]) for each in listed] == [("TinyStories-01x0064_01d@0", "Hub: owner/stats")]
    assert listed[0]["nc1.cdnv"] > 0


def test_a_store_elsewhere_is_used_where_it_is_named(hub, as_user, tiny, tmp_path):
    hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    texts = [*tiny.words()[1:], "--max-chunks", 40]
    first = as_user("measure", "owner/tiny", *texts, "--store", tmp_path / "s", "--json")
    as_user("push", tmp_path / "s", "owner/tiny-stats")
    about = as_user(
        python="import huggingface_hub as h; a = h.model_info('owner/tiny-stats'); "
        "print(*a.tags, {e.metric_type: e.metric_value for e in a.card_data.eval_results}['nc3.self_duality'])"
    ).stdout.split()
    assert {"collapse", "neural-collapse", "base_model:owner/tiny", "text.jsonl"} <= set(about[:-1])
    assert float(about[-1]) == json.loads(first.stdout)[0]["measurements"]["nc3.self_duality"]
    card = files_of(hub, "owner/tiny-stats")["README.md"]
    assert b"base_model: owner/tiny" in card
    for words in (("--store", "owner/tiny-stats"), ("--store", "owner/tiny-stats/text.jsonl-T32-40")):
        hub.requests.clear()
        found = as_user("measure", "owner/tiny", *texts, *words, "--json", home="reader")
        assert "measuring the published store owner/tiny-stats/collapse/text.jsonl-T32-40@" in found.stderr
        assert json.loads(found.stdout)[0]["measurements"] == json.loads(first.stdout)[0]["measurements"]
        assert not any(path.endswith("model.safetensors") for _, path in hub.requests)
    other = [*tiny.words()[1:], "--max-chunks", 8]
    refused = as_user("measure", "owner/tiny", *other, "--store", "owner/tiny-stats", home="reader", ok=False)
    assert refused.returncode == 2
    assert "owner/tiny-stats has no store of owner/tiny as it was asked for" in refused.stderr
    assert "owner/tiny-stats/collapse/text.jsonl-T32-40" in refused.stderr
    collected = as_user("measure", "owner/tiny", *other, home="reader", token=None)
    assert "published store" not in collected.stderr
    again = as_user("measure", "owner/tiny", *texts, "--recollect", home="reader")
    assert "published store" not in again.stderr


def test_offline_warm_and_cold(hub, as_user, stored):
    as_user("push", stored, "owner/stats")
    as_user("measure", "owner/stats", "--metrics", "nc3", home="warm")
    hub.requests.clear()
    began = time.monotonic()
    as_user("measure", "owner/stats", "--metrics", "nc3", home="warm", offline=True, fresh=True)
    assert time.monotonic() - began < 30
    assert not hub.requests
    cold = as_user("measure", "owner/stats", home="cold", offline=True, ok=False)
    assert cold.returncode == 1
    assert "HF_HUB_OFFLINE=1 is set" in cold.stderr
    by_option = as_user("measure", "owner/stats", "--no-download", home="cold", fresh=True, ok=False)
    assert by_option.stderr == cold.stderr
    assert not hub.requests
    hub.fault = lambda ask, method, path: setattr(ask, "close_connection", True) or True  # nobody answers
    began = time.monotonic()
    alone = as_user("measure", "owner/stats", "--metrics", "nc3", home="warm")
    assert time.monotonic() - began < 30
    assert "using the cached copy of owner/stats" in alone.stderr


def test_without_a_network_a_mistyped_name_is_told_soon(hub, tmp_path):
    with socket.socket() as closed:  # bound, and nobody listens: every connection is refused at once
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
        began = time.monotonic()
        told = subprocess.run(
            [sys.executable, "-m", "collapse", "measure", "stores/none"],
            capture_output=True,
            text=True,
            env=hub.environment(tmp_path) | {"HF_ENDPOINT": endpoint},
            timeout=100,
        )
        taken = time.monotonic() - began
    assert told.returncode == 1
    (line,) = told.stderr.splitlines()
    assert "stores/none is not available: the Hub cannot be reached" in line
    assert "there is no such folder here" in line
    assert taken < 15  # six tries of two requests, the waits between them growing, would take 31 s


def test_what_was_deleted_upstream(hub, as_user, stored):
    as_user("push", stored, "owner/stats")
    as_user("measure", "owner/stats", "--metrics", "nc3", home="reader")
    hub.repos.clear()
    gone = as_user("measure", "owner/stats", home="reader", ok=False)
    assert gone.returncode == 2
    assert "the Hub has no model owner/stats" in gone.stderr


def test_an_altered_file_never_opens(hub, as_user, stored, tmp_path):
    as_user("push", stored, "owner/stats")
    there = hub.repos["models", "owner/stats"]
    path, sha = next((path, sha) for path, sha in there.commits[there.resolve("main")].items() if "train" in path)
    content = hub.blobs[sha]
    hub.blobs[sha] = content[:-1] + bytes([content[-1] ^ 1])  # of the same size, under the same name
    refused = as_user("pull", "owner/stats", "--store", tmp_path / "s", ok=False)
    assert refused.returncode == 1
    assert f"owner/stats: {path} is damaged on the Hub" in refused.stderr
    assert not (tmp_path / "s" / "collapse.json").exists()
    hub.blobs[sha] = content
    as_user("pull", "owner/stats", "--store", tmp_path / "s")  # the damaged download was not kept


def test_a_hub_that_is_away_for_a_while(hub, as_user, stored, tmp_path):
    seen = set()

    def fault(ask, method, path):
        if (method, path) in seen:
            return False
        seen.add((method, path))
        status = 429 if len(seen) % 3 == 0 else 503
        ask.send(b"busy", status, {"Retry-After": "0"})
        return True

    hub.fault = fault
    as_user("push", stored, "owner/stats")
    as_user("pull", "owner/stats", "--store", tmp_path / "s")
    assert len(seen) > 12
    assert collapse.load(tmp_path / "s").check().digest == collapse.load(stored).digest


def test_signed_addresses_are_not_logged(hub, as_user, stored):
    def fault(ask, method, path):
        if method == "PUT" and not refused:
            refused.append(path)
            ask.send(b"busy", 503, {"Retry-After": "0"})
            return True
        return False

    refused = []
    hub.fault = fault
    said = as_user("-v", "push", stored, "owner/stats").stderr
    assert refused
    assert "5ec2e7" not in said


def test_a_file_that_the_hub_does_not_send_is_not_one_that_is_not_there(hub, as_user, tiny):
    files = {file.name: file.read_bytes() for file in tiny.model.iterdir()}
    hub.add("owner/adapted", files | {"adapter_config.json": b"{}"})
    words = ("measure", "owner/adapted", *tiny.words()[1:], "--max-chunks", 8)
    assert "holds a PEFT adapter" in as_user(*words, ok=False).stderr
    hub.add("owner/some", files)
    hub.fault = lambda ask, method, path: path.endswith("/config.json") and not ask.send(b"no", 403, {})
    refused = as_user("measure", "owner/some", *words[2:], home="forbidden", ok=False)
    assert refused.returncode == 1
    assert "owner/some: config.json cannot be downloaded: 403" in refused.stderr
    assert "hf auth login" in refused.stderr
    hub.fault = lambda ask, method, path: path.endswith("/config.json") and not ask.fail(403, "GatedRepo", "no access")
    gated = as_user("measure", "owner/some", *words[2:], home="gated", ok=False).stderr
    assert "it is gated: accept the conditions on its page, then: hf auth login" in gated


def test_a_connection_cut_in_mid_file(hub, as_user, stored, tmp_path):
    as_user("push", stored, "owner/stats")
    cut = []

    def fault(ask, method, path):
        if method == "GET" and path.endswith("train.safetensors") and len(cut) < 2:
            cut.append(path)
            ask.send_response(200)
            ask.send_header("Content-Length", "100000")
            ask.end_headers()
            ask.wfile.write(b"x" * 500)
            ask.close_connection = True
            return True
        return False

    hub.fault = fault
    as_user("pull", "owner/stats", "--store", tmp_path / "s")
    assert len(cut) == 2
    assert collapse.load(tmp_path / "s").check()


def test_what_cannot_be_pushed(as_user, stored, tiny, tmp_path):
    part = collapse.collect(tiny.model, store=tmp_path / "part", part=(1, 4), max_chunks=40, **tiny.options())
    refused = as_user("push", part.path, "owner/stats", ok=False)
    assert "merge the parts: collapse merge" in refused.stderr
    damaged = tmp_path / "damaged"
    shutil.copytree(stored, damaged)
    file = next(damaged.rglob("train.safetensors"))
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert as_user("push", damaged, "owner/stats", ok=False).returncode == 1
    assert as_user("push", stored, "not a name", ok=False).returncode == 2
    with pytest.raises(CollapseError):
        collapse.load("no-such-folder")

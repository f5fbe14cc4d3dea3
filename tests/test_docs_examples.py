"""Every example in README and docs runs on a tiny model, or is listed here with the reason why not."""

import re
import shlex
import shutil
import subprocess
from glob import glob
from pathlib import Path

import pytest
from classifier_files import save_bert, save_vit, write_images, write_rows
from safetensors.torch import load_file, save_file

import collapse
from collapse.hub.references import find_model, remember_tokenizer

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"```(python|console|bash)([^\n]*)\n(.*?)```", re.DOTALL)

NOT_RUN = {
    "python3 -m venv": "makes an environment; .ci/run does",
    "collapse measure timm/resnet50": "needs timm and ImageNet; tests/test_timm.py measures a small one",
    "pip install": "needs a package index; .ci/run runs it",
    "collapse measure smollm2": "needs the model's file; tests/test_loading.py measures a small one",
    "collapse measure MODEL --device-map map.json": "tests/test_placed_models.py has such maps",
    "collapse measure MODEL --quantize": "needs torchao and bitsandbytes; the same tests run it",
    "collapse measure MODEL --adapter": "needs peft; tests/test_adapters.py runs it",
    "hf auth login": "asks for a password",
    "hf download": "is the Hub's own; tests/test_offline.py uses what it fetches",
    "pytest": "runs tests; .ci/run does",
    "python -m benchmarks": "minutes; tests/test_benchmarks.py runs small ones",
    "torchrun": "tests/test_ranks.py and tests/zoo/test_training.py start several processes",
    "srun torchrun": "needs SLURM",
    "collapse demo": "minutes; tests/zoo/test_demo.py runs a smaller one",
    "collapse metrics spread": "the example plugin is not installed here; .ci/run installs it",
    "collapse zoo train 12x1024": "hours; smaller models are trained",
    "collapse zoo sweep": "hours; tests/zoo/test_sweep.py trains small ones",
    "collapse zoo status": "shows a sweep; the same",
    "collapse analyze paired runs/": "needs a sweep; tests/plugins/test_paired.py analyzes a table",
    "collapse -p spread.py": "needs this plugin; tests/zoo/test_interventions.py runs it",
    "collapse zoo publish": "needs such a run; tests/zoo/test_publish.py publishes small ones",
    "collapse measure MODEL --text roneneldan/TinyStories --store stores/big": "needs SLURM; see test_launching.py",
    "collapse status stores/big": "the same",
    "hf jobs run": "costs money",
    "hf buckets": "is the Hub's own",
    "#SBATCH": "needs SLURM; the same command is run with its numbers",
}
SMALLER = {
    "1/16": "1/3",
    "(k, 16)": "(k, 3)",
    "range(1, 17)": "range(1, 4)",
    "seq 8": "seq 2",
    "$k/8": "$k/2",
    "seq 16": "seq 3",
    "$k/16": "$k/3",
    "--generated": "--generated --stories 200 --heads 4 --max-steps 2",
    "--max-steps 300": "",
    "2x128_03d": "2x16_03d --heads 2 --max-steps 2 --batch-size 2 --chunk-length 32",
    "user/": "owner/",  # who is logged in
    '" Tim" --token Anna': "t --token s",  # the tiny model has other words
}
# tests/test_docs.py runs those of plugins.md, tests/plugins/test_pages.py those of published.md; cli.md is generated
ELSEWHERE = ("plugins.md", "plugin-reference.md", "published.md", "cli.md")


def blocks() -> list[tuple[str, str, str]]:
    """Page, kind and text of each example."""
    found = []
    for page in PAGES:
        if page.name not in ELSEWHERE:
            found += [(page.name, kind, code) for kind, _, code in FENCED.findall(page.read_text("utf-8"))]
    return found


def command_lines(code: str) -> list[str]:
    """The command lines of a block, each in one line and without prompt or output. The shell unrolls its loops."""
    if code.startswith("for "):
        shown = "collapse() { printf '%q ' collapse \"$@\"; echo; }\n" + code
        return subprocess.run(["bash", "-c", shown], check=True, capture_output=True, text=True).stdout.splitlines()
    lines = code.replace("\\\n", " ").splitlines()
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return prompted or [line for line in lines if line.strip() and not line.startswith("|")]


def smaller(text: str) -> str:
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return text


def kept(line: str) -> bool:
    return not any(line.strip().startswith(begin) for begin in NOT_RUN)


def with_other_parts(words: list[str]) -> list[list[str]]:
    """Return a command, and the same command for the other parts."""
    if "--part" not in words:
        return [words]
    given = words[words.index("--part") + 1]
    k, n = given.split("/")
    named = [re.sub(rf"^(parts/.*?)\b{k}$", r"\1{}", word) for word in words]
    return [[{given: "{}/" + n}.get(word, word).format(part) for word in named] for part in range(1, int(n) + 1)]


@pytest.fixture(scope="module")
def prepared(tiny, tmp_path_factory) -> Path:
    """A folder with the models, texts, stores and results that the examples name."""
    folder = tmp_path_factory.mktemp("prepared")
    for name, file in (("train", tiny.text), ("validation", tiny.validation), ("other", tiny.validation)):
        lines = file.read_text("utf-8").splitlines(keepends=True)[:60]
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    for name in ("runs/my-model", "runs/a", "MODEL", "DIR"):
        shutil.copytree(tiny.model, folder / name)
    save_vit(folder / "runs" / "vit")
    write_images(folder / "images" / "train", 6, 0)
    write_images(folder / "images" / "val", 3, 1)
    shutil.copytree(folder / "images" / "val" / "ant", folder / "images" / "other")
    for name, kind in (("reviews", "SequenceClassification"), ("tagger", "TokenClassification"), ("bert", "MaskedLM")):
        save_bert(folder / "runs" / name, f"BertFor{kind}")
    for seed, name in enumerate(("reviews", "reviews-held", "tags")):
        write_rows(folder / f"{name}.jsonl", 60, seed)
    for step in (50, 100):
        shutil.copytree(tiny.model, folder / "runs" / "my-run" / f"checkpoint-{step}")
    texts = {"text": str(folder / "train.jsonl"), "validation_text": str(folder / "validation.jsonl")}
    for times, name in enumerate("abc", start=1):
        model = shutil.copytree(tiny.model, folder / "models" / name)
        if times > 1:
            weights = load_file(model / "model.safetensors")
            save_file({key: each * times for key, each in weights.items()}, model / "model.safetensors")
        collapse.collect(model, store=folder / "stores" / name, **texts)
    rows = [collapse.measure(folder / "stores" / name) for name in "abc"]
    collapse.Results(rows).write(folder / "results.csv")
    return folder


@pytest.fixture
def world(prepared, hub, tmp_path, monkeypatch) -> Path:
    """A copy of it, and the same model and text on the Hub."""
    folder = Path(shutil.copytree(prepared, tmp_path / "world"))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLLAPSE_HOME", hub.environment(tmp_path / "home", None)["COLLAPSE_HOME"])
    remember_tokenizer(find_model("runs/a"))  # as a collection does
    files = {file.name: file.read_bytes() for file in (folder / "MODEL").iterdir()}
    hub.add("owner/model", files)
    card = b"---\ndatasets: roneneldan/TinyStories\n---\n"
    for branch in ("main", "step10000", "step20000"):
        hub.add("EleutherAI/pythia-70m", files, branch=branch)
    hub.add("rhubarbwu/TinyStories-12x1024_10L", files | {"README.md": card})
    texts = {f"{name}.jsonl": (folder / f"{name}.jsonl").read_bytes() for name in ("train", "validation")}
    hub.add("roneneldan/TinyStories", texts, kind="datasets")
    hub.add("owner/text", texts, kind="datasets")
    return folder


CONSOLE = [each for each in blocks() if each[1] != "python" and any(map(kept, command_lines(each[2])))]
PYTHON = [each for each in blocks() if each[1] == "python"]


def test_there_are_examples():
    assert len(CONSOLE) >= 12
    assert len(PYTHON) >= 7
    every = [line.strip() for _, kind, code in blocks() if kind != "python" for line in command_lines(code)]
    assert [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in every)] == []


@pytest.mark.parametrize("code", [code for *_, code in CONSOLE], ids=[page for page, *_ in CONSOLE])
def test_the_commands_run(world, as_user, code):
    if " --store stores/" in code and "merge" in code:
        shutil.rmtree("stores")
    for line in filter(kept, command_lines(smaller(code))):
        program, *words = shlex.split(line, comments=True)
        assert program == "collapse"
        for each in with_other_parts(words):
            found = [(sorted(glob(word)) if "*" in word else []) or [word] for word in each]  # as a shell does
            as_user(*[word for words in found for word in words], cwd=world)


@pytest.mark.parametrize("code", [code for *_, code in PYTHON], ids=[page for page, *_ in PYTHON])
def test_the_python_runs(world, as_user, code):
    if "TinyStories" in code:
        shutil.rmtree("stores")
        as_user(python=smaller(code), cwd=world)
    else:
        exec(compile(smaller(code), "example", "exec"), {})


def test_links_to_files_beside_the_docs_exist():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("examples/*.ipynb")]:
        links = re.findall(r'\]\(([^)#:]+)[^):]*\)|src=\\?"([^":\\]+)', page.read_text("utf-8"))
        missing = [link for link in map("".join, links) if not (page.parent / link).exists()]
        assert missing == [], page.name

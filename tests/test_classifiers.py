"""Classifiers other than causal language models: numbers as directly from their definition, and what is refused."""

import json
import shutil
from pathlib import Path

import classifier_files as files
import numpy as np
import pandas
import pytest
import reference
import torch
import transformers
from classifier_files import IMAGES, KINDS, SEQUENCES, TOKENS
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_model import edit_json

import collapse
from collapse.errors import CollapseError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model of each kind, and training and validation data of both kinds."""
    return files.save_all(tmp_path_factory.mktemp("classifiers"))


def options(made, task):
    """The options that name the data of a task."""
    names = ("train", "held") if task == IMAGES else ("train.jsonl", "held.jsonl")
    return {"task": task, "data": str(made / names[0]), "validation_data": str(made / names[1])}


def expected(made, name, task):
    """Every measurement, from the definition."""
    features = {}
    for phase, data in (("train", "data"), ("validation", "validation_data")):
        h, y, head = files.embeddings(made / name, task, Path(options(made, task)[data]))
        y = [files.CLASSES.index(each) if isinstance(each, str) else each for each in y]
        features |= {f"{phase}_features": h.numpy(), f"{phase}_labels": np.array(y)}
    features |= {"classifier": head.weight.detach().numpy(), "classifier_bias": head.bias.detach().numpy()}
    return reference.everything(features)


@pytest.mark.parametrize("name", KINDS)
def test_every_number_is_that_of_the_definition(made, name):
    task = KINDS[name][0]
    row = collapse.measure(made / name, **options(made, task), dtype="float64")
    wanted = expected(made, name, task)
    for measurement, value in reference.present(row.measurements).items():
        if measurement in wanted:
            assert value == pytest.approx(wanted[measurement], rel=1e-9, abs=1e-12), measurement
    assert len(wanted.keys() & row.measurements.keys()) > 50
    assert (row.model, row.corpus) == (name, "train" if task == IMAGES else "train.jsonl")


def test_a_model_and_its_processor_may_be_in_a_subfolder(made, tmp_path):
    shutil.copytree(made / "vit", tmp_path / "models" / "vit")
    given = {**options(made, IMAGES), "metrics": "nc1.cdnv"}
    inside = collapse.measure(tmp_path / "models", **given, model_args={"subfolder": "vit"})
    assert inside.measurements == collapse.measure(made / "vit", **given).measurements


def test_parts_batches_and_the_cache_give_the_same_store(made, tmp_path, run):
    given = {**options(made, TOKENS), "dtype": "float64"}
    whole = collapse.collect(made / "tokens", store=tmp_path / "whole", **given)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    for k in (2, 1, 1, 2):  # each part of the training data, then of the validation data
        run("collect", made / "tokens", *words, "--store", tmp_path / "parts", "--part", f"{k}/2", "--batch-size", 3)
    parts = collapse.load(tmp_path / "parts")
    assert (parts.state, parts.identity) == ("complete", whole.identity)
    assert parts.manifest["coverage"] == whole.manifest["coverage"]
    rows = [reference.present(collapse.measure(store).measurements) for store in (whole, parts)]
    assert rows[0] == pytest.approx(rows[1], rel=1e-8, abs=1e-9)  # batches are padded to their longest text
    assert "on train.jsonl: C = 4 classes, d = 12" in run("measure", made / "tokens", *words).stdout
    named = collapse.tokens(whole, ["cat", "eel"])
    assert named.frame()["text"].tolist() == ["cat"]
    assert any("similar classes" in note for note in named.notes)
    moved = shutil.copytree(made / "tokens", tmp_path / "tokens")  # the cache finds equal content
    data = {"data": shutil.copy(made / "train.jsonl", tmp_path), "validation_data": str(made / "held.jsonl")}
    again = collapse.collect(moved, task=TOKENS, dtype="float64", **data)
    assert again.digest == collapse.collect(made / "tokens", **given).digest == whole.digest
    for file in moved.glob("token*"):
        file.unlink()
    with pytest.raises(CollapseError, match=r"has no tokenizer .*--tokenizer"):
        collapse.collect(moved, **given, store=tmp_path / "again")
    assert collapse.collect(moved, **given, store=tmp_path / "again", tokenizer=made / "tokens").digest == whole.digest


def test_nulls_keep_the_counts_of_classes(made):
    given = options(made, TOKENS)
    plain = collapse.collect(made / "tokens", **given).statistics()
    shuffled = collapse.collect(made / "tokens", null="shuffled", **given).statistics()
    assert torch.equal(plain.counts, shuffled.counts)
    total = (plain.counts.double() @ plain.means, shuffled.counts.double() @ shuffled.means)
    assert torch.allclose(*total)  # of the same tokens
    assert not torch.allclose(plain.means, shuffled.means)
    row = collapse.measure_with_nulls(made / "sequences", metrics="nc3.self_duality", **options(made, SEQUENCES))
    assert row.nulls.keys() == {"untrained", "shuffled"}


def test_rows_of_other_formats_and_of_a_data_set_on_the_hub_give_the_same_numbers(made, tmp_path, hub, as_user):
    import datasets

    rows = [json.loads(line) for line in (made / "train.jsonl").read_text().splitlines()]
    pandas.DataFrame(rows)[["label", "text"]].to_csv(tmp_path / "rows.csv", index=False)
    # named in another order than the model's classes
    label = datasets.ClassLabel(names=sorted(files.CLASSES, reverse=True))
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    named = datasets.Dataset.from_list([{name: row[name] for name in ("text", "label")} for row in rows], features)
    named.to_parquet(tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    hub.add("owner/rows", {"train-0.parquet": content, "validation-0.parquet": content}, kind="datasets")
    wanted = collapse.measure(made / "sequences", task=SEQUENCES, data=made / "train.jsonl")
    assert wanted["nc4.agreement"] is None
    assert any("--validation-data" in note.text for note in wanted.notes)
    for number, data in enumerate(("rows.csv", "rows.parquet", "owner/rows")):
        words = ["--task", SEQUENCES, "--data", data, "--output", f"{number}.json"]
        as_user("measure", made / "sequences", *words, cwd=tmp_path)
        (row,) = collapse.Results.read(tmp_path / f"{number}.json").rows
        held = {name: value for name, value in row.measurements.items() if wanted[name] is not None}
        assert held == {name: wanted[name] for name in held}
    assert row["val_accuracy"] is not None  # the data set has a validation split


def test_classes_are_matched_by_their_names_or_by_their_order(made, tmp_path, caplog):
    wanted = collapse.measure(made / "vit", task=IMAGES, data=made / "train").measurements
    for kind, names in (("upper", map(str.upper, files.CLASSES)), ("synsets", ("n01", "n02", "n03", "n04"))):
        for folder, name in zip(files.CLASSES, names, strict=True):
            shutil.copytree(made / "train" / folder, tmp_path / kind / name)
        caplog.clear()
        said = "matched in order: n01 is ant, n02 is bee"
        for _ in ("collected", "from the cache"):
            row = collapse.measure(made / "vit", task=IMAGES, data=tmp_path / kind)
            assert row.measurements == wanted
            assert any(said in note.text for note in row.notes) == (kind == "synsets")
        assert caplog.text.count(said) == (kind == "synsets")


def test_images_in_rows_and_on_the_hub_are_measured_as_those_in_folders(made, tmp_path, hub, as_user):
    import datasets

    images = sorted((made / "train").rglob("*.png"))
    rows = {"img": [str(each) for each in images], "class": [each.parent.name for each in images]}
    datasets.Dataset.from_dict(rows).cast_column("img", datasets.Image()).to_parquet(tmp_path / "images.parquet")
    of_rows, of_folder = (
        collapse.measure(made / "vit", task=IMAGES, data=data, columns="img,class")
        for data in (tmp_path / "images.parquet", made / "train")
    )
    assert of_rows.measurements == of_folder.measurements
    content = {f"train/{each.parent.name}/{each.name}": each.read_bytes() for each in images}
    hub.add("owner/images", content, kind="datasets")
    words = ["--task", IMAGES, "--data", "owner/images", "--ood-data", "owner/images", "--output", "images.json"]
    as_user("measure", made / "vit", *words, cwd=tmp_path)
    (row,) = collapse.Results.read(tmp_path / "images.json").rows
    of_files = collapse.measure(made / "vit", task=IMAGES, data=made / "train", ood_text=made / "train")
    assert row.measurements == of_files.measurements


def test_images_are_turned_as_their_camera_says(made, tmp_path):
    for name in ("turned", "upright"):
        shutil.copytree(made / "train", tmp_path / name)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90°
    for file in (tmp_path / "turned").rglob("*.png"):
        Image.open(file).transpose(Image.Transpose.ROTATE_90).save(file, exif=exif)
    measured = [collapse.measure(made / "vit", task=IMAGES, data=tmp_path / name) for name in ("turned", "upright")]
    assert measured[0].measurements == measured[1].measurements


@pytest.mark.parametrize("padding", [0, 3])  # 3 is the token [SEP], which also ends each text
def test_a_decoder_classifies_the_token_that_transformers_reads(made, tmp_path, padding):
    from transformers import GPT2Config, GPT2ForSequenceClassification

    sizes = {"n_embd": 12, "n_layer": 1, "n_head": 2, "vocab_size": 20, "n_positions": 24, "pad_token_id": padding}
    model = files.save(GPT2ForSequenceClassification, GPT2Config(**sizes, **files.NAMES), tmp_path / "decoder")
    shutil.copytree(
        made / "sequences", model, dirs_exist_ok=True, ignore=shutil.ignore_patterns("model*", "config.json")
    )
    row = collapse.measure(model, **options(made, SEQUENCES))
    assert (row.dim, row.samples) == (12, 90)
    accuracy = []
    loaded = GPT2ForSequenceClassification.from_pretrained(model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    for each in map(json.loads, (made / "held.jsonl").read_text().splitlines()):
        found = loaded(**tokenizer(each["text"], return_tensors="pt")).logits.argmax()
        accuracy.append(files.CLASSES[found] == each["label"])
    assert row["val_accuracy"] == np.mean(accuracy)


OF_IMAGES, OF_TEXTS, OF_TOKENS = (f"--task {task} --data" for task in (IMAGES, SEQUENCES, TOKENS))
WRONG = [
    (2, "vit", "--task image_classification", "got 'image_classification'; did you mean image-classification?"),
    (2, "vit", f"{OF_IMAGES} flat", "the model has no class 'flat'; make a folder of images per class"),
    (2, "vit", "--data train", "need a --task: image-classification, sequence-classification"),
    (2, "vit", f"--task {IMAGES}", "needs its data: give --data"),
    (1, "vit", f"{OF_IMAGES} trian", "there is no file trian (did you mean train?); dataset trian is not in the cache"),
    (1, "vit", f"{OF_IMAGES} train --ood-data hled", "there is no file hled (did you mean held?); "),
    (2, "vit", f"{OF_IMAGES} train --chunk-length 8", "--chunk-length does not apply"),
    (1, "vit", f"{OF_TEXTS} train.jsonl", "is a ViTForImageClassification, not a text classifier: give --task image-"),
    (1, "vit", "", "not a causal language model: give --task image-classification with its --data"),
    (1, "headless", f"{OF_TEXTS} train.jsonl", "lacks 2 weights of BertForSequenceClassification (classifier.bias, "),
    (1, "body", f"{OF_TEXTS} train.jsonl", "is a BertModel, not a text classifier"),
    (1, "unprocessed", f"{OF_IMAGES} train", "has no image processor: add the processor of its base"),
    (
        1,
        "teacher",
        f"{OF_IMAGES} train",
        "are not the output of its last linear layer, distillation_classifier (Linear)",
    ),
    (2, "vit", f"{OF_IMAGES} empty", "no file matches empty; give .png, .jpg"),
    (2, "vit", f"{OF_IMAGES} train --validation-split test", "is local and has no splits"),
    (1, "vit", f"{OF_IMAGES} damaged", "damaged/ant/0.png cannot be read as an image"),
    (2, "vit", f"{OF_IMAGES} others", "2 classes, and the model has no class 'eel'; did you mean bee?"),
    (2, "sequences", f"{OF_TEXTS} train.jsonl --columns text,labels", "in --columns text,label; did you mean label?"),
    (2, "sequences", f"{OF_TEXTS} train.jsonl --columns label", "must name inputs and labels"),
    (2, "sequences", f"{OF_TEXTS} numbers.csv", "the label 4, but the model has the classes 0 to 3"),
    (2, "sequences", f"{OF_TEXTS} train.jsonl --columns tokens,label", "row 1 of train.jsonl holds ["),
    (2, "tokens", f"{OF_TOKENS} train.jsonl --columns tokens,label", "row 1 of train.jsonl has no list of labels for"),
    (2, "tokens", f"{OF_TOKENS} more.jsonl", "row 2 of more.jsonl has 3 labels for 2 words"),
    (2, "sequences", f"{OF_TEXTS} train.jsonl --columns text,ner_tags", "but each row needs one label"),
    (2, "bare", f"{OF_TEXTS} without.jsonl", "row 2 of without.jsonl has no tokens: remove this row"),
    (1, "from1", f"{OF_TEXTS} from1.csv", "the classifier has rows 0 to 3"),
    (1, "unsized", f"{OF_IMAGES} sizes", "returns images of sizes in different sizes"),
    (1, "sequences", f"{OF_TEXTS} broken.jsonl", "broken.jsonl cannot be read as json"),
]


@pytest.fixture(scope="module")
def wrong(made):
    """The same folder with wrong models and data."""
    from transformers import BertModel, DeiTConfig, DeiTForImageClassificationWithTeacher

    headless = shutil.copytree(made / "sequences", made / "headless")
    kept = {name: each for name, each in load_file(headless / "model.safetensors").items() if "classifier" not in name}
    save_file(kept, headless / "model.safetensors", {"format": "pt"})
    BertModel.from_pretrained(made / "tokens", add_pooling_layer=False).save_pretrained(made / "body")
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    deit = DeiTConfig(**sizes, image_size=16, patch_size=8, **files.NAMES)
    files.processor(files.save(DeiTForImageClassificationWithTeacher, deit, made / "teacher"))
    shutil.copytree(made / "vit", made / "unprocessed", ignore=shutil.ignore_patterns("preprocessor*"))
    (made / "empty").mkdir()
    for name in ("ant", "eel"):
        shutil.copytree(made / "train" / "ant", made / "others" / name)
    shutil.copytree(made / "train" / "ant", made / "flat")
    shutil.copytree(made / "train", made / "damaged")
    (made / "damaged" / "ant" / "0.png").write_bytes(b"no image")
    (made / "numbers.csv").write_text("text,label\nan be,0\nca do,4\n")
    rows = [{"tokens": ["an", "be"], "ner_tags": [0, 1]}, {"tokens": ["an", "be"], "ner_tags": [0, 1, 2]}]
    (made / "more.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (made / "without.jsonl").write_text('{"text": "an", "label": 0}\n{"text": "", "label": 1}\n')
    bare = shutil.copytree(made / "sequences", made / "bare")
    edit_json(bare / "tokenizer.json", post_processor=None)
    edit_json(bare / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    (made / "from1.csv").write_text("text,label\nan be,1\nca do,4\n")
    from_1 = shutil.copytree(made / "sequences", made / "from1")
    edit_json(from_1 / "config.json", id2label=dict(enumerate(files.CLASSES, 1)))
    edit_json(shutil.copytree(made / "vit", made / "unsized") / "preprocessor_config.json", do_resize=False)
    for name, side in (("ant", 16), ("bee", 24)):
        (made / "sizes" / name).mkdir(parents=True)
        Image.new("RGB", (side, side)).save(made / "sizes" / name / "0.png")
    (made / "broken.jsonl").write_text('{"text": "an"\n')
    return made


@pytest.mark.parametrize(("code", "model", "words", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_a_mistake_is_one_line(wrong, told, monkeypatch, code, model, words, message):
    monkeypatch.chdir(wrong)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    said = told(code, "measure", model, *words.split())
    assert message in said
    assert len(said) < 1000

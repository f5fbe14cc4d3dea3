"""Small classifiers with random weights, data for them, made as files, and their embeddings by transformers alone."""

import json
import random
from pathlib import Path

import numpy as np
import torch

from collapse.inputs.permuted_labels import permuted
from collapse.inputs.tasks import TASKS

CLASSES = ("ant", "bee", "cat", "dog")
WORDS = [f"{stem}{ending}" for stem in ("an", "be", "ca", "do", "el", "fo") for ending in ("", "t", "s", "sting")]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NAMES = {"id2label": dict(enumerate(CLASSES)), "label2id": {name: number for number, name in enumerate(CLASSES)}}


def save(model: type, config: object, folder: Path) -> Path:
    """Save a model with random weights and a head that is not nearly zero."""
    torch.manual_seed(0)
    made = model(config)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) / 3)
    made.save_pretrained(folder)
    return folder


def save_vit(folder: Path) -> Path:
    """Save a vision transformer and its image processor."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    save(ViTForImageClassification, ViTConfig(**sizes, image_size=16, patch_size=8, **NAMES), folder)
    return processor(folder)


def save_resnet(folder: Path) -> Path:
    """Save a residual network, whose head reads a pooled feature map, and its image processor."""
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes = {"embedding_size": 6, "hidden_sizes": [6, 10], "depths": [1, 1], "layer_type": "basic"}
    save(ResNetForImageClassification, ResNetConfig(**sizes, **NAMES), folder)
    return processor(folder)


def processor(folder: Path) -> Path:
    """Write the configuration of an image processor."""
    size, mean = {"height": 16, "width": 16}, [0.5, 0.5, 0.5]
    config = {"image_processor_type": "ViTImageProcessor", "size": size, "image_mean": mean, "image_std": mean}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    return folder


def save_bert(folder: Path, kind: str) -> Path:
    """Save a BERT with one of its heads, and a tokenizer that splits some words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    pieces = [*SPECIAL, "an", "be", "ca", "do", "el", "fo", "##t", "##s", "##ting"]
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]
    )
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    transformers.BertTokenizerFast(tokenizer_object=tokenizer, **named, model_max_length=24).save_pretrained(folder)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    names = {} if kind == "BertForMaskedLM" else NAMES
    config = transformers.BertConfig(**sizes, vocab_size=len(pieces), max_position_embeddings=24, **names)
    return save(getattr(transformers, kind), config, folder)


def write_images(folder: Path, each: int, seed: int) -> Path:
    """Write a folder of class folders with images of random pixels."""
    from PIL import Image

    draw = random.Random(seed)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(each):
            image = Image.frombytes("RGB", (20, 18), draw.randbytes(20 * 18 * 3))
            image.save(folder / name / f"{number}.png")
    return folder


def write_rows(file: Path, rows: int, seed: int) -> Path:
    """Write texts with a class each, and words with a class each, as rows of JSON."""
    draw, lines = random.Random(seed), []
    for _ in range(rows):
        words = draw.choices(WORDS, k=draw.randint(2, 9))
        tags = [draw.randrange(len(CLASSES)) if draw.random() < 0.9 else -100 for _ in words]
        row = {"text": " ".join(words), "label": draw.choice(CLASSES), "tokens": words, "ner_tags": tags}
        lines.append(json.dumps(row) + "\n")
    file.write_text("".join(lines))
    return file


IMAGES, SEQUENCES, TOKENS, MASKED = TASKS
KINDS = {
    "vit": (IMAGES, save_vit),
    "resnet": (IMAGES, save_resnet),
    "sequences": (SEQUENCES, lambda folder: save_bert(folder, "BertForSequenceClassification")),
    "tokens": (TOKENS, lambda folder: save_bert(folder, "BertForTokenClassification")),
    "masked": (MASKED, lambda folder: save_bert(folder, "BertForMaskedLM")),
}


def save_all(folder: Path) -> Path:
    """Save a model of each kind, and training and validation data of both kinds."""
    for name, (_, save_model) in KINDS.items():
        save_model(folder / name)
    write_images(folder / "train", 12, 0)
    write_images(folder / "held", 6, 1)
    write_rows(folder / "train.jsonl", 90, 0)
    write_rows(folder / "held.jsonl", 40, 1)
    return folder


@torch.no_grad()
def embeddings(folder, task, data):
    """The embeddings of a model, their labels as in the data, and the head, with transformers' own outputs."""
    import transformers
    from PIL import Image

    auto = {IMAGES: "ImageClassification", SEQUENCES: "SequenceClassification", TOKENS: "TokenClassification"}
    model = getattr(transformers, f"AutoModelFor{auto.get(task, 'MaskedLM')}").from_pretrained(folder).double().eval()
    h, y = [], []
    if task == IMAGES:
        for file in sorted(data.rglob("*.png")):
            image = Image.open(file).resize((16, 16), Image.Resampling.BILINEAR)
            pixels = torch.from_numpy(np.asarray(image).astype(np.float32) / 255 * 2 - 1).permute(2, 0, 1)[None]
            found = model.base_model(pixels.double())
            pooled = found.pooler_output.flatten(1) if folder.name == "resnet" else found.last_hidden_state[:, 0]
            h.append(pooled)
            y.append(file.parent.name)
        head = model.classifier[1] if folder.name == "resnet" else model.classifier
        return torch.cat(h), y, head
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    masked = iter(masks(tokenizer, rows)) if task == MASKED else None
    for row in rows:
        words = task == TOKENS
        tokens = tokenizer(row["tokens" if words else "text"], is_split_into_words=words, return_tensors="pt")
        if task == MASKED:
            places = next(masked)
            y += tokens.input_ids[0, places].tolist()
            tokens.input_ids[0, places] = tokenizer.mask_token_id
        found = model.base_model(**tokens)
        if task == SEQUENCES:
            h.append(found.pooler_output)
            y.append(row.get("label"))
        elif task == MASKED:
            h.append(model.cls.predictions.transform(found.last_hidden_state[0, places]))
        else:
            places = tokens.word_ids()
            for word, tag in enumerate(row.get("ner_tags", [0] * len(row["tokens"]))):
                if tag >= 0:
                    h.append(found.last_hidden_state[:, places.index(word)])
                    y.append(tag)
    return torch.cat(h), y, model.cls.predictions.decoder if task == MASKED else model.classifier


def masks(tokenizer, rows):
    """The masked places of each text: those that a permutation of all tokens puts among the first 15 %."""
    ids = [tokenizer(row["text"])["input_ids"] for row in rows]
    total = sum(map(len, ids))
    is_first = permuted(torch.arange(total), total) < 0.15 * total
    flat = torch.tensor([each for row in ids for each in row])
    special = torch.isin(flat, torch.tensor(tokenizer.all_special_ids))
    unknown = flat == tokenizer.unk_token_id
    return [each.nonzero()[:, 0] for each in (is_first & (~special | unknown)).split([*map(len, ids)])]

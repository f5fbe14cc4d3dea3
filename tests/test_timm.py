"""Models of timm. CI installs timm for these tests alone, because its torchvision may not fit the installed torch."""

from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pytest
import reference
import torch

if find_spec("timm") is None or find_spec("torchvision") is None:
    pytest.skip("needs timm, which .ci/run installs for these tests", allow_module_level=True)
if torch.version.cuda is None and "+" not in version("torchvision"):
    # PyPI's build of torchvision is for CUDA: its operators do not load here, and its import needs their names
    OPERATORS = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import classifier_files as files
import timm
from PIL import Image
from timm.models import save_for_hf

import collapse
from collapse.errors import CollapseError

TASK = {"task": "image-classification", "dtype": "float64"}


def saved(folder, architecture):
    """A timm checkpoint with random weights, as timm writes it, with images of 32 × 32 pixels."""
    torch.manual_seed(0)
    model = timm.create_model(architecture, num_classes=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    mean = [0.5, 0.5, 0.5]
    model.pretrained_cfg |= {"input_size": (3, 32, 32), "mean": mean, "std": mean, "crop_pct": 1.0}
    save_for_hf(model, folder, safe_serialization=True, model_config={"label_names": list(files.CLASSES)})
    return model.double().eval()


def test_a_residual_network_of_timm_has_the_numbers_of_the_definition(tmp_path):
    model = saved(tmp_path / "resnet", "test_resnet")
    features = {"classifier": model.fc.weight.detach().numpy(), "classifier_bias": model.fc.bias.detach().numpy()}
    for phase, seed in (("train", 0), ("validation", 1)):
        h, y = [], []
        for file in sorted(files.write_images(tmp_path / phase, 10, seed).rglob("*.png")):
            image = Image.open(file)
            scale = 32 / min(image.size)
            size = tuple(int(scale * each) for each in image.size)
            image = image.resize(size, Image.Resampling.BILINEAR)
            left, top = (round((each - 32) / 2) for each in size)
            pixels = np.asarray(image.crop((left, top, left + 32, top + 32))).astype(np.float32) / 255 * 2 - 1
            with torch.no_grad():
                h.append(
                    model.global_pool(model.forward_features(torch.tensor(pixels).permute(2, 0, 1)[None].double()))
                )
            y.append(files.CLASSES.index(file.parent.name))
        features |= {f"{phase}_features": torch.cat(h).numpy(), f"{phase}_labels": np.array(y)}
    data = {"data": tmp_path / "train", "validation_data": tmp_path / "validation"}
    row = collapse.measure(tmp_path / "resnet", **data, **TASK)
    wanted = reference.everything(features)
    found = {name: each for name, each in reference.present(row.measurements).items() if name in wanted}
    assert len(found) > 50
    assert found == pytest.approx({name: wanted[name] for name in found}, rel=1e-9, abs=1e-12)


def test_a_head_that_is_a_convolution_is_refused_by_name(tmp_path):
    saved(tmp_path / "dpn", "dpn48b")
    with pytest.raises(CollapseError, match=r"last module is timm_model.classifier \(Conv2d\)"):
        collapse.measure(tmp_path / "dpn", data=files.write_images(tmp_path / "train", 2, 0), **TASK)

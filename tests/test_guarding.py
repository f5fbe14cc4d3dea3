"""What a plugin's code cannot change in silence: tensors that others read too."""

import torch

from collapse.plugin.guarding import outside_inference_mode, truncated
from collapse.testing.measured import differing


def test_a_number_that_changes_is_seen_by_the_kit():
    for dtype in (torch.bool, torch.bfloat16, torch.float32, torch.float64):
        for shape in ((), (7,), (30, 40)):
            x = torch.ones(shape, dtype=dtype)
            before = {"x": x.clone()}
            assert differing(before, {"x": x}) == []
            x.view(-1)[-1] = 0
            assert differing(before, {"x": x}) == ["x"]


def test_a_function_is_taken_out_of_its_callers_inference_mode_only():
    modes = outside_inference_mode(lambda: (torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
    assert modes() == (False, True)
    with torch.inference_mode():
        assert modes() == (False, False)


def test_a_text_of_just_the_length_stays_whole():
    assert truncated("abcd", 4) == "abcd"
    assert truncated("abcde", 4) == "abc…"

"""What a plugin's code cannot change: settings of torch, and tensors that others read too."""

import sys
from collections.abc import Iterator
from threading import Event, Thread

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from collapse.plugin.guarding import Guest, contents, differing, outside_inference_mode, truncated


@pytest.fixture
def on_meta() -> Iterator[None]:
    """A program whose default device is another one."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("on_meta")
def test_the_programs_default_device_is_put_back():
    with Guest():
        torch.set_default_device("cpu")
    assert torch.get_default_device().type == "meta"


class Doubled(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        made = function(*args, **kwargs or {})
        return made * 2 if isinstance(made, torch.Tensor) else made


class Seen(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **kwargs or {})


def test_modes_that_a_plugin_leaves_entered_are_left():
    with torch.device("meta"), Seen():
        with Guest():
            for mode in (torch.device("cpu"), Doubled(), Seen(), Seen()):
                mode.__enter__()
        assert torch.empty(0).device.type == "meta"
        assert torch._C._len_torch_dispatch_stack() == 1
    assert torch.empty(0).device.type == "cpu"
    assert float(torch.ones(1).sum()) == 1
    assert torch._C._len_torch_dispatch_stack() == 0


def test_the_streams_of_a_program_come_back_after_guests_in_threads():
    own = sys.stdout, sys.stderr
    first_is_in, second_is_in = Event(), Event()

    def first():
        with Guest():
            first_is_in.set()
            second_is_in.wait()

    thread = Thread(target=first)
    thread.start()
    first_is_in.wait()
    with Guest():
        second_is_in.set()
        thread.join()
        assert sys.stdout.write == sys.stderr.write == own[1].write  # the other guest is gone, this one is not
    assert (sys.stdout, sys.stderr) == own


def test_an_inference_mode_that_stays_open_is_left():
    held = []
    for _ in range(2):
        with Guest():
            held.append(torch.inference_mode())
            held[-1].__enter__()
        assert not torch.is_inference_mode_enabled()
        with Guest():
            torch.set_num_threads(torch.get_num_threads() + 1)
        assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("shape", [(), (1,), (7,), (70_000,), (3, 5), (300, 400), (200, 20, 30)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float32, torch.float64])
def test_any_number_that_changes_is_seen(shape, dtype):
    tensors = {"same": torch.ones(3), "x": torch.ones(shape).to(dtype)}
    before = contents(tensors)
    assert differing(before, contents(tensors)) == []
    tensors["x"].view(-1)[-1] = 0
    assert differing(before, contents(tensors)) == ["x"]


@pytest.mark.parametrize("swapped", [((0, 0), (0, 1)), ((0, 0), (1, 0))])
def test_numbers_that_change_places_in_a_row_or_a_column_are_seen(swapped):
    x = torch.arange(120_000.0).view(400, 300)
    before = contents({"x": x})
    one, other = swapped
    x[one], x[other] = x[other].clone(), x[one].clone()
    assert differing(before, contents({"x": x})) == ["x"]


def test_a_function_is_taken_out_of_its_callers_inference_mode_only():
    modes = outside_inference_mode(lambda: (torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
    assert modes() == (False, True)
    with torch.inference_mode():
        assert modes() == (False, False)


def test_a_text_of_just_the_length_stays_whole():
    assert truncated("abcd", 4) == "abcd"
    assert truncated("abcde", 4) == "abc…"


@pytest.mark.parametrize("lacking", [["stdout", "stderr"], ["stderr"]])
def test_a_plugin_prints_where_nobody_listens(monkeypatch, lacking):
    """A program without a console has no streams."""
    for name in lacking:
        monkeypatch.setattr(sys, name, None)
    own = sys.stdout
    with Guest():
        print("hello")  # noqa: T201
    assert sys.stdout is own

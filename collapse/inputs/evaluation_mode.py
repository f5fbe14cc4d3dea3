"""Run a model in evaluation mode during its training, then restore it and the random generators."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode, without torch.compile; restore it and the random generators at the end."""
    modes = [(module, module.training) for module in model.modules()]
    devices = {each.device for each in model.parameters() if each.is_cuda}
    of_python, of_numpy = random.getstate(), np.random.get_state()  # a data set may draw from them
    # a compiled forward pass would ignore hooks
    with torch.random.fork_rng(devices=devices), torch.compiler.set_stance("force_eager"):
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)
            for module, training in modes:
                module.training = training
                if hasattr(module, "reshard"):  # FSDP keeps weights gathered for a backward pass
                    module.reshard()

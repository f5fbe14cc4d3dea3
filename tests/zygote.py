"""A process with everything imported that forks a command line for each request: kills by the dozen, in seconds.

Reads a JSON line {"arguments", "log"}, prints the child's process id, waits, prints its exit status. The child leads a
process group of its own, so that a kill of the group is a kill of all it started.
"""

import json
import os
import sys
from typing import Any, NoReturn

import datasets  # noqa: F401  # imported for the children
import torch
import transformers

import collapse.collecting  # noqa: F401  # imported for the children
from collapse.cli import main
from collapse.plugin_manager import plugins


def serve() -> None:
    """Fork a command line for each request."""
    torch.set_num_threads(1)
    plugins()
    transformers.AutoModelForCausalLM, transformers.AutoTokenizer  # noqa: B018  # loaded when first named
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run(request)
        tell(child)
        _, status = os.waitpid(child, 0)
        tell(status)


def run(request: dict[str, Any]) -> NoReturn:
    """The child: a command line in a process group of its own, its output appended to the log."""
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        main(request["arguments"])
    except SystemExit as done:
        os._exit(int(done.code or 0))
    os._exit(70)


def tell(number: int) -> None:
    """One number a line, at once."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()

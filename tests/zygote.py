"""A process that has imported everything, and forks a command line for each request: dozens of kills take seconds.

Reads a JSON line. {"start": words, "program": Python, or null, "out": file, "err": file, "environment": names and
values, "folder": where, or null, "file_limit": bytes, or null} forks a command line, or a Python program with these
words as its arguments, and prints the child's process id; {"wait": process id} prints its exit status. The child leads
a process group of its own, so that a kill of the group is a kill of all it started. Arguments are names of more modules
to import first.
"""

import gc
import json
import os
import resource
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, NoReturn

import datasets
import torch
import transformers
from huggingface_hub import HfApi, constants  # noqa: F401  # loaded when first named

import collapse
from collapse.cli import _add_commands, main
from collapse.plugin.plugin_manager import plugins

WHEN_USED = ("altair", "pandas", "platformdirs", "rich.table", "scipy.io", "vl_convert")


def serve() -> None:
    """Fork a command line for each request."""
    torch.set_num_threads(1)
    plugins()
    _add_commands()
    ours = [module.name for module in walk_packages(collapse.__path__, "collapse.")]
    for name in [*(name for name in ours if "__main__" not in name), *WHEN_USED, *sys.argv[1:]]:
        import_module(name)
    transformers.AutoModelForCausalLM, transformers.AutoTokenizer  # noqa: B018  # as above
    transformers.GPTNeoForCausalLM, transformers.PreTrainedTokenizerFast  # noqa: B018  # as above
    with suppress(ImportError):  # other versions may have it elsewhere
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping

        get_checkpoint_conversion_mapping("gpt_neo")  # compiles a thousand regular expressions, once
    gc.collect()
    gc.freeze()  # a child neither looks through these objects nor copies their pages
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            tell(status)
            continue
        child = os.fork()
        if child == 0:
            run(request)
        tell(child)


def run(request: dict[str, Any]) -> NoReturn:
    """Run in the child: a command line or a program in its own process group, with its output appended to the log."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.update(request["environment"])
    home = os.environ.get("HF_HOME", constants.HF_HOME)
    # the libraries read these when they were imported
    constants.HF_HUB_CACHE = os.environ.get("HF_HUB_CACHE", f"{home}/hub")
    constants.HF_TOKEN_PATH = f"{home}/token"
    constants.HF_XET_CACHE = f"{home}/xet"
    constants.HF_HUB_OFFLINE = os.environ.get("HF_HUB_OFFLINE") == "1" or "--no-download" in request["start"]
    constants.HF_HUB_DOWNLOAD_TIMEOUT = int(os.environ.get("HF_HUB_DOWNLOAD_TIMEOUT", "10"))
    datasets.config.HF_DATASETS_CACHE = f"{home}/datasets"
    datasets.config.HF_HUB_OFFLINE = datasets.config.HF_DATASETS_OFFLINE = constants.HF_HUB_OFFLINE
    if "COLLAPSE_PLUGINS" in os.environ:
        plugins.cache_clear()
    if request["folder"] is not None:
        os.chdir(request["folder"])
    if request["file_limit"] is not None:  # Python ignores SIGXFSZ: a longer write ends half-way with an OSError
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"], resource.RLIM_INFINITY))
    sys.argv = ["-c" if request["program"] else "collapse", *request["start"]]
    code, names = 70, {"__name__": "__main__"}  # kept: deleting a DDP model can wait forever for a thread of gloo
    try:
        if request["program"]:
            exec(compile(request["program"], "<string>", "exec"), names)
            code = 0
        else:
            main(request["start"])
    except SystemExit as done:
        code = int(done.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)


def tell(number: int) -> None:
    """Write a number as a line, and flush."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()

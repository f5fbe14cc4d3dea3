"""The extras of this distribution, which install optional packages."""

import re

EXTRAS = {
    "gguf": "gguf",
    "peft": "adapters",
    "bitsandbytes": "quantize",
    "torchao": "quantize",
    "PIL": "images",
    "timm": "timm",
    "torchvision": "timm",
    "accelerate": "zoo,gguf",
    "lightning": "lightning",
    "submitit": "slurm",
    "altair": "report",
    "jinja2": "report",
    "vl_convert": "report",
}
"""The extra (or extras, joined by a comma) that installs each package, by the package's import name."""


def missing_package(error: BaseException) -> str | None:
    """Return a message that names a missing optional package and the command to install it; None for any other error.

    The package is also found if an ImportError names it only in its message, as some libraries do.

    >>> missing_package(ImportError("Please install torch and gguf>=0.10.0 to load a GGUF checkpoint"))
    "gguf is not installed: pip install 'linguistic-collapse[gguf]', or in a checkout '.[gguf]'"
    """
    if not isinstance(error, ImportError):
        return None
    for package, extra in EXTRAS.items():
        if error.name == package or re.search(rf"\b{package}\b", str(error)):
            return (
                f"{package} is not installed: pip install 'linguistic-collapse[{extra}]', or in a checkout '.[{extra}]'"
            )
    return None

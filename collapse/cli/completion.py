"""Shell completion by click, for commands and options; any other word is completed as a file name."""

import os
import sys
from typing import Any, cast

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)


class _OrFiles(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        return super().get_completions(args, incomplete) or [CompletionItem(incomplete, type="file")]


def prepare_completion() -> None:
    """Prepare shell completion: complete file names where click finds nothing, and skip plugins that import torch."""
    cast(dict[str, Any], sys.modules)["torch"] = None  # makes an import of torch fail
    os.environ.pop("COLLAPSE_PLUGINS", None)  # errors of these plugins would be printed
    for shell in (BashComplete, FishComplete, ZshComplete):
        add_completion_class(type(shell.__name__, (_OrFiles, shell), {}))

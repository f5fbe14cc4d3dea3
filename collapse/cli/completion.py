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
    """Set up completion: complete file names where click finds nothing; load no plugins that import torch."""
    cast(dict[str, Any], sys.modules)["torch"] = None  # plugins that import it are left out
    os.environ.pop("COLLAPSE_PLUGINS", None)  # whose errors would be printed
    for shell in (BashComplete, FishComplete, ZshComplete):
        add_completion_class(type(shell.__name__, (_OrFiles, shell), {}))

"""Keep freed memory for the next allocation, instead of giving it back to the system at once.

GNU's allocator returns large blocks when they are freed. Every product of the next batch then gets pages that the
system must clear first, which took up to a quarter of a collection's time.
"""

import os
from contextlib import suppress

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
_LARGEST = 32 << 20  # the largest block that GNU's allocator can reuse
_KEPT = 256 << 20
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> bool:
    """Let the process keep up to 256 MB of freed memory; return whether it does.

    It does not where the user has chosen otherwise, or another allocator, or where the system has no such setting.
    """
    if any(name in os.environ for name in _OF_THE_USER):
        return False
    with suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes  # here, since a command that computes nothing does not need it

        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_MMAP, _LARGEST)) and bool(mallopt(_TRIM, _KEPT))
    return False

"""Keep freed memory for the next batch or tile, instead of giving it back to the system at once."""

import torch

_BLOCK = 31 << 20  # just below the largest block that GNU's allocator can keep


def keep_freed_memory() -> None:
    """Make GNU's allocator keep up to 62 MB of freed memory.

    Otherwise it may return each freed block to the system, which clears pages for the next one: in a sweep half of the
    time, in a collection up to a quarter. Freeing one large block raises its thresholds, unless the user has set them;
    with another allocator it has no effect.
    """
    torch.empty(_BLOCK, dtype=torch.uint8)

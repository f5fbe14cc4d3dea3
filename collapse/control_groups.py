"""The control groups in which the process runs, of which a container is one: what they grant of a machine."""

from collections.abc import Iterator
from pathlib import Path


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of the process's groups and of those around them, for both versions of control groups.

    A container may see its own group at the mount, under a path that is the host's: folders that are not there count
    for nothing.

    Args:
        controller: What is asked for, as version 1 calls it: "cpu" or "memory".
        root: Where proc and sys are.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        own = mount / path.lstrip("/")
        yield from (own, *(each for each in own.parents if each.is_relative_to(mount)))

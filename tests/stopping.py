"""Stop a collection at a chunk."""


class Stopped(Exception):
    """Ends a collection between two batches, like a kill."""


def stop_at(phase, chunk):
    """Return a progress callback that stops a phase after this number of chunks."""

    def report(what, done, total, note=""):
        if what == f"collecting {phase}" and done >= chunk:
            raise Stopped

    return report

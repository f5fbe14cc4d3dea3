"""Stop a collection at a chunk."""


class Stopped(Exception):
    """Ends a collection as a kill would, between two batches."""


def stop_at(phase, chunk):
    """Return a report of progress that stops a phase once so many chunks are done."""

    def report(what, done, total, note=""):
        if what == f"collecting {phase}" and done >= chunk:
            raise Stopped

    return report

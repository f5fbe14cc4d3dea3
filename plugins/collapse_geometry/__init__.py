"""Metrics of geometry beyond NC1–NC4. Except for NC5, they are computed only if named, as in ``--metrics geometry``."""

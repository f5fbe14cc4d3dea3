"""Geometry beyond NC1–NC4. All but NC5 is measured only if named, such as ``--metrics geometry``."""

"""Geometry beyond NC1–NC4. Except for NC5, it is measured only if you name it, as in ``--metrics geometry``."""

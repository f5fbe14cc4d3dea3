"""Geometry of means, classifier and covariances beyond NC1–NC4, measured only if named: ``--metrics geometry``."""

"""Metrics of geometry beyond NC1 to NC4, one module per subject."""

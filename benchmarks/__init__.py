"""Benchmarks: time, throughput, share of a measured limit, memory and growth; run by ``python -m benchmarks``."""

"""Benchmarks of time, throughput and peak memory; run them with ``python -m benchmarks``."""

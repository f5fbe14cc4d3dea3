"""Measure a store with metrics, and read, write and compare the results."""

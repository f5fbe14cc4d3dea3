"""Measure a store with metrics; rows, results tables, column expressions."""

"""Measure a model while it trains: the monitor, and callbacks of trainers."""

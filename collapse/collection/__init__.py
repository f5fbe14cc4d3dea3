"""Collect a model and a text, or features, into a store, in two passes; measure models and null baselines."""

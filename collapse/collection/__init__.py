"""Collect statistics of a model on a text, or of features, into a store; measure models and null baselines."""

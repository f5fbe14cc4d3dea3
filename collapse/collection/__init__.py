"""Collect a model and a text, or features, into a store: the two passes and their slices."""

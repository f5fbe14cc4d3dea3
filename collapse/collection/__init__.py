"""Collect a model and a text, or features, into a store, in two passes over slices; measure models and nulls."""

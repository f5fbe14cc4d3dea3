"""Collect a model and a text, or features, into a store: plan, slices, passes, parts."""

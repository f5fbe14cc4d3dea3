"""An example of a plugin package for collapse: one of each kind."""

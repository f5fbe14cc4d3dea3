"""The built-in analyses of results tables, one file for each, as plugins."""

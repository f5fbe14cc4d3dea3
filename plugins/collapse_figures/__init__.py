"""The built-in figures, one idea per file, registered through entry points like any other plugin."""

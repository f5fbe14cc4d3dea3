"""The built-in figures: one idea a file, each registered through an entry point like anybody's."""

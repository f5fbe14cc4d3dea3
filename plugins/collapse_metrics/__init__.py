"""The built-in plugins: one small file a property, each registered through an entry point like anybody's."""

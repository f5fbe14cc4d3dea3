"""The plugin interface: hooks, declarations, reducers, statistics, and the manager that loads plugins."""

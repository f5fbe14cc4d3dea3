"""The plugin interface: hooks, declarations, measures, statistics, and the manager that loads plugins."""

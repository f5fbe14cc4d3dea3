"""Modules that all packages share: progress, paths, escaping, and settings of torch and of the process."""

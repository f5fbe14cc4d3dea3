"""Shared by all packages: progress, paths, escaping, and settings of torch and of the process."""

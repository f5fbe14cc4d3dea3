"""Shared by all packages: progress, paths, files, escaping, and settings of torch and of the process."""

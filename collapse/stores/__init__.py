"""Stores on disk: files, locks, the manifest and its checks, the store itself, provenance."""

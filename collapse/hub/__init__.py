"""Stores on the Hugging Face Hub: the client, repositories at a commit, names, fingerprints, push and pull."""

"""The zoo, a plugin of ``collapse``: stories, recipes and training of the TinyStories models."""

"""The zoo: stories, recipes and training of the TinyStories-LxD models. Itself a plugin of ``collapse``."""

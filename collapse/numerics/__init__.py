"""Class moments, decisions and the sweep over class pairs: tensor code without file access."""

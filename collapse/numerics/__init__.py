"""Class moments, decisions and the sweep over class pairs: float64 tensor code without file access."""

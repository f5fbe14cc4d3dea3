"""Figures as pictures: one theme for all, rendering without a network, and files."""

"""Figures as pictures and files, and the HTML report: one theme for both, and rendering without a network."""

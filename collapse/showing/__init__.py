"""Figures as files, and the HTML report; both use the same theme and are rendered without a network."""

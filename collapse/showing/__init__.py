"""Save figures as files, and write the HTML report; both use the same theme and are rendered without a network."""

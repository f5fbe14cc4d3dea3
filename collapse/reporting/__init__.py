"""Reports: figures, tables and definitions of results and stores as one HTML file."""

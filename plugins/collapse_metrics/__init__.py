"""The built-in metrics, one small file per property, registered through entry points like any other plugin."""

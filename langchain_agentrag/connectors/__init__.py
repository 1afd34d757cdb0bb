"""Sources of documents: what a connector is (`base.py`) and the connectors that come with the package."""

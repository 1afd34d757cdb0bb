"""Growth of processing time with the length of a text: `python -m tests.growth` prints the table."""

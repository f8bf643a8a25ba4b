"""Measurements for the maintainers: each is a command, `python -m tests.measures.NAME`."""

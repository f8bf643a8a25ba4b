"""Measurements for the maintainers: bare echoes, other servers, and promised ratios; `python -m tests.peers NAME`."""

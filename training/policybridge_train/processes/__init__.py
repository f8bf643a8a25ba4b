"""Compilers as processes: many at a time, and all ended together."""

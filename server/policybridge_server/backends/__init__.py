"""Backends: load a version's artifact and evaluate it; one file per framework."""

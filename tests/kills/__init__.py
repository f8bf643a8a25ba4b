"""Processes that are killed at random moments, those that ask them, and what must hold afterwards."""

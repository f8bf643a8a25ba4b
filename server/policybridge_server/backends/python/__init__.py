"""Backend `python`: policies that are Python code."""

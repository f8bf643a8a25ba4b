"""A faster program: its runs are counted, and decisions are found for the functions that cost most."""

"""Scores of policies and stores on a corpus, against the compiler's own decisions."""

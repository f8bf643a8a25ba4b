"""A version in a process of its own: a crash, a hang or full memory there affects only its own sessions."""
